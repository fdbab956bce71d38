"""A member of a consumer group (KIP-848) that behaves like the Java consumer.

It only sends heartbeats. A heartbeat contains all fields if the member joins, or if it is unknown whether the previous
one arrived; otherwise only fields that have changed. The member revokes the partitions that are missing in its
assignment, takes the new ones, and reports the result immediately. A fenced member discards its partitions and rejoins
with the same member ID.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

from .client import BACKOFF_MS, RETRIED_ERRORS, Client

if TYPE_CHECKING:
    from .calls import Call
    from .world import World

JOINING_EPOCH = 0
LEAVING_EPOCH = -1
LEAVING_STATIC_EPOCH = -2

IdPartition = tuple[bytes, int]

FATAL_ERRORS = {
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.UNRELEASED_INSTANCE_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
}
"""The Java consumer raises these errors in `poll`."""


class State(enum.Enum):
    JOINING = "joining"
    STABLE = "stable"
    ACKNOWLEDGING = "acknowledging"
    STALE = "stale"
    """It has left because its application does not poll. It rejoins with the next poll."""


class ConsumerClient(Client):
    """One process that is a member or tries to become one."""

    def __init__(
        self,
        world: World,
        name: str,
        group_id: str,
        *,
        topics: frozenset[str],
        regex: str | None = None,
        instance_id: str | None = None,
        server_assignor: str | None = None,
        api_version: int = 1,
        rebalance_timeout_ms: int = 10_000,
    ) -> None:
        super().__init__(world, name, group_id)
        self.topics = self.topics_all_along = topics
        self.regex = regex
        # A static member inherits the subscription of its predecessor unless it sends its own.
        self._has_had_regex = regex is not None or instance_id is not None
        self.instance_id = instance_id
        self.server_assignor = server_assignor
        self.api_version = api_version
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.state = State.JOINING
        # Since version 1 the client generates its member ID (KIP-1082).
        self.member_id = world.new_uuid() if api_version >= 1 else ""
        self.epoch = JOINING_EPOCH
        self.owned: frozenset[IdPartition] = frozenset()
        self.busy_until_ms = 0
        """Until then the application does not poll: the member sends heartbeats, but revokes no partitions."""
        self._busy_since_ms = 0
        self._target: frozenset[IdPartition] | None = None
        self._reconcile_at_ms = 0
        self._heartbeat_at_ms = 0
        self._heartbeat_interval_ms = 5000
        self._sent: dict[str, Any] = {}

    @property
    def owner(self) -> str:
        """Its identity in the group."""
        return self.member_id

    def may_read(self, topic: str) -> bool:
        """Whether it subscribes to this topic."""
        return topic in self.topics or (self.regex is not None and self.world.matches(self.regex, topic))

    # -- acting --------------------------------------------------------------------------------------------------------

    def next_act_ms(self) -> int | None:
        if not self.is_alive:
            return None
        times = []
        if self.busy_until_ms:
            times.append(self.busy_until_ms)
            if self.state is not State.STALE:
                times.append(self._busy_since_ms + self.rebalance_timeout_ms)
        elif self._target is not None:
            times.append(self._reconcile_at_ms)
        if "heartbeat" not in self.waiting and self.state is not State.STALE:
            times.append(self._heartbeat_at_ms)
        return min(times) if times else None

    def act(self) -> None:
        if not self.is_alive:
            return
        now_ms = self.now_ms
        if self.busy_until_ms:
            if now_ms >= self._busy_since_ms + self.rebalance_timeout_ms and self.state is not State.STALE:
                self._send_leave()
                self.owned = frozenset()  # for the group; the application has not noticed
                self.state = State.STALE
            if now_ms >= self.busy_until_ms:
                self.busy_until_ms = 0
                if self.state is State.STALE:
                    self._rejoin()
        elif self._target is not None and now_ms >= self._reconcile_at_ms:
            self._reconcile()
        if "heartbeat" not in self.waiting and self.state is not State.STALE and now_ms >= self._heartbeat_at_ms:
            self._send_heartbeat()

    def _reconcile(self) -> None:
        target, self._target = self._target, None
        assert target is not None
        # Topics whose names are unknown have to wait. The names of owned topics are known.
        known = {topic_id for topic_id, _ in self.owned}
        topics = self.world.topics
        named = frozenset(one for one in target if one[0] in known or topics.name_of(one[0]) is not None)
        if named == self.owned and self.state is not State.JOINING and self._sent.get("owned") == named:
            self.state = State.STABLE
            return
        self.owned = named
        self.state = State.ACKNOWLEDGING
        self._sent.pop("owned", None)
        self._heartbeat_at_ms = self.now_ms

    def _send_heartbeat(self) -> None:
        joins = self.epoch == JOINING_EPOCH
        if joins:
            self._sent.clear()
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=self.epoch, instance_id=self.instance_id
        )
        if self._sent.get("rebalance timeout") != self.rebalance_timeout_ms:
            self._sent["rebalance timeout"] = request.rebalance_timeout_ms = self.rebalance_timeout_ms
        if self._sent.get("topics") != self.topics:
            self._sent["topics"] = self.topics
            request.subscribed_topic_names = sorted(self.topics)
        if self._has_had_regex and self._sent.get("regex") != (self.regex or ""):
            self._sent["regex"] = self.regex or ""
            request.subscribed_topic_regex = self.regex or ""
        if self.server_assignor is not None and self._sent.get("assignor") != self.server_assignor:
            self._sent["assignor"] = request.server_assignor = self.server_assignor
        if self._sent.get("owned") != self.owned:
            self._sent["owned"] = self.owned
            topics: dict[bytes, list[int]] = {}
            for topic_id, partition in sorted(self.owned):
                topics.setdefault(topic_id, []).append(partition)
            request.topic_partitions = [TopicPartitions(topic_id=one, partitions=topics[one]) for one in topics]
        if self.state is State.ACKNOWLEDGING:
            self.state = State.STABLE
        self._heartbeat_at_ms = self.now_ms + self._heartbeat_interval_ms
        self.send("heartbeat", request, self.api_version)

    def subscribe(self, topics: frozenset[str], regex: str | None) -> None:
        """The application changes its subscription."""
        self.topics = topics
        self.topics_all_along &= topics
        self.regex = regex
        self._has_had_regex |= regex is not None
        self._heartbeat_at_ms = self.now_ms

    def be_busy(self, for_ms: int) -> None:
        self._busy_since_ms = self.now_ms
        self.busy_until_ms = self.now_ms + for_ms

    def leave(self) -> None:
        """The process shuts down cleanly; a static member may rejoin within its session."""
        self.owned = frozenset()
        if self.member_id and self.state is not State.STALE:
            self._send_leave()
        self.stop()

    def _send_leave(self) -> None:
        epoch = LEAVING_EPOCH if self.instance_id is None else LEAVING_STATIC_EPOCH
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=epoch, instance_id=self.instance_id
        )
        self.forget("heartbeat")
        self.send("leave", request, self.api_version)

    def _rejoin(self) -> None:
        self.owned = frozenset()
        self._target = None
        self.epoch = JOINING_EPOCH
        self.state = State.JOINING
        self._sent.clear()
        self._heartbeat_at_ms = self.now_ms

    def commit(self) -> None:
        """Commit offsets of some of its partitions."""
        names = self.world.topics.name_of
        owned = sorted((name, one) for topic_id, one in self.owned if (name := names(topic_id)) is not None)
        if "commit" in self.waiting or self.epoch <= 0 or not owned:
            return
        request = self.commit_request(
            self.world.some_of(owned), member_id=self.member_id, generation_or_epoch=self.epoch
        )
        if request is not None:
            self.send("commit", request, 10)

    # -- responses -----------------------------------------------------------------------------------------------------

    def lost(self, slot: str, call: Call) -> None:
        if slot == "heartbeat":
            self._retry()

    def _retry(self) -> None:
        self._sent.clear()
        self._heartbeat_at_ms = self.now_ms + BACKOFF_MS

    def on_response(self, slot: str, call: Call, response: Any) -> None:
        if slot == "heartbeat":
            self._acknowledged(call.sent, response)

    def _acknowledged(self, request: ConsumerGroupHeartbeatRequest, response: ConsumerGroupHeartbeatResponse) -> None:
        match ErrorCode(response.error_code):
            case ErrorCode.NONE:
                assert response.member_epoch > 0
                assert response.member_epoch >= self.epoch, f"{self}: its epoch decreased"
                assert response.member_id == self.member_id or not self.member_id
                self.member_id = response.member_id or ""
                self.epoch = response.member_epoch
                self._heartbeat_interval_ms = response.heartbeat_interval_ms
                if response.assignment is not None:
                    self._target = frozenset(
                        (topic.topic_id, one)
                        for topic in response.assignment.topic_partitions
                        for one in topic.partitions
                    )
                    self._reconcile_at_ms = self.now_ms + self.world.random.randrange(300)
                elif self.state is State.JOINING:
                    self.state = State.STABLE
            case ErrorCode.FENCED_MEMBER_EPOCH | ErrorCode.UNKNOWN_MEMBER_ID:
                self._rejoin()
            case error if error in FATAL_ERRORS:
                self.world.note("{} stops: {!r}", self, error)
                self.stop()
            case error:
                assert error in RETRIED_ERRORS, f"{self}: ConsumerGroupHeartbeat: {error!r} {response.error_message}"
                self._retry()
