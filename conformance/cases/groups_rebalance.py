"""Rebalances of classic groups with several members: generations, leaders, the choice of the protocol."""

from __future__ import annotations

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...testing.group_requests import subscription
from ..case import case, needs
from ..check import Check
from ..classic_group import ClassicGroup, Member
from ..outcome import NotApplicableError

GROUPS = needs(ApiKey.JOIN_GROUP, 5, ApiKey.SYNC_GROUP, 3, ApiKey.DESCRIBE_GROUPS, 0)


def pair(c: Check, group: ClassicGroup) -> tuple[Member, Member]:
    """A stable group in generation 2 with a leader and a follower."""
    leader, follower = group.member(), group.member()
    group.complete(leader, follower)
    return leader, follower


@case(
    "groups.rebalance.join",
    "a new member causes a new generation with all members",
    source="Protocol: JoinGroup",
    needs=GROUPS,
)
def join(c: Check) -> None:
    """Sends: JoinGroup of a second member, with other metadata than the first one's; then JoinGroup of the first one.

    Expects: generation 2 for both; the first member is still the leader; only its response has the members, each with
    its own metadata; both have the same protocol.

    Why: the leader needs the complete list to assign each partition once; a second leader would assign it twice.
    """
    group = ClassicGroup(c)
    one, two = subscription("a"), subscription("a", "b")
    first, second = group.member(protocols={"range": one}), group.member(protocols={"range": two})
    group.complete(first)
    second.start_join()
    first.wait_for_rebalance()
    answer = first.join()
    other = second.joined()
    for name, each in (("the first member", answer), ("the second member", other)):
        c.error(each.error_code, ErrorCode.NONE, f"error_code of {name}")
        c.equal(each.generation_id, 2, f"generation_id of {name}")
        c.equal(each.leader, first.member_id, f"leader of {name}")
        c.equal(each.protocol_name, "range", f"protocol_name of {name}")
    c.equal((answer.member_id, other.member_id), (first.member_id, second.member_id), "member_id of both")
    found = sorted((each.member_id, each.metadata) for each in answer.members)
    c.equal(found, sorted([(first.member_id, one), (second.member_id, two)]), "members (member_id, metadata)")
    c.equal(other.members, [], "members of the second member's response")


@case(
    "groups.rebalance.three-members",
    "three members complete a generation, each with its own assignment",
    source="Protocol: SyncGroup",
    needs=GROUPS,
)
def three_members(c: Check) -> None:
    """Sends: JoinGroup of three members; then SyncGroup, the followers before the leader.

    Expects: one generation, one leader, its list has all three; each receives what the leader sent for it.

    Why: this is what every consumer group does.
    """
    group = ClassicGroup(c)
    members = [group.member() for _ in range(3)]
    leader, *others = members
    group.complete(leader)
    for number, member in enumerate(others, 2):
        member.start_join()
        group.wait_for_members(number)
    answers = [leader.join(), *(member.joined() for member in others)]
    c.equal([each.error_code for each in answers], [0, 0, 0], "error_code of the JoinGroup responses")
    c.equal([each.generation_id for each in answers], [2, 2, 2], "generation_id of the JoinGroup responses")
    c.equal({each.leader for each in answers}, {leader.member_id}, "leader in the JoinGroup responses")
    ids = {member.member_id for member in members}
    c.equal(len(ids), 3, "different member IDs")
    c.equal({each.member_id for each in answers[0].members}, ids, "members of the leader's response (member_id)")
    for member in others:
        member.start_sync()
    leader.start_sync({member.member_id: f"for {member.member_id}".encode() for member in members})
    for member in members:
        answer = member.synced()
        c.error(answer.error_code, ErrorCode.NONE, "SyncGroup error_code")
        c.equal(answer.assignment, f"for {member.member_id}".encode(), "SyncGroup assignment")
    for member in members:
        c.error(member.heartbeat(), ErrorCode.NONE, "Heartbeat error_code")


@case(
    "groups.rebalance.vote",
    "the protocol is chosen by votes among those that all members have",
    source="Protocol: JoinGroup",
    needs=GROUPS,
)
def vote(c: Check) -> None:
    """Sends: JoinGroup of members with the protocols a, b, c; then c, b; then x, c, b, a.

    Expects: a for the first member alone; then a protocol of both; c for all three, as two members prefer it among
    those that all have.

    Why: a group moves to another assignor by members that list both, in the order of preference.
    """
    group = ClassicGroup(c)
    first = group.member(protocols={"a": b"", "b": b"", "c": b""})
    second = group.member(protocols={"c": b"", "b": b""})
    third = group.member(protocols={"x": b"", "c": b"", "b": b"", "a": b""})
    group.complete(first)
    c.equal(first.protocol_name, "a", "protocol_name with one member")
    group.complete(first, second)
    c.true(
        first.protocol_name in ("b", "c"),
        "protocol_name with two members",
        expected="b or c",
        actual=first.protocol_name,
    )
    c.equal(second.protocol_name, first.protocol_name, "protocol_name of the second member")
    group.complete(first, second, third)
    found = [member.protocol_name for member in (first, second, third)]
    c.equal(found, ["c", "c", "c"], "protocol_name of three members")


@case(
    "groups.rebalance.metadata-of-the-protocol",
    "the leader receives the metadata for the chosen protocol",
    source="Protocol: JoinGroup",
    needs=GROUPS,
)
def metadata_of_the_protocol(c: Check) -> None:
    """Sends: JoinGroup of two members with two protocols each, which have different metadata, and of a third one with
    the second protocol only.

    Expects: the leader's list has the metadata for the chosen protocol only.

    Why: the assignor of one protocol cannot read the metadata of another.
    """
    group = ClassicGroup(c)
    first = group.member(protocol_type="opaque", protocols={"b": b"first b", "a": b"first a"})
    second = group.member(protocol_type="opaque", protocols={"b": b"second b", "a": b"second a"})
    third = group.member(protocol_type="opaque", protocols={"a": b"third a"})
    group.complete(first, second)
    third.start_join()
    first.wait_for_rebalance()
    first.start_join()
    second.start_join()
    answer = first.joined()
    second.joined()
    third.joined()
    c.equal(answer.protocol_name, "a", "protocol_name")
    found = {each.member_id: each.metadata for each in answer.members}
    expected = {first.member_id: b"first a", second.member_id: b"second a", third.member_id: b"third a"}
    c.equal(found, expected, "members (metadata by member_id)")


@case(
    "groups.rebalance.follower-rejoins-unchanged",
    "a follower that rejoins unchanged causes no rebalance",
    source="Protocol: JoinGroup",
    needs=GROUPS,
)
def follower_rejoins_unchanged(c: Check) -> None:
    """Sends: JoinGroup of a follower of a stable group, with the same metadata as before.

    Expects: the current generation and leader, and no members; the leader's heartbeats have no error.

    Why: a follower whose response was lost repeats its request; all others must not stop for it.
    """
    group = ClassicGroup(c)
    leader, follower = pair(c, group)
    answer = follower.ask_join()
    c.error(answer.error_code, ErrorCode.NONE)
    c.equal(
        (answer.generation_id, answer.leader, answer.member_id),
        (leader.generation, leader.member_id, follower.member_id),
        "generation_id, leader and member_id",
    )
    c.equal(answer.members, [], "members")
    c.error(leader.heartbeat(), ErrorCode.NONE, "Heartbeat error_code of the leader")
    c.equal(follower.sync().assignment, follower.member_id.encode(), "SyncGroup assignment")


@case(
    "groups.rebalance.follower-changes-metadata",
    "a follower with new metadata causes a rebalance",
    source="Protocol: JoinGroup",
    needs=GROUPS,
)
def follower_changes_metadata(c: Check) -> None:
    """Sends: JoinGroup of a follower of a stable group, with another subscription.

    Expects: the leader must rejoin, and receives the new subscription in the next generation.

    Why: a consumer that subscribes to another topic receives partitions of it only through this.
    """
    group = ClassicGroup(c)
    leader, follower = pair(c, group)
    follower.protocols = {"range": subscription("b")}
    follower.start_join()
    leader.wait_for_rebalance()
    found = {each.member_id: each.metadata for each in leader.join().members}
    expected = {leader.member_id: subscription("a"), follower.member_id: subscription("b")}
    c.equal(found, expected, "members (metadata by member_id)")
    c.equal(follower.joined().generation_id, 3, "generation_id")


@case(
    "groups.rebalance.leader-rejoins",
    "a leader that rejoins causes a rebalance",
    source="Protocol: JoinGroup",
    needs=GROUPS,
)
def leader_rejoins(c: Check) -> None:
    """Sends: JoinGroup of the leader of a stable group, with the same metadata as before.

    Expects: the follower must rejoin; generation 3.

    Why: the leader rejoins when the topics have changed; only a new generation can assign the new partitions.
    """
    group = ClassicGroup(c)
    leader, follower = pair(c, group)
    leader.start_join()
    follower.wait_for_rebalance()
    c.equal(follower.join().generation_id, 3, "generation_id of the follower")
    c.equal(leader.joined().generation_id, 3, "generation_id of the leader")


@case(
    "groups.rebalance.follower-leaves",
    "a member that leaves causes a rebalance without it",
    source="Protocol: LeaveGroup",
    needs=GROUPS,
)
def follower_leaves(c: Check) -> None:
    """Sends: LeaveGroup of a follower; then Heartbeat and JoinGroup of the leader.

    Expects: REBALANCE_IN_PROGRESS; then generation 3, with the leader only.

    Why: the partitions of the member that has left must be assigned to the others.
    """
    group = ClassicGroup(c)
    leader, follower = pair(c, group)
    c.error(follower.left(), ErrorCode.NONE, "LeaveGroup error_code")
    c.error(leader.heartbeat(), ErrorCode.REBALANCE_IN_PROGRESS, "Heartbeat error_code of the leader")
    answer = leader.join()
    c.error(answer.error_code, ErrorCode.NONE, "JoinGroup error_code")
    c.equal(answer.generation_id, 3, "generation_id")
    c.equal([each.member_id for each in answer.members], [leader.member_id], "members (member_id)")


@case(
    "groups.rebalance.leader-leaves",
    "another member becomes the leader when the leader leaves",
    source="Protocol: LeaveGroup",
    needs=GROUPS,
)
def leader_leaves(c: Check) -> None:
    """Sends: LeaveGroup of the leader; then JoinGroup of the other member, and SyncGroup with assignments.

    Expects: the other member is the leader of generation 3, receives the list of members, and its assignments count.

    Why: without a leader no member would assign partitions.
    """
    group = ClassicGroup(c)
    leader, follower = pair(c, group)
    c.error(leader.left(), ErrorCode.NONE, "LeaveGroup error_code")
    follower.wait_for_rebalance()
    answer = follower.join()
    c.equal((answer.generation_id, answer.leader), (3, follower.member_id), "generation_id and leader")
    c.equal([each.member_id for each in answer.members], [follower.member_id], "members (member_id)")
    c.equal(follower.sync({follower.member_id: b"all"}).assignment, b"all", "assignment")


@case(
    "groups.rebalance.generation-of-an-empty-group",
    "generations continue after all members have left",
    source="Protocol: JoinGroup",
    needs=GROUPS,
)
def generation_of_an_empty_group(c: Check) -> None:
    """Sends: LeaveGroup of the only member; then JoinGroup of another one.

    Expects: a generation higher than the first one: 3 in Apache Kafka, as the empty group had generation 2.

    Why: a member of the old generation must not be able to commit offsets in the new one.
    """
    group = ClassicGroup(c)
    group.keep()
    first, second = group.member(), group.member()
    group.complete(first)
    c.equal(first.generation, 1, "generation_id of the first member")
    c.error(first.left(), ErrorCode.NONE, "LeaveGroup error_code")
    c.equal(second.join().generation_id, 3, "generation_id of the second member")


@case(
    "groups.rebalance.other-protocol-type",
    "groups may have any protocol type",
    source="Protocol: JoinGroup",
    needs=GROUPS,
)
def other_protocol_type(c: Check) -> None:
    """Sends: JoinGroup and SyncGroup with the protocol type "connect" and three protocols.

    Expects: the first protocol; DescribeGroups shows type, protocol, metadata and assignment.

    Why: Kafka Connect's workers coordinate with this protocol type.
    """
    group = ClassicGroup(c)
    worker = group.member(protocol_type="connect", protocols={"sessioned": b"s", "compatible": b"c", "default": b"d"})
    answer = worker.join()
    c.error(answer.error_code, ErrorCode.NONE, "JoinGroup error_code")
    c.equal(answer.protocol_name, "sessioned", "JoinGroup protocol_name")
    c.error(worker.sync({worker.member_id: b"task 1"}).error_code, ErrorCode.NONE, "SyncGroup error_code")
    found = group.describe()
    c.equal(
        (found.group_state, found.protocol_type, found.protocol_data),
        ("Stable", "connect", "sessioned"),
        "DescribeGroups group_state, protocol_type and protocol_data",
    )
    data = [(each.member_metadata, each.member_assignment) for each in found.members]
    c.equal(data, [(b"s", b"task 1")], "DescribeGroups members (member_metadata, member_assignment)")


@case(
    "groups.rebalance.member-disconnects",
    "a member that disconnects while it waits does not block the group",
    source="Protocol: JoinGroup",
    needs=GROUPS,
)
def member_disconnects(c: Check) -> None:
    """Sends: JoinGroup of a second member, whose connection is closed while it waits; then JoinGroup of the first one.

    Expects: the first member's response, with both members, and its SyncGroup has no error.

    Why: the broken connection says nothing about the member, which may repeat its request on another one.
    """
    group = ClassicGroup(c)
    first, second = group.member(), group.member()
    group.complete(first)
    second.start_join()
    group.wait_for_members(2)
    second.wire.close()
    answer = first.join()
    c.error(answer.error_code, ErrorCode.NONE, "JoinGroup error_code")
    c.equal(len(answer.members), 2, "members (number)")
    c.error(first.sync({first.member_id: b"all"}).error_code, ErrorCode.NONE, "SyncGroup error_code")


@case(
    "groups.rebalance.repeated-join",
    "a member that repeats JoinGroup while it waits is still one member",
    source="Protocol: JoinGroup",
    needs=GROUPS,
)
def repeated_join(c: Check) -> None:
    """Sends: JoinGroup of a second member; the same on another connection; then JoinGroup of the first one.

    Expects: generation 2 in the response to the repeated request; the leader's list has two members.

    Why: a client whose connection is lost while it waits repeats its request.
    """
    group = ClassicGroup(c)
    first, second, again = (group.member() for _ in range(3))
    group.complete(first)
    second.start_join()
    group.wait_for_members(2)
    again.member_id = second.member_id
    again.start_join()
    c.error(first.heartbeat(), ErrorCode.REBALANCE_IN_PROGRESS, "Heartbeat error_code of the first member")
    first.start_join()
    answer, repeated = first.joined(), again.joined()
    c.equal({each.member_id for each in answer.members}, {first.member_id, second.member_id}, "members (member_id)")
    c.equal(answer.generation_id, 2, "generation_id of the first member")
    c.error(repeated.error_code, ErrorCode.NONE, "error_code of the repeated request")
    c.equal((repeated.generation_id, repeated.member_id), (2, second.member_id), "generation_id and member_id")


@case(
    "groups.rebalance.cooperative",
    "two generations follow each other when a member revokes partitions",
    source="KIP-429",
    needs=GROUPS,
)
def cooperative(c: Check) -> None:
    """Sends: as a cooperative assignor does, a generation in which the leader assigns only what no other member owns,
    and then JoinGroup of the member that has revoked a partition.

    Expects: generation 2, then 3, with the owned partitions of each member as they were sent; the new member receives
    the revoked partition in generation 3.

    Why: members keep their partitions during a cooperative rebalance; the broker must not fence or delay them.
    """
    group = ClassicGroup(c)
    first = group.member(protocols={"cooperative-sticky": subscription("a", owned={"a": [0, 1]})})
    second = group.member(protocols={"cooperative-sticky": subscription("a", owned={})})
    group.complete(first)
    second.start_join()
    first.wait_for_rebalance()
    first.join()
    second.joined()
    second.start_sync()
    first.sync({first.member_id: b"a-0", second.member_id: b""})
    c.equal(second.synced().assignment, b"", "assignment of the new member in generation 2")
    kept = subscription("a", owned={"a": [0]})
    first.protocols = {"cooperative-sticky": kept}
    first.start_join()
    second.wait_for_rebalance()
    second.start_join()
    answer = first.joined()
    second.joined()
    c.equal((answer.generation_id, second.generation), (3, 3), "generation_id of both members")
    found = {each.member_id: each.metadata for each in answer.members}
    expected = {first.member_id: kept, second.member_id: subscription("a", owned={})}
    c.equal(found, expected, "members (metadata by member_id)")
    second.start_sync()
    c.equal(
        first.sync({first.member_id: b"a-0", second.member_id: b"a-1"}).assignment,
        b"a-0",
        "assignment of the first member",
    )
    c.equal(second.synced().assignment, b"a-1", "assignment of the new member in generation 3")


@case(
    "groups.rebalance.full-group",
    "a group does not exceed its maximum size",
    source="KIP-389",
    needs=(*GROUPS, *needs(ApiKey.DESCRIBE_CONFIGS, 1)),
)
def full_group(c: Check) -> None:
    """Sends: JoinGroup of one member more than `group.max.size`, if that is at most 20.

    Expects: GROUP_MAX_SIZE_REACHED; the members stay, and need not rejoin.

    Why: the limit protects the server from a group whose rebalances never end.
    """
    size = int(c.broker_config("group.max.size", "2147483647"))
    if size > 20:
        raise NotApplicableError(f"group.max.size is {size}")
    group = ClassicGroup(c)
    members = [group.member() for _ in range(size)]
    group.complete(members[0], *members[1:])
    c.error(group.member().ask_join().error_code, ErrorCode.GROUP_MAX_SIZE_REACHED)
    c.error(members[0].heartbeat(), ErrorCode.NONE, "Heartbeat error_code of the leader")
    c.equal(len(group.describe().members), size, "members in DescribeGroups (number)")
