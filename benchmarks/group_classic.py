"""Members of classic groups, without a client library: they join, sync, and rejoin when their heartbeats require it.

All members of a group join at the same time. The server is measured with ``group.initial.rebalance.delay.ms=0``, so the
first member may be alone in a generation. It continues as a client would, but its heartbeats are sent every few
milliseconds instead of every three seconds, because otherwise these would determine the result.

A group is stable when all of its members have synced in one generation. Its leader knows their number, and no member
syncs before the leader has.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..protocol.codec import encode
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ResponseTopicPartition,
)
from ..protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ..protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ..protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ..protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from .group_connections import PATIENCE_SECONDS, DelayQueue, GroupConnections
from .group_load import HEARTBEAT_VERSION, Pair, pair

_JOIN_GROUP_VERSION = 9
_SYNC_GROUP_VERSION = 5
_LEAVE_GROUP_VERSION = 5

_PROTOCOL_TYPE = "consumer"
_PROTOCOL_NAME = "range"
_PROTOCOL_VERSION = 3

_HEARTBEAT_SECONDS = 0.02
_SESSION_TIMEOUT_MS = 1_800_000
"""The maximum that servers allow: no member must time out because others are measured."""


@dataclass(slots=True, eq=False)
class ClassicMember:
    group: ClassicGroup
    connection: int
    member_id: str = ""
    generation: int = -1


@dataclass(slots=True, eq=False)
class ClassicGroup:
    group_id: str
    members: list[ClassicMember] = field(default_factory=list)
    leader: str = ""
    sizes: dict[int, int] = field(default_factory=dict)
    """The number of members of each generation, as reported to its leader."""
    least_generation: int = 0
    """Earlier generations do not count."""

    def is_stable_in(self, generation: int) -> bool:
        return generation >= self.least_generation and self.sizes.get(generation) == len(self.members)


class ClassicGroups:
    """Groups over the same connections; a connection has one member of the groups that are formed together."""

    def __init__(self, connections: GroupConnections, topic: str) -> None:
        self.groups: list[ClassicGroup] = []
        self._connections = connections
        subscription = ConsumerProtocolSubscription(topics=[topic])
        self._subscription = _versioned(encode(subscription, _PROTOCOL_VERSION))
        assigned = [ResponseTopicPartition(topic=topic, partitions=[0])]
        # Opaque to the server, so all members use the same.
        self._assignment = _versioned(
            encode(ConsumerProtocolAssignment(assigned_partitions=assigned), _PROTOCOL_VERSION)
        )

    def form(self, group_ids: Sequence[str], size: int) -> None:
        """Form new groups of ``size`` members, which all join now; returns when each group is stable."""
        connections = iter(range(len(self._connections)))
        formed = [ClassicGroup(group_id) for group_id in group_ids]
        for group in formed:
            group.members = [ClassicMember(group, next(connections)) for _ in range(size)]
        self.groups += formed
        members = _members(formed)
        for member in members:
            self._join(member)
        self._settle(members)

    def remove_one_member_each(self) -> None:
        """One member of each group, except its leader, leaves; returns when the groups are stable without them.

        For groups that were formed together.
        """
        for group in self.groups:
            lost = next(member for member in group.members if member.member_id != group.leader)
            group.members.remove(lost)
            group.least_generation = lost.generation + 1
            self._leave(group, [lost])
        members = _members(self.groups)
        for member in members:
            self._heartbeat(member)
        self._settle(members)

    def heartbeats(self) -> list[Pair]:
        """The heartbeat of every member."""
        return [
            pair(self._heartbeat_of(member), HeartbeatResponse(), HEARTBEAT_VERSION) for member in _members(self.groups)
        ]

    def disband(self) -> None:
        """All members leave."""
        for group in self.groups:
            self._leave(group, group.members)

    # -- requests of members -------------------------------------------------------------------------------------------

    def _join(self, member: ClassicMember) -> None:
        request = JoinGroupRequest(
            group_id=member.group.group_id,
            session_timeout_ms=_SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=_SESSION_TIMEOUT_MS,
            member_id=member.member_id,
            protocol_type=_PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=_PROTOCOL_NAME, metadata=self._subscription)],
        )
        self._connections.ask(member.connection, request, _JOIN_GROUP_VERSION)

    def _sync(self, member: ClassicMember, assignments: list[SyncGroupRequestAssignment]) -> None:
        request = SyncGroupRequest(
            group_id=member.group.group_id,
            generation_id=member.generation,
            member_id=member.member_id,
            protocol_type=_PROTOCOL_TYPE,
            protocol_name=_PROTOCOL_NAME,
            assignments=assignments,
        )
        self._connections.ask(member.connection, request, _SYNC_GROUP_VERSION)

    def _heartbeat(self, member: ClassicMember) -> None:
        self._connections.ask(member.connection, self._heartbeat_of(member), HEARTBEAT_VERSION)

    def _heartbeat_of(self, member: ClassicMember) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id=member.group.group_id, generation_id=member.generation, member_id=member.member_id
        )

    def _leave(self, group: ClassicGroup, members: Iterable[ClassicMember]) -> None:
        leaving = [MemberIdentity(member_id=member.member_id) for member in members]
        request = LeaveGroupRequest(group_id=group.group_id, members=leaving)
        answer: LeaveGroupResponse = self._connections.call(group.members[0].connection, request, _LEAVE_GROUP_VERSION)
        for code in (answer.error_code, *(member.error_code for member in answer.members)):
            _check(code, "leaving")

    # -- responses -----------------------------------------------------------------------------------------------------

    def _settle(self, members: Iterable[ClassicMember]) -> None:
        """Process the responses of these members, each with a pending request, until all of their groups are stable."""
        unsettled = {member.connection: member for member in members}
        delay_queue = DelayQueue(_HEARTBEAT_SECONDS)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while unsettled:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(unsettled)} members are not settled after {PATIENCE_SECONDS:g} s")
            for number, answer in self._connections.answers(delay_queue.seconds_left()):
                if self._process_response(unsettled[number], answer, delay_queue):
                    del unsettled[number]
            for number in delay_queue.pop_due():
                self._heartbeat(unsettled[number])

    def _process_response(self, member: ClassicMember, answer: Any, delay_queue: DelayQueue) -> bool:
        """Process a response; returns whether the member is done."""
        match answer:
            case JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED):
                member.member_id = answer.member_id
                self._join(member)
            case JoinGroupResponse():
                _check(answer.error_code, "joining")
                member.generation = answer.generation_id
                self._sync(member, self._assignments(member, answer))
            case SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS):
                self._join(member)
            case SyncGroupResponse():
                _check(answer.error_code, "syncing")
                if member.group.is_stable_in(member.generation):
                    return True
                delay_queue.later(member.connection)
            case HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS):
                self._join(member)
            case HeartbeatResponse():
                _check(answer.error_code, "a heartbeat")
                delay_queue.later(member.connection)
            case _:
                raise AssertionError(f"unexpected response {type(answer).__name__}")
        return False

    def _assignments(self, member: ClassicMember, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        """The leader's assignments for all members; none from other members."""
        if joined.leader != member.member_id:
            return []
        member.group.leader = member.member_id
        member.group.sizes[joined.generation_id] = len(joined.members)
        return [
            SyncGroupRequestAssignment(member_id=each.member_id, assignment=self._assignment) for each in joined.members
        ]


def _members(groups: Iterable[ClassicGroup]) -> list[ClassicMember]:
    return [member for group in groups for member in group.members]


def _versioned(data: bytes) -> bytes:
    return _PROTOCOL_VERSION.to_bytes(2, "big") + data


def _check(error_code: int, what: str) -> None:
    if error_code:
        raise KafkaError(ErrorCode(error_code), what)
