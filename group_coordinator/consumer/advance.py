"""Advances one member: applies its request and moves it towards its target assignment.

    the request         -> the member's record, the expressions that it subscribes with
    the topics          -> the group epoch grows if the members, their subscriptions or the topics' metadata changed
    the group epoch     -> a target assignment, if there is none for it and the last is old enough
    the target          -> the member's next step

Each step creates records if it changes something; nothing changes before they are replayed. For a member without
changes that has reached its target, this costs a few comparisons, whatever the size of the group.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from . import as_records
from .member import Assignment, ConsumerGroupMember
from .metadata_hash import metadata_hash
from .reconciliation import OwnedPartitions, reconcile
from .regexes import drop_unused_regexes, needs_refresh, refresh, resolve_new
from .subscriptions import Subscriptions
from .target_assignment import assign, existing_topics, may_assign
from .timeouts import times_of, watch_revocation

if TYPE_CHECKING:
    from ...coordinator.outcome import Caller, Now, Record
    from ..states import GroupStates
    from .group import ConsumerGroup


def advance(
    states: GroupStates,
    caller: Caller,
    group: ConsumerGroup,
    before: ConsumerGroupMember | None,
    member: ConsumerGroupMember,
    *,
    owned: OwnedPartitions | None,
    now: Now,
    records: list[Record],
) -> ConsumerGroupMember:
    """The member after this step; adds the records of the change to ``records``.

    ``caller`` sent the request, and determines which topics match regular expressions.
    ``before`` is its previous value, None for a new member. For a static member that replaces another, ``before`` has
    the other's subscriptions; the group still contains the other one.

    Raises:
        KafkaError: FENCED_MEMBER_EPOCH, INVALID_REGULAR_EXPRESSION.
    """
    seen = group.metadata_version, group.regexes_version, group.regexes_refreshed_ms
    try:
        return _advance(states, caller, group, before, member, owned=owned, now=now, records=records)
    except Exception:
        # Nothing is written, so what was seen of the topics has to be seen again; but not what was seen before.
        group.metadata_version, group.regexes_version, group.regexes_refreshed_ms = seen
        raise


def _advance(
    states: GroupStates,
    caller: Caller,
    group: ConsumerGroup,
    before: ConsumerGroupMember | None,
    member: ConsumerGroupMember,
    *,
    owned: OwnedPartitions | None,
    now: Now,
    records: list[Record],
) -> ConsumerGroupMember:
    subscriptions = group.subscriptions
    if (
        member is before
        and member.is_reconciled_to(group.target_assignment_epoch)
        and group.target_assignment_epoch >= group.group_epoch
        and group.metadata_version == states.topics.version
        and not needs_refresh(states, group, subscriptions, now)
    ):
        return member  # as each check below would find
    names_changed = regex_changed = False
    if member is not before:
        records.append(as_records.member_record(group.group_id, member))
        names_changed = member.subscribed_topic_names != (before.subscribed_topic_names if before else frozenset())
        regex_changed = member.regex != (before.regex if before else None)
        if before is None or names_changed or regex_changed:
            subscriptions = subscriptions.copy()
            subscriptions.exchange(before, member)
    if regex_changed:
        records += drop_unused_regexes(group.group_id, subscriptions)
        if member.regex is not None and member.regex not in subscriptions.resolved:
            records += resolve_new(states, caller, group.group_id, member.regex, subscriptions, now)
    if needs_refresh(states, group, subscriptions, now):
        if subscriptions is group.subscriptions:
            subscriptions = subscriptions.copy()
        refreshed = refresh(states, caller, group, subscriptions, now)
        records += refreshed
        regex_changed = regex_changed or bool(refreshed)

    changed = names_changed or regex_changed
    group_epoch = _group_epoch(states, group, subscriptions, changed=changed, records=records)
    target_epoch, target = _target(states, group, member, subscriptions, group_epoch, now, records)
    if not changed and member.is_reconciled_to(target_epoch):
        return member
    reconciled = reconcile(
        member,
        target_epoch=target_epoch,
        target=target,
        owned=owned,
        owner_of=group.owner_of,
        subscribed=existing_topics(subscriptions.topics_of(member), states.topics),
        subscription_changed=changed,
    )
    if reconciled != member:
        records.append(as_records.current_record(group.group_id, reconciled))
        if not reconciled.uses_classic_protocol:
            watch_revocation(states, group.group_id, reconciled, now)
    return reconciled


def _group_epoch(
    states: GroupStates, group: ConsumerGroup, subscriptions: Subscriptions, *, changed: bool, records: list[Record]
) -> int:
    version = states.topics.version
    if not changed and group.metadata_version == version:
        return group.group_epoch
    group.metadata_version = version
    epoch = group.group_epoch
    new_hash = metadata_hash(subscriptions.topics(), states.topics)
    if changed or new_hash != group.metadata_hash:
        epoch += 1
        records.append(as_records.group_record(group.group_id, epoch, new_hash))
    if group.has_partition_metadata:
        records.append(as_records.partition_metadata_tombstone(group.group_id))
    return epoch


def _target(
    states: GroupStates,
    group: ConsumerGroup,
    member: ConsumerGroupMember,
    subscriptions: Subscriptions,
    group_epoch: int,
    now: Now,
    records: list[Record],
) -> tuple[int, Assignment]:
    """The epoch of the target assignment, and the member's part of it."""
    replaced = group.static_member(member.instance_id)
    current: Mapping[str, Assignment] = group.target_assignment
    if replaced is not None and replaced.member_id != member.member_id:
        current = {**current, member.member_id: group.target_of(replaced.member_id)}
    if group.target_assignment_epoch >= group_epoch or not may_assign(
        group.target_assignment_timestamp_ms, times_of(states, group.group_id).assignment_interval_ms, now.epoch_ms
    ):
        return group.target_assignment_epoch, current.get(member.member_id, {})

    members = {**group.members, member.member_id: member}
    if replaced is not None and replaced.member_id != member.member_id:
        del members[replaced.member_id]
    old = group.members.get(member.member_id) or replaced
    assignor = group.preferred_assignor(old, member)
    if assignor not in states.config.consumer_assignors:
        assignor = states.config.consumer_assignors[0]
    targets = assign(assignor, members, current, subscriptions, states.topics)
    records += [
        as_records.target_record(group.group_id, member_id, target)
        for member_id, target in targets.items()
        if group.target_assignment.get(member_id) != target
    ]
    records.append(as_records.target_epoch_record(group.group_id, group_epoch, now.epoch_ms))
    return group_epoch, targets[member.member_id]
