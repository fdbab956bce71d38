"""Checks of ConsumerGroupHeartbeat that do not depend on the group, and of a member's epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode, KafkaError
from .member import JOINING_EPOCH, LEAVING_EPOCH, LEAVING_STATIC_EPOCH, ConsumerGroupMember
from .reconciliation import OwnedPartitions

if TYPE_CHECKING:
    from ...protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
    from ..config import GroupConfig

# Since this version, the client creates the member ID (KIP-1082).
_MEMBER_ID_OF_CLIENT = 1


def check_request(config: GroupConfig, request: ConsumerGroupHeartbeatRequest, api_version: int) -> None:
    """Raise the first error of the request itself.

    Raises:
        KafkaError: UNSUPPORTED_VERSION, INVALID_REQUEST, UNSUPPORTED_ASSIGNOR.
    """
    epoch = request.member_epoch
    if "consumer" not in config.rebalance_protocols:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if api_version >= _MEMBER_ID_OF_CLIENT or epoch > JOINING_EPOCH or epoch == LEAVING_EPOCH:
        _check_not_empty(request.member_id, "MemberId can't be empty.")
    _check_not_empty(request.group_id, "GroupId can't be empty.")
    if request.instance_id is not None:
        _check_not_empty(request.instance_id, "InstanceId can't be empty.")
    if request.rack_id is not None:
        _check_not_empty(request.rack_id, "RackId can't be empty.")
    if epoch == JOINING_EPOCH:
        if request.rebalance_timeout_ms == -1:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise _invalid("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise _invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
    elif epoch == LEAVING_STATIC_EPOCH:
        if request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif epoch < LEAVING_STATIC_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in config.consumer_assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(config.consumer_assignors)}.",
        )


def check_member_epoch(member: ConsumerGroupMember, received: int, owned: OwnedPartitions | None) -> None:
    """Whether a member may continue with this epoch.

    The previous epoch is accepted if the member owns only assigned partitions: it has not received the last response.

    Raises:
        KafkaError: FENCED_MEMBER_EPOCH.
    """
    if received in (JOINING_EPOCH, member.member_epoch):
        return
    if received > member.member_epoch:
        raise _fenced("greater", received, member)
    if received != member.previous_member_epoch or owned is None or not _is_subset(owned, member):
        raise _fenced("smaller", received, member)


def _is_subset(owned: OwnedPartitions, member: ConsumerGroupMember) -> bool:
    assigned = member.assigned_partitions
    return all(
        topic_id in assigned and all(partition in assigned[topic_id] for partition in partitions)
        for topic_id, partitions in owned.items()
    )


def _fenced(how: str, received: int, member: ConsumerGroupMember) -> KafkaError:
    return KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {how} member epoch ({received}) than the one known by the group coordinator "
        f"({member.member_epoch}). The member must abandon all its partitions and rejoin.",
    )


def _check_not_empty(text: str, message: str) -> None:
    if not text.strip():
        raise _invalid(message)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
