"""DescribeTransactions, ListTransactions and DescribeProducers: what operators see of transactions (KIP-664)."""

from __future__ import annotations

import time
from typing import Final

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ...protocol.messages.describe_transactions import DescribeTransactionsRequest
from ...protocol.messages.list_transactions import ListTransactionsRequest
from .. import committed_reads as r
from .. import partitions as p
from ..case import Layer, Level, case, needs, versions_of
from ..check import Check
from ..exchange import Connection
from ..record_batches import batch
from ..transactional_producer import Producer

LISTED: Final = versions_of(ApiKey.LIST_TRANSACTIONS)
STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)


@case(
    "transactions.describe.exchange",
    "an open transaction is described",
    source="KIP-664",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DESCRIBE_TRANSACTIONS),
)
def describe(c: Check, version: int) -> None:
    """Sends: records in partitions 2 and 0 of one topic and 1 of another, in a transaction with a timeout of 54,321 ms;
    DescribeTransactions.

    Expects: no error, the state Ongoing, this timeout, a start time between the first and the last request, the
    producer's ID and epoch, and exactly these partitions.

    Why: with these fields `kafka-transactions` finds a hanging transaction, and aborts it.
    """
    topic, other = c.topic(3), c.topic(2)
    producer = Producer(c, timeout_ms=54_321).begin()
    producer.write(topic, b"-", partition=2)
    producer.write(topic, b"-", partition=0)
    producer.write(other, b"-", partition=1)
    request = DescribeTransactionsRequest(transactional_ids=[producer.transactional_id])
    response = c.call(request, version, to=producer.wire)
    c.equal([each.transactional_id for each in response.transaction_states], [producer.transactional_id], "the IDs")
    found = response.transaction_states[0]
    c.error(found.error_code, ErrorCode.NONE)
    c.equal(found.transaction_state, "Ongoing", "transaction_state")
    c.equal(found.transaction_timeout_ms, 54_321, "transaction_timeout_ms")
    c.equal(found.producer_id, producer.producer_id, "producer_id")
    c.equal(found.producer_epoch, producer.epoch, "producer_epoch")
    partitions = {each.topic: sorted(each.partitions) for each in found.topics}
    c.equal(partitions, {topic.name: [0, 2], other.name: [1]}, "topics")
    # The clocks of two machines may differ, but not by years.
    distance = abs(found.transaction_start_time_ms / 1000 - time.time())
    c.true(distance < 86_400, "transaction_start_time_ms", expected="the present", actual=found)


@case(
    "transactions.describe.unknown",
    "unknown and empty transactional IDs have errors",
    source="KIP-664",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DESCRIBE_TRANSACTIONS),
)
def describe_unknown(c: Check, version: int) -> None:
    """Sends: DescribeTransactions with a transactional ID that exists, one that does not, and the empty one.

    Expects: no error, TRANSACTIONAL_ID_NOT_FOUND and INVALID_REQUEST, each with its transactional ID; the latter two
    without state, timeout, producer and partitions.

    Why: one unknown ID must not hide the others.
    """
    producer = Producer(c).begin()

    def beside() -> str | None:
        other = Producer(c)
        return other.transactional_id if other.wire.address == producer.wire.address else None

    unknown = c.until(beside, "a transactional ID of the same coordinator")
    request = DescribeTransactionsRequest(transactional_ids=[producer.transactional_id, unknown, ""])
    found = {each.transactional_id: each for each in c.call(request, version, to=producer.wire).transaction_states}
    c.equal(sorted(found), sorted((producer.transactional_id, unknown, "")), "the transactional IDs of the response")
    c.error(found[producer.transactional_id].error_code, ErrorCode.NONE, "error_code of the known ID")
    c.equal(found[producer.transactional_id].transaction_state, "Empty", "transaction_state of the known ID")
    c.error(found[unknown].error_code, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "error_code of the unknown ID")
    c.error(found[""].error_code, ErrorCode.INVALID_REQUEST, "error_code of the empty ID")
    for name in (unknown, ""):
        each = found[name]
        state = (each.transaction_state, each.transaction_timeout_ms, each.transaction_start_time_ms, each.topics)
        c.equal(state, ("", 0, 0, []), f"state, timeout, start time and topics of {name!r}")
        c.equal((each.producer_id, each.producer_epoch), (0, 0), f"producer_id and producer_epoch of {name!r}")


# ListTransactions


def _listed(
    c: Check,
    wire: Connection,
    version: int,
    *,
    states: tuple[str, ...] = (),
    producer_ids: tuple[int, ...] = (),
    longer_than_ms: int = -1,
    pattern: str | None = None,
) -> dict[str, tuple[int, str]]:
    """Producer ID and state, by transactional ID."""
    request = ListTransactionsRequest(state_filters=list(states), producer_id_filters=list(producer_ids))
    if version >= 1:
        request.duration_filter = longer_than_ms
    if version >= 2:
        request.transactional_id_pattern = pattern
    response = c.call(request, version, to=wire)
    c.error(response.error_code, ErrorCode.NONE)
    c.equal(response.unknown_state_filters, [], "unknown_state_filters")
    found = {each.transactional_id: (each.producer_id, each.transaction_state) for each in response.transaction_states}
    c.equal(len(found), len(response.transaction_states), "the number of different transactional IDs")
    return found


def _beside(c: Check, first: Producer, name: str | None = None) -> Producer:
    """A producer with the same coordinator."""

    def found() -> Producer | None:
        other = Producer(c, name and c.name(name))
        return other if other.wire.address == first.wire.address else None

    return c.until(found, "a transactional ID of the same coordinator").begin()


@case(
    "transactions.list.exchange",
    "transactions are listed with their state, by state and by producer ID",
    source="KIP-664",
    layer=Layer.WIRE,
    versions=LISTED,
)
def list_transactions(c: Check, version: int) -> None:
    """Sends: ListTransactions without filters; with states; with producer IDs; and with both. There are an empty, an
    open and an aborted transaction.

    Expects: their producer IDs and states Empty, Ongoing and CompleteAbort; with filters those that match all of them.

    Why: operators look for open transactions, or for the one of a producer that blocks a partition.
    """
    topic = c.topic()
    empty = Producer(c).begin()
    ongoing, done = _beside(c, empty), _beside(c, empty)
    ongoing.write(topic, b"-")
    done.write(topic, b"-")
    done.abort()
    states = {empty: "Empty", ongoing: "Ongoing", done: "CompleteAbort"}
    ours = {producer.transactional_id: (producer.producer_id, state) for producer, state in states.items()}
    for filters, ids, expected in (
        ((), (), {empty, ongoing, done}),
        (("Ongoing",), (), {ongoing}),
        (("CompleteAbort", "Empty"), (), {empty, done}),
        (("CompleteCommit", "PrepareCommit", "PrepareAbort", "PrepareEpochFence", "Dead"), (), set()),
        ((), (done.producer_id, 2**50), {done}),
        ((), (2**50,), set()),
        (("Ongoing", "Empty"), (ongoing.producer_id, done.producer_id), {ongoing}),
    ):
        found = _listed(c, empty.wire, version, states=filters, producer_ids=ids)
        what = f"our transactions with the states {list(filters)} and the producer IDs {list(ids)}"
        wanted = {each.transactional_id: ours[each.transactional_id] for each in expected}
        c.equal({name: each for name, each in found.items() if name in ours}, wanted, what)
        c.equal([each for each in found.values() if filters and each[1] not in filters], [], f"other states; {what}")
        c.equal([each for each in found.values() if ids and each[0] not in ids], [], f"other producers; {what}")


@case(
    "transactions.list.unknown-state",
    "a state that does not exist is reported, and the others count",
    source="KIP-664",
    layer=Layer.WIRE,
    versions=LISTED,
)
def unknown_state(c: Check, version: int) -> None:
    """Sends: ListTransactions with the states "Empty", "empty" and "Gone", and with "Gone" only.

    Expects: "empty" and "Gone" as unknown, and the transaction; "Gone" as unknown, and no transactions.

    Why: the caller learns about a wrong spelling. Without any valid state the result is nothing, not everything.
    """
    producer = Producer(c).begin()
    for states, unknown, expected in (
        (["Empty", "empty", "Gone"], ["Gone", "empty"], [producer.transactional_id]),
        (["Gone"], ["Gone"], []),
    ):
        request = ListTransactionsRequest(state_filters=states, producer_id_filters=[producer.producer_id])
        response = c.call(request, version, to=producer.wire)
        c.error(response.error_code, ErrorCode.NONE)
        c.equal(sorted(response.unknown_state_filters), unknown, f"unknown_state_filters of {states}")
        found = [each.transactional_id for each in response.transaction_states]
        c.equal(found, expected, f"the transactional IDs of {states}")


@case(
    "transactions.list.all-states",
    "every state of a transaction is known as a filter",
    source="KIP-664",
    level=Level.SHOULD,
    versions=LISTED,
)
def all_states(c: Check, version: int) -> None:
    """Sends: ListTransactions with each state of Apache Kafka.

    Expects: no unknown states, and only transactions of these states.

    Why: tools offer these names.
    """
    producer = Producer(c).begin()
    found = _listed(c, producer.wire, version, states=STATES)
    c.equal(found.get(producer.transactional_id), (producer.producer_id, "Empty"), "our transaction")
    c.equal({state for _, state in found.values()} - set(STATES), set(), "other states")


@case(
    "transactions.list.duration",
    "transactions are listed by how long they have been open",
    source="KIP-994",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.LIST_TRANSACTIONS, 1),
)
def duration(c: Check, version: int) -> None:
    """Sends: ListTransactions with the state Ongoing and durations of 10 minutes and of 50 ms, for an open transaction.

    Expects: it is listed only with 50 ms, when it is that old.

    Why: operators look for hanging transactions, which are the ones that are open for too long.
    """
    topic = c.topic()
    producer = Producer(c).begin()
    producer.write(topic, b"-")
    ids = (producer.producer_id,)

    def older_than(milliseconds: int) -> list[str]:
        # Apache Kafka counts a transaction that has not begun as old.
        states = ("Ongoing",)
        return list(_listed(c, producer.wire, version, states=states, producer_ids=ids, longer_than_ms=milliseconds))

    c.equal(older_than(600_000), [], "the transactions that are open for more than 10 minutes")
    c.until(lambda: older_than(50), "a transaction that is open for more than 50 ms")
    c.equal(older_than(50), [producer.transactional_id], "the transactions that are open for more than 50 ms")


@case(
    "transactions.list.pattern",
    "transactions are listed by a regular expression",
    source="KIP-1152",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.LIST_TRANSACTIONS, 2),
)
def pattern(c: Check, version: int) -> None:
    """Sends: ListTransactions with patterns that match two of three transactional IDs, one, none, and with no pattern.

    Expects: exactly the transactional IDs that match as a whole; all of them with an empty or a null pattern.

    Why: an operator has many transactional IDs, which have a prefix for each application.
    """
    one = Producer(c, c.name("one")).begin()
    two, three = _beside(c, one, "two"), _beside(c, one, "three")
    ours = {each.transactional_id: each for each in (one, two, three)}
    prefix = one.transactional_id.partition("-one-")[0]
    names = {name: producer.transactional_id for name, producer in (("one", one), ("two", two), ("three", three))}
    for expression, expected in (
        (f"{prefix}-t.*", ("two", "three")),
        (f"{prefix}-(one|two)-[0-9]+", ("one", "two")),
        (one.transactional_id, ("one",)),
        (prefix, ()),
        (one.transactional_id[1:], ()),
        ("", ("one", "two", "three")),
        (None, ("one", "two", "three")),
    ):
        found = _listed(c, one.wire, version, pattern=expression)
        wanted = sorted(names[each] for each in expected)
        c.equal(sorted(each for each in found if each in ours), wanted, f"our transactions with {expression!r}")
        if expression:
            c.equal(sorted(set(found) - set(ours)), [], f"other transactions with {expression!r}")


@case(
    "transactions.list.invalid-pattern",
    "an invalid regular expression is rejected",
    source="KIP-1152",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.LIST_TRANSACTIONS, 2),
)
def invalid_pattern(c: Check, version: int) -> None:
    """Sends: ListTransactions with the pattern "(".

    Expects: INVALID_REGULAR_EXPRESSION, and no transactions.

    Why: the caller must not take an empty result for "there are none".
    """
    producer = Producer(c).begin()
    response = c.call(ListTransactionsRequest(transactional_id_pattern="("), version, to=producer.wire)
    c.error(response.error_code, ErrorCode.INVALID_REGULAR_EXPRESSION)
    c.equal(response.transaction_states, [], "transaction_states")


# DescribeProducers


@case(
    "transactions.describe-producers.exchange",
    "the producers of a partition are described",
    source="KIP-664",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DESCRIBE_PRODUCERS),
)
def describe_producers(c: Check, version: int) -> None:
    """Sends: a plain record, a batch of two records in a transaction, and DescribeProducers, before and after EndTxn.

    Expects: the producer with its epoch, last sequence 1, the timestamp of its last batch, no coordinator epoch, and
    1 as the first offset of its transaction; after the end no transaction, and a coordinator epoch.

    Why: with these fields an operator finds the producer that keeps a partition's last stable offset back.
    """
    topic = c.topic(2)
    p.append(c, topic, batch(b"plain"))
    producer = Producer(c).begin()
    # Older records could be deleted by the topic's retention.
    timestamp = int(time.time() * 1000) - 3_600_000
    producer.write(topic, b"a", b"b", timestamp=timestamp)
    found = r.producers(c, topic)
    c.equal(sorted(found), [producer.producer_id], "the producer IDs")
    state = found[producer.producer_id]
    c.equal(state.producer_epoch, producer.epoch, "producer_epoch")
    c.equal(state.last_sequence, 1, "last_sequence")
    c.equal(state.last_timestamp, timestamp, "last_timestamp")
    c.equal(state.coordinator_epoch, -1, "coordinator_epoch")
    c.equal(state.current_txn_start_offset, 1, "current_txn_start_offset")
    producer.commit()
    state = r.producers(c, topic)[producer.producer_id]
    c.equal(state.producer_epoch, producer.epoch, "producer_epoch after the end")
    c.equal(state.current_txn_start_offset, -1, "current_txn_start_offset after the end")
    c.true(state.coordinator_epoch >= 0, "coordinator_epoch", expected="at least 0", actual=state.coordinator_epoch)
    c.equal(sorted(r.producers(c, topic, 1)), [], "the producer IDs of the other partition")


@case(
    "transactions.describe-producers.epoch",
    "a transaction's end with a new epoch resets the producer's sequence",
    source="KIP-664 and KIP-890",
    needs=needs(ApiKey.DESCRIBE_PRODUCERS, 0, ApiKey.END_TXN, 5),
    features={"transaction.version": 2},
)
def describe_producers_epoch(c: Check) -> None:
    """Sends: a record before a transaction and one in it, EndTxn version 5, and DescribeProducers before and after it.

    Expects: epoch 0, last sequence 1 and the transaction's first offset 1; then epoch 1 and sequence -1.

    Why: the marker has the epoch of the next transaction, whose sequences begin again.
    """
    topic = c.topic()
    producer = Producer(c, implicit=True).begin()
    answer = producer.send(topic, producer.batch(b"before", transactional=False))
    c.error(answer.error_code, ErrorCode.NONE, "Produce error_code of the plain batch")
    answer = producer.send(topic, producer.batch(b"a", sequence=1))
    c.error(answer.error_code, ErrorCode.NONE, "Produce error_code")
    for epoch, sequence, offset in ((0, 1, 1), (1, -1, -1)):
        state = r.producers(c, topic)[producer.producer_id]
        c.equal(state.producer_epoch, epoch, "producer_epoch")
        c.equal(state.last_sequence, sequence, "last_sequence")
        c.equal(state.current_txn_start_offset, offset, "current_txn_start_offset")
        if epoch == 0:
            producer.commit()


@case(
    "transactions.describe-producers.idempotent",
    "an idempotent producer has no transaction",
    source="KIP-664",
    needs=needs(ApiKey.DESCRIBE_PRODUCERS, 0),
)
def describe_producers_idempotent(c: Check) -> None:
    """Sends: a batch of an idempotent producer without a transactional ID, and DescribeProducers.

    Expects: its epoch 0, last sequence 0, and no transaction; the record is stable.

    Why: it is not what keeps the last stable offset back.
    """
    topic = c.topic()
    producer = Producer(c).begin()
    answer = p.produce(c, topic, producer.batch(b"a", transactional=False))
    c.error(answer.error_code, ErrorCode.NONE, "Produce error_code")
    state = r.producers(c, topic)[producer.producer_id]
    fields = (state.producer_epoch, state.last_sequence, state.current_txn_start_offset, state.coordinator_epoch)
    c.equal(fields, (0, 0, -1, -1), "epoch, last sequence, start of the transaction and coordinator epoch")
    r.shows(c, r.stored(c, topic), high_watermark=1, last_stable_offset=1, aborted=[], values=[b"a"])


@case(
    "transactions.describe-producers.unknown-partition",
    "unknown partitions and topics have errors",
    source="KIP-664",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DESCRIBE_PRODUCERS),
)
def describe_producers_unknown(c: Check, version: int) -> None:
    """Sends: DescribeProducers for partitions 0 and 77 of a topic with one partition, for a topic that does not exist,
    and for an invalid topic name.

    Expects: no error; UNKNOWN_TOPIC_OR_PARTITION for 77 and the unknown topic, INVALID_TOPIC_EXCEPTION for the invalid
    name; no producers.

    Why: one unknown partition must not hide the others.
    """
    topic = c.topic()
    requested = {topic.name: [0, 77], c.name("no-topic"): [0], "no/topic": [0]}
    request = DescribeProducersRequest(
        topics=[TopicRequest(name=name, partition_indexes=each) for name, each in requested.items()]
    )
    found = {
        (each.name, one.partition_index): one for each in c.call(request, version).topics for one in each.partitions
    }
    pairs = sorted((name, index) for name, partitions in requested.items() for index in partitions)
    c.equal(sorted(found), pairs, "topics and partitions of the response")
    for name, partitions in requested.items():
        for index in partitions:
            expected = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if (name, index) == (topic.name, 0):
                expected = ErrorCode.NONE
            elif "/" in name:
                expected = ErrorCode.INVALID_TOPIC_EXCEPTION
            c.error(found[name, index].error_code, expected, f"error_code of {name} {index}")
            c.equal(found[name, index].active_producers, [], f"active_producers of {name} {index}")
