"""The ``range`` assignor: each topic's partitions are cut into ranges, one for each member that subscribes to it.

The members come in the same order for every topic (static members first, by instance id, as that outlives a restart).
So members that subscribe to the same topics with the same number of partitions have the same partition numbers of each:
the topics are co-partitioned, which is what joins of streams need. The earlier members have one more each when a number
cannot be divided.

It looks at nobody's former assignment: the order makes it as stable as it is.
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
