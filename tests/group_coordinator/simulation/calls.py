"""A request and its response in transit, both encoded in the version that the client uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from moldau.protocol.codec import decode, encode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from moldau.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.join_group import JoinGroupRequest
from moldau.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from moldau.protocol.messages.offset_commit import OffsetCommitRequest
from moldau.protocol.messages.offset_delete import OffsetDeleteRequest
from moldau.protocol.messages.sync_group import SyncGroupRequest
from moldau.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from moldau.protocol.steps import completed
from moldau.server.handlers import group_admin, group_members, group_offsets

if TYPE_CHECKING:
    from .client import Client


def _failed_txn_offset_commit(request: TxnOffsetCommitRequest, error: KafkaError) -> TxnOffsetCommitResponse:
    def rejected(partition_index: int) -> TxnOffsetCommitResponsePartition:
        return TxnOffsetCommitResponsePartition(partition_index=partition_index, error_code=error.code)

    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name, partitions=[rejected(partition.partition_index) for partition in topic.partitions]
            )
            for topic in request.topics
        ]
    )


# The server's responses if the coordinator raises an error. The response to JoinGroup depends on the version.
_FAILED: dict[type, Callable[[Any, KafkaError], Any]] = {
    SyncGroupRequest: group_members.failed_sync_group,
    HeartbeatRequest: group_members.failed_heartbeat,
    LeaveGroupRequest: group_members.failed_leave_group,
    ConsumerGroupHeartbeatRequest: group_members.failed_consumer_group_heartbeat,
    OffsetCommitRequest: lambda request, error: completed(group_offsets.failed_offset_commit(request, error)),
    TxnOffsetCommitRequest: _failed_txn_offset_commit,
    OffsetDeleteRequest: group_offsets.failed_offset_delete,
    DeleteGroupsRequest: lambda request, error: completed(group_admin.failed_delete_groups(request, error)),
}


class Call:
    """One request of one client; see `coordinator.outcome.Caller`."""

    principal = "User:ANONYMOUS"
    listener_name = "PLAINTEXT"
    client_host = "/127.0.0.1"

    def __init__(
        self,
        client: Client,
        slot: str,
        request: Any,
        api_version: int,
        on_response: Callable[[Call, Any], None],
    ) -> None:
        self.client = client
        self.slot = slot
        self.sent = request
        """The request as the client created it."""
        self.request = _received(request, api_version)
        """The request as the server decodes it."""
        self.api_version = api_version
        self.delivered_ms = 0
        self.life = 0
        """The `LoggedGroup.life` of its group at delivery."""
        self.topic_ids: dict[str, bytes] = {}
        """The IDs of the topics at the time of the response, to which the names in the response refer."""
        self.is_outdated = False
        """Whether it is a commit of an earlier generation than the one at delivery."""
        self.replies = 0
        self._on_response = on_response

    @property
    def client_id(self) -> str:
        return self.client.name

    def repeated(self) -> Call:
        """The same request, sent again after the connection was lost before the response."""
        return Call(self.client, self.slot, self.sent, self.api_version, self._on_response)

    def reply(self, response: Any) -> None:
        self.replies += 1
        assert self.replies == 1, f"{self} has two responses"
        response = _complete_response(response, self.api_version)
        self._on_response(self, decode(type(response), encode(response, self.api_version), self.api_version))

    def fail(self, error: KafkaError) -> None:
        if isinstance(self.request, JoinGroupRequest):
            self.reply(group_members.failed_join_group_in(self.api_version)(self.request, error))
        else:
            self.reply(_FAILED[type(self.request)](self.request, error))

    def __str__(self) -> str:
        return f"{type(self.request).__name__} of {self.client.name}"


def _received(request: Any, api_version: int) -> Any:
    received = decode(type(request), encode(request, api_version), api_version)
    if isinstance(received, LeaveGroupRequest) and api_version < 3:
        received.members = [MemberIdentity(member_id=received.member_id)]
    return received


def _complete_response(response: Any, api_version: int) -> Any:
    if isinstance(response, DeletableGroupResult):
        return DeleteGroupsResponse(results=[response])
    if isinstance(response, LeaveGroupResponse) and api_version < 3:
        error_code = response.error_code or (response.members[0].error_code if response.members else 0)
        return LeaveGroupResponse(error_code=error_code)
    return response
