"""StreamsGroupHeartbeat: how members of streams groups get their tasks (KIP-1071)."""

from __future__ import annotations

from typing import Any

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.streams_group_heartbeat import TaskIds
from .. import consumer_group as g
from .. import streams_group as s
from ..case import Layer, Level, case, versions_of
from ..check import Check
from ..group_configs import is_config
from ..streams_group import ENDPOINT, FEATURES, NEEDS, SUBTOPOLOGY, StreamsMember, tasks_of

SOURCE = "KIP-1071: StreamsGroupHeartbeat API"
MISSING_SOURCE_TOPICS, SHUTDOWN_APPLICATION = 1, 4


@case(
    "streams-groups.heartbeat.exchange",
    "a member of a streams group joins, is assigned all tasks, stays and leaves",
    source=SOURCE,
    layer=Layer.WIRE,
    features=FEATURES,
    needs=NEEDS,
    versions=versions_of(ApiKey.STREAMS_GROUP_HEARTBEAT),
)
def exchange(c: Check, version: int) -> None:
    """Sends: StreamsGroupHeartbeat of the only member of a new group: epoch 0 with a topology of one subtopology, then
    its epoch until it has tasks, then with its tasks, then epoch -1.

    Expects: its member ID, a positive epoch and the group's heartbeat interval each time; one active task for each of
    the three partitions of the source topic; null tasks in the response to a heartbeat without news; at the end epoch
    -1, after which the member is unknown.

    Why: a Kafka Streams application has no other source for its tasks.
    """
    topic = c.topic(3)
    member = StreamsMember(c, c.group(), topic)

    def heartbeat() -> bool:
        answer = member.heartbeat(version) if member.epoch else member.join(version)
        c.error(answer.error_code, ErrorCode.NONE)
        c.equal((answer.error_message, answer.member_id), (None, member.member_id), "error_message and member_id")
        c.true(answer.member_epoch > 0, "member_epoch", expected="a positive epoch", actual=answer.member_epoch)
        is_config(
            c, answer.heartbeat_interval_ms, member.group, "streams.heartbeat.interval.ms", "heartbeat_interval_ms"
        )
        return bool(member.tasks)

    c.until(heartbeat, "tasks for the only member")
    c.equal(member.tasks, [0, 1, 2], f"the partitions of the active tasks of subtopology {SUBTOPOLOGY}")
    epoch = member.epoch
    for answer in (member.report(version), member.heartbeat(version)):
        c.error(answer.error_code, ErrorCode.NONE)
        c.equal(answer.member_epoch, epoch, "member_epoch of a heartbeat without news")
        tasks = answer.active_tasks, answer.standby_tasks, answer.warmup_tasks
        c.equal(tasks, (None, None, None), "active, standby and warm-up tasks of a heartbeat without news")
    answer = member.leave()
    c.error(answer.error_code, ErrorCode.NONE, "error_code of the last heartbeat")
    c.equal((answer.member_id, answer.member_epoch), (member.member_id, -1), "member_id and member_epoch")
    s.rejected(c, member.heartbeat(version), ErrorCode.UNKNOWN_MEMBER_ID)


@case(
    "streams-groups.heartbeat.unknown-member",
    "a member that the streams group does not have is rejected",
    source=SOURCE,
    layer=Layer.WIRE,
    features=FEATURES,
    needs=NEEDS,
    versions=versions_of(ApiKey.STREAMS_GROUP_HEARTBEAT),
)
def unknown_member(c: Check, version: int) -> None:
    """Sends: heartbeats with epochs 3 and -1 of an unknown member, to a group with a member and to no group.

    Expects: UNKNOWN_MEMBER_ID for the first group, GROUP_ID_NOT_FOUND for the second, which is not created.

    Why: an instance that was removed must notice it, close its tasks and join again.
    """
    group, none = c.group(), c.group("none")
    topic = c.topic()
    member = StreamsMember(c, group, topic)
    s.stable(c, member)
    stranger, lost = StreamsMember(c, group, topic), StreamsMember(c, none, topic)
    for epoch in (3, -1):
        s.rejected(c, stranger.heartbeat(version, member_epoch=epoch), ErrorCode.UNKNOWN_MEMBER_ID)
        s.rejected(c, lost.heartbeat(version, member_epoch=epoch), ErrorCode.GROUP_ID_NOT_FOUND)
    c.equal(list(g.listed(c, group, none)), [group], "the case's groups in ListGroups")
    c.error(member.heartbeat().error_code, ErrorCode.NONE, "error_code of the other member")


@case(
    "streams-groups.heartbeat.invalid",
    "a first heartbeat with an invalid field is rejected",
    source=SOURCE,
    layer=Layer.WIRE,
    features=FEATURES,
    needs=NEEDS,
    variants={
        "group-id-empty": ({"group_id": ""},),
        "member-id-empty": ({"member_id": ""},),
        "instance-id-empty": ({"instance_id": ""},),
        "rack-id-blank": ({"rack_id": " "},),
        "rebalance-timeout": ({"rebalance_timeout_ms": -1},),
        "no-topology": ({"topology": None},),
        "no-active-tasks": ({"active_tasks": None},),
        "no-standby-tasks": ({"standby_tasks": None},),
        "no-warmup-tasks": ({"warmup_tasks": None},),
        "active-tasks": ({"active_tasks": [TaskIds(subtopology_id=SUBTOPOLOGY, partitions=[0])]},),
        "leave-without-instance": ({"member_epoch": -2},),
        "epoch-minus-3": ({"member_epoch": -3},),
    },
)
def invalid(c: Check, fields: dict[str, Any]) -> None:
    """Sends: a first StreamsGroupHeartbeat to a new group in which one field is invalid.

    Expects: INVALID_REQUEST with a message, and no group.

    Why: an incomplete first heartbeat would create a member that is never assigned anything.
    """
    group = c.group()
    s.rejected(c, StreamsMember(c, group, c.topic()).join(**fields), ErrorCode.INVALID_REQUEST)
    c.equal(g.listed(c, group), {}, "ListGroups")


@case(
    "streams-groups.epochs.fenced",
    "a heartbeat with a future epoch is fenced",
    source=SOURCE,
    features=FEATURES,
    needs=NEEDS,
)
def fenced(c: Check) -> None:
    """Sends: a heartbeat with the member's epoch plus one, then with its epoch.

    Expects: FENCED_MEMBER_EPOCH; then no error.

    Why: such a member belongs to another group of that name.
    """
    member = StreamsMember(c, c.group(), c.topic())
    s.stable(c, member)
    s.rejected(c, member.heartbeat(member_epoch=member.epoch + 1), ErrorCode.FENCED_MEMBER_EPOCH)
    c.error(member.heartbeat().error_code, ErrorCode.NONE, "error_code with the right epoch")


@case(
    "streams-groups.tasks.revoke-first",
    "a task is assigned to its next owner after the last one has revoked it",
    source="KIP-1071: Rebalance Process",
    features=FEATURES,
    needs=NEEDS,
)
def revoke_first(c: Check) -> None:
    """Sends: a second member joins a stable group. The first one gets fewer tasks and reports later that it has revoked
    the others; the second one sends heartbeats all the time. Then the first one leaves.

    Expects: no tasks for the second member before that report; then two of four for each, and all after the first
    member has left.

    Why: two instances with the same task write to the same state and produce results twice.
    """
    topic = c.topic(4)
    group = c.group()
    old, new = StreamsMember(c, group, topic), StreamsMember(c, group, topic)
    s.stable(c, old)
    c.equal(old.tasks, [0, 1, 2, 3], "the tasks of the only member")
    c.error(new.join().error_code, ErrorCode.NONE)

    def is_assigned_less() -> bool:
        c.error(new.heartbeat().error_code, ErrorCode.NONE, "error_code of the new member")
        c.equal(new.tasks, [], "the tasks of the new member before any are revoked")
        return old.heartbeat().active_tasks is not None

    c.until(is_assigned_less, "fewer tasks for the first member")
    c.equal(len(old.tasks), 2, "the number of tasks that the first member keeps")
    for _ in range(3):
        c.error(new.heartbeat().error_code, ErrorCode.NONE, "error_code of the new member")
        c.equal(new.tasks, [], "the tasks of the new member before the revocation is reported")
    c.error(old.report().error_code, ErrorCode.NONE, "error_code of the report")
    s.settle(c, old, new)
    c.equal((len(new.tasks), sorted(old.tasks + new.tasks)), (2, [0, 1, 2, 3]), "the tasks of both members")
    old.leave()
    s.settle(c, new)
    c.equal(new.tasks, [0, 1, 2, 3], "the tasks of the remaining member")


@case(
    "streams-groups.endpoints",
    "members learn which instance has which partitions",
    source="KIP-1071: Interactive Queries",
    features=FEATURES,
    needs=NEEDS,
)
def endpoints(c: Check) -> None:
    """Sends: first heartbeat of a member with a user endpoint, then heartbeats with endpoint information epoch -1.

    Expects: the endpoint with the partitions of the member's active tasks.

    Why: interactive queries are sent to the instance that has the state of a key.
    """
    topic = c.topic(2)
    member = StreamsMember(c, c.group(), topic)
    with c.setup("a member with an endpoint"):
        c.error(member.join(user_endpoint=ENDPOINT).error_code, ErrorCode.NONE)
        s.settle(c, member)
    answer = member.heartbeat(endpoint_information_epoch=-1)
    c.error(answer.error_code, ErrorCode.NONE)
    found = [
        (
            each.user_endpoint.host,
            each.user_endpoint.port,
            [(one.topic, one.partitions) for one in each.active_partitions],
        )
        for each in answer.partitions_by_user_endpoint or ()
    ]
    expected = [(ENDPOINT.host, ENDPOINT.port, [(topic.name, [0, 1])])]
    c.equal(found, expected, "partitions_by_user_endpoint")


@case(
    "streams-groups.topology.missing-source",
    "a member learns that a source topic does not exist",
    source="KIP-1071: Topology Configuration",
    features=FEATURES,
    needs=NEEDS,
)
def missing_source(c: Check) -> None:
    """Sends: a first heartbeat whose topology reads a topic that does not exist.

    Expects: no error, no tasks, and the status MISSING_SOURCE_TOPICS with the name of the topic.

    Why: an application cannot start without its sources, and its user must learn the name.
    """
    topic = c.topic()
    missing = c.name("missing")
    answer = StreamsMember(c, c.group(), topic).join(topology=s.topology(topic.name, missing))
    c.error(answer.error_code, ErrorCode.NONE)
    c.equal(tasks_of(answer.active_tasks or ()), [], "active_tasks")
    status = {each.status_code: each.status_detail for each in answer.status or ()}
    c.true(MISSING_SOURCE_TOPICS in status, "status", expected="MISSING_SOURCE_TOPICS (1)", actual=status)
    c.true(missing in status[MISSING_SOURCE_TOPICS], "status_detail", expected=missing, actual=status)


@case(
    "streams-groups.topology.internal-topics",
    "internal topics of a topology are created",
    source="KIP-1071: Topology Configuration",
    features=FEATURES,
    needs=NEEDS,
)
def internal_topics(c: Check) -> None:
    """Sends: heartbeats of a member whose topology has a changelog topic that does not exist.

    Expects: the changelog topic, with as many partitions as the source topic; then one task for each partition.

    Why: applications no longer have the right to create topics, and cannot restore their state without a changelog.
    """
    topic = c.topic(3)
    changelog = c.topic_name("changelog")
    member = StreamsMember(c, c.group(), topic)
    c.error(member.join(topology=s.topology(topic.name, changelog=changelog)).error_code, ErrorCode.NONE)
    c.until(lambda: member.follow().tasks, "tasks for the only member")
    c.equal(member.tasks, [0, 1, 2], "the tasks of the member")
    c.topic_ready(changelog, 3)


@case(
    "streams-groups.topology.other",
    "a member with another topology epoch is rejected",
    source="KIP-1071: Topology Updating",
    level=Level.APACHE,
    features=FEATURES,
    needs=NEEDS,
)
def other_topology(c: Check) -> None:
    """Sends: a first heartbeat with topology epoch 1 to a group with topology epoch 0.

    Expects: INVALID_REQUEST; the group has one member.

    Why: tasks of different topologies cannot be exchanged.
    """
    topic = c.topic()
    group = c.group()
    s.stable(c, StreamsMember(c, group, topic))
    other = StreamsMember(c, group, topic)
    s.rejected(c, other.join(topology=s.topology(topic.name, epoch=1)), ErrorCode.INVALID_REQUEST)
    c.equal(len(s.describe(c, group).members), 1, "the number of members")


@case(
    "streams-groups.shutdown",
    "a member shuts down the whole application",
    source="KIP-1071: Shutdown Application",
    features=FEATURES,
    needs=NEEDS,
)
def shutdown(c: Check) -> None:
    """Sends: a heartbeat of one of two members with shutdown_application; then heartbeats of the other one.

    Expects: the status SHUTDOWN_APPLICATION for the other one.

    Why: an application that must not continue after an error stops in all its instances.
    """
    topic = c.topic(2)
    group = c.group()
    members = [StreamsMember(c, group, topic) for _ in range(2)]
    s.stable(c, *members)
    c.error(members[0].heartbeat(shutdown_application=True).error_code, ErrorCode.NONE)

    def has_status() -> bool:
        answer = members[1].heartbeat()
        c.error(answer.error_code, ErrorCode.NONE, "error_code of the other member")
        return SHUTDOWN_APPLICATION in {each.status_code for each in answer.status or ()}

    c.until(has_status, "the status SHUTDOWN_APPLICATION (4) for the other member")
