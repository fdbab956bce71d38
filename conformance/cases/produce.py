"""Produce: acknowledgments, order, and batches that are rejected."""

from __future__ import annotations

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.api_versions import ApiVersionsRequest
from ...protocol.records import Codec
from .. import partitions as p
from ..case import Layer, Level, case, needs, versions_of
from ..check import Check
from ..record_batches import LAST_OFFSET_DELTA_AT, MAGIC_AT, RECORD_COUNT_AT, batch, changed

PRODUCE = needs(ApiKey.PRODUCE, 9)


@case(
    "produce.exchange",
    "a batch is appended and acknowledged",
    source="Protocol: Produce",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.PRODUCE),
)
def exchange(c: Check, version: int) -> None:
    """Sends: Produce with acks=-1 and a batch of two records to partition 1 of a new topic, twice.

    Expects: partition 1, no error, base offsets 0 and 2, log append time -1 as the topic uses CreateTime, log start
    offset 0; in version 13 the topic ID instead of its name.

    Why: a producer matches responses by these fields, and reports the offsets to its user.
    """
    topic = c.topic(2)
    for base_offset in (0, 2):
        request = p.produce_request(topic, {1: batch(b"a", b"b")}, version=version)
        response = c.call(request, version)
        c.equal(len(response.responses), 1, "responses (number of topics)")
        (found,) = response.responses
        if version >= 13:
            c.equal(found.topic_id, topic.topic_id, "responses[0].topic_id")
        else:
            c.equal(found.name, topic.name, "responses[0].name")
        c.equal(len(found.partition_responses), 1, "responses[0].partition_responses (number)")
        answer = found.partition_responses[0]
        c.equal(answer.index, 1, "partition_responses[0].index")
        c.error(answer.error_code, ErrorCode.NONE, "partition_responses[0].error_code")
        c.equal(answer.base_offset, base_offset, "partition_responses[0].base_offset")
        c.equal(answer.log_append_time_ms, -1, "partition_responses[0].log_append_time_ms")
        if version >= 5:
            c.equal(answer.log_start_offset, 0, "partition_responses[0].log_start_offset")
        if version >= 8:
            c.equal(answer.record_errors, [], "partition_responses[0].record_errors")
            c.true(
                not answer.error_message,
                "partition_responses[0].error_message",
                expected="none",
                actual=answer.error_message,
            )
    c.equal(p.values(c, topic, partition=1), [b"a", b"b"] * 2, "the values of partition 1")


@case(
    "produce.unknown-partition",
    "a partition that does not exist is rejected",
    source="Protocol: Produce",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.PRODUCE),
)
def unknown_partition(c: Check, version: int) -> None:
    """Sends: Produce to partitions 0 and 77 of a topic with one partition.

    Expects: UNKNOWN_TOPIC_OR_PARTITION and no base offset for 77; the batch for partition 0 is appended.

    Why: a producer with old metadata refreshes it after this error; the other partitions must not suffer.
    """
    topic = c.topic()
    request = p.produce_request(topic, {0: batch(b"good"), 77: batch(b"bad")}, version=version)
    answers = {each.index: each for each in c.call(request, version).responses[0].partition_responses}
    c.equal(sorted(answers), [0, 77], "the partitions of the response")
    c.error(answers[0].error_code, ErrorCode.NONE, "error_code of partition 0")
    c.error(answers[77].error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "error_code of partition 77")
    p.no_offset(c, answers[77], "base_offset of partition 77")
    c.equal(p.values(c, topic), [b"good"], "the values of partition 0")


@case(
    "produce.acks.invalid",
    "acks other than -1, 0 and 1 are rejected",
    source="Protocol: Produce",
    needs=PRODUCE,
    variants={"2": (2,), "minus-2": (-2,), "32767": (32_767,)},
)
def invalid_acks(c: Check, acks: int) -> None:
    """Sends: Produce with `acks` that do not exist.

    Expects: INVALID_REQUIRED_ACKS and no base offset; nothing is appended.

    Why: a producer with a wrong configuration must learn it with its first request.
    """
    topic = c.topic()
    answer = p.produce(c, topic, batch(b"-"), acks=acks)
    c.error(answer.error_code, ErrorCode.INVALID_REQUIRED_ACKS)
    p.no_offset(c, answer)
    c.equal(p.end_offset(c, topic), 0, "the log end offset")


@case(
    "produce.error-base-offset",
    "the base offset of a rejected batch is -1",
    source="Protocol: Produce",
    layer=Layer.WIRE,
    level=Level.APACHE,
    versions=versions_of(ApiKey.PRODUCE),
)
def error_base_offset(c: Check, version: int) -> None:
    """Sends: Produce to a partition that does not exist.

    Expects: UNKNOWN_TOPIC_OR_PARTITION with base offset -1.

    Why: offset 0 is a valid offset; a program that reads the field without the error would take it for one.
    """
    request = p.produce_request(c.topic(), {77: batch(b"bad")}, version=version)
    answer = c.call(request, version).responses[0].partition_responses[0]
    c.error(answer.error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    c.equal(answer.base_offset, -1, "base_offset")


@case(
    "produce.acks.none",
    "acks=0 has no response, and does not delay later requests",
    source="Protocol: Produce",
    needs=PRODUCE,
)
def acks_none(c: Check) -> None:
    """Sends: 50 Produce requests with acks=0 on one connection, and ApiVersions after every third of them.

    Expects: responses to ApiVersions only, in order; afterwards all records are in the log, in order.

    Why: a client that receives a response to acks=0 assigns all later responses to the wrong requests.
    """
    topic = c.topic()
    version = c.version(ApiKey.PRODUCE)
    requested = 0
    for number in range(50):
        request = p.produce_request(topic, {0: batch(b"%d" % number)}, version=version, acks=0)
        c.wire.send(request, version, answered=False)
        if number % 3 == 0:
            c.wire.send(ApiVersionsRequest(), 0)
            requested += 1
    for _ in range(requested):
        c.error(c.wire.receive().error_code, ErrorCode.NONE, "ApiVersions error_code")
    c.equal(p.values(c, topic), [b"%d" % number for number in range(50)], "the values of the partition")


@case(
    "produce.acks.none-error",
    "an error of a request with acks=0 closes the connection",
    source="Protocol: Produce",
    needs=PRODUCE,
)
def acks_none_error(c: Check) -> None:
    """Sends: Produce with acks=0 to a partition that does not exist.

    Expects: the connection is closed.

    Why: there is no response for the error, and the producer must refresh its metadata.
    """
    topic = c.topic()
    version = c.version(ApiKey.PRODUCE)
    other = c.connect()
    other.send(p.produce_request(topic, {77: batch(b"-")}, version=version, acks=0), version, answered=False)
    c.closed(other)


@case(
    "produce.order.pipelined",
    "pipelined requests are appended and answered in order",
    source="Protocol: Network",
    needs=PRODUCE,
)
def pipelined(c: Check) -> None:
    """Sends: 100 Produce requests to one partition, without waiting for responses.

    Expects: responses in the order of the requests, with base offsets 0 to 99, and the records in this order.

    Why: a producer with several requests in flight relies on the order of its records and responses.
    """
    topic = c.topic()
    version = c.version(ApiKey.PRODUCE)
    for number in range(100):
        c.wire.send(p.produce_request(topic, {0: batch(b"%d" % number)}, version=version), version)
    answers = [c.wire.receive().responses[0].partition_responses[0] for _ in range(100)]
    c.equal([each.error_code for each in answers], [0] * 100, "error_code of the 100 responses")
    c.equal([each.base_offset for each in answers], list(range(100)), "base_offset of the 100 responses")
    c.equal(p.values(c, topic), [b"%d" % number for number in range(100)], "the values of the partition")


@case(
    "produce.batch.corrupt",
    "a batch whose bytes are wrong is rejected",
    source="Protocol: Record Batch",
    needs=PRODUCE,
    variants={
        "crc": (len(batch(b"value")) - 1, b"\x7f", False, ErrorCode.CORRUPT_MESSAGE),
        "record-count": (RECORD_COUNT_AT, b"\0\0\0\x09", True, ErrorCode.INVALID_RECORD),
        "last-offset-delta": (LAST_OFFSET_DELTA_AT, b"\0\0\0\x09", True, ErrorCode.INVALID_RECORD),
        "magic": (MAGIC_AT, b"\x09", True, ErrorCode.CORRUPT_MESSAGE),
    },
)
def corrupt(c: Check, position: int, new: bytes, with_crc: bool, expected: ErrorCode) -> None:
    """Sends: Produce with a batch in which one field is wrong.

    Expects: an error for the partition, no base offset, and an unchanged log.

    Why: what a server stores, every consumer reads; a damaged batch would stop all of them.
    """
    topic = c.topic()
    answer = p.produce(c, topic, changed(batch(b"value"), position, new, with_crc=with_crc))
    allowed = {expected, ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}
    c.error(answer.error_code, allowed)
    p.no_offset(c, answer)
    c.equal(p.end_offset(c, topic), 0, "the log end offset")


@case(
    "produce.compression",
    "a batch with each compression codec is stored and returned",
    source="KIP-110 and Protocol: Record Batch",
    needs=PRODUCE,
    level=Level.MUST,
    variants={codec.name.lower(): (codec,) for codec in Codec},
)
def compression(c: Check, codec: Codec) -> None:
    """Sends: Produce with a compressed batch of 100 records; then Fetch.

    Expects: no error; a batch with the same codec and the same records.

    Why: every client supports these codecs, and consumers decompress what producers compressed.
    """
    topic = c.topic()
    values = [b"value %d" % number for number in range(100)]
    answer = p.produce(c, topic, batch(*values, codec=codec))
    c.error(answer.error_code, ErrorCode.NONE)
    c.equal([each.codec for each in p.read_batches(c, topic)], [codec], "the codec of the stored batch")
    c.equal(p.values(c, topic), values, "the values")
