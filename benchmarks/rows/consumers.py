"""Kafka's own consumer, without a group: `java/AssignedConsumer.java` reads a partition from its beginning.

The partition is filled in advance, on the disk and in the page cache, with batches of 1 MB. With the consumer's default
settings, each batch is the response to one fetch. Neither the time of filling nor the server's CPU for it is counted.
"""

from __future__ import annotations

from .. import load, programs
from ..row import Bench, Numbers, Row, Subject, Target

GROUP = "Kafka's Java consumer"

_SIZE = 1000
_BATCHES = 3000
_RECORDS_OF_BATCH = 1000

_TIMEOUT_SECONDS = 600


def read_assigned_partition(bench: Bench) -> Numbers:
    """Read 3 GB."""
    topic = bench.topic()
    batches = bench.count(_BATCHES)
    records = batches * _RECORDS_OF_BATCH
    with load.filled(bench, topic, load.batch_of(_RECORDS_OF_BATCH, _SIZE), batches):
        before = bench.server.cpu_seconds()
        command = [*bench.program("AssignedConsumer"), bench.server.bootstrap_servers, topic, str(records)]
        result = programs.run_for_json("AssignedConsumer", command, timeout_s=_TIMEOUT_SECONDS)
        cpu = bench.server.cpu_seconds() - before
    return {
        "records_per_s": result["records"] / result["seconds"],
        "mb_per_s": result["bytes"] / result["seconds"] / 1e6,
        "cpu_s_per_gb": cpu / (records * _SIZE / 1e9),
    }


ROWS = (
    Row(
        name="java-consumer",
        title="3 GB of 1,000 B records, one partition assigned, default settings",
        group=GROUP,
        measure=read_assigned_partition,
        needs=("java", "javac", "cc"),
        targets=(
            Target("mb_per_s", at_least=1.0),
            Target("mb_per_s", at_least=0.9, against=Subject.CEILING),
        ),
    ),
)
