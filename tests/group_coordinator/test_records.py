"""Records of the offsets topic from their bytes, including arbitrary bytes."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from moldau.coordinator.outcome import Record
from moldau.group_coordinator.records import (
    KEYS,
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_record,
    encode_record,
)
from moldau.protocol.codec import decode_at, encode
from moldau.protocol.errors import MalformedMessage
from moldau.protocol.samples import Samples

KEY = OffsetCommitKey(group="group", topic="topic", partition=3)
PLAIN = OffsetCommitValue(
    offset=2**40, leader_epoch=7, commit_timestamp=1_700_000_000_000, topic_id=b"0123456789abcdef"
)


def test_unknown_records_are_ignored() -> None:
    """Share and streams groups have other types, and there will be more."""
    for record_type in (9, 10, 15, 17, 23, 1000, -1):
        assert record_type not in KEYS
        assert decode_record(record_type.to_bytes(2, "big", signed=True) + b"whatever", b"\0\0") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", b"\0\0"),
        (b"\0", b"\0\0"),
        (b"\0\2\0\5grou", None),
        (b"\0\2\0\5group", b""),
        (b"\0\2\0\5group", b"\0\5"),
        (b"\0\2\0\5group", b"\xff\xff"),
        (b"\0\2\0\5group", b"\0\0\0\1"),
        (b"\0\2\xff\xff", None),
    ],
)
def test_malformed_bytes_are_rejected(key: bytes, value: bytes | None) -> None:
    with pytest.raises(MalformedMessage):
        decode_record(key, value)


def test_bytes_after_a_record_are_ignored() -> None:
    """A newer version may have appended fields to a key; tagged fields of a value are another matter."""
    assert decode_record(b"\0\2\0\5group and more", None) == Record(GroupMetadataKey(group="group"), None)


def test_the_offset_that_is_looked_at_first_is_read_as_any_other() -> None:
    """Bytes with the length of a plain offset are decoded by a fast path, which must not make a difference."""
    source = random.Random(1)
    key, plain = encode_record(Record(KEY, PLAIN, 4))
    assert plain is not None
    assert decode_record(key, plain) == Record(KEY, PLAIN, 4)
    as_long_with_metadata = encode(OffsetCommitValue(metadata="x" * 18), 4)
    assert len(plain) == 2 + len(as_long_with_metadata)
    seen = set()
    for number in range(4000):
        changed = bytearray(plain if number % 2 else b"\0\4" + as_long_with_metadata)
        for _ in range(source.randint(0, 3)):
            changed[source.choice((0, 1, 14, 23, 24, 25, source.randrange(len(changed))))] = source.choice(
                (0, 1, 2, 3, 4, 16, source.randrange(256))
            )
        value = bytes(changed)
        version = int.from_bytes(value[:2], "big", signed=True)
        expected: Record | type[MalformedMessage] = MalformedMessage
        if version in OffsetCommitValue.VERSIONS:
            with suppress(MalformedMessage):
                expected = Record(KEY, decode_at(OffsetCommitValue, value, version, 2)[0], version)
        try:
            found: Record | type[MalformedMessage] | None = decode_record(key, value)
        except MalformedMessage:
            found = MalformedMessage
        assert found == expected, value.hex()
        seen.add(type(found))
    assert len(seen) == 2


def test_a_key_that_was_read_before_is_read_again() -> None:
    samples = Samples(seed=3)
    for _ in range(2):
        for number in range(50):
            key = samples.message(OffsetCommitKey, 0) if number % 5 else KEY
            assert decode_record(*encode_record(Record(key, PLAIN, 4))) == Record(key, PLAIN, 4)


def test_a_malformed_key_of_an_offset_is_rejected() -> None:
    key, value = encode_record(Record(KEY, PLAIN, 4))
    for end in range(2, len(key)):
        with pytest.raises(MalformedMessage):
            decode_record(key[:end], value)


def test_the_offset_that_is_looked_at_first_is_written_as_any_other() -> None:
    samples = Samples(seed=5, tag_probability=0.3)
    plain = 0
    for number in range(500):
        value = samples.message(OffsetCommitValue, 4)
        if number % 2:
            value.metadata = ""
        _, encoded = encode_record(Record(KEY, value, 4))
        assert encoded == b"\0\4" + encode(value, 4)
        plain += len(encoded) == len(b"\0\4" + encode(PLAIN, 4))
    assert plain > 50
    for version in OffsetCommitValue.VERSIONS:
        value = OffsetCommitValue(offset=5, topic_id=PLAIN.topic_id)
        assert encode_record(Record(KEY, value, version))[1] == version.to_bytes(2, "big") + encode(value, version)


def test_keys_of_offsets_are_written_as_any_other() -> None:
    """The common part of the keys of a topic's partitions is cached; tombstones have the same keys."""
    samples = Samples(seed=7)
    for number in range(200):
        key = samples.message(OffsetCommitKey, 0) if number % 2 else OffsetCommitKey(group="g", topic="t")
        for partition in (0, number, -1, 2**31 - 1):
            key.partition = partition
            expected = b"\0\1" + encode(key, 0)
            assert encode_record(Record(key, PLAIN, 4))[0] == expected
            assert encode_record(Record(key, None)) == (expected, None)
