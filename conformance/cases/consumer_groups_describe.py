"""ConsumerGroupDescribe in each version, and the states of consumer groups (KIP-848)."""

from __future__ import annotations

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from .. import consumer_group as g
from ..case import Layer, Level, case, needs, versions_of
from ..check import Check
from ..consumer_group import FEATURES, ConsumerMember, share

HEARTBEAT = needs(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, ApiKey.CONSUMER_GROUP_DESCRIBE, 0)
CONSUMER_MEMBER = 1
DENIED = -(2**31)


@case(
    "consumer-groups.describe.exchange",
    "ConsumerGroupDescribe returns the state of a group and its members",
    source="KIP-848: ConsumerGroupDescribe API",
    layer=Layer.WIRE,
    features=FEATURES,
    needs=HEARTBEAT,
    versions=versions_of(ApiKey.CONSUMER_GROUP_DESCRIBE),
)
def describe_exchange(c: Check, version: int) -> None:
    """Sends: ConsumerGroupDescribe of a stable group with a static member in a rack, and of a group of one member
    with another topic.

    Expects: each group in the order of the request with state, epochs, assignor uniform, and its member with client,
    instance, rack, subscription, assignment and target assignment; authorized operations are not returned; in version
    1 the member's type is 1, for consumer.

    Why: kafka-consumer-groups.sh and every user interface show these fields.
    """
    topics = c.topic(3), c.topic(1)
    groups = c.group(), c.group()
    clients = "first-client", "second-client"
    instances: tuple[str | None, ...] = ("instance", None)
    racks: tuple[str | None, ...] = ("rack", None)
    members = []
    for index in range(2):
        address = c.coordinator(groups[index]).address
        wire = c.connect(client_id=clients[index], address=address)
        members.append(
            ConsumerMember(
                c, groups[index], topics[index], instance_id=instances[index], rack_id=racks[index], wire=wire
            )
        )
        g.stable(c, members[-1])
    together = members[0].wire.address == members[1].wire.address
    answers = []
    for requested in [list(groups)] if together else [[each] for each in groups]:
        answer = c.call(ConsumerGroupDescribeRequest(group_ids=requested), version, to=c.coordinator(requested[0]))
        answers += answer.groups
    c.equal([each.group_id for each in answers], list(groups), "groups (group_id)")
    for index, group in enumerate(answers):
        at = f"groups[{index}]"
        member, topic = members[index], topics[index]
        c.error(group.error_code, ErrorCode.NONE, f"{at}.error_code")
        c.true(not group.error_message, f"{at}.error_message", expected="none", actual=group.error_message)
        c.equal(group.group_state, "Stable", f"{at}.group_state")
        c.equal(group.group_epoch, member.epoch, f"{at}.group_epoch")
        c.equal(group.assignment_epoch, member.epoch, f"{at}.assignment_epoch")
        c.equal(group.assignor_name, "uniform", f"{at}.assignor_name")
        c.equal(group.authorized_operations, DENIED, f"{at}.authorized_operations")
        c.equal(len(group.members), 1, f"{at}.members (number)")
        found, at = group.members[0], f"{at}.members[0]"
        c.equal(found.member_id, member.member_id, f"{at}.member_id")
        c.equal(found.instance_id, instances[index], f"{at}.instance_id")
        c.equal(found.rack_id, racks[index], f"{at}.rack_id")
        c.equal(found.member_epoch, member.epoch, f"{at}.member_epoch")
        c.equal(found.client_id, clients[index], f"{at}.client_id")
        g.is_address(c, found.client_host, f"{at}.client_host")
        c.equal(found.subscribed_topic_names, [topic.name], f"{at}.subscribed_topic_names")
        c.equal(found.subscribed_topic_regex, "", f"{at}.subscribed_topic_regex")
        partitions = [3, 1][index]
        for name in ("assignment", "target_assignment"):
            assigned = [
                (each.topic_id, each.topic_name, sorted(each.partitions))
                for each in getattr(found, name).topic_partitions
            ]
            c.equal(assigned, [(topic.topic_id, topic.name, list(range(partitions)))], f"{at}.{name}")
        if version >= 1:
            c.equal(found.member_type, CONSUMER_MEMBER, f"{at}.member_type")


@case(
    "consumer-groups.describe.unknown-group",
    "ConsumerGroupDescribe rejects a group that does not exist",
    source="KIP-848: ConsumerGroupDescribe API",
    layer=Layer.WIRE,
    features=FEATURES,
    needs=HEARTBEAT,
    versions=versions_of(ApiKey.CONSUMER_GROUP_DESCRIBE),
)
def describe_unknown(c: Check, version: int) -> None:
    """Sends: ConsumerGroupDescribe of a group that does not exist, and of one that does.

    Expects: GROUP_ID_NOT_FOUND for the first, without members and with epochs 0; the second is described.

    Why: a tool that describes many groups must show the others when one of them is deleted.
    """
    group, unknown = c.group(), c.name("unknown")
    member = ConsumerMember(c, group, c.topic())
    g.stable(c, member)
    found = g.describe(c, unknown, version)
    c.error(found.error_code, ErrorCode.GROUP_ID_NOT_FOUND)
    c.equal((found.members, found.group_epoch, found.assignment_epoch), ([], 0, 0), "members and epochs")
    if member.wire.address == c.coordinator(unknown).address:
        answer = c.call(ConsumerGroupDescribeRequest(group_ids=[unknown, group]), version, to=member.wire)
        c.equal(
            {each.group_id: each.error_code for each in answer.groups},
            {unknown: ErrorCode.GROUP_ID_NOT_FOUND, group: ErrorCode.NONE},
            "error_code of both groups",
        )


@case(
    "consumer-groups.describe.unknown-group-message",
    "the message for a group that does not exist contains its name",
    source="KIP-848: ConsumerGroupDescribe API",
    layer=Layer.WIRE,
    level=Level.APACHE,
    features=FEATURES,
    needs=needs(ApiKey.CONSUMER_GROUP_DESCRIBE, 1),
)
def describe_unknown_message(c: Check) -> None:
    """Sends: ConsumerGroupDescribe of a group that does not exist.

    Expects: the error message "Group NAME not found." with the name of the group.

    Why: tools show this message to their user.
    """
    unknown = c.name("unknown")
    c.equal(g.describe(c, unknown).error_message, f"Group {unknown} not found.", "error_message")


@case(
    "consumer-groups.describe.authorized-operations",
    "ConsumerGroupDescribe returns what the principal may do, if it is requested",
    source="KIP-430 and KIP-848",
    level=Level.SHOULD,
    features=FEATURES,
    needs=HEARTBEAT,
)
def authorized_operations(c: Check) -> None:
    """Sends: ConsumerGroupDescribe with include_authorized_operations.

    Expects: DESCRIBE (bit 8) and READ (bit 3), or all operations of groups, as a bit field.

    Why: a user interface shows only what its user may do.
    """
    group = c.group()
    member = ConsumerMember(c, group, c.topic())
    g.stable(c, member)
    request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=True)
    (found,) = c.call(request, to=member.wire).groups
    read, describe = 1 << 3, 1 << 8
    operations = found.authorized_operations
    c.equal(operations & (read | describe), read | describe, "authorized_operations, as far as READ and DESCRIBE")
    everything = read | 1 << 6 | describe | 1 << 10 | 1 << 11
    c.equal(operations & ~everything, 0, "authorized_operations other than those of groups")


@case(
    "consumer-groups.describe.states",
    "a group is Reconciling while partitions move, then Stable, then Empty",
    source="KIP-848: Group States",
    features=FEATURES,
    needs=HEARTBEAT,
)
def states(c: Check) -> None:
    """Sends: a second member joins; heartbeats of the new one only, then of both; both leave.

    Expects: in ConsumerGroupDescribe and ListGroups the states Reconciling while the first member has not revoked its
    partitions, Stable after it has, and Empty at the end; the target assignment differs from the assignment in between.

    Why: operators and tools wait for a stable group, and delete empty ones.
    """
    topic = c.topic(4)
    group = c.group()
    first, second = ConsumerMember(c, group, topic), ConsumerMember(c, group, topic)
    g.stable(c, first)
    second.join()

    def state() -> str:
        second.follow()
        return g.describe(c, group).group_state

    c.until(lambda: state() == "Reconciling", "the state Reconciling")
    members = {each.member_id: each for each in g.describe(c, group).members}
    sizes = [
        [
            sum(len(each.partitions) for each in part.topic_partitions)
            for part in (found.assignment, found.target_assignment)
        ]
        for found in (members[first.member_id], members[second.member_id])
    ]
    c.equal(sizes[1], [0, 2], "the number of partitions in the second member's assignment and target assignment")
    c.equal(sizes[0][1], 2, "the number of partitions in the first member's target assignment")
    c.equal(g.listed(c, group)[group].group_state, "Reconciling", "group_state in ListGroups")
    g.settle(c, first, second)
    c.equal(g.listed(c, group)[group].group_state, "Stable", "group_state in ListGroups")
    c.equal(share(first, second), [0, 1, 2, 3], "the partitions of both")
    first.leave()
    second.leave()
    c.equal(g.describe(c, group).group_state, "Empty", "group_state of ConsumerGroupDescribe")
    c.equal(g.listed(c, group)[group].group_state, "Empty", "group_state in ListGroups")
