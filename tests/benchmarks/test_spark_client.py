"""One process for many jobs: it runs for all of a row's measurements, and returns results or errors."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from moldau.benchmarks import spark_client, spark_jobs
from moldau.benchmarks.row import Bench, Numbers, Subject
from moldau.benchmarks.spark_client import SparkClient
from moldau.benchmarks.spark_jobs import Done, Read
from moldau.testing.waiting import wait_until

from .conftest import FakeMachine

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the benchmarks use epoll and /proc")

JOB = Read("localhost:9092", "orders")

# Counts its jobs, and prints the number with its process id where a real one prints records and bytes.
COUNTING = """
import json, os, sys
for number, line in enumerate(sys.stdin, 1):
    print(json.dumps({"records": number, "bytes": os.getpid(), "seconds": 0.5}), flush=True)
"""

# Responds with its job, as a failure.
REFUSING = """
import json, sys
for line in sys.stdin:
    print(json.dumps({"error": "no " + line.strip()}), flush=True)
"""


def client_of(program: str, **options: Any) -> SparkClient:
    return SparkClient([sys.executable, "-c", program], **options)


def test_one_process_runs_all_jobs_and_ends_with_the_row() -> None:
    client = client_of(COUNTING)
    with client.running():
        first = client.run(JOB)
        second = client.run(JOB)
        assert first == Done(1, first.bytes, 0.5)
        assert second == Done(2, first.bytes, 0.5)
    with pytest.raises(ProcessLookupError):
        os.kill(first.bytes, 0)
    with client.running():
        assert client.run(JOB).records == 1


def test_no_process_is_started_for_a_row_without_a_job() -> None:
    with SparkClient(["/no/such/program"]).running():
        pass


def test_a_failed_job_is_reported_with_its_reason_and_the_next_one_runs() -> None:
    client = client_of(REFUSING)
    with client.running():
        for _ in range(2):
            with pytest.raises(RuntimeError) as failure:
                client.run(JOB)
            wanted = json.dumps({"job": "Read", "address": "localhost:9092", "topic": "orders"})
            assert str(failure.value) == f"{JOB} failed: no {wanted}"


def test_an_exited_process_is_not_replaced_by_a_cold_one() -> None:
    client = client_of("import sys; sys.exit('no connector')")
    with client.running():
        for _ in range(2):
            with pytest.raises(RuntimeError, match=r"Spark exited \(exit code 1\):\nno connector"):
                client.run(JOB)


def test_a_job_that_takes_too_long_is_ended() -> None:
    client = client_of("import time; time.sleep(1000)", job_seconds=0.1)
    with client.running(), pytest.raises(RuntimeError, match="exit code -9"):
        client.run(JOB)


def test_a_job_does_not_outlive_a_killed_harness(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    program = f"import os, time; open({str(tmp_path / 'new')!r}, 'w').write(str(os.getpid())); "
    program += f"os.rename({str(tmp_path / 'new')!r}, {str(pid_file)!r}); time.sleep(1000)"
    harness = "import sys; from moldau.benchmarks.spark_client import SparkClient; "
    harness += "from moldau.benchmarks.spark_jobs import Read; "
    harness += f"SparkClient([sys.executable, '-c', {program!r}]).run(Read('', ''))"
    running = subprocess.Popen([sys.executable, "-c", harness])
    try:
        wait_until(pid_file.exists, "a process under the harness")
    finally:
        running.kill()
        running.wait()
    wait_until(lambda: not is_alive(int(pid_file.read_text())), "its end")


def is_alive(pid: int) -> bool:
    """Not a process that has ended and is still listed, because its parent has not waited for it."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_each_job_has_a_result_line(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Doubling:
        number: int

        def run(self, _spark: object) -> Done:
            if self.number < 0:
                raise ValueError("less than nothing")
            return Done(self.number, 2 * self.number, 0.0)

    monkeypatch.setitem(spark_jobs.JOBS, "Doubling", Doubling)
    jobs = "".join(json.dumps({"job": "Doubling", "number": number}) + "\n" for number in (3, -1, 4))
    answers = io.StringIO()
    spark_client.serve(io.StringIO(jobs), answers, None)
    assert [json.loads(line) for line in answers.getvalue().splitlines()] == [
        {"records": 3, "bytes": 6, "seconds": 0.0},
        {"error": "ValueError: less than nothing"},
        {"records": 4, "bytes": 8, "seconds": 0.0},
    ]


def test_the_resource_of_a_row_exists_from_its_first_warmup_to_its_last_measurement(machine: FakeMachine) -> None:
    @contextmanager
    def client() -> Iterator[None]:
        machine.events.append("client starts")
        yield
        machine.events.append("client ends")

    def fails(_bench: Bench) -> Numbers:
        raise RuntimeError("this measurement has failed")

    machine.run(machine.row(measure=fails, during=client), rounds=1, subjects=(Subject.MOLDAU,))
    machine.run(machine.row("next"), rounds=1, subjects=(Subject.MOLDAU,))
    assert machine.events == [
        "client starts",
        "start moldau",
        "measure row moldau 500",
        "kill moldau",
        # The round tries once more, with a new server.
        "start moldau",
        "measure row moldau 500",
        "kill moldau",
        "close moldau",
        "close moldau",
        "client ends",
        "start moldau",
        "measure next moldau 500",
        "pause moldau",
        "resume moldau",
        "measure next moldau 1000",
        "pause moldau",
        "close moldau",
    ]
