"""The rebalance of a classic group: from one generation to the next.

    begin ──> members join ──> complete ──> the leader assigns (sync_group)
                 │                 │
                 │                 └─ no members: an empty generation, which is written immediately
                 └─ members that have not joined within the rebalance timeout are removed

A rebalance that begins with an empty group waits for more members, because a whole application may be starting:
`group.initial.rebalance.delay.ms`, and again as long whenever another member has joined, up to the rebalance timeout.

Joining and leaving is soft state, which a restart loses. The log contains generations with assignments and empty ones.
"""

from __future__ import annotations

import enum
import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ...coordinator.outcome import NOTHING, Outcome
from ...protocol.errors import ErrorCode
from .member import session_name
from .record import empty_generation_record
from .replies import join_refused, joined, sync_refused
from .state import ClassicGroupState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...coordinator.outcome import Now, Reply
    from ...protocol.errors import KafkaError
    from ..states import GroupStates
    from .group import ClassicGroup
    from .member import ClassicMember

logger = logging.getLogger(__name__)

# A new member does not know its ID before its JoinGroup is answered, so it can neither send heartbeats nor leave. If
# its client disconnects and retries, it is in the rebalance twice. So each new member has this session timeout.
NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000

# Of one group. Apache Kafka has no limit; a client that requests many IDs could fill the memory with them.
_PENDING_MEMBERS_MAX = 10_000


class Name(enum.Enum):
    """Names of the deadlines of a group other than its members' sessions."""

    JOIN = "classic rebalance"
    SYNC = "classic assignment"


# -- sessions ----------------------------------------------------------------------------------------------------------


def keep_alive(states: GroupStates, group: ClassicGroup, member: ClassicMember, now: Now) -> None:
    """Start a full session of the member."""
    set_session(states, group, member, now, member.session_timeout_ms)


def set_session(states: GroupStates, group: ClassicGroup, member: ClassicMember, now: Now, timeout_ms: int) -> None:
    """The member's session ends in ``timeout_ms`` unless it is extended."""
    at_ms = now.monotonic_ms + timeout_ms
    if not states.deadlines.move(group.group_id, member.session, at_ms):
        action = partial(_session_ended, states, group, member.member_id)
        states.deadlines.set(group.group_id, member.session, at_ms, action)


def add_pending_member(states: GroupStates, group: ClassicGroup, member_id: str, now: Now, timeout_ms: int) -> None:
    """A new member was given this ID and must retry with it within ``timeout_ms`` (KIP-394).

    If there are very many, the oldest is removed: it gets another ID if it retries after all.
    """
    if len(group.pending_members) >= _PENDING_MEMBERS_MAX:
        oldest = next(iter(group.pending_members))
        group.remove(oldest)
        states.deadlines.cancel(group.group_id, session_name(oldest))
    group.pending_members[member_id] = None
    action = partial(_session_ended, states, group, member_id)
    states.deadlines.set(group.group_id, session_name(member_id), now.monotonic_ms + timeout_ms, action)


def _session_ended(states: GroupStates, group: ClassicGroup, member_id: str, now: Now) -> Outcome:
    if member_id in group.pending_members:
        group.remove(member_id)
        return complete_if_all_joined(states, group, now)
    member = group.members.get(member_id)
    if member is None or member.stays_alive_by_waiting:
        return NOTHING
    logger.info("Group %s: the session of member %s expired.", group.group_id, member_id)
    return with_replies(remove_member(states, group, member), rebalance(states, group, now))


def remove_member(states: GroupStates, group: ClassicGroup, member: ClassicMember) -> list[Reply]:
    """Remove a member from the group. Its waiting requests get UNKNOWN_MEMBER_ID, so that a live client rejoins."""
    replies = fail_waiting_callers(group, member, ErrorCode.UNKNOWN_MEMBER_ID, response_member_id="")
    states.deadlines.cancel(group.group_id, member.session)
    group.remove(member.member_id)
    return replies


def fail_waiting_callers(
    group: ClassicGroup, member: ClassicMember, error: ErrorCode, response_member_id: str | None = None
) -> list[Reply]:
    """Remove the waiting callers of a member; returns this error as their response."""
    replies = []
    caller = group.set_awaiting_join(member, None)
    if caller is not None:
        replies.append(
            join_refused(caller, error, member.member_id if response_member_id is None else response_member_id)
        )
    if member.awaiting_sync is not None:
        replies.append(sync_refused(member.awaiting_sync, error))
        member.awaiting_sync = None
    return replies


def release(states: GroupStates, group: ClassicGroup, error: ErrorCode) -> list[Reply]:
    """The group ceases to be a classic group: reply to all waiting callers and cancel its deadlines."""
    cancel_deadlines(states, group)
    return [reply for member in group.members.values() for reply in fail_waiting_callers(group, member, error)]


def cancel_deadlines(states: GroupStates, group: ClassicGroup) -> None:
    """Cancel all deadlines of the group."""
    for member in group.members.values():
        states.deadlines.cancel(group.group_id, member.session)
    for member_id in group.pending_members:
        states.deadlines.cancel(group.group_id, session_name(member_id))
    for name in Name:
        states.deadlines.cancel(group.group_id, name)


# -- a rebalance begins ------------------------------------------------------------------------------------------------


def rebalance(states: GroupStates, group: ClassicGroup, now: Now) -> Outcome:
    """A member joined, left or changed: begin a rebalance, or complete the current one if all members have joined."""
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        return complete_if_all_joined(states, group, now)
    return begin(states, group, now)


def begin(states: GroupStates, group: ClassicGroup, now: Now) -> Outcome:
    """Begin a rebalance. Waiting SyncGroup requests of the current generation get REBALANCE_IN_PROGRESS."""
    replies: list[Reply] = []
    if group.state is ClassicGroupState.COMPLETING_REBALANCE:
        for member in group.members.values():
            member.assignment = b""
            if member.awaiting_sync is not None:
                replies += fail_waiting_callers(group, member, ErrorCode.REBALANCE_IN_PROGRESS)
                keep_alive(states, group, member, now)
    group.pending_sync_members.clear()
    states.deadlines.cancel(group.group_id, Name.SYNC)
    group.is_initial_rebalance = group.state is ClassicGroupState.EMPTY
    group.move_to(ClassicGroupState.PREPARING_REBALANCE, now)
    if group.is_initial_rebalance:
        group.member_was_added = False
        delay_ms = states.config.group_initial_rebalance_delay_ms
        _wait_for_more(states, group, now, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
        return Outcome(replies=replies)
    if group.all_joined:
        return with_replies(replies, complete(states, group, now))
    _wait_for_members(states, group, now)
    return Outcome(replies=replies)


def _wait_for_members(states: GroupStates, group: ClassicGroup, now: Now) -> None:
    at_ms = now.monotonic_ms + group.rebalance_timeout_ms
    states.deadlines.set(group.group_id, Name.JOIN, at_ms, partial(complete, states, group))


def _wait_for_more(states: GroupStates, group: ClassicGroup, now: Now, delay_ms: int, remaining_ms: int) -> None:
    action = partial(_waited_for_more, states, group, delay_ms, remaining_ms)
    states.deadlines.set(group.group_id, Name.JOIN, now.monotonic_ms + delay_ms, action)


def _waited_for_more(states: GroupStates, group: ClassicGroup, waited_ms: int, remaining_ms: int, now: Now) -> Outcome:
    if not group.member_was_added or not remaining_ms:
        return complete(states, group, now)
    group.member_was_added = False
    delay_ms = min(states.config.group_initial_rebalance_delay_ms, remaining_ms)
    _wait_for_more(states, group, now, delay_ms, max(remaining_ms - waited_ms, 0))
    return NOTHING


# -- and ends ----------------------------------------------------------------------------------------------------------


def complete_if_all_joined(states: GroupStates, group: ClassicGroup, now: Now) -> Outcome:
    """Begin the next generation if all members have joined. An initial rebalance always waits for its delay."""
    if group.state is ClassicGroupState.PREPARING_REBALANCE and group.all_joined and not group.is_initial_rebalance:
        return complete(states, group, now)
    return NOTHING


def complete(states: GroupStates, group: ClassicGroup, now: Now) -> Outcome:
    """End the rebalance. The next generation has the members that joined, and static members, which may rejoin."""
    states.deadlines.cancel(group.group_id, Name.JOIN)
    for member in [*group.members.values()]:
        if member.awaiting_join is None and not member.is_static:
            remove_member(states, group, member)
            logger.info(
                "Group %s: member %s did not join within the rebalance timeout.", group.group_id, member.member_id
            )
    if not group.members:
        return _empty_generation(group, now)
    if not group.elect_joined_leader():
        # Only static members, none of which has joined, so there is no leader. Their sessions remove them.
        _wait_for_members(states, group, now)
        return NOTHING
    return Outcome(replies=_next_generation(states, group, now))


def _empty_generation(group: ClassicGroup, now: Now) -> Outcome:
    def refused(error: KafkaError) -> Sequence[Reply]:
        # The group is empty nevertheless. A restart restores the last generation, whose sessions then expire.
        group.generation_id += 1
        group.protocol_name = None
        group.note_subscriptions()
        group.is_initial_rebalance = False
        group.move_to(ClassicGroupState.EMPTY, now)
        return ()

    return Outcome(records=[empty_generation_record(group, now)], refused=refused)


def _next_generation(states: GroupStates, group: ClassicGroup, now: Now) -> list[Reply]:
    group.generation_id += 1
    group.protocol_name = group.select_protocol()
    group.note_subscriptions()
    group.is_initial_rebalance = False
    group.move_to(ClassicGroupState.COMPLETING_REBALANCE, now)
    replies = []
    for member in group.members.values():
        caller = group.set_awaiting_join(member, None)
        if caller is not None:
            replies.append(joined(group, member, caller))
        member.is_new = False
        keep_alive(states, group, member, now)
    group.pending_sync_members.update(group.members)
    logger.info(
        "Group %s: generation %d with %d members, leader %s.",
        group.group_id, group.generation_id, len(group.members), group.leader_id,
    )  # fmt: skip
    at_ms = now.monotonic_ms + group.rebalance_timeout_ms
    action = partial(_waited_for_syncs, states, group, group.generation_id)
    states.deadlines.set(group.group_id, Name.SYNC, at_ms, action)
    return replies


def _waited_for_syncs(states: GroupStates, group: ClassicGroup, generation_id: int, now: Now) -> Outcome:
    """Remove the members that have not sent SyncGroup in time (KAFKA-9752)."""
    if generation_id != group.generation_id or not group.pending_sync_members:
        return NOTHING
    replies: list[Reply] = []
    for member_id in [*group.pending_sync_members]:
        logger.info("Group %s: member %s did not send SyncGroup in time.", group.group_id, member_id)
        replies += remove_member(states, group, group.members[member_id])
    return with_replies(replies, begin(states, group, now))


def has_synced(states: GroupStates, group: ClassicGroup, member: ClassicMember) -> None:
    """The member has sent SyncGroup."""
    group.pending_sync_members.discard(member.member_id)
    if not group.pending_sync_members:
        states.deadlines.cancel(group.group_id, Name.SYNC)


def with_replies(replies: Sequence[Reply], outcome: Outcome) -> Outcome:
    """The outcome with these replies before its own."""
    if not replies:
        return outcome
    return replace(outcome, replies=[*replies, *outcome.replies])
