"""Expires offsets (KIP-211) and deletes empty groups without offsets.

Every `offsets.retention.check.interval.ms`, all groups are checked. An offset is deleted if all of these are true:

- `offsets.retention.minutes` have passed since the time from which its group counts its retention, or the expiration
  time that an old client set for it is over;
- no member of the group is subscribed to its topic;
- no open transaction has committed an offset of its partition.

An offset that was committed for an earlier topic with the same name is also deleted, even if the topic has subscribers:
its deletion with the topic may have failed. These offsets are searched for soon after loading, too.

An empty group without remaining offsets is deleted as well, but not soon after loading.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from ...coordinator.outcome import NOTHING, Outcome
from .sweep import Sweep, set_for_all
from .tombstones import PAUSE_MS, SLICE, Tombstones

if TYPE_CHECKING:
    from ...coordinator.outcome import Now, Reply
    from ...protocol.errors import KafkaError
    from ..group import Group
    from ..states import GroupStates
    from .store import CommittedOffset

_DEADLINE: Final = "expired offsets"
_DEADLINE_AFTER_LOADING: Final = "offsets of deleted topics after loading"

_AFTER_LOADING_MS: Final = 1000
"""Members that reconnect immediately are served first."""

_IsFound = Callable[["Group", str, int, "CommittedOffset", "Now"], bool]

_OFFSETS_PER_SLICE: Final = 4 * SLICE
"""Checking an offset costs a fraction of deleting it."""


def loaded(states: GroupStates, now: Now) -> None:
    """Start to check for expired offsets every `offsets_retention_check_interval_ms`."""
    interval_ms = states.config.offsets_retention_check_interval_ms
    expired = _Look(states, _DEADLINE, partial(_is_expired, states), deletes_groups=True)
    stale = _Look(states, _DEADLINE_AFTER_LOADING, partial(_is_stale, states), deletes_groups=False)

    def wait(now: Now) -> None:
        set_for_all(states, _DEADLINE, now.monotonic_ms + interval_ms, partial(expired.sweep, wait))

    wait(now)
    after_loading = partial(stale.sweep, lambda now: None)
    set_for_all(states, _DEADLINE_AFTER_LOADING, now.monotonic_ms + _AFTER_LOADING_MS, after_loading)


class _Look:
    """A search in all groups for offsets to delete."""

    __slots__ = ("_deadline", "_deletes_groups", "_is_found", "_states")

    def __init__(self, states: GroupStates, deadline: str, is_found: _IsFound, *, deletes_groups: bool) -> None:
        self._states = states
        self._deadline = deadline
        self._is_found = is_found
        self._deletes_groups = deletes_groups

    def sweep(self, done: Callable[[Now], None], now: Now) -> Outcome:
        """Check all groups, then call ``done``."""
        visit = partial(self._delete, None)
        return Sweep(self._states, self._deadline, has_work=self._may_find, visit=visit, done=done).start(now)

    def _may_find(self, group_id: str, now: Now) -> bool:
        """A quick check whether there may be offsets to delete."""
        group, offsets = self._states.groups.get(group_id), self._states.offsets
        if group is None:
            return False
        if offsets.count(group_id) > SLICE:
            return True
        return self._is_left_over(group) or any(
            self._is_found(group, topic, index, committed, now)
            for topic in offsets.topics(group_id)
            for index, committed in offsets.partitions(group_id, topic)
        )

    def _delete(self, topics: list[str] | None, group_id: str, now: Now) -> Outcome:
        """Delete the found offsets of these topics (None for all), up to one slice."""
        group, offsets = self._states.groups.get(group_id), self._states.offsets
        if group is None:
            return NOTHING
        if topics is None:
            topics = offsets.topics(group_id)
        tombstones = Tombstones(group_id)
        looked_at = 0
        while topics and looked_at < _OFFSETS_PER_SLICE and not tombstones.full:
            topic = topics.pop()
            for index, committed in offsets.partitions(group_id, topic):
                looked_at += 1
                if tombstones.full:
                    topics.append(topic)
                    break
                if self._is_found(group, topic, index, committed, now):
                    tombstones.add(topic, index)
        if topics:
            next_slice = partial(self._delete, topics, group_id)
            self._states.deadlines.set(group_id, self._deadline, now.monotonic_ms + PAUSE_MS, next_slice)
            return Outcome(tombstones.records, refused=partial(self._give_up, group_id))
        if self._is_left_over(group, len(tombstones.records)):
            return Outcome([*tombstones.records, *group.tombstones()])
        return Outcome(tombstones.records)

    def _give_up(self, group_id: str, error: KafkaError) -> Sequence[Reply]:
        """The log rejects records: leave the rest of the group to the next check."""
        self._states.deadlines.cancel(group_id, self._deadline)
        return ()

    def _is_left_over(self, group: Group, deleted: int = 0) -> bool:
        """Whether the group is empty and has no offsets after ``deleted`` of them are deleted."""
        offsets = self._states.offsets
        return (
            self._deletes_groups
            and offsets.count(group.group_id) == deleted
            and not offsets.has_pending(group.group_id)
            and group.is_empty
        )


def _is_expired(
    states: GroupStates, group: Group, topic: str, index: int, committed: CommittedOffset, now: Now
) -> bool:
    if _is_stale(states, group, topic, index, committed, now):
        return True
    base_ms = group.expiration_base_ms(committed.commit_timestamp_ms)
    if base_ms is None or group.is_subscribed_to(topic):
        return False
    if committed.expire_timestamp_ms != -1:
        expired = now.epoch_ms >= committed.expire_timestamp_ms
    else:
        expired = now.epoch_ms - base_ms >= states.config.offsets_retention_ms
    return expired and not states.offsets.is_pending(group.group_id, topic, index)


def _is_stale(states: GroupStates, group: Group, topic: str, index: int, committed: CommittedOffset, now: Now) -> bool:
    """Whether it is of a deleted topic. A tombstone would also delete pending offsets, which may be of a new topic."""
    present_id = states.topics.id_of(topic)
    return committed.is_of_another_topic(present_id) and not states.offsets.is_pending(group.group_id, topic, index)
