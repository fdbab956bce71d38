"""Runs that do not end as planned: a server that is wrong, that dies or hangs, Ctrl-C, and mistakes in a case."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from moldau.conformance import catalog
from moldau.conformance.case import Need
from moldau.conformance.check import Check
from moldau.conformance.outcome import Result, Verdict
from moldau.conformance.runner import Runner
from moldau.conformance.target import Target
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import CreatableTopic
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.schema import Response
from moldau.testing import Broker
from moldau.testing.full_run import first_of
from moldau.testing.terminal import Terminal
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

from .fake_servers import Proxy
from .samples import crashes, passes, sample

Report = dict[str, Any]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(thread=True, memory=True) as broker:
        yield broker


@pytest.fixture
def proxy(broker: Broker) -> Iterator[Proxy]:
    with Proxy(broker.bootstrap_servers) as proxy:
        yield proxy
    broker.reset()  # topics of runs that could not clean up


def conformance_topics(broker: Broker) -> list[str]:
    with WireClient(broker.bootstrap_servers) as wire:
        found = wire.call(MetadataRequest(topics=None)).topics
    return [topic.name for topic in found if topic.name.startswith("conformance-")]


class Command:
    """`moldau conformance` in a process, with all its reports."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._folder = folder
        reports = [f"--{kind}={folder / kind}" for kind in ("json", "junit", "html", "badge")]
        with (folder / "stderr").open("w") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "moldau", "conformance", *arguments, *reports],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )

    @property
    def err(self) -> str:
        """The output on standard error so far."""
        return (self._folder / "stderr").read_text()

    def interrupt(self) -> None:
        """Send SIGINT, and wait until the command has reported it."""
        self.process.send_signal(signal.SIGINT)
        wait_until(lambda: "Ctrl-C again skips this" in self.err, state=lambda: self.err)

    def end(self) -> int:
        """The exit code, after which `out` and `err` have its output."""
        self.out, _ = self.process.communicate(timeout=100)
        assert "Traceback" not in self.err
        return self.process.returncode

    def report(self) -> Report:
        """The JSON report. All reports have the same counts."""
        report: Report = json.loads((self._folder / "json").read_text())
        counts = report["summary"]
        assert sum(counts.values()) == len(report["cases"])
        suites = list(ElementTree.parse(self._folder / "junit").getroot())
        assert sum(int(suite.get("tests", "")) for suite in suites) == len(report["cases"])
        assert sum(int(suite.get("failures", "")) for suite in suites) == counts["failed"]
        assert sum(int(suite.get("errors", "")) for suite in suites) == counts["inconclusive"]
        assert sum(int(suite.get("skipped", "")) for suite in suites) == counts["not applicable"]
        tested = counts["passed"] + counts["failed"]
        badge = (self._folder / "badge").read_text()
        assert (f"{counts['passed']} / {tested}" if tested else "not tested") in badge
        ElementTree.fromstring(badge)
        assert f'id="{report["cases"][0]["id"]}"' in (self._folder / "html").read_text()
        return report


# The server


def test_a_server_that_is_right_passes(broker: Broker, tmp_path: Path) -> None:
    command = Command(tmp_path, broker.bootstrap_servers, "--case", "produce.exchange")
    assert command.end() == 0, command.out + command.err
    report = command.report()
    assert report["complete"]
    assert {case["verdict"] for case in report["cases"]} == {"passed"}
    assert command.err == ""
    assert re.search(r"^produce +11 +0 +0 +0$", command.out, re.MULTILINE)
    assert "\x1b" not in command.out
    assert conformance_topics(broker) == []


def test_a_run_without_a_single_result_is_not_a_success(proxy: Proxy, tmp_path: Path) -> None:
    def reject(api: ApiKey, response: Response) -> None:
        if api is ApiKey.CREATE_TOPICS:
            response.topics[0].error_code = ErrorCode.POLICY_VIOLATION  # type: ignore[attr-defined]

    proxy.change = reject
    command = Command(tmp_path, proxy.address, "--case", "produce.exchange")
    assert command.end() == 2, command.err
    assert {case["verdict"] for case in command.report()["cases"]} == {"inconclusive"}
    assert command.err.startswith("Nothing was tested, because every case that applies is inconclusive. ")
    assert "POLICY_VIOLATION" in command.err


def test_a_server_that_is_wrong_fails_with_the_difference(proxy: Proxy, tmp_path: Path) -> None:
    def add_one(api: ApiKey, response: Response) -> None:
        if api is ApiKey.PRODUCE:
            response.responses[0].partition_responses[0].base_offset += 1  # type: ignore[attr-defined]

    proxy.change = add_one
    command = Command(tmp_path, proxy.address, "--case", "produce.exchange")
    assert command.end() == 1, command.err
    report = command.report()
    failed = next(case for case in report["cases"] if case["id"] == "produce.exchange.v9")
    assert (failed["what"], failed["expected"], failed["actual"]) == ("partition_responses[0].base_offset", "0", "1")
    frame = failed["exchange"][failed["differs"]["frame"]]
    assert frame["title"] == "Produce v9 response"
    assert frame["decoded"][1]["ProduceResponse"]["responses"][0]["partition_responses"][0]["base_offset"] == 1
    lines = command.out.splitlines()
    assert lines[0].startswith("FAILED produce.exchange.v3 (must): ")
    assert lines[1].startswith("  also produce.exchange.v4, ")
    assert lines[1].endswith(" and 6 more")
    assert lines[2] == "  partition_responses[0].base_offset in the Produce v3 response"
    assert lines[3:5] == ["    expected: 0", "    actual:   1"]
    assert lines[5].startswith("  why: ")
    assert f"{tmp_path / 'html'} shows the requests and responses" in command.out


def test_a_server_that_dies_leaves_the_remaining_cases_inconclusive(proxy: Proxy, tmp_path: Path) -> None:
    proxy.kept = {ApiKey.FETCH}
    command = Command(tmp_path, proxy.address, "--jobs", "4", "--case", "fetch")
    proxy.wait_for(ApiKey.FETCH, 3)
    proxy.die()
    assert command.end() == 2, command.out
    report = command.report()
    assert not report["complete"]
    assert {case["verdict"] for case in report["cases"]} <= {"passed", "inconclusive", "not applicable"}
    assert "the server is lost" in command.out
    assert report["summary"]["inconclusive"] > 3


def test_a_failure_before_the_server_dies_is_a_failure(proxy: Proxy, tmp_path: Path) -> None:
    def wrong_once(api: ApiKey, response: Response) -> None:
        if api is ApiKey.PRODUCE:
            response.responses[0].partition_responses[0].base_offset = 77  # type: ignore[attr-defined]

    proxy.change = wrong_once
    command = Command(tmp_path, proxy.address, "--jobs", "1", "--case", "produce.exchange")
    proxy.wait_for(ApiKey.PRODUCE, 3)
    proxy.die()
    assert command.end() == 1
    assert command.report()["summary"]["failed"] >= 1


def test_a_server_that_hangs_is_lost(proxy: Proxy, tmp_path: Path) -> None:
    proxy.kept = {ApiKey.FETCH}
    command = Command(tmp_path, proxy.address, "--patience", "0.1", "--case", "produce")
    proxy.wait_for(ApiKey.FETCH, 3)
    proxy.kept = set(ApiKey)
    assert command.end() == 2, command.out
    assert command.report()["summary"]["inconclusive"] > 3


# Interruptions


@pytest.mark.parametrize("number", first_of([signal.SIGINT, signal.SIGTERM]))
def test_an_interruption_cleans_up_and_writes_the_reports(
    broker: Broker, proxy: Proxy, tmp_path: Path, number: signal.Signals
) -> None:
    proxy.kept = {ApiKey.FETCH}
    command = Command(tmp_path, proxy.address, "--area=fetch")
    proxy.wait_for(ApiKey.FETCH, 8)
    assert conformance_topics(broker)
    command.process.send_signal(number)
    assert command.end() == 130
    report = command.report()
    assert not report["complete"]
    assert report["summary"]["failed"] == 0
    assert {case["reason"] for case in report["cases"] if case["verdict"] == "inconclusive"} == {"interrupted"}
    assert "interrupted: deleting topics and groups" in command.err
    assert conformance_topics(broker) == []


def test_topics_that_are_created_during_an_interruption_are_deleted(
    broker: Broker, proxy: Proxy, tmp_path: Path
) -> None:
    proxy.held = {ApiKey.CREATE_TOPICS}
    # With more patience, no case ends by itself before the requests are released.
    command = Command(tmp_path, proxy.address, "--area=topics", "--patience=10")
    proxy.wait_for(ApiKey.CREATE_TOPICS, 16)
    command.interrupt()
    assert proxy.release()
    assert command.end() == 130
    assert conformance_topics(broker) == []


def test_topics_that_cannot_be_deleted_are_reported(proxy: Proxy, tmp_path: Path) -> None:
    proxy.held = {ApiKey.CREATE_TOPICS}
    command = Command(tmp_path, proxy.address, "--area=topics", "--patience=0.1")
    proxy.wait_for(ApiKey.CREATE_TOPICS, 16)
    command.process.send_signal(signal.SIGINT)
    assert command.end() == 130
    assert re.search("whose names begin with conformance-[0-9a-f]{8} may remain on the server", command.err)


def test_the_second_interruption_does_not_clean_up(broker: Broker, proxy: Proxy, tmp_path: Path) -> None:
    proxy.kept = {ApiKey.FETCH}
    # With this patience the cleanup would wait longer for a response than `Command.end` waits for the process.
    command = Command(tmp_path, proxy.address, "--area=fetch", "--patience", "60")
    proxy.wait_for(ApiKey.FETCH, 8)
    proxy.kept = {ApiKey.FETCH, ApiKey.DELETE_TOPICS}
    deletions = proxy.requests.count(ApiKey.DELETE_TOPICS)
    command.interrupt()  # a second signal that is sent before the first is handled would not count
    proxy.wait_for(ApiKey.DELETE_TOPICS, deletions + 1)
    command.process.send_signal(signal.SIGINT)
    assert command.end() == 130
    assert command.report()["summary"]["failed"] == 0


@pytest.fixture
def default_int_handler() -> Iterator[None]:
    """Background jobs of a shell ignore SIGINT, and so do tests in one."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


@pytest.mark.usefixtures("default_int_handler")
def test_a_keyboard_interrupt_ends_a_run_in_this_process(broker: Broker) -> None:
    target = Target(broker.bootstrap_servers)
    target.describe()
    waiting = threading.Event()

    def waits(c: Check) -> None:
        c.connect()
        waiting.set()
        c.until(lambda: False, "something that never happens")

    def interrupt() -> None:
        waiting.wait()
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    runner = Runner(target, jobs=1)
    first, second = runner.run([sample("area.waits", waits), sample("area.later", passes)])
    assert runner.interrupted
    assert (first.verdict, second.verdict) == (Verdict.INCONCLUSIVE, Verdict.INCONCLUSIVE)
    assert first.reason == second.reason == "interrupted"


# Cases


def run(broker: Broker, body: Any, **fields: Any) -> Result:
    target = Target(broker.bootstrap_servers)
    target.describe()
    (result,) = Runner(target).run([sample("area.case", body, **fields)])
    return result


@pytest.mark.parametrize("coordinator_first", [True, False])
def test_a_coordinator_on_another_broker_knows_the_topic(broker: Broker, proxy: Proxy, coordinator_first: bool) -> None:
    """The proxy is the other broker: it learns of the topic later than the broker that creates it."""
    target = Target(broker.bootstrap_servers)
    target.describe()
    other = target.node_id + 1
    unknown = 3

    def changed(api: ApiKey, response: Response) -> None:
        nonlocal unknown
        if api is ApiKey.FIND_COORDINATOR:
            response.coordinators[0].node_id = other  # type: ignore[attr-defined]
        if api is ApiKey.METADATA and unknown:
            unknown -= 1
            response.topics[0].error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # type: ignore[attr-defined]

    def finds(api: ApiKey, response: Response) -> None:
        if api is ApiKey.FIND_COORDINATOR:
            changed(api, response)

    proxy.change = changed
    with Proxy(broker.bootstrap_servers) as first:
        first.change = finds
        target.address = first.address
        target.brokers = {target.node_id: first.address, other: proxy.address}

        def body(c: Check) -> None:
            group = c.group()
            if coordinator_first:
                c.coordinator(group)
            c.topic()
            c.coordinator(group)
            c.equal(unknown, 0, "responses without the topic")

        (result,) = Runner(target).run([sample("area.case", body)])
    assert result.verdict is Verdict.PASSED, result.reason


def test_a_topic_is_led_by_the_broker_under_test(broker: Broker) -> None:
    """Without an assignment, one of several brokers would be its leader."""
    target = Target(broker.bootstrap_servers)
    target.describe()
    target.brokers = {target.node_id: target.address, target.node_id + 1: "127.0.0.1:9"}

    def body(c: Check) -> None:
        wanted = c.led_here(CreatableTopic(name="t", num_partitions=2, replication_factor=1))
        c.equal((wanted.num_partitions, wanted.replication_factor), (-1, -1), "counts")
        placed = [(each.partition_index, each.broker_ids) for each in wanted.assignments]
        c.equal(placed, [(0, [target.node_id]), (1, [target.node_id])], "assignments")

    (result,) = Runner(target).run([sample("area.case", body)])
    assert result.verdict is Verdict.PASSED, result.reason


def test_an_exception_in_a_case_is_a_failure(broker: Broker) -> None:
    result = run(broker, crashes)
    assert result.verdict is Verdict.FAILED
    assert (result.what, result.actual) == ("the response", "IndexError: list index out of range in `[][0]`")


def test_a_field_that_a_response_lacks_is_named(proxy: Proxy) -> None:
    def no_topics(api: ApiKey, response: Response) -> None:
        if api is ApiKey.METADATA:
            response.topics = []  # type: ignore[attr-defined]

    def body(c: Check) -> None:
        answer = c.call(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12)
        c.equal(
            [each.partition_index for each in answer.topics[0].partitions],
            [0],
            "partitions",
        )

    target = Target(proxy.address)
    target.describe()
    proxy.change = no_topics
    (result,) = Runner(target).run([sample("area.case", body)])
    assert result.what == "the Metadata v12 response"
    assert result.actual == "IndexError: list index out of range in `answer.topics[0]`"


def test_a_setup_without_a_response_names_the_request(proxy: Proxy) -> None:
    target = Target(proxy.address)
    target.describe()

    def body(c: Check) -> None:
        with c.setup("listing the topics"):
            c.wire.send(MetadataRequest(topics=[]), 12)
            c.wire.receive()
            c.wire.interrupt(now=True)
            c.wire.receive_frame()

    (result,) = Runner(target).run([sample("area.case", body)])
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.reason.startswith("listing the topics: Metadata v12: the server closed the connection")


def test_a_case_ends_at_its_deadline(broker: Broker) -> None:
    def waits(c: Check) -> None:
        c.wire.receive_frame()

    result = run(broker, waits, seconds=0.2)
    assert result.verdict is Verdict.FAILED
    assert "none before the deadline of 0.2 s" in result.actual


def test_the_deadline_of_a_failure_includes_the_patience(broker: Broker) -> None:
    target = Target(broker.bootstrap_servers, patience=0.1)
    target.describe()
    (result,) = Runner(target).run([sample("area.case", lambda c: c.wire.receive_frame(), seconds=2.0)])
    assert result.actual == "none before the deadline of 0.2 s"


def test_a_version_that_the_server_lacks_does_not_apply(broker: Broker) -> None:
    result = run(broker, passes, needs=(Need(ApiKey.PRODUCE, 99),))
    assert (result.verdict, result.reason) == (Verdict.NOT_APPLICABLE, "the server does not have Produce v99")


def test_a_setup_that_fails_is_inconclusive(broker: Broker) -> None:
    def body(c: Check) -> None:
        with c.setup("comparing"):
            c.equal(1, 2, "a number")

    result = run(broker, body)
    assert (result.verdict, result.reason) == (
        Verdict.INCONCLUSIVE,
        "comparing: a number: expected 2, got 1",
    )


# A terminal


def terminal_of(*arguments: str) -> Terminal:
    """The command with a terminal for its output."""
    return Terminal([sys.executable, "-m", "moldau", "conformance", *arguments])


def test_a_terminal_shows_a_bar_that_disappears_and_a_table(broker: Broker) -> None:
    terminal = terminal_of(broker.bootstrap_servers, "--area=produce")
    assert terminal.end() == 0
    cases = len(catalog.select(areas=["produce"]))
    assert f"/{cases}" in terminal.plain
    *_, last = terminal.text.rpartition("\x1b[2K")  # the bar is erased
    assert "produce" in last
    assert " passed" in last
    assert "━" not in re.sub("─+", "", last)


def test_a_terminal_shows_failures_in_color_and_the_cursor_again(proxy: Proxy) -> None:
    def add_one(api: ApiKey, response: Response) -> None:
        if api is ApiKey.PRODUCE:
            response.responses[0].partition_responses[0].base_offset += 1  # type: ignore[attr-defined]

    proxy.change = add_one
    terminal = terminal_of(proxy.address, "--case", "produce.exchange")
    assert terminal.end() == 1
    assert "\x1b[31m\x1b[1mFAILED\x1b[0m produce.exchange.v3" in terminal.text
    assert "--html FILE" in terminal.plain
    assert terminal.text.rindex("\x1b[?25h") > terminal.text.rindex("\x1b[?25l")


def test_ctrl_c_on_a_terminal(broker: Broker, proxy: Proxy) -> None:
    proxy.kept = {ApiKey.FETCH}
    terminal = terminal_of(proxy.address, "--area=fetch")
    proxy.wait_for(ApiKey.FETCH, 8)
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 130
    assert "interrupted: deleting topics" in terminal.plain
    assert terminal.text.rindex("\x1b[?25h") > terminal.text.rindex("\x1b[?25l")
    assert conformance_topics(broker) == []
