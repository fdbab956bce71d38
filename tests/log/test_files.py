"""The file system port: one suite for both implementations, then the tests of each."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from moldau.log.files import FileSystem, LockHeldError, RealFileSystem
from moldau.log.memory_files import MemoryFileSystem, SimulatedCrash

Disk = tuple[FileSystem, str]


def test_written_data_is_read_through_any_descriptor(disk: Disk) -> None:
    file_system, root = disk
    writer = file_system.open(f"{root}/file", create=True)
    writer.write_at((b"hello ", memoryview(b"-world-")[1:6]), 0, 11)
    reader = file_system.open(f"{root}/file")
    assert reader.read_at(0, 100) == b"hello world"
    assert reader.read_at(6, 3) == b"wor"
    assert reader.read_at(11, 5) == b""
    assert reader.read_at(50, 5) == b""
    assert (reader.size(), file_system.size(f"{root}/file")) == (11, 11)
    writer.write_at((b"W",), 6, 1)
    assert reader.read_at(0, 11) == b"hello World"
    reader.close()
    writer.close()


def test_writing_beyond_the_end_leaves_zeros(disk: Disk) -> None:
    file_system, root = disk
    file = file_system.open(f"{root}/file", create=True)
    file.write_at((b"x",), 3, 1)
    assert file.read_at(0, 10) == b"\0\0\0x"
    file.close()


def test_truncate_shortens_and_extends(disk: Disk) -> None:
    file_system, root = disk
    file = file_system.open(f"{root}/file", create=True)
    file.write_at((b"0123456789",), 0, 10)
    file.truncate(4)
    assert file.read_at(0, 10) == b"0123"
    file.truncate(6)
    assert file.read_at(0, 10) == b"0123\0\0"
    file.sync()
    file.close()


def test_opening_a_missing_file_fails_without_create(disk: Disk) -> None:
    file_system, root = disk
    with pytest.raises(FileNotFoundError):
        file_system.open(f"{root}/missing")
    with pytest.raises(FileNotFoundError):
        file_system.open(f"{root}/no/such/directory/file", create=True)
    file_system.open(f"{root}/made", create=True).close()
    assert file_system.read_file(f"{root}/made") == b""


def test_an_open_file_survives_unlinking_and_renaming(disk: Disk) -> None:
    file_system, root = disk
    file = file_system.open(f"{root}/a", create=True)
    file.write_at((b"content",), 0, 7)
    file_system.rename(f"{root}/a", f"{root}/b")
    assert file.read_at(0, 7) == b"content"
    file.write_at((b"C",), 0, 1)
    assert file_system.read_file(f"{root}/b") == b"Content"
    file_system.unlink(f"{root}/b")
    assert not file_system.exists(f"{root}/b")
    assert file.read_at(0, 7) == b"Content"
    file.write_at((b"still there",), 0, 11)
    assert file.read_at(0, 20) == b"still there"
    file.close()


def test_renaming_replaces_the_target(disk: Disk) -> None:
    file_system, root = disk
    file_system.replace_file(f"{root}/new", b"new", sync=False)
    file_system.replace_file(f"{root}/old", b"old", sync=False)
    old = file_system.open(f"{root}/old")
    file_system.rename(f"{root}/new", f"{root}/old")
    assert file_system.read_file(f"{root}/old") == b"new"
    assert old.read_at(0, 3) == b"old"
    assert not file_system.exists(f"{root}/new")
    old.close()


@pytest.mark.parametrize("sync", [True, False])
def test_replacing_a_file_leaves_no_temporary_file(disk: Disk, sync: bool) -> None:
    file_system, root = disk
    for content in (b"first, and longer", b"second"):
        file_system.replace_file(f"{root}/file", content, sync=sync)
        assert file_system.read_file(f"{root}/file") == content
    assert file_system.list_directory(root) == (["file"], [])


def test_directories_are_created_listed_renamed_and_removed(disk: Disk) -> None:
    file_system, root = disk
    file_system.make_directory(f"{root}/a/b")
    file_system.make_directory(f"{root}/a/b")
    file_system.replace_file(f"{root}/a/b/file", b"x", sync=False)
    file_system.replace_file(f"{root}/a/other", b"y", sync=False)
    assert file_system.list_directory(f"{root}/a") == (["other"], ["b"])
    file = file_system.open(f"{root}/a/b/file")
    file_system.rename(f"{root}/a", f"{root}/z")
    assert file_system.read_file(f"{root}/z/b/file") == b"x"
    assert file.read_at(0, 1) == b"x"
    file_system.sync_directory(f"{root}/z")
    for full in (f"{root}/z", f"{root}/z/b"):
        with pytest.raises(OSError) as refused:
            file_system.remove_directory(full)
        assert refused.value.errno == errno.ENOTEMPTY
    file_system.unlink(f"{root}/z/b/file")
    file_system.unlink(f"{root}/z/other")
    file_system.remove_directory(f"{root}/z/b")
    file_system.remove_directory(f"{root}/z")
    with pytest.raises(FileNotFoundError):
        file_system.remove_directory(f"{root}/z")
    assert file_system.list_directory(root) == ([], [])
    assert file.read_at(0, 1) == b"x"
    file.close()


@pytest.mark.parametrize(
    "operation",
    [
        lambda fs, path: fs.read_file(path),
        lambda fs, path: fs.size(path),
        lambda fs, path: fs.modified_ms(path),
        lambda fs, path: fs.set_modified_ms(path, 1),
        lambda fs, path: fs.unlink(path),
        lambda fs, path: fs.rename(path, path + "2"),
        lambda fs, path: fs.list_directory(path),
        lambda fs, path: fs.sync_directory(path),
    ],
)
def test_a_missing_file_is_file_not_found(disk: Disk, operation: Callable[[FileSystem, str], object]) -> None:
    file_system, root = disk
    with pytest.raises(FileNotFoundError):
        operation(file_system, f"{root}/missing")


def test_a_lock_is_exclusive_until_it_is_released(disk: Disk) -> None:
    file_system, root = disk
    lock = file_system.lock(f"{root}/.lock")
    with pytest.raises(LockHeldError):
        file_system.lock(f"{root}/.lock")
    lock.release()
    lock.release()
    file_system.lock(f"{root}/.lock").release()


def test_space_is_reported(disk: Disk) -> None:
    file_system, root = disk
    total, usable = file_system.space(root)
    assert total >= usable >= -1


def test_large_files_are_read_completely(disk: Disk) -> None:
    file_system, root = disk
    content = os.urandom(3 << 20)
    file_system.replace_file(f"{root}/large", content, sync=False)
    assert file_system.read_file(f"{root}/large") == content
    file = file_system.open(f"{root}/large")
    assert file.read_at(1, 3 << 20) == content[1:]
    file.close()


# The real one


def test_a_shared_lock_excludes_writers_and_creates_no_file(disk: Disk) -> None:
    file_system, root = disk
    with pytest.raises(FileNotFoundError):
        file_system.lock(f"{root}/.lock", shared=True)
    file_system.lock(f"{root}/.lock").release()
    lock = file_system.lock(f"{root}/.lock", shared=True)
    with pytest.raises(LockHeldError):
        file_system.lock(f"{root}/.lock")
    lock.release()
    lock = file_system.lock(f"{root}/.lock")
    with pytest.raises(LockHeldError):
        file_system.lock(f"{root}/.lock", shared=True)
    lock.release()


def test_a_file_opened_for_reading_cannot_be_written(disk: Disk) -> None:
    file_system, root = disk
    file_system.open(f"{root}/file", create=True).write_at((b"abc",), 0, 3)
    file = file_system.open(f"{root}/file", read_only=True)
    assert file.read_at(0, 10) == b"abc"
    with pytest.raises(OSError):
        file.write_at((b"x",), 0, 1)
    with pytest.raises(OSError):
        file.truncate(0)
    file.close()
    assert file_system.read_file(f"{root}/file") == b"abc"


def test_links_are_reported(tmp_path: Path) -> None:
    file_system = RealFileSystem()
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    (tmp_path / "broken").symlink_to("gone")
    targets = [file_system.link_target(f"{tmp_path}/{name}") for name in ("folder", "link", "broken", "missing")]
    assert targets == [None, "folder", "gone", None]
    files, directories = file_system.list_directory(str(tmp_path))
    assert (files, sorted(directories)) == (["broken"], ["folder", "link"])


def test_a_real_lock_excludes_another_process(tmp_path: Path) -> None:
    code = f"""
from moldau.log.files import RealFileSystem, LockHeldError
try:
    RealFileSystem().lock({str(tmp_path / ".lock")!r})
    print("taken")
except LockHeldError:
    print("held")
"""

    def other_process() -> str:
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()

    lock = RealFileSystem().lock(str(tmp_path / ".lock"))
    assert other_process() == "held"
    lock.release()
    assert other_process() == "taken"


def test_a_write_that_the_system_splits_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RealFileSystem().open(str(tmp_path / "file"), create=True)
    whole = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, buffers, at: whole(fd, [b"".join(buffers)[:5]], at))
    file.write_at((b"0123", b"456789"), 2, 10)
    assert file.read_at(0, 20) == b"\0\x000123456789"
    file.close()


def test_a_full_disk_is_reported_by_the_rest_of_a_split_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RealFileSystem().open(str(tmp_path / "file"), create=True)
    whole = os.pwritev

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwritev", lambda fd, buffers, at: whole(fd, [b"".join(buffers)[:5]], at))
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="No space"):
        file.write_at((b"0123", b"456789"), 0, 10)
    file.close()


def test_without_durability_nothing_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Any] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    monkeypatch.setattr(os, "fdatasync", synced.append, raising=False)
    for durable, expected in ((False, 0), (True, 3)):
        file_system = RealFileSystem(durable=durable)
        file_system.replace_file(str(tmp_path / "file"), b"x", sync=True)
        file = file_system.open(str(tmp_path / "file"))
        file.sync()
        file.close()
        assert len(synced) == expected


# In memory


def memory_file(content: bytes = b"", *, synced: bool) -> MemoryFileSystem:
    file_system = MemoryFileSystem()
    file_system.make_directory("/d")
    file = file_system.open("/d/file", create=True)
    file.write_at((content,), 0, len(content))
    if synced:
        file.sync()
    return file_system


def test_kill_loses_no_data_and_a_power_failure_no_synced_data() -> None:
    for seed in range(50):
        file_system = memory_file(b"synced", synced=True)
        file = file_system.open("/d/file")
        file.write_at((b"-unsynced",), 6, 9)
        assert file_system.crash().read_file("/d/file") == b"synced-unsynced"
        after = file_system.crash(random.Random(seed)).read_file("/d/file")
        assert after[:6] == b"synced"


def test_power_loss_tears_writes_in_every_way() -> None:
    outcomes = set()
    for seed in range(400):
        file_system = memory_file(b"", synced=True)
        file = file_system.open("/d/file")
        file.write_at((b"aaaa",), 0, 4)
        file.write_at((b"bbbb",), 4, 4)
        outcomes.add(file_system.crash(random.Random(seed)).read_file("/d/file"))
    assert {b"", b"aaaa", b"aaaabbbb", b"aaaabb", b"aa", b"\0\0\0\0bbbb"} <= outcomes


def test_names_that_were_not_synced_may_be_lost_in_order() -> None:
    outcomes = set()
    for seed in range(100):
        file_system = memory_file(b"x", synced=True)
        file_system.rename("/d/file", "/d/first")
        file_system.rename("/d/first", "/d/second")
        outcomes.add(tuple(file_system.crash(random.Random(seed)).list_directory("/d")[0]))
        file_system.sync_directory("/d")
        assert file_system.crash(random.Random(seed)).list_directory("/d")[0] == ["second"]
    assert outcomes == {("file",), ("first",), ("second",)}


def test_without_a_journal_only_a_sync_of_the_directory_makes_names_durable() -> None:
    file_system = MemoryFileSystem(journalled=False)
    file_system.make_directory("/d/e")

    def survivors() -> set[bool]:
        return {file_system.crash(random.Random(seed)).exists("/d/e/file") for seed in range(20)}

    file = file_system.open("/d/e/file", create=True)
    file.write_at((b"x",), 0, 1)
    file.sync()
    assert survivors() == {False, True}
    file_system.sync_directory("/d/e")
    assert survivors() == {False, True}, "the directories' own names are not kept"
    file_system.sync_directory("/d")
    file_system.sync_directory("")
    assert survivors() == {True}
    file_system.unlink("/d/e/file")
    file.sync()
    assert survivors() == {False, True}
    file_system.sync_directory("/d/e")
    assert survivors() == {False}


def test_a_full_disk_accepts_a_part_of_the_write() -> None:
    file_system = memory_file(b"12345", synced=True)
    file_system.capacity_bytes = 8
    file = file_system.open("/d/file")
    with pytest.raises(OSError, match="No space") as caught:
        file.write_at((b"6789",), 5, 4)
    assert caught.value.errno == errno.ENOSPC
    assert file.read_at(0, 10) == b"12345678"
    file.write_at((b"abc",), 0, 3)
    file_system.capacity_bytes = 9
    file.write_at((b"9",), 8, 1)


def test_failures_occur_where_the_test_sets_them() -> None:
    file_system = memory_file(b"x", synced=True)
    file_system.fail_with = lambda operation, path: errno.EIO if (operation, path) == ("sync", "/d/file") else None
    file = file_system.open("/d/file")
    file.write_at((b"y",), 0, 1)
    with pytest.raises(OSError) as caught:
        file.sync()
    assert caught.value.errno == errno.EIO


def test_the_process_dies_at_the_nth_change() -> None:
    file_system = memory_file(b"", synced=True)
    file_system.operations_left = 1
    file = file_system.open("/d/file")
    file.write_at((b"12",), 0, 2)
    assert file.read_at(0, 2) == b"12", "reading is no change"
    with pytest.raises(SimulatedCrash):
        file.write_at((b"3456",), 2, 4)
    assert file_system.crash().read_file("/d/file") == b"1234", "half of the last write was done"


def test_open_files_are_counted_and_closing_twice_is_an_error() -> None:
    file_system = memory_file(b"", synced=True)
    before = file_system.open_files
    file = file_system.open("/d/file")
    assert file_system.open_files == before + 1
    file.close()
    assert file_system.open_files == before
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.read_at(0, 1)


def test_without_recording_it_keeps_no_history() -> None:
    file_system = MemoryFileSystem(recording=False)
    file_system.make_directory("/d")
    file_system.replace_file("/d/file", b"x", sync=True)
    assert file_system.read_file("/d/file") == b"x"
    assert file_system.crash().read_file("/d/file") == b"x"
