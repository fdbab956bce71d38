"""Members of streams groups (KIP-1071), which send exactly the heartbeats that a case requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Self, cast

from ..protocol.api import ApiKey
from ..protocol.errors import ErrorCode
from ..protocol.messages.streams_group_describe import DescribedGroup, StreamsGroupDescribeRequest
from ..protocol.messages.streams_group_heartbeat import (
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from ..protocol.uuid import random_uuid, uuid_to_str
from .case import needs
from .check import Check, Topic
from .exchange import Connection

FEATURES: Final = {"streams.version": 1}
"""What a server must have finalized for the cases of streams groups."""
NEEDS: Final = needs(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, ApiKey.STREAMS_GROUP_DESCRIBE, 0)

SUBTOPOLOGY: Final = "sub-1"


def topology(*sources: str, epoch: int = 0, changelog: str | None = None) -> Topology:
    """One subtopology that reads these topics, and has a state store with this changelog topic."""
    logs = [] if changelog is None else [TopicInfo(name=changelog, replication_factor=1)]
    return Topology(
        epoch=epoch,
        subtopologies=[
            Subtopology(subtopology_id=SUBTOPOLOGY, source_topics=list(sources), state_changelog_topics=logs)
        ],
    )


class StreamsMember:
    """A member of a streams group, which the responses to its heartbeats update."""

    def __init__(self, c: Check, group: str, topic: Topic, *, wire: Connection | None = None) -> None:
        self.c = c
        self.group = group
        self.topic = topic
        self.member_id = uuid_to_str(random_uuid())
        self.epoch = 0
        self.tasks: list[int] = []
        """The partitions of the active tasks of the only subtopology."""
        self.wire = wire or c.coordinator(group)
        c.at_end(self._leave_at_end)

    def request(self, **fields: Any) -> StreamsGroupHeartbeatRequest:
        """A heartbeat without news, except for `fields`."""
        values: dict[str, Any] = {"group_id": self.group, "member_id": self.member_id, "member_epoch": self.epoch}
        return StreamsGroupHeartbeatRequest(**values | fields)

    def join_request(self, **fields: Any) -> StreamsGroupHeartbeatRequest:
        """The first heartbeat, with all fields."""
        values: dict[str, Any] = {
            "member_epoch": 0,
            "rebalance_timeout_ms": 30_000,
            "topology": topology(self.topic.name),
            "active_tasks": [],
            "standby_tasks": [],
            "warmup_tasks": [],
            "process_id": f"process-{self.member_id}",
            "client_tags": [],
        }
        return self.request(**values | fields)

    def send(self, request: StreamsGroupHeartbeatRequest, version: int | None = None) -> StreamsGroupHeartbeatResponse:
        """Any heartbeat; its response updates the member unless it has an error."""
        answer = cast(StreamsGroupHeartbeatResponse, self.c.call(request, version, to=self.wire))
        if answer.error_code == 0:
            self.epoch = answer.member_epoch
            if answer.active_tasks is not None:
                self.tasks = tasks_of(answer.active_tasks)
        return answer

    def join(self, version: int | None = None, **fields: Any) -> StreamsGroupHeartbeatResponse:
        """The first heartbeat, whose response may have an error."""
        return self.send(self.join_request(**fields), version)

    def heartbeat(self, version: int | None = None, **fields: Any) -> StreamsGroupHeartbeatResponse:
        """A heartbeat whose response may have an error."""
        return self.send(self.request(**fields), version)

    def report(self, version: int | None = None) -> StreamsGroupHeartbeatResponse:
        """A heartbeat with the member's tasks: what is no longer assigned, it has revoked."""
        active = [TaskIds(subtopology_id=SUBTOPOLOGY, partitions=self.tasks)] if self.tasks else []
        return self.heartbeat(version, active_tasks=active, standby_tasks=[], warmup_tasks=[])

    def follow(self) -> Self:
        """A heartbeat, and a report if the tasks have changed, both without errors; return the member."""
        answer = self.heartbeat()
        self.c.error(answer.error_code, ErrorCode.NONE, "error_code of a StreamsGroupHeartbeat")
        if answer.active_tasks is not None:
            self.c.error(self.report().error_code, ErrorCode.NONE, "error_code of a heartbeat with active_tasks")
        return self

    def leave(self) -> StreamsGroupHeartbeatResponse:
        """The last heartbeat; the member keeps its epoch, to be sent once more by a case."""
        return cast(StreamsGroupHeartbeatResponse, self.c.call(self.request(member_epoch=-1), to=self.wire))

    def _leave_at_end(self, wire: Connection) -> None:
        """So that the group can be deleted. An error is ignored: the member may have left."""
        if self.epoch > 0:
            wire.call(self.request(member_epoch=-1), 0)


def tasks_of(tasks: Sequence[Any]) -> list[int]:
    """The sorted partitions of the tasks of the only subtopology."""
    return sorted(partition for each in tasks if each.subtopology_id == SUBTOPOLOGY for partition in each.partitions)


def describe(c: Check, group: str, version: int | None = None) -> DescribedGroup:
    """StreamsGroupDescribe of one group."""
    answer = c.call(StreamsGroupDescribeRequest(group_ids=[group]), version, to=c.coordinator(group))
    c.equal([each.group_id for each in answer.groups], [group], "groups (group_id) of StreamsGroupDescribe")
    return cast(DescribedGroup, answer.groups[0])


def settle(c: Check, *members: StreamsMember) -> None:
    """Let all members send heartbeats until the group is stable."""

    def is_stable() -> bool:
        for member in members:
            member.follow()
        group = describe(c, members[0].group)
        return (
            group.group_state == "Stable"
            and group.group_epoch == group.assignment_epoch
            and {each.member_epoch for each in group.members} == {member.epoch for member in members}
        )

    c.until(is_stable, f"the state Stable of the group {members[0].group} while all members send heartbeats")


def stable(c: Check, *members: StreamsMember) -> None:
    """The members join and the group becomes stable, as a step of the setup."""
    with c.setup("a stable streams group"):
        for member in members:
            c.error(member.join().error_code, ErrorCode.NONE, "error_code of the first StreamsGroupHeartbeat")
        settle(c, *members)


def rejected(c: Check, answer: Any, expected: ErrorCode) -> None:
    """Compare the whole response to a heartbeat that is rejected."""
    c.error(answer.error_code, expected)
    c.true(answer.error_message, "error_message", expected="a message", actual=answer.error_message)
    c.equal((answer.member_epoch, answer.active_tasks), (0, None), "member_epoch and active_tasks")


ENDPOINT: Final = Endpoint(host="streams.example", port=8080)
TAGS: Final = [KeyValue(key="zone", value="z1")]
