"""TLS: Kafka's Java clients and librdkafka produce and fetch, and connections are opened.

Both servers have an SSL listener with the same certificate, of a P-256 key. Records have 1,000 B. Each row begins with
half of its work, uncounted; the partition of a consumer is filled through the listener without TLS. The server's CPU
is that of the whole run of a client, including its connections.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ...protocol.messages.api_versions import ApiVersionsRequest
from .. import handshakes, load, page_cache, programs
from ..measurement import create_topic
from ..row import Bench, Numbers, Row, Server, Subject, Target
from .producers import produced_per_second, run_performance_tool

GROUP = "TLS"

_SERVERS = (Subject.APACHE, Subject.MOLDAU)
_LISTENER = "SECURE"
_RECORD_BYTES = 1000
_WARM_UP = 0.5
_MIN_RECORDS = 4_000
"""The records of a consumer's first poll, at most 1,000, are not counted; so half of this is sufficient."""
_TIMEOUT_SECONDS = 600

_CONNECTIONS = 1_000
_IN_FLIGHT = 32
_API_VERSIONS = load.frame(ApiVersionsRequest(), 0)

# The names of the sizes in numbers, and the records of a batch.
_SIZES = {"64_kB": 63, "1_MB": 1_000}

# Of producers: the limit of a batch.
_BATCH_BYTES = {"64_kB": 65_536, "1_MB": 1_000_000}


@dataclass(frozen=True)
class _Run:
    """One run of a client."""

    bench: Bench
    server: Server
    ca_file: Path
    topic: str
    records: int

    @property
    def address(self) -> str:
        return self.server.address_of(_LISTENER)

    @property
    def java(self) -> list[str]:
        """Settings of Kafka's Java clients."""
        return ["security.protocol=SSL", "ssl.truststore.type=PEM", f"ssl.truststore.location={self.ca_file}"]

    @property
    def librdkafka(self) -> list[str]:
        return ["security.protocol=ssl", f"ssl.ca.location={self.ca_file}"]


def _java_produces(run: _Run, size: str) -> float:
    done = run_performance_tool(
        run.bench,
        "ProducerPerformance",
        *("--bootstrap-server", run.address, "--topic", run.topic),
        *("--num-records", str(run.records), "--record-size", str(_RECORD_BYTES), "--throughput", "-1"),
        *("--command-property", *run.java, "acks=1", f"batch.size={_BATCH_BYTES[size]}", "linger.ms=5"),
    )
    return produced_per_second(done)


def _java_fetches(run: _Run, size: str) -> float:
    settings = [*run.java, f"max.partition.fetch.bytes={1 << 16 if size == '64_kB' else 1 << 20}"]
    command = [*run.bench.program("AssignedConsumer"), run.address, run.topic, str(run.records), *settings]
    result = programs.run_for_json("AssignedConsumer", command, timeout_s=_TIMEOUT_SECONDS)
    return float(result["records"] / result["seconds"])


def _librdkafka_produces(run: _Run, size: str) -> float:
    settings = [*run.librdkafka, "acks=1", f"batch.size={_BATCH_BYTES[size]}"]
    return _librdkafka(run, "produce", settings)


def _librdkafka_fetches(run: _Run, size: str) -> float:
    settings = [*run.librdkafka, f"fetch.message.max.bytes={1 << 16 if size == '64_kB' else 1 << 20}"]
    return _librdkafka(run, "consume", settings)


def _librdkafka(run: _Run, work: str, settings: list[str]) -> float:
    command = [sys.executable, "-m", "moldau.benchmarks.clients", "confluent-kafka", work, run.address]
    command += [run.topic, str(run.records), *settings]
    result = programs.run_for_json(f"confluent-kafka {work}", command, timeout_s=_TIMEOUT_SECONDS)
    return float(result["records"] / result["seconds"])


@dataclass(frozen=True)
class Transfer:
    """A client's work in batches of both sizes: rates, and the server's CPU."""

    client: Callable[[_Run, str], float]
    """Returns records per second."""
    records: int
    fetches: bool

    def __call__(self, bench: Bench) -> Numbers:
        ca_file, server = secured_server(bench)
        found: dict[str, float] = {}
        for size, batch_records in _SIZES.items():
            batches = max(bench.count(self.records), _MIN_RECORDS) // batch_records
            topic = f"bench-{size}"
            create_topic(server, topic, partitions=1, config={})
            if self.fetches:
                batch = load.batch_of(batch_records, _RECORD_BYTES)
                load.fill(bench, server, topic, batch, batches)
                page_cache.sync(server.data_dir.glob(f"{topic}-*/*.log"))
            warm_up = round(batches * _WARM_UP)
            self.client(_Run(bench, server, ca_file, topic, warm_up * batch_records), size)
            records = batches * batch_records
            before = server.cpu_seconds()
            records_per_s = self.client(_Run(bench, server, ca_file, topic, records), size)
            cpu = server.cpu_seconds() - before
            if not self.fetches:
                (end,) = load.end_offsets(server, topic)
                if end < warm_up * batch_records + records:
                    raise RuntimeError(f"{end} records are in {topic}")
            found[f"mb_per_s_at_{size}"] = records_per_s * _RECORD_BYTES / 1e6
            found[f"cpu_s_per_gb_at_{size}"] = cpu / (records * _RECORD_BYTES / 1e9)
        return found


def secured_server(bench: Bench) -> tuple[Path, Server]:
    """A server with an SSL listener, and the file with the authority that its clients trust."""
    from ...testing.authority import Authority

    authority = Authority()
    ca_file = bench.work_dir / "ca.pem"
    ca_file.write_text(authority.certificate)
    key_store = authority.server().write(bench.work_dir / "server.pem")
    config = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(key_store)}
    return ca_file, bench.start_server(config=config, listeners={_LISTENER: "SSL"})


def open_connections(bench: Bench) -> Numbers:
    """One after the other, and 32 at the same time."""
    ca_file, server = secured_server(bench)
    address = server.address_of(_LISTENER)
    count = bench.count(_CONNECTIONS)

    def opened(in_flight: int) -> float:
        return handshakes.open_connections(address, ca_file, count, in_flight=in_flight, greeting=_API_VERSIONS)

    opened(_IN_FLIGHT)  # warmup
    before = server.cpu_seconds()
    one_by_one = opened(1)
    seconds = opened(_IN_FLIGHT)
    cpu = server.cpu_seconds() - before
    return {
        "seconds": seconds,
        "seconds_one_by_one": one_by_one,
        "cpu_us_per_connection": cpu / (2 * count) * 1e6,
    }


def _row(name: str, title: str, measure: Transfer, *needs: str) -> Row:
    targets = [
        target
        for size in _SIZES
        for target in (
            Target(f"mb_per_s_at_{size}", at_least=1.0),
            Target(f"cpu_s_per_gb_at_{size}", at_most=1.0),
        )
    ]
    return Row(
        name,
        title,
        GROUP,
        measure,
        subjects=_SERVERS,
        needs=(*needs, "cryptography"),
        own_server=True,
        targets=tuple(targets),
    )


ROWS = (
    _row(
        "tls-java-produce",
        "Kafka's Java producer over TLS, batches of 64 kB and of 1 MB, acks=1",
        Transfer(_java_produces, 300_000, fetches=False),
        "java",
    ),
    _row(
        "tls-java-fetch",
        "Kafka's Java consumer over TLS, fetches of 64 kB and of 1 MB",
        Transfer(_java_fetches, 300_000, fetches=True),
        *("java", "javac", "cc"),
    ),
    _row(
        "tls-librdkafka-produce",
        "confluent-kafka (librdkafka) produces over TLS, batches of 64 kB and of 1 MB, acks=1",
        Transfer(_librdkafka_produces, 300_000, fetches=False),
        "confluent-kafka",
    ),
    _row(
        "tls-librdkafka-fetch",
        "confluent-kafka (librdkafka) reads over TLS, fetches of 64 kB and of 1 MB",
        Transfer(_librdkafka_fetches, 300_000, fetches=True),
        *("confluent-kafka", "cc"),
    ),
    Row(
        name="tls-connections",
        title="1,000 TLS connections are opened, each with its first response: 32 at a time, and one by one",
        group=GROUP,
        measure=open_connections,
        subjects=_SERVERS,
        needs=("cryptography",),
        own_server=True,
        targets=(Target("seconds", at_most=1.0), Target("seconds_one_by_one", at_most=1.0)),
    ),
)
