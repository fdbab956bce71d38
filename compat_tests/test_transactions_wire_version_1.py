"""Feature transaction.version (KIP-890, KIP-1022): its level in ApiVersions, and transactions while it is 1 or 0.

Below 2, clients behave differently: they add every partition before they write to it, and keep their epoch. The server
still supports every version of every request. The feature affects only its own actions and its log.
"""

from collections.abc import Iterator

import pytest

from moldau.compat_tests.transaction_wire import (
    SAFE_DOWNGRADE,
    UPGRADE,
    Producer,
    consume,
    fetch,
    finalized_version,
    update_version,
)
from moldau.conformance import catalog
from moldau.conformance.outcome import Verdict
from moldau.conformance.runner import Runner
from moldau.conformance.target import Target
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.records import iter_records
from moldau.testing import topic_requests as w
from moldau.testing.servers import Server
from moldau.testing.topic_requests import Topic
from moldau.testing.wire import WireClient

LOG = "__transaction_state"


@pytest.fixture
def wire(restartable_transaction_server: Server) -> Iterator[WireClient]:
    with WireClient(restartable_transaction_server.bootstrap_servers) as client:
        yield client


@pytest.fixture(params=[0, 1])
def level(request: pytest.FixtureRequest, wire: WireClient) -> Iterator[int]:
    """The feature at a lower level while the test runs."""
    assert update_version(wire, request.param, SAFE_DOWNGRADE) == "NONE"
    yield request.param
    assert update_version(wire, 2, UPGRADE) == "NONE"


@pytest.fixture
def topic(restartable_transaction_server: Server, level: int, request: pytest.FixtureRequest) -> Topic:
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    return w.create_topic(restartable_transaction_server.bootstrap_servers, f"{name}-{level}", 2)


@pytest.fixture
def producer(wire: WireClient, topic: Topic) -> Producer:
    return Producer(wire, topic.name).begin()


def log_versions(wire: WireClient, transactional_id: str) -> list[int]:
    """The versions of the coordinator's records for an id."""
    metadata = wire.call(MetadataRequest(topics=[MetadataRequestTopic(name=LOG)]), 12)
    log = Topic(LOG, metadata.topics[0].topic_id)
    found: list[int] = []
    offset = 0
    while batches := w.batches_of(fetch(wire, log, offset, committed=False)):
        found += [
            int.from_bytes(record.value[:2], "big")
            for batch in batches
            for record in iter_records(batch)
            if record.key is not None and record.value is not None and record.key.endswith(transactional_id.encode())
        ]
        offset = batches[-1].next_offset
    return found


def test_the_feature_can_be_upgraded_and_downgraded(wire: WireClient) -> None:
    assert finalized_version(wire) == 2
    assert update_version(wire, 3, UPGRADE) == "INVALID_UPDATE_VERSION"
    assert update_version(wire, 1, UPGRADE) == "INVALID_UPDATE_VERSION"
    assert update_version(wire, 1, SAFE_DOWNGRADE) == "NONE"
    assert update_version(wire, 0, SAFE_DOWNGRADE) == "NONE"
    assert update_version(wire, 2, SAFE_DOWNGRADE) == "INVALID_UPDATE_VERSION"
    assert update_version(wire, 2, UPGRADE) == "NONE"


def test_the_log_is_by_the_feature(wire: WireClient, producer: Producer, topic: Topic, level: int) -> None:
    """Version 0 lacks the fields of later versions."""
    producer.add(topic)
    producer.commit(4)
    versions = log_versions(wire, producer.transactional_id)
    assert versions == [level] * 4  # Empty, Ongoing, PrepareCommit, CompleteCommit


@pytest.mark.full
def test_the_conformance_cases_apply(wire: WireClient, restartable_transaction_server: Server, level: int) -> None:
    """Transactions of the protocol before the feature: all other tests of transactions at this level."""
    target = Target(restartable_transaction_server.bootstrap_servers, patience=4.0)
    target.describe()
    assert target.features.get("transaction.version", 0) == level
    results = Runner(target).run(catalog.select(areas=["transactions"]))
    wrong = {each.case.id: each.reason for each in results if each.verdict in (Verdict.FAILED, Verdict.INCONCLUSIVE)}
    assert wrong == {}
    assert "transactions.timeout.resume-fenced" in {each.case.id for each in results if each.verdict is Verdict.PASSED}


@pytest.mark.parametrize("level", [1], indirect=True)
def test_clients_that_bump_their_epoch_are_served(producer: Producer, topic: Topic) -> None:
    """The level may be lowered while they run. (At 0, Apache Kafka no longer adds a partition for them.)"""
    producer.write(topic, b"a")
    producer.commit()
    assert producer.epoch == 1
    producer.write(topic, b"b")
    producer.abort()
    assert producer.epoch == 2
    assert consume(producer.wire, topic) == [b"a"]
