"""What configs of topics change: limits of records, timestamps, compression, and what can be deleted."""

from __future__ import annotations

import time

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ...protocol.records import Codec, Record, build_batch
from .. import configs as k
from .. import partitions as p
from ..case import Level, Release, case, needs
from ..check import Check, Topic
from ..record_batches import batch

ALTER = needs(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, ApiKey.PRODUCE, 9)


def set_config(c: Check, topic: Topic, key: str, value: str) -> None:
    result = k.alter(c, k.Resource(k.TOPIC, topic.name), (key, k.SET, value))
    c.error(result.error_code, ErrorCode.NONE, "IncrementalAlterConfigs error_code")


def until_rejected(c: Check, topic: Topic, data: bytes, expected: ErrorCode) -> None:
    """Produce until the change has arrived at the leader; then the base offset is -1 and the log does not grow."""

    def is_rejected() -> bool:
        answer = p.produce(c, topic, data)
        c.error(answer.error_code, {ErrorCode.NONE, expected}, "Produce error_code")
        return answer.error_code == expected

    c.until(is_rejected, f"{expected.name} of Produce")
    end = p.end_offset(c, topic)
    answer = p.produce(c, topic, data)
    c.error(answer.error_code, expected, "Produce error_code")
    p.no_offset(c, answer, "base_offset of the rejected batch")
    c.equal(p.end_offset(c, topic), end, "the log end offset after the rejected batch")


@case(
    "configs.effect.max-message-bytes",
    "a new limit for batches is in effect without a restart",
    source="Documentation: Topic Configs",
    needs=ALTER,
)
def max_message_bytes(c: Check) -> None:
    """Sends: Produce with a batch of 3000 bytes; `max.message.bytes=2000`; the batch again, and a smaller one; then
    DELETE of the config, and the batch again.

    Expects: MESSAGE_TOO_LARGE while the config is set, also for a topic that already has larger batches; a smaller
    batch is accepted.

    Why: a limit protects consumers with little memory from a producer that is already running.
    """
    topic = c.topic()
    large = batch(b"x" * 3_000)
    p.append(c, topic, large)
    set_config(c, topic, "max.message.bytes", "2000")
    until_rejected(c, topic, large, ErrorCode.MESSAGE_TOO_LARGE)
    c.error(p.produce(c, topic, batch(b"x" * 1_000)).error_code, ErrorCode.NONE, "error_code of a smaller batch")
    resource = k.Resource(k.TOPIC, topic.name)
    c.error(k.alter(c, resource, ("max.message.bytes", k.DELETE, None)).error_code, ErrorCode.NONE, "error of DELETE")
    c.until(lambda: p.produce(c, topic, large).error_code == ErrorCode.NONE, "a large batch that is accepted again")


@case(
    "configs.effect.compaction-needs-keys",
    "a topic that becomes compacted rejects records without keys",
    source="Documentation: Topic Configs",
    needs=ALTER,
)
def compaction_needs_keys(c: Check) -> None:
    """Sends: Produce with a record without a key; `cleanup.policy=compact`; the record again.

    Expects: INVALID_RECORD for the second one, and an unchanged log.

    Why: compaction keeps one record for each key; a record without a key would stop it.
    """
    topic = c.topic()
    p.append(c, topic, batch(b"no key"))
    set_config(c, topic, "cleanup.policy", "compact")
    until_rejected(c, topic, batch(b"no key"), ErrorCode.INVALID_RECORD)


@case(
    "configs.effect.timestamp-after-max",
    "a limit for timestamps in the future is in effect without a restart",
    source="KIP-937",
    needs=ALTER,
    since=Release(3, 6),
)
def timestamp_after_max(c: Check) -> None:
    """Sends: Produce with a timestamp 20 minutes in the future; `message.timestamp.after.max.ms=60000`; the batch
    again, and one with the present time.

    Expects: INVALID_TIMESTAMP for the second one, and an unchanged log; the last one is accepted.

    Why: a producer with a wrong clock would keep a log from being deleted by age.
    """
    topic = c.topic()
    future = batch(b"future", timestamp=int(time.time() * 1000) + 1_200_000)
    p.append(c, topic, future)
    set_config(c, topic, "message.timestamp.after.max.ms", "60000")
    until_rejected(c, topic, future, ErrorCode.INVALID_TIMESTAMP)
    c.error(p.produce(c, topic, batch(b"now")).error_code, ErrorCode.NONE, "error_code of the present time")


@case(
    "configs.effect.min-insync-replicas",
    "a minimum of replicas in sync above the number of replicas is that number",
    source="KIP-966",
    needs=ALTER,
    level=Level.APACHE,
)
def min_insync_replicas(c: Check) -> None:
    """Sends: Produce with acks=-1 and acks=1 to a topic with one replica, for which `min.insync.replicas` is 2.

    Expects: no error, and base offsets 0 and 1.

    Why: a minimum for all topics of a cluster must not stop writes to topics with fewer replicas.
    """
    topic = c.topic(configs={"min.insync.replicas": "2"})
    shown = k.value(c, k.Resource(k.TOPIC, topic.name), "min.insync.replicas")
    c.equal(shown, ("2", k.DYNAMIC_TOPIC), "min.insync.replicas (value and source)")
    for base_offset, acks in enumerate((-1, 1)):
        answer = p.produce(c, topic, batch(b"value"), acks=acks)
        c.error(answer.error_code, ErrorCode.NONE, f"error_code with acks={acks}")
        c.equal(answer.base_offset, base_offset, f"base_offset with acks={acks}")


@case(
    "configs.effect.log-append-time",
    "a topic can use the time of the append as timestamp",
    source="KIP-32",
    needs=ALTER,
)
def log_append_time(c: Check) -> None:
    """Sends: `message.timestamp.type=LogAppendTime` for a topic; Produce with the timestamp 1000.

    Expects: a `log_append_time_ms` of today in the response, and the same as the timestamp of the stored batch, whose
    timestamp type is LogAppendTime.

    Why: with this config, consumers rely on times of one clock instead of those of all producers.
    """
    topic = c.topic()
    set_config(c, topic, "message.timestamp.type", "LogAppendTime")

    def appended() -> int | None:
        answer = p.produce(c, topic, batch(b"value", timestamp=1_000))
        c.error(answer.error_code, ErrorCode.NONE, "Produce error_code")
        return answer.log_append_time_ms if answer.log_append_time_ms != -1 else None

    found = c.until(appended, "a log_append_time_ms in the response to Produce")
    c.true(found > 1_500_000_000_000, "log_append_time_ms", expected="a time of today, in ms", actual=found)
    last = p.read_batches(c, topic)[-1]
    c.equal(last.max_timestamp, found, "max_timestamp of the stored batch")
    c.equal(bool(last.attributes & 8), True, "whether the timestamp type of the stored batch is LogAppendTime")


@case(
    "configs.effect.compression-type",
    "a topic can have its own compression codec",
    source="Documentation: Topic Configs",
    needs=ALTER,
    variants={"gzip": ("gzip", Codec.GZIP), "uncompressed": ("uncompressed", Codec.NONE)},
)
def compression_type(c: Check, name: str, codec: Codec) -> None:
    """Sends: `compression.type` gzip or uncompressed for a topic; Produce with a batch that is compressed with lz4.

    Expects: the stored batch has the codec of the topic, and the same values.

    Why: an operator saves space, or lets consumers without a codec read, without changing the producers.
    """
    topic = c.topic()
    set_config(c, topic, "compression.type", name)
    data = batch(b"value" * 50, b"other", codec=Codec.LZ4)

    def codec_of_last() -> bool:
        p.append(c, topic, data)
        return p.read_batches(c, topic)[-1].codec == codec

    c.until(codec_of_last, f"a stored batch with the codec {codec.name}")
    c.equal(p.values(c, topic)[-2:], [b"value" * 50, b"other"], "the last two values")


@case(
    "configs.effect.delete-records",
    "records of a topic without the policy delete cannot be deleted by request",
    source="KIP-107",
    needs=needs(ApiKey.DELETE_RECORDS, 2, ApiKey.CREATE_TOPICS, 7, ApiKey.PRODUCE, 9),
    variants={
        "compact": ("compact", ErrorCode.POLICY_VIOLATION),
        "compact-delete": ("compact,delete", ErrorCode.NONE),
        "delete": ("delete", ErrorCode.NONE),
    },
)
def delete_records(c: Check, policy: str, expected: ErrorCode) -> None:
    """Sends: DeleteRecords up to offset 1 for a topic with three records and a `cleanup.policy`.

    Expects: with `delete` in the policy, no error, low watermark 1, and the log starts at 1; otherwise
    POLICY_VIOLATION, low watermark -1, and the log starts at 0.

    Why: the last value of a key in a compacted topic is kept until the key is deleted by a record.
    """
    topic = c.topic(configs={"cleanup.policy": policy})
    now = int(time.time() * 1000)
    p.append(c, topic, build_batch([Record(timestamp=now, key=b"key", value=each) for each in (b"a", b"b", b"c")]))
    requested = DeleteRecordsTopic(name=topic.name, partitions=[DeleteRecordsPartition(partition_index=0, offset=1)])
    (found,) = c.call(DeleteRecordsRequest(topics=[requested], timeout_ms=30_000), 2).topics
    (answer,) = found.partitions
    c.error(answer.error_code, expected)
    is_deleted = expected == ErrorCode.NONE
    c.equal(answer.low_watermark, 1 if is_deleted else -1, "low_watermark")
    c.equal(p.end_offset(c, topic, timestamp=p.EARLIEST), int(is_deleted), "the log start offset")
