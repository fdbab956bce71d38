"""The time of requests on the event loop: in one piece, in slices, and one within another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from moldau.server.concurrency.slices import Slices
from moldau.server.requests.loop_time import LoopTime, Spent


class Owner:
    cancelled = False


class Measured:
    """Requests whose work takes the seconds that it says."""

    def __init__(self) -> None:
        self.now = 0.0
        self.times = LoopTime(lambda: self.now)
        self.charged: list[float] = []
        self.soon: list[Any] = []
        self.slices = Slices(self.soon.append, clock=lambda: self.now)
        self.slices.measured = self.times.in_slices

    def work(self, seconds: float) -> Spent:
        spent = self.times.current
        assert spent is not None
        spent.charge = self.charged.append
        self.now += seconds
        return spent

    def serve(self, *seconds: float) -> Spent:
        """A request that takes the first seconds at once, and the others in slices."""

        def steps() -> Iterator[int]:
            for each in seconds[1:]:
                self.now += each
                yield 0

        def request() -> Spent:
            spent = self.work(seconds[0])
            if len(seconds) > 1:
                self.slices.begin(steps(), Owner(), immediately=False)  # type: ignore[arg-type]
            return spent

        return self.times.measure(request)


def test_a_request_is_charged_when_it_was_served() -> None:
    measured = Measured()
    measured.serve(2.0)
    measured.now += 100
    measured.serve(3.0)
    assert measured.charged == [2.0, 3.0]
    assert measured.times.current is None


def test_a_part_can_be_charged_before_the_end() -> None:
    measured = Measured()

    def request() -> float:
        spent = measured.work(2.0)
        taken = measured.times.take(spent)
        measured.now += 1.0
        return taken

    assert measured.times.measure(request) == 2.0
    assert measured.charged == [1.0]


def test_slices_belong_to_the_request_that_has_begun_them_without_the_time_between_them() -> None:
    measured = Measured()
    measured.serve(1.0, 2.0, 3.0)
    while measured.soon:
        measured.now += 100.0
        measured.soon.pop()()
    assert measured.charged[0] == 1.0
    assert sum(measured.charged) == 6.0
    assert len(measured.slices) == 0


def test_a_request_does_not_pay_for_another_one_that_it_completes() -> None:
    measured = Measured()

    def outer() -> None:
        measured.work(1.0)
        measured.serve(10.0)
        measured.now += 2.0

    measured.times.measure(outer)
    assert measured.charged == [10.0, 3.0]


def test_a_failure_is_charged_and_steps_that_end_early_are_closed() -> None:
    measured = Measured()

    def request() -> None:
        measured.work(1.0)
        raise ValueError

    with pytest.raises(ValueError):
        measured.times.measure(request)
    assert measured.charged == [1.0]
    assert measured.times.current is None
    closed = []

    def steps() -> Iterator[int]:
        try:
            yield 0
            yield 0
        finally:
            closed.append(True)

    owner = Owner()
    begun = steps()
    next(begun)
    measured.times.measure(lambda: measured.slices.begin(begun, owner, immediately=False))  # type: ignore[arg-type]
    owner.cancelled = True
    while measured.soon:
        measured.soon.pop()()
    assert closed == [True]
