"""A server in this process frees all memory of closed connections, expired timers and completed requests.

The interpreter counts its allocated blocks of memory (`sys.getallocatedblocks`), and anything that remains of a
connection or a request is at least one. Each abuse is repeated until a round allocates no blocks, and fails if every
round does.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moldau.protocol.compression import Codec, compress
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.server.concurrency.timers import TICK_MS
from moldau.server.network.connection import MAX_IN_FLIGHT
from moldau.testing.builders import FETCH_VERSION, PRODUCE_VERSION, fetch_request, produce_request

from ..server.conftest import RunningServer
from . import attackers

COUNT = 300
# The limit for the remaining blocks of a round, for each connection or request: less than one block.
BLOCKS_KEPT = COUNT // 3
ROUNDS = 6


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    running = RunningServer([tmp_path / "data"], {"offsets.topic.num.partitions": "1"}).start()
    running.create_topic("topic")
    running.create_topic("recompressed", compression_type="lz4")
    # pytest keeps log records.
    logging.disable(logging.CRITICAL)
    try:
        yield running
    finally:
        logging.disable(logging.NOTSET)
        running.stop()


def connect_and_close(address: str) -> None:
    for index in range(COUNT):
        connection = attackers.connect(address)
        if index % 3 == 0:
            attackers.exchange(address, attackers.frame(ApiVersionsRequest(), 0))
        attackers.reset(connection) if index % 3 == 1 else connection.close()
        attackers.hold(2 * TICK_MS / 1000)  # timers of the same tick share objects


def stop_half_way(address: str) -> None:
    with attackers.connections(address, COUNT) as opened:
        for index, connection in enumerate(opened):
            attackers.send(connection, b"\0\1\0\0" + bytes(index * 100))


def send_garbage(address: str) -> None:
    for index in range(COUNT):
        with attackers.connect(address) as connection:
            attackers.send(connection, bytes((0, 0, 0, 20)) + bytes((index % 256,)) * 20)


def leave_while_fetches_wait(address: str) -> None:
    waiting = attackers.frame(fetch_request("topic", max_wait_ms=600_000, min_bytes=10**9), FETCH_VERSION)
    with attackers.connections(address, 3) as opened:
        for connection in opened:
            attackers.send(
                connection, waiting * (MAX_IN_FLIGHT - 1)
            )  # with one more, the disconnect would not be noticed


def read_no_answers(address: str) -> None:
    request = attackers.frame(MetadataRequest(topics=None), 9)
    with attackers.connections(address, 3) as opened:
        for connection in opened:
            connection.settimeout(0.1)
            for _ in range(50):
                if not attackers.send(connection, request * 100):
                    break


def request_unknown_resources(address: str) -> None:
    requests = [
        attackers.frame(FindCoordinatorRequest(coordinator_keys=[f"group-{index}"], key_type=0), 4)
        for index in range(COUNT)
    ] + [
        attackers.frame(HeartbeatRequest(group_id=f"group-{index}", generation_id=1, member_id="x"), 4)
        for index in range(COUNT)
    ]
    attackers.pipeline(address, requests)


def produce_rejected_batches(address: str) -> None:
    records = attackers.batch_of(compress(Codec.GZIP, b"no records"), 3, Codec.GZIP)
    requests = [attackers.frame(produce_request("recompressed", records), PRODUCE_VERSION)] * COUNT
    attackers.pipeline(address, requests)


ABUSES: list[Callable[[str], None]] = [
    connect_and_close,
    stop_half_way,
    send_garbage,
    leave_while_fetches_wait,
    read_no_answers,
    request_unknown_resources,
    produce_rejected_batches,
]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux: /proc shows what a process holds")
@pytest.mark.parametrize("abuse", ABUSES, ids=lambda abuse: abuse.__name__)
@pytest.mark.parametrize(
    "collects",
    [pytest.param(False, id="not collected"), pytest.param(True, id="collected", marks=pytest.mark.full)],
)
def test_no_objects_or_descriptors_remain(
    server: RunningServer, abuse: Callable[[str], None], collects: bool, request: pytest.FixtureRequest
) -> None:
    """Also without the garbage collector: a cycle of references remains until a full collection, which is rare and slow
    on a server with a large heap."""

    def held() -> tuple[int, int]:
        server.wait_until(lambda: not server.network.connections)
        if collects:
            gc.collect()
        return sys.getallocatedblocks(), len(os.listdir("/proc/self/fd"))

    if not collects:
        gc.disable()
        request.addfinalizer(gc.enable)

    abuse(server.bootstrap_servers)
    before = held()
    grown = []
    for _ in range(ROUNDS):
        abuse(server.bootstrap_servers)
        after = held()
        grown.append((after[0] - before[0], after[1] - before[1]))
        before = after
        if grown[-1][0] <= BLOCKS_KEPT and grown[-1][1] <= 0:
            return
    pytest.fail(f"each round leaves blocks of memory and descriptors: {grown}")
