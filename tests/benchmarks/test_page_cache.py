"""The content of the page cache, as reported by `mincore`."""

import mmap
from pathlib import Path

from moldau.benchmarks.page_cache import cached_share, evict, sync


def test_written_pages_are_in_memory(tmp_path: Path) -> None:
    file = tmp_path / "written"
    file.write_bytes(bytes(10 * mmap.PAGESIZE + 1))
    sync([file])
    assert cached_share([file]) == 1.0


def test_untouched_pages_are_not_in_memory(tmp_path: Path) -> None:
    untouched, written = tmp_path / "untouched", tmp_path / "written"
    with untouched.open("wb") as file:
        file.truncate(3 * mmap.PAGESIZE)
    written.write_bytes(bytes(mmap.PAGESIZE))
    assert cached_share([untouched]) == 0.0
    assert cached_share([untouched, written]) == 0.25


def test_no_pages_at_all(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    assert cached_share([empty]) == 0.0
    assert cached_share([]) == 0.0


def test_evicting_keeps_the_content(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"moldau" * mmap.PAGESIZE)
    evict([file])
    assert file.read_bytes() == b"moldau" * mmap.PAGESIZE
