"""Every request in every state: the table of `moldau.group_coordinator.classic.state`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from moldau.protocol.errors import ErrorCode, KafkaError

from ...coordinator.harness import EPOCH_MS, FakeCaller
from ..harness import Coordinator
from .actors import (
    heartbeat_request,
    join_all,
    join_request,
    leave_request,
    stable_group,
    subscription,
    sync_request,
)

OTHER = {"range": b"other metadata"}


def empty() -> tuple[Coordinator, str, str]:
    coordinator = Coordinator()
    leader, follower = stable_group(coordinator)
    coordinator.send(leave_request(leader, follower))
    return coordinator, leader, follower


def preparing() -> tuple[Coordinator, str, str]:
    """Its leader has joined again, the follower has not."""
    coordinator = Coordinator()
    leader, follower = stable_group(coordinator)
    coordinator.send(join_request(leader))
    return coordinator, leader, follower


def completing() -> tuple[Coordinator, str, str]:
    coordinator = Coordinator()
    leader, follower = join_all(coordinator, {}, {})
    return coordinator, leader, follower


def stable() -> tuple[Coordinator, str, str]:
    coordinator = Coordinator()
    leader, follower = stable_group(coordinator)
    return coordinator, leader, follower


STATES = {
    "Empty": (empty, 2),
    "PreparingRebalance": (preparing, 1),
    "CompletingRebalance": (completing, 1),
    "Stable": (stable, 1),
}

WAITS = "waits"
NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS

Ask = Callable[[Coordinator, str, str, int], FakeCaller]


def new_member(coordinator: Coordinator, leader: str, follower: str, generation_id: int) -> FakeCaller:
    return coordinator.send(join_request(), 3)


def new_static_member(coordinator: Coordinator, leader: str, follower: str, generation_id: int) -> FakeCaller:
    return coordinator.send(join_request(instance_id="new"))


def leader_joins(coordinator: Coordinator, leader: str, follower: str, generation_id: int) -> FakeCaller:
    return coordinator.send(join_request(leader))


def follower_joins(coordinator: Coordinator, leader: str, follower: str, generation_id: int) -> FakeCaller:
    return coordinator.send(join_request(follower))


def follower_joins_changed(coordinator: Coordinator, leader: str, follower: str, generation_id: int) -> FakeCaller:
    return coordinator.send(join_request(follower, protocols=OTHER))


def leader_syncs(coordinator: Coordinator, leader: str, follower: str, generation_id: int) -> FakeCaller:
    return coordinator.send(sync_request(leader, generation_id, {leader: b"1", follower: b"2"}))


def follower_syncs(coordinator: Coordinator, leader: str, follower: str, generation_id: int) -> FakeCaller:
    return coordinator.send(sync_request(follower, generation_id))


def heartbeat(coordinator: Coordinator, leader: str, follower: str, generation_id: int) -> FakeCaller:
    return coordinator.send(heartbeat_request(follower, generation_id))


def leave(coordinator: Coordinator, leader: str, follower: str, generation_id: int) -> FakeCaller:
    return coordinator.send(leave_request(follower))


@pytest.mark.parametrize(
    ("ask", "state", "answer", "state_after"),
    [
        (new_member, "Empty", WAITS, "PreparingRebalance"),
        (new_member, "PreparingRebalance", WAITS, "PreparingRebalance"),
        (new_member, "CompletingRebalance", WAITS, "PreparingRebalance"),
        (new_member, "Stable", WAITS, "PreparingRebalance"),
        (new_static_member, "Empty", WAITS, "PreparingRebalance"),
        (new_static_member, "PreparingRebalance", WAITS, "PreparingRebalance"),
        (new_static_member, "CompletingRebalance", WAITS, "PreparingRebalance"),
        (new_static_member, "Stable", WAITS, "PreparingRebalance"),
        (leader_joins, "Empty", UNKNOWN, "Empty"),
        (leader_joins, "PreparingRebalance", WAITS, "PreparingRebalance"),
        (leader_joins, "CompletingRebalance", NONE, "CompletingRebalance"),
        (leader_joins, "Stable", WAITS, "PreparingRebalance"),
        (follower_joins, "Empty", UNKNOWN, "Empty"),
        (follower_joins, "PreparingRebalance", NONE, "CompletingRebalance"),
        (follower_joins, "CompletingRebalance", NONE, "CompletingRebalance"),
        (follower_joins, "Stable", NONE, "Stable"),
        (follower_joins_changed, "Empty", UNKNOWN, "Empty"),
        (follower_joins_changed, "PreparingRebalance", NONE, "CompletingRebalance"),
        (follower_joins_changed, "CompletingRebalance", WAITS, "PreparingRebalance"),
        (follower_joins_changed, "Stable", WAITS, "PreparingRebalance"),
        (leader_syncs, "Empty", UNKNOWN, "Empty"),
        (leader_syncs, "PreparingRebalance", REBALANCE, "PreparingRebalance"),
        (leader_syncs, "CompletingRebalance", NONE, "Stable"),
        (leader_syncs, "Stable", NONE, "Stable"),
        (follower_syncs, "Empty", UNKNOWN, "Empty"),
        (follower_syncs, "PreparingRebalance", REBALANCE, "PreparingRebalance"),
        (follower_syncs, "CompletingRebalance", WAITS, "CompletingRebalance"),
        (follower_syncs, "Stable", NONE, "Stable"),
        (heartbeat, "Empty", UNKNOWN, "Empty"),
        (heartbeat, "PreparingRebalance", REBALANCE, "PreparingRebalance"),
        (heartbeat, "CompletingRebalance", NONE, "CompletingRebalance"),
        (heartbeat, "Stable", NONE, "Stable"),
        (leave, "Empty", UNKNOWN, "Empty"),
        # The leader has joined, and no other member is missing.
        (leave, "PreparingRebalance", NONE, "CompletingRebalance"),
        (leave, "CompletingRebalance", NONE, "PreparingRebalance"),
        (leave, "Stable", NONE, "PreparingRebalance"),
    ],
)
def test_each_request_in_each_state(ask: Ask, state: str, answer: object, state_after: str) -> None:
    make, generation_id = STATES[state]
    coordinator, leader, follower = make()
    assert coordinator.describe("group").group_state == state
    caller = ask(coordinator, leader, follower, generation_id)
    if answer is WAITS:
        assert caller.waits
    elif ask is leave:
        assert caller.response.members[0].error_code == answer
    else:
        assert caller.error is answer
    assert coordinator.describe("group").group_state == state_after


@pytest.mark.parametrize("state", STATES)
def test_an_unknown_member_is_rejected_in_every_state(state: str) -> None:
    make, generation_id = STATES[state]
    coordinator, _, _ = make()
    group = coordinator.group()
    members = dict(group.members)
    assert coordinator.send(join_request("stranger")).error is UNKNOWN
    assert coordinator.send(sync_request("stranger", generation_id)).error is UNKNOWN
    assert coordinator.send(heartbeat_request("stranger", generation_id)).error is UNKNOWN
    assert coordinator.send(leave_request("stranger")).response.members[0].error_code == UNKNOWN
    assert group.members == members
    assert group.state_name == state


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance", "Stable"])
@pytest.mark.parametrize("wrong", [-1, 0, 2])
def test_another_generation_is_rejected_in_every_state(state: str, wrong: int) -> None:
    make, _ = STATES[state]
    coordinator, leader, follower = make()
    assert coordinator.send(sync_request(leader, wrong, {leader: b"1"})).error is ErrorCode.ILLEGAL_GENERATION
    assert coordinator.send(heartbeat_request(follower, wrong)).error is ErrorCode.ILLEGAL_GENERATION
    assert coordinator.describe("group").group_state == state


def test_requests_for_a_missing_group_are_rejected() -> None:
    coordinator = Coordinator()
    assert coordinator.send(join_request("member")).error is UNKNOWN
    assert coordinator.send(sync_request("member")).error is UNKNOWN
    assert coordinator.send(heartbeat_request("member")).error is UNKNOWN
    response = coordinator.send(leave_request("member", ("", "instance"))).response
    assert response.error_code == NONE
    assert [(member.member_id, member.group_instance_id, member.error_code) for member in response.members] == [
        ("member", None, UNKNOWN),
        ("", "instance", UNKNOWN),
    ]
    assert not coordinator.has_group()


# -- rules for offsets and deletion ------------------------------------------------------------------------------------


def commit(coordinator: Coordinator, member_id: str, generation_id: int, *, transactional: bool = False) -> ErrorCode:
    try:
        check = coordinator.group().check_offset_commit(
            member_id, None, generation_id, transactional=transactional, api_version=9
        )
    except KafkaError as error:
        return error.code
    assert check is None
    return NONE


@pytest.mark.parametrize(
    ("state", "of_member", "of_member_in_transaction", "without_member", "without_member_in_transaction"),
    [
        ("Empty", UNKNOWN, UNKNOWN, NONE, NONE),
        ("PreparingRebalance", NONE, NONE, UNKNOWN, NONE),
        ("CompletingRebalance", REBALANCE, NONE, UNKNOWN, NONE),
        ("Stable", NONE, NONE, UNKNOWN, NONE),
    ],
)
def test_which_members_may_commit_in_which_state(
    state: str,
    of_member: ErrorCode,
    of_member_in_transaction: ErrorCode,
    without_member: ErrorCode,
    without_member_in_transaction: ErrorCode,
) -> None:
    make, generation_id = STATES[state]
    coordinator, _, follower = make()
    assert commit(coordinator, follower, generation_id) is of_member
    assert commit(coordinator, follower, generation_id, transactional=True) is of_member_in_transaction
    assert commit(coordinator, "", -1) is without_member
    assert commit(coordinator, "", -1, transactional=True) is without_member_in_transaction
    assert commit(coordinator, "stranger", generation_id) is UNKNOWN
    if state != "Empty":
        assert commit(coordinator, follower, generation_id + 1) is ErrorCode.ILLEGAL_GENERATION


def delete(check: Callable[[], None]) -> ErrorCode:
    try:
        check()
    except KafkaError as error:
        return error.code
    return NONE


@pytest.mark.parametrize("state", STATES)
def test_only_an_empty_group_may_be_deleted(state: str) -> None:
    make, _ = STATES[state]
    coordinator, _, _ = make()
    allowed = NONE if state == "Empty" else ErrorCode.NON_EMPTY_GROUP
    assert delete(coordinator.group().check_delete) is allowed
    assert coordinator.delete_group("group").error is allowed
    assert coordinator.has_group() is (allowed is not NONE)


@pytest.mark.parametrize("state", STATES)
def test_offsets_of_consumers_may_be_deleted_in_every_state(state: str) -> None:
    make, _ = STATES[state]
    coordinator, _, _ = make()
    assert delete(coordinator.group().check_offset_delete) is NONE


def test_offsets_of_others_may_be_deleted_when_the_group_is_empty_only() -> None:
    coordinator = Coordinator()
    (member,) = stable_group(coordinator, {"protocol_type": "connect"})
    assert delete(coordinator.group().check_offset_delete) is ErrorCode.NON_EMPTY_GROUP
    coordinator.send(leave_request(member))
    assert delete(coordinator.group().check_offset_delete) is NONE


@pytest.mark.parametrize(
    ("state", "protocol_type", "base_ms"),
    [
        ("Empty", "consumer", EPOCH_MS + 5000),
        ("Empty", "connect", EPOCH_MS + 5000),
        ("Stable", "consumer", 7),
        ("Stable", "connect", None),
        ("PreparingRebalance", "consumer", None),
        ("CompletingRebalance", "consumer", None),
    ],
)
def test_since_when_an_offset_grows_old(state: str, protocol_type: str, base_ms: int | None) -> None:
    """Of a group with members, when its topics are known; of an empty one, since the last member left."""
    coordinator = Coordinator()
    protocols = {"range": subscription("topic")}
    facts = {"protocol_type": protocol_type, "protocols": protocols}
    if state == "CompletingRebalance":
        join_all(coordinator, facts)
    else:
        (member,) = stable_group(coordinator, facts)
        if state == "Empty":
            coordinator.advance(5000 - coordinator.now_ms)
            coordinator.send(leave_request(member))
        elif state == "PreparingRebalance":
            coordinator.send(join_request(protocols=protocols), 3)
    assert coordinator.describe("group").group_state == state
    assert coordinator.group().expiration_base_ms(7) == base_ms
