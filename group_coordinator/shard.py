"""The shard of the group coordinator: it routes, and decides nothing.

One shard holds the groups that hash to one partition of `__consumer_offsets` and their committed offsets. A request
goes to the module of its API and of its group's protocol; a record of the log to the module that keeps its kind of
state. All of them work on the same `GroupStates`.

| request | no group | classic group | consumer group |
| --- | --- | --- | --- |
| JoinGroup | classic (makes one) | classic | migration |
| SyncGroup, Heartbeat, LeaveGroup | classic (unknown member) | classic | migration |
| ConsumerGroupHeartbeat | consumer (makes one) | consumer, after an upgrade | consumer |
| (Txn)OffsetCommit, OffsetFetch, OffsetDelete | offsets | offsets, the group checks | offsets, the group checks |
| DescribeGroups | classic | classic | not found |
| ConsumerGroupDescribe | not found | not found | consumer |
| DeleteGroups, ListGroups | here | here | here |
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from typing import Any

from ..coordinator.deadlines import Action, Deadlines
from ..coordinator.outcome import Caller, Now, Outcome, Record
from ..protocol.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from ..protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ..protocol.messages.describe_groups import DescribedGroup
from ..protocol.messages.heartbeat import HeartbeatRequest
from ..protocol.messages.join_group import JoinGroupRequest
from ..protocol.messages.leave_group import LeaveGroupRequest
from ..protocol.messages.list_groups import ListedGroup
from ..protocol.messages.offset_commit import OffsetCommitRequest
from ..protocol.messages.offset_delete import OffsetDeleteRequest
from ..protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from ..protocol.messages.sync_group import SyncGroupRequest
from ..protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from . import records
from .classic import describe as classic_describe
from .classic import heartbeat as classic_heartbeat
from .classic import join_group, leave_group, sync_group
from .classic import replay as classic_replay
from .consumer import describe as consumer_describe
from .consumer import heartbeat as consumer_heartbeat
from .consumer import replay as consumer_replay
from .consumer.group import ConsumerGroup
from .delete_groups import check_not_being_deleted, delete_group, waiting_callers
from .end_session import end_session
from .list_groups import list_groups
from .migration import classic_members
from .offsets import commit, deleted_topics, expiration, txn_commit
from .offsets import delete as offset_delete
from .offsets import fetch as offset_fetch
from .offsets import replay as offset_replay
from .states import GroupStates


class GroupShard:
    """The state machine of one partition of `__consumer_offsets`; see `coordinator.runtime.Shard`."""

    def __init__(self, states: GroupStates) -> None:
        self.states = states

    @property
    def deadlines(self) -> Deadlines:
        """Of all groups."""
        return self.states.deadlines

    # -- records -------------------------------------------------------------------------------------------------------

    encode = staticmethod(records.encode_record)
    decode = staticmethod(records.decode_record)

    def replay(self, record: Record, *, producer_id: int) -> None:
        """Take a record into the state."""
        key = record.key
        if isinstance(key, records.OFFSET_KEYS):
            offset_replay.replay(self.states, record, producer_id=producer_id)
        elif isinstance(key, records.GroupMetadataKey):
            classic_replay.replay(self.states, record)
        else:
            consumer_replay.replay(self.states, record)

    def replay_end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Offsets that a transaction committed count from now on, or never."""
        offset_replay.replay_end_transaction(self.states, producer_id, committed=committed)

    # -- membership ----------------------------------------------------------------------------------------------------

    def join_group(self, caller: Caller, request: JoinGroupRequest, now: Now) -> Outcome:
        """JoinGroup."""
        check_not_being_deleted(self.states, request.group_id)
        module: Any = classic_members if self._is_consumer_group(request.group_id) else join_group
        outcome: Outcome = module.handle_join_group(self.states, caller, request, now)
        return outcome

    def sync_group(self, caller: Caller, request: SyncGroupRequest, now: Now) -> Outcome:
        """SyncGroup."""
        module: Any = classic_members if self._is_consumer_group(request.group_id) else sync_group
        outcome: Outcome = module.handle_sync_group(self.states, caller, request, now)
        return outcome

    def heartbeat(self, caller: Caller, request: HeartbeatRequest, now: Now) -> Outcome:
        """Heartbeat."""
        module: Any = classic_members if self._is_consumer_group(request.group_id) else classic_heartbeat
        outcome: Outcome = module.handle_heartbeat(self.states, caller, request, now)
        return outcome

    def leave_group(self, caller: Caller, request: LeaveGroupRequest, now: Now) -> Outcome:
        """LeaveGroup, with one entry for each member whatever the version."""
        module: Any = classic_members if self._is_consumer_group(request.group_id) else leave_group
        outcome: Outcome = module.handle_leave_group(self.states, caller, request, now)
        return outcome

    def consumer_group_heartbeat(self, caller: Caller, request: ConsumerGroupHeartbeatRequest, now: Now) -> Outcome:
        """ConsumerGroupHeartbeat."""
        check_not_being_deleted(self.states, request.group_id)
        return consumer_heartbeat.handle_consumer_group_heartbeat(self.states, caller, request, now)

    def _is_consumer_group(self, group_id: str) -> bool:
        return isinstance(self.states.groups.get(group_id), ConsumerGroup)

    # -- offsets -------------------------------------------------------------------------------------------------------

    def commit_offsets(self, caller: Caller, request: OffsetCommitRequest, now: Now) -> Outcome:
        """OffsetCommit; every topic has its name, and its id where it is known."""
        check_not_being_deleted(self.states, request.group_id)
        return commit.handle_offset_commit(self.states, caller, request, now)

    def commit_transactional_offsets(self, caller: Caller, request: TxnOffsetCommitRequest, now: Now) -> Outcome:
        """TxnOffsetCommit; that the transaction is open was verified."""
        check_not_being_deleted(self.states, request.group_id)
        return txn_commit.handle_txn_offset_commit(self.states, caller, request, now)

    def fetch_offsets(
        self, request: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> Generator[int, None, OffsetFetchResponseGroup]:
        """OffsetFetch of one group; no topics (None) means all. It yields after each partition."""
        check_not_being_deleted(self.states, request.group_id)
        return offset_fetch.fetch_offsets(self.states, request, require_stable=require_stable)

    def delete_offsets(self, caller: Caller, request: OffsetDeleteRequest, now: Now) -> Outcome:
        """OffsetDelete."""
        check_not_being_deleted(self.states, request.group_id)
        return offset_delete.handle_offset_delete(self.states, caller, request, now)

    def delete_offsets_of_topics(self, names: Sequence[str]) -> Callable[[Now], Outcome]:
        """Topics were deleted: so are their offsets, of all groups."""
        return lambda now: deleted_topics.delete_offsets_of_topics(self.states, names, now)

    # -- what people ask -----------------------------------------------------------------------------------------------

    def list_groups(self, states_filter: Collection[str], types_filter: Collection[str]) -> Iterator[list[ListedGroup]]:
        """The groups in any of these states and of any of these types, compared without case; none of either is all.
        They come some at a time, and may change in between."""
        return list_groups(self.states, states_filter, types_filter)

    def describe_group(self, group_id: str, *, api_version: int) -> DescribedGroup:
        """DescribeGroups of one group."""
        return classic_describe.describe_group(self.states, group_id, api_version=api_version)

    def describe_consumer_group(self, group_id: str) -> DescribedConsumerGroup:
        """ConsumerGroupDescribe of one group."""
        return consumer_describe.describe_consumer_group(self.states, group_id)

    def delete_group(self, caller: Caller, group_id: str, now: Now) -> Outcome:
        """DeleteGroups of one group; the answer is a `DeletableGroupResult`."""
        return delete_group(self.states, caller, group_id, now)

    # -- for tests -----------------------------------------------------------------------------------------------------

    def is_stable(self, group_id: str, members: int | None = None) -> bool:
        """Whether the group has members who all have what they were assigned: so many, if that is said."""
        group = self.states.groups.get(group_id)
        return group is not None and group.state_name == "Stable" and members in (None, len(group.members))

    def end_session(self, group_id: str, member: str) -> Action:
        """What is decided when the session of a member ends, who goes by its member id or its instance id."""
        return end_session(self.states, group_id, member)

    # -- the shell's ---------------------------------------------------------------------------------------------------

    def loaded(self, now: Now) -> Outcome:
        """Fresh deadlines for everybody."""
        classic_replay.loaded(self.states, now)
        consumer_replay.loaded(self.states, now)
        expiration.loaded(self.states, now)
        return Outcome()

    def resign(self) -> Sequence[Caller]:
        """Everybody who waits."""
        return [*classic_replay.waiting_callers(self.states), *waiting_callers(self.states)]
