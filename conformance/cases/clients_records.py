"""Real clients produce and consume records; the suite's own requests check what the server has stored."""

from __future__ import annotations

import random
from typing import Any

from ...protocol.api import ApiKey
from ...protocol.compression import Codec
from ...protocol.records import Record, RecordBatch, iter_records
from ...testing.clients import CLIENT_NAMES
from .. import partitions as p
from ..case import Layer, case, needs
from ..check import Check, Topic
from ..client_jobs import Acknowledged, ClientJobs
from ..record_batches import batch

SECONDS = 120.0
"""More than the clients' own deadlines, whose errors say more."""
RECORDS = needs(ApiKey.METADATA, 5, ApiKey.PRODUCE, 7, ApiKey.FETCH, 10, ApiKey.LIST_OFFSETS, 4)
CODECS = {"gzip": Codec.GZIP, "snappy": Codec.SNAPPY, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}
T0 = 1_700_000_000_000


def without(*names: str) -> tuple[str, ...]:
    """All clients except those that do not have what a case needs."""
    return tuple(each for each in CLIENT_NAMES if each not in names)


def stored_batches(c: Check, topic: Topic, *, partition: int = 0) -> list[RecordBatch]:
    """The batches of a partition, as the suite reads them."""
    with c.setup(f"reading {topic.name} without the client"):
        return p.read_batches(c, topic, partition=partition)


def stored(c: Check, topic: Topic, *, partition: int = 0) -> list[Record]:
    """The records of a partition, as the suite reads them."""
    batches = stored_batches(c, topic, partition=partition)
    return [record for batch in batches if not batch.is_control for record in iter_records(batch)]


def texts(records: list[Record]) -> list[tuple[str | None, str | None, list[tuple[str, str | None]]]]:
    """Keys, values and headers."""
    return [
        (_text(each.key), _text(each.value), [(name, _text(value)) for name, value in each.headers]) for each in records
    ]


def round_trip(c: Check, client: str, records: list[dict[str, Any]]) -> None:
    """The client produces the records, and consumes them; nothing about them changes."""
    topic, jobs = c.topic(), ClientJobs(c, client)
    acknowledged = jobs.produce(topic.name, records)
    expected = [Acknowledged(0, offset) for offset in range(len(records))]
    c.equal(acknowledged, expected, f"{jobs.call_of('produce')}: partition and offset of the records")
    sent = [
        (each.get("key"), each["value"], [(name, value) for name, value in each.get("headers", ())]) for each in records
    ]
    c.equal(texts(stored(c, topic)), sent, f"keys, values and headers that {client} sent, as Fetch returns them")
    consumed = [(each.key, each.value, each.headers) for each in jobs.consume(topic.name)]
    c.equal(consumed, sent, f"{jobs.call_of('consume')}: keys, values and headers")


def values(count: int, word: str = "value") -> list[dict[str, Any]]:
    """Numbered records."""
    return [{"value": f"{word}-{number}"} for number in range(count)]


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="backslashreplace")


@case(
    "clients.records",
    "keys, values and headers are what was produced",
    source="Protocol: Record",
    layer=Layer.CLIENTS,
    needs=RECORDS,
    clients=CLIENT_NAMES,
    seconds=SECONDS,
)
def records(c: Check, client: str) -> None:
    """Sends: the client produces records with and without keys, headers and characters that are not ASCII, and consumes
    them.

    Expects: offsets from 0 on, and the same keys, values and headers, also in the suite's own Fetch.

    Why: it is what every application does.
    """
    round_trip(
        c,
        client,
        [
            {"key": "first", "value": "1", "headers": [["trace", "a"], ["trace", "b"]]},
            {"value": "without a key"},
            {"key": "klíč", "value": "hodnota 価値", "headers": [["hlavička", "ž"]]},
            {"key": "first", "value": "2"},
        ],
    )


@case(
    "clients.null-values",
    "null and empty values differ",
    source="Protocol: Record",
    layer=Layer.CLIENTS,
    needs=RECORDS,
    clients=CLIENT_NAMES,
    seconds=SECONDS,
)
def null_values(c: Check, client: str) -> None:
    """Sends: the client produces records with a key and a null value, an empty value, and a value, and consumes them.

    Expects: null is null, and empty is empty.

    Why: in a compacted topic a null value deletes the key.
    """
    round_trip(c, client, [{"key": "a", "value": value} for value in (None, "", "x")])


@case(
    "clients.null-headers",
    "null and empty values of headers differ",
    source="KIP-82",
    layer=Layer.CLIENTS,
    needs=RECORDS,
    clients=without("kafka-python"),
    seconds=SECONDS,
)
def null_headers(c: Check, client: str) -> None:
    """Sends: the client produces a record whose headers have a null, an empty and another value, and consumes it.

    Expects: null is null, and empty is empty.

    Why: frameworks use headers without a value as marks.
    """
    round_trip(c, client, [{"value": "v", "headers": [["null", None], ["empty", ""], ["other", "x"]]}])


@case(
    "clients.codec",
    "compressed batches are stored and can be read",
    source="Protocol: Record Batch; KIP-110",
    layer=Layer.CLIENTS,
    needs=RECORDS,
    variants={name: (name,) for name in CODECS},
    clients=CLIENT_NAMES,
    seconds=SECONDS,
)
def codec(c: Check, client: str, name: str) -> None:
    """Sends: the client produces 200 records with a codec, and consumes them.

    Expects: all records in their order, and batches with that codec, because `compression.type` of the topic is
    `producer`.

    Why: producers compress by default in many systems; each library has its own format of snappy and lz4 frames.
    """
    topic, jobs = c.topic(), ClientJobs(c, client)
    # Some clients do not compress a batch that would not become smaller; these become, even with one record.
    sent = values(200, "a value that can be compressed well " * 20)
    jobs.produce(topic.name, sent, codec=name)
    codecs = {batch.codec for batch in stored_batches(c, topic)}
    c.equal(codecs, {int(CODECS[name])}, f"the codecs of the batches that {client} sent, as Fetch returns them")
    expected = [each["value"] for each in sent]
    c.equal([each.value for each in jobs.consume(topic.name)], expected, f"{jobs.call_of('consume')}: values")


@case(
    "clients.order",
    "the records of each partition keep their order",
    source="Protocol: Produce",
    layer=Layer.CLIENTS,
    needs=RECORDS,
    clients=CLIENT_NAMES,
    seconds=SECONDS,
)
def order(c: Check, client: str) -> None:
    """Sends: the client produces 300 records to three partitions, and consumes each partition.

    Expects: each partition has its records, in the order in which they were sent, at the offsets that were
    acknowledged.

    Why: order within a partition is what applications build on.
    """
    topic, jobs = c.topic(3), ClientJobs(c, client)
    # Each change of the partition is one run of kcat.
    sent = [{"value": f"{number}", "partition": number // 50 % 3} for number in range(300)]
    acknowledged = jobs.produce(topic.name, sent)
    for partition in range(3):
        expected = [each["value"] for each in sent if each["partition"] == partition]
        offsets = [each.offset for each in acknowledged if each.partition == partition]
        what = f"of partition {partition}"
        c.equal(offsets, list(range(100)), f"{jobs.call_of('produce')}: offsets {what}")
        c.equal([_text(each.value) for each in stored(c, topic, partition=partition)], expected, f"values {what}")
        consumed = jobs.consume(topic.name, partition=partition)
        c.equal([each.value for each in consumed], expected, f"{jobs.call_of('consume')}: values {what}")
        c.equal([each.offset for each in consumed], list(range(100)), f"{jobs.call_of('consume')}: offsets {what}")


@case(
    "clients.idempotence",
    "an idempotent producer writes each record once",
    source="KIP-98",
    layer=Layer.CLIENTS,
    needs=(*RECORDS, *needs(ApiKey.INIT_PRODUCER_ID, 0)),
    clients=CLIENT_NAMES,
    seconds=SECONDS,
)
def idempotence(c: Check, client: str) -> None:
    """Sends: the client produces 100 records with `enable.idempotence`, and consumes them.

    Expects: all records once and in order, in batches of one producer ID whose sequence numbers continue from 0.

    Why: it is the default of the Java client and of franz-go.
    """
    topic, jobs = c.topic(), ClientJobs(c, client)
    sent = values(100)
    jobs.produce(topic.name, sent, idempotent=True, linger_ms=0)
    batches = stored_batches(c, topic)
    producers = {(each.producer_id, each.producer_epoch) for each in batches}
    valid = len(producers) == 1 and all(producer >= 0 and epoch >= 0 for producer, epoch in producers)
    c.true(valid, "producer IDs and epochs of the batches", expected="one of each, not -1", actual=producers)
    sequences = [(each.base_sequence, each.base_offset) for each in batches]
    expected = [(each.base_offset, each.base_offset) for each in batches]
    c.equal(sequences, expected, "base_sequence and base_offset of the batches")
    consumed = [each.value for each in jobs.consume(topic.name)]
    c.equal(consumed, [each["value"] for each in sent], f"{jobs.call_of('consume')}: values")


@case(
    "clients.large-record",
    "a record that is larger than the limits of a fetch is returned",
    source="KIP-74",
    layer=Layer.CLIENTS,
    needs=RECORDS,
    clients=CLIENT_NAMES,
    seconds=SECONDS,
)
def large_record(c: Check, client: str) -> None:
    """Sends: the client produces a record of 900 kB between two small ones, and consumes them with `fetch.max.bytes`
    and `max.partition.fetch.bytes` of 2,000.

    Expects: all three records.

    Why: otherwise a consumer does not get past a large record.
    """
    topic, jobs = c.topic(), ClientJobs(c, client)
    large = random.Random(1).randbytes(450_000).hex()
    sent = [{"value": "before"}, {"value": large}, {"value": "after"}]
    for each in sent:  # in separate batches
        jobs.produce(topic.name, [each])
    consumed = [len(each.value or "") for each in jobs.consume(topic.name, max_bytes=2_000)]
    c.equal(consumed, [6, 900_000, 5], f"{jobs.call_of('consume')}: lengths of the values")


@case(
    "clients.too-large-record",
    "a record that is larger than the topic permits is rejected",
    source="Protocol: Produce",
    layer=Layer.CLIENTS,
    needs=(*RECORDS, *needs(ApiKey.CREATE_TOPICS, 2)),
    clients=CLIENT_NAMES,
    seconds=SECONDS,
)
def too_large_record(c: Check, client: str) -> None:
    """Sends: the client produces a record of 20 kB to a topic with `max.message.bytes` 10,000, and then a small one.

    Expects: the client reports MESSAGE_TOO_LARGE; the small record has offset 0.

    Why: the application learns the cause, and its producer is still usable.
    """
    topic, jobs = c.topic(configs={"max.message.bytes": "10000"}), ClientJobs(c, client)
    large = random.Random(1).randbytes(10_000).hex()
    options = {"acks": "all", "idempotent": False}
    jobs.expect_error(
        "produce", "MESSAGE_TOO_LARGE", "of 20 kB", topic=topic.name, records=[{"value": large}], options=options
    )
    c.equal(jobs.produce(topic.name, values(1)), [Acknowledged(0, 0)], f"{jobs.call_of('produce')}: the next record")


@case(
    "clients.offset-for-time",
    "a client finds the first record with a timestamp, and reads on from there",
    source="KIP-79",
    layer=Layer.CLIENTS,
    needs=RECORDS,
    clients=CLIENT_NAMES,
    seconds=SECONDS,
)
def offset_for_time(c: Check, client: str) -> None:
    """Sends: for records with three timestamps, the client looks up the offsets for the first one, for one between the
    first two, and for one after the last; then it consumes from the second result.

    Expects: 0, 1 and none; the records from offset 1 on.

    Why: applications reprocess a period of time like this.
    """
    topic, jobs = c.topic(), ClientJobs(c, client)
    with c.setup("producing records with timestamps"):
        for number, value in enumerate((b"a", b"b", b"c")):
            p.append(c, topic, batch(value, timestamp=T0 + 1_000 * number))
    found = [
        jobs.do("offset_for_time", topic=topic.name, partition=0, timestamp=timestamp)["offset"]
        for timestamp in (T0, T0 + 1, T0 + 2_001)
    ]
    c.equal(found, [0, 1, None], f"{jobs.call_of('offset_for_time')}: offsets")
    consumed = [(each.offset, each.value) for each in jobs.consume(topic.name, start=1)]
    c.equal(consumed, [(1, "b"), (2, "c")], f"{jobs.call_of('consume')} from offset 1: offsets and values")


@case(
    "clients.out-of-range",
    "an offset after the end is reported",
    source="Protocol: Fetch",
    layer=Layer.CLIENTS,
    needs=RECORDS,
    clients=CLIENT_NAMES,
    seconds=SECONDS,
)
def out_of_range(c: Check, client: str) -> None:
    """Sends: the client consumes from offset 11 of a partition whose end is 10, without automatic reset.

    Expects: the client reports OFFSET_OUT_OF_RANGE.

    Why: otherwise the consumer waits for records that it has missed.
    """
    topic, jobs = c.topic(), ClientJobs(c, client)
    with c.setup("producing ten records"):
        p.append(c, topic, batch(*[b"%d" % number for number in range(10)]))
    what = "from offset 11, where the end is 10"
    jobs.expect_error("consume", "OFFSET_OUT_OF_RANGE", what, topic=topic.name, partition=0, start=11, options={})


@case(
    "clients.offsets",
    "a client finds the first and the last offset",
    source="Protocol: ListOffsets",
    layer=Layer.CLIENTS,
    needs=(*RECORDS, *needs(ApiKey.DELETE_RECORDS, 0)),
    clients=without("kcat"),
    seconds=SECONDS,
)
def offsets(c: Check, client: str) -> None:
    """Sends: the client looks up both ends of a partition with five records, deletes the first three records, looks up
    the ends again, and consumes from offset 1.

    Expects: 0 and 5, then 3 and 5, and OFFSET_OUT_OF_RANGE.

    Why: the lag of a consumer is computed from these offsets.
    """
    topic, jobs = c.topic(2), ClientJobs(c, client)
    with c.setup("producing five records"):
        p.append(c, topic, batch(b"a", b"b", b"c", b"d", b"e"), partition=1)

    def ends() -> tuple[int, int]:
        found = jobs.do("offsets", topic=topic.name, partition=1)
        return found["first"], found["end"]

    c.equal(ends(), (0, 5), f"{jobs.call_of('offsets')}: first and end")
    deleted = jobs.do("delete_records", topic=topic.name, partition=1, offset=3)["offset"]
    c.equal(deleted, 3, f"{jobs.call_of('delete_records')}: the first offset that is left")
    c.equal(ends(), (3, 5), f"{jobs.call_of('offsets')} after the deletion: first and end")
    what = "from a deleted offset"
    jobs.expect_error("consume", "OFFSET_OUT_OF_RANGE", what, topic=topic.name, partition=1, start=1, options={})
