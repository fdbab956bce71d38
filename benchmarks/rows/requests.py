"""Single requests, encoded in advance and sent by `load.c`: the server alone, without a client's work.

A fetch reads the same beginning of its topic repeatedly, from the page cache. After a run it is checked that the log
has all produced records, and that the fetches have returned their bytes: a server that quickly rejects requests would
look fast.
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import load
from ..load import Load
from ..row import Bench, Numbers, Row, Subject, Target

GROUP = "Single requests, encoded beforehand"

_SECONDS = 6
_RECORDS_OF_64K = 63
"""Records of 1,000 bytes whose batch is slightly less than 64 kB."""


@dataclass(frozen=True)
class Produce:
    """Produce one batch repeatedly."""

    records: int
    size: int
    connections: int
    in_flight: int
    requests: int | None = None
    """None: as many as fit into some seconds. For large batches the count is fixed: the same bytes for each disk."""

    def __call__(self, bench: Bench) -> Numbers:
        topic = bench.topic()
        request = load.produce_frame(topic, load.batch_of(self.records, self.size))
        before = bench.server.cpu_seconds()
        result = load.run(
            bench,
            bench.server,
            request,
            connections=self.connections,
            in_flight=self.in_flight,
            requests=bench.count(self.requests) if self.requests else None,
            seconds=None if self.requests else bench.count(_SECONDS),
        )
        cpu = bench.server.cpu_seconds() - before
        if bench.subject is not Subject.CEILING:
            load.check_end_offset(bench.server, topic, result.requests * self.records)
        return numbers(result, result.bytes_sent, cpu)


@dataclass(frozen=True)
class Fetch:
    """Fetch the same batches repeatedly."""

    batches: int
    connections: int
    in_flight: int

    def __call__(self, bench: Bench) -> Numbers:
        topic = bench.topic()
        batch = load.batch_of(_RECORDS_OF_64K, 1000)
        size = len(batch) * self.batches
        if bench.subject is Subject.CEILING:  # its responses have one batch each
            contents = load.filled(bench, topic, load.batch_of(_RECORDS_OF_64K * self.batches, 1000), 1)
        else:
            contents = load.filled(bench, topic, batch, self.batches)
        with contents:
            before = bench.server.cpu_seconds()
            result = load.run(
                bench,
                bench.server,
                load.fetch_frame(topic, size),
                connections=self.connections,
                in_flight=self.in_flight,
                seconds=bench.count(_SECONDS),
            )
            cpu = bench.server.cpu_seconds() - before
        if result.bytes_received < result.requests * size * 0.99:
            raise RuntimeError(f"{result.requests} fetches of {size} bytes brought {result.bytes_received}")
        return numbers(result, result.bytes_received, cpu)


def numbers(result: Load, moved: int, cpu: float) -> Numbers:
    """The numbers of a row: rates, latencies and the server's cost."""
    return {
        "requests_per_s": result.requests_per_s,
        "mb_per_s": moved / result.seconds / 1e6,
        **result.latencies(),
        "cpu_us_per_request": cpu / result.requests * 1e6,
        "cpu_s_per_gb": cpu / (moved / 1e9),
    }


ROWS = (
    Row(
        name="produce-one-1x1",
        title="produce one record of 100 B, 1 connection x 1 in flight",
        group=GROUP,
        measure=Produce(records=1, size=100, connections=1, in_flight=1),
        needs=("cc",),
        rounds=7,  # it depends on whether the scheduler runs the two processes on one core or on two
        targets=(Target("p50_us", at_most=1.0), Target("p99_us", at_most=1.0)),
    ),
    Row(
        name="produce-one-8x4",
        title="produce one record of 100 B, 8 connections x 4 in flight",
        group=GROUP,
        measure=Produce(records=1, size=100, connections=8, in_flight=4),
        needs=("cc",),
    ),
    Row(
        name="produce-one-64x1",
        title="produce one record of 100 B, 64 connections x 1 in flight",
        group=GROUP,
        measure=Produce(records=1, size=100, connections=64, in_flight=1),
        needs=("cc",),
        targets=(Target("cpu_us_per_request", at_most=0.7), Target("requests_per_s", at_least=0.6)),
    ),
    Row(
        name="produce-64k",
        title="produce 64 kB, 2 connections x 2 in flight",
        group=GROUP,
        measure=Produce(records=_RECORDS_OF_64K, size=1000, connections=2, in_flight=2, requests=45_000),
        needs=("cc",),
        targets=(Target("mb_per_s", at_least=1.0),),
    ),
    Row(
        name="fetch-64k",
        title="fetch 64 kB, 4 connections x 1 in flight",
        group=GROUP,
        measure=Fetch(batches=1, connections=4, in_flight=1),
        needs=("cc",),
        targets=(Target("mb_per_s", at_least=1.0),),
    ),
    *(
        Row(
            name=name,
            title=f"fetch 1 MB, {connections} connection{'s' * (connections > 1)} x 1 in flight",
            group=GROUP,
            measure=Fetch(batches=16, connections=connections, in_flight=1),
            needs=("cc",),
            targets=(Target("cpu_s_per_gb", at_most=1.0), Target("requests_per_s", at_least=1.0)),
        )
        for name, connections in (("fetch-1m-1x1", 1), ("fetch-1m", 2), ("fetch-1m-4x1", 4))
    ),
)
