"""A transactional producer that sends single requests.

A `Producer` knows its transactional ID, its producer ID and epoch, and the next sequence number of each partition. It
sends only what a case requests, with the version that the case names, and its methods return responses or their error
codes. There are two protocols:

- Before `transaction.version` 2 a producer adds each partition with AddPartitionsToTxn before it writes to it, and each
  group with AddOffsetsToTxn. It keeps its epoch.
- With `transaction.version` 2 (KIP-890), which `implicit=True` selects, Produce 12 and TxnOffsetCommit 5 add partition
  and group, and EndTxn 5 returns a new epoch.

Markers are written after EndTxn has its response, and until then the coordinator responds CONCURRENT_TRANSACTIONS:
`commit` and `abort` wait for them, `end` does not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, Self, TypeVar, cast

from ..protocol.api import ApiKey
from ..protocol.errors import ErrorCode
from ..protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ..protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from ..protocol.messages.describe_groups import DescribeGroupsRequest
from ..protocol.messages.describe_transactions import DescribeTransactionsRequest, TransactionState
from ..protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ..protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ..protocol.messages.produce import PartitionProduceResponse
from ..protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ..protocol.records import build_batch
from ..protocol.schema import Request
from . import partitions as p
from .check import TRANSACTION, Check, Topic
from .exchange import Connection
from .outcome import NotApplicableError
from .record_batches import records

K = TypeVar("K", bound=int | str)
T = TypeVar("T")
E = TypeVar("E", bound=ErrorCode | Collection[ErrorCode])

FEATURE: Final = "transaction.version"
OFFSETS: Final = "__consumer_offsets"

_IMPLICIT: Final = {ApiKey.PRODUCE: 12, ApiKey.END_TXN: 5, ApiKey.TXN_OFFSET_COMMIT: 5}
"""The versions since which a request follows the protocol of `transaction.version` 2."""
_RETRIES: Final = 100
"""Of a retriable error, at intervals of `Check.until`; a server that always has it is wrong."""
_RETRIABLE: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        # A partition could not reach the coordinator to verify the transaction.
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)
"""What a client repeats its request for, for example because a busy server did not write to its log in time."""
_UNFINISHED: Final = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
"""The states of a transaction whose end has not been written to all of its partitions."""
_NOT_READY: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)


class Producer:
    """A producer with a transactional ID."""

    def __init__(
        self, c: Check, transactional_id: str | None = None, *, timeout_ms: int = 60_000, implicit: bool = False
    ) -> None:
        """Finds the coordinator. Without a transactional ID it has a new one.

        Raises NotApplicableError if `implicit` and the server does not have `transaction.version` 2.
        """
        if implicit and c.target.features.get(FEATURE, 0) < 2:
            raise NotApplicableError(f"the feature {FEATURE} is not finalized at level 2")
        self.c = c
        self.transactional_id = c.name("transaction") if transactional_id is None else transactional_id
        self.timeout_ms = timeout_ms
        self.implicit = implicit
        self.producer_id = -1
        self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}
        """The next one, by partition."""
        self._coordinators: dict[str, Connection] = {}
        """By group."""
        # No server has a coordinator for the empty ID, which some cases send.
        self.wire = transaction_coordinator(c, self.transactional_id) if self.transactional_id else c.wire

    def duplicate(self, transactional_id: str | None = None) -> Producer:
        """A copy with the same state: a zombie, or a client that has lost a response; or one with another ID."""
        other = Producer(
            self.c, transactional_id or self.transactional_id, timeout_ms=self.timeout_ms, implicit=self.implicit
        )
        return other.adopt(self)

    def adopt(self, other: Producer) -> Self:
        """Continue as another producer, in the protocol of this one."""
        self.producer_id, self.epoch, self.sequences = other.producer_id, other.epoch, dict(other.sequences)
        return self

    def version(self, api: ApiKey) -> int:
        """The highest version of an API in the protocol of this producer."""
        first = _IMPLICIT.get(api)
        return self.c.version(api, None if self.implicit or first is None else first - 1)

    def _retried(self, request: Callable[[], T], errors_of: Callable[[T], Iterable[int]]) -> T:
        """The response to a request that is repeated while it has a retriable error, as by clients."""
        attempts = iter(range(_RETRIES))

        def answered() -> tuple[T] | None:
            response = request()
            is_final = _RETRIABLE.isdisjoint(errors_of(response)) or next(attempts, None) is None
            return (response,) if is_final else None

        return self.c.until(answered, "a response without a retriable error")[0]

    def _call(self, request: Request, version: int | None) -> Any:
        """The response of the coordinator."""
        return self._retried(
            lambda: self.c.call(request, version, to=self.wire), lambda response: [getattr(response, "error_code", 0)]
        )

    # Its identity

    def init_request(self, *, resume: bool = False) -> InitProducerIdRequest:
        """InitProducerId; with `resume` it has the current producer ID and epoch (KIP-360)."""
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=self.timeout_ms)
        if resume:
            request.producer_id, request.producer_epoch = self.producer_id, self.epoch
        return request

    def init(self, version: int | None = None, *, resume: bool = False) -> InitProducerIdResponse:
        """InitProducerId once. A response without an error sets ID and epoch."""
        request = self.init_request(resume=resume)
        response: InitProducerIdResponse = self._call(request, version)
        if response.error_code == 0:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
            self.sequences.clear()
        return response

    def begin(self, version: int | None = None) -> Self:
        """InitProducerId as a step of the setup, repeated until the transaction before is complete."""

        def has_id() -> bool:
            response = self.init(version)
            if response.error_code in _NOT_READY:
                return False
            self.c.error(response.error_code, ErrorCode.NONE, "InitProducerId error_code")
            return True

        with self.c.setup(f"InitProducerId for {self.transactional_id}"):
            self.c.until(has_id, f"a producer ID for {self.transactional_id}")
        return self

    # Its transaction

    def add(self, topic: Topic | str, *partitions: int, version: int | None = None) -> dict[int, int]:
        """AddPartitionsToTxn for partitions of one topic, as clients send it; the error codes by partition."""
        name = topic.name if isinstance(topic, Topic) else topic
        results = self.add_topics({name: list(partitions or (0,))}, version=version)
        self.c.equal(sorted(results), [name], "the topics of the AddPartitionsToTxn response")
        return results[name]

    def add_topics(
        self, partitions: Mapping[str, list[int]], *, version: int | None = None
    ) -> dict[str, dict[int, int]]:
        """AddPartitionsToTxn for partitions of several topics; the error codes by topic and partition."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=each) for name, each in partitions.items()
            ],
        )
        if version is None:
            version = self.c.version(ApiKey.ADD_PARTITIONS_TO_TXN, 3)

        def added() -> dict[str, dict[int, int]]:
            return results_of(self.c, self.c.call(request, version, to=self.wire).results_by_topic_v3_and_below)

        return self._retried(added, lambda found: [error for topic in found.values() for error in topic.values()])

    def as_transaction(
        self, partitions: Mapping[str, list[int]], *, verify_only: bool = False
    ) -> AddPartitionsToTxnTransaction:
        """For AddPartitionsToTxn as brokers send it."""
        return AddPartitionsToTxnTransaction(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            verify_only=verify_only,
            topics=[AddPartitionsToTxnTopic(name=name, partitions=each) for name, each in partitions.items()],
        )

    def batch(
        self,
        *values: bytes,
        sequence: int = 0,
        transactional: bool = True,
        timestamp: int | None = None,
        **options: Any,
    ) -> bytes:
        """A batch with its producer ID and epoch. `options` are those of `build_batch`."""
        return build_batch(
            records(*values, timestamp=timestamp),
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=transactional,
            **options,
        )

    def send(
        self,
        topic: Topic,
        batch: bytes,
        *,
        partition: int = 0,
        version: int | None = None,
        to: Connection | None = None,
    ) -> PartitionProduceResponse:
        """Produce a batch. The case is responsible for sequence numbers."""
        version = self.version(ApiKey.PRODUCE) if version is None else version

        def produced() -> PartitionProduceResponse:
            return p.produce(
                self.c,
                topic,
                batch,
                partition=partition,
                version=version,
                transactional_id=self.transactional_id,
                to=to,
            )

        return self._retried(produced, lambda response: [response.error_code])

    def produce(
        self,
        topic: Topic,
        *values: bytes,
        partition: int = 0,
        version: int | None = None,
        to: Connection | None = None,
        **options: Any,
    ) -> PartitionProduceResponse:
        """Produce one batch with the next sequence numbers."""
        at = (topic.name, partition)
        sequence = self.sequences.get(at, 0)
        response = self.send(
            topic, self.batch(*values, sequence=sequence, **options), partition=partition, version=version, to=to
        )
        if response.error_code == 0:
            self.sequences[at] = sequence + len(values)
        return response

    def write(self, topic: Topic, *values: bytes, partition: int = 0, **options: Any) -> int:
        """Add the partition if the protocol requires it, and produce one batch, without errors. The base offset."""
        if not self.implicit:
            self.added(topic, partition)
        response = self.produce(topic, *values, partition=partition, **options)
        self.c.error(response.error_code, ErrorCode.NONE, "Produce error_code")
        return response.base_offset

    def added(self, topic: Topic, *partitions: int) -> None:
        """AddPartitionsToTxn without errors."""
        errors(self.c, self.add(topic, *partitions), dict.fromkeys(partitions or (0,), ErrorCode.NONE))

    # Offsets in it

    def add_offsets(self, group: str, version: int | None = None) -> int:
        """AddOffsetsToTxn, and its error code."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group,
        )
        return cast(int, self._call(request, version).error_code)

    def commit_offsets(
        self,
        group: str,
        topic: Topic | str,
        offsets: Mapping[int, int],
        version: int | None = None,
        *,
        member_id: str = "",
        generation: int = -1,
        instance_id: str | None = None,
        metadata: str | None = "",
        leader_epoch: int = -1,
    ) -> dict[int, int]:
        """TxnOffsetCommit for partitions of one topic, and the error codes by partition."""
        version = self.version(ApiKey.TXN_OFFSET_COMMIT) if version is None else version
        name = topic.name if isinstance(topic, Topic) else topic
        partitions = [
            TxnOffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=offset,
                committed_leader_epoch=leader_epoch,
                committed_metadata=metadata,
            )
            for index, offset in offsets.items()
        ]
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=name, partitions=partitions)],
        )
        if version >= 3:
            request.generation_id, request.member_id, request.group_instance_id = generation, member_id, instance_id

        def committed() -> dict[int, int]:
            response = self.c.call(request, version, to=self.group_coordinator(group))
            self.c.equal([each.name for each in response.topics], [name], "the topics of the TxnOffsetCommit response")
            return {each.partition_index: each.error_code for each in response.topics[0].partitions}

        return self._retried(committed, lambda found: found.values())

    def group_coordinator(self, group: str) -> Connection:
        """The connection to the coordinator of a group."""
        if group not in self._coordinators:
            self._coordinators[group] = group_coordinator(self.c, group) if group else self.c.wire
        return self._coordinators[group]

    def write_offsets(self, group: str, topic: Topic, offsets: Mapping[int, int], **options: Any) -> None:
        """Add the group if the protocol requires it, and commit offsets in the transaction, without errors."""
        if not self.implicit:
            self.c.error(self.add_offsets(group), ErrorCode.NONE, "AddOffsetsToTxn error_code")
        found = self.commit_offsets(group, topic, offsets, **options)
        errors(self.c, found, dict.fromkeys(offsets, ErrorCode.NONE), "TxnOffsetCommit")

    # Its end

    def end(self, version: int | None = None, *, committed: bool = True) -> EndTxnResponse:
        """EndTxn once. A response of version 5 without an error sets ID and epoch."""
        version = self.version(ApiKey.END_TXN) if version is None else version
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )
        response: EndTxnResponse = self._call(request, version)
        if response.error_code == 0 and version >= _IMPLICIT[ApiKey.END_TXN]:
            if (response.producer_id, response.producer_epoch) != (self.producer_id, self.epoch):
                self.sequences.clear()
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
        return response

    def commit(self, version: int | None = None) -> None:
        """EndTxn without an error, and wait for the markers."""
        self.finish(version, committed=True)

    def abort(self, version: int | None = None) -> None:
        """EndTxn without an error, and wait for the markers."""
        self.finish(version, committed=False)

    def finish(self, version: int | None = None, *, committed: bool) -> None:
        """Commit or abort."""
        retry = self.duplicate()
        self.c.error(self.end(version, committed=committed).error_code, ErrorCode.NONE, "EndTxn error_code")
        if self.c.target.supports(ApiKey.DESCRIBE_TRANSACTIONS, 0):
            self.c.until(
                lambda: self.described().transaction_state not in _UNFINISHED,
                f"the end of the transaction of {self.transactional_id}",
            )
            return

        def is_complete() -> bool:
            # A retry has an effect only on a transaction that is still open.
            return retry.end(version, committed=committed).error_code not in _NOT_READY

        self.c.until(is_complete, f"the end of the transaction of {self.transactional_id}")

    def wait_for_state(self, state: str) -> TransactionState:
        """Return when the coordinator has the transaction in this state."""

        def in_it() -> TransactionState | None:
            found = self.described()
            return found if found.transaction_state == state else None

        return self.c.until(in_it, f"{self.transactional_id} in the state {state}")

    def described(self) -> TransactionState:
        """DescribeTransactions of this one, without an error."""
        request = DescribeTransactionsRequest(transactional_ids=[self.transactional_id])
        response = self.c.call(request, 0, to=self.wire)
        found = [each.transactional_id for each in response.transaction_states]
        self.c.equal(found, [self.transactional_id], "the IDs of the DescribeTransactions response")
        state = cast(TransactionState, response.transaction_states[0])
        self.c.error(state.error_code, ErrorCode.NONE, "DescribeTransactions error_code")
        return state

    def has_state(self, state: str, partitions: Mapping[str, list[int]] | None = None) -> TransactionState:
        """Compare the state of the transaction, and its partitions, with DescribeTransactions."""
        found = self.described()
        self.c.equal(found.transaction_state, state, "the state of the transaction in DescribeTransactions")
        if partitions is not None:
            actual = {each.topic: sorted(each.partitions) for each in found.topics}
            self.c.equal(actual, dict(partitions), "the partitions of the transaction in DescribeTransactions")
        return found


def transaction_coordinator(c: Check, transactional_id: str) -> Connection:
    """The coordinator of a transactional ID, when it has loaded its log."""
    wire = c.coordinator(transactional_id, TRANSACTION)

    def is_loaded() -> bool:
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        return all(each.error_code not in _NOT_READY for each in c.call(request, 0, to=wire).transaction_states)

    if c.target.supports(ApiKey.DESCRIBE_TRANSACTIONS, 0):
        with c.setup(f"waiting for the coordinator of {transactional_id}"):
            c.until(is_loaded, f"the coordinator of {transactional_id} to load its log")
    return wire


def group_coordinator(c: Check, group: str) -> Connection:
    """The coordinator of a group, when it has loaded its log."""
    wire = c.coordinator(group)

    def is_loaded() -> bool:
        response = c.call(DescribeGroupsRequest(groups=[group]), to=wire)
        return all(each.error_code not in _NOT_READY for each in response.groups)

    with c.setup(f"waiting for the coordinator of {group}"):
        c.until(is_loaded, f"the coordinator of {group} to load its log")
    return wire


NOT_ADDED: Final = (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE)
"""For records and offsets that are not part of the transaction: the first for clients that know it, the second for
older ones. Apache Kafka verifies several producers together, and then all have the error of the first one's version."""


def fenced(version: int, since: int) -> ErrorCode:
    """PRODUCER_FENCED, which clients know since a version of the request; before, INVALID_PRODUCER_EPOCH (KIP-588)."""
    return ErrorCode.PRODUCER_FENCED if version >= since else ErrorCode.INVALID_PRODUCER_EPOCH


def errors(c: Check, actual: Mapping[K, int], expected: Mapping[K, E], api: str = "AddPartitionsToTxn") -> None:
    """Compare the error codes of all partitions of a response."""
    c.equal(sorted(actual), sorted(expected), f"the partitions of the {api} response")
    for key, error in expected.items():
        c.error(actual[key], error, f"{api} error_code of {key}")


def results_of(c: Check, found: Iterable[AddPartitionsToTxnTopicResult]) -> dict[str, dict[int, int]]:
    """The error codes of AddPartitionsToTxn, by topic and partition."""
    topics = list(found)
    results = {
        topic.name: {each.partition_index: each.partition_error_code for each in topic.results_by_partition}
        for topic in topics
    }
    c.equal(len(results), len(topics), "the number of different topics of the AddPartitionsToTxn response")
    return results
