"""Batches whose records take long to look at: elsewhere than on the loop, in order, and one by one."""

import asyncio
import errno
import gc
import os
import signal
import struct
import weakref

import pytest

from moldau.log.config import LogConfig
from moldau.protocol.checksum import crc32c
from moldau.protocol.compression import Codec, compress
from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.protocol.records import BATCH_OVERHEAD, Record, build_batch, iter_batches
from moldau.server import decode_process, worker_pipe
from moldau.server.decode_jobs import Prepare, attempt
from moldau.testing.builders import fetch, produce, produce_request, values

NOW = 1_700_000_000_000
MANY = 30_000
"""Records of a batch that is too large for a thread, and takes the process a moment."""


def tiny_records(count=MANY, *, now_ms=NOW):
    """A small batch of many records of a few bytes, whose offsets are in order."""
    return build_batch([Record(0, now_ms, b"k", None)] * count, codec=Codec.GZIP)


def batch_of_bytes(records, count, codec):
    """A batch of these bytes, be they records or not."""
    batch = bytearray(build_batch([Record(0, NOW, b"k", b"v")])[:BATCH_OVERHEAD])
    batch += compress(codec, records)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">hi", batch, 21, codec, count - 1)
    struct.pack_into(">i", batch, 57, count)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return bytes(batch)


def same_record(count):
    """Many records in a batch that is quickly made: the same bytes again and again."""
    return batch_of_bytes(build_batch([Record(0, NOW, b"k", None)])[BATCH_OVERHEAD:] * count, count, Codec.GZIP)


def bomb(codec):
    """A batch of one record that does not fit into memory."""
    return batch_of_bytes(bytes(150_000_000), 1, codec)


def list_offsets(topic, timestamp):
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[partition])])


def process_of(server):
    return server.broker.decoder.process


@pytest.mark.parametrize(
    "configs",
    [{"cleanup_policy": "compact"}, {"compression_type": "zstd"}],
    ids=["compacted", "recompressed"],
)
def test_a_batch_of_many_records_is_looked_at_by_the_process_and_appended(server, configs):
    server.create_topic("t", **configs)
    with server.wire() as wire:
        answer = produce(wire, "t", tiny_records(now_ms=server.broker.now_ms()))
        assert (answer.error_code, answer.base_offset) == (0, 0)
        assert process_of(server).pid is not None
        assert produce(wire, "t", build_batch([Record(0, server.broker.now_ms(), b"k", b"v")])).base_offset == MANY


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("configs", [{"cleanup_policy": "compact"}, {"compression_type": "uncompressed"}])
def test_bombs_are_refused_and_others_go_on(server, codec, configs):
    server.create_topic("t", max_message_bytes=20_000_000, **configs)
    with server.wire() as wire:
        answer = produce(wire, "t", bomb(codec))
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert produce(wire, "t", build_batch([Record(0, server.broker.now_ms(), b"k", b"v")])).error_code == 0


def test_appends_of_a_partition_stay_in_order_behind_one_that_takes_long(server):
    server.create_topic("t", compression_type="lz4")
    now_ms = server.broker.now_ms()
    with server.wire() as wire:
        small = build_batch([Record(0, now_ms, b"k", b"small")])
        for data in (tiny_records(now_ms=now_ms), small, build_batch([Record(0, now_ms, b"k", b"x" * 50_000)]), small):
            wire.send(produce_request("t", data), 9)
        offsets = [wire.receive().responses[0].partition_responses[0].base_offset for _ in range(4)]
        assert offsets == [0, MANY, MANY + 1, MANY + 2]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
def test_a_stored_batch_of_many_records_is_searched_by_the_process(server, codec):
    server.create_topic("t")
    records = [Record(0, NOW + (number == 20_000) * 5, None, None) for number in range(MANY)]
    with server.wire() as wire:
        assert produce(wire, "t", build_batch(records, codec=codec)).error_code == 0
        for timestamp, expected in ((NOW, 0), (NOW + 1, 20_000), (NOW + 5, 20_000), (NOW + 6, -1), (-3, 20_000)):
            answer = wire.call(list_offsets("t", timestamp), 7).topics[0].partitions[0]
            assert (answer.error_code, answer.offset) == (0, expected)
        assert process_of(server).pid is not None


def test_a_search_is_ended_when_its_client_goes_away(server):
    server.create_topic("t")
    with server.wire() as wire:
        produce(wire, "t", same_record(2_000_000))
        with server.wire() as other:
            other.send(list_offsets("t", -3), 7)
            server.wait_until(lambda: process_of(server)._running)
        server.wait_until(lambda: not process_of(server)._running)
        assert wire.call(list_offsets("t", NOW), 7).topics[0].partitions[0].offset == 0


def test_a_deleted_topic_ends_the_look_at_its_batches(server):
    server.create_topic("t", cleanup_policy="compact")
    with server.wire() as producer, server.wire() as admin:
        producer.send(produce_request("t", same_record(2_000_000)), 9)
        server.wait_until(lambda: process_of(server)._running)
        assert admin.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]), 6).responses[0].error_code == 0
        answer = producer.receive().responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        server.wait_until(lambda: not process_of(server)._running)


def test_when_the_process_is_killed_its_batches_are_looked_at_again(server, caplog):
    for name in ("a", "b"):
        server.create_topic(name, cleanup_policy="compact")
    with server.wire() as first, server.wire() as second:
        first.send(produce_request("a", same_record(1_000_000)), 9)
        second.send(produce_request("b", same_record(1_000_000)), 9)
        server.wait_until(lambda: len(process_of(server)._running) == 2)
        os.kill(process_of(server).pid, signal.SIGKILL)
        for wire in (first, second):
            assert wire.receive().responses[0].partition_responses[0].error_code == 0
    assert "started again" in caplog.text


def test_a_batch_that_the_process_dies_of_twice_is_refused_alone(server):
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


def test_the_process_ends_when_it_is_idle(server, monkeypatch):
    monkeypatch.setattr(decode_process, "IDLE_SECONDS", 0.01)
    server.create_topic("t", cleanup_policy="compact")
    with server.wire() as wire:
        for _ in range(2):
            assert produce(wire, "t", same_record(30_000)).error_code == 0
            server.wait_until(lambda: process_of(server).pid is None)


def test_a_process_that_cannot_be_started_refuses_what_clients_try_again(server, monkeypatch, caplog):
    async def refused(*_command, **_options):
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    server.create_topic("t", cleanup_policy="compact")
    with server.wire() as wire:
        with monkeypatch.context() as patch:
            patch.setattr(asyncio, "create_subprocess_exec", refused)
            for _ in range(3):
                assert produce(wire, "t", same_record(30_000)).error_code == ErrorCode.REQUEST_TIMED_OUT
        assert produce(wire, "t", same_record(30_000)).error_code == 0
    assert caplog.text.count("There is no process to look at large batches") == 1


def test_a_process_ends_although_its_answer_is_not_read():
    """As when a server stops while a large recompressed batch is on its way back."""
    records = build_batch([Record(0, NOW, b"k", bytes(900_000))], codec=Codec.GZIP)
    job = Prepare(records, LogConfig(compression_type="uncompressed"), NOW)

    async def run():
        process = await worker_pipe.start_worker("moldau.server.decode_worker")
        process.stdin.write(worker_pipe.message(("job", 1, job)))
        while not process.stdout._paused:  # noqa: ASYNC110 - the stream announces nothing
            await asyncio.sleep(0.01)
        assert await worker_pipe.end(process) == -signal.SIGKILL

    asyncio.run(asyncio.wait_for(run(), 30))


def test_a_process_that_has_ended_unnoticed_can_be_ended():
    async def run():
        process = await worker_pipe.start_worker("moldau.server.decode_worker")
        os.kill(process.pid, signal.SIGKILL)
        # It has ended, and the loop does not know.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222
        assert await worker_pipe.end(process) == -signal.SIGKILL

    asyncio.run(asyncio.wait_for(run(), 30))


def test_a_server_that_stops_while_the_process_ends_waits_for_that(monkeypatch):
    monkeypatch.setattr(decode_process, "IDLE_SECONDS", 0.0)

    async def run():
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
            os.kill(pid, 0)

    asyncio.run(asyncio.wait_for(run(), 30))


def test_the_same_search_is_done_once_for_all_that_ask(server, monkeypatch):
    submitted = []
    submit = process_of(server).submit
    monkeypatch.setattr(process_of(server), "submit", lambda job, done: submitted.append(job) or submit(job, done))
    server.create_topic("t")
    with server.wire() as first, server.wire() as second, server.wire() as third, server.wire() as leaving:
        batch = bytearray(same_record(5_000_000))
        struct.pack_into(">q", batch, 35, NOW + 10)  # the header promises what no record has
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


def test_a_server_stops_while_a_batch_is_looked_at(server):
    server.create_topic("t", cleanup_policy="compact")
    with server.wire() as wire:
        wire.send(produce_request("t", same_record(2_000_000)), 9)
        server.wait_until(lambda: process_of(server)._running)
        pid = process_of(server).pid
        server.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


# -- what is refused leaves nothing behind -----------------------------------------------------------------------------


class Tracked(bytearray):
    """A batch that can be waited for to be freed."""


@pytest.mark.parametrize("size", [3_000, 50_000])
def test_a_refused_batch_is_freed_without_the_garbage_collector(server, size):
    server.create_topic("t", compression_type="zstd", cleanup_policy="compact")
    partition = server.broker.replicas.partition_by_key("t", 0)
    done = []
    records = Tracked(build_batch([Record(0, NOW, None, os.urandom(size))], codec=Codec.GZIP))
    freed = weakref.ref(records)

    def append(prepared, *, validated):
        partition.append(prepared, acks=1, now_ms=NOW, validated=validated)

    def submit(data):
        server.broker.appends.submit(partition, data, append, done.append)

    gc.disable()
    try:
        server.call(lambda data=records: submit(data))
        server.wait_until(lambda: done)
        assert [error.code for error in done] == [ErrorCode.INVALID_RECORD]
        del records
        server.wait_until(lambda: freed() is None)
    finally:
        gc.enable()


def test_an_outcome_holds_no_frames():
    job = Prepare(build_batch([Record(0, NOW, None, b"v")]), LogConfig(cleanup_policy=("compact",)), NOW)
    outcome = attempt(job, 10, 1 << 20)
    assert isinstance(outcome.error, KafkaError)
    assert outcome.error.__traceback__ is None
    assert outcome.error.__context__ is None
    assert outcome.error.record_errors[0][0] == 0


def test_small_batches_need_neither_thread_nor_process(server, monkeypatch):
    def never(*_):
        raise AssertionError("a small batch was handed over")

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
        assert {b.codec for b in iter_batches(fetch(wire, "u").records)} == {Codec.ZSTD}
