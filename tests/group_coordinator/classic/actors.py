"""Requests of members of a classic group, and groups in each state."""

from __future__ import annotations

from collections.abc import Mapping

from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from moldau.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from moldau.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

from ...coordinator.harness import FakeCaller
from ..harness import Coordinator

SESSION_TIMEOUT_MS = 10_000
REBALANCE_TIMEOUT_MS = 60_000
INITIAL_DELAY_MS = 3000

RANGE = {"range": b"range metadata"}


def subscription(*topics: str, user_data: bytes | None = None) -> bytes:
    """A consumer's metadata in version 0, byte for byte."""
    data = (0).to_bytes(2, "big") + len(topics).to_bytes(4, "big")
    for topic in topics:
        data += len(topic).to_bytes(2, "big") + topic.encode()
    return data + (b"\xff\xff\xff\xff" if user_data is None else len(user_data).to_bytes(4, "big") + user_data)


def join_request(
    member_id: str = "",
    *,
    group_id: str = "group",
    instance_id: str | None = None,
    protocols: dict[str, bytes] | None = None,
    protocol_type: str = "consumer",
    session_timeout_ms: int = SESSION_TIMEOUT_MS,
    rebalance_timeout_ms: int = REBALANCE_TIMEOUT_MS,
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocols=[
            JoinGroupRequestProtocol(name=name, metadata=metadata)
            for name, metadata in (RANGE if protocols is None else protocols).items()
        ],
    )


def sync_request(
    member_id: str,
    generation_id: int = 1,
    assignments: dict[str, bytes] | None = None,
    *,
    instance_id: str | None = None,
    protocol_type: str | None = None,
    protocol_name: str | None = None,
) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id="group",
        generation_id=generation_id,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        assignments=[
            SyncGroupRequestAssignment(member_id=one, assignment=assignment)
            for one, assignment in (assignments or {}).items()
        ],
    )


def heartbeat_request(member_id: str, generation_id: int = 1, instance_id: str | None = None) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id="group", generation_id=generation_id, member_id=member_id, group_instance_id=instance_id
    )


def leave_request(*members: str | tuple[str, str | None]) -> LeaveGroupRequest:
    """Of member ids, or of pairs of member id and instance id."""
    pairs = [(member, None) if isinstance(member, str) else member for member in members]
    return LeaveGroupRequest(
        group_id="group",
        members=[
            MemberIdentity(member_id=member_id, group_instance_id=instance_id) for member_id, instance_id in pairs
        ],
    )


def start_joining(coordinator: Coordinator, **facts: object) -> tuple[str, FakeCaller]:
    """A new member joins, with the extra request that returns its ID. Returns the ID, and the caller that waits."""
    request = join_request(**facts)  # type: ignore[arg-type]
    if request.group_instance_id is not None:
        caller = coordinator.send(request)
        return next(reversed(coordinator.group().members)), caller
    member_id = coordinator.send(request).response.member_id
    request.member_id = member_id
    return member_id, coordinator.send(request)


def join_all(coordinator: Coordinator, *facts: Mapping[str, object]) -> list[str]:
    """These members make the first generation of a group; their ids, the leader's first."""
    waiting = [start_joining(coordinator, **one) for one in facts]
    # The first rebalance waits, and again as long if another member has joined.
    coordinator.advance(INITIAL_DELAY_MS if len(waiting) == 1 else 2 * INITIAL_DELAY_MS)
    for _, caller in waiting:
        assert caller.response.error_code == 0
    return [member_id for member_id, _ in waiting]


def sync_all(coordinator: Coordinator, generation_id: int, leader: str, *others: str) -> None:
    """All send SyncGroup, the leader last; each gets its own id as its assignment."""
    waiting = [coordinator.send(sync_request(member_id, generation_id)) for member_id in others]
    assignments = {member_id: f"assignment of {member_id}".encode() for member_id in (leader, *others)}
    waiting.append(coordinator.send(sync_request(leader, generation_id, assignments)))
    for member_id, caller in zip((*others, leader), waiting, strict=True):
        assert caller.response.assignment == assignments[member_id]


def stable_group(coordinator: Coordinator, *facts: Mapping[str, object]) -> list[str]:
    """A stable group of these members at generation 1; by default, of two plain ones. The leader is first."""
    members = join_all(coordinator, *(facts or ({}, {})))
    sync_all(coordinator, 1, *members)
    assert coordinator.describe("group").group_state == "Stable"
    return members
