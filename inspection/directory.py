"""A log directory's own files: owner, clean shutdown marker, checkpoints."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from ..log.checkpoints import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARK_CHECKPOINT,
    LOCK,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    CorruptCheckpointError,
    TopicPartition,
    decode_offsets,
    decode_properties,
    encode_clean_shutdown,
    encode_offsets,
)
from ..log.files import FileSystem, join
from ..log.names import (
    DELETE_DIRECTORY,
    FUTURE_DIRECTORY,
    STRAY_DIRECTORY,
    TEMPORARY,
    parse_partition_directory_name,
)
from ..log.partition_directory import inspect_partition_directory
from ..protocol.uuid import uuid_from_str, uuid_to_str
from .finding import Finding, Kind, Remedy, Severity

CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"
REPORT_PREFIX = "moldau-repair-"
OFFSET_CHECKPOINTS = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    CLEANER_CHECKPOINT,
)
_OWN_FILES = frozenset({*OFFSET_CHECKPOINTS, META_PROPERTIES, CLEAN_SHUTDOWN, LOCK, BOOTSTRAP_CHECKPOINT})
_VERSION = "1"


@dataclass(slots=True)
class DirectoryContents:
    """The contents of a log directory's own files."""

    path: str
    clean: bool = False
    broker_epoch: int = -1
    """The epoch of the broker that shut down cleanly; -1 if unknown."""
    node_id: str | None = None
    cluster_id: str | None = None
    directory_id: bytes | None = None
    checkpoints: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    """Checkpoints by file name; empty if missing or damaged."""
    partitions: dict[TopicPartition, str] = field(default_factory=dict)
    """Names of the partition directories."""
    findings: list[Finding] = field(default_factory=list)

    def offset(self, checkpoint: str, partition: TopicPartition) -> int | None:
        """A partition's offset in a checkpoint."""
        return self.checkpoints.get(checkpoint, {}).get(partition)


def inspect_log_directory(file_system: FileSystem, path: str) -> DirectoryContents:
    """Read the directory's own files. Raises OSError."""
    return _DirectoryInspection(file_system, path).run()


class _DirectoryInspection:
    def __init__(self, file_system: FileSystem, path: str) -> None:
        self._files = file_system
        self._path = path
        self._contents = DirectoryContents(path)

    def run(self) -> DirectoryContents:
        names, directories = self._files.list_directory(self._path)
        self._inspect_properties(names)
        self._inspect_clean_mark(names)
        for name in OFFSET_CHECKPOINTS:
            if name in names:
                self._inspect_checkpoint(name)
            elif self._contents.clean and name != CLEANER_CHECKPOINT:
                text = "is missing after a clean shutdown"
                self._add(Severity.WARNING, Kind.CHECKPOINT, name, text, Remedy.CHECKPOINT)
        for name in sorted(directories):
            self._inspect_folder(name)
        for name in sorted(names):
            self._inspect_file(name)
        if not self._contents.clean and self._contents.partitions:
            text = (
                "the last shutdown was not clean: startup recovers the segments past the recovery points and "
                "rebuilds their indexes, so those are not checked"
            )
            self._add(Severity.NOTE, Kind.UNCLEAN, "", text)
        return self._contents

    def _add(self, severity: Severity, kind: Kind, name: str, text: str, remedy: Remedy | None = None) -> None:
        path = join(self._path, name) if name else self._path
        self._contents.findings.append(Finding(severity, kind, path, text, remedy=remedy))

    def _inspect_properties(self, names: list[str]) -> None:
        contents = self._contents
        if META_PROPERTIES not in names:
            text = "is missing, so the owner is unknown; startup would treat the directory as new"
            self._add(Severity.ERROR, Kind.PROPERTIES, META_PROPERTIES, text)
            return
        properties = decode_properties(self._files.read_file(join(self._path, META_PROPERTIES)))
        contents.cluster_id = properties.get("cluster.id")
        contents.node_id = properties.get("node.id")
        problems = []
        if properties.get("version") != _VERSION:
            problems.append(f"unsupported version {properties.get('version')}; only version 1 is supported")
        problems += [
            f"{key} is missing" for key in ("cluster.id", "node.id", "directory.id") if not properties.get(key)
        ]
        unknown = sorted(set(properties) - {"version", "cluster.id", "node.id", "directory.id"})
        if unknown:
            problems.append(f"unknown keys {', '.join(map(repr, unknown))}")
        if contents.node_id and not contents.node_id.isdigit():
            problems.append(f"node.id {contents.node_id!r} is not a number")
        directory_id = properties.get("directory.id")
        if directory_id:
            try:
                contents.directory_id = uuid_from_str(directory_id)
                if uuid_to_str(contents.directory_id) != directory_id:
                    problems.append("directory.id is not in Kafka's format")
            except ValueError as error:
                problems.append(f"directory.id: {error}")
        for problem in problems:
            self._add(Severity.ERROR, Kind.PROPERTIES, META_PROPERTIES, problem)

    def _inspect_clean_mark(self, names: list[str]) -> None:
        if CLEAN_SHUTDOWN not in names:
            return
        self._contents.clean = True
        data = self._files.read_file(join(self._path, CLEAN_SHUTDOWN))
        try:
            epoch = json.loads(data)["brokerEpoch"]
            known = type(epoch) is int and data == encode_clean_shutdown(epoch)
        except (ValueError, KeyError, TypeError):
            epoch, known = None, False
        if type(epoch) is int:
            self._contents.broker_epoch = epoch
        if not known:
            text = "is not in Kafka's format; startup only checks that the file exists"
            self._add(Severity.NOTE, Kind.CHECKPOINT, CLEAN_SHUTDOWN, text)

    def _inspect_checkpoint(self, name: str) -> None:
        path = join(self._path, name)
        data = self._files.read_file(path)
        try:
            offsets = decode_offsets(data, name)
        except CorruptCheckpointError as error:
            self._add(Severity.WARNING, Kind.CHECKPOINT, name, str(error), Remedy.CHECKPOINT)
            return
        self._contents.checkpoints[name] = offsets
        if data and encode_offsets(offsets) != data:
            text = "is not in Kafka's format, or contains a duplicate partition"
            self._add(Severity.WARNING, Kind.CHECKPOINT, name, text, Remedy.CHECKPOINT)
        if any(offset < 0 for offset in offsets.values()):
            self._add(Severity.WARNING, Kind.CHECKPOINT, name, "has a negative offset", Remedy.CHECKPOINT)

    def _inspect_folder(self, name: str) -> None:
        parsed = parse_partition_directory_name(name)
        target = self._files.link_target(join(self._path, name))
        if target is not None:
            text = (
                f"is a symbolic link to {target}: deleting the topic or moving the partition does not remove the target"
            )
            self._add(Severity.WARNING, Kind.UNKNOWN, name, text)
        if parsed is None:
            self._add(Severity.NOTE, Kind.UNKNOWN, name, "is not a partition directory; it is not used")
            return
        topic, partition, state = parsed
        if not state:
            self._contents.partitions[topic, partition] = name
            return
        foreign = (
            None
            if state == STRAY_DIRECTORY
            else inspect_partition_directory(self._files, join(self._path, name)).foreign
        )
        if foreign is None and (target is None or state == STRAY_DIRECTORY):
            self._add(Severity.NOTE, Kind.LEFTOVER, name, _STATES[state])
        else:
            text = f"contains other files than a partition's: {foreign or 'it is a link'}. Startup does not change it"
            self._add(Severity.NOTE, Kind.UNKNOWN, name, text)

    def _inspect_file(self, name: str) -> None:
        if name in _OWN_FILES or name.startswith(REPORT_PREFIX):
            return
        target = self._files.link_target(join(self._path, name))
        if parse_partition_directory_name(name) is not None:
            if target is not None:
                text = f"is a symbolic link to {target}, which does not exist; check that the disk is mounted"
            else:
                text = "has a partition's name, but is a file"
            self._add(Severity.ERROR, Kind.UNREADABLE, name, text)
        elif _is_own_temporary(name):
            self._add(Severity.NOTE, Kind.LEFTOVER, name, "an incomplete temporary file; it is not used", Remedy.REMOVE)
        else:
            self._add(Severity.NOTE, Kind.UNKNOWN, name, "is not a file of a log directory; it is not used")


def _is_own_temporary(name: str) -> bool:
    """`meta.properties.tmp`, and of checkpoints also `recovery-point-offset-checkpoint.17.tmp`."""
    stem = name.removesuffix(TEMPORARY)
    if stem == name:
        return False
    checkpoint, dot, number = stem.rpartition(".")
    return stem in _OWN_FILES or (dot == "." and checkpoint in OFFSET_CHECKPOINTS and number.isdigit())


_STATES = {
    DELETE_DIRECTORY: "a deleted partition; startup removes it",
    STRAY_DIRECTORY: "a stray partition that was set aside; it is not used and can be removed",
    FUTURE_DIRECTORY: "a partition that is being moved from another log directory",
}
