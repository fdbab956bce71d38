"""Ways to declare a mutation: a field of the responses or requests of an API, and how its value changes.

    in_response(
        "produce.base-offset", "the base offset is one too high", ApiKey.PRODUCE,
        "responses.partition_responses.base_offset", plus(1), "produce.exchange",
    )

The last arguments are the cases that must fail.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ErrorCode

from ..mutating_proxy import Exchange, Mutation

Change = Callable[[Any], Any]
ALL = range(1 << 15)


def in_response(
    name: str,
    title: str,
    api: ApiKey,
    path: str | Iterable[str],
    change: Change,
    *cases: str,
    versions: Collection[int] = ALL,
) -> Mutation:
    """`path` is a field, below the fields of arrays and structs; several paths if the field depends on the version."""

    def on_response(exchange: Exchange, response: Any) -> None:
        if exchange.version in versions:
            apply(response, path, change)

    return Mutation(name, title, cases, (api,), on_response=on_response)


def in_request(
    name: str,
    title: str,
    api: ApiKey,
    path: str | Iterable[str],
    change: Change,
    *cases: str,
    versions: Collection[int] = ALL,
) -> Mutation:
    """The server sees another request than the client has sent: it seems to ignore a field, for example."""

    def on_request(exchange: Exchange, request: Any) -> None:
        if exchange.version in versions:
            apply(request, path, change)

    return Mutation(name, title, cases, (api,), on_request=on_request)


def error_hidden(
    name: str, title: str, api: ApiKey, path: str | Iterable[str], code: ErrorCode, *cases: str
) -> Mutation:
    """A request that has to be rejected seems to succeed."""
    return in_response(name, title, api, path, becomes({code: ErrorCode.NONE}), *cases)


def apply(message: Any, path: str | Iterable[str], change: Change) -> None:
    for each_path in [path] if isinstance(path, str) else path:
        *parents, field = each_path.split(".")
        for struct in each(message, parents):
            if hasattr(struct, field):
                old = getattr(struct, field)
                new = change(old)
                if new is not old and new != old:
                    setattr(struct, field, new)


def each(message: Any, path: str | list[str]) -> Iterator[Any]:
    """The structs below a message: the elements of arrays of arrays."""
    parents = path.split(".") if isinstance(path, str) else path
    if not parents:
        yield message
        return
    value = getattr(message, parents[0], None)
    for struct in value if isinstance(value, list) else [] if value is None else [value]:
        yield from each(struct, parents[1:])


# Changes of values. Those of numbers leave -1, "unknown", unchanged.


def plus(number: int) -> Change:
    return lambda old: old + number if old >= 0 else old


def positive_plus(number: int) -> Change:
    return lambda old: old + number if old > 0 else old


def always(new: Any) -> Change:
    return lambda old: new


def becomes(values: Mapping[Any, Any]) -> Change:
    return lambda old: values.get(old, old)


def inverted(old: bool) -> bool:
    return not old


def without_last(old: list[Any] | None) -> list[Any] | None:
    return old[:-1] if old else old


def without_first(old: list[Any] | None) -> list[Any] | None:
    return old[1:] if old else old


def last_twice(old: list[Any] | None) -> list[Any] | None:
    return [*old, old[-1]] if old else old


def reverse(old: Any) -> Any:
    return old[::-1] if old else old


def empty(old: Any) -> Any:
    return old[:0] if old else old


def null_if_empty(old: Any) -> Any:
    return old or None


def message_if_none(old: str | None) -> str:
    """An error message where there is none."""
    return old or "no error"


def empty_if_null(old: Any) -> Any:
    return "" if old is None else old


def upper(old: str | None) -> str | None:
    return old.upper() if old else old


def shifted(old: Any) -> Any:
    """The values of an array of numbers, each one too high."""
    return [value + 1 for value in old] if old else old


def another_id(old: bytes) -> bytes:
    """A topic ID whose last bit is different; the zero ID remains."""
    return old[:-1] + bytes((old[-1] ^ 1,)) if any(old) else old


ZERO_ID = bytes(16)
