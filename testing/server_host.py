"""Starts server processes as forks of one interpreter that has imported the server: for tests with several servers.

An interpreter with the imports of a server takes more CPU time than the rest of its startup, so three servers are ready
sooner with one of them (`server.processes.fork_host`). The test itself cannot fork: it may have threads. A fork is used
like a `subprocess.Popen`.
"""

from __future__ import annotations

import array
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import IO, Any

from .server_run import BrokerError

CAN_FORK = sys.platform == "linux"

_MAX_MESSAGE = 65_536


class HostedProcess:
    """A running fork, with the part of `subprocess.Popen` that `server_process.ServerProcess` needs."""

    def __init__(self, host: ServerHost, pid: int, code: Future[int], stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self._host = host
        self._code = code
        self.pid = pid
        self.stdin = stdin
        self.stdout = stdout

    def poll(self) -> int | None:
        """The exit code if the process has ended; a signal is negative."""
        return self._code.result() if self._code.done() else None

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code when the process has ended. Raises `subprocess.TimeoutExpired`."""
        try:
            return self._code.result(timeout)
        except TimeoutError:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0) from None

    def send_signal(self, number: int) -> None:
        """Send a signal. No effect if the process has ended."""
        self._host.send_signal(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


class ServerHost:
    """The interpreter. It imports the server while the test continues."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "moldau", "serve", "--fork-host"],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C in the terminal does not reach it
                env=self._environment,
            )
        self._starting = threading.Lock()
        self._started: queue.SimpleQueue[tuple[int, Future[int]] | str] = queue.SimpleQueue()
        self._codes: dict[int, Future[int]] = {}
        self._reader = threading.Thread(target=self._read, name="moldau-server-host", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The process of the interpreter."""
        return self._process.pid

    def start(self, arguments: Sequence[str], name: str, stderr: IO[bytes]) -> HostedProcess:
        """Start a server with pipes to its standard input and from its standard output. Raises BrokerError."""
        child_stdin, stdin = os.pipe()
        stdout, child_stdout = os.pipe()
        message = json.dumps({"start": list(arguments), "name": name, "environment": self._environment}).encode()
        descriptors = array.array("i", [child_stdin, child_stdout, stderr.fileno()])
        try:
            with self._starting:
                self._socket.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
                started = self._started.get()
            if isinstance(started, str):
                raise BrokerError(f"cannot start the broker: {started}")
        except BaseException as error:
            os.close(stdin)
            os.close(stdout)
            if isinstance(error, OSError):
                raise BrokerError(f"cannot start the broker: {error.strerror or error}") from error
            raise
        finally:
            os.close(child_stdin)
            os.close(child_stdout)
        return HostedProcess(self, *started, open(stdin, "wb"), open(stdout, "rb"))

    def send_signal(self, pid: int, number: int) -> None:
        """Send a signal to a server that has not ended. The host does it, because only the parent of a process knows
        that its id has not been reused."""
        try:
            self._socket.send(json.dumps({"pid": pid, "signal": number}).encode())
        except BrokenPipeError:
            raise BrokerError("the process that started the broker has ended") from None

    def close(self) -> None:
        """End the interpreter. Servers that still run end when their standard input is closed."""
        self._socket.shutdown(socket.SHUT_WR)
        self._process.wait()
        self._reader.join()
        self._socket.close()

    def _read(self) -> None:
        while message := self._receive():
            if "pid" in message:
                pid, code = message["pid"], Future[int]()
                self._codes[pid] = code
                self._started.put((pid, code))
            elif "ended" in message:
                self._codes.pop(message["ended"]).set_result(message["code"])
            else:
                self._started.put(message["error"])
        self._started.put("the process that starts brokers has ended")
        for code in self._codes.values():
            code.set_exception(BrokerError("the process that started the broker has ended"))

    def _receive(self) -> dict[str, Any]:
        try:
            data = self._socket.recv(_MAX_MESSAGE)
        except ConnectionResetError:  # it was killed
            return {}
        found: dict[str, Any] = json.loads(data) if data else {}
        return found
