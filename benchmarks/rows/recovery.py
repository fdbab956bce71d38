"""How long a server is away after ``kill -9`` with a large log that it was writing.

A server that was not stopped does not know how far its last segments are whole, so it reads them again, batch by batch,
with the checksum of each, and makes their indexes anew. All of the log is read: the point up to which it is known to be
on disk is written once a minute by default, here not at all, so that it does not depend on when that minute ended.

Before the restart the log is written to the disk, and it stays in the page cache. So the speed to compare with is that
of plain reads of the same files right after, by Python with a buffer of 1 MB.

A broker that was killed is known to the controller for a while as one that lives, and Apache Kafka's does not let it
return before that session has ended, 9 s by default. It is made as short as it can be used; the rest of it is served
while the log is recovered.
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
"""What Kafka's producer makes of records by default."""
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
