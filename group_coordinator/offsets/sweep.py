"""Looking through all groups of a shard for work that nobody waits for, without holding anybody up.

A sweep looks at some groups, and then sets a deadline to go on. A group that has something to do gets a deadline of its
own, which is due at once: what is decided for a group must be decided in its name, so that it sees what was decided for
the group before. Groups that come while the sweep goes on are not looked at.
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

# In offsets to delete: looking at a group, and deciding for it apart from others, counts as two.
_STEP: Final = SLICE
_COST_OF_A_GROUP: Final = 2


def set_for_all(states: GroupStates, name: Hashable, at_ms: int, action: Action) -> None:
    """A deadline of the whole shard. The empty name may be a group's, too, so these have names that no group's have."""
    states.deadlines.set("", ("all groups", name), at_ms, action)


class Sweep:
    """One way through all groups."""

    def __init__(
        self,
        states: GroupStates,
        name: Hashable,
        *,
        look: Callable[[str, Now], bool],
        visit: Callable[[str, Now], Outcome],
        done: Callable[[Now], None] = lambda now: None,
    ) -> None:
        """``look`` says whether there seems to be something to do for a group, and changes nothing; ``visit`` does a
        slice of it. ``name`` is the deadlines' name."""
        self._states = states
        self._name = name
        self._look = look
        self._visit = visit
        self._done = done
        self._groups = list(states.groups)

    def start(self, now: Now) -> Outcome:
        """Look at some groups; as an `Action` of the deadline, at some more."""
        states = self._states
        left = _STEP
        while self._groups and left > 0:
            group_id = self._groups.pop()
            left -= _COST_OF_A_GROUP + min(states.offsets.count(group_id), SLICE)
            if self._look(group_id, now):
                states.deadlines.set(group_id, self._name, now.monotonic_ms, partial(self._visit, group_id))
        if self._groups:
            set_for_all(states, self._name, now.monotonic_ms + PAUSE_MS, self.start)
        else:
            self._done(now)
        return NOTHING
