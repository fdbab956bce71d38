"""The coordinator: the real runtime and shard, with crashes and recovery, and the markers that it sends.

It may crash at any append: before the bytes are in the log, or afterwards, before the records are replayed and the
responses are sent. If another replica takes over, the uncommitted records are lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from moldau.coordinator.outcome import Now, Outcome
from moldau.coordinator.runtime import CoordinatorRuntime
from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.records import iter_batches
from moldau.transaction_coordinator.as_records import record_of
from moldau.transaction_coordinator.config import TransactionConfig
from moldau.transaction_coordinator.markers import Markers
from moldau.transaction_coordinator.shard import TransactionShard
from moldau.transaction_coordinator.states import TransactionStates
from moldau.transaction_coordinator.transaction import Transaction

from ...group_coordinator.simulation.coordinator import Clock, MemoryLog

if TYPE_CHECKING:
    from .calls import CoordinatorCall
    from .world import World

TIMEOUT_MS = 1000
EXPIRATION_MS = 30_000


class Crash(BaseException):
    """The process has crashed. No exception handler of the product may catch this."""


class Coordinator:
    """One shard."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.clock = Clock()
        self.log = MemoryLog(self._appended, lambda: None)
        self.transaction_version = 2
        self.epoch = 0
        self.crashes_after_append = False
        self.crashes = 0
        self._next_producer_id = 0
        self._is_half_done = False
        """Whether the log may contain records that were not replayed."""
        self._waiting: list[CoordinatorCall] = []
        self._missing: dict[Markers, set[tuple[str, int]]] = {}
        self._start()

    def _start(self) -> None:
        self.epoch += 1
        self.states = TransactionStates(
            TransactionConfig(
                transactional_id_expiration_ms=EXPIRATION_MS,
                transaction_abort_timed_out_transaction_cleanup_interval_ms=100,
                transaction_remove_expired_transaction_cleanup_interval_ms=100,
            ),
            new_producer_id=self._new_producer_id,
            transaction_version=lambda: self.transaction_version,
        )
        self.shard = TransactionShard(self.states)
        self.runtime = CoordinatorRuntime(
            "transactions", self.shard, self.log, self.clock, request_flush=lambda: None, failed=self._failed
        )
        self._missing = {}
        for batch in self.log.batches:
            for header in iter_batches(batch):
                for _ in self.runtime.load(header):
                    pass
        self.runtime.activate()
        self._send_markers()

    def _failed(self) -> None:
        raise AssertionError("a record could not be replayed")

    def _new_producer_id(self) -> int:
        if self.world.has_faults and self.world.random.random() < 0.05:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        self._next_producer_id += 1
        return self._next_producer_id

    def _appended(self, batch: bytes) -> None:
        if self.crashes_after_append:
            self.crashes_after_append = False
            raise Crash

    # -- steps of the simulation ---------------------------------------------------------------------------------------

    def deliver(self, call: CoordinatorCall) -> None:
        """A request arrives. Its response may have to wait for the end of the iteration."""
        self._waiting.append(call)
        self._run(lambda: call.run(self.runtime))

    def end_iteration(self) -> None:
        """Write pending records, and process expired deadlines."""
        self._run(self._end_iteration)

    def _end_iteration(self) -> None:
        self.runtime.flush()
        while (at_ms := self.runtime.next_deadline()) is not None and at_ms <= self.clock.monotonic_ms:
            self.runtime.tick()
            self.runtime.flush()

    def crash(self, *, takes_over: bool) -> None:
        """Restart, or let a replica without the uncommitted records take over."""
        self.crashes += 1
        self.crashes_after_append = False
        before, end_offset = self.transactions(), self.log.end_offset
        if takes_over:
            self.log.truncate()
        else:
            self.log.release()
        is_whole = not self._is_half_done and self.log.end_offset == end_offset
        waiting, self._waiting = self._waiting, []
        self._start()
        if is_whole:
            assert self.transactions() == before, "loading the log does not restore the state"
        for call in waiting:
            call.lost()

    def release(self) -> None:
        """All in-sync replicas have all records."""
        self.log.release()
        self._run(self.runtime.high_watermark_changed)

    def transactions(self) -> dict[str, Transaction]:
        """The replayed transactions, without the fields that records do not have."""
        unknown: dict[str, Any] = {
            "last_epoch": -1,
            **({} if self.transaction_version else {"previous_producer_id": -1}),
        }
        return {one: transaction._replace(**unknown) for one, transaction in self.states.transactions.items()}

    def put(self, transaction: Transaction) -> None:
        """Create a transaction in a state that would take many requests to reach."""
        self._next_producer_id = max(self._next_producer_id, transaction.producer_id)
        self.runtime.decide(transaction.transactional_id, lambda now: Outcome([record_of(transaction, 2)]))
        self.runtime.flush()

    def now(self) -> Now:
        return self.clock()

    def _run(self, act: Callable[[], None]) -> None:
        self._is_half_done = True
        try:
            act()
        except Crash:
            self.world.note("the coordinator crashes after an append")
            self.crash(takes_over=self.log.is_stalled and self.world.random.random() < 0.5)
            return
        self._is_half_done = False
        self._waiting = [call for call in self._waiting if not call.is_complete]
        self._send_markers()

    # -- markers -------------------------------------------------------------------------------------------------------

    def _send_markers(self) -> None:
        for markers in self.runtime.take_effects():
            assert isinstance(markers, Markers)
            self._missing[markers] = set(markers.partitions)
            for partition in sorted(markers.partitions):
                self.world.send_marker(markers, partition, self.epoch)
            self._complete(markers)

    def marker_written(self, markers: Markers, partition: tuple[str, int], epoch: int) -> None:
        """A partition has acknowledged its marker."""
        if epoch == self.epoch:
            self._missing[markers].discard(partition)
            self._complete(markers)

    def _complete(self, markers: Markers) -> None:
        if not self._missing[markers]:
            del self._missing[markers]
            transactional_id, producer_id, producer_epoch = markers[:3]
            epoch = self.epoch

            def complete() -> None:
                if epoch == self.epoch:
                    action = self.shard.markers_written(transactional_id, producer_id, producer_epoch)
                    self._run(lambda: self.runtime.decide(transactional_id, action))

            self.world.later(f"the end of {transactional_id}", complete)
