"""The snapshots of the metadata log: select the one to start from, write new ones, delete old ones.

    <end offset>-<epoch>.checkpoint.part       being written; startup unlinks it
    <end offset>-<epoch>.checkpoint            complete and durable
    <end offset>-<epoch>.checkpoint.deleted    no longer needed, waits to be unlinked
    <end offset>-<epoch>.checkpoint.damaged    set aside by a startup that found it damaged; no longer read

A snapshot is written to its `.part`, synced, and renamed; then the directory is synced. After an interruption the
previous files are unchanged, and the next startup ignores the new one. `SnapshotFile` does this in steps: an event loop
can encode slices of the immutable image, and a thread can do the file I/O.

`committed.py` decides when to write a snapshot; `metadata_log.py` knows which part of the log is needed.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ..log.files import join
from ..log.names import LOG, parse_offset_file_name
from ..protocol.messages.control_records import SnapshotHeaderRecord
from ..protocol.named_tuples import NamedTuple
from .batches import DamagedError, MetadataLogError, read_batches
from .checkpoint import Snapshot, SnapshotId, decode_snapshot, parse_file_name

if TYPE_CHECKING:
    from ..log.files import File, FileSystem

logger = logging.getLogger(__name__)

PART: Final = ".part"
DELETED: Final = ".deleted"
DAMAGED: Final = ".damaged"

RECORDS_PER_BATCH: Final = 100
"""For a snapshot that is written alongside requests: this many records take less than a millisecond to encode."""

_WRITE_BYTES: Final = 1024 * 1024
_HEADER_BYTES: Final = 4096


class StoredSnapshot(NamedTuple):
    """A snapshot file in the directory."""

    id: SnapshotId
    size: int
    last_contained_timestamp_ms: int
    """The timestamp of the last contained record; 0 if the header cannot be read."""


class SnapshotFile:
    """A snapshot in progress. Call `encode` until it returns false, `write` if `wants_to_write`, then `finish`.

    `write`, `finish` and `discard` do file I/O. They may be called in a thread, one at a time.
    """

    def __init__(
        self,
        file_system: FileSystem,
        directory: str,
        snapshot: SnapshotId,
        batches: Iterator[bytes],
        last_contained_timestamp_ms: int,
    ) -> None:
        self.id = snapshot
        self.last_contained_timestamp_ms = last_contained_timestamp_ms
        self.size = 0
        self.pending_bytes = 0
        """The size of the encoded data that is not written yet."""
        self._file_system = file_system
        self._directory = directory
        self._path = join(directory, snapshot.file_name)
        self._batches = batches
        self._pending: list[bytes] = []
        self._file: File | None = None

    def encode(self) -> bool:
        """Encode the next batch. Returns false if there is none."""
        batch = next(self._batches, None)
        if batch is None:
            return False
        self._pending.append(batch)
        self.pending_bytes += len(batch)
        return True

    @property
    def wants_to_write(self) -> bool:
        """Whether so much is encoded that it should be written now."""
        return self.pending_bytes >= _WRITE_BYTES

    def write(self) -> None:
        """Write the encoded data to the file. Raises OSError."""
        if self._file is None:
            self._file = self._file_system.open(self._path + PART, create=True)
            self._file.truncate(0)  # an interrupted snapshot may have left a file with this name
        data = b"".join(self._pending)
        self._file.write_at((data,), self.size, len(data))
        self.size += len(data)
        self._pending = []
        self.pending_bytes = 0

    def finish(self) -> None:
        """Make the completely encoded snapshot durable under its name. After an OSError it must be discarded."""
        self.write()
        assert self._file is not None
        self._file.sync()
        self._file.close()
        self._file = None
        self._file_system.rename(self._path + PART, self._path)
        self._file_system.sync_directory(self._directory)

    def discard(self) -> None:
        """Discard the snapshot and its file. If the file cannot be unlinked, the next startup does it."""
        if self._file is not None:
            self._file.close()
            self._file = None
        with contextlib.suppress(OSError):
            self._file_system.unlink(self._path + PART)

    @property
    def stored(self) -> StoredSnapshot:
        """The stored snapshot after `finish`."""
        return StoredSnapshot(self.id, self.size, self.last_contained_timestamp_ms)


class Snapshots:
    """The snapshots of one directory, from the oldest that is needed to the latest."""

    def __init__(self, file_system: FileSystem, directory: str) -> None:
        self._file_system = file_system
        self._directory = directory
        self.stored: list[StoredSnapshot] = []
        self.repairs: list[str] = []
        """The damage that was found, as text."""
        self.trash: list[str] = []
        """Files to unlink."""

    @property
    def latest(self) -> SnapshotId | None:
        return self.stored[-1].id if self.stored else None

    @property
    def size(self) -> int:
        return sum(stored.size for stored in self.stored)

    def open(self) -> Snapshot | None:
        """Find the snapshots, and read the latest. Returns None if there are none.

        A damaged snapshot is skipped and set aside, if the previous snapshot and the log after it contain the same
        state. Otherwise raises MetadataLogError, without any change; also if a snapshot is newer than this software.
        """
        names = self._file_system.list_directory(self._directory)[0]
        found = sorted(snapshot for snapshot in map(parse_file_name, names) if snapshot is not None)
        damaged: list[SnapshotId] = []
        problem: DamagedError | None = None
        content: Snapshot | None = None
        while found:
            path = self._path(found[-1])
            try:
                content = decode_snapshot(self._file_system.read_file(path), name=path)
                break
            except DamagedError as error:
                problem = problem or error
                damaged.append(found.pop())
        if problem is not None:
            self._check_log_suffices(problem, damaged[0], found[-1] if found else None)
            for snapshot in damaged:
                self._file_system.rename(self._path(snapshot), self._path(snapshot) + DAMAGED)
            self._file_system.sync_directory(self._directory)
            instead = f"the one that ends at {found[-1].end_offset}" if found else "nothing"
            self.repairs.append(f"{problem}; used {instead} and the log after it instead, and renamed it to *{DAMAGED}")
        self.stored = [self._describe(snapshot) for snapshot in found]
        for name in names:
            suffix = name[name.rfind(".") :]
            if suffix in (PART, DELETED) and parse_file_name(name.removesuffix(suffix)) is not None:
                self._file_system.unlink(join(self._directory, name))
        return content

    def add(self, snapshot: SnapshotFile) -> None:
        """Add a finished snapshot."""
        self.stored.append(snapshot.stored)

    def retire_before(self, offset: int) -> None:
        """Retire the snapshots that end before `offset`, except the latest."""
        while len(self.stored) > 1 and self.stored[0].id.end_offset < offset:
            path = self._path(self.stored[0].id)
            # Another process may already have deleted the file; only its absence matters.
            with contextlib.suppress(FileNotFoundError):
                self._file_system.rename(path, path + DELETED)
                self.trash.append(path + DELETED)
            del self.stored[0]

    def _path(self, snapshot: SnapshotId) -> str:
        return join(self._directory, snapshot.file_name)

    def _describe(self, snapshot: SnapshotId) -> StoredSnapshot:
        """The snapshot's size, and its timestamp from the first batch."""
        path = self._path(snapshot)
        file = self._file_system.open(path, read_only=True)
        try:
            size = file.size()
            head = file.read_at(0, min(size, _HEADER_BYTES))
        finally:
            file.close()
        timestamp_ms = 0
        # A damaged old snapshot does no harm; the next cleanup deletes it.
        with contextlib.suppress(MetadataLogError):
            first = next(read_batches(head, what=path), None)
            for record in first.control if first is not None else ():
                if isinstance(record, SnapshotHeaderRecord):
                    timestamp_ms = record.last_contained_log_timestamp
        return StoredSnapshot(snapshot, size, timestamp_ms)

    def _check_log_suffices(self, problem: DamagedError, damaged: SnapshotId, before: SnapshotId | None) -> None:
        """Raise MetadataLogError unless the log contains what the damaged snapshot contained."""
        if before is None and damaged.end_offset == 0:
            raise problem  # the first snapshot, which names the voter
        start = before.end_offset if before is not None else 0
        end = self._whole_until(start)
        if end >= damaged.end_offset:
            return
        older = f"The one before it ends at offset {start}" if before is not None else "There is none before it"
        log = f"the log continues only to offset {end}" if end > start else "the log does not start there"
        raise MetadataLogError(
            f"{problem}. {older}, and {log}: the changes up to offset {damaged.end_offset} are in no other file. "
            "Restore a copy of the snapshot. Nothing was changed"
        )

    def _whole_until(self, start: int) -> int:
        """The offset up to which the log has all records from `start` on, undamaged; `start` if it has none."""
        from ..log.batch_inspection import Damage, inspect_batches  # only needed for a damaged snapshot

        names = self._file_system.list_directory(self._directory)[0]
        parsed = [parse_offset_file_name(name) for name in names]
        bases = sorted(found[0] for found in parsed if found is not None and found[1] == LOG)
        offset = start
        for number, base_offset in enumerate(bases):
            if number + 1 < len(bases) and bases[number + 1] <= start:
                continue
            if base_offset > offset:
                break
            path = join(self._directory, f"{base_offset:020d}{LOG}")
            file = self._file_system.open(path, read_only=True)
            try:
                for item in inspect_batches(file, file.size(), base_offset, lambda _bytes: None):
                    if isinstance(item, Damage):
                        return offset
                    offset = max(offset, item[1].next_offset)
            finally:
                file.close()
        return offset
