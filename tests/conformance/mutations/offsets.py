"""Defects of committed offsets."""

from __future__ import annotations

from typing import Any

from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.offset_delete import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

from ..mutating_proxy import Exchange, Mutation
from .changes import (
    ZERO_ID,
    always,
    apply,
    becomes,
    each,
    empty,
    error_hidden,
    in_request,
    in_response,
    null_if_empty,
    plus,
    upper,
    without_last,
)

COMMIT, OFFSETS, OFFSET_DELETE = ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.OFFSET_DELETE


def _offsets_not_deleted(exchange: Exchange, request: Any) -> Any:
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(partition_index=each.partition_index) for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _as_simple_consumer(exchange: Exchange, request: Any) -> None:
    request.generation_id_or_member_epoch, request.member_id = -1, ""


def _without_fencing(exchange: Exchange, response: Any) -> None:
    fenced = (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)
    apply(response, "topics.partitions.error_code", becomes(dict.fromkeys(fenced, 0)))


_FETCHED = ("groups.topics.partitions", "topics.partitions")


def _fetched(field: str) -> tuple[str, ...]:
    return tuple(f"{path}.{field}" for path in _FETCHED)


def _unknown_offset_is_zero(exchange: Exchange, response: Any) -> None:
    apply(response, _fetched("committed_offset"), becomes({-1: 0}))


def _unknown_offset_is_error(exchange: Exchange, response: Any) -> None:
    for path in _FETCHED:
        for partition in each(response, path):
            if partition.committed_offset == -1 and not partition.error_code:
                partition.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _groups_swapped(exchange: Exchange, response: Any) -> None:
    names = [group.group_id for group in response.groups]
    for group, name in zip(response.groups, names[::-1], strict=True):
        group.group_id = name


def _fetched_without_member(exchange: Exchange, request: Any) -> None:
    for group in request.groups:
        group.member_id, group.member_epoch = None, -1


def _all_for_none(exchange: Exchange, request: Any) -> None:
    for group in request.groups if exchange.version >= 8 else [request]:
        if group.topics == []:
            group.topics = None


_COMMITTED = "topics.partitions.error_code"
MUTATIONS = [
    in_request(
        "offsets.commit.plus-one", "committed offsets are one too high",
        COMMIT, "topics.partitions.committed_offset", plus(1), "offsets.commit",
    ),
    in_request(
        "offsets.commit.metadata", "the metadata of committed offsets is lost",
        COMMIT, "topics.partitions.committed_metadata", empty, "offsets.commit",
    ),
    in_request(
        "offsets.commit.leader-epoch", "the leader epoch of committed offsets is lost",
        COMMIT, "topics.partitions.committed_leader_epoch", always(-1), "offsets.commit",
    ),
    in_request(
        "offsets.commit.last-partition", "the last partition is not committed",
        COMMIT, "topics.partitions", without_last, "offsets.commit",
    ),
    Mutation(
        "offsets.commit.as-simple-consumer", "member and generation are ignored",
        ("offsets.commit",), (COMMIT,), on_request=_as_simple_consumer,
    ),
    Mutation(
        "offsets.commit.unfenced", "a commit of a fenced member has no error",
        ("offsets.commit",), (COMMIT,), on_response=_without_fencing,
    ),
    error_hidden(
        "offsets.commit.generation", "a commit of an old generation has no error",
        COMMIT, _COMMITTED, ErrorCode.ILLEGAL_GENERATION, "offsets.commit",
    ),
    error_hidden(
        "offsets.commit.unknown-topic", "a commit for an unknown topic has no error",
        COMMIT, _COMMITTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "offsets.commit",
    ),
    error_hidden(
        "offsets.commit.unknown-topic-id", "a commit for an unknown topic ID has no error in version 10",
        COMMIT, _COMMITTED, ErrorCode.UNKNOWN_TOPIC_ID, "offsets.commit",
    ),
    error_hidden(
        "offsets.commit.metadata-size", "metadata that is too large has no error",
        COMMIT, _COMMITTED, ErrorCode.OFFSET_METADATA_TOO_LARGE, "offsets.commit",
    ),
    in_response(
        "offsets.commit.partition-index", "the partition of the response is one too high",
        COMMIT, "topics.partitions.partition_index", plus(1), "offsets.commit",
    ),
    in_response(
        "offsets.commit.topic-id", "the response has no topic ID in version 10",
        COMMIT, "topics.topic_id", always(ZERO_ID), "offsets.commit",
    ),
    in_response(
        "offsets.commit.topic-name", "the topic of the response is in upper case before version 10",
        COMMIT, "topics.name", upper, "offsets.commit",
    ),
    in_response(
        "offsets.fetch.plus-one", "fetched offsets are one too high",
        OFFSETS, _fetched("committed_offset"), plus(1), "offsets.fetch",
    ),
    Mutation(
        "offsets.fetch.unknown-is-zero", "a partition without a committed offset has offset 0 instead of -1",
        ("offsets.fetch",), (OFFSETS,), on_response=_unknown_offset_is_zero,
    ),
    Mutation(
        "offsets.fetch.unknown-is-error", "a partition without a committed offset has an error",
        ("offsets.fetch",), (OFFSETS,), on_response=_unknown_offset_is_error,
    ),
    in_response(
        "offsets.fetch.metadata.null", "empty metadata is null",
        OFFSETS, _fetched("metadata"), null_if_empty, "offsets.fetch",
    ),
    in_response(
        "offsets.fetch.leader-epoch", "fetched offsets have no leader epoch from version 5 on",
        OFFSETS, _fetched("committed_leader_epoch"), always(-1), "offsets.fetch",
    ),
    in_response(
        "offsets.fetch.partition-index", "the partition of the response is one too high",
        OFFSETS, _fetched("partition_index"), plus(1), "offsets.fetch",
    ),
    in_response(
        "offsets.fetch.partition-missing", "the last partition is missing",
        OFFSETS, _FETCHED, without_last, "offsets.fetch",
    ),
    in_response(
        "offsets.fetch.topic-id", "the response has no topic ID in version 10",
        OFFSETS, "groups.topics.topic_id", always(ZERO_ID), "offsets.fetch",
    ),
    in_response(
        "offsets.fetch.group", "the group of the response is in upper case from version 8 on",
        OFFSETS, "groups.group_id", upper, "offsets.fetch",
    ),
    Mutation(
        "offsets.fetch.groups-swapped", "two groups of a request are swapped in the response",
        ("offsets.fetch",), (OFFSETS,), on_response=_groups_swapped,
    ),
    in_request(
        "offsets.fetch.stable.ignored", "require_stable is ignored",
        OFFSETS, "require_stable", always(False), "offsets.fetch",
    ),
    error_hidden(
        "offsets.fetch.unstable", "an unstable offset has no error",
        OFFSETS, _fetched("error_code"), ErrorCode.UNSTABLE_OFFSET_COMMIT, "offsets.fetch",
    ),
    Mutation(
        "offsets.fetch.member.ignored", "member and epoch are ignored from version 9 on",
        ("offsets.members", "consumer-groups.offsets"), (OFFSETS,), on_request=_fetched_without_member,
    ),
    Mutation(
        "offsets.fetch.none-is-all", "a request without topics has all topics as its response",
        ("offsets.fetch",), (OFFSETS,), on_request=_all_for_none,
    ),
    Mutation(
        "offsets.delete.ignored", "deleted offsets remain",
        ("offsets.delete",), (OFFSET_DELETE,), on_request=_offsets_not_deleted,
    ),
    error_hidden(
        "offsets.delete.subscribed", "the deletion of offsets of a subscribed topic has no error",
        OFFSET_DELETE, "topics.partitions.error_code", ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, "offsets.delete",
    ),
    error_hidden(
        "offsets.delete.unknown-group", "the deletion of offsets of an unknown group has no error",
        OFFSET_DELETE, "error_code", ErrorCode.GROUP_ID_NOT_FOUND, "offsets.delete",
    ),
    error_hidden(
        "offsets.delete.unknown-partition", "the deletion of offsets of an unknown partition has no error",
        OFFSET_DELETE, "topics.partitions.error_code", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "offsets.delete",
    ),
]  # fmt: skip
