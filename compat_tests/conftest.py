"""Clients for the compatibility tests, and their topics.

The servers are those of `moldau.testing.suite`: one for the whole session, where topics have unique
names, and another one for each module that stops or kills its server.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from itertools import count
from pathlib import Path
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

# Why a module does not run with --brokers.
_ONE_CONNECTION = "its requests go to one broker, which leads all partitions and coordinates all groups"
_OWN_SERVERS = "it starts its own servers, whichever is under test"
_COMPARISON = "it compares responses with those of one broker of Apache Kafka"
_CONFORMANCE = "the conformance suite has its own test of clusters"
ONE_BROKER = {
    "test_cluster_kills": _OWN_SERVERS,
    "test_conformance": _CONFORMANCE,
    "test_conformance_client": _OWN_SERVERS,
    "test_conformance_clusters": _OWN_SERVERS,
    "test_conformance_crash": _CONFORMANCE,
    "test_conformance_reports": _OWN_SERVERS,
    "test_conformance_secured": _OWN_SERVERS,
    "test_conformance_security": _OWN_SERVERS,
    "test_directories": _OWN_SERVERS,
    "test_directories_exchange": _OWN_SERVERS,
    "test_directories_kinds": _OWN_SERVERS,
    "test_directories_security": _OWN_SERVERS,
    "test_groups_admin": _ONE_CONNECTION,
    "test_groups_classic": _ONE_CONNECTION,
    "test_groups_command": _COMPARISON,
    "test_groups_consumer": _ONE_CONNECTION,
    "test_groups_migration": _ONE_CONNECTION,
    "test_groups_offsets": _ONE_CONNECTION,
    "test_kill_rounds": _OWN_SERVERS,
    "test_log_dirs": "it sets the log directories of one broker",
    "test_log_verify": _OWN_SERVERS,
    "test_replication_throttles": _OWN_SERVERS,
    "test_retention": _ONE_CONNECTION,
    "test_transactions_directories": _OWN_SERVERS,
    "test_transactions_same_answers": _COMPARISON,
    "test_transactions_wire": _ONE_CONNECTION,
    "test_transactions_wire_expiry": _ONE_CONNECTION,
    "test_transactions_wire_restart": _ONE_CONNECTION,
    "test_transactions_wire_version_1": _ONE_CONNECTION,
    "test_wire_bad_bytes": _ONE_CONNECTION,
    "test_wire_configs": _ONE_CONNECTION,
    "test_wire_features": _ONE_CONNECTION,
    "test_wire_metadata": _ONE_CONNECTION,
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("brokers") > 1:
        for item in items:
            reason = ONE_BROKER.get(item.path.stem) if item.path.parent == Path(__file__).parent else None
            if reason is not None:
                item.add_marker(pytest.mark.skip(f"one broker: {reason}"))


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
