"""The numbers of rows in readable form: names, units, and which of them mean the same.

A number's name is one of those in `row`, or one with a suffix (``p99_us_without``), which distinguishes it from another
number of its kind.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Quantity:
    """The description of a name in `row`."""

    name: str
    label: str
    unit: str
    kind: str
    """Of two numbers of the same kind, the first one of a row is shown."""


_ALL = (
    Quantity("records_per_s", "", "records/s", "rate"),
    Quantity("requests_per_s", "", "requests/s", "rate"),
    Quantity("transactions_per_s", "", "transactions/s", "rate"),
    Quantity("mb_per_s", "", "MB/s", "rate"),
    Quantity("gb_per_s", "", "GB/s", "rate"),
    Quantity("p50_us", "p50", "µs", "p50"),
    Quantity("p99_us", "p99", "µs", "p99"),
    Quantity("p999_us", "p99.9", "µs", "p99.9"),
    Quantity("max_us", "highest", "µs", "highest"),
    Quantity("p50_ms", "p50", "ms", "p50"),
    Quantity("p99_ms", "p99", "ms", "p99"),
    Quantity("p999_ms", "p99.9", "ms", "p99.9"),
    Quantity("cpu_s_per_gb", "CPU", "s per GB", "CPU"),
    Quantity("cpu_us_per_request", "CPU", "µs per request", "CPU"),
    Quantity("cpu_us_per_record", "CPU", "µs per record", "CPU"),
    Quantity("cpu_us_per_member", "CPU", "µs per member", "CPU"),
    Quantity("cpu_us_per_transaction", "CPU", "µs per transaction", "CPU"),
    Quantity("cpu_us_per_connection", "CPU", "µs per connection", "CPU"),
    Quantity("seconds_per_gb", "time", "s per GB", "time per GB"),
    Quantity("seconds", "time", "s", "time"),
    Quantity("rss_mb", "memory", "MB", "memory"),
    Quantity("kb_per_connection", "memory", "kB per connection", "memory per connection"),
    Quantity("kb_per_transactional_id", "memory", "kB per transactional id", "memory per transactional id"),
    Quantity("kb_per_producer_id", "memory", "kB per producer id", "memory per producer id"),
)


def quantity(number: str) -> Quantity | None:
    """The quantity of a number; None for one without a name in `row`, such as a count."""
    return next((each for each in _ALL if number == each.name or number.startswith(each.name + "_")), None)


def label(number: str) -> str:
    """``p99 without, µs``; a rate is named after its unit."""
    found = quantity(number)
    if found is None:
        return number.replace("_", " ")
    words = (found.label + number.removeprefix(found.name).replace("_", " ")).strip()
    return f"{words}, {found.unit}" if words else found.unit


def main_numbers(numbers: Iterable[str], wanted: Iterable[str]) -> list[str]:
    """The numbers to show: for each kind those in ``wanted``, or else the first. A number with a suffix is a separate
    kind."""
    kinds: dict[str, list[str]] = {}
    for number in numbers:
        found = quantity(number)
        kinds.setdefault(number if found is None or number != found.name else found.kind, []).append(number)
    wanted = set(wanted)
    return [
        number for of_kind in kinds.values() for number in [each for each in of_kind if each in wanted] or of_kind[:1]
    ]


def digits(value: float) -> str:
    """Three significant digits, with thousands separators: ``0.0123``, ``1.5``, ``40,300``."""
    if value == 0:
        return "0"
    rounded = float(f"{value:.3g}")
    if abs(rounded) >= 100:
        return f"{rounded:,.0f}"
    return f"{rounded:.6f}".rstrip("0").rstrip(".")
