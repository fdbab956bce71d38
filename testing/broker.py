"""A broker for the length of a ``with`` block, in a process of its own.

The broker is the real server: ``python -m moldau serve`` on a free port, with a data directory that is thrown away. A
process, because a busy test would slow a server thread of the same interpreter, and because only a process can be
killed (:meth:`Broker.kill`) the way machines lose power.

Invariants: the port and the data directory stay the same from the first :meth:`Broker.start` to :meth:`Broker.close`,
so that clients created before a restart find the broker again; the temporary directory lives exactly as long.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from .server_process import ServerProcess
from .server_run import BrokerError, ServerRun

ConfigValue = str | int | float | bool

# What makes a broker pleasant in a test: internal topics of one partition instead of 50, and groups that do not wait
# three seconds for more members.
TEST_CONFIG: Mapping[str, ConfigValue] = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "share.coordinator.state.topic.num.partitions": 1,
}


class Broker:
    """A Moldau broker for tests: ``with Broker() as broker: ... broker.bootstrap_servers``.

    ``config``: Kafka broker settings (``{"message.max.bytes": 2000000}``), over :data:`TEST_CONFIG`.
    ``data_dir``: keep the data here, across brokers; default is a temporary directory that :meth:`close` removes.
    ``ephemeral``: the server itself picks a directory and removes it when it stops: nothing survives a restart.
    ``thread``: run the server in a thread of this process instead; it can then not be killed.
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
        thread: bool = False,
        listen: str = "127.0.0.1:0",
        timeout_s: float = 30.0,
    ) -> None:
        if ephemeral and data_dir is not None:
            raise ValueError("an ephemeral broker has no data_dir")
        self.config: dict[str, ConfigValue] = {**TEST_CONFIG, **(config or {})}
        self._directory = tempfile.TemporaryDirectory(prefix="moldau-test-", ignore_cleanup_errors=True)
        self._data_dir = Path(data_dir if data_dir is not None else Path(self._directory.name) / "data")
        self._ephemeral = ephemeral
        self._thread = thread
        self._listen = listen
        self._timeout_s = timeout_s
        self._log_path = Path(self._directory.name) / "server.log"
        self._bootstrap_servers: str | None = None
        self._run: ServerRun | None = None

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
        return self._run is not None and self._run.alive

    @property
    def pid(self) -> int:
        """The process that the server runs in."""
        return self._running().pid

    def log(self) -> str:
        """All that the server wrote to standard error so far, over all of its starts; nothing with ``thread``."""
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
            if self._run is not None:
                self._run.close()
            self._run = self._start_thread() if self._thread else ServerProcess(self._command(), self._log_path)
            self._bootstrap_servers = self._listen = self._run.wait_ready(self._timeout_s)
        return self

    def stop(self) -> None:
        """Stop the server cleanly (SIGTERM) and wait for its end. Nothing if it does not run.

        Raises :class:`BrokerError` if it takes longer than ``timeout_s`` (it is then killed) or reports a failure.
        """
        run, self._run = self._run, None
        if run is not None:
            run.stop(self._timeout_s)

    def kill(self) -> None:
        """End the server at once (SIGKILL), as a crash does: no flush, no farewell. :meth:`start` brings it back."""
        self._running().kill()
        self._run = None

    def restart(self) -> None:
        """Stop cleanly and start again: same port, same data, configuration as it is in :attr:`config` now."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop, and remove the temporary directory. The end of the ``with`` block."""
        try:
            self.stop()
        finally:
            self._directory.cleanup()

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

    def _start_thread(self) -> ServerRun:
        from ..config.checks import check_broker_config
        from ..config.sources import load
        from .server_thread import ServerThread

        settings = {**self.config, "listeners": f"PLAINTEXT://{self._listen}"}
        config = load(overrides=[f"{name}={config_text(value)}" for name, value in settings.items()])
        check_broker_config(config)
        if self._ephemeral:
            shutil.rmtree(self._data_dir, ignore_errors=True)
        return ServerThread(config, str(self._data_dir), durable=not self._ephemeral)

    def _running(self) -> ServerRun:
        if self._run is None or not self._run.alive:
            raise BrokerError("the broker is not running")
        return self._run


def config_text(value: ConfigValue) -> str:
    """A setting as Kafka writes it: ``True`` is ``true``."""
    return str(value).lower() if isinstance(value, bool) else str(value)
