"""DeleteGroups (versions 0-2), one group at a time.

A group without members is deleted together with its offsets, also those of open transactions. If these are too many
for one batch, they are deleted in slices, and the group with the last slice. A partly deleted group must not be
visible: until it is deleted, requests for it get a retriable error (`check_not_being_deleted`). If the server stops in
between, the group exists with the remaining offsets; the client has got no response and retries.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from ..coordinator.outcome import Outcome
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages.delete_groups import DeletableGroupResult
from .offsets.tombstones import PAUSE_MS, Tombstones

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..coordinator.outcome import Caller, Now, Reply
    from .states import GroupStates

_DEADLINE: Final = "deletion of the group"


def delete_group(states: GroupStates, caller: Caller, group_id: str, now: Now) -> Outcome:
    """Delete the group if it has no members; the reply is a `DeletableGroupResult`."""
    group = states.groups.get(group_id)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
    if group_id in states.being_deleted:
        states.being_deleted[group_id].append(caller)
        return Outcome()
    group.check_delete()
    states.being_deleted[group_id] = [caller]
    return _delete_slice(states, group_id, now)


def check_not_being_deleted(states: GroupStates, group_id: str) -> None:
    """Raise COORDINATOR_LOAD_IN_PROGRESS, which clients retry, while a group is being deleted."""
    if group_id in states.being_deleted:
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def waiting_callers(states: GroupStates) -> Sequence[Caller]:
    """Remove and return all callers that wait for the deletion of a group."""
    callers = [caller for waiting in states.being_deleted.values() for caller in waiting]
    states.being_deleted.clear()
    return callers


def _delete_slice(states: GroupStates, group_id: str, now: Now) -> Outcome:
    tombstones = Tombstones(group_id)
    for topic, index in _offsets(states, group_id):
        if tombstones.full:
            next_ms = now.monotonic_ms + PAUSE_MS
            states.deadlines.set(group_id, _DEADLINE, next_ms, partial(_delete_slice, states, group_id))
            return Outcome(tombstones.records, refused=partial(_give_up, states, group_id))
        tombstones.add(topic, index)
    callers = states.being_deleted.pop(group_id)
    group = states.groups.get(group_id)  # it may have expired since then
    return Outcome(
        [*tombstones.records, *(group.tombstones() if group is not None else ())],
        [(caller, DeletableGroupResult(group_id=group_id)) for caller in callers],
    )


def _offsets(states: GroupStates, group_id: str) -> Iterator[tuple[str, int]]:
    offsets = states.offsets
    for topic in offsets.topics(group_id):
        for index, _ in offsets.partitions(group_id, topic):
            yield topic, index
    for topic, index in offsets.pending(group_id):
        if not offsets.has(group_id, topic, index):
            yield topic, index


def _give_up(states: GroupStates, group_id: str, error: KafkaError) -> list[Reply]:
    states.deadlines.cancel(group_id, _DEADLINE)
    return [
        (caller, DeletableGroupResult(group_id=group_id, error_code=error.code))
        for caller in states.being_deleted.pop(group_id, ())
    ]
