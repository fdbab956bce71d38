"""A consumer that reads data that is not in the page cache, and its effect on a producer.

A topic of 5 GB is written to the disk and its pages are dropped, which is verified. A producer sends small requests to
another topic at a fixed rate, an open loop: requests that are due while the server is stalled count. First alone, then
while the reader reads the cold topic with one fetch of 1 MB after the other. When the reader reaches the end, the pages
are dropped again and it restarts from the beginning, so it is active all the time.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor

from .. import filling, load, page_cache
from ..filling import Filled
from ..load import Load
from ..reader import Reader
from ..row import Bench, Numbers, Row, Subject, Target

_LOG_BYTES = 5_000_000_000
_BATCH_BYTES = 64_000
_RATE = 1_000
_SECONDS = 8
_WARM_UP_SECONDS = 1
_MAX_CACHED = 0.01
_CONFIG = {"segment.bytes": str(2**30)}


def cold_reader(bench: Bench) -> Numbers:
    cold = filling.fill(
        bench, bench.server, bench.topic(config=_CONFIG), size=bench.count(_LOG_BYTES), batch_bytes=_BATCH_BYTES
    )
    page_cache.evict(cold.files)
    small = bench.topic()
    request = load.produce_frame(small, load.batch_of(1, 100))

    def produce(seconds: float) -> Load:
        # In flight: more than ever wait within a second.
        return load.run(bench, bench.server, request, in_flight=_RATE, rate=_RATE, seconds=seconds)

    seconds = bench.count(_SECONDS)
    produce(_WARM_UP_SECONDS)
    alone = produce(seconds)
    if (cached := page_cache.cached_share(cold.files)) > _MAX_CACHED:
        raise RuntimeError(f"{cached:.0%} of the cold topic are in the page cache")
    with ThreadPoolExecutor(1) as threads:
        producing = threads.submit(produce, seconds)
        mb_per_s = _read_while(producing, bench, cold)
        beside = producing.result()
    expected = alone.requests + beside.requests + _RATE * _WARM_UP_SECONDS
    load.check_end_offset(bench.server, small, expected)
    return {
        **beside.latencies(),
        **{f"{name}_alone": value for name, value in alone.latencies().items()},
        "mb_per_s_read": mb_per_s,
    }


def _read_while(producing: Future[Load], bench: Bench, cold: Filled) -> float:
    """Read the cold topic until the producer has ended; returns the rate in MB/s, without the time of evictions."""
    bytes_read = 0
    evicting = 0.0
    began = time.perf_counter()
    with Reader(bench.server.bootstrap_servers, cold.topic) as reader:
        while not producing.done():
            bytes_read += reader.read()
            if reader.offset == cold.records:
                started = time.perf_counter()
                page_cache.evict(cold.files)
                reader.offset = 0
                evicting += time.perf_counter() - started
    return bytes_read / (time.perf_counter() - began - evicting) / 1e6


ROWS = (
    Row(
        name="cold-reader",
        title=f"one-record produce at {_RATE:,} a second while a consumer reads 5 GB that are not in the page cache",
        group="A cold reader",
        measure=cold_reader,
        subjects=(Subject.APACHE, Subject.MOLDAU),
        needs=("cc",),
        targets=(Target("p99_us", at_most=0.5),),
    ),
)
