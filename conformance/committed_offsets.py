"""OffsetCommit, OffsetFetch and OffsetDelete for one group, in any version: by topic name or by topic ID."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from ..protocol.api import ApiKey
from ..protocol.errors import ErrorCode
from ..protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ..protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from ..protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from .check import Check, Topic
from .exchange import Connection

COMMIT_BY_ID = 10
FETCH_BY_ID = 10
BATCHED_FETCH = 8
"""The first version of OffsetFetch with several groups (KIP-709)."""


class Committed(NamedTuple):
    """What OffsetFetch returns for one partition."""

    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""
    error_code: int = 0


NONE = Committed(-1)
"""A partition for which nothing is committed."""


def commit_request(
    group_id: str,
    topic: Topic,
    offsets: Mapping[int, int],
    *,
    member_id: str = "",
    generation: int = -1,
    instance_id: str | None = None,
    metadata: str | None = "",
    leader_epoch: int = -1,
) -> OffsetCommitRequest:
    """OffsetCommit for partitions of one topic; without a member it is one from outside the group."""
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=offset,
                        committed_leader_epoch=leader_epoch,
                        committed_metadata=metadata,
                    )
                    for index, offset in offsets.items()
                ],
            )
        ],
    )


def commit(
    c: Check, to: Connection, request: OffsetCommitRequest, version: int | None = None
) -> dict[str | bytes, list[tuple[int, int]]]:
    """Send a commit; the result has partitions and error codes by topic, sorted: their order differs by release."""
    version = c.version(ApiKey.OFFSET_COMMIT) if version is None else version
    response = c.call(request, version, to=to)
    once(c, [topic.topic_id if version >= COMMIT_BY_ID else topic.name for topic in response.topics], "topics")
    return {
        (topic.topic_id if version >= COMMIT_BY_ID else topic.name): sorted(
            (each.partition_index, each.error_code) for each in topic.partitions
        )
        for topic in response.topics
    }


def commit_error(c: Check, to: Connection, request: OffsetCommitRequest, version: int | None = None) -> int:
    """Send a commit for one partition, and return its error code."""
    found = list(commit(c, to, request, version).values())
    c.equal([len(partitions) for partitions in found], [1], "OffsetCommit partitions per topic")
    return found[0][0][1]


def committed_before(c: Check, to: Connection, request: OffsetCommitRequest, version: int | None = None) -> None:
    """Send a commit as a step of the setup."""
    with c.setup(f"committing offsets of {request.group_id}"):
        for partitions in commit(c, to, request, version).values():
            for index, error_code in partitions:
                c.error(error_code, ErrorCode.NONE, f"OffsetCommit error_code of partition {index}")


def fetch_group(
    group_id: str, topics: Mapping[Topic, Sequence[int]] | None, member_id: str | None = None, member_epoch: int = -1
) -> OffsetFetchRequestGroup:
    """One group of a request, for versions from 8 on; `topics=None` requests everything."""
    requested = None
    if topics is not None:
        requested = [
            OffsetFetchRequestTopics(name=topic.name, topic_id=topic.topic_id, partition_indexes=list(partitions))
            for topic, partitions in topics.items()
        ]
    return OffsetFetchRequestGroup(group_id=group_id, member_id=member_id, member_epoch=member_epoch, topics=requested)


class Fetched(NamedTuple):
    """What OffsetFetch returns for one group."""

    error_code: int
    topics: dict[str | bytes, dict[int, Committed]]


def fetch(
    c: Check,
    to: Connection,
    group_id: str,
    topics: Mapping[Topic, Sequence[int]] | None,
    version: int | None = None,
    *,
    require_stable: bool = False,
    member_id: str | None = None,
    member_epoch: int = -1,
) -> Fetched:
    """OffsetFetch of one group, in the form that the version has. Topics are by name, from version 10 on by ID."""
    version = c.version(ApiKey.OFFSET_FETCH) if version is None else version
    if version >= BATCHED_FETCH:
        group = fetch_group(group_id, topics, member_id, member_epoch)
        response = c.call(OffsetFetchRequest(groups=[group], require_stable=require_stable), version, to=to)
        c.equal([each.group_id for each in response.groups], [group_id], "groups (group_id)")
        return fetched(c, response.groups[0], version)
    requested = None
    if topics is not None:
        requested = [
            OffsetFetchRequestTopic(name=topic.name, partition_indexes=list(partitions))
            for topic, partitions in topics.items()
        ]
    request = OffsetFetchRequest(group_id=group_id, topics=requested, require_stable=require_stable)
    return fetched(c, c.call(request, version, to=to), version)


def fetched(c: Check, group: Any, version: int) -> Fetched:
    """A group of a response or, up to version 7, the response.

    Where nothing is committed, null metadata is as good as an empty string: no client reads it.
    """
    once(c, [topic.topic_id if version >= FETCH_BY_ID else topic.name for topic in group.topics], "topics")
    for topic in group.topics:
        once(c, [each.partition_index for each in topic.partitions], "partitions")
    return Fetched(
        group.error_code,
        {
            (topic.topic_id if version >= FETCH_BY_ID else topic.name): {
                each.partition_index: Committed(
                    each.committed_offset,
                    each.committed_leader_epoch,
                    "" if each.committed_offset < 0 and each.metadata is None else each.metadata,
                    each.error_code,
                )
                for each in topic.partitions
            }
            for topic in group.topics
        },
    )


def key_of(topic: Topic, version: int) -> str | bytes:
    """How a response of this version of OffsetCommit or OffsetFetch names a topic."""
    return topic.topic_id if version >= FETCH_BY_ID else topic.name


def offsets(c: Check, to: Connection, group_id: str, topic: Topic, partitions: Iterable[int]) -> dict[int, int]:
    """The committed offsets by partition, -1 for none; to see the effect of a request."""
    version = c.version(ApiKey.OFFSET_FETCH)
    found = fetch(c, to, group_id, {topic: list(partitions)}, version)
    c.error(found.error_code, ErrorCode.NONE, "OffsetFetch error_code")
    entries = found.topics[key_of(topic, version)]
    c.equal({each.error_code for each in entries.values()}, {0}, "OffsetFetch error codes of the partitions")
    return {index: each.offset for index, each in entries.items()}


def delete(c: Check, to: Connection, group_id: str, topics: Mapping[str, Sequence[int]]) -> OffsetDeleteResponse:
    """OffsetDelete for partitions of topics."""
    requested = [
        OffsetDeleteRequestTopic(
            name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in partitions]
        )
        for name, partitions in topics.items()
    ]
    request = OffsetDeleteRequest(group_id=group_id, topics=requested)
    return cast(OffsetDeleteResponse, c.call(request, 0, to=to))


def deleted(c: Check, response: OffsetDeleteResponse) -> dict[str, dict[int, int]]:
    """The error codes in a response, by topic and partition. A topic may have several entries."""
    found: dict[str, dict[int, int]] = {}
    for topic in response.topics:
        partitions = found.setdefault(topic.name, {})
        once(c, [*partitions, *(each.partition_index for each in topic.partitions)], "partitions")
        partitions.update({each.partition_index: each.error_code for each in topic.partitions})
    return found


def once(c: Check, entries: Sequence[object], what: str) -> None:
    """No entry of a response occurs twice."""
    repeated = sorted({str(entry) for entry in entries if entries.count(entry) > 1})
    c.equal(repeated, [], f"{what} with more than one entry")
