"""OffsetForLeaderEpoch: where the records of a leader epoch end."""

from __future__ import annotations

from typing import Any

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from .. import partitions as p
from ..case import Layer, case, needs, versions_of
from ..check import Check
from ..record_batches import batch
from ..record_deletion import delete_before

SOURCE = "KIP-320"


def end_of(
    c: Check, topic: str, epoch: int, version: int, *, partition: int = 0, current: int = -1
) -> tuple[str, int, int]:
    """The error, the epoch and the end offset for an epoch of one partition; compares the names in the response."""
    requested = OffsetForLeaderPartition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
    # -1 is a consumer.
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[requested])]
    )
    response = c.call(request, version)
    named = [(each.topic, [part.partition for part in each.partitions]) for each in response.topics]
    c.equal(named, [(topic, [partition])], "topics and partitions of the response")
    answer = response.topics[0].partitions[0]
    return ErrorCode(answer.error_code).name, answer.leader_epoch, answer.end_offset


@case(
    "listoffsets.epoch-end.exchange",
    "the current epoch ends at the end of the log",
    source=SOURCE,
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.OFFSET_FOR_LEADER_EPOCH),
)
def exchange(c: Check, version: int) -> None:
    """Sends: OffsetForLeaderEpoch for epoch 0 of partition 1, which has three records, without and with
    current_leader_epoch 0, and of partition 0, which is empty.

    Expects: epoch 0 and end offset 3; epoch 0 and end offset 0 for the empty partition.

    Why: a consumer compares this offset with its position to detect that the log was truncated.
    """
    topic = c.topic(2)
    p.append(c, topic, batch(b"a", b"b", b"c"), partition=1)
    found = end_of(c, topic.name, 0, version, partition=1)
    c.equal(found, ("NONE", 0, 3), "error, leader_epoch and end_offset")
    found = end_of(c, topic.name, 0, version, partition=1, current=0)
    c.equal(found, ("NONE", 0, 3), "error, leader_epoch and end_offset with current_leader_epoch")
    found = end_of(c, topic.name, 0, version)
    c.equal(found, ("NONE", 0, 0), "error, leader_epoch and end_offset of the empty partition")


@case(
    "listoffsets.epoch-end.unknown-epoch",
    "an epoch that the leader does not know has no end",
    source=SOURCE,
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.OFFSET_FOR_LEADER_EPOCH),
    variants={"later": (5,), "next": (1,), "minus-1": (-1,)},
)
def unknown_epoch(c: Check, version: int, epoch: int) -> None:
    """Sends: OffsetForLeaderEpoch for a later epoch than the leader's, and for -1.

    Expects: no error, epoch -1 and end offset -1.

    Why: the consumer learns that it cannot validate its position here.
    """
    topic = c.topic()
    p.append(c, topic, batch(b"a"))
    c.equal(end_of(c, topic.name, epoch, version), ("NONE", -1, -1), "error, leader_epoch and end_offset")


@case(
    "listoffsets.epoch-end.rejected",
    "unknown partitions and leader epochs are rejected",
    source=SOURCE,
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.OFFSET_FOR_LEADER_EPOCH),
)
def rejected(c: Check, version: int) -> None:
    """Sends: OffsetForLeaderEpoch for partition 9, for a topic that does not exist, and with current_leader_epoch 7.

    Expects: UNKNOWN_TOPIC_OR_PARTITION twice, then UNKNOWN_LEADER_EPOCH; epoch and end offset -1.

    Why: an end offset of another leader would reset the position of the consumer.
    """
    topic = c.topic()
    missing = ("UNKNOWN_TOPIC_OR_PARTITION", -1, -1)
    c.equal(end_of(c, topic.name, 0, version, partition=9), missing, "the response for partition 9")
    c.equal(end_of(c, c.name("missing"), 0, version), missing, "the response for the missing topic")
    found = end_of(c, topic.name, 0, version, current=7)
    c.equal(found, ("UNKNOWN_LEADER_EPOCH", -1, -1), "the response with current_leader_epoch 7")


@case(
    "listoffsets.epoch-end.several",
    "each partition has its own end",
    source=SOURCE,
    needs=needs(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2),
)
def several(c: Check) -> None:
    """Sends: OffsetForLeaderEpoch for partitions 2, 0, 1 and 7 of a topic with one, two and three records.

    Expects: the end of each partition; UNKNOWN_TOPIC_OR_PARTITION for 7.

    Why: a consumer validates all its partitions with one request.
    """
    topic = c.topic(3)
    for partition in range(3):
        p.append(c, topic, batch(*[b"-"] * (partition + 1)), partition=partition)
    requested = [OffsetForLeaderPartition(partition=index, leader_epoch=0) for index in (2, 0, 1, 7)]
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic.name, partitions=requested)]
    )
    response: Any = c.call(request)
    found = {
        part.partition: (ErrorCode(part.error_code).name, part.end_offset)
        for each in response.topics
        for part in each.partitions
    }
    expected = {0: ("NONE", 1), 1: ("NONE", 2), 2: ("NONE", 3), 7: ("UNKNOWN_TOPIC_OR_PARTITION", -1)}
    c.equal(found, expected, "error and end_offset by partition")


@case(
    "listoffsets.epoch-end.after-deletion",
    "deleted records do not change the end of their epoch",
    source=SOURCE,
    needs=needs(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, ApiKey.DELETE_RECORDS, 0),
)
def after_deletion(c: Check) -> None:
    """Sends: OffsetForLeaderEpoch for epoch 0 after DeleteRecords of all three records.

    Expects: epoch 0 and end offset 3.

    Why: a consumer at the end has lost nothing.
    """
    topic = c.topic()
    p.append(c, topic, batch(b"a", b"b", b"c"))
    c.equal(delete_before(c, topic, -1).low_watermark, 3, "low_watermark of DeleteRecords")
    version = c.version(ApiKey.OFFSET_FOR_LEADER_EPOCH)
    c.equal(end_of(c, topic.name, 0, version), ("NONE", 0, 3), "error, leader_epoch and end_offset")
