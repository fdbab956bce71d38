"""Bringing a log to the device, in three steps: what must be synced, syncing it, and noting that it is done.

The middle step, `Flush.run`, is where the time goes, and touches nothing but open files: it may run in a thread while
the log goes on.

Of sealed segments everything is synced, of the active one the `.log` alone: its indexes can be made anew from it, and
are, after an unclean stop. They are synced with the flush that follows the sealing.
"""

from __future__ import annotations

from collections.abc import Iterable
from posixpath import dirname

from .descriptors import DescriptorCache, OpenFile
from .files import FileSystem
from .segments import Segments


class Flush:
    """Files to be synced, held open."""

    __slots__ = ("_directory", "_file_system", "_open_files", "_paths", "_replacements", "offset")

    def __init__(self, file_system: FileSystem, offset: int) -> None:
        self._file_system = file_system
        self.offset = offset
        """Everything before this offset is on the device when it has run."""
        self._open_files: list[OpenFile] = []
        self._paths: list[str] = []
        self._replacements: list[tuple[str, bytes]] = []
        self._directory: str | None = None

    def add_segments(self, files: DescriptorCache, segments: Segments, flushed_offset: int) -> None:
        """The files with records from `flushed_offset` up to the flush's offset."""
        for number, segment in enumerate(segments):
            end = segments.end_of(number)
            # One that ends exactly at the flushed offset was synced while it was active: without its indexes.
            if segment.base_offset >= self.offset or (end is not None and end < flushed_offset) or not segment.on_disk:
                continue
            self._hold(files.open(segment))
            if end is not None:
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
        """Names of files have changed."""
        self._directory = directory

    def _hold(self, open_file: OpenFile) -> None:
        open_file.references += 1
        self._open_files.append(open_file)

    def run(self) -> None:
        """Sync. After an `OSError` nobody knows what the device has: give it to `Log.flush_failed`."""
        for open_file in self._open_files:
            open_file.file.sync()
        for path in self._paths:
            try:
                file = self._file_system.open(path)
            except FileNotFoundError:
                continue
            try:
                file.sync()
            finally:
                file.close()
        try:
            for path, data in self._replacements:
                self._file_system.replace_file(path, data, sync=True)
            # Replacing a file has synced its directory.
            if self._directory is not None and all(dirname(path) != self._directory for path, _ in self._replacements):
                self._file_system.sync_directory(self._directory)
        except FileNotFoundError:
            return  # the partition was deleted meanwhile

    def release(self) -> None:
        """Let the files go."""
        for open_file in self._open_files:
            open_file.release()
        self._open_files = []
