"""Invalid input: each case gets a response or closes the connection, and other clients are served."""

from __future__ import annotations

import itertools
import os
import random
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest

from moldau.protocol.api import ApiKey, request_class
from moldau.protocol.codec import encode
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.protocol.messages.headers import RequestHeader
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.records import Record, build_batch
from moldau.server.apis import APIS
from moldau.server.handlers.api_versions import TELEMETRY
from moldau.server.network.connection import PEER
from moldau.server.network.peer_log import LINES_OF_A_PEER
from moldau.testing.builders import batch, fetch, fetch_request, produce, produce_request, values

from .conftest import MakeServer, RunningServer


@pytest.fixture
def bystander(server: RunningServer) -> Iterator[Any]:
    """A client that must not be affected."""
    with server.wire() as wire:
        yield lambda: wire.call(MetadataRequest(topics=[]), 12)


def closes(server: RunningServer, payload: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.clear()
    with server.wire() as wire:
        wire.send_bytes(payload)
        assert wire.closed_by_server()
    lines = [record for record in caplog.records if "127.0.0.1" in record.getMessage()]
    assert len(lines) == 1, "one line in the log, with the peer"


def test_random_bytes_do_not_affect_other_clients(server: RunningServer, bystander: Any) -> None:
    dice = random.Random(7)
    for _ in range(200):
        with server.wire() as wire:
            wire.send_bytes(dice.randbytes(dice.randint(1, 200)))
        bystander()


def test_random_bytes_after_a_valid_header_do_not_affect_other_clients(server: RunningServer, bystander: Any) -> None:
    dice = random.Random(8)
    for api in APIS:
        for version in {max(api.min_version, api.lowest_served), api.max_version}:
            with server.wire() as wire:
                header = encode(
                    RequestHeader(request_api_key=int(api.key), request_api_version=version, client_id="x"), 1
                )
                wire.send_frame(header + dice.randbytes(dice.randint(0, 300)))
            bystander()


def test_a_scan_of_all_apis_causes_a_few_log_lines(server: RunningServer, caplog: pytest.LogCaptureFixture) -> None:
    for api in APIS:
        header = encode(RequestHeader(request_api_key=int(api.key), request_api_version=api.max_version), 1)
        with server.wire() as wire:
            wire.send_frame(header)  # without a body
            assert wire.closed_by_server()
    lines = [record for record in caplog.records if "127.0.0.1" in record.getMessage()]
    assert len(APIS) > 40
    assert 1 <= len(lines) <= LINES_OF_A_PEER
    times = [record.created for record in lines]
    assert all(later - earlier > 0.9 for earlier, later in itertools.pairwise(times)), times


def test_a_truncated_request_does_not_affect_other_clients(server: RunningServer, bystander: Any) -> None:
    for version in (9, 12):
        whole = encode(RequestHeader(request_api_key=3, request_api_version=version, client_id="x"), 2) + encode(
            MetadataRequest(topics=None), version
        )
        for cut in range(len(whole)):
            with server.wire() as wire:
                wire.send_frame(whole[:cut])
        bystander()


def test_a_repeated_error_of_a_peer_is_logged_once(
    server: RunningServer, bystander: Any, caplog: pytest.LogCaptureFixture
) -> None:
    for version in range(50):
        with server.wire() as wire:
            wire.send_frame(struct.pack(">hhih", 999, version, 1, -1))
            assert wire.closed_by_server()
    lines = [record.getMessage() for record in caplog.records if "127.0.0.1" in record.getMessage()]
    assert len(lines) == 1
    assert "API key 999 (unknown) version 0 was requested, but this API is not served" in lines[0]
    bystander()


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1])
def test_an_invalid_frame_length_closes_the_connection(
    server: RunningServer, bystander: Any, caplog: pytest.LogCaptureFixture, length: int
) -> None:
    closes(server, struct.pack(">i", length) + b"x", caplog)
    bystander()


def test_a_negative_array_length_closes_the_connection(
    server: RunningServer, bystander: Any, caplog: pytest.LogCaptureFixture
) -> None:
    body = encode(RequestHeader(request_api_key=0, request_api_version=3, client_id="x"), 1)
    body += struct.pack(">hhii", -1, 1, 1000, -5)
    closes(server, struct.pack(">i", len(body)) + body, caplog)
    bystander()


def test_an_array_longer_than_the_frame_closes_the_connection(
    server: RunningServer, bystander: Any, caplog: pytest.LogCaptureFixture
) -> None:
    body = encode(RequestHeader(request_api_key=0, request_api_version=3, client_id="x"), 1)
    body += struct.pack(">hhii", -1, 1, 1000, 999_999)
    closes(server, struct.pack(">i", len(body)) + body, caplog)
    bystander()


@pytest.mark.parametrize(
    ("key", "version"), [(999, 0), (-1, 0), (0, 0), (0, 1), (0, 2), (0, 14), (1, 3), (1, 99), (3, 14), (3, -1), (19, 1)]
)
def test_an_unknown_api_or_an_unsupported_version_closes_the_connection(
    server: RunningServer, bystander: Any, caplog: pytest.LogCaptureFixture, key: int, version: int
) -> None:
    body = struct.pack(">hhih", key, version, 1, -1) + b"\0" * 20
    closes(server, struct.pack(">i", len(body)) + body, caplog)
    bystander()


def test_an_unknown_version_of_api_versions_gets_a_response_in_version_0(server: RunningServer) -> None:
    with server.wire() as wire:
        wire.send_frame(struct.pack(">hhih", 18, 77, 4711, -1) + b"\0\0\0")
        frame = wire.receive_frame()
    assert frame[:4] == struct.pack(">i", 4711)
    from moldau.protocol.codec import decode

    answer = decode(ApiVersionsResponse, frame, 0, 4)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert {a.api_key: (a.min_version, a.max_version) for a in answer.api_keys} == {
        int(api.key): (api.min_version, api.max_version)
        for api in APIS
        if api.key not in TELEMETRY  # there is no listener for metrics
    }


@pytest.mark.parametrize("name", ["", "-x", "x y", "naïve"])
def test_an_invalid_client_software_name_is_rejected(server: RunningServer, name: str) -> None:
    with server.wire() as wire:
        request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
        assert wire.call(request, 3).error_code == ErrorCode.INVALID_REQUEST


def test_the_line_about_a_closed_connection_has_the_software_of_the_client(
    server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    with server.wire() as wire:
        request = ApiVersionsRequest(client_software_name="some-client" * 1000, client_software_version="1.2.3")
        assert wire.call(request, 3).error_code == 0
        wire.send_bytes(struct.pack(">i", -1))
        assert wire.closed_by_server()
    (line,) = [record.getMessage() for record in caplog.records if "127.0.0.1" in record.getMessage()]
    assert f"(PLAINTEXT, {('some-client' * 6)[:64]} 1.2.3): " in line


def with_magic(magic: Any) -> bytes:
    data = bytearray(batch(b"x"))
    data[16] = magic
    return bytes(data)


@pytest.mark.parametrize(
    ("records", "error"),
    [
        (batch(b"x")[:-1] + b"\xff", ErrorCode.CORRUPT_MESSAGE),
        (batch(b"x")[:-1], ErrorCode.INVALID_RECORD),
        (batch(b"x")[:30], ErrorCode.INVALID_RECORD),
        (batch(b"x") + batch(b"y"), ErrorCode.INVALID_RECORD),
        (with_magic(0), ErrorCode.INVALID_RECORD),
        (with_magic(1), ErrorCode.INVALID_RECORD),
        (with_magic(3), ErrorCode.CORRUPT_MESSAGE),
        (b"", ErrorCode.INVALID_RECORD),
        (None, ErrorCode.INVALID_RECORD),
        (batch(b"x" * 2_000_000), ErrorCode.MESSAGE_TOO_LARGE),
    ],
    ids=[
        "crc",
        "truncated",
        "half a header",
        "two batches",
        "magic 0",
        "magic 1",
        "magic 3",
        "empty",
        "null",
        "too large",
    ],
)
def test_a_bad_batch_is_rejected_and_the_connection_stays_open(
    server: RunningServer, records: Any, error: ErrorCode
) -> None:
    server.create_topic("t")
    with server.wire() as wire:
        assert produce(wire, "t", records).error_code == error
        assert produce(wire, "t", batch(b"good")).base_offset == 0
        assert values(fetch(wire, "t")) == [b"good"]


def test_random_batches_are_rejected_without_a_server_error(server: RunningServer) -> None:
    server.create_topic("t")
    dice = random.Random(9)
    good = batch(b"good", b"better")
    with server.wire() as wire:
        for _ in range(500):
            mutated = bytearray(good)
            for _ in range(dice.randint(1, 4)):
                mutated[dice.randrange(len(mutated))] = dice.randrange(256)
            answer = produce(wire, "t", bytes(mutated))
            assert answer.error_code != ErrorCode.UNKNOWN_SERVER_ERROR
        assert produce(wire, "t", good).error_code == 0


def test_a_thousand_silent_connections_do_not_affect_another_client(server: RunningServer, bystander: Any) -> None:
    silent = [server.wire() for _ in range(1000)]
    bystander()
    for wire in silent:
        wire.close()
    server.wait_until(lambda: len(server.network.connections) == 1)


def test_a_thousand_connections_that_declare_100_mb_and_send_1_kb_use_little_memory(
    server: RunningServer, bystander: Any
) -> None:
    peers = [server.wire() for _ in range(1000)]
    for peer in peers:
        peer.send_bytes(struct.pack(">i", 100_000_000) + os.urandom(1000))
    server.wait_until(lambda: server.network.budget.used_bytes > 0)
    bystander()
    held = server.call(lambda: sum(len(c._frame or b"") + len(c._rest) for c in server.network.connections))
    assert held < 1000 * 70_000
    for peer in peers:
        peer.close()
    server.wait_until(lambda: server.network.budget.used_bytes == 0)


def test_a_client_that_never_reads_does_not_stop_other_clients(server: RunningServer, bystander: Any) -> None:
    server.create_topic("t")
    with server.wire() as producer:
        for _ in range(20):
            produce(producer, "t", batch(b"x" * 900_000))
    with server.wire() as stuck:
        for _ in range(50):
            stuck.send(fetch_request("t", max_bytes=20_000_000, partition_max_bytes=20_000_000), 12)
        server.wait_until(lambda: any(c._waits_for & PEER for c in server.network.connections))
        for _ in range(100):
            bystander()
        (connection,) = [c for c in server.network.connections if c._waits_for & PEER]
        in_memory = server.call(lambda: connection._sending.bytes_in_memory() + len(connection._rest))
        assert in_memory < 100_000


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.key.name)
def test_an_internal_error_fails_only_its_request(
    server: RunningServer, api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every API can respond with UNKNOWN_SERVER_ERROR, and the connection stays open."""
    if api.key is ApiKey.API_VERSIONS:
        pytest.skip("the bystander's own connection needs it")
    from importlib import import_module

    module = import_module(f"moldau.server.handlers.{api.module}")
    name = f"handle_{api.key.name.lower()}"
    name = name if hasattr(module, name) else "handle"

    def broken(*_: Any) -> None:
        raise RuntimeError("made up by the test")

    monkeypatch.setattr(module, name, broken)
    server.restart()  # routes keep their handlers
    with server.wire() as wire:
        request = request_class(api.key)()
        if api.key is ApiKey.FIND_COORDINATOR:
            request.coordinator_keys = ["group"]  # type: ignore[attr-defined]
        wire.call(request, api.max_version)
        wire.call(MetadataRequest(topics=[]), 12) if api.key is not ApiKey.METADATA else None


def test_a_full_disk_rejects_appends_until_space_is_available(
    make_server: MakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    from moldau.log.memory_files import MemoryFileSystem

    disk = MemoryFileSystem()
    server = make_server(log_dirs=["/data"], file_system=disk)
    server.create_topic("t")
    with server.wire() as wire:
        assert produce(wire, "t", batch(b"before")).error_code == 0
        server.call(lambda: setattr(disk, "capacity_bytes", disk.used_bytes() + 20))
        for _ in range(3):
            assert produce(wire, "t", batch(b"x" * 1000)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert values(fetch(wire, "t")) == [b"before"]
        assert sum("An append failed" in record.getMessage() for record in caplog.records) == 1
        server.call(lambda: setattr(disk, "capacity_bytes", None))
        assert produce(wire, "t", batch(b"after")).base_offset == 1
        assert values(fetch(wire, "t")) == [b"before", b"after"]


def test_records_with_many_headers_and_nulls_are_fetched_unchanged(server: RunningServer) -> None:
    server.create_topic("t")
    headers = [("h", b"1"), ("h", None), ("", b""), ("h", b"1")]
    now = int(time.time() * 1000)
    records = build_batch([Record(offset=0, timestamp=now, key=None, value=None, headers=headers)])
    with server.wire() as wire:
        assert wire.call(produce_request("t", records), 9).responses[0].partition_responses[0].error_code == 0
        from moldau.protocol.records import iter_batches, iter_records

        (record,) = [r for b in iter_batches(fetch(wire, "t").records) for r in iter_records(b)]  # type: ignore[arg-type]
        assert record.key is None
        assert record.value is None
        assert list(record.headers) == headers
