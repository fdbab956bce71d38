"""The generator of transactions: its writes for each producer, its retries, and that it reports every error."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from moldau.benchmarks.transaction_load import END_TXN_VERSION, PRODUCE_VERSION, Producer, frames
from moldau.protocol.api import response_header_version
from moldau.protocol.codec import decode_at, encode
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from moldau.protocol.messages.headers import RequestHeader, ResponseHeader
from moldau.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from moldau.protocol.records import iter_batches, iter_records

from .generators import Stub, compiled, refused, run_generator

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the benchmarks use epoll and /proc")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled("transaction_load", tmp_path_factory.mktemp("programs"))


class Written(NamedTuple):
    """A Produce request."""

    transactional_id: str | None
    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    first_sequence: int
    values: tuple[bytes | None, ...]


class Ended(NamedTuple):
    """An EndTxn request."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool


Heard = Written | Ended
Answer = Callable[[Heard, int], tuple[ErrorCode, int, int]]
"""Of a request, and how many were heard on its connection before: the error, the next producer id and epoch."""


def next_epoch(heard: Heard, _number: int) -> tuple[ErrorCode, int, int]:
    return ErrorCode.NONE, heard.producer_id, heard.producer_epoch + 1


class Broker(Stub):
    """Accepts transactions, and responds to each request with the given response."""

    def __init__(self, answer: Answer = next_epoch) -> None:
        super().__init__()
        self.heard: dict[str | None, list[Heard]] = {}
        """By transactional id, in the order in which they were heard."""
        self._answer = answer

    def serve(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as received:
            number = 0
            while size := received.read(4):
                frame = received.read(int.from_bytes(size, "big"))
                header, start = decode_at(RequestHeader, frame, 2, 0)
                heard = _acknowledged(header.request_api_key, frame, start)
                self.heard.setdefault(heard.transactional_id, []).append(heard)
                error, producer_id, producer_epoch = self._answer(heard, number)
                number += 1
                api_key = header.request_api_key
                version = PRODUCE_VERSION if isinstance(heard, Written) else END_TXN_VERSION
                answer = encode(
                    ResponseHeader(correlation_id=header.correlation_id), response_header_version(api_key, version)
                )
                answer += encode(_response(heard, error, producer_id, producer_epoch), version)
                connection.sendall(len(answer).to_bytes(4, "big") + answer)


def _acknowledged(api_key: int, frame: bytes, start: int) -> Heard:
    if api_key == EndTxnRequest.API_KEY:
        end, _ = decode_at(EndTxnRequest, frame, END_TXN_VERSION, start)
        return Ended(end.transactional_id, end.producer_id, end.producer_epoch, end.committed)
    produce, _ = decode_at(ProduceRequest, frame, PRODUCE_VERSION, start)
    (topic,) = produce.topic_data
    (data,) = topic.partition_data
    records: Any = data.records  # of a request that was received: bytes
    (batch,) = iter_batches(records)
    assert produce.acks == -1
    assert batch.is_transactional
    assert batch.has_valid_crc()
    return Written(
        produce.transactional_id,
        topic.name,
        data.index,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        tuple(record.value for record in iter_records(batch)),
    )


def _response(
    heard: Heard, error: ErrorCode, producer_id: int, producer_epoch: int
) -> ProduceResponse | EndTxnResponse:
    if isinstance(heard, Ended):
        return EndTxnResponse(error_code=error, producer_id=producer_id, producer_epoch=producer_epoch)
    result = PartitionProduceResponse(index=heard.partition, error_code=error, base_offset=7)
    return ProduceResponse(responses=[TopicProduceResponse(name=heard.topic, partition_responses=[result])])


def given(*producers: Producer, values: Sequence[bytes] = (b"value",)) -> tuple[bytes, int]:
    """The input of the program, and the size of a batch; the producers' partitions are 0, 1, ..."""
    made = [frames(producer, "topic", at, values) for at, producer in enumerate(producers)]
    return b"".join(produce + end for produce, end, _size in made), made[0][2]


def run(program: Path, broker: Broker, *producers: Producer, options: Sequence[object] = ()) -> dict[str, Any]:
    sent, size = given(*producers)
    return run_generator(program, sent, broker.address, "--batch", size, *options)


def test_each_transaction_has_the_epoch_of_the_previous_end_txn_response(program: Path) -> None:
    with Broker() as broker:
        result = run(program, broker, Producer("id", 4000, 0), options=("--transactions", 3))
    assert (result["transactions"], result["aborted"], result["retries"]) == (3, 0, 0)
    assert broker.heard == {
        "id": [
            heard
            for epoch in range(3)
            for heard in (
                Written("id", "topic", 0, 4000, epoch, 0, (b"value",)),
                Ended("id", 4000, epoch, committed=True),
            )
        ]
    }


def test_a_producer_with_exhausted_epochs_continues_with_its_new_id(program: Path) -> None:
    def answer(heard: Heard, number: int) -> tuple[ErrorCode, int, int]:
        return (ErrorCode.NONE, 5000, 0) if heard.producer_epoch == 32766 else next_epoch(heard, number)

    with Broker(answer) as broker:
        run(program, broker, Producer("id", 4000, 32766), options=("--transactions", 2))
    assert [(each.producer_id, each.producer_epoch) for each in broker.heard["id"]] == [
        (4000, 32766), (4000, 32766), (5000, 0), (5000, 0)
    ]  # fmt: skip


def test_producers_have_separate_connections_and_partitions(program: Path) -> None:
    with Broker() as broker:
        result = run(program, broker, Producer("one", 1, 0), Producer("two", 2, 5), options=("--transactions", 20))
    assert result["transactions"] == 20
    heard = broker.heard["one"] + broker.heard["two"]
    assert len(heard) == 40
    for at, (name, producer_id, first_epoch) in enumerate((("one", 1, 0), ("two", 2, 5))):
        written = [each for each in broker.heard[name] if isinstance(each, Written)]
        assert [each.partition for each in written] == [at] * len(written)
        expected = [(producer_id, first_epoch + turn) for turn in range(len(written))]
        assert [(each.producer_id, each.producer_epoch) for each in written] == expected


def test_some_are_aborted(program: Path) -> None:
    with Broker() as broker:
        result = run(program, broker, Producer("id", 1, 0), options=("--transactions", 7, "--abort-every", 3))
    assert result["aborted"] == 2
    committed = [each.committed for each in broker.heard["id"] if isinstance(each, Ended)]
    assert committed == [True, True, False, True, True, False, True]


def test_retries_while_the_previous_transaction_ends(program: Path) -> None:
    def answer(heard: Heard, number: int) -> tuple[ErrorCode, int, int]:
        busy = number in (2, 3, 5)  # Produce of the second transaction twice, then its EndTxn
        return (ErrorCode.CONCURRENT_TRANSACTIONS, -1, -1) if busy else next_epoch(heard, number)

    with Broker(answer) as broker:
        result = run(program, broker, Producer("id", 1, 0), options=("--transactions", 2, "--retry-ms", 1))
    assert (result["transactions"], result["retries"]) == (2, 3)
    kinds = [(type(each), each.producer_epoch) for each in broker.heard["id"]]
    assert kinds == [(Written, 0), (Ended, 0), *[(Written, 1)] * 3, *[(Ended, 1)] * 2]


def test_stops_at_the_time_limit_without_open_transactions(program: Path) -> None:
    with Broker() as broker:
        result = run(program, broker, Producer("id", 1, 0), options=("--seconds", 0.2))
    assert result["seconds"] >= 0.2
    assert len(broker.heard["id"]) == 2 * result["transactions"] > 0
    assert isinstance(broker.heard["id"][-1], Ended)


@pytest.mark.parametrize("number", [2, 3], ids=["Produce", "EndTxn"])
def test_an_error_is_a_failure(program: Path, number: int) -> None:
    def answer(heard: Heard, at: int) -> tuple[ErrorCode, int, int]:
        return (ErrorCode.PRODUCER_FENCED, -1, -1) if at == number else next_epoch(heard, at)

    with Broker(answer) as broker, pytest.raises(subprocess.CalledProcessError) as failed:
        run(program, broker, Producer("id", 1, 0), options=("--transactions", 5))
    assert failed.value.returncode == 1
    assert b"is answered with error 90" in failed.value.stderr


@pytest.mark.parametrize(
    "options",
    [
        ("--batch", "73"),
        ("--batch", "73", "--transactions", "1", "--seconds", "1"),
        ("--batch", "73", "--transactions", "0"),
        ("--batch", "60", "--transactions", "1"),
        ("--batch", "730", "--transactions", "1"),
        ("--transactions", "1"),
        ("--batch", "73", "--transactions", "1", "--nonsense"),
    ],
    ids=" ".join,
)
def test_invalid_arguments_are_rejected(program: Path, options: Sequence[str]) -> None:
    sent, _ = given(Producer("id", 1, 0))
    refused(program, sent, *options)


@pytest.mark.parametrize("sent", [b"", given(Producer("id", 1, 0))[0][:-20]], ids=["nobody", "no EndTxn"])
def test_a_producer_needs_both_requests(program: Path, sent: bytes) -> None:
    refused(program, sent, "--batch", "61", "--transactions", "1")
