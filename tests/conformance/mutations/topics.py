"""Defects of the creation, deletion and change of topics, and of DeleteRecords."""

from __future__ import annotations

from typing import Any

from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse

from ..mutating_proxy import Exchange, Mutation
from .changes import (
    ZERO_ID,
    always,
    another_id,
    becomes,
    empty,
    error_hidden,
    in_request,
    in_response,
    inverted,
    last_twice,
    message_if_none,
    plus,
    positive_plus,
    upper,
    without_first,
    without_last,
)

CREATE, DELETE, PARTITIONS = ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS
RECORDS, ELECT = ApiKey.DELETE_RECORDS, ApiKey.ELECT_LEADERS
REASSIGN, REASSIGNMENTS = ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.LIST_PARTITION_REASSIGNMENTS
_CREATED = "topics.error_code"
_DELETED = "responses.error_code"


def _not_deleted(exchange: Exchange, request: Any) -> Any:
    """The topics remain; only for requests that name them."""
    results = [DeletableTopicResult(name=topic.name, topic_id=topic.topic_id) for topic in request.topics]
    results += [DeletableTopicResult(name=name) for name in request.topic_names]
    return DeleteTopicsResponse(responses=results)


def _not_deleted_by_id(exchange: Exchange, request: Any) -> None:
    for topic in request.topics:
        if any(topic.topic_id):
            topic.topic_id = another_id(topic.topic_id)


def _all_fail_with_one(exchange: Exchange, response: Any) -> None:
    """An error of one topic is that of all topics."""
    errors = [topic.error_code for topic in response.topics if topic.error_code]
    for topic in response.topics:
        if errors:
            topic.error_code = errors[0]


def _errors_swapped(exchange: Exchange, response: Any) -> None:
    names = [topic.name for topic in response.topics]
    for topic, name in zip(response.topics, names[::-1], strict=True):
        topic.name = name


CREATE_MUTATIONS = [
    in_response(
        "topics.create.topic-id", "the response has no topic ID in version 7",
        CREATE, "topics.topic_id", always(ZERO_ID), "topics.create",
    ),
    in_response(
        "topics.create.partitions", "the number of partitions in the response is one too high from version 5 on",
        CREATE, "topics.num_partitions", plus(1), "topics.create",
    ),
    in_response(
        "topics.create.replication-factor", "the replication factor in the response is unknown from version 5 on",
        CREATE, "topics.replication_factor", always(-1), "topics.create",
    ),
    in_response(
        "topics.create.configs.missing", "the response has no configs from version 5 on",
        CREATE, "topics.configs", empty, "topics.create",
    ),
    in_response(
        "topics.create.configs.null", "the configs of the response are null from version 5 on",
        CREATE, "topics.configs", always(None), "topics.create",
    ),
    in_response(
        "topics.create.configs.value", "the configs of the response have no values",
        CREATE, "topics.configs.value", always(None), "topics.create",
    ),
    in_response(
        "topics.create.configs.source", "the configs of the response are all defaults",
        CREATE, "topics.configs.config_source", always(5), "topics.create",
    ),
    in_response(
        "topics.create.configs.read-only", "the configs of the response are read-only",
        CREATE, "topics.configs.read_only", inverted, "topics.create",
    ),
    in_response(
        "topics.create.name", "the name in the response is in upper case",
        CREATE, "topics.name", upper, "topics.create",
    ),
    in_response(
        "topics.create.message", "an error has no message",
        CREATE, "topics.error_message", always(None), "topics.create",
    ),
    in_response(
        "topics.create.message-of-success", "a success has an error message",
        CREATE, "topics.error_message", message_if_none, "topics.create",
    ),
    in_request(
        "topics.create.validate-only", "validate_only is ignored",
        CREATE, "validate_only", always(False), "topics.create",
    ),
    in_request(
        "topics.create.configs.ignored", "configs of the request are ignored",
        CREATE, "topics.configs", empty, "topics.create",
    ),
    in_request(
        "topics.create.assignments.ignored", "a topic with assignments has the default number of partitions",
        CREATE, "topics.assignments", empty, "topics.create",
    ),
    in_request(
        "topics.create.partitions.ignored", "each topic has one partition",
        CREATE, "topics.num_partitions", lambda old: min(old, 1), "topics.create",
    ),
    error_hidden(
        "topics.create.exists", "a name that exists has no error",
        CREATE, _CREATED, ErrorCode.TOPIC_ALREADY_EXISTS, "topics.create",
    ),
    in_response(
        "topics.create.exists.other", "a name that exists has the error of an invalid name",
        CREATE, _CREATED, becomes({ErrorCode.TOPIC_ALREADY_EXISTS: ErrorCode.INVALID_TOPIC_EXCEPTION}),
        "topics.create",
    ),
    error_hidden(
        "topics.create.invalid-name", "an invalid name has no error",
        CREATE, _CREATED, ErrorCode.INVALID_TOPIC_EXCEPTION, "topics.create",
    ),
    error_hidden(
        "topics.create.invalid-partitions", "an invalid number of partitions has no error",
        CREATE, _CREATED, ErrorCode.INVALID_PARTITIONS, "topics.create",
    ),
    error_hidden(
        "topics.create.invalid-replication", "more replicas than brokers have no error",
        CREATE, _CREATED, ErrorCode.INVALID_REPLICATION_FACTOR, "topics.create",
    ),
    error_hidden(
        "topics.create.invalid-config", "an invalid config has no error",
        CREATE, _CREATED, ErrorCode.INVALID_CONFIG, "topics.create",
    ),
    error_hidden(
        "topics.create.invalid-assignment", "an invalid assignment has no error",
        CREATE, _CREATED, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "topics.create",
    ),
    Mutation(
        "topics.create.all-fail", "an error of one topic is that of all topics",
        ("topics.create",), (CREATE,), on_response=_all_fail_with_one,
    ),
    Mutation(
        "topics.create.swapped", "the names of two topics are swapped in the response",
        ("topics.create",), (CREATE,), on_response=_errors_swapped,
    ),
]  # fmt: skip

CHANGE_MUTATIONS = [
    Mutation(
        "topics.delete.ignored", "deleted topics remain",
        ("topics.delete",), (DELETE,), on_request=_not_deleted,
    ),
    Mutation(
        "topics.delete.by-id", "topics are not found by their ID",
        ("topics.delete",), (DELETE,), on_request=_not_deleted_by_id,
    ),
    in_response(
        "topics.delete.name", "the name is missing in the response",
        DELETE, "responses.name", always(None), "topics.delete",
    ),
    in_response(
        "topics.delete.topic-id", "the topic ID is missing in the response in version 6",
        DELETE, "responses.topic_id", always(ZERO_ID), "topics.delete",
    ),
    in_response(
        "topics.delete.twice", "the last topic is twice in the response",
        DELETE, "responses", last_twice, "topics.delete",
    ),
    error_hidden(
        "topics.delete.unknown", "an unknown topic has no error",
        DELETE, _DELETED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topics.delete",
    ),
    error_hidden(
        "topics.delete.unknown-id", "an unknown topic ID has no error",
        DELETE, _DELETED, ErrorCode.UNKNOWN_TOPIC_ID, "topics.delete",
    ),
    in_response(
        "topics.delete.unknown-id.other", "an unknown topic ID has the error of an unknown name",
        DELETE, _DELETED, becomes({ErrorCode.UNKNOWN_TOPIC_ID: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}),
        "topics.delete",
    ),
    in_request(
        "topics.partitions.validate-only", "validate_only is ignored",
        PARTITIONS, "validate_only", always(False), "topics.partitions",
    ),
    in_request(
        "topics.partitions.always-validate-only", "no partitions are created",
        PARTITIONS, "validate_only", always(True), "topics.partitions",
    ),
    in_request(
        "topics.partitions.plus-one", "one partition too many is created",
        PARTITIONS, "topics.count", plus(1), "topics.partitions",
    ),
    in_response(
        "topics.partitions.name", "the name in the response is in upper case",
        PARTITIONS, "results.name", upper, "topics.partitions",
    ),
    error_hidden(
        "topics.partitions.fewer", "fewer partitions than before have no error",
        PARTITIONS, "results.error_code", ErrorCode.INVALID_PARTITIONS, "topics.partitions",
    ),
    error_hidden(
        "topics.partitions.unknown", "an unknown topic has no error",
        PARTITIONS, "results.error_code", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topics.partitions",
    ),
    error_hidden(
        "topics.partitions.assignment", "an invalid assignment has no error",
        PARTITIONS, "results.error_code", ErrorCode.INVALID_REPLICA_ASSIGNMENT, "topics.partitions",
    ),
    in_response(
        "topics.delete-records.plus-one", "the low watermark is one too high",
        RECORDS, "topics.partitions.low_watermark", plus(1), "records.delete",
    ),
    in_response(
        "topics.delete-records.error-offset", "the low watermark of an error is 0 instead of -1",
        RECORDS, "topics.partitions.low_watermark", becomes({-1: 0}), "records.delete",
    ),
    in_request(
        "topics.delete-records.one-less", "the last record before the offset remains",
        RECORDS, "topics.partitions.offset", positive_plus(-1), "records.delete",
    ),
    in_request(
        "topics.delete-records.everything", "-1, the high watermark, is taken for 0",
        RECORDS, "topics.partitions.offset", becomes({-1: 0}), "records.delete",
    ),
    error_hidden(
        "topics.delete-records.out-of-range", "an offset after the log has no error",
        RECORDS, "topics.partitions.error_code", ErrorCode.OFFSET_OUT_OF_RANGE, "records.delete",
    ),
    error_hidden(
        "topics.delete-records.unknown", "an unknown partition has no error",
        RECORDS, "topics.partitions.error_code", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "records.delete",
    ),
    in_request(
        "topics.delete-records.first-partition", "the first partition of a request is ignored",
        RECORDS, "topics.partitions", without_first, "records.delete",
    ),
    in_response(
        "topics.elect.not-needed", "an election that is not needed has no error",
        ELECT, "replica_election_results.partition_result.error_code", becomes({ErrorCode.ELECTION_NOT_NEEDED: 0}),
        "cluster.elect",
    ),
    in_response(
        "topics.elect.unknown", "an unknown partition has no error",
        ELECT, "replica_election_results.partition_result.error_code",
        becomes({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 0}), "cluster.elect",
    ),
    in_response(
        "topics.elect.partition", "the last partition is missing in the response",
        ELECT, "replica_election_results.partition_result", without_last, "cluster.elect",
    ),
    in_response(
        "topics.reassign.unknown", "an unknown partition has no error",
        REASSIGN, "responses.partitions.error_code", becomes({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 0}),
        "cluster.reassign",
    ),
    in_response(
        "topics.reassign.invalid", "an unknown broker has no error",
        REASSIGN, "responses.partitions.error_code", becomes({ErrorCode.INVALID_REPLICA_ASSIGNMENT: 0}),
        "cluster.reassign",
    ),
    in_response(
        "topics.reassign.none", "the cancellation of a reassignment that does not exist has no error",
        REASSIGN, "responses.partitions.error_code", becomes({ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: 0}),
        "cluster.reassign",
    ),
    in_response(
        "topics.reassignments.error", "the list of reassignments has an error",
        REASSIGNMENTS, "error_code", always(ErrorCode.NOT_CONTROLLER), "cluster.reassign",
    ),
]  # fmt: skip

MUTATIONS = CREATE_MUTATIONS + CHANGE_MUTATIONS
