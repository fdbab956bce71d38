"""Deadlines of a consumer group's members: the session, and giving up partitions in time.

A deadline is soft state and outlives nothing: its action looks whether the member is still there and still late. They
are cancelled when the member's tombstone is replayed. Until then they come again: the log may refuse the tombstone.
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
from .member import ConsumerGroupMember, MemberState

if TYPE_CHECKING:
    from ...coordinator.outcome import Now, Outcome
    from ..config import ConsumerTimes
    from ..states import GroupStates

logger = logging.getLogger(__name__)

# Of deadlines. Not those of classic groups: a group may become the other kind.
SESSION: Final = "consumer session"
REBALANCE: Final = "consumer rebalance"

# When a member that could not be fenced is looked at again.
_RETRY_MS: Final = 500


def times_of(states: GroupStates, group_id: str) -> ConsumerTimes:
    """The times of one group."""
    return consumer_times(states.config, states.overrides(group_id))


def start_session(states: GroupStates, group_id: str, member_id: str, timeout_ms: int, now: Now) -> None:
    """The member has been heard of: it is fenced when that was the last time."""
    at = now.monotonic_ms + timeout_ms
    name = (SESSION, member_id)
    if not states.deadlines.move(group_id, name, at):
        states.deadlines.set(group_id, name, at, partial(_expire_session, states, group_id, member_id))


def watch_revocation(states: GroupStates, group_id: str, member: ConsumerGroupMember, now: Now) -> None:
    """A member that has to give up partitions does so within its rebalance timeout; any other is not watched."""
    name = (REBALANCE, member.member_id)
    if member.state is not MemberState.UNREVOKED_PARTITIONS:
        states.deadlines.cancel(group_id, name)
        return
    timeout_ms = member.rebalance_timeout_ms
    expire = partial(_expire_revocation, states, group_id, member.member_id, member.member_epoch, timeout_ms)
    states.deadlines.set(group_id, name, now.monotonic_ms + timeout_ms, expire)


def start_members(states: GroupStates, group: ConsumerGroup, now: Now, *, first_index: int | None = None) -> None:
    """Fresh deadlines for the members of a group that was loaded or made of a classic one.

    ``first_index`` is the first member's number among all that were loaded.
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
    """The member is gone."""
    states.deadlines.cancel(group_id, (SESSION, member_id))
    states.deadlines.cancel(group_id, (REBALANCE, member_id))


def _member(states: GroupStates, group_id: str, member_id: str) -> tuple[ConsumerGroup, ConsumerGroupMember] | None:
    group = states.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        return None
    member = group.members.get(member_id)
    return None if member is None else (group, member)


def _expire_session(states: GroupStates, group_id: str, member_id: str, now: Now) -> Outcome:
    found = _member(states, group_id, member_id)
    if found is None:
        return NOTHING
    logger.info("group %r: the member %s is fenced because its session expired", group_id, member_id)
    start_session(states, group_id, member_id, _RETRY_MS, now)
    return remove_members(states, found[0], [found[1]], now)


def _expire_revocation(
    states: GroupStates, group_id: str, member_id: str, epoch: int, timeout_ms: int, now: Now
) -> Outcome:
    found = _member(states, group_id, member_id)
    if found is None or found[1].member_epoch != epoch or found[1].state is not MemberState.UNREVOKED_PARTITIONS:
        return NOTHING
    logger.info(
        "group %r: the member %s is fenced because it has not left the epoch %d within %d ms",
        group_id,
        member_id,
        epoch,
        timeout_ms,
    )
    again = partial(_expire_revocation, states, group_id, member_id, epoch, timeout_ms)
    states.deadlines.set(group_id, (REBALANCE, member_id), now.monotonic_ms + _RETRY_MS, again)
    return remove_members(states, found[0], [found[1]], now)
