"""Deletes the offsets of deleted topics in all groups.

The store knows which groups have offsets of a topic. Only these are visited, so the work is proportional to the number
of offsets. It runs in slices. A group is visited once for all topics that were deleted until then, by its own deadline:
a decision for a group must have the group as its key, so that it sees earlier decisions for the group.

Offsets contain the topic ID since Kafka 4.1, so those of a new topic with the same name are kept. An offset of the old
topic can remain next to them: a pending one that is older than a commit for the new topic, or any if such a commit is
pending. No response contains it (`fetch`), and it expires.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from ...coordinator.outcome import NOTHING, Outcome
from .tombstones import PAUSE_MS, RETRY_MS, SLICE, Tombstones

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ...coordinator.outcome import Now, Reply
    from ...protocol.errors import KafkaError
    from ..states import GroupStates

# The empty string may be a group ID, too, so this name differs from the deadlines of groups.
_SWEEP: Final = ("all groups", "offsets of deleted topics")
_VISIT: Final = "offsets of deleted topics"

_FOUND_PER_STEP: Final = 8 * SLICE
_VISITED_PER_STEP: Final = SLICE // 4


class DeletedTopics:
    """The remaining work."""

    __slots__ = ("by_group", "finding", "names", "to_visit")

    def __init__(self) -> None:
        self.names: deque[str] = deque()
        """Topics whose groups have not been found yet."""
        self.by_group: dict[str, dict[str, None]] = {}
        """The deleted topics that a group has or had offsets of."""
        self.to_visit: deque[str] = deque()
        """Those of these groups that have no deadline yet."""
        self.finding: Iterator[None] | None = None


def delete_offsets_of_topics(states: GroupStates, names: Iterable[str], now: Now) -> Outcome:
    """Start to delete the offsets of these deleted topics."""
    deleted = states.deleted_topics
    deleted.names.extend(name for name in names if states.offsets.has_topic(name))
    if deleted.names and not states.deadlines.is_set("", _SWEEP):
        return _sweep(states, now)
    return NOTHING


def _sweep(states: GroupStates, now: Now) -> Outcome:
    """Find some groups, or schedule visits of some, and continue after a pause."""
    deleted = states.deleted_topics
    if deleted.finding is None:
        deleted.finding = _find(states)
    if len(list(islice(deleted.finding, _FOUND_PER_STEP))) < _FOUND_PER_STEP:
        deleted.finding = None
        for _ in range(min(_VISITED_PER_STEP, len(deleted.to_visit))):
            group_id = deleted.to_visit.popleft()
            states.deadlines.set(group_id, _VISIT, now.monotonic_ms, partial(_visit, states, group_id))
    if deleted.names or deleted.to_visit or deleted.finding is not None:
        states.deadlines.set("", _SWEEP, now.monotonic_ms + PAUSE_MS, partial(_sweep, states))
    return NOTHING


def _find(states: GroupStates) -> Iterator[None]:
    deleted = states.deleted_topics
    while deleted.names:
        name = deleted.names.popleft()
        for group_id in states.offsets.groups(name):
            topics = deleted.by_group.get(group_id)
            if topics is None:
                topics = deleted.by_group[group_id] = {}
                deleted.to_visit.append(group_id)
            topics[name] = None
            yield


def _visit(states: GroupStates, group_id: str, now: Now) -> Outcome:
    """Delete some of the offsets that the group has of deleted topics."""
    deleted = states.deleted_topics
    topics = deleted.by_group.pop(group_id, {})
    again = partial(_visit, states, group_id)
    tombstones = Tombstones(group_id)
    visited: list[str] = []
    while topics and not tombstones.full:
        name = next(iter(topics))
        visited.append(name)
        for index in _indexes_of_deleted(states, group_id, name):
            if tombstones.full:
                break
            tombstones.add(name, index)
        else:
            del topics[name]
    if topics:
        deleted.by_group[group_id] = topics
        states.deadlines.set(group_id, _VISIT, now.monotonic_ms + PAUSE_MS, again)
    if not tombstones.records:
        return NOTHING

    def refused(error: KafkaError) -> Sequence[Reply]:
        deleted.by_group.setdefault(group_id, {}).update(dict.fromkeys(visited))
        states.deadlines.set(group_id, _VISIT, now.monotonic_ms + RETRY_MS, again)
        return ()

    return Outcome(tombstones.records, refused=refused)


def _indexes_of_deleted(states: GroupStates, group_id: str, name: str) -> dict[int, None]:
    offsets = states.offsets
    present_id = states.topics.id_of(name)
    found = [*offsets.partitions(group_id, name), *offsets.pending_of_topic(group_id, name)]
    # A tombstone deletes all offsets of the partition, so there must be none of the current topic.
    kept = {index for index, one in found if one.topic_id == present_id}
    return dict.fromkeys(index for index, _ in found if index not in kept)
