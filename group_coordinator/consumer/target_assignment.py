"""The target assignment: the partitions of each member of a consumer group, computed by an assignor.

This is pure except for the call of the assignor. The previous target assignment is part of the assignor's input. A
static member that rejoined with another member ID has the previous assignment of the member that it replaces.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..assignors import ASSIGNORS
from ..assignors.spec import GroupSpec, MemberSpec
from .member import NO_PARTITIONS, Assignment, ConsumerGroupMember
from .subscriptions import Subscriptions

if TYPE_CHECKING:
    from ..states import Topics


def may_assign(last_timestamp_ms: int, interval_ms: int, now_ms: int) -> bool:
    """Whether a new target assignment may be computed.

    ``group.consumer.assignment.interval.ms`` is the time in which more members can join first. The first assignment of
    a group does not wait, and none waits after the clock was set back.
    """
    if last_timestamp_ms == 0 or interval_ms == 0:
        return True
    return now_ms >= last_timestamp_ms + interval_ms or now_ms < last_timestamp_ms


def assign(
    assignor: str,
    members: Mapping[str, ConsumerGroupMember],
    current: Mapping[str, Assignment],
    subscriptions: Subscriptions,
    topics: Topics,
) -> dict[str, Assignment]:
    """The target assignments of these members, by member ID.

    ``current`` are their previous target assignments; ``subscriptions`` are those of these members.
    """
    partitions: dict[bytes, int] = {}
    ids_of: dict[frozenset[str], frozenset[bytes]] = {}  # most members subscribe to the same
    specs = {}
    for member_id, member in members.items():
        names = subscriptions.topics_of(member)
        ids = ids_of.get(names)
        if ids is None:
            ids = ids_of[names] = existing_topics(names, topics)
            for name in sorted(topics.names() & names):  # so that the same decisions give the same records
                topic_id = topics.id_of(name)
                assert topic_id is not None
                partitions[topic_id] = topics.partition_count(name)
        specs[member_id] = MemberSpec(ids, current.get(member_id, NO_PARTITIONS), member.instance_id)
    return ASSIGNORS[assignor](GroupSpec(specs, partitions, homogeneous=subscriptions.is_homogeneous(len(members))))


def existing_topics(names: frozenset[str], topics: Topics) -> frozenset[bytes]:
    """The IDs of the existing topics among these."""
    return frozenset(topic_id for name in topics.names() & names if (topic_id := topics.id_of(name)) is not None)
