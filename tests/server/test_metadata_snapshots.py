"""Snapshots of the metadata in a running server: by size and by time, concurrent with requests, and on a full disk."""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from moldau.log.memory_files import MemoryFileSystem
from moldau.server.upkeep import metadata_snapshots

from .conftest import MakeServer, RunningServer

HOUR_MS = 3_600_000
LOG = "/data/__cluster_metadata-0"


def names(disk: MemoryFileSystem, suffix: Any) -> list[Any]:
    return sorted(name for name in disk.list_directory(LOG)[0] if name.endswith(suffix))


def create_more_topics(server: RunningServer, count: int, prefix: str = "t") -> None:
    for number in range(count):
        server.create_topic(f"{prefix}-{number}")


def creation_starts_snapshot(server: RunningServer, name: str) -> bool:
    """Create a topic. Returns whether that started a snapshot; the snapshot is written on return."""

    snapshots = server.broker.metadata_snapshots
    begun = []

    def changed(delta: Any, image: Any) -> None:
        begun.append(not snapshots.is_idle)  # the listener of the snapshots is called first

    server.call(lambda: server.broker.metadata.subscribe(changed))
    server.create_topic(name)
    if any(begun):
        server.await_(snapshots.work)  # one at a time
        server.await_(server.broker.trash.remove_due)
    return any(begun)


def test_a_log_that_has_grown_is_truncated_while_the_server_runs(make_server: MakeServer) -> None:
    disk = MemoryFileSystem(recording=False)
    limits = {
        "metadata.log.max.record.bytes.between.snapshots": "3000",
        "metadata.max.retention.bytes": "0",
        "internal.metadata.delete.delay.millis": "0",
    }
    server = make_server(log_dirs=["/data"], config=limits, file_system=disk)
    begun = [creation_starts_snapshot(server, f"t-{number}") for number in range(60)]
    assert any(begun)
    (snapshot,) = names(disk, ".checkpoint")
    assert int(snapshot[:20]) > 100
    assert names(disk, ".log")[0] >= f"{snapshot[:20]}.log"
    assert names(disk, ".deleted") == []
    server.restart()
    assert len(server.broker.metadata.image.topics_by_name) == 60
    assert server.call(lambda: server.broker.metadata.repairs) == []


def test_deleted_files_are_unlinked_after_a_delay(make_server: MakeServer) -> None:
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


def test_a_snapshot_is_written_after_an_hour_if_anything_changed(make_server: MakeServer) -> None:
    disk = MemoryFileSystem(recording=False)
    server = make_server(log_dirs=["/data"], file_system=disk)
    create_more_topics(server, 3)
    assert len(names(disk, ".checkpoint")) == 1
    # Moving the clock would also start the server's periodic check.
    server.call(server.broker.metadata_snapshots._timer.cancel)
    server.clock.advance(HOUR_MS)
    assert creation_starts_snapshot(server, "later")  # the change checks the clock
    assert len(names(disk, ".checkpoint")) == 2
    server.clock.advance(HOUR_MS)
    server.await_(server.broker.metadata_snapshots.work)
    assert len(names(disk, ".checkpoint")) == 2  # nothing has changed since


def test_requests_are_served_while_a_snapshot_is_encoded(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With slices of zero length, the event loop runs an iteration for each batch of a hundred records, and no slice is
    longer."""
    monkeypatch.setattr(metadata_snapshots, "SLICE_SECONDS", 0.0)
    disk = MemoryFileSystem(recording=False)
    server = make_server(log_dirs=["/data"], file_system=disk)
    server.create_topic("many", 1_000)
    server.clock.advance(HOUR_MS)
    turns = 0

    async def work() -> None:
        nonlocal turns
        working = asyncio.ensure_future(server.broker.metadata_snapshots.work())
        while not working.done():
            turns += 1
            await asyncio.sleep(0)
        await working

    server.await_(work)
    assert turns >= 10
    assert len(names(disk, ".checkpoint")) == 2


def test_a_full_disk_is_logged_once_and_the_snapshot_is_retried_later(
    make_server: MakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    disk = MemoryFileSystem(recording=False)
    server = make_server(log_dirs=["/data"], file_system=disk)
    snapshots = server.broker.metadata_snapshots
    create_more_topics(server, 3)
    before = names(disk, ".checkpoint")
    attempts = []

    def full(doing: Any, path: str) -> Any:
        if doing == "create" and path.endswith(".part"):
            attempts.append(path)
            return errno.ENOSPC
        return None

    disk.fail_with = full
    server.call(snapshots._timer.cancel)  # or moving the clock starts the server's own check
    server.clock.advance(HOUR_MS)
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            server.await_(snapshots.work)
        assert caplog.text.count("Cannot write a metadata snapshot") == 1
        assert names(disk, ".checkpoint") == before
        assert names(disk, ".part") == []
        # A change does not retry immediately: otherwise every request would access the full disk.
        assert not creation_starts_snapshot(server, "meanwhile")
        assert len(attempts) == 3
        disk.fail_with = None
        server.clock.advance(60_001)
        assert creation_starts_snapshot(server, "later")
        assert len(names(disk, ".checkpoint")) == 2
        assert "Maintenance of the metadata log works again" in caplog.text
    server.restart()
    assert len(server.broker.metadata.image.topics_by_name) == 5


def test_a_shutdown_discards_the_snapshot_that_is_being_written(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_snapshots, "SLICE_SECONDS", 0.0)
    disk = MemoryFileSystem(recording=False)
    server = make_server(log_dirs=["/data"], file_system=disk)
    server.create_topic("many", 300)
    server.clock.advance(HOUR_MS)

    async def begin_and_close() -> None:
        working = asyncio.ensure_future(server.broker.metadata_snapshots.work())
        await asyncio.sleep(0)
        await server.broker.metadata_snapshots.close()
        await working

    server.await_(begin_and_close)
    assert names(disk, ".part") == []
    assert len(names(disk, ".checkpoint")) == 1
    server.restart()
    assert len(server.broker.metadata.image.topics_by_name["many"].partitions) == 300


def test_snapshots_are_written_while_changes_never_pause(make_server: MakeServer) -> None:
    """Some change of several clients is always waiting for a sync."""
    disk = MemoryFileSystem(recording=False)

    def slow_sync(operation: str, path: str) -> None:
        if operation == "sync" and "__cluster_metadata-0" in path:
            time.sleep(0.002)

    disk.fail_with = slow_sync
    limits = {"metadata.log.max.record.bytes.between.snapshots": "2000"}
    server = make_server(log_dirs=["/data"], config=limits, file_system=disk)

    def create_topics(client: Any) -> None:
        for number in range(100):
            server.create_topic(f"t-{client}-{number}")

    with ThreadPoolExecutor(3) as clients:
        list(clients.map(create_topics, range(3)))
    # 300 topics are more than 40,000 bytes of records.
    assert len(names(disk, ".checkpoint")) + len(names(disk, ".checkpoint.deleted")) > 8
