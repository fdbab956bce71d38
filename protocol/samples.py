"""Random messages, generated from their declarations: test data for encoders, servers and clients.

    Samples(seed=7).message(FetchRequest, 12)

Only fields that the version has are set, so every sample can be encoded. Values favor edge cases: the ends of integer
ranges, empty strings, lengths around 127 where a varint grows, characters of one to four bytes. The same seed generates
the same messages.
"""

from __future__ import annotations

import random
from typing import Any, TypeVar

from .schema import Field, Message, Struct

M = TypeVar("M", bound=Message)

_INTEGERS = {"int8": (-(2**7), 2**7 - 1), "int16": (-(2**15), 2**15 - 1), "uint16": (0, 2**16 - 1)}
_INTEGERS |= {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}

_LENGTHS = (0, 1, 2, 3, 7, 30)
_EDGE_LENGTHS = (0, 125, 126, 127, 128, 300)
_CHARACTERS = "abcXYZ019-._ \0\x7f\u00e9\u0142\u20ac\uffff\U0001f4a7"


class Samples:
    """A source of random messages.

    `null_probability` is the probability that a nullable field is null: 0 means never, 1 always. `tag_probability` is
    the probability that a struct has unknown tagged fields if its version allows them.
    """

    def __init__(self, seed: int, *, null_probability: float = 0.2, tag_probability: float = 0.1) -> None:
        self.random = random.Random(seed)
        self.null_probability = null_probability
        self.tag_probability = tag_probability

    def message(self, cls: type[M], version: int) -> M:
        """A message that can be encoded in `version`."""
        made: M = self._struct(cls, version, version in cls.FLEXIBLE_VERSIONS, 0)
        return made

    def _struct(self, cls: type[Any], version: int, flexible: bool, depth: int) -> Any:
        made: Struct = cls()
        for field in cls.FIELDS:
            if version in field.versions and not (field.tag is not None and self.random.random() < 0.3):
                setattr(made, field.name, self._field(field, version, flexible, depth))
        if flexible and self.random.random() < self.tag_probability:
            known = {field.tag for field in cls.FIELDS}
            tags = {self.random.choice((0, 1, 2, 3, 127, 128, 70_000, 0x7FFFFFFE)) for _ in range(3)} - known
            made.unknown_tagged_fields = {tag: self.bytes() for tag in sorted(tags)} or None
        return made

    def _field(self, field: Field, version: int, flexible: bool, depth: int) -> Any:
        if version in field.nullable and self.random.random() < self.null_probability:
            return None
        if not field.is_array:
            return self._value(field, version, flexible, depth)
        if field.struct is None:
            count = self.random.choice(_EDGE_LENGTHS if self.random.random() < 0.05 else _LENGTHS)
        else:
            count = self.random.choice((0, 1, 1, 2, 3) if depth < 2 else (0, 1, 1, 2))
        return [self._value(field, version, flexible, depth + 1) for _ in range(count)]

    def _value(self, field: Field, version: int, flexible: bool, depth: int) -> Any:
        if field.struct is not None:
            return self._struct(field.struct, version, flexible, depth)
        if field.type == "string":
            return self.string()
        if field.type in ("bytes", "records"):
            return self.bytes()
        if field.type == "bool":
            return self.random.random() < 0.5
        if field.type == "uuid":
            return self.random.choice((bytes(16), self.random.randbytes(16)))
        if field.type == "float64":
            return self.random.choice((0.0, -1.5, 1e300, self.random.random()))
        return self.integer(field.type)

    def integer(self, type: str) -> int:
        """A value of an integer type."""
        lowest, highest = _INTEGERS[type]
        edges = [value for value in (lowest, highest, 0, 1, -1, 127, 128) if lowest <= value <= highest]
        return self.random.choice((*edges, self.random.randint(lowest, highest)))

    def string(self) -> str:
        """A string; one in twenty has about the maximum length of a one-byte length field, or more."""
        if self.random.random() < 0.05:
            return "x" * self.random.choice(_EDGE_LENGTHS)
        return "".join(self.random.choices(_CHARACTERS, k=self.random.choice(_LENGTHS)))

    def bytes(self) -> bytes:
        """Bytes; one in twenty has about the maximum length of a one-byte length field, or more."""
        lengths = _EDGE_LENGTHS if self.random.random() < 0.05 else _LENGTHS
        return self.random.randbytes(self.random.choice(lengths))
