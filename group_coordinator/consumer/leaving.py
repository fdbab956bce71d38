"""Members that leave a consumer group, or are fenced.

If all remaining members use the classic protocol, the group may become a classic group again: `migration.downgrade`
decides and does this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...coordinator.outcome import Outcome
from . import as_records
from .member import LEAVING_STATIC_EPOCH, NONE_ASSIGNED, ConsumerGroupMember
from .metadata_hash import metadata_hash
from .regexes import drop_unused_regexes

if TYPE_CHECKING:
    from ...coordinator.outcome import Now, Record, Reply
    from ..states import GroupStates
    from .group import ConsumerGroup


def remove_members(
    states: GroupStates,
    group: ConsumerGroup,
    members: Sequence[ConsumerGroupMember],
    now: Now,
    replies: Sequence[Reply] = (),
) -> Outcome:
    """Remove the members with their assignments; the group needs a new assignment."""
    # A group without classic members, which is the usual case, cannot be downgraded.
    if group.classic_members:
        from ..migration.downgrade import allows_downgrade_without, downgrade_without

        if allows_downgrade_without(states, group, members):
            return downgrade_without(states, group, members, replies, now)

    records: list[Record] = []
    subscriptions = group.subscriptions.copy()
    for member in members:
        records += as_records.member_tombstones(group.group_id, member.member_id)
        subscriptions.exchange(member, None)
    records += drop_unused_regexes(group.group_id, subscriptions)
    new_hash = metadata_hash(subscriptions.topics(), states.topics)
    records.append(as_records.group_record(group.group_id, group.group_epoch + 1, new_hash))
    return Outcome(records, replies)


def leave_temporarily(group: ConsumerGroup, member: ConsumerGroupMember) -> list[Record]:
    """A static member leaves temporarily: until its session expires, its partitions are not assigned to other members.

    Its assignment epochs are reset, so that its replacement may commit from its first epoch on.
    """
    assigned = {topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in member.assigned_partitions.items()}
    gone = replace(
        member,
        member_epoch=LEAVING_STATIC_EPOCH,
        assigned_partitions=assigned,
        partitions_pending_revocation=NONE_ASSIGNED,
    )
    return [as_records.current_record(group.group_id, gone)]
