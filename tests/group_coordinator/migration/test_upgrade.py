"""A classic group becomes a consumer group when a member of the consumer protocol joins."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.group_coordinator.consumer.member import MemberState
from moldau.group_coordinator.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    GroupMetadataKey,
)
from moldau.protocol.codec import encode
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ResponseTopicPartition
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

from ...coordinator.harness import FakeCaller
from ..harness import Coordinator
from .actors import (
    GROUP,
    REBALANCE_TIMEOUT_MS,
    SESSION_TIMEOUT_MS,
    assert_replay_restores,
    assignment,
    consumer_heartbeat,
    join_request,
    subscription,
)

INITIAL_DELAY_MS = 3000


def start_joining(coordinator: Coordinator, **facts: object) -> tuple[str, FakeCaller]:
    member_id = coordinator.send(join_request(**facts)).response.member_id  # type: ignore[arg-type]
    return member_id, coordinator.send(join_request(member_id, **facts))  # type: ignore[arg-type]


def sync(coordinator: Coordinator, member_id: str, assignments: dict[str, bytes] | None = None) -> FakeCaller:
    return coordinator.send(
        SyncGroupRequest(
            group_id=GROUP,
            generation_id=1,
            member_id=member_id,
            assignments=[
                SyncGroupRequestAssignment(member_id=one, assignment=assigned)
                for one, assigned in (assignments or {}).items()
            ],
        )
    )


def coordinator_of(**settings: Any) -> Coordinator:
    coordinator = Coordinator(consumer_assignment_interval_ms=0, **settings)
    coordinator.topics.create("t", 2)
    return coordinator


def joined(coordinator: Coordinator, **facts: object) -> tuple[str, str]:
    """Two members of generation 1 that have not synced; the leader is first."""
    leader, waiting = start_joining(coordinator, **facts)
    follower, _ = start_joining(coordinator, **facts)
    coordinator.advance(2 * INITIAL_DELAY_MS)
    assert waiting.response.leader == leader
    return leader, follower


def stable(coordinator: Coordinator, *assigned: bytes, **facts: object) -> tuple[str, str]:
    """Two members with these assignments; by default, each has one partition."""
    leader, follower = joined(coordinator, **facts)
    first, second = assigned or (assignment(("t", 0)), assignment(("t", 1)))
    assert sync(coordinator, leader, {leader: first, follower: second}).error is ErrorCode.NONE
    coordinator.written()
    return leader, follower


def test_the_members_keep_their_partitions_and_generation() -> None:
    coordinator = coordinator_of()
    leader, follower = stable(coordinator)
    response = coordinator.send(consumer_heartbeat("m")).response
    assert (response.error_code, response.member_epoch) == (0, 2)
    assert response.assignment.topic_partitions == []
    group = coordinator.group()
    assert group.type == "consumer"
    assert (group.group_epoch, group.target_assignment_epoch) == (2, 2)
    topic_id = coordinator.topics.id_of("t")
    for partition, member_id in enumerate((leader, follower)):
        member = group.members[member_id]
        assert (member.member_epoch, member.state) == (1, MemberState.STABLE)
        assert member.assigned_partitions == {topic_id: {partition: 1}}
        assert member.subscribed_topic_names == {"t"}
        assert member.rebalance_timeout_ms == REBALANCE_TIMEOUT_MS
        assert (member.client_id, member.client_host) == ("client", "/127.0.0.1")
        assert member.classic_member_metadata.session_timeout_ms == SESSION_TIMEOUT_MS
        assert [one.name for one in member.classic_member_metadata.supported_protocols] == ["range"]
    assert_replay_restores(coordinator)


def test_the_records_end_the_classic_group_and_then_make_the_consumer_group() -> None:
    coordinator = coordinator_of()
    leader, follower = stable(coordinator)
    coordinator.send(consumer_heartbeat("m"))
    upgrade = coordinator.written()[:9]
    assert (upgrade[0].key, upgrade[0].value) == (GroupMetadataKey(group=GROUP), None)
    assert [one.key for one in upgrade[1:]] == [
        ConsumerGroupMemberMetadataKey(group_id=GROUP, member_id=leader),
        ConsumerGroupMemberMetadataKey(group_id=GROUP, member_id=follower),
        ConsumerGroupMetadataKey(group_id=GROUP),
        ConsumerGroupTargetAssignmentMemberKey(group_id=GROUP, member_id=leader),
        ConsumerGroupTargetAssignmentMemberKey(group_id=GROUP, member_id=follower),
        ConsumerGroupTargetAssignmentMetadataKey(group_id=GROUP),
        ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id=leader),
        ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id=follower),
    ]
    assert all(one.value is not None for one in upgrade[1:])
    # The topics are the same before and after the new member.
    assert upgrade[3].value.metadata_hash == coordinator.group().metadata_hash != 0


def test_the_members_keep_their_racks() -> None:
    coordinator = coordinator_of()
    leader, _ = stable(coordinator, protocols={"range": subscription("t", rack_id="r")})
    coordinator.send(consumer_heartbeat("m"))
    assert coordinator.group().members[leader].rack_id == "r"


def test_a_topic_that_is_assigned_in_two_entries_is_merged() -> None:
    coordinator = coordinator_of()
    pieces = [ResponseTopicPartition(topic="t", partitions=[index]) for index in (0, 1)]
    in_pieces = b"\0\3" + encode(ConsumerProtocolAssignment(assigned_partitions=pieces), 3)
    leader, _ = stable(coordinator, in_pieces, assignment())
    coordinator.send(consumer_heartbeat("m"))
    (partitions,) = coordinator.group().members[leader].assigned_partitions.values()
    assert set(partitions) == {0, 1}


def test_the_members_see_the_upgrade_as_a_rebalance() -> None:
    coordinator = coordinator_of()
    leader, _ = stable(coordinator)
    coordinator.send(consumer_heartbeat("m"))
    request = HeartbeatRequest(group_id=GROUP, generation_id=1, member_id=leader)
    assert coordinator.send(request).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert coordinator.send(join_request(leader)).response.generation_id == 2


def test_a_member_continues_to_commit_in_its_generation() -> None:
    coordinator = coordinator_of()
    leader, _ = stable(coordinator)
    coordinator.send(consumer_heartbeat("m"))
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    request = OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=1,
        member_id=leader,
        topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])],
    )
    response = coordinator.send(request, 8).response
    assert response.topics[0].partitions[0].error_code == 0


def test_the_members_have_full_sessions_from_the_upgrade_on() -> None:
    coordinator = coordinator_of()
    leader, follower = stable(coordinator)
    coordinator.advance(SESSION_TIMEOUT_MS - 1)
    coordinator.send(consumer_heartbeat("m"))
    coordinator.advance(SESSION_TIMEOUT_MS - 1)
    assert set(coordinator.group().members) == {leader, follower, "m"}
    coordinator.advance(1)
    assert set(coordinator.group().members) == {"m"}


def test_static_members_stay_static() -> None:
    coordinator = coordinator_of()
    waiting = coordinator.send(join_request(instance_id="i"))
    coordinator.advance(INITIAL_DELAY_MS)
    member_id = waiting.response.member_id
    sync(coordinator, member_id, {member_id: assignment(("t", 0), ("t", 1))})
    response = coordinator.send(consumer_heartbeat("m", instance_id="i")).response
    # It replaces itself, with its partitions.
    assert [one.partitions for one in response.assignment.topic_partitions] == [[0, 1]]
    assert list(coordinator.group().members) == ["m"]
    assert coordinator.group().static_members == {"i": "m"}
    assert_replay_restores(coordinator)


# -- during a rebalance ------------------------------------------------------------------------------------------------


def test_callers_that_wait_for_the_first_rebalance_must_rejoin() -> None:
    coordinator = coordinator_of()
    leader, waiting = start_joining(coordinator)
    assert coordinator.send(consumer_heartbeat("m")).response.member_epoch == 1
    assert waiting.response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert waiting.response.member_id == leader
    assert set(coordinator.group().members) == {leader, "m"}
    assert coordinator.send(join_request(leader)).response.generation_id == 1


def test_callers_that_wait_for_a_later_rebalance_must_rejoin() -> None:
    coordinator = coordinator_of()
    leader, _ = stable(coordinator)
    waiting = coordinator.send(join_request(leader))
    assert waiting.waits
    coordinator.send(consumer_heartbeat("m"))
    assert waiting.response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert coordinator.group().members[leader].assigned_partitions


def test_callers_that_wait_for_the_assignment_must_rejoin() -> None:
    coordinator = coordinator_of()
    _, follower = joined(coordinator)
    waiting = sync(coordinator, follower)
    assert waiting.waits
    coordinator.send(consumer_heartbeat("m"))
    assert waiting.response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert not coordinator.group().members[follower].assigned_partitions


def test_partitions_that_a_rebalance_has_not_assigned_are_assigned_without_new_subscriptions() -> None:
    """The process restarts with the consumer protocol before its group has an assignment."""
    coordinator = coordinator_of()
    waiting = coordinator.send(join_request(instance_id="i"))
    coordinator.advance(2 * INITIAL_DELAY_MS)
    assert waiting.response.generation_id == 1
    response = coordinator.send(consumer_heartbeat("m", instance_id="i")).response
    assert response.member_epoch == 2
    assert [one.partitions for one in response.assignment.topic_partitions] == [[0, 1]]
    assert_replay_restores(coordinator)


def test_the_deadlines_of_the_classic_group_are_canceled() -> None:
    coordinator = coordinator_of()
    leader, _ = stable(coordinator)
    coordinator.send(join_request(leader))  # a rebalance that no other member joins
    coordinator.send(consumer_heartbeat("m"))
    for epoch in (2, 3, 3, 3):
        coordinator.advance(REBALANCE_TIMEOUT_MS // 2)
        coordinator.send(consumer_heartbeat("m", epoch))
    assert coordinator.group().type == "consumer"
    assert_replay_restores(coordinator)


# -- rejections --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "error"),
    [
        ("disabled", ErrorCode.GROUP_ID_NOT_FOUND),
        ("downgrade", ErrorCode.GROUP_ID_NOT_FOUND),
        ("upgrade", ErrorCode.NONE),
        ("bidirectional", ErrorCode.NONE),
        ("BiDirectional", ErrorCode.NONE),
    ],
)
def test_policies(policy: str, error: ErrorCode) -> None:
    coordinator = coordinator_of(consumer_migration_policy=policy)
    stable(coordinator)
    assert coordinator.send(consumer_heartbeat("m")).error is error
    upgraded = coordinator.group().type == "consumer"
    assert upgraded is (error is ErrorCode.NONE)


@pytest.mark.parametrize(
    "facts",
    [
        {"protocol_type": "connect"},
        {"protocols": {"range": b""}},
        {"protocols": {"range": b"\xff\xff"}},
        {"protocols": {"range": b"no subscription"}},
    ],
)
def test_members_that_are_no_consumers_stay_in_a_classic_group(facts: dict[str, object]) -> None:
    coordinator = coordinator_of()
    stable(coordinator, b"", b"", **facts)
    assert coordinator.send(consumer_heartbeat("m")).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert coordinator.group().type == "classic"
    assert coordinator.written() == []


@pytest.mark.parametrize(
    "assigned",
    [
        assignment(("t", 0), user_data=b"of a custom assignor"),
        b"\xff\xff",
        b"\0\0\0\0\0\x01",
        b"x",
    ],
)
def test_groups_with_assignments_that_cannot_be_recreated_are_not_upgraded(assigned: bytes) -> None:
    coordinator = coordinator_of()
    stable(coordinator, assigned, assignment(("t", 1)))
    assert coordinator.send(consumer_heartbeat("m")).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert coordinator.group().type == "classic"


def test_user_data_that_is_empty_is_no_obstacle() -> None:
    coordinator = coordinator_of()
    stable(coordinator, assignment(("t", 0), user_data=b""), assignment(("t", 1)))
    assert coordinator.send(consumer_heartbeat("m")).error is ErrorCode.NONE


def test_partitions_of_deleted_topics_are_omitted() -> None:
    coordinator = coordinator_of()
    leader, follower = stable(coordinator, assignment(("gone", 0)), assignment(("t", 1)))
    coordinator.send(consumer_heartbeat("m"))
    assert coordinator.group().members[leader].assigned_partitions == {}
    assert coordinator.group().members[follower].assigned_partitions


@pytest.mark.parametrize(
    ("size", "error"),
    [(1, ErrorCode.GROUP_ID_NOT_FOUND), (2, ErrorCode.GROUP_MAX_SIZE_REACHED), (3, ErrorCode.NONE)],
)
def test_a_group_larger_than_consumer_groups_may_be_stays_classic(size: int, error: ErrorCode) -> None:
    coordinator = coordinator_of(consumer_max_size=size)
    stable(coordinator)
    assert coordinator.send(consumer_heartbeat("m")).error is error


@pytest.mark.parametrize("epoch", [1, -1])
def test_only_a_member_that_joins_upgrades_a_group(epoch: int) -> None:
    coordinator = coordinator_of()
    stable(coordinator)
    assert coordinator.send(consumer_heartbeat("m", epoch)).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert coordinator.group().type == "classic"


def test_a_rejected_upgrade_keeps_all_callers_of_the_classic_rebalance() -> None:
    coordinator = coordinator_of(consumer_max_size=1)
    leader, waiting = start_joining(coordinator)
    assert coordinator.send(consumer_heartbeat("m")).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert waiting.waits
    coordinator.advance(INITIAL_DELAY_MS)
    assert waiting.response.leader == leader


def test_an_upgrade_that_cannot_be_written_leaves_the_classic_group() -> None:
    coordinator = coordinator_of()
    leader, follower = stable(coordinator)
    waiting = coordinator.send(join_request(leader))
    with coordinator.log_refuses(ErrorCode.NOT_ENOUGH_REPLICAS):
        assert coordinator.send(consumer_heartbeat("m")).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    # Waiting callers get a response and rejoin.
    assert waiting.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert coordinator.group().type == "classic"
    again = [coordinator.send(join_request(member_id)) for member_id in (leader, follower)]
    assert [one.response.generation_id for one in again] == [2, 2]
    coordinator.advance(10 * SESSION_TIMEOUT_MS)
    assert coordinator.group().type == "classic"


def test_requests_of_one_turn_see_the_upgrade() -> None:
    coordinator = coordinator_of()
    leader, _ = stable(coordinator)
    first = coordinator.send_in_turn(consumer_heartbeat("m"))
    second = coordinator.send_in_turn(HeartbeatRequest(group_id=GROUP, generation_id=1, member_id=leader))
    coordinator.settle()
    assert first.response.member_epoch == 2
    assert second.error is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_deadline_of_the_turn_does_not_act_on_the_classic_group() -> None:
    coordinator = coordinator_of()
    stable(coordinator)
    coordinator.now_ms += SESSION_TIMEOUT_MS
    coordinator.send_in_turn(consumer_heartbeat("m"))
    coordinator.runtime.tick()
    coordinator.settle()
    assert len(coordinator.group().members) == 3
    assert_replay_restores(coordinator)


def test_metadata_of_newer_versions_is_read() -> None:
    coordinator = coordinator_of()
    newer = (7).to_bytes(2, "big") + subscription("t")[2:] + b"something that is not known yet"
    stable(coordinator, protocols={"range": newer})
    assert coordinator.send(consumer_heartbeat("m")).error is ErrorCode.NONE
    assert coordinator.group().subscriptions.topics() == {"t"}
