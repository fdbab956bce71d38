"""Outstanding parts of a response."""

from __future__ import annotations

import gc
import sys
import weakref

import pytest

from moldau.server.concurrency.pending import Pending
from moldau.server.concurrency.slices import Sliced, SlicedFuture, Slices


class Answers:
    """Records the results and errors of a `Pending`."""

    def __init__(self) -> None:
        self.results: list[list[str]] = []
        self.errors: list[Exception] = []

    def pending(self) -> Pending[str, Exception]:
        return Pending(lambda results: self.results.append(list(results)), self.errors.append)


@pytest.fixture
def answers() -> Answers:
    return Answers()


def test_it_completes_once_when_the_last_part_ends(answers: Answers) -> None:
    pending = answers.pending()
    parts = [pending.add() for _ in range(3)]
    pending.start()
    for part in parts:
        assert not answers.results
        pending.complete(part, f"part {part}")
    assert answers.results == [["part 0", "part 1", "part 2"]]
    assert not answers.errors


def test_results_are_in_the_order_of_the_parts(answers: Answers) -> None:
    pending = answers.pending()
    parts = [pending.add() for _ in range(4)]
    pending.start()
    for part in (2, 0, 3, 1):
        pending.complete(parts[part], str(part))
    assert answers.results == [["0", "1", "2", "3"]]


def test_it_does_not_complete_while_parts_are_being_added(answers: Answers) -> None:
    pending = answers.pending()
    pending.complete(pending.add(), "at once")
    assert not pending.is_outstanding
    pending.complete(pending.add(), "at once, too")
    assert not answers.results
    pending.start()
    assert answers.results == [["at once", "at once, too"]]


def test_without_parts_it_completes_at_start(answers: Answers) -> None:
    answers.pending().start()
    assert answers.results == [[]]


def test_it_fails_once_with_the_first_error_when_all_parts_have_ended(answers: Answers) -> None:
    pending = answers.pending()
    parts = [pending.add() for _ in range(3)]
    pending.start()
    first, second = ValueError("first"), ValueError("second")
    pending.fail(parts[1], first)
    pending.fail(parts[0], second)
    assert not answers.errors
    pending.complete(parts[2], "result")
    assert answers.errors == [first]
    assert not answers.results


def test_a_failure_before_start_is_reported_at_start(answers: Answers) -> None:
    pending = answers.pending()
    error = ValueError()
    pending.fail(pending.add(), error)
    assert not answers.errors
    pending.start()
    assert answers.errors == [error]


def test_a_part_that_ends_twice_is_an_error_and_changes_nothing(answers: Answers) -> None:
    pending = answers.pending()
    first, second = pending.add(), pending.add()
    pending.start()
    pending.complete(first, "result")
    with pytest.raises(RuntimeError, match="part 0 has ended twice"):
        pending.complete(first, "other")
    with pytest.raises(RuntimeError, match="part 0 has ended twice"):
        pending.fail(first, ValueError())
    assert not answers.results
    pending.complete(second, "last")
    assert answers.results == [["result", "last"]]
    with pytest.raises(RuntimeError, match="part 1 has ended twice"):
        pending.complete(second, "other")
    assert answers.results == [["result", "last"]]
    assert not answers.errors


def test_none_is_a_valid_result(answers: Answers) -> None:
    pending: Pending[None, Exception] = Pending(lambda results: answers.results.append([repr(results)]))
    part = pending.add()
    pending.start()
    pending.complete(part, None)
    with pytest.raises(RuntimeError, match="twice"):
        pending.complete(part, None)
    assert answers.results == [["[None]"]]


def test_an_unexpected_failure_is_an_error() -> None:
    pending: Pending[str, Exception] = Pending(lambda results: None)
    with pytest.raises(RuntimeError, match="part 0 failed"):
        pending.fail(pending.add(), ValueError())


def test_it_starts_once_and_accepts_no_part_after_completion(answers: Answers) -> None:
    pending = answers.pending()
    pending.start()
    with pytest.raises(RuntimeError, match="started twice"):
        pending.start()
    with pytest.raises(RuntimeError, match="after the response"):
        pending.add()
    assert answers.results == [[]]


def test_a_part_may_add_another_before_it_ends(answers: Answers) -> None:
    pending = answers.pending()
    first = pending.add()
    pending.start()
    second = pending.add()
    pending.complete(first, "queued")
    assert not answers.results
    pending.complete(second, "acknowledged")
    assert answers.results == [["queued", "acknowledged"]]


def test_completion_may_start_the_next_round(answers: Answers) -> None:
    """For example, the markers of a transaction: rejected markers are written again."""
    rounds: list[list[str]] = []

    def begin() -> None:
        pending: Pending[str, Exception] = Pending(answered)
        for number in range(2):
            pending.complete(pending.add(), f"{len(rounds)}.{number}")
        pending.start()

    def answered(results: list[str]) -> None:
        rounds.append(results)
        if len(rounds) < 3:
            begin()

    begin()
    assert rounds == [["0.0", "0.1"], ["1.0", "1.1"], ["2.0", "2.1"]]


def test_completion_may_be_nested(answers: Answers) -> None:
    outer, inner = answers.pending(), answers.pending()
    waiting = outer.add()
    outer.start()
    nested: Pending[str, Exception] = Pending(lambda results: outer.complete(waiting, results[0]))
    part = nested.add()
    nested.start()
    nested.complete(part, "through both")
    inner.start()
    assert answers.results == [["through both"], []]


def test_a_callback_that_raises_is_not_called_again(answers: Answers) -> None:
    def answered(results: list[str]) -> None:
        answers.results.append(results)
        raise ValueError("answering failed")

    pending: Pending[str, Exception] = Pending(answered)
    part = pending.add()
    pending.start()
    with pytest.raises(ValueError, match="answering failed"):
        pending.complete(part, "result")
    with pytest.raises(RuntimeError, match="twice"):
        pending.complete(part, "result")
    assert len(answers.results) == 1


def test_the_callback_is_freed_after_completion() -> None:
    """It often refers to the `Pending` itself. A cycle would keep a request until a full pass of the collector."""

    class Request:
        def __init__(self) -> None:
            self.pending: Pending[str, Exception] = Pending(self.answered)

        def answered(self, results: list[str]) -> None:
            pass

    request = Request()
    pending = request.pending
    part = pending.add()
    pending.start()
    freed = weakref.ref(request)
    gc.disable()
    try:
        pending.complete(part, "result")
        del request
        assert freed() is None
    finally:
        gc.enable()


def test_a_part_uses_only_a_slot_for_its_result(answers: Answers) -> None:
    """A part needs no task, no callback and no separate object."""
    pending = answers.pending()
    pending.add()
    gc.collect()
    before = len(gc.get_objects())
    size = sys.getsizeof(pending._results)
    for _ in range(1000):
        pending.add()
    assert len(gc.get_objects()) - before < 10
    assert sys.getsizeof(pending._results) - size < 10_000


def test_work_in_slices_can_wait_for_many_parts() -> None:
    callbacks: list[object] = []
    slices = Slices(callbacks.append)
    done: list[object] = []

    class Owner:
        cancelled = False

    def work(pending: Pending[str, Exception], later: SlicedFuture[list[str]]) -> Sliced[None]:
        pending.start()
        try:
            done.append((yield from later.result()))
        except ValueError as error:
            done.append(error)

    def run() -> None:
        while callbacks:
            callbacks.pop(0)()  # type: ignore[operator]

    later: SlicedFuture[list[str]] = SlicedFuture(slices)
    pending: Pending[str, Exception] = Pending(later.succeed, later.fail)
    parts = [pending.add(), pending.add()]
    slices.begin(work(pending, later), Owner())
    pending.complete(parts[1], "b")
    pending.complete(parts[0], "a")
    run()
    assert done == [["a", "b"]]

    later = SlicedFuture(slices)
    pending = Pending(later.succeed, later.fail)
    part = pending.add()
    slices.begin(work(pending, later), Owner())
    error = ValueError()
    pending.fail(part, error)
    run()
    assert done[1:] == [error]
