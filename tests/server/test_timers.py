import asyncio
import socket
import time
from random import Random

import pytest

from moldau.server.event_loop import MAX_EVENTS, new_event_loop, readiness_of
from moldau.server.timers import TICK_MS, TimerWheel


class FakeLoop:
    """The part of an event loop that the wheel uses, with a clock that tests move."""

    def __init__(self):
        self.now = 100.0
        self.handles = []

    def time(self):
        return self.now

    def call_at(self, when, callback):
        handle = FakeHandle(when, callback)
        self.handles.append(handle)
        return handle

    def advance(self, milliseconds):
        self.now += milliseconds / 1000
        while True:
            due = [h for h in self.handles if not h.cancelled and h.when <= self.now]
            if not due:
                return
            for handle in due:
                self.handles.remove(handle)
                handle.callback()

    @property
    def armed(self):
        return [h for h in self.handles if not h.cancelled]


class FakeHandle:
    def __init__(self, when, callback):
        self.when = when
        self.callback = callback
        self.cancelled = False

    def cancel(self):
        self.cancelled = True


@pytest.fixture
def loop():
    return FakeLoop()


def test_fires_when_due_and_not_before(loop):
    wheel = TimerWheel(loop)
    fired = []
    wheel.call_after(50, lambda: fired.append("a"))
    loop.advance(49)
    assert fired == []
    loop.advance(1 + TICK_MS)
    assert fired == ["a"]


def test_many_timers_of_one_tick_arm_the_loop_once(loop):
    wheel = TimerWheel(loop)
    for _ in range(1000):
        wheel.call_after(500, lambda: None)
    assert len(loop.armed) == 1


def test_an_earlier_deadline_rearms(loop):
    wheel = TimerWheel(loop)
    fired = []
    wheel.call_after(1000, lambda: fired.append("late"))
    wheel.call_after(10, lambda: fired.append("early"))
    loop.advance(20)
    assert fired == ["early"]
    loop.advance(1000)
    assert fired == ["early", "late"]


def test_cancelled_timers_do_not_fire(loop):
    wheel = TimerWheel(loop)
    fired = []
    timer = wheel.call_after(10, lambda: fired.append(1))
    timer.cancel()
    timer.cancel()
    loop.advance(100)
    assert fired == []


def test_a_callback_may_cancel_its_neighbour_of_the_same_tick(loop):
    wheel = TimerWheel(loop)
    fired = []
    second = None

    def first():
        fired.append("first")
        second.cancel()

    wheel.call_after(10, first)
    second = wheel.call_after(10, lambda: fired.append("second"))
    loop.advance(100)
    assert fired == ["first"]


def test_a_callback_may_add_a_timer(loop):
    wheel = TimerWheel(loop)
    fired = []
    wheel.call_after(10, lambda: wheel.call_after(10, lambda: fired.append("again")))
    loop.advance(15)
    assert fired == []
    loop.advance(15)
    assert fired == ["again"]


def test_a_failing_callback_does_not_stop_the_others(loop, caplog):
    wheel = TimerWheel(loop)
    fired = []
    wheel.call_after(10, lambda: 1 / 0)
    wheel.call_after(10, lambda: fired.append(1))
    loop.advance(100)
    assert fired == [1]
    assert "deadline" in caplog.text


def test_works_on_the_real_loop():
    async def run():
        wheel = TimerWheel(asyncio.get_running_loop())
        fired = asyncio.Event()
        wheel.call_after(5, fired.set)
        await asyncio.wait_for(fired.wait(), 60)
        wheel.close()

    asyncio.run(run())


def test_a_late_deadline_made_by_a_callback_does_not_hold_up_an_earlier_one(loop):
    wheel = TimerWheel(loop)
    fired = []
    wheel.call_after(10, lambda: wheel.call_after(30_000, lambda: fired.append("late")))
    wheel.call_after(50, lambda: fired.append("early"))
    loop.advance(20)
    loop.advance(50)
    assert fired == ["early"]


def test_a_deadline_in_whole_milliseconds_fires_when_the_clock_shows_it_and_no_tick_later(loop):
    wheel = TimerWheel(loop)
    loop.now = 100.0009  # 900 microseconds into millisecond 100000
    fired = []
    wheel.call_at(100_005, lambda: fired.append(loop.now))
    loop.advance(4)
    assert fired == []
    loop.advance(0.2)
    assert fired == [pytest.approx(100.0051)]


def test_deadlines_that_may_be_late_share_a_wake_up(loop):
    wheel = TimerWheel(loop)
    fired = []
    for microseconds in range(0, 2000, 100):
        loop.now = 100 + microseconds / 1e6
        wheel.call_after(50, lambda: fired.append(loop.now))
    assert len(wheel._buckets) == 1
    loop.advance(60)
    assert len(fired) == 20


def test_cancelled_timers_leave_nothing_behind(loop):
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


def test_cancelled_timers_that_were_due_soon_are_gone_when_their_time_has_passed(loop):
    wheel = TimerWheel(loop)
    for _ in range(100_000):
        loop.advance(0.1)
        wheel.call_after(500, lambda: None).cancel()
        assert len(wheel._buckets) <= 500 / TICK_MS + 2
    loop.advance(501 + TICK_MS)
    assert not wheel._buckets
    assert not loop.armed


def test_deadlines_are_rounded_up_to_the_next_tick(loop):
    wheel = TimerWheel(loop)
    for microseconds in range(0, 5000, 100):
        loop.now = 100 + microseconds / 1e6
        deadline_ms = loop.now * 1000 + 10
        timer = wheel.call_after(10, lambda: None)
        (tick,) = (tick for tick, bucket in wheel._buckets.items() if timer in bucket)
        assert tick % TICK_MS == 0
        assert deadline_ms < tick <= deadline_ms + TICK_MS + 0.001


def test_random_timers_fire_in_order_and_as_often_as_they_were_not_cancelled(loop):
    for seed in range(4):
        random = Random(seed)
        wheel = TimerWheel(loop)
        pending, fired = {}, []
        for number in range(600):
            delay = random.choice([0, 1, 5, 1000, random.randrange(100_000)])

            def fire(number=number, fired=fired, pending=pending):
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
    """A peer of a server in this process: each line that arrives moves its deadline."""

    def __init__(self, loop, wheel, session_ms):
        self.loop, self.wheel, self.session_ms = loop, wheel, session_ms
        self.client, self.server = socket.socketpair()
        self.server.setblocking(False)
        self.expired = False
        self.timer = None
        self.moved()
        readiness_of(loop).add_reader(self.server.fileno(), self.readable)

    def readable(self):
        self.server.recv(100)
        self.loop.call_soon(self.moved)  # as what is decided at the end of the turn

    def moved(self):
        if self.timer is not None:
            self.timer.cancel()
        self.timer = self.wheel.call_after(self.session_ms, self.expire)

    def expire(self):
        self.expired = True

    def close(self):
        readiness_of(self.loop).remove_reader(self.server.fileno())
        self.client.close()
        self.server.close()


@pytest.mark.parametrize("make_loop", [new_event_loop, asyncio.new_event_loop])
@pytest.mark.parametrize("members", [1, 3 * MAX_EVENTS])
def test_what_arrived_during_a_pause_is_served_before_anything_expires(make_loop, members):
    async def run():
        loop = asyncio.get_running_loop()
        wheel = TimerWheel(loop)
        peers = [Member(loop, wheel, session_ms=200) for _ in range(members)]
        silent = Member(loop, wheel, session_ms=200)
        await asyncio.sleep(0)
        for peer in peers:
            peer.client.send(b"heartbeat")
        time.sleep(0.3)  # noqa: ASYNC251 - the pause: the loop does not run, and deadlines pass
        await asyncio.sleep(0.05)
        assert silent.expired
        assert not any(peer.expired for peer in peers)
        for peer in [*peers, silent]:
            peer.close()
        wheel.close()

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(run())
