"""`transaction_load.c` from Python: transactions of one batch each, by clients of transactions version 2 (KIP-890).

Produce 12 is the first version that adds its partition to the transaction, EndTxn 5 the first that returns the next
epoch.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from ..protocol.messages.end_txn import EndTxnRequest
from ..protocol.records import Record, build_batch
from ..testing.builders import produce_request
from ..testing.waiting import wait_until
from . import load
from .coordinator import init_producer
from .load import Timed
from .programs import run_for_json
from .row import Bench, Server

PRODUCE_VERSION = 12
END_TXN_VERSION = 5

_VISIBLE_SECONDS = 60.0
_ASK_AGAIN_SECONDS = 0.02


@dataclass(frozen=True)
class Producer:
    """A producer with a transactional id, before the first transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, kw_only=True)
class TransactionLoad(Timed):
    """The measurements of the generator; the latencies are those of whole transactions."""

    transactions: int
    aborted: int
    retries: int
    """Requests that were retried, because the previous transaction had not ended on all partitions."""

    @property
    def transactions_per_s(self) -> float:
        return self.transactions / self.seconds


def new_producers(server: Server, count: int) -> list[Producer]:
    """Producers with unused ids."""
    names = [f"bench-{uuid.uuid4().hex[:12]}" for _ in range(count)]
    return [Producer(name, *init_producer(server, name)) for name in names]


def frames(producer: Producer, topic: str, partition: int, values: Sequence[bytes]) -> tuple[bytes, bytes, int]:
    """The generator's input for a producer: Produce and EndTxn of its first transaction; and the batch's size."""
    now_ms = int(time.time() * 1000)
    batch = build_batch(
        [Record(offset=at, timestamp=now_ms, value=value) for at, value in enumerate(values)],
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=0,
        transactional=True,
    )
    produce = produce_request(topic, batch, partition=partition, acks=-1)
    produce.transactional_id = producer.transactional_id
    end = EndTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=True,
    )
    return load.frame(produce, PRODUCE_VERSION), load.frame(end, END_TXN_VERSION), len(batch)


def run(
    bench: Bench,
    server: Server,
    topic: str,
    *,
    producers: int,
    partitions: int,
    values: Sequence[bytes],
    transactions: int | None = None,
    seconds: float | None = None,
    abort_every: int = 0,
) -> TransactionLoad:
    """Run the generator to its end; transaction_load.c explains its options.

    The producers are new, and are distributed to the partitions; each writes ``values`` in one batch repeatedly.
    Returns when all records are visible.
    """
    begun = new_producers(server, producers)
    made = [frames(producer, topic, at % partitions, values) for at, producer in enumerate(begun)]
    ((batch_size, *_), sent) = [size for *_, size in made], b"".join(produce + end for produce, end, _ in made)
    how_much = ["--transactions", str(transactions)] if transactions is not None else ["--seconds", str(seconds)]
    command = [
        *bench.program("transaction_load"),
        *("--batch", str(batch_size)),
        *("--abort-every", str(abort_every)),
        *how_much,
        *server.bootstrap_servers.rsplit(":", 1),
    ]
    result = TransactionLoad(
        **run_for_json("the generator of transactions", command, timeout_s=load.TIMEOUT_SECONDS, given=sent)
    )
    expected = result.transactions * (len(values) + 1)  # and a marker
    wait_committed(server, topic, partitions, more_than=expected - 1)
    found = sum(load.end_offsets(server, topic, partitions))
    if found != expected:
        raise RuntimeError(f"{result.transactions} transactions take {expected} offsets of {topic}, but it has {found}")
    return result


def wait_committed(server: Server, topic: str, partitions: int = 1, *, more_than: int) -> None:
    """Return when read_committed readers see more than ``more_than`` offsets: EndTxn completes before that.

    TimeoutError if this does not happen in time.
    """
    wait_until(
        lambda: sum(load.end_offsets(server, topic, partitions, committed=True)) > more_than,
        f"more than {more_than} offsets of {topic} are committed",
        seconds=_VISIBLE_SECONDS,
        pause=_ASK_AGAIN_SECONDS,
        state=lambda: f"offsets: {load.end_offsets(server, topic, partitions, committed=True)}",
    )
