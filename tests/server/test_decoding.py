"""Batches whose records take long to read: they are read outside the event loop, in order, and one at a time."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import signal
import struct
import sys
import weakref
from typing import Any

import pytest

from moldau.log.config import LogConfig
from moldau.log.validation import LARGE_BYTES
from moldau.protocol.checksum import crc32c
from moldau.protocol.compression import Codec, compress
from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.protocol.records import (
    BATCH_OVERHEAD,
    LOG_APPEND_TIME,
    Record,
    build_batch,
    iter_batches,
    iter_records,
)
from moldau.server.concurrency import worker_pipe
from moldau.server.records import decode_process
from moldau.server.records.decode_jobs import Prepare, attempt
from moldau.testing.builders import fetch, produce, produce_request, values

from .conftest import RunningServer

NOW = 1_700_000_000_000
MANY = 30_000
"""The number of records in a batch that is too large for a thread and keeps the process busy for a short time."""


def tiny_records(count: Any = MANY, *, now_ms: Any = NOW) -> bytes:
    """A small batch of many records of a few bytes. Their offsets are in order."""
    return build_batch([Record(0, now_ms, b"k", None)] * count, codec=Codec.GZIP)


def batch_of_bytes(records: Any, count: int, codec: Any) -> bytes:
    """A batch with these bytes as its records, valid or not."""
    batch = bytearray(build_batch([Record(0, NOW, b"k", b"v")])[:BATCH_OVERHEAD])
    batch += compress(codec, records)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">hi", batch, 21, codec, count - 1)
    struct.pack_into(">i", batch, 57, count)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return bytes(batch)


def same_record(count: int) -> Any:
    """A batch of many records that is fast to create: the same bytes repeated."""
    return batch_of_bytes(build_batch([Record(0, NOW, b"k", None)])[BATCH_OVERHEAD:] * count, count, Codec.GZIP)


def bomb(codec: Any) -> Any:
    """A compressed batch of one record that is too large when it is decompressed."""
    return batch_of_bytes(bytes(150_000_000), 1, codec)


def list_offsets(topic: str, timestamp: int) -> Any:
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[partition])])


def process_of(server: RunningServer) -> Any:
    return server.broker.decoder.process


@pytest.mark.parametrize(
    "configs",
    [{"cleanup_policy": "compact"}, {"compression_type": "zstd"}],
    ids=["compacted", "recompressed"],
)
def test_a_batch_of_many_records_is_read_by_the_process_and_appended(server: RunningServer, configs: Any) -> None:
    server.create_topic("t", **configs)
    with server.wire() as wire:
        answer = produce(wire, "t", tiny_records(now_ms=server.broker.now_ms()))
        assert (answer.error_code, answer.base_offset) == (0, 0)
        assert process_of(server).pid is not None
        assert produce(wire, "t", build_batch([Record(0, server.broker.now_ms(), b"k", b"v")])).base_offset == MANY


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("configs", [{"cleanup_policy": "compact"}, {"compression_type": "uncompressed"}])
def test_compression_bombs_are_rejected_and_other_clients_are_served(
    server: RunningServer, codec: Codec, configs: Any
) -> None:
    server.create_topic("t", max_message_bytes=20_000_000, **configs)
    with server.wire() as wire:
        answer = produce(wire, "t", bomb(codec))
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert produce(wire, "t", build_batch([Record(0, server.broker.now_ms(), b"k", b"v")])).error_code == 0


def test_appends_of_a_partition_keep_their_order_behind_a_slow_one(server: RunningServer) -> None:
    server.create_topic("t", compression_type="lz4")
    now_ms = server.broker.now_ms()
    with server.wire() as wire:
        small = build_batch([Record(0, now_ms, b"k", b"small")])
        for data in (tiny_records(now_ms=now_ms), small, build_batch([Record(0, now_ms, b"k", b"x" * 50_000)]), small):
            wire.send(produce_request("t", data), 9)
        offsets = [wire.receive().responses[0].partition_responses[0].base_offset for _ in range(4)]
        assert offsets == [0, MANY, MANY + 1, MANY + 2]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
def test_a_stored_batch_of_many_records_is_searched_by_the_process(server: RunningServer, codec: Codec) -> None:
    server.create_topic("t")
    records = [Record(0, NOW + (number == 20_000) * 5, None, None) for number in range(MANY)]
    with server.wire() as wire:
        assert produce(wire, "t", build_batch(records, codec=codec)).error_code == 0
        for timestamp, expected in ((NOW, 0), (NOW + 1, 20_000), (NOW + 5, 20_000), (NOW + 6, -1), (-3, 20_000)):
            answer = wire.call(list_offsets("t", timestamp), 7).topics[0].partitions[0]
            assert (answer.error_code, answer.offset) == (0, expected)
        assert process_of(server).pid is not None


def test_a_search_is_cancelled_when_its_client_disconnects(server: RunningServer) -> None:
    server.create_topic("t")
    with server.wire() as wire:
        produce(wire, "t", same_record(2_000_000))
        with server.wire() as other:
            other.send(list_offsets("t", -3), 7)
            server.wait_until(lambda: process_of(server)._running)
        server.wait_until(lambda: not process_of(server)._running)
        assert wire.call(list_offsets("t", NOW), 7).topics[0].partitions[0].offset == 0


def test_deleting_a_topic_cancels_reading_its_batches(server: RunningServer) -> None:
    server.create_topic("t", cleanup_policy="compact")
    with server.wire() as producer, server.wire() as admin:
        producer.send(produce_request("t", same_record(2_000_000)), 9)
        server.wait_until(lambda: process_of(server)._running)
        assert (
            admin.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=60_000), 6)
            .responses[0]
            .error_code
            == 0
        )
        answer = producer.receive().responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        server.wait_until(lambda: not process_of(server)._running)


def test_batches_are_read_again_when_the_process_is_killed(
    server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a", "b"):
        server.create_topic(name, cleanup_policy="compact")
    with server.wire() as first, server.wire() as second:
        first.send(produce_request("a", same_record(1_000_000)), 9)
        second.send(produce_request("b", same_record(1_000_000)), 9)
        server.wait_until(lambda: len(process_of(server)._running) == 2)
        os.kill(process_of(server).pid, signal.SIGKILL)
        for wire in (first, second):
            assert wire.receive().responses[0].partition_responses[0].error_code == 0
    assert "restarting it" in caplog.text


def test_only_the_batch_that_kills_the_process_twice_is_rejected(server: RunningServer) -> None:
    for name in ("a", "b"):
        server.create_topic(name, cleanup_policy="compact")
    with server.wire() as first, server.wire() as second:
        first.send(produce_request("a", same_record(2_000_000)), 9)
        server.wait_until(lambda: process_of(server)._running)
        pid = process_of(server).pid
        os.kill(pid, signal.SIGKILL)
        server.wait_until(lambda: process_of(server).pid not in (None, pid) and process_of(server)._running)
        second.send(produce_request("b", same_record(30_000)), 9)
        os.kill(process_of(server).pid, signal.SIGKILL)
        assert first.receive().responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert second.receive().responses[0].partition_responses[0].error_code == 0


def test_the_process_exits_when_it_is_idle(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_process, "IDLE_SECONDS", 0.01)
    server.create_topic("t", cleanup_policy="compact")
    with server.wire() as wire:
        for _ in range(2):
            assert produce(wire, "t", same_record(30_000)).error_code == 0
            server.wait_until(lambda: process_of(server).pid is None)


def test_batches_get_a_retriable_error_if_the_process_cannot_be_started(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def refused(*_command: Any, **_options: Any) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    server.create_topic("t", cleanup_policy="compact")
    with server.wire() as wire:
        with monkeypatch.context() as patch:
            patch.setattr(asyncio, "create_subprocess_exec", refused)
            for _ in range(3):
                assert produce(wire, "t", same_record(30_000)).error_code == ErrorCode.REQUEST_TIMED_OUT
        assert produce(wire, "t", same_record(30_000)).error_code == 0
    assert caplog.text.count("Cannot start the process that checks large batches") == 1


def test_the_process_is_started_without_opening_a_module(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be no file descriptor available for it when the first large batch arrives."""
    monkeypatch.setitem(sys.modules, "moldau.server.concurrency.worker_pipe", None)  # importing it fails
    server.create_topic("t", cleanup_policy="compact")
    with server.wire() as wire:
        assert produce(wire, "t", same_record(30_000)).error_code == 0


def test_a_process_exits_even_if_its_response_is_not_read() -> None:
    """For example, a server stops while the process returns a large recompressed batch."""
    records = build_batch([Record(0, NOW, b"k", bytes(900_000))], codec=Codec.GZIP)
    job = Prepare(records, LogConfig(compression_type="uncompressed"), NOW)

    async def run() -> None:
        process = await worker_pipe.start_worker("moldau.server.records.decode_worker")
        process.stdin.write(worker_pipe.message(("job", 1, job)))  # type: ignore[union-attr]
        while not process.stdout._paused:  # type: ignore[union-attr]  # noqa: ASYNC110 - the stream announces nothing
            await asyncio.sleep(0.01)
        assert await worker_pipe.end(process) == -signal.SIGKILL

    asyncio.run(asyncio.wait_for(run(), 120))


def test_a_process_that_has_already_exited_can_be_stopped() -> None:
    async def run() -> None:
        process = await worker_pipe.start_worker("moldau.server.records.decode_worker")
        os.kill(process.pid, signal.SIGKILL)
        # The process has exited, and the event loop has not noticed.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222
        assert await worker_pipe.end(process) == -signal.SIGKILL

    asyncio.run(asyncio.wait_for(run(), 120))


def test_a_server_shutdown_waits_for_the_exit_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_process, "IDLE_SECONDS", 0.0)

    async def run() -> None:
        process = decode_process.DecodeProcess(asyncio.get_running_loop())
        job = Prepare(same_record(10), LogConfig(), NOW)
        done = asyncio.get_running_loop().create_future()
        process.submit(job, done.set_result)
        await done
        pid = process.pid
        while process.pid is not None:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0)
        await process.close()
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)  # type: ignore[arg-type]

    asyncio.run(asyncio.wait_for(run(), 120))


def test_identical_searches_are_done_once(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    submitted = []
    submit = process_of(server).submit
    monkeypatch.setattr(process_of(server), "submit", lambda job, done: submitted.append(job) or submit(job, done))  # type: ignore[func-returns-value]
    server.create_topic("t")
    with server.wire() as first, server.wire() as second, server.wire() as third, server.wire() as leaving:
        batch = bytearray(same_record(5_000_000))
        struct.pack_into(">q", batch, 35, NOW + 10)  # no record has the timestamp of the header
        struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
        assert produce(first, "t", bytes(batch)).error_code == 0
        leaving.send(list_offsets("t", NOW + 1), 7)
        server.wait_until(lambda: len(submitted) == 1)
        for wire, timestamp in ((first, NOW + 1), (second, NOW + 1), (third, NOW + 2)):
            wire.send(list_offsets("t", timestamp), 7)
        leaving.close()
        for wire in (first, second, third):
            assert wire.receive().topics[0].partitions[0].error_code == 0
        assert sorted(job.search.timestamp for job in submitted) == [NOW + 1, NOW + 2]
        assert not server.broker.decoder._shared


def test_waiting_searches_hold_no_batch_and_all_complete(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = []
    submit = server.broker.decoder.submit

    def noting(job: Any, done: Any) -> Any:
        held.append(server.broker.searches.held_bytes)
        return submit(job, done)

    monkeypatch.setattr(server.broker.decoder, "submit", noting)
    server.create_topic("t", partitions=6)
    batch = build_batch([Record(0, NOW + number, None, None) for number in range(MANY)])
    server.broker.searches._max_bytes = 2 * len(batch)
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(server.wire()) for _ in range(12)]
        for partition in range(6):
            assert produce(wires[0], "t", batch, partition=partition).error_code == 0
        for number, wire in enumerate(wires):
            request = list_offsets("t", NOW + 1000)
            request.topics[0].partitions[0].partition_index = number % 6
            wire.send(request, 7)
        for wire in wires:
            answer = wire.receive().topics[0].partitions[0]
            assert (answer.error_code, answer.offset) == (0, 1000)
    assert len(held) >= 6
    assert max(held) <= 2 * len(batch)
    assert server.call(lambda: (server.broker.searches.held_bytes, len(server.broker.searches))) == (0, 0)


def test_a_server_stops_while_a_batch_is_read(server: RunningServer) -> None:
    server.create_topic("t", cleanup_policy="compact")
    with server.wire() as wire:
        wire.send(produce_request("t", same_record(2_000_000)), 9)
        server.wait_until(lambda: process_of(server)._running)
        pid = process_of(server).pid
        server.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


# -- rejected batches release their memory -----------------------------------------------------------------------------


class Tracked(bytearray):
    """A batch that supports weak references, so that tests can wait until it is freed."""


@pytest.mark.parametrize("size", [3_000, 50_000])
def test_a_rejected_batch_is_freed_without_the_garbage_collector(server: RunningServer, size: int) -> None:
    server.create_topic("t", compression_type="zstd", cleanup_policy="compact")
    partition = server.partition("t", 0)
    done: list[Any] = []
    records = Tracked(build_batch([Record(0, NOW, None, os.urandom(size))], codec=Codec.GZIP))
    freed = weakref.ref(records)

    def append(prepared: Any, *, validated: Any) -> None:
        partition.append(prepared, acks=1, now_ms=NOW, validated=validated)

    def submit(data: Any) -> None:
        server.broker.appends.submit(partition, data, append, done.append)  # type: ignore[arg-type]

    gc.disable()
    try:
        server.call(lambda data=records: submit(data))  # type: ignore[misc]
        server.wait_until(lambda: done)
        assert [error.code for error in done] == [ErrorCode.INVALID_RECORD]
        del records
        server.wait_until(lambda: freed() is None)
    finally:
        gc.enable()


def test_a_result_holds_no_stack_frames() -> None:
    job = Prepare(build_batch([Record(0, NOW, None, b"v")]), LogConfig(cleanup_policy=("compact",)), NOW)
    outcome = attempt(job, 10, 1 << 20)
    assert isinstance(outcome.error, KafkaError)  # type: ignore[union-attr]
    assert outcome.error.__traceback__ is None  # type: ignore[union-attr]
    assert outcome.error.__context__ is None  # type: ignore[union-attr]
    assert outcome.error.record_errors[0][0] == 0  # type: ignore[attr-defined, union-attr]


def test_small_batches_need_neither_thread_nor_process(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("a small batch was sent to the process")

    monkeypatch.setattr(type(server.broker.decoder), "submit", never)
    server.create_topic("t", cleanup_policy="compact")
    server.create_topic("u", compression_type="zstd")
    now_ms = server.broker.now_ms()
    with server.wire() as wire:
        for codec in Codec:
            records = [Record(0, now_ms, b"key", b"v" * 100)] * 100
            assert produce(wire, "t", build_batch(records, codec=codec)).error_code == 0
            assert produce(wire, "u", build_batch(records[:20], codec=codec)).error_code == 0
        assert len(values(fetch(wire, "t"))) == 500
        assert {b.codec for b in iter_batches(fetch(wire, "u").records)} == {Codec.ZSTD}  # type: ignore[arg-type]


# -- large batches, which are sent to the process in pieces ------------------------------------------------------------

LIMIT = 40_000_000


def large_batch(
    size: int, codec: Codec = Codec.NONE, *, now_ms: Any = NOW, sequential: bool = True, count: int = 200
) -> Any:
    """A batch of records of random bytes, so that no codec makes it smaller."""
    value = size // count
    records = [Record(0, now_ms, b"%d" % number, os.urandom(value)) for number in range(count)]
    batch = build_batch(records, codec=codec)
    if sequential:
        return batch, records
    # All offset deltas are 0, so the records must be encoded again.
    parts = [build_batch([record])[BATCH_OVERHEAD:] for record in records]
    return batch_of_bytes(b"".join(parts), count, codec), records


def stored(server: RunningServer, topic: str) -> Any:
    log = server.partition(topic, 0).log
    batches = server.call(lambda: [(batch, list(iter_records(batch))) for batch in log.batches(0)])
    assert all(batch.has_valid_crc() for batch, _ in batches)
    return batches


@pytest.mark.parametrize("sequential", [True, False], ids=["in order", "not in order"])
@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("configs", [{}, {"cleanup_policy": "compact"}, {"compression_type": "lz4"}])
def test_large_batches_are_appended_like_small_ones(
    server: RunningServer, codec: Codec, configs: Any, sequential: bool
) -> None:
    server.create_topic("t", max_message_bytes=LIMIT, **configs)
    batch, records = large_batch(7_000_000, codec, now_ms=server.broker.now_ms(), sequential=sequential)
    assert len(batch) > LARGE_BYTES
    with server.wire() as wire:
        small = build_batch([Record(0, server.broker.now_ms(), b"k", b"small")])
        for data in (batch, small, batch):
            wire.send(produce_request("t", data), 9)
        offsets = [wire.receive().responses[0].partition_responses[0].base_offset for _ in range(3)]
    assert offsets == [0, len(records), len(records) + 1]
    found = stored(server, "t")
    assert [record.value for _, each in found for record in each] == [
        *(record.value for record in records),
        b"small",
        *(record.value for record in records),
    ]
    expected = Codec.LZ4 if "compression_type" in configs else codec
    assert [found[0][0].codec, found[2][0].codec] == [expected, expected]
    if "compression_type" in configs and codec is not Codec.LZ4:
        assert [record.offset for record in found[2][1]] == [
            len(records) + 1 + number for number in range(len(records))
        ]
    assert server.call(lambda: server.network.budget.used_bytes) == 0


@pytest.mark.parametrize("configs", [{}, {"cleanup_policy": "compact"}])
def test_large_batches_get_correct_headers(server: RunningServer, configs: Any) -> None:
    """The maximum timestamp of the header is not that of the records, or the server sets it."""
    now_ms = server.broker.now_ms()
    batch, records = large_batch(5_000_000, now_ms=now_ms)
    untrue = bytearray(batch)
    struct.pack_into(">q", untrue, 35, now_ms - 10)  # before the base timestamp: the records are read
    struct.pack_into(">I", untrue, 17, crc32c(bytes(untrue[21:])))
    server.create_topic("t", max_message_bytes=LIMIT, **configs)
    server.create_topic("time", max_message_bytes=LIMIT, message_timestamp_type="LogAppendTime", **configs)
    with server.wire() as wire:
        assert produce(wire, "t", bytes(untrue)).error_code == 0
        assert produce(wire, "time", batch).error_code == 0
    ((in_t, found),) = stored(server, "t")
    assert (in_t.max_timestamp, [record.value for record in found]) == (now_ms, [record.value for record in records])
    ((in_time, found),) = stored(server, "time")
    assert in_time.timestamp_type == LOG_APPEND_TIME
    assert [record.value for record in found] == [record.value for record in records]


@pytest.mark.parametrize("configs", [{}, {"cleanup_policy": "compact"}, {"compression_type": "lz4"}])
def test_large_batches_are_rejected_like_small_ones(server: RunningServer, configs: Any) -> None:
    server.create_topic("t", max_message_bytes=LIMIT, **configs)
    batch, records = large_batch(5_000_000, now_ms=server.broker.now_ms())
    corrupt = bytearray(batch)
    corrupt[-1] ^= 1
    no_records = batch_of_bytes(os.urandom(5_000_000), 3, Codec.NONE)
    too_large, _ = large_batch(LIMIT + 1000)
    with server.wire() as wire:
        assert produce(wire, "t", bytes(corrupt)).error_code == ErrorCode.CORRUPT_MESSAGE
        assert produce(wire, "t", batch[:-1]).error_code == ErrorCode.INVALID_RECORD
        assert produce(wire, "t", too_large).error_code == ErrorCode.MESSAGE_TOO_LARGE
        if configs:
            assert produce(wire, "t", no_records).error_code == ErrorCode.INVALID_RECORD
        assert produce(wire, "t", batch).base_offset == 0
    assert [len(each) for _, each in stored(server, "t")] == [len(records)]


def reading(server: RunningServer) -> bool:
    """Whether the process is reading a large batch."""
    return any(decoding.size > LARGE_BYTES for decoding in process_of(server)._running.values())


def on_its_way(server: RunningServer) -> Any:
    """Whether a large batch is being appended or has been appended."""
    log = server.partition("t", 0).log
    return bool(server.broker.appends._queues) or log.size > LARGE_BYTES


def slow_batch(*, now_ms: Any = NOW) -> Any:
    """A large batch of more than a million records, which the process reads for seconds."""
    records = build_batch([Record(0, now_ms, b"k", os.urandom(20))])[BATCH_OVERHEAD:]
    return batch_of_bytes(records * 700_000, 700_000, Codec.NONE)


def test_a_large_batch_is_read_again_when_the_process_is_killed(
    server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.create_topic("t", max_message_bytes=LIMIT, compression_type="zstd")
    with server.wire() as wire:
        wire.send(produce_request("t", slow_batch()), 9)
        server.wait_until(lambda: reading(server))
        pid = process_of(server).pid
        os.kill(pid, signal.SIGKILL)
        assert wire.receive().responses[0].partition_responses[0].error_code == 0
    assert "restarting it" in caplog.text
    assert len(stored(server, "t")[0][1]) == 700_000


def test_a_large_batch_is_rejected_if_the_process_is_killed_while_it_returns_the_result(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch itself has been freed by then. Clients retry."""
    server.create_topic("t", max_message_bytes=LIMIT, compression_type="lz4")
    batch, records = large_batch(20_000_000, now_ms=server.broker.now_ms())
    add = decode_process.Decoding.add
    killed: list[Any] = []

    def add_and_kill(decoding: Any, part: Any) -> Any:
        if not killed:
            killed.append(process_of(server).pid)
            os.kill(killed[0], signal.SIGKILL)
        return add(decoding, part)

    monkeypatch.setattr(decode_process.Decoding, "add", add_and_kill)
    with server.wire() as wire:
        assert produce(wire, "t", batch).error_code == ErrorCode.REQUEST_TIMED_OUT
        assert server.call(lambda: server.network.budget.used_bytes) == 0
        assert produce(wire, "t", batch).error_code == 0
    assert killed
    assert len(stored(server, "t")[0][1]) == len(records)


def test_a_large_batch_is_appended_even_if_its_client_disconnects(server: RunningServer) -> None:
    server.create_topic("t", max_message_bytes=LIMIT, cleanup_policy="compact")
    with server.wire() as wire:
        wire.send(produce_request("t", slow_batch()), 9)
        server.wait_until(lambda: reading(server))
    server.wait_until(lambda: not server.network.connections)
    assert server.network.budget.used_bytes > 15_000_000  # the batch is still in memory
    server.wait_until(lambda: not server.broker.appends._queues)
    server.wait_until(lambda: server.network.budget.used_bytes == 0)
    assert len(stored(server, "t")[0][1]) == 700_000


@pytest.mark.parametrize("configs", [{}, {"cleanup_policy": "compact"}, {"compression_type": "lz4"}])
def test_a_server_can_stop_at_each_step_of_a_large_append(server: RunningServer, configs: Any) -> None:
    """At every step, from the arrival on: afterwards the log contains either the whole batch or none of it."""
    server.create_topic("t", max_message_bytes=LIMIT, **configs)
    batch, records = large_batch(20_000_000, now_ms=server.broker.now_ms())
    with server.wire() as wire:
        assert produce(wire, "t", build_batch([Record(0, server.broker.now_ms(), b"k", b"first")])).error_code == 0
        wire.send(produce_request("t", batch), 9)
        server.wait_until(lambda: on_its_way(server))
        server.stop()
    server.start()
    found = stored(server, "t")
    assert [len(each) for _, each in found] in ([1], [1, len(records)])
    with server.wire() as wire:
        assert produce(wire, "t", build_batch([Record(0, server.broker.now_ms(), b"k", b"v")])).error_code == 0
    assert [len(each) for _, each in stored(server, "t")] == [*(len(each) for _, each in found), 1]


@pytest.mark.parametrize("configs", [{}, {"cleanup_policy": "compact"}])
def test_deleting_a_topic_cancels_the_append_of_a_large_batch(server: RunningServer, configs: Any) -> None:
    server.create_topic("t", max_message_bytes=LIMIT, **configs)
    batch, _ = large_batch(30_000_000)
    with server.wire() as producer, server.wire() as admin:
        producer.send(produce_request("t", batch), 9)
        server.wait_until(lambda: on_its_way(server))
        assert (
            admin.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=60_000), 6)
            .responses[0]
            .error_code
            == 0
        )
        answer = producer.receive().responses[0].partition_responses[0]
        assert answer.error_code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE)
    server.wait_until(lambda: not server.network.budget.used_bytes)
    assert not server.broker.appends._queues


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD])
def test_a_large_stored_batch_is_searched_in_pieces(server: RunningServer, codec: Codec) -> None:
    server.create_topic("t", max_message_bytes=LIMIT)
    value = os.urandom(40_000)
    records = [Record(0, NOW + number, None, value[number:]) for number in range(200)]
    with server.wire() as wire:
        assert produce(wire, "t", build_batch(records, codec=codec)).error_code == 0
        answer = wire.call(list_offsets("t", NOW + 150), 7).topics[0].partitions[0]
        assert (answer.error_code, answer.offset) == (0, 150)
