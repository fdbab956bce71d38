from __future__ import annotations

from random import Random
from typing import Any

from moldau.server.network.memory import INTERVALS, SMALL_FRAME_BYTES, STALL_MS, MemoryBudget

LARGE = SMALL_FRAME_BYTES + 1
SMALL = SMALL_FRAME_BYTES


class FakeTimers:
    def __init__(self) -> None:
        self.pending: list[Any] = []

    def call_after(self, delay_ms: float, callback: Any) -> Any:
        self.pending.append((delay_ms, callback))
        return self

    def cancel(self) -> None:
        raise AssertionError("not used")

    def fire(self) -> None:
        pending, self.pending = self.pending, []
        for _, callback in pending:
            callback()


class Peer:
    def __init__(self, budget: Any, name: str, log: Any) -> None:
        self.budget = budget
        self.name = name
        self.log = log
        self.wants = 0

    def resume_reading(self) -> None:
        self.log.append(("resume", self.name))

    def close_stalled(self) -> None:
        self.log.append(("stalled", self.name))
        self.budget.release(self)


class Producer(Peer):
    served = False

    def resume_reading(self) -> None:
        self.served = self.served or self.budget.grow(self, LARGE, LARGE)


def make(limit: Any) -> Any:
    clock = [0.0]
    timers = FakeTimers()
    # Large frames may use three quarters of the budget.
    budget = MemoryBudget(limit * 4 // 3, timers, lambda: clock[0])  # type: ignore[arg-type]
    log: list[Any] = []
    return budget, timers, clock, log, [Peer(budget, name, log) for name in "abc"]


def test_holders_grow_up_to_the_limit_and_then_wait() -> None:
    budget, _, _, log, (a, b, c) = make(100)
    assert budget.grow(a, 60, LARGE)
    assert budget.grow(b, 40, LARGE)
    assert not budget.grow(c, 1, LARGE)
    assert budget.used_bytes == 100
    budget.release(b)
    assert log == [("resume", "c")]
    assert budget.grow(c, 40, LARGE)


def test_the_oldest_holder_may_always_grow_so_that_one_request_completes() -> None:
    budget, _, _, log, (a, b, _) = make(100)
    assert budget.grow(a, 50, LARGE)
    assert budget.grow(b, 50, LARGE)
    assert not budget.grow(b, 10, LARGE)
    assert budget.grow(a, 500, LARGE)
    budget.release(a)
    assert log == [("resume", "b")]
    assert budget.grow(b, 10, LARGE)


def test_one_frame_larger_than_the_limit_is_accepted() -> None:
    budget, _, _, _, (a, _, _) = make(10)
    assert budget.grow(a, 1000, LARGE)


def test_a_silent_holder_is_closed_when_other_connections_wait_for_memory() -> None:
    budget, timers, clock, log, (a, b, _) = make(100)
    assert budget.grow(a, 100, LARGE)
    assert not budget.grow(b, 10, LARGE)
    clock[0] += STALL_MS / 1000 + 0.001
    timers.fire()
    assert log == [("stalled", "a"), ("resume", "b")]
    assert budget.used_bytes == 0


def test_a_slow_holder_that_still_sends_is_not_closed() -> None:
    budget, timers, clock, log, (a, b, _) = make(100)
    assert budget.grow(a, 100, LARGE)
    assert not budget.grow(b, 10, LARGE)
    for interval in range(1, INTERVALS):
        budget.progress(a, LARGE - -(-LARGE * interval // INTERVALS))
        clock[0] += STALL_MS / 1000
        timers.fire()
        assert log == []
        assert timers.pending, "it continues to watch while a connection waits"


def test_a_holder_below_the_minimum_rate_is_closed_while_another_waits() -> None:
    budget, timers, clock, log, (a, b, _) = make(100)
    assert budget.grow(a, 100, LARGE)
    assert not budget.grow(b, 10, LARGE)
    budget.progress(a, LARGE - 1000)
    clock[0] += STALL_MS / 1000
    timers.fire()
    assert log == [("stalled", "a"), ("resume", "b")]


def test_a_holder_that_becomes_slow_is_closed_when_it_falls_behind_the_minimum_rate() -> None:
    budget, timers, _, log, (a, b, _) = make(100)
    assert budget.grow(a, 100, LARGE)
    assert not budget.grow(b, 10, LARGE)
    budget.progress(a, LARGE // 2)
    for _ in range(INTERVALS // 2):
        timers.fire()
        assert log == []
    timers.fire()
    assert log == [("stalled", "a"), ("resume", "b")]


def test_the_minimum_rate_applies_from_the_start_of_another_wait() -> None:
    budget, timers, clock, log, (a, b, _) = make(100)
    assert budget.grow(a, 100, LARGE)
    clock[0] += 3600
    budget.progress(a, 1200)  # slow, but not closed: no other connection waits
    assert not budget.grow(b, 10, LARGE)
    budget.progress(a, 1100)
    timers.fire()
    assert log == []
    timers.fire()
    assert log == [("stalled", "a"), ("resume", "b")]


def test_the_minimum_rate_no_longer_applies_after_the_wait() -> None:
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


def test_new_frames_queue_behind_one_that_has_waited_for_a_long_time() -> None:
    budget, _, clock, log, (a, b, c) = make(100)
    assert budget.grow(a, 60, LARGE)
    assert not budget.grow(b, 60, LARGE)
    clock[0] += 1
    assert budget.grow(c, 10, LARGE), "it fits, and the other has not waited for long"
    budget.release(c)
    assert not budget.grow(b, 60, LARGE)
    clock[0] += STALL_MS / 1000
    assert not budget.grow(c, 10, LARGE)
    assert budget.grow(a, 10, LARGE), "a frame that has begun continues"
    log.clear()
    budget.release(a)
    assert log == [("resume", "b"), ("resume", "c")]
    assert budget.grow(b, 60, LARGE)
    assert budget.grow(c, 10, LARGE)


def test_small_frames_do_not_queue_behind_large_ones() -> None:
    budget, _, clock, _, (a, b, c) = make(900)
    assert budget.grow(a, 900, LARGE)
    assert not budget.grow(b, 1, LARGE)
    clock[0] += STALL_MS / 1000
    assert budget.grow(c, 300, SMALL)


def test_a_waiting_producer_is_served_in_bounded_time_with_any_number_of_slow_peers() -> None:
    """Peers that send at the minimum rate, and start a new frame as soon as they have lost one."""
    for seed in range(20):
        random = Random(seed)
        clock = [0.0]
        timers = FakeTimers()
        budget = MemoryBudget(100 * LARGE * 4 // 3, timers, lambda: clock[0])  # type: ignore[arg-type]  # noqa: B023 - used in this round only
        log: list[Any] = []
        missing = {}

        def begin(name: object) -> None:
            peer = Peer(budget, str(name), log)  # noqa: B023
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


def test_without_waiting_connections_no_connection_is_closed() -> None:
    budget, timers, clock, log, (a, b, _) = make(100)
    assert budget.grow(a, 100, LARGE)
    assert not budget.grow(b, 10, LARGE)
    budget.release(b)  # it disconnected
    clock[0] += 1000
    timers.fire()
    assert log == []


def test_releasing_unreserved_memory_is_not_an_error() -> None:
    budget, _, _, _, (a, _, _) = make(100)
    budget.release(a)
    assert budget.used_bytes == 0


def test_large_frames_leave_memory_for_small_ones() -> None:
    budget, _, _, _, (a, b, c) = make(900)
    assert budget.grow(a, 900, LARGE)
    assert not budget.grow(b, 1, LARGE)
    assert budget.grow(c, 300, SMALL)
    budget.release(c)
    assert budget.grow(a, 500, LARGE), "the oldest continues"
    assert budget.grow(c, 300, SMALL), "and takes nothing of what is reserved"


def test_small_frames_may_use_all_free_memory() -> None:
    budget, _, _, _, (a, b, _) = make(900)
    assert budget.grow(a, 1000, SMALL)
    assert not budget.grow(b, 500, SMALL)
    assert budget.used_bytes == 1000


def test_a_kept_request_counts_until_it_is_released() -> None:
    budget, _, _, log, (a, b, _) = make(100)
    assert budget.grow(a, 100, LARGE)
    kept = budget.keep(a)
    assert budget.used_bytes == kept == 100
    assert budget.grow(b, 1, LARGE), "no other connection holds memory"
    budget.release(b)
    budget.release_kept(kept)
    assert budget.used_bytes == 0
    assert log == []


# -- one large frame at a time -----------------------------------------------------------------------------------------


def test_frames_other_than_the_oldest_leave_memory_for_one_of_the_largest_size() -> None:
    clock = [0.0]
    log: list[Any] = []
    budget = MemoryBudget(128 * LARGE, FakeTimers(), lambda: clock[0], largest_frame=100 * LARGE)  # type: ignore[arg-type]
    a, b, c = [Peer(budget, name, log) for name in "abc"]
    assert budget.grow(a, LARGE, 100 * LARGE)
    assert budget.grow(b, 20 * LARGE, 100 * LARGE)
    assert budget.grow(c, 12 * LARGE, 100 * LARGE)
    assert not budget.grow(c, 1, 100 * LARGE)
    assert budget.grow(a, 99 * LARGE, 100 * LARGE)
    assert budget.used_bytes == 132 * LARGE
    budget.release(a)
    assert log == [("resume", "c")]
    assert budget.grow(b, 64 * LARGE, 100 * LARGE)  # now the oldest


def test_the_oldest_waits_while_a_large_request_is_served() -> None:
    budget, _, _, log, (a, b, c) = make(100 * LARGE)
    assert budget.grow(a, 95 * LARGE, 95 * LARGE)
    assert budget.grow(b, 5 * LARGE, 95 * LARGE)
    kept = budget.keep(a)
    assert not budget.grow(b, LARGE, 95 * LARGE)
    budget.release_kept(kept)
    assert log == [("resume", "b")]
    assert budget.grow(b, 90 * LARGE, 95 * LARGE)
    assert budget.grow(c, SMALL, SMALL)
    assert budget.keep(c) == SMALL
    assert budget.grow(b, 50 * LARGE, 145 * LARGE)  # it does not wait for a small one


def test_data_derived_from_a_request_counts_as_well() -> None:
    budget, _, _, log, (a, _, _) = make(100 * LARGE)
    budget.add(90 * LARGE)
    assert not budget.grow(a, 20 * LARGE, 20 * LARGE)
    budget.release_kept(90 * LARGE)
    assert log == [("resume", "a")]
    assert budget.grow(a, 20 * LARGE, 20 * LARGE)
    assert budget.used_bytes == 20 * LARGE


def test_peers_that_are_not_authenticated_have_a_small_part_of_their_own() -> None:
    budget, _, _, _, (a, b, c) = make(32 * LARGE)
    assert budget.grow_unauthenticated(a, 3 * LARGE)  # the only one may always grow
    assert not budget.grow_unauthenticated(b, 1)
    assert budget.grow_unauthenticated(a, LARGE)
    assert budget.used_bytes == 4 * LARGE
    assert budget.grow(c, 32 * LARGE, 32 * LARGE)  # others do not wait for them
    budget.release(a)
    assert budget.grow_unauthenticated(a, LARGE)
    assert budget.grow_unauthenticated(b, LARGE)
    assert not budget.grow_unauthenticated(b, LARGE)
    budget.release(a)
    budget.release(b)
    budget.release(c)
    assert budget.used_bytes == 0
