"""Features of declarations that no message of Kafka 4.3 uses, or not in every combination."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.protocol.codec import decode, decode_at, encode
from moldau.protocol.errors import MalformedMessage
from moldau.protocol.schema import (
    Message,
    Struct,
    array,
    boolean,
    bytes_,
    float64,
    int8,
    int16,
    int32,
    int64,
    string,
    struct,
    uint16,
    uuid,
)


class Point(Struct):
    x: int = int32("0+")
    y: int = int32("0+", default=7)


class Line(Message, versions="0-1", flexible="1+"):
    start: Point = struct(Point, "0+")
    end: Point = struct(Point, "0+")


@pytest.mark.parametrize("version", [0, 1])
def test_two_structs_of_one_type_side_by_side(version: int) -> None:
    """They are read and written together; each must keep a separate variable."""
    line = Line(start=Point(x=1, y=2), end=Point(x=3, y=4))
    assert decode(Line, encode(line, version), version) == line
    assert encode(line, 0) == b"\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0\4"
    assert encode(line, 1) == b"\0\0\0\1\0\0\0\2\0\0\0\0\3\0\0\0\4\0\0"


class Maybe(Message, versions="0-1", flexible="1+"):
    point: Point | None = struct(Point, "0+", nullable="0+", default=None)
    tagged: Point | None = struct(Point, "1+", nullable="1+", default=None, tag=0)


def test_nullable_struct() -> None:
    assert encode(Maybe(), 0) == b"\xff"
    assert encode(Maybe(point=Point(x=1, y=2)), 0) == b"\1\0\0\0\1\0\0\0\2"
    for version in (0, 1):
        for message in (Maybe(), Maybe(point=Point(x=1))):
            assert decode(Maybe, encode(message, version), version) == message


def test_nullable_struct_in_a_tag() -> None:
    """Its presence is a varint, not a byte as outside of tags."""
    message = Maybe(tagged=Point(x=1, y=2))
    data = encode(message, 1)
    assert data == b"\xff" + b"\1" + b"\0\x0a" + b"\1" + b"\0\0\0\1\0\0\0\2\0"
    assert decode(Maybe, data, 1) == message
    assert decode(Maybe, b"\xff" + b"\1" + b"\0\1" + b"\0", 1) == Maybe()


class Everything(Message, versions="0-2", flexible="1+"):
    flag: bool = boolean("0+", default=True)
    tiny: int = int8("0+")
    small: int = int16("0+")
    port: int = uint16("0+")
    number: int = int32("0+")
    big: int = int64("0+")
    ratio: float = float64("0+")
    id: bytes = uuid("0+")
    name: str = string("0+")
    note: str | None = string("0+", nullable="0+")
    blob: bytes = bytes_("0+")
    maybe_blob: bytes | None = bytes_("0+", nullable="0+")
    tinies: list[int] = array(int8, "0+")
    smalls: list[int] = array(int16, "0+")
    numbers: list[int] = array(int32, "0+")
    bigs: list[int] = array(int64, "0+")
    ids: list[bytes] = array(uuid, "0+")
    names: list[str] = array(string, "0+")
    points: list[Point] = array(Point, "0+")
    maybe_points: list[Point] | None = array(Point, "0+", nullable="0+")
    late_flag: bool = boolean("2+")
    late_name: str = string("2+", tag=0)
    late_blob: bytes = bytes_("2+", tag=1)
    late_numbers: list[int] = array(int32, "2+", tag=2)
    late_points: list[Point] = array(Point, "2+", tag=3)
    late_flags: bool = boolean("2+", tag=5)
    late_ratio: float = float64("2+", tag=6)


EVERYTHING: dict[str, Any] = {
    "flag": False,
    "tiny": -128,
    "small": -(2**15),
    "port": 65535,
    "number": -(2**31),
    "big": 2**63 - 1,
    "ratio": -0.5,
    "id": bytes(range(16)),
}


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("length", [0, 1, 125, 126, 127, 128, 129, 16382, 16383, 16384])
def test_lengths_around_the_growth_of_a_varint(version: int, length: int) -> None:
    message = Everything(
        **EVERYTHING,
        name="n" * length,
        note="n" * length,
        blob=bytes(length),
        maybe_blob=bytes(length),
        tinies=[-1] * length,
        smalls=[-1] * length,
        numbers=[-1] * length,
        bigs=[-1] * length,
        ids=[bytes(range(16))] * length,
        names=["n" * min(length, 200)] * min(length, 200),
        points=[Point(x=2)] * length,
        maybe_points=[Point(x=2)] * length,
    )
    if version == 2:
        message.late_flag = message.late_flags = True
        message.late_name = "n" * length
        message.late_blob = bytes(length)
        message.late_numbers = [5] * length
        message.late_points = [Point()] * length
        message.late_ratio = 2.5
        message.unknown_tagged_fields = {4: bytes(length), 200: b"", 70_000: b"x"}
    data = encode(message, version)
    assert decode_at(Everything, data, version, 0) == (message, len(data))
    assert decode(Everything, bytearray(data), version) == message


def test_nulls_and_defaults() -> None:
    for version in (0, 1, 2):
        message = Everything(note=None, maybe_blob=None, maybe_points=None)
        data = encode(message, version)
        assert decode(Everything, data, version) == message
        assert encode(Everything(), version) != data


def test_values_of_a_boolean() -> None:
    data = bytearray(encode(Everything(), 0))
    for byte, flag in ((0, False), (1, True), (2, True), (255, True)):
        data[0] = byte
        assert decode(Everything, data, 0).flag is flag


def test_tags_are_written_in_order() -> None:
    message = Everything(late_name="a", late_flags=True, unknown_tagged_fields={9: b"z", 4: b"y"})
    end = b"\4" + b"\0\2\2a" + b"\4\1y" + b"\5\1\1" + b"\x09\1z"
    assert encode(message, 2).endswith(end)


class Empty(Struct):
    pass


class Holder(Message, versions="0"):
    items: list[Empty] = array(Empty, "0+")
    numbers: list[int] = array(int32, "0+")


def test_array_of_structs_without_size() -> None:
    """It has no more elements than bytes that follow it, whatever the size of an element."""
    assert decode(Holder, b"\0\0\0\3" + b"\0\0\0\0", 0) == Holder(items=[Empty(), Empty(), Empty()])
    with pytest.raises(MalformedMessage, match="1000000 elements of at least 1 bytes, and 4 bytes remain"):
        decode(Holder, b"\0\x0f\x42\x40" + b"\0\0\0\0", 0)
