"""The invariants, which are checked after every step of a simulation.

* Each request has one response, within a limited time, also if the coordinator resigns.
* In a generation of a group a partition has one owner, and generations are consecutive.
* No two members of a consumer group have the same partition according to the responses of the coordinator, as long as
  both are members.
* A member that has missed at most one response is not fenced for its epoch.
* An acknowledged commit is in the log, below the high watermark, until it is replaced by a later one or deleted, or
  expires while its topic has no subscriber.
* So is a commit of a transaction. It is not visible before the transaction is committed, and does not expire before the
  transaction ends. No part of it remains if the transaction is aborted.
* The state of the shard is the state in its log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from moldau.group_coordinator.classic.group import ClassicGroup
from moldau.group_coordinator.classic.state import ClassicGroupState
from moldau.group_coordinator.consumer.group import ConsumerGroup
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from moldau.protocol.messages.delete_groups import DeleteGroupsRequest
from moldau.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from moldau.protocol.messages.offset_delete import OffsetDeleteRequest
from moldau.protocol.messages.sync_group import SyncGroupResponse
from moldau.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

from .classic_client import CONSUMER, ClassicClient, State
from .client_assignors import assignment_of
from .consumer_client import ConsumerClient, IdPartition
from .hard_state import check_against_log
from .log_model import LogModel, OffsetOf

if TYPE_CHECKING:
    from .calls import Call
    from .client import Client
    from .world import World


def _partitions(topics: list[TopicPartitions]) -> frozenset[IdPartition]:
    return frozenset((topic.topic_id, partition) for topic in topics for partition in topic.partitions)


class Invariants:
    """Observes a simulation."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.log = LogModel()
        self.unanswered: dict[Call, None] = {}
        """Delivered requests without a response."""
        self.uncertain: set[str] = set()
        """Classic groups with a rejected append since the coordinator started."""
        self._deletions: dict[Call, None] = {}
        self._unacknowledged: dict[Client, int] = {}  # heartbeats since the client last received its epoch
        self._granted: dict[Client, frozenset[IdPartition]] = {}
        """The partitions that members of consumer groups were assigned and have not revoked since, according to their
        heartbeats. A member that has revoked a partition may still take it until it receives the response."""
        self._owners: dict[tuple[str, int, int], dict[tuple[str, int], str]] = {}
        self._synced: dict[tuple[str, int], int] = {}
        self._assignments: dict[tuple[str, int, int, str], frozenset[tuple[str, int]]] = {}

    # -- requests and responses ----------------------------------------------------------------------------------------

    def delivered(self, call: Call) -> None:
        self.unanswered[call] = None
        logged = self.log.groups.get(getattr(call.request, "group_id", ""))
        call.life = logged.life if logged is not None else 0
        if isinstance(call.request, OffsetCommitRequest):
            call.is_outdated = self._is_outdated(call.request, call.request.generation_id_or_member_epoch)
        if isinstance(call.request, TxnOffsetCommitRequest):
            call.is_outdated = self._is_outdated(call.request, call.request.generation_id)
        if isinstance(call.request, ConsumerGroupHeartbeatRequest):
            self._unacknowledged[call.client] = self._unacknowledged.get(call.client, 0) + 1
            if call.request.topic_partitions is not None:
                self._granted[call.client] = self._granted_to(call) & _partitions(call.request.topic_partitions)
        if isinstance(call.request, DeleteGroupsRequest | OffsetDeleteRequest):
            self._deletions[call] = None

    def _granted_to(self, call: Call) -> frozenset[IdPartition]:
        return self._granted.get(call.client, frozenset())

    def heard(self, call: Call, response: Any) -> None:
        """The response has reached the client, which still waits for it."""
        if isinstance(response, ConsumerGroupHeartbeatResponse) and not response.error_code:
            self._unacknowledged[call.client] = 0

    def on_response(self, call: Call, response: Any) -> None:
        del self.unanswered[call]
        self._deletions.pop(call, None)
        error = getattr(response, "error_code", 0)
        assert error != ErrorCode.UNKNOWN_SERVER_ERROR, f"{call} caused an internal error"
        match response:
            case ConsumerGroupHeartbeatResponse(error_code=0):
                reported = call.request.topic_partitions or []
                given = [] if response.assignment is None else response.assignment.topic_partitions
                self._granted[call.client] = self._granted_to(call) | _partitions(reported) | _partitions(given)
            case ConsumerGroupHeartbeatResponse(error_code=ErrorCode.FENCED_MEMBER_EPOCH):
                self._granted.pop(call.client, None)
                # A member may send its current or its previous epoch.
                assert self._unacknowledged[call.client] > 2, (
                    f"{call.client} is fenced, and has missed at most one response"
                )
            case SyncGroupResponse(error_code=0):
                self._check_generation(call, response)
            case OffsetCommitResponse() | TxnOffsetCommitResponse():
                is_accepted = any(not one.error_code for topic in response.topics for one in topic.partitions)
                assert not (call.is_outdated and is_accepted), (
                    f"{call} comes from an older generation, and was accepted"
                )
                self._check_acknowledged(call.request, response)

    def _check_generation(self, call: Call, response: SyncGroupResponse) -> None:
        client, request = call.client, call.request
        if not isinstance(client, ClassicClient) or client.protocol_type != CONSUMER:
            return
        group_id, generation = request.group_id, request.generation_id
        life = call.life
        assert generation >= self._synced.get((group_id, life), 0), f"{group_id}: the generation decreased"
        self._synced[group_id, life] = generation
        owners = self._owners.setdefault((group_id, life, generation), {})
        owner = request.group_instance_id or request.member_id
        assigned = assignment_of(response.assignment)
        if not self.world.is_consumer_group(group_id) and self.log.groups[group_id].converted_at != generation:
            before = self._assignments.setdefault((group_id, life, generation, owner), assigned)
            assert assigned == before, f"{group_id}, generation {generation}: {owner} had {before}, and now {assigned}"
        for partition in assigned:
            other = owners.setdefault(partition, owner)
            assert other == owner, f"{group_id}, generation {generation}: {other} and {owner} have {partition}"

    def _is_outdated(self, request: OffsetCommitRequest | TxnOffsetCommitRequest, generation: int) -> bool:
        """Whether it belongs to an earlier generation."""
        group = self.world.coordinator.states.groups.get(request.group_id)
        if not isinstance(group, ClassicGroup) or not request.member_id or not self.world.coordinator.is_active:
            return False
        return generation < group.generation_id

    def _check_acknowledged(
        self,
        request: OffsetCommitRequest | TxnOffsetCommitRequest,
        response: OffsetCommitResponse | TxnOffsetCommitResponse,
    ) -> None:
        topics = self.world.topics
        of_producer = request.producer_id if isinstance(request, TxnOffsetCommitRequest) else -1
        accepted = {
            (topic.name or topics.name_of(topic.topic_id), partition.partition_index)  # type: ignore[union-attr]
            for topic in response.topics
            for partition in topic.partitions
            if partition.error_code == 0
        }
        for topic in request.topics:
            for partition in topic.partitions:
                if (topic.name, partition.partition_index) in accepted:
                    of = (request.group_id, topic.name, partition.partition_index)
                    written = self.log.committed_at.get((of, partition.committed_offset))
                    assert written is not None, f"{of} at {partition.committed_offset} was acknowledged, not written"
                    end_offset, producer_id = written
                    assert end_offset <= self.world.log.high_watermark, f"{of} was acknowledged before it was committed"
                    assert producer_id == of_producer, f"{of} is written for {producer_id}, not for {of_producer}"

    def check_waiting_times(self, limit_ms: int) -> None:
        """No request waits longer than this, unless the log or a restart delays it."""
        now_ms = self.world.clock.monotonic_ms
        for call in self.unanswered:
            since = max(call.delivered_ms, self.world.disrupted_until_ms)
            assert now_ms - since <= limit_ms, f"{call} has been waiting since {call.delivered_ms}"

    # -- the log -------------------------------------------------------------------------------------------------------

    def appended(self, batch: bytes) -> None:
        """A batch was appended, and is not replayed yet."""
        self.log.replay(batch)
        for of, value, was_pending in self.log.deleted:
            may_expire = not was_pending and all(one != of or not pending for one, _, pending in self.log.deleted)
            assert self._may_be_deleted(of, value, may_expire=may_expire), (
                f"{of}, committed at {value.commit_timestamp}, is deleted"
            )

    def rejected(self) -> None:
        """An append was rejected. Classic groups may have changed nevertheless, until a restart."""
        groups = self.world.coordinator.states.groups
        self.uncertain.update(group_id for group_id, group in groups.items() if isinstance(group, ClassicGroup))

    def truncated(self) -> None:
        """The uncommitted records were removed."""
        self.log = LogModel()
        for batch in self.world.log.batches:
            self.log.replay(batch)

    def _may_be_deleted(self, of: OffsetOf, value: Any, *, may_expire: bool) -> bool:
        group_id, topic, index = of
        for call in self._deletions:
            request = call.request
            if isinstance(request, DeleteGroupsRequest) and group_id in request.groups_names:
                return True
            if isinstance(request, OffsetDeleteRequest) and request.group_id == group_id:
                partitions = [one.partition_index for one in request.topics[0].partitions]
                if topic == request.topics[0].name and index in partitions:
                    return True
        if self.world.topics.id_of(topic) != value.topic_id:
            return True  # the topic that it was committed for was deleted
        if not may_expire:
            return False
        since_ms = value.commit_timestamp
        group = self.world.coordinator.states.groups.get(group_id)
        if isinstance(group, ClassicGroup) and group.state is ClassicGroupState.EMPTY and group.protocol_type:
            # The age of a group that had members counts from its last member, also if other clients commit (KIP-211).
            since_ms = min(since_ms, group.current_state_timestamp_ms)
        expired = self.world.clock().epoch_ms - since_ms >= self.world.config.offsets_retention_ms
        return expired and not self._is_read(group_id, topic)

    def _is_read(self, group_id: str, topic: str) -> bool:
        group = self.world.coordinator.states.groups.get(group_id)
        if isinstance(group, ClassicGroup) and group.state is not ClassicGroupState.STABLE:
            return False
        return any(
            client.member_id in group.members and topic in client.topics_all_along
            for client in self.world.members_of(group_id)
            if group is not None
        )

    # -- the state -----------------------------------------------------------------------------------------------------

    def after_step(self) -> None:
        """The checks that are fast enough to run after each step."""
        world = self.world
        assert not world.coordinator.has_failed, "a record could not be replayed"
        assert not world.warnings, world.warnings
        if not world.coordinator.is_active:
            return
        for group_id, group in world.coordinator.states.groups.items():
            if isinstance(group, ConsumerGroup):
                self._check_owners(group_id, group)

    def _check_owners(self, group_id: str, group: ConsumerGroup) -> None:
        owners: dict[tuple[bytes, int], str] = {}
        for client in self.world.members_of(group_id):
            if client.member_id not in group.members:
                continue  # it was fenced, and has not received the response
            if isinstance(client, ConsumerClient):
                owned = client.owned & self._granted.get(client, frozenset())
            elif client.generation >= self.log.groups[group_id].converted_at and (
                client.synced_with_consumer_group or client.state is State.STABLE
            ):
                ids = client.topic_ids
                owned = frozenset((ids[topic], index) for topic, index in client.owned if topic in ids)
            else:
                continue
            for partition in owned:
                other = owners.setdefault(partition, client.name)
                assert other == client.name, f"{group_id}: {other} and {client} both have {partition}"

    def check_state(self) -> None:
        """Compare the whole state of the shard with the log."""
        check_against_log(self.world.coordinator.states, self.log, self.uncertain)
