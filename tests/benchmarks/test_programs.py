"""The programs in C: the generator counts and times its requests, the ceiling responds as a server must."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moldau.benchmarks import ceiling, load
from moldau.benchmarks.ceiling import CeilingServer
from moldau.protocol.api import ApiKey, request_class
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.messages.offset_commit import OffsetCommitRequest
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.records import iter_batches
from moldau.protocol.schema import Request
from moldau.testing.wire import WireClient

from .generators import Stub, compiled, refused, run_generator

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the benchmarks use epoll and /proc")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the programs, compiled here so that no cache hides a source that does not compile."""
    folder = tmp_path_factory.mktemp("programs")
    for name in ("load", "ceiling"):
        compiled(name, folder)
    return folder


@pytest.fixture
def server(programs: Path, tmp_path: Path) -> Iterator[CeilingServer]:
    """A running ceiling."""
    started = CeilingServer([str(programs / "ceiling")], tmp_path / "ceiling")
    try:
        started.start()
        yield started
    finally:
        started.close()


@pytest.fixture
def wire(server: CeilingServer) -> Iterator[WireClient]:
    with WireClient(server.bootstrap_servers) as client:
        yield client


def produce(batch: bytes) -> ProduceRequest:
    data = [PartitionProduceData(index=0, records=batch)]
    topic = TopicProduceData(name=ceiling.TOPIC, topic_id=bytes(16), partition_data=data)
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])


def fetch(offset: int, max_wait_ms: int = 10_000) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic=ceiling.TOPIC, topic_id=bytes(16), partitions=[partition])
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, topics=[topic])


def list_offsets(timestamp: int) -> ListOffsetsRequest:
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=ceiling.TOPIC, partitions=[partition])])


def base_offsets(fetched: Any) -> list[int]:
    return [batch.base_offset for batch in iter_batches(fetched.responses[0].partitions[0].records)]


# -- the ceiling --


def test_every_advertised_version_has_a_response(wire: WireClient) -> None:
    requests: dict[int, Request] = {
        ApiKey.PRODUCE: produce(load.batch_of(1, 100)),
        ApiKey.FETCH: fetch(0, max_wait_ms=0),
        ApiKey.LIST_OFFSETS: list_offsets(-2),
        ApiKey.METADATA: MetadataRequest(topics=[]),
        ApiKey.FIND_COORDINATOR: FindCoordinatorRequest(),
        ApiKey.INIT_PRODUCER_ID: InitProducerIdRequest(transactional_id=None),
        ApiKey.OFFSET_COMMIT: OffsetCommitRequest(group_id="g"),
        ApiKey.API_VERSIONS: ApiVersionsRequest(client_software_name="a", client_software_version="1"),
    }
    advertised = {api.api_key: api for api in wire.call(ApiVersionsRequest(), 0).api_keys}
    assert advertised.keys() == requests.keys()
    for key, api in advertised.items():
        assert range(api.min_version, api.max_version + 1) == range(
            request_class(key).STABLE_VERSIONS.lowest, request_class(key).STABLE_VERSIONS.highest + 1
        )
        for version in range(api.min_version, api.max_version + 1):
            wire.call(requests[key], version)  # decodes all of it, or raises


def test_metadata_leads_to_the_server(server: CeilingServer, wire: WireClient) -> None:
    answer = wire.call(MetadataRequest(topics=None))
    assert f"{answer.brokers[0].host}:{answer.brokers[0].port}" == server.bootstrap_servers
    assert [topic.name for topic in answer.topics] == [server.topic]
    assert [partition.leader_id for partition in answer.topics[0].partitions] == [answer.brokers[0].node_id]


def test_an_unprepared_request_closes_the_connection(wire: WireClient) -> None:
    wire.send(request_class(ApiKey.HEARTBEAT)(), 4)
    assert wire.closed_by_server()


@pytest.mark.parametrize("produce_version", [*ProduceRequest.STABLE_VERSIONS])
def test_echoes_the_last_batch_with_its_offset(wire: WireClient, produce_version: int) -> None:
    expected = 0
    for fetch_version in FetchRequest.STABLE_VERSIONS:
        batch = load.batch_of(2, 100)
        wire.call(produce(batch), produce_version)
        fetched = wire.call(fetch(expected), fetch_version).responses[0].partitions[0].records
        assert fetched == expected.to_bytes(8, "big") + batch[8:]
        expected += 2
    assert wire.call(list_offsets(-1)).topics[0].partitions[0].offset == expected
    assert wire.call(list_offsets(-2)).topics[0].partitions[0].offset == 0


def test_a_fetch_waits_for_a_batch_and_responses_keep_their_order(server: CeilingServer, wire: WireClient) -> None:
    wire.send(fetch(0, max_wait_ms=60_000), 12)
    wire.send(list_offsets(-1), 5)  # in the queue behind it, on the same connection
    with WireClient(server.bootstrap_servers) as producer:
        producer.call(produce(load.batch_of(1, 100)), 9)
    assert base_offsets(wire.receive()) == [0]
    assert wire.receive().topics[0].partitions[0].offset == 1


def test_a_waiting_fetch_times_out_with_an_empty_response(wire: WireClient) -> None:
    assert base_offsets(wire.call(fetch(0, max_wait_ms=20), 12)) == []


def test_the_waiting_fetch_of_a_disconnected_client_is_dropped(server: CeilingServer, wire: WireClient) -> None:
    with WireClient(server.bootstrap_servers) as gone:
        gone.send(fetch(0, max_wait_ms=60_000), 12)
        gone.send(list_offsets(-1), 5)
    wire.call(produce(load.batch_of(1, 100)), 9)
    assert base_offsets(wire.call(fetch(0), 12)) == [0]


def test_requests_may_arrive_byte_by_byte(server: CeilingServer) -> None:
    frame = load.produce_frame(ceiling.TOPIC, load.batch_of(1, 100))
    host, port = server.bootstrap_servers.split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(len(frame)):
            connection.sendall(frame[at : at + 1])
        assert connection.recv(4)


def test_pieces_are_a_partition_without_end(server: CeilingServer) -> None:
    batch = load.batch_of(10, 1000)
    with (
        ceiling.pieces(server.data_dir, batch, 3),
        WireClient(server.bootstrap_servers) as wire,
    ):
        for version in FetchRequest.STABLE_VERSIONS:
            for offset, base in ((0, 0), (10, 10), (39, 30), (1_000_000, 1_000_000)):
                fetched = wire.call(fetch(offset), version).responses[0].partitions[0].records
                assert fetched == base.to_bytes(8, "big") + batch[8:]
    with WireClient(server.bootstrap_servers) as wire:
        assert base_offsets(wire.call(fetch(0, max_wait_ms=0), 12)) == []


def test_pieces_larger_than_the_socket_buffer_arrive_in_order(server: CeilingServer) -> None:
    batch = load.batch_of(4000, 1000)
    with (
        ceiling.pieces(server.data_dir, batch, 2),
        WireClient(server.bootstrap_servers) as wire,
    ):
        for number in range(4):  # all are requested before the first is read
            wire.send(fetch(number * 4000), 11 + number % 2 * 5)
        for number in range(4):
            assert base_offsets(wire.receive()) == [number * 4000]


def test_it_restarts_on_the_same_port(server: CeilingServer) -> None:
    before = server.bootstrap_servers
    server.kill()
    server.start()
    assert server.bootstrap_servers == before
    assert server.cpu_seconds() >= 0
    assert server.resident_bytes() > 0


# -- the generator --


def run_load(programs: Path, server: str, *options: object) -> dict[str, Any]:
    frame = load.produce_frame(ceiling.TOPIC, load.batch_of(1, 100))
    result = run_generator(programs / "load", frame, server, *options)
    assert result["bytes_sent"] == result["requests"] * len(frame)
    return result


@pytest.mark.parametrize(("connections", "in_flight"), [(1, 1), (3, 4), (64, 1)])
def test_sends_the_requested_number_of_requests(
    programs: Path, server: CeilingServer, wire: WireClient, connections: int, in_flight: int
) -> None:
    options = ("--connections", connections, "--in-flight", in_flight, "--requests", 1001)
    result = run_load(programs, server.bootstrap_servers, *options)
    assert result["requests"] == 1001
    assert result["bytes_received"] % 1001 == 0
    assert wire.call(list_offsets(-1)).topics[0].partitions[0].offset == 1001


def test_stops_at_the_time_limit(programs: Path, server: CeilingServer) -> None:
    result = run_load(programs, server.bootstrap_servers, "--seconds", 0.2, "--connections", 2)
    assert result["seconds"] >= 0.2
    assert result["requests"] > 2


def test_an_open_loop_sends_what_is_due(programs: Path, server: CeilingServer) -> None:
    result = run_load(programs, server.bootstrap_servers, "--rate", 1000, "--seconds", 0.2, "--connections", 2)
    assert result["requests"] == 200
    assert result["seconds"] >= 0.199  # the last one is due one interval before the end


def test_idle_connections_send_no_requests(programs: Path) -> None:
    with Answering() as stub:
        run_load(programs, stub.address, "--idle", 7, "--connections", 2, "--requests", 20)
    assert (stub.connections, stub.requested) == (9, 2)


def test_a_stall_is_charged_to_all_requests_that_are_due_during_it(programs: Path) -> None:
    with Answering(stall_seconds=0.3) as stub:
        open_loop = run_load(programs, stub.address, "--rate", 1000, "--seconds", 0.4)
    with Answering(stall_seconds=0.3) as stub:
        closed_loop = run_load(programs, stub.address, "--requests", 400)
    assert closed_loop["max_us"] >= 300_000
    assert closed_loop["p99_us"] < 300_000  # one request of 400 has seen it
    assert open_loop["p50_us"] >= 50_000  # of 400 requests, the first 250 were due 50 ms before its end or earlier


def test_a_closed_connection_is_a_failure(programs: Path) -> None:
    with Answering(answers=False) as stub, pytest.raises(subprocess.CalledProcessError) as failed:
        run_load(programs, stub.address, "--requests", 10)
    assert failed.value.returncode == 1
    assert b"closed" in failed.value.stderr or b"reset" in failed.value.stderr


@pytest.mark.parametrize("options", [(), ("--requests", "1", "--seconds", "1"), ("--requests", "0"), ("--nonsense",)])
def test_invalid_options_are_rejected(programs: Path, options: tuple[str, ...]) -> None:
    refused(programs / "load", bytes(20), *options)


class Answering(Stub):
    """A server that counts its clients, responds to each frame with an empty one, and stalls at the first one of a
    connection."""

    def __init__(self, *, stall_seconds: float = 0.0, answers: bool = True) -> None:
        super().__init__()
        self.requested = 0
        self._stall_seconds = stall_seconds
        self._answers = answers

    def serve(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as frames:
            first = True
            while size := frames.read(4):
                frames.read(int.from_bytes(size, "big"))
                if not self._answers:
                    return
                if first:
                    self.requested += 1
                    time.sleep(self._stall_seconds)
                    first = False
                connection.sendall(b"\0\0\0\4\0\0\0\0")
