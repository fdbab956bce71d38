"""The adapter of a client under test: a program that reads jobs on standard input, one JSON object per line.

Each job has an `id`, and each is answered with one line on standard output with the same `id`. Jobs come one at a time.
Values are text. What the program writes to standard error is shown if a scenario fails.

    {"id": 1, "job": "produce", "bootstrap": "127.0.0.1:9092", "topic": "t", "partition": 0, "values": ["a", "b"],
     "options": {"acks": "all", "idempotent": true, "give_up_ms": 30000}}
    -> {"id": 1, "acknowledged": [{"value": "a", "offset": 0}, {"value": "b", "offset": 1}]}

    {"id": 2, "job": "consume", "bootstrap": ..., "topic": "t", "partition": 0, "start": 0, "options": {}}
    -> {"id": 2, "records": [{"value": "a", "offset": 0}, ...]}     all records from `start` to the end of the partition

    {"id": 3, "job": "create_topic", "bootstrap": ..., "topic": "t", "partitions": 3}
    -> {"id": 3}

    {"id": 4, "job": "offset_for_time", "bootstrap": ..., "topic": "t", "partition": 0, "timestamp": 1700000000000}
    -> {"id": 4, "offset": 17}                                      null if no record is that late

docs/conformance.md has all jobs: also `consume_group`, `commit`, `committed`, `transact`, and those of administration.

A job that fails is answered with `{"id": ..., "error": {"code": "MESSAGE_TOO_LARGE", "message": ...}}`; the code is
Kafka's name of the error if there is one, and `TIMEOUT` if the adapter has given up waiting for its client. A job or an
option that the client does not have is answered with `{"id": ..., "unsupported": "the reason"}`. A job creates its
client and closes it at its end.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from typing import Any, Final, Self

from ..outcome import InconclusiveError, MismatchError, NotApplicableError

_STDERR_CHARACTERS: Final = 2_000
_TIMEOUT: Final = "TIMEOUT"


class JobError(Exception):
    """The client reports an error for a job."""

    def __init__(self, code: str, message: str) -> None:
        # Errors of many clients repeat their name at the beginning of their message.
        while message.startswith(f"{code}: "):
            message = message.removeprefix(f"{code}: ")
        super().__init__(f"{code}: {message}" if message else code)
        self.code = code


class Adapter:
    """A running adapter. It is started for the first job, and again after it was killed."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self._number = 0
        self._closed = False
        self._lock = threading.RLock()
        """Guards `_process` and `_closed`: another thread, or a signal handler, may end the program."""

    def do(self, job: str, deadline_seconds: float, **arguments: Any) -> dict[str, Any]:
        """The answer to a job.

        Raises:
            JobError: the client reports an error.
            MismatchError: there is no valid answer before the deadline; the program is killed.
            NotApplicableError: the client does not have this.
            InconclusiveError: the program cannot be started.
        """
        process = self._running()
        self._number += 1
        line = json.dumps({"id": self._number, "job": job, **arguments}).encode() + b"\n"
        assert process.stdin is not None
        try:
            process.stdin.write(line)
            process.stdin.flush()
            answer = self._answers.get(timeout=deadline_seconds)
        except (BrokenPipeError, ValueError):  # it has ended, or `kill` has closed the pipe
            answer = b""
        except queue.Empty:
            self.kill()
            raise MismatchError(
                f"the {job} job", f"an answer within {deadline_seconds:g} s", f"the client hung{self._output()}"
            ) from None
        if not answer:
            self.kill()
            raise MismatchError(f"the {job} job", "an answer", f"the adapter ended{self._output()}")
        return self._parsed(job, answer)

    def _parsed(self, job: str, line: bytes) -> dict[str, Any]:
        try:
            answer = json.loads(line)
            number = answer["id"]
        except (ValueError, KeyError, TypeError):
            raise InconclusiveError(f"the adapter's answer to the {job} job is not valid: {line[:200]!r}") from None
        if number != self._number:
            raise InconclusiveError(f"the adapter answered job {number} instead of {self._number}")
        if "unsupported" in answer:
            raise NotApplicableError(str(answer["unsupported"]))
        if "error" in answer:
            error = answer["error"]
            code, message = str(error.get("code", "unknown")), str(error.get("message", ""))
            if code == _TIMEOUT:
                raise MismatchError(f"the {job} job", "an answer", f"the client hung: {message}")
            raise JobError(code, message)
        found: dict[str, Any] = answer
        return found

    def _running(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._closed:
                raise InconclusiveError("the adapter has been closed")
            if self._process is None or self._process.poll() is not None:
                self._answers = queue.SimpleQueue()
                try:
                    # With its own process group: `kill` also ends the programs that it has started.
                    self._process = subprocess.Popen(
                        self._command,
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=self._stderr,
                        start_new_session=True,
                    )
                except OSError as error:
                    raise InconclusiveError(
                        f"the adapter {self._command[0]} cannot be started: {error.strerror}"
                    ) from error
                threading.Thread(target=_read, args=(self._process, self._answers), daemon=True).start()
            return self._process

    def _output(self) -> str:
        """The end of what the program wrote to standard error."""
        self._stderr.seek(0)
        text = self._stderr.read().decode(errors="replace").strip()
        return f"; its standard error ends with: {text[-_STDERR_CHARACTERS:]}" if text else ""

    def kill(self) -> None:
        """Kill the program; the next job starts it again."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):  # of a job that the program did not read
                        pipe.close()

    def end(self) -> None:
        """Kill the program, from any thread; a job that is running or follows fails."""
        with self._lock:
            self._closed = True
        self.kill()

    def close(self) -> None:
        """Kill the program and release its resources, when no job is running."""
        self.end()
        self._stderr.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _read(process: subprocess.Popen[bytes], answers: queue.SimpleQueue[bytes]) -> None:
    """Lines, and an empty one at the end of the program."""
    assert process.stdout is not None
    try:
        for line in process.stdout:
            answers.put(line)
    except ValueError:  # `kill` has closed the pipe
        return
    answers.put(b"")
