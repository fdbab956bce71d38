from __future__ import annotations

import asyncio
import socket
import time
from random import Random
from typing import Any

import pytest

from moldau.server.concurrency.event_loop import MAX_EVENTS, new_event_loop, readiness_of
from moldau.server.concurrency.timers import FIRE_MS, TICK_MS, TimerWheel


class FakeLoop:
    """The part of an event loop that the timer wheel uses, with a clock that tests move."""

    def __init__(self) -> None:
        self.now = 100.0
        self.handles: list[Any] = []

    def time(self) -> Any:
        return self.now

    def call_at(self, when: Any, callback: Any) -> Any:
        handle = FakeHandle(when, callback)
        self.handles.append(handle)
        return handle

    def advance(self, milliseconds: Any) -> None:
        self.now += milliseconds / 1000
        while True:
            due = [h for h in self.handles if not h.cancelled and h.when <= self.now]
            if not due:
                return
            for handle in due:
                self.handles.remove(handle)
                handle.callback()

    @property
    def armed(self) -> list[Any]:
        return [h for h in self.handles if not h.cancelled]


class FakeHandle:
    def __init__(self, when: Any, callback: Any) -> None:
        self.when = when
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


@pytest.fixture
def loop() -> FakeLoop:
    return FakeLoop()


def test_many_simultaneous_deadlines_fire_in_several_iterations(loop: Any) -> None:
    now = [0.0]
    wheel = TimerWheel(loop, clock=lambda: now[0])
    call_at_before = loop.call_at
    turns = []
    loop.call_at = lambda when, callback: (turns.append(0), call_at_before(when, callback))[1]  # type: ignore[func-returns-value]

    def fire() -> None:
        turns[-1] += 1
        now[0] += FIRE_MS / 4000

    timers = [wheel.call_after(50, fire) for _ in range(11)]
    wheel.call_after(50 + 2 * TICK_MS, fire)
    del turns[:]
    turns.append(0)
    timers[9].cancel()
    loop.advance(100)
    assert [count for count in turns if count] == [4, 4, 3]
    wheel.call_after(50, fire)
    loop.advance(100)
    assert sum(turns) == 12


def test_deadlines_that_are_added_while_many_fire_delay_no_others(loop: Any) -> None:
    """An expired session may start a rebalance, whose deadline is later than those that are added after it."""
    now = [0.0]
    wheel = TimerWheel(loop, clock=lambda: now[0])
    fired = []

    def fire_and_wait_for_long() -> None:
        now[0] += FIRE_MS / 1000
        wheel.call_after(30_000, lambda: fired.append("long"))

    for _ in range(3):
        wheel.call_after(50, fire_and_wait_for_long)
    loop.advance(100)
    assert len(loop.armed) == 1
    wheel.call_after(50, lambda: fired.append("short"))
    loop.advance(100)
    assert fired == ["short"]
    loop.advance(30_000)
    assert fired == ["short"] + ["long"] * 3
    assert not loop.armed


def test_a_timer_fires_when_due_and_not_before(loop: Any) -> None:
    wheel = TimerWheel(loop)
    fired = []
    wheel.call_after(50, lambda: fired.append("a"))
    loop.advance(49)
    assert fired == []
    loop.advance(1 + TICK_MS)
    assert fired == ["a"]


def test_many_timers_of_one_tick_arm_the_loop_once(loop: Any) -> None:
    wheel = TimerWheel(loop)
    for _ in range(1000):
        wheel.call_after(500, lambda: None)
    assert len(loop.armed) == 1


def test_an_earlier_deadline_rearms_the_loop(loop: Any) -> None:
    wheel = TimerWheel(loop)
    fired = []
    wheel.call_after(1000, lambda: fired.append("late"))
    wheel.call_after(10, lambda: fired.append("early"))
    loop.advance(20)
    assert fired == ["early"]
    loop.advance(1000)
    assert fired == ["early", "late"]


def test_cancelled_timers_do_not_fire(loop: Any) -> None:
    wheel = TimerWheel(loop)
    fired = []
    timer = wheel.call_after(10, lambda: fired.append(1))
    timer.cancel()
    timer.cancel()
    loop.advance(100)
    assert fired == []


def test_a_callback_may_cancel_a_timer_of_the_same_tick(loop: Any) -> None:
    wheel = TimerWheel(loop)
    fired = []
    second: Any = None

    def first() -> None:
        fired.append("first")
        second.cancel()

    wheel.call_after(10, first)
    second = wheel.call_after(10, lambda: fired.append("second"))
    loop.advance(100)
    assert fired == ["first"]


def test_a_callback_may_add_a_timer(loop: Any) -> None:
    wheel = TimerWheel(loop)
    fired = []
    wheel.call_after(10, lambda: wheel.call_after(10, lambda: fired.append("again")))  # type: ignore[arg-type]
    loop.advance(15)
    assert fired == []
    loop.advance(15)
    assert fired == ["again"]


def test_a_failing_callback_does_not_stop_the_others(loop: Any, caplog: pytest.LogCaptureFixture) -> None:
    wheel = TimerWheel(loop)
    fired = []
    wheel.call_after(10, lambda: 1 / 0)  # type: ignore[arg-type]
    wheel.call_after(10, lambda: fired.append(1))
    loop.advance(100)
    assert fired == [1]
    assert "A timer callback failed" in caplog.text


def test_timers_work_on_a_real_event_loop() -> None:
    async def run() -> None:
        wheel = TimerWheel(asyncio.get_running_loop())
        fired = asyncio.Event()
        wheel.call_after(5, fired.set)
        await asyncio.wait_for(fired.wait(), 60)
        wheel.close()

    asyncio.run(run())


def test_a_late_deadline_added_by_a_callback_does_not_delay_an_earlier_one(loop: Any) -> None:
    wheel = TimerWheel(loop)
    fired = []
    wheel.call_after(10, lambda: wheel.call_after(30_000, lambda: fired.append("late")))  # type: ignore[arg-type]
    wheel.call_after(50, lambda: fired.append("early"))
    loop.advance(20)
    loop.advance(50)
    assert fired == ["early"]


def test_a_deadline_in_whole_milliseconds_fires_in_its_tick(loop: Any) -> None:
    wheel = TimerWheel(loop)
    loop.now = 100.0009  # 900 microseconds into millisecond 100000
    fired = []
    wheel.call_at(100_005, lambda: fired.append(loop.now))
    loop.advance(4)
    assert fired == []
    loop.advance(0.2)
    assert fired == [pytest.approx(100.0051)]


def test_deadlines_with_slack_share_a_wake_up(loop: Any) -> None:
    wheel = TimerWheel(loop)
    fired = []
    for microseconds in range(0, 2000, 100):
        loop.now = 100 + microseconds / 1e6
        wheel.call_after(50, lambda: fired.append(loop.now))
    assert len(wheel._buckets) == 1
    loop.advance(60)
    assert len(fired) == 20


def test_cancelled_timers_use_no_memory(loop: Any) -> None:
    wheel = TimerWheel(loop)
    kept = [wheel.call_after(1000 + number, lambda: None) for number in range(0, 100, 10)]
    for number in range(100_000):
        loop.now += 0.006
        wheel.call_after(600_000 + number, lambda: None).cancel()
        if number == 50:
            assert len(wheel._buckets) > 50
    assert len(wheel._buckets) < 100
    assert len(wheel._ticks) == len(wheel._buckets)
    assert len(loop.armed) == 1
    fired = []
    for timer in kept:
        timer._callback = lambda: fired.append(1)
    loop.advance(1_000_000)
    assert len(fired) == len(kept)
    assert not wheel._buckets
    assert not loop.armed


def test_cancelled_timers_wake_nothing(loop: Any) -> None:
    """A request that is sent again and again, and whose timeout is canceled by the response."""
    wheel = TimerWheel(loop)
    sent = []

    def send() -> None:
        sent.append(loop.now)
        timeout = wheel.call_after(4500, lambda: None)
        timeout.cancel()
        wheel.call_after(2000, send)

    send()
    wakes = set()
    while len(sent) < 10:
        (handle,) = loop.armed
        loop.now = max(loop.now, handle.when)
        wakes.add(loop.now)
        loop.advance(0)
    assert sorted(wakes) == sent[1:]


def test_cancelled_timers_that_were_due_soon_are_removed_when_they_are_due(loop: Any) -> None:
    wheel = TimerWheel(loop)
    for _ in range(100_000):
        loop.advance(0.1)
        wheel.call_after(500, lambda: None).cancel()
        assert len(wheel._buckets) <= 500 / TICK_MS + 2
    loop.advance(501 + TICK_MS)
    assert not wheel._buckets
    assert not loop.armed


def test_deadlines_are_rounded_up_to_the_next_tick(loop: Any) -> None:
    wheel = TimerWheel(loop)
    for microseconds in range(0, 5000, 100):
        loop.now = 100 + microseconds / 1e6
        deadline_ms = loop.now * 1000 + 10
        timer = wheel.call_after(10, lambda: None)
        (tick,) = (tick for tick, bucket in wheel._buckets.items() if timer in bucket)
        assert tick % TICK_MS == 0
        assert deadline_ms < tick <= deadline_ms + TICK_MS + 0.001


def test_random_timers_fire_in_order_unless_they_are_cancelled(loop: Any) -> None:
    for seed in range(4):
        random = Random(seed)
        wheel = TimerWheel(loop)
        pending: dict[int, Any] = {}
        fired: list[Any] = []
        for number in range(600):
            delay = random.choice([0, 1, 5, 1000, random.randrange(100_000)])

            def fire(number: Any = number, fired: Any = fired, pending: Any = pending) -> None:
                fired.append((pending.pop(number)[1], number))

            if random.random() < 0.5:
                pending[number] = wheel.call_after(delay, fire), loop.now * 1000 + delay
            else:
                deadline = int(loop.now * 1000) + delay
                pending[number] = wheel.call_at(deadline, fire), deadline
            if random.random() < 0.7:
                cancelled = random.choice(list(pending))
                pending.pop(cancelled)[0].cancel()
            if random.random() < 0.3:
                loop.advance(random.choice([0.3, 1, 7]))
                assert all(deadline >= loop.now * 1000 - TICK_MS for _, deadline in pending.values())
        loop.advance(200_000)
        assert not pending
        assert not wheel._buckets


class Member:
    """A peer of a server in this process. Each line that arrives moves the deadline.

    Only the first deadline exists: on a slow machine a second one could expire rightly.
    """

    def __init__(self, loop: Any, wheel: Any, session_ms: Any, expired: Any) -> None:
        self.loop, self.wheel = loop, wheel
        self.client, self.server = socket.socketpair()
        self.server.setblocking(False)
        self.served = False
        self.timer = wheel.call_after(session_ms, lambda: expired(self))
        readiness_of(loop).add_reader(self.server.fileno(), self.readable)

    def readable(self) -> None:
        self.server.recv(100)
        self.loop.call_soon(self.move_deadline)  # like decisions at the end of an iteration

    def move_deadline(self) -> None:
        self.timer.cancel()
        self.served = True

    def close(self) -> None:
        readiness_of(self.loop).remove_reader(self.server.fileno())
        self.client.close()
        self.server.close()


@pytest.mark.parametrize("make_loop", [new_event_loop, asyncio.new_event_loop])
@pytest.mark.parametrize("members", [1, 3 * MAX_EVENTS])
def test_requests_that_arrived_during_a_pause_are_served_before_deadlines_expire(make_loop: Any, members: Any) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        wheel = TimerWheel(loop)
        expired = []
        first = asyncio.Event()

        def expire(member: Any) -> None:
            expired.append(member)
            first.set()

        peers = [Member(loop, wheel, 200, expire) for _ in range(members)]
        silent = Member(loop, wheel, 200, expire)
        for peer in peers:
            peer.client.send(b"heartbeat")
        time.sleep(0.3)  # noqa: ASYNC251 - the pause: the loop does not run, and deadlines pass
        await first.wait()
        assert all(peer.served for peer in peers)
        assert expired == [silent]
        for peer in [*peers, silent]:
            peer.close()
        wheel.close()

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(run())
