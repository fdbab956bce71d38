from moldau.server.memory import STALL_MS, MemoryBudget


class FakeTimers:
    def __init__(self):
        self.pending = []

    def call_after(self, delay_ms, callback):
        self.pending.append((delay_ms, callback))
        return self

    def cancel(self):
        raise AssertionError("not used")

    def fire(self):
        pending, self.pending = self.pending, []
        for _, callback in pending:
            callback()


class Peer:
    def __init__(self, budget, name, log):
        self.budget = budget
        self.name = name
        self.log = log
        self.wants = 0

    def resume_reading(self):
        self.log.append(("resume", self.name))

    def close_stalled(self):
        self.log.append(("stalled", self.name))
        self.budget.release(self)


def make(limit):
    clock = [0.0]
    timers = FakeTimers()
    budget = MemoryBudget(limit, timers, lambda: clock[0])
    log = []
    return budget, timers, clock, log, [Peer(budget, name, log) for name in "abc"]


def test_grows_up_to_the_limit_and_then_waits():
    budget, _, _, log, (a, b, c) = make(100)
    assert budget.grow(a, 60)
    assert budget.grow(b, 40)
    assert not budget.grow(c, 1)
    assert budget.used_bytes == 100
    budget.release(b)
    assert log == [("resume", "c")]
    assert budget.grow(c, 40)


def test_the_oldest_holder_may_always_grow_so_that_somebody_finishes():
    budget, _, _, log, (a, b, _) = make(100)
    assert budget.grow(a, 50)
    assert budget.grow(b, 50)
    assert not budget.grow(b, 10)
    assert budget.grow(a, 500)
    budget.release(a)
    assert log == [("resume", "b")]
    assert budget.grow(b, 10)


def test_one_frame_larger_than_the_limit_is_possible():
    budget, _, _, _, (a, _, _) = make(10)
    assert budget.grow(a, 1000)


def test_a_silent_holder_is_closed_when_others_wait_for_its_memory():
    budget, timers, clock, log, (a, b, _) = make(100)
    assert budget.grow(a, 100)
    assert not budget.grow(b, 10)
    clock[0] += STALL_MS / 1000 + 0.001
    timers.fire()
    assert log == [("stalled", "a"), ("resume", "b")]
    assert budget.used_bytes == 0


def test_a_slow_holder_that_still_sends_is_kept():
    budget, timers, clock, log, (a, b, _) = make(100)
    assert budget.grow(a, 100)
    assert not budget.grow(b, 10)
    clock[0] += STALL_MS / 1000 - 1
    budget.progress(a)
    clock[0] += 2
    timers.fire()
    assert log == []
    assert timers.pending, "it goes on watching while somebody waits"


def test_without_waiters_nobody_is_closed():
    budget, timers, clock, log, (a, b, _) = make(100)
    assert budget.grow(a, 100)
    assert not budget.grow(b, 10)
    budget.release(b)  # it went away
    clock[0] += 1000
    timers.fire()
    assert log == []


def test_releasing_what_was_never_held_is_fine():
    budget, _, _, _, (a, _, _) = make(100)
    budget.release(a)
    assert budget.used_bytes == 0
