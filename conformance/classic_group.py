"""A group with the classic protocol, and members that send only what a case requests.

There is no automatic heartbeat and no automatic rejoin. Each member has its own connection, because the response to
JoinGroup or SyncGroup may wait for other members: `start_join` and `start_sync` send, `joined` and `synced` receive.
`ClassicGroup.complete` is for the setup of a case: a generation that is not what the case tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from ..protocol.api import ApiKey
from ..protocol.errors import ErrorCode
from ..protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from ..protocol.messages.heartbeat import HeartbeatRequest
from ..protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ..protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ..protocol.messages.list_groups import ListedGroup, ListGroupsRequest
from ..protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from ..testing.group_requests import leave_request, subscription
from .check import Check
from .committed_offsets import commit_request, committed_before
from .exchange import Connection
from .outcome import InconclusiveError

BATCHED_LEAVE = 3
"""The first version of LeaveGroup with several members."""
MEMBER_ID_REQUIRED = 4
"""The first version of JoinGroup with a second request for new members (KIP-394)."""
JOIN_ATTEMPTS = 10
_GROUP_REMOVED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.COORDINATOR_NOT_AVAILABLE})
"""What a new member gets while the server removes its group, which has no members yet."""
SESSION_MS = 30_000
"""Longer than a case takes."""


class ClassicGroup:
    """A group of a case, and a connection to its coordinator."""

    def __init__(self, c: Check, group_id: str | None = None) -> None:
        """A new group, or an existing name such as the empty one."""
        self.c = c
        self.id = c.group() if group_id is None else group_id
        self.wire = c.coordinator(self.id)

    def member(self, **settings: Any) -> Member:
        """A member with its own connection, which has not joined yet. `settings` are those of `Member`."""
        return Member(self, **settings)

    def neighbor(self) -> ClassicGroup:
        """Another new group with the same coordinator."""
        while True:
            other = ClassicGroup(self.c)
            if other.wire.address == self.wire.address:
                return other

    def keep(self) -> None:
        """Commit an offset, as a step of the setup, so that the group also exists without members.

        Apache Kafka removes groups without members and offsets every ten minutes, and before 4.0 also when any topic
        is deleted.
        """
        committed_before(self.c, self.wire, commit_request(self.id, self.c.topic(), {0: 1}))

    def describe(self, version: int | None = None) -> DescribedGroup:
        """DescribeGroups of this group."""
        groups = self.c.call(DescribeGroupsRequest(groups=[self.id]), version, to=self.wire).groups
        self.c.equal([group.group_id for group in groups], [self.id], "DescribeGroups groups (group_id)")
        return cast(DescribedGroup, groups[0])

    def wait_for_state(self, state: str) -> None:
        """Return when DescribeGroups shows this state."""
        self.c.until(lambda: self.describe().group_state == state, f"the state {state} in DescribeGroups")

    def wait_for_members(self, count: int) -> None:
        """Return when DescribeGroups shows so many members."""
        self.c.until(lambda: len(self.describe().members) == count, f"{count} members in DescribeGroups")

    def complete(self, leader: Member, *others: Member, assignments: Mapping[str, bytes] | None = None) -> None:
        """Complete a generation with all members, as a step of the setup.

        The first member is the leader or, in an empty group, becomes it; all later ones join with it. Each member is
        assigned its own member ID, or what `assignments` has for it.
        """
        with self.c.setup(f"a generation of {self.id} with {len(others) + 1} members"):
            if leader.generation < 0 and others:
                self._complete(leader, (), None)
            self._complete(leader, others, assignments)

    def restarted(self, member: Member, **settings: Any) -> Member:
        """A new process of a static member, which has taken its place, as a step of the setup."""
        after = self.member(instance_id=member.instance_id, **settings)
        with self.c.setup(f"restarting the member {member.instance_id}"):
            self.c.error(after.join().error_code, ErrorCode.NONE, "JoinGroup error_code")
            self.c.error(after.sync().error_code, ErrorCode.NONE, "SyncGroup error_code")
        return after

    def _complete(self, leader: Member, others: tuple[Member, ...], assignments: Mapping[str, bytes] | None) -> None:
        c = self.c
        old = [member for member in others if member.generation >= 0]
        new = [member for member in others if member.generation < 0]
        # A rebalance completes when all members have joined: the new ones must be members before the last old one
        # rejoins.
        for number, member in enumerate(new, len(old) + 2):
            member.start_join()
            self.wait_for_members(number)
        if others:
            leader.start_join()
            for member in old:
                if not new:
                    member.wait_for_rebalance()
                member.start_join()
            answers = [member.joined() for member in (leader, *others)]
        else:
            answers = [leader.join()]
        members = (leader, *others)
        for answer in answers:
            c.error(answer.error_code, ErrorCode.NONE, "JoinGroup error_code")
        c.equal({member.generation for member in members}, {leader.generation}, "the members' generations")
        c.equal({member.leader for member in members}, {leader.member_id}, "the leader")
        sent = assignments or {member.member_id: member.member_id.encode() for member in members}
        for member in members:
            member.start_sync(sent if member is leader else None)
        for member in members:
            synced = member.synced()
            c.error(synced.error_code, ErrorCode.NONE, "SyncGroup error_code")
            c.equal(synced.assignment, sent.get(member.member_id, b""), "SyncGroup assignment")


class Member:
    """A member of a classic group."""

    def __init__(
        self,
        group: ClassicGroup,
        *,
        instance_id: str | None = None,
        protocol_type: str = "consumer",
        protocols: Mapping[str, bytes] | None = None,
        session_timeout_ms: int = SESSION_MS,
        rebalance_timeout_ms: int = SESSION_MS,
        client_id: str = "member",
    ) -> None:
        self.c = group.c
        self.group_id = group.id
        self.instance_id = instance_id
        self.protocol_type = protocol_type
        self.protocols = dict(protocols if protocols is not None else {"range": subscription("a")})
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.reason: str | None = None
        self.member_id = ""
        self.generation = -1
        self.protocol_name: str | None = next(iter(self.protocols), None)
        self.leader = ""
        self.wire = self.c.connect(client_id=client_id, address=group.wire.address)
        self._leaving: set[str] = set()

    # JoinGroup

    def join_request(self) -> JoinGroupRequest:
        """With the current state of this member."""
        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in self.protocols.items()],
            reason=self.reason,
        )

    def ask_join(self, version: int | None = None) -> JoinGroupResponse:
        """One JoinGroup and its response, which does not change this member."""
        return cast(JoinGroupResponse, self.c.call(self.join_request(), version, to=self.wire))

    def take_id(self, version: int | None = None) -> None:
        """The first of the two requests of a new dynamic member (KIP-394): its response has the member ID."""
        for _ in range(JOIN_ATTEMPTS):
            answer = self.ask_join(version)
            if answer.error_code != ErrorCode.COORDINATOR_NOT_AVAILABLE:
                break
        self.c.error(answer.error_code, ErrorCode.MEMBER_ID_REQUIRED, "error_code of the first JoinGroup")
        self.c.true(answer.member_id, "member_id of the first JoinGroup", expected="a member ID", actual="")
        self._take(answer.member_id)

    def start_join(self, version: int | None = None) -> None:
        """Send JoinGroup, after a first request for the member ID if the version requires one."""
        version = self.c.version(ApiKey.JOIN_GROUP) if version is None else version
        if not self.member_id and self.instance_id is None and version >= MEMBER_ID_REQUIRED:
            self.take_id(version)
        self.wire.send(self.join_request(), version)

    def joined(self) -> JoinGroupResponse:
        """The response to `start_join`, from which this member takes its identity and generation."""
        answer = cast(JoinGroupResponse, self.wire.receive())
        if answer.error_code == ErrorCode.NONE:
            self._take(answer.member_id)
            self.generation, self.leader = answer.generation_id, answer.leader
            self.protocol_name = answer.protocol_name
        return answer

    def join(self, version: int | None = None) -> JoinGroupResponse:
        """`start_join` and `joined`.

        A server may forget a group without members, and its new member's ID, between both requests of a new member,
        which then begins again (see `ClassicGroup.keep`). While Apache Kafka before 4.0 removes the group, it responds
        COORDINATOR_NOT_AVAILABLE.
        """
        is_new = not self.member_id and self.instance_id is None
        for attempt in range(JOIN_ATTEMPTS):
            self.start_join(version)
            answer = self.joined()
            if not is_new or answer.error_code not in _GROUP_REMOVED or attempt == JOIN_ATTEMPTS - 1:
                break
            self.member_id = ""
        return answer

    # SyncGroup

    def sync_request(self, assignments: Mapping[str, bytes] | None = None) -> SyncGroupRequest:
        """With the current state of this member; a leader sends the assignments by member ID."""
        return SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=data)
                for member, data in (assignments or {}).items()
            ],
        )

    def start_sync(self, assignments: Mapping[str, bytes] | None = None, version: int | None = None) -> None:
        """Send SyncGroup."""
        version = self.c.version(ApiKey.SYNC_GROUP) if version is None else version
        self.wire.send(self.sync_request(assignments), version)

    def synced(self) -> SyncGroupResponse:
        """The response to `start_sync`."""
        return cast(SyncGroupResponse, self.wire.receive())

    def sync(self, assignments: Mapping[str, bytes] | None = None, version: int | None = None) -> SyncGroupResponse:
        """`start_sync` and `synced`."""
        self.start_sync(assignments, version)
        return self.synced()

    # Heartbeat and LeaveGroup

    def heartbeat(self, version: int | None = None) -> int:
        """The error code of a heartbeat."""
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        return cast(int, self.c.call(request, version, to=self.wire).error_code)

    def wait_for_rebalance(self) -> None:
        """Send heartbeats until a response requires a rejoin."""

        def begins() -> bool:
            found = self.heartbeat()
            self.c.error(found, (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS), "Heartbeat error_code")
            return found == ErrorCode.REBALANCE_IN_PROGRESS

        self.c.until(begins, "a heartbeat with REBALANCE_IN_PROGRESS")

    def leave(self, version: int | None = None, *, reason: str | None = None) -> LeaveGroupResponse:
        """LeaveGroup for this member."""
        version = self.c.version(ApiKey.LEAVE_GROUP) if version is None else version
        if version < BATCHED_LEAVE:
            request = LeaveGroupRequest(group_id=self.group_id, member_id=self.member_id)
        else:
            identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id, reason=reason)
            request = LeaveGroupRequest(group_id=self.group_id, members=[identity])
        return cast(LeaveGroupResponse, self.c.call(request, version, to=self.wire))

    def left(self, version: int | None = None) -> int:
        """The error code of a LeaveGroup for this member, which newer versions have in the member's entry."""
        answer = self.leave(version)
        return answer.error_code or sum(each.error_code for each in answer.members)

    def _take(self, member_id: str) -> None:
        """Use this member ID, and leave with it at the end of the case."""
        self.member_id = member_id
        if member_id not in self._leaving and self.c.target.supports(ApiKey.LEAVE_GROUP, BATCHED_LEAVE):
            self._leaving.add(member_id)
            self.c.at_end(leave_request(self.group_id, (member_id, self.instance_id)), BATCHED_LEAVE)


def listed(c: Check, wire: Connection, request: ListGroupsRequest, version: int | None = None) -> list[ListedGroup]:
    """The groups in a ListGroups response that belong to this case."""
    answer = c.call(request, version, to=wire)
    c.error(answer.error_code, ErrorCode.NONE, "ListGroups error_code")
    return [group for group in answer.groups if group.group_id.startswith(c.prefix)]


def shortest_session_ms(c: Check) -> int:
    """A session timeout for a session that a case lets expire: one second if the server allows it.

    Apache Kafka's default of `group.min.session.timeout.ms` is six seconds. The group of the probe is not used again:
    a member ID that has been given blocks rebalances.
    """
    group = ClassicGroup(c)
    for milliseconds in (1_000, 2_000, 6_000):
        answer = group.member(session_timeout_ms=milliseconds).ask_join()
        if answer.error_code != ErrorCode.INVALID_SESSION_TIMEOUT:
            return milliseconds
    raise InconclusiveError("the server allows no session timeout of 6 seconds or less")
