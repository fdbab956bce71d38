"""A transactional producer that sends only the requests that a test calls for."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, cast

from moldau.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from moldau.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from moldau.protocol.messages.describe_transactions import DescribeTransactionsRequest
from moldau.protocol.messages.end_txn import EndTxnRequest
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from moldau.protocol.records import Record, build_batch, iter_batches, iter_records
from moldau.testing.wire import WireClient

TRANSACTION = 1  # a type of coordinator


class Transactional:
    """One producer on one connection. It counts sequence numbers and tracks its id and epoch.

    With ``v2`` it is a client with transaction.version 2: partitions are added by writing to them, and the epoch
    increases with each transaction.
    """

    def __init__(self, wire: WireClient, transactional_id: Any, *, v2: bool = True, timeout_ms: int = 60_000) -> None:
        self.wire = wire
        self.transactional_id = transactional_id
        self.v2 = v2
        self.timeout_ms = timeout_ms
        self.producer_id = self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    def init(self, version: int = 5) -> int:
        """Find the coordinator and get a producer id and epoch. Returns the error code."""
        find = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[self.transactional_id])
        (found,) = self.wire.call(find, 6).coordinators
        assert found.error_code == 0, found
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=self.timeout_ms)
        answer = self.wire.call(request, version)
        if not answer.error_code:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return int(answer.error_code)

    def add(self, *topics: str, partitions: Iterable[int] = (0,), version: int = 3) -> dict[tuple[str, int], int]:
        """AddPartitionsToTxn as clients send it. Returns the error code of every partition."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=list(partitions)) for name in topics],
        )
        return {
            (topic.name, result.partition_index): result.partition_error_code
            for topic in self.wire.call(request, version).results_by_topic_v3_and_below
            for result in topic.results_by_partition
        }

    def add_offsets(self, group_id: str, version: int = 3) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group_id,
        )
        return int(self.wire.call(request, version).error_code)

    def commit_offset(
        self, group_id: str, topic: str, offset: int, *, partition: int = 0, version: int | None = None
    ) -> int:
        """TxnOffsetCommit of one partition. Returns the error code."""
        partitions = [TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)]
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=partitions)],
        )
        answer = self.wire.call(request, version or (5 if self.v2 else 3))
        return int(answer.topics[0].partitions[0].error_code)

    def batch(self, topic: str, *values: str, partition: int = 0) -> bytes:
        """The next batch of this partition."""
        at = topic, partition
        sequence = self.sequences.get(at, 0)
        self.sequences[at] = sequence + len(values)
        return build_batch(
            # The timestamp is that of the markers, because the log would roll a segment after old records.
            [Record(value=value.encode(), timestamp=time.time_ns() // 1_000_000) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )

    def request(self, topic: str, *batches: bytes, partition: int = 0, acks: int = -1) -> ProduceRequest:
        """A produce request with the first batch for this partition, and each other batch for the next partition."""
        data = [PartitionProduceData(index=index, records=batch) for index, batch in enumerate(batches, partition)]
        return ProduceRequest(
            transactional_id=self.transactional_id,
            acks=acks,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name=topic, partition_data=data)],
        )

    def send(self, topic: str, *values: str, partition: int = 0, version: int | None = None) -> None:
        """Produce without waiting for the response."""
        request = self.request(topic, self.batch(topic, *values, partition=partition), partition=partition)
        self.wire.send(request, version or (12 if self.v2 else 11))

    def produce(self, topic: str, *values: str, partition: int = 0, version: int | None = None) -> int:
        """Produce. Returns the error code."""
        self.send(topic, *values, partition=partition, version=version)
        return error_of(self.wire.receive())

    def end(self, *, committed: bool, version: int | None = None) -> int:
        """Commit or abort. Returns the error code."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )
        answer = self.wire.call(request, version or (5 if self.v2 else 4))
        if not answer.error_code and self.v2:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return int(answer.error_code)

    def commit(self) -> int:
        return self.end(committed=True)

    def abort(self) -> int:
        return self.end(committed=False)

    def describe(self) -> Any:
        """The coordinator's description of the transactional id."""
        request = DescribeTransactionsRequest(transactional_ids=[self.transactional_id])
        (state,) = self.wire.call(request, 0).transaction_states
        return state

    def state(self) -> Any:
        """The name of the transaction's state in the coordinator, or the error code."""
        state = self.describe()
        return state.transaction_state or state.error_code


def error_of(answer: Any) -> int:
    """The error code of a produce response for one partition."""
    return int(answer.responses[0].partition_responses[0].error_code)


def fetch(
    wire: WireClient, topic: str, *, committed: bool = True, partition: int = 0, offset: int = 0
) -> PartitionData:
    """Fetch one partition. Returns its part of the fetch response."""
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        isolation_level=int(committed),
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    answer: PartitionData
    (answer,) = wire.call(request, 12).responses[0].partitions
    assert answer.error_code == 0, answer
    return answer


def values(wire: WireClient, topic: str, *, committed: bool = True, partition: int = 0) -> list[str]:
    """The values of the records that a consumer with this isolation level returns."""
    answer = fetch(wire, topic, committed=committed, partition=partition)
    aborted = sorted(answer.aborted_transactions or (), key=lambda one: one.first_offset)
    open_aborted: set[int] = set()
    kept = []
    for batch in iter_batches(bytes(cast(memoryview, answer.records or b""))):
        while aborted and aborted[0].first_offset <= batch.last_offset:
            open_aborted.add(aborted.pop(0).producer_id)
        if batch.is_control:
            open_aborted.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in open_aborted):
            kept += [(record.value or b"").decode() for record in iter_records(batch)]
    return kept
