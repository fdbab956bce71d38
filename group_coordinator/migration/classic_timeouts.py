"""Deadlines of members that speak the classic protocol in a consumer group: joining and syncing in time.

A member that was told of a rebalance has to join within its rebalance timeout, and one that has joined to ask for its
assignment: others may wait for partitions that it has. It is fenced if it does not. Its session runs besides, by
`consumer.timeouts`, for as long as it asked for when it joined.

They are soft state, and look whether there is still such a member when they come. Until it is gone they come again: the
log may refuse its tombstone.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from ...coordinator.outcome import NOTHING
from ..consumer.group import ConsumerGroup
from ..consumer.leaving import remove_members

if TYPE_CHECKING:
    from ...coordinator.outcome import Now, Outcome
    from ..consumer.member import ConsumerGroupMember
    from ..states import GroupStates

logger = logging.getLogger(__name__)

_JOIN: Final = "classic join"
_SYNC: Final = "classic sync"

# When a member that could not be fenced is looked at again.
_RETRY_MS: Final = 500


def wait_for_join(states: GroupStates, group_id: str, member: ConsumerGroupMember, now: Now) -> None:
    """The member has been told to join anew. The time runs from the first time that it was."""
    if not states.deadlines.is_set(group_id, (_JOIN, member.member_id)):
        _wait(states, group_id, (_JOIN, member.member_id), member.rebalance_timeout_ms, now)


def wait_for_sync(states: GroupStates, group_id: str, member_id: str, timeout_ms: int, now: Now) -> None:
    """The member has joined, and has to ask for its assignment."""
    states.deadlines.cancel(group_id, (_JOIN, member_id))
    _wait(states, group_id, (_SYNC, member_id), timeout_ms, now)


def has_synced(states: GroupStates, group_id: str, member_id: str) -> None:
    """The member has asked for its assignment."""
    states.deadlines.cancel(group_id, (_SYNC, member_id))


def cancel(states: GroupStates, group_id: str, member_id: str) -> None:
    """Nothing is waited for: the member goes."""
    states.deadlines.cancel(group_id, (_JOIN, member_id))
    states.deadlines.cancel(group_id, (_SYNC, member_id))


def _wait(states: GroupStates, group_id: str, name: tuple[str, str], timeout_ms: int, now: Now) -> None:
    states.deadlines.set(group_id, name, now.monotonic_ms + timeout_ms, partial(_expire, states, group_id, name))


def _expire(states: GroupStates, group_id: str, name: tuple[str, str], now: Now) -> Outcome:
    group = states.groups.get(group_id)
    member = group.members.get(name[1]) if isinstance(group, ConsumerGroup) else None
    if not isinstance(group, ConsumerGroup) or member is None or not member.uses_classic_protocol:
        return NOTHING
    logger.info("group %r: the member %s is fenced because it is late with its %s", group_id, member.member_id, name[0])
    _wait(states, group_id, name, _RETRY_MS, now)
    return remove_members(states, group, [member], now)
