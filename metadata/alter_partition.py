"""AlterPartition (56): the leader of a partition proposes the in-sync set (KIP-497). Versions 2 and 3.

The checks of a partition, in this order:

    UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION
    NOT_CONTROLLER            the leader has later epochs than this controller, which is therefore no longer active
    FENCED_LEADER_EPOCH       an earlier leader epoch
    INVALID_REQUEST           the sender is not the leader
    INVALID_UPDATE_VERSION    an earlier partition epoch: the proposal is based on an older state
    INVALID_REQUEST           the set is not part of the replicas, lacks the leader, or is not recovered
    INELIGIBLE_REPLICA        a member is not registered, fenced, shutting down, or of an earlier incarnation (KIP-903)

A proposal may complete a reassignment (KIP-455). If that moves the leadership, the answer is NEW_LEADER_ELECTED,
although the change is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..protocol.errors import ErrorCode
from ..protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    ResponsePartitionData,
    ResponseTopicData,
)
from .brokers import check_broker_epoch, elr_minimum, may_lead, unclean_election_enabled
from .outcome import Outcome, Versioned
from .partition_changes import Election, change_partition
from .records import PartitionChangeRecord
from .registrations import NO_LEADER_CHANGE, RECOVERED, RECOVERING

if TYPE_CHECKING:
    from .context import ControllerContext
    from .image import MetadataImage
    from .registrations import PartitionRegistration, TopicImage

_EPOCHS_SINCE = 3
"""The version since which each member of the set has the epoch of its broker."""
_ANY_EPOCH = -1


def alter_partition(
    image: MetadataImage, request: AlterPartitionRequest, version: int, context: ControllerContext
) -> Outcome[AlterPartitionResponse]:
    """Decide on an AlterPartitionRequest. Raises STALE_BROKER_EPOCH for an earlier incarnation of the broker."""
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    records: list[Versioned] = []
    response = AlterPartitionResponse()
    for requested in request.topics:
        result = ResponseTopicData(topic_id=requested.topic_id)
        response.topics.append(result)
        topic = image.topics_by_id.get(requested.topic_id)
        for proposal in requested.partitions:
            if topic is None:
                answer = _refused(proposal, ErrorCode.UNKNOWN_TOPIC_ID)
            else:
                answer = _decide(image, topic, proposal, request.broker_id, version, context, records)
            result.partitions.append(answer)
    return Outcome(response, records)


def _refused(proposal: PartitionData, error: ErrorCode) -> ResponsePartitionData:
    return ResponsePartitionData(partition_index=proposal.partition_index, error_code=error)


def _decide(
    image: MetadataImage,
    topic: TopicImage,
    proposal: PartitionData,
    broker_id: int,
    version: int,
    context: ControllerContext,
    records: list[Versioned],
) -> ResponsePartitionData:
    partition = topic.partitions.get(proposal.partition_index)
    if partition is None:
        return _refused(proposal, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    members = proposal.new_isr_with_epochs
    if version < _EPOCHS_SINCE:
        members = [BrokerState(broker_id=member) for member in proposal.new_isr]
    error = check_proposal(image, partition, proposal, members, broker_id)
    if error:
        return _refused(proposal, error)
    change = change_partition(
        partition,
        topic.topic_id,
        proposal.partition_index,
        may_lead=may_lead(image, partition),
        metadata_version=image.metadata_version,
        election=Election.UNCLEAN if unclean_election_enabled(image, topic.name, context) else Election.ONLINE,
        isr=tuple(member.broker_id for member in members),
        leader_recovery_state=proposal.leader_recovery_state,
        elr_minimum=elr_minimum(image, topic.name, context),
    )
    if change is not None:
        record = change.record
        assert isinstance(record, PartitionChangeRecord)
        records.append(change)
        partition = partition.merge(record)
        if record.leader not in (NO_LEADER_CHANGE, broker_id):
            return _refused(proposal, ErrorCode.NEW_LEADER_ELECTED)
    return ResponsePartitionData(
        partition_index=proposal.partition_index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        leader_recovery_state=partition.leader_recovery_state,
        partition_epoch=partition.partition_epoch,
    )


def check_proposal(
    image: MetadataImage,
    partition: PartitionRegistration,
    proposal: PartitionData,
    members: list[BrokerState],
    broker_id: int,
) -> ErrorCode:
    """The error of a proposal; NONE if it is valid."""
    if proposal.leader_epoch > partition.leader_epoch or proposal.partition_epoch > partition.partition_epoch:
        return ErrorCode.NOT_CONTROLLER
    if proposal.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if broker_id != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if proposal.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    isr = [member.broker_id for member in members]
    if len(set(isr)) != len(isr) or not set(isr) <= set(partition.replicas) or partition.leader not in isr:
        return ErrorCode.INVALID_REQUEST
    if proposal.leader_recovery_state == RECOVERING and (len(isr) > 1 or partition.leader_recovery_state == RECOVERED):
        return ErrorCode.INVALID_REQUEST
    for member in members:
        broker = image.brokers.get(member.broker_id)
        if broker is None or not broker.is_active or member.broker_epoch not in (_ANY_EPOCH, broker.epoch):
            return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE
