"""Fetch: how much a response contains, and how long a request waits."""

from __future__ import annotations

import time

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.api_versions import ApiVersionsRequest
from ...protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from .. import partitions as p
from ..case import case, needs, versions_of
from ..check import Check
from ..record_batches import batch
from .fetch import by_partition, offsets, response_of

FETCH = needs(ApiKey.FETCH, 12)
KIP_74 = "KIP-74"
LONG_POLL = "Protocol: Fetch (max_wait_ms and min_bytes)"
AN_HOUR_MS = 3_600_000
"""A wait that no case survives: a response proves that something else ended it."""


# How much


@case(
    "fetch.limit.partition",
    "partition_max_bytes limits a partition, except for its first batch",
    source=KIP_74,
    needs=FETCH,
    variants={"0": (0, 1), "1": (1, 1), "100": (100, 1), "two-batches": (2_300, 2), "all": (1_000_000, 3)},
)
def partition_limit(c: Check, limit: int, count: int) -> None:
    """Sends: Fetch with a limit for the partition, which has three batches of about 1,070 bytes.

    Expects: the first batch completely, even if it is larger than the limit; as many of the next ones as fit; a part
    of a batch at the end counts for nothing.

    Why: a consumer with a small limit must make progress, and one with limited memory relies on the limit.
    """
    topic = c.topic()
    for _ in range(3):
        p.append(c, topic, batch(bytes(1_000)))
    data = p.fetch(c, topic, partition_max_bytes=limit)
    c.equal(offsets(data), list(range(count)), "the offsets")
    size = len(data.records or b"")
    first = len(batch(bytes(1_000)))
    c.true(size <= max(limit, first), "the size of records", expected=f"at most {max(limit, first)}", actual=size)


@case(
    "fetch.limit.request",
    "max_bytes limits the partitions together, except for the first batch",
    source=KIP_74,
    needs=FETCH,
    variants={
        "1": (1, {2: [0], 0: [], 1: []}),
        "two-batches": (2_300, {2: [0, 1], 0: [], 1: []}),
        "four-batches": (4_500, {2: [0, 1], 0: [0, 1], 1: []}),
        "all": (1_000_000, {2: [0, 1], 0: [0, 1], 1: [0, 1]}),
    },
)
def request_limit(c: Check, limit: int, expected: dict[int, list[int]]) -> None:
    """Sends: Fetch of partitions 2, 0 and 1, in this order, with a limit for the response; each has two batches of
    about 1,070 bytes.

    Expects: partitions in the order of the request until the limit is reached; at least one batch.

    Why: a consumer rotates the order of partitions, so that each is served first at some time.
    """
    topic = c.topic(3)
    for partition in range(3):
        for _ in range(2):
            p.append(c, topic, batch(bytes(1_000)), partition=partition)
    found = by_partition(response_of(c, topic, {2: 0, 0: 0, 1: 0}, c.version(ApiKey.FETCH), max_bytes=limit))
    c.equal({partition: offsets(data) for partition, data in found.items()}, expected, "the offsets by partition")
    size = sum(len(data.records or b"") for data in found.values())
    most = max(limit, len(batch(bytes(1_000))))
    c.true(size <= most, "the size of all records", expected=f"at most {most}", actual=size)


@case(
    "fetch.limit.empty-partitions-first",
    "empty partitions do not use up the batch that is always returned",
    source=KIP_74,
    needs=FETCH,
)
def empty_partitions_first(c: Check) -> None:
    """Sends: Fetch of partitions 0, 1 and 2 with a maximum of 1 byte; only partition 2 has a record.

    Expects: the record.

    Why: otherwise a consumer whose first partitions are empty never reads the last one.
    """
    topic = c.topic(3)
    p.append(c, topic, batch(bytes(1_000)), partition=2)
    found = by_partition(response_of(c, topic, {0: 0, 1: 0, 2: 0}, c.version(ApiKey.FETCH), max_bytes=1))
    c.equal({index: offsets(data) for index, data in found.items()}, {0: [], 1: [], 2: [0]}, "the offsets")


@case(
    "fetch.limit.large-batch",
    "a batch larger than all limits is returned completely",
    source=KIP_74,
    needs=FETCH,
)
def large_batch(c: Check) -> None:
    """Sends: Fetch of a batch of 900,000 bytes with limits of 10 bytes.

    Expects: the whole batch, with a valid checksum.

    Why: before KIP-74 a consumer was stuck at a batch larger than its limit.
    """
    topic = c.topic()
    value = bytes(900_000)
    p.append(c, topic, batch(value))
    data = p.fetch(c, topic, max_bytes=10, partition_max_bytes=10)
    c.equal(offsets(data), [0], "the offsets")
    (found,) = p.batches_of(data)
    c.true(found.has_valid_crc(), "the CRC of the batch", expected="valid", actual="not valid")
    c.equal(len(data.records or b""), len(batch(value)), "the size of records")


# How long


@case(
    "fetch.wait.min-bytes-0",
    "min_bytes 0 waits for nothing",
    source=LONG_POLL,
    versions=versions_of(ApiKey.FETCH),
)
def min_bytes_0(c: Check, version: int) -> None:
    """Sends: Fetch of an empty partition with a minimum of 0 bytes and a maximum wait of an hour.

    Expects: a response without records, without waiting.

    Why: clients poll like this when their application does not want to wait.
    """
    topic = c.topic()
    found = by_partition(response_of(c, topic, {0: 0}, version, max_wait_ms=AN_HOUR_MS, min_bytes=0))
    c.error(found[0].error_code, ErrorCode.NONE, "partitions[0].error_code")
    c.equal(offsets(found[0]), [], "the offsets")


@case(
    "fetch.wait.max-wait",
    "an empty partition is waited for until max_wait_ms",
    source=LONG_POLL,
    versions=versions_of(ApiKey.FETCH),
)
def max_wait(c: Check, version: int) -> None:
    """Sends: Fetch of an empty partition with a minimum of 1 byte and a maximum wait of 300 ms.

    Expects: a response without records and without error, after at least 285 ms.

    Why: without this wait, idle consumers send requests without a pause.
    """
    topic = c.topic()
    began = time.monotonic()
    found = by_partition(response_of(c, topic, {0: 0}, version, max_wait_ms=300, min_bytes=1))
    waited = time.monotonic() - began
    c.error(found[0].error_code, ErrorCode.NONE, "partitions[0].error_code")
    c.equal(offsets(found[0]), [], "the offsets")
    c.true(
        waited >= 0.285, "the time until the response", expected="at least 285 ms", actual=f"{waited * 1_000:.0f} ms"
    )


@case(
    "fetch.wait.append",
    "an append ends the wait of a fetch",
    source=LONG_POLL,
    versions=versions_of(ApiKey.FETCH),
)
def append_ends_wait(c: Check, version: int) -> None:
    """Sends: Fetch of two partitions from their ends, with a maximum wait of an hour; Produce to one of them on
    another connection.

    Expects: a response with the new record and without records of the other partition.

    Why: this is how records reach consumers without delay.
    """
    topic = c.topic(2)
    other = c.connect()
    p.append(c, topic, batch(b"before"))
    request = p.fetch_request(topic, {0: 1, 1: 0}, version=version, max_wait_ms=AN_HOUR_MS, min_bytes=1)
    c.wire.send(request, version)
    c.error(p.produce(c, topic, batch(b"now"), partition=1, to=other).error_code, ErrorCode.NONE)
    found = by_partition(c.wire.receive())
    c.equal({index: offsets(data) for index, data in found.items()}, {0: [], 1: [0]}, "the offsets by partition")
    c.equal(found[1].high_watermark, 1, "high_watermark of partition 1")


@case(
    "fetch.wait.min-bytes",
    "a fetch waits until its partitions have min_bytes together",
    source=LONG_POLL,
    needs=FETCH,
)
def min_bytes(c: Check) -> None:
    """Sends: Fetch of two partitions with a minimum of 2,500 bytes and a maximum wait of an hour; then three times
    Produce of about 1,070 bytes, to partitions 0, 1 and 0, on another connection.

    Expects: one response with all three records.

    Why: users raise fetch.min.bytes to receive fewer and larger responses.
    """
    topic = c.topic(2)
    other = c.connect()
    version = c.version(ApiKey.FETCH)
    request = p.fetch_request(topic, {0: 0, 1: 0}, version=version, max_wait_ms=AN_HOUR_MS, min_bytes=2_500)
    c.wire.send(request, version)
    for partition in (0, 1, 0):
        c.error(p.produce(c, topic, batch(bytes(1_000)), partition=partition, to=other).error_code, ErrorCode.NONE)
    found = by_partition(c.wire.receive())
    c.equal({index: offsets(data) for index, data in found.items()}, {0: [0, 1], 1: [0]}, "the offsets by partition")


@case(
    "fetch.wait.fewer-than-min-bytes",
    "fewer bytes than min_bytes are returned after max_wait_ms",
    source=LONG_POLL,
    needs=FETCH,
)
def fewer_than_min_bytes(c: Check) -> None:
    """Sends: Fetch of a partition with one small record, with a minimum of 10,000 bytes and a maximum wait of 300 ms.

    Expects: the record, after at least 285 ms.

    Why: the last records of a burst must arrive, too.
    """
    topic = c.topic()
    p.append(c, topic, batch(b"little"))
    began = time.monotonic()
    data = p.fetch(c, topic, max_wait_ms=300, min_bytes=10_000)
    waited = time.monotonic() - began
    c.equal(offsets(data), [0], "the offsets")
    c.true(
        waited >= 0.285, "the time until the response", expected="at least 285 ms", actual=f"{waited * 1_000:.0f} ms"
    )


@case(
    "fetch.wait.enough",
    "a fetch does not wait if there are min_bytes",
    source=LONG_POLL,
    needs=FETCH,
)
def enough(c: Check) -> None:
    """Sends: Fetch of a partition with a record of 1,000 bytes and of an empty one, with a minimum of 1,000 bytes and a
    maximum wait of an hour.

    Expects: a response with the record.

    Why: waiting for more would delay records without need.
    """
    topic = c.topic(2)
    p.append(c, topic, batch(bytes(1_000)), partition=1)
    version = c.version(ApiKey.FETCH)
    response = response_of(c, topic, {0: 0, 1: 0}, version, max_wait_ms=AN_HOUR_MS, min_bytes=1_000)
    found = {index: offsets(data) for index, data in by_partition(response).items()}
    c.equal(found, {0: [], 1: [0]}, "the offsets by partition")


@case(
    "fetch.wait.out-of-range",
    "an offset out of range ends the wait immediately",
    source=LONG_POLL,
    needs=FETCH,
)
def out_of_range_ends_wait(c: Check) -> None:
    """Sends: Fetch of an empty partition and of one from an offset that it does not have, with a maximum wait of an
    hour.

    Expects: a response with OFFSET_OUT_OF_RANGE for the second.

    Why: the consumer must reset its position, which should not wait for other partitions.
    """
    topic = c.topic(2)
    version = c.version(ApiKey.FETCH)
    found = by_partition(response_of(c, topic, {0: 0, 1: 5}, version, max_wait_ms=AN_HOUR_MS, min_bytes=1))
    c.error(found[0].error_code, ErrorCode.NONE, "error_code of partition 0")
    c.error(found[1].error_code, ErrorCode.OFFSET_OUT_OF_RANGE, "error_code of partition 1")


@case(
    "fetch.wait.unknown-partition",
    "a partition that does not exist does not end the wait",
    source=LONG_POLL,
    needs=FETCH,
)
def unknown_partition_waits(c: Check) -> None:
    """Sends: Fetch of an empty partition and of one that does not exist, with a maximum wait of 300 ms.

    Expects: a response after at least 285 ms, with UNKNOWN_TOPIC_OR_PARTITION for the second.

    Why: otherwise a consumer of a deleted topic sends requests without a pause.
    """
    topic = c.topic()
    began = time.monotonic()
    version = c.version(ApiKey.FETCH)
    found = by_partition(response_of(c, topic, {0: 0, 7: 0}, version, max_wait_ms=300, min_bytes=1))
    waited = time.monotonic() - began
    c.error(found[0].error_code, ErrorCode.NONE, "error_code of partition 0")
    c.error(found[7].error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "error_code of partition 7")
    c.true(
        waited >= 0.285, "the time until the response", expected="at least 285 ms", actual=f"{waited * 1_000:.0f} ms"
    )


@case(
    "fetch.wait.other-connection",
    "a waiting fetch does not delay other connections",
    source=LONG_POLL,
    needs=FETCH,
)
def other_connection(c: Check) -> None:
    """Sends: Fetch of an empty partition with a maximum wait of an hour on 20 connections; ApiVersions, Fetch and
    Produce on another; the record that it produces ends all waits.

    Expects: responses to each of them, and the record in all 20 waiting responses.

    Why: every idle consumer has such a request in flight.
    """
    topic = c.topic()
    version = c.version(ApiKey.FETCH)
    waiting = [c.connect() for _ in range(20)]
    for connection in waiting:
        request = p.fetch_request(topic, {0: 0}, version=version, max_wait_ms=AN_HOUR_MS, min_bytes=1)
        connection.send(request, version)
    c.error(c.call(ApiVersionsRequest(), 0).error_code, ErrorCode.NONE, "ApiVersions error_code")
    c.equal(offsets(p.fetch(c, topic)), [], "the offsets of a fetch that does not wait")
    c.error(p.produce(c, topic, batch(b"for all")).error_code, ErrorCode.NONE, "Produce error_code")
    found = [offsets(by_partition(connection.receive())[0]) for connection in waiting]
    c.equal(found, [[0]] * 20, "the offsets of the 20 responses")


@case(
    "fetch.wait.deleted-topic",
    "a waiting fetch ends when its topic is deleted",
    source=LONG_POLL,
    needs=(*FETCH, *needs(ApiKey.DELETE_TOPICS, 1)),
    variants={"by-name": (12,), "newest": (None,)},
)
def deleted_topic(c: Check, highest: int | None) -> None:
    """Sends: Fetch of an empty partition with a maximum wait of an hour, and DeleteTopics of the topic on another
    connection.

    Expects: a response with UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER or UNKNOWN_TOPIC_ID for the partition.

    Why: the consumer must notice that its topic no longer exists.
    """
    topic = c.topic()
    version = c.version(ApiKey.FETCH, highest)
    request = p.fetch_request(topic, {0: 0}, version=version, max_wait_ms=AN_HOUR_MS, min_bytes=1)
    c.wire.send(request, version)
    deletion = DeleteTopicsRequest(timeout_ms=30_000)
    if c.version(ApiKey.DELETE_TOPICS) >= 6:
        deletion.topics = [DeleteTopicState(name=topic.name)]
    else:
        deletion.topic_names = [topic.name]
    (answer,) = c.call(deletion, to=c.connect()).responses
    c.error(answer.error_code, ErrorCode.NONE, "DeleteTopics error_code")
    data = by_partition(c.wire.receive())[0]
    allowed = {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
    c.error(data.error_code, allowed, "partitions[0].error_code")
