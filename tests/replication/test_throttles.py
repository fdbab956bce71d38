"""Rates of replication, and the replicas that they concern (KIP-73)."""

from __future__ import annotations

import pytest

from moldau.replication.throttles import Throttle, is_throttled

NOW = 5_000_000


def throttle(bytes_per_second: int) -> Throttle:
    created = Throttle()
    created.bytes_per_second = bytes_per_second
    return created


def test_nothing_is_limited_without_a_rate() -> None:
    unlimited = Throttle()
    unlimited.record(1 << 40, NOW)
    assert not unlimited.is_limited
    assert not unlimited.is_exceeded(NOW)


def test_the_first_bytes_are_measured_over_a_second() -> None:
    limited = throttle(100)
    limited.record(100, NOW)
    assert not limited.is_exceeded(NOW)
    limited.record(1, NOW + 1)
    assert limited.is_exceeded(NOW + 1)


def test_the_rate_decreases_with_time() -> None:
    limited = throttle(100)
    limited.record(500, NOW)
    assert [limited.is_exceeded(NOW + milliseconds) for milliseconds in (0, 4999, 5000)] == [True, True, False]


def test_bytes_are_forgotten_after_eleven_seconds() -> None:
    limited = throttle(1)
    limited.record(1_000_000, NOW)
    assert limited.is_exceeded(NOW + 10_999)
    assert not limited.is_exceeded(NOW + 11_000)
    limited.record(1, NOW + 11_000)
    assert not limited.is_exceeded(NOW + 11_001)


def test_a_steady_rate_is_measured_as_it_is() -> None:
    below, above = throttle(1000), throttle(1000)
    for step in range(300):
        below.record(95, NOW + 100 * step)
        above.record(110, NOW + 100 * step)
    now_ms = NOW + 100 * 300
    assert (below.is_exceeded(now_ms), above.is_exceeded(now_ms)) == (False, True)


def test_a_rate_of_0_stops_everything_after_the_first_bytes() -> None:
    limited = throttle(0)
    assert not limited.is_exceeded(NOW)
    limited.record(1, NOW)
    assert limited.is_exceeded(NOW + 10_000)


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [
        (None, False),
        ("", False),
        ("*", True),
        ("0:1", True),
        ("0:2,0:1", True),
        ("0:2, 0:1", True),
        ("1:1,0:11", False),
    ],
)
def test_the_setting_of_the_topic_names_replicas(replicas: str | None, expected: bool) -> None:
    assert is_throttled(replicas, 0, 1) is expected
