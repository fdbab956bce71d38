"""Responses to unusual requests. Each was compared with the response of Apache Kafka 4.3.1."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from moldau.protocol.messages.describe_cluster import DescribeClusterRequest
from moldau.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from moldau.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from moldau.protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from moldau.protocol.messages.describe_topic_partitions import TopicRequest as Named
from moldau.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.testing.builders import batch, fetch_request, produce, values
from moldau.testing.wire import WireClient

from .conftest import RunningServer


@pytest.fixture
def wire(server: RunningServer) -> Iterator[Any]:
    with server.wire() as wire:
        yield wire


def described(wire: WireClient, keys: Any) -> list[Any]:
    resource = DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=keys)
    (result,) = wire.call(DescribeConfigsRequest(resources=[resource]), 4).results
    assert result.error_code == 0
    return [entry.name for entry in result.configs]


def test_describe_configs_without_keys_returns_all_configs(server: RunningServer, wire: WireClient) -> None:
    server.create_topic("t")
    assert len(described(wire, None)) > 30
    assert described(wire, []) == described(wire, None)
    assert described(wire, ["retention.ms", "no.such", "retention.ms"]) == ["retention.ms"]


def test_describe_producers_rejects_invalid_and_unknown_topics(wire: WireClient) -> None:
    topics = [TopicRequest(name=name, partition_indexes=[0]) for name in ("in valid", "", "nope")]
    codes = [t.partitions[0].error_code for t in wire.call(DescribeProducersRequest(topics=topics), 0).topics]
    assert codes == [
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_describe_cluster_rejects_other_endpoint_types(wire: WireClient, endpoint_type: int, code: ErrorCode) -> None:
    answer = wire.call(DescribeClusterRequest(endpoint_type=endpoint_type), 2)
    assert (answer.error_code, answer.endpoint_type) == (code, 1)


@pytest.mark.parametrize("version", [1, 2])
def test_an_election_of_an_unknown_type_is_rejected(server: RunningServer, wire: WireClient, version: int) -> None:
    server.create_topic("t")
    request = ElectLeadersRequest(election_type=2, topic_partitions=[TopicPartitions(topic="t", partitions=[0, 9])])
    answer = wire.call(request, version)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    results = [(p.partition_id, p.error_code) for p in answer.replica_election_results[0].partition_result]
    assert results == [(0, ErrorCode.INVALID_REQUEST), (9, ErrorCode.INVALID_REQUEST)]


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([], ErrorCode.NONE),
        ([("user", 0, "a")], ErrorCode.NONE),
        ([("user", 1, None), ("client-id", 2, None)], ErrorCode.NONE),
        ([("nope", 0, "a")], ErrorCode.UNSUPPORTED_VERSION),
        ([("", 2, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 9, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", 0, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 2, None), ("user", 2, None)], ErrorCode.INVALID_REQUEST),
        ([("ip", 2, None), ("user", 2, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_quota_filters_are_validated(wire: WireClient, components: Any, code: ErrorCode) -> None:
    requested = [ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in components]
    answer = wire.call(DescribeClientQuotasRequest(components=requested), 1)
    assert answer.error_code == code
    assert answer.entries == ([] if code == 0 else None)


def test_find_coordinator_accepts_no_keys_and_validates_share_group_keys(wire: WireClient) -> None:
    assert wire.call(FindCoordinatorRequest(key_type=9, coordinator_keys=[]), 5).coordinators == []
    keys = ["", "group", "group:AAAAAAAAAAAAAAAAAAAAAQ:0", "group:AAAAAAAAAAAAAAAAAAAAAQ:x", "group:nope:0"]
    codes = [
        found.error_code
        for found in wire.call(FindCoordinatorRequest(key_type=2, coordinator_keys=keys), 6).coordinators
    ]
    assert codes == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]


@pytest.mark.parametrize("name", ["", "-x", "x-", "a b", "ü"])
def test_an_invalid_client_software_name_gets_no_api_versions(wire: WireClient, name: str) -> None:
    answer = wire.call(ApiVersionsRequest(client_software_name=name, client_software_version="1"), 3)
    assert (answer.error_code, answer.api_keys) == (ErrorCode.INVALID_REQUEST, [])
    good = wire.call(ApiVersionsRequest(client_software_name="a.b-c", client_software_version="1"), 3)
    assert good.error_code == 0
    assert good.api_keys


def page(wire: WireClient, names: Any, limit: int = 2000, cursor: Any = None) -> Any:
    request = DescribeTopicPartitionsRequest(
        topics=[Named(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    answer = wire.call(request, 0)
    following = answer.next_cursor
    return (
        [(t.name, ErrorCode(t.error_code).name, [p.partition_index for p in t.partitions]) for t in answer.topics],
        None if following is None else (following.topic_name, following.partition_index),
    )


def test_describe_topic_partitions_returns_pages_and_cursors(server: RunningServer, wire: WireClient) -> None:
    server.create_topic("a")
    server.create_topic("b", partitions=3)
    assert page(wire, ["a", "b"], 0) == ([("a", "NONE", [0])], ("b", 0))
    assert page(wire, ["a", "b"], -1) == ([("a", "NONE", [0])], ("b", 0))
    # A topic that does not fit into a page starts the next one, whether it exists or not.
    assert page(wire, ["a", "ab", "b"], 1) == ([("a", "NONE", [0])], ("ab", 0))
    assert page(wire, ["a", "ab", "b"], 1, ("ab", 0)) == (
        [("ab", "UNKNOWN_TOPIC_OR_PARTITION", []), ("b", "NONE", [0])],
        ("b", 1),
    )
    assert page(wire, ["a", "b"], 2, ("b", 1)) == ([("b", "NONE", [1, 2])], None)
    # If the request names topics, the cursor must be one of them.
    assert page(wire, ["a", "b"], 2, ("aa", 0)) == ([("a", "INVALID_REQUEST", []), ("b", "INVALID_REQUEST", [])], None)
    assert page(wire, [], 9, ("aa", 0)) == ([("b", "NONE", [0, 1, 2])], None)
    assert page(wire, ["in valid"]) == ([("in valid", "INVALID_TOPIC_EXCEPTION", [])], None)


def test_metadata_by_id_ignores_names(server: RunningServer, wire: WireClient) -> None:
    topic_id = server.create_topic("a")
    server.create_topic("b")
    both = MetadataRequestTopic(name="a", topic_id=topic_id)
    assert [t.name for t in wire.call(MetadataRequest(topics=[both]), 12).topics] == ["a"]
    mixed = [MetadataRequestTopic(name=None, topic_id=topic_id), MetadataRequestTopic(name="b")]
    assert [t.name for t in wire.call(MetadataRequest(topics=mixed), 12).topics] == ["a"]  # the name is ignored


def test_unknown_isolation_levels_are_rejected(server: RunningServer, wire: WireClient) -> None:
    server.create_topic("t")
    request = fetch_request("t")
    request.isolation_level = 2
    answer = wire.call(request, 12)
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    requested = [ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])]
    listed = wire.call(ListOffsetsRequest(replica_id=-1, isolation_level=2, topics=requested), 7)
    assert listed.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_fetch_of_a_broker_without_a_replica_is_rejected(server: RunningServer, wire: WireClient) -> None:
    server.create_topic("t")
    produce(wire, "t", batch(b"x"))
    request = fetch_request("t")
    request.replica_id = 5
    partition = wire.call(request, 12).responses[0].partitions[0]
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert len(partition.records) == 0


def test_any_negative_leader_epoch_means_no_epoch(server: RunningServer, wire: WireClient) -> None:
    server.create_topic("t")
    produce(wire, "t", batch(b"x"))
    partition = FetchPartition(partition=0, current_leader_epoch=-2, partition_max_bytes=1000)
    request = FetchRequest(max_bytes=1000, topics=[FetchTopic(topic="t", partitions=[partition])])
    assert values(wire.call(request, 12).responses[0].partitions[0]) == [b"x"]


def test_a_fetch_does_not_wait_for_more_than_max_bytes(server: RunningServer, wire: WireClient) -> None:
    """Apache Kafka waits for at most as many bytes as it may send."""
    server.create_topic("t")
    produce(wire, "t", batch(b"x" * 2000))
    request = fetch_request("t", max_wait_ms=60_000, min_bytes=1_000_000, max_bytes=1_000)
    assert values(wire.call(request, 12).responses[0].partitions[0]) == [b"x" * 2000]


def test_a_fetch_session_may_start_without_partitions(server: RunningServer, wire: WireClient) -> None:
    server.create_topic("t")
    produce(wire, "t", batch(b"x"))
    begun = wire.call(FetchRequest(session_epoch=0), 12)
    assert begun.session_id > 0
    request = fetch_request("t")
    request.session_id, request.session_epoch = begun.session_id, 1
    answer = wire.call(request, 12)
    assert answer.session_id == begun.session_id
    assert values(answer.responses[0].partitions[0]) == [b"x"]


@pytest.mark.parametrize("timestamp", [-7, -8, -100, -(2**63)])
def test_negative_timestamps_without_a_meaning_are_rejected(
    server: RunningServer, wire: WireClient, timestamp: int
) -> None:
    server.create_topic("t")
    produce(wire, "t", batch(b"x"))
    requested = [ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)])]
    (found,) = wire.call(ListOffsetsRequest(replica_id=-1, topics=requested), 11).topics[0].partitions
    assert (found.error_code, found.offset) == (ErrorCode.UNSUPPORTED_VERSION, -1)
