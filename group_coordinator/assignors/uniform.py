"""The ``uniform`` assignor: as even as possible, with as few changes as that allows.

If all members subscribe to the same topics, their numbers of partitions differ by at most one, and a partition changes
its member only if that member has more than its share or has left.

Otherwise the number of partitions that a member can have depends on the others. First every partition stays with its
member, and free partitions go to the subscriber with the fewest. Then partitions move, one by one, from a member to
another that has at least two fewer. Each move reduces the sum of the squares, so this ends; then no single move makes
two members more equal. If many members share topics only with their neighbors, this takes many passes over the topics:
it stops after some passes, and the next assignment continues from there.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

from .spec import Assignment, GroupSpec

# Random subscriptions take fewer than ten passes; a chain of members may take thousands.
_PASSES_MAX: Final = 32


def assign_uniformly(group: GroupSpec) -> dict[str, Assignment]:
    """Assign evenly."""
    if not group.members:
        return {}
    return _same_topics(group) if group.homogeneous else _different_topics(group)


# -- all members subscribe to the same topics --------------------------------------------------------------------------


def _same_topics(group: GroupSpec) -> dict[str, Assignment]:
    topics = sorted(next(iter(group.members.values())).topics)
    quota, larger = divmod(sum(group.partitions[topic] for topic in topics), len(group.members))
    taken: dict[bytes, set[int]] = {topic: set() for topic in topics}

    kept: dict[str, dict[bytes, frozenset[int]]] = {}
    sizes: dict[str, int] = {}
    for member_id in sorted(group.members):
        mine = _still_valid(group, member_id, taken)
        size = sum(map(len, mine.values()))
        if size > quota:
            # Members that already have more are the first to have one more than the others.
            limit = quota + (larger > 0)
            larger -= limit > quota
            if size > limit:
                mine, size = _first(mine, limit), limit
        for topic, partitions in mine.items():
            taken[topic] |= partitions
        kept[member_id] = mine
        sizes[member_id] = size

    free = [(topic, p) for topic in topics for p in range(group.partitions[topic]) if p not in taken[topic]]
    position = 0
    assigned: dict[str, Assignment] = {}
    for member_id, mine in kept.items():
        room = quota - sizes[member_id]
        if room >= 0 and larger:
            room += 1
            larger -= 1
        if room <= 0:
            assigned[member_id] = mine
            continue
        added: dict[bytes, set[int]] = {}
        for topic, partition in free[position : position + room]:
            added.setdefault(topic, set()).add(partition)
        position += room
        assigned[member_id] = mine | {topic: mine.get(topic, frozenset()) | new for topic, new in added.items()}
    return assigned


def _still_valid(group: GroupSpec, member_id: str, taken: dict[bytes, set[int]]) -> dict[bytes, frozenset[int]]:
    """The member's existing partitions of subscribed topics that no member before it has."""
    member = group.members[member_id]
    valid = {}
    for topic, partitions in member.assigned.items():
        if topic not in member.topics:
            continue
        count = group.partitions[topic]
        if max(partitions) >= count or not taken[topic].isdisjoint(partitions):
            partitions = frozenset(p for p in partitions if p < count and p not in taken[topic])
        if partitions:
            valid[topic] = partitions
    return valid


def _first(assigned: dict[bytes, frozenset[int]], limit: int) -> dict[bytes, frozenset[int]]:
    kept = {}
    for topic in sorted(assigned):
        if limit <= 0:
            break
        partitions = assigned[topic]
        if len(partitions) > limit:
            partitions = frozenset(sorted(partitions)[:limit])
        kept[topic] = partitions
        limit -= len(partitions)
    return kept


# -- members subscribe to different topics -----------------------------------------------------------------------------


def _different_topics(group: GroupSpec) -> dict[str, Assignment]:
    member_ids = sorted(group.members)
    subscribers: dict[bytes, list[str]] = {topic: [] for topic in group.partitions}
    for member_id in member_ids:
        for topic in group.members[member_id].topics:
            subscribers[topic].append(member_id)
    # Topics with few subscribers come first: members with many topics have more alternatives.
    topics = sorted((topic for topic in subscribers if subscribers[topic]), key=lambda t: (len(subscribers[t]), t))

    taken: dict[bytes, set[int]] = {topic: set() for topic in group.partitions}
    has: dict[str, dict[bytes, set[int]]] = {}
    load: dict[str, int] = {}
    for member_id in member_ids:
        mine = _still_valid(group, member_id, taken)
        has[member_id] = {topic: set(partitions) for topic, partitions in mine.items()}
        load[member_id] = sum(map(len, mine.values()))
        for topic, partitions in mine.items():
            taken[topic] |= partitions

    for topic in topics:
        free = [p for p in range(group.partitions[topic]) if p not in taken[topic]]
        if free:
            _give(topic, free, subscribers[topic], has, load)
    for _ in range(_PASSES_MAX):
        moved = False
        for topic in topics:
            moved |= _balance(topic, subscribers[topic], has, load)
        if not moved:
            break
    return {
        member_id: {topic: frozenset(partitions) for topic, partitions in mine.items() if partitions}
        for member_id, mine in has.items()
    }


def _give(
    topic: bytes, free: list[int], members: list[str], has: dict[str, dict[bytes, set[int]]], load: dict[str, int]
) -> None:
    """Give each free partition to the member with the fewest."""
    least = [(load[member_id], member_id) for member_id in members]
    heapify(least)
    for partition in free:
        size, member_id = heappop(least)
        has[member_id].setdefault(topic, set()).add(partition)
        load[member_id] = size + 1
        heappush(least, (size + 1, member_id))


def _balance(topic: bytes, members: list[str], has: dict[str, dict[bytes, set[int]]], load: dict[str, int]) -> bool:
    """Move partitions of one topic from members with many to members with at least two fewer; whether any moved."""
    least = [(load[member_id], member_id) for member_id in members]
    most = [(-load[member_id], member_id) for member_id in members if has[member_id].get(topic)]
    heapify(least)
    heapify(most)
    # The highest number moves, so that the remaining ones begin with the lowest. No member both gives and takes here.
    left: dict[str, list[int]] = {}
    moved = False
    while most:
        size, source = most[0]
        if load[source] != -size or not has[source][topic]:
            heappop(most)  # of before a move, and there is a newer one
            continue
        size, target = least[0]
        if load[target] != size:
            heappop(least)
            continue
        if load[source] < load[target] + 2:
            break
        if source not in left:
            left[source] = sorted(has[source][topic])
        partition = left[source].pop()
        has[source][topic].remove(partition)
        has[target].setdefault(topic, set()).add(partition)
        for member_id, change in ((source, -1), (target, 1)):
            load[member_id] += change
            heappush(least, (load[member_id], member_id))
            heappush(most, (-load[member_id], member_id))
        moved = True
    return moved
