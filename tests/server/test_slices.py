"""Work in slices: the order of work, and the memory that it holds. The clock advances with each call."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import pytest

from moldau.protocol.steps import completed
from moldau.server.concurrency.slices import (
    FEW_ELEMENTS,
    SUSPENDED,
    Sliced,
    SlicedFuture,
    Slices,
    TooManyElementsError,
    release,
    within,
)

STEP_MS = 0.1


class Owner:
    def __init__(self) -> None:
        self.cancelled = False


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
        """One iteration of the event loop."""
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


def test_short_work_completes_immediately(fixture: Fixture) -> None:
    assert fixture.slices.begin(fixture.work("a", 5), Owner())
    assert fixture.done == ["a"]
    assert not fixture.callbacks


def test_long_work_continues_with_one_slice_per_iteration(fixture: Fixture) -> None:
    assert not fixture.slices.begin(fixture.work("a", 100), Owner())
    for _ in range(3):
        before = len(fixture.steps)
        fixture.turn()
        assert 0 < len(fixture.steps) - before <= 2 / STEP_MS + 1
    fixture.run()
    assert fixture.done == ["a"]


def test_work_that_must_not_start_immediately_waits_for_the_next_iteration(fixture: Fixture) -> None:
    assert not fixture.slices.begin(fixture.work("a", 1), Owner(), immediately=False)
    assert not fixture.steps
    fixture.turn()
    assert fixture.done == ["a"]


def test_all_work_shares_one_slice_per_iteration_in_rotation(fixture: Fixture) -> None:
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


def test_above_the_limit_of_elements_only_the_oldest_work_continues(fixture: Fixture) -> None:
    for name in "abcdef":
        fixture.slices.begin(fixture.work(name, 90, elements=100), Owner())
    most = 0
    while fixture.callbacks:
        fixture.turn()
        most = max(most, fixture.slices.elements)
    assert fixture.done[0] == "a"
    assert sorted(fixture.done) == list("abcdef")
    # The limit, the elements of one work item, and one step of each of the others beyond the limit.
    assert most <= 10_000 + 9_000 + 6 * (FEW_ELEMENTS + 100)
    assert fixture.slices.elements == 0


def test_work_with_few_elements_continues_while_other_work_waits_for_memory(fixture: Fixture) -> None:
    fixture.slices.begin(fixture.work("large", 200, elements=100), Owner())
    while fixture.slices.elements <= 10_000:
        fixture.turn()
    assert fixture.slices.begin(fixture.work("small", 2, elements=1), Owner())


def test_cancelled_work_is_closed_and_holds_no_elements(fixture: Fixture) -> None:
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
    owner.cancelled = True
    fixture.run()
    assert closed
    assert fixture.slices.elements == 0


def test_work_that_fails_holds_no_elements_and_does_not_stop_other_work(
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


def test_work_that_completes_may_start_other_work(fixture: Fixture) -> None:
    def first() -> Sliced[None]:
        yield from fixture.work("a", 30)
        fixture.slices.begin(fixture.work("b", 30), Owner())

    fixture.slices.begin(first(), Owner())
    fixture.run()
    assert fixture.done == ["a", "b"]


def test_the_collector_is_off_while_many_elements_are_in_memory(fixture: Fixture) -> None:
    fixture.slices.begin(fixture.work("a", 50, elements=1000), Owner())
    fixture.turn()
    assert not gc.isenabled()
    fixture.run()
    assert gc.isenabled()


def test_work_above_its_limit_of_elements_fails(fixture: Fixture) -> None:
    assert completed(within(fixture.work("a", 10, elements=10), 100)) == (None, 100)
    with pytest.raises(TooManyElementsError) as raised:
        completed(within(fixture.work("b", 11, elements=10), 100))
    assert raised.value.elements == 110
    assert fixture.done == ["a"]


def test_release_frees_long_arrays_in_steps() -> None:
    from moldau.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic

    topics = [MetadataResponseTopic(partitions=[MetadataResponsePartition() for _ in range(2000)]) for _ in range(3)]
    first = topics[0]
    response = MetadataResponse(topics=topics)
    assert len(list(release(response))) >= 12
    assert not response.topics
    assert not first.partitions


def test_exclusive_work_runs_one_at_a_time(fixture: Fixture) -> None:
    for name in "abc":
        assert not fixture.slices.begin(fixture.slices.exclusively(fixture.work(name, 100)), Owner())
    fixture.run()
    assert fixture.done == ["a", "b", "c"]
    assert fixture.steps == ["a"] * 100 + ["b"] * 100 + ["c"] * 100


def test_work_that_waits_for_its_turn_is_not_polled(fixture: Fixture) -> None:
    polls = 0

    def waiting() -> Sliced[None]:
        nonlocal polls
        for more in fixture.slices.exclusively(fixture.work("b", 1)):
            polls += 1
            yield more

    fixture.slices.begin(fixture.slices.exclusively(fixture.work("a", 500)), Owner())
    fixture.slices.begin(waiting(), Owner())
    fixture.run()
    assert fixture.done == ["a", "b"]
    assert polls == 2  # once for the wait, once for its step


def test_exclusive_work_continues_if_the_oldest_work_waits_for_it(fixture: Fixture) -> None:
    def oldest() -> Sliced[None]:
        for _ in range(20):
            yield 100
        yield from fixture.slices.exclusively(fixture.work("oldest", 50, elements=100))

    fixture.slices.begin(oldest(), Owner(), immediately=False)
    fixture.slices.begin(fixture.slices.exclusively(fixture.work("younger", 200, elements=100)), Owner())
    fixture.run()
    assert fixture.done == ["younger", "oldest"]


def test_closing_exclusive_work_starts_the_next(fixture: Fixture) -> None:
    owner = Owner()
    fixture.slices.begin(fixture.slices.exclusively(fixture.work("a", 500)), owner)
    fixture.slices.begin(fixture.slices.exclusively(fixture.work("b", 500)), Owner())
    owner.cancelled = True
    fixture.run()
    assert fixture.done == ["b"]


def waiting_for(later: SlicedFuture[str], done: list[str], *, elements: int = 0) -> Sliced[None]:
    yield elements
    done.append((yield from later.result()))


def test_suspended_work_resumes_only_when_its_result_is_available(fixture: Fixture) -> None:
    later: SlicedFuture[str] = SlicedFuture(fixture.slices)
    assert not fixture.slices.begin(waiting_for(later, fixture.done), Owner())
    assert not fixture.callbacks  # it is not polled
    fixture.slices.begin(fixture.work("other", 50), Owner(), immediately=False)
    fixture.run()
    assert fixture.done == ["other"]
    later.succeed("result")
    fixture.run()
    assert fixture.done == ["other", "result"]


def test_an_available_result_does_not_suspend_work(fixture: Fixture) -> None:
    later: SlicedFuture[str] = SlicedFuture(fixture.slices)
    later.succeed("result")
    assert fixture.slices.begin(waiting_for(later, fixture.done), Owner())
    assert fixture.done == ["result"]


def test_suspended_work_fails_with_the_error_of_its_result(fixture: Fixture) -> None:
    later: SlicedFuture[str] = SlicedFuture(fixture.slices)

    def work() -> Sliced[None]:
        try:
            yield from later.result()
        except KeyError as error:
            fixture.done.append(str(error))

    fixture.slices.begin(work(), Owner())
    later.fail(KeyError("why"))
    fixture.run()
    assert fixture.done == ["'why'"]


def test_the_first_steps_may_run_before_work_is_submitted(fixture: Fixture) -> None:
    """The dispatcher does this: a generator that yields is added to the slices after its first steps."""
    later: SlicedFuture[str] = SlicedFuture(fixture.slices)
    work = waiting_for(later, fixture.done)
    assert [next(work), next(work)] == [0, SUSPENDED]
    fixture.slices.begin(work, Owner())
    later.succeed("result")
    fixture.run()
    assert fixture.done == ["result"]


def test_other_work_waits_without_polling_while_the_oldest_is_suspended(fixture: Fixture) -> None:
    later: SlicedFuture[str] = SlicedFuture(fixture.slices)
    fixture.slices.begin(waiting_for(later, fixture.done, elements=9_000), Owner())
    fixture.slices.begin(fixture.work("large", 20, elements=1_000), Owner(), immediately=False)
    fixture.slices.begin(fixture.work("small", 20), Owner(), immediately=False)
    fixture.run()
    assert fixture.done == ["small"]
    later.succeed("oldest")
    fixture.run()
    assert fixture.done == ["small", "oldest", "large"]


def test_suspended_work_of_a_closed_connection_is_closed_when_it_would_resume(fixture: Fixture) -> None:
    owner = Owner()
    later: SlicedFuture[str] = SlicedFuture(fixture.slices)
    fixture.slices.begin(waiting_for(later, fixture.done, elements=5), owner)
    owner.cancelled = True
    later.succeed("result")
    fixture.run()
    assert fixture.done == []
    assert fixture.slices.elements == 0


def test_work_that_resumes_immediately_does_so_before_the_completing_call_returns(fixture: Fixture) -> None:
    later: SlicedFuture[str] = SlicedFuture(fixture.slices, immediately=True)
    assert not fixture.slices.begin(waiting_for(later, fixture.done, elements=5), Owner())
    later.succeed("result")
    assert fixture.done == ["result"]
    assert not fixture.callbacks
    assert fixture.slices.elements == 0


def test_work_that_resumes_immediately_may_suspend_again_or_exceed_a_slice(fixture: Fixture) -> None:
    first: SlicedFuture[str] = SlicedFuture(fixture.slices, immediately=True)
    second: SlicedFuture[str] = SlicedFuture(fixture.slices, immediately=True)

    def work() -> Sliced[None]:
        fixture.done.append((yield from first.result()))
        fixture.done.append((yield from second.result()))
        yield from fixture.work("long", 50)

    fixture.slices.begin(work(), Owner())
    first.succeed("first")
    assert fixture.done == ["first"]
    assert not fixture.callbacks
    second.succeed("second")
    assert fixture.done == ["first", "second"]
    fixture.run()
    assert fixture.done == ["first", "second", "long"]


def test_a_shutdown_closes_work_that_is_resumed_by_closing_other_work(fixture: Fixture) -> None:
    never: SlicedFuture[str] = SlicedFuture(fixture.slices)
    turn: SlicedFuture[str] = SlicedFuture(fixture.slices)

    def work() -> Sliced[None]:
        try:
            yield from never.result()
        finally:
            turn.succeed("turn")

    fixture.slices.begin_shielded(work(), immediately=True)
    fixture.slices.begin_shielded(waiting_for(turn, fixture.done), immediately=True)
    fixture.slices.close()
    fixture.run()
    assert fixture.done == []
    assert len(fixture.slices) == 0


def test_a_shutdown_closes_suspended_work(fixture: Fixture) -> None:
    later: SlicedFuture[str] = SlicedFuture(fixture.slices)
    fixture.slices.begin(waiting_for(later, fixture.done, elements=5), Owner())
    fixture.slices.begin_shielded(waiting_for(later, fixture.done))
    fixture.slices.close()
    later.succeed("result")
    fixture.run()
    assert fixture.done == []
    assert fixture.slices.elements == 0


def test_work_that_must_complete_continues_without_its_owner(fixture: Fixture) -> None:
    owner = Owner()

    def work() -> Sliced[None]:
        yield from fixture.slices.shielded(fixture.work("shielded", 300))
        fixture.done.append("answer")

    fixture.slices.begin(work(), owner)
    owner.cancelled = True
    fixture.run()
    assert fixture.done == ["shielded"]
    assert len(fixture.steps) == 300


def test_work_that_must_complete_is_completed_at_shutdown(fixture: Fixture) -> None:
    fixture.slices.begin(fixture.slices.shielded(fixture.work("shielded", 300)), Owner())
    fixture.slices.begin(fixture.work("other", 300), Owner())
    fixture.slices.close()
    assert fixture.done == ["shielded"]


def test_suspended_work_does_not_hold_up_work_with_many_elements(fixture: Fixture) -> None:
    """Above the limit only the oldest work continues. Suspended work that holds no elements does not count."""
    later: SlicedFuture[None] = SlicedFuture(fixture.slices)

    def suspended() -> Sliced[None]:
        yield from later.result()
        fixture.done.append("suspended")

    fixture.slices.begin(suspended(), Owner())
    fixture.slices.begin(fixture.work("large", 200, 100), Owner())
    fixture.run()
    assert fixture.done == ["large"]
    later.succeed(None)
    fixture.run()
    assert fixture.done == ["large", "suspended"]


def test_other_work_continues_when_the_oldest_completes_as_it_is_resumed(fixture: Fixture) -> None:
    later: SlicedFuture[None] = SlicedFuture(fixture.slices, immediately=True)

    def oldest() -> Sliced[None]:
        yield 2 * FEW_ELEMENTS
        yield from later.result()
        fixture.done.append("oldest")

    fixture.slices.begin(oldest(), Owner())
    fixture.slices.begin(fixture.work("large", 200, 100), Owner())
    fixture.run()
    assert fixture.done == []
    later.succeed(None)
    fixture.run()
    assert fixture.done == ["oldest", "large"]


def test_closing_suspended_work_may_complete_other_suspended_work(fixture: Fixture) -> None:
    first: SlicedFuture[None] = SlicedFuture(fixture.slices)
    second: SlicedFuture[None] = SlicedFuture(fixture.slices, immediately=True)

    def holds() -> Sliced[None]:
        try:
            yield from first.result()
        finally:
            second.succeed(None)

    def waits() -> Sliced[None]:
        yield from second.result()
        fixture.done.append("second")

    fixture.slices.begin_shielded(holds(), immediately=True)
    fixture.slices.begin_shielded(waits(), immediately=True)
    fixture.slices.close()
    assert fixture.done == ["second"]


def test_the_outcome_of_a_job_is_that_of_the_work(fixture: Fixture) -> None:
    class Stopped(BaseException):
        """Not an Exception, as SystemExit."""

    def outcome(error: BaseException | None) -> str:
        job: Future[str] = Future()
        if error is None:
            job.set_result("done")
        else:
            job.set_exception(error)
        later: SlicedFuture[str] = SlicedFuture(fixture.slices)
        later.end_like(job)
        return completed(later.result())

    assert outcome(None) == "done"
    with pytest.raises(ValueError, match="wrong"):
        outcome(ValueError("wrong"))
    with pytest.raises(RuntimeError, match="stopped"):
        outcome(Stopped("stopped"))
