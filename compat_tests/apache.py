"""Apache Kafka itself as a server under test: one combined broker and controller from Maven's jars, on free ports.

It is the calibration of this suite: what it does is right by definition, and a test that it fails is a wrong test.
The interface is that of ``moldau.testing.Broker``, so a test does not know which of the two it has.

It is ready when it says so: the JVM's log goes through a thread that looks for the line of the finished start, so
nobody sleeps and looks again. The JVM is made small and quick to start (a serial collector, the first compiler tier),
which suits tests; it is not how to measure Apache Kafka, so the benchmarks name other options.
"""

import base64
import enum
import signal
import socket
import subprocess
import tempfile
import threading
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from moldau.compat_tests import requirements

_JVM_OPTIONS = ("-Xmx512M", "-Xms256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")

_STARTED = "Kafka Server started"

_START_SECONDS = 90
_STOP_SECONDS = 60


class Quorum(enum.Enum):
    """How the voters of the quorum are made known: what the storage tool is told when it formats a directory, and the
    server when it starts."""

    STANDALONE = "standalone"
    """``format --standalone``: one voter, in the log, found by ``controller.quorum.bootstrap.servers``."""
    INITIAL_CONTROLLERS = "initial controllers"
    """``format --initial-controllers``: the same, with the voter and its directory named."""
    STATIC = "static voters"
    """``controller.quorum.voters``, and nothing in the log (kraft.version 0): so the official image does it."""


class ApacheKafka:
    """Apache Kafka 4.3.1 as a child process with a data directory of its own.

    ``config`` is laid over the settings of a one-node server. ``data_dir`` is the log directory with the metadata, one
    that the node has been using, or a new one, which is formatted; without one, it lives as long as the context:
    ``restart`` and ``kill`` followed by ``start`` find what was written before. ``quorum`` has to be the same for all
    starts on a directory. ``parent`` is where the temporary folder is made that holds it,
    together with the settings and the server's log.
    """

    def __init__(
        self,
        config: Mapping[str, str] | None = None,
        *,
        data_dir: Path | None = None,
        quorum: Quorum = Quorum.STANDALONE,
        parent: Path | None = None,
        jvm_options: Sequence[str] = _JVM_OPTIONS,
    ) -> None:
        self._config = dict(config or {})
        self._data_dir = data_dir
        self._quorum = quorum
        self._parent = parent
        self._jvm_options = tuple(jvm_options)
        self._resources = ExitStack()
        self._process: subprocess.Popen[str] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._log_reader: threading.Thread | None = None
        self._directory = Path()
        self._port = 0

    @property
    def bootstrap_servers(self) -> str:
        """``host:port``, the same after every restart."""
        return f"127.0.0.1:{self._port}"

    @property
    def data_dir(self) -> Path:
        """The log directory."""
        return self._data_dir or self._directory / "data"

    @property
    def pid(self) -> int:
        """The process id of the running JVM."""
        assert self._process is not None, "not running"
        return self._process.pid

    def __enter__(self) -> Self:
        try:
            self.prepare()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def prepare(self) -> None:
        """Everything before the start: the folder, the ports, the settings, and the directory formatted if it is
        new. What ``with`` does first."""
        self._libs = requirements.require_kafka_jars()
        self._java = requirements.require_program("java")
        folder = tempfile.TemporaryDirectory(prefix="apache-kafka-", dir=self._parent)
        self._directory = Path(self._resources.enter_context(folder))
        self._resources.callback(self.stop)
        self._port, controller_port = free_ports(2)
        self._write_properties(controller_port)
        if not (self.data_dir / "meta.properties").exists():
            self._format(controller_port)

    def close(self) -> None:
        """Stop, and remove the folder. The end of ``with``."""
        self._resources.close()

    def start(self) -> None:
        """Start the server, and return when it has said that it is ready. Does nothing when it runs."""
        if self._process is not None:
            return
        started = self.launch()
        if not started.wait(_START_SECONDS) or not self.alive:
            log = self.log()
            self.kill()
            raise RuntimeError(f"Apache Kafka did not start:\n{log[-4000:]}")

    @property
    def alive(self) -> bool:
        """The process that was started last has not ended."""
        return self._process is not None and self._process.poll() is None

    def launch(self) -> threading.Event:
        """Start the process and do not wait; the event is set when the server has said that it is ready, and also
        when it has ended."""
        self._process = subprocess.Popen(
            [*self._jvm(), "kafka.Kafka", str(self.properties)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd=self._directory,
        )
        self._guard = guard(self._process.pid)
        started = threading.Event()
        self._log_reader = threading.Thread(target=self._read_log, args=(self._process, started), daemon=True)
        self._log_reader.start()
        return started

    def stop(self) -> None:
        """Stop cleanly, as SIGTERM does. Does nothing when it does not run."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """``kill -9``: nothing is flushed, no file is closed. ``start`` brings it back on the same port."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stop cleanly if it runs, and start on the same port and directory."""
        self.stop()
        self.start()

    def log(self) -> str:
        """Everything that the server has logged since the first start."""
        path = self._directory / "server.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def _end(self, with_signal: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if self._guard is not None:
            self._guard.kill()  # before the process id can belong to somebody else
            self._guard.communicate()
            self._guard = None
        process.send_signal(with_signal)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._log_reader is not None:
            self._log_reader.join()

    def _read_log(self, process: "subprocess.Popen[str]", started: threading.Event) -> None:
        assert process.stdout is not None
        with process.stdout, (self._directory / "server.log").open("a") as log:
            for line in process.stdout:
                log.write(line)
                if _STARTED in line:
                    started.set()
        process.wait()  # its output ends a moment before it does
        started.set()  # whoever waits looks at its state

    def _jvm(self) -> list[str]:
        return [self._java, *self._jvm_options, "-cp", f"{self._libs}/*"]

    @property
    def properties(self) -> Path:
        """The file with its settings."""
        return self._directory / "server.properties"

    def _write_properties(self, controller_port: int) -> None:
        client, controller = f"PLAINTEXT://127.0.0.1:{self._port}", f"CONTROLLER://127.0.0.1:{controller_port}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"{client},{controller}",
            "advertised.listeners": f"{client},{controller}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self.data_dir),
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "group.consumer.assignment.interval.ms": "0",
            # After kill -9 the controller refuses the returning broker until its old session has run out.
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            **self._config,
        }
        address = f"127.0.0.1:{controller_port}"
        if self._quorum is Quorum.STATIC:
            settings["controller.quorum.voters"] = f"{settings['node.id']}@{address}"
        else:
            settings["controller.quorum.bootstrap.servers"] = address
        self.properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    def _format(self, controller_port: int) -> None:
        arguments = ["format", "-t", _new_id(), "-c", str(self.properties)]
        if self._quorum is Quorum.STANDALONE:
            arguments.append("--standalone")
        elif self._quorum is Quorum.INITIAL_CONTROLLERS:
            node_id = self._config.get("node.id", "1")
            arguments += ["--initial-controllers", f"{node_id}@127.0.0.1:{controller_port}:{_new_id()}"]
        done = subprocess.run(
            [*self._jvm(), "kafka.tools.StorageTool", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_START_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"Apache Kafka's storage tool failed:\n{done.stdout}")


def _new_id() -> str:
    # The first byte is cleared: an id that begins with "-" would be read as an option.
    return base64.urlsafe_b64encode(b"\0" + uuid.uuid4().bytes[1:]).decode().rstrip("=")


def guard(pid: int) -> "subprocess.Popen[bytes]":
    """A process that kills ``pid`` when this one ends, however it ends: its pipe closes. It has to end before ``pid``
    does."""
    return subprocess.Popen(
        ["sh", "-c", f"read -r _; kill -9 {pid}"],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago; all are held until all are known, so they differ."""
    with ExitStack() as sockets:
        bound = [sockets.enter_context(socket.socket()) for _ in range(count)]
        for each in bound:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in bound]
