"""Fetch: positions, errors, isolation levels, leader epochs, and the shape of the response in each version."""

from __future__ import annotations

from typing import Any, cast

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from ...protocol.records import Codec, iter_records
from ...protocol.uuid import ZERO_UUID
from .. import partitions as p
from ..case import Layer, Level, case, needs, versions_of
from ..check import Check, Topic
from ..record_batches import batch
from ..record_deletion import delete_before

FETCH = needs(ApiKey.FETCH, 12)
UNKNOWN_ID = bytes(range(70, 86))
LEADER_EPOCH_AT = 12


def offsets(data: PartitionData) -> list[int]:
    """The offsets of all records in whole batches."""
    return [record.offset for each in p.batches_of(data) for record in iter_records(each)]


def response_of(c: Check, topic: Topic, from_offsets: dict[int, int], version: int, **options: int) -> Any:
    return c.call(p.fetch_request(topic, from_offsets, version=version, **options), version)


def by_partition(response: Any) -> dict[int, PartitionData]:
    """The partitions of a response about one topic."""
    return {data.partition_index: data for each in response.responses for data in each.partitions}


def no_records(c: Check, data: PartitionData, what: str) -> None:
    c.equal(bytes(cast(memoryview, data.records or b"")), b"", what)


@case(
    "fetch.exchange",
    "records are returned with the offsets of their partition",
    source="Protocol: Fetch",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.FETCH),
)
def exchange(c: Check, version: int) -> None:
    """Sends: Fetch of partition 1, which has two batches with three records, from offset 2.

    Expects: the topic by name, since version 13 by ID; partition 1 without error, high watermark 3, last stable offset
    3, since version 5 log start offset 0; exactly the second batch, with offset 2, its value and its timestamp; no
    aborted transactions, no preferred replica, no diverging epoch, no new leader, no session.

    Why: a consumer assigns records to partitions and offsets by these fields.
    """
    topic = c.topic(2)
    p.append(c, topic, batch(b"a", b"b"), partition=1)
    p.append(c, topic, batch(b"c", timestamp=1_700_000_000_123), partition=1)
    response = response_of(c, topic, {1: 2}, version)
    c.true(response.throttle_time_ms >= 0, "throttle_time_ms", expected="0 or more", actual=response.throttle_time_ms)
    c.error(response.error_code, ErrorCode.NONE)
    c.equal(response.session_id, 0, "session_id")
    c.equal(len(response.responses), 1, "responses (number of topics)")
    (found,) = response.responses
    if version >= 13:
        c.equal(found.topic_id, topic.topic_id, "responses[0].topic_id")
    else:
        c.equal(found.topic, topic.name, "responses[0].topic")
    c.equal([each.partition_index for each in found.partitions], [1], "the partitions of the response")
    (data,) = found.partitions
    c.error(data.error_code, ErrorCode.NONE, "partitions[0].error_code")
    c.equal(data.high_watermark, 3, "partitions[0].high_watermark")
    c.equal(data.last_stable_offset, 3, "partitions[0].last_stable_offset")
    if version >= 5:
        c.equal(data.log_start_offset, 0, "partitions[0].log_start_offset")
    c.true(
        not data.aborted_transactions,
        "partitions[0].aborted_transactions",
        expected="none",
        actual=data.aborted_transactions,
    )
    c.equal(data.preferred_read_replica, -1, "partitions[0].preferred_read_replica")
    c.equal((data.diverging_epoch.epoch, data.diverging_epoch.end_offset), (-1, -1), "partitions[0].diverging_epoch")
    leader = (data.current_leader.leader_id, data.current_leader.leader_epoch)
    c.equal(leader, (-1, -1), "partitions[0].current_leader")
    c.equal(response.node_endpoints, [], "node_endpoints")
    batches = p.batches_of(data)
    c.equal([each.base_offset for each in batches], [2], "base_offset of the batches")
    c.true(batches[0].has_valid_crc(), "the CRC of the batch", expected="valid", actual="not valid")
    epoch = int.from_bytes(batches[0].data[LEADER_EPOCH_AT : LEADER_EPOCH_AT + 4], "big", signed=True)
    c.equal(epoch, 0, "partition_leader_epoch of the batch")
    found_records = [(each.offset, each.timestamp, each.value) for each in iter_records(batches[0])]
    c.equal(found_records, [(2, 1_700_000_000_123, b"c")], "offset, timestamp and value of the records")


@case(
    "fetch.unknown-topic",
    "a topic that does not exist has its own error",
    source="Protocol: Fetch",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.FETCH),
)
def unknown_topic(c: Check, version: int) -> None:
    """Sends: Fetch of two topics, one of which does not exist; since version 13 its ID is unknown.

    Expects: UNKNOWN_TOPIC_OR_PARTITION, since version 13 UNKNOWN_TOPIC_ID, with high watermark -1 and no records; the
    records of the other topic.

    Why: a consumer refreshes its metadata after this error, and must still get the records of its other topics.
    """
    topic, missing = c.topic(), Topic(c.name("missing"), UNKNOWN_ID)
    p.append(c, topic, batch(b"a"))
    request = p.fetch_request(missing, {0: 0}, version=version)
    request.topics += p.fetch_request(topic, {0: 0}, version=version).topics
    found = {each.topic_id if version >= 13 else each.topic: each for each in c.call(request, version).responses}
    this, other = (topic.topic_id, UNKNOWN_ID) if version >= 13 else (topic.name, missing.name)
    c.equal(set(found), {this, other}, "the topics of the response")
    (data,) = found[other].partitions
    expected = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    c.error(data.error_code, expected, "error_code of the missing topic")
    c.equal(data.high_watermark, -1, "high_watermark of the missing topic")
    no_records(c, data, "records of the missing topic")
    c.error(found[this].partitions[0].error_code, ErrorCode.NONE, "error_code of the other topic")
    c.equal(offsets(found[this].partitions[0]), [0], "offsets of the other topic")


@case(
    "fetch.out-of-range",
    "an offset that the partition does not have is rejected",
    source="Protocol: Fetch",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.FETCH),
)
def out_of_range(c: Check, version: int) -> None:
    """Sends: Fetch from offset 3 of a partition whose end is 2, and from the end of another.

    Expects: OFFSET_OUT_OF_RANGE, high watermark -1 and no records for the first; no error for the second.

    Why: a consumer resets its position after this error; at the end of a partition it must wait instead.
    """
    topic = c.topic(2)
    p.append(c, topic, batch(b"a", b"b"))
    p.append(c, topic, batch(b"a", b"b"), partition=1)
    found = by_partition(response_of(c, topic, {0: 3, 1: 2}, version))
    c.equal(sorted(found), [0, 1], "the partitions of the response")
    c.error(found[0].error_code, ErrorCode.OFFSET_OUT_OF_RANGE, "error_code of partition 0")
    c.equal(found[0].high_watermark, -1, "high_watermark of partition 0")
    no_records(c, found[0], "records of partition 0")
    c.error(found[1].error_code, ErrorCode.NONE, "error_code of partition 1")
    c.equal(found[1].high_watermark, 2, "high_watermark of partition 1")
    no_records(c, found[1], "records of partition 1")


@case(
    "fetch.unknown-partition",
    "a partition that does not exist is rejected",
    source="Protocol: Fetch",
    layer=Layer.WIRE,
    needs=FETCH,
)
def unknown_partition(c: Check) -> None:
    """Sends: Fetch of partitions 0, 3 and 77 of a topic with three partitions.

    Expects: UNKNOWN_TOPIC_OR_PARTITION for 3 and 77; the records of 0.

    Why: a consumer refreshes its metadata after this error.
    """
    topic = c.topic(3)
    p.append(c, topic, batch(b"a"))
    found = by_partition(response_of(c, topic, {0: 0, 3: 0, 77: 0}, c.version(ApiKey.FETCH)))
    c.equal(sorted(found), [0, 3, 77], "the partitions of the response")
    for index in (3, 77):
        c.error(found[index].error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"error_code of partition {index}")
    c.equal(offsets(found[0]), [0], "offsets of partition 0")


@case(
    "fetch.empty-partition",
    "an empty partition has no records and no error",
    source="Protocol: Fetch",
    needs=FETCH,
    variants={
        "start": (0, ErrorCode.NONE),
        "1": (1, ErrorCode.OFFSET_OUT_OF_RANGE),
        "1000": (1_000, ErrorCode.OFFSET_OUT_OF_RANGE),
        "minus-1": (-1, ErrorCode.OFFSET_OUT_OF_RANGE),
        "minus-2": (-2, ErrorCode.OFFSET_OUT_OF_RANGE),
    },
)
def empty_partition(c: Check, offset: int, expected: ErrorCode) -> None:
    """Sends: Fetch of an empty partition from offset 0, and from offsets that it does not have.

    Expects: for 0 no error, high watermark, last stable offset and log start offset 0, and empty records that are not
    null; otherwise OFFSET_OUT_OF_RANGE.

    Why: negative offsets mean the ends of a partition in ListOffsets only.
    """
    data = p.fetch(c, c.topic(), offset)
    c.error(data.error_code, expected, "partitions[0].error_code")
    no_records(c, data, "partitions[0].records")
    if expected is ErrorCode.NONE:
        c.equal(data.high_watermark, 0, "partitions[0].high_watermark")
        c.equal(data.last_stable_offset, 0, "partitions[0].last_stable_offset")
        c.equal(data.log_start_offset, 0, "partitions[0].log_start_offset")
        c.true(data.records is not None, "partitions[0].records", expected="empty", actual=None)


@case(
    "fetch.position.inside-batch",
    "an offset inside a batch returns the whole batch",
    source="Protocol: Record Batch",
    needs=FETCH,
    variants={codec.name.lower(): (codec,) for codec in Codec},
)
def inside_batch(c: Check, codec: Codec) -> None:
    """Sends: Fetch from each offset of a partition with a batch of three records and one of two.

    Expects: the batch that contains the offset and all later ones; at the end nothing; beyond it OFFSET_OUT_OF_RANGE.

    Why: batches are compressed and have a checksum, so they are not cut; the consumer skips the first records.
    """
    topic = c.topic()
    p.append(c, topic, batch(b"a", b"b", b"c", codec=codec))
    p.append(c, topic, batch(b"d", b"e", codec=codec))
    for offset in range(6):
        data = p.fetch(c, topic, offset)
        expected = [0, 1, 2, 3, 4] if offset < 3 else [3, 4] if offset < 5 else []
        c.error(data.error_code, ErrorCode.NONE, f"error_code of a fetch from {offset}")
        c.equal(offsets(data), expected, f"the offsets of a fetch from {offset}")
        c.equal(data.high_watermark, 5, f"high_watermark of a fetch from {offset}")
    c.error(p.fetch(c, topic, 6).error_code, ErrorCode.OFFSET_OUT_OF_RANGE, "error_code of a fetch from 6")


@case(
    "fetch.position.deleted",
    "offsets below the log start offset are out of range",
    source="KIP-107",
    needs=(*FETCH, *needs(ApiKey.DELETE_RECORDS, 0)),
)
def deleted(c: Check) -> None:
    """Sends: Fetch from offsets 1 and 2 after DeleteRecords before offset 2, which is inside a batch of four records.

    Expects: OFFSET_OUT_OF_RANGE for 1; for 2 the whole batch, and log start offset 2.

    Why: a consumer that was stopped for a while resets its position; deleted records must not be returned.
    """
    topic = c.topic()
    p.append(c, topic, batch(b"a", b"b", b"c", b"d"))
    c.equal(delete_before(c, topic, 2).low_watermark, 2, "low_watermark of DeleteRecords")
    data = p.fetch(c, topic, 1)
    c.error(data.error_code, ErrorCode.OFFSET_OUT_OF_RANGE, "error_code of a fetch from 1")
    no_records(c, data, "records of a fetch from 1")
    data = p.fetch(c, topic, 2)
    c.error(data.error_code, ErrorCode.NONE, "error_code of a fetch from 2")
    c.equal(data.log_start_offset, 2, "log_start_offset of a fetch from 2")
    c.equal(offsets(data), [0, 1, 2, 3], "offsets of a fetch from 2")


@case(
    "fetch.topic-id.zero",
    "the topic ID of zeros is unknown",
    source="KIP-516",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.FETCH, 13),
)
def zero_topic_id(c: Check, version: int) -> None:
    """Sends: Fetch with a topic ID of zeros.

    Expects: UNKNOWN_TOPIC_ID with the ID of the request.

    Why: zeros are what a client sends that does not know the ID yet.
    """
    topic = Topic("", ZERO_UUID)
    (found,) = response_of(c, topic, {0: 0}, version).responses
    c.equal(found.topic_id, ZERO_UUID, "responses[0].topic_id")
    c.error(found.partitions[0].error_code, ErrorCode.UNKNOWN_TOPIC_ID, "partitions[0].error_code")


@case(
    "fetch.order",
    "each topic and partition has its own records",
    source="Protocol: Fetch",
    needs=FETCH,
    variants={"by-name": (12,), "newest": (None,)},
)
def order(c: Check, highest: int | None) -> None:
    """Sends: Fetch of partitions 2, 0 and 1 of one topic and 1 and 0 of another, each with another value.

    Expects: each partition of each topic once, in the order of the request, with its own value.

    Why: a consumer returns the records of the wrong partition if two are swapped.
    """
    version = c.version(ApiKey.FETCH, highest)
    topics = [c.topic(3), c.topic(2)]
    for topic in topics:
        for partition in range(3 if topic is topics[0] else 2):
            p.append(c, topic, batch(b"%s/%d" % (topic.name.encode(), partition)), partition=partition)
    request = p.fetch_request(topics[0], {2: 0, 0: 0, 1: 0}, version=version)
    request.topics += p.fetch_request(topics[1], {1: 0, 0: 0}, version=version).topics
    found = []
    names = {topic.topic_id: topic.name for topic in topics}
    for each in c.call(request, version).responses:
        for data in each.partitions:
            name = names.get(each.topic_id, "?") if version >= 13 else each.topic
            value = [record.value for found_batch in p.batches_of(data) for record in iter_records(found_batch)]
            found.append((name, data.partition_index, value))
    expected = [
        (topic.name, partition, [b"%s/%d" % (topic.name.encode(), partition)])
        for topic, order_of in ((topics[0], (2, 0, 1)), (topics[1], (1, 0)))
        for partition in order_of
    ]
    c.equal(found, expected, "topic, partition and values, in order")


@case(
    "fetch.read-committed",
    "read_committed returns records without transactions",
    source="KIP-98",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.FETCH),
)
def read_committed(c: Check, version: int) -> None:
    """Sends: Fetch with the isolation level read_committed of a partition without transactions.

    Expects: the record, high watermark and last stable offset 1, and no aborted transactions.

    Why: consumers with read_committed also read topics without transactions.
    """
    topic = c.topic()
    p.append(c, topic, batch(b"a"))
    data = p.fetch(c, topic, version=version, isolation_level=1)
    c.error(data.error_code, ErrorCode.NONE, "partitions[0].error_code")
    c.equal(offsets(data), [0], "the offsets")
    c.equal(data.last_stable_offset, 1, "partitions[0].last_stable_offset")
    c.equal(data.high_watermark, 1, "partitions[0].high_watermark")
    c.equal(data.aborted_transactions or [], [], "partitions[0].aborted_transactions")


# Leader epochs


@case(
    "fetch.leader-epoch",
    "the leader epoch of the consumer is compared",
    source="KIP-320",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.FETCH, 9),
)
def leader_epoch(c: Check, version: int) -> None:
    """Sends: Fetch of three partitions in leader epoch 0, with current_leader_epoch -1, 0 and 1000.

    Expects: records for -1, which means no comparison, and for 0; UNKNOWN_LEADER_EPOCH without records for 1000.

    Why: a consumer that has seen a newer leader must not read from an older one.
    """
    topic = c.topic(3)
    for partition in range(3):
        p.append(c, topic, batch(b"a"), partition=partition)
    request = p.fetch_request(topic, {0: 0, 1: 0, 2: 0}, version=version)
    for each, epoch in zip(request.topics[0].partitions, (-1, 0, 1_000), strict=True):
        each.current_leader_epoch = epoch
    found = by_partition(c.call(request, version))
    c.equal(sorted(found), [0, 1, 2], "the partitions of the response")
    for partition in (0, 1):
        c.error(found[partition].error_code, ErrorCode.NONE, f"error_code of partition {partition}")
        c.equal(offsets(found[partition]), [0], f"offsets of partition {partition}")
    c.error(found[2].error_code, ErrorCode.UNKNOWN_LEADER_EPOCH, "error_code of partition 2")
    no_records(c, found[2], "records of partition 2")


@case(
    "fetch.leader-epoch.diverging",
    "a last fetched epoch that agrees with the log reports no divergence",
    source="KIP-595",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.FETCH, 12),
)
def not_diverging(c: Check, version: int) -> None:
    """Sends: Fetch from offsets 1 and 2 of a partition with two records of epoch 0, with last_fetched_epoch 0.

    Expects: no error and diverging_epoch -1 with end offset -1.

    Why: a consumer truncates its position if a divergence is reported.
    """
    topic = c.topic()
    p.append(c, topic, batch(b"a", b"b"))
    for offset in (1, 2):
        request = p.fetch_request(topic, {0: offset}, version=version)
        request.topics[0].partitions[0].last_fetched_epoch = 0
        data = by_partition(c.call(request, version))[0]
        c.error(data.error_code, ErrorCode.NONE, "partitions[0].error_code")
        epoch = (data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
        c.equal(epoch, (-1, -1), "partitions[0].diverging_epoch")
        c.equal(offsets(data), [0, 1] if offset == 1 else [], f"the offsets of a fetch from {offset}")


# Shapes of requests


@case(
    "fetch.nothing",
    "a fetch without partitions gets its response immediately",
    source="Protocol: Fetch",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.FETCH),
)
def nothing(c: Check, version: int) -> None:
    """Sends: Fetch without topics, with a maximum wait of an hour.

    Expects: no error, no topics, no session.

    Why: there is nothing to wait for.
    """
    request = FetchRequest(max_wait_ms=3_600_000, min_bytes=1)
    response = c.call(request, version)
    c.error(response.error_code, ErrorCode.NONE)
    c.equal(response.responses, [], "responses")
    c.equal(response.session_id, 0, "session_id")


@case(
    "fetch.zstd-old-version",
    "a batch with zstd is returned to versions before 10",
    source="Apache Kafka's behavior",
    level=Level.APACHE,
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.FETCH, 4, 9),
)
def zstd_old_version(c: Check, version: int) -> None:
    """Sends: Fetch in a version before 10 of a batch that is compressed with zstd.

    Expects: the batch, unchanged.

    Why: Apache Kafka reads the topic's compression.type only, which is "producer", and does not look into batches.
    """
    topic = c.topic()
    p.append(c, topic, batch(b"a", codec=Codec.ZSTD))
    data = p.fetch(c, topic, version=version)
    c.error(data.error_code, ErrorCode.NONE, "partitions[0].error_code")
    c.equal(offsets(data), [0], "the offsets")


@case(
    "fetch.names-and-ids",
    "versions before 13 use names, later ones IDs",
    source="KIP-516",
    needs=needs(ApiKey.FETCH, 13),
)
def names_and_ids(c: Check) -> None:
    """Sends: Fetch version 12 by name and version 13 by ID of the same partition, alternately on one connection.

    Expects: the same record each time.

    Why: a client falls back to names while it does not know the ID of each of its topics.
    """
    topic = c.topic()
    p.append(c, topic, batch(b"a"))
    for version in (12, 13, 12, 13):
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000_000)
        named = (
            FetchTopic(topic_id=topic.topic_id, partitions=[wanted])
            if version == 13
            else FetchTopic(topic=topic.name, partitions=[wanted])
        )
        response = c.call(FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1_000_000, topics=[named]), version)
        c.equal(offsets(by_partition(response)[0]), [0], f"the offsets in version {version}")
