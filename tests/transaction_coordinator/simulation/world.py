"""A seeded simulation of producers, partitions and one coordinator, with faults and messages that take any time.

Each step runs a random one of the possible events. So messages overtake each other, and are delayed by any number of
steps. Requests and responses may be lost. A request that a client with epoch bumps considers lost may arrive later;
epoch bumps protect against this. Older clients have no such protection, so their lost requests have arrived before, or
never arrive. Only their writes may be late: after a write without a response, such a client has its epoch bumped
(KIP-360), and the partition detects a late write through transaction verification.

The invariants:

* A transaction is committed in all of its partitions, or in none.
* The outcome in the response to a producer is the outcome in the log. A transaction is not committed without a request.
* After a producer is initialized, earlier producers with its transactional ID write no more records.
* A partition never has two open transactions of one producer, and receives no marker that it has to reject.
* Loading the log restores the state of the coordinator, and each state transition in the log is permitted.
* After the last fault, every transaction ends, and a new producer can commit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from moldau.protocol.errors import ErrorCode
from moldau.protocol.records import iter_batches, iter_records
from moldau.transaction_coordinator.as_records import transaction_of
from moldau.transaction_coordinator.markers import Markers
from moldau.transaction_coordinator.records import TransactionLogKey, TransactionLogValue, decode_record
from moldau.transaction_coordinator.transaction import COMPLETE, LAST_EPOCH, Transaction, TransactionStatus

from ..harness import Producer
from . import producers
from .calls import LOST, CoordinatorCall, Pause, Write
from .coordinator import EXPIRATION_MS, TIMEOUT_MS, Coordinator
from .partitions import Partition
from .producers import History, Steps

MAX_TRACE = 200
_NEXT = {
    None: {TransactionStatus.EMPTY},
    TransactionStatus.EMPTY: {TransactionStatus.EMPTY, TransactionStatus.ONGOING, TransactionStatus.PREPARE_ABORT},
    TransactionStatus.ONGOING: {
        TransactionStatus.ONGOING,
        TransactionStatus.PREPARE_COMMIT,
        TransactionStatus.PREPARE_ABORT,
    },
    TransactionStatus.PREPARE_COMMIT: {TransactionStatus.COMPLETE_COMMIT},
    TransactionStatus.PREPARE_ABORT: {TransactionStatus.COMPLETE_ABORT},
}
_NEXT |= dict.fromkeys(COMPLETE, _NEXT[TransactionStatus.EMPTY])


class World:
    """One run."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.trace: deque[str] = deque(maxlen=MAX_TRACE)
        self.has_faults = True
        """Whether faults are injected."""
        self.partitions = [Partition("t", index) for index in range(3)]
        self.transactions: list[History] = []
        self._events: list[tuple[str, Callable[[], None]]] = []
        self._late: list[tuple[str, Callable[[], None]]] = []
        self._killed = 0
        self._alive: dict[str, int] = {}
        self._current: dict[str, Producer] = {}
        self._former_ids: dict[str, set[int]] = {}
        self.coordinator = Coordinator(self)
        self.coordinator.transaction_version = self.random.choice([0, 1, 2, 2, 2])
        self._bumps = [self.coordinator.transaction_version == 2 and self.random.random() < 0.9 for _ in range(3)]
        self.ids = ["a", "b", "c"][: self.random.randint(1, 3)]
        for number, transactional_id in enumerate(self.ids):
            if self.random.random() < 0.6:
                epoch = LAST_EPOCH - self.random.randint(0, 3)
                now_ms = self.coordinator.now().epoch_ms
                self.coordinator.put(Transaction(transactional_id, number + 1, epoch, TIMEOUT_MS, updated_ms=now_ms))

    # -- running -------------------------------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        """Run with faults for this number of steps. Then all transactions must end."""
        for _ in range(steps):
            for transactional_id in self.ids:
                if self._alive.get(transactional_id, 0) < (2 if self.random.random() < 0.003 else 1):
                    self._start_producer(transactional_id)
            if self.random.random() < 0.04:
                self._inject_fault()
            self._step()
        if self.random.random() < 0.5:
            self.note("all producers crash")
            self._killed += 1
        self.has_faults = False
        self._events += self._late
        self._late.clear()
        self.coordinator.crashes_after_append = False
        self.coordinator.log.rejection = None
        self.coordinator.release()
        self._stabilize()
        self.coordinator.clock.monotonic_ms += TIMEOUT_MS + 1
        self._stabilize()
        self._check_stable()
        for transactional_id in self.ids:
            self._commit_with_new_producer(transactional_id)
        self.check_outcomes()
        self._check_log()

    def _step(self) -> None:
        if self._late and self.random.random() < 0.05:
            self._events.append(self._late.pop(self.random.randrange(len(self._late))))
        if not self._events or self.random.random() < 0.3:
            self.coordinator.end_iteration()
            return
        index = self.random.randrange(len(self._events))
        self._events[index], self._events[-1] = self._events[-1], self._events[index]
        what, act = self._events.pop()
        self.trace.append(what)
        act()

    def _stabilize(self) -> None:
        for _ in range(20_000):
            self._step()
            if not self._events:
                self.coordinator.end_iteration()
                if not self._events:
                    return
            self.coordinator.clock.monotonic_ms += 1
        raise AssertionError(f"events that never end: {[what for what, _ in self._events]}")

    def _inject_fault(self) -> None:
        coordinator, random = self.coordinator, self.random
        match random.randrange(9):
            case 0:
                self.note("the coordinator will crash after its next append")
                coordinator.crashes_after_append = True
            case 1:
                self.note("the coordinator crashes")
                coordinator.crash(takes_over=random.random() < 0.5)
            case 2:
                coordinator.log.rejection = random.choice(
                    [None, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER]
                )
                self.note("appends are rejected with {}", coordinator.log.rejection)
            case 3 | 4:
                coordinator.log.rejection = None
                coordinator.release()
            case 5:
                self.note("the high watermark stalls")
                coordinator.log.is_stalled = True
            case 6 | 7:
                coordinator.clock.monotonic_ms += random.randint(1, TIMEOUT_MS // 2)
            case 8:
                if random.random() < 0.1:
                    coordinator.clock.monotonic_ms += EXPIRATION_MS
                elif coordinator.transaction_version and random.random() < 0.1:
                    coordinator.transaction_version = 3 - coordinator.transaction_version

    def note(self, text: str, *values: object) -> None:
        """Add a line to the trace, which a failure shows."""
        self.trace.append(text.format(*values))

    def later(self, what: str, act: Callable[[], None]) -> None:
        """Add a possible event."""
        self._events.append((what, act))

    # -- processes and messages ----------------------------------------------------------------------------------------

    def _start_producer(self, transactional_id: str) -> None:
        bumps = self._bumps[self.ids.index(transactional_id)]
        self._alive[transactional_id] = self._alive.get(transactional_id, 0) + 1

        def ended(_: Any) -> None:
            self._alive[transactional_id] -= 1

        self._start(producers.run(self, transactional_id, bumps=bumps), ended, mortal=True)

    def _start(self, steps: Steps, ended: Callable[[Any], None], *, mortal: bool = False) -> None:
        killed = self._killed

        def proceed(response: Any) -> None:
            if mortal and killed < self._killed:
                return
            try:
                requested = steps.send(response)
            except StopIteration as stop:
                ended(stop.value)
                return
            self._perform(requested, proceed)

        self.later("a process starts", lambda: proceed(None))

    def _perform(self, requested: Any, done: Callable[[Any], None]) -> None:
        if isinstance(requested, Pause):
            self.later("a pause ends", lambda: done(None))
        elif isinstance(requested, Write):
            self._send_write(requested, done)
        else:
            self._send(requested, done)

    def _send(self, call: CoordinatorCall, done: Callable[[Any], None]) -> None:
        chance = self.random.random() if self.has_faults else 1
        if chance < 0.05:
            self.later(f"{call} is lost", lambda: done(LOST))
            return
        arrives = (f"{call} arrives", lambda: self.coordinator.deliver(call))
        if chance < 0.10 and call.may_be_late:
            self.later(f"{call} is late", lambda: done(LOST))
            self._late.append(arrives)
            return
        call.done = done
        self._events.append(arrives)

    def on_response(self, call: CoordinatorCall, response: Any) -> None:
        """The coordinator responds."""
        if self.has_faults and self.random.random() < 0.05:
            response = LOST
        self.later(f"the response to {call} is {response!r}", lambda: call.done(response))

    def _send_write(self, call: Write, done: Callable[[Any], None]) -> None:
        chance = self.random.random() if self.has_faults else 1
        if chance < 0.05:
            self.later(f"{call} is lost", lambda: done(LOST))
            return
        is_late, loses_response = chance < 0.10, chance < 0.15

        def served(response: Any) -> None:
            if not is_late:
                received = LOST if loses_response else response
                self.later(f"the response to {call} is {received!r}", lambda: done(received))

        arrives = (f"{call} arrives", lambda: self._start(producers.serve_write(self, call), served))
        if is_late:
            self.later(f"{call} is late", lambda: done(LOST))
            self._late.append(arrives)
        else:
            self._events.append(arrives)

    def send_marker(self, markers: Markers, name: tuple[str, int], epoch: int) -> None:
        """Send a marker to one partition. It arrives eventually, also if the coordinator crashes."""
        partition = next(one for one in self.partitions if one.name == name)

        def arrives() -> None:
            if self.has_faults and self.random.random() < 0.2:
                self.send_marker(markers, name, epoch)
            elif partition.end(markers, epoch):
                self.later("a marker is acknowledged", lambda: self.coordinator.marker_written(markers, name, epoch))

        self.later(f"{markers} arrives at {partition}", arrives)

    # -- invariants ----------------------------------------------------------------------------------------------------

    def new_transaction(self, transactional_id: str, producer: Producer) -> History:
        history = History(transactional_id, len(self.transactions), producer)
        self.transactions.append(history)
        return history

    def begun(self, transactional_id: str, producer: Producer) -> None:
        """InitProducerId has succeeded: this is the current producer."""
        before = self._current.get(transactional_id, producer)
        if before.id != producer.id:
            self._former_ids.setdefault(transactional_id, set()).add(before.id)
        self._current[transactional_id] = producer

    def written(self, call: Write) -> None:
        """A partition has accepted a write."""
        producer, current = call.entry.producer, self._current[call.transactional_id]
        assert producer.id not in self._former_ids.get(call.transactional_id, ()), f"{call}: the producer is fenced"
        assert producer.id != current.id or producer.epoch >= current.epoch, f"{call}: {current} has fenced it"

    def _check_stable(self) -> None:
        for transactional_id, transaction in self.coordinator.states.transactions.items():
            assert transaction.status in COMPLETE | {TransactionStatus.EMPTY}, f"{transactional_id}: {transaction}"
        for partition in self.partitions:
            assert partition.open_transactions == [], f"{partition} has open transactions"

    def _commit_with_new_producer(self, transactional_id: str) -> None:
        bumps = self._bumps[self.ids.index(transactional_id)]
        ended: list[Any] = []

        def life() -> Steps:
            producer = yield from producers.begin(self, transactional_id, Producer(-1, -1), bumps=bumps)
            return (yield from producers.one_transaction(self, transactional_id, producer, bumps=bumps))

        self._start(life(), ended.append)
        self._stabilize()
        assert ended, f"a new producer of {transactional_id} does not complete a transaction"
        assert self.transactions[-1].outcome is not None
        self._check_stable()

    def check_outcomes(self) -> None:
        """No transaction is committed in part, and every response that a producer received is true."""
        outcomes: dict[int, set[bool | None]] = {}
        written = set()
        for partition in self.partitions:
            for entry, outcome in partition.outcomes.items():
                outcomes.setdefault(entry.transaction, set()).add(outcome)
                written.add(entry)
        for history in self.transactions:
            found = outcomes.get(history.number, set())
            assert len(found) <= 1, f"{history} is committed in part"
            if history.outcome is not None and history.acked:
                assert found == {history.outcome}, f"{history} is {found}"
            if not history.requested_commit:
                assert found <= {False}, f"{history} was committed"
            if history.outcome:
                assert written.issuperset(history.acked), f"{history} has lost a write"

    def _check_log(self) -> None:
        last: dict[str, Transaction] = {}
        owners: dict[int, str] = {}
        for batch in self.coordinator.log.batches:
            (header,) = iter_batches(batch)
            for logged in iter_records(header):
                assert logged.key is not None
                record = decode_record(logged.key, logged.value)
                assert record is not None
                assert isinstance(record.key, TransactionLogKey)
                transactional_id = record.key.transactional_id
                if record.value is None:
                    assert last.pop(transactional_id).status in COMPLETE | {TransactionStatus.EMPTY}
                    continue
                assert isinstance(record.value, TransactionLogValue)
                transaction = transaction_of(transactional_id, record.value)
                before = last.get(transactional_id)
                assert transaction.status in _NEXT[before.status if before else None], f"{before} -> {transaction}"
                assert owners.setdefault(transaction.producer_id, transactional_id) == transactional_id
                if before is not None and before.producer_id == transaction.producer_id:
                    assert 0 <= transaction.producer_epoch - before.producer_epoch <= 1, f"{before} -> {transaction}"
                last[transactional_id] = transaction
