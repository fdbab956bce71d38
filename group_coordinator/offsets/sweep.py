"""Checks all groups of a shard for background work, without blocking requests.

A sweep checks some groups and then sets a deadline to continue. A group with work gets its own deadline, which is due
immediately: a decision for a group must have the group as its key, so that it sees earlier decisions for the group.
Groups that are created during the sweep are not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import TYPE_CHECKING, Final

from ...coordinator.outcome import NOTHING, Now, Outcome
from .tombstones import PAUSE_MS, SLICE

if TYPE_CHECKING:
    from ...coordinator.deadlines import Action
    from ..states import GroupStates

# In offsets to delete: checking a group, and deciding for it separately, counts as two.
_STEP: Final = SLICE
_COST_PER_GROUP: Final = 2


def set_for_all(states: GroupStates, name: Hashable, at_ms: int, action: Action) -> None:
    """A deadline of the whole shard. Groups do not use its name, because the empty string may be a group ID, too."""
    states.deadlines.set("", ("all groups", name), at_ms, action)


class Sweep:
    """One pass over all groups."""

    def __init__(
        self,
        states: GroupStates,
        name: Hashable,
        *,
        has_work: Callable[[str, Now], bool],
        visit: Callable[[str, Now], Outcome],
        done: Callable[[Now], None] = lambda now: None,
    ) -> None:
        """``has_work`` returns whether a group may have work and changes no state; ``visit`` does a slice of the work.
        ``name`` is the name of the deadlines."""
        self._states = states
        self._name = name
        self._has_work = has_work
        self._visit = visit
        self._done = done
        self._groups = list(states.groups)

    def start(self, now: Now) -> Outcome:
        """Check some groups; as the `Action` of the deadline, the next ones."""
        states = self._states
        left = _STEP
        while self._groups and left > 0:
            group_id = self._groups.pop()
            left -= _COST_PER_GROUP + min(states.offsets.count(group_id), SLICE)
            if self._has_work(group_id, now):
                states.deadlines.set(group_id, self._name, now.monotonic_ms, partial(self._visit, group_id))
        if self._groups:
            set_for_all(states, self._name, now.monotonic_ms + PAUSE_MS, self.start)
        else:
            self._done(now)
        return NOTHING
