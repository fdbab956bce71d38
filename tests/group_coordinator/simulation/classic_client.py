"""A member of a classic group that behaves like the Java consumer.

It joins, syncs, sends heartbeats, and rejoins when the coordinator requires it. An eager member revokes all partitions
before it joins. A cooperative one keeps its partitions, revokes those that are missing in the new assignment, and then
rejoins. The leader computes the assignment from its own view of the topics, and rejoins when they have changed.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, NamedTuple

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from moldau.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from moldau.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

from .client import BACKOFF_MS, RETRIED_ERRORS, Client
from .client_assignors import (
    COOPERATIVE,
    Partition,
    Subscription,
    assign,
    assignment_bytes,
    assignment_of,
    subscription_bytes,
    subscription_of,
)

if TYPE_CHECKING:
    from .calls import Call
    from .world import World

CONSUMER = "consumer"
NO_GENERATION = -1


FATAL_ERRORS = {
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
}
"""The Java consumer raises these errors in `poll`."""


class Versions(NamedTuple):
    """The versions of the requests that a release of a client library sends."""

    join: int
    sync: int
    heartbeat: int
    leave: int
    commit: int
    subscription: int


NEW = Versions(join=9, sync=5, heartbeat=4, leave=5, commit=10, subscription=3)
KAFKA_2_4 = Versions(join=6, sync=4, heartbeat=4, leave=4, commit=8, subscription=1)
KAFKA_1 = Versions(join=2, sync=1, heartbeat=1, leave=1, commit=4, subscription=0)


class State(enum.Enum):
    OUT = "out"
    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"


class ClassicClient(Client):
    """One process that is a member or tries to become one."""

    def __init__(
        self,
        world: World,
        name: str,
        group_id: str,
        *,
        topics: frozenset[str],
        assignors: tuple[str, ...],
        protocol_type: str = CONSUMER,
        instance_id: str | None = None,
        versions: Versions = NEW,
        session_timeout_ms: int = 8000,
        rebalance_timeout_ms: int = 10_000,
    ) -> None:
        super().__init__(world, name, group_id)
        self.topics = self.topics_all_along = topics
        self.assignors = assignors
        self.protocol_type = protocol_type
        self.instance_id = instance_id
        self.versions = versions
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.heartbeat_interval_ms = session_timeout_ms // 3
        self.state = State.OUT
        self.member_id = ""
        self.generation = NO_GENERATION
        self.protocol: str | None = None
        self.owned: frozenset[Partition] = frozenset()
        self.synced_with_consumer_group = False
        """Whether a consumer group, which may have classic members, assigned its partitions."""
        self.topic_ids: dict[str, bytes] = {}
        """The IDs of its topics at the time of the assignment."""
        self.busy_until_ms = 0
        """Until then the application does not poll: the member sends heartbeats, but does not join."""
        self._busy_since_ms = 0
        self._wants_to_join = True
        self._has_prepared = False
        self._join_at_ms = 0
        self._heartbeat_at_ms = 0
        self._group_topics: frozenset[str] | None = None  # only in the leader
        self._partition_counts: dict[str, int] = {}

    @property
    def is_cooperative(self) -> bool:
        return COOPERATIVE in self.assignors

    @property
    def owner(self) -> str:
        """Its identity in the group. A static member keeps it when its member ID changes."""
        return self.instance_id or self.member_id

    def may_read(self, topic: str) -> bool:
        """Whether it subscribes to this topic."""
        return topic in self.topics

    # -- acting --------------------------------------------------------------------------------------------------------

    def next_act_ms(self) -> int | None:
        if not self.is_alive:
            return None
        times = []
        if self.busy_until_ms and self.generation != NO_GENERATION:
            times.append(self._busy_since_ms + self.rebalance_timeout_ms)
        if self.busy_until_ms:
            times.append(self.busy_until_ms)
        elif self._may_join():
            times.append(self._join_at_ms)
        if self.state in (State.STABLE, State.SYNCING) and "heartbeat" not in self.waiting:
            times.append(self._heartbeat_at_ms)
        return min(times) if times else None

    def act(self) -> None:
        if not self.is_alive:
            return
        now_ms = self.now_ms
        if self.busy_until_ms:
            if now_ms >= self._busy_since_ms + self.rebalance_timeout_ms and self.generation != NO_GENERATION:
                self._leave_group()
            if now_ms >= self.busy_until_ms:
                self.busy_until_ms = 0
        elif self._may_join() and now_ms >= self._join_at_ms:
            self._join()
            return
        heartbeats = self.state in (State.STABLE, State.SYNCING) and "heartbeat" not in self.waiting
        if heartbeats and now_ms >= self._heartbeat_at_ms:
            self._heartbeat_at_ms = now_ms + self.heartbeat_interval_ms
            request = HeartbeatRequest(
                group_id=self.group_id,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
            )
            self.send("heartbeat", request, self.versions.heartbeat)

    def _may_join(self) -> bool:
        if "membership" in self.waiting:
            return False
        return self._wants_to_join or (self.state is State.STABLE and self._sees_other_topics())

    def _sees_other_topics(self) -> bool:
        counts = self.world.topics.partition_count
        return self._group_topics is not None and self._partition_counts != {t: counts(t) for t in self._group_topics}

    def _join(self) -> None:
        if not self._has_prepared:
            self._has_prepared = True
            if not self.is_cooperative or self.generation == NO_GENERATION:
                self.owned = frozenset()
            self.owned = frozenset(one for one in self.owned if one[0] in self.topics)
        self.state = State.JOINING
        self._group_topics = None
        self._wants_to_join = True
        subscription = Subscription(self.topics, self.owned, self.generation)
        metadata = b"connect"
        if self.protocol_type == CONSUMER:
            metadata = subscription_bytes(subscription, self.versions.subscription)
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name in self.assignors],
        )
        self.send("membership", request, self.versions.join, self.rebalance_timeout_ms + 5000)

    def request_rebalance(self) -> None:
        """The application requests a rebalance (`enforceRebalance`)."""
        self._wants_to_join = True

    def be_busy(self, for_ms: int) -> None:
        self._busy_since_ms = self.now_ms
        self.busy_until_ms = self.now_ms + for_ms

    def leave(self) -> None:
        """The process shuts down cleanly. A static member does not leave: it may rejoin."""
        self._leave_group()
        self.stop()

    def _leave_group(self) -> None:
        if self.instance_id is None and self.member_id and self.state is not State.OUT:
            request = LeaveGroupRequest(
                group_id=self.group_id,
                member_id=self.member_id if self.versions.leave < 3 else "",
                members=[MemberIdentity(member_id=self.member_id)] if self.versions.leave >= 3 else [],
            )
            self.send("leave", request, self.versions.leave)
        self._reset(keep_member_id=False)

    def commit(self) -> None:
        """Commit offsets of some of its partitions."""
        if "commit" in self.waiting or self.generation == NO_GENERATION or not self.owned:
            return
        request = self.commit_request(
            self.world.some_of(sorted(self.owned)),
            member_id=self.member_id,
            generation_or_epoch=self.generation,
            group_instance_id=self.instance_id if self.versions.commit >= 7 else None,
        )
        if request is not None:
            self.send("commit", request, self.versions.commit)

    # -- responses -----------------------------------------------------------------------------------------------------

    def lost(self, slot: str, call: Call) -> None:
        if slot == "membership":
            self._retry()

    def on_response(self, slot: str, call: Call, response: Any) -> None:
        match response:
            case JoinGroupResponse():
                self._joined(call.sent, response)
            case SyncGroupResponse():
                self._synced(call, response)
            case HeartbeatResponse():
                self._acknowledged(call.sent, response)

    def _retry(self) -> None:
        self.state = State.OUT
        self._wants_to_join = True
        self._join_at_ms = self.now_ms + BACKOFF_MS

    def _reset(self, *, keep_member_id: bool) -> None:
        self.state = State.OUT
        self.generation = NO_GENERATION
        self.protocol = None
        if not keep_member_id:
            self.member_id = ""
        self._wants_to_join = True
        self._has_prepared = False
        self._group_topics = None

    def _joined(self, request: JoinGroupRequest, response: JoinGroupResponse) -> None:
        if self.state is not State.JOINING and not response.error_code:
            return  # it was removed, or left, before the response arrived
        match ErrorCode(response.error_code):
            case ErrorCode.NONE:
                self.state = State.SYNCING
                self.generation = response.generation_id
                self.member_id = response.member_id
                self.protocol = response.protocol_name
                self._heartbeat_at_ms = self.now_ms + self.heartbeat_interval_ms
                is_leader = response.leader == response.member_id
                self._sync(self._assign(response) if is_leader else [])
            case ErrorCode.MEMBER_ID_REQUIRED:
                self.state = State.OUT
                self.member_id = response.member_id
            case ErrorCode.UNKNOWN_MEMBER_ID:
                self.state = State.OUT
                if request.member_id == self.member_id:
                    self._reset(keep_member_id=False)
            case error if error in FATAL_ERRORS:
                self.world.note("{} stops: {!r}", self, error)
                self.stop()
            case error:
                assert error in RETRIED_ERRORS or error is ErrorCode.REBALANCE_IN_PROGRESS, (
                    f"{self}: JoinGroup: {error!r}"
                )
                self._retry()

    def _assign(self, response: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        if self.protocol_type != CONSUMER:
            members = [member.member_id for member in response.members]
            return [SyncGroupRequestAssignment(member_id=one, assignment=f"task of {one}".encode()) for one in members]
        members_by_id = {member.member_id: subscription_of(member.metadata) for member in response.members}
        self._group_topics = frozenset().union(*(one.topics for one in members_by_id.values()))
        counts = self.world.topics.partition_count
        self._partition_counts = {topic: counts(topic) for topic in self._group_topics}
        if response.skip_assignment:
            return []
        assigned = assign(response.protocol_name or "", members_by_id, self._partition_counts)
        return [
            SyncGroupRequestAssignment(member_id=member_id, assignment=assignment_bytes(partitions))
            for member_id, partitions in assigned.items()
        ]

    def _sync(self, assignments: list[SyncGroupRequestAssignment]) -> None:
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            assignments=assignments,
        )
        self.send("membership", request, self.versions.sync)

    def _synced(self, call: Call, response: SyncGroupResponse) -> None:
        if self.state is not State.SYNCING or call.sent.generation_id != self.generation:
            return
        match ErrorCode(response.error_code):
            case ErrorCode.NONE:
                before = self.owned
                if self.protocol_type == CONSUMER:
                    self.owned = assignment_of(response.assignment)
                    self.topic_ids = call.topic_ids
                    self.synced_with_consumer_group = self.world.is_consumer_group(self.group_id)
                self.state = State.STABLE
                self._has_prepared = False
                # It has just revoked partitions. The other members can get them after it rejoins.
                self._wants_to_join = self.is_cooperative and not before <= self.owned
            case ErrorCode.UNKNOWN_MEMBER_ID:
                self._reset(keep_member_id=False)
            case ErrorCode.ILLEGAL_GENERATION:
                self._reset(keep_member_id=True)
            case ErrorCode.REBALANCE_IN_PROGRESS:
                self.state = State.OUT
                self._wants_to_join = True
            case ErrorCode.FENCED_INSTANCE_ID:
                self.world.note("{} stops: FENCED_INSTANCE_ID", self)
                self.stop()
            case error:
                assert error in RETRIED_ERRORS, f"{self}: SyncGroup: {error!r}"
                self._retry()

    def _acknowledged(self, request: HeartbeatRequest, response: HeartbeatResponse) -> None:
        is_current = (request.generation_id, request.member_id) == (self.generation, self.member_id)
        match ErrorCode(response.error_code):
            case ErrorCode.NONE:
                pass
            case ErrorCode.REBALANCE_IN_PROGRESS:
                if self.state is State.STABLE:
                    self._wants_to_join = True
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.ILLEGAL_GENERATION as error:
                if is_current:
                    self._reset(keep_member_id=error is ErrorCode.ILLEGAL_GENERATION)
            case ErrorCode.FENCED_INSTANCE_ID:
                self.world.note("{} stops: FENCED_INSTANCE_ID", self)
                self.stop()
            case error:
                # The Java consumer does not retry a heartbeat after COORDINATOR_LOAD_IN_PROGRESS.
                assert error in RETRIED_ERRORS - {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}, (
                    f"{self}: Heartbeat: {error!r}"
                )
