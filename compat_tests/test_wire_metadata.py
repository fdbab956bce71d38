"""Metadata and its relatives: which topics there are, under which names and ids, and topics that a question creates."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.describe_cluster import DescribeClusterRequest
from moldau.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.uuid import ZERO_UUID
from moldau.testing import topic_requests as w
from moldau.testing.servers import Server
from moldau.testing.topic_requests import Topic
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient


@pytest.fixture
def wire(bootstrap_servers: str) -> Iterator[WireClient]:
    with WireClient(bootstrap_servers) as client:
        yield client


@pytest.fixture
def topic(bootstrap_servers: str, topic_name: Callable[[], str]) -> Topic:
    return w.create_topic(bootstrap_servers, topic_name(), 3)


def by_name(*names: str) -> list[MetadataRequestTopic]:
    """Topics as a request names them."""
    return [MetadataRequestTopic(name=name) for name in names]


@pytest.mark.parametrize("version", range(14))
def test_metadata_of_a_topic(wire: WireClient, topic: Topic, bootstrap_servers: str, version: int) -> None:
    response = wire.call(MetadataRequest(topics=by_name(topic.name)), version)
    (broker,) = response.brokers
    assert f"{broker.host}:{broker.port}" == bootstrap_servers
    (found,) = response.topics
    assert (found.error_code, found.name, found.is_internal) == (0, topic.name, False)
    assert found.topic_id == (topic.topic_id if version >= 10 else ZERO_UUID)
    partitions = sorted(found.partitions, key=lambda each: int(each.partition_index))
    assert [each.partition_index for each in partitions] == [0, 1, 2]
    for each in partitions:
        assert (each.error_code, each.leader_id) == (0, broker.node_id)
        assert (each.replica_nodes, each.isr_nodes, each.offline_replicas) == ([broker.node_id], [broker.node_id], [])
        assert each.leader_epoch == (0 if version >= 7 else -1)
    if version >= 1:
        assert response.controller_id == broker.node_id
    if version >= 2:
        assert len(response.cluster_id) == 22


@pytest.mark.parametrize("version", range(14))
def test_all_topics_and_none(wire: WireClient, topic: Topic, version: int) -> None:
    """In version 0 an empty list means all; since then null does."""
    everything = wire.call(MetadataRequest(topics=[] if version == 0 else None), version)
    assert topic.name in {each.name for each in everything.topics}
    if version > 0:
        assert wire.call(MetadataRequest(topics=[]), version).topics == []


@pytest.mark.parametrize("version", [0, 1, 4, 8, 9, 12, 13])
def test_unknown_and_invalid_names(wire: WireClient, version: int) -> None:
    request = MetadataRequest(topics=by_name("no-such-topic", "not a name!", ""), allow_auto_topic_creation=True)
    codes = {each.name: ErrorCode(each.error_code).name for each in wire.call(request, version).topics}
    assert codes == {
        "no-such-topic": "UNKNOWN_TOPIC_OR_PARTITION",
        "not a name!": "INVALID_TOPIC_EXCEPTION",
        "": "INVALID_TOPIC_EXCEPTION",
    }


@pytest.mark.parametrize("create", [True, False])
def test_the_metadata_log_is_no_topic(new_server: Callable[..., AbstractContextManager[Server]], create: bool) -> None:
    name = "__cluster_metadata"
    with new_server({"auto.create.topics.enable": "true"}) as server, WireClient(server.bootstrap_servers) as wire:
        request = MetadataRequest(topics=by_name(name), allow_auto_topic_creation=create)
        for _ in range(2):
            (found,) = wire.call(request, 12).topics
            assert (ErrorCode(found.error_code).name, found.is_internal) == ("UNKNOWN_TOPIC_OR_PARTITION", False)


@pytest.mark.parametrize("version", [12, 13])
def test_by_topic_id(wire: WireClient, topic: Topic, version: int) -> None:
    asked = [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in (topic.topic_id, b"\x05" * 16)]
    found, unknown = sorted(wire.call(MetadataRequest(topics=asked), version).topics, key=lambda each: each.error_code)
    assert (found.error_code, found.name, found.topic_id, len(found.partitions)) == (0, topic.name, topic.topic_id, 3)
    assert (unknown.error_code, unknown.name, unknown.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, None, b"\x05" * 16)


@pytest.mark.parametrize("version", [8, 10, 12])
def test_authorized_operations_when_asked_for(wire: WireClient, topic: Topic, version: int) -> None:
    """A bit for each operation; without an authorizer all operations that fit the resource are allowed."""
    (found,) = wire.call(MetadataRequest(topics=by_name(topic.name)), version).topics
    assert found.topic_authorized_operations == -(2**31)
    request = MetadataRequest(topics=by_name(topic.name), include_topic_authorized_operations=True)
    (found,) = wire.call(request, version).topics
    assert found.topic_authorized_operations == sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))


def test_authorized_operations_of_the_cluster(wire: WireClient) -> None:
    response = wire.call(DescribeClusterRequest(include_cluster_authorized_operations=True), 0)
    assert response.cluster_authorized_operations == sum(1 << each for each in (5, 7, 8, 9, 10, 11, 12))
    assert wire.call(DescribeClusterRequest(), 0).cluster_authorized_operations == -(2**31)


# DescribeTopicPartitions


def describe(wire: WireClient, names: list[str], limit: int = 2_000, cursor: Cursor | None = None) -> Any:
    """One page."""
    asked = [TopicRequest(name=name) for name in names]
    request = DescribeTopicPartitionsRequest(topics=asked, response_partition_limit=limit, cursor=cursor)
    return wire.call(request, 0)


def test_describe_topic_partitions(wire: WireClient, topic: Topic) -> None:
    response = describe(wire, ["no-such-topic", topic.name])
    assert response.next_cursor is None
    found = {each.name: each for each in response.topics}
    assert found["no-such-topic"].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (found[topic.name].error_code, found[topic.name].topic_id) == (0, topic.topic_id)
    for each in found[topic.name].partitions:
        assert each.replica_nodes == each.isr_nodes == [each.leader_id]
        assert each.eligible_leader_replicas in (None, [])
        assert each.offline_replicas == []
    assert [each.partition_index for each in found[topic.name].partitions] == [0, 1, 2]


def test_describe_topic_partitions_page_by_page(
    wire: WireClient, bootstrap_servers: str, topic_name: Callable[[], str]
) -> None:
    """Pages of two partitions, over topics in the order of their names."""
    prefix = topic_name()
    names = [f"{prefix}-{letter}" for letter in "abc"]
    for name, partitions in zip(names, (3, 1, 2), strict=True):
        w.create_topic(bootstrap_servers, name, partitions)
    pages: list[list[tuple[str, int]]] = []
    cursor = None
    while True:
        response = describe(wire, list(reversed(names)), limit=2, cursor=cursor)
        pages.append([(each.name, part.partition_index) for each in response.topics for part in each.partitions])
        cursor = response.next_cursor
        if cursor is None:
            break
    assert [entry for page in pages for entry in page] == [
        (names[0], 0), (names[0], 1), (names[0], 2), (names[1], 0), (names[2], 0), (names[2], 1)
    ]  # fmt: skip
    assert all(len(page) <= 2 for page in pages)


# Automatic creation


def test_automatic_creation(new_server: Callable[..., AbstractContextManager[Server]]) -> None:
    """On a server that creates topics when they are asked for; the client may say no (since version 4)."""
    with (
        new_server({"auto.create.topics.enable": "true", "num.partitions": "2"}) as server,
        WireClient(server.bootstrap_servers) as wire,
    ):
        no = MetadataRequest(topics=by_name("wanted"), allow_auto_topic_creation=False)
        assert wire.call(no, 12).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

        def ask(*names: str, version: int = 12) -> Any:
            return wire.call(MetadataRequest(topics=by_name(*names), allow_auto_topic_creation=True), version).topics

        for number, version in enumerate((0, 1, 3, 4, 9, 12, 13)):
            name = f"wanted-{number}"
            codes: set[int] = set()

            def created(name: str = name, version: int = version, codes: set[int] = codes) -> Any:
                (found,) = ask(name, version=version)
                codes.add(found.error_code)
                return found if found.error_code == 0 and found.partitions else None

            assert len(wait_until(created, name).partitions) == 2
            # Not an empty topic, not an internal error: clients ask again after these.
            assert codes <= {0, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        (invalid,) = ask("not a name!")
        assert invalid.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        # Asking for all topics creates none.
        names = {each.name for each in wire.call(MetadataRequest(topics=None), 12).topics}
        assert names == {f"wanted-{number}" for number in range(7)}
