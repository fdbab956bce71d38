"""LeaveGroup, and the heartbeats by which the other members learn of it."""

from __future__ import annotations

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.leave_group import LeaveGroupResponse, MemberResponse

from ..harness import Coordinator
from .actors import (
    heartbeat_request,
    join_all,
    join_request,
    leave_request,
    stable_group,
    start_joining,
    sync_request,
)


def test_the_others_rebalance_when_a_member_leaves() -> None:
    coordinator = Coordinator()
    leader, follower = stable_group(coordinator)
    assert coordinator.send(leave_request(leader)).response == LeaveGroupResponse(
        members=[MemberResponse(member_id=leader, group_instance_id=None, error_code=ErrorCode.NONE)]
    )
    assert coordinator.send(heartbeat_request(leader)).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.send(heartbeat_request(follower)).error is ErrorCode.REBALANCE_IN_PROGRESS
    response = coordinator.send(join_request(follower)).response
    assert (response.generation_id, response.leader) == (2, follower)


def test_several_members_in_one_request_each_have_an_error() -> None:
    coordinator = Coordinator()
    plain, static, other = stable_group(coordinator, {}, {"instance_id": "static"}, {})
    pending = coordinator.send(join_request()).response.member_id
    response = coordinator.send(
        leave_request(plain, ("", "static"), pending, "stranger", (other, "static"), ("", None), ("", "unknown"))
    ).response
    none, unknown = ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID
    assert response.error_code == none
    assert [(member.member_id, member.error_code) for member in response.members] == [
        (plain, none),
        ("", none),
        (pending, none),
        ("stranger", unknown),
        (other, unknown),  # "static" has left before
        ("", unknown),
        ("", unknown),
    ]
    assert static not in coordinator.group().members
    assert list(coordinator.group().members) == [other]


def test_a_member_id_with_the_instance_id_of_another_is_fenced() -> None:
    coordinator = Coordinator()
    static, plain = stable_group(coordinator, {"instance_id": "static"}, {})
    response = coordinator.send(leave_request((plain, "static"))).response
    assert response.members[0].error_code == ErrorCode.FENCED_INSTANCE_ID
    assert list(coordinator.group().members) == [static, plain]
    assert coordinator.describe("group").group_state == "Stable"


def test_a_member_that_leaves_while_its_join_waits_gets_unknown_member_id() -> None:
    coordinator = Coordinator()
    leader, follower = stable_group(coordinator)
    waiting = coordinator.send(join_request(leader))
    coordinator.send(leave_request(leader))
    assert waiting.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert waiting.response.member_id == ""
    assert coordinator.send(join_request(follower)).response.leader == follower


def test_a_member_that_leaves_while_it_waits_for_its_assignment_gets_a_response() -> None:
    coordinator = Coordinator()
    leader, follower = join_all(coordinator, {}, {})
    waiting = coordinator.send(sync_request(follower))
    coordinator.send(leave_request(follower))
    assert waiting.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.send(sync_request(leader)).error is ErrorCode.REBALANCE_IN_PROGRESS


def test_the_last_one_missing_ends_the_rebalance_by_leaving() -> None:
    coordinator = Coordinator()
    leader, follower = stable_group(coordinator)
    waiting = coordinator.send(join_request(leader))
    coordinator.send(leave_request(follower))
    assert waiting.response.generation_id == 2
    assert len(waiting.response.members) == 1


def test_when_all_leave_in_one_request_the_empty_generation_is_written() -> None:
    coordinator = Coordinator()
    members = stable_group(coordinator, {}, {}, {})
    coordinator.written()
    response = coordinator.send(leave_request(*members)).response
    assert {member.error_code for member in response.members} == {ErrorCode.NONE}
    (record,) = coordinator.written()
    assert (record.value.generation, record.value.members) == (2, [])
    assert coordinator.describe("group").group_state == "Empty"
    assert not [name for name in coordinator.states.deadlines._deadlines if name[0] == "group"]


def test_an_empty_list_removes_no_member() -> None:
    coordinator = Coordinator()
    stable_group(coordinator)
    assert coordinator.send(leave_request()).response == LeaveGroupResponse(members=[])
    assert coordinator.describe("group").group_state == "Stable"


def test_a_pending_member_of_a_stable_group_may_leave() -> None:
    """As in Apache Kafka, the group rebalances although it has not changed."""
    coordinator = Coordinator()
    leader, _ = stable_group(coordinator)
    pending = coordinator.send(join_request()).response.member_id
    coordinator.send(leave_request(pending))
    assert coordinator.send(heartbeat_request(leader)).error is ErrorCode.REBALANCE_IN_PROGRESS


def test_the_last_member_leaves_while_another_one_is_pending() -> None:
    coordinator = Coordinator()
    (member,) = stable_group(coordinator, {})
    pending = coordinator.send(join_request()).response.member_id
    coordinator.send(leave_request(member))
    assert coordinator.describe("group").group_state == "Empty"
    caller = coordinator.send(join_request(pending))
    coordinator.advance(3000)
    assert caller.response.generation_id == 3


def test_leaving_in_one_turn_with_joining_is_decided_in_order() -> None:
    """The empty generation of the first is replayed before the second is decided."""
    coordinator = Coordinator()
    (member,) = stable_group(coordinator, {})
    left = coordinator.send_in_turn(leave_request(member))
    joined = coordinator.send_in_turn(join_request(), 3)
    coordinator.settle()
    assert left.error is ErrorCode.NONE
    assert joined.waits
    coordinator.advance(3000)
    assert joined.response.generation_id == 3


def test_a_join_of_an_empty_group_continues_from_the_stored_generation() -> None:
    coordinator = Coordinator()
    (member,) = stable_group(coordinator, {})
    coordinator.send(leave_request(member))
    coordinator.restart()
    _, caller = start_joining(coordinator)
    coordinator.advance(3000)
    assert caller.response.generation_id == 3
