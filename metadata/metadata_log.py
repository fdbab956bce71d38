"""The metadata log of a quorum of one, in the format of Apache Kafka's KRaft: `__cluster_metadata-0`.

    <data directory>/bootstrap.checkpoint                              records for the first leader to write
    <data directory>/__cluster_metadata-0/
        00000000000000000000-0000000000.checkpoint                     the first voter, written by formatting
        00000000000000000000.log, .index, .timeindex                   the log, as any partition's
        <end offset>-<epoch>.checkpoint                                later snapshots (`snapshots.py`)
        quorum-state, leader-epoch-checkpoint, partition.metadata

Each startup begins a new epoch. As the only voter, the node elects itself (KIP-595), in an epoch above all epochs in
the log and in `quorum-state`, and begins it with a LeaderChange record. An appended record is committed as soon as it
is durable: the node is a majority of one. The log's recovery truncates a torn tail after a crash. Such records were
never committed, because no response was sent before their sync.

A snapshot represents all of the log before it. Startup reads the latest snapshot, and only the log after it. The log is
rolled at the end of a snapshot, so that this part consists of whole segments. The log before an older snapshot is
deleted by size and age (`clean`), together with that snapshot: the log always begins at or before an existing one.

Voters are identified by directory (kraft.version 1, KIP-853) in all directories that are formatted here. Older
directories of Apache Kafka without this are supported, and keep their format.

This module handles batches, files and epochs, but not the meaning of the records; `committed.py` and `controller.py`
do that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from ..log.descriptors import DescriptorCache
from ..log.files import join
from ..log.partition_loading import load_log
from ..protocol.messages.control_records import (
    Endpoint as VoterEndpoint,
)
from ..protocol.messages.control_records import (
    KRaftVersionFeature,
    KRaftVersionRecord,
    LeaderChangeMessage,
    ResponseVoter,
    Voter,
    VotersRecord,
)
from ..protocol.named_tuples import NamedTuple
from ..protocol.records import iter_batches
from ..protocol.steps import completed
from ..protocol.uuid import ONE_UUID, uuid_to_str
from .batches import (
    ControlRecord,
    MetadataBatch,
    MetadataLogError,
    control_batch,
    decode_batch,
    metadata_batches_in_steps,
)
from .checkpoint import (
    BOOTSTRAP_FILE,
    Snapshot,
    SnapshotId,
    decode_snapshot,
    encode_snapshot,
    snapshot_batches,
)
from .outcome import MAX_RECORDS_PER_REQUEST
from .quorum_state import FILE_NAME as QUORUM_STATE_FILE
from .quorum_state import QuorumState, QuorumStateError, decode_quorum_state, is_whole
from .snapshots import RECORDS_PER_BATCH, SnapshotFile, Snapshots
from .topic_names import CLUSTER_METADATA

if TYPE_CHECKING:
    from ..log.files import FileSystem
    from ..log.partition_log import Log
    from ..protocol.records import RecordBatch
    from ..protocol.steps import Steps
    from .outcome import Versioned
    from .records import MetadataRecord
    from .registrations import Endpoint
    from .settings import MetadataLogSettings

DIRECTORY: Final = f"{CLUSTER_METADATA}-0"
_READ_BYTES: Final = 4 * 1024 * 1024
_FIRST_SNAPSHOT: Final = SnapshotId(0, 0)


class LocalVoter(NamedTuple):
    """This node as the only voter."""

    node_id: int
    directory_id: bytes
    """The id of the log directory that contains the metadata log."""
    endpoint: Endpoint
    """The endpoint of its controller listener."""


def is_formatted(file_system: FileSystem, data_directory: str) -> bool:
    """Whether the directory contains a metadata log, or the first snapshot of one."""
    directory = join(data_directory, DIRECTORY)
    if not file_system.exists(directory):
        return False
    return any(name.endswith((".log", ".checkpoint")) for name in file_system.list_directory(directory)[0])


def format_directory(
    file_system: FileSystem,
    data_directory: str,
    voter: LocalVoter,
    bootstrap_records: Sequence[Versioned],
    now_ms: int,
) -> None:
    """Create the files of a new cluster, as `kafka-storage format --standalone` does.

    Does nothing if there is a log or a snapshot. An interrupted formatting is repeated.
    """
    if is_formatted(file_system, data_directory):
        return
    directory = join(data_directory, DIRECTORY)
    file_system.make_directory(directory, private=True)  # dynamic settings may be passwords
    if not file_system.exists(join(data_directory, BOOTSTRAP_FILE)):
        write_bootstrap_records(file_system, data_directory, bootstrap_records, now_ms)
    first_snapshot = encode_snapshot(
        (), epoch=0, timestamp_ms=now_ms, last_contained_timestamp_ms=now_ms, voters=_voters_record(voter)
    )
    file_system.replace_file(join(directory, _FIRST_SNAPSHOT.file_name), first_snapshot, sync=True)
    file_system.sync_directory(data_directory)


def write_bootstrap_records(
    file_system: FileSystem, data_directory: str, records: Sequence[Versioned], now_ms: int = 0
) -> None:
    """Write the records with which the log of a new cluster begins."""
    data = encode_snapshot(records, epoch=0, timestamp_ms=now_ms, last_contained_timestamp_ms=0, voters=None)
    # The credentials of users may be among them.
    file_system.replace_file(join(data_directory, BOOTSTRAP_FILE), data, sync=True, private=True)


class LogParts(NamedTuple):
    """What `open_parts` has found on disk."""

    log: Log
    state: QuorumState
    snapshots: Snapshots
    content: Snapshot | None
    """The content of the latest snapshot."""
    repairs: tuple[str, ...] = ()
    """What was missing and is not needed, as text."""


def open_parts(
    file_system: FileSystem,
    data_directory: str,
    settings: MetadataLogSettings,
    *,
    now_ms: int,
    is_state_synced: bool = True,
) -> LogParts:
    """Open the files of a directory, and truncate a torn tail. Raises MetadataLogError, OSError.

    Without `is_state_synced`, a power failure may have left an incomplete `quorum-state`. It then counts as missing.
    """
    directory = join(data_directory, DIRECTORY)
    state = QuorumState()
    repairs: tuple[str, ...] = ()
    path = join(directory, QUORUM_STATE_FILE)
    if file_system.exists(path):
        data = file_system.read_file(path)
        try:
            state = decode_quorum_state(data)
        except QuorumStateError as error:
            if is_state_synced or is_whole(data):
                raise MetadataLogError(f"{path}: {error}") from None
            repairs = (f"{QUORUM_STATE_FILE} was incomplete, and the controllers will report their leader again",)
    snapshots = Snapshots(file_system, directory)
    content = snapshots.open()
    latest = snapshots.latest
    # As in Kafka, no marker of a clean shutdown is trusted: the log after the snapshot is read anyway. The log
    # before it was durable, with its indexes, when the snapshot was renamed.
    log = load_log(
        DescriptorCache(file_system, 8),
        directory,
        CLUSTER_METADATA,
        0,
        settings.log_config,
        clean=False,
        now_ms=now_ms,
        recovery_point=latest.end_offset + 1 if latest is not None else 0,
    )
    if log.topic_id is None:
        log.set_topic_id(ONE_UUID)
    return LogParts(log, state, snapshots, content, repairs)


class StoredMetadataLog:
    """The files of a metadata log: its segments, its snapshots and `quorum-state`. `MetadataLog` appends to it as the
    only voter; `log_copy.MetadataLogCopy` is the copy of an observer. Call `replay` once after `open`."""

    def __init__(
        self,
        file_system: FileSystem,
        data_directory: str,
        settings: MetadataLogSettings,
        parts: LogParts,
    ) -> None:
        log, state, snapshots, content, found = parts
        self._found = found
        self._file_system = file_system
        self._data_directory = data_directory
        self._directory = join(data_directory, DIRECTORY)
        self.settings = settings
        self._log = log
        self._state = state
        self._kraft_version = 0
        self._voters: VotersRecord | None = None
        self._voters_in_log = False
        self._election_voters: tuple[int, ...] | None = None
        self._snapshots = snapshots
        self._content = content  # the latest snapshot, until it is replayed
        self.records_after_snapshot = 0
        """The number of metadata records that are in the log and not in the latest snapshot."""
        self.bytes_after_snapshot = 0
        """The size of their batches and of control batches, in bytes."""
        self._counted = (0, 0)  # both values at the beginning of the snapshot in progress
        self.on_flushed: Callable[[], None] | None = None
        """Called when `flushed_offset` may have changed."""
        self.on_failure: Callable[[OSError], None] | None = None
        """Called if the log's files fail: nothing is appended after that."""
        log.on_flushed = self._flushed
        log.on_failure = self._failed

    def _flushed(self) -> None:
        if self.on_flushed is not None:
            self.on_flushed()

    def _failed(self, _log: Log, error: OSError) -> None:
        if self.on_failure is not None:
            self.on_failure(error)

    @property
    def log(self) -> Log:
        """The underlying log, for flushing it in a thread."""
        return self._log

    @property
    def leader_id(self) -> int:
        """The leader of the current epoch; -1 if it is unknown."""
        return self._state.leader_id

    @property
    def epoch(self) -> int:
        """The current epoch of the quorum."""
        return self._state.leader_epoch

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        return self._log.log_end_offset

    @property
    def flushed_offset(self) -> int:
        """All records before this offset are durable: the high watermark of a quorum of one."""
        return self._log.flushed_offset

    @property
    def kraft_version(self) -> int:
        return self._kraft_version

    @property
    def repairs(self) -> list[str]:
        """The damage that opening the log has repaired, as text."""
        return [*self._found, *self._snapshots.repairs, *self._log.repairs]

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        return self._snapshots.latest

    @property
    def earliest_snapshot(self) -> SnapshotId | None:
        stored = self._snapshots.stored
        return stored[0].id if stored else None

    def snapshot_path(self, snapshot: SnapshotId) -> str | None:
        """The file of a snapshot; None if there is none."""
        if all(stored.id != snapshot for stored in self._snapshots.stored):
            return None
        return join(self._directory, snapshot.file_name)

    @property
    def start_offset(self) -> int:
        """The records before this offset are only in a snapshot."""
        return self._log.log_start_offset

    def take_trash(self) -> list[str]:
        """Files of the directory that are ready to be unlinked."""
        paths = self._log.trash + self._snapshots.trash
        self._log.trash.clear()
        self._snapshots.trash.clear()
        return paths

    def replay(self, now_ms: int) -> Iterator[MetadataBatch]:
        """All records of the latest snapshot and of the log after it, in order.

        A snapshot is one batch that ends at the snapshot's end offset. Raises MetadataLogError as `open`.
        """
        start = self._log.log_start_offset
        latest = self._snapshots.latest
        if latest is not None:
            if start > latest.end_offset:
                raise MetadataLogError(
                    f"{self._directory}: the log starts at offset {start}, but the latest snapshot ends before it, "
                    f"at {latest.end_offset}"
                )
            yield self._replay_snapshot(latest)
            start = latest.end_offset
            if start > self._log.log_end_offset:
                # A crash happened between the end of the old segments and the first append to a new segment.
                self._log.truncate_fully_and_start_at(start, now_ms)
        elif start > 0:
            raise MetadataLogError(
                f"{self._directory}: the log starts at offset {start}, but no snapshot covers the offsets before it"
            )
        self._snapshots.retire_before(self._log.log_start_offset)
        for batch in self._read_log(start):
            for record in batch.control:
                self._replay_control(record)
            self.records_after_snapshot += len(batch.records)
            yield batch
        self._check_voters()

    def _check_voters(self) -> None:
        """Raise MetadataLogError if this node must not use the log. Called when it has been read."""

    def flush(self, now_ms: int) -> None:
        """Return when all appended records are durable. Raises KafkaError with KAFKA_STORAGE_ERROR."""
        self._log.flush(now_ms)

    def begin_snapshot(self, records: Iterable[Versioned], *, timestamp_ms: int, now_ms: int) -> SnapshotFile:
        """Begin a snapshot of everything in the log; `records` define that state.

        `timestamp_ms` is that of the last contained record. Flush the log before `finish`, including the indexes of the
        segment that ends here, which are not checked again. Then call `end_snapshot`. Raises KafkaError with
        KAFKA_STORAGE_ERROR, or OSError; then nothing has changed.
        """
        snapshot = self._snapshot_now()
        if snapshot.end_offset == self.end_offset:
            self._log.roll(now_ms)
            self._log.segments.active.make_files()  # startup needs the file, even if no records follow the snapshot
        self._counted = (self.records_after_snapshot, self.bytes_after_snapshot)
        batches = snapshot_batches(
            records,
            epoch=snapshot.epoch,
            timestamp_ms=now_ms,
            last_contained_timestamp_ms=timestamp_ms,
            voters=self._voters if self._kraft_version > 0 else None,
            max_records=RECORDS_PER_BATCH,
        )
        return SnapshotFile(self._file_system, self._directory, snapshot, batches, timestamp_ms)

    def _snapshot_now(self) -> SnapshotId:
        """What a snapshot would contain that is begun now."""
        return SnapshotId(self.end_offset, self._log.latest_epoch)

    def end_snapshot(self, snapshot: SnapshotFile) -> None:
        """The snapshot is durable: from now on startup reads it."""
        self._snapshots.add(snapshot)
        records, size = self._counted
        self.records_after_snapshot -= records
        self.bytes_after_snapshot -= size

    def clean(self, now_ms: int) -> list[str]:
        """Delete the oldest snapshots, and the log before the oldest remaining snapshot.

        The limits are `metadata.max.retention.bytes` and `.ms`, as in Apache Kafka; the latest snapshot is never
        deleted. Files are renamed and wait in the trash. Returns what was done, as text. Raises KafkaError with
        KAFKA_STORAGE_ERROR.
        """
        done = []
        while (reason := self._deletion_reason(now_ms)) is not None:
            oldest, following = self._snapshots.stored[:2]
            self._log.delete_records_before(following.id.end_offset)
            # Also if nothing was appended since: the next segment's name was synced before the snapshot was.
            self._log.delete_first_segments(self._log.segments.number_of(following.id.end_offset))
            self._snapshots.retire_before(following.id.end_offset)
            done.append(
                f"deleted the snapshot {oldest.id.file_name}, because {reason}; "
                f"the log now starts at offset {self._log.log_start_offset}"
            )
        return done

    def _deletion_reason(self, now_ms: int) -> str | None:
        """Why the oldest snapshot should be deleted; None if it is kept."""
        stored, settings = self._snapshots.stored, self.settings
        if len(stored) < 2:
            return None
        size = self._log.size + self._snapshots.size
        if 0 <= settings.retention_bytes < size:
            return f"log and snapshots have {size} bytes (metadata.max.retention.bytes={settings.retention_bytes})"
        if 0 <= settings.retention_ms < now_ms - stored[0].last_contained_timestamp_ms:
            return f"it is older than metadata.max.retention.ms={settings.retention_ms}"
        return None

    def close(self, now_ms: int) -> None:
        """Flush and close."""
        self._log.close(now_ms)

    def abandon(self) -> None:
        """Close the files without writing anything."""
        self._log.abandon()

    def _replay_snapshot(self, snapshot: SnapshotId) -> MetadataBatch:
        content, self._content = self._content, None
        assert content is not None, "a log is replayed once"
        self._kraft_version = content.kraft_version
        self._voters = content.voters
        self._voters_in_log = snapshot != _FIRST_SNAPSHOT
        return MetadataBatch(
            0, snapshot.end_offset, snapshot.epoch, content.last_contained_timestamp_ms, (), content.records
        )

    def _read_log(self, offset: int) -> Iterator[MetadataBatch]:
        """The batches from `offset` on."""
        for batch in self._read_batches(offset):
            yield decode_batch(batch, what=self._directory)

    def _read_batches(self, offset: int, end_offset: int | None = None) -> Iterator[RecordBatch]:
        """The batches from `offset` on; with `end_offset` only those that end there or before."""
        end = self._log.log_end_offset if end_offset is None else min(end_offset, self._log.log_end_offset)
        while offset < end:
            found = self._log.read(offset, _READ_BYTES, max_offset=end, min_one_batch=True).records
            if found is None:
                return
            with found:
                data = found.read()
            for batch in iter_batches(data):
                if batch.next_offset > end:
                    return
                if batch.base_offset >= offset:
                    self.bytes_after_snapshot += batch.size
                    yield batch
                offset = max(offset, batch.next_offset)

    def _replay_control(self, record: ControlRecord) -> None:
        match record:
            case KRaftVersionRecord():
                self._kraft_version = record.kraft_version
            case VotersRecord():
                self._voters = record
                self._voters_in_log = True
            case LeaderChangeMessage():
                self._election_voters = tuple(voter.voter_id for voter in record.voters)


class MetadataLog(StoredMetadataLog):
    """See the module docstring. Call `open`, then `replay` once, then `start_epoch`, then `append` and `flush`."""

    def __init__(
        self,
        file_system: FileSystem,
        data_directory: str,
        voter: LocalVoter,
        settings: MetadataLogSettings,
        parts: LogParts,
    ) -> None:
        super().__init__(file_system, data_directory, settings, parts)
        self.voter = voter

    @classmethod
    def open(
        cls,
        file_system: FileSystem,
        data_directory: str,
        voter: LocalVoter,
        settings: MetadataLogSettings,
        *,
        now_ms: int,
    ) -> MetadataLog:
        """Open the log of a formatted directory, and truncate a torn tail.

        Raises MetadataLogError if the directory cannot be read or belongs to another quorum; OSError.
        """
        parts = open_parts(file_system, data_directory, settings, now_ms=now_ms)
        return cls(file_system, data_directory, voter, settings, parts)

    def bootstrap_records(self) -> list[MetadataRecord]:
        """The records with which the directory was formatted, for an empty log; none if the file is missing."""
        path = join(self._data_directory, BOOTSTRAP_FILE)
        if not self._file_system.exists(path):
            return []
        return list(decode_snapshot(self._file_system.read_file(path), name=path).records)

    def start_epoch(self, now_ms: int) -> None:
        """Become the leader of a new epoch: store the epoch in `quorum-state`, and begin it in the log."""
        voter = self.voter
        latest = self._snapshots.latest
        epoch = max(self._state.leader_epoch, self._log.latest_epoch, latest.epoch if latest is not None else 0) + 1
        self._state = QuorumState(leader_id=voter.node_id, leader_epoch=epoch)
        self._file_system.replace_file(
            join(self._directory, QUORUM_STATE_FILE), self._state.encode(self._kraft_version), sync=True
        )
        this = Voter(voter_id=voter.node_id)
        records: list[ControlRecord] = [
            LeaderChangeMessage(version=0, leader_id=voter.node_id, voters=[this], granting_voters=[this])
        ]
        voters = _voters_record(voter)
        if self._kraft_version > 0 and (not self._voters_in_log or self._voters != voters):
            records += [KRaftVersionRecord(version=0, kraft_version=self._kraft_version), voters]
            self._voters, self._voters_in_log = voters, True
        batch = control_batch(records, base_offset=self.end_offset, epoch=epoch, timestamp_ms=now_ms)
        self.bytes_after_snapshot += len(batch)
        self._log.append(batch, now_ms=now_ms, leader_epoch=epoch, client=False)

    def append(self, records: Sequence[Versioned], now_ms: int) -> int:
        """Append records, in one batch if it can hold them, and return the offset after them. Not durable yet.

        Raises KafkaError with KAFKA_STORAGE_ERROR; then nothing was appended.
        """
        return self.append_encoded(completed(self.encode(records, now_ms)), len(records), now_ms)

    def encode(self, records: Sequence[Versioned], now_ms: int) -> Steps[bytes]:
        """Encode these records for `append_encoded`, in as few batches as possible. The log assigns their offsets."""
        data = []
        for batch in metadata_batches_in_steps(
            records, base_offset=0, epoch=self.epoch, timestamp_ms=now_ms, max_records=MAX_RECORDS_PER_REQUEST
        ):
            if batch is not None:
                data.append(batch[1])
            yield 0
        return b"".join(data)

    def append_encoded(self, data: bytes, count: int, now_ms: int) -> int:
        """The same as `append`, for `count` encoded records."""
        last_offset = self._log.append(data, now_ms=now_ms, leader_epoch=self.epoch, client=False).last_offset
        self.records_after_snapshot += count
        self.bytes_after_snapshot += len(data)
        return last_offset + 1

    def _check_voters(self) -> None:
        """Raise unless this node is the only voter of the directory's quorum."""
        if self._voters is None:
            # With static voters (kraft.version 0) only the election state names them.
            if self._election_voters and self._election_voters != (self.voter.node_id,):
                names = ", ".join(map(str, sorted(self._election_voters)))
                raise MetadataLogError(
                    f"{self._directory} belongs to a quorum with voters {names}; this is node {self.voter.node_id}"
                )
            return
        voters = [(voter.voter_id, voter.voter_directory_id) for voter in self._voters.voters]
        if voters != [(self.voter.node_id, self.voter.directory_id)]:
            names = ", ".join(f"node {node_id} with directory {uuid_to_str(id)}" for node_id, id in voters)
            raise MetadataLogError(
                f"{self._directory} belongs to a quorum with voters {names}; "
                f"this is node {self.voter.node_id} with directory {uuid_to_str(self.voter.directory_id)}"
            )


def _voters_record(voter: LocalVoter) -> VotersRecord:
    endpoint = voter.endpoint
    return VotersRecord(
        version=0,
        voters=[
            ResponseVoter(
                voter_id=voter.node_id,
                voter_directory_id=voter.directory_id,
                endpoints=[VoterEndpoint(name=endpoint.name, host=endpoint.host, port=endpoint.port)],
                kraft_version_feature=KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
            )
        ],
    )
