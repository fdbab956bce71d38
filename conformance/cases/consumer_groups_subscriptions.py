"""Subscriptions of consumer groups: topics by name and by regular expression, and server-side assignors (KIP-848)."""

from __future__ import annotations

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ...protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from .. import consumer_group as g
from ..case import case, needs
from ..check import Check, Topic
from ..consumer_group import FEATURES, ConsumerMember, share

HEARTBEAT = needs(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, ApiKey.CONSUMER_GROUP_DESCRIBE, 0)
REGEX = needs(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, ApiKey.CONSUMER_GROUP_DESCRIBE, 0)
SOURCE = "KIP-848: ConsumerGroupHeartbeat API"


def until_assigned(c: Check, member: ConsumerMember, expected: dict[str, list[int]]) -> None:
    """The member sends heartbeats until it has exactly these partitions of these topics.

    The first assignment can be incomplete: a coordinator may learn of a new topic after clients.
    """
    c.until(lambda: member.follow().assigned == expected, f"the assignment {expected}")
    g.settle(c, member)
    c.equal(member.assigned, expected, "the assignment in the stable group")


@case(
    "consumer-groups.subscriptions.several-topics",
    "the partitions of several topics are distributed",
    source=SOURCE,
    features=FEATURES,
    needs=HEARTBEAT,
)
def several_topics(c: Check) -> None:
    """Sends: two members that subscribe to topics with six and two partitions.

    Expects: each of the eight partitions is assigned to one member, four to each.

    Why: most consumers read several topics.
    """
    first, second = c.topic(6), c.topic(2)
    group = c.group()
    members = [ConsumerMember(c, group, first, second) for _ in range(2)]
    g.stable(c, *members)
    expected = sorted([(first.name, each) for each in range(6)] + [(second.name, each) for each in range(2)])

    def owned() -> list[tuple[str, int]]:
        return sorted((name, each) for member in members for name, found in member.assigned.items() for each in found)

    def are_assigned() -> bool:
        for member in members:
            member.follow()
        return owned() == expected

    c.until(are_assigned, f"the assignment of {expected} to both members")
    g.settle(c, *members)
    c.equal(owned(), expected, "the partitions of both members")
    sizes = [sum(map(len, member.owned.values())) for member in members]
    c.equal(sizes, [4, 4], "the numbers of partitions")


@case(
    "consumer-groups.subscriptions.different",
    "members are assigned only topics that they subscribe to",
    source=SOURCE,
    features=FEATURES,
    needs=HEARTBEAT,
)
def different(c: Check) -> None:
    """Sends: two members that subscribe to one topic each.

    Expects: all partitions of its topic for each.

    Why: a consumer cannot process records that it did not subscribe to.
    """
    topics = c.topic(6), c.topic(2)
    group = c.group()
    members = [ConsumerMember(c, group, topic) for topic in topics]
    g.stable(c, *members)
    c.equal(members[0].owned, {topics[0].topic_id: [0, 1, 2, 3, 4, 5]}, "the assignment of the first member")
    c.equal(members[1].owned, {topics[1].topic_id: [0, 1]}, "the assignment of the second member")


@case(
    "consumer-groups.subscriptions.change",
    "a member changes its subscription with a heartbeat",
    source=SOURCE,
    features=FEATURES,
    needs=HEARTBEAT,
)
def change(c: Check) -> None:
    """Sends: a heartbeat with only one of the two topics of before, then one with only the other.

    Expects: each time only the partitions of the topics in the last subscription, at a higher epoch, and this
    subscription in ConsumerGroupDescribe.

    Why: applications call subscribe() with other topics while they run.
    """
    first, second = c.topic(3), c.topic(2)
    group = c.group()
    member = ConsumerMember(c, group, first, second)
    g.stable(c, member)
    until_assigned(c, member, {first.name: [0, 1, 2], second.name: [0, 1]})
    for topic, partitions in ((second, [0, 1]), (first, [0, 1, 2])):
        epoch = member.epoch
        member.follow(subscribed_topic_names=[topic.name])
        until_assigned(c, member, {topic.name: partitions})
        c.true(member.epoch > epoch, "member_epoch", expected=f"above {epoch}", actual=member.epoch)
        (found,) = g.describe(c, group).members
        c.equal(found.subscribed_topic_names, [topic.name], "members[0].subscribed_topic_names")


@case(
    "consumer-groups.subscriptions.created-later",
    "a topic that is created after the subscription is assigned",
    source=SOURCE,
    features=FEATURES,
    needs=HEARTBEAT,
)
def created_later(c: Check) -> None:
    """Sends: a member subscribes to a topic that does not exist; then the topic is created.

    Expects: no error and no partitions at first; then the partitions of the new topic.

    Why: consumers are often started before their producers, which create the topics.
    """
    name = c.topic_name()
    group = c.group()
    member = ConsumerMember(c, group, Topic(name, bytes(16)))
    member.join()
    g.settle(c, member)
    c.equal(member.owned, {}, "the assignment before the topic exists")
    topic = c.topic(2, name=name)
    member.topics = (topic,)
    until_assigned(c, member, {name: [0, 1]})


@case(
    "consumer-groups.subscriptions.more-partitions",
    "partitions that are added to a topic are assigned",
    source=SOURCE,
    features=FEATURES,
    needs=HEARTBEAT,
)
def more_partitions(c: Check) -> None:
    """Sends: CreatePartitions for a topic of a stable group.

    Expects: the new partitions are assigned, and the old ones stay.

    Why: otherwise records in the new partitions are never read.
    """
    topic = c.topic(2)
    member = ConsumerMember(c, c.group(), topic)
    g.stable(c, member)
    wanted = CreatePartitionsTopic(name=topic.name, count=4, assignments=None)
    with c.setup("adding partitions"):
        (result,) = c.call(CreatePartitionsRequest(topics=[wanted], timeout_ms=30_000)).results
        c.error(result.error_code, ErrorCode.NONE, "CreatePartitions error_code")
    until_assigned(c, member, {topic.name: [0, 1, 2, 3]})


@case(
    "consumer-groups.subscriptions.deleted-topic",
    "the partitions of a deleted topic are no longer assigned",
    source=SOURCE,
    features=FEATURES,
    needs=(*HEARTBEAT, *needs(ApiKey.DELETE_TOPICS, 6)),
)
def deleted_topic(c: Check) -> None:
    """Sends: DeleteTopics for one of two topics of a stable group.

    Expects: the assignment has only the other topic, and the group is stable.

    Why: a consumer that is assigned a deleted topic asks for its leader again and again.
    """
    kept, deleted = c.topic(2), c.topic(2)
    member = ConsumerMember(c, c.group(), kept, deleted)
    g.stable(c, member)
    until_assigned(c, member, {kept.name: [0, 1], deleted.name: [0, 1]})
    with c.setup("deleting a topic"):
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=deleted.name)], timeout_ms=30_000)
        c.error(c.call(request).responses[0].error_code, ErrorCode.NONE, "DeleteTopics error_code")
    until_assigned(c, member, {kept.name: [0, 1]})


@case(
    "consumer-groups.regex.matches",
    "a regular expression is matched against whole names of topics by the server",
    source="KIP-848: Regular expressions, and RE2 syntax",
    features=FEATURES,
    needs=REGEX,
    variants={
        "alternatives": ("{}-(a-1|b-2)",),
        "class": ("{}-[ab]-[12]",),
        "any": ("{}.*b-2|{}-a-1",),
        "named-classes": ("{}-[[:alpha:]]-[[:digit:]]",),
        "quoted": (r"\Q{}-\E[ab]-\d",),
        "case-insensitive": (r"(?i){}-[AB]-\d",),
        "lazy": ("{}-.*?-[12]",),
        "anchors": ("^{}-[ab]-[12]$",),
    },
)
def regex(c: Check, pattern: str) -> None:
    """Sends: a member with a regular expression that matches two of three topics, and the beginning of the third.

    Expects: both matching topics are assigned; ConsumerGroupDescribe returns the expression and no topic names.

    Why: consumers send their pattern instead of all topics of the cluster, and rely on RE2.
    """
    topics = [c.topic(name=c.topic_name(word)) for word in ("a", "b", "a-1x")]
    base = topics[0].name.removesuffix("-a-1")
    group = c.group()
    expression = pattern.replace("{}", base)
    member = ConsumerMember(c, group, *topics, regex=expression)
    member.join()
    until_assigned(c, member, {topics[0].name: [0], topics[1].name: [0]})
    (found,) = g.describe(c, group).members
    c.equal(found.subscribed_topic_regex, expression, "members[0].subscribed_topic_regex")
    c.equal(found.subscribed_topic_names, [], "members[0].subscribed_topic_names")


@case(
    "consumer-groups.regex.and-names",
    "topics by name and by regular expression are both assigned",
    source="KIP-848: Regular expressions, and RE2 syntax",
    features=FEATURES,
    needs=REGEX,
)
def regex_and_names(c: Check) -> None:
    """Sends: a member that subscribes to one topic by name, and to another one by a regular expression.

    Expects: both are assigned.

    Why: the protocol allows both, and their union is what the member subscribes to.
    """
    named, matched = c.topic(1), c.topic(2)
    member = ConsumerMember(c, c.group(), named, matched, regex=f"{matched.name}")
    member.join(subscribed_topic_names=[named.name])
    until_assigned(c, member, {named.name: [0], matched.name: [0, 1]})


@case(
    "consumer-groups.regex.change",
    "a member changes its regular expression, and returns to names",
    source="KIP-848: Regular expressions, and RE2 syntax",
    features=FEATURES,
    needs=REGEX,
)
def regex_change(c: Check) -> None:
    """Sends: heartbeats with another expression, and then with an empty expression and a name.

    Expects: each time only the topics of the last subscription.

    Why: applications call subscribe() with another pattern while they run.
    """
    topics = [c.topic(partitions) for partitions in (1, 2, 3)]
    member = ConsumerMember(c, c.group(), *topics, regex=topics[0].name)
    member.join()
    until_assigned(c, member, {topics[0].name: [0]})
    member.follow(subscribed_topic_regex=topics[1].name)
    until_assigned(c, member, {topics[1].name: [0, 1]})
    member.follow(subscribed_topic_regex="", subscribed_topic_names=[topics[2].name])
    until_assigned(c, member, {topics[2].name: [0, 1, 2]})


@case(
    "consumer-groups.regex.invalid",
    "an expression that is not RE2 is rejected",
    source="KIP-848: Regular expressions, and RE2 syntax",
    features=FEATURES,
    needs=REGEX,
    variants={
        "parenthesis": ("(",),
        "repetition": ("a**",),
        "range": ("[z-a]",),
        "lookahead": ("(?=a)",),
        "backreference": (r"\1",),
        "possessive": ("a++",),
        "repeated-too-often": ("a{1001}",),
        "escape": (r"\y",),
    },
)
def invalid_regex(c: Check, pattern: str) -> None:
    """Sends: a first heartbeat with a regular expression that RE2 does not have.

    Expects: INVALID_REGULAR_EXPRESSION with a message; no group.

    Why: a client with another dialect must learn that its pattern does not work, instead of waiting for partitions.
    """
    group = c.group()
    member = ConsumerMember(c, group, c.topic(), regex=pattern)
    g.rejected(c, member.try_join(), ErrorCode.INVALID_REGULAR_EXPRESSION)
    c.equal(g.listed(c, group), {}, "ListGroups")


@case(
    "consumer-groups.regex.empty",
    "an empty regular expression is none",
    source="KIP-848: Regular expressions, and RE2 syntax",
    features=FEATURES,
    needs=REGEX,
)
def empty_regex(c: Check) -> None:
    """Sends: a first heartbeat with a topic by name and an empty expression.

    Expects: the partitions of this topic only.

    Why: clients send the empty string when they have no pattern.
    """
    topic = c.topic(2)
    c.topic()
    member = ConsumerMember(c, c.group(), topic)
    with c.setup("a member with an empty expression"):
        member.join(subscribed_topic_regex="")
    until_assigned(c, member, {topic.name: [0, 1]})


@case(
    "consumer-groups.assignors.server-side",
    "the assignors uniform and range distribute partitions",
    source="KIP-848: Server-side assignors",
    features=FEATURES,
    needs=HEARTBEAT,
    variants={"uniform": ("uniform",), "range": ("range",), "default": (None,)},
)
def assignors(c: Check, assignor: str | None) -> None:
    """Sends: two members that request an assignor, or none, for a topic with six partitions.

    Expects: three partitions for each; with range three in a row; ConsumerGroupDescribe returns the assignor's name,
    which is uniform by default.

    Why: range is for joins of topics by partition, uniform balances best.
    """
    topic = c.topic(6)
    group = c.group()
    members = [ConsumerMember(c, group, topic, assignor=assignor) for _ in range(2)]
    g.stable(c, *members)
    c.equal(share(*members), [0, 1, 2, 3, 4, 5], "the partitions of both members")
    c.equal([len(share(member)) for member in members], [3, 3], "the numbers of partitions")
    c.equal(g.describe(c, group).assignor_name, assignor or "uniform", "assignor_name")
    if assignor == "range":
        c.equal(sorted(share(member) for member in members), [[0, 1, 2], [3, 4, 5]], "the ranges of both members")


@case(
    "consumer-groups.assignors.range.copartitioned",
    "range assigns the same partitions of two topics to one member",
    source="KIP-848: Server-side assignors",
    features=FEATURES,
    needs=HEARTBEAT,
)
def copartitioned(c: Check) -> None:
    """Sends: three members with the assignor range and two topics with six partitions each.

    Expects: each member has the same two adjacent partitions of both topics.

    Why: an application that joins two topics by key needs their partitions in the same process.
    """
    topics = c.topic(6), c.topic(6)
    group = c.group()
    members = [ConsumerMember(c, group, *topics, assignor="range") for _ in range(3)]
    g.stable(c, *members)
    for member in members:
        c.equal(member.owned.get(topics[0].topic_id), member.owned.get(topics[1].topic_id), "both topics' partitions")
    c.equal(sorted(share(member) for member in members), [[0, 1], [2, 3], [4, 5]], "the ranges of the members")


@case(
    "consumer-groups.assignors.majority",
    "the assignor that most members request is used",
    source="KIP-848: Server-side assignors",
    features=FEATURES,
    needs=HEARTBEAT,
)
def majority(c: Check) -> None:
    """Sends: members that request range, then uniform, then uniform.

    Expects: after the first, range; after the third, uniform.

    Why: during an upgrade of an application, its members request different assignors.
    """
    topic = c.topic(6)
    group = c.group()
    members = [ConsumerMember(c, group, topic, assignor=name) for name in ("range", "uniform", "uniform")]
    g.stable(c, members[0])
    c.equal(g.describe(c, group).assignor_name, "range", "assignor_name with one member")
    for count in (2, 3):
        members[count - 1].join()
        g.settle(c, *members[:count])
    c.equal(g.describe(c, group).assignor_name, "uniform", "assignor_name with three members")
    c.equal(share(*members), [0, 1, 2, 3, 4, 5], "the partitions of all members")


@case(
    "consumer-groups.assignors.unknown",
    "an assignor that the server does not have is rejected",
    source="KIP-848: Server-side assignors",
    features=FEATURES,
    needs=HEARTBEAT,
    variants={"name": ("no-such-assignor",), "case": ("Range",), "blank": (" ",)},
)
def unknown_assignor(c: Check, assignor: str) -> None:
    """Sends: a first heartbeat with an assignor that does not exist.

    Expects: UNSUPPORTED_ASSIGNOR with a message; no group.

    Why: a silently chosen assignor would break the application's assumption about its partitions.
    """
    group = c.group()
    member = ConsumerMember(c, group, c.topic(), assignor=assignor)
    g.rejected(c, member.try_join(), ErrorCode.UNSUPPORTED_ASSIGNOR)
    c.equal(g.listed(c, group), {}, "ListGroups")
