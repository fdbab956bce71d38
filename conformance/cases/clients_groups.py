"""Real clients are members of groups, and commit offsets."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from ...protocol.api import ApiKey
from ...testing.clients import CLIENT_NAMES
from .. import consumer_group, group_offsets
from .. import partitions as p
from ..case import Layer, case, needs
from ..check import Check, Topic
from ..classic_group import ClassicGroup
from ..client_jobs import ClientJobs
from ..record_batches import batch
from .clients_records import RECORDS, SECONDS, without

OFFSETS = needs(ApiKey.FIND_COORDINATOR, 1, ApiKey.OFFSET_COMMIT, 2, ApiKey.OFFSET_FETCH, 1)
CLASSIC = needs(
    ApiKey.JOIN_GROUP, 5, ApiKey.SYNC_GROUP, 3, ApiKey.HEARTBEAT, 3, ApiKey.LEAVE_GROUP, 1, ApiKey.DESCRIBE_GROUPS, 0
)  # fmt: skip
FIRST, SECOND = 10, 5
"""The records of each partition that are consumed by two members, and then by one."""


@case(
    "clients.committed-offsets",
    "a client commits an offset and finds it again",
    source="Protocol: OffsetCommit",
    layer=Layer.CLIENTS,
    needs=(*RECORDS, *OFFSETS),
    clients=without("kcat"),
    seconds=SECONDS,
)
def committed_offsets(c: Check, client: str) -> None:
    """Sends: the client commits offset 7 of partition 1 for a group without members, and looks up the offsets of both
    partitions.

    Expects: none, and 7, also in the suite's own OffsetFetch.

    Why: tools reset offsets like this.
    """
    topic, group, jobs = c.topic(2), c.group(), ClientJobs(c, client)
    jobs.do("commit", group=group, topic=topic.name, partition=1, offset=7)
    _expect_committed(c, group, topic, {0: -1, 1: 7})
    found = [jobs.do("committed", group=group, topic=topic.name, partition=partition)["offset"] for partition in (0, 1)]
    c.equal(found, [None, 7], f"{jobs.call_of('committed')}: offsets of the partitions 0 and 1")


@case(
    "clients.group",
    "two members of a classic group share a topic, and a third one continues",
    source="Protocol: JoinGroup; KIP-62",
    layer=Layer.CLIENTS,
    needs=(*RECORDS, *OFFSETS, *CLASSIC),
    clients=CLIENT_NAMES,
    seconds=SECONDS,
)
def classic_group(c: Check, client: str) -> None:
    """Sends: two processes of the client join a group, one after the other; then ten records are produced to each of
    two partitions, and the members consume, commit and leave. After five more records per partition, a third process
    joins.

    Expects: each record is consumed by one of the two members, the committed offsets are the ends of the partitions,
    and the third process consumes only the new records, in order.

    Why: it is how applications share work, and continue after a restart.
    """
    topic = c.topic(2)
    group = ClassicGroup(c)

    def has_members(count: int) -> bool:
        found = group.describe()
        return found.group_state == "Stable" and len(found.members) == count

    _share_and_resume(c, ClientJobs(c, client), topic, group.id, "classic", has_members)


@case(
    "clients.consumer-group",
    "two members of a consumer group share a topic, and a third one continues",
    source="KIP-848",
    layer=Layer.CLIENTS,
    needs=(*RECORDS, *OFFSETS, *needs(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, ApiKey.CONSUMER_GROUP_DESCRIBE, 0)),
    features=consumer_group.FEATURES,
    clients=("confluent-kafka", "java", "franz-go"),
    seconds=SECONDS,
)
def new_group(c: Check, client: str) -> None:
    """Sends: two processes of the client join a group with `group.protocol=consumer`, one after the other; then ten
    records are produced to each of two partitions, and the members consume, commit and leave. After five more records
    per partition, a third process joins.

    Expects: each record is consumed by one of the two members, the committed offsets are the ends of the partitions,
    and the third process consumes only the new records, in order.

    Why: it is how applications share work, and continue after a restart.
    """
    topic, group = c.topic(2), c.group()
    wire = c.coordinator(group)

    def has_members(count: int) -> bool:
        found = consumer_group.describe(c, group, to=wire)
        owned = [sum(len(each.partitions) for each in member.assignment.topic_partitions) for member in found.members]
        return found.group_state == "Stable" and len(owned) == count and all(owned)

    _share_and_resume(c, ClientJobs(c, client), topic, group, "consumer", has_members)


def _share_and_resume(
    c: Check, jobs: ClientJobs, topic: Topic, group: str, protocol: str, has_members: Callable[[int], bool]
) -> None:
    """The steps of both kinds of groups. `has_members`: whether the group is stable with so many members."""

    def join(count: int) -> Future[dict[str, Any]]:
        options = {"protocol": protocol}
        return jobs.start("consume_group", group=group, topic=topic.name, count=count, options=options)

    members: list[Future[dict[str, Any]]] = []
    for count in (1, 2):
        members.append(join(FIRST))

        def joined(count: int = count) -> bool:
            for each in members:
                if each.done():
                    jobs.finished(each, "consume_group")  # its error says why
            return has_members(count)

        c.until(joined, f"{jobs.call_of('consume_group')}: a stable group with {count} members")
    _append(c, topic, 0, FIRST)
    found = [_places(jobs.finished(each, "consume_group")) for each in members]
    expected = {(partition, offset) for partition in (0, 1) for offset in range(FIRST)}
    what = jobs.call_of("consume_group")
    c.equal(set(found[0]) | set(found[1]), expected, f"{what}: partitions and offsets that both members consumed")
    c.equal(sorted(set(found[0]) & set(found[1])), [], f"{what}: partitions and offsets that each member consumed")
    _expect_committed(c, group, topic, {0: FIRST, 1: FIRST})

    _append(c, topic, FIRST, SECOND)
    consumed = _places(jobs.finished(join(2 * SECOND), "consume_group"))
    for partition in (0, 1):
        offsets = [offset for each, offset in consumed if each == partition]
        new = list(range(FIRST, FIRST + SECOND))
        c.equal(offsets, new, f"{what}: offsets of partition {partition} that the third member consumed")
    _expect_committed(c, group, topic, {0: FIRST + SECOND, 1: FIRST + SECOND})


def _append(c: Check, topic: Topic, first: int, count: int) -> None:
    for partition in (0, 1):
        p.append(c, topic, batch(*[b"%d" % (first + number) for number in range(count)]), partition=partition)


def _places(answer: dict[str, Any]) -> list[tuple[int, int]]:
    return [(each["partition"], each["offset"]) for each in answer["records"]]


def _expect_committed(c: Check, group: str, topic: Topic, offsets: dict[int, int]) -> None:
    """Compare the committed offsets with OffsetFetch; -1 for none."""
    with c.setup("OffsetFetch without the client"):
        fetched = group_offsets.fetched(c, group, topic, *offsets)
    found = {partition: each[0] if isinstance(each, tuple) else each for partition, each in fetched.items()}
    c.equal(found, offsets, "the committed offsets by partition, as OffsetFetch returns them")
