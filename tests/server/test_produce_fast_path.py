"""The fast path for produce requests returns the same responses as the slow path and writes the same files.

The first request of a connection takes the slow path, so tests compare with a new connection for each request.
"""

from __future__ import annotations

import random
import re
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from moldau.log.files import RealFile, RealFileSystem
from moldau.log.verification import DISABLED
from moldau.protocol.api import ApiKey, request_header_version
from moldau.protocol.checksum import crc32c
from moldau.protocol.codec import encode
from moldau.protocol.compression import Codec
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest
from moldau.protocol.messages.headers import RequestHeader
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.records import Record, build_batch
from moldau.testing.builders import batch, fetch, produce, produce_request, values

from .conftest import MakeServer, RunningServer

TOPICS = ("short", "a-topic-with-a-longer-name", "recompressed")
NOW_MS = 1_700_000_000_000
OLD = 10**15  # milliseconds; large, so that NOW_MS is not too old


def a_batch(
    size: int = 20, count: int = 1, codec: Codec = Codec.NONE, timestamp: Any = NOW_MS, **options: Any
) -> bytes:
    records = [Record(offset=i, timestamp=timestamp, key=b"k", value=b"v" * size, headers=[]) for i in range(count)]
    return build_batch(records, codec=codec, **options)


class Traffic:
    """Produce requests as several producers send them in turn, most of them ordinary, some with random oddities."""

    def __init__(self, seed: Any, version: int) -> None:
        self.random = random.Random(seed)
        self.version = version
        self.sequence = 0
        self.transaction_sequence = 1

    def request(self, correlation_id: int, topic_ids: Any) -> Any:
        pick = self.random
        if pick.random() < 0.15:
            return self.in_transaction(correlation_id, topic_ids)
        topic = pick.choice(("short",) * 6 + TOPICS)
        data = [PartitionProduceData(index=pick.choice((0, 0, 0, 1)), records=self.records())]
        if pick.random() < 0.06:
            data.append(PartitionProduceData(index=2, records=self.records()))
        if pick.random() < 0.04:
            data[0].index = 77
        request = ProduceRequest(
            acks=pick.choice((-1, 1, 1, 1, 1, 3 if pick.random() < 0.2 else 1)),
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=topic, topic_id=topic_ids[topic], partition_data=data)],
        )
        if self.version >= 13:
            request.topic_data[0].name = ""
        else:
            request.topic_data[0].topic_id = bytes(16)
        header = RequestHeader(
            request_api_key=ApiKey.PRODUCE,
            request_api_version=self.version,
            correlation_id=correlation_id,
            client_id=pick.choice(("producer", "producer", "producer", "another")),
        )
        frame = encode(header, request_header_version(ApiKey.PRODUCE, self.version)) + encode(request, self.version)
        if self.version >= 9 and pick.random() < 0.05:
            frame = frame[:-1] + b"\x01\x63\x02xx"  # an unknown tagged field
        return frame

    def in_transaction(self, correlation_id: int, topic_ids: Any) -> Any:
        """A batch of the transaction that is open in the first partition: mostly in order; rarely without its id, with
        another epoch, or outside the transaction."""
        pick = self.random
        sequence = self.transaction_sequence + pick.choices((0, -1, 1), (20, 1, 1))[0]
        self.transaction_sequence = max(self.transaction_sequence, sequence + 1)
        transactional = pick.random() < 0.95
        records = a_batch(
            pick.choice((10, 300)),
            transactional=transactional,
            producer_id=6,
            producer_epoch=pick.choices((1, 0), (20, 1))[0],
            base_sequence=sequence,
        )
        data = PartitionProduceData(index=0, records=records)
        topic = TopicProduceData(name="short", partition_data=[data])
        if self.version >= 13:
            topic = TopicProduceData(topic_id=topic_ids["short"], partition_data=[data])
        request = ProduceRequest(
            transactional_id=None if pick.random() < 0.05 else "tx", acks=-1, timeout_ms=30_000, topic_data=[topic]
        )
        header = RequestHeader(
            request_api_key=ApiKey.PRODUCE,
            request_api_version=self.version,
            correlation_id=correlation_id,
            client_id="producer",
        )
        return encode(header, request_header_version(ApiKey.PRODUCE, self.version)) + encode(request, self.version)

    def records(self) -> Any:
        pick = self.random
        odd = pick.random()
        if odd < 0.75:
            return a_batch(pick.choice((10, 300, 9000, 15_000, 80_000)), pick.randrange(1, 4))
        if odd < 0.80:  # an idempotent producer: in order, again, or out of order
            sequence = self.sequence if pick.random() < 0.7 else pick.randrange(self.sequence + 2)
            self.sequence = max(self.sequence, sequence + 1)
            return a_batch(producer_id=5, producer_epoch=0, base_sequence=sequence)
        good = bytearray(a_batch(pick.randrange(1, 100)))
        match pick.randrange(10):
            case 0:
                good[-1] ^= 1  # the CRC is wrong
            case 1:
                return bytes(good) + a_batch()
            case 2:
                return bytes(good[: pick.randrange(len(good))])
            case 3:
                return None
            case 4:
                return a_batch(codec=pick.choice((Codec.GZIP, Codec.LZ4, Codec.ZSTD)), size=6000)
            case 5:
                return a_batch(transactional=True, producer_id=9, producer_epoch=0, base_sequence=0)
            case 6:
                return a_batch(timestamp=NOW_MS * 10)
            case 7:
                return a_batch(size=1_100_000)
            case 8:
                struct.pack_into(">q", good, 0, 5)  # a base offset, which clients leave at 0
            case 9:
                good[22] |= 0x10  # the transactional bit without a producer
                struct.pack_into(">I", good, 17, crc32c(memoryview(good)[21:]))
        return bytes(good)


def open_transaction(server: RunningServer) -> None:
    """Start the transaction that the traffic continues."""
    partition = server.partition("short", 0)
    first = a_batch(transactional=True, producer_id=6, producer_epoch=1, base_sequence=0)
    server.call(lambda: partition.append(first, acks=-1, now_ms=NOW_MS, verification=DISABLED))


@contextmanager
def blocked_loop(server: RunningServer) -> Iterator[None]:
    """Block the server's event loop in the context."""
    going_on, stopped = threading.Event(), threading.Event()

    def hold() -> None:
        stopped.set()
        assert going_on.wait(60)

    server.loop.call_soon_threadsafe(hold)
    assert stopped.wait(60)
    try:
        yield
    finally:
        going_on.set()


def comparable(answer: Any, topic_ids: Any) -> Any:
    """The response without topic ids and without times in error messages."""
    for topic_id in topic_ids.values():
        answer = answer.replace(topic_id, bytes(16))
    return re.sub(rb"\d{13,}", b"then", answer)


def segment_files(server: RunningServer) -> Any:
    found = {}
    for directory in server.log_dirs:
        for path in Path(directory).glob("*/*.log"):
            if path.parent.name.rsplit("-", 1)[0] in TOPICS:
                found[path.relative_to(directory)] = path.read_bytes()
    return found


@pytest.mark.parametrize("version", [7, 8, 9, 12, 13])
def test_the_fast_path_returns_the_same_responses_as_the_slow_path(
    make_server: MakeServer, tmp_path: Path, version: int
) -> None:
    config = {"log.segment.bytes": str(1 << 20), "log.message.timestamp.before.max.ms": str(OLD)}
    servers = [make_server(log_dirs=[tmp_path / name], config=config) for name in ("short-way", "long-way")]
    ids = []
    for server in servers:
        made = {topic: server.create_topic(topic, 3) for topic in TOPICS[:2]}
        open_transaction(server)
        made["recompressed"] = server.create_topic("recompressed", 3, compression_type="gzip")
        ids.append(made)
    short, long = servers
    requests = 400
    # The fast path: all requests that fit into the receive buffer arrive together.
    traffic = Traffic(version, version)
    answers = []
    with short.wire() as wire:
        for first in range(0, requests, 40):
            frames = [traffic.request(number, ids[0]) for number in range(first, first + 40)]
            with blocked_loop(short):
                sender = threading.Thread(
                    target=wire.send_bytes, args=(b"".join(len(f).to_bytes(4, "big") + f for f in frames),)
                )
                sender.start()
                sender.join(0.05)  # large requests are still being sent afterwards
            answers += [wire.receive_frame() for _ in frames]
            sender.join()
    traffic = Traffic(version, version)
    for number in range(requests):
        with long.wire() as wire:
            wire.send_frame(traffic.request(number, ids[1]))
            expected = wire.receive_frame()
        assert comparable(answers[number], ids[0]) == comparable(expected, ids[1]), number
    assert segment_files(short) == segment_files(long)
    assert any(path.name != f"{0:020}.log" for path in segment_files(short)), "no segment was rolled"


class CountingFiles(RealFileSystem):
    """Counts the writes to each `.log` file."""

    def __init__(self) -> None:
        super().__init__(durable=False)
        self.writes: list[Any] = []

    def open(self, path: str, **options: Any) -> Any:
        file = super().open(path, **options)
        counted = self

        class Counting(RealFile):
            __slots__ = ()

            def write_at(self, buffers: Any, position: Any, length: int) -> None:
                if path.endswith(".log") and "t-0" in path:
                    counted.writes.append(length)
                super().write_at(buffers, position, length)

        return Counting(file.fd, False)


def test_requests_that_arrive_together_need_one_write(make_server: MakeServer, tmp_path: Path) -> None:
    files = CountingFiles()
    server = make_server(file_system=files)
    server.create_topic("t")
    with server.wire() as wire:
        produce(wire, "t", batch(b"the first takes the slow path"))
        one = batch(b"x" * 50)
        files.writes.clear()
        header = RequestHeader(request_api_key=ApiKey.PRODUCE, request_api_version=9, client_id="moldau-testing")
        frame = encode(header, 2) + encode(produce_request("t", one), 9)
        # One TCP segment, so that the requests arrive together.
        wire.send_bytes(30 * (len(frame).to_bytes(4, "big") + frame))
        answers = [wire.receive_frame() for _ in range(30)]
    assert len(set(answers)) == 30
    assert files.writes == [30 * len(one)]


def test_batches_of_a_transaction_that_arrive_together_need_one_write(make_server: MakeServer, tmp_path: Path) -> None:
    files = CountingFiles()
    server = make_server(file_system=files)
    server.create_topic("t")
    partition = server.partition("t", 0)

    def frame(sequence: Any) -> Any:
        one = batch(b"x" * 50, transactional=True, producer_id=6, producer_epoch=0, base_sequence=sequence)
        request = produce_request("t", one)
        request.transactional_id = "tx"
        header = RequestHeader(request_api_key=ApiKey.PRODUCE, request_api_version=9, client_id="moldau-testing")
        data = encode(header, 2) + encode(request, 9)
        return len(data).to_bytes(4, "big") + data, len(one)

    first = batch(b"x", transactional=True, producer_id=6, producer_epoch=0, base_sequence=0)
    server.call(lambda: partition.append(first, acks=-1, now_ms=server.broker.now_ms(), verification=DISABLED))
    with server.wire() as wire:
        wire.send_bytes(frame(1)[0])
        wire.receive_frame()
        files.writes.clear()
        frames = [frame(sequence) for sequence in range(2, 32)]
        wire.send_bytes(b"".join(data for data, _ in frames))
        for _ in frames:
            wire.receive_frame()
    assert files.writes == [sum(size for _, size in frames)]
    assert server.call(lambda: partition.log.log_end_offset) == 32


def test_requests_before_bytes_of_another_protocol_are_served(server: RunningServer) -> None:
    server.create_topic("t")
    with server.wire() as wire:
        produce(wire, "t", batch(b"0"))
        header = RequestHeader(request_api_key=ApiKey.PRODUCE, request_api_version=9, client_id="moldau-testing")
        frame = encode(header, 2) + encode(produce_request("t", batch(b"x")), 9)
        wire.send_bytes(3 * (len(frame).to_bytes(4, "big") + frame) + b"GET / HTTP/1.1\r\n")
        assert len({wire.receive_frame() for _ in range(3)}) == 3
        assert wire.closed_by_server()
    assert server.call(lambda: server.partition("t", 0).log.log_end_offset) == 4


def test_the_order_with_other_requests_is_kept(server: RunningServer) -> None:
    server.create_topic("t")
    with server.wire() as wire:
        produce(wire, "t", batch(b"0"))
        with blocked_loop(server):
            for number in range(12):
                wire.send(produce_request("t", batch(b"x")), 9)
                if number % 4 == 1:
                    wire.send(MetadataRequest(topics=None), 9)
        names = [type(wire.receive()).__name__ for _ in range(15)]
    assert [index for index, name in enumerate(names) if name == "MetadataResponse"] == [2, 7, 12]


def test_a_topic_that_was_deleted_and_recreated_is_found(server: RunningServer) -> None:
    server.create_topic("t")
    with server.wire() as wire:
        for expected in range(3):
            assert produce(wire, "t", batch(b"x")).base_offset == expected
        wire.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
        assert produce(wire, "t", batch(b"x")).error_code == 3
        server.create_topic("t")
        for expected in range(3):
            assert produce(wire, "t", batch(b"x")).base_offset == expected


def test_a_setting_that_requires_reading_the_records_takes_effect(server: RunningServer) -> None:
    server.create_topic("t")
    with server.wire() as wire:
        for _ in range(3):
            produce(wire, "t", batch(b"x"))
        log = server.partition("t", 0).log
        server.call(lambda: log.update_config(log.config._replace(message_timestamp_type="LogAppendTime")))
        result = produce(wire, "t", batch(b"x"))
        assert (result.base_offset, result.error_code) == (3, 0)
        assert result.log_append_time_ms > 0


def test_a_small_request_does_not_overtake_a_large_one_that_is_served_in_slices(server: RunningServer) -> None:
    """Both were taken by the fast path, which returns them since the topic has a setting that it does not support."""
    server.create_topic("t")
    with server.wire() as wire:
        for _ in range(3):
            produce(wire, "t", batch(b"x"))
        flush = AlterableConfig(name="flush.messages", value="1000000", config_operation=0)
        change = AlterConfigsResource(resource_type=2, resource_name="t", configs=[flush])
        with server.wire() as admin:
            (result,) = admin.call(IncrementalAlterConfigsRequest(resources=[change]), 1).responses
            assert result.error_code == 0
        slices = server.broker.slices
        seconds = count(slices.clock(), 0.01)  # each step takes 10 ms
        server.call(lambda: setattr(slices, "clock", lambda: next(seconds)))
        large, small = produce_request("t", batch(b"1" * 20_000)), produce_request("t", batch(b"2"))
        frames = []
        for number, request in enumerate([large, small]):
            header = RequestHeader(
                request_api_key=request.API_KEY,
                request_api_version=9,
                correlation_id=100 + number,
                client_id="moldau-testing",
            )
            frames.append(encode(header, request_header_version(request.API_KEY, 9)) + encode(request, 9))
        wire.send_bytes(b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames))
        for _ in frames:
            wire.receive_frame()
        assert [value[:1] for value in values(fetch(wire, "t"))][3:] == [b"1", b"2"]  # type: ignore[index]
