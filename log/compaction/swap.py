"""Replacing old segments by compacted ones, so that a crash at any moment leaves either the old or the new segments.

`compact` has written `.cleaned` files, which are complete and durable. The steps are in Apache Kafka's order:

1. `.cleaned` is renamed to `.swap`. A startup that finds both at one offset removes both, and keeps the old segments.
2. From here on the new segment is valid: a startup that finds only `.swap` removes the segments that it replaces, and
   removes the suffix from its name (`partition_loading.clear_leftovers`).
3. The old files are renamed to `.deleted`, so that no startup uses them. Ranges in flight keep their descriptors.
4. The suffix `.swap` is removed.

The log's next flush makes the names durable; a file system that loses the last of these changes leaves an earlier
state of the same order.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..descriptors import DescriptorCache
from ..files import FileSystem, join
from ..names import (
    CLEANED,
    SEGMENT_SUFFIXES,
    SWAP,
    TRANSACTION_INDEX,
    is_leftover,
    offset_file_name,
)
from ..segment import Segment
from ..segments import Segments
from .job import Replacement


def put_in_place(
    segments: Segments,
    number: int,
    replacement: Replacement,
    files: DescriptorCache,
    directory: str,
    *,
    max_index_bytes: int,
    now_ms: int,
) -> None:
    """Steps 2 to 4, for the segments from `number` on. After an `OSError` only a startup can complete the swap."""
    file_system = files.file_system
    old = [segments[index] for index in range(number, number + len(replacement.old_base_offsets))]
    names = _suffixes(file_system, directory, replacement.base_offset, SWAP)
    for segment in old:
        segments.trash += segment.mark_deleted()
    for suffix in names:
        path = join(directory, offset_file_name(replacement.base_offset, suffix))
        file_system.rename(path + SWAP, path)
    new = Segment(
        files,
        directory,
        replacement.base_offset,
        size=replacement.size,
        max_index_bytes=max_index_bytes,
        created_ms=now_ms,
        new=False,
    )
    if TRANSACTION_INDEX not in names:
        new.transaction_index.is_missing()
    segments.replace(number, len(old), new)


def begin_swap(file_system: FileSystem, directory: str, base_offset: int) -> None:
    """Step 1. After an `OSError` the log is unchanged, and the new files are removed."""
    path = join(directory, offset_file_name(base_offset, ""))
    try:
        for suffix in _suffixes(file_system, directory, base_offset, CLEANED):
            file_system.rename(path + suffix + CLEANED, path + suffix + SWAP)
    except OSError:
        _unlink(file_system, [path + suffix + kind for suffix in SEGMENT_SUFFIXES for kind in (SWAP, CLEANED)])
        raise


def discard(file_system: FileSystem, directory: str) -> None:
    """Remove the files of a pass that are not in place."""
    try:
        names, _directories = file_system.list_directory(directory)
    except FileNotFoundError:
        return
    _unlink(
        file_system,
        [join(directory, name) for name in names if name.endswith(CLEANED) and is_leftover(name)],
    )


def _suffixes(file_system: FileSystem, directory: str, base_offset: int, kind: str) -> list[str]:
    """The suffixes of the existing files of a segment; the `.log` comes first, and must be renamed first."""
    path = join(directory, offset_file_name(base_offset, ""))
    return [suffix for suffix in SEGMENT_SUFFIXES if file_system.exists(path + suffix + kind)]


def _unlink(file_system: FileSystem, paths: Sequence[str]) -> None:
    for path in paths:
        try:
            file_system.unlink(path)
        except FileNotFoundError:
            continue
