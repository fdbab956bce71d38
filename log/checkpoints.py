"""The small text files of a log directory, in Apache Kafka's formats.

    recovery-point-offset-checkpoint, log-start-offset-checkpoint, replication-offset-checkpoint,
    cleaner-offset-checkpoint
        0                               version
        <number of entries>
        <topic> <partition> <offset>    one line for each

    leader-epoch-checkpoint             the same with lines of <epoch> <start offset>
    partition.metadata                  version: 0
                                        topic_id: <uuid>
    meta.properties                     version=1, cluster.id, node.id, directory.id (KIP-858)
    .kafka_cleanshutdown                {"version":0,"brokerEpoch":-1}

A file that cannot be parsed raises `CorruptCheckpointError`; the caller decides whether it can continue without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..protocol.uuid import uuid_from_str, uuid_to_str

RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"

TopicPartition = tuple[str, int]

_VERSION = "0"


class CorruptCheckpointError(ValueError):
    """The content of a file does not match its format."""


def _entries(data: bytes, name: str) -> list[list[str]]:
    """The words of each entry line, after version and count were checked."""
    try:
        lines = data.decode("utf-8").splitlines()
        version, count = lines[0], int(lines[1])
    except (UnicodeDecodeError, IndexError, ValueError):
        raise CorruptCheckpointError(f"{name} is not a checkpoint file") from None
    if version != _VERSION:
        raise CorruptCheckpointError(f"{name} has unknown version {version!r}")
    entries = [line.split() for line in lines[2:]]
    if len(entries) != count:
        raise CorruptCheckpointError(f"{name} declares {count} entries but contains {len(entries)}")
    return entries


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    lines = [_VERSION, str(len(offsets))]
    lines += [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    return ("\n".join(lines) + "\n").encode()


def decode_offsets(data: bytes, name: str) -> dict[TopicPartition, int]:
    """Offsets by (topic, partition). An empty file has none: Apache Kafka creates it empty, and writes it later."""
    if not data:
        return {}
    entries = _entries(data, name)
    try:
        return {(topic, int(partition)): int(offset) for topic, partition, offset in entries}
    except ValueError:
        raise CorruptCheckpointError(f"{name} has a line that is not a topic, partition and offset") from None


def decode_leader_epochs(data: bytes, name: str) -> list[tuple[int, int]]:
    """(epoch, start offset) in the order of the file."""
    entries = _entries(data, name)
    try:
        return [(int(epoch), int(offset)) for epoch, offset in entries]
    except ValueError:
        raise CorruptCheckpointError(f"{name} has a line that is not an epoch and offset") from None


def encode_partition_metadata(topic_id: bytes) -> bytes:
    return f"version: {_VERSION}\ntopic_id: {uuid_to_str(topic_id)}".encode()


def decode_partition_metadata(data: bytes, name: str) -> bytes:
    """The topic id."""
    try:
        fields = dict(_key_value(line, ":") for line in data.decode("utf-8").splitlines() if line.strip())
        version, topic_id = fields["version"], uuid_from_str(fields["topic_id"])
    except (UnicodeDecodeError, KeyError, ValueError):
        raise CorruptCheckpointError(f"{name} has no topic id") from None
    if version != _VERSION:
        raise CorruptCheckpointError(f"{name} has unknown version {version!r}")
    return topic_id


def encode_properties(properties: Iterable[tuple[str, str]]) -> bytes:
    """A Java properties file; values need no escapes here."""
    return "".join(f"{key}={value}\n" for key, value in properties).encode()


def decode_properties(data: bytes) -> dict[str, str]:
    """The keys and values of a Java properties file, to the extent that Kafka's `meta.properties` uses the format."""
    properties = {}
    for line in data.decode("iso-8859-1").splitlines():
        line = line.strip()
        if line and line[0] not in "#!":
            key, value = _key_value(line, "=")
            properties[key] = value.replace("\\:", ":").replace("\\=", "=").replace("\\\\", "\\")
    return properties


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    return f'{{"version":0,"brokerEpoch":{broker_epoch}}}'.encode()


def decode_clean_shutdown(data: bytes) -> int:
    """The broker epoch of the broker that stopped cleanly; -1 if the file does not contain it (KIP-966)."""
    import json

    try:
        return int(json.loads(data)["brokerEpoch"])
    except (ValueError, KeyError, TypeError):
        return -1


def _key_value(line: str, separator: str) -> tuple[str, str]:
    key, _, value = line.partition(separator)
    return key.strip(), value.strip()
