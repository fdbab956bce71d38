"""A classic group of consumers becomes a consumer group (KIP-848).

This happens when a member of the consumer protocol joins. The existing members stay, each with its last assignment by
the leader. The group's generation becomes the group epoch and every member's epoch, so the members keep their
partitions, and learn of the change like of any rebalance.

The upgrade is rejected with GROUP_ID_NOT_FOUND if the policy does not allow it, if the members are not consumers, and
if the group would lose state: more members than the maximum size of a consumer group, metadata that cannot be parsed,
or an assignment with data of a custom assignor, which only that assignor could compute again.

A classic group without members is replaced by an empty consumer group, whatever the policy.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode, KafkaError, MalformedMessage
from ..classic.rebalance import fail_waiting_callers
from ..classic.state import ClassicGroupState
from ..consumer.group import ConsumerGroup
from ..consumer.member import ConsumerGroupMember
from ..consumer.metadata_hash import metadata_hash
from ..consumer.timeouts import start_members
from ..kind import Converted
from ..records import ClassicMemberMetadata, ClassicProtocol
from .consumer_protocol import read_assignment, read_subscription, with_topic_ids

if TYPE_CHECKING:
    from ...coordinator.outcome import Now, Reply
    from ..classic.group import ClassicGroup
    from ..classic.member import ClassicMember
    from ..consumer.member import Assignment
    from ..states import GroupStates

logger = logging.getLogger(__name__)


def check_upgrade(states: GroupStates, group: ClassicGroup) -> None:
    """Whether such a group may become a consumer group.

    Raises:
        KafkaError: GROUP_ID_NOT_FOUND.
    """
    if not states.config.allows_upgrade:
        raise _refusal(group, "online upgrade is disabled.")
    if not group.uses_consumer_protocol:
        raise _refusal(group, "the group does not use the consumer embedded protocol.")
    if len(group.members) > states.config.consumer_max_size:
        raise _refusal(group, "the group size exceeds the consumer group maximum size.")


def upgrade(states: GroupStates, group: ClassicGroup, now: Now) -> Converted[ConsumerGroup]:
    """The consumer group that a classic group becomes.

    The request that causes the upgrade continues with this group and adds its own records. Only the members' deadlines
    change before the records are replayed.

    Raises:
        KafkaError: GROUP_ID_NOT_FOUND, as in `check_upgrade`; or the members' metadata does not allow it.
    """
    if not group.members:
        return Converted(ConsumerGroup(group.group_id, states.topics), group.tombstones())
    check_upgrade(states, group)
    try:
        upgraded = _consumer_group(states, group)
    except MalformedMessage as error:
        raise _refusal(group, "the embedded consumer protocol is malformed.") from error
    start_members(states, upgraded, now)
    return Converted(upgraded, [*group.tombstones(), *upgraded.records()], partial(_release, group))


def _release(group: ClassicGroup) -> list[Reply]:
    """Callers that wait for a rebalance of the classic group must join again."""
    error = ErrorCode.REBALANCE_IN_PROGRESS
    return [reply for member in group.members.values() for reply in fail_waiting_callers(group, member, error)]


def _consumer_group(states: GroupStates, group: ClassicGroup) -> ConsumerGroup:
    consumer_group = ConsumerGroup(group.group_id, states.topics)
    consumer_group.group_epoch = consumer_group.target_assignment_epoch = group.generation_id
    # A group whose first rebalance has not ended has no protocol yet.
    protocol_name = group.protocol_name or group.select_protocol()
    for classic_member in group.members.values():
        assigned = _assigned(states, group, classic_member)
        consumer_group.update_member(_member(group, classic_member, protocol_name, assigned))
        consumer_group.set_target(classic_member.member_id, assigned)
    if group.state is ClassicGroupState.STABLE:
        consumer_group.metadata_hash = metadata_hash(consumer_group.subscriptions.topics(), states.topics)
    # During a rebalance there are members without an assignment, and partitions without a reader. The hash 0 matches no
    # topics, so the request that causes the upgrade starts the next epoch, with an assignment for all members.
    return consumer_group


def _assigned(states: GroupStates, group: ClassicGroup, member: ClassicMember) -> Assignment:
    if not member.assignment:
        return {}
    assignment = read_assignment(member.assignment)
    if assignment.user_data:
        raise _refusal(
            group,
            "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default "
            "assignor before re-attempting the upgrade.",
        )
    return with_topic_ids(states.topics, ((topic.topic, topic.partitions) for topic in assignment.assigned_partitions))


def _member(
    group: ClassicGroup, member: ClassicMember, protocol_name: str, assigned: Assignment
) -> ConsumerGroupMember:
    subscription = read_subscription(member.protocols[protocol_name])
    epoch = group.generation_id
    return ConsumerGroupMember(
        member.member_id,
        member_epoch=epoch,
        previous_member_epoch=epoch,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=frozenset(subscription.topics),
        assigned_partitions={topic_id: dict.fromkeys(partitions, epoch) for topic_id, partitions in assigned.items()},
        classic_member_metadata=ClassicMemberMetadata(
            session_timeout_ms=member.session_timeout_ms,
            supported_protocols=[
                ClassicProtocol(name=name, metadata=metadata) for name, metadata in member.protocols.items()
            ],
        ),
    )


def _refusal(group: ClassicGroup, reason: str) -> KafkaError:
    message = f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}"
    logger.info("%s", message)
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, message)
