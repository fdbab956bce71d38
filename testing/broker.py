"""A broker for the length of a ``with`` block, in a process of its own.

The broker is the real server: ``python -m moldau serve`` on a free port, with a data directory that is thrown away. A
process, because a busy test would slow a server thread of the same interpreter, and because only a process can be
killed (:meth:`Broker.kill`) the way machines lose power.

Nothing here polls. The server's first line on standard output says that it is ready and where, and a thread that
blocks on that pipe hands the lines over. The server's standard input is a pipe that only we hold: when this process
ends, however it ends, the pipe closes and the server stops (``--exit-with-stdin``). The alternative, Linux'
parent-death signal, fires when the *thread* that started the child ends, which is wrong under a thread pool.

Invariants: the port and the data directory stay the same from the first :meth:`Broker.start` to :meth:`Broker.close`,
so that clients created before a restart find the broker again; the temporary directory lives exactly as long.
"""

from __future__ import annotations

import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self

ConfigValue = str | int | float | bool

READY_PREFIX = "moldau is ready: "

# What makes a broker pleasant in a test: internal topics of one partition instead of 50, and groups that do not wait
# three seconds for more members.
TEST_CONFIG: Mapping[str, ConfigValue] = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "share.coordinator.state.topic.num.partitions": 1,
}

LOG_TAIL_BYTES = 8192


class BrokerError(Exception):
    """The broker did not start, did not stop, or is not in the state that was asked for. Ends with the server's log."""


class Broker:
    """A Moldau broker for tests: ``with Broker() as broker: ... broker.bootstrap_servers``.

    ``config``: Kafka broker settings (``{"message.max.bytes": 2000000}``), over :data:`TEST_CONFIG`.
    ``data_dir``: keep the data here, across brokers; default is a temporary directory that :meth:`close` removes.
    ``ephemeral``: the server itself picks a directory and removes it when it stops: nothing survives a restart.
    ``listen``: ``HOST:PORT``; port 0 takes a free port at the first start and keeps it.
    ``timeout_s``: how long a start or a stop may take before :class:`BrokerError`.

    A broker is started by ``with`` or :meth:`start`, and may be stopped, killed and started again any number of times.
    """

    def __init__(
        self,
        *,
        config: Mapping[str, ConfigValue] | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        ephemeral: bool = False,
        listen: str = "127.0.0.1:0",
        timeout_s: float = 30.0,
    ) -> None:
        if ephemeral and data_dir is not None:
            raise ValueError("an ephemeral broker has no data_dir")
        self.config: dict[str, ConfigValue] = {**TEST_CONFIG, **(config or {})}
        self._directory = Path(tempfile.mkdtemp(prefix="moldau-test-"))
        self._data_dir = Path(data_dir) if data_dir is not None else self._directory / "data"
        self._ephemeral = ephemeral
        self._listen = listen
        self._timeout_s = timeout_s
        self._log_path = self._directory / "server.log"
        self._bootstrap_servers: str | None = None
        self._process: _ServerProcess | None = None

    # -- what a test asks --

    @property
    def bootstrap_servers(self) -> str:
        """``HOST:PORT`` for any client; known from the first start on, and the same ever after."""
        if self._bootstrap_servers is None:
            raise BrokerError("the broker was never started: use `with Broker() as broker` or broker.start()")
        return self._bootstrap_servers

    @property
    def data_dir(self) -> Path:
        """Where the partitions' folders are. The server owns it while it runs."""
        if self._ephemeral:
            raise BrokerError("an ephemeral broker keeps its data directory to itself")
        return self._data_dir

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.alive

    @property
    def pid(self) -> int:
        return self._running_process().pid

    def log(self) -> str:
        """All that the server wrote to standard error so far, over all of its starts."""
        return self._log_path.read_text(errors="replace") if self._log_path.exists() else ""

    def reset(self) -> None:
        """Delete every topic with its records and configs, and return when they are gone. Milliseconds; no restart.

        Topics that the server keeps for itself stay. A client that is still producing with automatic topic creation
        makes its topic again: close clients first.
        """
        from ..protocol.errors import ErrorCode, KafkaError
        from ..protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
        from ..protocol.messages.metadata import MetadataRequest
        from .wire import WireClient

        with WireClient(self.bootstrap_servers, timeout_s=self._timeout_s) as wire:
            listed = wire.call(MetadataRequest(topics=None, allow_auto_topic_creation=False))
            topics = [DeleteTopicState(name=topic.name) for topic in listed.topics if not topic.is_internal]
            if not topics:
                return
            timeout_ms = int(self._timeout_s * 1000)
            for result in wire.call(DeleteTopicsRequest(topics=topics, timeout_ms=timeout_ms), 6).responses:
                # One that is gone already was deleted by somebody else meanwhile.
                if result.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                    raise KafkaError(ErrorCode(result.error_code), f"deleting {result.name}: {result.error_message}")

    # -- its life --

    def start(self) -> Self:
        """Start the server and return when it answers; same port and data as before. Nothing if it runs already."""
        if not self.running:
            if self._process is not None:
                self._process.close()
            self._process = _ServerProcess(self._command(), self._log_path)
            self._bootstrap_servers = self._process.wait_ready(self._timeout_s)
            self._listen = self._bootstrap_servers
        return self

    def stop(self) -> None:
        """Stop the server cleanly (SIGTERM) and wait for its end. Nothing if it does not run.

        Raises :class:`BrokerError` if it takes longer than ``timeout_s`` (it is then killed) or reports a failure.
        """
        process, self._process = self._process, None
        if process is not None:
            process.stop(self._timeout_s)

    def kill(self) -> None:
        """End the server at once (SIGKILL), as a crash does: no flush, no farewell. :meth:`start` brings it back."""
        process = self._running_process()
        self._process = None
        process.kill()

    def restart(self) -> None:
        """Stop cleanly and start again: same port, same data, configuration as it is in :attr:`config` now."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop, and remove the temporary directory. The end of the ``with`` block."""
        try:
            self.stop()
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- inside --

    def _command(self) -> list[str]:
        command = [sys.executable, "-m", "moldau", "serve", "--exit-with-stdin", "--listen", self._listen]
        command += ["--ephemeral"] if self._ephemeral else ["--data-dir", str(self._data_dir)]
        for name, value in self.config.items():
            command += ["--set", f"{name}={config_text(value)}"]
        return command

    def _running_process(self) -> _ServerProcess:
        if self._process is None or not self._process.alive:
            raise BrokerError("the broker is not running")
        return self._process


def config_text(value: ConfigValue) -> str:
    """A setting as Kafka writes it: ``True`` is ``true``."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def server_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """``environment`` without ``KAFKA_...``: tests mean their clients by it, the server would take it for settings."""
    return {name: value for name, value in environment.items() if not name.startswith("KAFKA_")}


class _ServerProcess:
    """One run of the server: the child, its two pipes, and its log file."""

    def __init__(self, command: list[str], log_path: Path) -> None:
        self._log_path = log_path
        self._log_start = log_path.stat().st_size if log_path.exists() else 0
        with log_path.open("ab") as log:
            # A session of its own keeps Ctrl-C in the terminal from reaching the server before the test has ended.
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                env=server_environment(os.environ),
            )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        assert self._child.stdout is not None
        self._reader = threading.Thread(
            target=_hand_over_lines, args=(self._child.stdout, self._lines), name="moldau-broker-output", daemon=True
        )
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def alive(self) -> bool:
        return self._child.poll() is None

    def wait_ready(self, timeout_s: float) -> str:
        """The address that the server reports on standard output when its port answers."""
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
        """Release the pipes of a child that has ended."""
        self._reader.join()
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                pipe.close()

    def _log_tail(self) -> str:
        with self._log_path.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, size - LOG_TAIL_BYTES))
            tail = log.read().decode(errors="replace").rstrip()
        return f"; its log:\n{tail}" if tail else "; it logged nothing"


def _hand_over_lines(stdout: IO[bytes], lines: queue.SimpleQueue[str | None]) -> None:
    """Pass each line on, and None at the end. Reading to the end also keeps the server from blocking on a full pipe."""
    for line in stdout:
        lines.put(line.decode(errors="replace").rstrip("\n"))
    lines.put(None)
