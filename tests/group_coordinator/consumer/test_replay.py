"""The log determines the state, whatever records it contains, in any order after compaction."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from moldau.coordinator.outcome import Record
from moldau.group_coordinator.consumer.group import ConsumerGroup
from moldau.group_coordinator.consumer.member import MemberState
from moldau.group_coordinator.records import (
    AssignedTopicPartitions,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)

from ..harness import Coordinator
from .consumer import GROUP, Consumer, settle

TOPIC = b"\x07" * 16


def lived_in() -> tuple[Coordinator, list[Consumer]]:
    """A coordinator with a group that has all kinds of records, in the middle of a rebalance."""
    coordinator = Coordinator()
    coordinator.topics.create("t", 7)
    coordinator.topics.create("u", 2)
    members = [
        Consumer(coordinator, "a", ["t", "u"], instance_id="static", rack_id="rack"),
        Consumer(coordinator, "b", ["t"], server_assignor="uniform"),
        Consumer(coordinator, "c", subscribed_topic_regex="[tu]"),
    ]
    for count, member in enumerate(members, start=1):
        member.join()
        coordinator.advance(2000)
        settle(*members[:count])
    members[0].leave_for_a_while()
    Consumer(coordinator, "a2", ["t", "u"], instance_id="static").join()
    Consumer(coordinator, "d", ["u"]).join()
    coordinator.advance(2000)
    members[1].heartbeat()
    return coordinator, members


def snapshot(group: ConsumerGroup) -> dict[str, Any]:
    """All hard state."""
    soft = {"metadata_version", "regexes_version", "regexes_refreshed_ms", "_topics", "subscriptions"}
    state = {name: getattr(group, name) for name in ConsumerGroup.__slots__ if name not in soft}
    subscriptions = {name: getattr(group.subscriptions, name) for name in type(group.subscriptions).__slots__}
    return {**state, **subscriptions}


def test_a_restart_restores_the_state() -> None:
    coordinator, _ = lived_in()
    before = snapshot(coordinator.group(GROUP))
    coordinator.restart()
    assert snapshot(coordinator.group(GROUP)) == before


def test_the_records_of_a_group_give_the_same_state() -> None:
    coordinator, _ = lived_in()
    group = coordinator.group(GROUP)
    other = Coordinator()
    for record in group.records():
        other.shard.replay(record, producer_id=-1)
    assert snapshot(other.group(GROUP)) == snapshot(group)


def test_a_compacted_log_restores_the_state() -> None:
    coordinator, _ = lived_in()
    compacted: dict[str, Record] = {}
    for record in coordinator.written():
        compacted.pop(repr(record.key), None)
        compacted[repr(record.key)] = record
    other = Coordinator()
    for record in compacted.values():
        other.shard.replay(record, producer_id=-1)
    assert snapshot(other.group(GROUP)) == snapshot(coordinator.group(GROUP))


@pytest.mark.parametrize("seed", range(20))
def test_records_are_accepted_in_any_order(seed: int) -> None:
    coordinator, _ = lived_in()
    coordinator.group(GROUP)
    records = coordinator.written()
    records += [replace_value(record) for record in records]
    random.Random(seed).shuffle(records)
    other = Coordinator()
    for record in records:
        other.shard.replay(record, producer_id=-1)
    for group in other.states.groups.values():
        assert isinstance(group, ConsumerGroup)
        assert group.state_name
        # The counts are those of the members' records, also then.
        again = ConsumerGroup(GROUP, other.topics)
        for member in group.members.values():
            again.update_member(member)
        assert again.classic_members == group.classic_members
        assert again.subscriptions.regexes == group.subscriptions.regexes
        assert again.preferred_assignor() == group.preferred_assignor()


def replace_value(record: Record) -> Record:
    return record._replace(value=None)


@pytest.mark.parametrize(
    "key",
    [
        ConsumerGroupMetadataKey(group_id=GROUP),
        ConsumerGroupPartitionMetadataKey(group_id=GROUP),
        ConsumerGroupMemberMetadataKey(group_id=GROUP, member_id="a"),
        ConsumerGroupTargetAssignmentMetadataKey(group_id=GROUP),
        ConsumerGroupTargetAssignmentMemberKey(group_id=GROUP, member_id="a"),
        ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id="a"),
        ConsumerGroupRegularExpressionKey(group_id=GROUP, regular_expression="a.*"),
    ],
)
def test_a_tombstone_of_an_unknown_key_is_ignored(key: Any) -> None:
    coordinator = Coordinator()
    coordinator.shard.replay(Record(key, None), producer_id=-1)
    assert not coordinator.has_group()


def test_the_tombstones_of_a_group_remove_all_its_state() -> None:
    coordinator, _ = lived_in()
    for record in coordinator.group(GROUP).tombstones():
        coordinator.shard.replay(record, producer_id=-1)
    assert not coordinator.has_group()


def current(member_id: str, epoch: int, *assigned: AssignedTopicPartitions, state: int = 0) -> Record:
    return Record(
        ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id=member_id),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=epoch, previous_member_epoch=epoch - 1, state=state, assigned_partitions=list(assigned)
        ),
    )


def test_records_from_before_kip_1251_have_the_members_epoch() -> None:
    coordinator = Coordinator()
    coordinator.shard.replay(
        current("a", 5, AssignedTopicPartitions(topic_id=TOPIC, partitions=[1, 2])), producer_id=-1
    )
    member = coordinator.group(GROUP).members["a"]
    assert member.assigned_partitions == {TOPIC: {1: 5, 2: 5}}


def test_a_wrong_number_of_epochs_is_ignored() -> None:
    coordinator = Coordinator()
    broken = AssignedTopicPartitions(topic_id=TOPIC, partitions=[1, 2], assignment_epochs=[3])
    coordinator.shard.replay(current("a", 5, broken), producer_id=-1)
    assert coordinator.group(GROUP).members["a"].assigned_partitions == {TOPIC: {1: 5, 2: 5}}


def test_a_state_of_a_newer_coordinator_is_unknown() -> None:
    coordinator = Coordinator()
    coordinator.shard.replay(current("a", 5, state=9), producer_id=-1)
    assert coordinator.group(GROUP).members["a"].state is MemberState.UNKNOWN


def test_a_partition_belongs_to_its_new_owner_whatever_records_follow() -> None:
    coordinator = Coordinator()
    has = AssignedTopicPartitions(topic_id=TOPIC, partitions=[0])
    for record in (current("a", 1, has), current("b", 2, has), current("a", 2)):
        coordinator.shard.replay(record, producer_id=-1)
    assert coordinator.group(GROUP).owner_of(TOPIC, 0) == "b"


def test_topics_metadata_of_an_older_kafka_is_deleted_at_the_next_change() -> None:
    coordinator = Coordinator()
    coordinator.topics.create("t", 1)
    a = Consumer(coordinator, "a", ["t"])
    a.join()
    old = Record(ConsumerGroupPartitionMetadataKey(group_id=GROUP), ConsumerGroupPartitionMetadataValue())
    coordinator.shard.replay(old, producer_id=-1)
    coordinator.topics.create("other", 1)
    coordinator.written()
    a.heartbeat()
    (record,) = coordinator.written()
    assert isinstance(record.key, ConsumerGroupPartitionMetadataKey)
    assert record.value is None
    assert not coordinator.group(GROUP).has_partition_metadata


def test_a_group_of_apache_kafka_is_checked_again() -> None:
    """Its hash of the topics is different; the members keep their partitions."""
    coordinator = Coordinator()
    coordinator.topics.create("t", 3)
    a = Consumer(coordinator, "a", ["t"])
    a.join()
    theirs = ConsumerGroupMetadataValue(epoch=1, metadata_hash=123)
    coordinator.shard.replay(Record(ConsumerGroupMetadataKey(group_id=GROUP), theirs), producer_id=-1)
    coordinator.group(GROUP).forget_checks()
    coordinator.advance(2000)
    assert a.heartbeat().response.member_epoch == 2
    assert a.owned == a.assigned == {"t": {0, 1, 2}}


def test_replaying_a_member_again_changes_nothing() -> None:
    coordinator, _ = lived_in()
    group = coordinator.group(GROUP)
    before = snapshot(group)
    for member in list(group.members.values()):
        group.update_member(replace(member))
    assert snapshot(group) == before
