"""The metadata log of a quorum of one, in the format of Apache Kafka's KRaft: `__cluster_metadata-0`.

    <data directory>/bootstrap.checkpoint                              records for the first leader to write
    <data directory>/__cluster_metadata-0/
        00000000000000000000-0000000000.checkpoint                     the first voter, written by formatting
        00000000000000000000.log, .index, .timeindex                   the log, as any partition's
        <end offset>-<epoch>.checkpoint                                later snapshots
        quorum-state, leader-epoch-checkpoint, partition.metadata

Every start is a new epoch: the node elects itself, as the only voter may (KIP-595), in an epoch above all that the log
or `quorum-state` has seen, and begins it with a LeaderChange record. What is appended is committed as soon as it is on
the device: a majority of one. A tail that a crash tore is cut off by the log's own recovery; it was never committed,
because nobody was told of it before it was synced.

Voters are known by directory (kraft.version 1, KIP-853) in all directories that are formatted here. Older ones of
Apache Kafka without that are read, and go on in their own way.

This knows batches, files and epochs, and nothing of what the records mean; `quorum.py` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ..log.config import LogConfig
from ..log.descriptors import DescriptorCache
from ..log.files import join
from ..log.loader import load_log
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
from ..protocol.records import iter_batches
from ..protocol.uuid import ONE_UUID, uuid_to_str
from .batches import (
    MAX_BATCH_BYTES,
    ControlRecord,
    MetadataBatch,
    MetadataLogError,
    control_batch,
    decode_batch,
    metadata_batches,
)
from .checkpoint import (
    BOOTSTRAP_FILE,
    SnapshotId,
    decode_snapshot,
    encode_snapshot,
    parse_file_name,
)
from .outcome import MAX_RECORDS_PER_REQUEST
from .quorum_state import FILE_NAME as QUORUM_STATE_FILE
from .quorum_state import QuorumState, QuorumStateError, decode_quorum_state
from .topic_names import CLUSTER_METADATA

if TYPE_CHECKING:
    from ..log.files import FileSystem
    from ..log.partition_log import Log
    from .outcome import Versioned
    from .records import MetadataRecord
    from .registrations import Endpoint

DIRECTORY: Final = f"{CLUSTER_METADATA}-0"
_READ_BYTES: Final = 4 * 1024 * 1024
_FIRST_SNAPSHOT: Final = SnapshotId(0, 0)

LOG_CONFIG: Final = LogConfig(
    segment_bytes=1024 * 1024 * 1024,
    max_message_bytes=MAX_BATCH_BYTES,
    retention_ms=-1,
    retention_bytes=-1,
)
"""`metadata.log.segment.bytes` and KRaft's largest batch. What is old goes by snapshots, not by age."""


class LocalVoter(NamedTuple):
    """This node as a voter: the only one."""

    node_id: int
    directory_id: bytes
    """Of the log directory that holds the metadata log."""
    endpoint: Endpoint
    """Of its controller listener."""


def format_directory(
    file_system: FileSystem,
    data_directory: str,
    voter: LocalVoter,
    bootstrap_records: Sequence[Versioned],
    now_ms: int,
) -> None:
    """Make the files by which a new cluster starts, as `kafka-storage format --standalone` does.

    Does nothing where there is a log or a snapshot; a formatting that was cut off is done again.
    """
    directory = join(data_directory, DIRECTORY)
    if file_system.exists(directory):
        names = file_system.list_directory(directory)[0]
        if any(name.endswith((".log", ".checkpoint")) for name in names):
            return
    file_system.make_directory(directory)
    if not file_system.exists(join(data_directory, BOOTSTRAP_FILE)):
        bootstrap = encode_snapshot(
            bootstrap_records, epoch=0, timestamp_ms=now_ms, last_contained_timestamp_ms=0, voters=None
        )
        file_system.replace_file(join(data_directory, BOOTSTRAP_FILE), bootstrap, sync=True)
    first_snapshot = encode_snapshot(
        (), epoch=0, timestamp_ms=now_ms, last_contained_timestamp_ms=now_ms, voters=_voters_record(voter)
    )
    file_system.replace_file(join(directory, _FIRST_SNAPSHOT.file_name), first_snapshot, sync=True)
    file_system.sync_directory(data_directory)


class MetadataLog:
    """See the module's text. `open`, then `replay` once, then `start_epoch`, then `append` and `flush`."""

    def __init__(
        self, file_system: FileSystem, data_directory: str, voter: LocalVoter, log: Log, state: QuorumState
    ) -> None:
        self._file_system = file_system
        self._data_directory = data_directory
        self._directory = join(data_directory, DIRECTORY)
        self._voter = voter
        self._log = log
        self._state = state
        self._kraft_version = 0
        self._voters: VotersRecord | None = None
        self._voters_in_log = False
        self._snapshot: SnapshotId | None = None
        self.replayed_after_snapshot = 0
        """Metadata records that `replay` found in the log, not in the snapshot."""

    @classmethod
    def open(cls, file_system: FileSystem, data_directory: str, voter: LocalVoter, *, now_ms: int) -> MetadataLog:
        """Open the log of a formatted directory, cutting off what a crash left of its tail.

        Raises MetadataLogError for a directory that cannot be read, or belongs to another quorum; OSError.
        """
        directory = join(data_directory, DIRECTORY)
        state = QuorumState()
        path = join(directory, QUORUM_STATE_FILE)
        if file_system.exists(path):
            try:
                state = decode_quorum_state(file_system.read_file(path))
            except QuorumStateError as error:
                raise MetadataLogError(f"{path}: {error}") from None
        # As in Kafka, no mark of a clean stop is trusted here: the log is read whole at every start anyway.
        log = load_log(
            DescriptorCache(file_system, 8), directory, CLUSTER_METADATA, 0, LOG_CONFIG, clean=False, now_ms=now_ms
        )
        if log.topic_id is None:
            log.set_topic_id(ONE_UUID)
        return cls(file_system, data_directory, voter, log, state)

    @property
    def epoch(self) -> int:
        """The present epoch of the quorum."""
        return self._state.leader_epoch

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._log.log_end_offset

    @property
    def flushed_offset(self) -> int:
        """All records before it are on the device: the high watermark of a quorum of one."""
        return self._log.flushed_offset

    @property
    def kraft_version(self) -> int:
        return self._kraft_version

    @property
    def repairs(self) -> list[str]:
        """What opening found broken and repaired, in words."""
        return self._log.repairs

    def bootstrap_records(self) -> list[MetadataRecord]:
        """The records with which the directory was formatted, for a log that is still empty; none without the file."""
        path = join(self._data_directory, BOOTSTRAP_FILE)
        if not self._file_system.exists(path):
            return []
        return list(decode_snapshot(self._file_system.read_file(path), name=path).records)

    def replay(self, now_ms: int) -> Iterator[MetadataBatch]:
        """Everything that is in the latest snapshot and in the log after it, in order.

        A snapshot comes as one batch that ends at the offset for which it stands. Raises MetadataLogError as `open`.
        """
        start = self._log.log_start_offset
        snapshot = self._latest_snapshot()
        if snapshot is not None:
            yield self._read_snapshot(snapshot)
            start = snapshot.end_offset
            if start > self._log.log_end_offset:
                # A crash came between the end of the old segments and the first append to a new one.
                self._log.truncate_fully_and_start_at(start, now_ms)
        elif start > 0:
            raise MetadataLogError(f"{self._directory}: the log begins at {start}, and there is no snapshot before it")
        self._snapshot = snapshot
        for batch in self._read_log(start):
            for record in batch.control:
                self._replay_control(record)
            self.replayed_after_snapshot += len(batch.records)
            yield batch
        self._check_voters()

    def start_epoch(self, now_ms: int) -> None:
        """Become the leader of a new epoch: write it down, and begin it in the log."""
        voter = self._voter
        epoch = max(self._state.leader_epoch, self._log.latest_epoch, self._snapshot.epoch if self._snapshot else 0) + 1
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
        self._log.append(batch, now_ms=now_ms, leader_epoch=epoch, client=False)

    def append(self, records: Sequence[Versioned], now_ms: int) -> int:
        """Append records, in one batch if it can hold them, and return the offset after them. Not durable yet.

        Raises KafkaError with KAFKA_STORAGE_ERROR; then nothing was appended.
        """
        batches = metadata_batches(
            records,
            base_offset=self.end_offset,
            epoch=self.epoch,
            timestamp_ms=now_ms,
            max_records=MAX_RECORDS_PER_REQUEST,
        )
        data = b"".join(batch for _, batch in batches)
        return self._log.append(data, now_ms=now_ms, leader_epoch=self.epoch, client=False).last_offset + 1

    def flush(self, now_ms: int) -> None:
        """Return when all that was appended is on the device. Raises KafkaError with KAFKA_STORAGE_ERROR."""
        self._log.flush(now_ms)

    def write_snapshot(self, records: Sequence[Versioned], *, timestamp_ms: int, now_ms: int) -> None:
        """Let these records stand for everything that is in the log now; the log before them goes.

        `timestamp_ms` is that of the last record for which they stand.
        """
        snapshot = SnapshotId(self.end_offset, self._log.latest_epoch)
        data = encode_snapshot(
            records,
            epoch=snapshot.epoch,
            timestamp_ms=now_ms,
            last_contained_timestamp_ms=timestamp_ms,
            voters=self._voters if self._kraft_version > 0 else None,
        )
        self._log.flush(now_ms)
        self._file_system.replace_file(join(self._directory, snapshot.file_name), data, sync=True)
        self._snapshot = snapshot
        self._log.roll(now_ms)
        self._log.delete_records_before(snapshot.end_offset)
        for path in self._log.trash:
            self._file_system.unlink(path)
        self._log.trash.clear()
        for older in self._snapshots():
            if older < snapshot:
                self._file_system.unlink(join(self._directory, older.file_name))

    def close(self, now_ms: int) -> None:
        """Flush and close."""
        self._log.close(now_ms)

    def abandon(self) -> None:
        """Close the files, and leave them as they are."""
        self._log.abandon()

    def _snapshots(self) -> list[SnapshotId]:
        names = self._file_system.list_directory(self._directory)[0]
        return sorted(found for found in map(parse_file_name, names) if found is not None)

    def _latest_snapshot(self) -> SnapshotId | None:
        snapshots = self._snapshots()
        return snapshots[-1] if snapshots else None

    def _read_snapshot(self, snapshot: SnapshotId) -> MetadataBatch:
        path = join(self._directory, snapshot.file_name)
        content = decode_snapshot(self._file_system.read_file(path), name=path)
        self._kraft_version = content.kraft_version
        self._voters = content.voters
        self._voters_in_log = snapshot != _FIRST_SNAPSHOT
        return MetadataBatch(
            0, snapshot.end_offset, snapshot.epoch, content.last_contained_timestamp_ms, (), content.records
        )

    def _read_log(self, offset: int) -> Iterator[MetadataBatch]:
        end = self._log.log_end_offset
        while offset < end:
            found = self._log.read(offset, _READ_BYTES, max_offset=end, min_one_batch=True).records
            if found is None:
                return
            with found:
                data = found.read()
            for batch in iter_batches(data):
                if batch.base_offset >= offset:
                    yield decode_batch(batch, what=self._directory)
                offset = max(offset, batch.next_offset)

    def _replay_control(self, record: ControlRecord) -> None:
        match record:
            case KRaftVersionRecord():
                self._kraft_version = record.kraft_version
            case VotersRecord():
                self._voters = record
                self._voters_in_log = True

    def _check_voters(self) -> None:
        """Refuse a directory whose quorum this node is not, alone."""
        if self._voters is None:
            return
        voters = [(voter.voter_id, voter.voter_directory_id) for voter in self._voters.voters]
        if voters != [(self._voter.node_id, self._voter.directory_id)]:
            names = ", ".join(f"node {node_id} with directory {uuid_to_str(id)}" for node_id, id in voters)
            raise MetadataLogError(
                f"{self._directory} belongs to the quorum of {names}; "
                f"this is node {self._voter.node_id} with directory {uuid_to_str(self._voter.directory_id)}"
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
