"""The JSON report: what programs read, and what `moldau conformance compare` compares.

{"moldau": VERSION, "server": {...}, "complete": true, "summary": {"passed": 612, ...}, "cases": [{"id": ..., "area":
..., "verdict": "passed" | "failed" | "not applicable" | "inconclusive", "seconds": ..., ...}]}

A case for one version of an API has `api` and `version`. Each verdict but "passed" has a `reason`. A failed case also
has `what`, `expected` and `actual`, its `exchange` (the frames in order, with their bytes in hexadecimal and, if
possible, decoded), and `differs`: the frame, the paths and the bytes of the field that differs, if they are known.
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
from .difference import locate


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
        "sends": case.sends,
        "expects": case.expects,
        "why": case.why,
        "verdict": result.verdict.value,
        "seconds": round(result.seconds, 3),
    }
    if case.client is not None:
        found["client"] = case.client
    if case.tested is not None:
        found |= {"api": case.tested.api.message_name, "version": case.tested.version}
    if result.reason:
        found["reason"] = result.reason
    if result.verdict is Verdict.FAILED:
        found |= {"what": result.what, "expected": result.expected, "actual": result.actual}
    if result.frames:
        found["exchange"] = [_frame(frame) for frame in result.frames]
    place = locate(result.frames, result.what, result.actual)
    if place is not None:
        found["differs"] = {
            "frame": place.frame,
            "paths": [list(path) for path in place.paths],
            "bytes": [list(each) for each in place.ranges],
        }
    return found


def _frame(frame: Frame) -> dict[str, Any]:
    return {
        "seconds": round(frame.seconds, 4),
        "connection": frame.connection,
        "direction": "request" if frame.sent else "response",
        "title": frame.title,
        "size": frame.size,
        "hex": frame.data.hex(),
        "decoded": [
            {type(part).__name__: struct_as_json(part, version)}
            for part, version in zip(frame.decoded(), frame.versions, strict=False)
        ],
    }


def write(path: Path, report: dict[str, Any]) -> None:
    path.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read(path: Path) -> Report:
    """Raises ValueError if the file is not a report, and OSError."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return Report(data["server"], {case["id"]: case for case in data["cases"]})
    except KeyError as error:
        raise ValueError(f"{path} is not a JSON report of `moldau conformance`: it has no {error}") from error
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} is not a JSON report of `moldau conformance`: {error}") from error
