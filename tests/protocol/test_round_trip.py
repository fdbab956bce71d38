"""An encoded message decodes to an equal message that ends where its bytes end: every message, every version."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.group_coordinator.records import KEYS, VALUES
from moldau.metadata.records import RECORD_TYPES
from moldau.protocol.api import message_classes
from moldau.protocol.codec import decode, decode_at, encode, encode_parts
from moldau.protocol.samples import Samples
from moldau.protocol.schema import Field, Message, Struct

MESSAGES = [
    cls for cls in [*message_classes(), *RECORD_TYPES.values(), *KEYS.values(), *VALUES.values()] if cls.VERSIONS
]
every_message = pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)


@every_message
@pytest.mark.parametrize("seed", range(5))
def test_sample(cls: type[Message], seed: int) -> None:
    samples = Samples(seed, tag_probability=0.3)
    for version in cls.VERSIONS:
        message = samples.message(cls, version)
        data = encode(message, version)
        assert decode_at(cls, data, version, 0) == (message, len(data))


@every_message
def test_defaults(cls: type[Message]) -> None:
    for version in cls.VERSIONS:
        message = cls()
        set_records(message, version)
        data = encode(message, version)
        assert decode_at(cls, data, version, 0) == (message, len(data))


@every_message
def test_between_other_bytes(cls: type[Message]) -> None:
    for version in cls.VERSIONS:
        message = Samples(seed=1).message(cls, version)
        data = encode(message, version)
        surrounded = bytearray(b"before" + data + b"after")
        assert decode_at(cls, surrounded, version, 6) == (message, 6 + len(data))
        assert decode(cls, bytes(surrounded), version, 6) == message


@every_message
def test_each_nullable_field_alone(cls: type[Message]) -> None:
    """A null in one field at a time, with all other fields set."""
    for version in cls.VERSIONS:
        for path in nullable_paths(cls, version):
            message = Samples(seed=3, null_probability=0).message(cls, version)
            set_null(message, path, version)
            data = encode(message, version)
            assert decode_at(cls, data, version, 0) == (message, len(data)), path


@every_message
def test_parts_are_the_bytes_and_records_are_a_part(cls: type[Message]) -> None:
    for version in cls.VERSIONS:
        message = Samples(seed=5, null_probability=0).message(cls, version)
        parts: list[Any] = []
        encode_parts(message, version, parts)
        assert b"".join(parts) == encode(message, version)
        for records in find_records(message, version):
            assert any(part is records for part in parts)


def set_records(struct: Struct, version: int) -> None:
    """If records are not nullable, their default cannot be encoded."""
    for field in struct.FIELDS:
        if field.type == "records" and version not in field.nullable:
            setattr(struct, field.name, b"")


def nullable_paths(cls: type[Struct], version: int) -> list[tuple[Field, ...]]:
    """The paths from the message to each of its nullable fields."""
    paths: list[tuple[Field, ...]] = []
    for field in cls.FIELDS:
        if version in field.versions:
            if version in field.nullable:
                paths.append((field,))
            if field.struct is not None:
                paths += [(field, *path) for path in nullable_paths(field.struct, version)]
    return paths


def set_null(message: Message, path: tuple[Field, ...], version: int) -> None:
    """Follow `path`, adding an element where an array is empty, and set its last field to null."""
    owner: Any = message
    for field in path[:-1]:
        assert field.struct is not None
        if field.is_array:
            setattr(owner, field.name, getattr(owner, field.name) or [field.struct()])
            owner = getattr(owner, field.name)[0]
        else:
            setattr(owner, field.name, field.struct())
            owner = getattr(owner, field.name)
        set_records(owner, version)
    setattr(owner, path[-1].name, None)


def find_records(struct: Struct, version: int) -> list[Any]:
    found: list[Any] = []
    for field in struct.FIELDS:
        value = getattr(struct, field.name)
        if version not in field.versions or value is None:
            continue
        if field.type == "records":
            found.append(value)
        elif field.struct is not None:
            for item in value if field.is_array else [value]:
                found += find_records(item, version)
    return found
