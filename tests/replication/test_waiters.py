"""Waiting for bytes of a partition: everybody is told in time, and an append does not pay for those who wait on."""

import random

from moldau.replication.waiters import Waiters


class Waiter:
    def __init__(self):
        self.told = 0
        self.changed = 0

    def enough(self):
        self.told += 1

    def partition_changed(self):
        self.changed += 1


def test_told_once_when_enough_has_come():
    waiters, waiter = Waiters(), Waiter()
    waiters.tell(waiter, 10)
    waiters.appended(9)
    assert waiter.told == 0
    waiters.appended(1)
    assert waiter.told == 1
    waiters.appended(100)
    assert waiter.told == 1
    assert len(waiters) == 1  # until it is removed: it still wants to know of changes


def test_who_asks_again_is_told_of_what_was_said_last():
    waiters, waiter = Waiters(), Waiter()
    waiters.tell(waiter, 10)
    waiters.tell(waiter, 30)
    waiters.appended(20)
    assert waiter.told == 0
    waiters.appended(10)
    assert waiter.told == 1


def test_who_asks_again_while_being_told_is_told_later():
    waiters = Waiters()

    class Again(Waiter):
        def enough(self):
            super().enough()
            waiters.tell(self, 5)

    waiter = Again()
    waiters.tell(waiter, 1)
    waiters.appended(1000)
    assert waiter.told == 1
    waiters.appended(4)
    assert waiter.told == 1
    waiters.appended(1)
    assert waiter.told == 2


def test_a_waiter_that_was_removed_hears_nothing():
    waiters, waiter, other = Waiters(), Waiter(), Waiter()
    waiters.tell(waiter, 1)
    waiters.tell(other, 1)
    waiters.remove(waiter)
    waiters.remove(Waiter())
    waiters.appended(1)
    waiters.tell_changed()
    assert (waiter.told, waiter.changed, other.told, other.changed) == (0, 0, 1, 1)


def test_nothing_keeps_those_alive_who_have_left():
    waiters = Waiters()
    left = [Waiter() for _ in range(50)]
    for waiter in left:
        waiters.tell(waiter, 1000)
        waiters.remove(waiter)
    assert waiters._heap == []
    stays, comes_and_goes = Waiter(), Waiter()
    waiters.tell(stays, 1000)
    for _ in range(100):
        waiters.tell(comes_and_goes, 500)
        waiters.remove(comes_and_goes)
    assert len(waiters._heap) < 20
    waiters.appended(1000)
    assert (stays.told, comes_and_goes.told) == (1, 0)


def test_against_a_plain_model():
    pick = random.Random(4)
    waiters = Waiters()
    model = {}
    peak = 0
    for _ in range(5000):
        action = pick.random()
        if action < 0.4:
            waiter = pick.choice([*model, Waiter()]) if model else Waiter()
            size = pick.randrange(1, 500)
            waiters.tell(waiter, size)
            model[waiter] = [size, waiter.told]
        elif action < 0.6 and model:
            waiter = pick.choice(list(model))
            waiters.remove(waiter)
            del model[waiter]
        else:
            size = pick.randrange(1, 100)
            waiters.appended(size)
            for state in model.values():
                state[0] -= size
        for waiter, (missing, told_before) in model.items():
            assert waiter.told == told_before + (missing <= 0)
        assert len(waiters) == len(model)
        peak = max(peak, len(model))
        assert len(waiters._heap) <= 2 * peak + 10


def test_an_append_does_not_look_at_those_who_wait_for_more():
    waiters = Waiters()
    idle = [Waiter() for _ in range(1000)]
    for waiter in idle:
        waiters.tell(waiter, 1_000_000)
    looked_at = []
    waiters._waiting = Watched(waiters._waiting, looked_at)
    for _ in range(100):
        waiters.appended(100)
    assert looked_at == []


class Watched(dict):
    """Notes that it is looked at."""

    def __init__(self, content, looked_at):
        super().__init__(content)
        self._looked_at = looked_at

    def __iter__(self):
        self._looked_at.append("all")
        return super().__iter__()

    def get(self, key, default=None):
        self._looked_at.append(key)
        return super().get(key, default)
