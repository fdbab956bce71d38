"""OffsetCommit: requests, with their exact responses and records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from moldau.coordinator.outcome import Record
from moldau.group_coordinator.offsets.store import CommittedOffset
from moldau.group_coordinator.records import OffsetCommitKey, OffsetCommitValue
from moldau.protocol.errors import ErrorCode

OK = ErrorCode.NONE


def test_each_partition_is_one_record_of_version_4(coordinator: Any) -> None:
    answer = coordinator.commit("group", {"a": {0: CommittedOffset(10, 5, "note"), 1: 20}, "b": {7: 30}})

    assert answer == {"a": {0: OK, 1: OK}, "b": {7: OK}}
    a, b = coordinator.topics.id_of("a"), coordinator.topics.id_of("b")
    now = coordinator.now().epoch_ms
    assert coordinator.log.records() == [
        Record(
            OffsetCommitKey(group="group", topic="a", partition=0),
            OffsetCommitValue(offset=10, leader_epoch=5, metadata="note", commit_timestamp=now, topic_id=a),
            4,
        ),
        Record(
            OffsetCommitKey(group="group", topic="a", partition=1),
            OffsetCommitValue(offset=20, commit_timestamp=now, topic_id=a),
            4,
        ),
        Record(
            OffsetCommitKey(group="group", topic="b", partition=7),
            OffsetCommitValue(offset=30, commit_timestamp=now, topic_id=b),
            4,
        ),
    ]
    assert coordinator.states.offsets.get("group", "a", 0) == CommittedOffset(10, 5, "note", now, -1, a)


def test_the_first_commit_creates_a_simple_group(coordinator: Any) -> None:
    coordinator.commit("group", {"a": {0: 1}})

    group = coordinator.states.groups["group"]
    assert (group.type, group.protocol_type, group.state_name) == ("classic", "", "Empty")
    coordinator.restart()
    assert coordinator.states.groups["group"].protocol_type == ""
    assert coordinator.fetched("group") == {"a": {0: 1}}


@pytest.mark.parametrize(("version", "error"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_a_generation_of_a_group_that_does_not_exist(coordinator: Any, version: int, error: ErrorCode) -> None:
    assert coordinator.commit("group", {"a": {0: 1}}, version=version, member_id="m", generation=0) is error
    assert coordinator.log.records() == []
    assert coordinator.states.groups == {}


def test_a_member_of_a_classic_group_commits_in_its_generation(coordinator: Any) -> None:
    coordinator.classic_group("group", members={"m": ["a"]}, generation=3)

    def commit(member_id: str, generation: int) -> Any:
        return coordinator.commit("group", {"a": {0: 1}}, member_id=member_id, generation=generation)

    assert commit("m", 3) == {"a": {0: OK}}
    assert commit("m", 2) is ErrorCode.ILLEGAL_GENERATION
    assert commit("other", 3) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit("", -1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_commit_keeps_a_classic_member_alive(coordinator: Any) -> None:
    coordinator.classic_group("group", members={"m": ["a"]}, session_timeout_ms=10_000)
    coordinator.restart()

    coordinator.advance(9_000)
    assert coordinator.commit("group", {"a": {0: 1}}, member_id="m", generation=3) == {"a": {0: OK}}
    coordinator.advance(9_000)
    assert "m" in coordinator.states.groups["group"].members
    coordinator.advance(1_500)
    assert "m" not in coordinator.states.groups["group"].members


def test_a_consumer_of_the_new_protocol_commits_in_its_epoch(coordinator: Any) -> None:
    coordinator.consumer_group("group", members={"m": ["a"]}, epoch=3)

    def commit(epoch: int, version: int = 9) -> Any:
        return coordinator.commit("group", {"a": {0: 1}, "b": {0: 1}}, member_id="m", generation=epoch, version=version)

    assert commit(3) == {"a": {0: OK}, "b": {0: OK}}
    before = len(coordinator.log.records())
    assert commit(4) is ErrorCode.STALE_MEMBER_EPOCH
    # An older epoch may commit for partitions that the member has owned since then. This one has none.
    assert commit(2) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(3, version=8) is ErrorCode.UNSUPPORTED_VERSION
    assert len(coordinator.log.records()) == before


def test_metadata_has_a_largest_length_in_utf_16_units(new_coordinator: Callable[..., Any]) -> None:
    coordinator = new_coordinator(offset_metadata_max_bytes=4)
    notes = {0: "1234", 1: "12345", 2: "\U0001f600\U0001f600", 3: "\U0001f600\U0001f600!", 4: "éééé", 5: ""}

    answer = coordinator.commit("group", {"a": {index: CommittedOffset(1, -1, note) for index, note in notes.items()}})

    too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert answer == {"a": {0: OK, 1: too_large, 2: OK, 3: too_large, 4: OK, 5: OK}}
    assert coordinator.fetched("group") == {"a": {0: 1, 2: 1, 4: 1, 5: 1}}


def test_an_empty_commit_creates_no_group(new_coordinator: Callable[..., Any]) -> None:
    coordinator = new_coordinator(offset_metadata_max_bytes=1)

    assert coordinator.commit("group", {"a": {0: CommittedOffset(1, -1, "12")}}) == {
        "a": {0: ErrorCode.OFFSET_METADATA_TOO_LARGE}
    }
    assert coordinator.states.groups == {}


def test_a_commit_with_a_retention_time_is_a_record_of_version_1(coordinator: Any) -> None:
    coordinator.commit("group", {"a": {0: CommittedOffset(1, -1, "note")}}, version=4, retention_ms=60_000)

    now = coordinator.now().epoch_ms
    assert coordinator.log.records() == [
        Record(
            OffsetCommitKey(group="group", topic="a", partition=0),
            OffsetCommitValue(offset=1, metadata="note", commit_timestamp=now, expire_timestamp=now + 60_000),
            1,
        )
    ]
    kept = coordinator.states.offsets.get("group", "a", 0)
    coordinator.restart()
    assert coordinator.states.offsets.get("group", "a", 0) == kept


@pytest.mark.parametrize("retention_ms", [0, 2**62, 2**63 - 2, 2**63 - 1])
def test_a_retention_time_of_any_length_is_kept(coordinator: Any, retention_ms: int) -> None:
    coordinator.commit("group", {"a": {0: CommittedOffset(1, -1, "")}}, version=4, retention_ms=retention_ms)
    coordinator.restart()
    kept = coordinator.states.offsets.get("group", "a", 0)
    assert kept.expire_timestamp_ms == min(coordinator.now().epoch_ms + retention_ms, 2**63 - 1)


def test_a_negative_offset_is_accepted(coordinator: Any) -> None:
    assert coordinator.commit("group", {"a": {0: -1, 1: -5}}) == {"a": {0: OK, 1: OK}}
    assert coordinator.fetched("group") == {"a": {0: -1, 1: -5}}


def test_the_empty_group_id_is_a_name_like_any_other(coordinator: Any) -> None:
    assert coordinator.commit("", {"a": {0: 1}}) == {"a": {0: OK}}
    assert coordinator.fetched("") == {"a": {0: 1}}


def test_a_rejected_append_changes_nothing(coordinator: Any) -> None:
    coordinator.log.refuses_with = ErrorCode.KAFKA_STORAGE_ERROR

    assert coordinator.commit("group", {"a": {0: 1}}) is ErrorCode.NOT_COORDINATOR
    assert coordinator.states.groups == {}
    assert len(coordinator.states.offsets) == 0
