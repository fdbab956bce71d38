"""The downtime of a server after ``kill -9`` with a large log that it was writing.

A server that was not stopped does not know up to which point its last segments are valid. So it reads them again, batch
by batch, verifies the checksum of each, and rebuilds their indexes. The whole log is read: by default, the flushed
position is written once a minute; here it is never written, so that the result does not depend on that minute.

Before the restart the log is written to the disk, and it stays in the page cache. So the reference is the speed of
plain reads of the same files directly afterwards, by Python with a buffer of 1 MB.

The controller considers a killed broker alive for some time, and Apache Kafka's controller does not let it register
again before that session has ended, 9 s by default. The session is made as short as possible; the rest of it overlaps
with the recovery of the log.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from .. import filling, page_cache
from ..measurement import create_topic
from ..restart import seconds_to_answer, seconds_to_serve
from ..row import Bench, Numbers, Row, Subject, Target
from .durability import GROUP

_TOPIC = "bench"
_LOG_BYTES = 5_000_000_000
_BATCH_BYTES = 16_000
"""The size of batches of Kafka's producer by default."""
_READ_BYTES = 1_000_000

_CONFIG = {
    "log.flush.offset.checkpoint.interval.ms": str(2**31 - 1),
    "broker.session.timeout.ms": "1000",
    "broker.heartbeat.interval.ms": "250",
}


def recovery(bench: Bench) -> Numbers:
    server = bench.start_server(config=_CONFIG)
    create_topic(server, _TOPIC, partitions=1, config={})
    filled = filling.fill(bench, server, _TOPIC, size=bench.count(_LOG_BYTES), batch_bytes=_BATCH_BYTES)
    server.kill()
    page_cache.sync(filled.files)
    seconds = seconds_to_answer(server)
    seconds_until_served = seconds + seconds_to_serve(server, _TOPIC, 0, filled.records)
    return {
        "seconds": seconds,
        "seconds_until_served": seconds_until_served,
        "seconds_per_gb": seconds_until_served / (filled.size / 1e9),
        "gb_per_s": filled.size / seconds_until_served / 1e9,
        "gb_per_s_of_plain_reads": filled.size / _seconds_to_read(filled.files) / 1e9,
    }


def _seconds_to_read(files: Iterable[Path]) -> float:
    buffer = bytearray(_READ_BYTES)
    began = time.perf_counter()
    for path in files:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
    return time.perf_counter() - began


ROWS = (
    Row(
        name="recovery",
        title="kill -9 with a log of 5 GB in batches of 16 kB: start to the first answer, and to the partition served",
        group=GROUP,
        measure=recovery,
        subjects=(Subject.APACHE, Subject.MOLDAU),
        needs=("cc",),
        own_server=True,
        targets=(Target("seconds_per_gb", at_most=1.0),),
    ),
)
