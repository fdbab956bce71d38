"""The crash cases through the command line, with commands of a user; and failures of these commands."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from moldau.conformance.case import Case, Layer, case, declared
from moldau.conformance.check import Check
from moldau.conformance.commands import use_commands
from moldau.conformance.outcome import MismatchError, Verdict
from moldau.conformance.runner import Runner
from moldau.conformance.target import Target
from moldau.testing import Broker
from moldau.testing.apache_kafka import free_ports
from moldau.testing.waiting import wait_until

PATIENTLY = ("--patience", "4")


@dataclass
class Served:
    """``moldau serve`` as a user starts it, and the commands that kill it and start it again."""

    folder: Path
    address: str

    @property
    def serve(self) -> str:
        command = [sys.executable, "-m", "moldau", "serve", "--listen", self.address]
        settings = ["--set", "offsets.topic.num.partitions=1", "--set", "transaction.state.log.num.partitions=1"]
        return shlex.join([*command, "--data-dir", str(self.folder / "data"), *settings])

    @property
    def kill(self) -> str:
        return f"kill -9 $(cat {shlex.quote(str(self.pid_file))})"

    @property
    def restart(self) -> str:
        """In the background; its output stays with the command, as many scripts leave it."""
        return f"{self.serve} & echo $! > {shlex.quote(str(self.pid_file))}"

    @property
    def restart_in_foreground(self) -> str:
        return f"echo $$ > {shlex.quote(str(self.pid_file))}; exec {self.serve}"

    @property
    def pid_file(self) -> Path:
        return self.folder / "pid"

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            os.kill(int(self.pid_file.read_text()), signal.SIGKILL)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    server = Served(tmp_path, f"127.0.0.1:{free_ports(1)[0]}")
    with (tmp_path / "server.log").open("wb") as log:
        process = subprocess.Popen(["/bin/sh", "-c", f"exec {server.serve}"], stdout=log, stderr=log)
    server.pid_file.write_text(str(process.pid))
    try:
        wait_until(Target(server.address).responds, "a response to ApiVersions")
        yield server
    finally:
        server.end()
        process.kill()
        process.wait()


def conformance(server: Served, *options: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """The exit code, the output and the JSON report of a run of crash cases."""
    report = server.folder / "report.json"
    command = [sys.executable, "-m", "moldau", "conformance", server.address, "--layer", "crash"]
    done = subprocess.run([*command, "--json", str(report), *options], capture_output=True, text=True, check=False)
    return done, json.loads(report.read_text())


def test_the_commands_of_a_user(served: Served) -> None:
    done, report = conformance(served, "--kill-command", served.kill, "--restart-command", served.restart, *PATIENTLY)
    assert done.returncode == 0, done.stdout + done.stderr
    assert report["complete"]
    assert report["summary"]["passed"] >= 55
    assert report["summary"]["failed"] == report["summary"]["inconclusive"] == 0


def test_the_restart_command_may_be_the_server_itself(served: Served) -> None:
    done, report = conformance(
        served,
        *("--case", "crash.records.acknowledged", "--jobs", "1"),
        *("--kill-command", served.kill, "--restart-command", served.restart_in_foreground),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert report["summary"]["passed"] == 2


@pytest.mark.slow
def test_a_server_that_loses_its_data_fails(served: Served) -> None:
    lost = f"rm -r {shlex.quote(str(served.folder / 'data'))}; {served.restart}"
    done, report = conformance(
        served,
        *("--case", "crash.records.acknowledged.all", "--case", "crash.cluster", "--case", "crash.offsets.committed"),
        *("--patience", "0.2", "--kill-command", served.kill, "--restart-command", lost),
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert {each["id"]: each["verdict"] for each in report["cases"]} == {
        "crash.cluster.identity": "failed",
        "crash.offsets.committed": "failed",
        "crash.records.acknowledged.all": "failed",
    }


def test_a_restart_command_that_fails(served: Served) -> None:
    command = "echo no such container >&2; exit 3"
    done, report = conformance(served, "--kill-command", served.kill, "--restart-command", command)
    assert done.returncode == 2
    assert f"--restart-command `{command}` ended with exit code 3: no such container" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert not report["complete"]
    assert {each["verdict"] for each in report["cases"]} <= {"inconclusive", "not applicable"}


def test_a_kill_command_that_does_not_kill() -> None:
    with Broker() as broker:
        target = _target(broker)
        target.patience = 0.02
        use_commands(target, "true", "true")
        runner = Runner(target)
        (result,) = runner.run(_cases(_crashes, patience=50))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "the kill command has ended, and" in result.reason
    assert "still accepts connections" in result.reason


def test_cases_without_commands_are_not_applicable() -> None:
    with Broker() as broker:
        target = Target(broker.bootstrap_servers)
        target.describe()
        (result,) = Runner(target).run(_cases(_crashes))
    assert result.verdict is Verdict.NOT_APPLICABLE
    assert "--restart-command" in result.reason


# -- crashes that cases share --


def _target(broker: Broker) -> Target:
    target = Target(broker.bootstrap_servers)
    target.describe()

    def start() -> None:
        broker.start()

    target.kill = broker.kill
    target.restart = start
    return target


def count_kills(target: Target, broker: Broker) -> list[None]:
    """A list that has an entry for each kill."""
    kills: list[None] = []

    def kill() -> None:
        kills.append(None)
        broker.kill()

    target.kill = kill
    return kills


def _crashes(c: Check) -> None:
    c.crash()
    assert c.target.responds()


def _fails(c: Check) -> None:
    raise MismatchError("something", "1", "2")


def _crashes_twice(c: Check) -> None:
    c.crash()
    c.crash()


def _cases(*bodies: Any, patience: float = 1.0) -> list[Case]:
    """Crash cases with these bodies, which are not in the catalog."""
    before = len(declared)
    for number, body in enumerate(bodies):
        body.__doc__ = "Sends: a.\n\nExpects: b.\n\nWhy: c."
        case(f"test.{number}", "a test", source="none", layer=Layer.CRASH, seconds=30 * patience)(body)
    found = declared[before:]
    del declared[before:]
    return found


def test_running_cases_share_a_crash_and_a_failure_meanwhile_is_not_a_lost_server() -> None:
    with Broker() as broker:
        target = _target(broker)
        kills = count_kills(target, broker)
        runner = Runner(target)
        all_run = threading.Barrier(3)  # a case that begins after a crash does not share it

        def crashes(c: Check) -> None:
            all_run.wait()
            _crashes(c)

        def crashes_twice(c: Check) -> None:
            all_run.wait()
            _crashes_twice(c)

        results = runner.run(_cases(crashes, _fails, crashes_twice, _fails, crashes))
    assert [result.verdict for result in results] == [
        Verdict.PASSED,
        Verdict.FAILED,
        Verdict.PASSED,
        Verdict.FAILED,
        Verdict.PASSED,
    ]
    assert not runner.lost
    assert len(kills) == 2


def test_with_one_job_each_case_has_its_own_crash() -> None:
    with Broker() as broker:
        target = _target(broker)
        kills = count_kills(target, broker)
        results = Runner(target, jobs=1).run(_cases(_crashes, _crashes))
    assert [result.verdict for result in results] == [Verdict.PASSED] * 2
    assert len(kills) == 2


def test_a_restart_that_fails_ends_the_run() -> None:
    with Broker() as broker:
        target = _target(broker)

        def fail() -> None:
            raise OSError("the disk is gone")

        target.restart = fail
        runner = Runner(target, jobs=1)
        results = runner.run(_cases(_crashes, _crashes, _crashes))
    assert runner.lost
    assert {(result.verdict, result.reason) for result in results} == {(Verdict.INCONCLUSIVE, "the disk is gone")}


def test_an_interrupt_releases_the_waiting_cases() -> None:
    interrupted = []

    def interrupt(result: object) -> None:
        interrupted.append(result)
        if len(interrupted) == 1:
            raise KeyboardInterrupt

    with Broker() as broker:
        runner = Runner(_target(broker), finished=interrupt)
        results = runner.run(_cases(_fails, _crashes_twice, _crashes))
    assert runner.interrupted
    assert {result.verdict for result in results} <= {Verdict.FAILED, Verdict.INCONCLUSIVE, Verdict.PASSED}
    assert len(results) == 3
