"""The registration of consumer groups, whose members may also use the classic protocol (`migration`)."""

from __future__ import annotations

from typing import Final

from ...protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ...protocol.messages.heartbeat import HeartbeatRequest
from ...protocol.messages.join_group import JoinGroupRequest
from ...protocol.messages.leave_group import LeaveGroupRequest
from ...protocol.messages.sync_group import SyncGroupRequest
from ..classic.group import ClassicGroup
from ..kind import GroupKind, converts, serves
from ..migration import classic_members
from ..migration.classic_join import handle_join_group
from ..migration.upgrade import upgrade
from ..records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from .describe import describe_consumer_group
from .group import ConsumerGroup
from .heartbeat import handle_consumer_group_heartbeat
from .replay import loaded, replay

CONSUMER: Final = GroupKind(
    group_class=ConsumerGroup,
    keys=[
        ConsumerGroupMetadataKey,
        ConsumerGroupPartitionMetadataKey,
        ConsumerGroupMemberMetadataKey,
        ConsumerGroupTargetAssignmentMetadataKey,
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupCurrentMemberAssignmentKey,
        ConsumerGroupRegularExpressionKey,
    ],
    replay=replay,
    loaded=loaded,
    requests=[serves(ConsumerGroupHeartbeatRequest, handle_consumer_group_heartbeat)],
    also_serves=[
        serves(JoinGroupRequest, handle_join_group),
        serves(SyncGroupRequest, classic_members.handle_sync_group),
        serves(HeartbeatRequest, classic_members.handle_heartbeat),
        serves(LeaveGroupRequest, classic_members.handle_leave_group),
    ],
    conversions=[converts(ClassicGroup, ConsumerGroup, upgrade)],
    describe=describe_consumer_group,
)
