"""DescribeGroups: states and members of classic groups."""

from __future__ import annotations

from typing import Any

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ...protocol.messages.describe_groups import DescribeGroupsRequest
from ...protocol.uuid import random_uuid, uuid_to_str
from ...testing.group_requests import subscription
from .. import committed_offsets as o
from ..case import Layer, Level, Release, case, needs, versions_of
from ..check import Check
from ..classic_group import ClassicGroup

NOT_REQUESTED = -(2**31)
"""`authorized_operations` if they were not requested."""
# READ, DELETE and DESCRIBE; since Apache Kafka 4.0 also DESCRIBE_CONFIGS and ALTER_CONFIGS: a bit for each one's code.
OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8
CONFIG_OPERATIONS = 1 << 10 | 1 << 11
GROUP_CONFIGS_SINCE = Release(4, 0)
NOT_FOUND_SINCE = 6
"""The first version in which a group that does not exist is an error (KIP-1043)."""


def describe(c: Check, group: ClassicGroup, version: int, *, operations: bool = False) -> Any:
    """The only entry of the response."""
    request = DescribeGroupsRequest(groups=[group.id], include_authorized_operations=operations)
    found = c.call(request, version, to=group.wire).groups
    c.equal([each.group_id for each in found], [group.id], "groups (group_id)")
    return found[0]


@case(
    "groups.describe.exchange",
    "a stable group is described with its members",
    source="Protocol: DescribeGroups",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DESCRIBE_GROUPS),
)
def exchange(c: Check, version: int) -> None:
    """Sends: DescribeGroups of a stable group with two members.

    Expects: the state Stable, protocol type and protocol; each member's ID, client ID, address, metadata and
    assignment; from version 3 on no authorized operations, as they were not requested.

    Why: administrators see from it which process reads which partitions.
    """
    group = ClassicGroup(c)
    first = group.member(client_id="one", protocols={"range": subscription("a", "b")})
    second = group.member(client_id="two", protocols={"range": subscription("c")})
    group.complete(first, second, assignments={})
    group.complete(first, second)
    found = describe(c, group, version)
    c.error(found.error_code, ErrorCode.NONE, "groups[0].error_code")
    c.equal(found.group_state, "Stable", "groups[0].group_state")
    c.equal((found.protocol_type, found.protocol_data), ("consumer", "range"), "protocol_type and protocol_data")
    c.equal(found.authorized_operations, NOT_REQUESTED, "groups[0].authorized_operations")
    if version >= NOT_FOUND_SINCE:
        c.true(not found.error_message, "groups[0].error_message", expected="none", actual=found.error_message)
    members = {
        each.member_id: (each.group_instance_id, each.client_id, each.member_metadata, each.member_assignment)
        for each in found.members
    }
    expected = {
        first.member_id: (None, "one", subscription("a", "b"), first.member_id.encode()),
        second.member_id: (None, "two", subscription("c"), second.member_id.encode()),
    }
    c.equal(members, expected, "members (group_instance_id, client_id, member_metadata, member_assignment)")
    for each in found.members:
        is_address = each.client_host.startswith("/") and len(each.client_host) > 1
        c.true(is_address, "client_host", expected="/ and the address of the client", actual=each.client_host)


@case(
    "groups.describe.instance-id",
    "a static member is described with its instance ID",
    source="KIP-345",
    layer=Layer.WIRE,
    needs=needs(ApiKey.JOIN_GROUP, 5),
    versions=versions_of(ApiKey.DESCRIBE_GROUPS),
)
def instance_id(c: Check, version: int) -> None:
    """Sends: DescribeGroups of a group with a static member.

    Expects: its member ID; from version 4 on its instance ID.

    Why: administrators remove static members by their instance IDs.
    """
    group = ClassicGroup(c)
    member = group.member(instance_id="instance-1")
    group.complete(member)
    found = [(each.member_id, each.group_instance_id) for each in describe(c, group, version).members]
    expected = [(member.member_id, "instance-1" if version >= 4 else None)]
    c.equal(found, expected, "members (member_id, group_instance_id)")


@case(
    "groups.describe.unknown",
    "a group that does not exist is dead",
    source="Protocol: DescribeGroups, KIP-1043",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DESCRIBE_GROUPS),
)
def unknown(c: Check, version: int) -> None:
    """Sends: DescribeGroups of a group that does not exist.

    Expects: the state Dead, no protocol and no members; from version 6 on GROUP_ID_NOT_FOUND with a message, before no
    error.

    Why: older clients show Dead for a group that does not exist, and treat an error as a failure of the server.
    """
    found = describe(c, ClassicGroup(c), version)
    c.equal(
        (found.group_state, found.protocol_type, found.protocol_data, found.members),
        ("Dead", "", "", []),
        "group_state, protocol_type, protocol_data and members",
    )
    if version >= NOT_FOUND_SINCE:
        c.error(found.error_code, ErrorCode.GROUP_ID_NOT_FOUND)
        c.true(found.error_message, "error_message", expected="a message", actual=found.error_message)
    else:
        c.error(found.error_code, ErrorCode.NONE)


@case(
    "groups.describe.several",
    "each group of a request has its own entry",
    source="Protocol: DescribeGroups",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DESCRIBE_GROUPS),
)
def several(c: Check, version: int) -> None:
    """Sends: DescribeGroups of three groups with the same coordinator: one is stable, one does not exist, and one waits
    for assignments.

    Expects: one entry for each, with its state and members.

    Why: tools describe all groups with one request to each broker.
    """
    group = ClassicGroup(c)
    stable = group.member()
    group.complete(stable)
    unknown_group, other = group.neighbor(), group.neighbor()
    waiting = other.member()
    waiting.join()
    names = [unknown_group.id, group.id, other.id]
    answer = c.call(DescribeGroupsRequest(groups=names), version, to=group.wire)
    found = {each.group_id: (each.group_state, [m.member_id for m in each.members]) for each in answer.groups}
    expected = {
        unknown_group.id: ("Dead", []),
        group.id: ("Stable", [stable.member_id]),
        other.id: ("CompletingRebalance", [waiting.member_id]),
    }
    c.equal(len(answer.groups), len(names), "groups (number)")
    c.equal(found, expected, "groups (group_state and member IDs by group_id)")


@case(
    "groups.describe.no-groups",
    "a request without groups has a response without groups",
    source="Protocol: DescribeGroups",
    layer=Layer.WIRE,
    level=Level.APACHE,
    versions=versions_of(ApiKey.DESCRIBE_GROUPS),
)
def no_groups(c: Check, version: int) -> None:
    """Sends: DescribeGroups with an empty array.

    Expects: an empty array.

    Why: it does not mean all groups, other than in DescribeTransactions or Metadata.
    """
    c.equal(c.call(DescribeGroupsRequest(groups=[]), version).groups, [], "groups")


@case(
    "groups.describe.authorized-operations",
    "the operations that the client may perform are reported on request",
    source="KIP-430",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DESCRIBE_GROUPS, 3),
)
def authorized_operations(c: Check, version: int) -> None:
    """Sends: DescribeGroups with include_authorized_operations.

    Expects: the bits of READ, DELETE and DESCRIBE; since Apache Kafka 4.0 also of DESCRIBE_CONFIGS and ALTER_CONFIGS.

    Why: tools offer only what the user may do.
    """
    group = ClassicGroup(c)
    group.complete(group.member())
    found = describe(c, group, version, operations=True).authorized_operations
    has_configs = c.target.release >= GROUP_CONFIGS_SINCE
    c.equal(found, OPERATIONS | (CONFIG_OPERATIONS if has_configs else 0), "authorized_operations")


@case(
    "groups.describe.empty-group",
    "a group that has only offsets is empty",
    source="Protocol: DescribeGroups",
    layer=Layer.WIRE,
    needs=needs(ApiKey.OFFSET_COMMIT, 2),
    versions=versions_of(ApiKey.DESCRIBE_GROUPS),
)
def empty_group(c: Check, version: int) -> None:
    """Sends: OffsetCommit without a member; then DescribeGroups.

    Expects: the state Empty, without protocol type and members, and no error.

    Why: consumers without group management have such groups; tools must show their offsets.
    """
    topic = c.topic()
    group = ClassicGroup(c)
    o.committed_before(c, group.wire, o.commit_request(group.id, topic, {0: 1}))
    found = describe(c, group, version)
    c.error(found.error_code, ErrorCode.NONE)
    c.equal(
        (found.group_state, found.protocol_type, found.protocol_data, found.members),
        ("Empty", "", "", []),
        "group_state, protocol_type, protocol_data and members",
    )


@case(
    "groups.describe.states",
    "a group passes through the states of a rebalance",
    source="Protocol: DescribeGroups",
    needs=needs(ApiKey.JOIN_GROUP, 4, ApiKey.DESCRIBE_GROUPS, 0),
)
def states(c: Check) -> None:
    """Sends: DescribeGroups after each step: JoinGroup, SyncGroup, JoinGroup of a second member, LeaveGroup of both.

    Expects: CompletingRebalance without a protocol, metadata and assignments; Stable; PreparingRebalance; Empty.

    Why: tools wait for states, and reset offsets only of empty groups.
    """
    group = ClassicGroup(c)
    group.keep()
    first, second = group.member(), group.member()
    first.join()
    found = group.describe()
    c.equal((found.group_state, found.protocol_data), ("CompletingRebalance", ""), "group_state and protocol_data")
    c.equal([(each.member_metadata, each.member_assignment) for each in found.members], [(b"", b"")], "members")
    first.sync({first.member_id: b"all"})
    c.equal(group.describe().group_state, "Stable", "group_state after SyncGroup")
    second.start_join()
    group.wait_for_state("PreparingRebalance")
    c.error(first.left(), ErrorCode.NONE, "LeaveGroup error_code")
    c.error(second.joined().error_code, ErrorCode.NONE, "JoinGroup error_code")
    c.error(second.left(), ErrorCode.NONE, "LeaveGroup error_code")
    c.equal(group.describe().group_state, "Empty", "group_state after both have left")


@case(
    "groups.describe.consumer-group",
    "a group with the consumer protocol is not a classic group",
    source="KIP-848",
    level=Level.APACHE,
    features={"group.version": 1},
    needs=needs(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0),
    versions=versions_of(ApiKey.DESCRIBE_GROUPS),
)
def consumer_group(c: Check, version: int) -> None:
    """Sends: DescribeGroups of a group whose member uses ConsumerGroupHeartbeat.

    Expects: the same as for a group that does not exist.

    Why: clients use ConsumerGroupDescribe first, and this as a fallback for classic groups.
    """
    group = ClassicGroup(c)
    join_consumer_group(c, group)
    found = describe(c, group, version)
    c.equal((found.group_state, found.members), ("Dead", []), "group_state and members")
    c.error(found.error_code, ErrorCode.GROUP_ID_NOT_FOUND if version >= NOT_FOUND_SINCE else ErrorCode.NONE)


def join_consumer_group(c: Check, group: ClassicGroup, topic: str = "a") -> tuple[str, int]:
    """One member of a group with the consumer protocol, as a step of the setup: its ID and epoch."""
    version = c.version(ApiKey.CONSUMER_GROUP_HEARTBEAT)
    with c.setup(f"joining the consumer group {group.id}"):
        request = ConsumerGroupHeartbeatRequest(
            group_id=group.id,
            member_id=uuid_to_str(random_uuid()) if version >= 1 else "",
            member_epoch=0,
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=[topic],
            topic_partitions=[],
        )
        answer = c.call(request, version, to=group.wire)
        c.error(answer.error_code, ErrorCode.NONE, "ConsumerGroupHeartbeat error_code")
    leave = ConsumerGroupHeartbeatRequest(group_id=group.id, member_id=answer.member_id, member_epoch=-1)
    c.at_end(leave, version)
    return answer.member_id, answer.member_epoch
