"""The compared servers, each started as by its users.

Moldau is the command ``moldau serve``. Apache Kafka is its JVM with the options of Kafka's own start script and the
thread counts of its ``server.properties``. Settings are Kafka's defaults for both, except for a few that affect neither
the work nor its cost (see ``COMMON_CONFIG``).

A waiting server is stopped with SIGSTOP, so that it costs nothing while another one is measured. When Apache Kafka
continues, the clock has jumped. Its broker must not be fenced because of that, so its session is a day long
(``PAUSED_CONFIG``).
"""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from ..testing.apache_cluster import ApacheCluster
from ..testing.apache_kafka import ApacheKafka, free_ports, guard
from ..testing.waiting import wait_until
from . import processes
from .ceiling import CeilingServer
from .row import Server, Subject

# The options of bin/kafka-server-start.sh of Apache Kafka 4.3.
APACHE_JVM_OPTIONS = (
    "-server",
    "-Xmx1G",
    "-Xms1G",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)

# The settings of its config/server.properties. In addition, files are removed immediately instead of after 30 s, which
# every warmup would otherwise wait for. The tests' server has a small topic of transactions; here it is Kafka's
# default.
APACHE_CONFIG = {
    "num.network.threads": "3",
    "num.io.threads": "8",
    "log.initial.task.delay.ms": "0",
    "transaction.state.log.num.partitions": "50",
}

# For both. The files of a deleted topic are removed immediately instead of a minute later, so that every measurement
# has the disk and the page cache for itself. A classic group does not wait for more members, and the topic of groups is
# small. The interval of KIP-848 groups is Kafka's default, which Moldau does not use on loopback.
COMMON_CONFIG = {
    "log.segment.delete.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "1000",
}

PAUSED_CONFIG = {"broker.session.timeout.ms": "86400000"}

_START_SECONDS = 300.0
_STOP_SECONDS = 120.0


class MeasuredServer(Server, Protocol):
    """A server for the runner, which creates it and ends it."""

    def close(self) -> None:
        """Stop, and remove all files except for a given data directory."""


class MoldauServer:
    """``moldau serve`` on a data directory, after the first ``start``."""

    def __init__(
        self,
        directory: Path,
        *,
        config: Mapping[str, str],
        data_dir: Path | None = None,
        listeners: Mapping[str, str] | None = None,
    ) -> None:
        """``directory`` is for the log, and for the data unless ``data_dir`` is given. ``listeners``: further ones, by
        name, with their security protocols."""
        self._listeners = dict(listeners or {})
        self._port, *others = free_ports(1 + len(self._listeners))
        self._addresses = {name: f"127.0.0.1:{port}" for name, port in zip(self._listeners, others, strict=True)}
        self._directory = directory
        self._data_dir = data_dir or directory / "data"
        self._config = {**COMMON_CONFIG, **config}
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def subject(self) -> Subject:
        return Subject.MOLDAU

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self._port}"

    def address_of(self, listener: str) -> str:
        return self._addresses[listener]

    @property
    def pid(self) -> int:
        assert self._process is not None, "not running"
        return self._process.pid

    @property
    def data_dir(self) -> Path:
        return self._data_dir

    def start(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self._end(signal.SIGKILL)
        command = [sys.executable, "-m", "moldau", "serve", "--data-dir", str(self._data_dir)]
        command += self._options()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_environment(),
                start_new_session=True,  # the harness handles Ctrl-C and stops its servers itself
            )
            # Not --exit-with-stdin: a stopped server would not notice the end of its input.
        self._guard = guard(self.pid)
        try:
            processes.wait_for_answer(self.bootstrap_servers, self.pid, timeout_s=_START_SECONDS)
        except (ConnectionError, TimeoutError) as error:
            self._end(signal.SIGKILL)
            raise RuntimeError(f"Moldau did not start: {error}\n{_tail(self._log)}") from error

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def close(self) -> None:
        self.stop()

    def cpu_seconds(self) -> float:
        return processes.cpu_seconds(self.pid)

    def resident_bytes(self) -> int:
        return processes.resident_bytes(self.pid)

    def _options(self) -> list[str]:
        if not self._listeners:
            return ["--listen", self.bootstrap_servers, *_set(self._config)]
        addresses = {"PLAINTEXT": self.bootstrap_servers, **self._addresses}
        protocols = {"PLAINTEXT": "PLAINTEXT", **self._listeners}
        own = {
            "listeners": ",".join(f"{name}://{address}" for name, address in addresses.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{each}" for name, each in protocols.items()),
        }
        return _set({**own, **self._config})

    @property
    def _log(self) -> Path:
        return self._directory / "moldau.log"

    def _end(self, with_signal: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if self._guard is not None:
            self._guard.kill()  # before the process id can be reused
            self._guard.communicate()
            self._guard = None
        if process.poll() is None:
            process.send_signal(with_signal)
            processes.resume(process.pid)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class MoldauBrokers(MoldauServer):
    """``moldau serve --brokers N``: the process that starts the brokers, with the CPU time and memory of them all."""

    def __init__(
        self, brokers: int, directory: Path, *, config: Mapping[str, str], data_dir: Path | None = None
    ) -> None:
        super().__init__(directory, config=config, data_dir=data_dir)
        self._brokers = brokers

    def start(self) -> None:
        super().start()
        try:
            processes.wait_for_brokers(self.bootstrap_servers, self.pid, self._brokers, timeout_s=_START_SECONDS)
        except (ConnectionError, TimeoutError) as error:
            self._end(signal.SIGKILL)
            raise RuntimeError(f"Moldau did not start: {error}\n{_tail(self._log)}") from error

    def cpu_seconds(self) -> float:
        return sum(processes.cpu_seconds(pid) for pid in (self.pid, *processes.children(self.pid)))

    def resident_bytes(self) -> int:
        return sum(processes.resident_bytes(pid) for pid in (self.pid, *processes.children(self.pid)))

    def kill_broker(self, number: int) -> None:
        self._end_broker(number, signal.SIGKILL)

    def stop_broker(self, number: int) -> None:
        self._end_broker(number, signal.SIGTERM)

    def start_broker(self, number: int) -> None:
        processes.resume(self.pid)

    def _end_broker(self, number: int, with_signal: signal.Signals) -> None:
        """The process that would start the broker again is stopped."""
        (pid,) = [pid for pid in processes.children(self.pid) if processes.name(pid) == f"moldau-{number}"]
        processes.pause(self.pid)
        os.kill(pid, with_signal)
        wait_until(lambda: processes.has_ended(pid), f"broker {number} has ended", seconds=_STOP_SECONDS, pause=0.001)

    def _options(self) -> list[str]:
        return [*super()._options(), "--brokers", str(self._brokers)]


class ApacheServer:
    """Apache Kafka in a JVM as started by its script; the process and the files are those of the tests' server."""

    def __init__(
        self,
        directory: Path,
        *,
        config: Mapping[str, str],
        data_dir: Path | None = None,
        listeners: Mapping[str, str] | None = None,
    ) -> None:
        self._kafka = ApacheKafka(
            {**APACHE_CONFIG, **COMMON_CONFIG, **config},
            data_dir=data_dir,
            listeners=listeners,
            parent=directory,
            jvm_options=APACHE_JVM_OPTIONS,
        )
        self._prepared = False

    @property
    def subject(self) -> Subject:
        return Subject.APACHE

    @property
    def bootstrap_servers(self) -> str:
        return self._kafka.bootstrap_servers

    def address_of(self, listener: str) -> str:
        return self._kafka.address_of(listener)

    @property
    def pid(self) -> int:
        return self._kafka.pid

    @property
    def data_dir(self) -> Path:
        return self._kafka.data_dir

    def start(self) -> None:
        if not self._prepared:
            self._kafka.prepare()
            self._prepared = True
        if self._kafka.alive:
            return
        self._kafka.kill()
        self._kafka.launch()
        try:
            processes.wait_for_answer(self.bootstrap_servers, self.pid, timeout_s=_START_SECONDS)
        except (ConnectionError, TimeoutError) as error:
            self._kafka.kill()
            raise RuntimeError(f"Apache Kafka did not start: {error}\n{self._kafka.log()[-4000:]}") from error

    def stop(self) -> None:
        if self._kafka.alive:
            processes.resume(self.pid)
        self._kafka.stop()

    def kill(self) -> None:
        self._kafka.kill()

    def close(self) -> None:
        self.stop()
        self._kafka.close()

    def cpu_seconds(self) -> float:
        return processes.cpu_seconds(self.pid)

    def resident_bytes(self) -> int:
        return processes.resident_bytes(self.pid)


class ApacheBrokers:
    """Several brokers of Apache Kafka, one of which is the controller, with the CPU time and memory of them all."""

    def __init__(self, brokers: int, directory: Path, *, config: Mapping[str, str]) -> None:
        self._ids = range(1, brokers + 1)
        self._cluster = ApacheCluster(
            brokers, {**APACHE_CONFIG, **COMMON_CONFIG, **config}, jvm_options=APACHE_JVM_OPTIONS, parent=directory
        )
        self._is_running = False

    @property
    def subject(self) -> Subject:
        return Subject.APACHE

    @property
    def bootstrap_servers(self) -> str:
        return self._cluster.broker(1).bootstrap_servers

    def address_of(self, listener: str) -> str:
        raise KeyError(listener)

    @property
    def pid(self) -> int:
        return self._cluster.broker(1).pid

    @property
    def data_dir(self) -> Path:
        return self._cluster.broker(1).data_dir

    def start(self) -> None:
        if not self._is_running:
            self._cluster.__enter__()
            self._is_running = True

    def stop(self) -> None:
        if self._is_running:
            self._is_running = False
            self._cluster.close()

    def kill(self) -> None:
        for number in self._ids:
            self._cluster.broker(number).kill()

    def close(self) -> None:
        self.stop()

    def kill_broker(self, number: int) -> None:
        self._cluster.broker(number).kill()

    def stop_broker(self, number: int) -> None:
        self._cluster.broker(number).stop()

    def start_broker(self, number: int) -> None:
        self._cluster.broker(number).launch()

    def cpu_seconds(self) -> float:
        return sum(processes.cpu_seconds(self._cluster.broker(number).pid) for number in self._ids)

    def resident_bytes(self) -> int:
        return sum(processes.resident_bytes(self._cluster.broker(number).pid) for number in self._ids)


class GuardedCeilingServer(CeilingServer):
    """Also ends when the harness ends while this server is stopped."""

    _guard: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        super().start()
        self._guard = self._guard or guard(self.pid)

    def stop(self) -> None:
        self._end_guard()
        super().stop()

    def kill(self) -> None:
        self._end_guard()
        super().kill()

    def _end_guard(self) -> None:
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
            self._guard = None


def _set(config: Mapping[str, str]) -> list[str]:
    return [word for name, value in config.items() for word in ("--set", f"{name}={value}")]


def _environment() -> dict[str, str]:
    """The environment of a user: compiled modules are cached, and no variable is mistaken for a setting."""
    return {
        name: value
        for name, value in os.environ.items()
        if name != "PYTHONDONTWRITEBYTECODE" and not name.startswith("KAFKA_")
    }


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-4000:]
