"""The cost of a server without work: startup, memory, and idle connections.

A start is timed from outside, from the creation of the process to the first response to ApiVersions, which is requested
every millisecond. Each row first starts its server once without measuring: Python caches its compiled code, Apache
Kafka formats its directory, and the files of both are in the page cache.

Memory is the resident memory of the server's process. Apache Kafka's is mostly its heap, 1 GB as in its own start
script. The garbage collector returns no memory before the heap is full, so "after the work" is the state of an ordinary
broker.
"""

from __future__ import annotations

import shutil
import time

from ...protocol.messages.api_versions import ApiVersionsRequest
from .. import filling, load
from ..crowd import Crowd, max_connections
from ..measurement import create_topic
from ..restart import seconds_to_answer
from ..row import Bench, Numbers, Row, Server, Subject, Target

GROUP = "Start and memory"

_SERVERS = (Subject.APACHE, Subject.MOLDAU)

_TOPIC = "bench"
_PARTITIONS = 1_000
_IDLE_MS = 5_000
_WARM_UP_MS = 3_000
_BUSY_MS = 4_000

_RECORDS_OF_64K = 63
_FETCH_BATCHES = 16

API_VERSIONS = load.frame(ApiVersionsRequest(), 0)


def start_clean(bench: Bench) -> Numbers:
    """No topics. Apache Kafka finds a formatted directory; Moldau has no directory, and creates it."""
    server = bench.start_server()
    server.stop()
    if bench.subject is Subject.MOLDAU:
        shutil.rmtree(server.data_dir)
    return {"seconds": seconds_to_answer(server)}


def memory_idle(bench: Bench) -> Numbers:
    return {"rss_mb": _resident_when_idle(bench, bench.start_server())}


def memory_with_partitions(bench: Bench) -> Numbers:
    """After a restart: memory for the creation of the partitions is not counted."""
    server = bench.start_server()
    filling.topic_with_records(server, _TOPIC, bench.count(_PARTITIONS))
    server.stop()
    server.start()
    return {"rss_mb": _resident_when_idle(bench, server)}


def memory_after_work(bench: Bench) -> Numbers:
    """1 GB in requests of 64 kB, 200,000 requests of one record, 2 GB of fetches of 1 MB."""
    server = bench.start_server()
    for topic in (_TOPIC, "small"):
        create_topic(server, topic, partitions=1, config={})
    batch = load.batch_of(_RECORDS_OF_64K, 1000)
    large = max(bench.count(1_000_000_000) // len(batch), _FETCH_BATCHES)
    load.run(bench, server, load.produce_frame(_TOPIC, batch), connections=2, in_flight=2, requests=large)
    small, one_record = bench.count(200_000), load.produce_frame("small", load.batch_of(1, 100))
    load.run(bench, server, one_record, connections=8, in_flight=4, requests=small)
    fetched = len(batch) * _FETCH_BATCHES
    fetches = load.run(
        bench, server, load.fetch_frame(_TOPIC, fetched), connections=2, requests=bench.count(2_000_000_000 // fetched)
    )
    for topic, expected in ((_TOPIC, large * _RECORDS_OF_64K), ("small", small)):
        load.check_end_offset(server, topic, expected)
    if fetches.bytes_received < fetches.requests * fetched:
        raise RuntimeError(f"{fetches.requests} fetches of {fetched} bytes brought {fetches.bytes_received}")
    return {"rss_mb": _resident_when_idle(bench, server)}


def idle_connections(bench: Bench) -> Numbers:
    """Memory per connection, and the latency of one busy client without and with them."""
    server = bench.start_server()
    create_topic(server, _TOPIC, partitions=1, config={})
    one_record = load.produce_frame(_TOPIC, load.batch_of(1, 100))
    size = min(bench.count(10_000), max_connections())
    seconds = bench.count(_BUSY_MS) / 1000
    load.run(bench, server, one_record, connections=8, in_flight=4, seconds=bench.count(_WARM_UP_MS) / 1000)
    without = load.run(bench, server, one_record, seconds=seconds)
    before = server.resident_bytes()
    with Crowd(server.bootstrap_servers, size, API_VERSIONS) as crowd:
        held = server.resident_bytes() - before
        among = load.run(bench, server, one_record, seconds=seconds)
        crowd.check()
    return {
        "connections": size,
        "kb_per_connection": held / size / 1000,
        "p50_us": among.p50_us,
        "p99_us": among.p99_us,
        "p50_us_without": without.p50_us,
        "p99_us_without": without.p99_us,
    }


def _resident_when_idle(bench: Bench, server: Server) -> float:
    """After the server has done its tasks after startup, or after work."""
    time.sleep(bench.count(_IDLE_MS) / 1000)
    return server.resident_bytes() / 1e6


ROWS = (
    Row(
        name="start-clean",
        title="process start to the first answered ApiVersions, no topics",
        group=GROUP,
        measure=start_clean,
        subjects=_SERVERS,
        own_server=True,
        targets=(Target("seconds", at_most=1 / 8), Target("seconds", at_most=0.1, against=None)),
    ),
    Row(
        name="memory-idle",
        title="resident memory, idle (Apache Kafka: heap of 1 GB, as its start script has it)",
        group=GROUP,
        measure=memory_idle,
        subjects=_SERVERS,
        own_server=True,
        targets=(Target("rss_mb", at_most=1 / 8),),
    ),
    Row(
        name="memory-1000-partitions",
        title="resident memory, idle with 1,000 partitions",
        group=GROUP,
        measure=memory_with_partitions,
        subjects=_SERVERS,
        own_server=True,
    ),
    Row(
        name="memory-after-work",
        title="resident memory after 1 GB in 64 kB requests, 200,000 one-record requests, 2 GB fetched",
        group=GROUP,
        measure=memory_after_work,
        subjects=_SERVERS,
        needs=("cc",),
        own_server=True,
        targets=(Target("rss_mb", at_most=1 / 10),),
    ),
    Row(
        name="idle-connections",
        title="10,000 idle connections: memory for each; one-record produce 1x1 among them, and without them",
        group=GROUP,
        measure=idle_connections,
        subjects=_SERVERS,
        needs=("cc",),
        own_server=True,
    ),
)
