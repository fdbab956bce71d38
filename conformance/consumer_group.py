"""Members of consumer groups (KIP-848), and the requests about such groups.

A `ConsumerMember` sends exactly the heartbeats that a case requests. The coordinator responds to each immediately, so
that the members of a case share one connection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import Any, Final, Self, cast

from ..protocol.api import ApiKey
from ..protocol.errors import ErrorCode
from ..protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest, DescribedGroup
from ..protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ..protocol.messages.list_groups import ListedGroup, ListGroupsRequest
from ..protocol.uuid import random_uuid, uuid_to_str
from .check import Check, Topic
from .exchange import Connection

FEATURES: Final = {"group.version": 1}
"""What a server must have finalized for the cases of consumer groups."""

LEAVE: Final = -1
LEAVE_AND_RETURN: Final = -2
"""The epochs of a last heartbeat; the second one for static members that will return."""


class ConsumerMember:
    """A member of a consumer group, which the responses to its heartbeats update."""

    def __init__(
        self,
        c: Check,
        group: str,
        *topics: Topic,
        member_id: str | None = None,
        instance_id: str | None = None,
        rack_id: str | None = None,
        assignor: str | None = None,
        regex: str | None = None,
        rebalance_timeout_ms: int = 30_000,
        wire: Connection | None = None,
    ) -> None:
        """`topics` are its subscription, and with `regex` those that may be assigned to it."""
        self.c = c
        self.group = group
        self.topics = topics
        # Since version 1 members create their IDs (KIP-1082), and version 0 accepts them.
        self.member_id = uuid_to_str(random_uuid()) if member_id is None else member_id
        self.epoch = 0
        self.instance_id = instance_id
        self.rack_id = rack_id
        self.assignor = assignor
        self.regex = regex
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.owned: dict[bytes, list[int]] = {}
        """What the coordinator has assigned, by topic ID."""
        self.wire = wire or c.coordinator(group)
        c.at_end(self._leave_at_end)

    @property
    def partitions(self) -> list[int]:
        """The partitions of the first topic that are assigned to the member."""
        return self.owned.get(self.topics[0].topic_id, [])

    @property
    def assigned(self) -> dict[str, list[int]]:
        """What is assigned to the member, by the names of its topics."""
        names = {topic.topic_id: topic.name for topic in self.topics}
        return {names.get(topic, topic.hex()): each for topic, each in self.owned.items() if each}

    def request(self, **fields: Any) -> ConsumerGroupHeartbeatRequest:
        """A heartbeat without news, except for `fields`."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
        )
        return _changed(request, fields)

    def join_request(self, **fields: Any) -> ConsumerGroupHeartbeatRequest:
        """The first heartbeat, with all fields."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=0,
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            subscribed_topic_names=[topic.name for topic in self.topics] if self.regex is None else [],
            subscribed_topic_regex=self.regex,
            server_assignor=self.assignor,
            topic_partitions=[],
        )
        return _changed(request, fields)

    def send(
        self, request: ConsumerGroupHeartbeatRequest, version: int | None = None
    ) -> ConsumerGroupHeartbeatResponse:
        """Any heartbeat; its response updates the member unless it has an error."""
        answer = cast(ConsumerGroupHeartbeatResponse, self.c.call(request, version, to=self.wire))
        if answer.error_code == 0:
            self.member_id, self.epoch = answer.member_id or "", answer.member_epoch
            if answer.assignment is not None:
                self.owned = partitions_of(answer.assignment.topic_partitions)
        return answer

    def try_join(self, version: int | None = None, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """The first heartbeat, whose response may have an error."""
        return self.send(self.join_request(**fields), version)

    def join(self, version: int | None = None, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """Join without an error."""
        answer = self.try_join(version, **fields)
        self.c.error(answer.error_code, ErrorCode.NONE, "error_code of the first ConsumerGroupHeartbeat")
        return answer

    def heartbeat(self, version: int | None = None, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """A heartbeat whose response may have an error."""
        return self.send(self.request(**fields), version)

    def report(self, version: int | None = None) -> ConsumerGroupHeartbeatResponse:
        """A heartbeat with the member's partitions: what is no longer assigned, it has revoked."""
        return self.heartbeat(version, topic_partitions=self.reported())

    def follow(self, **fields: Any) -> Self:
        """A heartbeat, and a report if the assignment has changed, both without errors; return the member."""
        answer = self.heartbeat(**fields)
        self.c.error(answer.error_code, ErrorCode.NONE, "error_code of a ConsumerGroupHeartbeat")
        if answer.assignment is not None:
            self.c.error(self.report().error_code, ErrorCode.NONE, "error_code of a heartbeat with topic_partitions")
        return self

    def reported(self) -> list[TopicPartitions]:
        """The member's partitions, as a heartbeat contains them."""
        return [TopicPartitions(topic_id=topic, partitions=each) for topic, each in self.owned.items() if each]

    def leave(self, epoch: int = LEAVE, version: int | None = None) -> ConsumerGroupHeartbeatResponse:
        """The last heartbeat; the member keeps its epoch and its partitions, to be sent once more by a case."""
        request = self.request(member_epoch=epoch)
        return cast(ConsumerGroupHeartbeatResponse, self.c.call(request, version, to=self.wire))

    def _leave_at_end(self, wire: Connection) -> None:
        """So that the group can be deleted. An error is ignored: the member may have left."""
        if self.epoch > 0:
            wire.call(self.request(member_epoch=LEAVE), self.c.version(ApiKey.CONSUMER_GROUP_HEARTBEAT))


def _changed(request: ConsumerGroupHeartbeatRequest, fields: Mapping[str, Any]) -> ConsumerGroupHeartbeatRequest:
    for name, value in fields.items():
        setattr(request, name, value)
    return request


def partitions_of(assignment: Sequence[Any]) -> dict[bytes, list[int]]:
    """The sorted partitions of an assignment or a report, by topic ID."""
    return {each.topic_id: sorted(each.partitions) for each in assignment}


def settle(c: Check, *members: ConsumerMember) -> None:
    """Let all members send heartbeats until the group is stable; each revokes partitions immediately."""
    first = members[0]

    def is_stable() -> bool:
        for member in members:
            member.follow()
        group = describe(c, first.group, to=first.wire)
        return (
            group.group_state == "Stable"
            and group.group_epoch == group.assignment_epoch
            and {member.epoch for member in members} <= {each.member_epoch for each in group.members}
        )

    c.until(is_stable, f"the state Stable of the group {first.group} while all members send heartbeats")


def stable(c: Check, *members: ConsumerMember) -> None:
    """The members join and the group becomes stable, as a step of the setup."""
    with c.setup("a stable consumer group"):
        for member in members:
            member.join()
        settle(c, *members)


def share(*members: ConsumerMember) -> list[int]:
    """The partitions of the first topic that are assigned to these members; one that two of them have occurs twice."""
    return sorted(partition for member in members for partition in member.partitions)


def describe(c: Check, group: str, version: int | None = None, *, to: Connection | None = None) -> DescribedGroup:
    """ConsumerGroupDescribe of one group."""
    answer = c.call(ConsumerGroupDescribeRequest(group_ids=[group]), version, to=to or c.coordinator(group))
    c.equal([each.group_id for each in answer.groups], [group], "groups (group_id) of ConsumerGroupDescribe")
    return cast(DescribedGroup, answer.groups[0])


def listed(
    c: Check, *groups: str, states: Sequence[str] = (), types: Sequence[str] = (), version: int | None = None
) -> dict[str, ListedGroup]:
    """What ListGroups of their coordinators returns about these groups; other groups are ignored."""
    found: dict[str, ListedGroup] = {}
    version = c.version(ApiKey.LIST_GROUPS) if version is None else version
    for wire in {id(each): each for each in map(c.coordinator, groups)}.values():
        answer = c.call(ListGroupsRequest(states_filter=list(states), types_filter=list(types)), version, to=wire)
        c.error(answer.error_code, ErrorCode.NONE, "ListGroups error_code")
        found |= {each.group_id: each for each in answer.groups if each.group_id in groups}
    return found


def rejected(
    c: Check,
    answer: ConsumerGroupHeartbeatResponse,
    expected: ErrorCode,
    message: str | None = None,
) -> None:
    """Compare the whole response to a heartbeat that is rejected."""
    c.error(answer.error_code, expected)
    c.true(answer.error_message, "error_message", expected="a message", actual=answer.error_message)
    if message is not None:
        c.equal(answer.error_message, message, "error_message")
    c.equal(answer.member_epoch, 0, "member_epoch")
    c.equal(answer.heartbeat_interval_ms, 0, "heartbeat_interval_ms")
    c.equal(answer.assignment, None, "assignment")


def is_address(c: Check, host: str, what: str) -> None:
    """A member's `client_host` is a slash and an IP address, not necessarily the client's own (NAT)."""
    try:
        ip_address(host.removeprefix("/"))
        valid = host.startswith("/")
    except ValueError:
        valid = False
    c.true(valid, what, expected="a slash and an IP address", actual=host)
