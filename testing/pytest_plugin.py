"""The pytest plugin of ``pip install moldau``: the fixture ``kafka``, an empty broker for each test.

One broker process serves the whole session. The first test that uses it starts it, and it is emptied
(``Broker.reset``) before each test that uses it. A test costs milliseconds and never sees data of another test. A test
may stop, kill or restart the broker; it runs again for the next test. With pytest-xdist each worker has its own.

    def test_orders(kafka):
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})

Tests wait for consumers without sleeps: the broker reports when a group has its members, and when the group has read
and committed all records. A test expires a member immediately, instead of waiting for its session timeout.

    def test_billing(kafka):
        workers = [start_worker(kafka.bootstrap_servers, group="billing") for _ in range(2)]
        kafka.await_group_stable("billing", members=2)
        place_orders(kafka.bootstrap_servers, 100)
        kafka.expire_member("billing", "worker-1")
        kafka.await_lag_zero("billing", "orders")
        assert billed() == 100

A test can move the server's clock and apply retention:

    def test_a_consumer_that_was_away_too_long(kafka):
        place_orders(kafka.bootstrap_servers, 100)
        kafka.advance(8 * 24 * 3600)
        kafka.delete_old_segments()
        place_orders(kafka.bootstrap_servers, 1)
        assert read_orders(group="away") == 1

It can crash the broker, which restarts with recovery:

    def test_orders_survive_a_crash(kafka):
        producer = start_to_place_orders(kafka.bootstrap_servers, 100)
        kafka.crash()
        producer.flush()
        assert read_orders() == 100

Settings for the session's broker, in ``conftest.py``:

    @pytest.fixture(scope="session")
    def kafka_config():
        return {"num.partitions": 6, "auto.create.topics.enable": False}

TLS, users and ACLs of this broker (`Broker.client_config` has the settings of clients); topics are emptied, users and
ACLs stay:

    @pytest.fixture(scope="session")
    def kafka_security():
        return {"tls": True, "users": {"alice": "secret"}, "acls": ["alice all topic *"]}

    def test_orders_of_alice(kafka):
        producer = Producer(kafka.client_config("alice"))

The fixture ``kafka_cluster`` is a cluster of three brokers, which a test may kill, pause and cut off from each other
(`moldau.testing.cluster`). For the next test all of them run again, without topics:

    def test_orders_survive_the_loss_of_a_broker(kafka_cluster):
        kafka_cluster.create_topic("orders", [1, 2, 3])
        kafka_cluster.kill(2)
        place_orders(kafka_cluster.bootstrap_servers, partition=0)

The fixture ``schema_registry`` is the address of a schema registry without schemas, on the broker of ``kafka``. It
needs ``pip install 'moldau[registry]'``:

    def test_orders_with_a_schema(kafka, schema_registry):
        registry = SchemaRegistryClient({"url": schema_registry})

A test that needs different settings starts its own broker: ``with moldau.testing.Broker(config=...)``.

The report of a failed test contains the server's log, under "moldau broker log".
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from .broker import Broker, ConfigValue

if TYPE_CHECKING:
    from .cluster import Cluster


@pytest.fixture(scope="session")
def kafka_config() -> Mapping[str, ConfigValue]:
    """Broker settings for the session's broker; override it in conftest.py."""
    return {}


@pytest.fixture(scope="session")
def kafka_security() -> Mapping[str, Any]:
    """The arguments ``tls``, ``users`` and ``acls`` of the session's `Broker`; override it in conftest.py."""
    return {}


@pytest.fixture(scope="session")
def kafka_session(kafka_config: Mapping[str, ConfigValue], kafka_security: Mapping[str, Any]) -> Iterator[Broker]:
    """The session's broker, never reset; for fixtures with a wider scope than one test."""
    with Broker(config=kafka_config, **kafka_security) as broker:
        yield broker


@pytest.fixture
def kafka(kafka_session: Broker) -> Broker:
    """A running broker without topics, for one test. ``kafka.bootstrap_servers`` is the address for clients."""
    kafka_session.start()
    kafka_session.reset()
    return kafka_session


@pytest.fixture
def schema_registry(kafka: Broker) -> Iterator[str]:
    """The address of a schema registry without schemas, on the broker of ``kafka``, for one test."""
    from .schema_registry import SchemaRegistry  # most test runs do not need it

    with SchemaRegistry(kafka.internal_address) as registry:
        yield registry.url


@pytest.fixture(scope="session")
def kafka_cluster_session(kafka_config: Mapping[str, ConfigValue]) -> Iterator[Cluster]:
    """The session's cluster, never reset; for fixtures with a wider scope than one test."""
    from .cluster import Cluster  # most test runs do not need it

    with Cluster(brokers=3, config=kafka_config) as cluster:
        yield cluster


@pytest.fixture
def kafka_cluster(kafka_cluster_session: Cluster) -> Cluster:
    """A cluster of three running brokers without topics, for one test."""
    kafka_cluster_session.reset()
    return kafka_cluster_session


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the broker's log of a failed test to its report."""
    report = yield
    logs = {title: log for server in _SERVERS for title, log in _logs(getattr(item, "funcargs", {}).get(server))}
    if report.when == "setup":
        item.stash[_LOG_STARTS] = {title: len(log) for title, log in logs.items()}
    elif report.failed:
        starts = item.stash.get(_LOG_STARTS, {})
        for title, log in logs.items():
            report.sections.append((title, log[starts.get(title, 0) :] or "(nothing)"))
    return report


def _logs(server: Broker | Cluster | None) -> list[tuple[str, str]]:
    """The logs of a fixture's servers, with their titles."""
    if server is None or isinstance(server, Broker):
        return [] if server is None else [("moldau broker log", server.log())]
    if not hasattr(server, "broker_ids"):  # another fixture of this name
        return []
    return [(f"moldau log of broker {each}", server.broker(each).log()) for each in server.broker_ids]


_SERVERS = ("kafka", "kafka_cluster")
_LOG_STARTS = pytest.StashKey[dict[str, int]]()
