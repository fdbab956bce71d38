"""How partitions move between the members of a consumer group, and how epochs fence them (KIP-848)."""

from __future__ import annotations

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from .. import consumer_group as g
from ..case import Level, case, needs
from ..check import Check
from ..consumer_group import FEATURES, ConsumerMember, share

HEARTBEAT = needs(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, ApiKey.CONSUMER_GROUP_DESCRIBE, 0)
SOURCE = "KIP-848: Reconciliation of the group"
ALL = [0, 1, 2, 3, 4, 5]


@case(
    "consumer-groups.reconciliation.revoke-first",
    "a partition is assigned to its next owner after the last one has revoked it",
    source=SOURCE,
    features=FEATURES,
    needs=HEARTBEAT,
)
def revoke_first(c: Check) -> None:
    """Sends: a second member joins a stable group. The first one gets its smaller assignment, and reports only later
    that it has revoked partitions; the second one sends heartbeats all the time.

    Expects: no partitions for the second member, and the old epoch for the first, before that report. After it the
    first member gets a higher epoch, and the second one exactly the revoked partitions.

    Why: two consumers that read the same partition at the same time process records twice, and overwrite offsets.
    """
    topic = c.topic(6)
    group = c.group()
    old, new = ConsumerMember(c, group, topic), ConsumerMember(c, group, topic)
    g.stable(c, old)
    epoch = old.epoch
    c.equal(share(old), ALL, "the partitions of the only member")
    new.join()
    c.equal(new.owned, {}, "the partitions of the new member after its first heartbeat")

    def is_assigned_less() -> bool:
        c.error(new.heartbeat().error_code, ErrorCode.NONE, "error_code of the new member")
        c.equal(share(new), [], "the partitions of the new member before any are revoked")
        return old.heartbeat().assignment is not None

    c.until(is_assigned_less, "an assignment with fewer partitions for the first member")
    kept = share(old)
    c.equal(len(kept), 3, "the number of partitions that the first member keeps")
    for _ in range(3):
        c.error(new.heartbeat().error_code, ErrorCode.NONE, "error_code of the new member")
        c.equal(share(new), [], "the partitions of the new member before the revocation is reported")
    c.equal(old.heartbeat().member_epoch, epoch, "member_epoch of the first member before its report")
    answer = old.report()
    c.error(answer.error_code, ErrorCode.NONE, "error_code of the report")
    c.true(answer.member_epoch > epoch, "member_epoch", expected=f"above {epoch}", actual=answer.member_epoch)
    c.until(lambda: new.follow().owned, "partitions for the new member")
    c.equal(share(new), [each for each in ALL if each not in kept], "the partitions of the new member")
    c.equal(new.epoch, old.epoch, "member_epoch of the new member")


@case(
    "consumer-groups.reconciliation.members-come-and-go",
    "partitions are distributed evenly among one, two, three and two members",
    source=SOURCE,
    features=FEATURES,
    needs=HEARTBEAT,
)
def join_and_leave(c: Check) -> None:
    """Sends: three members join one after the other; then the first one leaves.

    Expects: each time every partition is assigned to exactly one member, members have equally many, and all members
    have the same epoch, which rises. A member keeps partitions if it gets more.

    Why: this is what a consumer group is for.
    """
    topic = c.topic(6)
    group = c.group()
    members = [ConsumerMember(c, group, topic) for _ in range(3)]
    epoch = 0
    for count in range(1, 4):
        members[count - 1].join()
        joined = members[:count]
        g.settle(c, *joined)
        c.equal(share(*joined), ALL, f"the partitions of {count} members")
        c.equal([len(share(each)) for each in joined], [6 // count] * count, "the numbers of partitions")
        epochs = {member.epoch for member in joined}
        c.true(len(epochs) == 1 and min(epochs) > epoch, "epochs", expected=f"one above {epoch}", actual=epochs)
        epoch = min(epochs)
    kept = [share(member) for member in members[1:]]
    members[0].leave()
    g.settle(c, *members[1:])
    c.equal(share(*members[1:]), ALL, "the partitions of the two remaining members")
    for member, before in zip(members[1:], kept, strict=True):
        c.equal(sorted(set(share(member)) & set(before)), before, "the partitions that a member had before")
        c.equal(len(share(member)), 3, "the number of partitions of a remaining member")


@case(
    "consumer-groups.reconciliation.more-members-than-partitions",
    "a member without a partition is a member all the same",
    source=SOURCE,
    features=FEATURES,
    needs=HEARTBEAT,
)
def more_members(c: Check) -> None:
    """Sends: two members of a topic with one partition; then the owner leaves.

    Expects: one member with the partition and one without, both at the same epoch; then the other one gets it.

    Why: spare consumers take over when another one fails.
    """
    topic = c.topic(1)
    group = c.group()
    members = [ConsumerMember(c, group, topic) for _ in range(2)]
    g.stable(c, *members)
    c.equal(share(*members), [0], "the partitions of both")
    c.equal(members[0].epoch, members[1].epoch, "the epochs of both")
    owner, spare = sorted(members, key=lambda member: not member.partitions)
    owner.leave()
    g.settle(c, spare)
    c.equal(share(spare), [0], "the partitions of the remaining member")


@case(
    "consumer-groups.reconciliation.rebalance-timeout",
    "a member that does not revoke its partitions is fenced after its rebalance timeout",
    source="KIP-848: Rebalance Timeout",
    features=FEATURES,
    needs=HEARTBEAT,
)
def rebalance_timeout(c: Check) -> None:
    """Sends: a second member joins. The first one, with a rebalance timeout of 300 ms, keeps sending heartbeats without
    reporting that it has revoked partitions.

    Expects: after a while UNKNOWN_MEMBER_ID for the first member, and all partitions for the second.

    Why: one consumer that is stuck in its processing must not stop the whole group.
    """
    topic = c.topic(6)
    group = c.group()
    stuck, other = ConsumerMember(c, group, topic, rebalance_timeout_ms=300), ConsumerMember(c, group, topic)
    g.stable(c, stuck)
    other.join()

    def is_fenced() -> bool:
        c.error(other.heartbeat().error_code, ErrorCode.NONE, "error_code of the new member")
        code = stuck.heartbeat().error_code
        c.error(code, (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID), "error_code of the stuck member")
        return bool(code)

    c.until(is_fenced, "the end of the rebalance timeout")
    g.settle(c, other)
    c.equal(share(other), ALL, "the partitions of the new member")
    c.equal([each.member_id for each in g.describe(c, group).members], [other.member_id], "members")


@case(
    "consumer-groups.epochs.fenced",
    "a heartbeat with an epoch that is not the member's is fenced",
    source="KIP-848: Member Epoch",
    features=FEATURES,
    needs=HEARTBEAT,
    variants={"next": (1,), "future": (1000,)},
)
def fenced(c: Check, ahead: int) -> None:
    """Sends: a heartbeat with a higher epoch than the member's, then one with the right epoch.

    Expects: FENCED_MEMBER_EPOCH with a message, epoch 0, and no assignment; the second heartbeat has no error.

    Why: a member whose epoch the coordinator never gave it was removed, or belongs to another group of that name.
    """
    member = ConsumerMember(c, c.group(), c.topic())
    g.stable(c, member)
    g.rejected(c, member.heartbeat(member_epoch=member.epoch + ahead), ErrorCode.FENCED_MEMBER_EPOCH)
    answer = member.heartbeat()
    c.error(answer.error_code, ErrorCode.NONE, "error_code with the right epoch")
    c.equal(answer.member_epoch, member.epoch, "member_epoch with the right epoch")
    c.equal(share(member), [0], "the partitions of the member")


@case(
    "consumer-groups.epochs.previous",
    "the epoch before the current one is accepted, because its response may have been lost",
    source="KIP-848: Member Epoch",
    features=FEATURES,
    needs=HEARTBEAT,
)
def previous(c: Check) -> None:
    """Sends: heartbeats with the member's previous epoch, once with its current partitions, and once with partitions
    that were revoked.

    Expects: to the first, no error and the current epoch; to the second, FENCED_MEMBER_EPOCH.

    Why: a consumer that did not receive a response sends its old epoch, and must not lose its partitions. One that
    still has old partitions must not use them.
    """
    topic = c.topic(6)
    group = c.group()
    member, other = ConsumerMember(c, group, topic), ConsumerMember(c, group, topic)
    g.stable(c, member)
    before, everything = member.epoch, member.reported()
    with c.setup("a second member"):
        other.join()
        g.settle(c, member, other)
    now = member.epoch
    c.true(now > before, "member_epoch after a rebalance", expected=f"above {before}", actual=now)
    answer = member.heartbeat(member_epoch=before, topic_partitions=member.reported())
    c.error(answer.error_code, ErrorCode.NONE, "error_code with the previous epoch")
    c.equal(answer.member_epoch, now, "member_epoch")
    stale = member.heartbeat(member_epoch=before, topic_partitions=everything)
    g.rejected(c, stale, ErrorCode.FENCED_MEMBER_EPOCH)
    c.equal(share(member, other), ALL, "the partitions of both members")


@case(
    "consumer-groups.epochs.older",
    "an epoch older than the previous one is fenced",
    source="KIP-848: Member Epoch",
    features=FEATURES,
    needs=HEARTBEAT,
)
def older(c: Check) -> None:
    """Sends: after two rebalances, a heartbeat with the epoch of before, without partitions.

    Expects: FENCED_MEMBER_EPOCH.

    Why: a member that missed a whole assignment has an unknown state, and has to join again.
    """
    topic = c.topic(6)
    group = c.group()
    members = [ConsumerMember(c, group, topic) for _ in range(3)]
    g.stable(c, members[0])
    before = members[0].epoch
    with c.setup("two more members"):
        for count in (2, 3):
            members[count - 1].join()
            g.settle(c, *members[:count])
    answer = members[0].heartbeat(member_epoch=before, topic_partitions=members[0].reported())
    g.rejected(c, answer, ErrorCode.FENCED_MEMBER_EPOCH)


@case(
    "consumer-groups.epochs.step",
    "each join raises the epoch of the group by one",
    source="KIP-848: Group Epoch",
    level=Level.APACHE,
    features=FEATURES,
    needs=HEARTBEAT,
)
def step(c: Check) -> None:
    """Sends: two members join a new group, one after the other.

    Expects: one epoch for the group, its assignment and its member; with two members it is higher by one.

    Why: epochs are shown to operators, who compare them with the number of rebalances.
    """
    topic = c.topic(2)
    group = c.group()
    members = [ConsumerMember(c, group, topic) for _ in range(2)]
    epochs = []
    for count in (1, 2):
        members[count - 1].join()
        g.settle(c, *members[:count])
        found = g.describe(c, group)
        epochs.append([found.group_epoch, found.assignment_epoch, *(each.member_epoch for each in found.members)])
    c.equal(epochs[0], epochs[0][:1] * 3, "the epochs of the group, the assignment and the member")
    c.equal(epochs[1], [epochs[0][0] + 1] * 4, "the epochs of the group, the assignment and the members")
