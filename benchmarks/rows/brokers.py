"""Several brokers on one machine: `moldau serve --brokers N` with N = 1, 2 and 4, and Apache Kafka as one process.

Four partitions are produced to, and read, at the same time. With librdkafka (kcat), each partition has its own client
process, because one would be the limit; Kafka's Java clients are one process for all partitions. The clients use the
same cores as the servers, so the rate shows what the machine as a whole does. The server's CPU is that of all brokers
together: if it does not grow with N, brokers share no work and no lock, and more cores give proportionally more.

The same topic and clients are used for all N, so that only the brokers differ.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...testing.waiting import wait_until
from .. import load
from ..measurement import create_topic
from ..row import Bench, Numbers, Row, Server, Subject
from .producers import performance_tool_failed, produced_per_second, run_performance_tool

GROUP = "Several brokers"

_SIZE = 1000
_PARTITIONS = 4
_RECORDS = 1_000_000
_BROKERS = (1, 2, 4)
_TIMEOUT_SECONDS = 900
_PAUSE_SECONDS = 1.0
_IDLE_CPU_SECONDS = 0.1
_TOPIC = "bench-brokers"
_WARM_UP_TOPIC = "bench-warm-up"

_FETCH_MS = 7  # the column of ConsumerPerformance with the time after the assignment of the partitions
_CONSUMED = 4


@dataclass(frozen=True)
class WorkOfBrokers:
    """Work with this many brokers; for Apache Kafka with one, because its threads use all cores."""

    brokers: int
    client: str
    work: str

    def __call__(self, bench: Bench) -> Numbers:
        server = bench.start_server(brokers=self.brokers if bench.subject is Subject.MOLDAU else 1)
        per_partition = bench.count(_RECORDS // _PARTITIONS)
        records = per_partition * _PARTITIONS
        self._run(bench, server, _WARM_UP_TOPIC, per_partition // 5 + 1)
        _wait_until_idle(server)
        cpu, seconds = self._run(bench, server, _TOPIC, per_partition)
        found = sum(load.end_offsets_of_leaders(server, _TOPIC, _PARTITIONS))
        if found != records:
            raise RuntimeError(f"{records} records were produced, and the topic has {found}")
        return {
            "records_per_s": records / seconds,
            "mb_per_s": records * _SIZE / seconds / 1e6,
            "cpu_s_per_gb": cpu / (records * _SIZE / 1e9),
        }

    def _run(self, bench: Bench, server: Server, topic: str, per_partition: int) -> tuple[float, float]:
        """The CPU time of the server, and the seconds, for this many records in each partition of a new topic."""
        create_topic(server, topic, partitions=_PARTITIONS, config={})
        if self.work == "fetch":
            _produce_by_librdkafka(bench, server, topic, per_partition)
        before = server.cpu_seconds()
        if self.work == "fetch" and self.client == "java":
            seconds = _fetch_by_java(bench, server, topic, per_partition * _PARTITIONS)
        elif self.work == "fetch":
            seconds = _fetch_by_librdkafka(server, topic, per_partition)
        elif self.client == "librdkafka":
            seconds = _produce_by_librdkafka(bench, server, topic, per_partition)
        else:
            seconds = _produce_by_java(bench, server, topic, per_partition * _PARTITIONS)
        return server.cpu_seconds() - before, seconds


def _wait_until_idle(server: Server) -> None:
    """Each new broker imports modules and compiles codecs, and a JVM compiles: a fixed cost, which is not measured."""
    before = server.cpu_seconds()

    def is_idle() -> bool:
        nonlocal before
        used, before = server.cpu_seconds() - before, server.cpu_seconds()
        return used < _IDLE_CPU_SECONDS

    wait_until(is_idle, "the server is idle", pause=_PAUSE_SECONDS)


def _produce_by_librdkafka(bench: Bench, server: Server, topic: str, records: int) -> float:
    """Each partition gets this many records. Returns the seconds."""
    lines = bench.work_dir / "records"
    with lines.open("wb") as file:
        for _ in range(records):
            file.write(b"x" * _SIZE + b"\n")
    properties = ("-X", "queue.buffering.max.kbytes=65536", "-X", "linger.ms=5")
    return _run_all([[*_kcat(server, topic, partition), "-P", *properties] for partition in range(_PARTITIONS)], lines)


def _fetch_by_librdkafka(server: Server, topic: str, records: int) -> float:
    commands = [
        [*_kcat(server, topic, partition), "-C", "-q", "-o", "beginning", "-c", str(records), "-f", ""]
        for partition in range(_PARTITIONS)
    ]
    return _run_all(commands, None)


def _kcat(server: Server, topic: str, partition: int) -> list[str]:
    return ["kcat", "-b", server.bootstrap_servers, "-t", topic, "-p", str(partition)]


def _run_all(commands: Sequence[Sequence[str]], lines: Path | None) -> float:
    """Run the commands at the same time, with these lines on standard input. Returns the seconds."""
    began = time.perf_counter()
    running = []
    for command in commands:
        with open(lines or "/dev/null", "rb") as given:
            running.append(subprocess.Popen(command, stdin=given, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE))
    problems = []
    for process in running:
        _, errors = process.communicate(timeout=_TIMEOUT_SECONDS)
        if process.returncode:
            problems.append(errors.decode(errors="replace")[-1000:])
    if problems:
        raise RuntimeError(f"kcat failed:\n{problems[0]}")
    return time.perf_counter() - began


def _produce_by_java(bench: Bench, server: Server, topic: str, records: int) -> float:
    """Records without keys: the producer fills a batch of one partition after the other."""
    done = run_performance_tool(
        bench,
        "ProducerPerformance",
        *("--bootstrap-server", server.bootstrap_servers, "--topic", topic),
        *("--num-records", str(records), "--record-size", str(_SIZE), "--throughput", "-1"),
        *("--command-property", "acks=all", "batch.size=1000000", "linger.ms=5"),
    )
    return records / produced_per_second(done)


def _fetch_by_java(bench: Bench, server: Server, topic: str, records: int) -> float:
    """A group of one member. Returns the seconds after its partitions were assigned."""
    done = run_performance_tool(
        bench,
        "ConsumerPerformance",
        *("--bootstrap-server", server.bootstrap_servers, "--topic", topic, "--group", f"{topic}-readers"),
        *("--num-records", str(records), "--timeout", str(_TIMEOUT_SECONDS * 1000), "--hide-header"),
    )
    columns = done.stdout.strip().rpartition("\n")[2].split(", ")
    if done.returncode != 0 or len(columns) <= _FETCH_MS:
        raise performance_tool_failed("ConsumerPerformance", done)
    if int(columns[_CONSUMED]) < records:
        raise RuntimeError(f"{columns[_CONSUMED]} of {records} records were consumed")
    return int(columns[_FETCH_MS]) / 1000


def _row(brokers: int, client: str, work: str, needs: tuple[str, ...]) -> Row:
    number = f"{brokers} broker{'s' if brokers > 1 else ''}"
    words = {"produce": "produces", "fetch": "reads"}[work]
    java = {"produce": "Kafka's Java producer", "fetch": "Kafka's Java consumer"}[work]
    clients = f"{client} ({_PARTITIONS} processes)" if client == "librdkafka" else java
    return Row(
        name=f"brokers-{brokers}-{client}-{work}",
        title=f"{number}: {clients} {words} 1,000 B records, {_PARTITIONS} partitions",
        group=GROUP,
        measure=WorkOfBrokers(brokers, client, work),
        subjects=(Subject.APACHE, Subject.MOLDAU),
        needs=needs,
        own_server=True,
    )


ROWS = tuple(
    _row(brokers, client, work, needs)
    for client, work, needs in (
        ("librdkafka", "produce", ("kcat",)),
        ("librdkafka", "fetch", ("kcat",)),
        ("java", "produce", ("java",)),
        ("java", "fetch", ("java", "kcat")),
    )
    for brokers in _BROKERS
)
