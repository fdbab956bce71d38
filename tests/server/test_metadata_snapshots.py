"""Snapshots of the metadata in a running server: due by size and by time, beside requests, on a full disk."""

import asyncio
import errno
import logging

from moldau.log.memory_files import MemoryFileSystem
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.server import metadata_snapshots

HOUR_MS = 3_600_000
LOG = "/data/__cluster_metadata-0"


def names(disk, suffix):
    return sorted(name for name in disk.list_directory(LOG)[0] if name.endswith(suffix))


def make_more_topics(server, count, prefix="t"):
    for number in range(count):
        server.create_topic(f"{prefix}-{number}")


def create_and_look(server, name):
    """Make a topic; whether that has begun a snapshot, which is written when this returns."""

    def change():
        request = CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)])
        server.broker.metadata.create_topics(request, now_ms=server.clock())
        return not server.broker.metadata_snapshots.is_idle

    begun = server.call(change)
    if begun:
        server.await_(server.broker.metadata_snapshots.work)  # one after the other
        server.await_(server.broker.trash.remove_due)
    return begun


def test_a_log_that_has_grown_is_cut_while_the_server_runs(make_server):
    disk = MemoryFileSystem(recording=False)
    limits = {
        "metadata.log.max.record.bytes.between.snapshots": "3000",
        "metadata.max.retention.bytes": "0",
        "internal.metadata.delete.delay.millis": "0",
    }
    server = make_server(log_dirs=["/data"], config=limits, file_system=disk)
    begun = [create_and_look(server, f"t-{number}") for number in range(60)]
    assert any(begun)
    (snapshot,) = names(disk, ".checkpoint")
    assert int(snapshot[:20]) > 100
    assert names(disk, ".log")[0] >= f"{snapshot[:20]}.log"
    assert names(disk, ".deleted") == []
    server.restart()
    assert len(server.broker.metadata.image.topics_by_name) == 60
    assert server.call(lambda: server.broker.metadata.repairs) == []


def test_deleted_files_wait_before_they_are_unlinked(make_server):
    disk = MemoryFileSystem(recording=False)
    limits = {"metadata.max.retention.bytes": "0", "metadata.log.max.snapshot.interval.ms": "3600000"}
    server = make_server(log_dirs=["/data"], config=limits, file_system=disk)
    snapshots = server.broker.metadata_snapshots
    server.clock.advance(HOUR_MS)
    server.await_(snapshots.work)
    assert any(name.endswith(".checkpoint.deleted") for name in names(disk, ".deleted"))
    assert any(name.endswith(".log.deleted") for name in names(disk, ".deleted"))
    server.await_(server.broker.trash.remove_due)
    assert names(disk, ".deleted") != []
    server.clock.advance(60_001)
    server.await_(server.broker.trash.remove_due)
    assert names(disk, ".deleted") == []


def test_a_snapshot_is_written_after_an_hour_if_anything_changed(make_server):
    disk = MemoryFileSystem(recording=False)
    server = make_server(log_dirs=["/data"], file_system=disk)
    make_more_topics(server, 3)
    assert len(names(disk, ".checkpoint")) == 1
    server.clock.advance(HOUR_MS)
    assert create_and_look(server, "later")  # the change looks at the clock
    assert len(names(disk, ".checkpoint")) == 2
    server.clock.advance(HOUR_MS)
    server.await_(server.broker.metadata_snapshots.work)
    assert len(names(disk, ".checkpoint")) == 2  # nothing has changed since


def test_requests_are_answered_while_a_snapshot_is_encoded(make_server, monkeypatch):
    """With slices of no time, the loop turns once for each batch of a hundred records; none is longer."""
    monkeypatch.setattr(metadata_snapshots, "SLICE_SECONDS", 0.0)
    disk = MemoryFileSystem(recording=False)
    server = make_server(log_dirs=["/data"], file_system=disk)
    server.create_topic("many", 1_000)
    server.clock.advance(HOUR_MS)
    turns = 0

    async def work():
        nonlocal turns
        working = asyncio.ensure_future(server.broker.metadata_snapshots.work())
        while not working.done():
            turns += 1
            await asyncio.sleep(0)
        await working

    server.await_(work)
    assert turns >= 10
    assert len(names(disk, ".checkpoint")) == 2


def test_a_full_disk_is_told_once_and_tried_again_later(make_server, caplog):
    disk = MemoryFileSystem(recording=False)
    server = make_server(log_dirs=["/data"], file_system=disk)
    snapshots = server.broker.metadata_snapshots
    make_more_topics(server, 3)
    before = names(disk, ".checkpoint")
    attempts = []

    def full(doing, path):
        if doing == "create" and path.endswith(".part"):
            attempts.append(path)
            return errno.ENOSPC
        return None

    disk.fail_with = full
    server.call(snapshots._timer.cancel)  # moving the clock would begin a look of the server's own beside those below
    server.clock.advance(HOUR_MS)
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            server.await_(snapshots.work)
        assert caplog.text.count("No snapshot of the metadata could be written") == 1
        assert names(disk, ".checkpoint") == before
        assert names(disk, ".part") == []
        # A change does not try it at once: a disk that is full would be asked with every request.
        assert not create_and_look(server, "meanwhile")
        assert len(attempts) == 3
        disk.fail_with = None
        server.clock.advance(60_001)
        assert create_and_look(server, "later")
        assert len(names(disk, ".checkpoint")) == 2
        assert "The metadata log is looked after again" in caplog.text
    server.restart()
    assert len(server.broker.metadata.image.topics_by_name) == 5


def test_a_stop_gives_up_the_snapshot_that_is_being_written(make_server, monkeypatch):
    monkeypatch.setattr(metadata_snapshots, "SLICE_SECONDS", 0.0)
    disk = MemoryFileSystem(recording=False)
    server = make_server(log_dirs=["/data"], file_system=disk)
    server.create_topic("many", 300)
    server.clock.advance(HOUR_MS)

    async def begin_and_close():
        working = asyncio.ensure_future(server.broker.metadata_snapshots.work())
        await asyncio.sleep(0)
        await server.broker.metadata_snapshots.close()
        await working

    server.await_(begin_and_close)
    assert names(disk, ".part") == []
    assert len(names(disk, ".checkpoint")) == 1
    server.restart()
    assert len(server.broker.metadata.image.topics_by_name["many"].partitions) == 300
