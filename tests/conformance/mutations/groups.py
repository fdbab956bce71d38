"""Defects of classic groups and of their administration."""

from __future__ import annotations

from typing import Any

from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from moldau.protocol.messages.heartbeat import HeartbeatResponse
from moldau.protocol.messages.leave_group import LeaveGroupResponse, MemberResponse

from ..mutating_proxy import Exchange, Mutation
from .changes import (
    always,
    becomes,
    empty,
    empty_if_null,
    error_hidden,
    in_request,
    in_response,
    last_twice,
    plus,
    upper,
    without_last,
)

JOIN, SYNC, HEARTBEAT, LEAVE = ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP
DESCRIBE, LIST, DELETE = ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_GROUPS, ApiKey.DELETE_GROUPS


def _every_member_leads(exchange: Exchange, response: Any) -> None:
    if not response.error_code:
        response.leader = response.member_id


def _members_for_all(exchange: Exchange, response: Any) -> None:
    """Followers see the list of members, as the leader does."""
    group = exchange.request.group_id
    if response.members:
        exchange.memory[group] = response.members
    elif not response.error_code:
        response.members = exchange.memory.get(group, [])


def _assignments_swapped(exchange: Exchange, response: Any) -> None:
    """A member has the assignment of the previous response for its group."""
    group = exchange.request.group_id
    previous = exchange.memory.get(group, response.assignment)
    exchange.memory[group] = response.assignment
    response.assignment = previous


def _not_left(exchange: Exchange, request: Any) -> Any:
    """The members seem to leave."""
    members = [
        MemberResponse(member_id=each.member_id, group_instance_id=each.group_instance_id) for each in request.members
    ]
    return LeaveGroupResponse(members=members)


def _heartbeat_without_group(exchange: Exchange, request: Any) -> Any:
    return HeartbeatResponse()


def _not_deleted(exchange: Exchange, request: Any) -> Any:
    return DeleteGroupsResponse(results=[DeletableGroupResult(group_id=group) for group in request.groups_names])


def _members_of_old_versions(exchange: Exchange, response: Any) -> None:
    """The error of the first member is that of the request, as before version 3."""
    if response.members and exchange.version >= 3:
        response.error_code = response.members[0].error_code


def _listed_only_with_a_filter(exchange: Exchange, response: Any) -> None:
    response.groups = [group for group in response.groups if group.group_state != "Empty"]


JOIN_MUTATIONS = [
    in_response(
        "groups.join.generation.plus-one", "the generation is one too high",
        JOIN, "generation_id", plus(1), "groups.join",
    ),
    in_response(
        "groups.join.generation.constant", "the generation is always 1",
        JOIN, "generation_id", lambda old: min(old, 1), "groups.join",
    ),
    in_response(
        "groups.join.generation.error", "the generation of a rejected member is 0 instead of -1",
        JOIN, "generation_id", becomes({-1: 0}), "groups.join",
    ),
    Mutation(
        "groups.join.leader.all", "each member is the leader",
        ("groups.rebalance",), (JOIN,), on_response=_every_member_leads,
    ),
    in_response(
        "groups.join.leader.none", "the group has no leader",
        JOIN, "leader", always(""), "groups.join",
    ),
    in_response(
        "groups.join.members.missing", "the leader does not see the last member",
        JOIN, "members", without_last, "groups.join",
    ),
    in_response(
        "groups.join.members.twice", "the leader sees the last member twice",
        JOIN, "members", last_twice, "groups.join",
    ),
    Mutation(
        "groups.join.members.followers", "followers see the members too",
        ("groups.rebalance",), (JOIN,), on_response=_members_for_all,
    ),
    in_response(
        "groups.join.members.metadata", "the leader does not see the metadata of members",
        JOIN, "members.metadata", empty, "groups.join",
    ),
    in_response(
        "groups.join.members.instance", "the leader does not see the instance IDs of members from version 5 on",
        JOIN, "members.group_instance_id", always(None), "groups.join",
    ),
    in_response(
        "groups.join.member-id", "the member ID of the response is empty",
        JOIN, "member_id", always(""), "groups.join",
    ),
    in_response(
        "groups.join.protocol-name", "the protocol has another name",
        JOIN, "protocol_name", upper, "groups.join",
    ),
    in_response(
        "groups.join.protocol-name.null", "a rejected member has an empty instead of a null protocol from version 7 on",
        JOIN, "protocol_name", empty_if_null, "groups.join.error-without-protocol",
    ),
    in_response(
        "groups.join.protocol-type", "the protocol type is missing from version 7 on",
        JOIN, "protocol_type", always(None), "groups.join",
    ),
    in_response(
        "groups.join.skip-assignment", "the leader skips the assignment in version 9",
        JOIN, "skip_assignment", always(True), "groups.join",
    ),
    in_response(
        "groups.join.skip-assignment.never", "a static leader that returns does not skip the assignment",
        JOIN, "skip_assignment", always(False), "groups.static",
    ),
    in_request(
        "groups.join.protocols", "the protocols of a member are in the reverse order",
        JOIN, "protocols", lambda old: old[::-1], "groups.join",
    ),
    in_request(
        "groups.join.instance.ignored", "static members are dynamic",
        JOIN, "group_instance_id", always(None), "groups.join",
    ),
    error_hidden(
        "groups.join.member-id-required", "a member without an ID has no error",
        JOIN, "error_code", ErrorCode.MEMBER_ID_REQUIRED, "groups.join",
    ),
    error_hidden(
        "groups.join.unknown-member", "an unknown member has no error",
        JOIN, "error_code", ErrorCode.UNKNOWN_MEMBER_ID, "groups.join",
    ),
    error_hidden(
        "groups.join.inconsistent", "a protocol that other members do not have has no error",
        JOIN, "error_code", ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "groups.join",
    ),
    error_hidden(
        "groups.join.session-timeout", "a session timeout outside the limits has no error",
        JOIN, "error_code", ErrorCode.INVALID_SESSION_TIMEOUT, "groups.join",
    ),
    error_hidden(
        "groups.join.empty-name", "a group without a name has no error",
        JOIN, "error_code", ErrorCode.INVALID_GROUP_ID, "groups.join",
    ),
    in_response(
        "groups.join.fenced-instance", "a fenced static member has the error of an unknown member",
        JOIN, "error_code", becomes({ErrorCode.FENCED_INSTANCE_ID: ErrorCode.UNKNOWN_MEMBER_ID}), "groups.static",
    ),
]  # fmt: skip

MEMBER_MUTATIONS = [
    in_response(
        "groups.sync.assignment.missing", "the assignment is empty",
        SYNC, "assignment", empty, "groups.sync",
    ),
    Mutation(
        "groups.sync.assignment.swapped", "members have the assignments of each other",
        ("groups.sync",), (SYNC,), on_response=_assignments_swapped,
    ),
    in_response(
        "groups.sync.protocol-name", "the protocol is missing from version 5 on",
        SYNC, "protocol_name", always(None), "groups.sync",
    ),
    in_response(
        "groups.sync.protocol-type", "the protocol type is missing from version 5 on",
        SYNC, "protocol_type", always(None), "groups.sync",
    ),
    error_hidden(
        "groups.sync.generation", "an old generation has no error",
        SYNC, "error_code", ErrorCode.ILLEGAL_GENERATION, "groups.sync",
    ),
    error_hidden(
        "groups.sync.unknown-member", "an unknown member has no error",
        SYNC, "error_code", ErrorCode.UNKNOWN_MEMBER_ID, "groups.sync",
    ),
    error_hidden(
        "groups.sync.rebalance", "a rebalance that starts during a sync has no error",
        SYNC, "error_code", ErrorCode.REBALANCE_IN_PROGRESS, "groups.sync",
    ),
    error_hidden(
        "groups.sync.inconsistent", "another protocol than that of the group has no error",
        SYNC, "error_code", ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "groups.sync",
    ),
    error_hidden(
        "groups.sync.fenced", "a fenced static member has no error",
        SYNC, "error_code", ErrorCode.FENCED_INSTANCE_ID, "groups.static",
    ),
    error_hidden(
        "groups.heartbeat.generation", "an old generation has no error",
        HEARTBEAT, "error_code", ErrorCode.ILLEGAL_GENERATION, "groups.heartbeat",
    ),
    error_hidden(
        "groups.heartbeat.rebalance", "members do not learn of a rebalance",
        HEARTBEAT, "error_code", ErrorCode.REBALANCE_IN_PROGRESS, "groups.heartbeat",
    ),
    in_response(
        "groups.heartbeat.rebalance.other", "a rebalance has the error of an old generation",
        HEARTBEAT, "error_code", becomes({ErrorCode.REBALANCE_IN_PROGRESS: ErrorCode.ILLEGAL_GENERATION}),
        "groups.heartbeat",
    ),
    error_hidden(
        "groups.heartbeat.fenced", "a fenced static member has no error",
        HEARTBEAT, "error_code", ErrorCode.FENCED_INSTANCE_ID, "groups.heartbeat",
    ),
    Mutation(
        "groups.heartbeat.always", "each heartbeat succeeds",
        ("groups.heartbeat",), (HEARTBEAT,), on_request=_heartbeat_without_group,
    ),
    Mutation(
        "groups.leave.ignored", "members that leave remain in the group",
        ("groups.leave",), (LEAVE,), on_request=_not_left,
    ),
    error_hidden(
        "groups.leave.unknown", "an unknown member that leaves has no error",
        LEAVE, ("error_code", "members.error_code"), ErrorCode.UNKNOWN_MEMBER_ID, "groups.leave",
    ),
    in_response(
        "groups.leave.member-missing", "the last member is missing in the response from version 3 on",
        LEAVE, "members", without_last, "groups.leave",
    ),
    in_response(
        "groups.leave.instance", "the instance ID is missing in the response",
        LEAVE, "members.group_instance_id", always(None), "groups.leave",
    ),
    Mutation(
        "groups.leave.error-of-request", "the error of a member is that of the request from version 3 on",
        ("groups.leave",), (LEAVE,), on_response=_members_of_old_versions,
    ),
]  # fmt: skip

ADMIN_MUTATIONS = [
    in_response(
        "groups.describe.state", "each group is stable",
        DESCRIBE, "groups.group_state", always("Stable"), "groups.describe",
    ),
    in_response(
        "groups.describe.id", "the group has another name",
        DESCRIBE, "groups.group_id", upper, "groups.describe",
    ),
    in_response(
        "groups.describe.protocol-type", "the protocol type is missing",
        DESCRIBE, "groups.protocol_type", empty, "groups.describe",
    ),
    in_response(
        "groups.describe.protocol-data", "the protocol is missing",
        DESCRIBE, "groups.protocol_data", empty, "groups.describe",
    ),
    in_response(
        "groups.describe.members.missing", "the last member is missing",
        DESCRIBE, "groups.members", without_last, "groups.describe",
    ),
    in_response(
        "groups.describe.members.id", "members have other IDs",
        DESCRIBE, "groups.members.member_id", upper, "groups.describe",
    ),
    in_response(
        "groups.describe.members.instance", "the instance IDs of members are missing from version 4 on",
        DESCRIBE, "groups.members.group_instance_id", always(None), "groups.describe",
    ),
    in_response(
        "groups.describe.members.client-id", "the client IDs of members are missing",
        DESCRIBE, "groups.members.client_id", empty, "groups.describe",
    ),
    in_response(
        "groups.describe.members.client-host", "the hosts of members are missing",
        DESCRIBE, "groups.members.client_host", empty, "groups.describe",
    ),
    in_response(
        "groups.describe.members.metadata", "the metadata of members is missing",
        DESCRIBE, "groups.members.member_metadata", empty, "groups.describe",
    ),
    in_response(
        "groups.describe.members.assignment", "the assignments of members are missing",
        DESCRIBE, "groups.members.member_assignment", empty, "groups.describe",
    ),
    in_response(
        "groups.describe.unknown", "an unknown group has no error in version 6",
        DESCRIBE, "groups.error_code", becomes({ErrorCode.GROUP_ID_NOT_FOUND: 0}), "groups.describe",
    ),
    in_response(
        "groups.describe.dead", "an unknown group is empty instead of dead",
        DESCRIBE, "groups.group_state", becomes({"Dead": "Empty"}), "groups.describe",
    ),
    in_request(
        "groups.describe.operations", "include_authorized_operations is ignored",
        DESCRIBE, "include_authorized_operations", always(False), "groups.describe",
    ),
    in_response(
        "groups.describe.operations.unasked", "there are authorized operations that the request does not ask for",
        DESCRIBE, "groups.authorized_operations", becomes({-0x80000000: 0}), "groups.describe",
    ),
    in_request(
        "groups.list.states.ignored", "the filter of states is ignored",
        LIST, "states_filter", empty, "groups.list",
    ),
    in_request(
        "groups.list.types.ignored", "the filter of types is ignored",
        LIST, "types_filter", empty, "groups.list",
    ),
    in_response(
        "groups.list.state", "each group is stable from version 4 on",
        LIST, "groups.group_state", always("Stable"), "groups.list",
    ),
    in_response(
        "groups.list.type", "each group is a consumer group in version 5",
        LIST, "groups.group_type", always("consumer"), "groups.list",
    ),
    in_response(
        "groups.list.protocol-type", "the protocol type is missing",
        LIST, "groups.protocol_type", empty, "groups.list",
    ),
    in_response(
        "groups.list.missing", "no group is listed",
        LIST, "groups", empty, "groups.list",
    ),
    Mutation(
        "groups.list.empty-missing", "empty groups are not listed",
        ("groups.list",), (LIST,), on_response=_listed_only_with_a_filter,
    ),
    Mutation(
        "groups.delete.ignored", "deleted groups remain",
        ("groups.delete",), (DELETE,), on_request=_not_deleted,
    ),
    error_hidden(
        "groups.delete.not-empty", "the deletion of a group with members has no error",
        DELETE, "results.error_code", ErrorCode.NON_EMPTY_GROUP, "groups.delete",
    ),
    error_hidden(
        "groups.delete.unknown", "the deletion of an unknown group has no error",
        DELETE, "results.error_code", ErrorCode.GROUP_ID_NOT_FOUND, "groups.delete",
    ),
    in_response(
        "groups.delete.id", "the deleted group has another name",
        DELETE, "results.group_id", upper, "groups.delete",
    ),
]  # fmt: skip

MUTATIONS = JOIN_MUTATIONS + MEMBER_MUTATIONS + ADMIN_MUTATIONS
