"""The records of KRaft's metadata log: the cluster's state as a sequence of changes (KIP-631).

All messages here are flexible from version 0 and are declared like those of `protocol`. Instead of an API key they have
a record type. In the log, and in snapshots, the value of such a record is a frame:

    frame version   unsigned varint   1
    record type     unsigned varint
    version         unsigned varint   the version of the record that follows
    message

The finalized metadata.version determines which versions may be written (see Apache Kafka's MetadataVersion). This
module does not know it.
"""

from typing import Any, Final

from ..protocol.codec import decode_at, encode_parts
from ..protocol.errors import MalformedMessage, UnsupportedVersion
from ..protocol.runtime import varint, varint_tail
from ..protocol.schema import (
    ApiMessage,
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
    uint16,
    uuid,
)

FRAME_VERSION: Final = 1

RECORD_TYPES: Final[dict[int, type["MetadataRecord"]]] = {}
"""The record types of Apache Kafka 4.3; 6, 13 and 16 are not in use."""


class MetadataRecord(ApiMessage):
    """Adds each subclass to the table of record types; `API_KEY` is the type."""

    __slots__ = ()

    def __init_subclass__(cls, *, api_key: int = -1, versions: str = "none", flexible: str = "none") -> None:
        super().__init_subclass__(api_key=api_key, versions=versions, flexible=flexible)
        RECORD_TYPES[api_key] = cls


class BrokerEndpoint(Struct):
    name: str = string("0+")
    host: str = string("0+")
    port: int = uint16("0+")
    security_protocol: int = int16("0+")


class BrokerFeature(Struct):
    name: str = string("0+")
    min_supported_version: int = int16("0+")
    max_supported_version: int = int16("0+")


class RegisterBrokerRecord(MetadataRecord, api_key=0, versions="0-4", flexible="0+"):
    """A broker registered: its incarnation, endpoints, features and log directories (KIP-631, KIP-858)."""

    broker_id: int = int32("0+")
    is_migrating_zk_broker: bool = boolean("2+")
    incarnation_id: bytes = uuid("0+")
    broker_epoch: int = int64("0+")
    end_points: list[BrokerEndpoint] = array(BrokerEndpoint, "0+")
    features: list[BrokerFeature] = array(BrokerFeature, "0+")
    rack: str | None = string("0+", nullable="0+")
    fenced: bool = boolean("0+", default=True)
    in_controlled_shutdown: bool = boolean("1+")
    log_dirs: list[bytes] = array(uuid, "3+", tag=0)
    cordoned_log_dirs: list[bytes] | None = array(uuid, "4+", nullable="4+", default=None, tag=1)


class UnregisterBrokerRecord(MetadataRecord, api_key=1, versions="0", flexible="0+"):
    """A broker's registration was removed."""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+")


class TopicRecord(MetadataRecord, api_key=2, versions="0", flexible="0+"):
    """A topic was created; its partitions follow."""

    name: str = string("0+")
    topic_id: bytes = uuid("0+")


class PartitionRecord(MetadataRecord, api_key=3, versions="0-2", flexible="0+"):
    """The complete state of a partition: replicas, in-sync replicas, leader, epochs."""

    partition_id: int = int32("0+", default=-1)
    topic_id: bytes = uuid("0+")
    replicas: list[int] = array(int32, "0+")
    isr: list[int] = array(int32, "0+")
    removing_replicas: list[int] = array(int32, "0+")
    adding_replicas: list[int] = array(int32, "0+")
    leader: int = int32("0+", default=-1)
    leader_recovery_state: int = int8("0+", tag=0)
    leader_epoch: int = int32("0+", default=-1)
    partition_epoch: int = int32("0+", default=-1)
    directories: list[bytes] = array(uuid, "1+")
    eligible_leader_replicas: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=1)
    last_known_elr: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=2)


class ConfigRecord(MetadataRecord, api_key=4, versions="0", flexible="0+"):
    """A config of a resource was set, or (null) removed."""

    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")


class PartitionChangeRecord(MetadataRecord, api_key=5, versions="0-2", flexible="0+"):
    """The changes of a partition; a missing field is unchanged."""

    partition_id: int = int32("0+", default=-1)
    topic_id: bytes = uuid("0+")
    isr: list[int] | None = array(int32, "0+", nullable="0+", default=None, tag=0)
    leader: int = int32("0+", default=-2, tag=1)
    replicas: list[int] | None = array(int32, "0+", nullable="0+", default=None, tag=2)
    removing_replicas: list[int] | None = array(int32, "0+", nullable="0+", default=None, tag=3)
    adding_replicas: list[int] | None = array(int32, "0+", nullable="0+", default=None, tag=4)
    leader_recovery_state: int = int8("0+", default=-1, tag=5)
    directories: list[bytes] | None = array(uuid, "1+", nullable="1+", default=None, tag=8)
    eligible_leader_replicas: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=6)
    last_known_elr: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=7)


class FenceBrokerRecord(MetadataRecord, api_key=7, versions="0", flexible="0+"):
    """A broker lost its session. Older than BrokerRegistrationChangeRecord, which is written now."""

    id: int = int32("0+")
    epoch: int = int64("0+")


class UnfenceBrokerRecord(MetadataRecord, api_key=8, versions="0", flexible="0+"):
    """A broker may lead again. Older than BrokerRegistrationChangeRecord, which is written now."""

    id: int = int32("0+")
    epoch: int = int64("0+")


class RemoveTopicRecord(MetadataRecord, api_key=9, versions="0", flexible="0+"):
    """A topic was deleted, with its partitions and configs."""

    topic_id: bytes = uuid("0+")


class DelegationTokenRecord(MetadataRecord, api_key=10, versions="0", flexible="0+"):
    """A delegation token was created or renewed (KIP-48)."""

    owner: str = string("0+")
    requester: str = string("0+")
    renewers: list[str] = array(string, "0+")
    issue_timestamp: int = int64("0+")
    max_timestamp: int = int64("0+")
    expiration_timestamp: int = int64("0+")
    token_id: str = string("0+")


class UserScramCredentialRecord(MetadataRecord, api_key=11, versions="0", flexible="0+"):
    """A user's SCRAM credential was set (KIP-554)."""

    name: str = string("0+")
    mechanism: int = int8("0+")
    salt: bytes = bytes_("0+")
    stored_key: bytes = bytes_("0+")
    server_key: bytes = bytes_("0+")
    iterations: int = int32("0+")


class FeatureLevelRecord(MetadataRecord, api_key=12, versions="0", flexible="0+"):
    """A feature was finalized at a level (KIP-584)."""

    name: str = string("0+")
    feature_level: int = int16("0+")


class EntityData(Struct):
    entity_type: str = string("0+")
    entity_name: str | None = string("0+", nullable="0+")


class ClientQuotaRecord(MetadataRecord, api_key=14, versions="0", flexible="0+"):
    """A quota was set or removed."""

    entity: list[EntityData] = array(EntityData, "0+")
    key: str = string("0+")
    value: float = float64("0+")
    remove: bool = boolean("0+")


class ProducerIdsRecord(MetadataRecord, api_key=15, versions="0", flexible="0+"):
    """A block of producer ids was allocated to a broker (KIP-730)."""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    next_producer_id: int = int64("0+")


class BrokerRegistrationChangeRecord(MetadataRecord, api_key=17, versions="0-3", flexible="0+"):
    """A broker was fenced or unfenced, began a controlled shutdown, or changed its log directories."""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+")
    fenced: int = int8("0+", tag=0)
    in_controlled_shutdown: int = int8("1+", tag=1)
    log_dirs: list[bytes] = array(uuid, "2+", tag=2)
    cordoned_log_dirs: list[bytes] | None = array(uuid, "3+", nullable="3+", default=None, tag=3)


class AccessControlEntryRecord(MetadataRecord, api_key=18, versions="0", flexible="0+"):
    """An ACL was added (KIP-801)."""

    id: bytes = uuid("0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    pattern_type: int = int8("0+")
    principal: str = string("0+")
    host: str = string("0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


class RemoveAccessControlEntryRecord(MetadataRecord, api_key=19, versions="0", flexible="0+"):
    """An ACL was removed (KIP-801)."""

    id: bytes = uuid("0+")


class NoOpRecord(MetadataRecord, api_key=20, versions="0", flexible="0+"):
    """No change: it advances the high watermark, which shows that an idle cluster is alive (KIP-835)."""


class ZkMigrationStateRecord(MetadataRecord, api_key=21, versions="0", flexible="0+"):
    """The progress of the migration from ZooKeeper (KIP-866)."""

    zk_migration_state: int = int8("0+")


class RemoveUserScramCredentialRecord(MetadataRecord, api_key=22, versions="0", flexible="0+"):
    """A user's SCRAM credential was removed."""

    name: str = string("0+")
    mechanism: int = int8("0+")


class BeginTransactionRecord(MetadataRecord, api_key=23, versions="0", flexible="0+"):
    """The following records take effect together (KIP-868)."""

    name: str | None = string("0+", nullable="0+", default=None, tag=0)


class EndTransactionRecord(MetadataRecord, api_key=24, versions="0", flexible="0+"):
    """The records since BeginTransactionRecord take effect (KIP-868)."""


class AbortTransactionRecord(MetadataRecord, api_key=25, versions="0", flexible="0+"):
    """The records since BeginTransactionRecord are discarded (KIP-868)."""

    reason: str | None = string("0+", nullable="0+", default=None, tag=0)


class RemoveDelegationTokenRecord(MetadataRecord, api_key=26, versions="0", flexible="0+"):
    """A delegation token was removed."""

    token_id: str = string("0+")


class ControllerEndpoint(Struct):
    name: str = string("0+")
    host: str = string("0+")
    port: int = uint16("0+")
    security_protocol: int = int16("0+")


class ControllerFeature(Struct):
    name: str = string("0+")
    min_supported_version: int = int16("0+")
    max_supported_version: int = int16("0+")


class RegisterControllerRecord(MetadataRecord, api_key=27, versions="0", flexible="0+"):
    """A controller registered: its endpoints and features (KIP-919)."""

    controller_id: int = int32("0+")
    incarnation_id: bytes = uuid("0+")
    zk_migration_ready: bool = boolean("0+")
    end_points: list[ControllerEndpoint] = array(ControllerEndpoint, "0+")
    features: list[ControllerFeature] = array(ControllerFeature, "0+")


class ClearElrRecord(MetadataRecord, api_key=28, versions="0", flexible="0+"):
    """The eligible leader replicas of one topic, or of all, were cleared (KIP-966)."""

    topic_name: str = string("0+")


def encode_record(record: MetadataRecord, version: int) -> bytes:
    """The frame of a record: the value of one record of the metadata log."""
    parts: list[Any] = [varint(FRAME_VERSION), varint(record.API_KEY), varint(version)]
    encode_parts(record, version, parts)
    return b"".join(parts)


def decode_record(buf: bytes) -> tuple[MetadataRecord, int]:
    """The record in a frame, and its version.

    Raises MalformedMessage for bytes that are not a frame or have a different length than their record, and
    UnsupportedVersion for an unknown record type or version: a newer controller wrote the log.
    """
    frame_version, pos = _read_varint(buf, 0)
    if frame_version != FRAME_VERSION:
        raise MalformedMessage(f"metadata record has frame version {frame_version}, expected {FRAME_VERSION}", 0)
    record_type, pos = _read_varint(buf, pos)
    version, pos = _read_varint(buf, pos)
    cls = RECORD_TYPES.get(record_type)
    if cls is None:
        raise UnsupportedVersion(f"unknown metadata record type {record_type}")
    record, end = decode_at(cls, buf, version, pos)
    if end != len(buf):
        raise MalformedMessage(f"{len(buf) - end} bytes follow the {cls.__name__}", end)
    return record, version


def _read_varint(buf: bytes, pos: int) -> tuple[int, int]:
    try:
        first = buf[pos]
        return (first, pos + 1) if first < 0x80 else varint_tail(buf, pos + 1, first)
    except IndexError:
        raise MalformedMessage("the frame of a metadata record is truncated", pos) from None
