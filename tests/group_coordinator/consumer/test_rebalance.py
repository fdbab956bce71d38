"""Members join and leave, and partitions move between them while all members continue to read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moldau.coordinator.outcome import Record
from moldau.group_coordinator.consumer.kind import CONSUMER
from moldau.group_coordinator.consumer.member import MemberState
from moldau.group_coordinator.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from moldau.protocol.errors import ErrorCode

from ...coordinator.harness import EPOCH_MS
from ..harness import Coordinator
from .consumer import GROUP, Consumer, settle


@pytest.fixture
def coordinator() -> Coordinator:
    coordinator = Coordinator()
    coordinator.topics.create("t", 6)
    return coordinator


def kinds(records: list[Record]) -> list[type]:
    return [type(record.key) for record in records]


def test_the_first_member_gets_all_partitions_immediately(coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", ["t"])
    response = a.join().response
    assert (response.member_id, response.member_epoch, response.heartbeat_interval_ms) == ("a", 2, 5000)
    assert a.assigned == {"t": {0, 1, 2, 3, 4, 5}}
    records = coordinator.written()
    assert kinds(records) == [
        ConsumerGroupMemberMetadataKey,
        ConsumerGroupMetadataKey,
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupTargetAssignmentMetadataKey,
        ConsumerGroupCurrentMemberAssignmentKey,
    ]
    member, _, _, target_epoch, current = (record.value for record in records)
    assert (member.client_id, member.client_host) == ("client of a", "/127.0.0.1")
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (["t"], "")
    assert (target_epoch.assignment_epoch, target_epoch.assignment_timestamp) == (2, EPOCH_MS)
    assert (current.member_epoch, current.previous_member_epoch, current.state) == (2, 0, 0)
    (assigned,) = current.assigned_partitions
    assert (assigned.partitions, assigned.assignment_epochs) == ([0, 1, 2, 3, 4, 5], [2] * 6)


def test_a_heartbeat_without_changes_writes_no_records_and_returns_no_assignment(coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", ["t"])
    a.join()
    coordinator.written()
    response = a.heartbeat().response
    assert (response.member_epoch, response.assignment) == (2, None)
    assert coordinator.written() == []


def test_a_heartbeat_with_all_fields_gets_the_assignment(coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", ["t"])
    a.join()
    coordinator.written()
    response = a.heartbeat(**a.fields, topic_partitions=a.owns(a.owned)).response
    assert response.assignment is not None
    assert coordinator.written() == []


def test_partitions_change_hands_step_by_step(coordinator: Coordinator) -> None:
    a, b = Consumer(coordinator, "a", ["t"]), Consumer(coordinator, "b", ["t"])
    a.join()
    coordinator.advance(2000)

    # b has to wait for the partitions of a: it is in the new epoch without partitions.
    assert b.join().response.member_epoch == 3
    assert b.assigned == {}
    assert coordinator.group(GROUP).state_name == "Reconciling"

    # a learns which partitions it keeps, and stays in its epoch until it has revoked the rest.
    response = a.heartbeat().response
    assert (response.member_epoch, a.assigned) == (2, {"t": {0, 1, 2}})
    b.heartbeat()
    assert b.assigned == {}
    assert a.heartbeat(topic_partitions=a.owns({"t": {0, 1, 2, 3, 4, 5}})).response.member_epoch == 2
    assert a.heartbeat(topic_partitions=a.owns({"t": {0, 1, 2, 5}})).response.member_epoch == 2

    # Then it moves on, and b gets its part with its next heartbeat.
    assert a.heartbeat(topic_partitions=a.owns({"t": {0, 1, 2}})).response.member_epoch == 3
    b.heartbeat()
    assert b.assigned == {"t": {3, 4, 5}}
    assert coordinator.group(GROUP).state_name == "Stable"
    assert a.heartbeat().response.assignment is None


def test_repeated_entries_of_a_topic_are_merged(coordinator: Coordinator) -> None:
    a, b = Consumer(coordinator, "a", ["t"]), Consumer(coordinator, "b", ["t"])
    a.join()
    coordinator.advance(2000)
    b.join()
    a.heartbeat()

    twice = [*a.owns({"t": {0, 1, 2, 3, 4, 5}}), *a.owns({"t": {0}})]
    assert a.heartbeat(topic_partitions=twice).response.member_epoch == 2
    b.heartbeat()
    assert b.assigned == {}


def test_two_then_three_then_two_members(coordinator: Coordinator) -> None:
    a, b, c = (Consumer(coordinator, name, ["t"]) for name in "abc")
    a.join()
    coordinator.advance(2000)
    b.join()
    settle(a, b)
    assert sorted(len(member.owned["t"]) for member in (a, b)) == [3, 3]

    before = {member.member_id: set(member.owned["t"]) for member in (a, b)}
    coordinator.advance(2000)
    c.join()
    settle(a, b, c)
    assert [len(member.owned["t"]) for member in (a, b, c)] == [2, 2, 2]
    assert a.owned["t"] < before["a"]
    assert b.owned["t"] < before["b"]

    kept = {member.member_id: set(member.owned["t"]) for member in (a, c)}
    response = b.leave().response
    assert (response.member_id, response.member_epoch) == ("b", -1)
    settle(a, c)
    assert [len(member.owned["t"]) for member in (a, c)] == [3, 3]
    assert a.owned["t"] > kept["a"]
    assert c.owned["t"] > kept["c"]
    assert "b" not in coordinator.group(GROUP).members


def test_the_last_member_leaves_an_empty_group(coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", ["t"])
    a.join()
    coordinator.written()
    a.leave()
    assert kinds(coordinator.written()) == [
        ConsumerGroupCurrentMemberAssignmentKey,
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupMemberMetadataKey,
        ConsumerGroupMetadataKey,
    ]
    group = coordinator.group(GROUP)
    assert (group.state_name, group.group_epoch) == ("Empty", 3)
    assert a.heartbeat(member_epoch=2).error is ErrorCode.UNKNOWN_MEMBER_ID
    coordinator.advance(2000)
    assert a.join().response.member_epoch == 4


def test_a_new_subscription_removes_topics_immediately(coordinator: Coordinator) -> None:
    coordinator.topics.create("u", 2)
    a = Consumer(coordinator, "a", ["t", "u"])
    a.join()
    # The interval between two assignments is not over, so there is no new target, but "t" is no longer read.
    assert a.heartbeat(subscribed_topic_names=["u"]).response.member_epoch == 2
    assert a.assigned == {"u": {0, 1}}
    assert a.heartbeat(topic_partitions=a.owns({"u": {0, 1}})).response.member_epoch == 2
    assert coordinator.group(GROUP).owner_of(coordinator.topics.id_of("t"), 0) is None
    settle(a)
    assert a.assigned == {"u": {0, 1}}


def test_members_that_read_different_topics(coordinator: Coordinator) -> None:
    coordinator.topics.create("u", 2)
    a, b = Consumer(coordinator, "a", ["t"]), Consumer(coordinator, "b", ["t", "u"])
    a.join()
    coordinator.advance(2000)
    b.join()
    settle(a, b)
    assert len(a.owned["t"]) == 4
    assert b.owned["u"] == {0, 1}
    assert len(b.owned["t"]) == 2


def test_the_assignor_is_the_one_that_most_ask_for(coordinator: Coordinator) -> None:
    coordinator.topics.create("u", 6)
    members = [Consumer(coordinator, name, ["t", "u"], server_assignor="range") for name in "ab"]
    members[0].join()
    coordinator.advance(2000)
    members[1].join()
    settle(*members)
    assert members[0].owned == {"t": {0, 1, 2}, "u": {0, 1, 2}}
    assert coordinator.shard.describe(CONSUMER, GROUP, api_version=1).assignor_name == "range"


def test_more_partitions_are_assigned_with_the_next_heartbeat(coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", ["t"])
    a.join()
    coordinator.advance(2000)
    coordinator.topics.create("t", 7)
    assert a.heartbeat().response.member_epoch == 3
    assert a.assigned == {"t": set(range(7))}


def test_a_topic_may_be_created_later_and_deleted(coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", ["t", "later"])
    a.join()
    coordinator.advance(2000)
    coordinator.topics.create("later", 1)
    a.follow()
    assert a.owned == {"t": set(range(6)), "later": {0}}
    coordinator.advance(2000)
    coordinator.topics.delete("t")
    a.follow()
    settle(a)
    assert a.owned == {"later": {0}}


def test_a_topic_without_subscribers_does_not_change_the_group(coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", ["t"])
    a.join()
    coordinator.written()
    coordinator.advance(2000)
    coordinator.topics.create("other", 3)
    assert a.heartbeat().response.member_epoch == 2
    assert coordinator.written() == []


def test_a_member_without_topics_is_a_member(coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", [])
    assert a.join().response.member_epoch == 1
    assert a.assigned == {}
    assert coordinator.group(GROUP).state_name == "Stable"


def test_a_change_that_cannot_be_written_has_not_been(coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", ["t"])
    with coordinator.log_refuses(ErrorCode.NOT_ENOUGH_REPLICAS):
        assert a.join().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not coordinator.has_group()
    coordinator.advance(60_000)
    assert a.join().response.member_epoch == 2
    coordinator.advance(2000)
    coordinator.topics.create("t", 7)
    with coordinator.log_refuses(ErrorCode.NOT_ENOUGH_REPLICAS):
        assert a.heartbeat().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    a.heartbeat()
    assert a.assigned == {"t": set(range(7))}


def test_topic_changes_noticed_by_a_fenced_member_are_kept_for_the_next_one(
    coordinator: Coordinator,
) -> None:
    a, b = Consumer(coordinator, "a", ["t"]), Consumer(coordinator, "b", ["t"])
    a.join()
    b.join()
    settle(a, b)
    # A newer coordinator has written unknown fields, and there are more partitions now.
    group = coordinator.group(GROUP)
    group.update_member(replace(group.members["a"], state=MemberState.UNKNOWN))
    epoch = group.group_epoch
    coordinator.topics.create("t", 12)

    assert a.heartbeat().error is ErrorCode.FENCED_MEMBER_EPOCH
    b.heartbeat()

    assert coordinator.group(GROUP).group_epoch == epoch + 1
