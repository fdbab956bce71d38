"""The speed of log compaction, and its effect on a producer.

A topic of 1 GB contains 10,000 keys repeatedly; a hundredth of it remains. `min.compaction.lag.ms` prevents compaction
until the topic is complete. A producer sends small requests to another topic at a fixed rate, an open loop: first
alone, then while the log is compacted. Compaction has ended when `cleaner-offset-checkpoint`, which both servers write,
shows it; the active segment does not count.

MB/s is the size of the original log divided by the time from the change of the setting to the checkpoint; both servers
check for logs to compact every 0.1 s here. If the log is clean before the producer has ended, the producer is alone for
the rest of its time.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ...protocol.records import Record, build_batch
from ...testing.waiting import wait_until
from ...testing.wire import WireClient
from .. import load, page_cache
from ..measurement import create_topic
from ..row import Bench, Numbers, Row, Server, Subject, Target
from .durability import GROUP

_TOPIC = "compacted"
_SMALL = "small"
_LOG_BYTES = 1_000_000_000
_KEYS = 10_000
_RECORDS_PER_BATCH = 400
_VALUE_BYTES = 900
_RATE = 1_000
_SECONDS = 8
_WARM_UP_SECONDS = 1
_TIMEOUT_SECONDS = 600.0
_LOOK_AGAIN_SECONDS = 0.01

_SERVER_CONFIG = {"log.cleaner.backoff.ms": "100"}
_NEVER_MS = 10**13
_TOPIC_RESOURCE = 2
_SET = 0


def compaction(bench: Bench) -> Numbers:
    server = bench.start_server(config=_SERVER_CONFIG)
    config = {
        "cleanup.policy": "compact",
        "min.compaction.lag.ms": str(_NEVER_MS),
        "max.compaction.lag.ms": str(_NEVER_MS),
        "segment.bytes": str(max(1 << 20, bench.count(100_000_000))),
    }
    create_topic(server, _TOPIC, partitions=1, config=config)
    create_topic(server, _SMALL, partitions=1, config={})
    _fill(bench, server, bench.count(_LOG_BYTES))
    files = sorted((server.data_dir / f"{_TOPIC}-0").glob("*.log"))
    page_cache.sync(files)
    active = int(files[-1].stem)
    size = sum(path.stat().st_size for path in files[:-1])
    request = load.produce_frame(_SMALL, load.batch_of(1, 100))

    def produce(seconds: float) -> load.Load:
        return load.run(bench, server, request, in_flight=_RATE, rate=_RATE, seconds=seconds)

    seconds = bench.count(_SECONDS)
    produce(_WARM_UP_SECONDS)
    alone = produce(seconds)
    with ThreadPoolExecutor(1) as threads:
        began = time.perf_counter()
        _set(server, "min.compaction.lag.ms", "0")
        producing = threads.submit(produce, seconds)
        wait_until(
            lambda: _clean_offset(server) >= active,
            f"{_TOPIC} is clean up to offset {active}",
            seconds=_TIMEOUT_SECONDS,
            pause=_LOOK_AGAIN_SECONDS,
        )
        took = time.perf_counter() - began
        beside = producing.result()
    load.check_end_offset(server, _SMALL, alone.requests + beside.requests + _RATE * _WARM_UP_SECONDS)
    return {
        "seconds": took,
        "mb_per_s": size / took / 1e6,
        **beside.latencies(),
        **{f"{name}_alone": value for name, value in alone.latencies().items()},
    }


def _fill(bench: Bench, server: Server, size: int) -> None:
    """All keys, repeatedly; each batch occurs several times in a row."""
    value = os.urandom(_VALUE_BYTES)
    now_ms = int(time.time() * 1000)
    batches = [
        build_batch(
            [Record(number, now_ms, b"%010d" % (first + number), value) for number in range(_RECORDS_PER_BATCH)]
        )
        for first in range(0, _KEYS, _RECORDS_PER_BATCH)
    ]
    rounds = 4
    count = max(1, size // (rounds * sum(map(len, batches))))
    for _ in range(rounds):
        for batch in batches:
            load.run(bench, server, load.produce_frame(_TOPIC, batch), in_flight=4, requests=count)
    load.check_end_offset(server, _TOPIC, rounds * _KEYS * count)


def _set(server: Server, name: str, value: str) -> None:
    config = AlterableConfig(name=name, config_operation=_SET, value=value)
    resource = AlterConfigsResource(resource_type=_TOPIC_RESOURCE, resource_name=_TOPIC, configs=[config])
    with WireClient(server.bootstrap_servers) as wire:
        (answer,) = wire.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    if answer.error_code != ErrorCode.NONE:
        raise KafkaError(ErrorCode(answer.error_code), answer.error_message or "")


def _clean_offset(server: Server) -> int:
    path = server.data_dir / "cleaner-offset-checkpoint"
    if path.exists():
        for line in path.read_text().splitlines():
            topic, _, rest = line.partition(" ")
            if topic == _TOPIC:
                return int(rest.split()[-1])
    return -1


ROWS = (
    Row(
        name="compaction",
        title=f"compaction of 1 GB with {_KEYS:,} keys, and one-record produce at {_RATE:,} a second beside it",
        group=GROUP,
        measure=compaction,
        subjects=(Subject.APACHE, Subject.MOLDAU),
        needs=("cc",),
        own_server=True,
        targets=(Target("mb_per_s", at_least=0.5), Target("p99_us", at_most=1.0)),
    ),
)
