"""A consumer group becomes a classic group (KIP-848).

This happens when its last member of the consumer protocol is removed, and all remaining members use the classic
protocol: they can assign among themselves. The member leaves, is fenced, or is replaced by a static member of the
classic protocol. The policy must allow the change, and `group.max.size` must allow that many members; otherwise the
group remains a consumer group with only classic members.

    records    tombstones of the consumer group
               the classic group at the group epoch, with the target assignment

The record of a classic group has one protocol for each member and no rebalance. So its soft state is set after replay:
the other protocols of the members, their sessions, and a rebalance. There is no rebalance if a static member has
replaced another and keeps its assignment, as in a classic group.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from ...coordinator.deadlines import Deadlines
from ...coordinator.outcome import Outcome
from ..classic.group import ClassicGroup
from ..classic.member import ClassicMember
from ..classic.protocols import CONSUMER_PROTOCOL_TYPE
from ..classic.rebalance import begin, keep_alive
from ..classic.state import ClassicGroupState
from .consumer_protocol import write_assignment

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ...coordinator.outcome import Now, Reply
    from ..consumer.group import ConsumerGroup
    from ..consumer.member import ConsumerGroupMember
    from ..states import GroupStates

logger = logging.getLogger(__name__)


def allows_downgrade_without(
    states: GroupStates, group: ConsumerGroup, leaving: Collection[ConsumerGroupMember]
) -> bool:
    """Whether the group becomes a classic group when these members are removed."""
    left = len(group.members) - len(leaving)
    classic_left = group.classic_members - sum(member.uses_classic_protocol for member in leaving)
    return 0 < left == classic_left and _is_allowed(states, group, left)


def allows_downgrade_by_replacing(states: GroupStates, group: ConsumerGroup, replaced: ConsumerGroupMember) -> bool:
    """Whether the group becomes a classic group when a classic member replaces this static member."""
    all_others_are_classic = group.classic_members == len(group.members) - 1 and not replaced.uses_classic_protocol
    return all_others_are_classic and _is_allowed(states, group, len(group.members))


def _is_allowed(states: GroupStates, group: ConsumerGroup, size: int) -> bool:
    if not states.config.allows_downgrade:
        logger.info("group %r remains a consumer group because online downgrade is disabled", group.group_id)
        return False
    if size > states.config.group_max_size:
        logger.info("group %r remains a consumer group because classic groups are smaller", group.group_id)
        return False
    return True


def downgrade_without(
    states: GroupStates,
    group: ConsumerGroup,
    leaving: Collection[ConsumerGroupMember],
    replies: Sequence[Reply],
    now: Now,
) -> Outcome:
    """Remove these members; the others become a classic group, which starts a rebalance."""
    gone = {member.member_id for member in leaving}
    staying = {member_id: member for member_id, member in group.members.items() if member_id not in gone}
    return _downgrade(states, group, staying, replies, now, rebalance=True)


def downgrade_by_replacing(
    states: GroupStates,
    group: ConsumerGroup,
    replaced: ConsumerGroupMember,
    joining: ConsumerGroupMember,
    replies: Sequence[Reply],
    now: Now,
    *,
    rebalance: bool,
) -> Outcome:
    """A static member of the classic protocol replaces one of the consumer protocol and gets its assignment."""
    staying = {member_id: member for member_id, member in group.members.items() if member is not replaced}
    staying[replaced.member_id] = joining
    return _downgrade(states, group, staying, replies, now, rebalance=rebalance)


def _downgrade(
    states: GroupStates,
    group: ConsumerGroup,
    members: Mapping[str, ConsumerGroupMember],
    replies: Sequence[Reply],
    now: Now,
    *,
    rebalance: bool,
) -> Outcome:
    """``members`` are the remaining members, by the member ID under which the group has their target assignment."""
    classic_group = _classic_group(states, group, members, now)
    if rebalance:
        # The partitions of the removed members have no owner. Without a leader in the record, a restart begins the
        # rebalance, too.
        classic_group.leader_id = None
    replayed = partial(_begin, states, classic_group, now, rebalance=rebalance)
    return Outcome([*group.tombstones(), *classic_group.records()], replies, replayed=replayed)


def _classic_group(
    states: GroupStates, group: ConsumerGroup, members: Mapping[str, ConsumerGroupMember], now: Now
) -> ClassicGroup:
    """The group as it will be. It is not part of the shard: replay creates that group from the record."""
    classic_group = ClassicGroup(group.group_id, Deadlines())
    for member in members.values():
        classic_group.add(_classic_member(member), CONSUMER_PROTOCOL_TYPE)
    classic_group.generation_id = group.group_epoch
    classic_group.protocol_name = name = classic_group.select_protocol()
    for target_member_id, member in members.items():
        classic_member = classic_group.members[member.member_id]
        classic_member.assignment = write_assignment(
            states.topics, group.target_of(target_member_id), classic_member.protocols[name]
        )
    classic_group.move_to(ClassicGroupState.STABLE, now)
    return classic_group


def _classic_member(member: ConsumerGroupMember) -> ClassicMember:
    metadata = member.classic_member_metadata
    assert metadata is not None
    return ClassicMember(
        member.member_id,
        member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=metadata.session_timeout_ms,
        protocols={protocol.name: protocol.metadata for protocol in metadata.supported_protocols},
    )


def _begin(states: GroupStates, downgraded: ClassicGroup, now: Now, *, rebalance: bool) -> None:
    group = states.find(downgraded.group_id, ClassicGroup)
    assert group is not None
    for member in group.members.values():
        group.set_protocols(member, downgraded.members[member.member_id].protocols)
        keep_alive(states, group, member, now)
    if rebalance:
        # No caller waits, and no member has joined yet: this only sets a deadline.
        begin(states, group, now)
