"""Produce: timestamps of records, and errors of single records (KIP-32, KIP-467)."""

from __future__ import annotations

import time

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.records import Codec, Record, build_batch, iter_records
from .. import partitions as p
from ..case import Layer, Level, Release, case, needs, versions_of
from ..check import Check
from ..record_batches import batch

PRODUCE = needs(ApiKey.PRODUCE, 9)
MINUTE_MS = 60_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
CREATE_TIME, LOG_APPEND_TIME = 0, 1
LIMITS = {"message.timestamp.before.max.ms": str(HOUR_MS), "message.timestamp.after.max.ms": str(HOUR_MS)}


def now_ms() -> int:
    return int(time.time() * 1000)


@case(
    "produce.timestamps.create-time",
    "timestamps of the producer are stored",
    source="KIP-32",
    needs=PRODUCE,
    variants={codec.name.lower(): (codec,) for codec in Codec},
)
def create_time(c: Check, codec: Codec) -> None:
    """Sends: Produce of records with the timestamps 5, 0 and 3 (milliseconds) to a topic with CreateTime; Fetch.

    Expects: log append time -1 in the response; the timestamps of the producer, the type CreateTime, and 5 as the
    largest.

    Why: applications use these timestamps as the time of the event.
    """
    topic = c.topic(1, {"retention.ms": "-1"})
    sent = [Record(timestamp=when, value=b"-") for when in (5, 0, 3)]
    answer = p.produce(c, topic, build_batch(sent, codec=codec))
    c.error(answer.error_code, ErrorCode.NONE)
    c.equal(answer.log_append_time_ms, -1, "log_append_time_ms")
    (found,) = p.read_batches(c, topic)
    c.equal([record.timestamp for record in iter_records(found)], [5, 0, 3], "the timestamps of the records")
    c.equal((found.timestamp_type, found.max_timestamp), (CREATE_TIME, 5), "timestamp type and max_timestamp")


@case(
    "produce.timestamps.log-append-time",
    "the time of the append is returned and stored",
    source="KIP-32",
    versions=versions_of(ApiKey.PRODUCE),
)
def log_append_time(c: Check, version: int) -> None:
    """Sends: Produce of two records with timestamp 5 to a topic with LogAppendTime; Fetch.

    Expects: the log append time in the response is the largest timestamp of the stored batch, which has the type
    LogAppendTime and a valid CRC; both records have this time.

    Why: the producer reports this time to its user, and consumers see the same.
    """
    topic = c.topic(1, {"message.timestamp.type": "LogAppendTime"})
    answer = p.produce(c, topic, batch(b"a", b"b", timestamp=5), version=version)
    c.error(answer.error_code, ErrorCode.NONE)
    when = answer.log_append_time_ms
    c.true(when > HOUR_MS, "log_append_time_ms", expected="the time of the append", actual=when)
    (found,) = p.read_batches(c, topic)
    c.true(found.has_valid_crc(), "the CRC of the batch", expected="valid", actual="not valid")
    c.equal((found.timestamp_type, found.max_timestamp), (LOG_APPEND_TIME, when), "timestamp type and max_timestamp")
    c.equal([record.timestamp for record in iter_records(found)], [when, when], "the timestamps of the records")
    c.equal([record.value for record in iter_records(found)], [b"a", b"b"], "the values")


@case(
    "produce.timestamps.log-append-time-compressed",
    "a compressed batch gets the time of the append without being compressed again",
    source="KIP-32",
    needs=PRODUCE,
    variants={codec.name.lower(): (codec,) for codec in Codec if codec is not Codec.NONE},
)
def log_append_time_compressed(c: Check, codec: Codec) -> None:
    """Sends: Produce of a compressed batch with old timestamps to a topic with LogAppendTime; Fetch.

    Expects: the same codec, a valid CRC, the values, and the time of the append.

    Why: the time is in the header of the batch, outside the compressed part.
    """
    topic = c.topic(1, {"message.timestamp.type": "LogAppendTime"})
    answer = p.produce(c, topic, batch(b"a", b"b", timestamp=5, codec=codec))
    c.error(answer.error_code, ErrorCode.NONE)
    (found,) = p.read_batches(c, topic)
    c.true(found.has_valid_crc(), "the CRC of the batch", expected="valid", actual="not valid")
    c.equal(found.codec, codec, "the codec")
    c.equal(found.max_timestamp, answer.log_append_time_ms, "max_timestamp")
    c.equal([record.value for record in iter_records(found)], [b"a", b"b"], "the values")


@case(
    "produce.timestamps.type-of-producer",
    "the timestamp type of a producer's batch does not count",
    source="KIP-32",
    layer=Layer.WIRE,
    level=Level.APACHE,
    needs=PRODUCE,
)
def type_of_producer(c: Check) -> None:
    """Sends: Produce of a batch with the type LogAppendTime to a topic with CreateTime.

    Expects: no error, and log append time -1.

    Why: the topic decides which time it has.
    """
    answer = p.produce(c, c.topic(), batch(b"-", log_append_time_ms=now_ms()))
    c.equal((answer.error_code, answer.log_append_time_ms), (0, -1), "error_code and log_append_time_ms")


@case(
    "produce.timestamps.out-of-range",
    "timestamps beyond the limits of the topic are rejected",
    source="KIP-937",
    versions=versions_of(ApiKey.PRODUCE),
)
def out_of_range(c: Check, version: int) -> None:
    """Sends: Produce of a record that is a day old, and of one that is a day in the future, to a topic whose limits are
    one hour; then of one that is ten minutes old.

    Expects: INVALID_TIMESTAMP and no base offset; since version 8 record 0 as the cause, with messages; then base
    offset 0.

    Why: a wrong clock of a producer would keep segments from being deleted, or delete them immediately.
    """
    topic = c.topic(1, LIMITS)
    for difference in (-DAY_MS, DAY_MS):
        answer = p.produce(c, topic, batch(b"-", timestamp=now_ms() + difference), version=version)
        c.error(answer.error_code, ErrorCode.INVALID_TIMESTAMP)
        p.no_offset(c, answer)
        if version >= 8:
            c.equal([each.batch_index for each in answer.record_errors], [0], "batch_index of record_errors")
            message = answer.record_errors[0].batch_index_error_message
            c.true(message, "batch_index_error_message", expected="a reason", actual=message)
            c.true(answer.error_message, "error_message", expected="a reason", actual=answer.error_message)
    answer = p.produce(c, topic, batch(b"-", timestamp=now_ms() - 10 * MINUTE_MS), version=version)
    c.equal((answer.error_code, answer.base_offset), (0, 0), "error_code and base_offset within the limits")


@case(
    "produce.timestamps.future-by-default",
    "records more than an hour in the future are rejected by default",
    source="KIP-1030",
    needs=PRODUCE,
    since=Release(4, 0),
    level=Level.SHOULD,
)
def future_by_default(c: Check) -> None:
    """Sends: Produce of a record two hours in the future to a topic without limits, and of one ten minutes in the
    future.

    Expects: INVALID_TIMESTAMP and no base offset; then base offset 0.

    Why: message.timestamp.after.max.ms is an hour since Apache Kafka 4.0.
    """
    topic = c.topic()
    answer = p.produce(c, topic, batch(b"-", timestamp=now_ms() + 2 * HOUR_MS))
    c.error(answer.error_code, ErrorCode.INVALID_TIMESTAMP)
    p.no_offset(c, answer)
    answer = p.produce(c, topic, batch(b"-", timestamp=now_ms() + 10 * MINUTE_MS))
    c.equal((answer.error_code, answer.base_offset), (0, 0), "error_code and base_offset of ten minutes")


@case(
    "produce.timestamps.limits-of-log-append-time",
    "the limits do not apply to topics with LogAppendTime",
    source="KIP-937",
    needs=PRODUCE,
)
def limits_of_log_append_time(c: Check) -> None:
    """Sends: Produce of a record with timestamp 5 to a topic with LogAppendTime and limits of one hour.

    Expects: no error, and the time of the append.

    Why: the timestamp of the producer is replaced.
    """
    answer = p.produce(c, c.topic(1, {**LIMITS, "message.timestamp.type": "LogAppendTime"}), batch(b"-", timestamp=5))
    c.error(answer.error_code, ErrorCode.NONE)
    c.true(answer.log_append_time_ms > 5, "log_append_time_ms", expected="the time", actual=answer.log_append_time_ms)


@case(
    "produce.timestamps.none",
    "a record without a timestamp is accepted",
    source="KIP-32",
    layer=Layer.WIRE,
    needs=PRODUCE,
    variants={"without-limits": ({},), "with-limits": (LIMITS,)},
)
def no_timestamp(c: Check, configs: dict[str, str]) -> None:
    """Sends: Produce of a record with timestamp -1, to topics with and without limits.

    Expects: no error and base offset 0.

    Why: -1 means that there is no timestamp.
    """
    answer = p.produce(c, c.topic(1, configs), batch(b"-", timestamp=-1))
    c.equal((answer.error_code, answer.base_offset), (0, 0), "error_code and base_offset")


@case(
    "produce.record-errors.no-key",
    "records without keys in a compacted topic are named by their places",
    source="KIP-467",
    versions=versions_of(ApiKey.PRODUCE),
)
def no_key(c: Check, version: int) -> None:
    """Sends: Produce of four records to a compacted topic, of which the second and the fourth have no key; then one
    with a key.

    Expects: INVALID_RECORD and no base offset; since version 8 the batch indexes 1 and 3 with messages; nothing of the
    batch is appended; then base offset 0.

    Why: compaction needs keys; the producer reports the records at fault to its user, and can send the others again.
    """
    topic = c.topic(1, {"cleanup.policy": "compact"})
    now = now_ms()
    data = build_batch([Record(timestamp=now, key=key, value=b"v") for key in (b"a", None, b"c", None)])
    answer = p.produce(c, topic, data, version=version)
    c.error(answer.error_code, ErrorCode.INVALID_RECORD)
    p.no_offset(c, answer)
    if version >= 8:
        c.equal([each.batch_index for each in answer.record_errors], [1, 3], "batch_index of record_errors")
        for each in answer.record_errors:
            message = each.batch_index_error_message
            c.true(message, "batch_index_error_message", expected="a reason", actual=message)
        c.true(answer.error_message, "error_message", expected="a reason", actual=answer.error_message)
    good = build_batch([Record(timestamp=now, key=b"a", value=None)])
    answer = p.produce(c, topic, good, version=version)
    c.equal((answer.error_code, answer.base_offset), (0, 0), "error_code and base_offset of a record with a key")


@case(
    "produce.compression-type",
    "a topic's codec replaces that of the producer",
    source="Topic configuration: compression.type",
    needs=PRODUCE,
    variants={
        f"{sent.name.lower()}-to-{name}": (sent, name, stored)
        for sent, name, stored in (
            (Codec.NONE, "gzip", Codec.GZIP),
            (Codec.ZSTD, "gzip", Codec.GZIP),
            (Codec.GZIP, "uncompressed", Codec.NONE),
            (Codec.LZ4, "zstd", Codec.ZSTD),
            (Codec.SNAPPY, "lz4", Codec.LZ4),
            (Codec.GZIP, "snappy", Codec.SNAPPY),
            (Codec.GZIP, "producer", Codec.GZIP),
        )
    },
)
def compression_type(c: Check, sent: Codec, name: str, stored: Codec) -> None:
    """Sends: Produce of two batches with one codec to a topic with another compression.type; Fetch.

    Expects: base offsets 0 and 2; batches with the codec of the topic ("producer" keeps that of the batch), valid CRCs,
    and the same records with their timestamps.

    Why: users choose a codec for a topic, whatever its producers send.
    """
    topic = c.topic(1, {"compression.type": name, "retention.ms": "-1"})
    for base_offset in (0, 2):
        records = [Record(timestamp=1_700_000_000_000 + each, key=b"k", value=b"v" * 50) for each in (7, 3)]
        answer = p.produce(c, topic, build_batch(records, codec=sent))
        c.equal((answer.error_code, answer.base_offset), (0, base_offset), "error_code and base_offset")
    found = p.read_batches(c, topic)
    c.equal([each.codec for each in found], [stored, stored], "the codecs of the stored batches")
    c.true(all(each.has_valid_crc() for each in found), "the CRCs", expected="valid", actual="not valid")
    read = [(each.offset, each.timestamp, each.key, each.value) for batches in found for each in iter_records(batches)]
    expected = [(offset, 1_700_000_000_000 + (3 if offset % 2 else 7), b"k", b"v" * 50) for offset in range(4)]
    c.equal(read, expected, "offset, timestamp, key and value of the records")
