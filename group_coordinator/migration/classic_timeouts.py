"""Deadlines of members that use the classic protocol in a consumer group: for JoinGroup and SyncGroup.

After REBALANCE_IN_PROGRESS, a member must join within its rebalance timeout; after it has joined, it must ask for its
assignment: other members may wait for its partitions. Otherwise it is fenced. In addition, it has a session
(`consumer.timeouts`) with the timeout of its JoinGroup.

They are soft state, and check whether the member still exists. Until it is removed they are set again, because the log
may reject its tombstone.
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

# Time until another attempt to fence a member whose tombstone was rejected.
_RETRY_MS: Final = 500


def wait_for_join(states: GroupStates, group_id: str, member: ConsumerGroupMember, now: Now) -> None:
    """The member got REBALANCE_IN_PROGRESS. The time counts from the first such response."""
    if not states.deadlines.is_set(group_id, (_JOIN, member.member_id)):
        _wait(states, group_id, (_JOIN, member.member_id), member.rebalance_timeout_ms, now)


def wait_for_sync(states: GroupStates, group_id: str, member_id: str, timeout_ms: int, now: Now) -> None:
    """The member has joined and must request its assignment."""
    states.deadlines.cancel(group_id, (_JOIN, member_id))
    _wait(states, group_id, (_SYNC, member_id), timeout_ms, now)


def has_synced(states: GroupStates, group_id: str, member_id: str) -> None:
    """The member has sent SyncGroup."""
    states.deadlines.cancel(group_id, (_SYNC, member_id))


def cancel(states: GroupStates, group_id: str, member_id: str) -> None:
    """Cancel both deadlines: the member is removed."""
    states.deadlines.cancel(group_id, (_JOIN, member_id))
    states.deadlines.cancel(group_id, (_SYNC, member_id))


def _wait(states: GroupStates, group_id: str, name: tuple[str, str], timeout_ms: int, now: Now) -> None:
    states.deadlines.set(group_id, name, now.monotonic_ms + timeout_ms, partial(_expire, states, group_id, name))


def _expire(states: GroupStates, group_id: str, name: tuple[str, str], now: Now) -> Outcome:
    group = states.find(group_id, ConsumerGroup)
    member = None if group is None else group.members.get(name[1])
    if group is None or member is None or not member.uses_classic_protocol:
        return NOTHING
    logger.info("group %r: member %s is fenced because its %s is late", group_id, member.member_id, name[0])
    _wait(states, group_id, name, _RETRY_MS, now)
    return remove_members(states, group, [member], now)
