"""The time that a group waits after a restart for a coordinator with many offsets, and the effect on other clients.

Groups commit until the offsets topic has a million records, ten at a time: each key about twenty times, without
compaction. Then the server is stopped cleanly and started. From its first response on, one record at a time is produced
to another topic. From time to time a group fetches its offsets, which fails with COORDINATOR_LOAD_IN_PROGRESS until
they are loaded; then the response must contain all of them. Afterwards the same producer continues alone for the same
time.

Both servers are in the state after a restart: Apache Kafka's code is not yet compiled while it loads.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from ...protocol.messages.offset_commit import OffsetCommitRequestPartition
from ...testing.wire import WireClient
from .. import group_load, load
from ..coordinator import committed_offsets, wait_coordinator
from ..group_load import Pair
from ..measurement import create_topic
from ..restart import seconds_to_answer, seconds_to_serve
from ..row import Bench, Numbers, Row, Server, Subject
from .groups import GROUP

_OFFSETS_TOPIC = "__consumer_offsets"

_RECORDS = 1_000_000
_GROUPS = 500
_PARTITIONS = 100
_PARTITIONS_OF_COMMIT = 10
_CONNECTIONS = 50

_TOPIC = "orders"
_BUSY_TOPIC = "busy"
_ASK_AGAIN_SECONDS = 0.005
_MIN_SECONDS_ALONE = 1.0

# One segment, so that compaction does not run.
_CONFIG = {"offsets.topic.segment.bytes": str(2**30)}


@dataclass(frozen=True)
class Loading:
    """The measurements from the server's first response to the response to the group."""

    seconds: float
    refusals: int
    latencies: list[float]
    """Of the producer, in microseconds."""


def load_offsets(bench: Bench) -> Numbers:
    server = bench.start_server(config=_CONFIG)
    create_topic(server, _BUSY_TOPIC, partitions=1, config={})
    _commit(bench, server)
    server.stop()

    seconds_to_start = seconds_to_answer(server)
    seconds_to_produce = seconds_to_serve(server, _BUSY_TOPIC, 0, records=0)
    request = load.produce_frame(_BUSY_TOPIC, load.batch_of(1, 100))
    with WireClient(server.bootstrap_servers) as producer, WireClient(server.bootstrap_servers) as group:
        loading = _produce_until_loaded(producer, request, group)
        alone = _produce(producer, request, max(loading.seconds, _MIN_SECONDS_ALONE))
    load.check_end_offset(server, _BUSY_TOPIC, len(loading.latencies) + len(alone))
    seconds = seconds_to_produce + loading.seconds
    return {
        "seconds": seconds,
        "seconds_from_start": seconds_to_start + seconds,
        "refused_meanwhile": loading.refusals,
        **_percentiles(loading.latencies),
        **{f"{name}_afterwards": value for name, value in _percentiles(alone).items()},
    }


def _commit(bench: Bench, server: Server) -> None:
    """Every group commits every partition, repeatedly until there are enough records."""
    create_topic(server, _TOPIC, partitions=_PARTITIONS, config={})
    wait_coordinator(server)
    commits = [
        _commit_of(group, first) for first in range(0, _PARTITIONS, _PARTITIONS_OF_COMMIT) for group in range(_GROUPS)
    ]
    # One connection sends each of them once; with several, the order of completion is unknown.
    group_load.run(bench, server, commits, connections=1, requests=len(commits))
    more = bench.count(_RECORDS) // _PARTITIONS_OF_COMMIT - len(commits)
    if more > 0:
        group_load.run(bench, server, commits, connections=_CONNECTIONS, requests=more)
    load.check_end_offset(server, _OFFSETS_TOPIC, (len(commits) + max(more, 0)) * _PARTITIONS_OF_COMMIT)


def _commit_of(group: int, first: int) -> Pair:
    """A group's commit of ten partitions."""
    return group_load.commit(
        _group_id(group),
        _TOPIC,
        [
            OffsetCommitRequestPartition(partition_index=partition, committed_offset=_offset(group, partition))
            for partition in range(first, first + _PARTITIONS_OF_COMMIT)
        ],
    )


def _group_id(number: int) -> str:
    return f"group-{number:04}"


def _offset(group: int, partition: int) -> int:
    return group * _PARTITIONS + partition


def _produce_until_loaded(producer: WireClient, request: bytes, group: WireClient) -> Loading:
    """Produce one record after the other, and fetch a group's offsets from time to time, until they are returned."""
    latencies = []
    refusals = 0
    began = time.perf_counter()
    while True:
        started = time.perf_counter()
        offsets = committed_offsets(group, _group_id(_GROUPS - 1))
        if offsets is not None:
            seconds = time.perf_counter() - began
            break
        refusals += 1
        latencies += _produce(producer, request, _ASK_AGAIN_SECONDS - (time.perf_counter() - started))
    expected = {(_TOPIC, partition): _offset(_GROUPS - 1, partition) for partition in range(_PARTITIONS)}
    if offsets != expected:
        raise RuntimeError(f"a group had committed {len(expected)} offsets, and has {len(offsets)}, or different ones")
    return Loading(seconds, refusals, latencies)


def _produce(producer: WireClient, request: bytes, seconds: float) -> list[float]:
    """Produce at least once; returns the latency of each request in microseconds."""
    latencies = []
    end = time.perf_counter() + seconds
    while True:
        began = time.perf_counter()
        producer.send_bytes(request)
        producer.receive_frame()
        ended = time.perf_counter()
        latencies.append((ended - began) * 1e6)
        if ended >= end:
            return latencies


def _percentiles(latencies: list[float]) -> dict[str, float]:
    """Empty if there are no latencies."""
    if not latencies:
        return {}
    ordered = sorted(latencies)

    def percentile(share: float) -> float:
        return ordered[int(share * (len(ordered) - 1))]

    return {"p50_us": percentile(0.5), "p99_us": percentile(0.99), "p999_us": percentile(0.999), "max_us": ordered[-1]}


ROWS = (
    Row(
        name="load-offsets",
        title="restart with 1,000,000 committed offsets in the log, until a group has its own; produce 1x1 meanwhile",
        group=GROUP,
        measure=load_offsets,
        subjects=(Subject.APACHE, Subject.MOLDAU),
        needs=("cc",),
        own_server=True,
    ),
)
