"""Metadata and its relatives: which topics there are, under which names and ids, and topics that a question creates."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.describe_cluster import DescribeClusterRequest
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


@pytest.mark.parametrize("create", [True, False])
def test_the_metadata_log_is_no_topic(new_server: Callable[..., AbstractContextManager[Server]], create: bool) -> None:
    name = "__cluster_metadata"
    with new_server({"auto.create.topics.enable": "true"}) as server, WireClient(server.bootstrap_servers) as wire:
        request = MetadataRequest(topics=by_name(name), allow_auto_topic_creation=create)
        for _ in range(2):
            (found,) = wire.call(request, 12).topics
            assert (ErrorCode(found.error_code).name, found.is_internal) == ("UNKNOWN_TOPIC_OR_PARTITION", False)


# CreateTopics


def create(wire: WireClient, version: int = 7, *, validate_only: bool = False, **fields: Any) -> Any:
    """The result of creating one topic."""
    wanted = CreatableTopic(**{"num_partitions": 1, "replication_factor": 1, **fields})
    (result,) = wire.call(CreateTopicsRequest(topics=[wanted], validate_only=validate_only), version).topics
    return result


def test_what_create_topics_answers(wire: WireClient, topic_name: Callable[[], str]) -> None:
    """Since version 5 the topic's shape and configs, since version 7 its id."""
    result = create(wire, name=topic_name(), num_partitions=-1, replication_factor=-1)
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 1, 1)
    assert result.topic_id != ZERO_UUID
    assert {each.name: each.value for each in result.configs}["cleanup.policy"] == "delete"
    assert create(wire, 4, name=topic_name()).error_code == 0


def test_validate_only_creates_nothing(wire: WireClient, topic_name: Callable[[], str]) -> None:
    name = topic_name()
    result = create(wire, validate_only=True, name=name, num_partitions=4)
    assert (result.error_code, result.num_partitions) == (0, 4)
    (found,) = wire.call(MetadataRequest(topics=by_name(name), allow_auto_topic_creation=False), 12).topics
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"num_partitions": 0}, "INVALID_PARTITIONS"),
        ({"num_partitions": -2}, "INVALID_PARTITIONS"),
        ({"replication_factor": 0}, "INVALID_REPLICATION_FACTOR"),
        ({"replication_factor": -2}, "INVALID_REPLICATION_FACTOR"),
        ({"replication_factor": 2}, "INVALID_REPLICATION_FACTOR"),
        ({"num_partitions": 1, "assignments": "own"}, "INVALID_REQUEST"),
        ({"num_partitions": -1, "replication_factor": -1, "assignments": "gap"}, "INVALID_REPLICA_ASSIGNMENT"),
        ({"num_partitions": -1, "replication_factor": -1, "assignments": "own"}, "NONE"),
    ],
)
def test_shapes(wire: WireClient, topic_name: Callable[[], str], fields: dict[str, Any], code: str) -> None:
    node = wire.call(DescribeClusterRequest(), 0).controller_id
    assignments = {
        "own": [CreatableReplicaAssignment(partition_index=index, broker_ids=[node]) for index in (0, 1)],
        "gap": [CreatableReplicaAssignment(partition_index=index, broker_ids=[node]) for index in (0, 2)],
    }
    given = {**fields, "assignments": assignments.get(fields.get("assignments", ""), [])}
    assert ErrorCode(create(wire, validate_only=True, name=topic_name(), **given).error_code).name == code


def test_the_same_topic_twice_in_one_request(wire: WireClient, topic_name: Callable[[], str]) -> None:
    name = topic_name()
    wanted = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for _ in range(2)]
    good = CreatableTopic(name=topic_name(), num_partitions=1, replication_factor=1)
    results = wire.call(CreateTopicsRequest(topics=[*wanted, good]), 7).topics
    codes = {each.name: ErrorCode(each.error_code).name for each in results}
    assert codes == {name: "INVALID_REQUEST", good.name: "NONE"}


def test_good_and_bad_topics_in_one_request(wire: WireClient, topic: Topic, topic_name: Callable[[], str]) -> None:
    names = [topic_name(), topic.name, "not a name!"]
    wanted = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    results = {each.name: each for each in wire.call(CreateTopicsRequest(topics=wanted), 7).topics}
    assert [ErrorCode(results[name].error_code).name for name in names] == [
        "NONE",
        "TOPIC_ALREADY_EXISTS",
        "INVALID_TOPIC_EXCEPTION",
    ]
    assert results[topic.name].error_message


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_a_timeout_that_has_passed_changes_nothing(
    wire: WireClient, topic: Topic, topic_name: Callable[[], str], timeout_ms: int
) -> None:
    wanted = CreatableTopic(name=topic_name(), num_partitions=1, replication_factor=1)
    (created,) = wire.call(CreateTopicsRequest(topics=[wanted], timeout_ms=timeout_ms), 7).topics
    assert created.error_code == ErrorCode.REQUEST_TIMED_OUT
    named = [DeleteTopicState(name=topic.name)]
    (deleted,) = wire.call(DeleteTopicsRequest(topics=named, timeout_ms=timeout_ms), 6).responses
    assert deleted.error_code == ErrorCode.REQUEST_TIMED_OUT
    described = wire.call(MetadataRequest(topics=by_name(wanted.name, topic.name)), 12).topics
    assert {each.name: each.error_code for each in described} == {
        wanted.name: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        topic.name: 0,
    }


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
