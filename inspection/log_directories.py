"""The offline check of log directories: their own files, the metadata log in one of them, and every partition.

The metadata log contains the expected partitions, their topic ids, and which topics are compacted. If the given paths
do not include it, the check searches for it next to them; without it, these facts are unknown.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ..config.integers import bounded_integer
from ..log.checkpoints import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARK_CHECKPOINT,
    LOCK,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    TopicPartition,
)
from ..log.files import FileSystem, LockHeldError, join
from ..log.manager import NO_DIRECTORY
from ..log.names import (
    LEADER_EPOCH_CHECKPOINT,
    LOG,
    METADATA_TOPIC,
    PARTITION_METADATA,
    parse_offset_file_name,
    parse_partition_directory_name,
    partition_directory_name,
)
from ..log.partition_directory import inspect_partition_directory
from ..metadata.image import BROKER_RESOURCE, MetadataImage
from ..metadata.metadata_log import DIRECTORY as METADATA_DIRECTORY
from ..protocol.uuid import ONE_UUID
from .directory import (
    CLEANER_CHECKPOINT,
    DirectoryContents,
    inspect_log_directory,
)
from .finding import Finding, Kind, Remedy, Severity
from .metadata import inspect_metadata, is_metadata_file
from .partition import Known, PartitionInspection, Totals

_PARTITION_FILES = (LOG, ".index", ".timeindex", ".txnindex", ".snapshot", PARTITION_METADATA)


class CannotInspectError(Exception):
    """The given paths cannot be checked; the message contains the reason."""


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """The facts about a partition that a repair needs."""

    clean: bool | None
    topic_id: bytes | None
    """From the metadata log."""
    log_start_offset: int | None
    """From the checkpoint."""
    first_offset: int
    log_end_offset: int
    whole: bool
    """No batch is missing or damaged."""
    gaps_only: bool
    """No batch is damaged, but some are missing, or may be."""


@dataclass(slots=True)
class InspectionReport:
    """The findings in order, and the amount of data that was checked."""

    findings: list[Finding] = field(default_factory=list)
    totals: Totals = field(default_factory=Totals)
    partitions: dict[str, PartitionFacts] = field(default_factory=dict)
    """The partitions by directory."""
    directories: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def is_clean(self) -> bool:
        """Whether there are no findings except notes."""
        return all(finding.severity is Severity.NOTE for finding in self.findings)

    def count(self, severity: Severity) -> int:
        """The number of findings with this severity."""
        return sum(finding.severity is severity for finding in self.findings)


@dataclass(slots=True)
class _Target:
    """A log directory, and the part of it to check: everything, one partition, or one file of one partition."""

    directory: str
    partition: str | None = None
    file: str | None = None


Watcher = Callable[[int, int, str], None]
"""Progress callback: bytes checked, bytes in total, partition."""


def log_directories(file_system: FileSystem, paths: Sequence[str]) -> list[str]:
    """The log directories that contain the paths, each once. Raises `CannotInspectError`."""
    found = [_target(file_system, path).directory for path in paths]
    return list(dict.fromkeys(found))


def inspect(
    file_system: FileSystem,
    paths: Sequence[str],
    *,
    deep: bool = False,
    watcher: Watcher | None = None,
    is_locked: bool = False,
) -> InspectionReport:
    """Check log directories, partitions' directories or single files.

    `deep` decodes every record. `is_locked`: the caller holds the directories' locks. Raises
    `CannotInspectError` for a path that is not in a log directory, cannot be read, or is in use.
    """
    targets = [_target(file_system, path) for path in paths]
    with contextlib.ExitStack() as stack:
        for directory in dict.fromkeys(target.directory for target in targets if not is_locked):
            stack.enter_context(_shared_lock(file_system, directory))
        try:
            return _Inspection(file_system, targets, deep, watcher).run()
        except OSError as error:
            raise CannotInspectError(f"cannot read {error.filename}: {error.strerror or error}") from error


def _target(file_system: FileSystem, path: str) -> _Target:
    path = os.path.normpath(path)
    try:
        files, directories = file_system.list_directory(path)
    except NotADirectoryError:
        folder, name = os.path.split(os.path.abspath(path))
        in_partition = parse_partition_directory_name(os.path.basename(folder)) is not None
        if not _is_of_a_partition(name) and not (in_partition and name.endswith(_PARTITION_FILES)):
            raise CannotInspectError(f"{path} is not a file of a partition; give its log directory") from None
        return _Target(os.path.dirname(folder), os.path.basename(folder), join(folder, name))
    except OSError as error:
        raise CannotInspectError(f"cannot read {path}: {error.strerror or error}") from error
    if any(map(_is_of_a_partition, files)) and META_PROPERTIES not in files:
        folder = os.path.abspath(path)
        return _Target(os.path.dirname(folder), os.path.basename(folder))
    if META_PROPERTIES in files or any(parse_partition_directory_name(name) for name in directories):
        return _Target(path)
    if parse_partition_directory_name(os.path.basename(os.path.abspath(path))) is not None:
        folder = os.path.abspath(path)
        return _Target(os.path.dirname(folder), os.path.basename(folder))
    raise CannotInspectError(f"{path} is not a log directory: it has neither {META_PROPERTIES} nor partitions")


def _is_of_a_partition(name: str) -> bool:
    """Regardless of the name of its folder: many programs have files that end in .log."""
    return parse_offset_file_name(name) is not None or name in (PARTITION_METADATA, LEADER_EPOCH_CHECKPOINT)


@contextlib.contextmanager
def _shared_lock(file_system: FileSystem, directory: str) -> Iterator[None]:
    """Exclude servers during the check. A directory without a lock file, or with an unreadable one, is not locked."""
    lock = None
    try:
        lock = file_system.lock(join(directory, LOCK), shared=True)
    except LockHeldError:
        raise CannotInspectError(f"{directory} is in use by a running server. Stop the server first.") from None
    except OSError:
        lock = None
    try:
        yield
    finally:
        if lock is not None:
            lock.release()


class _Inspection:
    """One check, and its state so far."""

    def __init__(
        self, file_system: FileSystem, targets: Sequence[_Target], deep: bool, watcher: Watcher | None
    ) -> None:
        self._files = file_system
        self._targets = targets
        self._deep = deep
        self._watcher = watcher
        self._report = InspectionReport()
        self._seen = 0
        self._total = 0
        self._image: MetadataImage | None = None
        self._image_is_whole = False
        self._contents: dict[str, DirectoryContents] = {}

    def run(self) -> InspectionReport:
        report = self._report
        whole = [target.directory for target in self._targets if target.partition is None]
        for target in self._targets:
            if target.directory not in self._contents:
                self._contents[target.directory] = inspect_log_directory(self._files, target.directory)
        report.directories = list(self._contents)
        self._read_metadata(whole)
        for directory in self._contents:
            self._skip_foreign(directory)
        for directory in whole:
            report.findings += self._contents[directory].findings
        self._inspect_ownership(whole)
        wanted = [found for target in self._targets for found in self._partitions(target)]
        self._total = sum(self._size(path) for path, _key, _contents, _file in wanted)
        for path, key, contents, file in wanted:
            found = self._inspect_partition(path, key, contents)
            report.findings += [finding for finding in found if file is None or _concerns(finding, file)]
        if whole:
            self._inspect_missing(whole)
        return report

    def _add(self, severity: Severity, kind: Kind, path: str, text: str, remedy: Remedy | None = None) -> None:
        self._report.findings.append(Finding(severity, kind, path, text, remedy=remedy))

    # The metadata log

    def _read_metadata(self, whole: list[str]) -> None:
        for directory, contents in self._contents.items():
            if not self._files.exists(join(directory, METADATA_DIRECTORY)):
                continue
            found = inspect_metadata(self._files, directory, contents.directory_id)
            self._image = found.image
            self._image_is_whole = not any(finding.severity is Severity.ERROR for finding in found.findings)
            if directory in whole:
                self._report.findings += found.findings
            return
        for directory in whole:
            text = "the metadata log is missing, so the expected partitions and the compacted topics are unknown"
            self._add(Severity.NOTE, Kind.METADATA, directory, text)

    def _skip_foreign(self, directory: str) -> None:
        """A directory that only has a partition's name: startup uses the metadata and the contents to decide."""
        contents = self._contents[directory]
        for key, name in list(contents.partitions.items()):
            if key == (METADATA_TOPIC, 0):
                continue
            found = inspect_partition_directory(self._files, join(directory, name))
            assigned_here = self._is_assigned_here(key, contents)
            # Without metadata, every directory with any file of a partition is checked.
            if found.is_partition or (found.has_partition_files and (assigned_here or not self._image_is_whole)):
                continue
            if assigned_here and found.foreign is None:
                continue  # empty: startup creates the log in it
            del contents.partitions[key]
            path = join(directory, name)
            if assigned_here:
                text = (
                    f"blocks the partition: {found.problem}. Startup does not change it, and the partition is offline"
                )
                contents.findings.append(Finding(Severity.ERROR, Kind.UNKNOWN, path, text))
                continue
            text = f"has a partition's name, but is not a known partition: {found.problem}. Startup does not change it"
            contents.findings.append(Finding(Severity.NOTE, Kind.UNKNOWN, path, text))

    def _is_assigned_here(self, key: TopicPartition, contents: DirectoryContents) -> bool:
        """The expected partitions according to the metadata, if known."""
        if self._image is None or not self._image_is_whole:
            return False
        node_id = self._node(contents)
        registration = self._image.partition(*key)
        if registration is None or node_id not in registration.replicas:
            return False
        directory_id = registration.directory(node_id)
        unknown = directory_id in NO_DIRECTORY or contents.directory_id is None
        return unknown or directory_id == contents.directory_id

    def _node(self, contents: DirectoryContents) -> int:
        node_id = bounded_integer(contents.node_id or "", 2**31 - 1)
        return -1 if node_id is None else node_id

    def _inspect_ownership(self, whole: list[str]) -> None:
        """Whether the directories belong together, and to the metadata log."""
        known = [self._contents[directory] for directory in whole]
        for name, values in (
            ("cluster.id", {contents.cluster_id for contents in known if contents.cluster_id}),
            ("node.id", {contents.node_id for contents in known if contents.node_id}),
        ):
            if len(values) > 1:
                text = f"the directories have different {name}s: {', '.join(sorted(values))}. Startup rejects them"
                self._add(Severity.ERROR, Kind.PROPERTIES, known[-1].path, text)
        ids = [contents.directory_id for contents in known if contents.directory_id]
        if len(set(ids)) != len(ids):
            text = "two directories have the same directory.id: one is a copy of the other. Startup rejects them"
            self._add(Severity.ERROR, Kind.PROPERTIES, known[-1].path, text)
        places: dict[TopicPartition, str] = {}
        for contents in known:
            for key, name in contents.partitions.items():
                path = join(contents.path, name)
                if key in places and key[0] != METADATA_TOPIC:
                    text = f"is also in {places[key]}. Startup rejects this; remove the outdated copy"
                    self._add(Severity.ERROR, Kind.TOPIC, path, text)
                places[key] = path
        if self._image is not None and self._image_is_whole and self._image.brokers:
            for contents in known:
                self._inspect_registration(contents, self._image)

    def _inspect_registration(self, contents: DirectoryContents, image: MetadataImage) -> None:
        path = join(contents.path, META_PROPERTIES)
        broker = image.brokers.get(self._node(contents))
        if broker is None:
            if contents.node_id is not None:
                nodes = ", ".join(map(str, sorted(image.brokers)))
                text = f"has node.id={contents.node_id}, but the metadata log has {nodes}; is it another cluster's?"
                self._add(Severity.ERROR, Kind.PROPERTIES, path, text)
            return
        if contents.directory_id is not None and broker.directories and contents.directory_id not in broker.directories:
            holds_metadata = (METADATA_TOPIC, 0) in contents.partitions
            text = "its directory.id is not registered for this node: " + (
                "startup rejects the metadata log" if holds_metadata else "it is new, or of another cluster"
            )
            self._add(Severity.ERROR if holds_metadata else Severity.WARNING, Kind.PROPERTIES, path, text)
        if contents.clean and contents.broker_epoch not in (-1, broker.epoch):
            text = f"has broker epoch {contents.broker_epoch}, the metadata log {broker.epoch}"
            self._add(Severity.NOTE, Kind.CHECKPOINT, join(contents.path, CLEAN_SHUTDOWN), text)

    # Partitions

    def _partitions(self, target: _Target) -> Iterator[tuple[str, TopicPartition, DirectoryContents, str | None]]:
        contents = self._contents[target.directory]
        if target.partition is not None:
            parsed = parse_partition_directory_name(target.partition)
            key = parsed[:2] if parsed is not None else (target.partition, -1)
            yield join(target.directory, target.partition), key, contents, target.file
            return
        for key, name in contents.partitions.items():
            yield join(target.directory, name), key, contents, None

    def _size(self, path: str) -> int:
        names, _ = self._files.list_directory(path)
        return sum(self._files.size(join(path, name)) for name in names if name.endswith(LOG))

    def _inspect_partition(self, path: str, key: TopicPartition, contents: DirectoryContents) -> list[Finding]:
        topic, partition = key
        name = f"{topic}-{partition}"

        def progress(count: int) -> None:
            self._seen += count
            if self._watcher is not None:
                self._watcher(self._seen, self._total, name)

        known = self._known(key, contents)
        inspection = PartitionInspection(
            self._files,
            path,
            name,
            known,
            deep=self._deep,
            totals=self._report.totals,
            progress=progress,
            is_own_file=is_metadata_file if topic == METADATA_TOPIC else lambda _name: False,
        )
        found = inspection.run()
        self._report.partitions[path] = PartitionFacts(
            clean=known.clean,
            topic_id=known.topic_id,
            log_start_offset=known.log_start_offset,
            first_offset=inspection.first_offset,
            log_end_offset=inspection.log_end_offset,
            whole=inspection.whole,
            gaps_only=not inspection.damaged,
        )
        if topic == METADATA_TOPIC:
            # Truncating it would turn partitions into strays: an administrator must decide that.
            unsafe = (Remedy.TRUNCATE, Remedy.BATCH_EPOCH)
            return [replace(finding, remedy=None) if finding.remedy in unsafe else finding for finding in found]
        registration = self._image.partition(topic, partition) if self._image is not None else None
        if self._image is not None and self._image_is_whole:
            if registration is None:
                text = "the metadata log does not contain this partition: startup sets the directory aside as a stray"
                found.append(Finding(Severity.WARNING, Kind.TOPIC, path, text, name))
            elif self._node(contents) not in registration.replicas:
                text = f"node {contents.node_id} has no replica of it: startup sets the directory aside as a stray"
                found.append(Finding(Severity.WARNING, Kind.TOPIC, path, text, name))
        for checkpoint in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT) if contents.clean else ():
            offsets = contents.checkpoints.get(checkpoint)
            if inspection.log_end_offset and offsets is not None and key not in offsets:
                text = f"is not in {checkpoint} after a clean shutdown"
                found.append(Finding(Severity.WARNING, Kind.CHECKPOINT, path, text, name, remedy=Remedy.CHECKPOINT))
        return found

    def _known(self, key: TopicPartition, contents: DirectoryContents) -> Known:
        topic, partition = key
        # Outside of a log directory, it is unknown how the last shutdown of a partition was.
        clean = contents.clean if contents.clean or contents.node_id is not None else None
        if topic == METADATA_TOPIC:
            return Known(clean=clean, compacted=False, topic_id=ONE_UUID)
        registration = self._image.partition(topic, partition) if self._image is not None else None
        if registration is None or self._image is None:
            compacted = leader_epoch = topic_id = None
        else:
            compacted = "compact" in _cleanup_policy(self._image, topic, self._node(contents))
            leader_epoch = registration.leader_epoch if self._image_is_whole else None
            topic_id = self._image.topics_by_name[topic].topic_id
        return Known(
            clean=clean,
            compacted=compacted,
            recovery_point=contents.offset(RECOVERY_POINT_CHECKPOINT, key),
            log_start_offset=contents.offset(LOG_START_OFFSET_CHECKPOINT, key),
            high_watermark=None if self._is_older(key, contents) else contents.offset(HIGH_WATERMARK_CHECKPOINT, key),
            topic_id=topic_id,
            leader_epoch=leader_epoch,
        )

    def _is_older(self, key: TopicPartition, contents: DirectoryContents) -> bool:
        """Whether a killed server had not written its high watermarks since the partition was created: then the
        checkpoint belongs to a deleted partition of the same name."""
        if contents.clean:
            return False
        made = join(join(contents.path, partition_directory_name(*key)), PARTITION_METADATA)
        checkpoint = join(contents.path, HIGH_WATERMARK_CHECKPOINT)
        try:
            return self._files.modified_ms(made) > self._files.modified_ms(checkpoint)
        except OSError:
            return False

    def _inspect_missing(self, whole: list[str]) -> None:
        """Report partitions that are in the metadata or a checkpoint and missing."""
        known = [self._contents[directory] for directory in whole]
        for contents in known:
            for checkpoint in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, CLEANER_CHECKPOINT):
                named = contents.checkpoints.get(checkpoint, {})
                gone = sorted(f"{topic}-{partition}" for topic, partition in set(named) - set(contents.partitions))
                if gone:
                    text = f"contains partitions that are missing: {_some(gone)}"
                    self._add(Severity.NOTE, Kind.CHECKPOINT, join(contents.path, checkpoint), text)
        image = self._image
        if image is None or not self._image_is_whole:
            return
        here = {key for contents in known for key in contents.partitions}
        ids = {contents.directory_id for contents in known}
        node = self._node(known[0])
        broker = image.brokers.get(node)
        all_are_local = broker is not None and set(broker.directories) <= ids
        missing = [
            f"{topic.name}-{number}"
            for topic in image.topics_by_name.values()
            for number, registration in topic.partitions.items()
            if (topic.name, number) not in here
            and node in registration.replicas
            and (all_are_local or registration.directory(node) in ids)
        ]
        for name in missing:
            text = "the directory of this partition is missing, although assigned here: startup creates an empty one"
            finding = Finding(Severity.ERROR, Kind.TOPIC, join(known[0].path, name), text, name)
            self._report.findings.append(finding)


def _cleanup_policy(image: MetadataImage, topic: str, node_id: int) -> str:
    name, default = "cleanup.policy", "log.cleanup.policy"
    for configs in (
        image.topic_configs(topic).get(name),
        image.config(BROKER_RESOURCE, str(node_id)).get(default),
        image.config(BROKER_RESOURCE, "").get(default),
    ):
        if configs is not None:
            return configs
    return "delete"


def _concerns(finding: Finding, file: str) -> bool:
    """Whether a finding is about this file, or about another one of the same segment."""
    folder, name = os.path.split(finding.path)
    wanted_folder, wanted = os.path.split(file)
    return folder == wanted_folder and name.partition(".")[0] == wanted.partition(".")[0]


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
