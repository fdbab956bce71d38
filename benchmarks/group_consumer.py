"""Members of consumer groups (KIP-848), without a client library: they only send heartbeats.

A member accepts the server's assignment immediately, and confirms it with its next heartbeat. Heartbeats are sent in
rounds of all members as long as they cause changes. Clients wait for seconds between two heartbeats (the server sets
the interval), which would determine the result. The server creates no new assignment before the previous one is old
enough (``group.consumer.assignment.interval.ms``, a second), and this *is* part of the result: during this time, one
member of each group sends occasional heartbeats.

A group is stable when the server reports it.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from ..protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from .group_connections import PATIENCE_SECONDS, GroupConnections
from .group_load import CONSUMER_GROUP_HEARTBEAT_VERSION, Pair, pair

_DESCRIBE_VERSION = 1

_JOINING = 0
_LEAVING = -1

_STABLE = "Stable"

_REBALANCE_TIMEOUT_MS = 300_000
_SCOUT_SECONDS = 0.02


@dataclass(slots=True, eq=False)
class ConsumerMember:
    group_id: str
    connection: int
    topic: str
    member_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    epoch: int = _JOINING
    heartbeat_interval_ms: int = 0
    owned: list[TopicPartitions] | None = None
    """The assignment that it must confirm to the server; None if the server knows it."""

    def heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        """The next heartbeat: all fields at first, and then only changes."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=self.epoch, topic_partitions=self.owned
        )
        if self.epoch == _JOINING:
            request.rebalance_timeout_ms = _REBALANCE_TIMEOUT_MS
            request.subscribed_topic_names = [self.topic]
            request.topic_partitions = []
        return request

    def take(self, answer: ConsumerGroupHeartbeatResponse) -> bool:
        """Apply a response; returns whether it contained a change."""
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code), answer.error_message or "a heartbeat")
        changed = answer.assignment is not None or answer.member_epoch != self.epoch
        self.epoch = answer.member_epoch
        self.heartbeat_interval_ms = answer.heartbeat_interval_ms
        self.owned = None if answer.assignment is None else answer.assignment.topic_partitions
        return changed


class ConsumerGroups:
    """Groups over the same connections; a connection has one member of the groups that are formed together."""

    def __init__(self, connections: GroupConnections, topic: str) -> None:
        self.groups: dict[str, list[ConsumerMember]] = {}
        self._connections = connections
        self._topic = topic

    def form(self, group_ids: Sequence[str], size: int) -> None:
        """Form new groups of ``size`` members, which all join now; returns when each group is stable."""
        connections = iter(range(len(self._connections)))
        formed = {
            group_id: [ConsumerMember(group_id, next(connections), self._topic) for _ in range(size)]
            for group_id in group_ids
        }
        self.groups |= formed
        self._settle(formed)

    def remove_one_member_each(self) -> None:
        """One member of each group leaves; returns when the groups are stable without them.

        For groups that were formed together.
        """
        self._leave([members.pop() for members in self.groups.values()])
        self._settle(self.groups)

    def heartbeats(self) -> list[Pair]:
        """The heartbeat of every member while nothing changes."""
        return [
            pair(
                member.heartbeat(),
                ConsumerGroupHeartbeatResponse(
                    member_id=member.member_id,
                    member_epoch=member.epoch,
                    heartbeat_interval_ms=member.heartbeat_interval_ms,
                ),
                CONSUMER_GROUP_HEARTBEAT_VERSION,
            )
            for member in _members(self.groups)
        ]

    def disband(self) -> None:
        """All members leave."""
        members = _members(self.groups)
        for start in range(0, len(members), len(self._connections)):
            self._leave(members[start : start + len(self._connections)])

    # ------------------------------------------------------------------------------------------------------------------

    def _leave(self, members: Sequence[ConsumerMember]) -> None:
        for number, member in enumerate(members):
            member.connection, member.epoch, member.owned = number, _LEAVING, None
        self._round(members)

    def _settle(self, groups: dict[str, list[ConsumerMember]]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while groups:
            while self._round(_members(groups)):
                pass
            groups = {group_id: groups[group_id] for group_id in self._unstable(groups)}
            if groups:
                self._wait_for_a_change([members[0] for members in groups.values()], deadline)

    def _wait_for_a_change(self, scouts: Sequence[ConsumerMember], deadline: float) -> None:
        while not self._round(scouts):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(scouts)} groups are not stable after {PATIENCE_SECONDS:g} s")
            time.sleep(_SCOUT_SECONDS)

    def _round(self, members: Sequence[ConsumerMember]) -> bool:
        """Send a heartbeat for each member; returns whether any response contained a change."""
        waiting = {member.connection: member for member in members}
        for member in members:
            self._connections.ask(member.connection, member.heartbeat(), CONSUMER_GROUP_HEARTBEAT_VERSION)
        changed = False
        while waiting:
            for number, answer in self._connections.answers():
                changed |= waiting.pop(number).take(answer)
        return changed

    def _unstable(self, group_ids: Iterable[str]) -> list[str]:
        request = ConsumerGroupDescribeRequest(group_ids=list(group_ids))
        answer: ConsumerGroupDescribeResponse = self._connections.call(0, request, _DESCRIBE_VERSION)
        for group in answer.groups:
            if group.error_code:
                raise KafkaError(ErrorCode(group.error_code), group.error_message or group.group_id)
        return [group.group_id for group in answer.groups if group.group_state != _STABLE]


def _members(groups: dict[str, list[ConsumerMember]]) -> list[ConsumerMember]:
    return [member for members in groups.values() for member in members]
