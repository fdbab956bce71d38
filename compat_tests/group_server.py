"""The server that the tests of groups share: short sessions are allowed, groups are small, and there are no delays.

The names and their meanings are Kafka's, so both servers have the same settings. A rebalance completes as soon as the
members have joined. The session of a member may expire after a tenth of a second. Timeouts of consumer groups
(KIP-848), which the server sets, are as short.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from moldau.testing.group_requests import wait_for_coordinator
from moldau.testing.servers import Server

MAX_SIZE = 6

CONFIG = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.max.session.timeout.ms": "60000",
    "group.max.size": str(MAX_SIZE),
    "group.consumer.max.size": str(MAX_SIZE),
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": "30000",
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.assignment.interval.ms": "0",
    "offset.metadata.max.bytes": "1000",
}


@pytest.fixture(scope="session")
def group_server(new_server: Callable[..., AbstractContextManager[Server]]) -> Iterator[Server]:
    """One for the whole session; no test stops it."""
    with new_server(CONFIG) as started:
        wait_for_coordinator(started.bootstrap_servers)
        yield started


@pytest.fixture(scope="module")
def restartable_group_server(new_server: Callable[..., AbstractContextManager[Server]]) -> Iterator[Server]:
    """A server for one module. A test may kill it and must leave it running."""
    with new_server(CONFIG) as started:
        wait_for_coordinator(started.bootstrap_servers)
        yield started


@pytest.fixture
def group_id(topic_name: Callable[[], str]) -> str:
    """The id of a group that no other test uses."""
    return topic_name()


@pytest.fixture(scope="session")
def group_servers(group_server: Server) -> str:
    """The address of the session's server for groups."""
    return group_server.bootstrap_servers
