"""TxnOffsetCommit and the markers: which offset takes effect, which members may commit, and pending offsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from moldau.coordinator.outcome import Record
from moldau.group_coordinator.offsets.store import CommittedOffset
from moldau.group_coordinator.records import OffsetCommitKey, OffsetCommitValue
from moldau.protocol.errors import ErrorCode

OK = ErrorCode.NONE
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


def stable(coordinator: Any, group_id: str = "group", topic: str = "a", partition: int = 0) -> int | ErrorCode:
    """The response for a consumer that requires stable offsets."""
    (fetched,) = coordinator.fetch(group_id, {topic: [partition]}, require_stable=True).topics
    (one,) = fetched.partitions
    return ErrorCode(one.error_code) if one.error_code else one.committed_offset


def test_the_records_are_a_batch_of_the_transaction(coordinator: Any) -> None:
    answer = coordinator.commit_in_transaction(
        "group", {"a": {0: CommittedOffset(10, 5, "note"), 1: 20}}, producer_id=7, producer_epoch=3
    )

    assert answer == {"a": {0: OK, 1: OK}}
    (batch,) = coordinator.log.batches()
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 3, -1)
    assert batch.is_transactional
    assert not batch.is_control
    now, topic_id = coordinator.now().epoch_ms, coordinator.topics.id_of("a")
    assert coordinator.log.records() == [
        Record(
            OffsetCommitKey(group="group", topic="a", partition=0),
            OffsetCommitValue(offset=10, leader_epoch=5, metadata="note", commit_timestamp=now, topic_id=topic_id),
            4,
        ),
        Record(
            OffsetCommitKey(group="group", topic="a", partition=1),
            OffsetCommitValue(offset=20, commit_timestamp=now, topic_id=topic_id),
            4,
        ),
    ]


@pytest.fixture(params=[False, True], ids=["", "restarted after each step"])
def step(request: pytest.FixtureRequest, coordinator: Any) -> Callable[[], None]:
    """To be called between the steps of a test: the state is that of the log at any time."""

    def do() -> None:
        if request.param:
            coordinator.restart()

    return do


def test_offsets_are_pending_until_the_commit_marker(coordinator: Any, step: Callable[[], None]) -> None:
    coordinator.commit("group", {"a": {0: 1, 1: 1}})
    coordinator.commit_in_transaction("group", {"a": {0: 10}, "b": {0: 20}})
    step()
    assert coordinator.fetched("group") == {"a": {0: 1, 1: 1}}
    assert (stable(coordinator), stable(coordinator, topic="b")) == (UNSTABLE, UNSTABLE)
    assert stable(coordinator, partition=1) == 1
    coordinator.end_transaction(committed=True)
    step()
    assert coordinator.fetched("group") == {"a": {0: 10, 1: 1}, "b": {0: 20}}
    assert (stable(coordinator), stable(coordinator, topic="b")) == (10, 20)


def test_offsets_are_forgotten_at_the_abort_marker(coordinator: Any, step: Callable[[], None]) -> None:
    coordinator.commit("group", {"a": {0: 1}})
    coordinator.commit_in_transaction("group", {"a": {0: 10}, "b": {0: 20}})
    step()
    coordinator.end_transaction(committed=False)
    step()
    assert coordinator.fetched("group") == {"a": {0: 1}}
    assert (stable(coordinator), stable(coordinator, topic="b")) == (1, -1)


def test_the_last_commit_of_a_transaction_wins_and_the_next_transaction_is_separate(
    coordinator: Any, step: Callable[[], None]
) -> None:
    coordinator.commit_in_transaction("group", {"a": {0: 10}})
    coordinator.commit_in_transaction("group", {"a": {0: 11}})
    step()
    coordinator.end_transaction(committed=True)
    step()
    coordinator.commit_in_transaction("group", {"a": {0: 12}})
    step()
    assert (coordinator.fetched("group"), stable(coordinator)) == ({"a": {0: 11}}, UNSTABLE)
    coordinator.end_transaction(committed=False)
    step()
    assert (coordinator.fetched("group"), stable(coordinator)) == ({"a": {0: 11}}, 11)


def test_the_later_commit_of_several_transactions_wins_in_whatever_order_they_end(
    coordinator: Any, step: Callable[[], None]
) -> None:
    for producer_id in (1, 2, 3):
        coordinator.commit_in_transaction("group", {"a": {0: producer_id * 10}}, producer_id=producer_id)
    step()
    observed = []
    for producer_id, committed in ((2, True), (1, True), (3, False)):
        coordinator.end_transaction(producer_id, committed=committed)
        step()
        observed.append((coordinator.fetched("group"), stable(coordinator)))
    assert observed == [({"a": {0: 20}}, UNSTABLE), ({"a": {0: 20}}, UNSTABLE), ({"a": {0: 20}}, 20)]


def test_a_later_commit_without_a_transaction_wins(coordinator: Any, step: Callable[[], None]) -> None:
    coordinator.commit_in_transaction("group", {"a": {0: 10}})
    coordinator.commit("group", {"a": {0: 20}})
    step()
    assert stable(coordinator) is UNSTABLE
    coordinator.end_transaction(committed=True)
    step()
    assert (coordinator.fetched("group"), stable(coordinator)) == ({"a": {0: 20}}, 20)


# -- permitted members -------------------------------------------------------------------------------------------------

UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
STALE = ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize(
    ("kind", "member_id", "generation", "error"),
    [
        ("none", "", -1, OK),
        ("none", "m", -1, OK),
        ("none", "m", 0, STALE),
        ("classic", "m", 3, OK),
        ("classic", "m", 2, STALE),
        ("classic", "m", 4, STALE),
        ("classic", "m", -1, STALE),
        ("classic", "other", 3, UNKNOWN),
        ("classic", "", 3, UNKNOWN),
        ("classic", "", -1, OK),
        ("empty classic", "m", -1, OK),
        ("empty classic", "m", 3, UNKNOWN),
        ("consumer", "m", 3, OK),
        ("consumer", "m", 2, STALE),
        ("consumer", "m", 4, STALE),
        ("consumer", "m", -1, STALE),
        ("consumer", "other", 3, UNKNOWN),
        ("consumer", "", 3, UNKNOWN),
        ("consumer", "", -1, OK),
        ("empty consumer", "m", -1, OK),
        ("empty consumer", "m", 3, UNKNOWN),
    ],
)
def test_members_commit_in_their_generation_or_epoch(
    coordinator: Any, kind: str, member_id: str, generation: int, error: ErrorCode
) -> None:
    members = {} if kind.startswith("empty") else {"m": ["a"]}
    if kind.endswith("classic"):
        coordinator.classic_group("group", members=members, generation=3)
    elif kind.endswith("consumer"):
        coordinator.consumer_group("group", members=members, epoch=3)
    written = len(coordinator.log.records())

    answer = coordinator.commit_in_transaction("group", {"a": {0: 1}}, member_id=member_id, generation=generation)

    assert answer == (error if error else {"a": {0: OK}})
    assert len(coordinator.log.records()) == written + (not error)


@pytest.mark.parametrize("version", [0, 2])
def test_clients_before_fencing_by_member_commit_whatever_the_group_does(coordinator: Any, version: int) -> None:
    """Their requests have no member fields (KIP-447)."""
    coordinator.classic_group("group", members={"m": ["a"]})

    assert coordinator.commit_in_transaction("group", {"a": {0: 1}}, version=version) == {"a": {0: OK}}
    assert coordinator.commit("group", {"a": {0: 1}}) is UNKNOWN


def test_an_instance_id_that_another_member_has_taken_over_is_fenced(coordinator: Any) -> None:
    coordinator.classic_group("group", members={"m": ["a"]}, instance_ids={"m": "i"})

    def commit(member_id: str, instance_id: str) -> Any:
        return coordinator.commit_in_transaction(
            "group", {"a": {0: 1}}, member_id=member_id, generation=3, instance_id=instance_id
        )

    assert commit("m", "i") == {"a": {0: OK}}
    assert commit("before", "i") is ErrorCode.FENCED_INSTANCE_ID
    assert commit("m", "j") is UNKNOWN


def test_an_earlier_epoch_may_commit_for_partitions_held_since_then(coordinator: Any) -> None:
    """KIP-1251: no other member can have had them in between."""
    coordinator.consumer_group("group", members={"m": ["a"]}, epoch=3)
    coordinator.assign("group", "m", {"a": {0: 1, 1: 3}}, epoch=3)

    def commit(topic: str, partition: int, epoch: int) -> Any:
        return coordinator.commit_in_transaction("group", {topic: {partition: 1}}, member_id="m", generation=epoch)

    assert commit("a", 0, 2) == {"a": {0: OK}}
    assert commit("a", 1, 2) is STALE
    assert commit("a", 2, 2) is STALE
    assert commit("no such topic", 0, 2) is STALE
    assert commit("no such topic", 0, 3) == {"no such topic": {0: OK}}


def test_one_partition_that_may_not_be_committed_rejects_all(coordinator: Any) -> None:
    coordinator.consumer_group("group", members={"m": ["a"]}, epoch=3)
    coordinator.assign("group", "m", {"a": {0: 1, 1: 3}}, epoch=3)

    assert coordinator.commit_in_transaction("group", {"a": {0: 1, 1: 1}}, member_id="m", generation=2) is STALE
    assert stable(coordinator) == -1


def test_committing_is_no_sign_of_life(coordinator: Any) -> None:
    coordinator.classic_group("group", members={"m": ["a"]}, session_timeout_ms=10_000)
    coordinator.restart()
    coordinator.advance(9_000)
    coordinator.commit_in_transaction("group", {"a": {0: 1}}, member_id="m", generation=3)
    coordinator.advance(1_500)
    assert "m" not in coordinator.states.groups["group"].members


# -- rejections --------------------------------------------------------------------------------------------------------


def test_too_large_metadata_rejects_only_its_partition(new_coordinator: Any) -> None:
    coordinator = new_coordinator(offset_metadata_max_bytes=4)
    too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
    offsets = {"a": {0: CommittedOffset(1, metadata="four"), 1: CommittedOffset(1, metadata="fives")}, "b": {0: 2}}

    assert coordinator.commit_in_transaction("group", offsets) == {"a": {0: OK, 1: too_large}, "b": {0: OK}}
    coordinator.end_transaction(committed=True)
    assert coordinator.fetched("group") == {"a": {0: 1}, "b": {0: 2}}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"producer_id": -1}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ({"producer_epoch": -1}, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_invalid_commits_are_rejected(coordinator: Any, change: dict[str, Any], error: ErrorCode) -> None:
    assert coordinator.commit_in_transaction(**{"group_id": "group", "offsets": {"a": {0: 1}}, **change}) is error
    assert coordinator.log.batches() == []


def test_a_rejected_append_leaves_no_pending_offset(coordinator: Any) -> None:
    coordinator.log.refuses_with = ErrorCode.INVALID_TXN_STATE
    assert coordinator.commit_in_transaction("group", {"a": {0: 1}}) is ErrorCode.INVALID_TXN_STATE
    assert (stable(coordinator), coordinator.states.groups) == (-1, {})


# -- pending offsets ---------------------------------------------------------------------------------------------------


def test_a_deleted_offset_is_not_restored_by_the_marker(coordinator: Any, step: Callable[[], None]) -> None:
    coordinator.commit("group", {"a": {1: 1}})
    coordinator.commit_in_transaction("group", {"a": {0: 10}})
    step()
    assert coordinator.delete_offsets("group", {"a": [0]}) == {"a": {0: OK}}
    assert stable(coordinator) == -1
    step()
    coordinator.end_transaction(committed=True)
    step()
    assert coordinator.fetched("group") == {"a": {1: 1}}


def test_a_deleted_group_is_not_restored_by_the_marker(coordinator: Any, step: Callable[[], None]) -> None:
    coordinator.commit("group", {"a": {0: 1}})
    coordinator.commit_in_transaction("group", {"a": {0: 10}, "b": {0: 20}})
    step()
    assert coordinator.delete_group("group").answer.error_code == 0
    step()
    coordinator.end_transaction(committed=True)
    step()
    assert (coordinator.states.groups, len(coordinator.states.offsets)) == ({}, 0)


def test_a_group_that_is_being_deleted_rejects_commits(coordinator: Any) -> None:
    coordinator.commit("group", {"a": dict.fromkeys(range(1000), 1)})
    deletion = coordinator.delete_group("group")
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert coordinator.commit_in_transaction("group", {"a": {0: 10}}) is loading
    coordinator.advance(1000)
    assert deletion.answer.error_code == 0
    assert coordinator.commit_in_transaction("group", {"a": {0: 10}}) == {"a": {0: OK}}


def test_offsets_that_a_marker_commits_during_the_deletion_of_the_group_are_deleted(coordinator: Any) -> None:
    coordinator.commit("group", {"a": dict.fromkeys(range(1000), 1)})
    coordinator.commit_in_transaction("group", {"b": {0: 10}})
    deletion = coordinator.delete_group("group")
    coordinator.end_transaction(committed=True)
    coordinator.advance(1000)
    assert deletion.answer.error_code == 0
    coordinator.restart()
    assert (coordinator.states.groups, len(coordinator.states.offsets)) == ({}, 0)


def test_a_group_of_an_aborted_transaction_expires_and_one_of_an_open_transaction_does_not(
    new_coordinator: Any, step: Callable[[], None]
) -> None:
    coordinator = new_coordinator(offsets_retention_ms=1000, offsets_retention_check_interval_ms=500)
    coordinator.commit_in_transaction("aborted", {"a": {0: 1}}, producer_id=1)
    coordinator.commit_in_transaction("open", {"a": {0: 1}}, producer_id=2)
    coordinator.end_transaction(1, committed=False)
    coordinator.advance(10_000)
    assert list(coordinator.states.groups) == ["open"]
    coordinator.end_transaction(2, committed=True)
    assert coordinator.fetched("open") == {"a": {0: 1}}
    coordinator.advance(1000)
    assert coordinator.states.groups == {}


@pytest.mark.parametrize("committed", [True, False])
def test_the_deletion_of_a_topic_keeps_the_offsets_of_the_next_topic_of_the_same_name(
    coordinator: Any, committed: bool
) -> None:
    coordinator.commit("group", {"a": {0: 1, 1: 1}})
    coordinator.topics.ids["a"] = b"the next topic a"
    coordinator.commit_in_transaction("group", {"a": {0: 10}})
    coordinator.runtime.decide("", coordinator.shard.delete_offsets_of_topics(["a"]))
    coordinator.advance(1000)
    assert not coordinator.states.offsets.has("group", "a", 1)
    coordinator.end_transaction(committed=committed)
    assert coordinator.fetched("group", {"a": [0, 1]}) == {"a": {0: 10 if committed else -1, 1: -1}}


def test_pending_offsets_of_a_deleted_topic_do_not_affect_the_next_topic_of_the_same_name(coordinator: Any) -> None:
    coordinator.commit_in_transaction("group", {"a": {0: 1}})
    coordinator.topics.ids["a"] = b"the next topic a"
    coordinator.commit("group", {"a": {0: 10}})
    coordinator.runtime.decide("", coordinator.shard.delete_offsets_of_topics(["a"]))
    coordinator.advance(1000)
    assert coordinator.fetched("group") == {"a": {0: 10}}
    coordinator.end_transaction(committed=True)
    assert coordinator.fetched("group") == {"a": {0: 10}}


def test_offsets_of_a_deleted_topic_are_deleted_while_they_are_pending(coordinator: Any) -> None:
    coordinator.commit_in_transaction("group", {"a": {0: 10}, "b": {0: 10}})
    coordinator.delete_topics("a")
    coordinator.advance(1000)
    coordinator.topics.add("a")
    coordinator.end_transaction(committed=True)
    assert coordinator.fetched("group") == {"b": {0: 10}}
