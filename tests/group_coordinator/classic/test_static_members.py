"""Static members (KIP-345): they rejoin as the same member and fence their previous instance."""

from __future__ import annotations

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember

from ..harness import Coordinator
from .actors import (
    RANGE,
    SESSION_TIMEOUT_MS,
    heartbeat_request,
    join_all,
    join_request,
    leave_request,
    stable_group,
    start_joining,
    sync_request,
)


def static_group(coordinator: Coordinator, **facts: object) -> list[str]:
    return stable_group(coordinator, {"instance_id": "leader", **facts}, {"instance_id": "follower", **facts})


def test_a_static_member_needs_no_round_trip() -> None:
    coordinator = Coordinator()
    caller = coordinator.send(join_request(instance_id="one"))
    coordinator.advance(3000)
    assert caller.response.member_id == "one-uuid-1"


def test_a_static_member_rejoins_without_a_rebalance() -> None:
    coordinator = Coordinator()
    leader, before = static_group(coordinator)
    coordinator.written()
    response = coordinator.send(join_request(instance_id="follower")).response
    after = response.member_id
    assert after != before
    assert response == JoinGroupResponse(
        generation_id=1, protocol_type="consumer", protocol_name="range", leader=leader, member_id=after
    )
    (record,) = coordinator.written()
    assert record.value.generation == 1
    assert [(member.member_id, member.assignment) for member in record.value.members] == [
        (leader, f"assignment of {leader}".encode()),
        (after, f"assignment of {before}".encode()),
    ]
    assert coordinator.send(sync_request(after)).response.assignment == f"assignment of {before}".encode()
    assert coordinator.send(heartbeat_request(leader)).error is ErrorCode.NONE


def test_the_one_before_is_fenced() -> None:
    coordinator = Coordinator()
    _, before = static_group(coordinator)
    coordinator.send(join_request(instance_id="follower"))
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert coordinator.send(join_request(before, instance_id="follower")).error is fenced
    assert coordinator.send(sync_request(before, instance_id="follower")).error is fenced
    assert coordinator.send(heartbeat_request(before, instance_id="follower")).error is fenced
    assert coordinator.send(leave_request((before, "follower"))).response.members[0].error_code == fenced
    assert coordinator.send(heartbeat_request(before)).error is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", [5, 8, 9])
def test_a_leader_that_rejoins_assigns_nothing(version: int) -> None:
    """Since version 9 the response has a field for it; for older clients it names another leader."""
    coordinator = Coordinator()
    before, follower = static_group(coordinator)
    response = coordinator.send(join_request(instance_id="leader"), version).response
    after = response.member_id
    assert coordinator.group().leader_id == after
    if version == 9:
        assert (response.leader, response.skip_assignment) == (after, True)
        assert response.members == [
            JoinGroupResponseMember(member_id=follower, group_instance_id="follower", metadata=RANGE["range"]),
            JoinGroupResponseMember(member_id=after, group_instance_id="leader", metadata=RANGE["range"]),
        ]
    else:
        assert (response.leader, response.skip_assignment) == (before, False)
        assert response.members == []
    assert coordinator.send(sync_request(after)).response.assignment == f"assignment of {before}".encode()


def test_a_static_member_with_other_metadata_rejoins_without_a_rebalance() -> None:
    """As long as the group would take the same protocol; its leader sees the new metadata with the next rebalance."""
    coordinator = Coordinator()
    static_group(coordinator)
    assert coordinator.send(join_request(instance_id="follower", protocols={"range": b"other"})).error is ErrorCode.NONE
    (record,) = [record for record in coordinator.written() if record.value][-1:]
    assert record.value.members[1].subscription == b"other"
    coordinator.restart()
    assert coordinator.describe("group").members[1].member_metadata == b"other"


def test_a_static_member_that_changes_the_protocol_causes_a_rebalance() -> None:
    coordinator = Coordinator()
    both = {"range": b"1", "sticky": b"2"}
    leader, before = static_group(coordinator, protocols=both)
    caller = coordinator.send(join_request(instance_id="follower", protocols={"sticky": b"2"}))
    assert caller.waits
    assert coordinator.send(heartbeat_request(leader)).error is ErrorCode.REBALANCE_IN_PROGRESS
    of_leader = coordinator.send(join_request(leader, protocols=both))
    assert of_leader.response.protocol_name == caller.response.protocol_name == "sticky"
    assert before not in {member.member_id for member in of_leader.response.members}


def test_a_static_member_that_waits_to_join_is_fenced_by_another_join() -> None:
    coordinator = Coordinator()
    first = coordinator.send(join_request(instance_id="one"))
    (member_id,) = coordinator.group().members
    second = coordinator.send(join_request(instance_id="one"))
    assert first.response == JoinGroupResponse(
        error_code=ErrorCode.FENCED_INSTANCE_ID, member_id=member_id, protocol_name=None
    )
    coordinator.advance(6000)
    assert [member.member_id for member in second.response.members] == [second.response.member_id]


def test_a_static_member_that_waits_for_its_assignment_is_fenced_and_a_rebalance_begins() -> None:
    coordinator = Coordinator()
    leader, follower = join_all(coordinator, {"instance_id": "leader"}, {"instance_id": "follower"})
    waiting = coordinator.send(sync_request(follower))
    caller = coordinator.send(join_request(instance_id="follower"))
    assert waiting.error is ErrorCode.FENCED_INSTANCE_ID
    assert caller.waits
    assert coordinator.send(sync_request(leader)).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert coordinator.send(join_request(leader, instance_id="leader")).response.generation_id == 2
    assert caller.response.generation_id == 2


def test_it_replaces_itself_in_a_rebalance_in_progress() -> None:
    coordinator = Coordinator()
    leader, _ = static_group(coordinator)
    of_leader = coordinator.send(join_request(leader, instance_id="leader"))
    caller = coordinator.send(join_request(instance_id="follower"))
    assert of_leader.response.generation_id == caller.response.generation_id == 2
    assert len(of_leader.response.members) == 2


def test_a_static_member_that_stopped_is_kept_for_its_session() -> None:
    coordinator = Coordinator()
    leader, gone = static_group(coordinator)
    coordinator.advance(SESSION_TIMEOUT_MS - 1)
    coordinator.send(heartbeat_request(leader))
    assert gone in coordinator.group().members
    coordinator.advance(1)
    assert coordinator.group().static_members == {"leader": leader}


def test_a_static_member_that_rejoins_has_a_new_session() -> None:
    coordinator = Coordinator()
    leader, _ = static_group(coordinator)
    coordinator.advance(8000)
    after = coordinator.send(join_request(instance_id="follower")).response.member_id
    coordinator.send(sync_request(after))
    coordinator.send(heartbeat_request(leader))
    coordinator.advance(SESSION_TIMEOUT_MS - 1)
    assert coordinator.send(heartbeat_request(after)).error is ErrorCode.NONE


def test_a_static_member_that_rejoins_and_never_syncs_is_removed() -> None:
    coordinator = Coordinator()
    leader, _ = join_all(coordinator, {"instance_id": "leader"}, {"instance_id": "follower"})
    coordinator.send(sync_request(leader, 1, {leader: b"1"}))
    after = coordinator.send(join_request(instance_id="follower")).response.member_id
    assert coordinator.group().pending_sync_members == {after}
    for _ in range(12):
        coordinator.send(heartbeat_request(leader))
        coordinator.send(heartbeat_request(after))
        coordinator.advance(5000)
    assert list(coordinator.group().members) == [leader]


@pytest.mark.parametrize("instance", ["leader", "follower"])
def test_if_the_log_rejects_its_new_id_the_previous_one_is_kept(instance: str) -> None:
    coordinator = Coordinator()
    members = static_group(coordinator)
    before = members[0] if instance == "leader" else members[1]
    described = coordinator.describe("group")
    with coordinator.log_refuses(ErrorCode.NOT_ENOUGH_REPLICAS):
        caller = coordinator.send(join_request(instance_id=instance, protocols={"range": b"other"}))
    assert caller.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert sorted(described.members, key=lambda member: member.member_id) == sorted(
        coordinator.describe("group").members, key=lambda member: member.member_id
    )
    assert coordinator.group().leader_id == members[0]
    assert coordinator.send(heartbeat_request(before, instance_id=instance)).error is ErrorCode.NONE
    coordinator.send(leave_request(*members))
    assert not coordinator.states.deadlines.is_set("group", ("classic session", "follower-uuid-3"))


def test_an_administrator_removes_static_members_by_instance_id() -> None:
    coordinator = Coordinator()
    leader, follower = static_group(coordinator)
    response = coordinator.send(leave_request(("", "follower"), ("", "unknown"))).response
    assert [(member.member_id, member.group_instance_id, member.error_code) for member in response.members] == [
        ("", "follower", ErrorCode.NONE),
        ("", "unknown", ErrorCode.UNKNOWN_MEMBER_ID),
    ]
    assert list(coordinator.group().members) == [leader]
    assert coordinator.send(heartbeat_request(follower)).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_is_static_even_if_its_request_omits_the_instance_id() -> None:
    coordinator = Coordinator()
    leader, follower = static_group(coordinator)
    assert coordinator.send(heartbeat_request(follower)).error is ErrorCode.NONE
    assert coordinator.send(join_request(follower)).response.generation_id == 1
    assert coordinator.send(heartbeat_request(leader, instance_id="follower")).error is ErrorCode.FENCED_INSTANCE_ID


def test_an_instance_id_can_be_reused_after_its_member_has_left() -> None:
    coordinator = Coordinator()
    leader, follower = static_group(coordinator)
    coordinator.send(leave_request(follower))
    _, caller = start_joining(coordinator, instance_id="follower")
    assert coordinator.send(join_request(leader)).response.generation_id == 2
    assert caller.response.generation_id == 2
