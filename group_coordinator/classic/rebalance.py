"""How a classic group comes from one generation to the next.

    begin ──> members join ──> complete ──> the leader assigns (sync_group)
                 │                 │
                 │                 └─ nobody is left: an empty generation, which is written at once
                 └─ those who have not joined within the rebalance timeout are left behind

A rebalance that begins with an empty group waits a while for members that nobody knows of yet, as a whole application
may be starting: `group.initial.rebalance.delay.ms`, and as long again whenever another member came meanwhile, up to
the rebalance timeout.

Joining and leaving is soft state, which a restart forgets; the log has generations that have their assignments, and
empty ones.
"""

from __future__ import annotations

import enum
import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ...coordinator.outcome import NOTHING, Outcome
from ...protocol.errors import ErrorCode
from .answers import join_refused, joined, sync_refused
from .member import session_name
from .record import empty_generation_record
from .state import ClassicGroupState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...coordinator.outcome import Answer, Now
    from ...protocol.errors import KafkaError
    from ..states import GroupStates
    from .group import ClassicGroup
    from .member import ClassicMember

logger = logging.getLogger(__name__)

# A new member does not know its id before its JoinGroup is answered, so it can neither send heartbeats nor leave. If
# its client went away and came again, it would be in the rebalance twice; so each is heard for so long only.
NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000

# Of one group. Apache Kafka has no limit; a client that asks for id after id could fill the memory with them.
_PENDING_MEMBERS_MAX = 10_000


class Name(enum.Enum):
    """Of the deadlines that a group has besides its members' sessions."""

    JOIN = "classic rebalance"
    SYNC = "classic assignment"


# -- sessions ----------------------------------------------------------------------------------------------------------


def keep_alive(states: GroupStates, group: ClassicGroup, member: ClassicMember, now: Now) -> None:
    """The member has a whole session from now on."""
    set_session(states, group, member, now, member.session_timeout_ms)


def set_session(states: GroupStates, group: ClassicGroup, member: ClassicMember, now: Now, timeout_ms: int) -> None:
    """The member's session ends in so many milliseconds, unless something is heard of it."""
    at_ms = now.monotonic_ms + timeout_ms
    if not states.deadlines.move(group.group_id, member.session, at_ms):
        action = partial(_session_ended, states, group, member.member_id)
        states.deadlines.set(group.group_id, member.session, at_ms, action)


def add_pending_member(states: GroupStates, group: ClassicGroup, member_id: str, now: Now, timeout_ms: int) -> None:
    """A new member was given this id, and has so long to come again with it (KIP-394).

    The oldest is forgotten when there are very many: it gets another id if it comes after all.
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
    if member is None or member.lives_by_waiting:
        return NOTHING
    logger.info("Group %s: the session of member %s has ended.", group.group_id, member_id)
    return with_answers(remove_member(states, group, member), rebalance(states, group, now))


def remove_member(states: GroupStates, group: ClassicGroup, member: ClassicMember) -> list[Answer]:
    """Take a member out of the group. If it waits, it hears that it is none: it comes anew if it is still there."""
    answers = take_waiting(group, member, ErrorCode.UNKNOWN_MEMBER_ID, said_member_id="")
    states.deadlines.cancel(group.group_id, member.session)
    group.remove(member.member_id)
    return answers


def take_waiting(
    group: ClassicGroup, member: ClassicMember, error: ErrorCode, said_member_id: str | None = None
) -> list[Answer]:
    """Whoever waits for an answer to this member's requests hears of this error."""
    answers = []
    caller = group.set_awaiting_join(member, None)
    if caller is not None:
        answers.append(join_refused(caller, error, member.member_id if said_member_id is None else said_member_id))
    if member.awaiting_sync is not None:
        answers.append(sync_refused(member.awaiting_sync, error))
        member.awaiting_sync = None
    return answers


def release(states: GroupStates, group: ClassicGroup, error: ErrorCode) -> list[Answer]:
    """The group ceases to be a classic group: nobody waits any more, and no deadline of it comes."""
    cancel_deadlines(states, group)
    return [answer for member in group.members.values() for answer in take_waiting(group, member, error)]


def cancel_deadlines(states: GroupStates, group: ClassicGroup) -> None:
    """No deadline of the group comes any more."""
    for member in group.members.values():
        states.deadlines.cancel(group.group_id, member.session)
    for member_id in group.pending_members:
        states.deadlines.cancel(group.group_id, session_name(member_id))
    for name in Name:
        states.deadlines.cancel(group.group_id, name)


# -- a rebalance begins ------------------------------------------------------------------------------------------------


def rebalance(states: GroupStates, group: ClassicGroup, now: Now) -> Outcome:
    """Somebody came, went or wants something else: begin a rebalance, or see whether that ends the present one."""
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        return complete_if_all_joined(states, group, now)
    return begin(states, group, now)


def begin(states: GroupStates, group: ClassicGroup, now: Now) -> Outcome:
    """Begin a rebalance. Who waits for an assignment of the present generation does so in vain."""
    answers: list[Answer] = []
    if group.state is ClassicGroupState.COMPLETING_REBALANCE:
        for member in group.members.values():
            member.assignment = b""
            if member.awaiting_sync is not None:
                answers += take_waiting(group, member, ErrorCode.REBALANCE_IN_PROGRESS)
                keep_alive(states, group, member, now)
    group.pending_sync_members.clear()
    states.deadlines.cancel(group.group_id, Name.SYNC)
    group.is_initial_rebalance = group.state is ClassicGroupState.EMPTY
    group.move_to(ClassicGroupState.PREPARING_REBALANCE, now)
    if group.is_initial_rebalance:
        group.member_was_added = False
        delay_ms = states.config.group_initial_rebalance_delay_ms
        _wait_for_more(states, group, now, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
        return Outcome(answers=answers)
    if group.all_joined:
        return with_answers(answers, complete(states, group, now))
    _wait_for_members(states, group, now)
    return Outcome(answers=answers)


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
    """The next generation, unless somebody is still to come. An initial rebalance always waits for its time."""
    if group.state is ClassicGroupState.PREPARING_REBALANCE and group.all_joined and not group.is_initial_rebalance:
        return complete(states, group, now)
    return NOTHING


def complete(states: GroupStates, group: ClassicGroup, now: Now) -> Outcome:
    """End the rebalance: who has joined is in the next generation, and so are static members, who may come back."""
    states.deadlines.cancel(group.group_id, Name.JOIN)
    for member in [*group.members.values()]:
        if member.awaiting_join is None and not member.is_static:
            remove_member(states, group, member)
            logger.info("Group %s: member %s has not joined in time.", group.group_id, member.member_id)
    if not group.members:
        return _empty_generation(group, now)
    if not group.elect_joined_leader():
        # Static members alone, none of whom is here to lead. Their sessions tell when they are gone.
        _wait_for_members(states, group, now)
        return NOTHING
    return Outcome(answers=_next_generation(states, group, now))


def _empty_generation(group: ClassicGroup, now: Now) -> Outcome:
    def refused(error: KafkaError) -> Sequence[Answer]:
        # The group is empty all the same. A restart brings the last generation back, whose sessions end then.
        group.generation_id += 1
        group.protocol_name = None
        group.note_subscriptions()
        group.is_initial_rebalance = False
        group.move_to(ClassicGroupState.EMPTY, now)
        return ()

    return Outcome(records=[empty_generation_record(group, now)], refused=refused)


def _next_generation(states: GroupStates, group: ClassicGroup, now: Now) -> list[Answer]:
    group.generation_id += 1
    group.protocol_name = group.select_protocol()
    group.note_subscriptions()
    group.is_initial_rebalance = False
    group.move_to(ClassicGroupState.COMPLETING_REBALANCE, now)
    answers = []
    for member in group.members.values():
        caller = group.set_awaiting_join(member, None)
        if caller is not None:
            answers.append(joined(group, member, caller))
        member.is_new = False
        keep_alive(states, group, member, now)
    group.pending_sync_members.update(group.members)
    logger.info(
        "Group %s: generation %d of %d members, led by %s.",
        group.group_id, group.generation_id, len(group.members), group.leader_id,
    )  # fmt: skip
    at_ms = now.monotonic_ms + group.rebalance_timeout_ms
    action = partial(_waited_for_syncs, states, group, group.generation_id)
    states.deadlines.set(group.group_id, Name.SYNC, at_ms, action)
    return answers


def _waited_for_syncs(states: GroupStates, group: ClassicGroup, generation_id: int, now: Now) -> Outcome:
    """Who has not asked for its assignment by now is gone (KAFKA-9752)."""
    if generation_id != group.generation_id or not group.pending_sync_members:
        return NOTHING
    answers: list[Answer] = []
    for member_id in [*group.pending_sync_members]:
        logger.info("Group %s: member %s has not asked for its assignment.", group.group_id, member_id)
        answers += remove_member(states, group, group.members[member_id])
    return with_answers(answers, begin(states, group, now))


def has_synced(states: GroupStates, group: ClassicGroup, member: ClassicMember) -> None:
    """The member has asked for its assignment."""
    group.pending_sync_members.discard(member.member_id)
    if not group.pending_sync_members:
        states.deadlines.cancel(group.group_id, Name.SYNC)


def with_answers(answers: Sequence[Answer], outcome: Outcome) -> Outcome:
    """The outcome, and these answers before its own."""
    if not answers:
        return outcome
    return replace(outcome, answers=[*answers, *outcome.answers])
