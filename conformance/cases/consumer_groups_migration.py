"""Groups that are upgraded to the consumer protocol and downgraded while they are in use (KIP-848)."""

from __future__ import annotations

from ...protocol.api import ApiKey
from ...protocol.codec import encode
from ...protocol.errors import ErrorCode
from ...protocol.messages.consumer_protocol import ConsumerProtocolAssignment
from ...testing.group_requests import assignment, subscription
from .. import committed_offsets as o
from .. import consumer_group as g
from ..case import Level, case
from ..check import Check
from ..consumer_group import FEATURES, LEAVE_AND_RETURN, share
from ..mixed_group import NEEDS, MixedGroup

SOURCE = "KIP-848: Online Migration, Upgrade and Downgrade"
CLASSIC, CONSUMER = 0, 1
ALL = [0, 1, 2, 3]


@case(
    "consumer-groups.migration.upgrade",
    "a classic group becomes a consumer group when the first consumer member joins, and partitions move without a gap",
    source=SOURCE,
    features=FEATURES,
    needs=NEEDS,
)
def upgrade(c: Check) -> None:
    """Sends: ConsumerGroupHeartbeat with epoch 0 to a classic group of one member, which then rejoins as its heartbeats
    require it, each time with the partitions that it owns.

    Expects: epoch 2 and no partitions for the new member, type consumer, state Reconciling; REBALANCE_IN_PROGRESS for
    the heartbeat and SyncGroup of the classic member; its JoinGroup with generation 1, without leader and
    members, and SyncGroup with two partitions; after a second rejoin generation 2, and the other two partitions for
    the new member; state Stable.

    Why: applications are upgraded instance by instance while they run.
    """
    group = MixedGroup(c)
    classic, consumer = group.classic(), group.consumer()
    group.generation(classic, partitions=[ALL])
    c.equal(classic.generation, 1, "the generation of the classic group")
    answer = consumer.join()
    c.equal(answer.member_epoch, 2, "member_epoch of the new member")
    c.equal(consumer.owned, {}, "assignment of the new member")
    group.is_shown("consumer", "Reconciling", "after the upgrade")
    group.heartbeat(classic, ErrorCode.REBALANCE_IN_PROGRESS, "after the upgrade")
    c.error(classic.sync().error_code, ErrorCode.REBALANCE_IN_PROGRESS, "SyncGroup error_code before the rejoin")
    classic.protocols = group.protocols(*ALL)
    joined = classic.join()
    c.error(joined.error_code, ErrorCode.NONE, "JoinGroup error_code")
    c.equal((joined.generation_id, joined.leader, joined.members), (1, "", []), "generation, leader and members")
    names = (joined.protocol_type, joined.protocol_name, joined.member_id)
    c.equal(names, ("consumer", "range", classic.member_id), "JoinGroup protocol_type, protocol_name and member_id")
    kept = group.synced(classic)
    c.equal(len(kept), 2, "the number of partitions that the classic member keeps")
    c.equal(consumer.heartbeat().assignment, None, "assignment before the classic member has revoked anything")
    group.heartbeat(classic, ErrorCode.REBALANCE_IN_PROGRESS, "before its revocation is known")
    classic.protocols = group.protocols(*kept)
    c.equal(classic.join().generation_id, 2, "generation_id of the second JoinGroup")
    c.equal(group.synced(classic), kept, "the partitions of the second SyncGroup")
    group.heartbeat(classic, ErrorCode.NONE, "after its revocation")
    c.until(lambda: consumer.follow().owned, "partitions for the new member")
    c.equal(sorted([*share(consumer), *kept]), ALL, "the partitions of both members")
    group.is_shown("consumer", "Stable", "after the reconciliation")


@case(
    "consumer-groups.migration.downgrade",
    "a consumer group becomes a classic group when the last consumer member leaves",
    source=SOURCE,
    features=FEATURES,
    needs=NEEDS,
)
def downgrade(c: Check) -> None:
    """Sends: the only consumer member of a group with one classic member leaves; the classic one rejoins.

    Expects: type classic, state PreparingRebalance; REBALANCE_IN_PROGRESS; JoinGroup with the next generation, as the
    leader with one member; SyncGroup with what it sends; ConsumerGroupDescribe does not find the group.

    Why: an upgrade that goes wrong must be undone without a stop.
    """
    group = MixedGroup(c)
    classic, consumer = group.classic(), group.consumer()
    group.generation(classic, partitions=[ALL])
    with c.setup("a group with members of both protocols"):
        consumer.join()
        kept = group.rejoined(classic, *group.rejoined(classic, *ALL))
        c.equal(len(kept), 2, "the number of partitions of the classic member")
    generation = classic.generation
    c.error(consumer.leave().error_code, ErrorCode.NONE, "error_code of the last heartbeat")
    group.is_shown("classic", "PreparingRebalance", "after the downgrade")
    group.heartbeat(classic, ErrorCode.REBALANCE_IN_PROGRESS, "after the downgrade")
    joined = classic.join()
    c.error(joined.error_code, ErrorCode.NONE, "JoinGroup error_code")
    c.true(joined.generation_id > generation, "generation_id", expected=f"above {generation}", actual=joined)
    c.equal(joined.leader, classic.member_id, "leader")
    c.equal([each.member_id for each in joined.members], [classic.member_id], "members")
    sent = group.assignment(*ALL)
    answer = classic.sync({classic.member_id: sent})
    c.error(answer.error_code, ErrorCode.NONE, "SyncGroup error_code")
    c.equal(answer.assignment, sent, "SyncGroup assignment")
    group.heartbeat(classic, ErrorCode.NONE, "in the classic group")
    group.is_shown("classic", "Stable", "at the end")
    c.error(g.describe(c, group.id).error_code, ErrorCode.GROUP_ID_NOT_FOUND, "ConsumerGroupDescribe error_code")
    c.error(consumer.heartbeat().error_code, ErrorCode.GROUP_ID_NOT_FOUND, "error_code of the member that has left")


@case(
    "consumer-groups.migration.downgrade.remaining-members",
    "the classic members that remain after a downgrade complete a generation together",
    source=SOURCE,
    features=FEATURES,
    needs=NEEDS,
)
def remaining_members(c: Check) -> None:
    """Sends: the only consumer member of a group with two classic members leaves; both classic members rejoin.

    Expects: both responses with the same generation and leader; then state CompletingRebalance until SyncGroup.

    Why: the partitions of the member that left must be read by the others.
    """
    group = MixedGroup(c)
    first, second, consumer = group.classic(), group.classic(), group.consumer()
    group.generation(first, second, partitions=[[0, 1], [2, 3]])
    with c.setup("a group with members of both protocols"):
        consumer.join()
        for member, owned in ((first, [0, 1]), (second, [2, 3])):
            group.rejoined(member, *group.rejoined(member, *owned))
        consumer.follow()
        c.true(consumer.owned, "assignment of the consumer member", expected="a partition", actual=consumer.owned)
    consumer.leave()
    first.start_join()
    second.start_join()
    answers = first.joined(), second.joined()
    c.equal([each.error_code for each in answers], [0, 0], "JoinGroup error_code of both members")
    c.equal(len({each.generation_id for each in answers}), 1, "the number of generations")
    c.equal(len({each.leader for each in answers}), 1, "the number of leaders")
    group.is_shown("classic", "CompletingRebalance", "before SyncGroup")
    leader, follower = (first, second) if first.leader == first.member_id else (second, first)
    sent = {leader.member_id: group.assignment(0, 1), follower.member_id: group.assignment(2, 3)}
    follower.start_sync()
    c.equal(leader.sync(sent).assignment, sent[leader.member_id], "SyncGroup assignment of the leader")
    c.equal(follower.synced().assignment, sent[follower.member_id], "SyncGroup assignment of the other member")


@case(
    "consumer-groups.migration.describe",
    "ConsumerGroupDescribe shows the type of each member of a mixed group",
    source="KIP-848 and KIP-1099",
    features=FEATURES,
    needs=NEEDS,
)
def describe(c: Check) -> None:
    """Sends: ConsumerGroupDescribe in versions 0 and 1, and DescribeGroups, of a group with a static classic member and
    a consumer member.

    Expects: both members with epochs and subscriptions, type 0 for the classic and 1 for the consumer member;
    DescribeGroups does not find the group, and describes the static member after the consumer member has left.

    Why: an operator sees which instances are still to be upgraded.
    """
    group = MixedGroup(c)
    classic, consumer = group.classic(instance_id="i"), group.consumer()
    group.generation(classic, partitions=[ALL])
    consumer.join()
    for version in (0, c.version(ApiKey.CONSUMER_GROUP_DESCRIBE)):
        found = g.describe(c, group.id, version)
        c.error(found.error_code, ErrorCode.NONE, "ConsumerGroupDescribe error_code")
        epochs = found.group_epoch, found.assignment_epoch
        c.equal((*epochs, found.assignor_name), (2, 2, "uniform"), "group_epoch, assignment_epoch and assignor_name")
        members = {each.member_id: each for each in found.members}
        c.equal(set(members), {classic.member_id, consumer.member_id}, "members (member_id)")
        old, new = members[classic.member_id], members[consumer.member_id]
        c.equal((old.member_epoch, old.instance_id), (1, "i"), "member_epoch and instance_id of the classic member")
        c.equal(old.subscribed_topic_names, [group.topic.name], "subscribed_topic_names of the classic member")
        c.equal(new.member_epoch, 2, "member_epoch of the consumer member")
        if version >= 1:
            c.equal((old.member_type, new.member_type), (CLASSIC, CONSUMER), "member_type of both members")
    c.error(group.describe().error_code, ErrorCode.GROUP_ID_NOT_FOUND, "DescribeGroups error_code")
    consumer.leave()
    c.equal([each.group_instance_id for each in group.describe().members], ["i"], "members after the downgrade")


@case(
    "consumer-groups.migration.upgrade.during-join",
    "members that wait for a classic rebalance must rejoin after an upgrade",
    source=SOURCE,
    features=FEATURES,
    needs=NEEDS,
)
def during_join(c: Check) -> None:
    """Sends: one of two classic members sends JoinGroup; while it waits for the other one, a consumer member joins.

    Expects: REBALANCE_IN_PROGRESS with its member ID as the response to JoinGroup; its next JoinGroup succeeds.

    Why: the rebalance that it waits for no longer takes place.
    """
    group = MixedGroup(c)
    leader, follower = group.classic(), group.classic()
    group.generation(leader, follower, partitions=[[0, 1], [2, 3]])
    generation = leader.generation
    leader.start_join()
    group.wait_for_state("PreparingRebalance")
    consumer = group.consumer()
    c.equal(consumer.join().member_epoch, generation + 1, "member_epoch of the consumer member")
    answer = leader.joined()
    c.error(answer.error_code, ErrorCode.REBALANCE_IN_PROGRESS, "error_code of the waiting JoinGroup")
    c.equal(answer.member_id, leader.member_id, "member_id of the waiting JoinGroup")
    c.equal(leader.join().generation_id, generation + 1, "generation_id of the next JoinGroup")
    group.heartbeat(follower, ErrorCode.REBALANCE_IN_PROGRESS, "of the other member")
    c.equal(follower.join().generation_id, generation + 1, "generation_id of the other member")


@case(
    "consumer-groups.migration.upgrade.during-sync",
    "members that wait for their assignment must rejoin after an upgrade",
    source=SOURCE,
    features=FEATURES,
    needs=NEEDS,
)
def during_sync(c: Check) -> None:
    """Sends: both members of a classic group have rejoined, and one has sent SyncGroup, when a consumer member joins.

    Expects: REBALANCE_IN_PROGRESS as the response to SyncGroup; the consumer member's epoch is the next generation.

    Why: the leader's assignment no longer matters.
    """
    group = MixedGroup(c)
    leader, follower = group.classic(), group.classic()
    group.generation(leader, follower, partitions=[[0, 1], [2, 3]])
    with c.setup("a new generation"):
        leader.start_join()
        follower.wait_for_rebalance()
        follower.start_join()
        for member in (leader, follower):
            c.error(member.joined().error_code, ErrorCode.NONE, "JoinGroup error_code")
    follower.start_sync()
    consumer = group.consumer()
    c.equal(consumer.join().member_epoch, leader.generation + 1, "member_epoch of the consumer member")
    c.error(follower.synced().error_code, ErrorCode.REBALANCE_IN_PROGRESS, "error_code of the waiting SyncGroup")


@case(
    "consumer-groups.migration.static-member",
    "a static member changes its protocol without a rebalance of the others",
    source=SOURCE,
    features=FEATURES,
    needs=NEEDS,
)
def static_member(c: Check) -> None:
    """Sends: a consumer member joins with the instance ID of a classic member; it leaves with epoch -2, and a classic
    member with this instance ID joins.

    Expects: the consumer member has the old partitions in its first response, and the old member is fenced; the classic
    member has them again; the other member never has to rejoin; the group is classic and Stable at the end.

    Why: restarts of static members, also with another version of the application, must not interrupt the others.
    """
    group = MixedGroup(c)
    other, static = group.classic(), group.classic(instance_id="i")
    group.generation(other, static, partitions=[[0, 1], [2, 3]])
    generation = other.generation
    consumer = group.consumer(instance_id="i")
    c.equal(consumer.join().member_epoch, generation, "member_epoch of the consumer member")
    c.equal(share(consumer), [2, 3], "the partitions of the consumer member")
    group.heartbeat(other, ErrorCode.NONE, "of the other member after the upgrade")
    group.heartbeat(static, ErrorCode.FENCED_INSTANCE_ID, "of the old static member")
    c.equal(consumer.leave(LEAVE_AND_RETURN).member_epoch, LEAVE_AND_RETURN, "member_epoch of the last heartbeat")
    group.heartbeat(other, ErrorCode.NONE, "of the other member after the consumer member has left")
    back = group.classic(instance_id="i")
    joined = back.join()
    c.error(joined.error_code, ErrorCode.NONE, "JoinGroup error_code of the static member")
    c.equal(joined.generation_id, generation, "generation_id of the static member")
    c.equal(group.synced(back), [2, 3], "the partitions of the static member")
    group.is_shown("classic", "Stable", "at the end")
    group.heartbeat(other, ErrorCode.NONE, "of the other member at the end")


@case(
    "consumer-groups.migration.static-member.other-topics",
    "a static member that returns with other topics causes a rebalance",
    source=SOURCE,
    level=Level.APACHE,
    features=FEATURES,
    needs=NEEDS,
)
def static_other_topics(c: Check) -> None:
    """Sends: a static consumer member leaves with epoch -2; a classic member with its instance ID and one more topic
    joins.

    Expects: generation 0 in its response, as it has no assignment yet; the group is classic and prepares a rebalance,
    in which the other member's generation is the group's epoch.

    Why: the new topic must be assigned too.
    """
    group = MixedGroup(c)
    classic, consumer = group.classic(), group.consumer(instance_id="i")
    group.generation(classic, partitions=[ALL])
    epoch = consumer.join().member_epoch
    consumer.leave(LEAVE_AND_RETURN)
    topics = group.topic.name, c.topic().name
    joined = group.classic(instance_id="i", protocols={"range": subscription(*topics)}).ask_join()
    c.error(joined.error_code, ErrorCode.NONE, "JoinGroup error_code of the static member")
    c.equal(joined.generation_id, 0, "generation_id of the static member")
    group.is_shown("classic", "PreparingRebalance", "after the static member has joined")
    group.heartbeat(classic, ErrorCode.ILLEGAL_GENERATION, "with the old generation")
    classic.generation = epoch
    group.heartbeat(classic, ErrorCode.REBALANCE_IN_PROGRESS, "with the epoch of the group")


@case(
    "consumer-groups.migration.empty-classic",
    "an empty classic group becomes a consumer group and keeps its offsets",
    source=SOURCE,
    features=FEATURES,
    needs=NEEDS,
)
def empty_classic(c: Check) -> None:
    """Sends: the only classic member commits an offset and leaves; a consumer member joins.

    Expects: the offset, all partitions for the consumer member, and type consumer.

    Why: an application that is stopped and started with another protocol must continue where it was.
    """
    group = MixedGroup(c)
    classic, consumer = group.classic(), group.consumer()
    group.generation(classic, partitions=[ALL])
    request = o.commit_request(
        group.id, group.topic, {0: 5}, member_id=classic.member_id, generation=classic.generation
    )
    o.committed_before(c, group.wire, request)
    with c.setup("an empty classic group"):
        c.error(classic.left(), ErrorCode.NONE, "LeaveGroup error_code")
    consumer.join()
    g.settle(c, consumer)
    c.equal(share(consumer), ALL, "the partitions of the consumer member")
    c.equal(o.offsets(c, group.wire, group.id, group.topic, [0, 1]), {0: 5, 1: -1}, "the committed offsets")
    group.is_shown("consumer", "Stable", "at the end")


@case(
    "consumer-groups.migration.empty-consumer",
    "an empty consumer group becomes a classic group and keeps its offsets",
    source=SOURCE,
    features=FEATURES,
    needs=NEEDS,
)
def empty_consumer(c: Check) -> None:
    """Sends: the only consumer member leaves, an offset is committed without a member, and a classic member joins.

    Expects: type consumer while the group is empty; then generation 1 of a classic group with the offset.

    Why: an application that is stopped and started with another protocol must continue where it was.
    """
    group = MixedGroup(c)
    classic, consumer = group.classic(), group.consumer()
    with c.setup("an empty consumer group"):
        consumer.join()
        consumer.leave()
    group.is_shown("consumer", "Empty", "while the group is empty")
    o.committed_before(c, group.wire, o.commit_request(group.id, group.topic, {0: 5}))
    c.error(classic.join().error_code, ErrorCode.NONE, "JoinGroup error_code")
    c.equal((classic.generation, classic.leader), (1, classic.member_id), "generation_id and leader")
    sent = group.assignment(*ALL)
    c.equal(classic.sync({classic.member_id: sent}).assignment, sent, "SyncGroup assignment")
    group.is_shown("classic", "Stable", "at the end")
    c.equal(o.offsets(c, group.wire, group.id, group.topic, [0]), {0: 5}, "the committed offset")


@case(
    "consumer-groups.migration.not-upgradable",
    "a classic group whose subscription or assignment the server cannot read stays classic",
    source=SOURCE,
    features=FEATURES,
    needs=NEEDS,
    variants={
        "subscription": ({"range": b""}, assignment({})),
        "assignment": ({"range": subscription("a")}, b"\0\1\0\0\0\1\0"),
        "user-data": (
            {"range": subscription("a")},
            b"\0\1" + encode(ConsumerProtocolAssignment(user_data=b"of a custom assignor"), 1),
        ),
    },
)
def not_upgradable(c: Check, protocols: dict[str, bytes], given: bytes) -> None:
    """Sends: a first ConsumerGroupHeartbeat to a classic group in use, whose subscription or assignment has another
    format, or user data of a custom assignor.

    Expects: GROUP_ID_NOT_FOUND with a message; the classic member continues, and the group stays classic.

    Why: the server cannot take over an assignment that it does not understand.
    """
    group = MixedGroup(c)
    classic = group.classic(protocols=protocols)
    with c.setup("a classic group"):
        classic.join()
        c.error(classic.sync({classic.member_id: given}).error_code, ErrorCode.NONE, "SyncGroup error_code")
    g.rejected(c, group.consumer().try_join(), ErrorCode.GROUP_ID_NOT_FOUND)
    group.heartbeat(classic, ErrorCode.NONE, "of the classic member")
    group.is_shown("classic", "Stable", "after the rejection")


@case(
    "consumer-groups.migration.other-protocol-type",
    "a group of members that are not consumers stays classic",
    source=SOURCE,
    features=FEATURES,
    needs=NEEDS,
)
def other_protocol_type(c: Check) -> None:
    """Sends: a first ConsumerGroupHeartbeat to a classic group of protocol type connect.

    Expects: GROUP_ID_NOT_FOUND with a message; the member continues.

    Why: a consumer that is configured with the name of a Connect cluster must not disturb it.
    """
    group = MixedGroup(c)
    worker = group.classic(protocol_type="connect", protocols={"default": b""})
    group.complete(worker)
    g.rejected(c, group.consumer().try_join(), ErrorCode.GROUP_ID_NOT_FOUND)
    group.heartbeat(worker, ErrorCode.NONE, "of the member")
    group.is_shown("classic", "Stable", "after the rejection")
