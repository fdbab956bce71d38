"""Offsets of a group as a transaction changes them: commits outside of it, and OffsetFetch with `require_stable`.

Also groups with one member, whose ID and generation a TxnOffsetCommit has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..protocol.api import ApiKey
from ..protocol.errors import ErrorCode
from ..protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ..protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ..protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ..protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ..protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ..protocol.uuid import random_uuid, uuid_to_str
from .check import Check, Topic
from .transactional_producer import errors, group_coordinator

UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT

_MANY_GROUPS = 8
_BY_TOPIC_ID = 10
_SESSION_MS = 30_000


def commit(c: Check, group: str, topic: Topic, offsets: Mapping[int, int]) -> None:
    """OffsetCommit from outside the group, without errors."""
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
        for index, offset in offsets.items()
    ]
    request = OffsetCommitRequest(
        group_id=group,
        topics=[OffsetCommitRequestTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)],
    )
    (found,) = c.call(request, to=group_coordinator(c, group)).topics
    actual = {each.partition_index: each.error_code for each in found.partitions}
    errors(c, actual, dict.fromkeys(offsets, ErrorCode.NONE), "OffsetCommit")


def fetched(
    c: Check,
    group: str,
    topic: Topic,
    *partitions: int,
    version: int | None = None,
    require_stable: bool = False,
    everything: bool = False,
) -> dict[int, tuple[int, str | None] | ErrorCode]:
    """OffsetFetch of partitions of one topic, or of everything: offset and metadata, or an error, by partition."""
    version = c.version(ApiKey.OFFSET_FETCH) if version is None else version
    topics: list[Any] | None
    if version >= _MANY_GROUPS:
        identity: dict[str, Any] = {"topic_id": topic.topic_id} if version >= _BY_TOPIC_ID else {"name": topic.name}
        topics = [OffsetFetchRequestTopics(partition_indexes=list(partitions), **identity)]
        requested = OffsetFetchRequestGroup(group_id=group, topics=None if everything else topics)
        request = OffsetFetchRequest(groups=[requested], require_stable=require_stable)
    else:
        topics = [OffsetFetchRequestTopic(name=topic.name, partition_indexes=list(partitions))]
        request = OffsetFetchRequest(group_id=group, topics=None if everything else topics)
        if version >= 7:
            request.require_stable = require_stable
    response = c.call(request, version, to=group_coordinator(c, group))
    if version >= _MANY_GROUPS:
        c.equal([each.group_id for each in response.groups], [group], "groups (group_id)")
        (response,) = response.groups
    c.error(response.error_code, ErrorCode.NONE, "OffsetFetch error_code")
    found: dict[int, tuple[int, str | None] | ErrorCode] = {}
    for each in response.topics:
        if version >= _BY_TOPIC_ID:
            c.equal(each.topic_id, topic.topic_id, "topics[0].topic_id of OffsetFetch")
        else:
            c.equal(each.name, topic.name, "topics[0].name of OffsetFetch")
        for one in each.partitions:
            if one.error_code:
                c.equal(
                    (one.committed_offset, one.metadata or ""),
                    (-1, ""),
                    "committed_offset and metadata of an unstable offset",
                )
                found[one.partition_index] = ErrorCode(one.error_code)
            else:
                found[one.partition_index] = (one.committed_offset, one.metadata)
    return found


def committed(c: Check, group: str, topic: Topic, *partitions: int) -> dict[int, int | ErrorCode]:
    """The offsets without `require_stable`; -1 for none."""
    return _offsets(fetched(c, group, topic, *(partitions or (0,))))


def stable(
    c: Check, group: str, topic: Topic, *partitions: int, version: int | None = None
) -> dict[int, int | ErrorCode]:
    """The offsets with `require_stable`, or the errors."""
    return _offsets(fetched(c, group, topic, *(partitions or (0,)), version=version, require_stable=True))


def settled(
    c: Check, group: str, topic: Topic, *partitions: int, version: int | None = None
) -> dict[int, int | ErrorCode]:
    """`stable` when no offset remains unstable: the group's coordinator is informed after the transaction's."""

    def are_stable() -> dict[int, int | ErrorCode] | None:
        found = stable(c, group, topic, *partitions, version=version)
        return None if UNSTABLE in found.values() else found

    return c.until(are_stable, f"stable offsets of {group}")


def _offsets(found: Mapping[int, tuple[int, str | None] | ErrorCode]) -> dict[int, int | ErrorCode]:
    return {index: each[0] if isinstance(each, tuple) else each for index, each in found.items()}


class Member(NamedTuple):
    """The identity of a group's only member."""

    member_id: str
    generation: int
    """In a consumer group, the member's epoch."""


def classic_member(c: Check, group: str, *, instance_id: str | None = None, sync: bool = True) -> Member:
    """Join a classic group, or a static member's place in it, as a step of the setup."""
    wire = c.connect(address=group_coordinator(c, group).address)
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=_SESSION_MS,
        rebalance_timeout_ms=_SESSION_MS,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    with c.setup(f"joining the group {group}"):

        def join() -> Any:
            response = c.call(request, to=wire)
            if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                request.member_id = response.member_id
                response = c.call(request, to=wire)
            if response.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                # Apache Kafka 3.9 deletes groups without members every ten minutes, also one that has just assigned
                # an ID.
                request.member_id = ""
                return None
            return response

        joined = c.until(join, f"a member of {group}")
        c.error(joined.error_code, ErrorCode.NONE, "JoinGroup error_code")
        if sync:
            assignment = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"")
            synced = c.call(
                SyncGroupRequest(
                    group_id=group,
                    generation_id=joined.generation_id,
                    member_id=joined.member_id,
                    group_instance_id=instance_id,
                    protocol_type="consumer",
                    protocol_name="range",
                    assignments=[assignment] if joined.leader == joined.member_id else [],
                ),
                to=wire,
            )
            c.error(synced.error_code, ErrorCode.NONE, "SyncGroup error_code")
    return Member(joined.member_id, joined.generation_id)


def consumer_member(c: Check, group: str, topic: Topic) -> Member:
    """Join a group with the protocol of KIP-848, as a step of the setup."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=uuid_to_str(random_uuid()),
        member_epoch=0,
        rebalance_timeout_ms=_SESSION_MS,
        subscribed_topic_names=[topic.name],
        topic_partitions=[],
    )
    with c.setup(f"joining the group {group}"):
        joined = c.call(request, to=group_coordinator(c, group))
        c.error(joined.error_code, ErrorCode.NONE, "ConsumerGroupHeartbeat error_code")
    return Member(joined.member_id, joined.member_epoch)
