"""The measurements of the other client if the server stops for some time."""

from __future__ import annotations

from .bystander import PACE_MS, numbers

SHORT_MS = 1.0
STOP_MS = 200.0
ROUNDS = [SHORT_MS] * 700


def test_one_stop_is_the_longest_round_and_not_the_p99() -> None:
    seen = numbers([*ROUNDS, STOP_MS, *ROUNDS], ROUNDS, [])
    assert (seen.p99_ms, seen.worst_ms) == (SHORT_MS, STOP_MS)


def test_several_stops_are_the_p99_with_the_rounds_that_they_delay() -> None:
    seen = numbers([*ROUNDS, STOP_MS, STOP_MS, STOP_MS], ROUNDS, [])
    assert seen.p99_ms >= STOP_MS - 4 * PACE_MS
    assert seen.worst_ms == STOP_MS


def test_no_rounds_are_zero() -> None:
    seen = numbers([], [], [])
    assert (seen.rounds, seen.p99_ms, seen.worst_ms) == (0, 0.0, 0.0)
