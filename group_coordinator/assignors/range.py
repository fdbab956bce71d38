"""The ``range`` assignor: each topic's partitions are divided into ranges, one for each subscribed member.

The members have the same order for every topic (static members first, by instance ID, which survives a restart). So
members that subscribe to the same topics with equal partition counts get the same partition numbers of each topic: the
topics are co-partitioned, which joins of streams require. If the partitions cannot be divided evenly, the first members
get one more each.

It ignores previous assignments; only the order makes it stable.
"""

from __future__ import annotations

from .spec import Assignment, GroupSpec


def assign_range(group: GroupSpec) -> dict[str, Assignment]:
    """Assign ranges."""
    members = sorted(group.members.items(), key=lambda item: _order(item[0], item[1].instance_id))
    assigned: dict[str, dict[bytes, frozenset[int]]] = {member_id: {} for member_id, _ in members}
    subscribers: dict[bytes, list[str]] = {topic: [] for topic in group.partitions}
    for member_id, member in members:
        for topic in member.topics:
            subscribers[topic].append(member_id)
    for topic, member_ids in subscribers.items():
        if not member_ids:
            continue
        quota, larger = divmod(group.partitions[topic], len(member_ids))
        start = 0
        for index, member_id in enumerate(member_ids):
            end = start + quota + (index < larger)
            if start == end:
                break
            assigned[member_id][topic] = frozenset(range(start, end))
            start = end
    return dict(assigned)


def _order(member_id: str, instance_id: str | None) -> tuple[bool, str]:
    return (True, member_id) if instance_id is None else (False, instance_id)
