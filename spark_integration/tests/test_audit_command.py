"""`moldau spark audit` as users run it, in a separate process with a separate Spark."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from uuid import uuid4
from xml.etree import ElementTree

import pytest
from confluent_kafka import Producer

from moldau.spark_integration.audit import Audit

from .support import command_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

# 2026-01-05 12:00 UTC
START_MS = 1_767_614_400_000
MINUTE_MS = 60_000

Command = Callable[..., list[str]]


@pytest.fixture
def command(spark: SparkSession, tmp_path: Path) -> Command:
    """``command(*arguments)``: the command line, with the settings of these tests for its Spark."""
    settings = command_options(spark, tmp_path)
    return lambda *arguments: [sys.executable, "-m", "moldau", "spark", "audit", *arguments, *settings]


def deliver(producer: Any, topic: str, count: int, window: int) -> None:
    for n in range(count):
        producer.produce(topic, value=uuid4().bytes, timestamp=START_MS + window * MINUTE_MS + n)
    assert producer.flush(60) == 0


@pytest.fixture
def audit_topic() -> str:
    return f"audit-{uuid4().hex[:12]}"


@pytest.mark.full
def test_findings_are_printed_plotted_and_in_the_exit_code(
    bootstrap_servers: str, make_topic: Any, audit_topic: str, command: Command, tmp_path: Path
) -> None:
    topic = make_topic()
    with Audit(bootstrap_servers, topic=audit_topic) as audit:
        producer = audit.producer(Producer({"bootstrap.servers": bootstrap_servers}))
        deliver(producer, topic, 10, 0)
        producer.close()
    options = ("--bootstrap-server", bootstrap_servers, "--audit-topic", audit_topic)

    balanced = subprocess.run(
        command(topic, *options, "--json"), capture_output=True, text=True, timeout=200, check=False
    )

    assert balanced.returncode == 0, balanced.stderr
    assert json.loads(balanced.stdout) == {
        "version": 1,
        "balanced": True,
        "windows": [
            {
                "topic": topic,
                "window_start": START_MS,
                "window_end": START_MS + MINUTE_MS,
                "state": "balanced",
                "counts": {"producer": 10, "server": 10},
                "differences": {"producer": 0},
                "findings": [],
            }
        ],
        "notes": [],
    }

    deliver(Producer({"bootstrap.servers": bootstrap_servers}), topic, 3, 1)
    plot = tmp_path / "books.svg"

    unbalanced = subprocess.run(
        command(*options, "--plot", str(plot)), capture_output=True, text=True, timeout=200, check=False
    )

    assert unbalanced.returncode == 1, unbalanced.stderr
    assert [line.split() for line in unbalanced.stdout.splitlines()[:3]] == [
        ["topic", "window", "(UTC)", "producer", "server", "missing", "double", "uncounted", "late", "state"],
        [topic, "2026-01-05", "12:00:00", "10", "10", "-", "-", "-", "-", "balanced"],
        [topic, "2026-01-05", "12:01:00", "0", "3", "-", "-", "3", "-", "unbalanced"],
    ]
    assert unbalanced.stdout.splitlines()[3:] == [
        f"{topic} 2026-01-05 12:01:00: 3 records in the server that no producer has counted (partition 0: 10-12)",
        "2 windows closed, 0 windows still open: 1 finding.",
    ]
    texts = {element.text for element in ElementTree.parse(plot).iter("{http://www.w3.org/2000/svg}text")}
    assert {"producer", "server", "uncounted", "records", "start of the window, UTC (gray: still open)"} <= texts


@pytest.fixture
def following(bootstrap_servers: str, audit_topic: str, command: Command) -> Iterator[subprocess.Popen[str]]:
    options = ("--bootstrap-server", bootstrap_servers, "--audit-topic", audit_topic)
    with subprocess.Popen(
        command(*options, "--follow", "--every", "1s", "--watermark", "2m", "--json"), stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


@pytest.mark.extended
def test_following_reports_windows_when_they_are_over_and_later_changes(
    bootstrap_servers: str, make_topic: Any, audit_topic: str, request: pytest.FixtureRequest
) -> None:
    topic = make_topic()
    with Audit(bootstrap_servers, topic=audit_topic) as audit:
        producer = audit.producer(Producer({"bootstrap.servers": bootstrap_servers}))
        for window in range(4):
            deliver(producer, topic, 10, window)
        process: subprocess.Popen[str] = request.getfixturevalue("following")
        assert process.stdout is not None

        # The newest record is in window 3, so by the watermark window 0 is over and window 1 is not.
        assert windows_of(process.stdout) == [(0, "balanced", {"producer": 10, "server": 10}, [])]
        deliver(producer, topic, 10, 4)
        assert windows_of(process.stdout) == [(1, "balanced", {"producer": 10, "server": 10}, [])]
        deliver(producer, topic, 4, 0)
        late = [("late", "producer", 4), ("late", "server", 4)]
        # A round may have run between the records and their counts.
        while (news := windows_of(process.stdout)) != [(0, "unbalanced", {"producer": 14, "server": 14}, late)]:
            assert news == [(0, "unbalanced", {"producer": 10, "server": 14}, [("uncounted", "server", 4), late[1]])]
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 1
        producer.close()


def windows_of(stdout: IO[str]) -> list[tuple[int, str, dict[str, int], list[tuple[str, str, int]]]]:
    """The windows of the next line: number, state, counts, findings."""
    report = json.loads(stdout.readline())
    return [
        (
            (window["window_start"] - START_MS) // MINUTE_MS,
            window["state"],
            window["counts"],
            [(each["kind"], each["tier"], each["count"]) for each in window["findings"]],
        )
        for window in report["windows"]
    ]
