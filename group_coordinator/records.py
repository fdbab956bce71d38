"""The records of `__consumer_offsets`: groups and committed offsets, in Apache Kafka's formats.

Key and value of a record each begin with a number of two bytes, then the message:

    key      record type   int16   message, never flexible
    value    version       int16   message; no value (a tombstone) deletes the state of the key

Types 0 and 1 are committed offsets (0 was written before Kafka 0.9), 2 is a classic group, 3 to 8 and 16 are parts of a
consumer group (KIP-848). Others belong to share and streams groups, which are not implemented; they are ignored.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final

from ..coordinator.outcome import Record
from ..protocol.codec import decode_at, encode
from ..protocol.errors import MalformedMessage
from ..protocol.schema import ApiMessage, Message, Struct, array, bytes_, int8, int32, int64, string, uuid
from ..protocol.schema import struct as struct_
from ..protocol.uuid import ZERO_UUID

_NUMBER: Final = struct.Struct(">h")
_PARTITION: Final = struct.Struct(">i")

KEYS: Final[dict[int, type[Key]]] = {}
"""The known keys, by record type."""

VALUES: Final[dict[int, type[Value]]] = {}
"""Their values, by record type."""


class Key(ApiMessage):
    """A record's key; `API_KEY` is the record type."""

    __slots__ = ()

    def __init_subclass__(cls, *, api_key: int = -1) -> None:
        super().__init_subclass__(api_key=api_key, versions="0", flexible="none")
        KEYS[api_key] = cls


class Value(ApiMessage):
    """A record's value."""

    __slots__ = ()

    def __init_subclass__(cls, *, api_key: int = -1, versions: str = "0", flexible: str = "0+") -> None:
        super().__init_subclass__(api_key=api_key, versions=versions, flexible=flexible)
        VALUES[api_key] = cls


# -- committed offsets -------------------------------------------------------------------------------------------------


class LegacyOffsetCommitKey(Key, api_key=0):
    """The group, topic and partition of an offset, in the oldest form; the value has the current form."""

    group: str = string("0")
    topic: str = string("0")
    partition: int = int32("0")


class LegacyOffsetCommitValue(Value, api_key=0, versions="0", flexible="none"):
    """A committed offset in the oldest form."""

    offset: int = int64("0")
    metadata: str = string("0")
    commit_timestamp: int = int64("0")


class OffsetCommitKey(Key, api_key=1):
    """The group, topic and partition of an offset."""

    group: str = string("0")
    topic: str = string("0")
    partition: int = int32("0")


class OffsetCommitValue(Value, api_key=1, versions="0-4", flexible="4+"):
    """A committed offset. Version 1 is written only with an expiration time, which old clients request."""

    offset: int = int64("0+")
    leader_epoch: int = int32("3+", default=-1, ignorable=True)
    metadata: str = string("0+")
    commit_timestamp: int = int64("0+")
    expire_timestamp: int = int64("1", default=-1, ignorable=True)
    topic_id: bytes = uuid("4+", tag=0, ignorable=True)


OFFSET_KEYS: Final = (OffsetCommitKey, LegacyOffsetCommitKey)


# -- classic groups ----------------------------------------------------------------------------------------------------


class GroupMetadataKey(Key, api_key=2):
    """A classic group."""

    group: str = string("0")


class MemberMetadata(Struct):
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)
    client_id: str = string("0+")
    client_host: str = string("0+")
    rebalance_timeout: int = int32("1+", default=-1, ignorable=True)
    session_timeout: int = int32("0+")
    subscription: bytes = bytes_("0+")
    assignment: bytes = bytes_("0+")


class GroupMetadataValue(Value, api_key=2, versions="0-4", flexible="4+"):
    """A generation of a classic group: its members with their subscriptions and assignments."""

    protocol_type: str = string("0+")
    generation: int = int32("0+")
    protocol: str | None = string("0+", nullable="0+")
    leader: str | None = string("0+", nullable="0+")
    current_state_timestamp: int = int64("2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = array(MemberMetadata, "0+")


# -- consumer groups (KIP-848) -----------------------------------------------------------------------------------------


class ConsumerGroupMetadataKey(Key, api_key=3):
    """A consumer group."""

    group_id: str = string("0")


class ConsumerGroupMetadataValue(Value, api_key=3):
    """The group's epoch, which grows with every change of its members or topics, and a hash of the topics' metadata."""

    epoch: int = int32("0+")
    metadata_hash: int = int64("0+", tag=0)


class ConsumerGroupPartitionMetadataKey(Key, api_key=4):
    """The topics of a consumer group, as Kafka before 4.1 kept them; only tombstones are written."""

    group_id: str = string("0")


class PartitionMetadata(Struct):
    partition: int = int32("0+")
    racks: list[str] = array(string, "0+")


class TopicMetadata(Struct):
    topic_id: bytes = uuid("0+")
    topic_name: str = string("0+")
    num_partitions: int = int32("0+")
    partition_metadata: list[PartitionMetadata] = array(PartitionMetadata, "0+")


class ConsumerGroupPartitionMetadataValue(Value, api_key=4):
    """Partitions and racks of the topics that the group subscribed to."""

    topics: list[TopicMetadata] = array(TopicMetadata, "0+")


class ConsumerGroupMemberMetadataKey(Key, api_key=5):
    """A member of a consumer group."""

    group_id: str = string("0")
    member_id: str = string("0")


class ClassicProtocol(Struct):
    name: str = string("0+")
    metadata: bytes = bytes_("0+")


class ClassicMemberMetadata(Struct):
    session_timeout_ms: int = int32("0+")
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol, "0+")


class ConsumerGroupMemberMetadataValue(Value, api_key=5):
    """The identity and subscription of a member, and the classic protocol's part for a member that uses it."""

    instance_id: str | None = string("0+", nullable="0+")
    rack_id: str | None = string("0+", nullable="0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    subscribed_topic_names: list[str] = array(string, "0+")
    subscribed_topic_regex: str | None = string("0+", nullable="0+")
    rebalance_timeout_ms: int = int32("0+", default=-1)
    server_assignor: str | None = string("0+", nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = struct_(ClassicMemberMetadata, "0+", nullable="0+", tag=0)
    """None must be written: a record without this field is that of a member that uses the classic protocol."""


class ConsumerGroupTargetAssignmentMetadataKey(Key, api_key=6):
    """The target assignment of a consumer group."""

    group_id: str = string("0")


class ConsumerGroupTargetAssignmentMetadataValue(Value, api_key=6):
    """The group epoch that the target assignment was computed for, and when."""

    assignment_epoch: int = int32("0+")
    assignment_timestamp: int = int64("0+", tag=0, ignorable=True)


class ConsumerGroupTargetAssignmentMemberKey(Key, api_key=7):
    """A member's part of the target assignment."""

    group_id: str = string("0")
    member_id: str = string("0")


class TargetTopicPartition(Struct):
    topic_id: bytes = uuid("0+")
    partitions: list[int] = array(int32, "0+")


class ConsumerGroupTargetAssignmentMemberValue(Value, api_key=7):
    """The partitions that are assigned to the member."""

    topic_partitions: list[TargetTopicPartition] = array(TargetTopicPartition, "0+")


class ConsumerGroupCurrentMemberAssignmentKey(Key, api_key=8):
    """The current assignment of a member of a consumer group."""

    group_id: str = string("0")
    member_id: str = string("0")


class AssignedTopicPartitions(Struct):
    topic_id: bytes = uuid("0+")
    partitions: list[int] = array(int32, "0+")
    assignment_epochs: list[int] | None = array(int32, "0+", nullable="0+", tag=0)
    """The member epoch at which each partition was assigned (KIP-1251); empty in records from before that."""


class ConsumerGroupCurrentMemberAssignmentValue(Value, api_key=8):
    """The member's epochs, the state of its reconciliation, its partitions, and those that it must still revoke."""

    member_epoch: int = int32("0+")
    previous_member_epoch: int = int32("0+")
    state: int = int8("0+")
    assigned_partitions: list[AssignedTopicPartitions] = array(AssignedTopicPartitions, "0+")
    partitions_pending_revocation: list[AssignedTopicPartitions] = array(AssignedTopicPartitions, "0+")


class ConsumerGroupRegularExpressionKey(Key, api_key=16):
    """A regular expression that members of the group subscribe with."""

    group_id: str = string("0")
    regular_expression: str = string("0")


class ConsumerGroupRegularExpressionValue(Value, api_key=16):
    """The topics that it matched, the version of the metadata, and when."""

    topics: list[str] = array(string, "0+")
    version: int = int64("0+")
    timestamp: int = int64("0+")


# -- bytes -------------------------------------------------------------------------------------------------------------


def encode_record(record: Record) -> tuple[bytes, bytes | None]:
    """Key and value as in the log."""
    key, value, version = record
    if type(key) is OffsetCommitKey and not key.unknown_tagged_fields:
        encoded_key = _offset_key_prefix(key.group, key.topic) + _PARTITION.pack(key.partition)
    else:
        assert isinstance(key, Key)
        encoded_key = _NUMBER.pack(key.API_KEY) + encode(key, 0)
    if value is None:
        return encoded_key, None
    if type(value) is OffsetCommitValue and version == _PLAIN_OFFSET_VERSION:
        plain = _encode_plain_offset(value)
        if plain is not None:
            return encoded_key, plain
    return encoded_key, _NUMBER.pack(version) + encode(value, version)


def decode_record(key: bytes, value: bytes | None) -> Record | None:
    """The record of these bytes; None for an unknown type.

    Raises:
        MalformedMessage: the bytes are incomplete, or the version of the value is unknown.
    """
    record_type = _number(key, "key")
    if record_type == _OFFSET_COMMIT and value is not None and len(value) == _PLAIN_OFFSET.size:
        # Nearly all records of an offsets topic have this form, and loading decodes each of them.
        offset = _decode_plain_offset(value)
        if offset is not None:
            return Record(_offset_key(key), offset, _PLAIN_OFFSET_VERSION)
    key_type = KEYS.get(record_type)
    if key_type is None:
        return None
    decoded_key, _ = decode_at(key_type, key, 0, 2)
    if value is None:
        return Record(decoded_key, None)
    version = _number(value, "value")
    value_type = VALUES[record_type]
    if version not in value_type.VERSIONS:
        raise MalformedMessage(f"unknown version {version} of {value_type.__name__}", 0)
    decoded_value: Message
    decoded_value, _ = decode_at(value_type, value, version, 2)
    return Record(decoded_key, decoded_value, version)


_OFFSET_COMMIT: Final = OffsetCommitKey.API_KEY

# An offset with a topic id and without metadata: version, offset, leader epoch, length of the metadata plus one, commit
# timestamp, number of tagged fields, tag, its size, topic id.
_PLAIN_OFFSET: Final = struct.Struct(">hqiBqBBB16s")
_PLAIN_OFFSET_VERSION: Final = 4


def _decode_plain_offset(value: bytes) -> OffsetCommitValue | None:
    """The value if it has the form of `_PLAIN_OFFSET`; None for other values of the same length."""
    version, offset, leader_epoch, length, commit_timestamp, tags, tag, size, topic_id = _PLAIN_OFFSET.unpack(value)
    if (version, length, tags, tag, size) != (_PLAIN_OFFSET_VERSION, 1, 1, 0, 16):
        return None
    return OffsetCommitValue(
        offset=offset, leader_epoch=leader_epoch, commit_timestamp=commit_timestamp, topic_id=topic_id
    )


def _encode_plain_offset(value: OffsetCommitValue) -> bytes | None:
    """The bytes in the form of `_PLAIN_OFFSET`; None if the value does not have this form."""
    if value.metadata or value.topic_id == ZERO_UUID or value.unknown_tagged_fields:
        return None
    return _PLAIN_OFFSET.pack(
        _PLAIN_OFFSET_VERSION, value.offset, value.leader_epoch, 1, value.commit_timestamp, 1, 0, 16, value.topic_id
    )


def _offset_key_prefix(group: str, topic: str) -> bytes:
    """The beginning of the keys of all partitions: the partition is the last field. Cached, because groups commit
    frequently."""
    short = len(group) + len(topic) <= _REMEMBERED_LENGTH
    return (_remembered_key_prefix if short else _encode_key_prefix)(group, topic)


def _encode_key_prefix(group: str, topic: str) -> bytes:
    prefix = encode(OffsetCommitKey(group=group, topic=topic), 0)[: -_PARTITION.size]
    return _NUMBER.pack(_OFFSET_COMMIT) + prefix


def _offset_key(key: bytes) -> OffsetCommitKey:
    """The key; cached unless it is very long, because the same keys repeat until the log is compacted."""
    return (_remembered_offset_key if len(key) <= _REMEMBERED_LENGTH else _decode_offset_key)(key)


def _decode_offset_key(key: bytes) -> OffsetCommitKey:
    return decode_at(OffsetCommitKey, key, 0, 2)[0]


_REMEMBERED_LENGTH: Final = 1024
_remembered_offset_key = lru_cache(maxsize=4096)(_decode_offset_key)
_remembered_key_prefix = lru_cache(maxsize=1024)(_encode_key_prefix)


def _number(data: bytes, what: str) -> int:
    if len(data) < 2:
        raise MalformedMessage(f"a {what} of {len(data)} bytes has no version", 0)
    number: int = _NUMBER.unpack_from(data)[0]
    return number
