"""One Spark for many jobs: a process with its JVM, which takes jobs through a pipe and answers what they did.

    python -m moldau.benchmarks.spark_client

A line of JSON for each job (`spark_jobs`) and each answer; the end of its input ends it. Spark takes ten seconds to
start, and the first jobs are slow because nothing is compiled yet. So the process stays for all measurements of a row,
of both servers, and the warming up of the servers warms it, too. It uses nothing while it waits.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import IO, TYPE_CHECKING, Any

from ..compat_tests.apache import guard
from .spark_jobs import JOBS, Done, Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CORES = 2

_CONF = {
    "spark.master": f"local[{CORES}]",
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # Spark keeps its producers for ten minutes. They would ask the server for topics that are deleted, and so make them
    # again; and the server that they have connections to is to stand still.
    "spark.kafka.producer.cache.timeout": "100ms",
    "spark.kafka.producer.cache.evictorThreadRunInterval": "500ms",
}

_COMMAND = (sys.executable, "-m", "moldau.benchmarks.spark_client")

_JOB_SECONDS = 900.0
_END_SECONDS = 30.0


class SparkClient:
    """Runs jobs in one process, which starts with the first of them and ends with the block of `running`.

    When the process has ended by itself, every further job of the block fails: a new one would be measured cold.
    """

    def __init__(self, command: Sequence[str] = _COMMAND, *, job_seconds: float = _JOB_SECONDS) -> None:
        self._command = command
        self._job_seconds = job_seconds
        self._process: subprocess.Popen[str] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        try:
            yield
        finally:
            self._end()

    def run(self, job: Job) -> Done:
        """What the job did; RuntimeError says why it failed."""
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        too_late = threading.Timer(self._job_seconds, process.kill)
        too_late.start()
        try:
            # A process that has ended is noticed by its answer, which is not there.
            with suppress(BrokenPipeError):
                process.stdin.write(json.dumps({"job": type(job).__name__, **vars(job)}) + "\n")
                process.stdin.flush()
            answer = process.stdout.readline()
        finally:
            too_late.cancel()
        if not answer:
            raise RuntimeError(f"Spark has ended (exit code {process.wait()}):\n{self._last_words()}")
        told: dict[str, Any] = json.loads(answer)
        if "error" in told:
            raise RuntimeError(f"{job} failed: {told['error']}")
        return Done(**told)

    def _start(self) -> subprocess.Popen[str]:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,  # Ctrl-C is the harness's, which ends it
        )
        # In the middle of a job it would not see the end of its input.
        self._guard = guard(self._process.pid)
        return self._process

    def _last_words(self) -> str:
        assert self._log is not None
        self._log.seek(0)
        return self._log.read()[-4000:].decode(errors="replace").strip()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert self._guard is not None
        self._guard.kill()  # before the process id can belong to somebody else
        self._guard.communicate()
        self._guard = None
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()  # its JVM ends when nobody holds the other end of its input
            process.wait()
        process.stdout.close()
        assert self._log is not None
        self._log.close()


def serve(jobs: IO[str], answers: IO[str], spark: SparkSession) -> None:
    """Run a job for each line, until there are no more. One that fails is an answer: Spark goes on."""
    for line in jobs:
        wanted = json.loads(line)
        job: Job = JOBS[wanted.pop("job")](**wanted)
        try:
            answer = asdict(job.run(spark))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told, and the next job may do better
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def main() -> None:
    # What the JVM has to say must not stand between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    from ..spark_integration.session import session

    with session("benchmark", _CONF) as spark:
        serve(sys.stdin, answers, spark)


if __name__ == "__main__":
    main()
