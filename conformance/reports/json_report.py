"""The JSON report: what programs read, and what `moldau conformance compare` compares.

{"moldau": VERSION, "server": {...}, "complete": true, "summary": {"passed": 612, ...}, "cases": [{"id": ..., "area":
..., "verdict": "passed" | "failed" | "not applicable" | "inconclusive", "seconds": ..., ...}]}

A failed case also has `what`, `expected` and `actual`, and its `exchange`: the frames in order, with their bytes in
hexadecimal and, if possible, decoded.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ... import __version__
from ...protocol.struct_json import struct_as_json
from ..exchange import Frame
from ..outcome import Result, Verdict
from . import summary


class Report(NamedTuple):
    """A JSON report that was read: what a comparison needs."""

    server: dict[str, Any]
    cases: dict[str, dict[str, Any]]


def to_json(server: dict[str, Any], results: Sequence[Result], *, complete: bool) -> dict[str, Any]:
    """`complete` is false if the run was interrupted or the server was lost."""
    counts = summary.total(results)
    return {
        "moldau": __version__,
        "server": server,
        "complete": complete,
        "summary": {verdict.value: counts[verdict] for verdict in Verdict},
        "cases": [_case(result) for result in results],
    }


def _case(result: Result) -> dict[str, Any]:
    case = result.case
    found: dict[str, Any] = {
        "id": case.id,
        "area": case.area,
        "layer": case.layer.value,
        "level": case.level.value,
        "title": case.title,
        "source": case.source,
        "verdict": result.verdict.value,
        "seconds": round(result.seconds, 3),
    }
    if result.reason:
        found["reason"] = result.reason
    if result.verdict is Verdict.FAILED:
        found |= {"what": result.what, "expected": result.expected, "actual": result.actual}
        found |= {"sends": case.sends, "expects": case.expects, "why": case.why}
    if result.frames:
        found["exchange"] = [_frame(frame) for frame in result.frames]
    return found


def _frame(frame: Frame) -> dict[str, Any]:
    return {
        "seconds": round(frame.seconds, 4),
        "connection": frame.connection,
        "direction": "request" if frame.sent else "response",
        "title": frame.title,
        "size": frame.size,
        "hex": frame.data.hex(),
        "decoded": [{type(part).__name__: struct_as_json(part)} for part in frame.decoded()],
    }


def write(path: Path, report: dict[str, Any]) -> None:
    path.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read(path: Path) -> Report:
    """Raises ValueError if the file is not a report, and OSError."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return Report(data["server"], {case["id"]: case for case in data["cases"]})
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a JSON report of `moldau conformance`: {error}") from error
