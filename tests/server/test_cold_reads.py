"""Threads read data that is not in the page cache: only the client that requests it waits.

Most tests use the in-memory file system. It counts the reads that would have waited for the disk (`waits`) and can
block a thread for as long as a test needs.
"""

from __future__ import annotations

import errno
import os
import tempfile
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from moldau.benchmarks.page_cache import evict
from moldau.log.memory_files import MemoryFileSystem
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import FetchPartition, FetchTopic
from moldau.server.network.sending import AHEAD_BYTES, READ_BYTES, TURN_BYTES, WINDOW_BYTES
from moldau.testing.builders import batch, fetch, fetch_request, produce, produce_request, values
from moldau.testing.wire import WireClient

from .conftest import MakeServer, RunningServer

VALUE = 100_000
EVERYTHING = 50_000_000


class Disk(MemoryFileSystem):
    """A file system whose read-ahead can be blocked and made to fail."""

    def __init__(self) -> None:
        super().__init__(recording=False)
        self.go = threading.Event()
        self.go.set()
        self.errno: Any = None
        self.fail_with = self._read_ahead

    def _read_ahead(self, operation: str, _path: Any) -> Any:
        if operation == "read ahead":
            assert self.go.wait(60)
            return self.errno
        return None

    def evict_topic(self, name: str, *suffixes: Any) -> None:
        for path in list(self._names):
            if f"/{name}-" in path and path.endswith(suffixes or (".log",)):
                self.evict(path)


@pytest.fixture
def disk() -> Iterator[Any]:
    disk = Disk()
    yield disk
    disk.go.set()


@pytest.fixture
def server(make_server: MakeServer, disk: Disk) -> RunningServer:
    return make_server(log_dirs=["/data"], file_system=disk)


def fill(server: RunningServer, topic: str, count: int = 30, size: Any = VALUE) -> Any:
    """A topic of batches of one record, 3 MB by default."""
    server.create_topic(topic)
    payload = [(b"%4d" % number * (size // 4 + 1))[:size] for number in range(count)]
    with server.wire() as wire:
        for value in payload:
            assert produce(wire, topic, batch(value)).error_code == 0
    return payload


def read_all(wire: WireClient, topic: str, offset: int = 0) -> Any:
    return values(fetch(wire, topic, offset, max_bytes=EVERYTHING, partition_max_bytes=EVERYTHING))


def send_fetch(wire: WireClient, topic: str, offset: int = 0) -> None:
    wire.send(fetch_request(topic, offset, max_bytes=EVERYTHING, partition_max_bytes=EVERYTHING), 12)


def received(wire: WireClient) -> Any:
    return values(wire.receive().responses[0].partitions[0])


def wait_for_thread(server: RunningServer) -> None:
    """Wait until a thread is reading ahead. It continues to do so until `Disk.go` is set."""
    server.wait_until(lambda: server.broker.read_ahead._unfinished)


def references(server: RunningServer, topic: str) -> Any:
    """The number of references to the active segment's open file, including that of the cache."""
    log = server.partition(topic, 0).log
    return server.call(lambda: log.segments.active.open_file.references)  # type: ignore[union-attr]


# -- sending -----------------------------------------------------------------------------------------------------------


def test_a_cold_range_is_read_by_a_thread_and_sent(server: RunningServer, disk: Disk) -> None:
    payload = fill(server, "t")
    disk.evict_topic("t")
    with server.wire() as wire:
        assert read_all(wire, "t") == payload
    assert disk.waits == {}
    assert server.broker.read_ahead.jobs > 0


def test_a_warm_range_needs_no_thread(server: RunningServer, disk: Disk) -> None:
    payload = fill(server, "t")
    with server.wire() as wire:
        assert read_all(wire, "t") == payload
    assert server.broker.read_ahead.jobs == 0


@pytest.mark.parametrize("size", [10, READ_BYTES // 2, READ_BYTES + 100, 3 * WINDOW_BYTES])
def test_cold_ranges_of_any_size_are_sent(make_server: MakeServer, disk: Disk, size: Any) -> None:
    server = make_server(log_dirs=["/data"], file_system=disk, config={"message.max.bytes": str(EVERYTHING)})
    payload = fill(server, "t", 3, size)
    disk.evict_topic("t")
    with server.wire() as wire:
        assert read_all(wire, "t") == payload
        assert read_all(wire, "t") == payload
    assert disk.waits == {}


def test_a_cold_hole_in_a_warm_range_is_read_by_a_thread(server: RunningServer, disk: Disk) -> None:
    payload = fill(server, "t")
    disk.evict("/data/t-0/00000000000000000000.log", 1_500_000, 300_000)
    with server.wire() as wire:
        assert read_all(wire, "t") == payload
    assert disk.waits == {}
    assert disk.read_aheads[0][1] <= 1_500_000 < disk.read_aheads[0][1] + WINDOW_BYTES


def test_other_clients_are_served_while_a_reader_waits_for_the_disk(server: RunningServer, disk: Disk) -> None:
    cold, warm = fill(server, "cold"), fill(server, "warm", 3)
    disk.evict_topic("cold")
    disk.go.clear()
    with server.wire() as reader, server.wire() as other:
        send_fetch(reader, "cold")
        reader.send(produce_request("cold", batch(b"behind it")), 9)
        wait_for_thread(server)
        for number in range(3):
            assert produce(other, "warm", batch(b"%d" % number)).error_code == 0
        assert read_all(other, "warm")[:3] == warm
        # This includes the end of the same partition, which is in memory.
        assert produce(other, "cold", batch(b"new")).error_code == 0
        assert read_all(other, "cold", len(cold))[-1] == b"new"
        disk.go.set()
        assert received(reader)[: len(cold)] == cold
        assert reader.receive().responses[0].partition_responses[0].error_code == 0
    assert disk.waits == {}


def test_several_cold_readers_are_served_concurrently(server: RunningServer, disk: Disk) -> None:
    payloads = {f"t{number}": fill(server, f"t{number}", 20) for number in range(8)}
    for topic in payloads:
        disk.evict_topic(topic)
    disk.go.clear()
    wires = {topic: server.wire() for topic in payloads}
    for topic, wire in wires.items():
        send_fetch(wire, topic)
    server.wait_until(lambda: server.broker.read_ahead._unfinished == 8)
    assert server.call(lambda: server.broker.read_ahead._executor._running) == 4
    disk.go.set()
    for topic, wire in wires.items():
        assert received(wire) == payloads[topic]
        wire.close()
    assert disk.waits == {}


def test_the_following_data_is_read_ahead_of_requests(server: RunningServer, disk: Disk) -> None:
    """There is one job for every two or four MB, and one wait at the start, but not one for each fetch."""
    payload = fill(server, "t", 150)
    disk.evict_topic("t")
    with server.wire() as wire:
        for offset in range(0, 150, 5):
            answer = fetch(wire, "t", offset, max_bytes=5 * VALUE + 1000, partition_max_bytes=5 * VALUE + 1000)
            assert values(answer)[:5] == payload[offset : offset + 5]
            server.wait_until(lambda: not server.broker.read_ahead._unfinished)
    assert disk.waits == {}
    reads = [(position, length) for _, position, length in disk.read_aheads]
    assert reads[1][1] == AHEAD_BYTES
    assert len(reads) <= 2 + 15_000_000 // (AHEAD_BYTES // 2)
    assert all(begin + length == following for (begin, length), (following, _) in pairwise(reads))  # read once


def test_a_reader_makes_progress_when_memory_is_too_small_for_read_ahead(server: RunningServer, disk: Disk) -> None:
    """The data that the thread has read is evicted again. The event loop waits for the disk; the reader progresses."""
    payload = fill(server, "t")
    disk.evict_topic("t")
    disk.forgets_read_ahead = True
    with server.wire() as wire:
        assert read_all(wire, "t") == payload
    assert disk.waits
    assert len(disk.read_aheads) <= 2 * (3_000_000 // WINDOW_BYTES + 2)


def test_ranges_are_sent_from_a_file_system_that_cannot_report_its_cache(server: RunningServer, disk: Disk) -> None:
    payload = fill(server, "t")
    disk.reports_cached_bytes = False
    with server.wire() as wire:
        assert read_all(wire, "t") == payload
        assert read_all(wire, "t", 5) == payload[5:]
    assert disk.read_aheads


def test_a_file_stays_open_for_the_thread_after_its_reader_disconnects(server: RunningServer, disk: Disk) -> None:
    """The file is closed when the thread is done."""
    fill(server, "t")
    disk.evict_topic("t")
    disk.go.clear()
    with server.wire() as wire:
        send_fetch(wire, "t")
        wait_for_thread(server)
        # The server does not read from a waiting connection, so it would notice a disconnect only when it sends.
        # The test therefore closes the connection in the server.
        server.call(lambda: [c.close("the test says so") for c in list(server.network.connections)])  # type: ignore[func-returns-value]
    assert references(server, "t") == 2
    disk.go.set()
    server.wait_until(lambda: not server.broker.read_ahead._unfinished)
    assert references(server, "t") == 1


def test_a_topic_that_is_deleted_during_a_read_is_sent_and_closed(server: RunningServer, disk: Disk) -> None:
    from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

    payload = fill(server, "t")
    disk.evict_topic("t")
    open_files = disk.open_files
    disk.go.clear()
    with server.wire() as wire, server.wire() as admin:
        send_fetch(wire, "t")
        wait_for_thread(server)
        assert (
            admin.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=60_000), 6)
            .responses[0]
            .error_code
            == 0
        )
        disk.go.set()
        assert received(wire) == payload
    server.wait_until(lambda: not server.broker.read_ahead._unfinished)
    assert disk.open_files < open_files


def test_a_disk_error_closes_only_the_connection_of_the_reader(
    server: RunningServer, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    fill(server, "t")
    disk.evict_topic("t")
    disk.errno = errno.EIO
    with server.wire() as reader, server.wire() as other:
        send_fetch(reader, "t")
        with pytest.raises(ConnectionError):
            reader.receive()
        assert produce(other, "t", batch(b"x")).error_code == 0
    assert "sending failed: [Errno 5]" in caplog.text
    assert references(server, "t") == 1


def test_an_internal_error_in_a_thread_does_not_fail_the_fetch(
    server: RunningServer, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    payload = fill(server, "t", 3)
    disk.evict_topic("t")
    disk.errno = "no errno"  # a TypeError in the thread
    with server.wire() as wire:
        assert read_all(wire, "t") == payload
    assert "failed with an unexpected error" in caplog.text


def test_a_shutdown_waits_for_running_reads(server: RunningServer, disk: Disk) -> None:
    fill(server, "t")
    disk.evict_topic("t")
    disk.go.clear()
    wires = [server.wire() for _ in range(6)]
    for wire in wires:
        send_fetch(wire, "t")
    read_ahead = server.broker.read_ahead
    server.wait_until(lambda: read_ahead._unfinished == 6)
    stopping = threading.Thread(target=server.stop)
    stopping.start()
    server.wait_until(lambda: read_ahead._closing)
    assert server.call(lambda: read_ahead._unfinished) == 4  # two had not started
    assert disk.open_files > 0
    disk.go.set()
    stopping.join(60)
    assert not stopping.is_alive()
    assert disk.open_files == 0
    for wire in wires:
        wire.close()


def test_no_data_is_read_ahead_during_shutdown(server: RunningServer, disk: Disk) -> None:
    fill(server, "t", 1)
    log = server.partition("t", 0).log
    read_ahead = server.broker.read_ahead

    def submit() -> None:
        read_ahead._closing = True
        read_ahead.read(log.segments.active.range(0, 10), lambda _: pytest.fail("called"))

    server.call(submit)
    assert disk.read_aheads == []
    assert references(server, "t") == 1


# -- finding -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def reopened(server: RunningServer, disk: Disk) -> Any:
    """A restarted server. It has to search index files, and none of their data is in memory."""
    payload = [b"%d" % number for number in range(300)]
    server.create_topic("t", partitions=3, index_interval_bytes=0)
    with server.wire() as wire:
        for partition in range(3):
            for value in payload:
                wire.send(produce_request("t", batch(value), partition=partition), 9)
                wire.receive()
    server.restart()
    disk.evict_topic("t", ".log", ".index")
    disk.read_aheads.clear()
    disk.waits.clear()  # the startup may wait
    return server


def test_a_fetch_whose_index_is_cold_waits_for_a_thread(reopened: RunningServer, disk: Disk) -> None:
    with reopened.wire() as wire:
        assert values(fetch(wire, "t", 200))[:1] == [b"200"]
        assert len(values(fetch(wire, "t", 200))) == 100
    assert disk.waits == {}
    assert [path.rpartition(".")[2] for path, _, _ in disk.read_aheads[:2]] == ["index", "log"]


def test_other_clients_are_served_while_a_fetch_waits_for_its_index(reopened: RunningServer, disk: Disk) -> None:
    disk.go.clear()
    with reopened.wire() as reader, reopened.wire() as other:
        send_fetch(reader, "t", 100)
        reader.send(produce_request("t", batch(b"behind it")), 9)  # served, and the responses are in order
        wait_for_thread(reopened)
        assert produce(other, "t", batch(b"x")).base_offset in (300, 301)
        disk.go.set()
        assert len(received(reader)) == 202
        assert reader.receive().responses[0].partition_responses[0].error_code == 0
    assert disk.waits == {}


def test_many_cold_partitions_are_read_together(reopened: RunningServer, disk: Disk) -> None:
    request = fetch_request("t", 250, max_bytes=EVERYTHING)
    wanted = [FetchPartition(partition=i, fetch_offset=250, partition_max_bytes=EVERYTHING) for i in range(3)]
    request.topics = [FetchTopic(topic="t", partitions=wanted)]
    with reopened.wire() as wire:
        partitions = wire.call(request, 12).responses[0].partitions
    assert [len(values(partition)) for partition in partitions] == [50, 50, 50]
    assert disk.waits == {}
    suffixes = [path.rpartition(".")[2] for path, _, _ in disk.read_aheads]
    assert suffixes[:6] == ["index"] * 3 + ["log"] * 3


def test_a_cold_fetch_can_wait_for_records_afterwards(reopened: RunningServer, disk: Disk) -> None:
    with reopened.wire() as consumer, reopened.wire() as producer:
        consumer.send(fetch_request("t", 299, max_wait_ms=60_000, min_bytes=150), 12)
        partition = reopened.partition("t", 0)
        reopened.wait_until(lambda: partition.waiters)
        assert disk.read_aheads
        produce(producer, "t", batch(b"y" * 100))
        assert received(consumer) == [b"299", b"y" * 100]


def test_a_shutdown_does_not_wait_for_the_records_of_a_cold_fetch(reopened: RunningServer, disk: Disk) -> None:
    disk.go.clear()
    with reopened.wire() as consumer:
        consumer.send(fetch_request("t", 299, max_wait_ms=600_000, min_bytes=10_000), 12)
        wait_for_thread(reopened)
        stopping = threading.Thread(target=reopened.stop)
        stopping.start()
        reopened.wait_until(lambda: any(c.closing for c in reopened.network.connections))
        disk.go.set()
        stopping.join(60)
        assert received(consumer) == [b"299"]


def test_a_cold_fetch_of_a_disconnected_consumer_is_not_resumed(reopened: RunningServer, disk: Disk) -> None:
    disk.go.clear()
    with reopened.wire() as wire:
        send_fetch(wire, "t", 100)
        wait_for_thread(reopened)
    reopened.wait_until(lambda: not reopened.network.connections)
    disk.go.set()
    reopened.wait_until(lambda: not reopened.broker.read_ahead._unfinished)
    assert len(disk.read_aheads) == 1  # the fetch is not resumed


def test_a_fetch_waits_for_an_index_that_does_not_stay_in_memory(reopened: RunningServer, disk: Disk) -> None:
    disk.forgets_read_ahead = True
    with reopened.wire() as wire:
        assert values(fetch(wire, "t", 200))[0] == b"200"
    assert disk.waits
    assert len(disk.read_aheads) < 10


def test_an_index_that_cannot_be_read_ahead_is_read_directly(reopened: RunningServer, disk: Disk) -> None:
    disk.errno = errno.EAGAIN
    with reopened.wire() as wire:
        assert values(fetch(wire, "t", 200, max_bytes=100, partition_max_bytes=100))[0] == b"200"
    assert disk.waits


def test_an_internal_error_in_a_resumed_fetch_fails_only_its_request(
    reopened: RunningServer, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    disk.go.clear()
    with reopened.wire() as reader, reopened.wire() as other:
        send_fetch(reader, "t", 100)
        wait_for_thread(reopened)
        partition = reopened.partition("t", 0)
        reopened.call(lambda: setattr(partition, "leader_epoch", None))  # reading it raises a TypeError
        reopened.call(lambda: setattr(partition, "log", None))
        disk.go.set()
        assert reader.receive().error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert produce(other, "t", batch(b"x"), partition=1).error_code == 0
    assert "failed with an unexpected error" in caplog.text


# -- the real file system ----------------------------------------------------------------------------------------------


@pytest.fixture
def cold_directory(tmp_path: Path) -> Any:
    """A function that evicts the logs below a directory from the page cache. The test is skipped if that fails."""
    if not hasattr(os, "posix_fadvise") or not hasattr(os, "RWF_NOWAIT"):
        pytest.skip("this system neither evicts cached pages nor reports which pages are cached")

    with tempfile.NamedTemporaryFile(dir=tmp_path) as temporary:
        temporary.write(bytes(4096))
        temporary.flush()
        evict([Path(temporary.name)])
        try:
            os.preadv(temporary.fileno(), (bytearray(1),), 0, os.RWF_NOWAIT)
            pytest.skip("the file system of the temporary directory does not drop cached pages")
        except BlockingIOError:
            pass
        except OSError as error:
            pytest.skip(f"the file system of the temporary directory does not report what is cached: {error}")
    return lambda: evict(tmp_path.rglob("*.log"))


def test_a_cold_segment_on_a_real_disk_is_read_by_a_thread(make_server: MakeServer, cold_directory: Any) -> None:
    server = make_server()
    payload = fill(server, "t", 60)
    cold_directory()
    with server.wire() as wire:
        assert read_all(wire, "t") == payload
        assert server.broker.read_ahead.jobs > 0
        cold_directory()
        for offset in range(0, 60, 20):
            assert read_all(wire, "t", offset) == payload[offset:]
        server.wait_until(lambda: not server.broker.read_ahead._unfinished)
        jobs = server.broker.read_ahead.jobs
        for _ in range(20):
            assert read_all(wire, "t") == payload
        assert server.broker.read_ahead.jobs < jobs + 20  # data that has been read needs no thread


# -- iterations of the event loop --------------------------------------------------------------------------------------


def test_a_fast_reader_gets_a_limited_number_of_bytes_per_iteration(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that accepts all data immediately gets `TURN_BYTES`; then the event loop does its other work."""
    server = make_server()
    payload = fill(server, "t", 60)
    turn = 0
    sent: dict[Any, Any] = {}

    def next_iteration() -> None:
        nonlocal turn
        turn += 1
        server.loop.call_soon(next_iteration)

    sendfile = os.sendfile

    def fake(out: Any, source: Any, position: Any, length: int) -> Any:
        sent[turn] = sent.get(turn, 0) + length
        os.set_blocking(out, True)  # as if the window of the peer were unlimited
        try:
            done = 0
            while done < length:
                done += sendfile(out, source, position + done, length - done)
        finally:
            os.set_blocking(out, False)
        return length

    monkeypatch.setattr(os, "sendfile", fake)
    server.call(next_iteration)
    with server.wire() as wire:
        assert read_all(wire, "t") == payload
    assert sum(sent.values()) > 5_000_000
    assert max(sent.values()) <= TURN_BYTES
