"""Produce: which batches are stored, and how; which are rejected, and with which error."""

from __future__ import annotations

import struct
from zlib import crc32

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.records import Codec, Record, build_batch, iter_records
from .. import partitions as p
from ..case import Layer, Level, case, needs, versions_of
from ..check import Check, Topic
from ..record_batches import ATTRIBUTES_AT, LAST_OFFSET_DELTA_AT, MAGIC_AT, RECORD_COUNT_AT, batch, changed

PRODUCE = needs(ApiKey.PRODUCE, 9)
FORMAT = "Protocol: Record Batch"
DAMAGED = frozenset({ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD})
TWO = batch(b"a", b"b", timestamp=1_700_000_000_000)
LONG = batch(b"value" * 20, timestamp=1_700_000_000_000)


def rejected(
    c: Check, topic: Topic, data: bytes, error: ErrorCode | frozenset[ErrorCode], version: int | None = None
) -> None:
    """A batch has this error, no offset, and is not appended."""
    answer = p.produce(c, topic, data, version=version)
    c.error(answer.error_code, error)
    p.no_offset(c, answer)
    c.equal(p.end_offset(c, topic), 0, "the log end offset")


# Stored batches


@case(
    "produce.acks.leader",
    "acks=1 is acknowledged like acks=-1 on a single replica",
    source="Protocol: Produce",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.PRODUCE),
)
def acks_leader(c: Check, version: int) -> None:
    """Sends: Produce with acks=1 to partition 1, four batches of three records.

    Expects: no errors and base offsets 0, 3, 6 and 9; all records are stored in order.

    Why: producers with acks=1 report the same offsets to their users.
    """
    topic = c.topic(2)
    found = []
    for number in range(4):
        values = [b"%d-%d" % (number, each) for each in range(3)]
        answer = p.produce(c, topic, batch(*values), partition=1, acks=1, version=version)
        c.error(answer.error_code, ErrorCode.NONE)
        c.equal(answer.index, 1, "index")
        found.append(answer.base_offset)
    c.equal(found, [0, 3, 6, 9], "base_offset of the four responses")
    expected = [b"%d-%d" % (number, each) for number in range(4) for each in range(3)]
    c.equal(p.values(c, topic, partition=1), expected, "the values")


@case(
    "produce.batch.unchanged",
    "a batch is stored as it was sent",
    source=FORMAT,
    needs=PRODUCE,
    variants={codec.name.lower(): (codec,) for codec in Codec},
)
def unchanged(c: Check, codec: Codec) -> None:
    """Sends: Produce of a record, then of a compressed batch with base offset 0; Fetch from offset 1.

    Expects: the second batch with base offset 1; everything from its magic byte on is unchanged, with its CRC.

    Why: offsets and the leader's epoch are outside the CRC, so that no server has to compress again; and what a
    producer wrote is what a consumer verifies.
    """
    topic = c.topic()
    sent = batch(b"a" * 100, b"b" * 100, codec=codec)
    p.append(c, topic, batch(b"first"))
    c.equal(p.append(c, topic, sent), 1, "base_offset of Produce")
    (found,) = p.batches_of(p.fetch(c, topic, 1))
    stored = bytes(found.data)
    c.equal(found.base_offset, 1, "base_offset of the stored batch")
    c.equal(stored[8:12], sent[8:12], "batch_length of the stored batch")
    c.equal(stored[12:16], bytes(4), "partition_leader_epoch of the stored batch")
    c.equal(stored[MAGIC_AT:], sent[MAGIC_AT:], "the stored batch from its magic byte on")


@case("produce.batch.fields", "keys, nulls, headers and timestamps of records are stored", source=FORMAT, needs=PRODUCE)
def fields(c: Check) -> None:
    """Sends: Produce of records with null, empty and other keys and values, with headers (also repeated, empty and
    null ones) and with different timestamps; Fetch.

    Expects: the same keys, values, headers and timestamps.

    Why: null values delete keys in compacted topics, and applications use headers for tracing.
    """
    sent = [
        Record(timestamp=1_700_000_000_005, key=None, value=None),
        Record(timestamp=1_700_000_000_003, key=b"", value=b""),
        Record(timestamp=1_700_000_000_009, key=b"k", value=b"v", headers=[("a", b"1"), ("a", b"2"), ("", None)]),
        Record(timestamp=1_700_000_000_001, key=b"\x00\xff", value="řeka".encode(), headers=[("ř", b"")]),
    ]
    topic = c.topic(1, {"retention.ms": "-1"})
    c.equal(p.append(c, topic, build_batch(sent)), 0, "base_offset")
    (found,) = p.read_batches(c, topic)
    records = [(each.timestamp, each.key, each.value, list(each.headers)) for each in iter_records(found)]
    expected = [(each.timestamp, each.key, each.value, list(each.headers)) for each in sent]
    c.equal(records, expected, "timestamp, key, value and headers of the records")
    c.equal(found.max_timestamp, 1_700_000_000_009, "max_timestamp of the batch")


@case("produce.batch.large", "a batch just below the usual limit is stored", source="Protocol: Produce", needs=PRODUCE)
def large(c: Check) -> None:
    """Sends: Produce of a value of 1,000,000 bytes; Fetch.

    Expects: the same bytes.

    Why: max.message.bytes is 1,048,588 by default, and requests are larger than one read of a socket.
    """
    topic = c.topic()
    value = bytes(range(250)) * 4_000
    c.equal(p.append(c, topic, batch(value)), 0, "base_offset")
    same = p.values(c, topic) == [value]
    c.true(same, "the stored value", expected="the 1,000,000 bytes that were sent", actual="others")


@case(
    "produce.batch.leader-epoch-ignored",
    "the leader epoch in a producer's batch is replaced",
    source=FORMAT,
    layer=Layer.WIRE,
    needs=PRODUCE,
)
def leader_epoch_ignored(c: Check) -> None:
    """Sends: Produce of a batch with partition leader epoch 9; Fetch, and ListOffsets for the end.

    Expects: no error; the stored batch has leader epoch 0, that of the partition.

    Why: the field belongs to the broker; followers would truncate their logs because of a wrong epoch.
    """
    topic = c.topic()
    answer = p.produce(c, topic, batch(b"-", leader_epoch=9))
    c.equal((answer.error_code, answer.base_offset), (0, 0), "error_code and base_offset")
    (found,) = p.batches_of(p.fetch(c, topic))
    c.equal(bytes(found.data[12:16]), bytes(4), "partition_leader_epoch of the stored batch")
    c.equal(p.list_offset(c, topic, p.LATEST).leader_epoch, 0, "leader_epoch of ListOffsets")


@case(
    "produce.batch.trailing-bytes",
    "bytes after a batch that are too few for another are ignored",
    source="Apache Kafka's behavior",
    layer=Layer.WIRE,
    level=Level.APACHE,
    needs=PRODUCE,
)
def trailing_bytes(c: Check) -> None:
    """Sends: Produce of a batch with four more bytes behind it, and of another batch.

    Expects: base offsets 0 and 1; both values, without the bytes.

    Why: Apache Kafka cuts them off; bytes that are stored would stop every consumer.
    """
    topic = c.topic()
    c.equal(p.append(c, topic, batch(b"one") + b"more"), 0, "base_offset of the first batch")
    c.equal(p.append(c, topic, batch(b"two")), 1, "base_offset of the second batch")
    c.equal(p.values(c, topic), [b"one", b"two"], "the values")


# Rejected batches


@case(
    "produce.batch.wrong-crc",
    "a batch with a wrong CRC is rejected",
    source=FORMAT,
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.PRODUCE),
)
def wrong_crc(c: Check, version: int) -> None:
    """Sends: Produce of batches in which one bit of the attributes, of the last offset delta, or of the last byte is
    flipped.

    Expects: CORRUPT_MESSAGE and no base offset; an empty log.

    Why: the CRC protects records between the producer's memory and the consumer's; CORRUPT_MESSAGE is retriable.
    """
    topic = c.topic()
    for position in (ATTRIBUTES_AT, LAST_OFFSET_DELTA_AT, len(LONG) - 1):
        data = changed(LONG, position, bytes([LONG[position] ^ 0x40]), with_crc=False)
        rejected(c, topic, data, ErrorCode.CORRUPT_MESSAGE, version)


@case(
    "produce.batch.truncated",
    "a batch that ends too early is rejected",
    source=FORMAT,
    layer=Layer.WIRE,
    needs=PRODUCE,
    variants={str(length): (length,) for length in (0, 1, 12, 17, 60, 61, 100, len(LONG) - 1)},
)
def truncated(c: Check, length: int) -> None:
    """Sends: Produce of the first bytes of a batch.

    Expects: INVALID_RECORD or CORRUPT_MESSAGE, and no base offset; an empty log.

    Why: half a batch in the log would stop every consumer.
    """
    rejected(c, c.topic(), LONG[:length], DAMAGED)


@case(
    "produce.batch.invalid",
    "a batch whose header contradicts itself is rejected",
    source=FORMAT,
    layer=Layer.WIRE,
    needs=PRODUCE,
    variants={
        **{f"record-count-{name}": (RECORD_COUNT_AT, number) for name, number in
           (("1", 1), ("3", 3), ("0", 0), ("minus-1", -1), ("largest", 2**31 - 1))},
        **{f"last-offset-delta-{name}": (LAST_OFFSET_DELTA_AT, number) for name, number in
           (("0", 0), ("5", 5), ("minus-1", -1))},
    },
)  # fmt: skip
def invalid_header(c: Check, position: int, number: int) -> None:
    """Sends: Produce of a batch of two records, in whose header their number or the last offset delta is another, with
    a correct CRC.

    Expects: INVALID_RECORD and no base offset; an empty log.

    Why: the next offset is computed from these fields; a wrong one would assign an offset twice, or skip offsets.
    """
    rejected(c, c.topic(), changed(TWO, position, struct.pack(">i", number)), ErrorCode.INVALID_RECORD)


@case(
    "produce.batch.base-offset",
    "a batch whose base offset is not 0 is rejected",
    source="Apache Kafka's behavior",
    layer=Layer.WIRE,
    level=Level.APACHE,
    needs=PRODUCE,
)
def base_offset(c: Check) -> None:
    """Sends: Produce of a batch with base offset 7.

    Expects: INVALID_RECORD and no base offset; an empty log.

    Why: producers do not know offsets; a batch with one was probably copied from a log by mistake.
    """
    rejected(c, c.topic(), batch(b"-", base_offset=7), ErrorCode.INVALID_RECORD)


@case(
    "produce.batch.two",
    "two batches for one partition in one request are rejected",
    source="Apache Kafka's behavior",
    layer=Layer.WIRE,
    level=Level.SHOULD,
    versions=versions_of(ApiKey.PRODUCE),
)
def two_batches(c: Check, version: int) -> None:
    """Sends: Produce with two valid batches, one behind the other, for one partition.

    Expects: INVALID_RECORD and no base offset; an empty log.

    Why: since version 3 a request has one batch for each partition; the response has room for one result.
    """
    rejected(c, c.topic(), TWO + TWO, ErrorCode.INVALID_RECORD, version)


def message_set(magic: int) -> bytes:
    """One message of the formats before Apache Kafka 0.11.

    Offset, size, CRC-32, magic byte, attributes, the timestamp (format 1 only), key and value.
    """
    body = struct.pack(">bb", magic, 0) + (struct.pack(">q", 5) if magic else b"") + struct.pack(">ii", -1, 1) + b"v"
    message = struct.pack(">I", crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message


@case(
    "produce.batch.old-format",
    "the message formats 0 and 1 are rejected",
    source=FORMAT,
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.PRODUCE),
)
def old_format(c: Check, version: int) -> None:
    """Sends: Produce of one message in the formats of Apache Kafka before 0.11, with magic bytes 0 and 1.

    Expects: INVALID_RECORD and no base offset; an empty log.

    Why: since version 3 of Produce only format 2 is allowed; consumers do not expect other formats in such a log.
    """
    topic = c.topic()
    for magic in (0, 1):
        rejected(c, topic, message_set(magic), ErrorCode.INVALID_RECORD, version)


@case(
    "produce.batch.unknown-magic",
    "an unknown magic byte is rejected",
    source=FORMAT,
    layer=Layer.WIRE,
    needs=PRODUCE,
    variants={"3": (3,), "127": (127,), "minus-1": (255,)},
)
def unknown_magic(c: Check, magic: int) -> None:
    """Sends: Produce of a batch with a magic byte that does not exist.

    Expects: CORRUPT_MESSAGE or INVALID_RECORD, and no base offset; an empty log.

    Why: no consumer could read it.
    """
    rejected(c, c.topic(), changed(TWO, MAGIC_AT, bytes([magic]), with_crc=False), DAMAGED)


@case(
    "produce.batch.unknown-codec",
    "an unknown compression codec is rejected",
    source=FORMAT,
    layer=Layer.WIRE,
    needs=PRODUCE,
    variants={"5": (5,), "6": (6,), "7": (7,)},
)
def unknown_codec(c: Check, codec: int) -> None:
    """Sends: Produce of a batch whose attributes have a codec that does not exist.

    Expects: an error and no base offset; an empty log. Apache Kafka has UNKNOWN_SERVER_ERROR.

    Why: no consumer could read it.
    """
    allowed = DAMAGED | {ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE}
    rejected(c, c.topic(), changed(TWO, ATTRIBUTES_AT, bytes([0, codec])), frozenset(allowed))


@case(
    "produce.batch.zstd-version",
    "zstd is accepted since version 7",
    source="KIP-110",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.PRODUCE),
)
def zstd_version(c: Check, version: int) -> None:
    """Sends: Produce of a batch that is compressed with zstd.

    Expects: before version 7 UNSUPPORTED_COMPRESSION_TYPE and no base offset; since then base offset 0.

    Why: a client of an older version may not know zstd.
    """
    topic, data = c.topic(), batch(b"value", codec=Codec.ZSTD)
    if version < 7:
        rejected(c, topic, data, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, version)
        return
    answer = p.produce(c, topic, data, version=version)
    c.equal((answer.error_code, answer.base_offset), (0, 0), "error_code and base_offset")
    c.equal(p.values(c, topic), [b"value"], "the values")


@case(
    "produce.batch.control",
    "control records of clients are rejected",
    source="KIP-98",
    layer=Layer.WIRE,
    needs=PRODUCE,
)
def control(c: Check) -> None:
    """Sends: Produce of a control batch with a COMMIT marker.

    Expects: INVALID_RECORD and no base offset; an empty log.

    Why: a client that could write markers could commit or abort the transactions of others.
    """
    marker = Record(timestamp=1_700_000_000_000, key=b"\x00\x00\x00\x01", value=bytes(6))
    rejected(c, c.topic(), build_batch([marker], control=True), ErrorCode.INVALID_RECORD)


@case(
    "produce.batch.transactional-without-id",
    "a transactional batch without a transactional ID is rejected",
    source="KIP-98",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.PRODUCE),
)
def transactional_without_id(c: Check, version: int) -> None:
    """Sends: Produce of a batch with the transactional bit and a producer ID, with a null transactional ID.

    Expects: TRANSACTIONAL_ID_AUTHORIZATION_FAILED and no base offset; an empty log.

    Why: without the ID no client could end the transaction, and consumers with read_committed would wait forever.
    """
    data = batch(b"-", producer_id=4_000_000_000, producer_epoch=0, base_sequence=0, transactional=True)
    rejected(c, c.topic(), data, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, version)


@case(
    "produce.batch.too-large",
    "max.message.bytes limits the size of a batch",
    source="Topic configuration: max.message.bytes",
    versions=versions_of(ApiKey.PRODUCE),
)
def too_large(c: Check, version: int) -> None:
    """Sends: Produce of a batch of exactly max.message.bytes, of one byte more, and of a much larger value that is
    compressed below the limit.

    Expects: base offset 0; MESSAGE_TOO_LARGE and -1; base offset 1.

    Why: a producer splits batches after this error; the limit is that of the batch as it is sent.
    """
    exact = batch(bytes(1_000))
    topic = c.topic(1, {"max.message.bytes": str(len(exact))})
    answer = p.produce(c, topic, exact, version=version)
    c.equal((answer.error_code, answer.base_offset), (0, 0), "error_code and base_offset of the largest batch")
    answer = p.produce(c, topic, batch(bytes(1_001)), version=version)
    c.error(answer.error_code, ErrorCode.MESSAGE_TOO_LARGE, "error_code of a batch with one byte more")
    p.no_offset(c, answer, "base_offset of a batch with one byte more")
    answer = p.produce(c, topic, batch(bytes(100_000), codec=Codec.GZIP), version=version)
    c.equal((answer.error_code, answer.base_offset), (0, 1), "error_code and base_offset of the compressed batch")
