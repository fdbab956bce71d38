"""AddPartitionsToTxn: as clients send it (versions 0 to 3), and as brokers do (versions 4 and 5)."""

from __future__ import annotations

from typing import Final

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTransaction
from .. import committed_reads as r
from ..case import Layer, Level, Release, case, needs, versions_of
from ..check import Check
from ..outcome import NotApplicableError
from ..transactional_producer import FEATURE, OFFSETS, Producer, errors, fenced, results_of

CLIENT: Final = versions_of(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 3)
BROKER: Final = versions_of(ApiKey.ADD_PARTITIONS_TO_TXN, 4)
DESCRIBED: Final = needs(ApiKey.DESCRIBE_TRANSACTIONS, 0)


@case(
    "transactions.add-partitions.exchange",
    "partitions become part of the transaction",
    source="KIP-98",
    layer=Layer.WIRE,
    needs=DESCRIBED,
    versions=CLIENT,
)
def exchange(c: Check, version: int) -> None:
    """Sends: AddPartitionsToTxn for partitions 0 and 2 of a topic, then for 2 and 1; DescribeTransactions after each.

    Expects: no error for each partition; the state Ongoing with exactly the added partitions, the producer's ID and
    epoch, and one start time.

    Why: the coordinator writes markers to the partitions that it knows. A partition that is missing would keep its
    records invisible forever.
    """
    topic = c.topic(3)
    producer = Producer(c).begin()
    errors(c, producer.add(topic, 0, 2, version=version), dict.fromkeys((0, 2), ErrorCode.NONE))
    found = producer.has_state("Ongoing", {topic.name: [0, 2]})
    c.equal(found.producer_id, producer.producer_id, "producer_id in DescribeTransactions")
    c.equal(found.producer_epoch, producer.epoch, "producer_epoch in DescribeTransactions")
    started = found.transaction_start_time_ms
    c.true(started > 0, "transaction_start_time_ms", expected="a time", actual=started)
    errors(c, producer.add(topic, 2, 1, version=version), dict.fromkeys((1, 2), ErrorCode.NONE))
    found = producer.has_state("Ongoing", {topic.name: [0, 1, 2]})
    c.equal(found.transaction_start_time_ms, started, "transaction_start_time_ms after the second request")


@case(
    "transactions.add-partitions.several-topics",
    "partitions of several topics are added together",
    source="KIP-98",
    layer=Layer.WIRE,
    needs=DESCRIBED,
    versions=CLIENT,
)
def several_topics(c: Check, version: int) -> None:
    """Sends: AddPartitionsToTxn for partitions 1 and 0 of one topic, and partition 1 of another.

    Expects: no error for each partition under its own topic; the transaction has these partitions.

    Why: a producer adds all partitions of its next batches with one request.
    """
    topics = {c.topic(2).name: [1, 0], c.topic(3).name: [1]}
    producer = Producer(c).begin()
    found = producer.add_topics(topics, version=version)
    c.equal(sorted(found), sorted(topics), "the topics of the response")
    for name, partitions in topics.items():
        errors(c, found[name], dict.fromkeys(partitions, ErrorCode.NONE))
    producer.has_state("Ongoing", {name: sorted(each) for name, each in topics.items()})


@case(
    "transactions.add-partitions.unknown-producer",
    "a transactional ID or a producer ID that the coordinator does not have is rejected",
    source="KIP-98",
    layer=Layer.WIRE,
    versions=CLIENT,
)
def unknown_producer(c: Check, version: int) -> None:
    """Sends: AddPartitionsToTxn with a transactional ID that does not exist, and with the producer ID of another one.

    Expects: INVALID_PRODUCER_ID_MAPPING for each partition.

    Why: the transactional ID has expired or belongs to another producer; the producer must stop, or get a new ID.
    """
    topic = c.topic(2)
    producer, other = Producer(c).begin(), Producer(c).begin()
    unknown = producer.duplicate(c.name("unknown"))
    expected = dict.fromkeys((0, 1), ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    errors(c, unknown.add(topic, 0, 1, version=version), expected)
    stranger = producer.duplicate()
    stranger.producer_id = other.producer_id
    errors(c, stranger.add(topic, 0, 1, version=version), expected)


@case(
    "transactions.add-partitions.fenced",
    "a producer with another epoch than the latest is fenced",
    source="KIP-98 and KIP-588",
    layer=Layer.WIRE,
    versions=CLIENT,
    variants={"old-epoch": (-1,), "future-epoch": (1,)},
)
def other_epoch(c: Check, version: int, difference: int) -> None:
    """Sends: AddPartitionsToTxn with an epoch that is one below, or one above, that of the producer.

    Expects: PRODUCER_FENCED, or INVALID_PRODUCER_EPOCH before version 2. The producer itself can still add a partition.

    Why: two processes with one transactional ID must not write to one transaction.
    """
    topic = c.topic()
    Producer(c, name := c.name("transaction")).begin()
    producer = Producer(c, name).begin()
    zombie = producer.duplicate()
    zombie.epoch += difference
    errors(c, zombie.add(topic, version=version), {0: fenced(version, 2)})
    errors(c, producer.add(topic, version=version), {0: ErrorCode.NONE})


@case(
    "transactions.add-partitions.unknown-partition",
    "a partition that does not exist is rejected, and the others of its request are not added",
    source="KIP-98",
    layer=Layer.WIRE,
    needs=DESCRIBED,
    versions=CLIENT,
)
def unknown_partition(c: Check, version: int) -> None:
    """Sends: AddPartitionsToTxn for partitions 0 and 77 of a topic with one partition; then for an unknown topic.

    Expects: UNKNOWN_TOPIC_OR_PARTITION for 77 and for the unknown topic, OPERATION_NOT_ATTEMPTED for 0; the state of
    the transaction remains Empty.

    Why: the request is one write to the coordinator's log; clients send it again after they have updated metadata.
    """
    topic = c.topic()
    producer = Producer(c).begin()
    errors(
        c,
        producer.add(topic, 0, 77, version=version),
        {0: ErrorCode.OPERATION_NOT_ATTEMPTED, 77: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
    )
    unknown = producer.add(c.name("no-topic"), version=version)
    errors(c, unknown, {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
    producer.has_state("Empty", {})


@case(
    "transactions.add-partitions.internal-topic",
    "the coordinators' topics cannot be added by clients",
    source="KIP-98",
    layer=Layer.WIRE,
    level=Level.SHOULD,
    needs=DESCRIBED,
    versions=CLIENT,
)
def internal_topic(c: Check, version: int) -> None:
    """Sends: AddPartitionsToTxn for __consumer_offsets and __transaction_state.

    Expects: TOPIC_AUTHORIZATION_FAILED; the transaction remains Empty.

    Why: the partition of a group's offsets is added with AddOffsetsToTxn, which has its own permission.
    """
    producer = Producer(c).begin()
    for name in (OFFSETS, "__transaction_state"):
        errors(c, producer.add(name, version=version), {0: ErrorCode.TOPIC_AUTHORIZATION_FAILED})
    producer.has_state("Empty", {})


@case(
    "transactions.add-partitions.empty-id",
    "an empty transactional ID is rejected",
    source="Protocol: AddPartitionsToTxn",
    layer=Layer.WIRE,
    level=Level.APACHE,
    versions=CLIENT,
)
def empty_id(c: Check, version: int) -> None:
    """Sends: AddPartitionsToTxn with the transactional ID "".

    Expects: INVALID_REQUEST.

    Why: it is not the ID of a producer.
    """
    topic = c.topic()
    Producer(c).begin()
    errors(c, Producer(c, "").add(topic, version=version), {0: ErrorCode.INVALID_REQUEST})


@case(
    "transactions.add-partitions.empty-transaction",
    "each added partition gets a marker, also without records",
    source="KIP-98",
    needs=needs(ApiKey.ADD_PARTITIONS_TO_TXN, 0),
    variants={"commit": (True,), "abort": (False,)},
)
def empty_transaction(c: Check, committed: bool) -> None:
    """Sends: AddPartitionsToTxn for partitions 0 and 1, records for 0 only, and EndTxn.

    Expects: a marker of the outcome at the end of partitions 0 and 1; nothing in partition 2.

    Why: the coordinator does not know which partitions received records, so it must mark all of them.
    """
    topic = c.topic(3)
    producer = Producer(c).begin()
    producer.added(topic, 0, 1)
    producer.write(topic, b"a")
    producer.finish(committed=committed)
    c.equal([r.end(c, topic, partition=each) for each in range(3)], [2, 1, 0], "the log end offsets of 0, 1 and 2")
    for partition in (0, 1):
        c.equal(r.markers(c, topic, partition=partition), [committed], f"the markers of partition {partition}")


# As brokers send it (KIP-890): for several transactional IDs, and to verify partitions.


def _batched(
    c: Check, version: int, *transactions: AddPartitionsToTxnTransaction
) -> dict[str, dict[str, dict[int, int]]]:
    """The error codes by transactional ID, topic and partition."""
    if c.target.release >= Release(4, 0) and c.target.features.get(FEATURE, 0) == 0:
        raise NotApplicableError(f"Apache Kafka 4 has this only with the feature {FEATURE}")
    wire = Producer(c, transactions[0].transactional_id).wire
    response = c.call(AddPartitionsToTxnRequest(transactions=list(transactions)), version, to=wire)
    c.error(response.error_code, ErrorCode.NONE, "error_code of the response")
    found = [each.transactional_id for each in response.results_by_transaction]
    expected = sorted(each.transactional_id for each in transactions)
    c.equal(sorted(found), expected, "the transactional IDs of the response")
    return {each.transactional_id: results_of(c, each.topic_results) for each in response.results_by_transaction}


@case(
    "transactions.add-partitions.batched",
    "a broker adds partitions to a transaction",
    source="KIP-890",
    layer=Layer.WIRE,
    needs=DESCRIBED,
    versions=BROKER,
)
def batched(c: Check, version: int) -> None:
    """Sends: AddPartitionsToTxn with one transaction and partitions 0 and 2.

    Expects: no error for both partitions, under the transactional ID and the topic; the transaction is Ongoing with
    them.

    Why: brokers add the partitions of producers with transaction.version 2.
    """
    topic = c.topic(3)
    producer = Producer(c).begin()
    found = _batched(c, version, producer.as_transaction({topic.name: [0, 2]}))[producer.transactional_id]
    c.equal(list(found), [topic.name], "the topics of the response")
    errors(c, found[topic.name], dict.fromkeys((0, 2), ErrorCode.NONE))
    producer.has_state("Ongoing", {topic.name: [0, 2]})


@case(
    "transactions.add-partitions.batched-errors",
    "each transaction of a broker's request has its own errors",
    source="KIP-890",
    layer=Layer.WIRE,
    needs=DESCRIBED,
    versions=BROKER,
    variants={
        "fenced": (0, -1, 1, {0: ErrorCode.PRODUCER_FENCED, 1: ErrorCode.PRODUCER_FENCED}),
        "unknown-producer": (
            1_000_000,
            0,
            1,
            {0: ErrorCode.INVALID_PRODUCER_ID_MAPPING, 1: ErrorCode.INVALID_PRODUCER_ID_MAPPING},
        ),
        "unknown-partition": (
            0,
            0,
            77,
            {0: ErrorCode.OPERATION_NOT_ATTEMPTED, 77: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
        ),
    },
)
def batched_errors(
    c: Check, version: int, id_difference: int, epoch_difference: int, partition: int, expected: dict[int, ErrorCode]
) -> None:
    """Sends: AddPartitionsToTxn with one transaction whose epoch, producer ID or partition does not exist.

    Expects: PRODUCER_FENCED, INVALID_PRODUCER_ID_MAPPING or UNKNOWN_TOPIC_OR_PARTITION; the transaction remains Empty.

    Why: the broker returns these errors to the producer, which must be fenced as by the coordinator itself.
    """
    topic = c.topic(2)
    producer = Producer(c).begin()
    asking = producer.duplicate()
    asking.producer_id += id_difference
    asking.epoch += epoch_difference
    found = _batched(c, version, asking.as_transaction({topic.name: [0, partition]}))
    errors(c, found[producer.transactional_id][topic.name], expected)
    producer.has_state("Empty", {})


@case(
    "transactions.add-partitions.verify",
    "a broker verifies which partitions are part of a transaction",
    source="KIP-890",
    layer=Layer.WIRE,
    needs=DESCRIBED,
    versions=BROKER,
)
def verify(c: Check, version: int) -> None:
    """Sends: AddPartitionsToTxn with `verify_only` for partitions 0 and 1 of a transaction that has only partition 0.

    Expects: no error for 0, TRANSACTION_ABORTABLE for 1; the transaction is unchanged. The same error in a transaction
    that has not begun.

    Why: a broker rejects records that no marker would ever end.
    """
    topic = c.topic(2)
    producer, idle = Producer(c).begin(), Producer(c).begin()
    producer.added(topic, 0)
    both = {topic.name: [0, 1]}
    found = _batched(c, version, producer.as_transaction(both, verify_only=True))[producer.transactional_id]
    errors(c, found[topic.name], {0: ErrorCode.NONE, 1: ErrorCode.TRANSACTION_ABORTABLE})
    producer.has_state("Ongoing", {topic.name: [0]})
    found = _batched(c, version, idle.as_transaction(both, verify_only=True))[idle.transactional_id]
    errors(c, found[topic.name], dict.fromkeys((0, 1), ErrorCode.TRANSACTION_ABORTABLE))
    idle.has_state("Empty", {})


@case(
    "transactions.add-partitions.verify-errors",
    "the verification of a broker finds fenced and unknown producers",
    source="KIP-890",
    layer=Layer.WIRE,
    versions=BROKER,
    variants={
        "fenced": (0, -1, ErrorCode.PRODUCER_FENCED),
        "unknown-producer": (1_000_000, 0, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    },
)
def verify_errors(c: Check, version: int, id_difference: int, epoch_difference: int, expected: ErrorCode) -> None:
    """Sends: AddPartitionsToTxn with `verify_only`, for a partition of the open transaction, with an old epoch or with
    another producer ID.

    Expects: PRODUCER_FENCED or INVALID_PRODUCER_ID_MAPPING.

    Why: a zombie must not write to the transaction of its successor.
    """
    topic = c.topic()
    producer = Producer(c).begin()
    producer.added(topic)
    asking = producer.duplicate()
    asking.producer_id += id_difference
    asking.epoch += epoch_difference
    found = _batched(c, version, asking.as_transaction({topic.name: [0]}, verify_only=True))
    errors(c, found[producer.transactional_id][topic.name], {0: expected})


@case(
    "transactions.add-partitions.batched-several",
    "the results of several transactions in one request are separate",
    source="KIP-890",
    layer=Layer.WIRE,
    needs=DESCRIBED,
    versions=BROKER,
)
def batched_several(c: Check, version: int) -> None:
    """Sends: AddPartitionsToTxn with four transactions of one coordinator: a correct one, one of a zombie, one with a
    partition that does not exist, and one of an unknown producer.

    Expects: no error for the first; PRODUCER_FENCED, UNKNOWN_TOPIC_OR_PARTITION with OPERATION_NOT_ATTEMPTED, and
    INVALID_PRODUCER_ID_MAPPING for the others. Only the first is Ongoing.

    Why: a broker has the producers of all its connections in one request; one bad producer must not stop the others.
    """
    topic = c.topic(2)
    good = Producer(c).begin()

    def beside() -> Producer | None:
        found = Producer(c)
        return found if found.wire.address == good.wire.address else None

    old, spoiled, stranger = (c.until(beside, "a transactional ID of the same coordinator") for _ in range(3))
    old.begin()
    old.epoch -= 1
    spoiled.begin()
    stranger.producer_id, stranger.epoch = good.producer_id, good.epoch
    both = {topic.name: [0, 1]}
    found = _batched(
        c,
        version,
        good.as_transaction(both),
        old.as_transaction(both),
        spoiled.as_transaction({topic.name: [0, 77]}),
        stranger.as_transaction(both),
    )
    for producer, expected in (
        (good, dict.fromkeys((0, 1), ErrorCode.NONE)),
        (old, dict.fromkeys((0, 1), ErrorCode.PRODUCER_FENCED)),
        (spoiled, {0: ErrorCode.OPERATION_NOT_ATTEMPTED, 77: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}),
        (stranger, dict.fromkeys((0, 1), ErrorCode.INVALID_PRODUCER_ID_MAPPING)),
    ):
        errors(c, found[producer.transactional_id][topic.name], expected)
    good.has_state("Ongoing", both)
    old.has_state("Empty", {})
    spoiled.has_state("Empty", {})
