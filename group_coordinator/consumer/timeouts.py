"""Deadlines of a consumer group's members: the session, and the revocation of partitions.

A deadline is soft state. Its action checks whether the member still exists and is still late. Deadlines are canceled
when the member's tombstone is replayed. Until then they are set again, because the log may reject the tombstone.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from ...coordinator.outcome import NOTHING
from ..config import consumer_times
from ..first_sessions import first_session_ms
from .group import ConsumerGroup
from .leaving import remove_members
from .member import SESSION, ConsumerGroupMember, MemberState

if TYPE_CHECKING:
    from ...coordinator.outcome import Now, Outcome
    from ..config import ConsumerTimes
    from ..states import GroupStates

logger = logging.getLogger(__name__)

# The name of a deadline. Different from those of classic groups, because a group may change its kind.
REBALANCE: Final = "consumer rebalance"

# Time until another attempt to fence a member whose tombstone was rejected.
_RETRY_MS: Final = 500


def times_of(states: GroupStates, group_id: str) -> ConsumerTimes:
    """The times of one group."""
    return consumer_times(states.config, states.overrides(group_id))


def start_session(states: GroupStates, group_id: str, member_id: str, timeout_ms: int, now: Now) -> None:
    """Start or extend the member's session: it is fenced when the session expires."""
    at = now.monotonic_ms + timeout_ms
    name = (SESSION, member_id)
    if not states.deadlines.move(group_id, name, at):
        states.deadlines.set(group_id, name, at, partial(_expire_session, states, group_id, member_id))


def watch_revocation(states: GroupStates, group_id: str, member: ConsumerGroupMember, now: Now) -> None:
    """Set the deadline for a member that must revoke partitions, by its rebalance timeout; cancel it for any other."""
    name = (REBALANCE, member.member_id)
    if member.state is not MemberState.UNREVOKED_PARTITIONS:
        states.deadlines.cancel(group_id, name)
        return
    timeout_ms = member.rebalance_timeout_ms
    expire = partial(_expire_revocation, states, group_id, member.member_id, member.member_epoch, timeout_ms)
    states.deadlines.set(group_id, name, now.monotonic_ms + timeout_ms, expire)


def start_members(states: GroupStates, group: ConsumerGroup, now: Now, *, first_index: int | None = None) -> None:
    """Set the deadlines for the members of a group that was loaded, or converted from a classic group.

    ``first_index`` is the first member's number among all loaded members.
    """
    session_timeout_ms = times_of(states, group.group_id).session_timeout_ms
    for index, member in enumerate(group.members.values(), first_index or 0):
        classic = member.classic_member_metadata
        timeout_ms = session_timeout_ms if classic is None else classic.session_timeout_ms
        if first_index is not None:
            timeout_ms = first_session_ms(timeout_ms, index)
        start_session(states, group.group_id, member.member_id, timeout_ms, now)
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            watch_revocation(states, group.group_id, member, now)


def forget_member(states: GroupStates, group_id: str, member_id: str) -> None:
    """Cancel the deadlines of a removed member."""
    states.deadlines.cancel(group_id, (SESSION, member_id))
    states.deadlines.cancel(group_id, (REBALANCE, member_id))


def _member(states: GroupStates, group_id: str, member_id: str) -> tuple[ConsumerGroup, ConsumerGroupMember] | None:
    group = states.find(group_id, ConsumerGroup)
    member = None if group is None else group.members.get(member_id)
    return None if group is None or member is None else (group, member)


def _expire_session(states: GroupStates, group_id: str, member_id: str, now: Now) -> Outcome:
    found = _member(states, group_id, member_id)
    if found is None:
        return NOTHING
    logger.info("group %r: member %s is fenced because its session expired", group_id, member_id)
    start_session(states, group_id, member_id, _RETRY_MS, now)
    return remove_members(states, found[0], [found[1]], now)


def _expire_revocation(
    states: GroupStates, group_id: str, member_id: str, epoch: int, timeout_ms: int, now: Now
) -> Outcome:
    found = _member(states, group_id, member_id)
    if found is None or found[1].member_epoch != epoch or found[1].state is not MemberState.UNREVOKED_PARTITIONS:
        return NOTHING
    logger.info(
        "group %r: member %s is fenced because it did not leave epoch %d within %d ms",
        group_id,
        member_id,
        epoch,
        timeout_ms,
    )
    again = partial(_expire_revocation, states, group_id, member_id, epoch, timeout_ms)
    states.deadlines.set(group_id, (REBALANCE, member_id), now.monotonic_ms + _RETRY_MS, again)
    return remove_members(states, found[0], [found[1]], now)
