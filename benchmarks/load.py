"""`load.c` from Python: requests encoded in advance, a run of the generator, and topics filled quickly.

The requests are Produce version 7 and Fetch version 11: the last versions before flexible encoding and topic ids that
both servers support, so a frame can be created without a query to a server.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..protocol.api import request_header_version
from ..protocol.codec import encode
from ..protocol.messages.headers import RequestHeader
from ..protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ..protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ..protocol.records import Record, build_batch, read_batch_header
from ..protocol.schema import Request
from ..testing.builders import fetch_request, produce_request
from ..testing.wire import WireClient
from . import ceiling, page_cache
from .programs import run_for_json
from .row import Bench, Server, Subject

PRODUCE_VERSION = 7
FETCH_VERSION = 11

TIMEOUT_SECONDS = 600.0
"""The time limit of a generator."""


@dataclass(frozen=True, kw_only=True)
class Timed:
    """The measurements of every generator (`generator.h`)."""

    seconds: float
    """From the first request to the last response."""
    bytes_sent: int
    bytes_received: int
    p50_us: float
    p99_us: float
    p999_us: float
    max_us: float

    def latencies(self) -> dict[str, float]:
        """The percentiles as numbers of a row."""
        return {"p50_us": self.p50_us, "p99_us": self.p99_us, "p999_us": self.p999_us}


@dataclass(frozen=True, kw_only=True)
class Load(Timed):
    """The measurements of the request generator."""

    requests: int

    @property
    def requests_per_s(self) -> float:
        return self.requests / self.seconds


def frame(request: Request, version: int) -> bytes:
    """An encoded request with its length."""
    header = RequestHeader(request_api_key=request.API_KEY, request_api_version=version, client_id="load")
    body = encode(header, request_header_version(request.API_KEY, version)) + encode(request, version)
    return len(body).to_bytes(4, "big") + body


def produce_frame(topic: str, batch: bytes) -> bytes:
    """Produce to partition 0 with acks=1."""
    return frame(produce_request(topic, batch), PRODUCE_VERSION)


def fetch_frame(topic: str, max_bytes: int, *, offset: int = 0, committed: bool = False) -> bytes:
    """Fetch from partition 0, as a consumer without a session; with ``committed`` at read_committed isolation."""
    request = fetch_request(topic, offset, max_wait_ms=500, max_bytes=max_bytes, partition_max_bytes=max_bytes)
    request.isolation_level = int(committed)
    return frame(request, FETCH_VERSION)


def batch_of(records: int, size: int) -> bytes:
    """A batch of records of ``size`` random bytes each, stamped now, because retention deletes old records."""
    now_ms = int(time.time() * 1000)
    return build_batch([Record(offset=i, timestamp=now_ms, value=os.urandom(size)) for i in range(records)])


def command(
    bench: Bench,
    server: Server,
    *,
    connections: int = 1,
    in_flight: int = 1,
    requests: int | None = None,
    seconds: float | None = None,
    rate: float | None = None,
    idle: int = 0,
) -> list[str]:
    """The generator's command line; load.c explains the options."""
    options: dict[str, float | None] = {
        "connections": connections,
        "in-flight": in_flight,
        "requests": requests,
        "seconds": seconds,
        "rate": rate,
        "idle": idle,
    }
    given = [word for name, value in options.items() if value is not None for word in (f"--{name}", str(value))]
    return [*bench.program("load"), *given, *server.bootstrap_servers.rsplit(":", 1)]


def run(bench: Bench, server: Server, request: bytes, **options: Any) -> Load:
    """Run the generator to its end; ``options`` are those of `command`."""
    generator = command(bench, server, **options)
    return Load(**run_for_json("the load generator", generator, timeout_s=TIMEOUT_SECONDS, given=request))


def fill(bench: Bench, server: Server, topic: str, batch: bytes, count: int, *, in_flight: int = 2) -> None:
    """Produce ``batch`` ``count`` times to an empty topic."""
    run(bench, server, produce_frame(topic, batch), in_flight=in_flight, requests=count)
    check_end_offset(server, topic, read_batch_header(batch).record_count * count)


@contextmanager
def filled(bench: Bench, topic: str, batch: bytes, count: int) -> Iterator[None]:
    """Inside the block, ``topic`` contains ``batch`` ``count`` times, on disk and in the page cache. With the ceiling
    the
    topic is endless."""
    if bench.subject is Subject.CEILING:
        # 256 MB are more than any processor's cache.
        with ceiling.pieces(bench.server.data_dir, batch, min(count, 1 + (256 << 20) // len(batch))):
            yield
        return
    fill(bench, bench.server, topic, batch, count)
    page_cache.sync(bench.server.data_dir.glob(f"{topic}-*/*.log"))  # or the disk is written during the reads
    yield


def check_end_offset(server: Server, topic: str, expected: int) -> None:
    """Raise RuntimeError if partition 0 has a different number of records: the generator does not check responses."""
    (found,) = end_offsets(server, topic)
    if found != expected:
        raise RuntimeError(f"{expected} records were produced to {topic}, and it has {found}")


def end_offsets_of_leaders(server: Server, topic: str, partitions: int) -> list[int]:
    """The end offset of each partition, from its leader."""
    with WireClient(server.bootstrap_servers) as wire:
        known = wire.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False))
    addresses = {broker.node_id: f"{broker.host}:{broker.port}" for broker in known.brokers}
    leaders = {each.partition_index: each.leader_id for each in known.topics[0].partitions}
    found = []
    for partition in range(partitions):
        wanted = ListOffsetsPartition(partition_index=partition, timestamp=-1)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])
        with WireClient(addresses[leaders[partition]]) as wire:
            (answer,) = wire.call(request, 4).topics[0].partitions
        if answer.error_code != 0:
            raise RuntimeError(f"{topic}-{partition}: error {answer.error_code}")
        found.append(int(answer.offset))
    return found


def end_offsets(server: Server, topic: str, partitions: int = 1, *, committed: bool = False) -> list[int]:
    """The end offset of each partition; with ``committed`` the last stable offset."""
    indexes = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(partitions)]
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(committed),
        topics=[ListOffsetsTopic(name=topic, partitions=indexes)],
    )
    with WireClient(server.bootstrap_servers) as wire:
        found = wire.call(request, 4).topics[0].partitions
    for partition in found:
        if partition.error_code != 0:
            raise RuntimeError(f"{topic}-{partition.partition_index}: error {partition.error_code}")
    return [partition.offset for partition in found]
