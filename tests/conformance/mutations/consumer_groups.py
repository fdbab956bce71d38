"""Defects of the groups of KIP-848, and of their configs."""

from __future__ import annotations

from typing import Any

from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ErrorCode

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
    message_if_none,
    plus,
    positive_plus,
    reverse,
    upper,
    without_last,
)

HEARTBEAT, DESCRIBE = ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE
_ERROR = "error_code"


def _whole_assignment(exchange: Exchange, response: Any) -> None:
    """Each member has the partitions of all members: the assignments are not disjoint."""
    group = exchange.request.group_id
    if response.assignment is not None and response.assignment.topic_partitions:
        known = exchange.memory.setdefault(group, {})
        for topic in response.assignment.topic_partitions:
            partitions = known.setdefault(topic.topic_id, set())
            partitions.update(topic.partitions)
            topic.partitions = sorted(partitions)


def _assignment_only_once(exchange: Exchange, response: Any) -> None:
    """The assignment is sent in the first response to a member only."""
    request = exchange.request
    if response.assignment is not None and response.assignment.topic_partitions:
        if (request.group_id, response.member_id) in exchange.memory:
            response.assignment = None
        exchange.memory[request.group_id, response.member_id] = True


def _leaves_for_good(exchange: Exchange, request: Any) -> None:
    """A static member that leaves for a moment (-2) leaves for good (-1)."""
    if request.member_epoch == -2:
        request.member_epoch = -1


def _regex_is_no_topic(exchange: Exchange, request: Any) -> None:
    if request.subscribed_topic_regex:
        request.subscribed_topic_regex = "no-topic-has-this-name"


MUTATIONS = [
    in_response(
        "consumer-groups.epoch.plus-one", "the member epoch is one too high",
        HEARTBEAT, "member_epoch", positive_plus(1), "consumer-groups.heartbeat", "consumer-groups.epochs",
    ),
    in_response(
        "consumer-groups.epoch.constant", "the member epoch is always 1",
        HEARTBEAT, "member_epoch", lambda old: min(old, 1), "consumer-groups.heartbeat", "consumer-groups.epochs",
    ),
    in_response(
        "consumer-groups.epoch.leave", "the epoch in the response to a member that leaves is 0",
        HEARTBEAT, "member_epoch", becomes({-1: 0, -2: 0}), "consumer-groups.heartbeat", "consumer-groups.epochs",
    ),
    in_response(
        "consumer-groups.interval", "the heartbeat interval is 0",
        HEARTBEAT, "heartbeat_interval_ms", always(0), "consumer-groups.heartbeat", "consumer-groups.epochs",
    ),
    in_response(
        "consumer-groups.member-id.missing", "the response has no member ID",
        HEARTBEAT, "member_id", always(None), "consumer-groups.heartbeat",
    ),
    in_response(
        "consumer-groups.member-id.other", "the response has another member ID",
        HEARTBEAT, "member_id", upper, "consumer-groups.heartbeat",
    ),
    in_response(
        "consumer-groups.assignment.missing", "the response never has an assignment",
        HEARTBEAT, "assignment", always(None),
        "consumer-groups.assignors", "consumer-groups.reconciliation", "consumer-groups.subscriptions",
    ),
    in_response(
        "consumer-groups.assignment.partition-missing", "the last partition of an assignment is missing",
        HEARTBEAT, "assignment.topic_partitions.partitions", without_last,
        "consumer-groups.assignors", "consumer-groups.reconciliation", "consumer-groups.subscriptions",
    ),
    in_response(
        "consumer-groups.assignment.topic-missing", "the last topic of an assignment is missing",
        HEARTBEAT, "assignment.topic_partitions", without_last,
        "consumer-groups.assignors", "consumer-groups.reconciliation", "consumer-groups.subscriptions",
    ),
    in_response(
        "consumer-groups.assignment.topic-id", "the topic IDs of an assignment are 0",
        HEARTBEAT, "assignment.topic_partitions.topic_id", always(ZERO_ID),
        "consumer-groups.assignors", "consumer-groups.reconciliation", "consumer-groups.subscriptions",
    ),
    in_response(
        "consumer-groups.assignment.other-topic", "the topic IDs of an assignment are those of other topics",
        HEARTBEAT, "assignment.topic_partitions.topic_id", another_id,
        "consumer-groups.assignors", "consumer-groups.reconciliation", "consumer-groups.subscriptions",
    ),
    Mutation(
        "consumer-groups.assignment.shared", "two members have the same partitions",
        ("consumer-groups.assignors", "consumer-groups.reconciliation", "consumer-groups.subscriptions"),
        (HEARTBEAT,), on_response=_whole_assignment,
    ),
    Mutation(
        "consumer-groups.assignment.only-once", "an assignment whose response was lost is not sent again",
        ("consumer-groups.assignors", "consumer-groups.reconciliation", "consumer-groups.subscriptions"),
        (HEARTBEAT,), on_response=_assignment_only_once,
    ),
    error_hidden(
        "consumer-groups.error.fenced", "a fenced member has no error",
        HEARTBEAT, _ERROR, ErrorCode.FENCED_MEMBER_EPOCH, "consumer-groups.epochs",
    ),
    in_response(
        "consumer-groups.error.fenced.other", "a fenced member has the error of an unknown member",
        HEARTBEAT, _ERROR, becomes({ErrorCode.FENCED_MEMBER_EPOCH: ErrorCode.UNKNOWN_MEMBER_ID}),
        "consumer-groups.epochs",
    ),
    error_hidden(
        "consumer-groups.error.unknown-member", "an unknown member has no error",
        HEARTBEAT, _ERROR, ErrorCode.UNKNOWN_MEMBER_ID, "consumer-groups.heartbeat.unknown-member",
    ),
    error_hidden(
        "consumer-groups.error.unreleased", "an instance ID that is in use has no error",
        HEARTBEAT, _ERROR, ErrorCode.UNRELEASED_INSTANCE_ID, "consumer-groups.static",
    ),
    error_hidden(
        "consumer-groups.error.fenced-instance", "a static member that was replaced has no error",
        HEARTBEAT, _ERROR, ErrorCode.FENCED_INSTANCE_ID, "consumer-groups.static",
    ),
    error_hidden(
        "consumer-groups.error.assignor", "an unknown assignor has no error",
        HEARTBEAT, _ERROR, ErrorCode.UNSUPPORTED_ASSIGNOR, "consumer-groups.assignors.unknown",
    ),
    error_hidden(
        "consumer-groups.error.regex", "an invalid regular expression has no error",
        HEARTBEAT, _ERROR, ErrorCode.INVALID_REGULAR_EXPRESSION, "consumer-groups.regex",
    ),
    error_hidden(
        "consumer-groups.error.invalid", "an invalid request has no error",
        HEARTBEAT, _ERROR, ErrorCode.INVALID_REQUEST, "consumer-groups.heartbeat.invalid",
    ),
    error_hidden(
        "consumer-groups.error.unknown-group", "a heartbeat to an unknown group has no error",
        HEARTBEAT, _ERROR, ErrorCode.GROUP_ID_NOT_FOUND, "consumer-groups.heartbeat.unknown-group",
    ),
    in_response(
        "consumer-groups.error.message", "an error has no message",
        HEARTBEAT, "error_message", always(None), "consumer-groups.heartbeat", "consumer-groups.assignors.unknown",
    ),
    in_response(
        "consumer-groups.error.message-of-success", "a success has an error message",
        HEARTBEAT, "error_message", message_if_none, "consumer-groups.heartbeat.exchange",
    ),
    in_request(
        "consumer-groups.instance.ignored", "static members are dynamic",
        HEARTBEAT, "instance_id", always(None), "consumer-groups.static",
    ),
    Mutation(
        "consumer-groups.leave.static", "a static member that leaves for a moment leaves for good",
        ("consumer-groups.static",), (HEARTBEAT,), on_request=_leaves_for_good,
    ),
    in_request(
        "consumer-groups.subscription.last-ignored", "the last subscribed topic is ignored",
        HEARTBEAT, "subscribed_topic_names", without_last, "consumer-groups.subscriptions", "consumer-groups.assignors",
    ),
    Mutation(
        "consumer-groups.subscription.regex", "a regular expression matches no topic",
        ("consumer-groups.regex",), (HEARTBEAT,), on_request=_regex_is_no_topic,
    ),
    in_request(
        "consumer-groups.assignor.ignored", "the assignor of a member is ignored",
        HEARTBEAT, "server_assignor", always(None), "consumer-groups.assignors",
    ),
    in_request(
        "consumer-groups.owned.ignored", "the partitions that a member still owns are ignored",
        HEARTBEAT, "topic_partitions", lambda old: [] if old else old,
        "consumer-groups.reconciliation", "consumer-groups.epochs.previous",
    ),
    in_response(
        "consumer-groups.describe.state", "each group is stable",
        DESCRIBE, "groups.group_state", always("Stable"), "consumer-groups.describe",
    ),
    in_response(
        "consumer-groups.describe.group-epoch", "the group epoch is one too high",
        DESCRIBE, "groups.group_epoch", plus(1), "consumer-groups.epochs.step", "consumer-groups.describe",
    ),
    in_response(
        "consumer-groups.describe.assignment-epoch", "the assignment epoch is one too high",
        DESCRIBE, "groups.assignment_epoch", plus(1), "consumer-groups.epochs.step", "consumer-groups.describe",
    ),
    in_response(
        "consumer-groups.describe.assignor", "the assignor is missing",
        DESCRIBE, "groups.assignor_name", empty, "consumer-groups.describe",
    ),
    in_response(
        "consumer-groups.describe.id", "the group has another name",
        DESCRIBE, "groups.group_id", upper, "consumer-groups.describe",
    ),
    in_response(
        "consumer-groups.describe.members", "the last member is missing",
        DESCRIBE, "groups.members", without_last, "consumer-groups.classic-member.join-rejected",
    ),
    in_response(
        "consumer-groups.describe.member-epoch", "the member epoch is one too high",
        DESCRIBE, "groups.members.member_epoch", plus(1), "consumer-groups.epochs.step", "consumer-groups.describe",
    ),
    in_response(
        "consumer-groups.describe.instance", "the instance ID is missing",
        DESCRIBE, "groups.members.instance_id", always(None), "consumer-groups.describe",
    ),
    in_response(
        "consumer-groups.describe.rack", "the rack is missing",
        DESCRIBE, "groups.members.rack_id", always(None), "consumer-groups.describe",
    ),
    in_response(
        "consumer-groups.describe.client-id", "the client ID is missing",
        DESCRIBE, "groups.members.client_id", empty, "consumer-groups.describe",
    ),
    in_response(
        "consumer-groups.describe.host", "the client's host is missing",
        DESCRIBE, "groups.members.client_host", empty, "consumer-groups.describe",
    ),
    in_response(
        "consumer-groups.describe.subscription", "the subscribed topics are missing",
        DESCRIBE, "groups.members.subscribed_topic_names", empty, "consumer-groups.describe",
    ),
    in_response(
        "consumer-groups.describe.regex", "the subscribed regular expression is missing",
        DESCRIBE, "groups.members.subscribed_topic_regex", always(None),
        "consumer-groups.describe", "consumer-groups.regex",
    ),
    in_response(
        "consumer-groups.describe.assignment", "the assignment is missing",
        DESCRIBE, "groups.members.assignment.topic_partitions", empty, "consumer-groups.describe",
    ),
    in_response(
        "consumer-groups.describe.target", "the target assignment is missing",
        DESCRIBE, "groups.members.target_assignment.topic_partitions", empty, "consumer-groups.describe",
    ),
    in_response(
        "consumer-groups.describe.topic-name", "the topics of the assignment have other names",
        DESCRIBE, "groups.members.assignment.topic_partitions.topic_name", reverse, "consumer-groups.describe",
    ),
    in_response(
        "consumer-groups.describe.member-type", "each member is classic in version 1",
        DESCRIBE, "groups.members.member_type", becomes({1: 0}), "consumer-groups.describe",
    ),
    error_hidden(
        "consumer-groups.describe.unknown", "an unknown group has no error",
        DESCRIBE, "groups.error_code", ErrorCode.GROUP_ID_NOT_FOUND, "consumer-groups.describe",
    ),
    in_request(
        "consumer-groups.describe.operations", "include_authorized_operations is ignored",
        DESCRIBE, "include_authorized_operations", always(False), "consumer-groups.describe",
    ),
]  # fmt: skip
