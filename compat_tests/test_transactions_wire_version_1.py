"""Feature transaction.version (KIP-890, KIP-1022): what ApiVersions says of it, and transactions while it is 1 or 0.

It is the clients that do otherwise below 2: they add every partition before they write to it, and keep their epoch. The
server still supports every version of every request; the feature affects only its own actions, and its log.
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
    producers,
    read,
    update_version,
)
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
    """The versions of the records that the coordinator has written of an id."""
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


def test_the_feature_goes_up_and_down(wire: WireClient) -> None:
    assert finalized_version(wire) == 2
    assert update_version(wire, 3, UPGRADE) == "INVALID_UPDATE_VERSION"
    assert update_version(wire, 1, UPGRADE) == "INVALID_UPDATE_VERSION"
    assert update_version(wire, 1, SAFE_DOWNGRADE) == "NONE"
    assert update_version(wire, 0, SAFE_DOWNGRADE) == "NONE"
    assert update_version(wire, 2, SAFE_DOWNGRADE) == "INVALID_UPDATE_VERSION"
    assert update_version(wire, 2, UPGRADE) == "NONE"


def test_the_log_is_by_the_feature(wire: WireClient, producer: Producer, topic: Topic, level: int) -> None:
    """Version 0 has no place for what came later."""
    producer.add(topic)
    producer.commit(4)
    versions = log_versions(wire, producer.transactional_id)
    assert versions == [level] * 4  # Empty, Ongoing, PrepareCommit, CompleteCommit


def test_transactions_keep_their_epoch(producer: Producer, topic: Topic) -> None:
    wire = producer.wire
    for number in range(3):
        assert producer.add(topic, 0, 1) == {0: "NONE", 1: "NONE"}
        assert producer.produce(topic, b"%d" % number, version=11) == "NONE"
        if number == 1:
            producer.abort(4)
        else:
            producer.commit(4)
    assert consume(wire, topic) == [b"0", b"2"]
    assert producers(wire, topic)[producer.producer_id].producer_epoch == producer.epoch == 0
    assert [read(wire, topic, partition=each).high_watermark for each in (0, 1)] == [6, 3]
    assert producer.produce(topic, b"-", version=11) == "TRANSACTION_ABORTABLE"
    assert producer.produce(topic, b"-", version=10) == "INVALID_TXN_STATE"


def test_offsets_keep_their_epoch(producer: Producer, topic: Topic) -> None:
    assert producer.add_offsets("group") == "NONE"
    assert producer.commit_offsets("group", topic, {0: 4}, 4) == {0: "NONE"}
    producer.commit(4)
    assert producer.commit_offsets("group", topic, {0: 5}, 4) == {0: "TRANSACTION_ABORTABLE"}
    assert producer.commit_offsets("group", topic, {0: 5}, 3) == {0: "INVALID_TXN_STATE"}


@pytest.mark.parametrize("level", [1], indirect=True)
def test_clients_that_bump_their_epoch_are_served(producer: Producer, topic: Topic) -> None:
    """The level may have come down while they run. (At 0 Apache Kafka cannot add a partition for them any more.)"""
    producer.write(topic, b"a")
    producer.commit()
    assert producer.epoch == 1
    producer.write(topic, b"b")
    producer.abort()
    assert producer.epoch == 2
    assert consume(producer.wire, topic) == [b"a"]


def test_timeouts(wire: WireClient, topic: Topic) -> None:
    producer = Producer(wire, f"{topic.name}-late", timeout_ms=1_000).begin()
    producer.add(topic)
    assert producer.produce(topic, b"lost", version=11) == "NONE"
    found = producer.wait_for_state("CompleteAbort")
    assert (found.producer_id, found.producer_epoch) == (producer.producer_id, 1)
    assert producers(wire, topic)[producer.producer_id].producer_epoch == 1
    assert producer.produce(topic, b"late", version=11) == "INVALID_PRODUCER_EPOCH"
    assert producer.end(4, committed=False) == "PRODUCER_FENCED"
    assert producer.init(resume=True) == "PRODUCER_FENCED"
    assert consume(wire, topic) == []
