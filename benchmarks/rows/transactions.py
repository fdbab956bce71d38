"""Transactions: Kafka's own producer with them, small ones as fast as they go, and what they leave to readers.

Small transactions do not come from a client library: `transaction_load.c` sends the requests of a client with
transactions version 2 (KIP-890), a Produce and an EndTxn for each, with one record. A transaction's latency is the time
from the first request to the response to the second. The server writes five batches for it, of which the client waits
for three: the partition joins the transaction, the record, the decision; the marker and the end of the transaction
follow. If a client is too fast for that, its request is rejected and retried (``retries``) 20 ms later, as by Kafka's
own producer. Afterwards read_committed readers must see all records. That time is not counted.

Servers remember producer ids for days. The memory for each of them is measured in two ways: for a transactional id that
was only initialized, in the coordinator; and for an idempotent producer that has written one batch to a partition, in
the partition's log.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ...protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ...protocol.messages.list_transactions import ListTransactionsRequest
from ...protocol.records import Record, build_batch
from ...testing.wire import WireClient
from .. import group_load, load, page_cache, programs, transaction_load
from ..coordinator import init_producer, init_producers
from ..group_load import Pair
from ..measurement import create_topic
from ..row import Bench, Numbers, Row, Server, Subject, Target
from .producers import ProducerPerformance
from .requests import numbers

GROUP = "Transactions"

_SERVERS = (Subject.APACHE, Subject.MOLDAU)

_SECONDS = 6
_RECORD_BYTES = 100

_RECORDS_OF_64K = 63
_ABORT_EVERY = 10
_FILLING_PRODUCERS = 20
"""Alternately, so that none of them waits for the end of its previous transaction."""
_FETCHED_TRANSACTIONS = 4_000
_CONSUMED_TRANSACTIONS = 16_000
_FETCH_BATCHES = 16
_CONSUMER_SECONDS = 600

_PRODUCER_IDS = 100_000
_WARM_UP_IDS = 2_000
_IDLE_MS = 5_000
_LISTENING_SECONDS = 120


# -- small ones --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SmallTransactions:
    """One record each, by several producers at a time, each with its own partition."""

    producers: int

    def __call__(self, bench: Bench) -> Numbers:
        topic = bench.topic(partitions=self.producers)
        before = bench.server.cpu_seconds()
        result = transaction_load.run(
            bench,
            bench.server,
            topic,
            producers=self.producers,
            partitions=self.producers,
            values=[os.urandom(_RECORD_BYTES)],
            seconds=bench.count(_SECONDS),
        )
        cpu = bench.server.cpu_seconds() - before
        return {
            "transactions_per_s": result.transactions_per_s,
            **result.latencies(),
            "cpu_us_per_transaction": cpu / result.transactions * 1e6,
            "retries": result.retries,
        }


# -- readers -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Filled:
    """A topic of transactions, some of them aborted."""

    topic: str
    offsets: int
    committed_records: int


@contextmanager
def _filled(bench: Bench, transactions: int) -> Iterator[_Filled]:
    """Inside the block, there is a topic with this many batches of 64 kB, a tenth of them aborted, on disk and in the
    page cache."""
    topic = bench.topic()
    done = transaction_load.run(
        bench,
        bench.server,
        topic,
        producers=_FILLING_PRODUCERS,
        partitions=1,
        values=[os.urandom(1000) for _ in range(_RECORDS_OF_64K)],
        transactions=max(transactions, 2 * _ABORT_EVERY * _FILLING_PRODUCERS),
        abort_every=_ABORT_EVERY,
    )
    page_cache.sync(bench.server.data_dir.glob(f"{topic}-*/*.log"))
    yield _Filled(
        topic,
        offsets=done.transactions * (_RECORDS_OF_64K + 1),
        committed_records=(done.transactions - done.aborted) * _RECORDS_OF_64K,
    )


def fetch_committed(bench: Bench) -> Numbers:
    """Fetch the same megabyte repeatedly, from the middle of the topic, after many aborted transactions."""
    batch = len(load.batch_of(_RECORDS_OF_64K, 1000))
    size = batch * _FETCH_BATCHES
    with _filled(bench, bench.count(_FETCHED_TRANSACTIONS)) as filled:
        request = load.fetch_frame(filled.topic, size, offset=filled.offsets // 2, committed=True)
        before = bench.server.cpu_seconds()
        result = load.run(bench, bench.server, request, connections=2, seconds=bench.count(_SECONDS))
        cpu = bench.server.cpu_seconds() - before
    if result.bytes_received < result.requests * size * 0.99:
        raise RuntimeError(f"{result.requests} fetches of {size} bytes brought {result.bytes_received}")
    return numbers(result, result.bytes_received, cpu)


def consume_committed(bench: Bench) -> Numbers:
    """Read the whole topic with Kafka's own consumer, which receives the aborted batches too and drops them."""
    with _filled(bench, bench.count(_CONSUMED_TRANSACTIONS)) as filled:
        command = [*bench.program("AssignedConsumer"), bench.server.bootstrap_servers, filled.topic]
        command += [str(filled.committed_records), "isolation.level=read_committed"]
        before = bench.server.cpu_seconds()
        result = programs.run_for_json("AssignedConsumer", command, timeout_s=_CONSUMER_SECONDS)
        cpu = bench.server.cpu_seconds() - before
    return {
        "records_per_s": result["records"] / result["seconds"],
        "mb_per_s": result["bytes"] / result["seconds"] / 1e6,
        "cpu_s_per_gb": cpu / (filled.committed_records * 1000 / 1e9),
    }


# -- memory ------------------------------------------------------------------------------------------------------------


def memory_of_producers(bench: Bench) -> Numbers:
    """The memory for many producers, one kind after the other. The first ones of each kind do not count, because they
    include memory that the server needs in any case."""
    server = bench.start_server()
    count = bench.count(_PRODUCER_IDS)
    topic = f"bench-{uuid.uuid4().hex[:12]}"
    create_topic(server, topic, partitions=1, config={})
    init_producer(server, "first")
    init_producers(server, _transactional_ids(0, _WARM_UP_IDS))
    _send(bench, server, (_one_batch(topic, at) for at in range(_WARM_UP_IDS)))

    begun = _resident_when_idle(bench, server)
    init_producers(server, _transactional_ids(_WARM_UP_IDS, _WARM_UP_IDS + count))
    initialized = _resident_when_idle(bench, server)
    _send(bench, server, (_one_batch(topic, at) for at in range(_WARM_UP_IDS, _WARM_UP_IDS + count)))
    written = _resident_when_idle(bench, server)

    _check_known(server, topic, _WARM_UP_IDS + count)
    return {
        "rss_mb": written / 1e6,
        "kb_per_transactional_id": (initialized - begun) / count / 1000,
        "kb_per_producer_id": (written - initialized) / count / 1000,
    }


def _send(bench: Bench, server: Server, requests: Iterable[bytes]) -> None:
    """Send each request once, which one connection guarantees."""
    pairs = [Pair(request) for request in requests]
    group_load.run(bench, server, pairs, connections=1, requests=len(pairs))


def _transactional_ids(start: int, end: int) -> list[str]:
    return [f"transactional-id-{number:06}" for number in range(start, end)]


def _one_batch(topic: str, number: int) -> bytes:
    """The first batch of an idempotent producer. It chooses its id itself, far from those that the server allocates."""
    record = Record(offset=0, timestamp=int(time.time() * 1000), value=bytes(_RECORD_BYTES))
    batch = build_batch([record], producer_id=10**12 + number, producer_epoch=0, base_sequence=0)
    return load.produce_frame(topic, batch)


def _check_known(server: Server, topic: str, count: int) -> None:
    """Check the number of producers, because the responses to the writes were not checked."""
    with WireClient(server.bootstrap_servers, timeout_s=_LISTENING_SECONDS) as wire:
        transactional_ids = len(wire.call(ListTransactionsRequest(), 0).transaction_states)
        requested = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])])
        (partition,) = wire.call(requested, 0).topics[0].partitions
    if (transactional_ids, len(partition.active_producers)) != (count + 1, count):
        raise RuntimeError(
            f"{count} were initialized and {count} have written; "
            f"the server knows {transactional_ids} transactional ids and {len(partition.active_producers)} producers"
        )


def _resident_when_idle(bench: Bench, server: Server) -> float:
    time.sleep(bench.count(_IDLE_MS) / 1000)
    return server.resident_bytes()


ROWS = (
    Row(
        name="transactions-producer",
        title="ProducerPerformance: 1,000 B records, batch.size=1000000, linger.ms=5, transactions of 100 ms",
        group=GROUP,
        measure=ProducerPerformance(1_500_000, 1000, ("batch.size=1000000", "linger.ms=5"), transaction_ms=100),
        subjects=_SERVERS,
        needs=("java",),
        targets=(Target("mb_per_s", at_least=1.0),),
    ),
    *(
        Row(
            name=f"transactions-{producers}x1",
            title=f"transactions of one record of {_RECORD_BYTES} B, {producers} producer{'s' * (producers > 1)}",
            group=GROUP,
            measure=SmallTransactions(producers),
            subjects=_SERVERS,
            needs=("cc",),
            targets=(Target("transactions_per_s", at_least=1.0), Target("cpu_us_per_transaction", at_most=0.7)),
        )
        for producers in (1, 16)
    ),
    Row(
        name="fetch-committed-1m",
        title="fetch 1 MB as a read_committed consumer, 2 connections x 1 in flight; 10 % of the batches are aborted",
        group=GROUP,
        measure=fetch_committed,
        subjects=_SERVERS,
        needs=("cc",),
        targets=(Target("mb_per_s", at_least=1.0),),
    ),
    Row(
        name="java-consumer-committed",
        title="Kafka's Java consumer, read_committed: 1 GB of 1,000 B records, 10 % of the batches are aborted",
        group=GROUP,
        measure=consume_committed,
        subjects=_SERVERS,
        needs=("java", "javac", "cc"),
        targets=(Target("mb_per_s", at_least=1.0),),
    ),
    Row(
        name="memory-producer-ids",
        title="resident memory with 100,000 initialized transactional ids, and 100,000 idempotent producers",
        group=GROUP,
        measure=memory_of_producers,
        subjects=_SERVERS,
        needs=("cc",),
        own_server=True,
    ),
)
