import asyncio

import pytest

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
