"""The snapshots beside the metadata log: finding the one to start from, writing one, taking old ones away.

    <end offset>-<epoch>.checkpoint.part       being written; a start unlinks it
    <end offset>-<epoch>.checkpoint            whole, and on the device
    <end offset>-<epoch>.checkpoint.deleted    not needed any more, about to be unlinked
    <end offset>-<epoch>.checkpoint.damaged    set aside by a start that found it so; nobody reads it

A snapshot is written to its `.part`, synced, renamed, and the directory synced: whatever happens in between, the files
before are untouched, and the next start does not see it. `SnapshotFile` does that in steps, so that an event loop may
encode a slice at a time from the immutable image, and leave the device to a thread.

Nothing here decides when; `quorum.py` does. How far the log is needed says `metadata_log.py`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from ..log.files import join
from ..log.inspection.batches import Damage, inspect_batches
from ..log.names import LOG, parse_offset_file_name
from ..protocol.messages.control_records import SnapshotHeaderRecord
from .batches import DamagedError, MetadataLogError, read_batches
from .checkpoint import Snapshot, SnapshotId, decode_snapshot, parse_file_name

if TYPE_CHECKING:
    from ..log.files import File, FileSystem

logger = logging.getLogger(__name__)

PART: Final = ".part"
DELETED: Final = ".deleted"
DAMAGED: Final = ".damaged"

RECORDS_PER_BATCH: Final = 100
"""Of a snapshot that is written beside requests: encoding as many takes less than a millisecond."""

_WRITE_BYTES: Final = 1024 * 1024
_HEADER_BYTES: Final = 4096


class StoredSnapshot(NamedTuple):
    """A snapshot in the directory."""

    id: SnapshotId
    size: int
    last_contained_timestamp_ms: int
    """Of the last record that it stands for; 0 where its header cannot be read."""


class SnapshotFile:
    """A snapshot on its way to the device. `encode` until it is False, `write` when it asks for it, then `finish`.

    `write`, `finish` and `discard` wait for the device, and may be called from a thread, one at a time.
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
        """Encoded, and not yet written."""
        self._file_system = file_system
        self._directory = directory
        self._path = join(directory, snapshot.file_name)
        self._batches = batches
        self._pending: list[bytes] = []
        self._file: File | None = None

    def encode(self) -> bool:
        """Make the next batch. False when there is none."""
        batch = next(self._batches, None)
        if batch is None:
            return False
        self._pending.append(batch)
        self.pending_bytes += len(batch)
        return True

    @property
    def wants_to_write(self) -> bool:
        """Whether enough is encoded that it should not all wait in memory."""
        return self.pending_bytes >= _WRITE_BYTES

    def write(self) -> None:
        """Put what was encoded into the file. Raises OSError."""
        if self._file is None:
            self._file = self._file_system.open(self._path + PART, create=True)
            self._file.truncate(0)  # of one that was cut off, under the same name
        data = b"".join(self._pending)
        self._file.write_at((data,), self.size, len(data))
        self.size += len(data)
        self._pending = []
        self.pending_bytes = 0

    def finish(self) -> None:
        """All is encoded: have it on the device, under its name. Raises OSError; then it is to be discarded."""
        self.write()
        assert self._file is not None
        self._file.sync()
        self._file.close()
        self._file = None
        self._file_system.rename(self._path + PART, self._path)
        self._file_system.sync_directory(self._directory)

    def discard(self) -> None:
        """Give it up; what is there of it goes. A device that does not even allow that leaves it to the next start."""
        if self._file is not None:
            self._file.close()
            self._file = None
        with contextlib.suppress(OSError):
            self._file_system.unlink(self._path + PART)

    @property
    def stored(self) -> StoredSnapshot:
        """What it is when it is finished."""
        return StoredSnapshot(self.id, self.size, self.last_contained_timestamp_ms)


class Snapshots:
    """The snapshots of one directory, from the oldest that counts to the latest."""

    def __init__(self, file_system: FileSystem, directory: str) -> None:
        self._file_system = file_system
        self._directory = directory
        self.stored: list[StoredSnapshot] = []
        self.repairs: list[str] = []
        """What was found damaged, in words."""
        self.trash: list[str] = []
        """Files to be unlinked."""

    @property
    def latest(self) -> SnapshotId | None:
        return self.stored[-1].id if self.stored else None

    @property
    def size(self) -> int:
        return sum(stored.size for stored in self.stored)

    def open(self) -> Snapshot | None:
        """Find what there is, and read the latest; None without any.

        One that is damaged is passed over and set aside, if the one before it and the log after that say all that it
        said. Raises MetadataLogError otherwise, having changed nothing, and for one that is newer than this software.
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
            self.repairs.append(f"{problem}; used {instead} and the log after it instead, and set it aside ({DAMAGED})")
        self.stored = [self._describe(snapshot) for snapshot in found]
        for name in names:
            suffix = name[name.rfind(".") :]
            if suffix in (PART, DELETED) and parse_file_name(name.removesuffix(suffix)) is not None:
                self._file_system.unlink(join(self._directory, name))
        return content

    def add(self, snapshot: SnapshotFile) -> None:
        """One was finished."""
        self.stored.append(snapshot.stored)

    def retire_before(self, offset: int) -> None:
        """Those that end before `offset` are not needed any more. Never the latest."""
        while len(self.stored) > 1 and self.stored[0].id.end_offset < offset:
            path = self._path(self.stored[0].id)
            # Somebody else may have been quicker; all that counts is that it is gone.
            with contextlib.suppress(FileNotFoundError):
                self._file_system.rename(path, path + DELETED)
                self.trash.append(path + DELETED)
            del self.stored[0]

    def _path(self, snapshot: SnapshotId) -> str:
        return join(self._directory, snapshot.file_name)

    def _describe(self, snapshot: SnapshotId) -> StoredSnapshot:
        """Its size and, from its first batch, its time."""
        path = self._path(snapshot)
        file = self._file_system.open(path, read_only=True)
        try:
            size = file.size()
            head = file.read_at(0, min(size, _HEADER_BYTES))
        finally:
            file.close()
        timestamp_ms = 0
        # A damaged old one is in nobody's way, and goes with the next cleaning.
        with contextlib.suppress(MetadataLogError):
            first = next(read_batches(head, what=path), None)
            for record in first.control if first is not None else ():
                if isinstance(record, SnapshotHeaderRecord):
                    timestamp_ms = record.last_contained_log_timestamp
        return StoredSnapshot(snapshot, size, timestamp_ms)

    def _check_log_suffices(self, problem: DamagedError, damaged: SnapshotId, before: SnapshotId | None) -> None:
        """Can a start do without the damaged snapshot? Raises MetadataLogError if it cannot."""
        if before is None and damaged.end_offset == 0:
            raise problem  # the first of all, which names the voter
        start = before.end_offset if before is not None else 0
        end = self._whole_until(start)
        if end >= damaged.end_offset:
            return
        older = f"The one before it ends at offset {start}" if before is not None else "There is none before it"
        log = f"the log goes on from there to {end} only" if end > start else "the log does not begin there"
        raise MetadataLogError(
            f"{problem}. {older}, and {log}: what was changed up to offset {damaged.end_offset} is in no other file. "
            "Put back a copy of the snapshot; nothing was changed"
        )

    def _whole_until(self, start: int) -> int:
        """The offset up to which the log has every record from `start` on, whole; `start` if it has none."""
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
