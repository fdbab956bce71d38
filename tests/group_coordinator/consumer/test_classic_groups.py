"""A consumer group takes the place of an empty classic one."""

from __future__ import annotations

from moldau.group_coordinator.classic.group import ClassicGroup
from moldau.group_coordinator.records import GroupMetadataKey
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from moldau.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

from ..harness import Coordinator
from .consumer import GROUP, Consumer


def with_offset(coordinator: Coordinator) -> Coordinator:
    """A client that is not a member commits."""
    coordinator.topics.create("t", 1)
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    request = OffsetCommitRequest(group_id=GROUP, generation_id_or_member_epoch=-1, topics=[topic])
    answered = coordinator.send(request, 9).response
    assert answered.topics[0].partitions[0].error_code == ErrorCode.NONE
    assert isinstance(coordinator.group(GROUP), ClassicGroup)
    return coordinator


def test_a_group_of_offsets_becomes_a_consumer_group() -> None:
    coordinator = with_offset(Coordinator())
    a = Consumer(coordinator, "a", ["t"])
    assert a.join().response.member_epoch == 2
    assert a.assigned == {"t": {0}}
    assert coordinator.group(GROUP).type == "consumer"
    coordinator.restart()
    assert coordinator.group(GROUP).type == "consumer"
    committed = coordinator.states.offsets.get(GROUP, "t", 0)
    assert committed is not None
    assert committed.offset == 7


def test_also_when_no_group_with_members_may_be_upgraded() -> None:
    coordinator = with_offset(Coordinator(consumer_migration_policy="disabled"))
    assert Consumer(coordinator, "a", ["t"]).join().response.member_epoch == 2


def test_a_classic_group_without_members_is_deleted_first() -> None:
    coordinator = Coordinator(group_initial_rebalance_delay_ms=0)
    coordinator.topics.create("t", 1)
    joined = coordinator.send(
        JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        ),
        3,
    ).response
    coordinator.send(LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=joined.member_id)]), 3)
    coordinator.written()

    a = Consumer(coordinator, "a", ["t"])
    assert a.join().response.member_epoch == 2
    first = coordinator.written()[0]
    assert isinstance(first.key, GroupMetadataKey)
    assert first.value is None
    coordinator.advance(30_000)
    assert a.heartbeat().response.member_epoch == 2
