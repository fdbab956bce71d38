"""Moves a member from its current to its target assignment, step by step: the state machine of a member (KIP-848).

A member first revokes the partitions that are not in its target, and confirms this by omitting them from its owned
partitions. Until then it stays in its epoch, because other members must not get those partitions. Then it moves to the
epoch of the target assignment. It gets free partitions immediately, and the others when their owners have revoked them.

This is pure: the owner of a partition is an argument, and the result is the next value of the member.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from typing import assert_never

from ...protocol.errors import ErrorCode, KafkaError
from .member import AssignedPartitions, Assignment, ConsumerGroupMember, MemberState

OwnedPartitions = Mapping[bytes, frozenset[int]]
"""The partitions that a member reports as owned: topic ID -> partitions."""


def reconcile(
    member: ConsumerGroupMember,
    *,
    target_epoch: int,
    target: Assignment,
    owned: OwnedPartitions | None,
    owner_of: Callable[[bytes, int], str | None],
    subscribed: Container[bytes],
    subscription_changed: bool,
) -> ConsumerGroupMember:
    """The member's next step, or the unchanged member if it cannot advance.

    ``owned`` is None if the heartbeat did not contain it; ``subscribed`` has the IDs of the topics that the member
    subscribes to now, which may be fewer than those in the target.

    Raises:
        KafkaError: FENCED_MEMBER_EPOCH: the state of the member is unknown.
    """
    match member.state:
        case MemberState.STABLE:
            if member.member_epoch == target_epoch:
                return _drop_unsubscribed(member, owned, subscribed) if subscription_changed else member
        case MemberState.UNREVOKED_PARTITIONS:
            if _owns_any(owned, member.partitions_pending_revocation):
                return _drop_unsubscribed(member, owned, subscribed) if subscription_changed else member
        case MemberState.UNRELEASED_PARTITIONS:
            pass
        case MemberState.UNKNOWN:
            if owned is None or owned:
                raise KafkaError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The consumer group member is in a unknown state. "
                    "The member must abandon all its partitions and rejoin.",
                )
        case unreachable:
            assert_never(unreachable)
    return _next_step(member, target_epoch, target, owned, owner_of, subscribed)


def _next_step(
    member: ConsumerGroupMember,
    target_epoch: int,
    target: Assignment,
    owned: OwnedPartitions | None,
    owner_of: Callable[[bytes, int], str | None],
    subscribed: Container[bytes],
) -> ConsumerGroupMember:
    assigned: dict[bytes, dict[int, int]] = {}
    revoked: dict[bytes, dict[int, int]] = {}
    added: dict[bytes, list[int]] = {}
    unreleased = False
    pending = member.partitions_pending_revocation
    for topic_id in {**target, **member.assigned_partitions}:
        wanted = target.get(topic_id, frozenset()) if topic_id in subscribed else frozenset()
        current = member.assigned_partitions.get(topic_id, {})
        kept = {partition: epoch for partition, epoch in current.items() if partition in wanted}
        if kept:
            assigned[topic_id] = kept
        if len(kept) < len(current):
            revoked[topic_id] = {partition: epoch for partition, epoch in current.items() if partition not in wanted}
        if len(kept) == len(wanted):
            continue
        for partition in wanted:
            if partition in kept:
                continue
            # Partitions that this member itself is revoking are free for it.
            if owner_of(topic_id, partition) is None or partition in pending.get(topic_id, {}):
                added.setdefault(topic_id, []).append(partition)
            else:
                unreleased = True

    if revoked and _owns_any(owned, revoked):
        return member.at_epoch(member.member_epoch, MemberState.UNREVOKED_PARTITIONS, assigned, revoked)
    for topic_id, partitions in added.items():
        assigned.setdefault(topic_id, {}).update(dict.fromkeys(partitions, target_epoch))
    state = MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE
    return member.at_epoch(target_epoch, state, assigned)


def _drop_unsubscribed(
    member: ConsumerGroupMember, owned: OwnedPartitions | None, subscribed: Container[bytes]
) -> ConsumerGroupMember:
    """Revoke topics that the member no longer subscribes to, before there is a target without them."""
    dropped = {
        topic_id: epochs for topic_id, epochs in member.assigned_partitions.items() if topic_id not in subscribed
    }
    if not dropped:
        return member
    assigned = {topic: epochs for topic, epochs in member.assigned_partitions.items() if topic not in dropped}
    revoked = dict(member.partitions_pending_revocation)
    for topic_id, epochs in dropped.items():
        revoked[topic_id] = {**revoked.get(topic_id, {}), **epochs}
    if _owns_any(owned, revoked):
        return member.at_epoch(member.member_epoch, MemberState.UNREVOKED_PARTITIONS, assigned, revoked)
    return replace(member, previous_member_epoch=member.member_epoch, assigned_partitions=assigned)


def _owns_any(owned: OwnedPartitions | None, partitions: AssignedPartitions) -> bool:
    """Whether the member owns any of these; without a report, it owns all of them."""
    if owned is None:
        return True
    return any(partition in owned.get(topic_id, ()) for topic_id, epochs in partitions.items() for partition in epochs)
