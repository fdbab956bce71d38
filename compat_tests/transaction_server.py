"""The server that the tests of transactions share: periodic tasks run often, and timeouts are short.

The names and their meanings are Kafka's, so both servers have the same settings. Apache Kafka looks for expired
transactions at intervals, which are short here. Tests of groups have a similar server (`group_server`), which is
separate: some tests of offsets in transactions have members that expire soon.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from moldau.compat_tests.transaction_wire import SAFE_DOWNGRADE, Producer, update_version, wait_for_coordinators
from moldau.testing.servers import Server
from moldau.testing.wire import WireClient

MAX_TIMEOUT_MS = 60_000

CONFIG = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "200",
    "offset.metadata.max.bytes": "1000",
    "transaction.max.timeout.ms": str(MAX_TIMEOUT_MS),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
    # With one partition, the partition of every transactional id is known.
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
}


@pytest.fixture(scope="session")
def transaction_server(new_server: Callable[..., AbstractContextManager[Server]]) -> Iterator[Server]:
    """One for the whole session; no test stops it."""
    with new_server(CONFIG) as started:
        wait_for_coordinators(started.bootstrap_servers)
        yield started


@pytest.fixture(scope="module")
def restartable_transaction_server(new_server: Callable[..., AbstractContextManager[Server]]) -> Iterator[Server]:
    """A server for one module. A test may kill it and change its features, and must leave it running."""
    with new_server(CONFIG) as started:
        wait_for_coordinators(started.bootstrap_servers)
        yield started


@pytest.fixture(scope="session")
def transaction_servers_1(new_server: Callable[..., AbstractContextManager[Server]]) -> Iterator[str]:
    """The address of one with ``transaction.version=1``, where clients keep their epoch (KIP-890)."""
    with new_server(CONFIG) as started:
        wait_for_coordinators(started.bootstrap_servers)
        with WireClient(started.bootstrap_servers) as wire:
            assert update_version(wire, 1, SAFE_DOWNGRADE) == "NONE"
        yield started.bootstrap_servers


@pytest.fixture
def markers_after_death(request: pytest.FixtureRequest) -> None:
    """For tests of markers that are written after a restart, which Apache Kafka 4.3.1 does not always do:
    "Couldn't find leader endpoint for partitions", it logs, "these partitions are likely deleted already"."""
    if request.config.getoption("apache"):
        reason = (
            "while it starts, Apache Kafka takes partitions without a leader for deleted ones, and leaves them open"
        )
        request.applymarker(pytest.mark.xfail(reason=reason, strict=False))


@pytest.fixture
def name(topic_name: Callable[[], str]) -> str:
    """A transactional id, or a group, that no other test uses."""
    return topic_name()


@pytest.fixture
def producer(wire: WireClient, name: str) -> Producer:
    """A producer with a producer id, and without a transaction, on the module's own ``wire``."""
    return Producer(wire, name).begin()


@pytest.fixture(scope="session")
def transaction_servers(transaction_server: Server) -> str:
    """The address of the session's server for transactions."""
    return transaction_server.bootstrap_servers
