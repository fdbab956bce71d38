"""Waiting for bytes of a partition: waiters are notified in time, and an append does not visit the others."""

from __future__ import annotations

import random
import weakref
from typing import Any

from moldau.replication.waiters import Waiters


class Waiter:
    def __init__(self) -> None:
        self.notified = 0
        self.changed = 0

    def enough(self) -> None:
        self.notified += 1

    def partition_changed(self) -> None:
        self.changed += 1


def test_a_waiter_is_notified_once_when_enough_bytes_have_arrived() -> None:
    waiters, waiter = Waiters(), Waiter()
    waiters.wait_for_bytes(waiter, 10)
    waiters.appended(9)
    assert waiter.notified == 0
    waiters.appended(1)
    assert waiter.notified == 1
    waiters.appended(100)
    assert waiter.notified == 1
    assert len(waiters) == 1  # until it is removed: it is still notified of changes


def test_a_second_request_of_a_waiter_replaces_the_first() -> None:
    waiters, waiter = Waiters(), Waiter()
    waiters.wait_for_bytes(waiter, 10)
    waiters.wait_for_bytes(waiter, 30)
    waiters.appended(20)
    assert waiter.notified == 0
    waiters.appended(10)
    assert waiter.notified == 1


def test_a_waiter_that_waits_again_during_its_notification_is_notified_later() -> None:
    waiters = Waiters()

    class Again(Waiter):
        def enough(self) -> None:
            super().enough()
            waiters.wait_for_bytes(self, 5)

    waiter = Again()
    waiters.wait_for_bytes(waiter, 1)
    waiters.appended(1000)
    assert waiter.notified == 1
    waiters.appended(4)
    assert waiter.notified == 1
    waiters.appended(1)
    assert waiter.notified == 2


def test_a_removed_waiter_is_not_notified() -> None:
    waiters, waiter, other = Waiters(), Waiter(), Waiter()
    waiters.wait_for_bytes(waiter, 1)
    waiters.wait_for_bytes(other, 1)
    waiters.remove(waiter)
    waiters.remove(Waiter())
    waiters.appended(1)
    waiters.notify_changed()
    assert (waiter.notified, waiter.changed, other.notified, other.changed) == (0, 0, 1, 1)


def test_removed_waiters_use_no_memory() -> None:
    waiters = Waiters()
    left = [Waiter() for _ in range(50)]
    for waiter in left:
        waiters.wait_for_bytes(waiter, 1000)
        waiters.remove(waiter)
    assert waiters._heap == []
    stays, comes_and_goes = Waiter(), Waiter()
    waiters.wait_for_bytes(stays, 1000)
    for _ in range(100):
        waiters.wait_for_bytes(comes_and_goes, 500)
        waiters.remove(comes_and_goes)
    assert len(waiters._heap) < 20
    waiters.appended(1000)
    assert (stays.notified, comes_and_goes.notified) == (1, 0)


def test_random_operations_agree_with_a_simple_model() -> None:
    pick = random.Random(4)
    waiters = Waiters()
    model: dict[Any, Any] = {}
    peak = 0
    for _ in range(5000):
        action = pick.random()
        if action < 0.4:
            waiter = pick.choice([*model, Waiter()]) if model else Waiter()
            size = pick.randrange(1, 500)
            waiters.wait_for_bytes(waiter, size)
            model[waiter] = [size, waiter.notified]
        elif action < 0.6 and model:
            waiter = pick.choice(list(model))
            waiters.remove(waiter)
            del model[waiter]
        else:
            size = pick.randrange(1, 100)
            waiters.appended(size)
            for state in model.values():
                state[0] -= size
        for waiter, (missing, notified_before) in model.items():
            assert waiter.notified == notified_before + (missing <= 0)
        assert len(waiters) == len(model)
        peak = max(peak, len(model))
        assert len(waiters._heap) <= 2 * peak + 10


def test_an_append_does_not_visit_waiters_for_more_bytes() -> None:
    waiters = Waiters()
    idle = [Waiter() for _ in range(1000)]
    for waiter in idle:
        waiters.wait_for_bytes(waiter, 1_000_000)
    visited: list[Any] = []
    waiters._waiting = Watched(waiters._waiting, visited)
    for _ in range(100):
        waiters.appended(100)
    assert visited == []


class Watched(dict[Any, Any]):
    """Records the accesses to it."""

    def __init__(self, content: Any, visited: Any) -> None:
        super().__init__(content)
        self._visited = visited

    def __iter__(self) -> Any:
        self._visited.append("all")
        return super().__iter__()

    def get(self, key: Any, default: Any = None) -> Any:
        self._visited.append(key)
        return super().get(key, default)


def test_a_removed_waiter_is_freed_while_others_wait() -> None:
    waiters = Waiters()
    gone, stays = Waiter(), Waiter()
    for waiter in (gone, gone, stays):
        waiters.wait_for_bytes(waiter, 10)
    freed = weakref.ref(gone)
    waiters.remove(gone)
    del gone, waiter
    assert freed() is None
    assert len(waiters) == 1
