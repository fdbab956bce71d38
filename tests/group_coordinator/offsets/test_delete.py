"""OffsetDelete, and the offsets of deleted topics."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.coordinator.outcome import Record
from moldau.group_coordinator.offsets.tombstones import SLICE
from moldau.group_coordinator.records import OffsetCommitKey, OffsetCommitValue
from moldau.protocol.errors import ErrorCode

OK = ErrorCode.NONE


def largest_batch(coordinator: Any) -> int:
    """The records of the largest batch."""
    return max(int(batch.record_count) for batch in coordinator.log.batches())


def pending_commit(coordinator: Any, producer_id: int, topic: str, partition: int) -> None:
    key = OffsetCommitKey(group="group", topic=topic, partition=partition)
    coordinator.write(Record(key, OffsetCommitValue(offset=1), 4), producer_id=producer_id)


# -- OffsetDelete ------------------------------------------------------------------------------------------------------


def test_an_existing_offset_is_deleted_by_a_tombstone(coordinator: Any, records: Any) -> None:
    coordinator.commit("group", {"a": {0: 1, 1: 2}, "b": {0: 3}})

    assert coordinator.delete_offsets("group", {"a": [1, 2], "b": [0]}) == {"a": {1: OK, 2: OK}, "b": {0: OK}}
    assert coordinator.records_since(3) == [records.tombstone("group", "a", 1), records.tombstone("group", "b", 0)]
    assert coordinator.fetched("group") == {"a": {0: 1}}
    coordinator.restart()
    assert coordinator.fetched("group") == {"a": {0: 1}}


def test_a_partition_that_is_named_twice_is_deleted_once(coordinator: Any, records: Any) -> None:
    coordinator.commit("group", {"a": {0: 1}})

    assert coordinator.delete_offsets("group", {"a": [0, 0]}) == {"a": {0: OK}}
    assert coordinator.records_since(1) == [records.tombstone("group", "a", 0)]


def test_a_group_that_does_not_exist(coordinator: Any) -> None:
    assert coordinator.delete_offsets("group", {"a": [0]}) is ErrorCode.GROUP_ID_NOT_FOUND
    assert coordinator.delete_offsets("", {"a": [0]}) is ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_offsets_of_topics_that_a_member_reads_are_kept(coordinator: Any, kind: str) -> None:
    if kind == "classic":
        coordinator.classic_group("group", members={"m": ["a"]}, generation=3)
    else:
        coordinator.consumer_group("group", members={"m": ["a"]}, epoch=3)
    coordinator.commit("group", {"a": {0: 1}, "b": {0: 2}}, member_id="m", generation=3)

    assert coordinator.delete_offsets("group", {"a": [0, 1], "b": [0]}) == {
        "a": {0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, 1: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC},
        "b": {0: OK},
    }
    assert coordinator.fetched("group") == {"a": {0: 1}}


def test_a_group_whose_topics_are_not_known_keeps_all_offsets_while_it_has_members(coordinator: Any) -> None:
    coordinator.classic_group("group", members={"m": []}, protocol_type="connect")

    assert coordinator.delete_offsets("group", {"a": [0]}) is ErrorCode.NON_EMPTY_GROUP


def test_pending_offsets_are_deleted_as_well(coordinator: Any, records: Any) -> None:
    pending_commit(coordinator, 5, "a", 0)

    assert coordinator.delete_offsets("group", {"a": [0]}) == {"a": {0: OK}}
    assert coordinator.records_since(1) == [records.tombstone("group", "a", 0)]
    coordinator.shard.replay_end_transaction(5, committed=True)
    assert coordinator.fetched("group") == {}


# -- deleted topics ----------------------------------------------------------------------------------------------------


def test_offsets_of_a_deleted_topic_are_removed_in_every_group(coordinator: Any, records: Any) -> None:
    coordinator.classic_group("members", members={"m": ["a"]}, generation=3)
    coordinator.commit("members", {"a": {0: 1}, "b": {0: 2}}, member_id="m", generation=3)
    coordinator.commit("simple", {"a": {3: 1}})
    coordinator.commit("other", {"b": {0: 1}})
    before = len(coordinator.log.records())

    coordinator.delete_topics("a")
    coordinator.advance(10)

    assert sorted(coordinator.records_since(before), key=repr) == sorted(
        [records.tombstone("members", "a", 0), records.tombstone("simple", "a", 3)], key=repr
    )
    assert coordinator.fetched("members") == {"b": {0: 2}}
    # A group without offsets stays until it expires.
    assert "simple" in coordinator.states.groups
    coordinator.advance(1000)
    assert len(coordinator.records_since(before)) == 2


def test_offsets_of_a_new_topic_with_the_old_name_stay(coordinator: Any) -> None:
    coordinator.commit("group", {"a": {0: 1}})
    coordinator.topics.ids["a"] = b"a new topic's id"
    coordinator.commit("group", {"a": {1: 2}})

    coordinator.runtime.decide("", coordinator.shard.delete_offsets_of_topics(["a"]))
    coordinator.advance(10)

    assert coordinator.fetched("group") == {"a": {1: 2}}


def test_pending_offsets_of_a_deleted_topic_are_removed(coordinator: Any) -> None:
    pending_commit(coordinator, 5, "a", 0)
    pending_commit(coordinator, 6, "a", 0)

    coordinator.delete_topics("a")
    coordinator.advance(10)
    coordinator.shard.replay_end_transaction(5, committed=True)
    coordinator.shard.replay_end_transaction(6, committed=True)

    assert coordinator.fetched("group") == {}


def test_many_offsets_of_a_deleted_topic_are_removed_in_slices(coordinator: Any) -> None:
    for first in range(0, 1000, 200):
        coordinator.commit("group", {"a": dict.fromkeys(range(first, first + 200), 1), "b": {first: 1}})
    before = len(coordinator.log.records())

    coordinator.delete_topics("a")
    coordinator.advance(1000)

    assert len(coordinator.records_since(before)) == 1000
    assert largest_batch(coordinator) == SLICE
    assert coordinator.states.offsets.count("group") == 5


def test_many_groups_with_offsets_of_a_deleted_topic_are_visited_in_slices(coordinator: Any) -> None:
    for number in range(2000):
        coordinator.commit(f"group-{number}", {"a": {0: 1}})
    batches = len(coordinator.log.batches())

    coordinator.delete_topics("a")
    assert len(coordinator.log.batches()) == batches
    coordinator.advance(1000)

    assert len(coordinator.states.offsets) == 0
    assert len(coordinator.log.records()) == 4000
    assert largest_batch(coordinator) <= 2 * SLICE


def test_offsets_of_a_deleted_topic_are_removed_in_the_group_of_the_empty_name_and_in_those_after_it(
    coordinator: Any,
) -> None:
    for number in range(2000):
        coordinator.commit("" if number == 1999 else f"group-{number}", {"a": {0: 1}})

    coordinator.delete_topics("a")
    coordinator.advance(1000)

    assert len(coordinator.states.offsets) == 0


def test_a_rejected_deletion_is_retried_later_until_it_succeeds(
    coordinator: Any,
) -> None:
    coordinator.commit("small", {"a": {0: 1}})
    coordinator.commit("large", {"a": dict.fromkeys(range(2 * SLICE), 1)})
    coordinator.log.refuses_with = ErrorCode.KAFKA_STORAGE_ERROR
    coordinator.log.refused = 0

    coordinator.delete_topics("a")
    coordinator.advance(10_000)
    assert 10 <= coordinator.log.refused <= 24
    assert len(coordinator.states.offsets) == 2 * SLICE + 1

    coordinator.log.refuses_with = None
    coordinator.advance(2000)
    assert len(coordinator.states.offsets) == 0


def test_the_deletion_of_a_topic_visits_only_groups_with_offsets_of_it(coordinator: Any) -> None:
    for number in range(1000):
        coordinator.commit(f"group-{number}", {"b": {0: 1}})
    coordinator.commit("group", {"a": {0: 1}, "b": {0: 1}})
    looked_up: list[str] = []
    coordinator.states.offsets = WatchedStore(coordinator.states.offsets, looked_up)

    coordinator.delete_topics("a")
    coordinator.advance(20)

    assert set(looked_up) == {"group"}
    assert len(coordinator.states.offsets) == 1001


def test_a_group_is_visited_once_for_many_deleted_topics(coordinator: Any) -> None:
    names = [f"topic-{number}" for number in range(100)]
    for group_id in ("one", "two"):
        coordinator.commit(group_id, {name: {0: 1} for name in names})
    batches = len(coordinator.log.batches())

    for name in names:  # one after the other, as many requests delete them
        coordinator.delete_topics(name)
    coordinator.advance(1000)

    assert len(coordinator.states.offsets) == 0
    assert len(coordinator.log.batches()) - batches <= 4


class WatchedStore:
    """A store that notes whose offsets are looked at."""

    def __init__(self, store: Any, looked_up: list[str]) -> None:
        self._store = store
        self._looked_up = looked_up

    def partitions(self, group_id: str, topic: str) -> Any:
        self._looked_up.append(group_id)
        return self._store.partitions(group_id, topic)

    def __len__(self) -> int:
        return len(self._store)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)
