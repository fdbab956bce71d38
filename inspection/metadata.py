"""The offline check of a metadata log: its snapshots, `quorum-state`, and the resulting image.

The batches are checked like those of any partition (`partition.py`). This module interprets the records, and changes
nothing. The image is the one that startup would load, if it can be read.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Final

from ..log.batch_inspection import Damage, inspect_batches
from ..log.checkpoints import META_PROPERTIES, decode_properties
from ..log.files import FileSystem, join
from ..log.names import LOG, parse_offset_file_name
from ..metadata.batches import MetadataLogError, decode_batch
from ..metadata.checkpoint import BOOTSTRAP_FILE, SnapshotId, decode_snapshot, parse_file_name
from ..metadata.image import MetadataImage, MetadataUpdate
from ..metadata.metadata_log import DIRECTORY
from ..metadata.quorum_state import FILE_NAME as QUORUM_STATE_FILE
from ..metadata.quorum_state import NO_NODE, QuorumStateError, decode_quorum_state
from ..metadata.snapshots import DAMAGED, DELETED, PART
from ..metadata.transactions import TransactionFilter
from ..protocol.messages.control_records import VotersRecord
from ..protocol.records import InvalidRecordsError, RecordBatch, iter_batches
from ..protocol.uuid import ZERO_UUID
from .finding import Finding, Kind, Remedy, Severity

_SNAPSHOT_SUFFIXES: Final = tuple(f".checkpoint{suffix}" for suffix in ("", PART, DELETED, DAMAGED))


@dataclass(slots=True)
class MetadataContents:
    """The contents of a metadata log, and the findings."""

    image: MetadataImage | None = None
    """None if it cannot be read."""
    findings: list[Finding] = field(default_factory=list)


def is_metadata_file(name: str) -> bool:
    """Whether a file in `__cluster_metadata-0` is one that only the metadata log has."""
    return name == QUORUM_STATE_FILE or name.endswith(_SNAPSHOT_SUFFIXES)


def inspect_metadata(file_system: FileSystem, log_directory: str, directory_id: bytes | None) -> MetadataContents:
    """Read the metadata log in `log_directory`, and its snapshots. `OSError` propagates."""
    return _MetadataInspection(file_system, log_directory, directory_id).run()


class _MetadataInspection:
    def __init__(self, file_system: FileSystem, log_directory: str, directory_id: bytes | None) -> None:
        self._files = file_system
        self._log_directory = log_directory
        self._directory = join(log_directory, DIRECTORY)
        self._directory_id = directory_id
        self._contents = MetadataContents()
        self._last_epoch = -1
        self._names_voters = False

    def run(self) -> MetadataContents:
        names, _ = self._files.list_directory(self._directory)
        snapshots = sorted(found for found in map(parse_file_name, names) if found is not None)
        for name in sorted(names):
            suffix = name[name.rfind(".") :]
            if suffix in (PART, DELETED) and parse_file_name(name.removesuffix(suffix)) is not None:
                self._add(Severity.NOTE, name, "an unfinished snapshot, or one that is being deleted", Remedy.REMOVE)
            elif name.endswith(f".checkpoint{DAMAGED}"):
                self._add(Severity.NOTE, name, "a damaged snapshot that startup set aside; it can be removed")
        bootstrap = join(self._log_directory, BOOTSTRAP_FILE)
        if self._files.exists(bootstrap):
            self._inspect_snapshot(bootstrap, None)
        whole = [found for found in snapshots if self._inspect_snapshot(join(self._directory, found.file_name), found)]
        self._replay(whole[-1] if whole else None, names)
        self._inspect_quorum_state(names)
        return self._contents

    def _add(
        self,
        severity: Severity,
        name: str,
        text: str,
        remedy: Remedy | None = None,
        *,
        position: int | None = None,
        offset: int | None = None,
    ) -> None:
        path = name if name.startswith(self._log_directory) else join(self._directory, name)
        finding = Finding(severity, Kind.METADATA, path, text, DIRECTORY, position, offset, remedy)
        self._contents.findings.append(finding)

    def _inspect_snapshot(self, path: str, snapshot: SnapshotId | None) -> bool:
        """Whether it is complete. `snapshot` is the ID in its name, None for the bootstrap snapshot."""
        data = self._files.read_file(path)
        try:
            content = decode_snapshot(data, name="it")
            problem = _order_problem(data, snapshot.epoch if snapshot is not None else None)
            if snapshot is None and content.voters is not None:
                problem = "it contains voters, which only the first snapshot may contain"
        except (MetadataLogError, InvalidRecordsError) as error:
            problem = str(error)
        if problem is None:
            return True
        text = f"is not a complete snapshot: {problem}"
        if snapshot is None:
            self._add(Severity.WARNING, path, f"{text}. It is used only while the metadata log is empty")
        else:
            text += ". Startup reads the latest one and ignores a damaged one only if the log contains the same records"
            self._add(Severity.ERROR, path, text)
        return False

    def _replay(self, snapshot: SnapshotId | None, names: list[str]) -> None:
        update = MetadataUpdate(MetadataImage())
        transactions = TransactionFilter()
        offset, epoch = (snapshot.end_offset, snapshot.epoch) if snapshot is not None else (0, 0)
        if snapshot is not None:
            path = join(self._directory, snapshot.file_name)
            content = decode_snapshot(self._files.read_file(path), name=path)
            self._names_voters = content.voters is not None
            for record in content.records:
                update.replay(record)
        segments = sorted(
            parsed[0] for parsed in map(parse_offset_file_name, names) if parsed is not None and parsed[1] == LOG
        )
        if segments and segments[0] > offset:
            text = f"the log starts at offset {segments[0]}, but no complete snapshot reaches it: startup rejects this"
            self._add(Severity.ERROR, "", text, offset=offset)
        for base_offset in segments:
            name = f"{base_offset:020d}{LOG}"
            file = self._files.open(join(self._directory, name), read_only=True)
            try:
                for item in inspect_batches(file, file.size(), base_offset, lambda _bytes: None):
                    if isinstance(item, Damage):
                        break
                    position, batch = item
                    self._last_epoch = max(self._last_epoch, batch.partition_leader_epoch)
                    if batch.base_offset >= offset and self._replay_batch(name, position, batch, update, transactions):
                        offset, epoch = batch.next_offset, batch.partition_leader_epoch
            finally:
                file.close()
        self._contents.image, _ = update.finish(offset=offset - 1, epoch=epoch, timestamp_ms=-1)

    def _replay_batch(
        self, name: str, position: int, batch: RecordBatch, update: MetadataUpdate, transactions: TransactionFilter
    ) -> bool:
        try:
            decoded = decode_batch(batch, what="it")
            self._names_voters = self._names_voters or any(isinstance(r, VotersRecord) for r in decoded.control)
            for record in transactions.feed(decoded.records):
                update.replay(record)
        except MetadataLogError as error:
            self._add(Severity.ERROR, name, str(error), position=position, offset=batch.base_offset)
            return False
        return True

    def _inspect_quorum_state(self, names: list[str]) -> None:
        name = QUORUM_STATE_FILE
        if name not in names:
            if self._last_epoch >= 0:
                self._add(Severity.WARNING, name, "is missing, so the votes of this node are unknown")
            return
        data = self._files.read_file(join(self._directory, name))
        try:
            state = decode_quorum_state(data)
        except QuorumStateError as error:
            self._add(Severity.ERROR, name, f"{error}. A controller does not start with it")
            return
        if not self._names_voters and json.loads(data)["data_version"] > 0 and self._is_voter(state.leader_id):
            text = "is of a quorum whose voters are in the log, and neither the log nor a snapshot names any"
            self._add(Severity.ERROR, name, text)
        if state.leader_epoch < self._last_epoch:
            text = f"has epoch {state.leader_epoch}, but the log has epoch {self._last_epoch}"
            self._add(Severity.WARNING, name, text)
        elif state.leader_epoch > self._last_epoch >= 0:
            text = f"has epoch {state.leader_epoch}, the log {self._last_epoch}: an election was interrupted"
            self._add(Severity.NOTE, name, text)
        if state.voted_id == NO_NODE:
            vote_is_known = state.voted_directory_id == ZERO_UUID
        else:
            vote_is_known = self._directory_id is None or state.voted_directory_id in (ZERO_UUID, self._directory_id)
        nodes = set(self._contents.image.controllers) if self._contents.image is not None else set()
        if not vote_is_known or (
            nodes and any(node not in nodes and node != NO_NODE for node in (state.leader_id, state.voted_id))
        ):
            text = f"has leader {state.leader_id} and a vote for {state.voted_id}, which do not match the log"
            self._add(Severity.WARNING, name, text)

    def _is_voter(self, leader_id: int) -> bool:
        """Whether this node votes. A broker that copies the log of static voters (`controller.quorum.voters`) does not:
        their ids are not in the log, and it does not need them."""
        path = join(self._log_directory, META_PROPERTIES)
        if not self._files.exists(path):
            return True
        node_id = decode_properties(self._files.read_file(path)).get("node.id", "")
        controllers = self._contents.image.controllers if self._contents.image is not None else {}
        return int(node_id) in (leader_id, *controllers) if node_id.isdecimal() else True


def _order_problem(data: bytes, epoch: int | None) -> str | None:
    """Check what the CRCs do not cover: consecutive offsets from 0, one epoch, no bytes after the last batch."""
    offset = position = 0
    for batch in iter_batches(data):
        if batch.base_offset != offset:
            return f"found offset {batch.base_offset}, expected {offset}"
        if epoch is not None and batch.partition_leader_epoch != epoch:
            return f"the epoch is {batch.partition_leader_epoch}, and that of its name {epoch}"
        epoch = batch.partition_leader_epoch
        offset = batch.next_offset
        position += batch.size
    return None if position == len(data) else f"{len(data) - position} bytes follow its last batch"
