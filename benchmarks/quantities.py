"""The numbers that rows give, as people read them: words, units, and which of them say the same twice.

A number's name is one of `row`'s, or such a one with more words after it (``p99_us_without``), which tell it from
another of its kind.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Quantity:
    """A name of `row`, explained."""

    name: str
    label: str
    unit: str
    kind: str
    """Of two numbers of a kind that stand for the same, the one that a row gives first is the one to show."""


_ALL = (
    Quantity("records_per_s", "records", "records/s", "rate"),
    Quantity("requests_per_s", "requests", "requests/s", "rate"),
    Quantity("mb_per_s", "throughput", "MB/s", "rate"),
    Quantity("gb_per_s", "throughput", "GB/s", "rate"),
    Quantity("p50_us", "p50", "µs", "p50"),
    Quantity("p99_us", "p99", "µs", "p99"),
    Quantity("p999_us", "p99.9", "µs", "p99.9"),
    Quantity("p50_ms", "p50", "ms", "p50"),
    Quantity("p99_ms", "p99", "ms", "p99"),
    Quantity("p999_ms", "p99.9", "ms", "p99.9"),
    Quantity("cpu_s_per_gb", "CPU", "s per GB", "CPU"),
    Quantity("cpu_us_per_request", "CPU", "µs per request", "CPU"),
    Quantity("cpu_us_per_record", "CPU", "µs per record", "CPU"),
    Quantity("seconds", "time", "s", "time"),
    Quantity("rss_mb", "memory", "MB", "memory"),
    Quantity("kb_per_connection", "memory", "kB per connection", "memory per connection"),
)


def quantity(number: str) -> Quantity | None:
    """What a number is; None for one that has no name of `row`, such as a count."""
    return next((each for each in _ALL if number == each.name or number.startswith(each.name + "_")), None)


def label(number: str) -> str:
    """``p99 without, µs``."""
    found = quantity(number)
    if found is None:
        return number.replace("_", " ")
    more = number.removeprefix(found.name).replace("_", " ")
    return f"{found.label}{more}, {found.unit}"


def main_numbers(numbers: Iterable[str], wanted: Iterable[str]) -> list[str]:
    """What to show: of each kind the first, and what is ``wanted`` besides. Numbers with more words are kinds of their
    own."""
    shown: dict[str, str] = {}
    wanted = set(wanted)
    for number in numbers:
        found = quantity(number)
        kind = number if found is None or number != found.name or number in wanted else found.kind
        shown.setdefault(kind, number)
    return list(shown.values())


def digits(value: float) -> str:
    """Three digits that count, and thousands apart: ``0.0123``, ``1.5``, ``40,300``."""
    if value == 0:
        return "0"
    rounded = float(f"{value:.3g}")
    if abs(rounded) >= 100:
        return f"{rounded:,.0f}"
    return f"{rounded:.6f}".rstrip("0").rstrip(".")
