"""The console in this process, as a client of the server under test: Moldau or, with ``--apache``, Apache Kafka."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import pytest

from moldau.cli.main import main
from moldau.protocol.messages.produce import ProduceRequest
from moldau.protocol.records import Record, build_batch
from moldau.testing import Broker
from moldau.testing.apache_kafka import ApacheKafka
from moldau.testing.builders import produce_request
from moldau.testing.routed_wire import RoutedWire
from moldau.testing.schema_registry import SchemaRegistry
from moldau.testing.topic_requests import create_topic, wait_for_topic

_ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
_WITH_ACLS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@dataclass
class Answer:
    """A response of the console."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)


class Console:
    """A console that runs in a thread."""

    def __init__(self, bootstrap_servers: str, **options: Any) -> None:
        """Skips the test if the packages of the console are not installed."""
        for package in ("cbor2", "jinja2", "msgpack", "starlette", "uvicorn"):
            pytest.importorskip(package, reason="needs pip install 'moldau[console]'")
        import uvicorn

        from moldau.console.app import create_app
        from moldau.console.brokers import Brokers

        listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = listening.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        app = create_app(Brokers(bootstrap_servers), **options)
        config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="on")
        config.timeout_graceful_shutdown = 1
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listening]}, name="console")
        self._thread.start()

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, dict(headers or {}))
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})

    def post(self, path: str, fields: Mapping[str, str]) -> Answer:
        """Submit a form, as a page of the console does."""
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": self.address}
        return self.request("POST", path, urlencode(fields).encode(), headers)

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join()


@pytest.fixture(scope="session")
def console(bootstrap_servers: str) -> Iterator[Console]:
    with_server = Console(bootstrap_servers)
    yield with_server
    with_server.close()


@pytest.fixture(scope="session")
def registry(bootstrap_servers: str) -> Iterator[str]:
    """The address of a schema registry on the server under test."""
    for package in ("fastavro", "grpc_tools", "jsonschema", "starlette", "uvicorn"):
        pytest.importorskip(package, reason="needs pip install 'moldau[registry]'")
    with SchemaRegistry(bootstrap_servers) as started:
        yield started.url


@pytest.fixture(scope="session")
def decoding(bootstrap_servers: str, registry: str) -> Iterator[Console]:
    """A console with the registry."""
    from moldau.console.schema_registry import SchemaRegistry as Decoder

    started = Console(bootstrap_servers, registry=Decoder(registry))
    yield started
    started.close()


@pytest.fixture(scope="session")
def controlled() -> Iterator[tuple[str, int]]:
    """The address of a server, and the port of its control, which its log names."""
    command = [sys.executable, "-m", "moldau", "serve", "--ephemeral", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        [*command, "--control", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=_ENVIRONMENT,
    ) as server:
        try:
            assert server.stdout is not None
            assert server.stderr is not None
            address = server.stdout.readline().removeprefix("moldau is ready: ").split()[0]
            line = next(line for line in server.stderr if "Tests control this server" in line)
            create_topic(address, "events")
            yield address, int(line.rpartition(":")[2])
        finally:
            server.kill()
            server.communicate()


@pytest.fixture(scope="module")
def secured_console(request: pytest.FixtureRequest) -> Iterator[Console]:
    """A console of a server with an authorizer, as whose super user it connects. The ACLs of a module stay in it."""
    server = ApacheKafka(_WITH_ACLS) if request.config.getoption("apache") else Broker(config=_WITH_ACLS)
    with server as running:
        console = Console(running.bootstrap_servers)
        yield console
        console.close()


@pytest.fixture
def new_console(bootstrap_servers: str) -> Iterator[Callable[..., Console]]:
    """``new_console(read_only=True)``: a console with these options."""
    started: list[Console] = []

    def start(address: str = bootstrap_servers, **options: Any) -> Console:
        started.append(Console(address, **options))
        return started[-1]

    yield start
    for each in started:
        each.close()


_numbers = count(1)
_session = uuid4().hex[:8]


@pytest.fixture
def new_topic(bootstrap_servers: str) -> Callable[..., str]:
    """``new_topic(partitions, configs)``: create a topic for this test, and return its name."""

    def make(partitions: int = 1, **options: Any) -> str:
        name = f"console-{next(_numbers)}-{_session}"
        arguments = [
            part for key, value in options.items() for part in ("--config", f"{key.replace('_', '.')}={value}")
        ]
        with pytest.raises(SystemExit) as exited:
            main(["topics", "create", name, "-p", str(partitions), "-b", bootstrap_servers, *arguments])
        assert exited.value.code == 0
        wait_for_topic(bootstrap_servers, name, partitions)
        return name

    return make


@pytest.fixture
def send(bootstrap_servers: str) -> Callable[..., int]:
    """``send(topic, records, partition=0, **options of build_batch)``: append a batch, and return its first offset."""

    def append(topic: str, records: Sequence[Record], *, partition: int = 0, **options: Any) -> int:
        request: ProduceRequest = produce_request(topic, build_batch(records, **options), partition=partition, acks=-1)
        with RoutedWire(bootstrap_servers) as wire:
            answer = wire.call(request, 9).responses[0].partition_responses[0]
        assert answer.error_code == 0, answer
        return int(answer.base_offset)

    return append


@pytest.fixture
def unused_port() -> int:
    """A port without a listener."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
