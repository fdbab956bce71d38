"""Medians, ratios and targets."""

import pytest

from moldau.benchmarks.comparison import Verdict, lines, verdicts
from moldau.benchmarks.quantities import digits, label, main_numbers
from moldau.benchmarks.results import Results
from moldau.benchmarks.row import Subject, Target

from .conftest import measured, targeted

MOLDAU, APACHE, CEILING = Subject.MOLDAU, Subject.APACHE, Subject.CEILING


def verdict(results: Results, target: Target) -> Verdict:
    (only,) = verdicts(results, [targeted(target)])
    return only


def test_ratios_are_of_medians() -> None:
    results = measured(
        requests_per_s={MOLDAU: [90.0, 300.0, 100.0], APACHE: [50.0, 10.0, 80.0], CEILING: [200.0, 125.0, 50.0]}
    )
    (line,) = lines(results, [targeted()])

    assert line.ratio == 2.0
    assert line.of_the_ceiling == 0.8
    assert str(line.moldau) == "100 (90 to 300)"


def test_a_number_of_only_one_subject_has_no_ratio() -> None:
    (line,) = lines(measured(rss_mb={MOLDAU: [25.0]}), [targeted()])

    assert (line.apache, line.ratio, line.of_the_ceiling) == (None, None, None)
    assert str(line.moldau) == "25"


@pytest.mark.parametrize(("moldau", "reached"), [(120.0, True), (119.0, False)])
def test_at_least_a_ratio(moldau: float, reached: bool) -> None:
    results = measured(records_per_s={MOLDAU: [moldau], APACHE: [100.0]})
    found = verdict(results, Target("records_per_s", at_least=1.2))

    assert found.reached is reached
    assert found.wanted == "≥ 1.2 × Apache Kafka"
    assert found.measured == f"{moldau / 100:.2f}"


@pytest.mark.parametrize(("moldau", "reached"), [(50.0, True), (51.0, False)])
def test_at_most_a_ratio(moldau: float, reached: bool) -> None:
    results = measured(p99_us={MOLDAU: [moldau], APACHE: [100.0]})

    assert verdict(results, Target("p99_us", at_most=0.5)).reached is reached


def test_a_ratio_to_the_ceiling() -> None:
    results = measured(mb_per_s={MOLDAU: [89.0], APACHE: [1.0], CEILING: [100.0]})
    found = verdict(results, Target("mb_per_s", at_least=0.9, against=CEILING))

    assert (found.wanted, found.measured, found.reached) == ("≥ 0.9 × the ceiling", "0.89", False)


@pytest.mark.parametrize(("apache", "reached"), [(0.0, False), (1.0, True)])
def test_targets_in_whole_milliseconds_have_a_tolerance(apache: float, reached: bool) -> None:
    """2 ms against 0 ms has no ratio, but a verdict."""
    results = measured(p99_ms={MOLDAU: [2.0], APACHE: [apache]})
    found = verdict(results, Target("p99_ms", at_most=1.0, plus=1.0))

    assert found.reached is reached
    assert found.wanted == "≤ Apache Kafka + 1 ms"
    assert found.measured == f"2 ms, Apache Kafka {apache:.0f} ms"


@pytest.mark.parametrize(("moldau", "reached"), [(0.0, True), (1.0, False)])
def test_at_most_apaches_zero(moldau: float, reached: bool) -> None:
    results = measured(p50_ms={MOLDAU: [moldau], APACHE: [0.0]})

    assert verdict(results, Target("p50_ms", at_most=1.0)).reached is reached


@pytest.mark.parametrize(("moldau", "reached"), [(0.3, True), (0.31, False)])
def test_a_limit_for_the_number_itself(moldau: float, reached: bool) -> None:
    results = measured(seconds={MOLDAU: [moldau], APACHE: [0.001]})
    found = verdict(results, Target("seconds", at_most=0.3, against=None))

    assert (found.wanted, found.measured, found.reached) == ("≤ 0.3 s", f"{moldau:g} s", reached)


@pytest.mark.parametrize("value", [9.0, 21.0])
def test_a_number_between_two_bounds(value: float) -> None:
    target = Target("rss_mb", at_least=10, at_most=20, against=None)

    assert verdict(measured(rss_mb={MOLDAU: [15.0]}), target).reached is True
    assert verdict(measured(rss_mb={MOLDAU: [value]}), target).reached is False


def test_an_unmeasured_target_is_neither_reached_nor_missed() -> None:
    target = Target("records_per_s", at_least=1.0)

    assert verdict(Results(date="2026-11-21"), target).reached is None
    assert verdict(measured(records_per_s={MOLDAU: [1.0]}), target).reached is None
    assert verdict(measured(mb_per_s={MOLDAU: [1.0], APACHE: [1.0]}), target).reached is None


def test_only_one_of_equivalent_numbers_is_shown() -> None:
    given = ["requests_per_s", "mb_per_s", "p50_us", "p99_us", "p99_us_without", "cpu_us_per_request", "cpu_s_per_gb"]

    shown = ["requests_per_s", "p50_us", "p99_us", "p99_us_without", "cpu_us_per_request"]
    assert main_numbers(given, []) == shown
    assert main_numbers(given, ["mb_per_s"]) == ["mb_per_s", *shown[1:]]
    assert main_numbers(["connections", *given], []) == ["connections", *shown]


def test_labels_have_units() -> None:
    assert [label(name) for name in ("p999_us", "p50_us_without", "requests_per_s", "gb_per_s_read", "cpu_growth")] == [
        "p99.9, µs",
        "p50 without, µs",
        "requests/s",
        "read, GB/s",
        "cpu growth",
    ]


def test_numbers_have_three_significant_digits() -> None:
    values = (0, 0.000123456, 0.0955, 1.5, 15.566, 123.4, 40260.9, 99.96)

    assert [digits(value) for value in values] == ["0", "0.000123", "0.0955", "1.5", "15.6", "123", "40,300", "100"]
