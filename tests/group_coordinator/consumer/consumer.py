"""A consumer of the consumer protocol, as far as the coordinator sees it."""

from __future__ import annotations

from typing import Any

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

from ...coordinator.harness import FakeCaller
from ..harness import Coordinator

GROUP = "group"

Owned = dict[str, set[int]]


class Consumer:
    """One member of `GROUP`, with its epoch and its owned partitions."""

    def __init__(
        self, coordinator: Coordinator, member_id: str, topics: list[str] | None = None, **fields: Any
    ) -> None:
        """``fields`` are sent when it joins: ``instance_id``, ``subscribed_topic_regex``, ``server_assignor``, ..."""
        self.coordinator = coordinator
        self.member_id = member_id
        self.epoch = 0
        self.owned: Owned = {}
        self.assigned: Owned = {}
        """As the last answer said that had an assignment."""
        self.fields = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": topics, **fields}

    def send(self, *, api_version: int = 1, **fields: Any) -> FakeCaller:
        """One heartbeat with these fields only."""
        request = ConsumerGroupHeartbeatRequest(
            **{"group_id": GROUP, "member_id": self.member_id, "member_epoch": self.epoch, **fields}
        )
        sent = self.coordinator.send(request, api_version, client_id=f"client of {self.member_id}")
        if sent.error is ErrorCode.NONE:
            self._take(sent.response)
        return sent

    def _take(self, response: ConsumerGroupHeartbeatResponse) -> None:
        self.epoch = response.member_epoch
        if response.assignment is None:
            return
        name_of = self.coordinator.topics.name_of
        self.assigned = {
            name: set(topic.partitions)
            for topic in response.assignment.topic_partitions
            if (name := name_of(topic.topic_id)) is not None
        }

    def join(self, **fields: Any) -> FakeCaller:
        """Join without partitions."""
        self.epoch = 0
        self.owned = {}
        sent = self.send(topic_partitions=[], **{**self.fields, **fields})
        if sent.error is ErrorCode.NONE:
            self.owned = {topic: set(partitions) for topic, partitions in self.assigned.items()}
        return sent

    def heartbeat(self, **fields: Any) -> FakeCaller:
        """A heartbeat without news."""
        return self.send(**fields)

    def owns(self, owned: Owned) -> list[TopicPartitions]:
        """In the form of a request."""
        topics = self.coordinator.topics
        return [
            TopicPartitions(topic_id=topics.id_of(name) or b"", partitions=sorted(partitions))
            for name, partitions in owned.items()
        ]

    def follow(self) -> FakeCaller:
        """A heartbeat; partitions that the response no longer contains are revoked, as the next heartbeat reports."""
        sent = self.heartbeat()
        if self.assigned != self.owned:
            self.owned = {topic: set(partitions) for topic, partitions in self.assigned.items()}
            sent = self.heartbeat(topic_partitions=self.owns(self.owned))
        return sent

    def leave(self) -> FakeCaller:
        """Leave for good."""
        return self.send(member_epoch=-1, instance_id=self.fields.get("instance_id"))

    def leave_for_a_while(self) -> FakeCaller:
        """As a static member that is restarted."""
        return self.send(member_epoch=-2, instance_id=self.fields["instance_id"])


def settle(*members: Consumer) -> None:
    """Heartbeats until no response contains a change, at the intervals of real consumers."""
    coordinator = members[0].coordinator
    for _ in range(10):
        coordinator.advance(5000)
        for member in members:
            member.follow()
            assert_one_owner(*members)
        up_to_date = all(member.owned == member.assigned for member in members)
        if up_to_date and coordinator.group(GROUP).state_name == "Stable":
            return
    raise AssertionError(f"not stable: {coordinator.group(GROUP).state_name}")


def assert_one_owner(*members: Consumer) -> None:
    """No two members own the same partition."""
    seen = [(topic, partition) for member in members for topic in member.owned for partition in member.owned[topic]]
    assert len(seen) == len(set(seen)), seen
