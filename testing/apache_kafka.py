"""Apache Kafka as a server under test: one combined broker and controller from Maven's jars, on free ports.

It calibrates this suite: its behavior is right by definition, and a test that it fails is wrong. The interface is that
of ``moldau.testing.Broker``, so a test does not know which of the two it uses.

There is no polling for readiness: a thread reads the JVM's log until the line that reports the finished start. The JVM
has the options of `jvm`, which suit tests but not measurements; the benchmarks pass other options.
"""

import base64
import enum
import os
import signal
import subprocess
import tempfile
import threading
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from moldau.server.processes.free_ports import FreePorts
from moldau.testing import jvm, requirements
from moldau.testing.joined_brokers import cluster_id_of
from moldau.testing.kafka_jars import KAFKA_VERSION

_STARTED = "Kafka Server started"

_START_SECONDS = 240
_STOP_SECONDS = 240


class Quorum(enum.Enum):
    """How the voters of the quorum are configured: the options of the storage tool that formats a directory, and the
    settings of the server."""

    STANDALONE = "standalone"
    """``format --standalone``: one voter, in the log, found by ``controller.quorum.bootstrap.servers``."""
    INITIAL_CONTROLLERS = "initial controllers"
    """``format --initial-controllers``: the same, with the voter and its directory named."""
    STATIC = "static voters"
    """``controller.quorum.voters``, and nothing in the log (kraft.version 0), as in the official image."""


class ApacheKafka:
    """Apache Kafka as a child process with its own data directory.

    ``config`` overrides the settings of a one-node server. ``data_dir`` is the log directory with the metadata: one
    that the node has used before, or a new one, which is formatted. By default it is temporary and exists as long as
    the context: ``restart``, and ``kill`` followed by ``start``, keep the data. ``quorum`` must be the same for all
    starts on a directory. ``parent`` is the parent of the temporary folder, which also contains the settings and the
    server's log. ``jvm_options`` replaces all options of the JVM. ``version``: 4.3.1, or one of
    ``kafka_jars.OLDER_SERVERS``, whose quorum is static by default. ``listeners`` are further listeners for clients, by
    name, with their security protocol: ``{"SECURE": "SASL_SSL"}``; ``address_of`` has their addresses. ``classes`` is a
    folder with the classes of plugins. ``cluster_id`` is that of a new directory; by default, it is drawn.
    ``roles`` are those of the node: ``broker,controller``, ``broker`` or ``controller``. ``controllers`` is the address
    of the controllers of a node that is only a broker, whose ``node.id`` must be in ``config``. ``heap_mb`` limits the
    heap. ``host`` is in the addresses of ``listeners``.
    """

    def __init__(
        self,
        config: Mapping[str, str] | None = None,
        *,
        data_dir: Path | None = None,
        quorum: Quorum | None = None,
        parent: Path | None = None,
        jvm_options: Sequence[str] | None = None,
        version: str = KAFKA_VERSION,
        listeners: Mapping[str, str] | None = None,
        classes: Path | None = None,
        cluster_id: str | None = None,
        roles: str = "broker,controller",
        controllers: str | None = None,
        heap_mb: int = 512,
        host: str = "127.0.0.1",
    ) -> None:
        self._host = host
        self._heap_options = (f"-Xmx{heap_mb}M", f"-Xms{heap_mb // 2}M")
        self._cluster_id = cluster_id
        self._roles = roles.split(",")
        self._controllers = controllers
        self._classes = classes
        self._listeners = dict(listeners or {})
        self._addresses: dict[str, str] = {}
        self._config = dict(config or {})
        self._data_dir = data_dir
        self._version = version
        self._quorum = quorum or (Quorum.STANDALONE if version == KAFKA_VERSION else Quorum.STATIC)
        self._parent = parent
        self._jvm_options = jvm_options
        self._resources = ExitStack()
        self._process: subprocess.Popen[str] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._log_reader: threading.Thread | None = None
        self._directory = Path()
        self._port = self._controller_port = 0

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` for clients, the same after every restart."""
        return f"127.0.0.1:{self._port}"

    def address_of(self, listener: str) -> str:
        """``host:port`` of one of ``listeners``."""
        return self._addresses[listener]

    @property
    def controllers(self) -> str:
        """``host:port`` of its controllers, for brokers that join the cluster."""
        return self._controllers or f"127.0.0.1:{self._controller_port}"

    @property
    def cluster_id(self) -> str:
        """The id of the cluster, once the directory is formatted."""
        return cluster_id_of(self.data_dir)

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
        """Prepare the start: the folder, the ports, the settings, and a new directory is formatted. ``with`` does this
        first."""
        requirements.require_kafka_jars(self._version)
        folder = tempfile.TemporaryDirectory(prefix="apache-kafka-", dir=self._parent)
        self._directory = Path(self._resources.enter_context(folder))
        self._resources.callback(self.stop)
        self._port, self._controller_port, *others = free_ports(2 + len(self._listeners))
        self._addresses = {name: f"{self._host}:{port}" for name, port in zip(self._listeners, others, strict=True)}
        self._write_properties(self._controller_port)
        if not (self.data_dir / "meta.properties").exists():
            self._format(self._controller_port)

    def close(self) -> None:
        """Stop, and remove the folder. The end of ``with``."""
        self._resources.close()

    def start(self) -> None:
        """Start the server, and return when it has logged that it is ready. No effect if it is running."""
        if self._process is not None:
            return
        started = self.launch()
        if not started.wait(_START_SECONDS) or not self.alive:
            log = self.log()
            self.kill()
            raise RuntimeError(f"Apache Kafka did not start:\n{log[-4000:]}")

    @property
    def alive(self) -> bool:
        """Whether the last started process has not exited."""
        return self._process is not None and self._process.poll() is None

    def launch(self) -> threading.Event:
        """Start the process without waiting; the event is set when the server has logged that it is ready, and also
        when it has exited."""
        self._process = subprocess.Popen(
            self._command("kafka.Kafka", str(self.properties)),
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
        """Stop cleanly (SIGTERM). No effect if it is not running."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """``kill -9``: nothing is flushed, no file is closed. ``start`` restarts it on the same port."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stop cleanly if it is running, and start on the same port and directory."""
        self.stop()
        self.start()

    def log(self) -> str:
        """The server's log since the first start."""
        path = self._directory / "server.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def _end(self, with_signal: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if self._guard is not None:
            self._guard.kill()  # before another process can get the process id
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
        process.wait()  # its output ends a moment before it exits
        started.set()  # a waiting thread then checks the state

    def _command(self, main_class: str, *arguments: str) -> list[str]:
        if self._jvm_options is None and self._version == KAFKA_VERSION:
            return jvm.command(main_class, *arguments, options=self._heap_options, classes=self._classes)
        libs, java = requirements.require_kafka_jars(self._version), requirements.require_program("java")
        options = (*jvm.OPTIONS, *self._heap_options) if self._jvm_options is None else self._jvm_options
        class_path = f"{libs}/*" if self._classes is None else f"{libs}/*{os.pathsep}{self._classes}"
        return [java, *options, "-cp", class_path, main_class, *arguments]

    @property
    def properties(self) -> Path:
        """The file with its settings."""
        return self._directory / "server.properties"

    def _write_properties(self, controller_port: int) -> None:
        addresses = dict(self._addresses)
        if "broker" in self._roles:
            addresses["PLAINTEXT"] = self.bootstrap_servers
        if "controller" in self._roles:
            addresses["CONTROLLER"] = f"127.0.0.1:{controller_port}"
        listeners = ",".join(f"{name}://{address}" for name, address in addresses.items())
        protocols = {"CONTROLLER": "PLAINTEXT", "PLAINTEXT": "PLAINTEXT"} | self._listeners
        settings = {
            "process.roles": ",".join(self._roles),
            "node.id": "1",
            "listeners": listeners,
            "advertised.listeners": listeners,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": ",".join(f"{name}:{each}" for name, each in protocols.items()),
            **({"inter.broker.listener.name": "PLAINTEXT"} if "broker" in self._roles else {}),
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
            # After kill -9 the controller rejects the restarted broker until its old session has expired.
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            **self._config,
        }
        address = self._controllers or f"127.0.0.1:{controller_port}"
        if self._quorum is Quorum.STATIC:
            settings["controller.quorum.voters"] = f"{settings['node.id']}@{address}"
        else:
            settings["controller.quorum.bootstrap.servers"] = address
        self.properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    def _format(self, controller_port: int) -> None:
        arguments = ["format", "-t", self._cluster_id or new_id(), "-c", str(self.properties)]
        if "controller" not in self._roles:
            arguments.append("--no-initial-controllers")
        elif self._quorum is Quorum.STANDALONE:
            arguments.append("--standalone")
        elif self._quorum is Quorum.INITIAL_CONTROLLERS:
            node_id = self._config.get("node.id", "1")
            arguments += ["--initial-controllers", f"{node_id}@127.0.0.1:{controller_port}:{new_id()}"]
        done = subprocess.run(
            self._command("kafka.tools.StorageTool", *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_START_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"Apache Kafka's storage tool failed:\n{done.stdout}")


def new_id() -> str:
    """A random id for a cluster or a directory."""
    # The first byte is 0: an id that begins with "-" would be parsed as an option.
    return base64.urlsafe_b64encode(b"\0" + uuid.uuid4().bytes[1:]).decode().rstrip("=")


def guard(pid: int) -> "subprocess.Popen[bytes]":
    """A process that kills ``pid`` when this process ends in any way, because its pipe closes. It must be ended before
    ``pid`` exits."""
    return subprocess.Popen(
        ["sh", "-c", f"read -r _; kill -9 {pid}"],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def free_ports(count: int) -> list[int]:
    """Different free ports. On Linux no other process is given them while this one runs."""
    found: dict[int, None] = {}
    while len(found) < count:
        found[_ports("127.0.0.1", 0)] = None
    return list(found)


_ports = FreePorts()
