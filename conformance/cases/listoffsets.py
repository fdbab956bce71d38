"""ListOffsets: the offset for a time, and for the special timestamps -1 to -6."""

from __future__ import annotations

from typing import NamedTuple

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ...protocol.records import Codec, Record, build_batch
from .. import partitions as p
from ..case import Layer, Level, case, needs, versions_of
from ..check import Check, Topic
from ..record_deletion import delete_before

SOURCE = "Protocol: ListOffsets"
LIST = needs(ApiKey.LIST_OFFSETS, 4)
T0 = 1_700_000_000_000
KEEP = {"retention.ms": "-1"}
"""The records of these cases are years old."""
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
"""The version of each special timestamp; the others are in all versions."""


class Found(NamedTuple):
    """A partition's part of a response."""

    error: str
    offset: int
    timestamp: int
    leader_epoch: int


def found(offset: int, timestamp: int = -1, leader_epoch: int | None = None) -> Found:
    """A response without error; the leader epoch is 0 unless there is no offset."""
    return Found("NONE", offset, timestamp, (-1 if offset == -1 else 0) if leader_epoch is None else leader_epoch)


NOTHING = found(-1)


def failed(error: ErrorCode) -> Found:
    return Found(error.name, -1, -1, -1)


def append(c: Check, topic: Topic, *times: int, codec: Codec = Codec.NONE) -> None:
    """One batch with records of these times after `T0`."""
    p.append(c, topic, build_batch([Record(timestamp=T0 + when, value=b"-") for when in times], codec=codec))


def ask(
    c: Check,
    topic: Topic,
    timestamp: int,
    *,
    version: int | None = None,
    partition: int = 0,
    isolation_level: int = 0,
    current_leader_epoch: int = -1,
) -> Found:
    """ListOffsets for one partition; compares the names in the response."""
    requested = ListOffsetsPartition(
        partition_index=partition, timestamp=timestamp, current_leader_epoch=current_leader_epoch
    )
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name=topic.name, partitions=[requested])],
        timeout_ms=30_000,
    )
    response = c.call(request, version)
    named = [(each.name, [part.partition_index for part in each.partitions]) for each in response.topics]
    c.equal(named, [(topic.name, [partition])], "topics and partitions of the response")
    answer = response.topics[0].partitions[0]
    return Found(ErrorCode(answer.error_code).name, answer.offset, answer.timestamp, answer.leader_epoch)


@case(
    "listoffsets.exchange",
    "the ends of a partition, and a time, have offsets",
    source=SOURCE,
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.LIST_OFFSETS),
)
def exchange(c: Check, version: int) -> None:
    """Sends: ListOffsets of partition 1, which has two records 10 ms apart, for the timestamps -1, -2, of the second
    record and between the two.

    Expects: topic and partition of the request; offsets 2 and 0 with timestamp -1; offset 1 with the timestamp of the
    second record; since version 4 leader epoch 0.

    Why: consumers begin at these offsets, and the lag of groups is computed from them.
    """
    topic = c.topic(2, KEEP)
    batch = build_batch([Record(timestamp=T0 + when, value=b"-") for when in (0, 10)])
    p.append(c, topic, batch, partition=1)
    epoch = 0 if version >= 4 else -1
    expected = {
        LATEST: found(2, -1, epoch),
        EARLIEST: found(0, -1, epoch),
        T0 + 10: found(1, T0 + 10, epoch),
        T0 + 1: found(1, T0 + 10, epoch),
    }
    for timestamp, right in expected.items():
        c.equal(ask(c, topic, timestamp, version=version, partition=1), right, f"the response for {timestamp}")
    c.equal(ask(c, topic, LATEST, version=version), found(0, -1, epoch), "the response for -1 of partition 0")


@case(
    "listoffsets.unknown",
    "topics and partitions that do not exist are rejected",
    source=SOURCE,
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.LIST_OFFSETS),
)
def unknown(c: Check, version: int) -> None:
    """Sends: ListOffsets of partition 7 of a topic with one partition, and of a topic that does not exist.

    Expects: UNKNOWN_TOPIC_OR_PARTITION, offset, timestamp and leader epoch -1.

    Why: a consumer refreshes its metadata after this error; an offset would become its position.
    """
    topic, missing = c.topic(), Topic(c.name("missing"), b"")
    expected = failed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    c.equal(ask(c, topic, LATEST, version=version, partition=7), expected, "the response for partition 7")
    c.equal(ask(c, missing, LATEST, version=version), expected, "the response for the missing topic")


@case(
    "listoffsets.empty-partition",
    "an empty partition has ends, and no record of any time",
    source=SOURCE,
    needs=LIST,
    variants={
        "latest": (LATEST, found(0)),
        "earliest": (EARLIEST, found(0)),
        "max-timestamp": (MAX_TIMESTAMP, NOTHING),
        "earliest-local": (EARLIEST_LOCAL, found(0)),
        "latest-tiered": (LATEST_TIERED, NOTHING),
        "earliest-pending-upload": (EARLIEST_PENDING_UPLOAD, NOTHING),
        "0": (0, NOTHING),
        "time": (T0, NOTHING),
    },
)
def empty_partition(c: Check, timestamp: int, expected: Found) -> None:
    """Sends: ListOffsets of an empty partition for a special timestamp or a time.

    Expects: offset 0 in leader epoch 0 for the ends; otherwise -1 for offset, timestamp and epoch, without error.

    Why: a consumer that looks for a time learns that there is no such record, and begins at an end.
    """
    if c.version(ApiKey.LIST_OFFSETS) < SINCE.get(timestamp, 1):
        c.not_applicable(f"timestamp {timestamp} is in version {SINCE[timestamp]}")
    c.equal(ask(c, c.topic(), timestamp), expected, f"the response for {timestamp}")


SPECIAL = {
    LATEST: found(8),
    EARLIEST: found(0),
    MAX_TIMESTAMP: found(5, T0 + 60),
    EARLIEST_LOCAL: found(0),
    LATEST_TIERED: NOTHING,
    EARLIEST_PENDING_UPLOAD: NOTHING,
}
BY_TIME = {
    0: found(0, T0),
    T0 - 1: found(0, T0),
    T0: found(0, T0),
    T0 + 1: found(1, T0 + 10),
    T0 + 10: found(1, T0 + 10),
    T0 + 11: found(2, T0 + 20),
    T0 + 21: found(3, T0 + 30),
    T0 + 26: found(3, T0 + 30),
    T0 + 31: found(5, T0 + 60),
    T0 + 60: found(5, T0 + 60),
    T0 + 61: NOTHING,
    2**62: NOTHING,
}


@case(
    "listoffsets.grid",
    "times and special timestamps find the right record of several batches",
    source="KIP-79 and KIP-734",
    needs=LIST,
    variants={
        f"{codec.name.lower()}-{name}": (codec, level)
        for codec in Codec
        for name, level in (("read-uncommitted", 0), ("read-committed", 1))
    },
)
def grid(c: Check, codec: Codec, isolation_level: int) -> None:
    """Sends: ListOffsets for 12 times and the special timestamps, of a partition with batches with the times 0, 10, 20;
    30, 25, 60, 40; and 50 (milliseconds).

    Expects: for a time, the first record with this time or a later one, with its own timestamp, also inside a
    compressed batch and where times are out of order; for -3 the record with time 60.

    Why: consumers that start at a time would otherwise miss records, or read too many.
    """
    topic = c.topic(1, KEEP)
    append(c, topic, 0, 10, 20, codec=codec)
    append(c, topic, 30, 25, 60, 40, codec=codec)
    append(c, topic, 50, codec=codec)
    version = c.version(ApiKey.LIST_OFFSETS)
    for timestamp, expected in {**SPECIAL, **BY_TIME}.items():
        if version >= SINCE.get(timestamp, 1):
            right = ask(c, topic, timestamp, isolation_level=isolation_level)
            c.equal(right, expected, f"the response for {timestamp - T0 if timestamp > 0 else timestamp}")


@case(
    "listoffsets.max-timestamp.first",
    "-3 is the first of the records with the largest timestamp",
    source="KIP-734",
    needs=needs(ApiKey.LIST_OFFSETS, 7),
    variants={codec.name.lower(): (codec,) for codec in Codec},
)
def max_timestamp_first(c: Check, codec: Codec) -> None:
    """Sends: ListOffsets for -3 of a partition with the times 5, 9, 9 in one batch and 9, 8 in another.

    Expects: offset 1 with time 9.

    Why: the offset of the batch, or of its last record, is not where this record is.
    """
    topic = c.topic(1, KEEP)
    append(c, topic, 5, 9, 9, codec=codec)
    append(c, topic, 9, 8, codec=codec)
    c.equal(ask(c, topic, MAX_TIMESTAMP), found(1, T0 + 9), "the response for -3")


@case(
    "listoffsets.special.too-early",
    "special timestamps are rejected in versions before theirs",
    source="KIP-734, KIP-405, KIP-1005 and KIP-1023",
    layer=Layer.WIRE,
    variants={
        "max-timestamp": (MAX_TIMESTAMP,),
        "earliest-local": (EARLIEST_LOCAL,),
        "latest-tiered": (LATEST_TIERED,),
        "earliest-pending-upload": (EARLIEST_PENDING_UPLOAD,),
    },
)
def special_too_early(c: Check, timestamp: int) -> None:
    """Sends: ListOffsets for -3, -4, -5 or -6 in each version below 7, 8, 9 or 11, and in this version.

    Expects: UNSUPPORTED_VERSION and offset -1 in the older versions, no error in this one.

    Why: a client must not take the response to a timestamp that the server does not know for an offset.
    """
    since = SINCE[timestamp]
    if c.version(ApiKey.LIST_OFFSETS) < since:
        c.not_applicable(f"timestamp {timestamp} is in version {since}")
    topic = c.topic(1, KEEP)
    append(c, topic, 0, 10)
    for version in range(c.target.apis[ApiKey.LIST_OFFSETS][0] or 1, since):
        right = failed(ErrorCode.UNSUPPORTED_VERSION)
        c.equal(ask(c, topic, timestamp, version=version), right, f"the response in version {version}")
    right = {MAX_TIMESTAMP: found(1, T0 + 10), EARLIEST_LOCAL: found(0)}.get(timestamp, NOTHING)
    c.equal(ask(c, topic, timestamp, version=since), right, f"the response in version {since}")


@case(
    "listoffsets.special.unknown",
    "negative timestamps without a meaning are rejected",
    source=SOURCE,
    layer=Layer.WIRE,
    level=Level.APACHE,
    needs=LIST,
    variants={"minus-7": (-7,), "minus-100": (-100,), "smallest": (-(2**63),)},
)
def special_unknown(c: Check, timestamp: int) -> None:
    """Sends: ListOffsets for a negative timestamp that has no meaning.

    Expects: UNSUPPORTED_VERSION and offset -1.

    Why: it may have a meaning in a later version of the protocol.
    """
    topic = c.topic(1, KEEP)
    append(c, topic, 0, 10)
    right = failed(ErrorCode.UNSUPPORTED_VERSION)
    c.equal(ask(c, topic, timestamp), right, f"the response for {timestamp}")


@case(
    "listoffsets.leader-epoch",
    "the leader epoch of the client is compared",
    source="KIP-320",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.LIST_OFFSETS, 4),
)
def leader_epoch(c: Check, version: int) -> None:
    """Sends: ListOffsets for -1 of a partition in leader epoch 0, with current_leader_epoch -1, 0 and 1000.

    Expects: the end offset for -1, which means no comparison, and for 0; UNKNOWN_LEADER_EPOCH and -1 for 1000.

    Why: a client that has seen a newer leader must not take the offsets of an older one.
    """
    topic = c.topic(1, KEEP)
    append(c, topic, 0)
    for epoch, right in {-1: found(1), 0: found(1), 1_000: failed(ErrorCode.UNKNOWN_LEADER_EPOCH)}.items():
        answer = ask(c, topic, LATEST, version=version, current_leader_epoch=epoch)
        c.equal(answer, right, f"the response with current_leader_epoch {epoch}")


@case(
    "listoffsets.same-partition-twice",
    "a partition that is named twice is rejected",
    source="Apache Kafka's behavior",
    layer=Layer.WIRE,
    level=Level.APACHE,
    needs=LIST,
)
def same_partition_twice(c: Check) -> None:
    """Sends: ListOffsets with partition 0 twice, for -1 and for -2, and partition 1 once.

    Expects: INVALID_REQUEST for partition 0; the offset of partition 1.

    Why: the client could not match responses to requests.
    """
    topic = c.topic(2)
    requested = [
        ListOffsetsPartition(partition_index=index, timestamp=when) for index, when in ((0, -1), (0, -2), (1, -1))
    ]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic.name, partitions=requested)])
    answers = [
        (each.partition_index, ErrorCode(each.error_code).name)
        for topics in c.call(request).topics
        for each in topics.partitions
    ]
    c.equal(set(answers), {(0, "INVALID_REQUEST"), (1, "NONE")}, "the errors by partition")


@case(
    "listoffsets.several",
    "each partition has its own offset",
    source=SOURCE,
    needs=LIST,
)
def several(c: Check) -> None:
    """Sends: ListOffsets for -1 of partitions 2, 0 and 1 of one topic and 0 of another, with different numbers of
    records, and of partition 5, which does not exist.

    Expects: the number of records of each partition; UNKNOWN_TOPIC_OR_PARTITION for 5 only.

    Why: a client that gets the offset of another partition skips or repeats records.
    """
    one, other = c.topic(3, KEEP), c.topic(1, KEEP)
    for topic, partition, count in ((one, 0, 1), (one, 1, 2), (one, 2, 3), (other, 0, 4)):
        batch = build_batch([Record(timestamp=T0, value=b"-")] * count)
        p.append(c, topic, batch, partition=partition)
    topics = [
        ListOffsetsTopic(
            name=topic.name, partitions=[ListOffsetsPartition(partition_index=each, timestamp=-1) for each in indexes]
        )
        for topic, indexes in ((one, (2, 0, 5, 1)), (other, (0,)))
    ]
    answers = {
        (each.name, part.partition_index): (ErrorCode(part.error_code).name, part.offset)
        for each in c.call(ListOffsetsRequest(replica_id=-1, topics=topics)).topics
        for part in each.partitions
    }
    expected = {
        (one.name, 0): ("NONE", 1),
        (one.name, 1): ("NONE", 2),
        (one.name, 2): ("NONE", 3),
        (one.name, 5): ("UNKNOWN_TOPIC_OR_PARTITION", -1),
        (other.name, 0): ("NONE", 4),
    }
    c.equal(answers, expected, "error and offset by partition")


@case(
    "listoffsets.after-deletion",
    "deleted records are not found",
    source="KIP-107",
    needs=(*LIST, *needs(ApiKey.DELETE_RECORDS, 0)),
)
def after_deletion(c: Check) -> None:
    """Sends: ListOffsets for -1, -2, -4 and the time of the first record, after DeleteRecords before offset 2, which is
    inside the first batch.

    Expects: 5, 2, 2, and the first remaining record, which is at offset 2.

    Why: a consumer that gets the offset of a deleted record has OFFSET_OUT_OF_RANGE next.
    """
    topic = c.topic(1, KEEP)
    append(c, topic, 0, 10, 20, 30)
    append(c, topic, 5)
    c.equal(delete_before(c, topic, 2).low_watermark, 2, "low_watermark of DeleteRecords")
    expected = {LATEST: found(5), EARLIEST: found(2), EARLIEST_LOCAL: found(2), T0: found(2, T0 + 20)}
    for timestamp, right in expected.items():
        if c.version(ApiKey.LIST_OFFSETS) >= SINCE.get(timestamp, 1):
            c.equal(ask(c, topic, timestamp), right, f"the response for {timestamp}")


@case(
    "listoffsets.log-append-time",
    "times of a topic with LogAppendTime are those of the server",
    source="KIP-32",
    needs=needs(ApiKey.LIST_OFFSETS, 7, ApiKey.PRODUCE, 3),
)
def log_append_time(c: Check) -> None:
    """Sends: Produce of two batches whose records have old timestamps to a topic with LogAppendTime; ListOffsets for
    -3, for the time of the first append, and for the time after the last one.

    Expects: -3 is the first record with the time of the last append; the first append is found by its time; nothing is
    later.

    Why: the timestamps of the producer do not count in such topics.
    """
    topic = c.topic(1, {"message.timestamp.type": "LogAppendTime"})
    times = [
        p.produce(c, topic, build_batch([Record(timestamp=when, value=b"-")] * 2)).log_append_time_ms
        for when in (T0 + 10, T0)
    ]
    last = found(0 if times[0] == times[1] else 2, times[1])
    c.equal(ask(c, topic, MAX_TIMESTAMP), last, "the response for -3")
    c.equal(ask(c, topic, times[0]), found(0, times[0]), "the response for the time of the first append")
    c.equal(ask(c, topic, T0 + 11), found(0, times[0]), "the response for a time of the producer")
    c.equal(ask(c, topic, times[1] + 1), NOTHING, "the response for a later time")
