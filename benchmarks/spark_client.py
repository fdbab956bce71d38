"""One Spark for many jobs: a process with its JVM, which receives jobs through a pipe and returns their results.

    python -m moldau.benchmarks.spark_client

Each job (`spark_jobs`) and each result is a line of JSON; the end of its input ends the process. Spark takes ten
seconds to start, and the first jobs are slow because no code is compiled yet. So the process runs for all measurements
of a row, of both servers, and the warmup of the servers also warms Spark. It uses no CPU while it waits.
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

from ..testing.apache_kafka import guard
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
    # Spark caches its producers for ten minutes. They would request metadata of deleted topics, and so create them
    # again. Also, the server that they are connected to is going to be stopped temporarily.
    "spark.kafka.producer.cache.timeout": "100ms",
    "spark.kafka.producer.cache.evictorThreadRunInterval": "500ms",
}

_COMMAND = (sys.executable, "-m", "moldau.benchmarks.spark_client")

_JOB_SECONDS = 900.0
_END_SECONDS = 30.0


class SparkClient:
    """Runs jobs in one process, which starts with the first job and ends with the block of `running`.

    If the process has exited, every further job of the block fails, because a new one would be measured cold.
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
        """Run a job; RuntimeError states why it failed."""
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        too_late = threading.Timer(self._job_seconds, process.kill)
        too_late.start()
        try:
            # The exit of the process is noticed by the missing result.
            with suppress(BrokenPipeError):
                process.stdin.write(json.dumps({"job": type(job).__name__, **vars(job)}) + "\n")
                process.stdin.flush()
            answer = process.stdout.readline()
        finally:
            too_late.cancel()
        if not answer:
            raise RuntimeError(f"Spark exited (exit code {process.wait()}):\n{self._error_output()}")
        result: dict[str, Any] = json.loads(answer)
        if "error" in result:
            raise RuntimeError(f"{job} failed: {result['error']}")
        return Done(**result)

    def _start(self) -> subprocess.Popen[str]:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,  # the harness handles Ctrl-C and ends it
        )
        # In the middle of a job it would not notice the end of its input.
        self._guard = guard(self._process.pid)
        return self._process

    def _error_output(self) -> str:
        assert self._log is not None
        self._log.seek(0)
        return self._log.read()[-4000:].decode(errors="replace").strip()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert self._guard is not None
        self._guard.kill()  # before the process id can be reused
        self._guard.communicate()
        self._guard = None
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()  # its JVM ends when the other end of its input is closed
            process.wait()
        process.stdout.close()
        assert self._log is not None
        self._log.close()


def serve(jobs: IO[str], answers: IO[str], spark: SparkSession) -> None:
    """Run a job for each line until the end of the input. The result of a failed job is its error."""
    for line in jobs:
        wanted = json.loads(line)
        job: Job = JOBS[wanted.pop("job")](**wanted)
        try:
            answer = asdict(job.run(spark))
        except Exception as error:  # noqa: BLE001 - any error is returned, and the next job may succeed
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def main() -> None:
    # The output of the JVM must not mix with the results.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    from ..spark_integration.session import session

    with session("benchmark", _CONF) as spark:
        serve(sys.stdin, answers, spark)


if __name__ == "__main__":
    main()
