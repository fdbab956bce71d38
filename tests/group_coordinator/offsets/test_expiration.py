"""When offsets and groups are forgotten (KIP-211)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from moldau.coordinator.outcome import Record
from moldau.group_coordinator.offsets.tombstones import SLICE
from moldau.group_coordinator.records import OffsetCommitKey, OffsetCommitValue
from moldau.protocol.errors import ErrorCode

DAY = 24 * 3_600_000
CHECK = 600_000


@pytest.fixture
def coordinator(new_coordinator: Callable[..., Any]) -> Any:
    """Which keeps offsets for a day."""
    return new_coordinator(offsets_retention_ms=DAY, offsets_retention_check_interval_ms=CHECK)


def test_a_simple_group_and_its_offsets_expire_after_the_last_commit(coordinator: Any, records: Any) -> None:
    coordinator.commit("group", {"a": {0: 1}, "b": {0: 1}})
    coordinator.advance(DAY // 2)
    coordinator.commit("group", {"b": {0: 2}})

    coordinator.advance(DAY // 2 - 1)
    assert coordinator.fetched("group") == {"a": {0: 1}, "b": {0: 2}}
    coordinator.advance(CHECK)
    assert coordinator.records_since(3) == [records.tombstone("group", "a", 0)]
    coordinator.advance(DAY)
    assert coordinator.records_since(4) == [
        records.tombstone("group", "b", 0),
        records.end_of_classic_group("group"),
    ]
    assert coordinator.states.groups == {}
    coordinator.advance(DAY)
    assert len(coordinator.log.records()) == 6


def test_no_group_is_checked_before_the_check_interval(new_coordinator: Callable[..., Any]) -> None:
    coordinator = new_coordinator(offsets_retention_ms=1, offsets_retention_check_interval_ms=CHECK)
    coordinator.commit("group", {"a": {0: 1}})

    coordinator.advance(CHECK - 1)
    assert "group" in coordinator.states.groups
    coordinator.advance(1)
    assert coordinator.states.groups == {}


def test_offsets_of_an_empty_group_expire_after_its_members_left(coordinator: Any) -> None:
    coordinator.classic_group("group", members={"m": ["a"]}, generation=3)
    coordinator.commit("group", {"a": {0: 1}}, member_id="m", generation=3)
    coordinator.advance(5 * DAY)
    coordinator.classic_group("group", generation=4)

    coordinator.advance(DAY - CHECK)
    assert coordinator.fetched("group") == {"a": {0: 1}}
    coordinator.advance(2 * CHECK)
    assert coordinator.states.groups == {}


def test_offsets_of_an_empty_group_with_an_old_record_expire_after_their_commits(coordinator: Any) -> None:
    coordinator.classic_group("group", state_timestamp_ms=-1)
    coordinator.commit("group", {"a": {0: 1}})
    coordinator.advance(DAY // 2)
    coordinator.commit("group", {"a": {1: 1}})

    coordinator.advance(DAY // 2 + CHECK)
    assert coordinator.fetched("group") == {"a": {1: 1}}


@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_a_group_with_members_keeps_what_they_subscribe_to(coordinator: Any, kind: str) -> None:
    # No heartbeats are sent here; time passes only for the offsets.
    if kind == "classic":
        coordinator.classic_group("group", members={"m": ["a"]}, generation=3)
    else:
        coordinator.consumer_group("group", members={"m": ["a"]}, epoch=3)
    coordinator.commit("group", {"a": {0: 1}, "b": {0: 1}}, member_id="m", generation=3)

    coordinator.advance(DAY + CHECK)

    assert coordinator.fetched("group") == {"a": {0: 1}}
    assert "group" in coordinator.states.groups


def test_a_group_of_unknown_topics_keeps_everything_while_it_has_members(coordinator: Any) -> None:
    coordinator.classic_group("group", members={"m": []}, protocol_type="connect", generation=3)
    coordinator.commit("group", {"a": {0: 1}}, member_id="m", generation=3)

    coordinator.advance(3 * DAY)

    assert coordinator.fetched("group") == {"a": {0: 1}}


def test_an_empty_group_that_never_committed_is_deleted_by_the_next_check(coordinator: Any) -> None:
    coordinator.classic_group("classic")
    coordinator.consumer_group("consumer")
    coordinator.consumer_group("members", members={"m": ["a"]})

    coordinator.advance(CHECK)

    assert list(coordinator.states.groups) == ["members"]


def test_the_retention_of_an_old_client_s_commit_takes_precedence(coordinator: Any) -> None:
    coordinator.commit("short", {"a": {0: 1}}, version=4, retention_ms=CHECK)
    coordinator.commit("long", {"a": {0: 1}}, version=4, retention_ms=3 * DAY)

    coordinator.advance(2 * CHECK)
    assert list(coordinator.states.groups) == ["long"]
    coordinator.advance(2 * DAY)
    assert list(coordinator.states.groups) == ["long"]
    coordinator.advance(DAY)
    assert coordinator.states.groups == {}


def test_an_open_transaction_keeps_its_partitions_and_their_group(coordinator: Any) -> None:
    coordinator.commit("group", {"a": {0: 1, 1: 1}})
    key = OffsetCommitKey(group="group", topic="a", partition=0)
    value = OffsetCommitValue(offset=2, commit_timestamp=coordinator.now().epoch_ms)
    coordinator.write(Record(key, value, 4), producer_id=5)
    pending_only = OffsetCommitKey(group="pending", topic="a", partition=0)
    coordinator.write(Record(pending_only, value, 4), producer_id=5)

    coordinator.advance(DAY + CHECK)
    assert coordinator.fetched("group") == {"a": {0: 1}}
    assert "pending" in coordinator.states.groups

    coordinator.shard.replay_end_transaction(5, committed=False)
    coordinator.advance(CHECK)
    assert coordinator.states.groups == {}


def test_many_offsets_expire_in_slices(coordinator: Any) -> None:
    for first in range(0, 4000, 500):
        coordinator.commit("group", {"abc"[first % 3]: dict.fromkeys(range(first, first + 500), 1)})
    coordinator.advance(DAY // 2)
    coordinator.commit("group", {"a": {1: 2, 3999: 2}})
    before = len(coordinator.log.batches())

    coordinator.advance(DAY // 2 + CHECK)

    sizes = [batch.record_count for batch in coordinator.log.batches()[before:]]
    assert max(sizes) == SLICE
    assert sum(sizes) == 4000 - 1  # of the two new ones, one is an old partition
    assert coordinator.fetched("group") == {"a": {1: 2, 3999: 2}}
    coordinator.advance(DAY)
    assert coordinator.states.groups == {}


def test_many_groups_are_checked_in_slices(coordinator: Any) -> None:
    for number in range(3000):
        coordinator.commit(f"group-{number}", {"a": {0: 1}})
    batches = len(coordinator.log.batches())

    coordinator.advance(DAY + CHECK)

    assert coordinator.states.groups == {}
    sizes = [batch.record_count for batch in coordinator.log.batches()[batches:]]
    assert sum(sizes) == 6000
    assert max(sizes) <= 4 * SLICE


def test_the_group_of_the_empty_name_is_a_group_like_any_other(coordinator: Any) -> None:
    coordinator.commit("", {"a": {0: 1}})
    coordinator.commit("other", {"a": {0: 1}})
    coordinator.advance(DAY + CHECK)
    assert coordinator.states.groups == {}

    # And the others are looked at ever after.
    coordinator.commit("other", {"a": {0: 1}})
    coordinator.advance(DAY + CHECK)
    assert coordinator.states.groups == {}


def made_again(coordinator: Any, topic: str) -> None:
    """A topic was deleted and re-created while its offsets could not be deleted."""
    coordinator.topics.ids[topic] = f"the next {topic}".encode().ljust(16, b".")


@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_offsets_of_a_deleted_topic_are_deleted_soon_after_loading(coordinator: Any, records: Any, kind: str) -> None:
    if kind == "classic":
        coordinator.classic_group("group", members={"m": ["a", "b"]}, generation=3)
    else:
        coordinator.consumer_group("group", members={"m": ["a", "b"]}, epoch=3)
    coordinator.commit("group", {"a": {0: 1}, "b": {0: 1}, "c": {0: 1}}, member_id="m", generation=3)
    coordinator.commit("simple", {"b": {0: 1}})
    made_again(coordinator, "a")
    del coordinator.topics.ids["b"]
    before = len(coordinator.log.records())

    coordinator.restart()
    coordinator.advance(2000)

    assert sorted(coordinator.records_since(before), key=repr) == sorted(
        [
            records.tombstone("group", "a", 0),
            records.tombstone("group", "b", 0),
            records.tombstone("simple", "b", 0),
        ],
        key=repr,
    )
    # A group that is left without offsets expires in its time.
    assert "simple" in coordinator.states.groups


def test_offsets_of_a_deleted_topic_are_removed_by_the_next_check_after_a_rejection(
    coordinator: Any, records: Any
) -> None:
    coordinator.classic_group("group", members={"m": ["a"]}, generation=3)
    coordinator.commit("group", {"a": {0: 1}}, member_id="m", generation=3)
    coordinator.advance(CHECK // 2)
    made_again(coordinator, "a")
    coordinator.commit("group", {"a": {1: 5}}, member_id="m", generation=3)
    before = len(coordinator.log.records())

    coordinator.advance(CHECK)

    assert coordinator.records_since(before) == [records.tombstone("group", "a", 0)]
    assert coordinator.fetched("group") == {"a": {1: 5}}


def test_an_offset_whose_topic_id_is_not_known_is_not_of_a_deleted_topic(coordinator: Any) -> None:
    key = OffsetCommitKey(group="group", topic="gone", partition=0)
    coordinator.write(Record(key, OffsetCommitValue(offset=2, commit_timestamp=coordinator.now().epoch_ms), 4))

    coordinator.restart()
    coordinator.advance(CHECK)

    assert coordinator.fetched("group") == {"gone": {0: 2}}


def test_an_offset_that_is_pending_for_the_next_topic_of_the_name_is_kept(coordinator: Any) -> None:
    coordinator.commit("group", {"a": {0: 1}})
    made_again(coordinator, "a")
    key = OffsetCommitKey(group="group", topic="a", partition=0)
    value = OffsetCommitValue(offset=7, commit_timestamp=coordinator.now().epoch_ms)
    coordinator.write(Record(key, value, 4), producer_id=5)

    coordinator.restart()
    coordinator.advance(2000)
    coordinator.shard.replay_end_transaction(5, committed=True)

    assert coordinator.fetched("group") == {"a": {0: 7}}


def test_a_rejected_deletion_is_retried_with_the_next_check(coordinator: Any) -> None:
    for first in range(0, 8 * SLICE, SLICE):
        coordinator.commit("group", {"a": dict.fromkeys(range(first, first + SLICE), 1)})
    coordinator.advance(DAY - 1)
    coordinator.log.refuses_with = ErrorCode.KAFKA_STORAGE_ERROR
    coordinator.log.refused = 0

    coordinator.advance(CHECK)
    assert coordinator.log.refused == 1
    coordinator.advance(CHECK)
    assert coordinator.log.refused == 2

    coordinator.log.refuses_with = None
    coordinator.advance(CHECK)
    assert coordinator.states.groups == {}
