"""Transaction verification: the first write of a transaction to a partition asks the transaction coordinator (KIP-890).

A transactional batch that arrives after its transaction has ended would open a transaction that is never ended.
Therefore, if the log has no open transaction of the producer, the coordinator is queried before the append, and the log
receives the proof (`log.verification`). The question depends on the client:

* Clients that support transaction.version 2 (Produce since version 12, TxnOffsetCommit since 5) do not add partitions
  themselves: the coordinator adds them now. While the coordinator still ends the previous transaction, the broker
  retries for a short time, which is cheaper than sending the records twice.
* For older clients, the coordinator checks whether they have added the partition, unless
  ``transaction.partition.verification.enable`` is false. The error is one that the client's version supports.

If another broker coordinates the transaction, the question is sent to it (`remote_verification`).

A later request of the same producer must not overtake a request that waits for the coordinator: the requests of one
transactional id enter here one after the other. Other requests do not wait.
"""

from __future__ import annotations

import asyncio
import enum
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ...log.verification import DISABLED, Verification
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.named_tuples import NamedTuple
from ..concurrency.slices import SlicedFuture, pause
from .callers import Awaiting

if TYPE_CHECKING:
    from ...config.sources import BrokerConfig
    from ...coordinator.outcome import Now, Outcome, Producer
    from ...replication.partition import Partition
    from ...transaction_coordinator.shard import TransactionShard
    from ..concurrency.clock import Clock
    from ..concurrency.slices import Sliced, Slices
    from ..concurrency.timers import TimerWheel
    from ..context import RequestContext
    from .remote_verification import Codes, RemoteVerification
    from .transactions import TransactionCoordinators


class ClientSupport(enum.IntEnum):
    """What the client supports of KIP-890."""

    NOTHING = 0
    ABORTABLE = 1
    """The error TRANSACTION_ABORTABLE."""
    ADDING = 2
    """Adding partitions by writing to them."""


def of_produce(api_version: int) -> ClientSupport:
    """From the version of Produce."""
    return (
        ClientSupport.ADDING
        if api_version >= 12
        else ClientSupport.ABORTABLE
        if api_version >= 11
        else ClientSupport.NOTHING
    )


def of_txn_offset_commit(api_version: int) -> ClientSupport:
    """From the version of TxnOffsetCommit."""
    return (
        ClientSupport.ADDING
        if api_version >= 5
        else ClientSupport.ABORTABLE
        if api_version >= 4
        else ClientSupport.NOTHING
    )


class Verified(NamedTuple):
    """The result for each partition: an error, a verification for the log, or neither."""

    errors: dict[Partition, KafkaError]
    verifications: dict[Partition, Verification]


class _Queue:
    """The requests of one transactional id."""

    __slots__ = ("is_entered", "is_leaving", "turns")

    def __init__(self) -> None:
        self.is_entered = True
        self.is_leaving = False
        self.turns: deque[SlicedFuture[None]] = deque()  # of the requests behind the one that has entered


class Verifications:
    """Verifies transactions with the coordinator, for the requests of one broker."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        timers: TimerWheel,
        slices: Slices,
        now_ms: Clock,
        transactions: Callable[[], TransactionCoordinators],
        remote: Callable[[], RemoteVerification],
    ) -> None:
        """``transactions`` returns the transaction coordinator, ``remote`` asks those of other brokers. Both are
        created on first use."""
        self._loop = loop
        self._timers = timers
        self._slices = slices
        self._transactions = transactions
        self._remote = remote
        self._now_ms = now_ms
        self._queues: dict[str, _Queue] = {}  # by transactional id
        self._enabled = True
        self._retry_ms = 0
        self._retry_total_ms = 0

    def update_config(self, config: BrokerConfig) -> None:
        """Apply the broker's settings."""
        self._enabled = config.bool("transaction.partition.verification.enable")
        self._retry_ms = config.int("add.partitions.to.txn.retry.backoff.ms")
        self._retry_total_ms = config.int("add.partitions.to.txn.retry.backoff.max.ms")

    # -- in order ------------------------------------------------------------------------------------------------------

    def enter(self, transactional_id: str) -> SlicedFuture[None] | None:
        """Wait until the earlier requests of this id have left. None: there are none. The request must call `leave`,
        even if it fails."""
        queue = self._queues.get(transactional_id)
        if queue is None:
            self._queues[transactional_id] = _Queue()
            return None
        turn: SlicedFuture[None] = SlicedFuture(self._slices, immediately=True)
        queue.turns.append(turn)
        return turn

    def leave(self, transactional_id: str) -> None:
        """The request is done: the next one runs before this returns. A request that follows them on their connection,
        such as EndTxn, must find their work done."""
        queue = self._queues[transactional_id]
        queue.is_entered = False
        if queue.is_leaving:
            return  # called from the loop below: the loop replaces unbounded recursion
        queue.is_leaving = True
        while queue.turns and not queue.is_entered:
            queue.is_entered = True
            queue.turns.popleft().succeed(None)
        queue.is_leaving = False
        if not queue.is_entered:
            del self._queues[transactional_id]

    # -- asking --------------------------------------------------------------------------------------------------------

    def verify(
        self,
        context: RequestContext,
        transactional_id: str,
        producer: Producer,
        partitions: Sequence[tuple[Partition, int]],
        client_support: ClientSupport,
        *,
        retries: bool = False,
    ) -> Sliced[Verified]:
        """Make sure that these partitions belong to the producer's transaction.

        Each partition comes with the first sequence number of the records to append. With ``retries``, a client that
        supports adding gets no error while the previous transaction is about to end.
        """
        if client_support < ClientSupport.ADDING and not self._enabled:
            return Verified({}, {partition: DISABLED for partition, _ in partitions})
        verified = Verified({}, {})
        now_ms = self._now_ms()
        for partition, sequence in partitions:
            try:
                verification = partition.start_verification(
                    producer.id,
                    producer.epoch,
                    sequence,
                    epoch_per_transaction=client_support >= ClientSupport.ADDING,
                    now_ms=now_ms,
                )
            except KafkaError as error:
                verified.errors[partition] = error
            else:
                if verification is not None:
                    verified.verifications[partition] = verification
        if verified.verifications:
            if client_support < ClientSupport.ADDING:
                yield from self._ask(transactional_id, producer, client_support, verified)
            else:
                retry_ms = self._retry_total_ms if retries else 0
                yield from self._add(context, transactional_id, producer, verified, retry_ms)
        return verified

    def _ask(
        self, transactional_id: str, producer: Producer, client_support: ClientSupport, verified: Verified
    ) -> Sliced[None]:
        """Check whether the client has added the partitions; the others get an error."""
        requested = {(partition.topic, partition.index): partition for partition in verified.verifications}
        try:
            transactions = self._transactions()
            elsewhere = transactions.other_coordinator(transactional_id)
            if elsewhere is None:
                shard = transactions.read(transactional_id)
                codes = shard.verify_partitions(transactional_id, producer.id, producer.epoch, list(requested))
            else:
                codes = yield from self._ask_other(
                    elsewhere, transactional_id, producer, list(requested), verify_only=True
                )
        except KafkaError as error:
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                return  # the coordinator's broker is older than KIP-890: nothing can be verified
            codes = dict.fromkeys(requested, error.code)
        for at, code in codes.items():
            if code is ErrorCode.TRANSACTION_ABORTABLE and client_support < ClientSupport.ABORTABLE:
                code = ErrorCode.INVALID_TXN_STATE
            if code is not ErrorCode.NONE:
                verified.errors[requested[at]] = _as_of_produce(KafkaError(code))

    def _add(
        self, context: RequestContext, transactional_id: str, producer: Producer, verified: Verified, retry_ms: int
    ) -> Sliced[None]:
        """Add the partitions to the transaction, all or none. While the previous transaction ends, this is retried for
        ``retry_ms``."""
        partitions = [(partition.topic, partition.index) for partition in verified.verifications]
        until = self._loop.time() + retry_ms / 1000
        while True:
            transactions = self._transactions()
            elsewhere = transactions.other_coordinator(transactional_id)
            if elsewhere is None:
                later: SlicedFuture[KafkaError | None] = SlicedFuture(self._slices, immediately=True)
                caller = Awaiting(context, later)
                decide = partial(_decide, caller, transactional_id, producer, partitions)
                transactions.run(transactional_id, caller, decide)
                error = yield from later.result()
            else:
                error = yield from self._add_elsewhere(elsewhere, transactional_id, producer, verified)
            if error is None:
                return
            if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS or self._loop.time() >= until:
                break
            yield from pause(self._slices, self._timers, self._retry_ms)
        verified.errors.update(dict.fromkeys(verified.verifications, _as_of_produce(error)))

    def _add_elsewhere(
        self, node_id: int, transactional_id: str, producer: Producer, verified: Verified
    ) -> Sliced[KafkaError | None]:
        """Add the partitions to a transaction that another broker coordinates. Returns the error of all of them, or
        records the errors of single partitions."""
        requested = {(partition.topic, partition.index): partition for partition in verified.verifications}
        try:
            codes = yield from self._ask_other(node_id, transactional_id, producer, list(requested), verify_only=False)
        except KafkaError as error:
            return error
        if ErrorCode.CONCURRENT_TRANSACTIONS in codes.values():
            return KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        for at, code in codes.items():
            if code is not ErrorCode.NONE and at in requested:
                verified.errors[requested[at]] = _as_of_produce(KafkaError(code))
        return None

    def _ask_other(
        self,
        node_id: int,
        transactional_id: str,
        producer: Producer,
        partitions: list[tuple[str, int]],
        *,
        verify_only: bool,
    ) -> Sliced[Codes]:
        """The error codes from the coordinator on another broker.

        Raises:
            KafkaError: the error of all partitions.
        """
        later: SlicedFuture[Codes] = SlicedFuture(self._slices, immediately=True)

        def answered(result: Codes | KafkaError) -> None:
            if isinstance(result, KafkaError):
                later.fail(result)
            else:
                later.succeed(result)

        self._remote().ask(node_id, transactional_id, producer, partitions, verify_only=verify_only, verified=answered)
        codes = yield from later.result()
        # A partition that the response does not mention was not verified.
        return {at: codes.get(at, ErrorCode.UNKNOWN_SERVER_ERROR) for at in partitions}


def _decide(
    caller: Awaiting,
    transactional_id: str,
    producer: Producer,
    partitions: list[tuple[str, int]],
    shard: TransactionShard,
    now: Now,
) -> Outcome:
    return shard.add_partitions(
        caller, transactional_id, producer.id, producer.epoch, partitions, now, client_version=2
    )


def _as_of_produce(error: KafkaError) -> KafkaError:
    # Producers expect this error code from the partition leader.
    if error.code is ErrorCode.PRODUCER_FENCED:
        return KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, error.message)
    return error
