"""Servers and clients for the compatibility tests.

The server under test is that of the repository's ``conftest.py`` (Moldau, Apache Kafka with ``--apache``, or the one
that ``--bootstrap-server`` names), started with automatic topic creation off, because a client's answer to an unknown
topic is one of the things that are compared. A server named by ``--bootstrap-server`` must have it off too.

One server serves the whole session: topics have names of their own. Only the tests that stop or kill a server start
another one, which serves one module.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from itertools import count
from uuid import uuid4

import pytest

from moldau.compat_tests.client import Client, Feature
from moldau.compat_tests.clients import open_client
from moldau.compat_tests.clients.program import close_programs
from moldau.compat_tests.servers import Server, start_server

# Clients log what the tests provoke, thousands of lines of it.
for _client in ("kafka", "aiokafka"):
    logging.getLogger(_client).setLevel(logging.CRITICAL)

CONFIG = {"auto.create.topics.enable": "false"}

OpenClient = Callable[[str], Client]
MakeTopic = Callable[..., str]


@pytest.fixture(scope="session")
def new_server(request: pytest.FixtureRequest) -> Callable[..., AbstractContextManager[Server]]:
    """``new_server(config)``: another server of the kind under test, with settings of its own."""
    if request.config.getoption("bootstrap_server"):
        pytest.skip("starts a server of its own, and the one of --bootstrap-server is somebody else's")
    apache = bool(request.config.getoption("apache"))

    def start(config: Mapping[str, str] | None = None) -> AbstractContextManager[Server]:
        return start_server(apache=apache, config={**CONFIG, **(config or {})})

    return start


@pytest.fixture(scope="session")
def server(new_server: Callable[..., AbstractContextManager[Server]]) -> Iterator[Server]:
    """The server of the session."""
    with new_server() as started:
        yield started


@pytest.fixture(scope="module")
def own_server(new_server: Callable[..., AbstractContextManager[Server]]) -> Iterator[Server]:
    """A server that this module may stop and kill; it must leave it running."""
    with new_server() as started:
        yield started


@pytest.fixture(scope="session")
def client_of(bootstrap_servers: str) -> Iterator[OpenClient]:
    """``client_of(name)``: a client of the session's server, opened once."""
    opened: dict[str, Client] = {}
    with ExitStack() as resources:

        def get(name: str) -> Client:
            if name not in opened:
                opened[name] = resources.enter_context(open_client(name, bootstrap_servers))
            return opened[name]

        yield get


@pytest.fixture(scope="session", autouse=True)
def _programs() -> Iterator[None]:
    yield
    close_programs()


_numbers = count(1)
_session = uuid4().hex[:8]


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> Callable[[], str]:
    """``topic_name()``: a name that no other test has, and that tells which test it belongs to."""

    def make() -> str:
        test = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
        return f"{test[:60]}-{next(_numbers)}-{_session}"

    return make


@pytest.fixture
def make_topic(client_of: OpenClient, topic_name: Callable[[], str]) -> MakeTopic:
    """``make_topic(partitions, configs, client=...) -> name``: by the client if it can, else by kafka-python."""

    def make(partitions: int = 1, configs: Mapping[str, str] | None = None, client: Client | None = None) -> str:
        if client is None or Feature.TOPIC_ADMIN in client.without:
            client = client_of("kafka-python")
        topic = topic_name()
        client.create_topic(topic, partitions, configs)
        return topic

    return make
