"""Bringing a log to the device, in three steps: what must be synced, syncing it, and noting that it is done.

The middle step, `Flush.run`, is where the time goes, and touches nothing but open files: it may run in a thread while
the log goes on.

Of sealed segments everything is synced, of the active one the `.log` alone: its indexes can be made anew from it, and
are, after an unclean stop. They are synced with the flush that follows the sealing, or that closes the log.

One partition takes about eight syncs, and most of their time is the journal's, which commits together what is waiting:
so many logs are flushed by several threads, which are the server's (`RunFlushes`).

What needs room or a descriptor comes first: if there is none, no sync has failed, and the flush can be made later.
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
    """A flush could not be made, and may be later: the disk is full, say. What the device has is known as before."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error.strerror or str(error))


class Flush:
    """Files to be synced, held open."""

    __slots__ = ("_directories", "_file_system", "_open_files", "_paths", "_replacements", "cuts", "offset")

    def __init__(self, file_system: FileSystem, offset: int, cuts: int) -> None:
        self._file_system = file_system
        self.cuts = cuts
        """How often the log had been cut when this began."""
        self.offset = offset
        """Everything before this offset is on the device when it has run."""
        self._open_files: list[OpenFile] = []
        self._paths: list[str] = []
        self._replacements: list[tuple[str, bytes]] = []
        self._directories: list[str] = []

    def add_segments(self, files: DescriptorCache, segments: Segments, flushed_offset: int) -> None:
        """The files with records from `flushed_offset` up to the flush's offset."""
        # One that ends exactly at the flushed offset was synced while it was active: without its indexes.
        for number in range(max(segments.number_of(flushed_offset) - 1, 0), len(segments)):
            segment, end = segments[number], segments.end_of(number)
            if segment.base_offset >= self.offset or (end is not None and end < flushed_offset) or not segment.on_disk:
                continue
            self._hold(files.open(segment))
            if end is not None:
                self.add_indexes(segment)

    def add_indexes(self, segment: Segment) -> None:
        """Of a segment that gets no more batches."""
        self._hold(segment.offset_index.opened())
        self._hold(segment.time_index.opened())
        self._paths.append(segment.transaction_index.path)

    def add_paths(self, paths: Iterable[str]) -> None:
        """Small files, opened when it runs; one that is gone by then is left out."""
        self._paths += paths

    def add_replacement(self, path: str, data: bytes) -> None:
        """A small file to be replaced. Not before it runs: a new name for content that is not on the device yet would
        be the end of the old content, should the power fail in between.
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
        """Are there any to be replaced?"""
        return bool(self._replacements)

    @property
    def directories(self) -> Sequence[str]:
        """Those in which names have changed."""
        return self._directories

    def _hold(self, open_file: OpenFile) -> None:
        open_file.references += 1
        self._open_files.append(open_file)

    def run(self) -> None:
        """Write the small files, then sync.

        After an `OSError` nobody knows what the device has. `FlushPostponedError`: there is no room for the small
        files, or no descriptor, and no sync has failed. Give either to `Log.flush_failed`.
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
            return  # the partition was deleted meanwhile
        except OSError as error:
            if error.errno in NO_DESCRIPTOR_ERRNOS:
                raise FlushPostponedError(error) from error
            raise

    def _open_paths(self, opened: list[File]) -> None:
        for path in dict.fromkeys(self._paths):
            with contextlib.suppress(FileNotFoundError):
                opened.append(self._file_system.open(path))

    def _write_replacements(self, opened: list[File], temporaries: list[tuple[str, str]]) -> None:
        """Write them beside the old ones; each is noted before it is begun."""
        for path, data in self._replacements:
            temporary = path + TEMPORARY
            try:
                file = self._file_system.open(temporary, create=True)
            except FileNotFoundError:  # the partition was deleted meanwhile
                continue
            opened.append(file)
            temporaries.append((temporary, path))
            file.truncate(0)
            file.write_at((data,), 0, len(data))

    def release(self) -> None:
        """Let the files go."""
        for open_file in self._open_files:
            open_file.release()
        self._open_files = []


FlushFailure = OSError | FlushPostponedError

RunFlushes = Callable[[Callable[[Flush], FlushFailure | None], Sequence[Flush]], Iterable[FlushFailure | None]]
"""Calls a function with each flush, as `map` does, and perhaps with several at a time."""


def failure_of(flush: Flush) -> FlushFailure | None:
    """Run it; what it failed with, if it did."""
    try:
        flush.run()
    except (OSError, FlushPostponedError) as error:
        return error
    return None
