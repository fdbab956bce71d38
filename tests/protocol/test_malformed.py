"""For any bytes a decoder returns a message or raises MalformedMessage, with memory in proportion to the frame."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from moldau.group_coordinator.records import KEYS, VALUES
from moldau.metadata.records import RECORD_TYPES, decode_record, encode_record
from moldau.protocol.api import message_classes
from moldau.protocol.codec import decode, decoder, encode
from moldau.protocol.errors import EncodeError, MalformedMessage, UnsupportedVersion
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.create_topics import CreateTopicsRequest
from moldau.protocol.messages.fetch import FetchRequest, FetchResponse
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.messages.offset_delete import OffsetDeleteRequest
from moldau.protocol.messages.produce import ProduceRequest
from moldau.protocol.runtime import MAX_ARRAY_LENGTH, MAX_TAGGED_FIELDS, varint
from moldau.protocol.samples import Samples
from moldau.protocol.schema import Field, Message

MESSAGES = [
    cls for cls in [*message_classes(), *RECORD_TYPES.values(), *KEYS.values(), *VALUES.values()] if cls.VERSIONS
]
every_message = pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)


def assert_rejected(cls: type[Message], data: bytes, version: int, reason: str, offset: int | None = None) -> None:
    with pytest.raises(MalformedMessage, match=reason) as caught:
        decode(cls, data, version)
    if offset is not None:
        assert caught.value.offset == offset


# Any bytes. ---------------------------------------------------------------------------------------------------------


@every_message
def test_truncated_anywhere(cls: type[Message]) -> None:
    for version in cls.VERSIONS:
        data = encode(Samples(seed=version, tag_probability=0.3).message(cls, version), version)
        for end in range(min(len(data), 400)):
            with pytest.raises(MalformedMessage) as caught:
                decode(cls, data[:end], version)
            assert 0 <= caught.value.offset <= end


@every_message
def test_mutated(cls: type[Message]) -> None:
    """A few bytes changed: an accepted message can be encoded, and decodes to the same message again."""
    source = random.Random(cls.__name__)
    for version in cls.VERSIONS:
        data = encode(Samples(seed=version, tag_probability=0.3).message(cls, version), version)
        for _ in range(40):
            changed = bytearray(data)
            for _ in range(source.randint(1, 3)):
                if changed:
                    changed[source.randrange(len(changed))] = source.choice(
                        (0, 1, 2, 127, 128, 255, source.randrange(256))
                    )
            check_any_bytes(cls, version, bytes(changed))


@every_message
def test_random_bytes(cls: type[Message]) -> None:
    source = random.Random(cls.__name__)
    for version in cls.VERSIONS:
        for _ in range(20):
            check_any_bytes(cls, version, source.randbytes(source.randrange(100)))
        for byte in (0, 1, 2, 127, 128, 255):
            check_any_bytes(cls, version, bytes([byte]) * 64)


def check_any_bytes(cls: type[Message], version: int, data: bytes) -> None:
    message = message_or_error(cls, data, version)
    if isinstance(message, MalformedMessage):
        assert 0 <= message.offset <= len(data)
        return
    again = encode(message, version)
    # Compared by their bytes, because a NaN does not equal itself.
    assert encode(decode(cls, again, version), version) == again


def message_or_error(cls: type[Message], data: bytes, version: int) -> Message | MalformedMessage:
    try:
        return decode(cls, data, version)
    except MalformedMessage as error:
        return error


def test_any_bytes_as_the_frame_of_a_metadata_record() -> None:
    source = random.Random(8)
    frames = [encode_record(Samples(seed=1).message(cls, 0), 0) for cls in RECORD_TYPES.values()]
    for frame in frames:
        for end in range(len(frame)):
            with pytest.raises(MalformedMessage):
                decode_record(frame[:end])
        for _ in range(200):
            changed = bytearray(frame)
            changed[source.randrange(len(changed))] = source.randrange(256)
            try:
                record, version = decode_record(bytes(changed))
            except (MalformedMessage, UnsupportedVersion):
                continue
            assert decode_record(encode_record(record, version))[1] == version


# Memory. ------------------------------------------------------------------------------------------------------------

IN_EACH_RUN = 5
"""Every message of that many; the full run has all of them."""

BYTES_PER_BYTE = 150
"""The maximum memory per frame byte: a struct of a few bytes becomes an object, its arrays and its tags."""


@pytest.mark.parametrize(
    "cls",
    [
        pytest.param(cls, id=cls.__name__, marks=[] if number % IN_EACH_RUN == 0 else pytest.mark.full)
        for number, cls in enumerate(MESSAGES)
    ],
)
def test_memory_is_in_proportion_to_the_frame(cls: type[Message]) -> None:
    """Frames full of the smallest elements, with and without an empty unknown tag in each."""
    version = cls.VERSIONS.highest
    for message in crowded(cls, version, 500):
        data = encode(message, version)
        decode_function = decoder(cls, version)
        decode_function(data, 0)
        tracemalloc.start()
        decode_function(data, 0)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < BYTES_PER_BYTE * len(data)


def crowded(cls: type[Message], version: int, count: int) -> Iterator[Message]:
    """For each array, at any depth: a message with that array full of defaults."""
    tags = [None, {99: b""}] if version in cls.FLEXIBLE_VERSIONS else [None]
    for path in array_paths(cls, version):
        for unknown in tags:
            message = cls()
            owner: Any = message
            for index, field in enumerate(path):
                copies = count if index == len(path) - 1 else 1
                items = [smallest(field, unknown) for _ in range(copies if field.is_array else 1)]
                setattr(owner, field.name, items if field.is_array else items[0])
                owner = items[0]
            yield message


def array_paths(cls: Any, version: int) -> Iterator[tuple[Field, ...]]:
    for field in cls.FIELDS:
        if version in field.versions:
            if field.is_array:
                yield (field,)
            if field.struct is not None:
                yield from ((field, *path) for path in array_paths(field.struct, version))


def smallest(field: Field, unknown: dict[int, bytes] | None) -> Any:
    if field.struct is None:
        return {"string": "", "uuid": bytes(16)}.get(field.type, 0)
    made = field.struct(unknown_tagged_fields=unknown)
    for inner in field.struct.FIELDS:
        if inner.type == "records":
            setattr(made, inner.name, b"")
    return made


@pytest.mark.parametrize(
    ("cls", "version", "data"),
    [
        (MetadataRequest, 1, b"\x7f\xff\xff\xff"),
        (MetadataRequest, 9, varint(0x7FFFFFFF)),
        (OffsetDeleteRequest, 0, b"\0\0" + b"\0\x0f\xff\xff"),
        (HeartbeatRequest, 0, b"\x7f\xff"),
        (HeartbeatRequest, 4, varint(0x7FFF)),
        (ProduceRequest, 3, b"\xff\xff\0\0\0\0\0\0\0\0\0\1\0\1t\0\0\0\1\0\0\0\0\x7f\xff\xff\xff"),
    ],
)
def test_a_length_alone_allocates_nothing(cls: type[Message], version: int, data: bytes) -> None:
    tracemalloc.start()
    assert_rejected(cls, data, version, "elements|ends early|past the end")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000


# Rejected input, and its errors. ------------------------------------------------------------------------------------


def test_end_of_frame() -> None:
    assert_rejected(HeartbeatRequest, b"\0\3abc\0\0", 0, "HeartbeatRequest ends early: the frame has 7 bytes", 5)
    assert_rejected(HeartbeatRequest, b"", 0, "ends early", 0)


def test_string_past_the_end() -> None:
    assert_rejected(HeartbeatRequest, b"\0\4g", 0, "ends early")
    assert_rejected(ApiVersionsRequest, b"\2a\2b\1\0\5", 3, "past the end")


def test_null_in_a_field_that_is_not_nullable() -> None:
    assert_rejected(HeartbeatRequest, b"\xff\xff", 0, r"HeartbeatRequest\.group_id is null", 2)
    assert_rejected(HeartbeatRequest, b"\0", 4, r"HeartbeatRequest\.group_id is null", 1)
    assert_rejected(MetadataRequest, b"\xff\xff\xff\xff", 0, r"MetadataRequest\.topics is null")


def test_any_negative_length_is_null() -> None:
    assert decode(MetadataRequest, b"\x80\0\0\0", 1).topics is None


def test_string_that_is_not_utf8() -> None:
    assert_rejected(HeartbeatRequest, b"\0\2\xc3\x28\0\0\0\0\0\0", 0, "not UTF-8")
    assert_rejected(HeartbeatRequest, b"\0\3\xed\xa0\x80\0\0\0\0\0\0", 0, "not UTF-8")


def test_compact_string_longer_than_any_string() -> None:
    data = varint(0x8001) + b"x" * 0x8000 + b"\0\0\0\0\1\0\0"
    assert_rejected(HeartbeatRequest, data, 4, r"group_id has 32768 bytes, more than the limit of 32767")
    data = varint(0x8000) + b"x" * 0x7FFF + b"\0\0\0\0\1\0\0"
    assert decode(HeartbeatRequest, data, 4).group_id == "x" * 0x7FFF


def test_array_that_cannot_fit() -> None:
    # A topic of CreateTopicsRequest v2 takes at least 16 bytes: name, partitions, factor, two counts.
    room = bytes(16 * 200 - 1)
    assert_rejected(
        CreateTopicsRequest, b"\0\0\0\xc8" + room, 2, "topics has 200 elements of at least 16 bytes, and 3199 bytes"
    )


def test_array_of_more_than_a_million() -> None:
    count = MAX_ARRAY_LENGTH + 1
    assert_rejected(
        MetadataRequest, count.to_bytes(4, "big") + bytes(2 * count), 1, "topics has 1000001 elements, more than"
    )


def test_array_of_a_million() -> None:
    count = MAX_ARRAY_LENGTH
    before_topics = bytes(25)
    forgotten = b"\0\0\0\1" + b"\0\1t" + count.to_bytes(4, "big") + bytes(4 * count)
    request = decode(FetchRequest, before_topics + b"\0\0\0\0" + forgotten, 7)
    assert len(request.forgotten_topics_data[0].partitions) == count


def test_varint_beyond_int32() -> None:
    assert_rejected(HeartbeatRequest, b"\xff\xff\xff\xff\x0f", 4, "a varint above 2147483647")
    assert_rejected(HeartbeatRequest, b"\xff\xff\xff\xff\xff\xff\x01", 4, "a varint above 2147483647")


def test_varint_longer_than_needed() -> None:
    assert decode(HeartbeatRequest, b"\x82\x80\x00g\0\0\0\0\1\0\0", 4).group_id == "g"


# Tagged fields. -----------------------------------------------------------------------------------------------------

HEARTBEAT = b"\2g\0\0\0\1\2m\0"
"""HeartbeatRequest v4 up to its tagged fields; it declares none."""


def test_too_many_tags() -> None:
    assert_rejected(
        HeartbeatRequest, HEARTBEAT + varint(MAX_TAGGED_FIELDS + 1), 4, "10001 tagged fields, more than the limit"
    )
    tags = b"".join(varint(tag) + b"\0" for tag in range(MAX_TAGGED_FIELDS))
    message = decode(HeartbeatRequest, HEARTBEAT + varint(MAX_TAGGED_FIELDS) + tags, 4)
    assert message.unknown_tagged_fields == dict.fromkeys(range(MAX_TAGGED_FIELDS), b"")


def test_too_many_tags_in_a_struct_with_declared_tags() -> None:
    data = encode(FetchRequest(), 12)[:-1]
    assert_rejected(FetchRequest, data + varint(MAX_TAGGED_FIELDS + 1), 12, "10001 tagged fields, more than the limit")


def test_tag_past_the_end() -> None:
    assert_rejected(
        HeartbeatRequest, HEARTBEAT + b"\1\5\3ab", 4, "a length reaches to 14, past the end of the frame at 14|past"
    )
    assert_rejected(FetchRequest, encode(FetchRequest(), 12)[:-1] + b"\1\5\3ab", 12, "past the end")


def test_tags_may_have_any_order_and_the_last_duplicate_wins() -> None:
    """As by Apache Kafka's readers, although its writers sort them."""
    message = decode(HeartbeatRequest, HEARTBEAT + b"\3" + b"\7\1a" + b"\5\1b" + b"\7\1c", 4)
    assert message.unknown_tagged_fields == {7: b"c", 5: b"b"}
    assert encode(message, 4) == HEARTBEAT + b"\2" + b"\5\1b" + b"\7\1c"
    data = encode(FetchRequest(), 12)[:-1] + b"\3" + b"\x09\1z" + b"\0\3\3aa" + b"\0\2\2b"
    request = decode(FetchRequest, data, 12)
    assert (request.cluster_id, request.unknown_tagged_fields) == ("b", {9: b"z"})


def test_tag_with_a_wrong_size() -> None:
    for wrong in (b"\0\2\3aa", b"\0\4\3aa\0"):
        assert_rejected(
            FetchRequest, encode(FetchRequest(), 12)[:-1] + b"\1" + wrong, 12, r"cluster_id ends at \d+, its tag says"
        )


def test_tag_that_this_version_does_not_have() -> None:
    """ReplicaState is tag 1 from version 15 on; in earlier versions, 1 is not an unknown tag but an invalid one."""
    assert_rejected(
        FetchRequest, encode(FetchRequest(), 12)[:-1] + b"\1\1\1a", 12, "FetchRequest has no tag 1 in this version"
    )


# Versions and frames. -----------------------------------------------------------------------------------------------


def test_version_that_does_not_exist() -> None:
    for version in (3, 19, -1):
        with pytest.raises(UnsupportedVersion, match=f"FetchRequest has no version {version}"):
            decode(FetchRequest, b"", version)
        with pytest.raises(UnsupportedVersion, match=f"FetchRequest has no version {version}"):
            encode(FetchRequest(), version)


def test_frame_of_a_metadata_record() -> None:
    with pytest.raises(MalformedMessage, match="frame version 2, expected 1"):
        decode_record(b"\2\0\0")
    with pytest.raises(UnsupportedVersion, match="unknown metadata record type 6"):
        decode_record(b"\1\6\0")
    with pytest.raises(UnsupportedVersion, match="NoOpRecord has no version 1"):
        decode_record(b"\1\x14\1\0")
    with pytest.raises(MalformedMessage, match="1 bytes follow the NoOpRecord"):
        decode_record(b"\1\x14\0\0\0")
    assert decode_record(b"\1\x14\0\0")[1] == 0


def test_encoding_decoded_records_needs_no_copy() -> None:
    """Records are a view of the frame, so that appending them to a log copies no bytes."""
    frame = encode(Samples(seed=2, null_probability=0).message(FetchResponse, 17), 17)
    for topic in decode(FetchResponse, frame, 17).responses:
        for partition in topic.partitions:
            assert isinstance(partition.records, memoryview)
            assert partition.records.obj is frame


def test_encode_error_is_not_malformed_message() -> None:
    with pytest.raises(EncodeError):
        encode(HeartbeatRequest(generation_id=1 << 40), 4)
