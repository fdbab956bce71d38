"""Where a simulation takes place: clients, the way between them and the coordinator, and time.

One `random.Random` decides everything: what happens next, what gets lost, when time passes. So a seed is a whole
history. Requests and answers take any time, but what one client sends arrives in the order in which it was sent, as on
its connection.
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

LONGEST_WAIT_MS = 2 * 10_000 + 8000 + 3000 + 2000
"""Of a parked request: a rebalance, what may come before it, and some air."""


class World:
    """Everything that a run is about."""

    def __init__(self, random: Random, *, longest_trace: int) -> None:
        self.random = random
        self.clock = Clock()
        self.trace: deque[tuple[int, str, tuple[Any, ...]]] = deque(maxlen=longest_trace)
        self.complaints: list[str] = []
        """What the coordinator has written into its log of messages."""
        self.is_reliable = False
        """Nothing gets lost or comes twice any more."""
        self.hindered_until_ms = 0
        """Until then records were rejected or not committed, or the coordinator did not serve."""
        self.config = _some_config(random)
        self.topics = TopicTable()
        for name in TOPICS[: random.randint(1, 3)]:
            self.topics.create(name, random.randint(1, 4))
        self.invariants = Invariants(self)
        self.log = MemoryLog(self.invariants.appended, self._refused)
        self._uuids = 0
        self._offsets = 0
        self.coordinator = Coordinator(self.config, self.topics, self.log, self.clock, self.new_uuid)
        self.coordinator.load()
        self.outsider = Outsider(self, "outsider", GROUPS[0])
        self.producers = [TransactionalProducer(self, producer_id) for producer_id in range(3)]
        self.clients: list[Client] = [self.outsider, *self.producers]
        self._requests: dict[Client, deque[Call]] = {}
        self._answers: list[tuple[Call, Any]] = []
        self._before_restart: dict[str, Any] | None = None

    # -- what clients need ---------------------------------------------------------------------------------------------

    def new_uuid(self) -> str:
        self._uuids += 1
        return f"{self._uuids:08x}-0000-4000-8000-{self.random.getrandbits(48):012x}"

    def next_offset(self) -> int:
        """A new value each time, so that commits can be distinguished."""
        self._offsets += 1
        return self._offsets

    def some_of(self, items: Sequence[T]) -> list[T]:
        """At least one."""
        return self.random.sample(items, self.random.randint(1, len(items)))

    def some_group(self) -> str:
        return self.random.choice(GROUPS)

    @staticmethod
    def matches(regex: str, topic: str) -> bool:
        return re.fullmatch(regex, topic) is not None

    def is_consumer_group(self, group_id: str) -> bool:
        return isinstance(self.coordinator.states.groups.get(group_id), ConsumerGroup)

    def members(self) -> list[Member]:
        """The live processes that are in a group, or want to be."""
        return [one for one in self.clients if one.is_alive and isinstance(one, ClassicClient | ConsumerClient)]

    def members_of(self, group_id: str) -> Iterator[Member]:
        """Those of one group."""
        return (one for one in self.members() if one.group_id == group_id)

    def note(self, text: str, *values: Any) -> None:
        """For the analysis of a failure; formatted only then."""
        self.trace.append((self.clock.monotonic_ms, text, values))

    # -- the way -------------------------------------------------------------------------------------------------------

    def send(self, client: Client, slot: str, request: Any, api_version: int) -> Call:
        call = Call(client, slot, request, api_version, self._answered)
        self._requests.setdefault(client, deque()).append(call)
        self.note("{} sends {}", client, request)
        return call

    def _answered(self, call: Call, response: Any) -> None:
        call.topic_ids = self.topics.ids()
        self.invariants.answered(call, response)
        self._answers.append((call, response))
        self.note("{} is answered {}", call, response)

    def _deliver(self, client: Client) -> None:
        call = self._requests[client].popleft()
        is_resent = not isinstance(call.request, ConsumerGroupHeartbeatRequest)  # which is created again
        if is_resent and not self.is_reliable and self.random.random() < 0.02:
            # The connection broke, and what had been sent is sent again: the server sees both.
            self.note("{} arrives twice", call)
            self._deliver_one(call.again())
        self._deliver_one(call)

    def _deliver_one(self, call: Call) -> None:
        self.note("{} arrives", call)
        call.delivered_ms = self.clock.monotonic_ms
        self.invariants.delivered(call)
        self.coordinator.deliver(call)

    def _hand_over(self, number: int) -> None:
        call, response = self._answers.pop(number)
        if not self.is_reliable and self.random.random() < 0.02:
            self.note("the answer to {} gets lost", call)
        else:
            if call.client.waiting.get(call.slot) is call:
                self.invariants.heard(call, response)
            call.client.receive(call, response)

    # -- one thing after the other -------------------------------------------------------------------------------------

    def step(self) -> None:
        """One possible event happens, or time passes."""
        things = self._what_can_go_on()
        if things and self.random.random() < 0.93:
            self.random.choice(things)()
        else:
            self.let_time_pass(self.random.choice((1, 10, 200)) if things else None)

    def _what_can_go_on(self) -> list[Callable[[], None]]:
        now_ms = self.clock.monotonic_ms
        things: list[Callable[[], None]] = []
        if self.coordinator.request_flush:
            things.append(self.coordinator.flush)
        if not self.coordinator.is_active:
            things.append(self.go_on_loading)
        for client, requests in self._requests.items():
            if requests:
                things.append(lambda client=client: self._deliver(client))  # type: ignore[misc]
        for number, (call, _) in enumerate(self._answers):
            if call.client.paused_until_ms <= now_ms:
                things.append(lambda number=number: self._hand_over(number))  # type: ignore[misc]
        for client in self.clients:
            at = client.wake_ms()
            if at is not None and at <= now_ms:
                things.append(client.wake)
        return things

    def let_time_pass(self, by_ms: int | None = None) -> None:
        """To where something happens next, or by so much."""
        now_ms = self.clock.monotonic_ms
        if by_ms is None:
            times = [at for client in self.clients if (at := client.wake_ms()) is not None]
            times += [call.client.paused_until_ms for call, _ in self._answers]
            deadline = self.coordinator.runtime.next_deadline()
            if deadline is not None:
                times.append(deadline)
            by_ms = max(1, min(times, default=now_ms + 1000) - now_ms)
        self.clock.monotonic_ms = now_ms + by_ms
        if self.log.refusal or self.log.is_stalled or not self.coordinator.is_active:
            self.hindered_until_ms = self.clock.monotonic_ms
        self.coordinator.tick()
        self.invariants.nobody_waits_too_long(LONGEST_WAIT_MS)
        for gone in [one for one in self.clients if not one.is_alive and not self._requests.get(one)]:
            self.clients.remove(gone)
            self._requests.pop(gone, None)

    def settle(self, until_ms: int) -> None:
        """Let everything go its way until then, requests and answers at once."""
        while self.clock.monotonic_ms < until_ms:
            self._settle_now()
            self.let_time_pass()
        self._settle_now()

    def _settle_now(self) -> None:
        for _ in range(1000):
            things = self._what_can_go_on()
            if not things:
                return
            things[0]()
            self.invariants.after_step()
        raise AssertionError("requests and responses follow each other without end")

    # -- the coordinator -----------------------------------------------------------------------------------------------

    def _refused(self) -> None:
        self.note("records are refused")
        self.invariants.refused()

    def release_records(self) -> None:
        """Pending records are committed."""
        self.log.release()
        self.coordinator.runtime.high_watermark_changed()

    def resign(self) -> None:
        """The coordinator resigns and answers all waiting callers."""
        self.note("the coordinator resigns")
        wrote_all = self.log.refusal is None
        self.coordinator.resign()
        assert not self.invariants.unanswered, f"{[str(one) for one in self.invariants.unanswered]} are left behind"
        self._before_restart = written_out(self.coordinator.states) if wrote_all else None

    def kill(self) -> None:
        """The coordinator's process ends: what waited in its memory is gone, and so are the connections."""
        self.note("the coordinator is killed")
        self._before_restart = None
        lost = [*self.invariants.unanswered, *(call for calls in self._requests.values() for call in calls)]
        self.invariants.unanswered.clear()
        for calls in self._requests.values():
            calls.clear()
        for call in lost:
            call.client.disconnected(call)

    def restart(self, *, from_high_watermark: bool) -> None:
        """A coordinator starts: the same broker, or another one, without the records above the high watermark."""
        self.hindered_until_ms = self.clock.monotonic_ms
        if from_high_watermark and self.log.end_offset > self.log.high_watermark:
            self._before_restart = None
            self.log.truncate()
            self.invariants.truncated()
            for producer in self.producers:
                producer.truncated(self.log.end_offset)
        self.log.release()
        self.note("the log ends at {}", self.log.end_offset)
        self.invariants.unsure.clear()
        self.coordinator.start()

    def go_on_loading(self) -> None:
        """One slice. At the end everything is known again."""
        self.coordinator.go_on_loading()
        if not self.coordinator.is_active:
            return
        self.note("the coordinator serves")
        self.invariants.check_state()
        if self._before_restart is not None:
            wrong = list(differences(written_out(self.coordinator.states), self._before_restart))
            assert not wrong, f"now and before the restart {wrong}"

    def check_state(self) -> None:
        """What the coordinator knows is what its log says."""
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
