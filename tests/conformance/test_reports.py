"""The JSON, JUnit and text reports, the badge, and the comparison of two reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from moldau.conformance.exchange import Frame
from moldau.conformance.outcome import Result, Verdict
from moldau.conformance.reports import badge, comparison, difference, json_report, junit, text
from moldau.protocol.api import ApiKey
from moldau.protocol.codec import encode
from moldau.protocol.messages.headers import RequestHeader, ResponseHeader
from moldau.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse

from .samples import HOSTILE, passes, sample

SERVER = {"address": "localhost:9092", "apis": {"Produce": [3, 13]}}


def response(*base_offsets: int) -> Frame:
    """A Produce v9 response with one partition for each offset."""
    partitions = [PartitionProduceResponse(index=at, base_offset=offset) for at, offset in enumerate(base_offsets)]
    message = ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=partitions)])
    data = encode(ResponseHeader(correlation_id=5), 1) + encode(message, 9)
    return Frame(0.25, 0, False, data, len(data), 0, 9)


def failed(identifier: str, *, what: str = "base_offset", frames: tuple[Frame, ...] = (), **fields: Any) -> Result:
    case = sample(identifier, passes, **fields)
    return Result(case, Verdict.FAILED, 0.5, f"{what}: expected 3, got 4", what, "3", "4", frames)


RESULTS = [
    Result(sample("produce.a", passes), Verdict.PASSED, 0.1),
    failed("produce.b", frames=(response(1, 4),)),
    Result(sample("fetch.c", passes), Verdict.NOT_APPLICABLE, 0.0, "the server does not have Fetch v18"),
    Result(sample("fetch.d", passes), Verdict.INCONCLUSIVE, 0.2, f"no topic \0\x1b[31m{HOSTILE}"),
]


# JSON


def test_the_json_report() -> None:
    report = json_report.to_json(SERVER, RESULTS, complete=True)
    assert list(report) == ["moldau", "server", "complete", "summary", "cases"]
    assert report["server"] == SERVER
    assert report["summary"] == {"passed": 1, "failed": 1, "not applicable": 1, "inconclusive": 1}
    always = ["id", "area", "layer", "level", "title", "source", "sends", "expects", "why", "verdict", "seconds"]
    passed, failure, not_applicable, inconclusive = report["cases"]
    assert list(passed) == always
    assert list(not_applicable) == list(inconclusive) == [*always, "reason"]
    assert list(failure) == [*always, "reason", "what", "expected", "actual", "exchange", "differs"]
    (frame,) = failure["exchange"]
    assert list(frame) == ["seconds", "connection", "direction", "title", "size", "hex", "decoded"]
    assert (frame["direction"], frame["title"], frame["seconds"]) == ("response", "Produce v9 response", 0.25)
    header, message = frame["decoded"]
    assert header == {"ResponseHeader": {"correlation_id": 5}}
    assert "topic_id" not in message["ProduceResponse"]["responses"][0]  # since version 13
    assert report == json_report.to_json(SERVER, RESULTS, complete=True)


@pytest.mark.parametrize(
    ("api_key", "version", "parts"), [(ApiKey.API_VERSIONS, 100, 1), (ApiKey.PRODUCE, 99, 1), (32_000, 0, 0)]
)
def test_a_request_that_kafka_does_not_have_is_in_the_report(api_key: int, version: int, parts: int) -> None:
    header = RequestHeader(request_api_key=api_key, request_api_version=version, correlation_id=5, client_id="c")
    data = encode(header, 2) + bytes(3)
    result = failed("produce.b", frames=(Frame(0.25, 0, True, data, len(data)), response(1, 4)))

    (case,) = json_report.to_json(SERVER, [result], complete=True)["cases"]
    request, _ = case["exchange"]
    assert request["hex"] == data.hex()
    assert len(request["decoded"]) == parts
    assert case["differs"]["frame"] == 1


def test_a_json_report_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    json_report.write(path, json_report.to_json(SERVER, RESULTS, complete=True))
    report = json_report.read(path)
    assert report.server == SERVER
    assert report.cases["fetch.d"]["verdict"] == "inconclusive"


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"server": {}, "cases": [1]}', "null"])
def test_a_file_that_is_no_report(tmp_path: Path, content: str) -> None:
    path = tmp_path / "report.json"
    path.write_text(content)
    with pytest.raises(ValueError, match="not a JSON report"):
        json_report.read(path)


# The field that differs


@pytest.mark.parametrize(
    ("what", "paths"),
    [
        ("base_offset", [["partition_responses", 1, "base_offset"]]),
        ("partition_responses[1].base_offset", [["partition_responses", 1, "base_offset"]]),
        ("base_offset of partition 1", [["partition_responses", 1, "base_offset"]]),
        ("partition_responses[0].base_offset", [["partition_responses", 0, "base_offset"]]),
        ("partition_responses[7].base_offset", None),
        ("the connection", None),
    ],
)
def test_the_field_that_differs(what: str, paths: list[list[str | int]] | None) -> None:
    place = difference.locate((response(1, 4),), what, "4")
    if paths is None:
        assert place is None
    else:
        assert place is not None
        assert [list(path) for path in place.paths] == [["responses", 0, *path] for path in paths]


def test_the_bytes_that_differ() -> None:
    frame = response(1, 4)
    place = difference.locate((frame,), "base_offset", "4")
    assert place is not None
    ((first, end),) = place.ranges
    assert frame.data[first:end] == (4).to_bytes(8, "big")


def test_a_truncated_frame_has_no_bytes_that_differ() -> None:
    frame = response(1, 4)
    place = difference.locate((frame._replace(size=20_000),), "base_offset", "4")
    assert place is not None
    assert place.ranges == []


# JUnit and badge


def test_junit() -> None:
    root = ElementTree.fromstring(junit.to_junit(RESULTS))
    fetch, produce = root
    assert fetch.attrib == {
        "name": "fetch", "tests": "2", "failures": "0", "errors": "1", "skipped": "1", "time": "0.200",
    }  # fmt: skip
    assert (produce.get("tests"), produce.get("failures")) == ("2", "1")
    elements = {case.get("name"): [each.tag for each in case] for case in root.iter("testcase")}
    assert elements == {"fetch.c": ["skipped"], "fetch.d": ["error"], "produce.a": [], "produce.b": ["failure"]}
    error = root.find(".//error")
    assert error is not None
    assert HOSTILE in error.get("message", "")


@pytest.mark.parametrize(
    ("results", "words", "color"),
    [
        (RESULTS, "1 / 2", "#cf222e"),
        (RESULTS[:1], "1 / 1", "#1a7f37"),
        (RESULTS[:1] * 19 + RESULTS[1:2], "19 / 20", "#9a6700"),
        (RESULTS[2:], "not tested", "#6e7781"),
    ],
)
def test_badge(results: list[Result], words: str, color: str) -> None:
    svg = badge.to_badge(results)
    ElementTree.fromstring(svg)
    assert words in svg
    assert color in svg


# Text


def test_failures_come_first_and_are_explained() -> None:
    lines = list(text.failures(RESULTS))
    assert lines == [
        "FAILED produce.b (must): the title of produce.b",
        "  base_offset in the Produce v9 response",
        "    expected: 3",
        "    actual:   4",
        "  why: it is a sample.",
        "  source: KIP-98 and Protocol: Produce; details: moldau conformance explain produce.b",
        "",
        f"INCONCLUSIVE fetch.d: no topic \\x00\\x1b[31m{HOSTILE}",
        "",
    ]


def test_many_failures_are_short() -> None:
    results = [failed(f"area.case-{number}", what=f"field {number}") for number in range(100)]
    lines = list(text.failures(results))
    assert len(lines) < 250
    assert lines[-2] == "FAILED area.case-99 (must): field 99"


def test_variants_that_fail_in_the_same_way_are_one_failure() -> None:
    results = [failed(f"area.case.v{number}") for number in range(9)]
    lines = list(text.failures(results))
    assert lines[:2] == [
        "FAILED area.case.v0 (must): the title of area.case.v0",
        "  also area.case.v1, area.case.v2, area.case.v3, area.case.v4 and 4 more",
    ]
    assert len([line for line in lines if line.startswith("FAILED")]) == 1


def test_names_and_versions_of_cases_are_no_difference() -> None:
    results = [
        failed(f"area.case.v{number}", what=f"error_code of conformance-01234567-{number}-topic-1 in v{number}")
        for number in range(3)
    ]
    reasons = [f"conformance-89abcdef-{number}-group-1: JoinGroup v{number}: closed" for number in range(3)]
    results += [
        Result(sample(f"area.setup.v{number}", passes), Verdict.INCONCLUSIVE, 0.1, reason)
        for number, reason in enumerate(reasons)
    ]
    lines = list(text.failures(results))
    assert lines[:3] == [
        "FAILED area.case.v0 (must): the title of area.case.v0",
        "  also area.case.v1, area.case.v2",
        "  error_code of conformance-01234567-0-topic-1 in v0",
    ]
    assert lines[-2] == f"INCONCLUSIVE area.setup.v0, area.setup.v1, area.setup.v2: {reasons[0]}"
    assert len([line for line in lines if line.startswith(("FAILED", "INCONCLUSIVE"))]) == 2


# Comparison


def report_of(**verdicts: str) -> json_report.Report:
    return json_report.Report({}, {name: {"id": name, "verdict": verdict} for name, verdict in verdicts.items()})


def test_a_comparison_shows_what_changed() -> None:
    before = report_of(same="passed", worse="passed", better="failed", removed="passed")
    after = report_of(same="passed", worse="failed", better="passed", added="not applicable")
    found = {each.id: (each.before, each.after, each.is_worse) for each in comparison.differences(before, after)}
    assert found == {
        "worse": ("passed", "failed", True),
        "better": ("failed", "passed", False),
        "removed": ("passed", comparison.MISSING, False),
        "added": (comparison.MISSING, "not applicable", False),
    }


def test_the_command_compares_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from moldau.cli.main import main

    def command(*arguments: str) -> tuple[object, str]:
        with pytest.raises(SystemExit) as ended:
            main(["conformance", "compare", str(tmp_path / "before"), str(tmp_path / "after"), *arguments])
        return ended.value.code, capsys.readouterr().out

    passing = [Result(sample("produce.b", passes), Verdict.PASSED, 0.1)]
    json_report.write(tmp_path / "before", json_report.to_json(SERVER, passing, complete=True))
    json_report.write(tmp_path / "after", json_report.to_json(SERVER, RESULTS[1:2], complete=True))
    code, out = command()
    assert code == 1
    assert out.splitlines()[1].split() == ["produce.b", "passed", "failed"]
    code, out = command("--json")
    assert json.loads(out) == [{"id": "produce.b", "before": "passed", "after": "failed"}]
    (tmp_path / "after").write_bytes((tmp_path / "before").read_bytes())
    assert command() == (0, "no differences\n")
    for other in ("not JSON", '{"client": "java", "cases": []}'):
        (tmp_path / "after").write_text(other)
        assert command() == (2, "")
