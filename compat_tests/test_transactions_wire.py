"""Transactions that conformance cases cannot test on any server: limits that are settings, and a transaction whose
markers cannot be written, which would remain on the server."""

from collections.abc import Callable, Iterator

import pytest

from moldau.compat_tests.transaction_server import MAX_TIMEOUT_MS
from moldau.compat_tests.transaction_wire import Producer, describe, marker, read, results, write_markers
from moldau.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTransaction
from moldau.testing import topic_requests as w
from moldau.testing.group_requests import code
from moldau.testing.topic_requests import Topic
from moldau.testing.wire import WireClient


@pytest.fixture
def wire(transaction_servers: str) -> Iterator[WireClient]:
    with WireClient(transaction_servers) as client:
        yield client


@pytest.fixture
def topic(transaction_servers: str, topic_name: Callable[[], str]) -> Topic:
    return w.create_topic(transaction_servers, topic_name(), 3)


@pytest.mark.parametrize(
    ("timeout_ms", "expected"),
    [(MAX_TIMEOUT_MS, "NONE"), (MAX_TIMEOUT_MS + 1, "INVALID_TRANSACTION_TIMEOUT")],
)
def test_the_longest_timeout_of_transactions(wire: WireClient, name: str, timeout_ms: int, expected: str) -> None:
    assert Producer(wire, name, timeout_ms=timeout_ms).init() == expected
    known = "NONE" if expected == "NONE" else "TRANSACTIONAL_ID_NOT_FOUND"
    assert code(describe(wire, name).error_code) == known


@pytest.mark.parametrize(("size", "expected"), [(1_000, "NONE"), (1_001, "OFFSET_METADATA_TOO_LARGE")])
def test_the_size_of_the_metadata(producer: Producer, topic: Topic, name: str, size: int, expected: str) -> None:
    assert producer.commit_offsets(name, topic, {0: 1}, metadata="m" * size) == {0: expected}


def stick(producer: Producer, topic: Topic, *, committed: bool = True) -> None:
    """Leave the producer's transaction in PrepareCommit or PrepareAbort: its marker cannot be written.

    The partition has a marker of a later coordinator for the same producer, and rejects those of the current one
    (TRANSACTION_COORDINATOR_FENCED).
    """
    later = marker(producer.producer_id, producer.epoch, {topic.name: [0]}, coordinator_epoch=1_000)
    assert write_markers(producer.wire, later) == {producer.producer_id: {(topic.name, 0): "NONE"}}
    producer.write(topic, b"stuck")
    duplicate = producer.duplicate()
    assert duplicate.end(committed=committed) == "NONE"
    assert producer.state == ("PrepareCommit" if committed else "PrepareAbort")


def batched(
    wire: WireClient, version: int, *transactions: AddPartitionsToTxnTransaction
) -> dict[str, dict[str, dict[int, str]]]:
    """AddPartitionsToTxn as brokers send it: the results by transactional id."""
    answer = wire.call(AddPartitionsToTxnRequest(transactions=list(transactions)), version)
    assert answer.error_code == 0, code(answer.error_code)
    return {each.transactional_id: results(each.topic_results) for each in answer.results_by_transaction}


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
def test_until_the_markers_are_written(producer: Producer, topic: Topic, committed: bool) -> None:
    """The decision is final, and other requests have to wait."""
    wire = producer.wire
    stick(producer, topic, committed=committed)
    after = producer.duplicate()
    after.epoch += 1
    # The coordinator has the epoch of the next transaction already.
    for version in range(4):
        assert after.add(topic, 1, version=version) == {1: "CONCURRENT_TRANSACTIONS"}
    for version in range(5):
        assert after.add_offsets("group", version) == "CONCURRENT_TRANSACTIONS"
    for version in range(6):
        assert after.init(version, resume=version >= 3) == "CONCURRENT_TRANSACTIONS"
    for end in (committed, not committed):
        assert producer.end(committed=end) == "CONCURRENT_TRANSACTIONS"
    for version in (3, 10, 11):
        assert after.send(topic, after.batch(b"-"), partition=1, version=version) == "NOT_ENOUGH_REPLICAS"
    assert after.send(topic, after.batch(b"-"), partition=1, version=12) == "CONCURRENT_TRANSACTIONS"
    requested = after.as_transaction({topic.name: [0, 1]}, verify_only=True)
    assert batched(wire, 5, requested) == {
        after.transactional_id: {topic.name: dict.fromkeys((0, 1), "CONCURRENT_TRANSACTIONS")}
    }
    # Readers of committed records wait too.
    assert read(wire, topic) == (2, 1, [], [])
    assert read(wire, topic, 1, committed=False)[:2] == (2, 1)
