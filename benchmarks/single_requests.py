"""Rates and latencies of single requests that were encoded beforehand, so that no client is measured.

    python benchmarks/single_requests.py                                   starts Moldau and measures it
    python benchmarks/single_requests.py --bootstrap-server HOST:PORT --pid N    measures any server

The generator (`load.c`) is compiled with ``cc``. Every row has a new topic and one uncounted round before it. CPU is
that of the server's process, user and system, from /proc. Prints a table; ``--json`` prints the rows for programs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any, NamedTuple

from moldau.protocol.codec import encode
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.headers import RequestHeader
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.records import Record, build_batch
from moldau.protocol.schema import Request
from moldau.testing import Broker
from moldau.testing.wire import WireClient

PRODUCE_VERSION = 7
FETCH_VERSION = 11


class Row(NamedTuple):
    """One measurement."""

    name: str
    kind: str
    size: int
    connections: int
    in_flight: int
    requests: int


ROWS = (
    Row("produce 1 record of 100 B, 1x1", "produce", 100, 1, 1, 60_000),
    Row("produce 1 record of 100 B, 8x4", "produce", 100, 8, 4, 150_000),
    Row("produce 1 record of 100 B, 64x1", "produce", 100, 64, 1, 150_000),
    Row("produce 64 kB, 2x2", "produce", 64_000, 2, 2, 15_000),
    Row("fetch 64 kB, 4x1", "fetch", 64_000, 4, 1, 60_000),
    Row("fetch 1 MB, 2x1", "fetch", 1_000_000, 2, 1, 8_000),
)


def frame(request: Request, version: int) -> bytes:
    header = encode(RequestHeader(request_api_key=request.API_KEY, request_api_version=version, client_id="load"), 1)
    body = header + encode(request, version)
    return len(body).to_bytes(4, "big") + body


def batch(size: int) -> bytes:
    """One record of ``size`` bytes, or records of 1,000 bytes that make a batch of about that size."""
    value = os.urandom(min(size, 1000))
    count = max(1, size // 1000)
    return build_batch([Record(offset=i, timestamp=0, key=None, value=value, headers=[]) for i in range(count)])


def produce(topic: str, records: bytes) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=records)
    return ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])])


def fetch(topic: str, size: int) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=size)
    return FetchRequest(
        max_wait_ms=500, min_bytes=1, max_bytes=size, topics=[FetchTopic(topic=topic, partitions=[partition])]
    )


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(row: Row, bootstrap: str, pid: int | None, load: Path) -> dict[str, Any]:
    topic = f"bench-{uuid.uuid4().hex[:12]}"
    with WireClient(bootstrap) as wire:
        created = wire.call(
            CreateTopicsRequest(topics=[CreatableTopic(name=topic, num_partitions=1, replication_factor=1)]), 5
        )
        assert created.topics[0].error_code == 0, created
        if row.kind == "fetch":
            for _ in range(2 * row.size // 64_000 + 1):
                wire.call(produce(topic, batch(64_000)), PRODUCE_VERSION)
    if row.kind == "produce":
        request = frame(produce(topic, batch(row.size)), PRODUCE_VERSION)
    else:
        request = frame(fetch(topic, row.size), FETCH_VERSION)
    host, port = bootstrap.rsplit(":", 1)

    def run(requests: int) -> dict[str, Any]:
        arguments = [str(load), host, port, str(row.connections), str(row.in_flight), str(requests)]
        done = subprocess.run(arguments, input=request, stdout=subprocess.PIPE, check=True, timeout=300)
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    run(max(row.requests // 10, row.connections * row.in_flight))
    before = cpu_seconds(pid) if pid else 0.0
    result = run(row.requests)
    cpu = cpu_seconds(pid) - before if pid else float("nan")
    moved = len(request) * row.requests if row.kind == "produce" else result["bytes_received"]
    return {
        "name": row.name,
        "requests_per_s": row.requests / result["seconds"],
        "mb_per_s": moved / result["seconds"] / 1e6,
        "p50_us": result["p50_us"],
        "p99_us": result["p99_us"],
        "p999_us": result["p999_us"],
        "cpu_us_per_request": cpu / row.requests * 1e6,
        "cpu_s_per_gb": cpu / (moved / 1e9),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap-server", help="measure this server; default is to start Moldau")
    parser.add_argument("--pid", type=int, help="its process, for the CPU it uses")
    parser.add_argument("--only", help="only rows whose name has this in it")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    arguments = parser.parse_args()
    rows = [row for row in ROWS if not arguments.only or arguments.only in row.name]
    with tempfile.TemporaryDirectory() as folder:
        load = Path(folder) / "load"
        subprocess.run(["cc", "-O2", "-o", str(load), str(Path(__file__).with_name("load.c"))], check=True)
        if arguments.bootstrap_server:
            results = show(rows, arguments.bootstrap_server, arguments.pid, load, arguments.json)
        else:
            with Broker() as broker:
                results = show(rows, broker.bootstrap_servers, broker.pid, load, arguments.json)
    if arguments.json:
        json.dump(results, sys.stdout, indent=2)
        print()


def show(rows: list[Row], bootstrap: str, pid: int | None, load: Path, quiet: bool) -> list[dict[str, Any]]:
    results = []
    heads = ("req/s", "MB/s", "p50 us", "p99 us", "p99.9 us", "cpu us", "cpu s/GB")
    if not quiet:
        print(f"{'':34}" + "".join(f"{head:>10}" for head in heads))
    for row in rows:
        result = measure(row, bootstrap, pid, load)
        results.append(result)
        if not quiet:
            numbers = [value for name, value in result.items() if name != "name"]
            print(f"{row.name:34}" + "".join(f"{number:10.1f}" for number in numbers), flush=True)
    return results


if __name__ == "__main__":
    main()
