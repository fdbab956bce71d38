"""Plots a report: for each topic the counts of all tiers over time, and below them the findings.

The plot is readable on white and on black pages: it has no background, and its text is gray. Only this module needs
matplotlib.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .report import SERVER, Kind, Report, State, Window
from .request import AuditError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = (".svg", ".png")

# Matplotlib counts days since 1970 and supports years up to 9999. A later window is only in the table.
_DAY_MS = 86_400_000
_LATEST_MS = 250_000_000_000_000

_GREY = "#808890"
_STYLE = {
    "svg.hashsalt": "moldau",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": _GREY,
    "axes.edgecolor": _GREY,
    "axes.labelcolor": _GREY,
    "xtick.color": _GREY,
    "ytick.color": _GREY,
    "legend.frameon": False,
}
# The server is drawn first, with the widest line: equal lines of tiers are drawn on top of it.
_TIERS = ("#2f81f7", "#db6d28", "#3fb950", "#a371f7", "#d29922", "#39c5cf")
_KINDS = {Kind.MISSING: "#e5534b", Kind.DOUBLE: "#db6d28", Kind.UNCOUNTED: "#a371f7", Kind.LATE: "#d29922"}


def check_plot(path: Path) -> None:
    """AuditError if the plot could not be written; checked before Spark is started."""
    if path.suffix.lower() not in FORMATS:
        raise AuditError(f"{path} is neither {' nor '.join(FORMATS)}: a plot is written in one of these formats")
    if not path.parent.is_dir():
        raise AuditError(f"there is no folder {path.parent} for the plot")
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise AuditError("a plot needs matplotlib: pip install matplotlib") from error


def draw(report: Report, path: Path) -> None:
    """Write the plot; a report without windows results in a text that says so."""
    import matplotlib
    from matplotlib.figure import Figure

    topics = sorted({window.books.topic for window in report.windows})
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(9, 1 + 3.4 * max(len(topics), 1)), layout="constrained")
        if not topics:
            figure.text(0.5, 0.5, "no window has records", ha="center")
        else:
            heights = [2, 1] * len(topics)
            axes = figure.subplots(2 * len(topics), 1, squeeze=False, gridspec_kw={"height_ratios": heights})
            for number, topic in enumerate(topics):
                windows = [window for window in report.windows if window.books.topic == topic]
                _draw_topic(axes[2 * number][0], axes[2 * number + 1][0], topic, windows, report.tiers)
        temporary = path.with_name(f".{path.name}.writing")
        metadata = {"Date": None, "Creator": None} if path.suffix.lower() == ".svg" else None
        figure.savefig(
            temporary, format=path.suffix[1:].lower(), dpi=150, transparent=True, bbox_inches="tight", metadata=metadata
        )
    temporary.replace(path)


def _draw_topic(counts: Axes, findings: Axes, topic: str, windows: Sequence[Window], tiers: Sequence[str]) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.ticker import MaxNLocator

    length = windows[0].books.window_end - windows[0].books.window_start
    days = length / _DAY_MS
    shown = [window for window in windows if abs(window.books.window_start) < _LATEST_MS]
    begins = [window.books.window_start / _DAY_MS for window in shown]
    middles = [begin + days / 2 for begin in begins]
    counts.set_title(f"{topic}: records in each window of {timedelta(milliseconds=length)}", loc="left")
    for number, tier in enumerate(sorted(tiers, key=lambda tier: tier != SERVER)):
        values = [window.counts.get(tier) for window in shown]
        if any(value is not None for value in values):
            line: dict[str, Any] = {"linewidth": 5, "alpha": 0.4} if tier == SERVER else {"linewidth": 1.3}
            gaps = [float("nan") if value is None else float(value) for value in values]
            counts.plot(middles, gaps, marker="o", markersize=3, color=_TIERS[number % len(_TIERS)], label=tier, **line)
    for begin, window in zip(begins, shown, strict=True):
        if window.state is State.OPEN:
            counts.axvspan(begin, begin + days, color=_GREY, alpha=0.15, linewidth=0)
    counts.set_ylabel("records")
    counts.set_ylim(bottom=0)
    counts.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), title="tier")
    bottoms = [0] * len(shown)
    for kind, colour in _KINDS.items():
        totals = [window.total(kind) for window in shown]
        if any(totals):
            findings.bar(middles, totals, width=days * 0.8, bottom=bottoms, color=colour, label=kind.value)
            bottoms = [bottom + total for bottom, total in zip(bottoms, totals, strict=True)]
    if any(bottoms):
        findings.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), title="findings")
    else:
        findings.text(0.5, 0.5, "no findings", ha="center", va="center", transform=findings.transAxes)
        findings.set_ylim(0, 1)
    findings.set_ylabel("records")
    findings.set_xlabel("start of the window, UTC (gray: still open)")
    for axes in (counts, findings):
        axes.spines[["top", "right"]].set_visible(False)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
        dates = AutoDateLocator(tz=UTC)
        axes.xaxis.set_major_locator(dates)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(dates, tz=UTC))
        if begins:
            axes.set_xlim(min(begins) - days / 2, max(begins) + days * 1.5)
