"""DescribeTransactions and ListTransactions."""

from __future__ import annotations

from itertools import chain

import pytest

from moldau.protocol.codec import encode
from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.messages.describe_transactions import DescribeTransactionsResponse, TopicData
from moldau.protocol.messages.describe_transactions import TransactionState as DescribedTransaction
from moldau.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from moldau.protocol.messages.list_transactions import TransactionState as ListedTransaction
from moldau.transaction_coordinator.describe import unknown_states

from .harness import FIRST_PRODUCER_ID, TIMEOUT_MS, Coordinator


@pytest.fixture
def coordinator() -> Coordinator:
    """One transactional id in each state, named after it; each began a second after the one before."""
    coordinator = Coordinator()
    for name in ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"):
        producer = coordinator.begin(name)
        coordinator.advance(1000)
        if name != "Empty":
            coordinator.add(producer, ("t", 2), ("t", 0), ("s", 1), transactional_id=name)
        if name.startswith(("Prepare", "Complete")):
            coordinator.end(producer, committed=name.endswith("Commit"), transactional_id=name)
        if name.startswith("Complete"):
            coordinator.markers_written(coordinator.markers.pop())
    return coordinator


def found_by(coordinator: Coordinator, request: ListTransactionsRequest) -> list[ListedTransaction]:
    return list(chain.from_iterable(coordinator.shard.list_transactions(request, coordinator.now())))


def listed(coordinator: Coordinator, **filters: object) -> list[str]:
    found = found_by(coordinator, ListTransactionsRequest(**filters))  # type: ignore[arg-type]
    encode(ListTransactionsResponse(transaction_states=found), 2)
    return [one.transactional_id for one in found]


def test_a_transaction_is_described_with_its_partitions(coordinator: Coordinator) -> None:
    described = coordinator.shard.describe("Ongoing")

    encode(DescribeTransactionsResponse(transaction_states=[described]), 0)
    assert described == DescribedTransaction(
        transactional_id="Ongoing",
        transaction_state="Ongoing",
        transaction_timeout_ms=TIMEOUT_MS,
        transaction_start_time_ms=coordinator.transaction("Ongoing").started_ms,
        producer_id=FIRST_PRODUCER_ID + 1,
        producer_epoch=0,
        topics=[TopicData(topic="s", partitions=[1]), TopicData(topic="t", partitions=[0, 2])],
    )


def test_one_that_was_never_begun_has_no_partitions(coordinator: Coordinator) -> None:
    described = coordinator.shard.describe("Empty")

    assert (described.error_code, described.transaction_state, described.topics) == (0, "Empty", [])
    assert described.transaction_start_time_ms == -1


def test_unknown_and_empty_ids_have_different_errors(coordinator: Coordinator) -> None:
    assert coordinator.shard.describe("nobody").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert coordinator.shard.describe("nobody").transactional_id == "nobody"
    assert coordinator.shard.describe("").error_code == ErrorCode.INVALID_REQUEST


def test_all_are_listed_with_their_states(coordinator: Coordinator) -> None:
    found = found_by(coordinator, ListTransactionsRequest())

    assert len(found) == 6
    assert all(one.transaction_state == one.transactional_id for one in found)
    assert [one.producer_id for one in found] == list(range(FIRST_PRODUCER_ID, FIRST_PRODUCER_ID + 6))


def test_a_transaction_must_pass_every_filter(coordinator: Coordinator) -> None:
    assert listed(coordinator, state_filters=["Ongoing", "CompleteCommit"]) == ["Ongoing", "CompleteCommit"]
    assert listed(coordinator, producer_id_filters=[FIRST_PRODUCER_ID + 1, 7]) == ["Ongoing"]
    assert listed(coordinator, state_filters=["Empty"], producer_id_filters=[FIRST_PRODUCER_ID + 1]) == []
    assert listed(coordinator, transactional_id_pattern="Prepare.*") == ["PrepareCommit", "PrepareAbort"]
    assert listed(coordinator, transactional_id_pattern="Prepare") == []
    assert len(listed(coordinator, transactional_id_pattern="")) == 6


def test_unknown_states_match_no_transaction_and_are_reported(coordinator: Coordinator) -> None:
    assert listed(coordinator, state_filters=["ongoing"]) == []
    assert unknown_states(["ongoing", "Ongoing", "Dead", "PrepareEpochFence", ""]) == ["ongoing", ""]
    assert listed(coordinator, state_filters=["Dead"]) == []


def test_the_duration_has_to_be_exceeded(coordinator: Coordinator) -> None:
    # They began 4, 3, 2, 1 and 0 seconds ago; a transaction that was never begun counts as old.
    assert len(listed(coordinator, duration_filter=-1)) == 6
    assert listed(coordinator, duration_filter=0) == [
        "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit",
    ]  # fmt: skip
    assert listed(coordinator, duration_filter=3000) == ["Empty", "Ongoing"]
    assert listed(coordinator, duration_filter=3999) == ["Empty", "Ongoing"]
    assert listed(coordinator, duration_filter=4000) == ["Empty"]


@pytest.mark.parametrize("pattern", ["(", "[a", "*", "(?<=a)b", r"(a)\1"])
def test_an_invalid_pattern_is_rejected(coordinator: Coordinator, pattern: str) -> None:
    with pytest.raises(KafkaError) as refused:
        listed(coordinator, transactional_id_pattern=pattern)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_no_pattern_can_take_for_ever() -> None:
    coordinator = Coordinator()
    coordinator.begin("a" * 5000)

    assert listed(coordinator, transactional_id_pattern="(a*)*b") == []
