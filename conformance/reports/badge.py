"""A badge for a README: an SVG with the share of applicable cases that passed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..outcome import Result, Verdict
from . import summary

_LABEL: Final = "Kafka conformance"
_CHARACTER_WIDTH: Final = 6.6
_PADDING: Final = 10


def to_badge(results: Sequence[Result]) -> str:
    """The SVG. The text is "612 / 615"; green if all passed, red below 90 %."""
    counts = summary.total(results)
    passed, tested = counts[Verdict.PASSED], counts[Verdict.PASSED] + counts[Verdict.FAILED]
    value = f"{passed} / {tested}" if tested else "not tested"
    if not tested:
        color = "#6e7781"
    elif passed == tested:
        color = "#1a7f37"
    else:
        color = "#9a6700" if passed >= 0.9 * tested else "#cf222e"
    left, right = (round(len(text) * _CHARACTER_WIDTH) + 2 * _PADDING for text in (_LABEL, value))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" '
        f'aria-label="{_LABEL}: {value}"><title>{_LABEL}: {value}</title>'
        f'<rect width="{left}" height="20" fill="#24292f"/>'
        f'<rect x="{left}" width="{right}" height="20" fill="{color}"/>'
        f'<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">'
        f'<text x="{left / 2}" y="14">{_LABEL}</text><text x="{left + right / 2}" y="14">{value}</text></g></svg>\n'
    )
