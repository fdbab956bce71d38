"""EndTxn: commit, abort, repeated and concurrent requests."""

from __future__ import annotations

from typing import Final

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ...protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from .. import committed_reads as r
from ..case import Layer, case, needs, versions_of
from ..check import Check
from ..transactional_producer import Producer, errors, fenced

VERSIONS: Final = versions_of(ApiKey.END_TXN)
BEFORE_EPOCHS: Final = versions_of(ApiKey.END_TXN, 0, 4)
WITH_EPOCHS: Final = needs(ApiKey.END_TXN, 5, ApiKey.PRODUCE, 12)
OUTCOMES: Final = {"commit": (True,), "abort": (False,)}
TRANSACTION_VERSION_2: Final = {"transaction.version": 2}
MARKS_EPOCH: Final = 5
"""The version since which a response has the producer ID and epoch of the next transaction."""


def _producer(c: Check, version: int) -> Producer:
    return Producer(c, implicit=version >= MARKS_EPOCH).begin()


def _complete(committed: bool) -> str:
    return "CompleteCommit" if committed else "CompleteAbort"


def _is_error(c: Check, response: EndTxnResponse, expected: ErrorCode, what: str = "error_code") -> None:
    c.error(response.error_code, expected, what)
    c.equal((response.producer_id, response.producer_epoch), (-1, -1), "producer_id and producer_epoch of an error")


@case(
    "transactions.end.exchange",
    "a transaction is committed or aborted",
    source="KIP-98 and KIP-890",
    layer=Layer.WIRE,
    needs=needs(ApiKey.DESCRIBE_TRANSACTIONS, 0, ApiKey.DESCRIBE_PRODUCERS, 0),
    versions=VERSIONS,
    variants=OUTCOMES,
)
def exchange(c: Check, version: int, committed: bool) -> None:
    """Sends: two records in a transaction, and EndTxn.

    Expects: no error; from version 5 on the same producer ID with the next epoch. DescribeTransactions reaches
    CompleteCommit or CompleteAbort without partitions. A consumer with read_committed returns the records of a commit
    only, and DescribeProducers has the epoch of the response.

    Why: this is what a transaction is. The epoch in version 5 separates its records from those of the next one.
    """
    topic = c.topic()
    producer = _producer(c, version)
    producer_id = producer.producer_id
    producer.write(topic, b"a", b"b")
    response = producer.end(version, committed=committed)
    c.error(response.error_code, ErrorCode.NONE)
    if version >= MARKS_EPOCH:
        c.equal(response.producer_id, producer_id, "producer_id")
        c.equal(response.producer_epoch, 1, "producer_epoch")
    found = producer.wait_for_state(_complete(committed))
    c.equal(found.topics, [], "the partitions in DescribeTransactions")
    c.equal(found.producer_id, producer_id, "producer_id in DescribeTransactions")
    c.equal(found.producer_epoch, producer.epoch, "producer_epoch in DescribeTransactions")
    c.equal(r.consumed(c, topic), [b"a", b"b"] if committed else [], "what a consumer with read_committed returns")
    c.equal(r.markers(c, topic), [committed], "the markers of the partition (true: commit)")
    state = r.producers(c, topic)[producer_id]
    c.equal(state.producer_epoch, producer.epoch, "producer_epoch in DescribeProducers")
    c.equal(state.current_txn_start_offset, -1, "current_txn_start_offset in DescribeProducers")


@case(
    "transactions.end.unknown-producer",
    "the end of a transaction by an unknown producer is rejected",
    source="KIP-98",
    layer=Layer.WIRE,
    versions=VERSIONS,
)
def unknown_producer(c: Check, version: int) -> None:
    """Sends: EndTxn for a transactional ID that does not exist, and with the producer ID of another one.

    Expects: INVALID_PRODUCER_ID_MAPPING for both; the transaction can still be committed by its own producer.

    Why: another producer must not decide about these records.
    """
    topic = c.topic()
    producer = _producer(c, version)
    producer.write(topic, b"a")
    other = Producer(c).begin()
    unknown = producer.duplicate(c.name("unknown"))
    _is_error(c, unknown.end(version), ErrorCode.INVALID_PRODUCER_ID_MAPPING, "error_code of the unknown ID")
    stranger = producer.duplicate()
    stranger.producer_id = other.producer_id
    _is_error(c, stranger.end(version), ErrorCode.INVALID_PRODUCER_ID_MAPPING, "error_code of the other producer ID")
    producer.commit(version)
    c.equal(r.consumed(c, topic), [b"a"], "what a consumer with read_committed returns")


@case(
    "transactions.end.fenced",
    "the end of a transaction with another epoch is fenced",
    source="KIP-98 and KIP-588",
    layer=Layer.WIRE,
    versions=VERSIONS,
    variants={
        "commit-old-epoch": (True, -1),
        "abort-old-epoch": (False, -1),
        "commit-future-epoch": (True, 1),
    },
)
def other_epoch(c: Check, version: int, committed: bool, difference: int) -> None:
    """Sends: EndTxn with an epoch that is one below, or one above, that of the producer, while its transaction is open.

    Expects: PRODUCER_FENCED, or INVALID_PRODUCER_EPOCH before version 2; the transaction remains open, and its own
    producer ends it.

    Why: a zombie that could commit would publish half of the transaction of its successor.
    """
    topic = c.topic()
    implicit = version >= MARKS_EPOCH
    Producer(c, name := c.name("transaction"), implicit=implicit).begin()
    producer = Producer(c, name, implicit=implicit).begin()
    producer.write(topic, b"a")
    zombie = producer.duplicate()
    zombie.epoch += difference
    _is_error(c, zombie.end(version, committed=committed), fenced(version, 2))
    c.equal(r.stored(c, topic).last_stable_offset, 0, "last_stable_offset while the transaction is open")
    producer.finish(version, committed=not committed)
    c.equal(r.consumed(c, topic), [] if committed else [b"a"], "what a consumer with read_committed returns")


@case(
    "transactions.end.nothing-open",
    "there is nothing to end before the first transaction",
    source="KIP-98 and KIP-890",
    layer=Layer.WIRE,
    versions=VERSIONS,
)
def nothing_open(c: Check, version: int) -> None:
    """Sends: EndTxn with commit for a producer without a transaction; before version 5 also with abort.

    Expects: INVALID_TXN_STATE.

    Why: the producer believes that it wrote something, which the coordinator does not have.
    """
    producer = _producer(c, version)
    _is_error(c, producer.end(version), ErrorCode.INVALID_TXN_STATE, "error_code of commit")
    if version < MARKS_EPOCH:
        aborted = producer.end(version, committed=False)
        _is_error(c, aborted, ErrorCode.INVALID_TXN_STATE, "error_code of abort")


@case(
    "transactions.end.abort-nothing",
    "an abort without a transaction returns a new epoch and writes nothing",
    source="KIP-890",
    needs=WITH_EPOCHS,
    features=TRANSACTION_VERSION_2,
)
def abort_nothing(c: Check) -> None:
    """Sends: a committed transaction; then EndTxn version 5 with abort, twice, without records in between.

    Expects: no error, the same producer ID, and the epochs 2 and 3; no marker in the partition.

    Why: a producer whose first write failed does not know whether its transaction has begun; it aborts to be sure.
    """
    topic = c.topic()
    producer = Producer(c, implicit=True).begin()
    producer_id = producer.producer_id
    producer.write(topic, b"a")
    producer.commit()
    for epoch in (2, 3):
        producer.abort()
        c.equal((producer.producer_id, producer.epoch), (producer_id, epoch), "producer_id and producer_epoch")
    r.shows(c, r.stored(c, topic), high_watermark=2, last_stable_offset=2, aborted=[], values=[b"a"])


@case(
    "transactions.end.empty-id",
    "an empty transactional ID is rejected",
    source="Protocol: EndTxn",
    layer=Layer.WIRE,
    versions=VERSIONS,
)
def empty_id(c: Check, version: int) -> None:
    """Sends: EndTxn with the transactional ID "".

    Expects: INVALID_REQUEST.

    Why: it is not the ID of a producer.
    """
    Producer(c).begin()
    _is_error(c, Producer(c, "").end(version), ErrorCode.INVALID_REQUEST)


@case(
    "transactions.end.repeated",
    "a repeated end has the same result, and the opposite end is rejected",
    source="KIP-98",
    layer=Layer.WIRE,
    versions=BEFORE_EPOCHS,
    variants=OUTCOMES,
)
def repeated(c: Check, version: int, committed: bool) -> None:
    """Sends: EndTxn; the same again; then the opposite. All this for two transactions in a row.

    Expects: no error, no error, INVALID_TXN_STATE; one marker per transaction.

    Why: the response to EndTxn may be lost, and then the producer repeats it. The outcome was decided by the first.
    """
    topic = c.topic()
    producer = Producer(c).begin()
    for _ in range(2):
        producer.write(topic, b"a")
        producer.finish(version, committed=committed)
        c.error(producer.end(version, committed=committed).error_code, ErrorCode.NONE, "error_code of the repeated end")
        opposite = producer.end(version, committed=not committed)
        _is_error(c, opposite, ErrorCode.INVALID_TXN_STATE, "error_code of the opposite end")
    c.equal(r.markers(c, topic), [committed] * 2, "the markers of the partition (true: commit)")


@case(
    "transactions.end.repeated-with-epoch",
    "a repeated end with the epoch before has the same result",
    source="KIP-890",
    needs=WITH_EPOCHS,
    features=TRANSACTION_VERSION_2,
    variants=OUTCOMES,
)
def repeated_with_epoch(c: Check, committed: bool) -> None:
    """Sends: EndTxn version 5 with epoch 0; the same again; the opposite with epoch 0; commit with the new epoch 1.

    Expects: epoch 1; epoch 1 again; INVALID_TXN_STATE for both others. After another transaction, epoch 0 is fenced.

    Why: the response to EndTxn may be lost. The producer repeats the request with the epoch that it knows, and needs
    the new one.
    """
    topic = c.topic()
    producer = Producer(c, implicit=True).begin()
    producer.write(topic, b"a")
    before = producer.duplicate()
    producer.finish(committed=committed)
    again = before.duplicate().end(committed=committed)
    c.error(again.error_code, ErrorCode.NONE, "error_code of the repeated end")
    c.equal(again.producer_id, before.producer_id, "producer_id of the repeated end")
    c.equal(again.producer_epoch, 1, "producer_epoch of the repeated end")
    c.equal(producer.epoch, 1, "producer_epoch of the first end")
    opposite = before.duplicate().end(committed=not committed)
    _is_error(c, opposite, ErrorCode.INVALID_TXN_STATE, "error_code of the opposite end")
    _is_error(c, producer.duplicate().end(), ErrorCode.INVALID_TXN_STATE, "error_code of a commit without records")
    producer.write(topic, b"b")
    producer.commit()
    c.equal(producer.epoch, 2, "producer_epoch after the second transaction")
    _is_error(c, before.end(committed=committed), ErrorCode.PRODUCER_FENCED, "error_code with epoch 0")
    c.equal(r.markers(c, topic), [committed, True], "the markers of the partition (true: commit)")


@case(
    "transactions.end.next-transaction",
    "a transaction that is begun immediately after EndTxn is separate from the one before",
    source="KIP-98",
    needs=needs(ApiKey.DESCRIBE_TRANSACTIONS, 0),
    versions=BEFORE_EPOCHS,
)
def next_transaction(c: Check, version: int) -> None:
    """Sends: EndTxn with commit and AddPartitionsToTxn on one connection, without waiting; the latter again while the
    response is CONCURRENT_TRANSACTIONS. Then records, and EndTxn with abort.

    Expects: no other error; the first transaction's record is committed, the second's aborted.

    Why: markers are written after the response to EndTxn. A partition that was added to the transaction that is ending
    would never get a marker.
    """
    topic = c.topic(2)
    producer = Producer(c).begin()
    producer.write(topic, b"committed")
    add = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=producer.transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic.name, partitions=[1])],
    )
    end = EndTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=True,
    )
    producer.wire.send(end, version)
    producer.wire.send(add, 3)
    c.error(producer.wire.receive().error_code, ErrorCode.NONE, "EndTxn error_code")
    first = producer.wire.receive().results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
    c.error(first, {ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS}, "AddPartitionsToTxn error_code")

    def is_added() -> bool:
        found = producer.add(topic, 1, version=3)
        if found == {1: ErrorCode.CONCURRENT_TRANSACTIONS}:
            return False
        errors(c, found, {1: ErrorCode.NONE})
        return True

    c.until(is_added, "AddPartitionsToTxn without CONCURRENT_TRANSACTIONS")
    producer.has_state("Ongoing", {topic.name: [1]})
    c.error(producer.produce(topic, b"aborted", partition=1).error_code, ErrorCode.NONE, "Produce error_code")
    producer.abort(version)
    c.equal(r.consumed(c, topic), [b"committed"], "what a consumer returns from partition 0")
    c.equal(r.consumed(c, topic, partition=1), [], "what a consumer returns from partition 1")


@case(
    "transactions.end.many",
    "a producer ends many transactions in a row",
    source="KIP-98 and KIP-890",
    needs=needs(ApiKey.DESCRIBE_TRANSACTIONS, 0),
    versions=versions_of(ApiKey.END_TXN, 4),
)
def many(c: Check, version: int) -> None:
    """Sends: ten transactions of one record in each of two partitions, every third aborted.

    Expects: a consumer with read_committed returns the records of the others, in order; the epoch remains 0 before
    version 5, and increases by 1 per transaction since.

    Why: this is what a producer does all day.
    """
    topic = c.topic(2)
    producer = _producer(c, version)
    for number in range(10):
        producer.write(topic, b"%d" % number)
        producer.write(topic, b"%d" % number, partition=1)
        producer.finish(version, committed=number % 3 != 2)
        c.equal(producer.epoch, number + 1 if version >= MARKS_EPOCH else 0, "the epoch of the producer")
    expected = [b"%d" % number for number in range(10) if number % 3 != 2]
    for partition in (0, 1):
        c.equal(r.consumed(c, topic, partition=partition), expected, f"what a consumer returns from {partition}")
        c.equal(r.end(c, topic, partition=partition), 20, f"the log end offset of {partition}")
