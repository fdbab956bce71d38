"""Which heartbeats are valid, and the order of the checks."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions

from ...coordinator.harness import FakeCaller
from ..harness import Coordinator


def heartbeat(coordinator: Coordinator, *, api_version: int = 1, **fields: Any) -> FakeCaller:
    return coordinator.send(ConsumerGroupHeartbeatRequest(**{"group_id": "group", **fields}), api_version)


JOIN: dict[str, Any] = {
    "member_id": "a",
    "member_epoch": 0,
    "rebalance_timeout_ms": 5000,
    "subscribed_topic_names": ["t"],
    "topic_partitions": [],
}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({**JOIN, "member_id": ""}, "MemberId can't be empty."),
        ({**JOIN, "member_id": " \t"}, "MemberId can't be empty."),
        ({**JOIN, "group_id": ""}, "GroupId can't be empty."),
        ({**JOIN, "group_id": "   "}, "GroupId can't be empty."),
        ({**JOIN, "instance_id": ""}, "InstanceId can't be empty."),
        ({**JOIN, "rack_id": ""}, "RackId can't be empty."),
        ({**JOIN, "rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({**JOIN, "topic_partitions": None}, "TopicPartitions must be empty when (re-)joining."),
        (
            {**JOIN, "topic_partitions": [TopicPartitions(topic_id=bytes(16), partitions=[0])]},
            "TopicPartitions must be empty when (re-)joining.",
        ),
        (
            {**JOIN, "subscribed_topic_names": None},
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ({"member_id": "a", "member_epoch": -2}, "InstanceId can't be null."),
        ({"member_id": "a", "member_epoch": -3}, "MemberEpoch is invalid."),
        # The first error is the one that is reported.
        ({"member_id": "", "group_id": "", "member_epoch": 1}, "MemberId can't be empty."),
        (
            {**JOIN, "rebalance_timeout_ms": -1, "server_assignor": "x"},
            "RebalanceTimeoutMs must be provided in first request.",
        ),
    ],
)
def test_an_invalid_request_has_an_error_message(fields: dict[str, Any], message: str) -> None:
    sent = heartbeat(Coordinator(), **fields)
    assert sent.error is ErrorCode.INVALID_REQUEST
    (answer,) = sent._answers
    assert isinstance(answer, KafkaError)
    assert answer.message == message


def test_the_coordinator_generates_member_ids_in_version_0() -> None:
    coordinator = Coordinator()
    first = heartbeat(coordinator, api_version=0, **{**JOIN, "member_id": ""}).response
    second = heartbeat(coordinator, api_version=0, **{**JOIN, "member_id": ""}).response
    assert first.member_id != second.member_id
    assert set(coordinator.group().members) == {first.member_id, second.member_id}


@pytest.mark.parametrize("epoch", [1, -1])
def test_a_member_has_an_id_in_version_0_too(epoch: int) -> None:
    assert heartbeat(Coordinator(), api_version=0, member_id="", member_epoch=epoch).error is ErrorCode.INVALID_REQUEST


def test_an_unknown_assignor_is_rejected() -> None:
    coordinator = Coordinator(consumer_assignors=("range",))
    sent = heartbeat(coordinator, **{**JOIN, "server_assignor": "uniform"})
    assert sent.error is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert heartbeat(coordinator, **{**JOIN, "server_assignor": "range"}).error is ErrorCode.NONE


def test_a_server_without_the_consumer_protocol_rejects_heartbeats() -> None:
    coordinator = Coordinator(rebalance_protocols=frozenset({"classic"}))
    assert heartbeat(coordinator, **JOIN).error is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("epoch", [5, -1])
def test_only_a_join_creates_a_group(epoch: int) -> None:
    coordinator = Coordinator()
    assert heartbeat(coordinator, member_id="a", member_epoch=epoch).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert not coordinator.has_group()
    assert coordinator.written() == []


@pytest.mark.parametrize("epoch", [5, -1])
def test_an_unknown_member_is_rejected(epoch: int) -> None:
    coordinator = Coordinator()
    heartbeat(coordinator, **JOIN)
    assert heartbeat(coordinator, member_id="b", member_epoch=epoch).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group_accepts_only_its_members() -> None:
    coordinator = Coordinator(consumer_max_size=1)
    heartbeat(coordinator, **JOIN)
    assert heartbeat(coordinator, **{**JOIN, "member_id": "b"}).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert heartbeat(coordinator, **JOIN).error is ErrorCode.NONE
