"""Open files: the cache keeps few, and ranges keep the files that they need."""

from __future__ import annotations

import errno
import gc
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from moldau.log.descriptors import DescriptorCache, FileRange, OpenFile
from moldau.log.files import FileSystem, RealFileSystem
from moldau.log.memory_files import MemoryFileSystem


class Owner:
    def __init__(self, path: str) -> None:
        self.path = path
        self.open_file: OpenFile | None = None


def owners(file_system: FileSystem, root: str, count: int) -> list[Owner]:
    for number in range(count):
        file_system.replace_file(f"{root}/{number}", b"content %d" % number, sync=False)
    return [Owner(f"{root}/{number}") for number in range(count)]


@pytest.fixture
def file_system() -> MemoryFileSystem:
    file_system = MemoryFileSystem()
    file_system.make_directory("/d")
    return file_system


def test_no_more_than_the_limit_stay_open(file_system: MemoryFileSystem) -> None:
    files = owners(file_system, "/d", 20)
    cache = DescriptorCache(file_system, 5)
    for _ in range(3):
        for owner in files:
            assert cache.open(owner).file.read_at(0, 7) == b"content"
            assert file_system.open_files <= 5
    assert sum(owner.open_file is not None for owner in files) == len(cache) == 5


def test_files_in_use_are_kept_and_idle_ones_closed(file_system: MemoryFileSystem) -> None:
    busy, *idle = owners(file_system, "/d", 40)
    cache = DescriptorCache(file_system, 4)
    first = cache.open(busy)
    for owner in idle:
        cache.open(owner)
        first.used = True  # as every append and every range does
        assert busy.open_file is first


def test_a_range_keeps_its_file_open_after_eviction(file_system: MemoryFileSystem) -> None:
    files = owners(file_system, "/d", 10)
    cache = DescriptorCache(file_system, 2)
    range_ = FileRange(cache.open(files[0]), 8, 1)
    for owner in files[1:]:
        cache.open(owner)
    assert files[0].open_file is None
    assert file_system.open_files == 3
    assert range_.read() == b"0"
    range_.release()
    assert file_system.open_files == 2
    with pytest.raises(ValueError, match="released"):
        range_.read()


def test_releasing_twice_is_harmless(file_system: MemoryFileSystem) -> None:
    (owner,) = owners(file_system, "/d", 1)
    cache = DescriptorCache(file_system)
    ranges = [FileRange(cache.open(owner), 0, 4) for _ in range(3)]
    cache.forget(owner)
    for range_ in ranges:
        assert file_system.open_files == 1
        range_.release()
        range_.release()
    assert file_system.open_files == 0


def test_a_range_reads_parts_of_itself_only(file_system: MemoryFileSystem) -> None:
    (owner,) = owners(file_system, "/d", 1)
    with FileRange(DescriptorCache(file_system).open(owner), 2, 5) as range_:
        assert len(range_) == 5
        assert range_.fd == -1
        assert range_.read() == b"ntent"
        assert range_.read(1, 2) == b"te"
        assert range_.read(3, 100) == b"nt"
        assert range_.read(9) == b""


def test_a_deleted_file_is_sent_completely(tmp_path: Path) -> None:
    file_system = RealFileSystem()
    (owner,) = owners(file_system, str(tmp_path), 1)
    cache = DescriptorCache(file_system)
    range_ = FileRange(cache.open(owner), 0, 9)
    cache.forget(owner)
    file_system.unlink(owner.path)
    reader, writer = os.pipe()
    assert os.sendfile(writer, range_.fd, range_.position, range_.length) == 9
    assert os.read(reader, 100) == b"content 0"
    os.close(reader)
    os.close(writer)
    fd = range_.fd
    range_.release()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_when_descriptors_run_out_idle_files_are_closed(file_system: MemoryFileSystem) -> None:
    files = owners(file_system, "/d", 6)
    cache = DescriptorCache(file_system, 100)
    allowed = 3
    file_system.fail_with = lambda operation, _path: (
        errno.EMFILE if operation == "open" and file_system.open_files >= allowed else None
    )
    for owner in files:
        cache.open(owner)
    assert len(cache) == 3
    for owner in files:
        cache.forget(owner)
    allowed = 0
    with pytest.raises(OSError, match="Too many open files"):
        cache.open(files[0])


def test_closing_the_cache_closes_all_files_without_ranges(file_system: MemoryFileSystem) -> None:
    files = owners(file_system, "/d", 3)
    cache = DescriptorCache(file_system)
    for owner in files:
        cache.open(owner)
    range_ = FileRange(cache.open(files[1]), 0, 3)
    cache.close()
    assert file_system.open_files == 1
    range_.release()
    assert file_system.open_files == 0


def test_forgetting_a_file_that_is_not_open_does_nothing(file_system: MemoryFileSystem) -> None:
    (owner,) = owners(file_system, "/d", 1)
    DescriptorCache(file_system).forget(owner)


def test_no_descriptor_leaks_from_a_partitions_life(tmp_path: Path, batch: Callable[..., bytes]) -> None:
    from moldau.log.config import LogConfig
    from moldau.log.partition_loading import load_log

    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0

    gc.collect()
    before = descriptors()
    cache = DescriptorCache(RealFileSystem())
    config = LogConfig(segment_bytes=2_000, index_interval_bytes=0)
    log = load_log(cache, str(tmp_path), "t", 0, config, clean=True, now_ms=0)
    for _ in range(100):
        log.append(batch(b"x" * 100, timestamp=0), now_ms=0, leader_epoch=0)
    for offset in range(100):
        found = log.read(offset, 1000, max_offset=100, min_one_batch=True).records
        assert found is not None
        found.release()
    log.offset_for_timestamp(0)
    log.truncate_to(50, 0)
    log.delete_records_before(20)
    log.close(0)
    assert len(cache) == 0
    assert descriptors() == before
