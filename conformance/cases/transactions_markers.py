"""WriteTxnMarkers: markers as the coordinator on another broker sends them."""

from __future__ import annotations

from collections.abc import Mapping

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from .. import committed_reads as r
from .. import partitions as p
from ..case import Layer, Level, case, needs, versions_of
from ..check import Check
from ..transactional_producer import Producer, errors

VERSIONS = versions_of(ApiKey.WRITE_TXN_MARKERS)
PRODUCER_ID = 7_000_000
"""Any: it is that of a producer which the new topics of these cases do not have."""


def _marker(
    producer_id: int,
    epoch: int,
    partitions: Mapping[str, list[int]],
    *,
    committed: bool = True,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=committed,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=each) for name, each in partitions.items()],
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
    )


def _written(c: Check, version: int, *markers: WritableTxnMarker) -> dict[int, dict[str, int]]:
    """The error codes by producer ID and partition ("topic partition")."""
    found = c.call(WriteTxnMarkersRequest(markers=list(markers)), version).markers
    c.equal(sorted(each.producer_id for each in found), sorted(each.producer_id for each in markers), "producer IDs")
    return {
        result.producer_id: {
            f"{topic.name} {each.partition_index}": each.error_code
            for topic in result.topics
            for each in topic.partitions
        }
        for result in found
    }


@case(
    "transactions.write-markers.exchange",
    "a broker writes the markers of a coordinator",
    source="KIP-98",
    layer=Layer.WIRE,
    level=Level.APACHE,
    needs=needs(ApiKey.DESCRIBE_PRODUCERS, 0),
    versions=VERSIONS,
    variants={"commit": (True,), "abort": (False,)},
)
def exchange(c: Check, version: int, committed: bool) -> None:
    """Sends: WriteTxnMarkers with one marker for partitions 0, 2 and 77 of a topic, and for an unknown topic.

    Expects: no error for 0 and 2, UNKNOWN_TOPIC_OR_PARTITION for the others; a control batch with the producer ID,
    epoch and outcome in 0 and 2, and the producer in DescribeProducers.

    Why: the leaders of a transaction's partitions are on several brokers.
    """
    topic, unknown = c.topic(3), c.name("no-topic")
    marker = _marker(PRODUCER_ID, 3, {topic.name: [0, 2, 77], unknown: [0]}, committed=committed, coordinator_epoch=5)
    expected = {
        f"{topic.name} 0": ErrorCode.NONE,
        f"{topic.name} 2": ErrorCode.NONE,
        f"{topic.name} 77": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"{unknown} 0": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    errors(c, _written(c, version, marker)[PRODUCER_ID], expected, "WriteTxnMarkers")
    for partition in (0, 2):
        found = p.read_batches(c, topic, partition=partition)
        fields = [(each.is_control, each.producer_id, each.producer_epoch) for each in found]
        c.equal(fields, [(True, PRODUCER_ID, 3)], f"control, producer ID and epoch of the batches of {partition}")
        c.equal(r.markers(c, topic, partition=partition), [committed], f"the markers of {partition} (true: commit)")
        state = r.producers(c, topic, partition)[PRODUCER_ID]
        described = (state.producer_epoch, state.coordinator_epoch, state.current_txn_start_offset)
        c.equal(described, (3, 5, -1), "epoch, coordinator epoch and transaction in DescribeProducers")
    c.equal(r.end(c, topic, partition=1), 0, "the log end offset of partition 1")


@case(
    "transactions.write-markers.fenced",
    "markers of an old producer epoch, or of an old coordinator, are rejected",
    source="KIP-98",
    layer=Layer.WIRE,
    level=Level.APACHE,
    versions=VERSIONS,
)
def old(c: Check, version: int) -> None:
    """Sends: markers with producer epoch and coordinator epoch 4 and 9, 3 and 9, 4 and 8, 3 and 8, 4 and 9, 5 and 10.

    Expects: no error, INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED, INVALID_PRODUCER_EPOCH, and no error
    twice; three markers in the log.

    Why: a former coordinator must not decide about a transaction of its successor.
    """
    topic = c.topic()
    for epoch, coordinator_epoch, expected in (
        (4, 9, ErrorCode.NONE),
        (3, 9, ErrorCode.INVALID_PRODUCER_EPOCH),
        (4, 8, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (3, 8, ErrorCode.INVALID_PRODUCER_EPOCH),
        (4, 9, ErrorCode.NONE),
        (5, 10, ErrorCode.NONE),
    ):
        marker = _marker(PRODUCER_ID, epoch, {topic.name: [0]}, coordinator_epoch=coordinator_epoch)
        what = f"WriteTxnMarkers (producer epoch {epoch}, coordinator epoch {coordinator_epoch})"
        errors(c, _written(c, version, marker)[PRODUCER_ID], {f"{topic.name} 0": expected}, what)
    c.equal(r.end(c, topic), 3, "the log end offset")


@case(
    "transactions.write-markers.several",
    "several markers are written with one request",
    source="KIP-98",
    layer=Layer.WIRE,
    level=Level.APACHE,
    versions=VERSIONS,
)
def several(c: Check, version: int) -> None:
    """Sends: WriteTxnMarkers with four markers of different producers for two partitions, and without markers.

    Expects: no error for each producer; two markers in each of the two partitions. An empty response for the latter.

    Why: a coordinator collects the markers for each broker.
    """
    topic = c.topic(3)
    markers = [_marker(PRODUCER_ID + number, number, {topic.name: [number % 2]}) for number in range(4)]
    found = _written(c, version, *markers)
    for number in range(4):
        errors(c, found[PRODUCER_ID + number], {f"{topic.name} {number % 2}": ErrorCode.NONE}, "WriteTxnMarkers")
    c.equal(_written(c, version), {}, "the response to no markers")
    c.equal([r.end(c, topic, partition=each) for each in range(3)], [2, 2, 0], "the log end offsets")


@case(
    "transactions.write-markers.ends-transaction",
    "a marker ends the open transaction of its producer, and no other",
    source="KIP-98",
    level=Level.APACHE,
    needs=needs(ApiKey.WRITE_TXN_MARKERS, 1),
    variants={"commit": (True,), "abort": (False,)},
)
def ends_transaction(c: Check, committed: bool) -> None:
    """Sends: records of two producers in transactions; WriteTxnMarkers version 1 with the producer ID and epoch of the
    first.

    Expects: no error; the last stable offset moves from 0 to the record of the second producer.

    Why: this is how an operator ends a hanging transaction (KIP-664).
    """
    topic = c.topic()
    first, second = Producer(c).begin(), Producer(c).begin()
    first.write(topic, b"a")
    second.write(topic, b"b")
    marker = _marker(first.producer_id, first.epoch, {topic.name: [0]}, committed=committed)
    errors(c, _written(c, 1, marker)[first.producer_id], {f"{topic.name} 0": ErrorCode.NONE}, "WriteTxnMarkers")
    aborted = [] if committed else [(first.producer_id, 0)]
    r.shows(c, r.stored(c, topic), high_watermark=3, last_stable_offset=1, aborted=aborted, values=[b"a"])


@case(
    "transactions.write-markers.next-epoch",
    "with an epoch per transaction, a marker has the next epoch",
    source="KIP-890 and KIP-1228",
    level=Level.APACHE,
    needs=needs(ApiKey.WRITE_TXN_MARKERS, 2),
    features={"transaction.version": 2},
)
def next_epoch(c: Check) -> None:
    """Sends: a record in a transaction with epoch 0; WriteTxnMarkers version 2 with transaction version 2, with epoch 0
    and with epoch 1; then another record of epoch 0.

    Expects: INVALID_PRODUCER_EPOCH for the marker of epoch 0, no error for epoch 1; INVALID_PRODUCER_EPOCH for the
    record.

    Why: a marker of the transaction before that is late must not end the one that is open now.
    """
    topic = c.topic()
    producer = Producer(c, implicit=True).begin()
    producer_id = producer.producer_id
    producer.write(topic, b"a")
    for epoch, expected, last_stable_offset in (
        (0, ErrorCode.INVALID_PRODUCER_EPOCH, 0),
        (1, ErrorCode.NONE, 2),
    ):
        marker = _marker(producer_id, epoch, {topic.name: [0]}, transaction_version=2)
        errors(c, _written(c, 2, marker)[producer_id], {f"{topic.name} 0": expected}, "WriteTxnMarkers")
        c.equal(r.stored(c, topic).last_stable_offset, last_stable_offset, "last_stable_offset")
    answer = producer.produce(topic, b"b")
    c.error(answer.error_code, ErrorCode.INVALID_PRODUCER_EPOCH, "Produce error_code")


@case(
    "transactions.write-markers.same-epoch",
    "without an epoch per transaction, a marker has the epoch of the transaction",
    source="KIP-98 and KIP-1228",
    level=Level.APACHE,
    needs=needs(ApiKey.WRITE_TXN_MARKERS, 2),
)
def same_epoch(c: Check) -> None:
    """Sends: a record in a transaction; WriteTxnMarkers with abort and its epoch in version 1, and in version 2 with
    transaction version 1.

    Expects: no errors; two markers, and one aborted transaction.

    Why: coordinators before transaction.version 2 do not increase the epoch.
    """
    topic = c.topic()
    producer = Producer(c).begin()
    producer_id = producer.producer_id
    producer.write(topic, b"a")
    for version, transaction_version in ((1, 0), (2, 1)):
        marker = _marker(producer_id, 0, {topic.name: [0]}, committed=False, transaction_version=transaction_version)
        errors(c, _written(c, version, marker)[producer_id], {f"{topic.name} 0": ErrorCode.NONE}, "WriteTxnMarkers")
    r.shows(c, r.stored(c, topic), high_watermark=3, last_stable_offset=3, aborted=[(producer_id, 0)], values=[b"a"])


@case(
    "transactions.write-markers.no-producer",
    "a marker without a producer ID, or without an epoch, is rejected",
    source="KIP-98",
    level=Level.APACHE,
    needs=needs(ApiKey.WRITE_TXN_MARKERS, 1),
    variants={"producer-id": (-1, 0), "epoch": (PRODUCER_ID, -1)},
)
def no_producer(c: Check, producer_id: int, epoch: int) -> None:
    """Sends: WriteTxnMarkers with producer ID -1, or with epoch -1.

    Expects: UNKNOWN_SERVER_ERROR, and nothing is appended.

    Why: no producer has these, and consumers could not assign the marker to records.
    """
    topic = c.topic()
    found = _written(c, 1, _marker(producer_id, epoch, {topic.name: [0]}))
    errors(c, found[producer_id], {f"{topic.name} 0": ErrorCode.UNKNOWN_SERVER_ERROR}, "WriteTxnMarkers")
    c.equal(r.end(c, topic), 0, "the log end offset")
