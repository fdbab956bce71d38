"""The first write of a transaction to a partition asks the transaction coordinator (KIP-890)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.steps import completed
from moldau.server.concurrency.slices import SlicedFuture, Slices
from moldau.server.coordination.markers import MarkerWriter
from moldau.server.coordination.verification import Verifications
from moldau.testing.wire import WireClient

from .conftest import MakeServer, RunningServer
from .transactional import Transactional, error_of, values


@pytest.fixture
def wire(server: RunningServer) -> Iterator[Any]:
    with server.wire() as wire:
        yield wire


@pytest.fixture
def producer(server: RunningServer, wire: WireClient) -> Any:
    server.create_topic("t", partitions=3)
    producer = Transactional(wire, "p")
    assert producer.init() == 0
    return producer


def codes(answer: Any) -> list[Any]:
    return [partition.error_code for partition in answer.responses[0].partition_responses]


@pytest.mark.parametrize(
    ("version", "error"),
    [
        (9, ErrorCode.INVALID_TXN_STATE),
        (10, ErrorCode.INVALID_TXN_STATE),
        (11, ErrorCode.TRANSACTION_ABORTABLE),
        (12, ErrorCode.NONE),
    ],
)
def test_a_partition_that_was_not_added_gets_the_error_of_the_version(
    producer: Transactional, version: int, error: ErrorCode
) -> None:
    assert producer.produce("t", "a", version=version) == error
    assert producer.state() == ("Empty" if error else "Ongoing")


def test_only_partitions_that_were_not_added_are_rejected(producer: Transactional, wire: WireClient) -> None:
    producer.add("t", partitions=[1])
    batches = [producer.batch("t", "a", partition=partition) for partition in range(3)]
    refused = ErrorCode.INVALID_TXN_STATE
    assert codes(wire.call(producer.request("t", *batches), 10)) == [refused, 0, refused]


def test_all_partitions_of_a_request_are_added_together(
    producer: Transactional, wire: WireClient, server: RunningServer
) -> None:
    batches = [producer.batch("t", "a", partition=partition) for partition in range(3)]
    assert codes(wire.call(producer.request("t", *batches), 12)) == [0, 0, 0]
    assert producer.commit() == 0
    assert [values(wire, "t", partition=partition) for partition in range(3)] == [["a"]] * 3
    log = server.partition("__transaction_state", completed(server.broker.transactions.partition_of("p"))).log
    # Empty, ongoing, prepared, complete.
    assert server.call(lambda: sum(batch.record_count for batch in log.batches(0))) == 4


def test_requests_of_one_producer_keep_their_order_while_the_first_one_waits(
    producer: Transactional, wire: WireClient
) -> None:
    for number in range(20):
        producer.send("t", f"{number}", partition=number % 2)
    for _ in range(20):
        assert error_of(wire.receive()) == 0
    assert producer.commit() == 0
    assert values(wire, "t") == [f"{number}" for number in range(0, 20, 2)]
    assert values(wire, "t", partition=1) == [f"{number}" for number in range(1, 20, 2)]


PATIENT = {"add.partitions.to.txn.retry.backoff.max.ms": "60000"}
"""A write waits for the end of the previous transaction for a minute, not for a tenth of a second."""


def test_a_waiting_client_that_disconnects_blocks_no_request(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_server(config=PATIENT)
    server.create_topic("t")
    with server.wire() as wire:
        producer = Transactional(wire, "p")
        assert producer.init() == 0
        write_behind_a_client_that_disconnects(server, wire, producer, monkeypatch)


def write_behind_a_client_that_disconnects(
    server: RunningServer, wire: WireClient, producer: Transactional, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing = True
    write = MarkerWriter.write

    def write_marker(*arguments: Any, **marker: Any) -> None:
        if refusing:
            marker["written"](KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return
        write(*arguments, **marker)

    monkeypatch.setattr(MarkerWriter, "write", write_marker)
    assert producer.produce("t", "a") == 0
    assert producer.commit() == 0
    with server.wire() as gone:
        gone.send(producer.request("t", producer.batch("t", "b")), 12)
        server.wait_until(lambda: bool(server.broker.verifications._queues))
    producer.send("t", "c")
    refusing = False
    assert error_of(wire.receive()) == 0
    assert producer.commit() == 0
    assert values(wire, "t") == ["a", "b", "c"]
    assert not server.broker.verifications._queues


def test_a_rejected_batch_may_be_written_after_its_partition_is_added(
    producer: Transactional, wire: WireClient
) -> None:
    batch = producer.batch("t", "a")
    assert error_of(wire.call(producer.request("t", batch), 10)) == ErrorCode.INVALID_TXN_STATE
    assert set(producer.add("t").values()) == {0}
    assert error_of(wire.call(producer.request("t", batch), 10)) == 0


def test_a_batch_after_the_end_starts_no_transaction(producer: Transactional, wire: WireClient) -> None:
    producer.v2 = False
    producer.add("t")
    assert producer.produce("t", "a") == 0
    late = producer.request("t", producer.batch("t", "late"))
    assert producer.commit() == 0
    assert error_of(wire.call(late, 11)) == ErrorCode.TRANSACTION_ABORTABLE
    assert error_of(wire.call(late, 10)) == ErrorCode.INVALID_TXN_STATE
    assert values(wire, "t") == ["a"]


def test_a_batch_of_the_previous_epoch_starts_no_transaction(producer: Transactional, wire: WireClient) -> None:
    assert producer.produce("t", "a") == 0
    late = producer.request("t", producer.batch("t", "late"))
    assert producer.commit() == 0
    assert error_of(wire.call(late, 12)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert values(wire, "t") == ["a"]


def test_an_unknown_producer_is_rejected(producer: Transactional, wire: WireClient) -> None:
    stranger = Transactional(wire, "stranger")
    stranger.producer_id, stranger.epoch = 4711, 0
    assert stranger.produce("t", "a", version=11) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert stranger.produce("t", "a", version=12) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_without_a_coordinator_the_error_is_retriable(server: RunningServer, wire: WireClient) -> None:
    server.create_topic("t")
    stranger = Transactional(wire, "stranger")
    stranger.producer_id, stranger.epoch = 4711, 0
    for version in (11, 12):
        assert stranger.produce("t", "a", version=version) == ErrorCode.NOT_ENOUGH_REPLICAS


def test_a_transactional_batch_without_transactional_id_is_rejected(producer: Transactional, wire: WireClient) -> None:
    plain = Transactional(wire, None).batch("t", "plain", partition=1)
    for version in (9, 12):
        request = producer.request("t", producer.batch("t", "a"), plain)
        request.transactional_id = None
        assert codes(wire.call(request, version)) == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2


def test_a_request_with_batches_of_two_producers_is_rejected(producer: Transactional, wire: WireClient) -> None:
    other = Transactional(wire, "other")
    assert other.init() == 0
    request = producer.request("t", producer.batch("t", "a"), other.batch("t", "b", partition=1))
    assert codes(wire.call(request, 12)) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2


def test_unknown_partitions_are_not_added_to_a_transaction(producer: Transactional, wire: WireClient) -> None:
    batches = [producer.batch("t", "a", partition=partition) for partition in (2, 3)]
    assert codes(wire.call(producer.request("t", *batches, partition=2), 12)) == [
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert [(topic.topic, topic.partitions) for topic in producer.describe().topics] == [("t", [2])]


def test_coordinator_topics_cannot_be_part_of_a_transaction(producer: Transactional) -> None:
    assert producer.produce("__transaction_state", "a", version=12) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert producer.state() == "Empty"


def test_without_acks_records_are_written_without_a_response(
    producer: Transactional, wire: WireClient, server: RunningServer
) -> None:
    wire.send(producer.request("t", producer.batch("t", "a"), acks=0), 12, answered=False)
    wire.send(producer.request("t", producer.batch("t", "b"), acks=0), 12, answered=False)
    assert producer.commit() == 0
    assert values(wire, "t") == ["a", "b"]


def test_without_acks_an_error_closes_the_connection(producer: Transactional, server: RunningServer) -> None:
    with server.wire() as wire:
        wire.send(producer.request("t", producer.batch("t", "a"), acks=0), 11, answered=False)
        assert wire.closed_by_server()


def test_recompressed_records_are_verified_as_well(server: RunningServer, wire: WireClient) -> None:
    server.create_topic("z", compression_type="gzip")
    producer = Transactional(wire, "p")
    assert producer.init() == 0
    for number in range(5):
        producer.send("z", *[f"{number} {'x' * 2000}"] * 4)
    for _ in range(5):
        assert error_of(wire.receive()) == 0
    assert producer.commit() == 0
    assert [value[:1] for value in values(wire, "z")] == [f"{number}" for number in range(5) for _ in range(4)]


def disable_verification(wire: WireClient) -> None:
    config = AlterableConfig(name="transaction.partition.verification.enable", value="false")
    request = IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=4, resource_name="", configs=[config])]
    )
    assert wire.call(request, 1).responses[0].error_code == 0


def test_older_clients_are_not_verified_if_verification_is_disabled(producer: Transactional, wire: WireClient) -> None:
    disable_verification(wire)
    assert producer.produce("t", "a", version=10) == 0
    assert producer.state() == "Empty"


def test_partitions_of_newer_clients_are_added_even_if_verification_is_disabled(
    producer: Transactional, wire: WireClient
) -> None:
    disable_verification(wire)
    assert producer.produce("t", "a", version=12) == 0
    assert producer.state() == "Ongoing"


def test_thousands_of_requests_of_one_transactional_id_run_one_at_a_time() -> None:
    """They run in order, each before the previous one has returned, and the depth of the stack does not grow with their
    number."""
    callbacks: list[Any] = []
    slices = Slices(callbacks.append)
    verifications = Verifications(None, None, slices, None, None, None)  # type: ignore[arg-type]
    answer: SlicedFuture[None] = SlicedFuture(slices, immediately=True)
    done = []

    def request(number: int) -> Iterator[Any]:
        turn = verifications.enter("p")
        yield from (answer if turn is None else turn).result()
        try:
            done.append(number)
        finally:
            verifications.leave("p")

    for number in range(2000):
        slices.begin_shielded(request(number), immediately=True)  # type: ignore[arg-type]
    assert done == []
    answer.succeed(None)
    assert done == list(range(2000))
    assert verifications.enter("p") is None
    assert not callbacks


def test_the_server_stops_while_requests_of_one_transactional_id_wait_for_each_other(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing the first one resumes the second one, which completes immediately."""
    pause = {"add.partitions.to.txn.retry.backoff.ms": "3000", "add.partitions.to.txn.retry.backoff.max.ms": "10000"}
    server = make_server(config=pause)
    server.create_topic("t")

    def write_marker(*arguments: Any, **marker: Any) -> None:
        marker["written"](KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    with server.wire() as wire:
        producer = Transactional(wire, "p")
        assert producer.init() == 0
        monkeypatch.setattr(MarkerWriter, "write", write_marker)
        assert producer.produce("t", "a") == 0
        assert producer.commit() == 0
        producer.send("t", "b")
        producer.send("t", "c")
        server.wait_until(lambda: any(queue.turns for queue in server.broker.verifications._queues.values()))
    server.wait_until(lambda: not server.network.connections)
    server.await_(server.server.stop)
