"""DeleteGroups: a group is deleted with all its offsets, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.coordinator.outcome import Now, Record
from moldau.group_coordinator.offsets.tombstones import SLICE
from moldau.group_coordinator.records import OffsetCommitKey, OffsetCommitValue
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from moldau.protocol.messages.delete_groups import DeletableGroupResult
from moldau.protocol.messages.join_group import JoinGroupRequest

DONE = DeletableGroupResult(group_id="group")
BUSY = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def commit_many(coordinator: Any, count: int) -> None:
    for first in range(0, count, 1000):
        coordinator.commit("group", {"a": dict.fromkeys(range(first, min(first + 1000, count)), 1)})


def test_a_simple_group(coordinator: Any, records: Any) -> None:
    coordinator.commit("group", {"a": {0: 1}, "b": {0: 2}})

    assert coordinator.delete_group("group").answer == DONE
    assert coordinator.records_since(2) == [
        records.tombstone("group", "a", 0),
        records.tombstone("group", "b", 0),
        records.end_of_classic_group("group"),
    ]
    assert coordinator.states.groups == {}
    assert len(coordinator.states.offsets) == 0
    coordinator.restart()
    assert coordinator.states.groups == {}


def test_an_empty_classic_group(coordinator: Any, records: Any) -> None:
    coordinator.classic_group("group")

    assert coordinator.delete_group("group").answer == DONE
    assert coordinator.records_since(1) == [records.end_of_classic_group("group")]


def test_an_empty_consumer_group(coordinator: Any) -> None:
    coordinator.consumer_group("group")
    coordinator.commit("group", {"a": {0: 1}})

    assert coordinator.delete_group("group").answer == DONE
    assert coordinator.states.groups == {}
    coordinator.restart()
    assert (coordinator.states.groups, len(coordinator.states.offsets)) == ({}, 0)


def test_a_group_that_does_not_exist(coordinator: Any) -> None:
    assert coordinator.delete_group("group").answer is ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_a_group_with_members(coordinator: Any, kind: str) -> None:
    if kind == "classic":
        coordinator.classic_group("group", members={"m": ["a"]})
    else:
        coordinator.consumer_group("group", members={"m": ["a"]})

    assert coordinator.delete_group("group").answer is ErrorCode.NON_EMPTY_GROUP
    assert "group" in coordinator.states.groups


def test_offsets_of_open_transactions_are_deleted(coordinator: Any, records: Any) -> None:
    coordinator.commit("group", {"a": {0: 1}})
    for index in (0, 1):
        key = OffsetCommitKey(group="group", topic="a", partition=index)
        coordinator.write(Record(key, OffsetCommitValue(offset=1), 4), producer_id=5)

    assert coordinator.delete_group("group").answer == DONE
    assert coordinator.records_since(3) == [
        records.tombstone("group", "a", 0),
        records.tombstone("group", "a", 1),
        records.end_of_classic_group("group"),
    ]
    coordinator.shard.replay_end_transaction(5, committed=True)
    assert len(coordinator.states.offsets) == 0


def test_a_large_group_is_deleted_in_slices_before_the_response(coordinator: Any, records: Any) -> None:
    commit_many(coordinator, 2 * SLICE + 10)
    before, batches = len(coordinator.log.records()), len(coordinator.log.batches())

    first = coordinator.delete_group("group")
    second = coordinator.delete_group("group")
    assert (first.waits, second.waits) == (True, True)
    assert len(coordinator.records_since(before)) == SLICE
    coordinator.advance(100)

    assert (first.answer, second.answer) == (DONE, DONE)
    sizes = [batch.record_count for batch in coordinator.log.batches()[batches:]]
    assert sizes == [SLICE, SLICE, 11]
    assert coordinator.records_since(before)[-1] == records.end_of_classic_group("group")
    assert coordinator.states.groups == {}
    assert coordinator.delete_group("group").answer is ErrorCode.GROUP_ID_NOT_FOUND


def test_more_offsets_than_a_batch_can_delete(coordinator: Any) -> None:
    coordinator.log.max_batch_bytes = 200_000
    name = "g" * 32_000
    for index in range(10):
        coordinator.commit(name, {"a": {index: 1}})

    client = coordinator.delete_group(name)
    coordinator.advance(100)

    assert client.answer == DeletableGroupResult(group_id=name)
    assert (coordinator.states.groups, len(coordinator.states.offsets)) == ({}, 0)


def test_a_partly_deleted_group_is_not_visible(coordinator: Any) -> None:
    commit_many(coordinator, SLICE + 1)
    client = coordinator.delete_group("group")

    def join(shard: Any, caller: Any, now: Now) -> Any:
        return shard.serve(caller, JoinGroupRequest(group_id="group"), now)

    def heartbeat(shard: Any, caller: Any, now: Now) -> Any:
        return shard.serve(caller, ConsumerGroupHeartbeatRequest(group_id="group"), now)

    assert coordinator.commit("group", {"b": {0: 1}}) is BUSY
    assert coordinator.delete_offsets("group", {"a": [0]}) is BUSY
    assert coordinator.ask("group", join).answer is BUSY
    assert coordinator.ask("group", heartbeat).answer is BUSY
    with pytest.raises(Exception, match=BUSY.name):
        coordinator.fetch("group")
    assert coordinator.commit("other", {"b": {0: 1}}) == {"b": {0: ErrorCode.NONE}}

    coordinator.advance(100)
    assert client.answer == DONE
    assert coordinator.fetched("group") == {}
    assert coordinator.commit("group", {"b": {0: 1}}) == {"b": {0: ErrorCode.NONE}}


def test_a_rejected_append_ends_the_deletion_with_its_error(coordinator: Any) -> None:
    commit_many(coordinator, SLICE + 1)
    client = coordinator.delete_group("group")
    other = coordinator.delete_group("group")
    coordinator.log.refuses_with = ErrorCode.NOT_ENOUGH_REPLICAS
    coordinator.advance(100)

    assert client.answer is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert other.answer is ErrorCode.COORDINATOR_NOT_AVAILABLE
    coordinator.log.refuses_with = None
    assert coordinator.delete_group("group").answer == DONE
    assert coordinator.states.groups == {}


def test_a_rejected_slice_ends_the_deletion_with_its_error(coordinator: Any) -> None:
    commit_many(coordinator, SLICE + 1)
    coordinator.log.refuses_with = ErrorCode.NOT_ENOUGH_REPLICAS

    assert coordinator.delete_group("group").answer == DeletableGroupResult(
        group_id="group", error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE
    )
    coordinator.advance(100)
    coordinator.log.refuses_with = None
    assert coordinator.states.offsets.count("group") == SLICE + 1
    assert coordinator.commit("group", {"a": {0: 5}}) == {"a": {0: ErrorCode.NONE}}


def test_a_waiting_deletion_fails_with_not_coordinator(coordinator: Any) -> None:
    commit_many(coordinator, SLICE + 1)
    client = coordinator.delete_group("group")

    coordinator.runtime.close()

    assert client.answer is ErrorCode.NOT_COORDINATOR


def test_a_stop_in_between_leaves_a_group_with_the_rest(coordinator: Any) -> None:
    commit_many(coordinator, SLICE + 3)
    coordinator.delete_group("group")

    coordinator.restart()

    assert coordinator.states.offsets.count("group") == 3
    assert coordinator.delete_group("group").answer == DONE
    assert (coordinator.states.groups, len(coordinator.states.offsets)) == ({}, 0)
