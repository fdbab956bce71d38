"""The registration of classic groups."""

from __future__ import annotations

from typing import Final

from ...protocol.messages.heartbeat import HeartbeatRequest
from ...protocol.messages.join_group import JoinGroupRequest
from ...protocol.messages.leave_group import LeaveGroupRequest
from ...protocol.messages.sync_group import SyncGroupRequest
from ..kind import GroupKind, serves
from ..records import GroupMetadataKey
from .describe import describe_group
from .group import ClassicGroup
from .heartbeat import handle_heartbeat
from .join_group import handle_join_group
from .leave_group import handle_leave_group
from .replay import loaded, replay, waiting_callers
from .sync_group import handle_sync_group

CLASSIC: Final = GroupKind(
    group_class=ClassicGroup,
    keys=[GroupMetadataKey],
    replay=replay,
    loaded=loaded,
    waiting_callers=waiting_callers,
    requests=[
        serves(JoinGroupRequest, handle_join_group),
        serves(SyncGroupRequest, handle_sync_group),
        serves(HeartbeatRequest, handle_heartbeat),
        serves(LeaveGroupRequest, handle_leave_group),
    ],
    describe=describe_group,
)
