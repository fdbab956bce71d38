"""One run of the server as a child process: its start, its ready line, its exit.

No polling: the server's first line on standard output reports that it is ready, and its address. A thread reads the
lines. The server's standard input is a pipe that only this process holds: when this process ends, in whatever way, the
pipe closes and the server stops (``--exit-with-stdin``; docs/decisions/0004 lists the alternatives). The same two pipes
carry requests that clients do not have (`server.steering`).
"""

from __future__ import annotations

import itertools
import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from .server_host import HostedProcess, ServerHost
from .server_run import BrokerError, ServerRun

READY_PREFIX = "moldau is ready: "
RESPONSE_PREFIX = "moldau answers: "

LOG_TAIL_BYTES = 8192


def server_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """``environment`` without ``KAFKA_...``: tests set these for clients; the server would read them as settings."""
    return {name: value for name, value in environment.items() if not name.startswith("KAFKA_")}


class ServerProcess(ServerRun):
    """One run of the server: the child, its two pipes, and its log file."""

    def __init__(
        self, command: list[str], log_path: Path, host: ServerHost | None = None, name: str = "moldau"
    ) -> None:
        """``host`` starts the process under this name, if it is given."""
        self._log_path = log_path
        self._log_start = log_path.stat().st_size if log_path.exists() else 0
        self._child: subprocess.Popen[bytes] | HostedProcess
        with log_path.open("ab") as log:
            if host is not None:
                self._child = host.start(command[command.index("serve") :], name, log)
            else:
                # A separate session: Ctrl-C in the terminal does not reach the server before the test has ended.
                self._child = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,
                    env=server_environment(os.environ),
                )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._asking = threading.Lock()
        self._numbers = itertools.count()
        self._pending: dict[int, Future[None]] = {}
        assert self._child.stdout is not None
        self._reader = threading.Thread(
            target=self._queue_lines, args=(self._child.stdout,), name="moldau-broker-output", daemon=True
        )
        try:
            self._reader.start()
        except RuntimeError:  # the limit of threads: the child must not keep running
            self._child.kill()
            self._child.wait()
            self._close_pipes()
            raise

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def alive(self) -> bool:
        return self._child.poll() is None

    def wait_ready(self, timeout_s: float) -> str:
        """The address that the server reports on standard output when its port is open."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                self.kill()
                raise BrokerError(f"the broker was not ready within {timeout_s:g} s{self._log_tail()}") from None
            if line is None:
                code = self._child.wait()
                self.close()
                raise BrokerError(f"the broker ended with exit code {code} before it was ready{self._log_tail()}")
            if line.startswith(READY_PREFIX):
                return line.removeprefix(READY_PREFIX).split()[0]

    def ask(self, request: Mapping[str, Any]) -> Any:
        answer: Future[Any] = Future()
        assert self._child.stdin is not None
        with self._asking:
            number = next(self._numbers)
            self._pending[number] = answer
            try:
                self._child.stdin.write(json.dumps({"id": number, **request}).encode() + b"\n")
                self._child.stdin.flush()
            except (OSError, ValueError):  # it has ended; `close` has closed the pipe already
                del self._pending[number]
                raise BrokerError(f"the broker has exited{self._log_tail()}") from None
        return answer.result()

    def stop(self, timeout_s: float) -> None:
        self._child.send_signal(signal.SIGTERM)
        try:
            code = self._child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerError(f"the broker did not stop within {timeout_s:g} s{self._log_tail()}") from None
        self.close()
        if code != 0:
            raise BrokerError(f"the broker ended with exit code {code}{self._log_tail()}")

    def kill(self) -> None:
        self._child.kill()
        self._child.wait()
        self.close()

    def close(self) -> None:
        """Release the pipes of a child that has exited."""
        self._reader.join()
        self._close_pipes()

    def _close_pipes(self) -> None:
        with self._asking:  # no request is being written
            for pipe in (self._child.stdin, self._child.stdout):
                # Closing writes what a failed write has left in the buffer; no process reads it.
                with suppress(BrokenPipeError):
                    if pipe is not None:
                        pipe.close()

    def _log_tail(self) -> str:
        with self._log_path.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, size - LOG_TAIL_BYTES))
            tail = log.read().decode(errors="replace").rstrip()
        return f"; its log:\n{tail}" if tail else "; it logged nothing"

    def _queue_lines(self, stdout: IO[bytes]) -> None:
        """Queue each line, and None at the end. Reading to the end also prevents the server from blocking on a full
        pipe."""
        for line in stdout:
            text = line.decode(errors="replace").rstrip("\n")
            if text.startswith(RESPONSE_PREFIX):
                self._answered(json.loads(text.removeprefix(RESPONSE_PREFIX)))
            else:
                self._lines.put(text)
        self._lines.put(None)
        with self._asking:
            pending, self._pending = self._pending, {}
        for answer in pending.values():
            answer.set_exception(BrokerError("the broker exited before it responded"))

    def _answered(self, response: Mapping[str, Any]) -> None:
        with self._asking:
            answer = self._pending.pop(response["id"])
        if "error" in response:
            answer.set_exception(BrokerError(response["error"]))
        else:
            answer.set_result(response.get("result"))
