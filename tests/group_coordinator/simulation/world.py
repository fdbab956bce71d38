"""The simulated world: clients, their connections to the coordinator, and time.

One `random.Random` makes all decisions: the next step, lost messages, the passing of time. So a seed determines a run.
Requests and responses may take any time, but the requests of one client arrive in order, as on a connection.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, TypeVar

from moldau.group_coordinator.config import GroupConfig
from moldau.group_coordinator.consumer.group import ConsumerGroup
from moldau.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

from .calls import Call
from .classic_client import ClassicClient
from .client import Client
from .consumer_client import ConsumerClient
from .coordinator import Clock, Coordinator, MemoryLog
from .hard_state import differences, written_out
from .invariants import Invariants
from .outsider import Outsider
from .producer import TransactionalProducer
from .topics import TopicTable

T = TypeVar("T")
Member = ClassicClient | ConsumerClient

TOPICS = ("apples", "pears", "plums")
GROUPS = ("one", "two")

MAX_WAIT_MS = 2 * 10_000 + 8000 + 3000 + 2000
"""The maximum duration of a pending request: a rebalance, the delays before it, and a margin."""


class World:
    """The state of one run."""

    def __init__(self, random: Random, *, max_trace: int) -> None:
        self.random = random
        self.clock = Clock()
        self.trace: deque[tuple[int, str, tuple[Any, ...]]] = deque(maxlen=max_trace)
        self.warnings: list[str] = []
        """Log messages of the coordinator."""
        self.is_reliable = False
        """Whether every message arrives exactly once."""
        self.disrupted_until_ms = 0
        """Until then records were rejected or not committed, or the coordinator did not serve requests."""
        self.config = _some_config(random)
        self.topics = TopicTable()
        for name in TOPICS[: random.randint(1, 3)]:
            self.topics.create(name, random.randint(1, 4))
        self.invariants = Invariants(self)
        self.log = MemoryLog(self.invariants.appended, self._rejected)
        self._uuids = 0
        self._offsets = 0
        self.coordinator = Coordinator(self.config, self.topics, self.log, self.clock, self.new_uuid)
        self.coordinator.load()
        self.outsider = Outsider(self, "outsider", GROUPS[0])
        self.producers = [TransactionalProducer(self, producer_id) for producer_id in range(3)]
        self.clients: list[Client] = [self.outsider, *self.producers]
        self._requests: dict[Client, deque[Call]] = {}
        self._responses: list[tuple[Call, Any]] = []
        self._before_restart: dict[str, Any] | None = None

    # -- for the clients -----------------------------------------------------------------------------------------------

    def new_uuid(self) -> str:
        self._uuids += 1
        return f"{self._uuids:08x}-0000-4000-8000-{self.random.getrandbits(48):012x}"

    def next_offset(self) -> int:
        """A new value each time, so that commits can be distinguished."""
        self._offsets += 1
        return self._offsets

    def some_of(self, items: Sequence[T]) -> list[T]:
        """A random selection of at least one item."""
        return self.random.sample(items, self.random.randint(1, len(items)))

    def some_group(self) -> str:
        return self.random.choice(GROUPS)

    @staticmethod
    def matches(regex: str, topic: str) -> bool:
        return re.fullmatch(regex, topic) is not None

    def is_consumer_group(self, group_id: str) -> bool:
        return isinstance(self.coordinator.states.groups.get(group_id), ConsumerGroup)

    def members(self) -> list[Member]:
        """The running processes that are members or try to become members."""
        return [one for one in self.clients if one.is_alive and isinstance(one, ClassicClient | ConsumerClient)]

    def members_of(self, group_id: str) -> Iterator[Member]:
        """The members of one group."""
        return (one for one in self.members() if one.group_id == group_id)

    def note(self, text: str, *values: Any) -> None:
        """Add a line to the trace, which is formatted only after a failure."""
        self.trace.append((self.clock.monotonic_ms, text, values))

    # -- messages ------------------------------------------------------------------------------------------------------

    def send(self, client: Client, slot: str, request: Any, api_version: int) -> Call:
        call = Call(client, slot, request, api_version, self._on_response)
        self._requests.setdefault(client, deque()).append(call)
        self.note("{} sends {}", client, request)
        return call

    def _on_response(self, call: Call, response: Any) -> None:
        call.topic_ids = self.topics.ids()
        self.invariants.on_response(call, response)
        self._responses.append((call, response))
        self.note("the response to {} is {}", call, response)

    def _deliver(self, client: Client) -> None:
        call = self._requests[client].popleft()
        is_resent = not isinstance(call.request, ConsumerGroupHeartbeatRequest)  # which a client builds again
        if is_resent and not self.is_reliable and self.random.random() < 0.02:
            # The connection was lost, and the client repeats the request: the server receives both.
            self.note("{} arrives twice", call)
            self._deliver_one(call.repeated())
        self._deliver_one(call)

    def _deliver_one(self, call: Call) -> None:
        self.note("{} arrives", call)
        call.delivered_ms = self.clock.monotonic_ms
        self.invariants.delivered(call)
        self.coordinator.deliver(call)

    def _deliver_response(self, number: int) -> None:
        call, response = self._responses.pop(number)
        if not self.is_reliable and self.random.random() < 0.02:
            self.note("the response to {} is lost", call)
        else:
            if call.client.waiting.get(call.slot) is call:
                self.invariants.heard(call, response)
            call.client.receive(call, response)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Take one of the possible steps, or advance the clock."""
        steps = self._possible_steps()
        if steps and self.random.random() < 0.93:
            self.random.choice(steps)()
        else:
            self.advance(self.random.choice((1, 10, 200)) if steps else None)

    def _possible_steps(self) -> list[Callable[[], None]]:
        now_ms = self.clock.monotonic_ms
        steps: list[Callable[[], None]] = []
        if self.coordinator.request_flush:
            steps.append(self.coordinator.flush)
        if not self.coordinator.is_active:
            steps.append(self.continue_loading)
        for client, requests in self._requests.items():
            if requests:
                steps.append(lambda client=client: self._deliver(client))  # type: ignore[misc]
        for number, (call, _) in enumerate(self._responses):
            if call.client.paused_until_ms <= now_ms:
                steps.append(lambda number=number: self._deliver_response(number))  # type: ignore[misc]
        for client in self.clients:
            at = client.wake_ms()
            if at is not None and at <= now_ms:
                steps.append(client.wake)
        return steps

    def advance(self, by_ms: int | None = None) -> None:
        """Advance the clock by ``by_ms``, or to the next deadline."""
        now_ms = self.clock.monotonic_ms
        if by_ms is None:
            times = [at for client in self.clients if (at := client.wake_ms()) is not None]
            times += [call.client.paused_until_ms for call, _ in self._responses]
            deadline = self.coordinator.runtime.next_deadline()
            if deadline is not None:
                times.append(deadline)
            by_ms = max(1, min(times, default=now_ms + 1000) - now_ms)
        self.clock.monotonic_ms = now_ms + by_ms
        if self.log.rejection or self.log.is_stalled or not self.coordinator.is_active:
            self.disrupted_until_ms = self.clock.monotonic_ms
        self.coordinator.tick()
        self.invariants.check_waiting_times(MAX_WAIT_MS)
        for gone in [one for one in self.clients if not one.is_alive and not self._requests.get(one)]:
            self.clients.remove(gone)
            self._requests.pop(gone, None)

    def settle(self, until_ms: int) -> None:
        """Run until this time, and deliver all messages immediately."""
        while self.clock.monotonic_ms < until_ms:
            self._settle_now()
            self.advance()
        self._settle_now()

    def _settle_now(self) -> None:
        for _ in range(1000):
            steps = self._possible_steps()
            if not steps:
                return
            steps[0]()
            self.invariants.after_step()
        raise AssertionError("requests and responses never end")

    # -- the coordinator -----------------------------------------------------------------------------------------------

    def _rejected(self) -> None:
        self.note("an append is rejected")
        self.invariants.rejected()

    def release_records(self) -> None:
        """Commit the uncommitted records."""
        self.log.release()
        self.coordinator.runtime.high_watermark_changed()

    def resign(self) -> None:
        """The coordinator resigns. All pending requests fail."""
        self.note("the coordinator resigns")
        wrote_all = self.log.rejection is None
        self.coordinator.resign()
        assert not self.invariants.unanswered, f"{[str(one) for one in self.invariants.unanswered]} have no response"
        self._before_restart = written_out(self.coordinator.states) if wrote_all else None

    def kill(self) -> None:
        """The process of the coordinator is killed: pending records, requests and connections are lost."""
        self.note("the coordinator is killed")
        self._before_restart = None
        lost = [*self.invariants.unanswered, *(call for calls in self._requests.values() for call in calls)]
        self.invariants.unanswered.clear()
        for calls in self._requests.values():
            calls.clear()
        for call in lost:
            call.client.disconnected(call)

    def restart(self, *, from_high_watermark: bool) -> None:
        """Start a coordinator: on the same broker, or on another one, which does not have the uncommitted records."""
        self.disrupted_until_ms = self.clock.monotonic_ms
        if from_high_watermark and self.log.end_offset > self.log.high_watermark:
            self._before_restart = None
            self.log.truncate()
            self.invariants.truncated()
            for producer in self.producers:
                producer.truncated(self.log.end_offset)
        self.log.release()
        self.note("the log ends at {}", self.log.end_offset)
        self.invariants.uncertain.clear()
        self.coordinator.start()

    def continue_loading(self) -> None:
        """Run one slice of loading. After the last one, the state must be that before the restart."""
        self.coordinator.continue_loading()
        if not self.coordinator.is_active:
            return
        self.note("the coordinator serves")
        self.invariants.check_state()
        if self._before_restart is not None:
            wrong = list(differences(written_out(self.coordinator.states), self._before_restart))
            assert not wrong, f"differences after the restart: {wrong}"

    def check_state(self) -> None:
        """Compare the state of the coordinator with its log."""
        if self.coordinator.is_active:
            self.coordinator.flush()
            self.invariants.check_state()


def _some_config(random: Random) -> GroupConfig:
    return GroupConfig(
        offsets_retention_ms=random.choice((20_000, 60_000, 3_600_000)),
        offsets_retention_check_interval_ms=random.choice((5000, 30_000)),
        group_initial_rebalance_delay_ms=random.choice((0, 500, 3000)),
        group_max_size=random.choice((3, 1000)) if random.random() < 0.1 else 1000,
        consumer_heartbeat_interval_ms=1000,
        consumer_min_heartbeat_interval_ms=1000,
        consumer_session_timeout_ms=8000,
        consumer_min_session_timeout_ms=8000,
        consumer_assignment_interval_ms=random.choice((0, 0, 1000)),
        consumer_max_size=random.choice((3, 1000)) if random.random() < 0.1 else 1000,
    )
