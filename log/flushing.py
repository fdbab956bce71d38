"""Flushing a log, in three steps: determining what must be synced, syncing it, and recording the result.

The second step, `Flush.run`, takes nearly all of the time and accesses only open files: it may run in a thread while
the log is in use.

Of sealed segments all files are synced, of the active one only the `.log`: its indexes are rebuilt after an unclean
shutdown. They are synced by the flush after the segment was sealed, or by the flush that closes the log.

One partition takes about eight syncs. Most of their time is spent in the journal, which commits concurrent syncs
together, so several threads of the server flush many logs at a time (`RunFlushes`).

Steps that need disk space or a descriptor come first: if one of them fails, no sync has failed, and the flush can be
retried later.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from posixpath import dirname

from .descriptors import DescriptorCache, OpenFile
from .files import NO_DESCRIPTOR_ERRNOS, TRANSIENT_ERRNOS, File, FileSystem
from .names import TEMPORARY
from .segment import Segment
from .segments import Segments


class FlushPostponedError(Exception):
    """A flush is not possible now, for example because the disk is full. What is durable is known as before."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error.strerror or str(error))


class Flush:
    """Files to be synced, held open."""

    __slots__ = ("_directories", "_file_system", "_open_files", "_paths", "_replacements", "cuts", "offset")

    def __init__(self, file_system: FileSystem, offset: int, cuts: int) -> None:
        self._file_system = file_system
        self.cuts = cuts
        """The value of `Log.cuts` at the beginning of the flush."""
        self.offset = offset
        """Everything before this offset is durable when the flush has run."""
        self._open_files: list[OpenFile] = []
        self._paths: list[str] = []
        self._replacements: list[tuple[str, bytes]] = []
        self._directories: list[str] = []

    def add_segments(self, files: DescriptorCache, segments: Segments, flushed_offset: int) -> None:
        """The files with records from `flushed_offset` up to the flush's offset."""
        # A segment that ends exactly at the flushed offset was synced while it was active: without its indexes.
        for number in range(max(segments.number_of(flushed_offset) - 1, 0), len(segments)):
            segment, end = segments[number], segments.end_of(number)
            if segment.base_offset >= self.offset or (end is not None and end < flushed_offset) or not segment.on_disk:
                continue
            self._hold(files.open(segment))
            if end is not None:
                self.add_indexes(segment)

    def add_file(self, files: DescriptorCache, segment: Segment) -> None:
        """The file of a segment, whatever offsets are in it."""
        self._hold(files.open(segment))

    def add_indexes(self, segment: Segment) -> None:
        """The indexes of a segment that receives no more batches."""
        self._hold(segment.offset_index.opened())
        self._hold(segment.time_index.opened())
        self._paths.append(segment.transaction_index.path)

    def add_paths(self, paths: Iterable[str]) -> None:
        """Small files, opened when the flush runs; those that are missing by then are skipped."""
        self._paths += paths

    def add_replacement(self, path: str, data: bytes) -> None:
        """A small file to be replaced when the flush runs. Renaming it before its content is synced could lose the old
        content in a power failure.
        """
        self._replacements.append((path, data))

    def add_directory(self, directory: str) -> None:
        """Names in it have changed."""
        self._directories.append(directory)

    @property
    def paths(self) -> Sequence[str]:
        """The small files that are to be synced."""
        return self._paths

    @property
    def replaces_files(self) -> bool:
        """Whether there are small files to be replaced."""
        return bool(self._replacements)

    @property
    def directories(self) -> Sequence[str]:
        """The directories in which names have changed."""
        return self._directories

    def _hold(self, open_file: OpenFile) -> None:
        open_file.references += 1
        self._open_files.append(open_file)

    def run(self) -> None:
        """Write the small files, then sync.

        After an `OSError` it is unknown what is durable. `FlushPostponedError`: there is no space for the small files,
        or no descriptor, and no sync has failed. Pass either to `Log.flush_failed`.
        """
        opened: list[File] = []
        temporaries: list[tuple[str, str]] = []
        try:
            try:
                self._open_paths(opened)
                self._write_replacements(opened, temporaries)
            except OSError as error:
                if error.errno not in TRANSIENT_ERRNOS:
                    raise
                for temporary, _path in temporaries:
                    with contextlib.suppress(OSError):
                        self._file_system.unlink(temporary)
                raise FlushPostponedError(error) from error
            for open_file in self._open_files:
                open_file.file.sync()
            for file in opened:
                file.sync()
        finally:
            for file in opened:
                file.close()
        try:
            for temporary, path in temporaries:
                self._file_system.rename(temporary, path)
            for directory in dict.fromkeys([*(dirname(path) for _, path in temporaries), *self._directories]):
                self._file_system.sync_directory(directory)
        except FileNotFoundError:
            return  # the partition was deleted during the flush
        except OSError as error:
            if error.errno in NO_DESCRIPTOR_ERRNOS:
                raise FlushPostponedError(error) from error
            raise

    def _open_paths(self, opened: list[File]) -> None:
        for path in dict.fromkeys(self._paths):
            with contextlib.suppress(FileNotFoundError):
                opened.append(self._file_system.open(path))

    def _write_replacements(self, opened: list[File], temporaries: list[tuple[str, str]]) -> None:
        """Write them next to the old ones; each is added to `temporaries` before it is written."""
        for path, data in self._replacements:
            temporary = path + TEMPORARY
            try:
                file = self._file_system.open(temporary, create=True)
            except FileNotFoundError:  # the partition was deleted during the flush
                continue
            opened.append(file)
            temporaries.append((temporary, path))
            file.truncate(0)
            file.write_at((data,), 0, len(data))

    def release(self) -> None:
        """Release the open files."""
        for open_file in self._open_files:
            open_file.release()
        self._open_files = []


FlushFailure = OSError | FlushPostponedError

RunFlushes = Callable[[Callable[[Flush], FlushFailure | None], Sequence[Flush]], Iterable[FlushFailure | None]]
"""Calls a function with each flush, as `map` does, and perhaps with several at a time."""


def failure_of(flush: Flush) -> FlushFailure | None:
    """Run the flush; returns its error, or None."""
    try:
        flush.run()
    except (OSError, FlushPostponedError) as error:
        return error
    return None
