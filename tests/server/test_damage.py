"""Startup with damaged directories: the affected partition is offline and its files are unchanged, the log names the
reason, and all other partitions are served."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from moldau.log.memory_files import MemoryFileSystem
from moldau.protocol.errors import ErrorCode
from moldau.testing.builders import batch, fetch, produce, values

from .conftest import MakeServer, RunningServer


@pytest.fixture
def stopped(server: RunningServer) -> Any:
    """A stopped server with a topic of three partitions, each with one record."""
    server.create_topic("t", partitions=3)
    with server.wire() as wire:
        for partition in range(3):
            assert produce(wire, "t", batch(b"%d" % partition), partition=partition).error_code == 0
    server.stop()
    return server


def partition(server: RunningServer, index: int = 1) -> Any:
    return Path(server.log_dirs[0]) / f"t-{index}"


def check_offline(server: RunningServer, offline: int = 1) -> None:
    """Check that one partition is offline and that the others are served."""
    with server.wire() as wire:
        for index in range(3):
            answer = fetch(wire, "t", partition=index)
            refused = produce(wire, "t", batch(b"more"), partition=index).error_code
            if index == offline:
                assert answer.error_code == refused == ErrorCode.KAFKA_STORAGE_ERROR
            else:
                assert values(answer) == [b"%d" % index]
                assert refused == 0


def test_a_partition_with_an_unreadable_topic_id_is_offline(stopped: Any, caplog: pytest.LogCaptureFixture) -> None:
    path = partition(stopped) / "partition.metadata"
    path.write_bytes(b"version: 0\ntopic_id: no id")
    stopped.start()
    check_offline(stopped)
    assert "partition.metadata has no topic id" in caplog.text
    assert "check them with `moldau log verify`" in caplog.text
    assert path.read_bytes() == b"version: 0\ntopic_id: no id"


def test_a_partition_on_a_disk_that_is_not_mounted_is_offline(
    stopped: Any, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    folder = partition(stopped)
    folder.rename(tmp_path / "disk")
    folder.symlink_to(tmp_path / "disk")
    (tmp_path / "disk").rename(tmp_path / "somewhere else")
    stopped.start()
    check_offline(stopped)
    assert (
        f"it is a symbolic link to {tmp_path}/disk, which does not exist; check that the disk is mounted" in caplog.text
    )

    stopped.stop()
    (tmp_path / "somewhere else").rename(tmp_path / "disk")
    caplog.clear()
    stopped.start()
    assert f"{folder} to {tmp_path}/disk" in caplog.text
    with stopped.wire() as wire:
        assert values(fetch(wire, "t", partition=1)) == [b"1"]


def test_a_file_in_place_of_a_partition_directory_makes_it_offline(
    stopped: Any, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    partition(stopped).rename(tmp_path / "away")
    partition(stopped).write_bytes(b"")
    stopped.start()
    check_offline(stopped)
    assert "it is a file, but a partition's directory is expected here" in caplog.text


def test_partitions_of_a_broken_disk_are_not_recreated_on_another(make_server: MakeServer) -> None:
    disk = MemoryFileSystem()
    server = make_server(log_dirs=["/a", "/b"], file_system=disk)
    server.create_topic("t", partitions=2)
    manager = server.broker.log_manager
    there = next(index for index in range(2) if manager.directory_of("t", index).path == "/b")  # type: ignore[union-attr]
    with server.wire() as wire:
        for index in range(2):
            assert produce(wire, "t", batch(b"x"), partition=index).error_code == 0
    server.stop()
    disk.fail_with = lambda operation, path: errno.EIO if path.startswith("/b/") else None
    server.start()
    with server.wire() as wire:
        assert fetch(wire, "t", partition=there).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert values(fetch(wire, "t", partition=1 - there)) == [b"x"]
    # A new topic is created on the other disk.
    server.create_topic("new", partitions=2)
    with server.wire() as wire:
        assert [produce(wire, "new", batch(b"y"), partition=index).error_code for index in range(2)] == [0, 0]
    server.stop()
    disk.fail_with = None
    server.start()
    with server.wire() as wire:
        assert values(fetch(wire, "t", partition=there)) == [b"x"]
