"""Moving a log to another log directory (KIP-113): a copy that catches up with the log while it is in use.

The copy is in `<topic>-<partition>.<32 hex digits>-future` of the target directory. Bytes are copied, not batches:
segments and their indexes only grow, so the copy of a file is a prefix of it, and copying can be resumed as long as the
original is not truncated. The state of the log in memory (producers, positions, buffered index entries) is valid for
the copy as soon as the files are equal. So after the swap the same `Log` continues with its files in the other
directory (`LogManager.swap`).

Copying is done in steps of limited size: begin (on the loop) - run (in a thread) - end (on the loop). The last step
before the swap also syncs names, and everything that it copied is durable. `complete` copies the rest, which was
appended since and must be small, on the loop. So the copy is never behind the log's recovery point, if no flush of the
log ends in between.

After a truncation of the log, copying starts over. A segment that retention deletes is also removed from the copy.
Compaction must not run during a move.
"""

from __future__ import annotations

from posixpath import basename, dirname
from typing import TYPE_CHECKING

from .checkpoints import encode_partition_metadata
from .descriptors import OpenFile
from .files import FileSystem, join
from .names import DELETED, LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, PRODUCER_SNAPSHOT, offset_file_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .directory import LogDirectory
    from .partition_log import Log
    from .segment import Segment

_CHUNK_BYTES = 1 << 20
# The limit of one step: each segment has up to four open files.
_MAX_SEGMENTS = 32
_NO_LIMIT = 1 << 63


class CopyError(Exception):
    """A file could not be copied, because of `error`; `of_target`: it happened in the target directory."""

    def __init__(self, error: OSError, *, of_target: bool) -> None:
        super().__init__(str(error))
        self.error = error
        self.of_target = of_target


class _SegmentCopy:
    """How much of a segment's files has been copied."""

    __slots__ = ("complete", "segment", "sizes")

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.sizes: dict[str, int] = {}
        """The number of copied bytes by file name."""
        self.complete = False
        """The segment was sealed and is completely copied."""


class Copy:
    """One step: the bytes to be copied. Created and completed by `FutureLog`."""

    __slots__ = (
        "_directories",
        "_file_system",
        "_parts",
        "_replacements",
        "_small",
        "_target",
        "_unlink",
        "bytes",
        "cuts",
        "end_offset",
        "sealed",
        "sizes",
        "snapshots",
    )

    def __init__(self, file_system: FileSystem, target: str, cuts: int) -> None:
        self._file_system = file_system
        self._target = target
        self.cuts = cuts
        """The value of `Log.cuts` at the beginning of the step."""
        self._parts: list[tuple[OpenFile, str, int, int]] = []  # (from, name, position, length)
        self._small: list[tuple[str, str]] = []  # (path, name)
        self._replacements: list[tuple[str, bytes]] = []
        self._unlink: list[str] = []
        self._directories: list[str] = []
        self.bytes = 0
        self.end_offset = 0
        """Everything before this offset is in the copy after this step."""
        self.sizes: dict[int, dict[str, int]] = {}
        """The sizes of the files after this step, by base offset and name."""
        self.sealed: set[int] = set()
        """The base offsets of segments that are complete after this step."""
        self.snapshots: list[int] = []

    def add(self, open_file: OpenFile, name: str, position: int, length: int) -> None:
        open_file.references += 1
        self._parts.append((open_file, name, position, length))
        self.bytes += length

    def add_small(self, path: str) -> None:
        """A small file that never changes; it may be missing when the step runs."""
        self._small.append((path, basename(path)))

    def add_replacement(self, name: str, data: bytes) -> None:
        self._replacements.append((name, data))

    def remove(self, name: str) -> None:
        self._unlink.append(name)

    def sync_names(self) -> None:
        self._directories += [self._target, dirname(self._target)]

    def __bool__(self) -> bool:
        return bool(self._parts or self._small or self._unlink)

    def run(self, *, sync: bool = True) -> None:
        """Copy, and sync the copied files if `sync`. May run in a thread. Raises `CopyError`."""
        try:
            for name in self._unlink:
                self._remove(name)
            for open_file, name, position, length in self._parts:
                self._copy(open_file, name, position, length, sync)
            for path, name in self._small:
                try:
                    data = self._file_system.read_file(path)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    raise CopyError(error, of_target=False) from error
                self._write(name, data, sync)
            for name, data in self._replacements:
                self._file_system.replace_file(join(self._target, name), data, sync=sync)
            for directory in self._directories:
                self._file_system.sync_directory(directory)
        except OSError as error:
            raise CopyError(error, of_target=True) from error

    def _copy(self, open_file: OpenFile, name: str, position: int, length: int, sync: bool) -> None:
        file = self._file_system.open(join(self._target, name), create=True)
        try:
            if not position:
                file.truncate(0)  # an earlier step may have left bytes
            end = position + length
            while position < end:
                try:
                    data = open_file.file.read_at(position, min(_CHUNK_BYTES, end - position))
                except OSError as error:
                    raise CopyError(error, of_target=False) from error
                if not data:
                    break  # it was truncated: the end of this step detects that
                file.write_at((data,), position, len(data))
                position += len(data)
            if sync:
                file.sync()
        finally:
            file.close()

    def _write(self, name: str, data: bytes, sync: bool) -> None:
        file = self._file_system.open(join(self._target, name), create=True)
        try:
            file.truncate(0)
            file.write_at((data,), 0, len(data))
            if sync:
                file.sync()
        finally:
            file.close()

    def _remove(self, name: str) -> None:
        try:
            self._file_system.unlink(join(self._target, name))
        except FileNotFoundError:
            return

    def release(self) -> None:
        """Release the open files."""
        for open_file, _name, _position, _length in self._parts:
            open_file.release()
        self._parts = []


class FutureLog:
    """See the module docstring. Created by `LogManager.begin_move`; its directory exists."""

    __slots__ = (
        "_cuts",
        "_durable_offset",
        "_file_system",
        "_segments",
        "_snapshots",
        "directory",
        "end_offset",
        "log",
        "path",
    )

    def __init__(self, log: Log, directory: LogDirectory, path: str) -> None:
        self.log = log
        self.directory = directory
        """The target directory."""
        self.path = path
        """The copy's directory."""
        self._file_system = log.files.file_system
        self._start_over()

    def _start_over(self) -> None:
        self._cuts = self.log.cuts
        self._segments: dict[int, _SegmentCopy] = {}
        self._snapshots: set[int] = set()
        self.end_offset = self.log.segments[0].base_offset
        """Everything before this offset is in the copy."""
        self._durable_offset = -1  # up to here the copy and its names are durable

    @property
    def is_durable(self) -> bool:
        """Everything that is durable in the log is durable in the copy: after the last step, until the next flush."""
        return self._durable_offset >= self.log.flushed_offset and not self._is_outdated()

    @property
    def size(self) -> int:
        """Bytes of batches that have been copied."""
        return sum(copied.sizes.get(basename(copied.segment.path), 0) for copied in self._segments.values())

    @property
    def lag(self) -> int:
        """The number of offsets that the copy is behind, estimated by bytes within a partially copied segment. Greater
        than 0 until everything is copied."""
        behind = self.log.log_end_offset - self.end_offset
        return max(behind - self._offsets_in_part(), 1) if behind > 0 else 0

    def _offsets_in_part(self) -> int:
        """The number of offsets from `end_offset` on that are in the copy, estimated by the share of copied bytes."""
        segments = self.log.segments
        number = segments.number_of(self.end_offset)
        segment, end = segments[number], segments.end_of(number)
        copied = self._segments.get(segment.base_offset)
        if copied is None or copied.segment is not segment or not segment.size:
            return 0
        copied_bytes = min(copied.sizes.get(basename(segment.path), 0), segment.size)
        offsets = (self.log.log_end_offset if end is None else end) - segment.base_offset
        return max(segment.base_offset + offsets * copied_bytes // segment.size - self.end_offset, 0)

    def missing_bytes(self) -> int:
        """The number of bytes that `complete` would copy now."""
        if self._is_outdated():
            return _NO_LIMIT
        missing = 0
        for segment in self.log.segments:
            copied = self._segments.get(segment.base_offset)
            if copied is None or not copied.complete:
                known = {} if copied is None else copied.sizes
                missing += sum(size - known.get(name, 0) for name, size, _open in _files(segment))
        return missing

    def begin_copy(self, max_bytes: int) -> Copy | None:
        """The next step, of about `max_bytes` bytes of batches; None if nothing is missing. To be passed to `end_copy`.

        Raises `KafkaError` when the log is offline, `CopyError` for a file of the log's that cannot be opened.
        """
        copy = self._plan(max_bytes, _MAX_SEGMENTS)
        if copy:
            return copy
        copy.release()
        return None

    def begin_last_copy(self) -> Copy:
        """The last step before the swap: everything that is missing, and the small files. Names are synced too.

        Raises as `begin_copy` does.
        """
        copy = self._plan(_NO_LIMIT, _NO_LIMIT)
        copy.add_replacement(LEADER_EPOCH_CHECKPOINT, self.log.leader_epochs.encode())
        if self.log.topic_id is not None:
            copy.add_replacement(PARTITION_METADATA, encode_partition_metadata(self.log.topic_id))
        copy.sync_names()
        return copy

    def postpone_swap(self) -> None:
        """Postpone the swap: the log may be flushed again."""
        self._durable_offset = -1

    def end_copy(self, copy: Copy, *, last: bool = False) -> None:
        """The step has run without an error."""
        copy.release()
        # Also if the log was truncated during the step: the names are needed to remove the files.
        for base_offset, sizes in copy.sizes.items():
            copied = self._segments.get(base_offset)
            if copied is not None:
                copied.sizes.update(sizes)
                copied.complete = base_offset in copy.sealed
        self._snapshots.update(copy.snapshots)
        if not self._is_outdated():
            self.end_offset = max(self.end_offset, copy.end_offset)
            if last:
                self._durable_offset = copy.end_offset

    def complete(self) -> list[str]:
        """Copy what was appended since the last step, on the loop and unsynced: now the log and the copy are equal.

        Returns the paths of renamed files that are no longer part of the log, to be unlinked. Raises `CopyError`; then
        the move can continue.
        """
        assert self.is_durable, "the last step has not ended, or the log has been flushed or truncated since"
        copy = self._plan(_NO_LIMIT, _NO_LIMIT, remove=False)
        try:
            copy.run(sync=False)
        except BaseException:
            copy.release()
            raise
        self.end_copy(copy)
        trash = []
        for name in self._stale_names():
            path = join(self.path, name)
            try:
                self._file_system.rename(path, path + DELETED)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise CopyError(error, of_target=True) from error
            trash.append(name + DELETED)
        return trash

    def _is_outdated(self) -> bool:
        """Whether the log was truncated, or its files were replaced."""
        return self._cuts != self.log.cuts or any(
            (copied := self._segments.get(segment.base_offset)) is not None and copied.segment is not segment
            for segment in self.log.segments
        )

    def _plan(self, max_bytes: int, max_segments: int, *, remove: bool = True) -> Copy:
        log = self.log
        log.check_online()
        copy = Copy(self._file_system, self.path, log.cuts)
        if self._is_outdated():
            for name in self._names():
                copy.remove(name)
            self._start_over()
        elif remove:
            for name in self._stale_names():
                copy.remove(name)
            self._forget_stale()
        copy.end_offset = self.end_offset
        try:
            for number, segment in enumerate(log.segments):
                copied = self._segments.get(segment.base_offset)
                if copied is not None and copied.complete:
                    continue
                if copy.bytes >= max_bytes or len(copy.sizes) >= max_segments:
                    break
                if copied is None:
                    copied = self._segments[segment.base_offset] = _SegmentCopy(segment)
                whole = self._plan_segment(copy, copied, max_bytes - copy.bytes)
                if not whole:
                    break
                end = log.segments.end_of(number)
                copy.end_offset = log.log_end_offset if end is None else end
                if end is not None:
                    copy.sealed.add(segment.base_offset)
            for offset in log.snapshots.offsets:
                if offset not in self._snapshots:
                    copy.add_small(log.snapshots.path(offset))
                    copy.snapshots.append(offset)
        except BaseException:
            copy.release()
            raise
        return copy

    def _plan_segment(self, copy: Copy, copied: _SegmentCopy, max_bytes: int) -> bool:
        """Plan the missing part of a segment: the batches, then the indexes. Returns whether the plan completes it."""
        sizes = copy.sizes[copied.segment.base_offset] = {}
        for name, size, opened in _files(copied.segment):
            known = copied.sizes.get(name, -1)
            length = min(size - max(known, 0), max_bytes)
            if known < size:
                try:
                    copy.add(opened(), name, max(known, 0), length)
                except OSError as error:
                    raise CopyError(error, of_target=False) from error
                sizes[name] = max(known, 0) + length
            if max(known, 0) + length < size:
                return False
        return True

    def _names(self) -> Iterator[str]:
        """The names of all files that are copied completely or in part."""
        for copied in self._segments.values():
            yield from copied.sizes
        for offset in self._snapshots:
            yield offset_file_name(offset, PRODUCER_SNAPSHOT)

    def _stale_names(self) -> list[str]:
        """The names of copied files that no longer exist in the log."""
        there = {segment.base_offset for segment in self.log.segments}
        names = [name for base, copied in self._segments.items() if base not in there for name in copied.sizes]
        gone = self._snapshots.difference(self.log.snapshots.offsets)
        return names + [offset_file_name(offset, PRODUCER_SNAPSHOT) for offset in sorted(gone)]

    def _forget_stale(self) -> None:
        there = {segment.base_offset for segment in self.log.segments}
        for base_offset in [base_offset for base_offset in self._segments if base_offset not in there]:
            del self._segments[base_offset]
        self._snapshots.intersection_update(self.log.snapshots.offsets)


def _files(segment: Segment) -> list[tuple[str, int, Callable[[], OpenFile]]]:
    """A segment's files: the name, the number of valid bytes, and how to open each. The batches come first."""
    if not segment.on_disk:
        return []
    offsets, times, aborted = segment.offset_index, segment.time_index, segment.transaction_index
    try:
        files = [
            (basename(segment.path), segment.size, segment.opened),
            (basename(offsets.path), offsets.stored_bytes, offsets.opened),
            (basename(times.path), times.stored_bytes, times.opened),
        ]
        if aborted.count:
            files.append((basename(aborted.path), aborted.stored_bytes, aborted.opened))
    except OSError as error:
        raise CopyError(error, of_target=False) from error
    return files
