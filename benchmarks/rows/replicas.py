"""Partitions with three replicas, on three brokers of either server: `moldau serve --brokers 3`, and three JVMs.

The producer is Kafka's, with ``acks=all`` and ``min.insync.replicas=2``. All brokers and the client use the same cores.
"""

from __future__ import annotations

import re
import time

from ..measurement import create_topic
from ..row import Bench, Numbers, Row, Server, Subject
from .producers import produced_per_second, run_performance_tool

GROUP = "Three replicas"

_BROKERS = 3
_TOPIC = "bench-replicas"
_PARTITIONS = 4
_SIZE = 1000
_RECORDS = 500_000
_SINGLE_RECORDS = 3_000
_SINGLE_RATE = 200
_IDLE_PARTITIONS = 1_000
_IDLE_SECONDS = 30

_PERCENTILES = re.compile(r"(?P<p50>\d+) ms 50th, \d+ ms 95th, (?P<p99>\d+) ms 99th, (?P<p999>\d+) ms 99.9th")


def produce(bench: Bench) -> Numbers:
    """Batches, as fast as they are acknowledged."""
    server = _start(bench, _PARTITIONS)
    records = bench.count(_RECORDS)
    _produce(bench, server, records // 5 + 1, -1, "batch.size=1000000", "linger.ms=5")
    before = server.cpu_seconds()
    rate, _ = _produce(bench, server, records, -1, "batch.size=1000000", "linger.ms=5")
    cpu = server.cpu_seconds() - before
    return {
        "records_per_s": rate,
        "mb_per_s": rate * _SIZE / 1e6,
        "cpu_s_per_gb": cpu / (records * _SIZE / 1e9),
    }


def single_records(bench: Bench) -> Numbers:
    """The time until one record is acknowledged, with 200 records per second (whole milliseconds)."""
    server = _start(bench, 1)
    records = bench.count(_SINGLE_RECORDS)
    _produce(bench, server, records // 5 + 1, _SINGLE_RATE, "linger.ms=0")
    _, output = _produce(bench, server, records, _SINGLE_RATE, "linger.ms=0")
    found = _PERCENTILES.findall(output)
    return {f"{name}_ms": float(value) for name, value in zip(("p50", "p99", "p999"), found[-1], strict=True)}


def idle(bench: Bench) -> Numbers:
    """What three brokers with many replicas cost while no client uses them."""
    server = _start(bench, bench.count(_IDLE_PARTITIONS))
    time.sleep(_IDLE_SECONDS / 3)  # new brokers import modules, and a JVM compiles
    before, began = server.cpu_seconds(), time.monotonic()
    time.sleep(_IDLE_SECONDS)
    cpu = server.cpu_seconds() - before
    return {"cpu_percent": 100 * cpu / (time.monotonic() - began), "rss_mb": server.resident_bytes() / 1e6}


def _start(bench: Bench, partitions: int) -> Server:
    server = bench.start_server(brokers=_BROKERS)
    config = {"min.insync.replicas": "2"}
    create_topic(server, _TOPIC, partitions=partitions, config=config, replicas=_BROKERS)
    return server


def _produce(bench: Bench, server: Server, records: int, per_second: int, *properties: str) -> tuple[float, str]:
    """The records per second, and the output of the producer."""
    done = run_performance_tool(
        bench,
        "ProducerPerformance",
        *("--bootstrap-server", server.bootstrap_servers, "--topic", _TOPIC),
        *("--num-records", str(records), "--record-size", str(_SIZE), "--throughput", str(per_second)),
        *("--command-property", "acks=all", *properties),
    )
    return produced_per_second(done), done.stdout


ROWS = tuple(
    Row(
        name=name,
        title=title,
        group=GROUP,
        measure=measure,
        subjects=(Subject.APACHE, Subject.MOLDAU),
        needs=needs,
        own_server=True,
    )
    for name, title, measure, needs in (
        (
            "replicas-java-produce",
            "Kafka's Java producer, acks=all, 1,000 B records, 4 partitions with 3 replicas",
            produce,
            ("java",),
        ),
        (
            "replicas-java-single",
            "200 single records per second, acks=all, 3 replicas: until the acknowledgment",
            single_records,
            ("java",),
        ),
        ("replicas-idle", "three idle brokers with 3,000 replicas", idle, ()),
    )
)
