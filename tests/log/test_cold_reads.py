"""Data outside of the page cache: files report it, lookups stop before it, ranges know what to read ahead.

The server reads ahead in threads: tests/server/test_cold_reads.py.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

from moldau.benchmarks.page_cache import evict_all
from moldau.log import descriptors, files
from moldau.log.descriptors import ColdRead, DescriptorCache, FileRange, OpenFile
from moldau.log.files import File, FileSystem, RealFileSystem
from moldau.log.memory_files import MemoryFileSystem
from moldau.log.producer_state import EndTransactionMarker
from moldau.log.verification import DISABLED

Disk = tuple[FileSystem, str]
PAGE = 4096
SAMPLE = files.SAMPLE_BYTES


def evict(file_system: FileSystem, path: str, but_first: int = 0) -> None:
    """Make a file cold, but for its first bytes; the test is skipped where that cannot be done."""
    if isinstance(file_system, MemoryFileSystem):
        file_system.evict(path, but_first)
        return
    reason = why_not_evicted(os.path.dirname(path))
    if reason:
        pytest.skip(reason)
    if not evict_all([Path(path)]):
        pytest.skip("the kernel does not evict the file")
    if but_first:
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)  # no more than is requested
        os.pread(fd, but_first, 0)
        os.close(fd)


@cache
def why_not_evicted(directory: str) -> str:
    """Each attempt uses another file, because a check of cold data soon makes it warm."""
    if not hasattr(os, "posix_fadvise") or not hasattr(os, "RWF_NOWAIT"):
        return "this system neither evicts cached pages nor reports which pages are cached"
    with tempfile.NamedTemporaryFile(dir=directory) as temporary:
        temporary.write(bytes(PAGE))
        temporary.flush()
        for _ in range(5):
            if not evict_all([Path(temporary.name)]):
                return "the file system of the temporary directory does not drop cached pages"
            try:
                os.preadv(temporary.fileno(), (bytearray(1),), 0, os.RWF_NOWAIT)
            except BlockingIOError:
                continue
            except OSError as error:
                return f"the file system of the temporary directory does not report what is cached ({error.strerror})"
            return "the device of the temporary directory reads faster than a test can wait"
    return ""


Test = TypeVar("Test", bound=Callable[..., None])


def again_if_the_device_was_quicker(test: Test) -> Test:
    """The check starts a read, and a fast device may complete it before the check returns. So a test with a real device
    is retried; it makes its files cold itself. The file system in memory is exact."""

    @wraps(test)
    def tried(**fixtures: Any) -> None:
        file_system = fixtures["cold"].file_system if "cold" in fixtures else fixtures["disk"][0]
        for _ in range(0 if isinstance(file_system, MemoryFileSystem) else 19):
            with suppress(AssertionError, pytest.fail.Exception):
                return test(**fixtures)
        return test(**fixtures)

    return cast(Test, tried)


@pytest.fixture
def content() -> bytes:
    return os.urandom(8 * PAGE) * 64  # 2 MB


@pytest.fixture
def file(disk: Disk, content: bytes) -> Iterator[File]:
    file_system, root = disk
    file_system.replace_file(f"{root}/file", content, sync=False)
    file = file_system.open(f"{root}/file")
    yield file
    file.close()


def fill(file: File, position: int, length: int) -> bytes:
    buffer = bytearray(length)
    return bytes(buffer[: file.read_cached(position, buffer)])


def test_written_data_is_cached(file: File, content: bytes) -> None:
    assert file.cached(0, len(content)) == len(content)
    assert file.cached(5, 1) == 1
    assert fill(file, 3, 100_000) == content[3:100_003]
    assert fill(file, len(content) - 10, 100) == content[-10:]
    assert fill(file, len(content), 100) == b""


@again_if_the_device_was_quicker
def test_a_cold_read_is_reported_instead_of_waiting_until_it_is_read_ahead(
    disk: Disk, file: File, content: bytes
) -> None:
    file_system, root = disk
    evict(file_system, f"{root}/file")
    assert file.cached(0, len(content)) == 0
    assert fill(file, len(content) // 2, 100) == b""
    file.read_ahead(0, len(content))
    assert file.cached(0, len(content)) == len(content)
    assert fill(file, 0, len(content)) == content
    if isinstance(file_system, MemoryFileSystem):
        assert not file_system.waits


@again_if_the_device_was_quicker
def test_only_the_warm_beginning_is_cached(disk: Disk, file: File, content: bytes) -> None:
    file_system, root = disk
    evict(file_system, f"{root}/file", but_first=SAMPLE)
    assert fill(file, SAMPLE - 10, 20) == content[SAMPLE - 10 : SAMPLE]
    assert file.cached(PAGE, SAMPLE - PAGE) == SAMPLE - PAGE
    assert file.cached(0, len(content)) == SAMPLE
    assert file.cached(2 * SAMPLE, SAMPLE) == 0


def test_reading_ahead_ends_with_the_file(disk: Disk, file: File, content: bytes) -> None:
    file_system, root = disk
    file.read_ahead(len(content) - 10, 10 * len(content))
    file.read_ahead(2 * len(content), 100)
    evict(file_system, f"{root}/file")
    file.read_ahead(len(content) - 10, 10 * len(content))
    assert fill(file, len(content) - 10, 10) == content[-10:]


def test_reading_of_a_closed_file_fails(disk: Disk) -> None:
    file_system, root = disk
    file = file_system.open(f"{root}/file", create=True)
    file.close()
    for operation in (file.cached, file.read_ahead):
        with pytest.raises(OSError, match="Bad file descriptor"):
            operation(0, 10)
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.read_cached(0, bytearray(10))


# The real file system, if it cannot report cached ranges


@pytest.fixture
def silent_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[File]:
    """A file of 6 MB on a file system that knows no RWF_NOWAIT."""
    preadv = os.preadv

    def refuse(fd: int, buffers: list[bytearray], position: int, flags: int = 0) -> int:
        if flags:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        return preadv(fd, buffers, position)

    monkeypatch.setattr(os, "preadv", refuse)
    monkeypatch.setattr(files, "_is_in_memory", lambda _fd: False)
    path = tmp_path / "file"
    path.write_bytes(b"0123456789abcdef" * (6 << 16))
    file = RealFileSystem().open(str(path))
    yield file
    file.close()


@pytest.mark.parametrize("system_has_it", [True, False])
def test_a_file_system_that_cannot_report_what_is_cached(
    silent_file: File, monkeypatch: pytest.MonkeyPatch, system_has_it: bool, tmp_path: Path
) -> None:
    """Only the end of the file, which was written lately, counts as cached; small reads just read."""
    if not system_has_it:
        monkeypatch.setattr(files, "_NOWAIT", 0)
        silent_file = RealFileSystem().open(str(tmp_path / "file"))
    for _ in range(2):
        assert silent_file.cached(1 << 20, 1 << 20) == 0
        assert silent_file.cached(3 << 20, 1 << 20) == 1 << 20
        assert fill(silent_file, 16, 20) == b"0123456789abcdef0123"


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_reading_ahead_on_every_system(silent_file: File, monkeypatch: pytest.MonkeyPatch, platform: str) -> None:
    """The only visible effect is that it returns. On Linux no bytes are copied; elsewhere, into a buffer that is
    discarded."""
    monkeypatch.setattr("sys.platform", platform)
    for position, length in ((0, 6 << 20), (1, 100_000), (5 << 20, 8 << 20), (0, 0)):
        silent_file.read_ahead(position, length)


def test_a_file_system_in_memory_is_always_cached() -> None:
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("there is no /dev/shm")
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as temporary:
        temporary.truncate(20 << 20)
        file = RealFileSystem().open(temporary.name)
        assert file.cached(0, 20 << 20) == 20 << 20
        assert fill(file, 0, 10) == bytes(10)
        file.close()


def test_other_errors_are_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> int:
        raise OSError(errno.EIO, "the disk is broken")

    (tmp_path / "file").write_bytes(b"content")
    file = RealFileSystem().open(str(tmp_path / "file"))
    monkeypatch.setattr(os, "preadv", broken)
    monkeypatch.setattr(os, "sendfile", broken)
    for operation in (file.cached, file.read_ahead):
        with pytest.raises(OSError, match="broken"):
            operation(0, 5)
    with pytest.raises(OSError, match="broken"):
        file.read_cached(0, bytearray(5))
    file.close()


# Finding batches


@pytest.fixture
def cold(partition: Any, batch: Callable[..., bytes]) -> Any:
    """A partition with an index of three pages, reopened, and with all of its files cold."""
    partition.configure(index_interval_bytes=0)
    for _ in range(1300):
        partition.append(batch(b"x" * 10))
    partition.reopen()
    make_cold(partition)
    return partition


def make_cold(partition: Any) -> None:
    for name in partition.names():
        if name.endswith((".log", ".index")):
            evict(partition.file_system, partition.path(name))


@again_if_the_device_was_quicker
def test_finding_batches_does_not_wait(cold: Any) -> None:
    """One round for the index, whatever its size, one for the headers."""
    make_cold(cold)
    names = []
    while True:
        try:
            found = cold.log.read(700, 1, max_offset=1300, min_one_batch=True, wait=False)
            break
        except ColdRead as read:
            names.append(path_of(read.range).rpartition(".")[2])
            read.range.read_ahead()
            read.range.release()
    assert names == ["index", "log"]
    with found.records as records:
        assert int.from_bytes(records.read(0, 8), "big") == 700
    if isinstance(cold.file_system, MemoryFileSystem):
        assert not cold.file_system.waits


def test_finding_aborted_transactions_does_not_wait(
    memory_partition: Any, producer_batch: Callable[..., bytes]
) -> None:
    """One more round than finding the batches: they are in an index of their own."""
    partition = memory_partition
    for sequence in range(200):
        partition.append(producer_batch(sequence, transactional=True), verification=DISABLED)
        marker = EndTransactionMarker(False, 0)
        partition.log.append_marker(7, 0, marker, transaction_version=1, now_ms=partition.now_ms, leader_epoch=1)
    partition.reopen()
    for name in partition.names():
        partition.file_system.evict(partition.path(name))
    names = []
    while True:
        try:
            found = partition.log.read(90, 500, max_offset=400, min_one_batch=True, wait=False, committed=True)
            break
        except ColdRead as read:
            names.append(path_of(read.range).rpartition(".")[2])
            read.range.read_ahead()
            read.range.release()
    assert names == ["index", "log", "txnindex"]
    assert not partition.file_system.waits
    assert found.aborted_transactions[:3] == [(7, 90, 91, 92), (7, 92, 93, 94), (7, 94, 95, 96)]
    found.records.release()


def test_finding_batches_waits_where_it_may(cold: Any) -> None:
    assert int.from_bytes(cold.fetch(700, 1)[:8], "big") == 700
    if isinstance(cold.file_system, MemoryFileSystem):
        assert cold.file_system.waits


@again_if_the_device_was_quicker
def test_a_cold_read_holds_the_file(cold: Any) -> None:
    make_cold(cold)
    with pytest.raises(ColdRead) as caught:
        cold.log.read(700, 1, max_offset=1300, min_one_batch=True, wait=False)
    cold.files.close()
    caught.value.range.read_ahead()
    caught.value.range.release()


def test_the_end_of_the_log_is_found_in_memory(memory_partition: Any, batch: Callable[..., bytes]) -> None:
    memory_partition.append_values(b"a", b"b")
    for name in memory_partition.names():
        memory_partition.file_system.evict(memory_partition.path(name))
    found = memory_partition.log.read(1, 100, max_offset=2, min_one_batch=True, wait=False)
    assert found.records.cached(0, 1) == 0  # only the records themselves are cold
    found.records.release()


# Read-ahead


def path_of(file_range: FileRange) -> str:
    owner = file_range._open_file.owner if file_range._open_file else None
    assert owner is not None
    return owner.path


class Owner:
    def __init__(self, path: str) -> None:
        self.path = path
        self.open_file: OpenFile | None = None


@pytest.fixture
def range_of() -> Callable[[int, int], FileRange]:
    """Ranges of a cold file of 100 pages."""
    file_system = MemoryFileSystem()
    file_system.make_directory("/d")
    file_system.replace_file("/d/file", bytes(100 * PAGE), sync=False)
    file_system.evict("/d/file")
    open_file = DescriptorCache(file_system).open(Owner("/d/file"))
    return lambda page, count: FileRange(open_file, page * PAGE, count * PAGE)


def pages(file_range: FileRange | None) -> tuple[int, int] | None:
    return None if file_range is None else (file_range.position // PAGE, file_range.length // PAGE)


def read(file_range: FileRange) -> FileRange:
    """The work of a thread with a range, and of the loop afterwards."""
    file_range.was_read_ahead(was_cold=file_range.read_ahead())
    return file_range


def test_no_data_is_read_ahead_for_a_reader_that_never_waited(range_of: Callable[[int, int], FileRange]) -> None:
    assert range_of(0, 10).ahead(10 * PAGE, 20 * PAGE) is None
    range_of(0, 100).read_ahead()
    read(range_of(0, 10))  # it was warm
    assert range_of(0, 10).ahead(10 * PAGE, 20 * PAGE) is None


def test_a_reader_does_not_overtake_the_read_ahead(range_of: Callable[[int, int], FileRange]) -> None:
    first = read(range_of(0, 10))
    assert pages(first.ahead(5 * PAGE, 20 * PAGE)) == (10, 15)  # to page 25, beyond the range
    assert first.ahead(10 * PAGE, 20 * PAGE) is None  # fifteen pages ahead are enough
    second = range_of(10, 10)
    assert pages(second.ahead(6 * PAGE, 20 * PAGE)) == (25, 11)  # from where it was to page 16 + 20
    assert second.ahead(9 * PAGE, 20 * PAGE) is None
    assert pages(range_of(60, 10).ahead(10 * PAGE, 20 * PAGE)) == (70, 20)  # another reader, or a faster one
    assert range_of(0, 5).ahead(0, 20 * PAGE) is None  # a later reader finds it in memory


def test_bytes_after_cold_bytes_are_read_by_a_thread_before_they_count_as_cached(
    range_of: Callable[[int, int], FileRange], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptors, "_COLD_BEHIND_BYTES", 20 * PAGE)
    read(range_of(10, 10))
    range_of(20, 80).read_ahead()  # the kernel did it
    assert range_of(10, 10).cached(0, 10 * PAGE) == 10 * PAGE
    assert range_of(20, 10).cached(0, 10 * PAGE) == 0
    assert range_of(0, 30).cached(25 * PAGE, 10 * PAGE) == 0
    read(range_of(20, 10))
    assert range_of(20, 10).cached(0, 10 * PAGE) == 10 * PAGE
    assert range_of(30, 10).cached(0, 10 * PAGE) == 0
    read(range_of(30, 12))  # all that followed turned out to be in memory
    assert range_of(50, 10).cached(0, 10 * PAGE) == 10 * PAGE


def test_a_part_is_a_separate_reference(range_of: Callable[[int, int], FileRange]) -> None:
    whole = range_of(10, 10)
    part = whole.part(8 * PAGE, 5 * PAGE)
    whole.release()
    assert pages(part) == (18, 2)
    part.read_ahead()
    assert part.cached(PAGE, 10 * PAGE) == PAGE
    buffer = bytearray(PAGE)
    assert part.read_cached(buffer, PAGE) == PAGE
    part.release()
