"""DeleteRecords: moving the start of a partition (KIP-107)."""

from __future__ import annotations

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ...protocol.records import Record, build_batch
from .. import partitions as p
from ..case import Layer, Level, case, needs, versions_of
from ..check import Check, Topic
from ..record_batches import batch
from ..record_deletion import delete_before

SOURCE = "KIP-107"
T0 = 1_700_000_000_000
DELETE = needs(ApiKey.DELETE_RECORDS, 0)


def deleted(c: Check, topic: Topic, offset: int, *, partition: int = 0, version: int | None = None) -> tuple[str, int]:
    """The error and the low watermark."""
    answer = delete_before(c, topic, offset, partition=partition, version=version)
    return ErrorCode(answer.error_code).name, answer.low_watermark


@case(
    "records.delete.exchange",
    "records before an offset are deleted",
    source=SOURCE,
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DELETE_RECORDS),
)
def exchange(c: Check, version: int) -> None:
    """Sends: DeleteRecords before offset 2 of partition 1, which has three batches of one record; the other partition
    has the same records.

    Expects: low watermark 2; only the third record remains in partition 1, at offset 2; the other is unchanged.

    Why: users delete records that must not be kept, and applications those that they have processed.
    """
    topic = c.topic(2)
    for partition in (0, 1):
        for value in (b"a", b"b", b"c"):
            p.append(c, topic, batch(value), partition=partition)
    c.equal(deleted(c, topic, 2, partition=1, version=version), ("NONE", 2), "error and low_watermark")
    c.equal(p.end_offset(c, topic, partition=1, timestamp=p.EARLIEST), 2, "the log start offset of partition 1")
    c.equal(p.end_offset(c, topic, partition=1), 3, "the log end offset of partition 1")
    c.equal(p.values(c, topic, partition=1), [b"c"], "the values of partition 1")
    c.equal(p.end_offset(c, topic, timestamp=p.EARLIEST), 0, "the log start offset of partition 0")
    c.equal(p.values(c, topic), [b"a", b"b", b"c"], "the values of partition 0")


@case(
    "records.delete.out-of-range",
    "offsets that the partition does not have are rejected",
    source=SOURCE,
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DELETE_RECORDS),
    variants={"beyond-end": (4,), "minus-2": (-2,)},
)
def out_of_range(c: Check, version: int, offset: int) -> None:
    """Sends: DeleteRecords before offset 4 of a partition whose end is 3, and before -2.

    Expects: OFFSET_OUT_OF_RANGE and low watermark -1; nothing is deleted.

    Why: a wrong offset must not delete anything.
    """
    topic = c.topic()
    p.append(c, topic, batch(b"a", b"b", b"c"))
    c.equal(deleted(c, topic, offset, version=version), ("OFFSET_OUT_OF_RANGE", -1), "error and low_watermark")
    c.equal(p.end_offset(c, topic, timestamp=p.EARLIEST), 0, "the log start offset")
    c.equal(p.values(c, topic), [b"a", b"b", b"c"], "the values")


@case(
    "records.delete.unknown",
    "topics and partitions that do not exist are rejected",
    source=SOURCE,
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DELETE_RECORDS),
)
def unknown(c: Check, version: int) -> None:
    """Sends: DeleteRecords for partition 9 of a topic with one partition, and for a topic that does not exist.

    Expects: UNKNOWN_TOPIC_OR_PARTITION and low watermark -1.

    Why: the user learns that nothing was deleted.
    """
    missing = ("UNKNOWN_TOPIC_OR_PARTITION", -1)
    c.equal(deleted(c, c.topic(), 0, partition=9, version=version), missing, "the response for partition 9")
    c.equal(
        deleted(c, Topic(c.name("missing"), b""), 0, version=version), missing, "the response for the missing topic"
    )


@case("records.delete.high-watermark", "-1 deletes all records", source=SOURCE, needs=DELETE)
def high_watermark(c: Check) -> None:
    """Sends: DeleteRecords before -1 of a partition with three records; then Produce.

    Expects: low watermark 3, an empty partition that begins and ends at 3, and base offset 3 for the next record.

    Why: -1 means the high watermark; offsets continue, so that consumers do not read anything twice.
    """
    topic = c.topic()
    p.append(c, topic, batch(b"a", b"b", b"c"))
    c.equal(deleted(c, topic, -1), ("NONE", 3), "error and low_watermark")
    c.equal(p.end_offset(c, topic, timestamp=p.EARLIEST), 3, "the log start offset")
    c.equal(p.values(c, topic), [], "the values")
    answer = p.produce(c, topic, batch(b"d"))
    c.equal((answer.error_code, answer.base_offset), (0, 3), "error_code and base_offset of the next record")
    if c.version(ApiKey.PRODUCE) >= 5:
        c.equal(answer.log_start_offset, 3, "log_start_offset of Produce")
    c.equal(p.values(c, topic), [b"d"], "the values after Produce")


@case("records.delete.only-forward", "deleted records stay deleted", source=SOURCE, needs=DELETE)
def only_forward(c: Check) -> None:
    """Sends: DeleteRecords before offsets 3, 1, 0, 3 and 4 of a partition with five records.

    Expects: no errors, and low watermarks 3, 3, 3, 3 and 4.

    Why: the start of a partition never moves back.
    """
    topic = c.topic()
    for _ in range(5):
        p.append(c, topic, batch(b"-"))
    for offset, right in ((3, 3), (1, 3), (0, 3), (3, 3), (4, 4)):
        c.equal(deleted(c, topic, offset), ("NONE", right), f"error and low_watermark of deletion before {offset}")
        c.equal(p.end_offset(c, topic, timestamp=p.EARLIEST), right, "the log start offset")


@case(
    "records.delete.nothing", "a deletion before the start of a partition deletes nothing", source=SOURCE, needs=DELETE
)
def nothing(c: Check) -> None:
    """Sends: DeleteRecords before offset 0 of an empty partition and of one with a record, and before -1 of the empty
    one.

    Expects: low watermark 0; the record remains.

    Why: tools delete without knowing whether there is anything.
    """
    topic = c.topic(2)
    p.append(c, topic, batch(b"a"), partition=1)
    c.equal(deleted(c, topic, 0), ("NONE", 0), "the response for offset 0 of the empty partition")
    c.equal(deleted(c, topic, -1), ("NONE", 0), "the response for -1 of the empty partition")
    c.equal(deleted(c, topic, 0, partition=1), ("NONE", 0), "the response for offset 0 of the other partition")
    c.equal(p.values(c, topic, partition=1), [b"a"], "the values of the other partition")


@case("records.delete.several", "each partition has its own result", source=SOURCE, needs=DELETE)
def several(c: Check) -> None:
    """Sends: one DeleteRecords for partitions 2, 0, 1 and 7 of a topic, and for a topic that does not exist, with the
    offsets 2, 9, 1, 0 and 0; each partition has three records.

    Expects: low watermarks 2 and 1 for partitions 2 and 1; OFFSET_OUT_OF_RANGE for 0; UNKNOWN_TOPIC_OR_PARTITION for
    the others.

    Why: one wrong partition must not prevent the deletion of the others, or take their offsets.
    """
    topic, missing = c.topic(3), c.name("missing")
    for partition in range(3):
        p.append(c, topic, batch(b"a", b"b", b"c"), partition=partition)
    wanted = [
        DeleteRecordsPartition(partition_index=index, offset=offset)
        for index, offset in ((2, 2), (0, 9), (1, 1), (7, 0))
    ]
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(name=topic.name, partitions=wanted),
            DeleteRecordsTopic(name=missing, partitions=[DeleteRecordsPartition(partition_index=0, offset=0)]),
        ],
        timeout_ms=30_000,
    )
    found = {
        (each.name, part.partition_index): (ErrorCode(part.error_code).name, part.low_watermark)
        for each in c.call(request).topics
        for part in each.partitions
    }
    expected = {
        (topic.name, 2): ("NONE", 2),
        (topic.name, 0): ("OFFSET_OUT_OF_RANGE", -1),
        (topic.name, 1): ("NONE", 1),
        (topic.name, 7): ("UNKNOWN_TOPIC_OR_PARTITION", -1),
        (missing, 0): ("UNKNOWN_TOPIC_OR_PARTITION", -1),
    }
    c.equal(found, expected, "error and low_watermark by partition")
    starts = [p.end_offset(c, topic, partition=index, timestamp=p.EARLIEST) for index in range(3)]
    c.equal(starts, [0, 1, 2], "the log start offsets")


@case(
    "records.delete.compacted-topic",
    "records of a compacted topic are not deleted",
    source=SOURCE,
    level=Level.SHOULD,
    needs=DELETE,
    variants={
        "compact": ("compact", ("POLICY_VIOLATION", -1)),
        "compact-and-delete": ("compact,delete", ("NONE", 1)),
    },
)
def compacted_topic(c: Check, policy: str, expected: tuple[str, int]) -> None:
    """Sends: DeleteRecords before offset 1 of a topic with cleanup.policy compact, or compact and delete.

    Expects: POLICY_VIOLATION for compact; the deletion for both policies together.

    Why: a compacted topic keeps the last value of each key; its users rely on it.
    """
    topic = c.topic(1, {"cleanup.policy": policy, "retention.ms": "-1"})
    p.append(c, topic, build_batch([Record(timestamp=T0, key=key, value=b"-") for key in (b"a", b"b")]))
    c.equal(deleted(c, topic, 1), expected, "error and low_watermark")
