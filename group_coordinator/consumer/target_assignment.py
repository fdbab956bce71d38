"""The target assignment: what each member of a consumer group shall have, made by an assignor.

Pure but for the call of the assignor. Who was to have what until now is part of the assignor's input; so is, for a
static member that has come back under another member id, what its former self was to have.
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
    """Whether a new target assignment may be made.

    ``group.consumer.assignment.interval.ms`` lets members come together first. The first assignment of a group does
    not wait, and none does after the clock was set back.
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
    """What each of these members shall have, by member id.

    ``current`` is what they were to have until now; ``subscriptions`` are those of these members.
    """
    partitions: dict[bytes, int] = {}
    ids_of: dict[frozenset[str], frozenset[bytes]] = {}  # most members subscribe to the same
    specs = {}
    for member_id, member in members.items():
        names = subscriptions.topics_of(member)
        ids = ids_of.get(names)
        if ids is None:
            ids = ids_of[names] = existing_topics(names, topics)
            for name in sorted(names):  # so that the same decisions make the same records
                topic_id = topics.id_of(name)
                if topic_id is not None:
                    partitions[topic_id] = topics.partition_count(name)
        specs[member_id] = MemberSpec(ids, current.get(member_id, NO_PARTITIONS), member.instance_id)
    return ASSIGNORS[assignor](GroupSpec(specs, partitions, homogeneous=subscriptions.is_homogeneous(len(members))))


def existing_topics(names: frozenset[str], topics: Topics) -> frozenset[bytes]:
    """The ids of those that there are."""
    return frozenset(topic_id for name in names if (topic_id := topics.id_of(name)) is not None)
