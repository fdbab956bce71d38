"""OffsetFetch of one group."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.coordinator.outcome import Record
from moldau.group_coordinator.offsets.store import CommittedOffset
from moldau.group_coordinator.records import OffsetCommitKey, OffsetCommitValue
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.offset_fetch import (
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)


def nothing(index: int, error: ErrorCode = ErrorCode.NONE) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=-1, committed_leader_epoch=-1, metadata="", error_code=error
    )


def pending_commit(coordinator: Any, producer_id: int, topic: str, partition: int, offset: int) -> None:
    key = OffsetCommitKey(group="group", topic=topic, partition=partition)
    coordinator.write(Record(key, OffsetCommitValue(offset=offset), 4), producer_id=producer_id)


def test_committed_and_uncommitted_partitions(coordinator: Any) -> None:
    coordinator.commit("group", {"a": {1: CommittedOffset(10, 5, "note")}})

    assert coordinator.fetch("group", {"a": [0, 1], "never": [3]}) == OffsetFetchResponseGroup(
        group_id="group",
        topics=[
            OffsetFetchResponseTopics(
                name="a",
                partitions=[
                    nothing(0),
                    OffsetFetchResponsePartitions(
                        partition_index=1, committed_offset=10, committed_leader_epoch=5, metadata="note"
                    ),
                ],
            ),
            OffsetFetchResponseTopics(name="never", partitions=[nothing(3)]),
        ],
    )


def test_all_offsets_of_a_group(coordinator: Any) -> None:
    coordinator.commit("group", {"a": {0: 1, 5: 2}, "b": {0: 3}})
    coordinator.commit("other", {"c": {0: 9}})

    assert coordinator.fetched("group") == {"a": {0: 1, 5: 2}, "b": {0: 3}}


def test_a_group_that_does_not_exist_has_no_offsets(coordinator: Any) -> None:
    assert coordinator.fetch("group") == OffsetFetchResponseGroup(group_id="group")
    assert coordinator.fetched("group", {"a": [0]}) == {"a": {0: -1}}
    # Even if the request names a member.
    assert coordinator.fetch("group", {"a": [0]}, member_id="m", member_epoch=5).error_code == 0


def test_an_offset_of_a_topic_with_another_id_is_none(coordinator: Any) -> None:
    coordinator.commit("group", {"a": {0: 7}})

    def fetch(topic_id: bytes) -> int:
        answer = coordinator.fetch("group", {"a": [0]}, topic_ids={"a": topic_id})
        assert answer.topics[0].topic_id == topic_id
        offset: int = answer.topics[0].partitions[0].committed_offset
        return offset

    assert fetch(coordinator.topics.id_of("a")) == 7
    assert fetch(b"another topic id") == -1
    assert fetch(bytes(16)) == 7


def test_an_offset_without_a_topic_id_is_that_of_the_name(coordinator: Any) -> None:
    key = OffsetCommitKey(group="group", topic="a", partition=0)
    coordinator.write(Record(key, OffsetCommitValue(offset=7), 3))

    answer = coordinator.fetch("group", {"a": [0]}, topic_ids={"a": coordinator.topics.id_of("a")})

    assert answer.topics[0].partitions[0].committed_offset == 7


def test_stable_offsets_are_not_available_while_a_transaction_is_open(coordinator: Any) -> None:
    coordinator.commit("group", {"a": {0: 1, 1: 2}})
    pending_commit(coordinator, 5, "a", 0, 100)
    pending_commit(coordinator, 5, "b", 0, 100)

    def fetched(**options: Any) -> list[OffsetFetchResponseTopics]:
        topics: list[OffsetFetchResponseTopics] = coordinator.fetch("group", **options).topics
        return topics

    unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT
    one, two = (
        OffsetFetchResponsePartitions(partition_index=index, committed_offset=offset, metadata="")
        for index, offset in ((0, 1), (1, 2))
    )
    topics = {"a": [0, 1], "b": [0]}
    assert fetched(topics=topics, require_stable=True) == [
        OffsetFetchResponseTopics(name="a", partitions=[nothing(0, unstable), two]),
        OffsetFetchResponseTopics(name="b", partitions=[nothing(0, unstable)]),
    ]
    assert fetched(topics=topics) == [
        OffsetFetchResponseTopics(name="a", partitions=[one, two]),
        OffsetFetchResponseTopics(name="b", partitions=[nothing(0)]),
    ]
    # Of all offsets, only committed ones are returned.
    assert fetched(require_stable=True) == [OffsetFetchResponseTopics(name="a", partitions=[nothing(0, unstable), two])]

    coordinator.shard.replay_end_transaction(5, committed=True)
    assert coordinator.fetched("group") == {"a": {0: 100, 1: 2}, "b": {0: 100}}
    assert all(p.error_code == 0 for topic in fetched(require_stable=True) for p in topic.partitions)


@pytest.mark.parametrize(
    ("member_id", "epoch", "error"),
    [
        (None, -1, ErrorCode.NONE),
        ("m", 3, ErrorCode.NONE),
        ("m", 2, ErrorCode.STALE_MEMBER_EPOCH),
        ("m", 4, ErrorCode.STALE_MEMBER_EPOCH),
        ("other", 3, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, 3, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_consumer_group_checks_its_members(
    coordinator: Any, member_id: str | None, epoch: int, error: ErrorCode
) -> None:
    coordinator.consumer_group("group", members={"m": ["a"]}, epoch=3)
    coordinator.commit("group", {"a": {0: 1}}, member_id="m", generation=3)

    answer = coordinator.fetch("group", {"a": [0]}, member_id=member_id, member_epoch=epoch)

    assert answer.error_code == error
    assert [p.committed_offset for topic in answer.topics for p in topic.partitions] == ([] if error else [1])


def test_offsets_of_a_classic_group_are_fetched_without_checks(coordinator: Any) -> None:
    coordinator.classic_group("group", members={"m": ["a"]})

    assert coordinator.fetch("group", {"a": [0]}, member_id="other", member_epoch=9).error_code == 0


@pytest.mark.parametrize("made_again", [True, False])
def test_an_offset_of_a_deleted_topic_is_not_committed_for_the_next_one_of_its_name(
    coordinator: Any, made_again: bool
) -> None:
    coordinator.commit("group", {"a": {0: 7}, "b": {0: 1}})
    del coordinator.topics.ids["a"]
    if made_again:
        coordinator.topics.ids["a"] = b"the next topic a"

    assert coordinator.fetched("group", {"a": [0], "b": [0]}) == {"a": {0: -1}, "b": {0: 1}}
    assert coordinator.fetched("group") == {"b": {0: 1}}
