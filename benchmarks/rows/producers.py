"""Kafka's own producer in `ProducerPerformance`: as fast as it can, to one partition.

The tool generates its records from random capital letters, which lz4 can hardly compress. Its first records, a tenth of
the counted ones, warm up its JVM; rates and latencies are those of the following records (``--warmup-records``). It
puts records into the producer's buffer faster than they are sent, so a latency is mostly the time in that buffer. The
server's CPU is that of the whole run, for all records.
"""

from __future__ import annotations

import re
import subprocess
import uuid
from dataclasses import dataclass

from .. import load, transaction_load
from ..row import Bench, Numbers, Row, Subject, Target

GROUP = "Kafka's Java producer (ProducerPerformance)"

_TIMEOUT_SECONDS = 900

_SENT = re.compile(r"^\d+ records sent, ([\d.]+) records/sec", re.MULTILINE)
_STEADY = re.compile(
    r"^(?P<records>\d+) steady state records sent, (?P<rate>[\d.]+) records/sec .*, "
    r"(?P<p50>\d+) ms 50th, \d+ ms 95th, (?P<p99>\d+) ms 99th, (?P<p999>\d+) ms 99\.9th\.$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class ProducerPerformance:
    """One run of the tool."""

    records: int
    size: int
    properties: tuple[str, ...]
    """The producer's settings, in addition to its defaults."""
    transaction_ms: int | None = None
    """The duration of its transactions; None: it is not transactional."""

    def __call__(self, bench: Bench) -> Numbers:
        topic = bench.topic()
        counted = bench.count(self.records)
        warm_up = counted // 10 + 1
        before = bench.server.cpu_seconds()
        done = run_performance_tool(
            bench,
            "ProducerPerformance",
            *("--bootstrap-server", bench.server.bootstrap_servers, "--topic", topic),
            *("--num-records", str(counted + warm_up), "--warmup-records", str(warm_up)),
            *("--record-size", str(self.size), "--throughput", "-1"),
            *(() if self.transaction_ms is None else _transactional(self.transaction_ms)),
            *("--command-property", *self.properties),
        )
        cpu = bench.server.cpu_seconds() - before
        steady = _STEADY.search(done.stdout)
        if done.returncode != 0 or steady is None or int(steady["records"]) != counted:
            raise performance_tool_failed("ProducerPerformance", done)
        if self.transaction_ms is not None:
            transaction_load.wait_committed(bench.server, topic, more_than=counted + warm_up)
        elif bench.subject is not Subject.CEILING:
            load.check_end_offset(bench.server, topic, counted + warm_up)
        records_per_s = float(steady["rate"])
        return {
            "records_per_s": records_per_s,
            "mb_per_s": records_per_s * self.size / 1e6,
            "p50_ms": float(steady["p50"]),
            "p99_ms": float(steady["p99"]),
            "p999_ms": float(steady["p999"]),
            "cpu_s_per_gb": cpu / ((counted + warm_up) * self.size / 1e9),
            "cpu_us_per_record": cpu / (counted + warm_up) * 1e6,
        }


def run_performance_tool(bench: Bench, tool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one of Apache Kafka's `org.apache.kafka.tools` to its end, successfully or not."""
    return subprocess.run(
        [*bench.program(f"org.apache.kafka.tools.{tool}"), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_SECONDS,
        check=False,
    )


def performance_tool_failed(tool: str, done: subprocess.CompletedProcess[str]) -> RuntimeError:
    """The error with the end of the tool's output."""
    return RuntimeError(f"{tool} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")


def produced_per_second(done: subprocess.CompletedProcess[str]) -> float:
    """The records per second of a run of ProducerPerformance. Raises RuntimeError if it has failed."""
    rates = _SENT.findall(done.stdout)
    if done.returncode != 0 or not rates:
        raise performance_tool_failed("ProducerPerformance", done)
    return float(rates[-1])


def _transactional(transaction_ms: int) -> tuple[str, ...]:
    transactional_id = f"bench-{uuid.uuid4().hex[:12]}"
    return ("--transactional-id", transactional_id, "--transaction-duration-ms", str(transaction_ms))


def _row(name: str, title: str, measure: ProducerPerformance, *targets: Target) -> Row:
    ceiling = Target("records_per_s", at_least=0.9, against=Subject.CEILING)
    return Row(name, title, GROUP, measure, needs=("java",), targets=(*targets, ceiling))


ROWS = (
    _row(
        "producer-large-batches",
        "1,000 B records, batch.size=1000000, linger.ms=5, acks=1",
        ProducerPerformance(1_500_000, 1000, ("acks=1", "batch.size=1000000", "linger.ms=5")),
        Target("records_per_s", at_least=1.2),
        Target("cpu_s_per_gb", at_most=0.5),
    ),
    _row(
        "producer-defaults",
        "1,000 B records, the producer's defaults, acks=all",
        ProducerPerformance(1_000_000, 1000, ("acks=all",)),
        Target("records_per_s", at_least=1.2),
        Target("cpu_s_per_gb", at_most=0.35),
    ),
    _row(
        "producer-100-bytes",
        "100 B records, the producer's defaults, acks=all",
        ProducerPerformance(5_000_000, 100, ("acks=all",)),
        Target("records_per_s", at_least=1.0),
    ),
    _row(
        "producer-lz4",
        "1,000 B records, lz4, otherwise the producer's defaults, acks=all",
        ProducerPerformance(1_000_000, 1000, ("acks=all", "compression.type=lz4")),
        Target("records_per_s", at_least=1.1),
    ),
)
