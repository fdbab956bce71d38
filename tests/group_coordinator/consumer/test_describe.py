"""ConsumerGroupDescribe."""

from __future__ import annotations

from dataclasses import replace

from moldau.group_coordinator.consumer.kind import CONSUMER
from moldau.group_coordinator.records import ClassicMemberMetadata
from moldau.protocol.codec import encode
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.consumer_group_describe import Assignment, ConsumerGroupDescribeResponse, DescribedGroup
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol

from ..harness import Coordinator
from .consumer import GROUP, Consumer


def described(coordinator: Coordinator) -> DescribedGroup:
    group = coordinator.shard.describe(CONSUMER, GROUP, api_version=1)
    for version in (0, 1):
        encode(ConsumerGroupDescribeResponse(groups=[group]), version)
    return group


def partitions(assignment: Assignment) -> dict[str, list[int]]:
    return {topic.topic_name: topic.partitions for topic in assignment.topic_partitions}


def test_a_group_in_the_middle_of_a_rebalance() -> None:
    coordinator = Coordinator()
    coordinator.topics.create("t", 4)
    a = Consumer(coordinator, "a", ["t"], instance_id="first", rack_id="rack")
    b = Consumer(coordinator, "b", subscribed_topic_regex="t")
    a.join()
    coordinator.advance(2000)
    b.join()
    a.heartbeat()

    group = described(coordinator)
    assert (group.error_code, group.group_state, group.group_epoch, group.assignment_epoch) == (0, "Reconciling", 3, 3)
    assert group.assignor_name == "uniform"
    first, second = group.members
    assert (first.member_id, first.instance_id, first.rack_id, first.member_epoch) == ("a", "first", "rack", 2)
    assert (first.client_id, first.client_host) == ("client of a", "/127.0.0.1")
    assert (first.subscribed_topic_names, first.subscribed_topic_regex) == (["t"], "")
    # It must revoke two, and may still read them.
    assert partitions(first.assignment) == {"t": [0, 1, 2, 3]}
    assert partitions(first.target_assignment) == {"t": [0, 1]}
    assert first.member_type == 1
    assert (second.member_epoch, second.subscribed_topic_names, second.subscribed_topic_regex) == (3, [], "t")
    assert partitions(second.assignment) == {}
    assert partitions(second.target_assignment) == {"t": [2, 3]}


def test_deleted_topics_are_omitted() -> None:
    coordinator = Coordinator()
    coordinator.topics.create("t", 1)
    Consumer(coordinator, "a", ["t"]).join()
    coordinator.topics.delete("t")
    (member,) = described(coordinator).members
    assert partitions(member.assignment) == partitions(member.target_assignment) == {}


def test_a_member_of_the_classic_protocol_is_one() -> None:
    coordinator = Coordinator()
    Consumer(coordinator, "a", ["t"]).join()
    group = coordinator.group(GROUP)
    group.update_member(replace(group.members["a"], classic_member_metadata=ClassicMemberMetadata()))
    (member,) = described(coordinator).members
    assert member.member_type == 0


def test_an_empty_group() -> None:
    coordinator = Coordinator(consumer_assignors=("range", "uniform"))
    a = Consumer(coordinator, "a", ["t"])
    a.join()
    a.leave()
    group = described(coordinator)
    assert (group.group_state, group.assignor_name, group.members) == ("Empty", "range", [])


def test_no_such_group() -> None:
    group = described(Coordinator())
    assert (group.error_code, group.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, f"Group {GROUP} not found.")


def test_a_classic_group_is_none() -> None:
    coordinator = Coordinator(group_initial_rebalance_delay_ms=0)
    coordinator.send(
        JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        ),
        3,
    )
    assert described(coordinator).error_message == f"Group {GROUP} is not a consumer group."
