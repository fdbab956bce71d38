"""The chart of README.md shows the numbers of its table."""

from __future__ import annotations

import re

import pytest

from moldau.benchmarks.readme_chart import CHART, ROOT, ROWS, chart

in_checkout = pytest.mark.skipif(not (ROOT / "README.md").exists(), reason="reads the README of a checkout")


@in_checkout
def test_the_chart_is_that_of_the_table() -> None:
    expected = chart((ROOT / "README.md").read_text(encoding="utf-8"))

    assert CHART.read_text(encoding="utf-8") == expected, "run: python -m moldau.benchmarks.readme_chart"


def test_bars_have_the_proportions_of_their_numbers() -> None:
    table = "".join(f"| {start} | 1,000 MB/s; 2 MB/s | 500 MB/s; 9 MB/s |\n" for start in ROWS)

    svg = chart(table)

    bars = [int(width) for width in re.findall(r'width="(\d+)" height="14"', svg)]
    assert bars == [390, 195] * len(ROWS)
    assert svg.count("1,000 MB/s") == svg.count("500 MB/s") == len(ROWS)


def test_a_missing_row_and_different_units_are_errors() -> None:
    with pytest.raises(ValueError, match="no row 'Java producer"):
        chart("| other | 1 s | 2 s |")
    with pytest.raises(ValueError, match="two units: s, ms"):
        chart("".join(f"| {start} | 1 s | 2 ms |\n" for start in ROWS))
