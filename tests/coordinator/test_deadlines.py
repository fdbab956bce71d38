"""Deadlines of keys: they are set, moved, cancelled, and become due."""

from __future__ import annotations

import random

from moldau.coordinator.deadlines import Deadlines
from moldau.coordinator.outcome import NOTHING, Now, Outcome


def nothing(now: Now) -> Outcome:
    return NOTHING


def due(deadlines: Deadlines, at: int) -> list[str]:
    keys = []
    while (one := deadlines.pop_due(at)) is not None:
        keys.append(one.key)
    return keys


def test_no_deadline_is_due_before_its_time() -> None:
    deadlines = Deadlines()
    deadlines.set("a", "session", 100, nothing)
    assert deadlines.next() == 100
    assert due(deadlines, 99) == []
    assert due(deadlines, 100) == ["a"]
    assert deadlines.next() is None


def test_a_deadline_is_due_once() -> None:
    deadlines = Deadlines()
    deadlines.set("a", "session", 100, nothing)
    assert due(deadlines, 200) == ["a"]
    assert not deadlines.is_set("a", "session")
    assert due(deadlines, 300) == []


def test_the_earliest_deadline_is_due_first() -> None:
    deadlines = Deadlines()
    for key, at in (("a", 30), ("b", 10), ("c", 20)):
        deadlines.set(key, "session", at, nothing)
    assert due(deadlines, 30) == ["b", "c", "a"]


def test_a_moved_deadline_is_due_only_at_its_new_time() -> None:
    deadlines = Deadlines()
    deadlines.set("a", "session", 100, nothing)
    assert deadlines.move("a", "session", 150)
    assert due(deadlines, 149) == []
    assert due(deadlines, 150) == ["a"]


def test_a_deadline_that_is_moved_forward_and_back_is_due_once() -> None:
    deadlines = Deadlines()
    deadlines.set("a", "session", 100, nothing)
    deadlines.move("a", "session", 200)
    deadlines.move("a", "session", 50)
    deadlines.move("a", "session", 120)
    assert due(deadlines, 119) == []
    assert due(deadlines, 120) == ["a"]
    assert due(deadlines, 500) == []


def test_an_unknown_deadline_is_not_moved() -> None:
    deadlines = Deadlines()
    assert not deadlines.move("a", "session", 100)
    assert deadlines.next() is None


def test_a_cancelled_deadline_is_never_due() -> None:
    deadlines = Deadlines()
    deadlines.set("a", "session", 100, nothing)
    deadlines.cancel("a", "session")
    deadlines.cancel("a", "session")
    assert deadlines.next() is None
    assert due(deadlines, 1000) == []


def test_taking_a_deadline_returns_its_action_and_removes_it() -> None:
    deadlines = Deadlines()
    deadlines.set("a", "session", 100, nothing)
    assert deadlines.take("a", "session") is nothing
    assert deadlines.take("a", "session") is None
    assert due(deadlines, 200) == []


def test_a_deadline_that_is_canceled_and_set_again_is_due_once() -> None:
    deadlines = Deadlines()
    deadlines.set("a", "session", 100, nothing)
    deadlines.cancel("a", "session")
    deadlines.set("a", "session", 100, nothing)
    assert due(deadlines, 100) == ["a"]


def test_setting_a_deadline_again_replaces_the_action() -> None:
    deadlines = Deadlines()
    other = Outcome()
    deadlines.set("a", "session", 100, nothing)
    deadlines.set("a", "session", 100, lambda now: other)
    one = deadlines.pop_due(100)
    assert one is not None
    assert one.action(Now(0, 100)) is other
    assert deadlines.pop_due(100) is None


def test_keys_and_names_are_independent() -> None:
    deadlines = Deadlines()
    deadlines.set("a", ("session", "m1"), 100, nothing)
    deadlines.set("a", ("session", "m2"), 100, nothing)
    deadlines.set("b", ("session", "m1"), 100, nothing)
    deadlines.cancel("a", ("session", "m1"))
    assert sorted(due(deadlines, 100)) == ["a", "b"]


def test_the_memory_of_cancelled_deadlines_is_freed() -> None:
    deadlines = Deadlines()
    deadlines.set("a", "kept", 10_000, nothing)
    for number in range(10_000):
        deadlines.set("a", number, 5000, nothing)
        deadlines.cancel("a", number)
    assert len(deadlines) == 1
    assert len(deadlines._heap) < 200


def test_moving_a_deadline_repeatedly_uses_no_memory() -> None:
    deadlines = Deadlines()
    deadlines.set("a", "session", 100, nothing)
    for now in range(1, 10_000):
        assert deadlines.move("a", "session", 100 + now)
    assert len(deadlines._heap) == 1


def test_random_operations_agree_with_a_simple_table() -> None:
    chance = random.Random(848)
    for _ in range(200):
        deadlines, table, clock = Deadlines(), dict[tuple[str, int], int](), 0
        for _ in range(100):
            key = (chance.choice("abc"), chance.randrange(4))
            at = clock + chance.randrange(1, 50)
            match chance.randrange(4):
                case 0:
                    deadlines.set(*key, at, nothing)
                    table[key] = at
                case 1:
                    assert deadlines.move(*key, at) == (key in table)
                    if key in table:
                        table[key] = at
                case 2:
                    deadlines.cancel(*key)
                    table.pop(key, None)
                case _:
                    clock += chance.randrange(30)
                    expected = sorted(key for (key, _), at in table.items() if at <= clock)
                    assert sorted(due(deadlines, clock)) == expected
                    table = {key: at for key, at in table.items() if at > clock}
            assert deadlines.next() == min(table.values(), default=None)
