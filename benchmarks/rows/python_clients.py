"""Python's Kafka clients, with their default settings: `clients.py` runs each in a separate process.

confluent-kafka is a layer over librdkafka, the client of most languages. kafka-python and aiokafka are written in
Python, and so slow that every server waits for them: they are included for reference.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import dataclass

from .. import load, programs
from ..clients import SIZE
from ..row import Bench, Numbers, Row, Subject

GROUP = "Python's clients"

_RECORDS_OF_BATCH = 1000

_TIMEOUT_SECONDS = 600


@dataclass(frozen=True)
class ClientRun:
    """One client's work: ``produce`` or ``consume``."""

    client: str
    work: str
    records: int

    def __call__(self, bench: Bench) -> Numbers:
        topic = bench.topic()
        # Whole batches of records, and at least two: the records of the first poll are not counted.
        batches = max(2, bench.count(self.records) // _RECORDS_OF_BATCH)
        records = batches * _RECORDS_OF_BATCH
        consumes = self.work == "consume"
        contents = load.filled(bench, topic, load.batch_of(_RECORDS_OF_BATCH, SIZE), batches)
        with contents if consumes else nullcontext():
            before = bench.server.cpu_seconds()
            command = [sys.executable, "-m", "moldau.benchmarks.clients", self.client, self.work]
            command += [bench.server.bootstrap_servers, topic, str(records)]
            result = programs.run_for_json(f"{self.client} {self.work}", command, timeout_s=_TIMEOUT_SECONDS)
            cpu = bench.server.cpu_seconds() - before
        if not consumes and bench.subject is not Subject.CEILING:
            load.check_end_offset(bench.server, topic, records + 1)  # including the one before the measurement
        records_per_s = result["records"] / result["seconds"]
        return {
            "records_per_s": records_per_s,
            "mb_per_s": records_per_s * SIZE / 1e6,
            "cpu_s_per_gb": cpu / (records * SIZE / 1e9),
        }


def _row(client: str, work: str, records: int, title: str) -> Row:
    needs = (client, "cc") if work == "consume" else (client,)
    return Row(f"{client}-{work}", title, GROUP, ClientRun(client, work, records), needs=needs)


ROWS = (
    _row("confluent-kafka", "produce", 1_000_000, "confluent-kafka (librdkafka) produces 1,000 B records"),
    _row("confluent-kafka", "consume", 2_000_000, "confluent-kafka (librdkafka) reads 1,000 B records"),
    _row("kafka-python", "produce", 100_000, "kafka-python produces 1,000 B records"),
    _row("kafka-python", "consume", 300_000, "kafka-python reads 1,000 B records"),
    _row("aiokafka", "produce", 100_000, "aiokafka produces 1,000 B records"),
    _row("aiokafka", "consume", 300_000, "aiokafka reads 1,000 B records"),
)
