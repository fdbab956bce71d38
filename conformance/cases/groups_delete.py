"""DeleteGroups: groups without members, and their offsets (KIP-229)."""

from __future__ import annotations

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ...protocol.messages.delete_groups import DeleteGroupsRequest
from .. import committed_offsets as o
from ..case import Layer, Level, case, needs, versions_of
from ..check import Check
from ..classic_group import ClassicGroup
from .groups_describe import join_consumer_group

DELETE = needs(ApiKey.DELETE_GROUPS, 0, ApiKey.JOIN_GROUP, 5)


def delete(c: Check, group: ClassicGroup, *names: str, version: int | None = None) -> list[tuple[str, int]]:
    """Groups and error codes, in the order of the response; by default of `group`."""
    request = DeleteGroupsRequest(groups_names=list(names or [group.id]))
    return [(each.group_id, each.error_code) for each in c.call(request, version, to=group.wire).results]


@case(
    "groups.delete.exchange",
    "a group without members is deleted with its offsets",
    source="KIP-229",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DELETE_GROUPS),
    variants={"left": (True,), "offsets-only": (False,)},
)
def exchange(c: Check, version: int, has_members: bool) -> None:
    """Sends: DeleteGroups of a group with offsets, whose member has left or which never had one.

    Expects: no error; OffsetFetch finds no offset, and DescribeGroups the state Dead.

    Why: offsets that survive would be used by a later group with this name, which then skips records.
    """
    topic = c.topic()
    group = ClassicGroup(c)
    if has_members:
        member = group.member()
        group.complete(member)
        request = o.commit_request(group.id, topic, {0: 7}, member_id=member.member_id, generation=member.generation)
        o.committed_before(c, group.wire, request)
        c.error(member.left(), ErrorCode.NONE, "LeaveGroup error_code")
    else:
        o.committed_before(c, group.wire, o.commit_request(group.id, topic, {0: 7}))
    c.equal(o.offsets(c, group.wire, group.id, topic, [0]), {0: 7}, "offsets before")
    c.equal(delete(c, group, version=version), [(group.id, 0)], "results (group_id, error_code)")
    c.equal(o.offsets(c, group.wire, group.id, topic, [0]), {0: -1}, "offsets afterwards")
    c.equal(group.describe().group_state, "Dead", "group_state in DescribeGroups")


@case(
    "groups.delete.with-members",
    "a group with members is not deleted",
    source="KIP-229",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DELETE_GROUPS),
)
def with_members(c: Check, version: int) -> None:
    """Sends: DeleteGroups of a stable group with an offset.

    Expects: NON_EMPTY_GROUP; the member's heartbeats have no error, and the offset stays.

    Why: a group that is in use must not lose its position by mistake.
    """
    topic = c.topic()
    group = ClassicGroup(c)
    member = group.member()
    group.complete(member)
    request = o.commit_request(group.id, topic, {0: 7}, member_id=member.member_id, generation=member.generation)
    o.committed_before(c, group.wire, request)
    c.equal(
        delete(c, group, version=version),
        [(group.id, int(ErrorCode.NON_EMPTY_GROUP))],
        "results (group_id, error_code)",
    )
    c.error(member.heartbeat(), ErrorCode.NONE, "Heartbeat error_code")
    c.equal(o.offsets(c, group.wire, group.id, topic, [0]), {0: 7}, "offsets afterwards")


@case(
    "groups.delete.unknown",
    "a group that does not exist cannot be deleted",
    source="KIP-229",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DELETE_GROUPS),
)
def unknown(c: Check, version: int) -> None:
    """Sends: DeleteGroups of a group that does not exist.

    Expects: GROUP_ID_NOT_FOUND.

    Why: a user with a typing error in the name must see it.
    """
    group = ClassicGroup(c)
    c.equal(
        delete(c, group, version=version),
        [(group.id, int(ErrorCode.GROUP_ID_NOT_FOUND))],
        "results (group_id, error_code)",
    )


@case(
    "groups.delete.several",
    "each group of a request has its own result",
    source="KIP-229",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DELETE_GROUPS),
)
def several(c: Check, version: int) -> None:
    """Sends: DeleteGroups of groups with a member, with offsets only, and one that does not exist.

    Expects: NON_EMPTY_GROUP, no error, and GROUP_ID_NOT_FOUND.

    Why: one group that cannot be deleted must not protect the others, or hide their results.
    """
    topic = c.topic()
    full = ClassicGroup(c)
    full.complete(full.member())
    expected = {full.id: int(ErrorCode.NON_EMPTY_GROUP)}
    simple, missing = ClassicGroup(c), ClassicGroup(c)
    o.committed_before(c, simple.wire, o.commit_request(simple.id, topic, {0: 1}))
    # With several brokers, only groups of one coordinator are in one request.
    for group, code in ((simple, ErrorCode.NONE), (missing, ErrorCode.GROUP_ID_NOT_FOUND)):
        if group.wire.address == full.wire.address:
            expected[group.id] = int(code)
    found = delete(c, full, *expected, version=version)
    c.equal(sorted(found), sorted(expected.items()), "results (group_id, error_code)")


@case(
    "groups.delete.no-groups",
    "a request without groups deletes nothing",
    source="KIP-229",
    layer=Layer.WIRE,
    level=Level.APACHE,
    versions=versions_of(ApiKey.DELETE_GROUPS),
)
def no_groups(c: Check, version: int) -> None:
    """Sends: DeleteGroups with an empty array.

    Expects: no results.

    Why: it does not mean all groups.
    """
    c.equal(c.call(DeleteGroupsRequest(groups_names=[]), version).results, [], "results")


@case(
    "groups.delete.twice",
    "a group that occurs twice is deleted once",
    source="KIP-229",
    level=Level.APACHE,
    needs=DELETE,
)
def twice(c: Check) -> None:
    """Sends: DeleteGroups with the same group twice; then again.

    Expects: no error in the first result, and no other group; then GROUP_ID_NOT_FOUND.

    Why: a request with a repeated name must not fail.
    """
    topic = c.topic()
    group = ClassicGroup(c)
    o.committed_before(c, group.wire, o.commit_request(group.id, topic, {0: 1}))
    found = delete(c, group, group.id, group.id)
    c.equal({name for name, _ in found}, {group.id}, "results (group_id)")
    c.error(found[0][1], ErrorCode.NONE, "results[0].error_code")
    c.equal(delete(c, group), [(group.id, int(ErrorCode.GROUP_ID_NOT_FOUND))], "results of the second request")


@case(
    "groups.delete.begins-again",
    "a group that was deleted begins with generation 1",
    source="KIP-229",
    level=Level.SHOULD,
    needs=DELETE,
)
def begins_again(c: Check) -> None:
    """Sends: DeleteGroups after the only member has left; then JoinGroup of another one.

    Expects: no error; generation 1.

    Why: nothing of a deleted group may be left.
    """
    group = ClassicGroup(c)
    group.keep()
    first, second = group.member(), group.member()
    group.complete(first)
    c.error(first.left(), ErrorCode.NONE, "LeaveGroup error_code")
    c.equal(delete(c, group), [(group.id, 0)], "results (group_id, error_code)")
    c.equal(second.join().generation_id, 1, "generation_id")


@case(
    "groups.delete.waiting-member",
    "a group with a member that waits is not deleted",
    source="KIP-229",
    needs=DELETE,
)
def waiting_member(c: Check) -> None:
    """Sends: DeleteGroups while a group waits for assignments.

    Expects: NON_EMPTY_GROUP; the leader's SyncGroup has no error.

    Why: a deletion in the middle of a rebalance would lose its members.
    """
    group = ClassicGroup(c)
    member = group.member()
    member.join()
    c.equal(delete(c, group), [(group.id, int(ErrorCode.NON_EMPTY_GROUP))], "results (group_id, error_code)")
    c.equal(member.sync({member.member_id: b"all"}).assignment, b"all", "SyncGroup assignment")


@case(
    "groups.delete.consumer-group",
    "a group with the consumer protocol is deleted when it has no members",
    source="KIP-848",
    features={"group.version": 1},
    needs=(*DELETE, *needs(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0)),
)
def consumer_group(c: Check) -> None:
    """Sends: DeleteGroups of a group whose member uses ConsumerGroupHeartbeat; again after it has left.

    Expects: NON_EMPTY_GROUP; then no error; then GROUP_ID_NOT_FOUND.

    Why: groups of all types are deleted with this request.
    """
    group = ClassicGroup(c)
    member_id, _ = join_consumer_group(c, group)
    c.equal(delete(c, group), [(group.id, int(ErrorCode.NON_EMPTY_GROUP))], "results with a member")
    leave = ConsumerGroupHeartbeatRequest(group_id=group.id, member_id=member_id, member_epoch=-1)
    c.error(c.call(leave, to=group.wire).error_code, ErrorCode.NONE, "ConsumerGroupHeartbeat error_code")
    c.equal(delete(c, group), [(group.id, 0)], "results without members")
    c.equal(delete(c, group), [(group.id, int(ErrorCode.GROUP_ID_NOT_FOUND))], "results afterwards")
