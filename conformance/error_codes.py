"""Error codes that show their names.

Responses have error codes as numbers, and a case compares them in lists, tuples and dictionaries. `with_names` turns
them into `Code`, which is equal to its number and whose text has the name, so that a failure needs no table of codes.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from ..protocol.errors import ErrorCode
from ..protocol.schema import Struct


class Code(int):
    """An error code: `UNKNOWN_TOPIC_OR_PARTITION (3)`."""

    def __repr__(self) -> str:
        try:
            return f"{ErrorCode(int(self)).name} ({int(self)})"
        except ValueError:
            return f"unknown error code {int(self)}"

    __str__ = __repr__


class _Fields(NamedTuple):
    codes: tuple[str, ...]
    structs: tuple[str, ...]
    """The fields with structs that contain codes."""


@cache
def _fields(kind: type[Struct]) -> _Fields:
    codes = [each.name for each in kind.FIELDS if is_error_code(each.name) and not each.is_array]
    structs = [each.name for each in kind.FIELDS if each.struct is not None and any(_fields(each.struct))]
    return _Fields(tuple(codes), tuple(structs))


def is_error_code(field: str) -> bool:
    """Whether a field of this name is an error code."""
    return field == "error_code" or field.endswith("_error_code")


def with_names(struct: Struct) -> None:
    """Make the error codes of a decoded message, and of the structs inside it, instances of `Code`."""
    codes, structs = _fields(type(struct))
    for name in codes:
        setattr(struct, name, Code(getattr(struct, name)))
    for name in structs:
        value = getattr(struct, name)
        for each in value if isinstance(value, list) else [value]:
            if each is not None:
                with_names(each)


def like(expected: Any, actual: Any) -> Any:
    """`expected` with the names of error codes, where `actual` has a `Code` at the same place."""
    if isinstance(expected, ErrorCode) or (isinstance(actual, Code) and type(expected) is int):
        return Code(expected)
    if isinstance(expected, dict):
        others = actual if isinstance(actual, dict) else {}
        any_value = next(iter(others.values()), None)
        return {key: like(value, others.get(key, any_value)) for key, value in expected.items()}
    if isinstance(expected, list | tuple | set | frozenset):
        found = list(actual) if isinstance(actual, list | tuple | set | frozenset) else []
        if not isinstance(expected, tuple):
            # Elements of one kind: the first stands for those that are missing.
            found = (found if isinstance(expected, list) else []) + found[:1] * len(expected)
        found += [None] * len(expected)
        values = [like(value, other) for value, other in zip(expected, found, strict=False)]
        return type(expected)(*values) if hasattr(expected, "_fields") else type(expected)(values)
    return expected
