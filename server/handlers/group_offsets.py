"""Committed offsets: OffsetCommit, OffsetFetch, OffsetDelete (API keys 8, 9, 47).

- OffsetCommit 2 to 10, OffsetFetch 1 to 10 (several groups per request since version 8), OffsetDelete 0.
- Topics have names in the coordinator, and ids in the protocol since version 10 of OffsetCommit and OffsetFetch.
  Partitions that cannot be resolved get their errors here, each independently: UNKNOWN_TOPIC_ID,
  UNKNOWN_TOPIC_OR_PARTITION.
- OffsetFetch is a read. The response is sent immediately, or when the data that was read is below the high watermark.
  Before version 8, the request is for one group, in another form. Groups, topics and partitions that are named twice
  are returned once.
- OffsetCommit of more than `PARTITIONS_PER_STEP` partitions is several changes of the group, each of which is written
  or rejected independently. Apache Kafka rejects a request that does not fit into one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
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
from ...protocol.steps import completed, each, each_once, freed
from ..concurrency.pending import Pending
from ..concurrency.slices import release
from ..context import DEFERRED, Deferred
from ..coordination.callers import Part, Rewritten
from .offset_partitions import (
    each_topic_once,
    in_pieces,
    some_of,
    take_missing,
)

if TYPE_CHECKING:
    from ...coordinator.outcome import Caller
    from ...metadata.image import MetadataImage
    from ..broker import Broker
    from ..concurrency.slices import Sliced
    from ..context import RequestContext

_TOPIC_IDS_SINCE = 10
_GROUPS_SINCE = 8
_GROUP_ERROR_SINCE = 2

_FEW_PARTITIONS = 16


# -- OffsetCommit ------------------------------------------------------------------------------------------------------


def handle_offset_commit(
    broker: Broker, context: RequestContext, request: OffsetCommitRequest
) -> Deferred | Sliced[Deferred | OffsetCommitResponse]:
    """The response follows when the offsets are in the log."""
    if not _is_simple(broker.metadata.image, context, request):
        return _commit_in_slices(broker, context, request)
    broker.groups.run(request.group_id, context, lambda shard, now: shard.commit_offsets(context, request, now))
    return DEFERRED


def _is_simple(image: MetadataImage, context: RequestContext, request: OffsetCommitRequest) -> bool:
    """Whether the request has a few partitions of one topic that all exist. If so, the topic gets its name and its id.

    Most commits are like this. They need no slices, which would cost more than this check.
    """
    if len(request.topics) != 1 or not 0 < len(request.topics[0].partitions) <= _FEW_PARTITIONS:
        return False
    (topic,) = request.topics
    by_id = context.api_version >= _TOPIC_IDS_SINCE
    found = image.topics_by_id.get(topic.topic_id) if by_id else image.topics_by_name.get(topic.name)
    if found is None:
        return False
    for partition in topic.partitions:
        if partition.partition_index not in found.partitions:
            return False
    topic.name, topic.topic_id = found.name, found.topic_id
    return True


def _commit_in_slices(
    broker: Broker, context: RequestContext, request: OffsetCommitRequest
) -> Sliced[Deferred | OffsetCommitResponse]:
    refused = yield from _resolve_committed(broker.metadata.image, context, request)
    pieces = yield from in_pieces(request.topics)
    if refused and not pieces:
        return (yield from _merged(refused, []))
    if refused or len(pieces) > 1:
        return (yield from _commit_pieces(broker, context, request, pieces, refused))
    broker.groups.run(request.group_id, context, lambda shard, now: shard.commit_offsets(context, request, now))
    return DEFERRED


def _commit_pieces(
    broker: Broker,
    context: RequestContext,
    request: OffsetCommitRequest,
    pieces: list[list[OffsetCommitRequestTopic]],
    refused: list[OffsetCommitResponseTopic],
) -> Sliced[Deferred]:
    """Commit the partitions that were not rejected, by several changes of the group if there are many.

    Each piece succeeds or fails independently.
    """
    pending: Pending[OffsetCommitResponse, KafkaError] = Pending(
        lambda responses: context.reply_in_slices(_merged(refused, responses))
    )
    for topics in pieces:
        piece = OffsetCommitRequest(
            group_id=request.group_id,
            generation_id_or_member_epoch=request.generation_id_or_member_epoch,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            retention_time_ms=request.retention_time_ms,
            topics=topics,
        )
        _commit_piece(broker, context, pending, piece)
        yield 0
    pending.start()
    return DEFERRED


def _commit_piece(
    broker: Broker,
    context: RequestContext,
    pending: Pending[OffsetCommitResponse, KafkaError],
    piece: OffsetCommitRequest,
) -> None:
    caller = Part(context, pending, lambda error: completed(failed_offset_commit(piece, error)))
    broker.groups.run(piece.group_id, caller, lambda shard, now: shard.commit_offsets(caller, piece, now))


def _resolve_committed(
    image: MetadataImage, context: RequestContext, request: OffsetCommitRequest
) -> Sliced[list[OffsetCommitResponseTopic]]:
    """Keep only existing partitions in the request, with the name and id of their topic.

    Returns the results of the others.
    """
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
    topics, request.topics = request.topics, known
    yield from freed(topics)
    return refused


def _refused(
    topic: OffsetCommitRequestTopic, partitions: Iterable[OffsetCommitRequestPartition], error: ErrorCode
) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[_refused_partition(error, partition) for partition in partitions],
    )


def _refused_partition(error: ErrorCode, partition: OffsetCommitRequestPartition) -> OffsetCommitResponsePartition:
    return OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)


def _merged(
    refused: Sequence[OffsetCommitResponseTopic], responses: Sequence[OffsetCommitResponse]
) -> Sliced[OffsetCommitResponse]:
    """The coordinator's results behind the partitions that were rejected here. Each topic appears once."""
    answered = (topic for response in responses for topic in response.topics)
    topics = yield from each_topic_once(chain(refused, answered), attrgetter("name", "topic_id"))
    return OffsetCommitResponse(topics=topics)


def failed_offset_commit(request: OffsetCommitRequest, error: KafkaError) -> Sliced[OffsetCommitResponse]:
    """The same error for every partition."""
    response = OffsetCommitResponse()
    for topic in request.topics:
        partitions = yield from each(partial(_refused_partition, error.code), topic.partitions)
        response.topics.append(
            OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
        )
        yield 1
    return response


# -- OffsetFetch -------------------------------------------------------------------------------------------------------


def handle_offset_fetch(
    broker: Broker, context: RequestContext, request: OffsetFetchRequest
) -> Sliced[OffsetFetchResponse | Deferred]:
    """Read the committed offsets of groups."""
    if context.api_version >= _GROUPS_SINCE:
        groups = yield from _each_group_once(request.groups)
        response = OffsetFetchResponse()
        for group in groups:
            response.groups.append((yield from _fetch(broker, context, request, group)))
            yield 0
        group_ids = yield from each(attrgetter("group_id"), groups)
        return broker.groups.when_committed(context, response, group_ids)
    topics = None
    if request.topics is not None:
        topics = []
        for topic in request.topics:
            topics.append(OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes))
            yield 0
    group = OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)
    fetched = yield from _fetch(broker, context, request, group)
    response = yield from _in_old_form(fetched, context.api_version, request)
    yield from release(fetched)
    yield from release(group)
    return broker.groups.when_committed(context, response, [request.group_id])


def _each_group_once(groups: list[OffsetFetchRequestGroup]) -> Sliced[list[OffsetFetchRequestGroup]]:
    """Merge groups that are named twice: each is returned once, with the topics of both."""
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
        broker.groups.read(group.group_id)  # the coordinator may have been closed meanwhile
    except KafkaError as error:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code)
    if by_id:
        for answered in response.topics:
            yield 0
            named = image.topics_by_name.get(answered.name)
            # A deleted topic has no id, so no client could request it.
            answered.topic_id = bytes(16) if named is None else named.topic_id
        if group.topics is None:
            response.topics = [answered for answered in response.topics if answered.topic_id != bytes(16)]
        response.topics += unknown
    return response


def _not_fetched(topic: OffsetFetchRequestTopics, error: ErrorCode) -> Sliced[OffsetFetchResponseTopics]:
    answer = OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id)
    for index in (yield from each_once(topic.partition_indexes)):
        yield 0
        answer.partitions.append(
            OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, metadata="", error_code=error)
        )
    return answer


def _in_old_form(
    group: OffsetFetchResponseGroup, api_version: int, request: OffsetFetchRequest
) -> Sliced[OffsetFetchResponse]:
    if group.error_code:
        # Version 1 has no error of the request.
        if api_version >= _GROUP_ERROR_SINCE:
            return OffsetFetchResponse(error_code=group.error_code)
        return (yield from _failed_in_version_1(request, ErrorCode(group.error_code)))
    response = OffsetFetchResponse()
    for topic in group.topics:
        answer = OffsetFetchResponseTopic(name=topic.name)
        response.topics.append(answer)
        yield 0
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
        yield 0
        for index in topic.partition_indexes:
            yield 0
            answer.partitions.append(
                OffsetFetchResponsePartition(partition_index=index, committed_offset=-1, metadata="", error_code=error)
            )
    return response


def failed_offset_fetch_in(version: int) -> Callable[[OffsetFetchRequest, KafkaError], Sliced[OffsetFetchResponse]]:
    """The error of every group since version 8, of the request since version 2, and of every partition in version 1."""

    def refused(group: OffsetFetchRequestGroup, error: KafkaError) -> OffsetFetchResponseGroup:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code)

    def failed(request: OffsetFetchRequest, error: KafkaError) -> Sliced[OffsetFetchResponse]:
        if version < _GROUP_ERROR_SINCE:
            return (yield from _failed_in_version_1(request, error.code))
        groups = yield from each(lambda group: refused(group, error), request.groups)
        return OffsetFetchResponse(error_code=error.code, groups=groups)

    return failed


# -- OffsetDelete ------------------------------------------------------------------------------------------------------


def handle_offset_delete(
    broker: Broker, context: RequestContext, request: OffsetDeleteRequest
) -> Sliced[Deferred | OffsetDeleteResponse]:
    """Delete the offsets of topics that no member of the group consumes."""
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

    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)

    def with_refused(response: OffsetDeleteResponse) -> OffsetDeleteResponse:
        """A topic has one entry: its rejected partitions, and then the others."""
        if not response.error_code:
            entries = {topic.name: topic for topic in response.topics}
            for topic in reversed(refused):
                entry = entries.get(topic.name)
                if entry is None:
                    entries[topic.name] = topic
                else:
                    entry.partitions[:0] = topic.partitions
            response.topics = list(entries.values())
        return response

    caller: Caller = Rewritten(context, with_refused) if refused else context
    broker.groups.run(request.group_id, caller, lambda shard, now: shard.delete_offsets(caller, request, now))
    return DEFERRED


def failed_offset_delete(request: OffsetDeleteRequest, error: KafkaError) -> OffsetDeleteResponse:
    """The error for the whole request."""
    return OffsetDeleteResponse(error_code=error.code)
