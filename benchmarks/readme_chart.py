"""The chart of README.md, from the numbers of its table: ``python -m moldau.benchmarks.readme_chart`` writes it.

A bar is as long as its number is, compared with the longer one of its row. The first number of a cell counts.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
CHART: Final = ROOT / "docs" / "performance" / "summary.svg"
ROWS: Final = {
    "Java producer, 1,000 B": "Java producer, 1,000 B records",
    "Java consumer": "Java consumer",
    "Spark batch read": "Spark batch read, 16 partitions",
    "One record per request": "One record per request, 64 connections",
    "Process start": "Start to first response (less is better)",
    "Memory when idle": "Memory when idle (less is better)",
}
"""The beginning of a row of the table, and its title in the chart."""

_WIDTH, _ROW, _BAR, _LEFT, _LONGEST = 760, 46, 14, 270, 390
_COLORS = ("#3f51b5", "#9e9e9e")


def chart(readme: str) -> str:
    """The chart as SVG. Raises ValueError if a row is missing from the table."""
    height = 40 + _ROW * len(ROWS)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" '
        'font-size="13" role="img" aria-label="Moldau and Apache Kafka 4.3.1 in six benchmarks">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for number, name in enumerate(("Moldau", "Apache Kafka 4.3.1")):
        x = _LEFT + 110 * number
        parts.append(f'<rect x="{x}" y="10" width="12" height="12" fill="{_COLORS[number]}"/>')
        parts.append(f'<text x="{x + 18}" y="20">{name}</text>')
    for row, (start, title) in enumerate(ROWS.items()):
        y = 36 + _ROW * row
        parts.append(f'<text x="{_LEFT - 10}" y="{y + 20}" text-anchor="end">{escape(title)}</text>')
        cells = _cells(readme, start)
        longest = max(value for value, _ in cells)
        for number, (value, text) in enumerate(cells):
            top, width = y + number * (_BAR + 2), max(1, round(_LONGEST * value / longest))
            parts.append(f'<rect x="{_LEFT}" y="{top}" width="{width}" height="{_BAR}" fill="{_COLORS[number]}"/>')
            parts.append(f'<text x="{_LEFT + width + 6}" y="{top + 12}">{escape(text)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _cells(readme: str, start: str) -> list[tuple[float, str]]:
    """The numbers of Moldau and of Apache Kafka in a row of the table, and their text with the unit."""
    row = re.search(rf"^\| {re.escape(start)}[^|]*\|([^|]*)\|([^|]*)\|$", readme, re.MULTILINE)
    if row is None:
        raise ValueError(f"README.md has no row {start!r}")
    texts = [re.split(r"; |, (?=\D|\d+ us)", cell.strip())[0] for cell in row.groups()]
    units = [text.rpartition(" ")[2] for text in texts]
    if units[0] != units[1]:
        raise ValueError(f"the row {start!r} of README.md has two units: {', '.join(units)}")
    return [(float(text.split()[0].replace(",", "")), text) for text in texts]


if __name__ == "__main__":
    CHART.write_text(chart((ROOT / "README.md").read_text(encoding="utf-8")), encoding="utf-8")
