"""Committed offsets: OffsetCommit, OffsetFetch, OffsetDelete (API keys 8, 9, 47).

- OffsetCommit 2 to 10, OffsetFetch 1 to 10 (several groups at once since 8), OffsetDelete 0.
- Topics go by name in the coordinator and by id on the wire since version 10 of the first two. What cannot be resolved
  is answered here, each partition by itself: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION.
- OffsetFetch is a read: it is answered at once, or when what it read is below the high watermark. Before version 8 it
  asks for one group, in another form.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
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
from ..callers import Rewritten
from ..request import PARKED, Parked
from .offset_partitions import BesideRefused, each_topic_once, take_missing

if TYPE_CHECKING:
    from ...coordinator.outcome import Caller
    from ...metadata.image import MetadataImage
    from ..broker import Broker
    from ..request import RequestContext

_TOPIC_IDS_SINCE = 10
_GROUPS_SINCE = 8
_GROUP_ERROR_SINCE = 2


# -- OffsetCommit ------------------------------------------------------------------------------------------------------


def handle_offset_commit(
    broker: Broker, context: RequestContext, request: OffsetCommitRequest
) -> Parked | OffsetCommitResponse:
    """Answered when the offsets are in the log."""
    image = broker.metadata.image
    refused = _resolve_committed(image, context, request)
    caller: Caller = context
    if refused:
        if not request.topics:
            return _merged(refused, OffsetCommitResponse())
        caller = BesideRefused(
            context, partial(_merged, refused), failed=lambda error: failed_offset_commit(request, error)
        )
    broker.groups.run(request.group_id, caller, lambda shard, now: shard.commit_offsets(caller, request, now))
    return PARKED


def _resolve_committed(
    image: MetadataImage, context: RequestContext, request: OffsetCommitRequest
) -> list[OffsetCommitResponseTopic]:
    """Leave the partitions in the request that there are, with their topic's name and id; returns the answers to the
    others."""
    known: list[OffsetCommitRequestTopic] = []
    refused = []
    for topic in request.topics:
        if context.api_version >= _TOPIC_IDS_SINCE:
            found, error = image.topics_by_id.get(topic.topic_id), ErrorCode.UNKNOWN_TOPIC_ID
        else:
            found, error = image.topics_by_name.get(topic.name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if found is None:
            refused.append(_refused(topic, topic.partitions, error))
            continue
        topic.name, topic.topic_id = found.name, found.topic_id
        if missing := take_missing(topic, found.partitions):
            refused.append(_refused(topic, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
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


def _merged(refused: Sequence[OffsetCommitResponseTopic], response: OffsetCommitResponse) -> OffsetCommitResponse:
    """The coordinator's answer behind what was refused here; each topic stands there once."""
    response.topics = each_topic_once((*refused, *response.topics), attrgetter("name", "topic_id"))
    return response


def failed_offset_commit(request: OffsetCommitRequest, error: KafkaError) -> OffsetCommitResponse:
    """The same error for every partition."""
    return OffsetCommitResponse(topics=[_refused(topic, topic.partitions, error.code) for topic in request.topics])


# -- OffsetFetch -------------------------------------------------------------------------------------------------------


def handle_offset_fetch(
    broker: Broker, context: RequestContext, request: OffsetFetchRequest
) -> OffsetFetchResponse | Parked:
    """Read what groups have committed."""
    if context.api_version >= _GROUPS_SINCE:
        response = OffsetFetchResponse(groups=[_fetch(broker, context, request, group) for group in request.groups])
        return broker.groups.when_safe(context, response, [group.group_id for group in request.groups])
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    group = OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)
    response = _in_old_form(_fetch(broker, context, request, group), context.api_version, request)
    return broker.groups.when_safe(context, response, [request.group_id])


def _fetch(
    broker: Broker, context: RequestContext, request: OffsetFetchRequest, group: OffsetFetchRequestGroup
) -> OffsetFetchResponseGroup:
    image = broker.metadata.image
    by_id = context.api_version >= _TOPIC_IDS_SINCE
    unknown: list[OffsetFetchResponseTopics] = []
    if by_id and group.topics is not None:
        known = []
        for topic in group.topics:
            found = image.topics_by_id.get(topic.topic_id)
            if found is None:
                unknown.append(_not_fetched(topic, ErrorCode.UNKNOWN_TOPIC_ID))
            else:
                topic.name = found.name
                known.append(topic)
        group.topics = known
    try:
        response = broker.groups.read(group.group_id).fetch_offsets(group, require_stable=request.require_stable)
    except KafkaError as error:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code)
    if by_id:
        for answered in response.topics:
            named = image.topics_by_name.get(answered.name)
            # A topic that was deleted has no id; nobody could ask for it.
            answered.topic_id = bytes(16) if named is None else named.topic_id
        if group.topics is None:
            response.topics = [answered for answered in response.topics if answered.topic_id != bytes(16)]
        response.topics += unknown
    return response


def _not_fetched(topic: OffsetFetchRequestTopics, error: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, metadata="", error_code=error)
            for index in topic.partition_indexes
        ],
    )


def _in_old_form(group: OffsetFetchResponseGroup, api_version: int, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if group.error_code:
        return _failed_in_old_form(request, ErrorCode(group.error_code), api_version)
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in group.topics
        ]
    )


def _failed_in_old_form(request: OffsetFetchRequest, error: ErrorCode, api_version: int) -> OffsetFetchResponse:
    # Version 1 has no error of the whole request.
    if api_version >= _GROUP_ERROR_SINCE:
        return OffsetFetchResponse(error_code=error)
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=-1, metadata="", error_code=error
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
    )


def failed_offset_fetch(request: OffsetFetchRequest, error: KafkaError) -> OffsetFetchResponse:
    """The error, for every group in the newer form, and for every partition where there is nothing else."""
    response = _failed_in_old_form(request, error.code, 1)
    response.error_code = error.code
    response.groups = [
        OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code) for group in request.groups
    ]
    return response


# -- OffsetDelete ------------------------------------------------------------------------------------------------------


def handle_offset_delete(
    broker: Broker, context: RequestContext, request: OffsetDeleteRequest
) -> Parked | OffsetDeleteResponse:
    """Forget offsets of topics that nobody in the group reads."""
    image = broker.metadata.image
    refused: list[OffsetDeleteResponseTopic] = []
    known = []
    for topic in request.topics:
        found = image.topics_by_name.get(topic.name)
        if missing := take_missing(topic, {} if found is None else found.partitions):
            refused.append(
                OffsetDeleteResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetDeleteResponsePartition(
                            partition_index=partition.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                        )
                        for partition in missing
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
