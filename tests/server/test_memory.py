from random import Random

from moldau.server.memory import INTERVALS, SMALL_FRAME_BYTES, STALL_MS, MemoryBudget

LARGE = SMALL_FRAME_BYTES + 1
SMALL = SMALL_FRAME_BYTES


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


class Producer(Peer):
    served = False

    def resume_reading(self):
        self.served = self.served or self.budget.grow(self, LARGE, LARGE)


def make(limit):
    clock = [0.0]
    timers = FakeTimers()
    # Large frames have three quarters of it.
    budget = MemoryBudget(limit * 4 // 3, timers, lambda: clock[0])
    log = []
    return budget, timers, clock, log, [Peer(budget, name, log) for name in "abc"]


def test_grows_up_to_the_limit_and_then_waits():
    budget, _, _, log, (a, b, c) = make(100)
    assert budget.grow(a, 60, LARGE)
    assert budget.grow(b, 40, LARGE)
    assert not budget.grow(c, 1, LARGE)
    assert budget.used_bytes == 100
    budget.release(b)
    assert log == [("resume", "c")]
    assert budget.grow(c, 40, LARGE)


def test_the_oldest_holder_may_always_grow_so_that_somebody_finishes():
    budget, _, _, log, (a, b, _) = make(100)
    assert budget.grow(a, 50, LARGE)
    assert budget.grow(b, 50, LARGE)
    assert not budget.grow(b, 10, LARGE)
    assert budget.grow(a, 500, LARGE)
    budget.release(a)
    assert log == [("resume", "b")]
    assert budget.grow(b, 10, LARGE)


def test_one_frame_larger_than_the_limit_is_possible():
    budget, _, _, _, (a, _, _) = make(10)
    assert budget.grow(a, 1000, LARGE)


def test_a_silent_holder_is_closed_when_others_wait_for_its_memory():
    budget, timers, clock, log, (a, b, _) = make(100)
    assert budget.grow(a, 100, LARGE)
    assert not budget.grow(b, 10, LARGE)
    clock[0] += STALL_MS / 1000 + 0.001
    timers.fire()
    assert log == [("stalled", "a"), ("resume", "b")]
    assert budget.used_bytes == 0


def test_a_slow_holder_that_still_sends_is_kept():
    budget, timers, clock, log, (a, b, _) = make(100)
    assert budget.grow(a, 100, LARGE)
    assert not budget.grow(b, 10, LARGE)
    for interval in range(1, INTERVALS):
        budget.progress(a, LARGE - -(-LARGE * interval // INTERVALS))
        clock[0] += STALL_MS / 1000
        timers.fire()
        assert log == []
        assert timers.pending, "it goes on watching while a connection waits"


def test_a_holder_that_drips_is_closed_while_another_waits():
    budget, timers, clock, log, (a, b, _) = make(100)
    assert budget.grow(a, 100, LARGE)
    assert not budget.grow(b, 10, LARGE)
    budget.progress(a, LARGE - 1000)
    clock[0] += STALL_MS / 1000
    timers.fire()
    assert log == [("stalled", "a"), ("resume", "b")]


def test_a_holder_that_sends_quickly_at_first_and_then_drips_is_closed_when_it_falls_behind():
    budget, timers, _, log, (a, b, _) = make(100)
    assert budget.grow(a, 100, LARGE)
    assert not budget.grow(b, 10, LARGE)
    budget.progress(a, LARGE // 2)
    for _ in range(INTERVALS // 2):
        timers.fire()
        assert log == []
    timers.fire()
    assert log == [("stalled", "a"), ("resume", "b")]


def test_the_least_rate_counts_from_when_another_begins_to_wait():
    budget, timers, clock, log, (a, b, _) = make(100)
    assert budget.grow(a, 100, LARGE)
    clock[0] += 3600
    budget.progress(a, 1200)  # slow, and kept: no other connection waits
    assert not budget.grow(b, 10, LARGE)
    budget.progress(a, 1100)
    timers.fire()
    assert log == []
    timers.fire()
    assert log == [("stalled", "a"), ("resume", "b")]


def test_a_wait_that_has_ended_frees_the_holder_from_the_least_rate():
    budget, timers, _, log, (a, b, c) = make(100)
    assert budget.grow(a, 90, LARGE)
    assert not budget.grow(b, 20, LARGE)
    budget.release(b)
    timers.fire()
    assert not timers.pending
    budget.progress(a, 1200)
    assert not budget.grow(c, 20, LARGE)
    budget.progress(a, 1100)
    timers.fire()
    assert log == []


def test_new_frames_queue_behind_one_that_has_waited_for_long():
    budget, _, clock, log, (a, b, c) = make(100)
    assert budget.grow(a, 60, LARGE)
    assert not budget.grow(b, 60, LARGE)
    clock[0] += 1
    assert budget.grow(c, 10, LARGE), "it fits, and the other has not waited for long"
    budget.release(c)
    assert not budget.grow(b, 60, LARGE)
    clock[0] += STALL_MS / 1000
    assert not budget.grow(c, 10, LARGE)
    assert budget.grow(a, 10, LARGE), "a frame that has begun goes on"
    log.clear()
    budget.release(a)
    assert log == [("resume", "b"), ("resume", "c")]
    assert budget.grow(b, 60, LARGE)
    assert budget.grow(c, 10, LARGE)


def test_small_frames_do_not_queue_behind_large_ones():
    budget, _, clock, _, (a, b, c) = make(900)
    assert budget.grow(a, 900, LARGE)
    assert not budget.grow(b, 1, LARGE)
    clock[0] += STALL_MS / 1000
    assert budget.grow(c, 300, SMALL)


def test_a_waiting_producer_is_served_in_bounded_time_however_many_peers_drip():
    """Peers that keep to the least rate, and come back with a new frame as soon as they have lost one."""
    for seed in range(20):
        random = Random(seed)
        clock = [0.0]
        timers = FakeTimers()
        budget = MemoryBudget(100 * LARGE * 4 // 3, timers, lambda: clock[0])  # noqa: B023 - used in this round only
        log = []
        missing = {}

        def begin(number):
            peer = Peer(budget, number, log)  # noqa: B023
            if budget.grow(peer, LARGE, LARGE):  # noqa: B023
                missing[peer] = LARGE  # noqa: B023

        for number in range(100):
            begin(number)
        producer = Producer(budget, "producer", log)
        assert not budget.grow(producer, LARGE, LARGE)
        for interval in range(INTERVALS + 2):
            for peer in list(missing):
                missing[peer] -= random.randrange(LARGE // INTERVALS, LARGE // 6)
                if missing[peer] <= 0 or ("stalled", peer.name) in log:
                    del missing[peer]
                    budget.release(peer)
                    begin(f"{interval} {peer.name}")
                else:
                    budget.progress(peer, missing[peer])
            if producer.served:
                break
            clock[0] += STALL_MS / 1000
            timers.fire()
        else:
            raise AssertionError("the producer starved")


def test_without_waiters_nobody_is_closed():
    budget, timers, clock, log, (a, b, _) = make(100)
    assert budget.grow(a, 100, LARGE)
    assert not budget.grow(b, 10, LARGE)
    budget.release(b)  # it went away
    clock[0] += 1000
    timers.fire()
    assert log == []


def test_releasing_what_was_never_held_is_fine():
    budget, _, _, _, (a, _, _) = make(100)
    budget.release(a)
    assert budget.used_bytes == 0


def test_large_frames_leave_room_for_small_ones():
    budget, _, _, _, (a, b, c) = make(900)
    assert budget.grow(a, 900, LARGE)
    assert not budget.grow(b, 1, LARGE)
    assert budget.grow(c, 300, SMALL)
    budget.release(c)
    assert budget.grow(a, 500, LARGE), "the oldest goes on"
    assert budget.grow(c, 300, SMALL), "and takes nothing of what is reserved"


def test_small_frames_may_use_everything_that_is_free():
    budget, _, _, _, (a, b, _) = make(900)
    assert budget.grow(a, 1000, SMALL)
    assert not budget.grow(b, 500, SMALL)
    assert budget.used_bytes == 1000


def test_a_kept_request_counts_until_it_is_given_back():
    budget, _, _, log, (a, b, _) = make(100)
    assert budget.grow(a, 100, LARGE)
    kept = budget.keep(a)
    assert budget.used_bytes == kept == 100
    assert budget.grow(b, 1, LARGE), "nobody else holds anything"
    budget.release(b)
    budget.give_back(kept)
    assert budget.used_bytes == 0
    assert log == []
