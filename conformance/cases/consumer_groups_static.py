"""Static members of consumer groups: instance IDs that outlive their members (KIP-345 and KIP-848)."""

from __future__ import annotations

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from .. import consumer_group as g
from ..case import case, needs
from ..check import Check
from ..consumer_group import FEATURES, LEAVE, LEAVE_AND_RETURN, ConsumerMember, share

HEARTBEAT = needs(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, ApiKey.CONSUMER_GROUP_DESCRIBE, 0)
SOURCE = "KIP-848: Static Membership"


def static_and_other(c: Check) -> tuple[ConsumerMember, ConsumerMember]:
    """A static member with instance ID `i-1` and a dynamic one, in a stable group of six partitions."""
    topic = c.topic(6)
    group = c.group()
    static, other = ConsumerMember(c, group, topic, instance_id="i-1"), ConsumerMember(c, group, topic)
    g.stable(c, static, other)
    return static, other


@case(
    "consumer-groups.static.return",
    "a static member that returns gets the partitions that it had",
    source=SOURCE,
    features=FEATURES,
    needs=HEARTBEAT,
)
def returns(c: Check) -> None:
    """Sends: a static member leaves with epoch -2; a new member with the same instance ID joins.

    Expects: epoch -2 in the response; the new member gets the old partitions, the other member keeps its epoch and its
    partitions, and the group has two members again, with one of this instance ID.

    Why: rolling restarts of a large application must not cause rebalances.
    """
    static, other = static_and_other(c)
    had, others, epoch = share(static), share(other), other.epoch
    answer = static.leave(LEAVE_AND_RETURN)
    c.error(answer.error_code, ErrorCode.NONE, "error_code of the heartbeat with epoch -2")
    c.equal(answer.member_id, static.member_id, "member_id of the heartbeat with epoch -2")
    c.equal(answer.member_epoch, LEAVE_AND_RETURN, "member_epoch of the heartbeat with epoch -2")
    back = ConsumerMember(c, static.group, *static.topics, instance_id="i-1")
    back.join()
    g.settle(c, back, other)
    c.equal(share(back), had, "the partitions of the static member")
    c.equal(share(other), others, "the partitions of the other member")
    c.equal((back.epoch, other.epoch), (epoch, epoch), "the epochs of both members")
    found = {each.member_id: each.instance_id for each in g.describe(c, static.group).members}
    c.equal(found, {back.member_id: "i-1", other.member_id: None}, "the instance IDs of the members")


@case(
    "consumer-groups.static.absent",
    "the partitions of a static member that will return stay with it",
    source=SOURCE,
    features=FEATURES,
    needs=HEARTBEAT,
)
def absent(c: Check) -> None:
    """Sends: a static member leaves with epoch -2; the other member sends heartbeats, with and without its partitions.

    Expects: no new assignment and no new epoch for the other member; the static member is still described.

    Why: partitions that are moved for a restart of a few seconds are moved twice.
    """
    static, other = static_and_other(c)
    had, epoch = share(other), other.epoch
    static.leave(LEAVE_AND_RETURN)
    for answer in (other.heartbeat(), other.report(), other.heartbeat()):
        c.error(answer.error_code, ErrorCode.NONE)
        c.equal((answer.member_epoch, answer.assignment), (epoch, None), "member_epoch and assignment")
    c.equal(share(other), had, "the partitions of the other member")
    members = {each.instance_id: each.member_epoch for each in g.describe(c, static.group).members}
    c.equal(members, {"i-1": LEAVE_AND_RETURN, None: epoch}, "the epochs of the members by instance ID")


@case(
    "consumer-groups.static.leave",
    "a static member that leaves for good loses its partitions",
    source=SOURCE,
    features=FEATURES,
    needs=HEARTBEAT,
)
def leaves(c: Check) -> None:
    """Sends: a static member leaves with epoch -1; the other member sends heartbeats.

    Expects: the other member gets all partitions, and is the only member.

    Why: an instance that is removed on purpose must not leave partitions behind until a timeout.
    """
    static, other = static_and_other(c)
    c.equal(static.leave(LEAVE).member_epoch, LEAVE, "member_epoch of the last heartbeat")
    g.settle(c, other)
    c.equal(share(other), [0, 1, 2, 3, 4, 5], "the partitions of the other member")
    c.equal([each.instance_id for each in g.describe(c, static.group).members], [None], "the instance IDs")


@case(
    "consumer-groups.static.leave-after-return-announced",
    "a static member may leave for good after it has left with the intention to return",
    source=SOURCE,
    features=FEATURES,
    needs=HEARTBEAT,
)
def leaves_after_all(c: Check) -> None:
    """Sends: epoch -2, then epoch -1, from the same static member.

    Expects: no error; the group has only the other member, which gets all partitions.

    Why: an administrator who removes an instance while it restarts must succeed.
    """
    static, other = static_and_other(c)
    c.error(static.leave(LEAVE_AND_RETURN).error_code, ErrorCode.NONE, "error_code with epoch -2")
    c.error(static.leave(LEAVE).error_code, ErrorCode.NONE, "error_code with epoch -1")
    g.settle(c, other)
    c.equal(share(other), [0, 1, 2, 3, 4, 5], "the partitions of the other member")
    c.equal([each.member_id for each in g.describe(c, static.group).members], [other.member_id], "members")


@case(
    "consumer-groups.static.unreleased",
    "an instance ID that another member uses is rejected",
    source=SOURCE,
    features=FEATURES,
    needs=HEARTBEAT,
)
def unreleased(c: Check) -> None:
    """Sends: a first heartbeat with the instance ID of a member that has not left.

    Expects: UNRELEASED_INSTANCE_ID; the first member keeps its epoch and partitions.

    Why: two instances with the same configuration by mistake must not replace each other again and again.
    """
    static, _ = static_and_other(c)
    had, epoch = share(static), static.epoch
    second = ConsumerMember(c, static.group, *static.topics, instance_id="i-1")
    g.rejected(c, second.try_join(), ErrorCode.UNRELEASED_INSTANCE_ID)
    answer = static.heartbeat()
    c.error(answer.error_code, ErrorCode.NONE, "error_code of the first member")
    c.equal((answer.member_epoch, share(static)), (epoch, had), "epoch and partitions of the first member")
    c.equal(len(g.describe(c, static.group).members), 2, "the number of members")


@case(
    "consumer-groups.static.other-instance",
    "a member that uses the instance ID of another one is fenced",
    source=SOURCE,
    features=FEATURES,
    needs=HEARTBEAT,
)
def other_instance(c: Check) -> None:
    """Sends: heartbeats with epochs of the member, -1 and -2 and the instance ID of another member; then a heartbeat
    with an instance ID that no member has.

    Expects: FENCED_INSTANCE_ID for the first three, UNKNOWN_MEMBER_ID for the last; both members stay.

    Why: a member must not act for an instance that it is not.
    """
    topic = c.topic(2)
    group = c.group()
    first = ConsumerMember(c, group, topic, instance_id="i-1")
    second = ConsumerMember(c, group, topic, instance_id="i-2")
    g.stable(c, first, second)
    for epoch in (first.epoch, LEAVE, LEAVE_AND_RETURN):
        answer = first.heartbeat(member_epoch=epoch, instance_id="i-2")
        g.rejected(c, answer, ErrorCode.FENCED_INSTANCE_ID)
    g.rejected(c, first.heartbeat(instance_id="i-3"), ErrorCode.UNKNOWN_MEMBER_ID)
    g.settle(c, first, second)
    c.equal(share(first, second), [0, 1], "the partitions of both members")


@case(
    "consumer-groups.static.replaced",
    "the member that a new one has replaced is fenced",
    source=SOURCE,
    features=FEATURES,
    needs=HEARTBEAT,
)
def replaced(c: Check) -> None:
    """Sends: a static member leaves with epoch -2, a new member with its instance ID joins, and the old one sends a
    heartbeat, a last heartbeat, and a first heartbeat.

    Expects: FENCED_INSTANCE_ID for the first two, UNRELEASED_INSTANCE_ID for the third; the new member stays.

    Why: a process that was believed dead must stop reading when its successor runs.
    """
    static, other = static_and_other(c)
    static.leave(LEAVE_AND_RETURN)
    after = ConsumerMember(c, static.group, *static.topics, instance_id="i-1")
    after.join()
    g.rejected(c, static.heartbeat(), ErrorCode.FENCED_INSTANCE_ID)
    g.rejected(c, static.leave(), ErrorCode.FENCED_INSTANCE_ID)
    g.rejected(c, static.try_join(), ErrorCode.UNRELEASED_INSTANCE_ID)
    g.settle(c, after, other)
    c.equal(share(after, other), [0, 1, 2, 3, 4, 5], "the partitions of both members")
