"""Requests about transactions: to coordinators, by transactional id, and to partition leaders, by producer id.

Both views should agree. A transaction that is open in a partition but unknown to its coordinator is *hanging*: it never
ends, and read_committed consumers cannot read past it. Before KIP-890, clients could cause hanging transactions.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from ..protocol.errors import ErrorCode
from ..protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ..protocol.messages.describe_transactions import DescribeTransactionsRequest
from ..protocol.messages.describe_transactions import TransactionState as DescribedTransaction
from ..protocol.messages.init_producer_id import InitProducerIdRequest
from ..protocol.messages.list_transactions import ListTransactionsRequest
from ..protocol.messages.metadata import MetadataResponseTopic
from ..protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from .cluster import Cluster, explain
from .coordinators import RETRIABLE, TRANSACTION, Coordinators, with_retries
from .failure import Failure

# The maximum number of partitions per request.
_PARTITIONS_PER_REQUEST: Final = 500

HINTS: Final = {
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "the transactional id does not exist; `moldau transactions list` lists them",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "the topic or partition does not exist; `moldau topics list` lists topics",
    ErrorCode.INVALID_PRODUCER_EPOCH: "the producer has a newer epoch; list the transactions again",
    ErrorCode.PRODUCER_FENCED: "another producer now uses the transactional id; list the transactions again",
}
"""Hints for the error codes of transaction requests."""


class ListedTransaction(NamedTuple):
    """A transactional id as listed by its coordinator."""

    transactional_id: str
    coordinator_id: int
    producer_id: int
    state: str


class OpenTransaction(NamedTuple):
    """A transaction that is open in a partition."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    """The coordinator epoch of the producer's last completed transaction here; -1 if there is none."""
    start_offset: int
    last_timestamp_ms: int


class TransactionClient:
    """The transactions of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._coordinators = Coordinators(cluster, TRANSACTION)

    # -- as coordinators see them --------------------------------------------------------------------------------------

    def transactions(
        self,
        *,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        longer_than_ms: int = -1,
        pattern: str | None = None,
    ) -> list[ListedTransaction]:
        """The transactional ids of all brokers that match the filters, sorted by name."""
        request = ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=longer_than_ms,
            transactional_id_pattern=pattern,
        )
        found: list[ListedTransaction] = []
        for node_id in self._cluster.broker_ids():
            version = self._cluster.broker(node_id).version_of(ListTransactionsRequest)
            if (version < 1 and longer_than_ms >= 0) or (version < 2 and pattern is not None):
                raise Failure(
                    f"broker {node_id} is too old to filter transactions by duration or pattern; remove these options"
                )
            answer = with_retries(
                lambda node_id=node_id: self._cluster.ask_broker(node_id, request),  # type: ignore[misc]
                lambda answer: int(answer.error_code),
            )
            if answer.error_code:
                raise Failure(f"cannot list the transactions of broker {node_id}: {explain(answer.error_code)}")
            if answer.unknown_state_filters:
                raise Failure(f"unknown transaction state: {', '.join(answer.unknown_state_filters)}")
            found += (
                ListedTransaction(each.transactional_id, node_id, each.producer_id, each.transaction_state)
                for each in answer.transaction_states
            )
        return sorted(found)

    def coordinator_of(self, transactional_id: str) -> int:
        """The id of the broker that coordinates the transactional id."""
        return self._coordinators.node_id(transactional_id)

    def describe(self, transactional_id: str) -> DescribedTransaction | None:
        """The state, producer and partitions of a transactional id; None if it does not exist."""
        answer = self._coordinators.ask(
            transactional_id,
            lambda connection: DescribeTransactionsRequest(transactional_ids=[transactional_id]),
            lambda answer: int(answer.transaction_states[0].error_code),
        )
        described: DescribedTransaction = answer.transaction_states[0]
        if described.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return None
        if described.error_code:
            raise Failure(f"{transactional_id}: {explain(described.error_code, None, HINTS)}")
        return described

    def terminate(self, transaction: DescribedTransaction) -> None:
        """Abort the open transaction and fence its producer with InitProducerId, as a restarted producer does."""
        name = transaction.transactional_id
        answer = with_retries(
            lambda: self._coordinators.ask(
                name,
                lambda connection: InitProducerIdRequest(
                    transactional_id=name, transaction_timeout_ms=transaction.transaction_timeout_ms
                ),
                lambda answer: int(answer.error_code),
            ),
            lambda answer: int(answer.error_code),
            retriable=RETRIABLE | {ErrorCode.CONCURRENT_TRANSACTIONS},
        )
        if answer.error_code:
            raise Failure(f"cannot abort the transaction of {name}: {explain(answer.error_code, None, HINTS)}")

    # -- as partitions see them ----------------------------------------------------------------------------------------

    def open_in(self, topics: Iterable[MetadataResponseTopic]) -> list[OpenTransaction]:
        """The open transactions in these topics, as reported by the partition leaders."""
        by_leader: dict[int, list[tuple[str, int]]] = {}
        for topic in topics:
            for partition in topic.partitions:
                if partition.leader_id >= 0:
                    by_leader.setdefault(partition.leader_id, []).append((topic.name or "", partition.partition_index))
        found: list[OpenTransaction] = []
        for leader, partitions in by_leader.items():
            for start in range(0, len(partitions), _PARTITIONS_PER_REQUEST):
                found += self._open_in(leader, partitions[start : start + _PARTITIONS_PER_REQUEST])
        return sorted(found)

    def _open_in(self, leader: int, partitions: Iterable[tuple[str, int]]) -> Iterator[OpenTransaction]:
        requested: dict[str, TopicRequest] = {}
        for topic, partition in partitions:
            requested.setdefault(topic, TopicRequest(name=topic)).partition_indexes.append(partition)
        answer = self._cluster.ask_broker(leader, DescribeProducersRequest(topics=list(requested.values())))
        for topic in answer.topics:
            for partition in topic.partitions:
                if partition.error_code:
                    reason = explain(partition.error_code, partition.error_message, HINTS)
                    raise Failure(
                        f"cannot describe the producers of {topic.name}-{partition.partition_index}: {reason}"
                    )
                for producer in partition.active_producers:
                    if producer.current_txn_start_offset >= 0:
                        yield OpenTransaction(
                            topic.name,
                            partition.partition_index,
                            producer.producer_id,
                            producer.producer_epoch,
                            producer.coordinator_epoch,
                            producer.current_txn_start_offset,
                            producer.last_timestamp,
                        )

    def hanging(self, topics: Iterable[MetadataResponseTopic], *, older_than_ms: int) -> list[OpenTransaction]:
        """The hanging transactions: open in a partition, but unknown to their coordinator.

        Younger transactions are skipped, because their coordinator may not know them yet or may just be ending them.
        """
        now_ms = time.time_ns() // 1_000_000
        candidates = [each for each in self.open_in(topics) if now_ms - each.last_timestamp_ms > older_than_ms]
        if not candidates:
            return []
        listed = self.transactions(producer_ids=sorted({each.producer_id for each in candidates}))
        expected: set[tuple[int, str, int]] = set()
        for each in listed:
            described = self.describe(each.transactional_id)
            if described is not None:
                expected.update(
                    (each.producer_id, topic.topic, partition)
                    for topic in described.topics
                    for partition in topic.partitions
                )
        return [each for each in candidates if (each.producer_id, each.topic, each.partition) not in expected]

    def abort_in(self, leader: int, transaction: OpenTransaction) -> None:
        """Write an abort marker to one partition, regardless of the coordinator's state."""
        marker = WritableTxnMarker(
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=transaction.topic, partition_indexes=[transaction.partition])],
            coordinator_epoch=max(0, transaction.coordinator_epoch),
        )
        answer = self._cluster.ask_broker(leader, WriteTxnMarkersRequest(markers=[marker]))
        code = answer.markers[0].topics[0].partitions[0].error_code
        if code:
            where = f"{transaction.topic}-{transaction.partition}"
            raise Failure(f"cannot abort the transaction in {where}: {explain(code, None, HINTS)}")
