"""Consumers of both protocols that behave like real ones, one request at a time, and a world that observes all of them.

A consumer of the classic protocol is eager (it revokes all partitions before it rejoins) or cooperative (it keeps its
partitions, and revokes those that are not in its new assignment). A consumer of the new protocol sends heartbeats.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from moldau.group_coordinator.classic.group import ClassicGroup
from moldau.group_coordinator.classic.state import ClassicGroupState
from moldau.group_coordinator.consumer.group import ConsumerGroup
from moldau.protocol.codec import decode, encode
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from moldau.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ResponseTopicPartition,
    TopicPartition,
)
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from moldau.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from moldau.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

from ...coordinator.harness import FakeCaller
from ..harness import Coordinator

GROUP = "group"
SESSION_TIMEOUT_MS = 30_000
REBALANCE_TIMEOUT_MS = 60_000

Owned = frozenset[tuple[str, int]]
NOTHING: Owned = frozenset()


def by_topic(owned: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(owned):
        topics.setdefault(topic, []).append(partition)
    return topics


def subscription(*topics: str, owned: Iterable[tuple[str, int]] = (), version: int = 3, **fields: Any) -> bytes:
    message = ConsumerProtocolSubscription(
        topics=list(topics),
        owned_partitions=[TopicPartition(topic=one, partitions=ids) for one, ids in by_topic(owned).items()],
        **fields,
    )
    return version.to_bytes(2, "big") + encode(message, version)


def assignment(*owned: tuple[str, int], version: int = 3, user_data: bytes | None = None) -> bytes:
    message = ConsumerProtocolAssignment(
        assigned_partitions=[ResponseTopicPartition(topic=one, partitions=ids) for one, ids in by_topic(owned).items()],
        user_data=user_data,
    )
    return version.to_bytes(2, "big") + encode(message, version)


def read_assignment(data: bytes) -> Owned:
    if not data:
        return NOTHING
    message = decode(ConsumerProtocolAssignment, data, int.from_bytes(data[:2], "big"), 2)
    return frozenset((one.topic, index) for one in message.assigned_partitions for index in one.partitions)


def join_request(
    member_id: str = "",
    *,
    instance_id: str | None = None,
    protocols: dict[str, bytes] | None = None,
    protocol_type: str = "consumer",
    session_timeout_ms: int = SESSION_TIMEOUT_MS,
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocols=[
            JoinGroupRequestProtocol(name=name, metadata=metadata)
            for name, metadata in (protocols if protocols is not None else {"range": subscription("t")}).items()
        ],
    )


def consumer_heartbeat(member_id: str = "m", epoch: int = 0, **fields: Any) -> ConsumerGroupHeartbeatRequest:
    if epoch == 0:
        fields = {
            "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS,
            "subscribed_topic_names": ["t"],
            "topic_partitions": [],
        } | fields
    return ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=member_id, member_epoch=epoch, **fields)


class Consumer(ABC):
    """A consumer: its owned partitions from its own view, and `step`, which sends a request and returns whether the
    state changed."""

    def __init__(self, coordinator: Coordinator, name: str, *, instance_id: str | None = None) -> None:
        self.coordinator = coordinator
        self.name = name
        self.instance_id = instance_id
        self.owned = NOTHING
        self.member_id = ""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {self.member_id}: {sorted(self.owned)}>"

    @abstractmethod
    def step(self) -> bool:
        """Send the next request. Returns whether the state changed."""

    @abstractmethod
    def leave(self) -> None:
        """Leave the group."""


class ClassicConsumer(Consumer):
    def __init__(
        self,
        coordinator: Coordinator,
        name: str,
        *,
        instance_id: str | None = None,
        cooperative: bool = False,
        topics: Sequence[str] = ("t",),
    ) -> None:
        super().__init__(coordinator, name, instance_id=instance_id)
        self.cooperative = cooperative
        self.topics = topics
        self.generation = -1
        self.rebalances = 0
        """How often it had an assignment that was not what it had."""
        self._must_join = True
        self._join: FakeCaller | None = None
        self._sync: FakeCaller | None = None

    @property
    def protocol(self) -> str:
        return "cooperative-sticky" if self.cooperative else "range"

    def step(self) -> bool:
        if self._sync is not None:
            return self._synced(self._sync)
        if self._join is not None:
            return self._joined(self._join)
        if self._must_join:
            return self._send_join()
        return self._heartbeat()

    def _send_join(self) -> bool:
        if not self.cooperative:
            self.owned = NOTHING
        self._must_join = False
        metadata = subscription(*self.topics, owned=self.owned, generation_id=self.generation)
        request = join_request(self.member_id, instance_id=self.instance_id, protocols={self.protocol: metadata})
        self._join = self.coordinator.send(request)
        return True

    def _joined(self, caller: FakeCaller) -> bool:
        if caller.waits:
            return False
        self._join = None
        match caller.error:
            case ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = caller.response.member_id
                self._must_join = True
            case ErrorCode.NONE:
                self._send_sync(caller.response)
            case error:
                self._failed(error)
        return True

    def _send_sync(self, joined: Any) -> None:
        self.member_id, self.generation = joined.member_id, joined.generation_id
        assignments = {}
        if joined.leader == self.member_id and not joined.skip_assignment:
            assignments = self._assign({one.member_id: one.metadata for one in joined.members})
        self._sync = self.coordinator.send(
            SyncGroupRequest(
                group_id=GROUP,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                protocol_type=joined.protocol_type,
                protocol_name=joined.protocol_name,
                assignments=[
                    SyncGroupRequestAssignment(member_id=member_id, assignment=one)
                    for member_id, one in assignments.items()
                ],
            )
        )

    def _assign(self, members: dict[str, bytes]) -> dict[str, bytes]:
        """Assign one partition after the other. A cooperative assignment omits partitions that another member still
        owns."""
        owners = {}
        for member_id, metadata in members.items():
            message = decode(ConsumerProtocolSubscription, metadata, int.from_bytes(metadata[:2], "big"), 2)
            for owned in message.owned_partitions:
                owners.update({(owned.topic, partition): member_id for partition in owned.partitions})
        member_ids = sorted(members)
        assigned: dict[str, list[tuple[str, int]]] = {member_id: [] for member_id in member_ids}
        for topic in self.topics:
            for partition in range(self.coordinator.topics.partition_count(topic)):
                member_id = member_ids[partition % len(member_ids)]
                if owners.get((topic, partition), member_id) == member_id:
                    assigned[member_id].append((topic, partition))
        return {member_id: assignment(*one) for member_id, one in assigned.items()}

    def _synced(self, caller: FakeCaller) -> bool:
        if caller.waits:
            return False
        self._sync = None
        if caller.error is not ErrorCode.NONE:
            self._failed(caller.error)
            return True
        assigned = read_assignment(caller.response.assignment)
        self.rebalances += assigned != self.owned
        revoked = self.owned - assigned
        self.owned = assigned
        self._must_join = self.cooperative and bool(revoked)
        return True

    def _heartbeat(self) -> bool:
        request = HeartbeatRequest(
            group_id=GROUP, generation_id=self.generation, member_id=self.member_id, group_instance_id=self.instance_id
        )
        error = self.coordinator.send(request).error
        if error is ErrorCode.NONE:
            return False
        self._failed(error)
        return True

    def _failed(self, error: ErrorCode) -> None:
        assert error in (
            ErrorCode.REBALANCE_IN_PROGRESS,
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.UNKNOWN_MEMBER_ID,
        ), (self, error)
        if error is not ErrorCode.REBALANCE_IN_PROGRESS:
            self.owned = NOTHING
            self.generation = -1
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        self._must_join = True

    def leave(self) -> None:
        """Stop. A static member sends no request."""
        self.owned = NOTHING
        if self.instance_id is None:
            response = self.coordinator.send(leave_request(self.member_id)).response
            assert [one.error_code for one in response.members] == [ErrorCode.NONE]


class ModernConsumer(Consumer):
    def __init__(self, coordinator: Coordinator, name: str, *, instance_id: str | None = None) -> None:
        super().__init__(coordinator, name, instance_id=instance_id)
        self.member_id = f"modern-{name}"
        self.epoch = 0
        self._told = NOTHING

    def step(self) -> bool:
        fields: dict[str, Any] = {"instance_id": self.instance_id} if self.epoch == 0 else {}
        if self.epoch and self._told != self.owned:
            ids = {topic: self.coordinator.topics.id_of(topic) or bytes(16) for topic, _ in self.owned}
            fields["topic_partitions"] = [
                TopicPartitions(topic_id=ids[topic], partitions=partitions)
                for topic, partitions in by_topic(self.owned).items()
            ]
        caller = self.coordinator.send(consumer_heartbeat(self.member_id, self.epoch, **fields))
        if caller.error in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.epoch = 0
            self.owned = self._told = NOTHING
            return True
        response = caller.response
        moved = response.member_epoch != self.epoch or self._told != self.owned
        self.epoch, self._told = response.member_epoch, self.owned
        if response.assignment is not None:
            names = {
                one.topic_id: self.coordinator.topics.name_of(one.topic_id) or ""
                for one in response.assignment.topic_partitions
            }
            assigned = frozenset(
                (names[one.topic_id], index) for one in response.assignment.topic_partitions for index in one.partitions
            )
            moved = moved or assigned != self.owned
            self.owned = assigned
        return moved

    def leave(self) -> None:
        """Stop. A static member leaves temporarily."""
        self.owned = NOTHING
        epoch = -1 if self.instance_id is None else -2
        request = consumer_heartbeat(self.member_id, epoch, instance_id=self.instance_id)
        assert self.coordinator.send(request).response.member_epoch == epoch


def leave_request(*members: str | tuple[str, str | None]) -> LeaveGroupRequest:
    """Of member ids, or of pairs of member id and instance id."""
    pairs = [(member, None) if isinstance(member, str) else member for member in members]
    return LeaveGroupRequest(
        group_id=GROUP,
        members=[
            MemberIdentity(member_id=member_id, group_instance_id=instance_id) for member_id, instance_id in pairs
        ],
    )


class World:
    """A coordinator with the topic ``t`` and consumers of its group."""

    def __init__(self, partitions: int = 6, **settings: Any) -> None:
        self.coordinator = Coordinator(**settings)
        self.coordinator.topics.create("t", partitions)
        self.consumers: list[Consumer] = []

    def classic(self, name: str, **facts: Any) -> ClassicConsumer:
        consumer = ClassicConsumer(self.coordinator, name, **facts)
        self.consumers.append(consumer)
        return consumer

    def modern(self, name: str, **facts: Any) -> ModernConsumer:
        consumer = ModernConsumer(self.coordinator, name, **facts)
        self.consumers.append(consumer)
        return consumer

    def stop(self, consumer: Consumer) -> None:
        consumer.leave()
        self.consumers.remove(consumer)
        self.check()

    @property
    def group(self) -> Any:
        return self.coordinator.group(GROUP)

    def settle(self, rounds: int = 200) -> None:
        """All continue, with a heartbeat every second, until no member changes and every partition is read."""
        idle = 0
        for _ in range(rounds):
            moved = False
            for consumer in self.consumers:
                moved = consumer.step() or moved
                self.check()
            idle = 0 if moved else idle + 1
            if idle > 2 and self.read_partitions() == self.all_partitions():
                return
            self.coordinator.advance(1000)
        raise AssertionError(f"not settled: {self.consumers} {self.group}")

    def read_partitions(self) -> Owned:
        return frozenset().union(*(consumer.owned for consumer in self.consumers))

    def all_partitions(self) -> Owned:
        topics = self.coordinator.topics
        return frozenset((topic, index) for topic in topics.names() for index in range(topics.partition_count(topic)))

    def check(self) -> None:
        """No partition has two readers, and replaying the log gives the current state."""
        read = [one for consumer in self.consumers for one in consumer.owned]
        assert len(read) == len(set(read)), self.consumers
        assert_replay_restores(self.coordinator)


def loaded_again(coordinator: Coordinator) -> Coordinator:
    """Another coordinator, which has loaded the log of this one."""
    other = Coordinator()
    other.config, other.topics, other.now_ms = coordinator.config, coordinator.topics, coordinator.now_ms
    other.log.data += coordinator.log.data
    other.log.end_offset = coordinator.log.end_offset
    other.restart()
    return other


def assert_replay_restores(coordinator: Coordinator) -> None:
    """Loading the log restores every group. Only the kind of a classic group in a rebalance is restored."""
    replayed = loaded_again(coordinator).states.groups
    for group_id, group in coordinator.states.groups.items():
        if isinstance(group, ConsumerGroup):
            again = replayed[group_id]
            assert isinstance(again, ConsumerGroup)
            assert _consumer_group(again) == _consumer_group(group)
        elif isinstance(group, ClassicGroup) and group.state is ClassicGroupState.STABLE:
            again = replayed[group_id]
            assert isinstance(again, ClassicGroup)
            assert _classic_group(again) == _classic_group(group)
        else:
            assert not isinstance(replayed.get(group_id), ConsumerGroup)


def _consumer_group(group: ConsumerGroup) -> Any:
    return {
        "epochs": (group.group_epoch, group.target_assignment_epoch, group.metadata_hash),
        "members": group.members,
        "static members": group.static_members,
        "target": group.target_assignment,
        "classic members": (group.classic_members, dict(group.classic_protocols)),
        "topics": group.subscriptions.topics(),
    }


def _classic_group(group: ClassicGroup) -> Any:
    name = group.protocol_name or ""
    return {
        "generation": (group.generation_id, name, group.leader_id),
        "members": {
            one.member_id: (one.group_instance_id, one.session_timeout_ms, one.protocols[name], one.assignment)
            for one in group.members.values()
        },
    }
