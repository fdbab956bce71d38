"""The copy of the metadata log that a broker without a controller keeps, so that a restart fetches only the rest.

It has the files of any metadata log (`metadata_log.py`). An observer (`observer.py`) decides what to append, and which
records are committed. The copy may end with records that are not committed, and that may be truncated again. It need
not be durable: what a power failure removes is fetched again. So nothing waits for a sync, and `quorum-state`, which
has the leader and the epoch that the broker has seen, is not synced either: an incomplete one counts as missing. It
never contains a vote. Only snapshots are synced, because the log before them may be deleted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ..log.files import join
from .batches import MetadataLogError, decode_batch_in_steps
from .checkpoint import SnapshotId, decode_snapshot_in_steps
from .metadata_log import DIRECTORY, StoredMetadataLog, open_parts
from .quorum_state import FILE_NAME as QUORUM_STATE_FILE
from .quorum_state import QuorumState
from .snapshots import PART, StoredSnapshot

if TYPE_CHECKING:
    from ..log.files import File, FileSystem
    from ..protocol.records import RecordBatch
    from ..protocol.steps import Steps
    from .batches import MetadataBatch
    from .settings import MetadataLogSettings
    from .snapshots import SnapshotFile


T = TypeVar("T")


class Blocking(Protocol):
    """Runs a function that waits for the disk, outside of the event loop if there is one."""

    def __call__(self, function: Callable[[], T], /) -> Steps[T]:
        """The result of the function, in steps."""


class MetadataLogCopy(StoredMetadataLog):
    """See the module docstring. It is the `ObservedLog` of an observer."""

    _receiving: File | None = None
    _replayed = SnapshotId(0, 0)

    @classmethod
    def open(
        cls,
        file_system: FileSystem,
        data_directory: str,
        settings: MetadataLogSettings,
        *,
        node_id: int,
        now_ms: int,
    ) -> MetadataLogCopy:
        """Open the copy, or create an empty one. Raises MetadataLogError if it cannot be read; OSError."""
        file_system.make_directory(join(data_directory, DIRECTORY), private=True)  # as in `format_directory`
        copy = cls(
            file_system,
            data_directory,
            settings,
            open_parts(file_system, data_directory, settings, now_ms=now_ms, is_state_synced=False),
        )
        if copy.is_of_controller(node_id):
            copy.abandon()
            path = join(data_directory, DIRECTORY)
            raise MetadataLogError(
                f"{path} is the log of a controller with this node.id, and not a copy. A broker without the controller "
                "role would overwrite it. Use another directory and another node.id, or process.roles=broker,controller"
            )
        latest = copy.latest_snapshot
        if latest is not None and latest.end_offset > copy.end_offset:
            # A crash happened between the end of the old segments and the first append to a new segment.
            copy.log.truncate_fully_and_start_at(latest.end_offset, now_ms)
        return copy

    def is_of_controller(self, node_id: int) -> bool:
        """Whether this node has led the quorum, or voted in its latest epoch."""
        return node_id in (self._state.leader_id, self._state.voted_id)

    @property
    def latest_epoch(self) -> int:
        """The epoch of the last record, or of the snapshot before the first one; 0 for an empty copy."""
        latest = self.latest_snapshot
        return max(self._log.latest_epoch, latest.epoch if latest is not None else 0)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to `epoch`, and its end offset; (-1, -1) if there is none."""
        found = self._log.end_offset_for_epoch(epoch)
        latest = self.latest_snapshot
        if found[0] < 0 and latest is not None and latest.epoch <= epoch:
            # All records here are in the snapshot, or have later epochs.
            return latest.epoch, max(latest.end_offset, 0)
        return found

    # What an observer has decided

    def set_leader(self, leader_id: int, epoch: int) -> None:
        """Store the leader of an epoch. Raises OSError."""
        self._state = QuorumState(leader_id=leader_id, leader_epoch=epoch)
        path = join(self._directory, QUORUM_STATE_FILE)
        self._file_system.replace_file(path, self._state.encode(max(self._kraft_version, 1)), sync=False)

    def append_fetched(self, records: Any, epoch: int, now_ms: int) -> None:
        """Append batches of the leader of `epoch`. Raises KafkaError."""
        self._log.append_as_follower(records, now_ms=now_ms, leader_epoch=epoch)

    def truncate(self, offset: int, now_ms: int) -> None:
        """Remove the records from `offset` on. Raises KafkaError."""
        self._log.truncate_to(offset, now_ms)

    def committed_batches(self, high_watermark: int) -> Iterator[RecordBatch]:
        """The batches from `replayed_offset` to the high watermark, for `replay_batch`."""
        return self._read_batches(self.replayed_offset, high_watermark)

    def replay_batch(self, stored: RecordBatch) -> Steps[MetadataBatch]:
        """Decode the next committed batch, once, in steps."""
        batch = yield from decode_batch_in_steps(stored, what=self._directory)
        for record in batch.control:
            self._replay_control(record)
        self.records_after_snapshot += len(batch.records)
        self._replayed = SnapshotId(batch.next_offset, batch.epoch)
        return batch

    @property
    def replayed_offset(self) -> int:
        """The offset after the last record that was replayed."""
        return self._replayed.end_offset

    def snapshot_batch(self) -> MetadataBatch | None:
        """The content of the latest snapshot as one batch, once after `open`; None without a snapshot."""
        latest = self.latest_snapshot
        return None if latest is None else self._replay_snapshot(latest)

    def _replay_snapshot(self, snapshot: SnapshotId) -> MetadataBatch:
        self._replayed = snapshot
        return super()._replay_snapshot(snapshot)

    def receive_snapshot(self, snapshot: SnapshotId, position: int, data: Any) -> None:
        """Write a piece of a snapshot. Raises OSError."""
        if position == 0:
            self.discard_received(snapshot)
            self._receiving = self._file_system.open(self._part(snapshot), create=True)
            self._receiving.truncate(0)  # an interrupted snapshot may have left a file with this name
        assert self._receiving is not None, "pieces begin at position 0"
        if len(data):
            self._receiving.write_at((data,), position, len(data))

    def install_snapshot(self, snapshot: SnapshotId, now_ms: int, blocking: Blocking) -> Steps[MetadataBatch]:
        """Replace the copy with a complete snapshot, whose content is returned as one batch. In steps.

        Raises MetadataLogError if the snapshot is damaged; then nothing has changed. OSError, KafkaError.
        """
        receiving, self._receiving = self._receiving, None
        assert receiving is not None, "no piece was received"
        path, files = self._part(snapshot), self._file_system

        def sync() -> bytes:
            try:
                receiving.sync()
            finally:
                receiving.close()
            return files.read_file(path)

        def rename() -> None:
            files.rename(path, path.removesuffix(PART))
            files.sync_directory(self._directory)

        try:
            data = yield from blocking(sync)
            content = yield from decode_snapshot_in_steps(data, name=path)
            yield from blocking(rename)
        except Exception:
            self.discard_received(snapshot)
            raise
        size = len(data)
        self._snapshots.stored.append(StoredSnapshot(snapshot, size, content.last_contained_timestamp_ms))
        self._log.truncate_fully_and_start_at(snapshot.end_offset, now_ms)
        self._snapshots.retire_before(snapshot.end_offset)
        self.records_after_snapshot = self.bytes_after_snapshot = 0
        self._counted = (0, 0)
        self._content = content
        return self._replay_snapshot(snapshot)

    def end_snapshot(self, snapshot: SnapshotFile) -> None:
        """A snapshot of the image is durable, unless a fetched one has replaced the copy meanwhile."""
        latest = self.latest_snapshot
        if latest is None or snapshot.id.end_offset > latest.end_offset:
            super().end_snapshot(snapshot)
        else:
            self._file_system.unlink(join(self._directory, snapshot.id.file_name))

    def discard_received(self, snapshot: SnapshotId) -> None:
        """Forget the pieces of a snapshot that were received."""
        if self._receiving is not None:
            self._receiving.close()
            self._receiving = None
        with contextlib.suppress(FileNotFoundError):
            self._file_system.unlink(self._part(snapshot))

    def _part(self, snapshot: SnapshotId) -> str:
        return join(self._directory, snapshot.file_name + PART)

    def _snapshot_now(self) -> SnapshotId:
        """The committed records that were replayed. Others may follow them in the copy."""
        return self._replayed

    def close(self, now_ms: int) -> None:
        """Flush and close."""
        self._close_received()
        super().close(now_ms)

    def abandon(self) -> None:
        """Close the files without writing anything."""
        self._close_received()
        super().abandon()

    def _close_received(self) -> None:
        if self._receiving is not None:
            self._receiving.close()  # the next startup unlinks the file
            self._receiving = None
