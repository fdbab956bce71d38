"""The shard of the group coordinator: it only routes.

One shard holds the groups that hash to one partition of `__consumer_offsets`, and their committed offsets. A request
goes to the module of its API and its group's kind, a record of the log to the module that keeps its state. All modules
work on the same `GroupStates`.

The first five rows are `GroupKind.requests`, `also_serves` and `describe` of the kinds (`kind`, `registered_kinds`):

| request | no group | classic group | consumer group | group of another kind |
| --- | --- | --- | --- | --- |
| JoinGroup | classic (creates one) | classic | migration | INCONSISTENT_GROUP_PROTOCOL |
| SyncGroup, Heartbeat, LeaveGroup | classic (unknown member) | classic | migration | UNKNOWN_MEMBER_ID |
| ConsumerGroupHeartbeat | consumer (creates one) | consumer, after an upgrade | consumer | GROUP_ID_NOT_FOUND |
| DescribeGroups | classic (not found) | classic | not found | not found |
| ConsumerGroupDescribe | not found | not found | consumer | not found |
| (Txn)OffsetCommit, OffsetFetch, OffsetDelete | offsets | offsets, the group checks | the same | the same |
| DeleteGroups, ListGroups | `delete_groups`, `list_groups` | the same | the same | the same |
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from typing import TypeVar

from ..coordinator.deadlines import Action, Deadlines
from ..coordinator.outcome import Caller, Now, Outcome, Record
from ..protocol.messages.list_groups import ListedGroup
from ..protocol.messages.offset_commit import OffsetCommitRequest
from ..protocol.messages.offset_delete import OffsetDeleteRequest
from ..protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from ..protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from . import records
from .consumer import regexes
from .delete_groups import check_not_being_deleted, delete_group, waiting_callers
from .end_session import end_session
from .kind import GroupKind, GroupRequest
from .list_groups import list_groups
from .offsets import commit, deleted_topics, expiration, txn_commit
from .offsets import delete as offset_delete
from .offsets import fetch as offset_fetch
from .offsets import replay as offset_replay
from .states import GroupStates

D = TypeVar("D")


class GroupShard:
    """The state machine of one partition of `__consumer_offsets`; see `coordinator.runtime.Shard`."""

    def __init__(self, states: GroupStates) -> None:
        self.states = states

    @property
    def deadlines(self) -> Deadlines:
        """The deadlines of all groups."""
        return self.states.deadlines

    # -- records -------------------------------------------------------------------------------------------------------

    encode = staticmethod(records.encode_record)
    decode = staticmethod(records.decode_record)

    def replay(self, record: Record, *, producer_id: int) -> None:
        """Apply a record to the state."""
        if isinstance(record.key, records.OFFSET_KEYS):
            offset_replay.replay(self.states, record, producer_id=producer_id)
        else:
            self.states.kinds.replay(self.states, record)

    def replay_end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Apply or discard the offsets of a transaction."""
        offset_replay.replay_end_transaction(self.states, producer_id, committed=committed)

    # -- membership ----------------------------------------------------------------------------------------------------

    def serve(self, caller: Caller, request: GroupRequest, now: Now) -> Outcome:
        """A request of the protocol of a kind, such as JoinGroup. LeaveGroup has one entry for each member, whatever
        its version."""
        states = self.states
        handlers = states.kinds.handlers[type(request)]
        return handlers[type(states.groups.get(request.group_id))](states, caller, request, now)

    def regexes_to_look_up(self, group_id: str, regex: str | None, now: Now) -> list[str]:
        """The expressions that a JoinGroup or ConsumerGroupHeartbeat with this expression would look up now."""
        return regexes.to_look_up(self.states, group_id, regex, now)

    # -- offsets -------------------------------------------------------------------------------------------------------

    def commit_offsets(self, caller: Caller, request: OffsetCommitRequest, now: Now) -> Outcome:
        """OffsetCommit; every topic has its name, and its ID if known."""
        check_not_being_deleted(self.states, request.group_id)
        return commit.handle_offset_commit(self.states, caller, request, now)

    def commit_transactional_offsets(self, caller: Caller, request: TxnOffsetCommitRequest, now: Now) -> Outcome:
        """TxnOffsetCommit; the transaction was verified to be open."""
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
        """Delete the offsets of deleted topics, in all groups."""
        return lambda now: deleted_topics.delete_offsets_of_topics(self.states, names, now)

    # -- administration ------------------------------------------------------------------------------------------------

    def list_groups(self, states_filter: Collection[str], types_filter: Collection[str]) -> Iterator[list[ListedGroup]]:
        """The groups in any of these states and of any of these types, in lists of some groups; an empty filter
        matches all. Names are compared without case. Groups may change between two lists."""
        return list_groups(self.states, states_filter, types_filter)

    def describe(self, kind: GroupKind[D], group_id: str, *, api_version: int) -> D:
        """The description of one group by the API of this kind; not found if the group is of another kind."""
        return kind.describe(self.states, group_id, api_version)

    def delete_group(self, caller: Caller, group_id: str, now: Now) -> Outcome:
        """DeleteGroups of one group; the reply is a `DeletableGroupResult`."""
        return delete_group(self.states, caller, group_id, now)

    # -- for tests -----------------------------------------------------------------------------------------------------

    def is_stable(self, group_id: str, members: int | None = None) -> bool:
        """Whether the group is stable: all members have their assignments. With ``members``, also their number."""
        group = self.states.groups.get(group_id)
        return group is not None and group.state_name == "Stable" and members in (None, len(group.members))

    def end_session(self, group_id: str, member: str) -> Action:
        """The action that ends the session of a member, which is given by its member ID or its instance ID."""
        return end_session(self.states, group_id, member)

    # -- for the runtime -----------------------------------------------------------------------------------------------

    def loaded(self, now: Now) -> Outcome:
        """Set the deadlines of all groups."""
        for kind in self.states.kinds:
            kind.loaded(self.states, now)
        expiration.loaded(self.states, now)
        return Outcome()

    def resign(self) -> Sequence[Caller]:
        """All callers that wait."""
        in_groups = [caller for kind in self.states.kinds for caller in kind.waiting_callers(self.states)]
        return [*in_groups, *waiting_callers(self.states)]
