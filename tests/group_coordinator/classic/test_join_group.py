"""JoinGroup: which members are accepted, in which version, and with which response."""

from __future__ import annotations

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.join_group import JoinGroupResponseMember

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
    sync_all,
)

# -- the round trip of a new member (KIP-394) --------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4, 10))
def test_a_new_member_gets_an_id_and_retries_with_it(version: int) -> None:
    coordinator = Coordinator()
    first = coordinator.send(join_request(), version, client_id="app")
    assert first.error is ErrorCode.MEMBER_ID_REQUIRED
    assert first.response.member_id == "app-uuid-1"
    assert coordinator.describe("group").members == []
    assert coordinator.describe("group").group_state == "Empty"
    second = coordinator.send(join_request("app-uuid-1"), version)
    assert second.waits
    assert [member.member_id for member in coordinator.describe("group").members] == ["app-uuid-1"]


@pytest.mark.parametrize("version", range(4))
def test_old_clients_join_immediately(version: int) -> None:
    coordinator = Coordinator()
    caller = coordinator.send(join_request(), version, client_id="app")
    coordinator.advance(3000)
    assert caller.response.member_id == "app-uuid-1"
    assert caller.response.generation_id == 1


def test_a_member_id_that_was_not_given_out_is_unknown() -> None:
    coordinator = Coordinator()
    coordinator.send(join_request())
    assert coordinator.send(join_request("client-uuid-2")).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_pending_member_that_does_not_come_is_forgotten() -> None:
    coordinator = Coordinator()
    member_id = coordinator.send(join_request()).response.member_id
    coordinator.advance(SESSION_TIMEOUT_MS - 1)
    assert coordinator.group().pending_members.keys() == {member_id}
    coordinator.advance(1)
    assert not coordinator.group().pending_members
    assert coordinator.send(join_request(member_id)).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_pending_members_until_they_are_forgotten() -> None:
    coordinator = Coordinator()
    (member,) = stable_group(coordinator, {})
    assert coordinator.send(join_request()).error is ErrorCode.MEMBER_ID_REQUIRED
    again = coordinator.send(join_request(member))
    assert again.waits
    coordinator.advance(SESSION_TIMEOUT_MS)
    assert again.response.generation_id == 2
    assert again.response.leader == member


def test_a_pending_member_may_leave() -> None:
    coordinator = Coordinator()
    member_id = coordinator.send(join_request()).response.member_id
    assert coordinator.send(leave_request(member_id)).response.members[0].error_code == ErrorCode.NONE
    assert not coordinator.group().pending_members
    assert coordinator.group().state_name == "Empty"


def test_a_pending_member_cannot_be_a_static_one() -> None:
    coordinator = Coordinator()
    member_id = coordinator.send(join_request()).response.member_id
    assert coordinator.send(join_request(member_id, instance_id="one")).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.group().pending_members.keys() == {member_id}


# -- rejections --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("timeout_ms", "accepted"), [(5999, False), (6000, True), (1_800_000, True), (1_800_001, False)]
)
def test_the_session_timeout_has_limits(timeout_ms: int, accepted: bool) -> None:
    coordinator = Coordinator()
    error = coordinator.send(join_request(session_timeout_ms=timeout_ms)).error
    assert error is (ErrorCode.MEMBER_ID_REQUIRED if accepted else ErrorCode.INVALID_SESSION_TIMEOUT)
    assert coordinator.has_group() is accepted


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [
        ("", RANGE),
        ("consumer", {}),
    ],
)
def test_a_member_without_protocols_creates_no_group(protocol_type: str, protocols: dict[str, bytes]) -> None:
    coordinator = Coordinator()
    caller = coordinator.send(join_request(protocol_type=protocol_type, protocols=protocols))
    assert caller.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert not coordinator.has_group()


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [
        ("connect", RANGE),
        ("", RANGE),
        ("consumer", {}),
        ("consumer", {"sticky": b""}),
    ],
)
def test_a_member_without_a_common_protocol_is_rejected(protocol_type: str, protocols: dict[str, bytes]) -> None:
    coordinator = Coordinator()
    member, _ = stable_group(coordinator, {"protocols": {**RANGE, "sticky": b""}}, {})
    for member_id in ("", member):
        caller = coordinator.send(join_request(member_id, protocol_type=protocol_type, protocols=protocols))
        assert caller.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert coordinator.group().state_name == "Stable"


def test_an_empty_group_accepts_members_of_another_type() -> None:
    coordinator = Coordinator()
    (member,) = stable_group(coordinator, {})
    coordinator.send(leave_request(member))
    _, caller = start_joining(coordinator, protocol_type="connect", protocols={"sessioned": b""})
    coordinator.advance(3000)
    assert (caller.response.protocol_type, caller.response.protocol_name) == ("connect", "sessioned")
    assert caller.response.generation_id == 3


# -- group.max.size ----------------------------------------------------------------------------------------------------


def test_a_full_group_accepts_no_other_member() -> None:
    coordinator = Coordinator(group_max_size=2)
    leader, _ = stable_group(coordinator)
    refused = coordinator.send(join_request())
    assert refused.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert refused.response.member_id == ""
    assert coordinator.group().state_name == "Stable"
    assert coordinator.send(join_request(leader)).waits


def test_a_pending_member_is_rejected_when_the_group_has_become_full() -> None:
    coordinator = Coordinator(group_max_size=1)
    late = coordinator.send(join_request()).response.member_id
    _, first = start_joining(coordinator)
    refused = coordinator.send(join_request(late))
    assert refused.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    coordinator.advance(3000)
    assert first.response.generation_id == 1
    assert not coordinator.group().pending_members


def test_the_last_members_to_join_a_group_that_is_too_large_are_rejected() -> None:
    coordinator = Coordinator()
    first, second, third = stable_group(coordinator, {}, {}, {})
    coordinator.config = type(coordinator.config)(group_max_size=2)
    coordinator.restart()
    assert coordinator.group().state_name == "PreparingRebalance"
    waiting = [coordinator.send(join_request(member)) for member in (third, second)]
    assert coordinator.send(join_request(first)).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [caller.response.generation_id for caller in waiting] == [2, 2]
    assert list(coordinator.group().members) == [second, third]


# -- the response ------------------------------------------------------------------------------------------------------


def test_only_the_leader_gets_the_list_of_members() -> None:
    coordinator = Coordinator()
    waiting = [
        start_joining(coordinator, protocols={"range": b"first"}),
        start_joining(coordinator, protocols={"range": b"second"}, instance_id="two"),
    ]
    coordinator.advance(6000)
    (leader, of_leader), (follower, of_follower) = waiting
    assert of_leader.response.members == [
        JoinGroupResponseMember(member_id=leader, group_instance_id=None, metadata=b"first"),
        JoinGroupResponseMember(member_id=follower, group_instance_id="two", metadata=b"second"),
    ]
    assert of_follower.response.members == []
    for member_id, caller in waiting:
        response = caller.response
        assert (response.generation_id, response.protocol_type, response.protocol_name) == (1, "consumer", "range")
        assert (response.leader, response.member_id, response.skip_assignment) == (leader, member_id, False)


def test_a_retry_gets_the_same_response() -> None:
    coordinator = Coordinator()
    leader, follower = join_all(coordinator, {}, {})
    again = coordinator.send(join_request(leader)).response
    assert (again.generation_id, again.leader, len(again.members)) == (1, leader, 2)
    again = coordinator.send(join_request(follower)).response
    assert (again.generation_id, again.leader, again.members) == (1, leader, [])
    sync_all(coordinator, 1, leader, follower)
    again = coordinator.send(join_request(follower)).response
    assert (again.generation_id, again.leader, again.members) == (1, leader, [])


@pytest.mark.parametrize(
    ("protocols", "rebalances"),
    [
        ({"range": b"1", "sticky": b"2"}, False),
        ({"range": b"1", "sticky": b"3"}, True),
        ({"range": b"1"}, True),
        ({"sticky": b"2", "range": b"1"}, True),  # its preferred protocol has changed
    ],
)
def test_a_follower_triggers_a_rebalance_by_joining_with_other_protocols(
    protocols: dict[str, bytes], rebalances: bool
) -> None:
    coordinator = Coordinator()
    both = {"range": b"1", "sticky": b"2"}
    _, follower = stable_group(coordinator, {"protocols": both}, {"protocols": both})
    assert coordinator.send(join_request(follower, protocols=protocols)).waits is rebalances


@pytest.mark.parametrize("version", [5, 6, 7, 9])
def test_no_protocol_is_an_empty_name_before_version_7(version: int) -> None:
    coordinator = Coordinator()
    refused = coordinator.send(join_request(), version)
    assert refused.response.protocol_name == (None if version >= 7 else "")


def test_a_repeated_member_gets_two_responses() -> None:
    """Its client has repeated its request, and can no longer use the first response."""
    coordinator = Coordinator()
    leader, _ = stable_group(coordinator)
    first = coordinator.send(join_request(leader))
    second = coordinator.send(join_request(leader))
    assert first.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert first.response.member_id == leader
    assert second.waits
    assert coordinator.group().awaiting_join_count == 1


def test_new_timeouts_hold_from_the_rebalance_on() -> None:
    coordinator = Coordinator()
    (member,) = stable_group(coordinator, {})
    coordinator.send(join_request(member, session_timeout_ms=20_000, rebalance_timeout_ms=5000))
    sync_all(coordinator, 2, member)
    coordinator.advance(19_999)
    assert coordinator.send(heartbeat_request(member, 2)).error is ErrorCode.NONE
    assert coordinator.group().rebalance_timeout_ms == 5000


def test_version_0_uses_the_session_timeout_as_rebalance_timeout() -> None:
    coordinator = Coordinator()
    coordinator.send(join_request(session_timeout_ms=7000, rebalance_timeout_ms=-1), 0)
    assert coordinator.group().rebalance_timeout_ms == 7000


def test_the_first_of_two_protocols_of_the_same_name_is_used() -> None:
    coordinator = Coordinator()
    request = join_request(protocols={"range": b"first"})
    request.protocols += join_request(protocols={"range": b"second"}).protocols
    caller = coordinator.send(request, 3)
    coordinator.advance(3000)
    assert caller.response.members[0].metadata == b"first"
