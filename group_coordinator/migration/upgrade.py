"""A classic group of consumers becomes a consumer group (KIP-848).

That happens when a member that speaks the consumer protocol wants to join. The members that are there stay, each with
what the leader assigned to it last, at the group's generation: that is the group epoch and every member's epoch now,
so what they have goes on to be theirs, and they hear of the change as of any rebalance.

It is refused, with GROUP_ID_NOT_FOUND, when the policy does not allow it, when the members are no consumers, and when
the group would lose something: more members than a consumer group takes, metadata that cannot be read, and data of a
custom assignor in an assignment, which only that assignor could make again.

    records    tombstone of the classic group
               for each member: who it is
               the group's epoch
               for each member: what it shall have
               the epoch of these
               for each member: what it has
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode, KafkaError, MalformedMessage
from ..classic.record import group_tombstone
from ..classic.state import ClassicGroupState
from ..consumer import as_records
from ..consumer.group import ConsumerGroup
from ..consumer.member import ConsumerGroupMember
from ..consumer.metadata_hash import metadata_hash
from ..records import ClassicMemberMetadata, ClassicProtocol
from .consumer_protocol import read_assignment, read_subscription, with_topic_ids

if TYPE_CHECKING:
    from ...coordinator.outcome import Record
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


def upgrade(states: GroupStates, group: ClassicGroup) -> tuple[ConsumerGroup, list[Record]]:
    """The consumer group that a classic group with members becomes, and the records that make it so.

    It is the group as replay will make it, and none of the shard's until then: the one who causes the upgrade goes on
    with it, and adds records of its own. Nothing has changed before they are replayed.

    Raises:
        KafkaError: GROUP_ID_NOT_FOUND, as in `check_upgrade`; or the members' metadata does not allow it.
    """
    check_upgrade(states, group)
    try:
        upgraded = _consumer_group(states, group)
    except MalformedMessage as error:
        raise _refusal(group, "the embedded consumer protocol is malformed.") from error
    return upgraded, [group_tombstone(group.group_id), *_records(upgraded)]


def _consumer_group(states: GroupStates, group: ClassicGroup) -> ConsumerGroup:
    consumer_group = ConsumerGroup(group.group_id, states.topics)
    consumer_group.group_epoch = consumer_group.target_assignment_epoch = group.generation_id
    # A group whose first rebalance is not through has taken no protocol yet.
    protocol_name = group.protocol_name or group.select_protocol()
    for classic_member in group.members.values():
        assigned = _assigned(states, group, classic_member)
        consumer_group.update_member(_member(group, classic_member, protocol_name, assigned))
        consumer_group.set_target(classic_member.member_id, assigned)
    if group.state is ClassicGroupState.STABLE:
        consumer_group.metadata_hash = metadata_hash(consumer_group.subscriptions.topics(), states.topics)
    # In a rebalance there are members without an assignment, and partitions without a reader. While the hash is none of
    # any topics, the one who causes the upgrade makes the next epoch with an assignment for all of them.
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


def _records(group: ConsumerGroup) -> list[Record]:
    group_id = group.group_id
    return [
        *(as_records.member_record(group_id, member) for member in group.members.values()),
        as_records.group_record(group_id, group.group_epoch, group.metadata_hash),
        *(as_records.target_record(group_id, one, group.target_of(one)) for one in group.members),
        as_records.target_epoch_record(group_id, group.target_assignment_epoch, group.target_assignment_timestamp_ms),
        *(as_records.current_record(group_id, member) for member in group.members.values()),
    ]


def _refusal(group: ClassicGroup, reason: str) -> KafkaError:
    message = f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}"
    logger.info("%s", message)
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, message)
