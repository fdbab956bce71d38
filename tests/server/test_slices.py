"""Work in slices: who goes on when, and how much is held. The clock counts how often it is asked."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterator

import pytest

from moldau.server.slices import FEW_ELEMENTS, Sliced, Slices, TooManyElementsError, completed, release, within

STEP_MS = 0.1


class Owner:
    def __init__(self) -> None:
        self.abandoned = False


class Fixture:
    def __init__(self) -> None:
        self.now = 0.0
        self.callbacks: deque[Callable[[], None]] = deque()
        self.done: list[str] = []
        self.steps: list[str] = []
        self.slices = Slices(self.callbacks.append, clock=self.clock, max_elements=10_000)

    def clock(self) -> float:
        self.now += STEP_MS / 1000
        return self.now

    def work(self, name: str, steps: int, elements: int = 0) -> Sliced[None]:
        for _ in range(steps):
            self.steps.append(name)
            yield elements
        self.done.append(name)

    def turn(self) -> None:
        """One turn of the loop."""
        for _ in range(len(self.callbacks)):
            self.callbacks.popleft()()

    def run(self) -> None:
        for _ in range(10_000):
            if not self.callbacks:
                return
            self.turn()
        raise AssertionError("the work does not end")


@pytest.fixture
def fixture() -> Iterator[Fixture]:
    fixture = Fixture()
    yield fixture
    fixture.slices.close()
    assert fixture.slices.elements == 0
    assert gc.isenabled()


def test_short_work_is_done_at_once(fixture: Fixture) -> None:
    assert fixture.slices.begin(fixture.work("a", 5), Owner())
    assert fixture.done == ["a"]
    assert not fixture.callbacks


def test_long_work_goes_on_in_later_turns_a_slice_in_each(fixture: Fixture) -> None:
    assert not fixture.slices.begin(fixture.work("a", 100), Owner())
    for _ in range(3):
        before = len(fixture.steps)
        fixture.turn()
        assert 0 < len(fixture.steps) - before <= 2 / STEP_MS + 1
    fixture.run()
    assert fixture.done == ["a"]


def test_work_that_must_not_begin_at_once_waits_for_the_next_turn(fixture: Fixture) -> None:
    assert not fixture.slices.begin(fixture.work("a", 1), Owner(), at_once=False)
    assert not fixture.steps
    fixture.turn()
    assert fixture.done == ["a"]


def test_all_work_together_has_one_slice_in_a_turn_and_takes_it_by_turns(fixture: Fixture) -> None:
    for name in "abc":
        fixture.slices.begin(fixture.work(name, 100), Owner())
    fixture.steps.clear()
    ran = []
    for _ in range(3):
        fixture.turn()
        ran.append(set(fixture.steps))
        assert len(fixture.steps) <= 2 / STEP_MS + 1
        fixture.steps.clear()
    assert ran == [{"a"}, {"b"}, {"c"}]


def test_short_work_does_not_wait_for_long_work(fixture: Fixture) -> None:
    fixture.slices.begin(fixture.work("long", 1000, elements=10), Owner())
    assert fixture.slices.begin(fixture.work("short", 1), Owner())
    assert fixture.done == ["short"]


def test_above_the_limit_of_elements_only_the_oldest_goes_on(fixture: Fixture) -> None:
    for name in "abcdef":
        fixture.slices.begin(fixture.work(name, 90, elements=100), Owner())
    most = 0
    while fixture.callbacks:
        fixture.turn()
        most = max(most, fixture.slices.elements)
    assert fixture.done[0] == "a"
    assert sorted(fixture.done) == list("abcdef")
    # The limit, what one of them takes, and the step that each of the others made beyond the limit.
    assert most <= 10_000 + 9_000 + 6 * (FEW_ELEMENTS + 100)
    assert fixture.slices.elements == 0


def test_work_with_few_elements_goes_on_while_others_wait_for_memory(fixture: Fixture) -> None:
    fixture.slices.begin(fixture.work("large", 200, elements=100), Owner())
    while fixture.slices.elements <= 10_000:
        fixture.turn()
    assert fixture.slices.begin(fixture.work("small", 2, elements=1), Owner())


def test_abandoned_work_is_closed_and_holds_nothing(fixture: Fixture) -> None:
    owner = Owner()
    closed = []

    def work() -> Sliced[None]:
        try:
            while True:
                yield 100
        finally:
            closed.append(True)

    fixture.slices.begin(work(), owner)
    fixture.turn()
    owner.abandoned = True
    fixture.run()
    assert closed
    assert fixture.slices.elements == 0


def test_work_that_fails_holds_nothing_and_does_not_keep_others_from_going_on(
    fixture: Fixture, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> Sliced[None]:
        for _ in range(50):
            yield 100
        raise RuntimeError("made up by the test")

    fixture.slices.begin(broken(), Owner())
    fixture.slices.begin(fixture.work("a", 50), Owner())
    fixture.run()
    assert fixture.done == ["a"]
    assert fixture.slices.elements == 0
    assert "made up by the test" in caplog.text


def test_work_that_ends_may_begin_other_work(fixture: Fixture) -> None:
    def first() -> Sliced[None]:
        yield from fixture.work("a", 30)
        fixture.slices.begin(fixture.work("b", 30), Owner())

    fixture.slices.begin(first(), Owner())
    fixture.run()
    assert fixture.done == ["a", "b"]


def test_the_collector_rests_while_much_is_held(fixture: Fixture) -> None:
    fixture.slices.begin(fixture.work("a", 50, elements=1000), Owner())
    fixture.turn()
    assert not gc.isenabled()
    fixture.run()
    assert gc.isenabled()


def test_within_a_limit(fixture: Fixture) -> None:
    completed(within(fixture.work("a", 10, elements=10), 100))
    with pytest.raises(TooManyElementsError) as raised:
        completed(within(fixture.work("b", 11, elements=10), 100))
    assert raised.value.elements == 110
    assert fixture.done == ["a"]


def test_release_takes_long_arrays_apart() -> None:
    from moldau.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic

    topics = [MetadataResponseTopic(partitions=[MetadataResponsePartition() for _ in range(2000)]) for _ in range(3)]
    first = topics[0]
    response = MetadataResponse(topics=topics)
    assert len(list(release(response))) >= 12
    assert not response.topics
    assert not first.partitions
