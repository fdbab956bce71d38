"""Kafka's own consumer in a group: `ConsumerPerformance`, which subscribes.

The partition is filled in advance, as for the consumer without a group (`consumers`). The tool starts cold, and its
clock begins before it joins; the time to join is a separate number.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

from .. import load
from ..row import Bench, Numbers, Row, Subject, Target
from .groups import GROUP

_SIZE = 1000
_BATCHES = 3000
_RECORDS_OF_BATCH = 1000

_TIMEOUT_SECONDS = 600

# From the line that the tool prints.
_COLUMNS = (
    "start",
    "end",
    "megabytes",
    "megabytes_per_s",
    "records",
    "records_per_s",
    "rebalance_ms",
    "fetch_ms",
    "fetch_megabytes_per_s",
    "fetch_records_per_s",
)


@dataclass(frozen=True)
class ConsumerPerformance:
    """Read 3 GB as the only member of a group."""

    protocol: str

    def __call__(self, bench: Bench) -> Numbers:
        topic = bench.topic()
        batches = bench.count(_BATCHES)
        records = batches * _RECORDS_OF_BATCH
        with load.filled(bench, topic, load.batch_of(_RECORDS_OF_BATCH, _SIZE), batches):
            before = bench.server.cpu_seconds()
            found = _run(bench, topic, records, self.protocol)
            cpu = bench.server.cpu_seconds() - before
        if found["records"] < records:
            raise RuntimeError(f"ConsumerPerformance read {found['records']:g} of {records} records")
        return {
            "records_per_s": found["records_per_s"],
            "mb_per_s": found["records_per_s"] * _SIZE / 1e6,
            "cpu_s_per_gb": cpu / (records * _SIZE / 1e9),
            "seconds_to_join": found["rebalance_ms"] / 1e3,
            "mb_per_s_once_joined": found["fetch_records_per_s"] * _SIZE / 1e6,
        }


def _run(bench: Bench, topic: str, records: int, protocol: str) -> dict[str, float]:
    """The numbers printed by the tool."""
    command = [
        *bench.program("org.apache.kafka.tools.ConsumerPerformance"),
        *("--bootstrap-server", bench.server.bootstrap_servers, "--topic", topic),
        *("--num-records", str(records), "--group", f"{topic}-readers", "--hide-header"),
        *("--command-property", f"group.protocol={protocol}"),
    ]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False
    )
    rows = [line.split(", ") for line in done.stdout.splitlines()]
    found = next((line for line in rows if len(line) == len(_COLUMNS)), None)
    if done.returncode != 0 or found is None:
        raise RuntimeError(f"ConsumerPerformance failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return {name: float(value) for name, value in zip(_COLUMNS[2:], found[2:], strict=True)}


ROWS = tuple(
    Row(
        name=f"java-consumer-{name}",
        title=f"ConsumerPerformance: 3 GB of 1,000 B records, one partition, {words}",
        group=GROUP,
        measure=ConsumerPerformance(protocol),
        subjects=(Subject.APACHE, Subject.MOLDAU),
        needs=("java", "cc"),
        targets=(Target("mb_per_s", at_least=1.0),),
    )
    for name, protocol, words in (
        ("in-group", "classic", "classic protocol"),
        ("in-consumer-group", "consumer", "consumer protocol"),
    )
)
