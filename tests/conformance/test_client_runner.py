"""`moldau conformance-client`: a right client passes, and each defect of a client is found."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from moldau.conformance.client.adapter import Adapter
from moldau.conformance.client.runner import Result, Runner, to_json
from moldau.conformance.client.scenario import all_scenarios, scenario, select
from moldau.conformance.client.scene import Scene
from moldau.conformance.outcome import MismatchError, Verdict
from moldau.testing.waiting import wait_until

# By its path: an installed package has no tests.
NAIVE_CLIENT = (sys.executable, str(Path(__file__).with_name("naive_client.py")))


def run(defect: str, *ids: str, patience: float = 1.0) -> list[Result]:
    command = [*NAIVE_CLIENT, defect]
    return Runner(command, jobs=1, patience=patience).run(select(ids))


def test_there_are_at_least_sixty_scenarios_and_each_is_explained() -> None:
    found = all_scenarios().values()
    assert len(found) >= 60
    assert {each.area for each in found} == {"produce", "consume", "groups", "transactions", "admin", "cluster"}
    for each in found:
        assert all(text.endswith(".") for text in (each.broker, each.job, each.expects)), each.id


def test_a_right_client_passes() -> None:
    ids = ("produce.normal.plain", "produce.retriable-plain", "consume.normal", "consume.corrupt", "consume.compacted")
    results = run("none", *ids)
    assert len(results) > 8
    assert {result.verdict for result in results} == {Verdict.PASSED}, [result.reason for result in results]


@pytest.mark.parametrize(
    ("defect", "scenario_id", "words"),
    [
        ("loses", "produce.normal.plain", "1 lost: value-3"),
        ("duplicates", "produce.normal.plain", "1 duplicated or unexpected: value-3"),
        ("reorders", "produce.normal.plain", "reordered"),
        ("wrong-offsets", "produce.normal.plain", "the acknowledged records and their offsets"),
        ("skips", "consume.normal.from-the-beginning", "1 lost: value-0"),
        ("trusts", "consume.corrupt", "lost: value-"),
        ("ends", "consume.normal.from-the-beginning", "its standard error ends with: it is over"),
        ("hangs", "consume.normal.from-the-beginning", "the client hung"),
        ("times-out", "consume.list-offsets.leader-not-available", "the client hung: no end within 60 s"),
    ],
)
def test_a_defect_is_a_failure(defect: str, scenario_id: str, words: str) -> None:
    (result,) = run(defect, scenario_id, patience=0.05 if defect == "hangs" else 1.0)
    assert result.verdict is Verdict.FAILED
    assert words in result.reason
    assert result.requests or defect in ("ends", "hangs", "times-out")


@pytest.mark.parametrize(
    ("defect", "words"),
    [
        ("garbage", "is not valid"),
        ("wrong-id", "answered job 2"),
        ("no-answer", "answer has no 'records'"),
        ("no-list", "'records' of the adapter's answer is not a list: all"),
        (
            "no-offsets",
            "'records' of the adapter's answer needs 'value' and 'offset': {'value': 'value-0'}",
        ),
    ],
)
def test_an_adapter_that_breaks_the_protocol_is_inconclusive(defect: str, words: str) -> None:
    (result,) = run(defect, "consume.normal.from-the-beginning")
    assert (result.verdict, words in result.reason) == (Verdict.INCONCLUSIVE, True), result.reason


def test_a_client_that_does_not_report_offsets_of_acknowledged_records_passes() -> None:
    (result,) = run("no-offsets", "produce.normal.plain")
    assert result.verdict is Verdict.PASSED, result.reason


def test_a_feature_that_a_client_lacks_is_not_applicable() -> None:
    (result,) = run("unsupported", "consume.normal.from-the-beginning")
    assert (result.verdict, result.reason) == (Verdict.NOT_APPLICABLE, "this client only sleeps")


def test_a_program_that_does_not_exist_is_inconclusive() -> None:
    (result,) = Runner(["/no/such/program"], jobs=1).run(select(("consume.crash",)))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "cannot be started: No such file" in result.reason


def test_an_adapter_that_reads_no_more_is_named() -> None:
    """The job that cannot be written remains in the buffer of the pipe, which is closed when the adapter is killed."""
    with Adapter([*NAIVE_CLIENT, "closes"]) as adapter:
        assert adapter.do("produce", 60.0) == {"id": 1, "acknowledged": []}
        with pytest.raises(MismatchError, match="the adapter ended"):
            adapter.do("produce", 60.0)


def test_a_scenario_without_an_explanation_is_rejected() -> None:
    def body(s: Scene) -> None:
        """Broker: nothing."""

    with pytest.raises(ValueError, match="Broker, Job and Expects"):
        scenario("area.name", "title", source="test")(body)


def test_the_json_report_has_the_requests_of_a_failure() -> None:
    report = to_json("naive", run("loses", "produce.normal.plain"), complete=True)
    (case,) = report["cases"]
    assert (report["client"], case["verdict"]) == ("naive", "failed")
    assert case["requests"][0]["request"].startswith("0: PRODUCE v9") or any(
        "PRODUCE v9 of 'naive'" in each["request"] for each in case["requests"]
    )


def test_the_command(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "moldau", "conformance-client", "--json", str(report), "--scenario"]
    adapter = ["--", *NAIVE_CLIENT, "loses"]
    done = subprocess.run([*command, "produce.normal.plain", *adapter], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "FAILED produce.normal.plain" in done.stdout
    assert json.loads(report.read_text())["summary"]["failed"] == 1
    done = subprocess.run([*command, "produce.normel", *adapter], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Did you mean" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "out", "err"),
    [
        (("--", "/no/such/program"), "the adapter /no/such/program cannot be started", ""),
        (("--", *NAIVE_CLIENT, "garbage"), "is not valid", ""),
        (("--json", "no/such/folder/report.json", "--", *NAIVE_CLIENT, "none"), "", "the folder no/such/folder"),
    ],
    ids=["no program", "garbage", "no folder"],
)
def test_the_exit_code_if_the_client_cannot_be_tested(arguments: tuple[str, ...], out: str, err: str) -> None:
    command = [sys.executable, "-m", "moldau", "conformance-client", "--scenario", "produce.normal.plain", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, out in done.stdout, err in done.stderr) == (2, True, True), done


def test_ctrl_c_ends_a_client_that_hangs_and_the_report_is_written(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "moldau", "conformance-client", "--jobs", "1", "--json", str(report)]
    adapter = ["--", *NAIVE_CLIENT, "hangs", str(tmp_path / "started")]
    process = subprocess.Popen(command + adapter, stdout=subprocess.PIPE, text=True)
    wait_until((tmp_path / "started").exists, "the first job")
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 130
    assert process.stdout is not None
    process.stdout.close()
    assert json.loads(report.read_text())["complete"] is False
