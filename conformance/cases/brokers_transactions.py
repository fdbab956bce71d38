"""Transactions and producer IDs across brokers."""

from __future__ import annotations

from typing import Any

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.init_producer_id import InitProducerIdRequest
from .. import committed_offsets as o
from .. import committed_reads as r
from ..case import Layer, case, needs
from ..check import COORDINATOR_NOT_READY, Check, Topic
from ..transactional_producer import Producer
from .brokers_coordinators import elsewhere

IDS = 5
OUTCOMES = {
    "commit": (True, False),
    "abort": (False, False),
    "commit-version-2": (True, True),
    "abort-version-2": (False, True),
}
"""Whether the transaction is committed, and whether it has the protocol of `transaction.version` 2."""


def spread(c: Check) -> tuple[Topic, list[int]]:
    """A topic with a partition on each broker, and the brokers in the order of the partitions."""
    leaders = list(c.target.brokers)
    return c.topic(len(leaders), leaders=leaders), leaders


def write_to_all(c: Check, producer: Producer, topic: Topic, leaders: list[int], value: str) -> None:
    """A record for each partition, sent to its leader; `{}` in the value stands for the partition."""
    for partition, leader in enumerate(leaders):
        producer.write(topic, value.format(partition).encode(), partition=partition, to=c.to_broker(leader))


def committed_values(c: Check, topic: Topic, leaders: list[int]) -> dict[int, list[bytes | None]]:
    """What a consumer with read_committed gets of each partition."""
    return {
        partition: r.consumed(c, topic, partition=partition, to=c.to_broker(leader))
        for partition, leader in enumerate(leaders)
    }


@case(
    "brokers.producer-ids.unique",
    "the producer IDs of all brokers are different",
    source="KIP-98, KIP-730",
    layer=Layer.CLUSTER,
    needs=needs(ApiKey.INIT_PRODUCER_ID, 0),
)
def producer_ids(c: Check) -> None:
    """Sends: InitProducerId without a transactional ID, five times to each broker.

    Expects: as many different producer IDs, each with epoch 0.

    Why: a partition takes the records of two producers with one ID for duplicates, and drops them.
    """
    found: list[int] = []
    for node_id in c.target.brokers:
        for _ in range(IDS):
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            wire = c.to_broker(node_id)
            # A broker may first have to get a block of IDs from the controller.
            response = c.until(
                lambda request=request, wire=wire: _ready(c.call(request, to=wire)),  # type: ignore[misc]
                f"a producer ID of broker {node_id}",
            )
            c.error(response.error_code, ErrorCode.NONE)
            c.equal(response.producer_epoch, 0, "producer_epoch")
            found.append(response.producer_id)
    c.equal(len({*found}), len(found), "number of different producer IDs")


def _ready(response: Any) -> Any:
    code = response.error_code
    return None if code in COORDINATOR_NOT_READY or code == ErrorCode.REQUEST_TIMED_OUT else response


@case(
    "brokers.transactions.outcome",
    "a transaction ends in the same way on all brokers",
    source="KIP-98, KIP-890",
    layer=Layer.CLUSTER,
    needs=needs(ApiKey.INIT_PRODUCER_ID, 0, ApiKey.END_TXN, 0, ApiKey.PRODUCE, 3, ApiKey.FETCH, 4),
    variants=OUTCOMES,
)
def outcome(c: Check, committed: bool, implicit: bool) -> None:
    """Sends: a transaction with a record for a partition on each broker, which is committed or aborted, and after it a
    committed one with another record for each; Fetch with read_committed.

    Expects: the records of the committed transactions, from every broker.

    Why: a transaction is atomic over all partitions, wherever they are.
    """
    topic, leaders = spread(c)
    producer = Producer(c, implicit=implicit).begin()
    for number, end in enumerate((committed, True)):
        write_to_all(c, producer, topic, leaders, f"{number}-{{}}")
        producer.finish(committed=end)
    kept = (0, 1) if committed else (1,)
    expected = {partition: [b"%d-%d" % (number, partition) for number in kept] for partition in range(len(leaders))}
    c.equal(committed_values(c, topic, leaders), expected, "the committed values by partition")


@case(
    "brokers.transactions.open",
    "an open transaction hides its records on all brokers",
    source="KIP-98",
    layer=Layer.CLUSTER,
    needs=needs(ApiKey.INIT_PRODUCER_ID, 0, ApiKey.END_TXN, 0, ApiKey.PRODUCE, 3, ApiKey.FETCH, 4),
)
def still_open(c: Check) -> None:
    """Sends: a transaction with a record for a partition on each broker; Fetch with read_committed before its end, and
    after EndTxn.

    Expects: no records, and then the record of each partition.

    Why: a consumer that reads from several brokers must not see a part of a transaction.
    """
    topic, leaders = spread(c)
    producer = Producer(c).begin()
    write_to_all(c, producer, topic, leaders, "value")
    c.equal(
        committed_values(c, topic, leaders),
        {partition: [] for partition in range(len(leaders))},
        "the committed values by partition before EndTxn",
    )
    producer.commit()
    c.equal(
        committed_values(c, topic, leaders),
        {partition: [b"value"] for partition in range(len(leaders))},
        "the committed values by partition after EndTxn",
    )


@case(
    "brokers.transactions.fenced",
    "a new producer fences the previous one on all brokers",
    source="KIP-98, KIP-890",
    layer=Layer.CLUSTER,
    needs=needs(ApiKey.INIT_PRODUCER_ID, 0, ApiKey.END_TXN, 0, ApiKey.PRODUCE, 3, ApiKey.FETCH, 4),
)
def fenced(c: Check) -> None:
    """Sends: a transaction with a record for a partition on each broker; InitProducerId of the same transactional ID,
    until it has a new epoch; then another record of the first producer for each partition.

    Expects: INVALID_PRODUCER_EPOCH from every broker; no records of the first producer are committed.

    Why: a process that was replaced, and does not know it, must not write anywhere.
    """
    topic, leaders = spread(c)
    zombie = Producer(c).begin()
    write_to_all(c, zombie, topic, leaders, "zombie")
    Producer(c, zombie.transactional_id).begin()
    for partition, leader in enumerate(leaders):
        response = zombie.produce(topic, b"late", partition=partition, to=c.to_broker(leader))
        c.error(response.error_code, ErrorCode.INVALID_PRODUCER_EPOCH, f"Produce error_code of broker {leader}")
    expected: dict[int, list[bytes | None]] = {partition: [] for partition in range(len(leaders))}
    c.equal(committed_values(c, topic, leaders), expected, "the committed values by partition")


@case(
    "brokers.transactions.offsets",
    "offsets of a transaction are committed at a coordinator on another broker",
    source="KIP-447",
    layer=Layer.CLUSTER,
    needs=needs(ApiKey.INIT_PRODUCER_ID, 0, ApiKey.TXN_OFFSET_COMMIT, 0, ApiKey.OFFSET_FETCH, 1),
    variants=OUTCOMES,
)
def offsets(c: Check, committed: bool, implicit: bool) -> None:
    """Sends: a transaction with a record for a partition on each broker, and an offset for a group that another broker
    coordinates; it is committed or aborted.

    Expects: the offset is committed only with the transaction.

    Why: a stream processor that fails between reading and writing would lose or repeat records.
    """
    topic, leaders = spread(c)
    group = elsewhere(c, 0)
    producer = Producer(c, implicit=implicit).begin()
    write_to_all(c, producer, topic, leaders, "value")
    producer.write_offsets(group, topic, {0: 7})
    producer.finish(committed=committed)

    def offset() -> tuple[int, int]:
        found = o.fetch(c, c.coordinator(group), group, {topic: [0]})
        ((committed_offset,),) = [[each.offset for each in each.values()] for each in found.topics.values()]
        return found.error_code, committed_offset

    c.equal(offset(), (0, 7 if committed else -1), "OffsetFetch (error_code, committed offset)")
