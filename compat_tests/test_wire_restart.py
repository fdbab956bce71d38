"""What a server still knows after a clean stop, and after ``kill -9``; and what its clients can see of it."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from moldau.protocol.records import build_batch, iter_records
from moldau.testing import topic_requests as w
from moldau.testing.servers import Server
from moldau.testing.topic_requests import Topic
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient


class Before(NamedTuple):
    """What was there before the server went away."""

    topic: Topic
    deleted: Topic
    cluster_id: str
    leader_epoch: int
    producer_id: int
    session_id: int


VALUES = [b"%d" % number for number in range(200)]


@pytest.fixture(scope="module", params=["stop", "kill"])
def before(request: pytest.FixtureRequest, own_server: Server) -> Before:
    """A topic of two hundred idempotent records in ten batches, on a server that has been away since."""
    how = request.param
    address = own_server.bootstrap_servers
    topic = w.create_topic(address, f"kept-{how}", 2, {"retention.ms": "123456789"})
    deleted = w.create_topic(address, f"deleted-{how}")
    with WireClient(address) as wire:
        producer_id = new_producer_id(wire)
        for start in range(0, 200, 20):
            assert w.produce(wire, topic.name, batch(producer_id, start)).base_offset == start
        wire.call(DeleteTopicsRequest(topics=[DeleteTopicState(name=deleted.name)], timeout_ms=5_000), 6)
        w.wait_for_no_topic(address, deleted.name)
        metadata = wire.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic.name)]), 12)
        session_id = wire.call(w.fetch_request(topic.name, {0: 0}, session_epoch=0), 12).session_id
        epoch = metadata.topics[0].partitions[0].leader_epoch
    if how == "stop":
        own_server.stop()
    else:
        own_server.kill()
    own_server.start()
    w.wait_for_topic(address, topic.name, 2)
    return Before(topic, deleted, metadata.cluster_id, epoch, producer_id, session_id)


@pytest.fixture
def wire(own_server: Server) -> Iterator[WireClient]:
    with WireClient(own_server.bootstrap_servers) as client:
        yield client


def batch(producer_id: int, start: int) -> bytes:
    """Twenty records of an idempotent producer, from this sequence number on."""
    return build_batch(
        w.records(*VALUES[start : start + 20]), producer_id=producer_id, producer_epoch=0, base_sequence=start
    )


def new_producer_id(wire: WireClient) -> int:
    """A producer id; until the broker has its first block of them, it says so."""

    def ask() -> list[int]:
        response = wire.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 4)
        return [response.producer_id] if response.error_code == 0 else []

    return wait_until(ask, "a producer id")[0]


def epoch_end(wire: WireClient, topic: str, epoch: int) -> tuple[int, int]:
    """OffsetForLeaderEpoch: the epoch that was meant, and where it ends."""
    partition = OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[partition])]
    )
    (answer,) = wire.call(request, 4).topics[0].partitions
    assert answer.error_code == 0
    return answer.leader_epoch, answer.end_offset


def test_records_are_there(wire: WireClient, before: Before) -> None:
    found = w.batches_of(w.fetch(wire, before.topic.name, 0))
    assert [record.value for each in found for record in iter_records(each)][:200] == VALUES
    assert all(each.has_valid_crc() for each in found)


def test_topics_keep_their_ids_and_configs(wire: WireClient, before: Before) -> None:
    response = wire.call(MetadataRequest(topics=None), 12)
    assert response.cluster_id == before.cluster_id
    found = {each.name: each for each in response.topics}
    assert found[before.topic.name].topic_id == before.topic.topic_id
    assert len(found[before.topic.name].partitions) == 2
    assert before.deleted.name not in found
    resource = DescribeConfigsResource(
        resource_type=2, resource_name=before.topic.name, configuration_keys=["retention.ms"]
    )
    (described,) = wire.call(DescribeConfigsRequest(resources=[resource]), 4).results
    assert [(each.name, each.value) for each in described.configs] == [("retention.ms", "123456789")]


def test_the_leader_epoch_has_risen(wire: WireClient, before: Before) -> None:
    """So that a client can detect that the log may have been truncated (KIP-320)."""
    metadata = wire.call(MetadataRequest(topics=[MetadataRequestTopic(name=before.topic.name)]), 12)
    now = metadata.topics[0].partitions[0].leader_epoch
    assert now > before.leader_epoch
    request = w.fetch_request(before.topic.name, {0: 0})
    request.topics[0].partitions[0].current_leader_epoch = before.leader_epoch
    assert wire.call(request, 12).responses[0].partitions[0].error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_the_old_epoch_ends_where_the_records_ended(wire: WireClient, before: Before) -> None:
    epoch, end_offset = epoch_end(wire, before.topic.name, before.leader_epoch)
    assert epoch == before.leader_epoch
    assert end_offset == 200


def test_fetch_sessions_are_gone(wire: WireClient, before: Before) -> None:
    request = w.fetch_request("", {}, session_id=before.session_id, session_epoch=1)
    assert wire.call(request, 12).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_producer_state_is_there(wire: WireClient, before: Before) -> None:
    """A producer that saw no answer sends again, and must not be stored twice."""
    for start in range(100, 200, 20):
        answer = w.produce(wire, before.topic.name, batch(before.producer_id, start))
        # The offset of the newest is always known, of older ones as long as they are remembered.
        assert (ErrorCode(answer.error_code).name, answer.base_offset) in (
            ("NONE", start),
            ("OUT_OF_ORDER_SEQUENCE_NUMBER", -1),
            ("DUPLICATE_SEQUENCE_NUMBER", -1),
        )
    assert w.produce(wire, before.topic.name, batch(before.producer_id, 180)).base_offset == 180
    assert w.fetch(wire, before.topic.name, 0).high_watermark == 200


def test_producer_ids_are_not_given_twice(wire: WireClient, before: Before) -> None:
    assert new_producer_id(wire) > before.producer_id


def test_it_goes_on(wire: WireClient, before: Before, topic_name: Callable[[], str], own_server: Server) -> None:
    answer = w.produce(wire, before.topic.name, build_batch(w.records(b"after")), partition=1)
    assert answer.error_code == 0
    w.create_topic(own_server.bootstrap_servers, topic_name(), 3)
    w.create_topic(own_server.bootstrap_servers, f"{before.deleted.name}-again")
