"""Groups from the log: loading restores the decided state, and accepts all records that a log may contain."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.coordinator.outcome import Record
from moldau.group_coordinator.classic.group import ClassicGroup, group_or_simple_group
from moldau.group_coordinator.records import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from moldau.protocol.errors import ErrorCode

from ...coordinator.harness import FakeCaller
from ..harness import Coordinator
from .actors import (
    SESSION_TIMEOUT_MS,
    heartbeat_request,
    join_all,
    join_request,
    leave_request,
    stable_group,
    start_joining,
    subscription,
    sync_request,
)


def durable(group: ClassicGroup) -> object:
    """The state of a group in the log."""
    return (
        group.state,
        group.generation_id,
        group.protocol_type,
        group.protocol_name,
        group.leader_id,
        group.current_state_timestamp_ms,
        group.static_members,
        group.subscribed_topics(),
        [
            (
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.protocols[group.protocol_name or ""],
                member.assignment,
            )
            for member in group.members.values()
        ],
    )


def replay(coordinator: Coordinator, value: GroupMetadataValue | None) -> None:
    coordinator.shard.replay(Record(GroupMetadataKey(group="group"), value, 3), producer_id=-1)


def member(member_id: str = "member", **facts: Any) -> MemberMetadata:
    return MemberMetadata(**{"member_id": member_id, "session_timeout": SESSION_TIMEOUT_MS, **facts})


def generation(*members: MemberMetadata, **facts: Any) -> GroupMetadataValue:
    leader = members[0].member_id if members else None
    protocol = "range" if members else None
    return GroupMetadataValue(
        **{
            "protocol_type": "consumer",
            "generation": 5,
            "protocol": protocol,
            "leader": leader,
            "members": list(members),
            **facts,
        }
    )


# -- loading restores the decided state --------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["stable", "static member came back", "empty", "stable again"])
def test_a_restart_restores_the_group(end: str) -> None:
    coordinator = Coordinator()
    protocols = {"sticky": b"", "range": subscription("a", "b")}
    leader, follower = stable_group(
        coordinator,
        {"protocols": {"range": subscription("a")}, "instance_id": "one"},
        {"protocols": protocols},
    )
    if end == "static member came back":
        coordinator.send(join_request(instance_id="one", protocols={"range": subscription("c")}))
    elif end == "empty":
        coordinator.send(leave_request(leader, follower))
    elif end == "stable again":
        coordinator.send(leave_request(leader))
        coordinator.send(join_request(follower, protocols=protocols))
        coordinator.send(sync_request(follower, 2, {follower: b"all"}))
    before, records = durable(coordinator.group()), coordinator.group().records()
    coordinator.restart()
    assert durable(coordinator.group()) == before
    other = Coordinator()
    for record in records:
        other.shard.replay(record, producer_id=-1)
    assert durable(other.group()) == before


def test_the_members_continue_after_a_restart() -> None:
    coordinator = Coordinator()
    leader, follower = stable_group(coordinator)
    coordinator.restart()
    for one in (leader, follower):
        assert coordinator.send(heartbeat_request(one)).error is ErrorCode.NONE
        assert coordinator.send(sync_request(one)).response.assignment == f"assignment of {one}".encode()
    assert coordinator.send(join_request(follower)).response.generation_id == 1


def test_every_member_has_a_full_session_from_the_restart_on() -> None:
    coordinator = Coordinator()
    leader, silent = stable_group(coordinator)
    coordinator.advance(SESSION_TIMEOUT_MS - 1)
    coordinator.restart()
    coordinator.advance(SESSION_TIMEOUT_MS - 1)
    assert coordinator.send(heartbeat_request(leader)).error is ErrorCode.NONE
    coordinator.advance(1 + SESSION_TIMEOUT_MS // 10)
    assert list(coordinator.group().members) == [leader]
    assert coordinator.send(heartbeat_request(silent)).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_is_forgotten_by_a_restart() -> None:
    coordinator = Coordinator()
    leader, follower = stable_group(coordinator)
    newcomer, _ = start_joining(coordinator)
    coordinator.restart()
    assert coordinator.describe("group").group_state == "Stable"
    assert coordinator.send(heartbeat_request(leader)).error is ErrorCode.NONE
    assert coordinator.send(heartbeat_request(follower)).error is ErrorCode.NONE
    assert coordinator.send(join_request(newcomer)).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_without_a_generation_is_not_loaded() -> None:
    coordinator = Coordinator()
    start_joining(coordinator)
    assert coordinator.written() == []
    coordinator.restart()
    assert not coordinator.has_group()


def test_a_deleted_group_does_not_exist_after_a_restart() -> None:
    coordinator = Coordinator()
    (one,) = stable_group(coordinator, {})
    coordinator.send(leave_request(one))
    assert coordinator.delete_group("group").error is ErrorCode.NONE
    coordinator.restart()
    assert not coordinator.has_group()


# -- a record of our own -----------------------------------------------------------------------------------------------


def test_a_rewritten_record_keeps_unknown_fields() -> None:
    """The other protocols of the members, and the members that have not joined yet."""
    coordinator = Coordinator()
    both = {"sticky": b"1", "range": b"2"}
    leader, _ = join_all(coordinator, {"protocols": {"range": b"2"}}, {"protocols": both})
    pending = coordinator.send(join_request()).response.member_id
    members = dict(coordinator.group().members)
    coordinator.send(sync_request(leader, 1, {leader: b"all"}))
    group = coordinator.group()
    assert group.members == members
    assert [one.protocols for one in group.members.values()] == [{"range": b"2"}, both]
    assert group.pending_members.keys() == {pending}
    assert group.pending_sync_members == set(members) - {leader}


def test_a_rebalance_that_has_begun_is_not_ended_by_the_record_of_the_generation_before() -> None:
    """As when a consumer group has become a classic one, whose first rebalance begins with the same decision."""
    coordinator = Coordinator()
    leader, follower = stable_group(coordinator)
    waiting = coordinator.send(join_request(leader))
    (record,) = coordinator.written()
    for one in record.value.members:
        one.assignment = b"other"
    replay(coordinator, record.value)
    assert coordinator.describe("group").group_state == "PreparingRebalance"
    assert {one.member_assignment for one in coordinator.describe("group").members} == {b"other"}
    coordinator.send(join_request(follower))
    assert waiting.response.generation_id == 2


def test_a_tombstone_ends_the_deadlines_of_the_group() -> None:
    coordinator = Coordinator()
    stable_group(coordinator)
    coordinator.send(join_request())
    replay(coordinator, None)
    assert not coordinator.has_group()
    assert not [name for name in coordinator.states.deadlines._deadlines if name[0] == "group"]


# -- arbitrary records -------------------------------------------------------------------------------------------------


def test_a_tombstone_of_an_unknown_group_is_ignored() -> None:
    coordinator = Coordinator()
    replay(coordinator, None)
    assert not coordinator.has_group()


def test_a_later_generation_replaces_an_earlier_one() -> None:
    coordinator = Coordinator()
    replay(coordinator, generation(member("a", subscription=b"1"), member("b", group_instance_id="x")))
    replay(
        coordinator,
        generation(
            member("b", group_instance_id="y", assignment=b"3", client_id="app"),
            member("c"),
            generation=6,
        ),
    )
    group = coordinator.group()
    assert group.static_members == {"y": "b"}
    assert (group.members["b"].assignment, group.members["b"].client_id) == (b"3", "app")
    replay(
        coordinator,
        generation(member("b", group_instance_id="y", subscription=b"2"), member("c"), generation=4, protocol="sticky"),
    )
    assert (group.generation_id, group.protocol_name, group.leader_id) == (4, "sticky", "b")
    assert group.static_members == {"y": "b"}
    assert group.members["b"].protocols == {"sticky": b"2"}
    assert group.protocol_counts.supported_by(2) == {"sticky"}
    replay(coordinator, generation(generation=6))
    assert coordinator.describe("group").group_state == "Empty"
    assert coordinator.describe("group").members == []


def test_before_version_1_the_rebalance_timeout_was_the_session_timeout() -> None:
    coordinator = Coordinator()
    replay(coordinator, generation(member(session_timeout=7000, rebalance_timeout=-1)))
    assert coordinator.group().members["member"].rebalance_timeout_ms == 7000


def test_an_empty_group_of_unknown_age_keeps_offsets_from_their_commit_on() -> None:
    coordinator = Coordinator()
    replay(coordinator, generation(current_state_timestamp=-1))
    assert coordinator.group().expiration_base_ms(9) == 9
    replay(coordinator, generation(current_state_timestamp=20))
    assert coordinator.group().expiration_base_ms(9) == 20


@pytest.mark.parametrize("leader", [None, "stranger"])
def test_a_generation_without_its_leader_has_one(leader: str | None) -> None:
    coordinator = Coordinator()
    replay(coordinator, generation(member("a"), member("b"), leader=leader))
    coordinator.send(leave_request("b"))
    assert coordinator.send(join_request("a")).response.leader == "a"


def test_members_without_a_protocol_are_loaded_and_end_with_their_sessions() -> None:
    coordinator = Coordinator()
    replay(coordinator, generation(member(), protocol=None))
    assert coordinator.describe("group").members[0].member_id == "member"
    assert coordinator.group().is_subscribed_to("any")
    assert coordinator.send(heartbeat_request("member", 5)).error is ErrorCode.NONE
    coordinator.advance(SESSION_TIMEOUT_MS)
    assert coordinator.describe("group").group_state == "Empty"


def test_two_members_of_one_instance_id() -> None:
    coordinator = Coordinator()
    replay(
        coordinator,
        generation(member("a", group_instance_id="x"), member("b", group_instance_id="x")),
    )
    assert coordinator.send(leave_request("a", "b")).response.error_code == ErrorCode.NONE
    assert coordinator.describe("group").group_state == "Empty"


# -- subscriptions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subscriptions", "protocol_type", "of_a", "of_b"),
    [
        ([subscription("a")], "consumer", True, False),
        ([subscription("a"), subscription("b", user_data=b"x")], "consumer", True, True),
        ([b"\x00\x03" + subscription("a")[2:] + b"later fields"], "consumer", True, False),
        ([subscription("a"), b"what"], "consumer", True, True),  # it cannot be read, so it may be anything
        ([subscription("a"), b""], "consumer", True, True),
        ([subscription("a"), b"\x00\x00\x7f\xff\xff\xff"], "consumer", True, True),
        ([subscription("a")], "connect", False, False),
    ],
)
def test_which_topics_a_group_is_subscribed_to(
    subscriptions: list[bytes], protocol_type: str, of_a: bool, of_b: bool
) -> None:
    coordinator = Coordinator()
    facts = [{"protocol_type": protocol_type, "protocols": {"range": one}} for one in subscriptions]
    members = stable_group(coordinator, *facts)
    assert coordinator.group().is_subscribed_to("a") is of_a
    assert coordinator.group().is_subscribed_to("b") is of_b
    coordinator.restart()
    assert coordinator.group().is_subscribed_to("a") is of_a
    assert coordinator.group().is_subscribed_to("b") is of_b
    coordinator.send(leave_request(*members))
    assert not coordinator.group().is_subscribed_to("a")


def test_a_group_whose_members_join_for_the_first_time_may_be_subscribed_to_anything() -> None:
    coordinator = Coordinator()
    start_joining(coordinator, protocols={"range": subscription("a")})
    assert coordinator.group().is_subscribed_to("b")


def test_a_simple_group_has_offsets_only() -> None:
    coordinator = Coordinator()
    group = group_or_simple_group(coordinator.states, "group")
    assert group_or_simple_group(coordinator.states, "group") is group
    assert (group.state_name, group.protocol_type) == ("Empty", "")
    assert not group.is_subscribed_to("a")
    assert group.expiration_base_ms(9) == 9
    assert group.check_offset_commit("", None, -1, transactional=False, api_version=9) is None
    assert group.tombstones() == [Record(GroupMetadataKey(group="group"), None)]
    _, caller = start_joining(coordinator)
    coordinator.advance(3000)
    assert caller.response.generation_id == 1


# -- leaving -----------------------------------------------------------------------------------------------------------


def test_waiting_callers_get_a_response_when_the_shard_moves() -> None:
    coordinator = Coordinator()
    leader, follower = join_all(coordinator, {}, {})
    waiting: list[FakeCaller] = [coordinator.send(sync_request(follower))]
    request = join_request(group_id="other")
    waiting.append(coordinator.send(request, 3))
    coordinator.runtime.close()
    assert [caller.error for caller in waiting] == [ErrorCode.NOT_COORDINATOR] * 2
    assert coordinator.send(heartbeat_request(leader)).error is ErrorCode.NOT_COORDINATOR
