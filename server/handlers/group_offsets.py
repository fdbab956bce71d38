"""Committed offsets: OffsetCommit, OffsetFetch, OffsetDelete (API keys 8, 9, 47).

- OffsetCommit 2 to 10, OffsetFetch 1 to 10 (several groups at once since 8), OffsetDelete 0.
- Topics go by name in the coordinator and by id on the wire since version 10 of the first two. What cannot be resolved
  is answered here, each partition by itself: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION.
- OffsetFetch is a read: it is answered at once, or when what it read is below the high watermark. Before version 8 it
  asks for one group, in another form. Groups, topics and partitions that are named twice are answered once.
- OffsetCommit of more than `PARTITIONS_AT_ONCE` partitions is several changes of the group, each of which is written,
  or refused, by itself; Apache Kafka refuses what does not fit into one batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ...protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ...protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ..callers import Gathering, Rewritten
from ..request import PARKED, Parked
from ..slices import completed
from .offset_partitions import (
    each_topic_once_in_slices,
    in_pieces,
    some_of,
    take_missing,
)

if TYPE_CHECKING:
    from ...coordinator.outcome import Caller
    from ...metadata.image import MetadataImage
    from ..broker import Broker
    from ..request import RequestContext
    from ..slices import Sliced

_TOPIC_IDS_SINCE = 10
_GROUPS_SINCE = 8
_GROUP_ERROR_SINCE = 2


# -- OffsetCommit ------------------------------------------------------------------------------------------------------


def handle_offset_commit(
    broker: Broker, context: RequestContext, request: OffsetCommitRequest
) -> Sliced[Parked | OffsetCommitResponse]:
    """Answered when the offsets are in the log."""
    refused = yield from _resolve_committed(broker.metadata.image, context, request)
    pieces = yield from in_pieces(request.topics)
    if refused and not pieces:
        return (yield from _merged(refused, []))
    if refused or len(pieces) > 1:
        return (yield from _commit_pieces(broker, context, request, pieces, refused))
    broker.groups.run(request.group_id, context, lambda shard, now: shard.commit_offsets(context, request, now))
    return PARKED


def _commit_pieces(
    broker: Broker,
    context: RequestContext,
    request: OffsetCommitRequest,
    pieces: list[list[OffsetCommitRequestTopic]],
    refused: list[OffsetCommitResponseTopic],
) -> Sliced[Parked]:
    """Commit what was not refused, as several changes of the group if it is much. Each piece succeeds or fails by
    itself."""
    gathering = Gathering(context, len(pieces), lambda responses: context.go_on(_merged(refused, responses)))
    for number, topics in enumerate(pieces):
        piece = OffsetCommitRequest(
            group_id=request.group_id,
            generation_id_or_member_epoch=request.generation_id_or_member_epoch,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            retention_time_ms=request.retention_time_ms,
            topics=topics,
        )
        _commit_piece(broker, gathering, number, piece)
        yield 0
    return PARKED


def _commit_piece(broker: Broker, gathering: Gathering, number: int, piece: OffsetCommitRequest) -> None:
    caller = gathering.caller(number, lambda error: failed_offset_commit(piece, error))
    broker.groups.run(piece.group_id, caller, lambda shard, now: shard.commit_offsets(caller, piece, now))


def _resolve_committed(
    image: MetadataImage, context: RequestContext, request: OffsetCommitRequest
) -> Sliced[list[OffsetCommitResponseTopic]]:
    """Leave the partitions in the request that there are, with their topic's name and id; returns the answers to the
    others."""
    known: list[OffsetCommitRequestTopic] = []
    refused = []
    for topic in request.topics:
        yield 0
        if context.api_version >= _TOPIC_IDS_SINCE:
            found, error = image.topics_by_id.get(topic.topic_id), ErrorCode.UNKNOWN_TOPIC_ID
        else:
            found, error = image.topics_by_name.get(topic.name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if found is None:
            for some in some_of(topic.partitions):
                refused.append(_refused(topic, some, error))
                yield 0
            continue
        topic.name, topic.topic_id = found.name, found.topic_id
        missing = yield from take_missing(topic, found.partitions)
        for some in some_of(missing):
            refused.append(_refused(topic, some, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            yield 0
        if topic.partitions:
            known.append(topic)
    request.topics = known
    return refused


def _refused(
    topic: OffsetCommitRequestTopic, partitions: Iterable[OffsetCommitRequestPartition], error: ErrorCode
) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
            for partition in partitions
        ],
    )


def _merged(
    refused: Sequence[OffsetCommitResponseTopic], responses: Sequence[OffsetCommitResponse]
) -> Sliced[OffsetCommitResponse]:
    """The coordinator's answers behind what was refused here; each topic stands there once."""
    answered = (topic for response in responses for topic in response.topics)
    topics = yield from each_topic_once_in_slices(chain(refused, answered), attrgetter("name", "topic_id"))
    return OffsetCommitResponse(topics=topics)


def failed_offset_commit(request: OffsetCommitRequest, error: KafkaError) -> OffsetCommitResponse:
    """The same error for every partition."""
    return OffsetCommitResponse(topics=[_refused(topic, topic.partitions, error.code) for topic in request.topics])


# -- OffsetFetch -------------------------------------------------------------------------------------------------------


def handle_offset_fetch(
    broker: Broker, context: RequestContext, request: OffsetFetchRequest
) -> Sliced[OffsetFetchResponse | Parked]:
    """Read what groups have committed."""
    if context.api_version >= _GROUPS_SINCE:
        groups = yield from _each_group_once(request.groups)
        response = OffsetFetchResponse()
        for group in groups:
            response.groups.append((yield from _fetch(broker, context, request, group)))
            yield 0
        return broker.groups.when_safe(context, response, [group.group_id for group in groups])
    topics = None
    if request.topics is not None:
        topics = []
        for topic in request.topics:
            topics.append(OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes))
            yield 0
    group = OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)
    fetched = yield from _fetch(broker, context, request, group)
    response = yield from _in_old_form(fetched, context.api_version, request)
    return broker.groups.when_safe(context, response, [request.group_id])


def _each_group_once(groups: list[OffsetFetchRequestGroup]) -> Sliced[list[OffsetFetchRequestGroup]]:
    """A group that is named twice is answered once, with the topics of both."""
    once: dict[str, OffsetFetchRequestGroup] = {}
    for group in groups:
        yield 0
        first = once.setdefault(group.group_id, group)
        if first is not group:
            first.topics = None if first.topics is None or group.topics is None else first.topics + group.topics
    return list(once.values())


def _each_topic_once(topics: list[OffsetFetchRequestTopics]) -> Sliced[list[OffsetFetchRequestTopics]]:
    once: dict[tuple[str, bytes], OffsetFetchRequestTopics] = {}
    for topic in topics:
        yield 0
        first = once.setdefault((topic.name, topic.topic_id), topic)
        if first is not topic:
            first.partition_indexes += topic.partition_indexes
    return list(once.values())


def _fetch(
    broker: Broker, context: RequestContext, request: OffsetFetchRequest, group: OffsetFetchRequestGroup
) -> Sliced[OffsetFetchResponseGroup]:
    image = broker.metadata.image
    by_id = context.api_version >= _TOPIC_IDS_SINCE
    unknown: list[OffsetFetchResponseTopics] = []
    if group.topics is not None:
        group.topics = yield from _each_topic_once(group.topics)
    if by_id and group.topics is not None:
        known = []
        for topic in group.topics:
            yield 0
            found = image.topics_by_id.get(topic.topic_id)
            if found is None:
                unknown.append((yield from _not_fetched(topic, ErrorCode.UNKNOWN_TOPIC_ID)))
            else:
                topic.name = found.name
                known.append(topic)
        group.topics = known
    try:
        shard = broker.groups.read(group.group_id)
        response = yield from shard.fetch_offsets(group, require_stable=request.require_stable)
        broker.groups.read(group.group_id)  # it may have been given up in the meantime
    except KafkaError as error:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code)
    if by_id:
        for answered in response.topics:
            yield 0
            named = image.topics_by_name.get(answered.name)
            # A topic that was deleted has no id; nobody could ask for it.
            answered.topic_id = bytes(16) if named is None else named.topic_id
        if group.topics is None:
            response.topics = [answered for answered in response.topics if answered.topic_id != bytes(16)]
        response.topics += unknown
    return response


def _not_fetched(topic: OffsetFetchRequestTopics, error: ErrorCode) -> Sliced[OffsetFetchResponseTopics]:
    answer = OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id)
    for index in dict.fromkeys(topic.partition_indexes):
        yield 0
        answer.partitions.append(
            OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, metadata="", error_code=error)
        )
    return answer


def _in_old_form(
    group: OffsetFetchResponseGroup, api_version: int, request: OffsetFetchRequest
) -> Sliced[OffsetFetchResponse]:
    if group.error_code:
        # Version 1 has no error of the whole request.
        if api_version >= _GROUP_ERROR_SINCE:
            return OffsetFetchResponse(error_code=group.error_code)
        return (yield from _failed_in_version_1(request, ErrorCode(group.error_code)))
    response = OffsetFetchResponse()
    for topic in group.topics:
        answer = OffsetFetchResponseTopic(name=topic.name)
        response.topics.append(answer)
        for partition in topic.partitions:
            yield 0
            answer.partitions.append(
                OffsetFetchResponsePartition(
                    partition_index=partition.partition_index,
                    committed_offset=partition.committed_offset,
                    committed_leader_epoch=partition.committed_leader_epoch,
                    metadata=partition.metadata,
                    error_code=partition.error_code,
                )
            )
    return response


def _failed_in_version_1(request: OffsetFetchRequest, error: ErrorCode) -> Sliced[OffsetFetchResponse]:
    response = OffsetFetchResponse()
    for topic in request.topics or ():
        answer = OffsetFetchResponseTopic(name=topic.name)
        response.topics.append(answer)
        for index in topic.partition_indexes:
            yield 0
            answer.partitions.append(
                OffsetFetchResponsePartition(partition_index=index, committed_offset=-1, metadata="", error_code=error)
            )
    return response


def failed_offset_fetch(request: OffsetFetchRequest, error: KafkaError) -> OffsetFetchResponse:
    """The error, for every group in the newer form, and for every partition where there is nothing else."""
    response = completed(_failed_in_version_1(request, error.code))
    response.error_code = error.code
    response.groups = [
        OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code) for group in request.groups
    ]
    return response


# -- OffsetDelete ------------------------------------------------------------------------------------------------------


def handle_offset_delete(
    broker: Broker, context: RequestContext, request: OffsetDeleteRequest
) -> Sliced[Parked | OffsetDeleteResponse]:
    """Forget offsets of topics that nobody in the group reads."""
    image = broker.metadata.image
    refused: list[OffsetDeleteResponseTopic] = []
    known = []
    for topic in request.topics:
        found = image.topics_by_name.get(topic.name)
        missing = yield from take_missing(topic, {} if found is None else found.partitions)
        for some in some_of(missing):
            yield 0
            refused.append(
                OffsetDeleteResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetDeleteResponsePartition(
                            partition_index=partition.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                        )
                        for partition in some
                    ],
                )
            )
        if topic.partitions:
            known.append(topic)
    request.topics = known

    def with_refused(response: OffsetDeleteResponse) -> OffsetDeleteResponse:
        if not response.error_code:
            response.topics = refused + response.topics
        return response

    caller: Caller = Rewritten(context, with_refused) if refused else context
    broker.groups.run(request.group_id, caller, lambda shard, now: shard.delete_offsets(caller, request, now))
    return PARKED


def failed_offset_delete(request: OffsetDeleteRequest, error: KafkaError) -> OffsetDeleteResponse:
    """The error of the whole request."""
    return OffsetDeleteResponse(error_code=error.code)
