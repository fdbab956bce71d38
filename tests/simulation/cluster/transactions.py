"""Transactional producers: records in partitions of several brokers and offsets of a group, all or nothing.

A producer uses one of two protocols: that of older clients (partitions are added explicitly, an epoch serves many
transactions), or that of transaction.version 2 (KIP-890).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from moldau.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from moldau.protocol.messages.end_txn import EndTxnRequest
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from moldau.protocol.records import Record, build_batch
from moldau.protocol.schema import Request, Versions

from .clients import GROUP, READ_COMMITTED, RETRIABLE, TRANSACTION, Client
from .workloads import DATA_TOPIC, fetch_offsets

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from moldau.metadata.image import MetadataImage

    from .clients import ClientProcess
    from .workloads import ProducerIds

TIMEOUT_MS = 40_000
"""After this time the coordinator aborts a transaction."""

FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})

ENDED = FENCED | {ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE}
"""Errors in a transaction that was aborted because of its timeout."""


class _EndedError(Exception):
    """The coordinator has ended the transaction, or requests it."""


class Transactions(Client):
    """A transactional producer; see the module docstring."""

    def __init__(self, process: ClientProcess, name: str, ids: ProducerIds, partitions: int) -> None:
        super().__init__(process, name)
        self._ids = ids
        self._partitions = partitions
        self._is_version_2 = self.dice.random() < 0.5
        self._producer_id = self._epoch = -1
        self._sequences: dict[int, int] = {}
        self._began = 0.0
        self._number = 0
        self.committed: dict[int, list[bytes]] = {partition: [] for partition in range(partitions)}
        """Values of committed transactions, in the order of sending."""
        self.aborted: set[bytes] = set()
        self.undecided: list[set[tuple[int, bytes]]] = []
        """The records of transactions that were committed or aborted; the client does not know which."""
        self.offset = -1
        """The offset that the last transaction with an offset has committed."""
        self.possible_offsets: set[int] = set()
        """Those of later undecided transactions."""

    async def run(self) -> None:
        while not self.process.is_ending:
            await self._init()
            for _ in range(self.dice.randint(1, 8)):
                if self.process.is_ending or not await self._transaction():
                    break
                await self.pause()

    async def _init(self) -> None:
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=TIMEOUT_MS)
        while True:
            response = await self.coordinate(TRANSACTION, self.name, request)
            if response is not None:
                if not response.error_code:
                    break
                self.expect_retriable(response.error_code, request)
                self.forget_coordinator(TRANSACTION, self.name)
            await self.pause()
        self._start_epoch(response.producer_id, response.producer_epoch)

    def _start_epoch(self, producer_id: int, epoch: int) -> None:
        if producer_id != self._producer_id:
            self._ids.add(producer_id, self.name)
        else:
            assert epoch > self._epoch, f"{self.name} has epoch {epoch} after {self._epoch}"
        self._producer_id, self._epoch = producer_id, epoch
        self._sequences = dict.fromkeys(range(self._partitions), 0)

    async def _transaction(self) -> bool:
        """One transaction. Returns whether the producer can continue with its epoch."""
        self._began = self.process.world.now
        written: list[tuple[int, bytes]] = []
        offset = None
        commits = self.dice.random() < 0.7
        try:
            for _ in range(self.dice.randint(1, 4)):
                partition = self.dice.randrange(self._partitions)
                self._number += 1
                value = b"%s %d" % (self.name.encode(), self._number)
                written.append((partition, value))
                await self._write(partition, value)
                await self.pause(0.3)
            if self.dice.random() < 0.4:
                self._number += 1
                offset = self._number
                await self._commit_offset(offset)
        except _EndedError:
            self.aborted |= {value for _, value in written}
            return False
        try:
            await self._end(commits)
        except _EndedError:
            # The coordinator aborts it after its timeout, unless a request to commit has arrived.
            if commits:
                self.undecided.append(set(written))
                if offset is not None:
                    self.possible_offsets.add(offset)
            else:
                self.aborted |= {value for _, value in written}
            return False
        if commits:
            for partition, value in written:
                self.committed[partition].append(value)
            if offset is not None:
                self.offset = offset
                self.possible_offsets.clear()
        else:
            self.aborted |= {value for _, value in written}
        return True

    async def _repeat(self, request: Request, send: Callable[[], Awaitable[Any]], code_of: Callable[[Any], int]) -> Any:
        """The response to a request that is repeated until it succeeds. Raises `_EndedError`."""
        while True:
            response = await send()
            if response is not None:
                code = code_of(response)
                if not code:
                    return response
                if code in ENDED and self._may_have_ended(code):
                    raise _EndedError
                self.expect_retriable(code, request)
                self.forget_coordinator(TRANSACTION, self.name)
                self.forget_coordinator(GROUP, self.name)
            await self.pause()

    def _may_have_ended(self, code: int) -> bool:
        if code == ErrorCode.TRANSACTION_ABORTABLE:
            return True  # transaction verification was not possible in time
        if code in FENCED and self.process.knows_stale_coordinators():
            return True
        return self.process.world.now - self._began >= TIMEOUT_MS / 1000

    async def _write(self, partition: int, value: bytes) -> None:
        if not self._is_version_2:
            await self._add_partition(partition)
        batch = build_batch(
            [Record(0, self.process.world.wall_ms(), None, value)],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=self._sequences[partition],
            transactional=True,
        )
        produced = PartitionProduceData(index=partition, records=batch)
        request = ProduceRequest(
            transactional_id=self.name,
            acks=-1,
            timeout_ms=5000,
            topic_data=[TopicProduceData(name=DATA_TOPIC, partition_data=[produced])],
        )
        versions = Versions(12, 12) if self._is_version_2 else Versions(9, 11)

        async def send() -> Any:
            return await self.call(await self.leader_of(DATA_TOPIC, partition), request, versions)

        await self._repeat(request, send, lambda response: response.responses[0].partition_responses[0].error_code)
        self._sequences[partition] += 1

    async def _add_partition(self, partition: int) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=DATA_TOPIC, partitions=[partition])],
        )
        await self._repeat(
            request,
            lambda: self.coordinate(TRANSACTION, self.name, request, Versions(0, 3)),
            lambda response: response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
        )

    async def _commit_offset(self, offset: int) -> None:
        if not self._is_version_2:
            added = AddOffsetsToTxnRequest(
                transactional_id=self.name,
                producer_id=self._producer_id,
                producer_epoch=self._epoch,
                group_id=self.name,
            )
            await self._repeat(
                added,
                lambda: self.coordinate(TRANSACTION, self.name, added),
                lambda response: response.error_code,
            )
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=self.name,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            topics=[TxnOffsetCommitRequestTopic(name=DATA_TOPIC, partitions=[partition])],
        )
        versions = Versions(5, 5) if self._is_version_2 else Versions(3, 4)
        await self._repeat(
            request,
            lambda: self.coordinate(GROUP, self.name, request, versions),
            lambda response: response.topics[0].partitions[0].error_code,
        )

    async def _end(self, commits: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=commits,
        )
        versions = Versions(5, 5) if self._is_version_2 else Versions(3, 4)
        response = await self._repeat(
            request,
            lambda: self.coordinate(TRANSACTION, self.name, request, versions),
            lambda response: response.error_code,
        )
        if self._is_version_2:
            self._start_epoch(response.producer_id, response.producer_epoch)

    async def check(self, image: MetadataImage) -> None:
        prefix = self.name.encode() + b" "
        found: dict[int, list[bytes]] = {}
        for partition in range(self._partitions):
            values = await self.read(DATA_TOPIC, partition, READ_COMMITTED)
            found[partition] = [value for value in values if value.startswith(prefix)]
        visible = {value for values in found.values() for value in values}
        assert not visible & self.aborted, f"aborted, and read: {visible & self.aborted}"
        uncertain = set()
        for records in self.undecided:
            values_of = {value for _, value in records}
            assert not values_of & visible or values_of <= visible, f"committed in part: {records}"
            uncertain |= values_of
        for partition, values in found.items():
            certain = [value for value in values if value not in uncertain]
            expected = self.committed[partition]
            assert certain == expected, f"partition {partition}: {certain}, and {expected} was committed"
        offsets = await fetch_offsets(self, self.name, [0])
        assert offsets[0] in {self.offset, *self.possible_offsets}, f"{offsets}, and {self.offset} was committed"


assert not ENDED & RETRIABLE
