"""Requests about groups: the coordinator of a group, its members and its committed offsets.

Only a group's coordinator knows the group. Offset requests use versions with topic names, not topic ids, so that
offsets of deleted topics are included.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ..protocol.api import ApiKey
from ..protocol.codec import decode_at
from ..protocol.errors import ErrorCode, MalformedMessage
from ..protocol.messages.consumer_group_describe import Assignment, ConsumerGroupDescribeRequest
from ..protocol.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from ..protocol.messages.consumer_protocol import ConsumerProtocolAssignment
from ..protocol.messages.delete_groups import DeleteGroupsRequest
from ..protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from ..protocol.messages.list_groups import ListedGroup, ListGroupsRequest
from ..protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ..protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ..protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from .cluster import Cluster, explain
from .connection import Connection
from .coordinators import GROUP, Coordinators, with_retries
from .failure import Failure

# The first versions that replace topic names with topic ids.
_OFFSET_FETCH_NAMED: Final = 9
_OFFSET_COMMIT_NAMED: Final = 9

_NO_LEADER_EPOCH: Final = -1

HINTS: Final = {
    ErrorCode.GROUP_ID_NOT_FOUND: "the group does not exist; `moldau groups list` lists the groups",
    ErrorCode.NON_EMPTY_GROUP: "the group has members; stop them first (`moldau groups describe GROUP` lists them)",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "members of the group subscribe to this topic; stop them first",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "the topic or partition does not exist; `moldau topics list` lists topics",
    ErrorCode.UNKNOWN_MEMBER_ID: "members have joined the group; stop them and retry",
}
"""Hints for the error codes of group requests."""


class TopicPartition(NamedTuple):
    """A partition of a topic; written ``events-0``."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Committed(NamedTuple):
    """A committed offset."""

    offset: int
    leader_epoch: int | None
    metadata: str


@dataclass
class Member:
    """A group member; fields of the consumer protocol are None for other protocols."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: list[TopicPartition]
    target_assignment: list[TopicPartition] | None = None
    epoch: int | None = None
    uses_classic_protocol: bool | None = None


@dataclass
class Group:
    """A group as described by its coordinator."""

    group_id: str
    type: str
    protocol_type: str
    state: str
    assignor: str
    coordinator: Connection
    coordinator_id: int
    epoch: int | None = None
    assignment_epoch: int | None = None
    members: list[Member] = field(default_factory=list)

    @property
    def is_active(self) -> bool:
        """Whether the group has or may have members, which then own its offsets."""
        return self.state not in ("Empty", "Dead")


class GroupClient:
    """The groups of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._coordinators = Coordinators(cluster, GROUP)

    def list(self) -> list[ListedGroup]:
        """The groups of all brokers, sorted by name."""
        found: dict[str, ListedGroup] = {}
        for node_id in self._cluster.broker_ids():
            answer = with_retries(
                lambda node_id=node_id: self._cluster.ask_broker(node_id, ListGroupsRequest()),  # type: ignore[misc]
                lambda answer: int(answer.error_code),
            )
            if answer.error_code:
                raise Failure(f"cannot list the groups of broker {node_id}: {explain(answer.error_code)}")
            found.update((group.group_id, group) for group in answer.groups)
        return [found[group_id] for group_id in sorted(found)]

    def describe(self, group_id: str, *, is_classic: bool = False) -> Group | None:
        """The group's state and members; None if the group does not exist in either protocol. ``is_classic``: it is
        known to be of the classic protocol, so that it is not looked for in the other one, which counts as an error."""
        if not group_id:
            return self._group_without_name()
        if not is_classic and self._coordinators.connection(group_id).offers(ApiKey.CONSUMER_GROUP_DESCRIBE):
            answer = self._coordinators.ask(
                group_id,
                lambda connection: ConsumerGroupDescribeRequest(group_ids=[group_id]),
                lambda answer: int(answer.groups[0].error_code),
            )
            described = answer.groups[0]
            if described.error_code == 0:
                return self._consumer_group(described)
            # UNSUPPORTED_VERSION: the protocol is disabled in the cluster.
            if described.error_code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
                raise Failure(f"{group_id}: {explain(described.error_code, described.error_message, HINTS)}")
        answer = self._coordinators.ask(
            group_id,
            lambda connection: DescribeGroupsRequest(groups=[group_id]),
            lambda answer: int(answer.groups[0].error_code),
        )
        classic: DescribedGroup = answer.groups[0]
        # Before version 6, a missing group is described as dead.
        if classic.error_code == ErrorCode.GROUP_ID_NOT_FOUND or classic.group_state == "Dead":
            return None
        if classic.error_code:
            raise Failure(f"{group_id}: {explain(classic.error_code, classic.error_message, HINTS)}")
        return self._classic_group(classic)

    def committed(self, group_id: str) -> dict[TopicPartition, Committed]:
        """All committed offsets of a group, sorted by topic and partition; empty for an unknown group."""

        def request(connection: Connection) -> OffsetFetchRequest:
            if connection.version_of(OffsetFetchRequest, at_most=_OFFSET_FETCH_NAMED) >= 8:
                return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)])
            return OffsetFetchRequest(group_id=group_id, topics=None)

        answer = self._coordinators.ask(
            group_id,
            request,
            lambda answer: int(answer.groups[0].error_code if answer.groups else answer.error_code),
            at_most=_OFFSET_FETCH_NAMED,
        )
        code = answer.groups[0].error_code if answer.groups else answer.error_code
        if code == ErrorCode.GROUP_ID_NOT_FOUND:
            return {}
        if code:
            raise Failure(f"cannot read the offsets of {group_id}: {explain(code, None, HINTS)}")
        topics = answer.groups[0].topics if answer.groups else answer.topics
        found = {}
        for topic in topics:
            for each in topic.partitions:
                partition = TopicPartition(topic.name, each.partition_index)
                if each.error_code:
                    raise Failure(f"cannot read the offset of {partition}: {explain(each.error_code)}")
                if each.committed_offset >= 0:
                    epoch = None if each.committed_leader_epoch == _NO_LEADER_EPOCH else each.committed_leader_epoch
                    found[partition] = Committed(each.committed_offset, epoch, each.metadata or "")
        return dict(sorted(found.items()))

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Commit offsets for a group without members. Returns the error codes of the partitions that failed."""
        topics = [
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=partition.partition, committed_offset=offsets[partition], committed_metadata=""
                    )
                    for partition in partitions
                ],
            )
            for topic, partitions in by_topic(offsets).items()
        ]
        answer = self._coordinators.ask(
            group_id,
            lambda connection: OffsetCommitRequest(group_id=group_id, topics=topics),
            lambda answer: _first_error(each.error_code for topic in answer.topics for each in topic.partitions),
            at_most=_OFFSET_COMMIT_NAMED,
        )
        return _partition_errors(answer)

    def delete(self, group_id: str) -> int:
        """Delete a group and its offsets. Returns the error code."""
        answer = self._coordinators.ask(
            group_id,
            lambda connection: DeleteGroupsRequest(groups_names=[group_id]),
            lambda answer: int(answer.results[0].error_code),
        )
        return int(answer.results[0].error_code)

    def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Delete offsets of a group. Returns the error codes of the partitions that failed.

        Raises Failure if the whole request failed.
        """
        topics = [
            OffsetDeleteRequestTopic(
                name=topic,
                partitions=[OffsetDeleteRequestPartition(partition_index=each.partition) for each in wanted],
            )
            for topic, wanted in by_topic(partitions).items()
        ]
        answer = self._coordinators.ask(
            group_id,
            lambda connection: OffsetDeleteRequest(group_id=group_id, topics=topics),
            lambda answer: int(answer.error_code),
        )
        if answer.error_code:
            reason = explain(answer.error_code, None, HINTS)
            raise Failure(f"cannot delete offsets of {group_id}: {reason}")
        return _partition_errors(answer)

    # -- descriptions --------------------------------------------------------------------------------------------------

    def _group_without_name(self) -> Group | None:
        """Old consumers commit offsets under the empty name. Servers list that group, but describe requests reject
        its name with INVALID_GROUP_ID. It never has members, because joins reject the name, too."""
        return next(
            (
                Group(
                    group_id="",
                    type=listed.group_type or "classic",
                    protocol_type=listed.protocol_type,
                    state=listed.group_state or "Empty",
                    assignor="",
                    coordinator=self._coordinators.connection(""),
                    coordinator_id=self._coordinators.node_id(""),
                )
                for listed in self.list()
                if not listed.group_id
            ),
            None,
        )

    def _consumer_group(self, described: DescribedConsumerGroup) -> Group:
        return Group(
            group_id=described.group_id,
            type="consumer",
            protocol_type="consumer",
            state=described.group_state,
            assignor=described.assignor_name,
            coordinator=self._coordinators.connection(described.group_id),
            coordinator_id=self._coordinators.node_id(described.group_id),
            epoch=described.group_epoch,
            assignment_epoch=described.assignment_epoch,
            members=[
                Member(
                    member_id=member.member_id,
                    instance_id=member.instance_id,
                    client_id=member.client_id,
                    host=member.client_host.removeprefix("/"),
                    assignment=_partitions(member.assignment),
                    target_assignment=_partitions(member.target_assignment),
                    epoch=member.member_epoch,
                    # 0 is the classic protocol, 1 the consumer protocol, -1 unknown.
                    uses_classic_protocol=None if member.member_type < 0 else member.member_type == 0,
                )
                for member in described.members
            ],
        )

    def _classic_group(self, described: DescribedGroup) -> Group:
        is_consumer = described.protocol_type in ("consumer", "")
        return Group(
            group_id=described.group_id,
            type="classic",
            protocol_type=described.protocol_type,
            state=described.group_state,
            assignor=described.protocol_data,
            coordinator=self._coordinators.connection(described.group_id),
            coordinator_id=self._coordinators.node_id(described.group_id),
            members=[
                Member(
                    member_id=member.member_id,
                    instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    host=member.client_host.removeprefix("/"),
                    assignment=_classic_assignment(member.member_assignment) if is_consumer else [],
                )
                for member in described.members
            ],
        )


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Partitions grouped by topic name, sorted."""
    topics: dict[str, list[TopicPartition]] = {}
    for partition in sorted(partitions):
        topics.setdefault(partition.topic, []).append(partition)
    return topics


def _first_error(codes: Iterable[int]) -> int:
    return next((code for code in codes if code), 0)


def _partition_errors(answer: Any) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.name, each.partition_index): each.error_code
        for topic in answer.topics
        for each in topic.partitions
        if each.error_code
    }


def _partitions(assignment: Assignment) -> list[TopicPartition]:
    return sorted(
        TopicPartition(topic.topic_name, partition)
        for topic in assignment.topic_partitions
        for partition in topic.partitions
    )


def _classic_assignment(data: bytes) -> list[TopicPartition]:
    """The partitions that the group leader assigned to a consumer; empty for members that are not consumers."""
    if len(data) < 2:
        return []
    version = int.from_bytes(data[:2], "big", signed=True)
    highest = ConsumerProtocolAssignment.VERSIONS.highest
    if version < 0:
        return []
    try:
        assignment, _ = decode_at(ConsumerProtocolAssignment, data, min(version, highest), 2)
    except MalformedMessage:
        return []
    return sorted(
        TopicPartition(topic.topic, partition)
        for topic in assignment.assigned_partitions
        for partition in topic.partitions
    )
