"""Clients for the compatibility tests, and their topics.

The servers are those of `moldau.testing.suite`: one for the whole session, where topics have unique
names, and another one for each module that stops or kills its server.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from itertools import count
from uuid import uuid4

import pytest

from moldau.compat_tests.group_server import (  # noqa: F401 - fixtures
    group_id,
    group_server,
    group_servers,
    restartable_group_server,
)
from moldau.compat_tests.transaction_server import (  # noqa: F401 - fixtures
    markers_after_death,
    name,
    producer,
    restartable_transaction_server,
    transaction_server,
    transaction_servers,
    transaction_servers_1,
)
from moldau.testing.client import Client, Feature
from moldau.testing.clients import open_client
from moldau.testing.clients.program import close_programs
from moldau.testing.requirements import require_kafka_jars

# Clients log what the tests provoke, thousands of lines of it.
for _client in ("kafka", "aiokafka"):
    logging.getLogger(_client).setLevel(logging.CRITICAL)

OpenClient = Callable[[str], Client]
MakeTopic = Callable[..., str]


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


@pytest.fixture(scope="session")
def both_servers(request: pytest.FixtureRequest) -> None:
    """For tests that start both servers themselves, whichever is under test."""
    if request.config.getoption("apache") or request.config.getoption("bootstrap_server"):
        pytest.skip("starts both servers itself, whichever is under test")
    require_kafka_jars()


_numbers = count(1)
_session = uuid4().hex[:8]


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> Callable[[], str]:
    """``topic_name()``: a name that no other test has, and that contains the name of the test."""

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
