"""All logs of a broker, in its log directories.

The life of a manager: `open` locks the directories and reads whose they are; `load` opens every partition's log,
recovering those of a directory that was not left cleanly; then `get`, `create` and `delete`, and
`flush_checkpoints` now and then; `close` at the end. The metadata log lies in one of the directories too, but belongs
to the controller, which opens it itself (`loader.load_log`), between `open` and `load`.

A directory whose device fails goes offline with all its partitions; the others go on. A new partition goes to the
directory with the fewest, and stays there until it is moved: `begin_move` - the steps of its `FutureLog` - `swap`.

The swap is two renames, in two directories that may be on two disks. Before it all that was flushed of the log is on
the device in the copy, and the metadata say that the replica is in the target; from then on, and not before, a start
that finds only the copy takes it for the log. First the old directory becomes `-delete`, then the copy gets the log's
name. A start that finds both names (the power failed, and the file systems kept the second alone) goes by the
metadata. No flush of the log may end before both names are on the device.

A log directory may hold directories of its user, and their names may look like a partition's. What the metadata do not
know is set aside (`-stray`) or removed (`-delete`) only if its content is a partition's and nothing else
(`partition_directory`); `load` reports the others, and leaves them where and as they are.

Slow work on files can be taken to a thread, in steps: begin (on the loop) - run (anywhere) - end (on the loop). There
is one for checkpoints here and one for flushing in `Log`. What is to be unlinked is renamed at once and waits in
`take_trash`.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple, Protocol

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.records import UnsupportedMagicError
from ..protocol.uuid import random_uuid, uuid_to_str
from .checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    CorruptCheckpointError,
    TopicPartition,
    encode_offsets,
    encode_partition_metadata,
)
from .config import LogConfig
from .descriptors import DescriptorCache
from .directory import LogDirectory, LogDirectoryError
from .files import FileSystem, RealFileSystem, join
from .flushing import Flush, RunFlushes, failure_of
from .future_log import CopyError, FutureLog
from .loader import load_log
from .names import (
    DELETE_DIRECTORY,
    FUTURE_DIRECTORY,
    METADATA_TOPIC,
    PARTITION_METADATA,
    STRAY_DIRECTORY,
    parse_partition_directory_name,
    partition_directory_name,
    retired_directory_name,
)
from .partition_directory import look_into, remove_partition_directory
from .partition_log import Log

_CLOSED_TOGETHER = 64
"""Logs of a clean stop whose files are open at a time, three each, besides those in the cache."""

NO_DIRECTORY = frozenset(bytes(15) + bytes((number,)) for number in range(100))
"""Ids that stand for no directory: unassigned, lost, of before KIP-858. Kafka keeps the first hundred for itself."""


class NotYetError(KafkaError):
    """A log could not be made for now (KAFKA_STORAGE_ERROR): there is no room, no descriptor, or something is in its
    place. What was begun is gone, or is taken over by the next attempt."""


class InterruptedMove(NamedTuple):
    """A `-future` directory that a start has found beside its log."""

    topic: str
    partition: int
    directory: LogDirectory
    path: str


class UncleanLog(NamedTuple):
    """A log that has to be recovered."""

    path: str
    recovery_point: int
    """By the checkpoint; 0 without one."""


class LoadProgress(Protocol):
    """Who is told how loading goes on."""

    def begin(self, unclean: Mapping[str, Sequence[UncleanLog]]) -> None:
        """These logs will be recovered, by log directory, in this order."""

    def next(self, path: str) -> None:
        """The next log of this directory is loaded now."""


class _Partition(NamedTuple):
    """A partition's directory that is to be loaded."""

    path: str
    topic: str
    partition: int

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition


class _Loading:
    """What is known of a log directory while its partitions are loaded."""

    def __init__(self, directory: LogDirectory) -> None:
        self.directory = directory
        self.recovery_points: dict[TopicPartition, int] = {}
        self.start_offsets: dict[TopicPartition, int] = {}
        self.clean_offsets: dict[TopicPartition, int] = {}
        self.knows_gaps = False
        """Is it known which gaps between offsets compaction may have left?"""
        self.partitions: list[_Partition] = []
        self.futures: list[_Partition] = []


class LoadReport:
    """What `load` found."""

    def __init__(self) -> None:
        self.loaded = 0
        """Partitions that are open now."""
        self.recovered_directories: list[str] = []
        """Directories that were not left cleanly."""
        self.repairs: list[str] = []
        """What was broken and is not any more, one text each; all of it lay past what had been synced."""
        self.strays: list[str] = []
        """Directories of partitions that are not this broker's, set aside under another name."""
        self.failed: list[str] = []
        """Partitions that could not be opened, and why; their files are as they were."""
        self.ignored: list[str] = []
        """Directories that are no partition's."""
        self.foreign: list[str] = []
        """Those of them that have a partition's name, and what is in them."""
        self.links: list[str] = []
        """Partitions' directories that are symbolic links, and where they lead; they are served."""

    def summary(self) -> str:
        """One line for the log."""
        parts = [f"loaded {self.loaded} partitions"]
        if self.recovered_directories:
            parts.append(f"recovered {', '.join(self.recovered_directories)} after an unclean stop")
            parts.append(f"{len(self.repairs)} repairs" if self.repairs else "nothing was broken")
        elif self.repairs:
            parts.append(f"{len(self.repairs)} repairs")
        if self.repairs:
            parts.append("; ".join(self.repairs))
        if self.strays:
            parts.append(f"set aside {len(self.strays)} strays: {', '.join(self.strays)}")
        if self.foreign:
            parts.append(
                f"left alone {len(self.foreign)} directories that have a partition's name and are not Kafka's: "
                f"{'; '.join(self.foreign)}"
            )
        if self.failed:
            parts.append(f"{len(self.failed)} failed: {'; '.join(self.failed)}")
        if self.links:
            parts.append(
                f"{len(self.links)} symbolic links, of which a deletion removes the link alone: {', '.join(self.links)}"
            )
        return ", ".join(parts)


class CheckpointFiles:
    """Checkpoints to be written: `run`, perhaps in a thread, then `LogManager.end_checkpoints`."""

    def __init__(self, file_system: FileSystem, generation: int, number: int) -> None:
        self._file_system = file_system
        self.generation = generation
        self._number = number
        self._contents: list[tuple[LogDirectory, str, bytes]] = []
        self.failures: list[tuple[LogDirectory, OSError]] = []

    def add(self, directory: LogDirectory, name: str, data: bytes) -> None:
        self._contents.append((directory, name, data))

    def _temporary(self, directory: LogDirectory, name: str) -> str:
        # A name of its own for each run, so that a checkpoint written meanwhile is not in the way.
        return join(directory.path, f"{name}.{self._number}.tmp")

    def run(self) -> None:
        """Write them beside the old ones, on the device."""
        for directory, name, data in self._contents:
            try:
                file = self._file_system.open(self._temporary(directory, name), create=True)
                try:
                    file.truncate(0)
                    file.write_at((data,), 0, len(data))
                    file.sync()
                finally:
                    file.close()
            except OSError as error:
                self.failures.append((directory, error))

    def finish(self, *, keep: bool) -> None:
        """Put them in place, or throw them away."""
        failed = {id(directory) for directory, _error in self.failures}
        for directory, name, _data in self._contents:
            temporary = self._temporary(directory, name)
            with contextlib.suppress(OSError):
                if keep and id(directory) not in failed:
                    self._file_system.rename(temporary, join(directory.path, name))
                else:
                    self._file_system.unlink(temporary)


class LogManager:
    """See the module's text."""

    def __init__(
        self,
        directories: Sequence[str],
        *,
        node_id: int,
        cluster_id: str | None = None,
        file_system: FileSystem | None = None,
        max_open_files: int = 512,
    ) -> None:
        """`cluster_id`: None takes the one of the directories, or makes a new one."""
        if len(set(directories)) != len(directories) or not directories:
            raise LogDirectoryError(f"log.dirs must name one directory or more, each once: {', '.join(directories)}")
        self.file_system: FileSystem = file_system if file_system is not None else RealFileSystem()
        self.files = DescriptorCache(self.file_system, max_open_files)
        self.directories = [LogDirectory(self.file_system, path) for path in directories]
        self.node_id = node_id
        self._cluster_id = cluster_id
        self._logs: dict[TopicPartition, Log] = {}
        self._directory_of: dict[TopicPartition, LogDirectory] = {}
        self._unloadable: dict[TopicPartition, str] = {}
        """Partitions that are there and could not be opened, and why."""
        self._trash: list[str] = []
        self._outdated: set[TopicPartition] = set()
        """Partitions that are gone, and that checkpoints on the device may still name."""
        self._generation = 0
        self._checkpoint_number = 0
        self.high_watermarks: dict[TopicPartition, int] = {}
        """As the checkpoints had them when the logs were loaded."""
        self.clean_offsets: dict[TopicPartition, int] = {}
        """Up to where each log was compacted, for those that ever were; whoever compacts them keeps it."""
        self.futures: dict[TopicPartition, FutureLog] = {}
        """The moves between log directories that are under way."""
        self.interrupted_moves: list[InterruptedMove] = []
        """Those that were when the process before ended; whoever moves logs takes them out."""
        self.on_directory_failure: Callable[[LogDirectory, OSError, list[Log]], None] | None = None
        """Told when a directory goes offline, with the logs that went with it."""

    # Opening

    @property
    def cluster_id(self) -> str:
        """Known once `open` has returned."""
        assert self._cluster_id is not None, "the directories are not open"
        return self._cluster_id

    def open(self, before_changing: Callable[[], None] | None = None) -> None:
        """Lock the directories and agree on the cluster. Raises `LogDirectoryError`, and leaves none locked.

        `before_changing` is called when all are locked and read, and nothing is written yet; what it raises goes on.

        A directory that fails is offline from the start, and `load` reports it, unless it is the last.
        """
        try:
            for directory in self.directories:
                self._try(directory, lambda directory: directory.open(self.node_id))
            known = {directory.cluster_id for directory in self.directories if directory.cluster_id is not None}
            cluster_id = self._cluster_id or (min(known) if known else uuid_to_str(random_uuid()))
            self._cluster_id = cluster_id
            for directory in self.directories:  # before any of them is changed
                directory.check_cluster(cluster_id)
            if before_changing is not None:
                before_changing()
            for directory in self.online_directories():
                self._try(directory, lambda directory: directory.adopt(cluster_id, self.node_id))
            if not self.online_directories():
                raise LogDirectoryError("; ".join(directory.failure or "" for directory in self.directories))
            ids = [directory.directory_id for directory in self.online_directories()]
            if len(set(ids)) != len(ids):
                raise LogDirectoryError("two log directories have the same directory.id: one is a copy of the other")
        except BaseException:
            for directory in self.directories:
                directory.release()
            raise

    @staticmethod
    def _try(directory: LogDirectory, step: Callable[[LogDirectory], None]) -> None:
        """One of several disks may be broken at the start already: then the others go on without it."""
        try:
            step(directory)
        except OSError as error:
            directory.online = False
            directory.failure = _why_unusable(directory.path, error)

    def load(
        self,
        *,
        now_ms: int,
        config_of: Callable[[str], LogConfig],
        is_stray: Callable[[str, int, bytes | None], bool] | None = None,
        directory_id_of: Callable[[str, int], bytes | None] = lambda topic, partition: None,
        compacted_anywhere: bool = False,
        progress: LoadProgress | None = None,
    ) -> LoadReport:
        """Open every partition's log.

        `config_of` gives a topic's configuration. `is_stray` says of a (topic, partition, topic id, None if unknown)
        that it is not this broker's: its directory is renamed to `...-stray`, and left to people. `directory_id_of`
        says in which directory a replica is, by the metadata; it decides where a move was interrupted.
        `compacted_anywhere`: the logs were compacted by a broker that does not write down first how far. A gap in a
        compacted one is then never taken for a loss; and what is found is flushed, and remembered, before `load` ends.
        """
        report = LoadReport()
        report.failed += [directory.failure for directory in self.directories if directory.failure is not None]
        loadings = []
        for directory in self.online_directories():
            try:
                loadings.append(self._begin_loading(directory, compacted_anywhere, report))
            except OSError as error:
                self._could_not_load(directory, error, report)
        if is_stray is not None:
            for loading in loadings:
                try:
                    self._set_strays_aside(loading, is_stray, report)
                except OSError as error:
                    self._could_not_load(loading.directory, error, report)
        self._settle_doubles(loadings, directory_id_of, report)
        if progress is not None:
            progress.begin(
                {
                    loading.directory.path: [
                        UncleanLog(found.path, loading.recovery_points.get(found.key, 0))
                        for found in loading.partitions
                    ]
                    for loading in loadings
                    if not loading.directory.was_clean
                }
            )
        # In turn from each directory: they may be on different disks.
        for row in zip_longest(*(loading.partitions for loading in loadings)):
            for loading, found in zip(loadings, row, strict=True):
                if found is not None and loading.directory.online:
                    if progress is not None:
                        progress.next(loading.directory.path)
                    try:
                        self._load_partition(loading, found, now_ms, config_of, is_stray, report)
                    except OSError as error:
                        self._could_not_load(loading.directory, error, report)
        for loading in loadings:
            if loading.directory.online:
                try:
                    self._load_futures(loading, now_ms, config_of, is_stray, directory_id_of, report)
                    self._end_loading(loading, report)
                except OSError as error:
                    self._could_not_load(loading.directory, error, report)
        report.loaded = len(self._logs)
        if compacted_anywhere and report.recovered_directories:
            for log in self.logs():
                try:
                    if log.config.compacted:
                        log.flush(now_ms)
                except KafkaError as error:
                    report.failed.append(f"{log.directory}: {error}")
            self.flush_checkpoints()
        return report

    def _could_not_load(self, directory: LogDirectory, error: OSError, report: LoadReport) -> None:
        report.failed.append(f"{directory.path}: {error.strerror or error}")
        self.directory_failed(directory, error)

    def _begin_loading(self, directory: LogDirectory, compacted_anywhere: bool, report: LoadReport) -> _Loading:
        """Read the checkpoints, and see which partitions there are."""
        loading = _Loading(directory)
        directory.begin_loading()
        loading.recovery_points, problem = directory.read_offsets(RECOVERY_POINT_CHECKPOINT)
        loading.start_offsets, second = directory.read_offsets(LOG_START_OFFSET_CHECKPOINT)
        high_watermarks, third = directory.read_offsets(HIGH_WATERMARK_CHECKPOINT)
        loading.clean_offsets, fourth = directory.read_offsets(CLEANER_OFFSET_CHECKPOINT)
        report.repairs += [text for text in (problem, second, third, fourth) if text is not None]
        # Before a pass puts anything in place the checkpoint is written. Where it is lost, a gap may be compaction's.
        if problem is None and directory.has_checkpoint(RECOVERY_POINT_CHECKPOINT):
            loading.knows_gaps = not compacted_anywhere
        self.high_watermarks.update(high_watermarks)
        self._outdated.update(loading.recovery_points, loading.start_offsets, loading.clean_offsets)
        files, names = self.file_system.list_directory(directory.path)
        for name in sorted(files):
            self._refuse_file(join(directory.path, name), name, report)
        for name in sorted(names):
            parsed = parse_partition_directory_name(name)
            path = join(directory.path, name)
            if parsed is None:
                report.ignored.append(path)
                continue
            topic, partition, state = parsed
            if topic == METADATA_TOPIC:
                continue
            found = _Partition(path, topic, partition)
            if state == STRAY_DIRECTORY:
                report.ignored.append(path)
            elif not state:
                loading.partitions.append(found)
            elif not self._leave_foreign(path, report):
                if state == DELETE_DIRECTORY:
                    self._trash.append(path)
                else:
                    loading.futures.append(found)
        return loading

    def _leave_foreign(self, path: str, report: LoadReport) -> bool:
        """Whether a directory to be removed or moved holds anything that is not a partition's. Then it is left."""
        target = self.file_system.link_target(path)
        foreign = look_into(self.file_system, path).foreign if target is None else f"it is a symbolic link to {target}"
        if foreign is not None:
            report.foreign.append(f"{path} ({foreign})")
        return foreign is not None

    def _set_strays_aside(
        self, loading: _Loading, is_stray: Callable[[str, int, bytes | None], bool], report: LoadReport
    ) -> None:
        """What the metadata do not know by its name is not opened."""
        kept = []
        for found in loading.partitions:
            if is_stray(found.topic, found.partition, None):
                self._set_aside(found, loading.directory, report)
            else:
                kept.append(found)
        loading.partitions = kept

    def _set_aside(self, found: _Partition, directory: LogDirectory, report: LoadReport) -> bool:
        """Rename a stray, or leave what is not a partition's directory; whether it was renamed."""
        contents = look_into(self.file_system, found.path)
        if not contents.is_partition:
            report.foreign.append(f"{found.path} ({contents.why_not})")
            return False
        report.strays.append(self._rename(found.path, found.key, directory, STRAY_DIRECTORY))
        return True

    def _settle_doubles(
        self, loadings: list[_Loading], directory_id_of: Callable[[str, int], bytes | None], report: LoadReport
    ) -> None:
        """A partition in two directories: the metadata say which one is right, if it is one of them."""
        places: dict[TopicPartition, list[tuple[_Loading, _Partition]]] = {}
        for loading in loadings:
            for found in loading.partitions:
                places.setdefault(found.key, []).append((loading, found))
        for key, there in places.items():
            if len(there) == 1:
                continue
            directory_id = directory_id_of(*key)
            there = self._leave_foreign_of(there, report)
            if len(there) < 2:
                continue
            if all(loading.directory.directory_id != directory_id for loading, _found in there):
                raise LogDirectoryError(
                    f"{key[0]}-{key[1]} is both in {there[1][1].path} and in {there[0][1].path}. "
                    f"Remove the copy that is out of date."
                )
            for loading, found in there:
                if loading.directory.directory_id != directory_id:
                    loading.partitions.remove(found)
                    self._set_aside(found, loading.directory, report)

    def _leave_foreign_of(
        self, there: list[tuple[_Loading, _Partition]], report: LoadReport
    ) -> list[tuple[_Loading, _Partition]]:
        """Those of several directories that may be the partition: not one with other files, and none of a partition."""
        kept = []
        for loading, found in there:
            contents = look_into(self.file_system, found.path)
            if contents.foreign is None or contents.has_partition_files:
                kept.append((loading, found))
            else:
                loading.partitions.remove(found)
                report.foreign.append(f"{found.path} ({contents.foreign})")
        return kept

    def _load_partition(
        self,
        loading: _Loading,
        found: _Partition,
        now_ms: int,
        config_of: Callable[[str], LogConfig],
        is_stray: Callable[[str, int, bytes | None], bool] | None,
        report: LoadReport,
    ) -> None:
        path, topic, partition = found
        key, directory = found.key, loading.directory
        target = self.file_system.link_target(path)
        if target is not None:
            report.links.append(f"{path} to {target}")
        try:
            log = load_log(
                self.files,
                path,
                topic,
                partition,
                config_of(topic),
                clean=directory.was_clean,
                now_ms=now_ms,
                recovery_point=loading.recovery_points.get(key, 0),
                log_start_offset=loading.start_offsets.get(key, 0),
                compacted_until=loading.clean_offsets.get(key, 0) if loading.knows_gaps else None,
            )
        except (CorruptCheckpointError, UnsupportedMagicError) as error:
            report.failed.append(f"{path}: {error}")
            self._unloadable[key] = str(error)
            return
        if log.topic_id is None:
            contents = look_into(self.file_system, path)
            if contents.foreign is not None and not contents.has_partition_files:
                log.abandon()
                self._unloadable[key] = f"{_in_the_way(path, contents.foreign)}, and start again"
                report.failed.append(self._unloadable[key])
                return
        self._trash += log.trash
        report.repairs += log.repairs
        if is_stray is not None and is_stray(topic, partition, log.topic_id):
            log.abandon()
            if not self._set_aside(found, directory, report):
                self._unloadable[key] = f"{path} is of another topic of this name, and is not only a partition's"
        else:
            self._add(log, directory)
            if key in loading.clean_offsets:
                self.clean_offsets[key] = loading.clean_offsets[key]

    def _load_futures(
        self,
        loading: _Loading,
        now_ms: int,
        config_of: Callable[[str], LogConfig],
        is_stray: Callable[[str, int, bytes | None], bool] | None,
        directory_id_of: Callable[[str, int], bytes | None],
        report: LoadReport,
    ) -> None:
        """Moves that were interrupted: those that had come to the swap are completed, the others begin anew."""
        directory = loading.directory
        for found in loading.futures:
            log = self._logs.get(found.key)
            if log is not None and self._directory_of[found.key] is not directory:
                self.interrupted_moves.append(InterruptedMove(found.topic, found.partition, directory, found.path))
            elif log is not None:
                self.retire(found.topic, found.partition, directory, found.path)
            elif is_stray is not None and is_stray(found.topic, found.partition, None):
                self._set_aside(found, directory, report)
            elif (
                found.key not in self._unloadable
                and directory_id_of(found.topic, found.partition) == directory.directory_id
            ):
                path = join(directory.path, partition_directory_name(found.topic, found.partition))
                self.file_system.rename(found.path, path)
                report.repairs.append(f"completed the move of {found.topic}-{found.partition} to {directory.path}")
                loading.partitions.append(found)
                self._load_partition(loading, found._replace(path=path), now_ms, config_of, is_stray, report)
                self.file_system.sync_directory(directory.path)
            else:
                report.ignored.append(found.path)

    def _end_loading(self, loading: _Loading, report: LoadReport) -> None:
        if not loading.directory.was_clean:
            # A process that died may have made partitions.
            self.file_system.sync_directory(loading.directory.path)
            if loading.partitions:
                report.recovered_directories.append(loading.directory.path)

    def _refuse_file(self, path: str, name: str, report: LoadReport) -> None:
        """What has a partition's name and is no directory: making the partition there again would hide what is lost."""
        parsed = parse_partition_directory_name(name)
        if parsed is None or parsed[2] or parsed[0] == METADATA_TOPIC:
            return
        target = self.file_system.link_target(path)
        if target is None:
            reason = "it is a file, where a partition's directory should be"
        else:
            reason = f"it is a symbolic link to {target}, which is not there: is a disk not mounted?"
        report.failed.append(f"{path}: {reason}")
        self._unloadable[parsed[:2]] = f"{path}: {reason}"

    def _add(self, log: Log, directory: LogDirectory) -> None:
        key = (log.topic, log.partition)
        self._outdated.discard(key)
        log.segments.trash = self._trash
        log.on_failure = lambda _log, error: self.directory_failed(directory, error)
        log.on_recovery_point_lowered = lambda log: self._about_to_cut(log, directory)
        self._logs[key] = log
        self._directory_of[key] = directory
        directory.partitions += 1

    # Partitions

    def get(self, topic: str, partition: int) -> Log | None:
        """The partition's log, which may be offline; None if this broker has none."""
        return self._logs.get((topic, partition))

    def logs(self) -> Iterator[Log]:
        """All of them, in no order."""
        return iter(list(self._logs.values()))

    def __len__(self) -> int:
        return len(self._logs)

    def directory_of(self, topic: str, partition: int) -> LogDirectory | None:
        """The log directory that a partition is in."""
        return self._directory_of.get((topic, partition))

    def online_directories(self) -> list[LogDirectory]:
        return [directory for directory in self.directories if directory.online]

    def create(
        self,
        topic: str,
        topic_id: bytes,
        partition: int,
        config: LogConfig,
        *,
        now_ms: int,
        directory_id: bytes | None = None,
    ) -> Log:
        """The partition's log, made if there is none: a directory with its topic id; the first append makes the rest.

        A log of another topic of this name (deleted while this broker was away) is set aside as a stray first. The new
        one goes to the directory with `directory_id`, or to the one with the fewest partitions. Raises `KafkaError`
        KAFKA_STORAGE_ERROR, also for one that could not be loaded, or that may be in a directory which is not here;
        `NotYetError` where it is worth trying again.
        """
        log = self._logs.get((topic, partition))
        if log is not None:
            if log.topic_id is None:
                self._name_topic(log, topic_id)
            if log.topic_id == topic_id:
                return log
            self._remove(log, STRAY_DIRECTORY)
        if (topic, partition) in self._unloadable:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self._unloadable[topic, partition])
        if (topic, partition) in self._outdated:
            self._forget_outdated()
        directory = self._directory_for(directory_id)
        path = join(directory.path, partition_directory_name(topic, partition))
        log = self._make(path, (topic, partition), config, directory, now_ms)
        self._add(log, directory)
        log.note_unsynced_names(parent=True)
        self._name_topic(log, topic_id)
        return log

    def _make(self, path: str, key: TopicPartition, config: LogConfig, directory: LogDirectory, now_ms: int) -> Log:
        """A log in a directory that is made for it, or is there without anything that is not a partition's."""
        there = self.file_system.exists(path)
        try:
            if there and (foreign := look_into(self.file_system, path).foreign) is not None:
                raise NotYetError(ErrorCode.KAFKA_STORAGE_ERROR, _in_the_way(path, foreign))
            self.file_system.make_directory(path)
            return load_log(self.files, path, *key, config, clean=True, now_ms=now_ms)
        except (FileExistsError, NotADirectoryError):
            raise NotYetError(ErrorCode.KAFKA_STORAGE_ERROR, _in_the_way(path, "it is a file")) from None
        except OSError as error:
            if not there:
                with contextlib.suppress(OSError):
                    self.file_system.remove_directory(path)
            failure = self._failed(directory, error)
            if directory.online:
                raise NotYetError(failure.code, failure.message) from error
            raise failure from error

    @staticmethod
    def _name_topic(log: Log, topic_id: bytes) -> None:
        try:
            log.set_topic_id(topic_id)
        except KafkaError as error:
            if log.offline is None:
                raise NotYetError(error.code, error.message) from error
            raise

    def _forget_outdated(self) -> None:
        """A new log must not find the offsets of one that was deleted: the start after a kill would believe that its
        records were deleted, flushed or compacted, and do away with them."""
        self._generation += 1  # what is being written now names them, too
        self._outdated.clear()
        self.flush_checkpoints()
        files = self.begin_cleaner_checkpoints()
        files.run()
        self.end_checkpoints(files)

    def _directory_for(self, directory_id: bytes | None) -> LogDirectory:
        online = self.online_directories()
        if directory_id is not None:
            named = [directory for directory in online if directory.directory_id == directory_id]
            offline = [directory.path for directory in self.directories if not directory.online]
            if not named and directory_id not in NO_DIRECTORY:
                # It may be there, with all its records. Another one that is empty would hide them, and be in the way
                # when the disk is back.
                where = f"it may be in {' or '.join(offline)}, which is offline"
                if not offline:
                    where = (
                        f"it is in the log directory with directory.id={uuid_to_str(directory_id)}, which log.dirs "
                        "does not name, or which is on a disk that is not mounted"
                    )
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, where)
            online = named or online
        if not online:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "all log directories are offline")
        return min(online, key=lambda directory: directory.partitions)

    def delete(self, topic: str, partition: int) -> None:
        """Forget the partition and rename its directory, which then waits to be removed (`take_trash`).

        Ranges that are being sent stay whole. Nothing happens for a partition that is not there.
        """
        log = self._logs.get((topic, partition))
        if log is not None:
            path = self._remove(log, DELETE_DIRECTORY)
            if path is not None:
                self._trash.append(path)

    def _remove(self, log: Log, suffix: str) -> str | None:
        """Forget a log and rename its directory; the new path, None if the directory is out of reach."""
        future = self.futures.get(_key(log))
        if future is not None:
            self.end_move(future)
        directory = self._directory_of.pop((log.topic, log.partition))
        del self._logs[(log.topic, log.partition)]
        self._outdated.add((log.topic, log.partition))
        self.clean_offsets.pop((log.topic, log.partition), None)
        directory.partitions -= 1
        log.abandon()
        if not directory.online:
            return None
        try:
            return self._rename(log.directory, _key(log), directory, suffix)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._failed(directory, error) from error

    def _rename(self, path: str, key: TopicPartition, directory: LogDirectory, suffix: str) -> str:
        """Give a partition's directory a name that tells its state; the new path."""
        renamed = _new_path(key, directory, suffix)
        self.file_system.rename(path, renamed)
        return renamed

    # Moves between log directories

    def begin_move(self, topic: str, partition: int, directory: LogDirectory) -> FutureLog:
        """Begin to move a partition's log, which must be there and not be moving, to another of the directories.

        Raises `KafkaError` KAFKA_STORAGE_ERROR.
        """
        log = self._logs[topic, partition]
        assert (topic, partition) not in self.futures
        log.check_online()
        path = _new_path((topic, partition), directory, FUTURE_DIRECTORY)
        try:
            self.file_system.make_directory(path)
            if log.topic_id is not None:
                data = encode_partition_metadata(log.topic_id)
                self.file_system.replace_file(join(path, PARTITION_METADATA), data, sync=False)
        except OSError as error:
            raise self._failed(directory, error) from error
        future = self.futures[topic, partition] = FutureLog(log, directory, path)
        return future

    def end_move(self, future: FutureLog, *, keep: bool = False) -> None:
        """Give a move up; nothing happens if it has ended. `keep`: the copy's directory stays, for a start that goes on
        with the move."""
        key = _key(future.log)
        if self.futures.get(key) is not future:
            return
        del self.futures[key]
        if future.directory.online and not keep:
            with contextlib.suppress(OSError):  # a start finds it again
                self.retire(*key, future.directory, future.path)

    def _empty_interrupted_moves(self) -> None:
        """Half of a segment is nothing that a clean stop may leave: nobody would look at it again."""
        for topic, partition, directory, path in self.interrupted_moves:
            try:
                if (topic, partition) in self._logs and directory.online:
                    self.end_move(self.begin_move(topic, partition, directory), keep=True)
                    self.retire(topic, partition, directory, path)
            except (KafkaError, OSError):
                directory.online = False  # which is not clean, then

    def retire(self, topic: str, partition: int, directory: LogDirectory, path: str) -> None:
        """Rename a partition's directory, which then waits to be removed (`take_trash`)."""
        self._trash.append(self._rename(path, (topic, partition), directory, DELETE_DIRECTORY))

    def move_failed(self, future: FutureLog, failure: CopyError) -> KafkaError:
        """A step of a move could not be done; a broken device takes its directory offline."""
        directory = self._directory_of.get(_key(future.log))
        if failure.of_target or directory is None:
            directory = future.directory
        return self._failed(directory, failure.error)

    def swap(self, future: FutureLog, commit: Callable[[LogDirectory], None]) -> str:
        """Let the copy take the log's place; the path of the old directory, which may be removed when both log
        directories have been synced. See the module's text.

        `commit` puts into the metadata in which directory the replica is. Raises `KafkaError`; then the log is where it
        was, and may be offline.
        """
        log, target = future.log, future.directory
        key = _key(log)
        source = self._directory_of[key]
        try:
            trash = future.complete()
        except CopyError as error:
            raise self.move_failed(future, error) from error
        commit(target)
        try:
            retired = self._rename(log.directory, key, source, DELETE_DIRECTORY)
        except OSError as error:
            failure = self._failed(source, error)
            if source.online:
                commit(source)
            raise failure from error
        path = join(target.path, partition_directory_name(*key))
        try:
            self.file_system.rename(future.path, path)
        except OSError as error:
            try:
                self.file_system.rename(retired, log.directory)
            except OSError as second:
                self.directory_failed(source, second)
            else:
                commit(source)
            raise self._failed(target, error) from error
        del self.futures[key]
        log.go_on_in(path)
        source.partitions -= 1
        self._add(log, target)
        self._trash += [join(path, name) for name in trash]
        return retired

    def throw_away(self, path: str) -> None:
        """To be removed (`take_trash`)."""
        self._trash.append(path)

    def sync_names(self) -> None:
        """Have on the device which partitions the log directories hold. May be called from a thread. Raises OSError."""
        for directory in self.online_directories():
            self.file_system.sync_directory(directory.path)

    def take_trash(self) -> list[str]:
        """Files and directories that nothing refers to any more, for `remove_trash`; each is given out once."""
        trash, self._trash[:] = list(self._trash), []
        return trash

    def delete_delay_ms(self, path: str) -> int | None:
        """How long a file of the trash is to be kept: its topic's `file.delete.delay.ms`; None for what is no topic's
        any more."""
        parsed = parse_partition_directory_name(path.rpartition("/")[0].rpartition("/")[2])
        log = None if parsed is None else self._logs.get(parsed[:2])
        return None if log is None else log.config.file_delete_delay_ms

    def remove_trash(self, paths: Iterable[str]) -> list[OSError]:
        """Unlink them. May be called from a thread. What cannot be removed, and why, is returned; the next start tries
        it again."""
        problems: list[OSError] = []
        for path in paths:
            try:
                if path.endswith(DELETE_DIRECTORY):
                    remove_partition_directory(self.file_system, path)
                else:
                    self.file_system.unlink(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                problems.append(error)
        return problems

    # Checkpoints

    def begin_checkpoints(
        self,
        high_watermarks: Mapping[TopicPartition, int] | None = None,
        *,
        recovery_points: bool = True,
        log_start_offsets: bool = True,
    ) -> CheckpointFiles:
        """The checkpoints of all online directories as of now, or some of them; see the module's text."""
        self._checkpoint_number += 1
        files = CheckpointFiles(self.file_system, self._generation, self._checkpoint_number)
        for directory in self.online_directories():
            logs = self._logs_in(directory) + self._arriving_in(directory)
            if recovery_points:
                files.add(directory, RECOVERY_POINT_CHECKPOINT, _recovery_points(logs))
            if log_start_offsets:
                files.add(directory, LOG_START_OFFSET_CHECKPOINT, _log_start_offsets(logs))
            if high_watermarks is not None:
                known = {key: high_watermarks[key] for key in map(_key, logs) if key in high_watermarks}
                files.add(directory, HIGH_WATERMARK_CHECKPOINT, encode_offsets(known))
        return files

    def end_checkpoints(self, files: CheckpointFiles) -> None:
        """They are written. Not put in place if a log was cut since: then they promise too much."""
        files.finish(keep=files.generation == self._generation)
        for directory, error in files.failures:
            self._failed(directory, error)

    def flush_checkpoints(self, high_watermarks: Mapping[TopicPartition, int] | None = None) -> None:
        """All three steps at once; waits for the device."""
        files = self.begin_checkpoints(high_watermarks)
        files.run()
        self.end_checkpoints(files)

    def begin_cleaner_checkpoints(self) -> CheckpointFiles:
        """Up to where the logs were compacted. To be ended by `end_checkpoints`, too."""
        self._checkpoint_number += 1
        files = CheckpointFiles(self.file_system, self._generation, self._checkpoint_number)
        for directory in self.online_directories():
            files.add(directory, CLEANER_OFFSET_CHECKPOINT, self._clean_offsets(directory))
        return files

    def _clean_offsets(self, directory: LogDirectory) -> bytes:
        keys = {_key(log) for log in self._arriving_in(directory)}
        offsets = self.clean_offsets.items()
        return encode_offsets(
            {key: offset for key, offset in offsets if key in keys or self._directory_of.get(key) is directory}
        )

    def _arriving_in(self, directory: LogDirectory) -> list[Log]:
        """The logs whose copies here are about to take their place: checkpoints must know them before."""
        return [future.log for future in self.futures.values() if future.is_durable and future.directory is directory]

    def _about_to_cut(self, log: Log, directory: LogDirectory) -> None:
        """Now, because a log is about to be cut: the checkpoints must not be ahead of it."""
        self._generation += 1
        self.file_system.replace_file(
            join(directory.path, RECOVERY_POINT_CHECKPOINT), _recovery_points(self._logs_in(directory)), sync=True
        )
        if self.clean_offsets.get(_key(log), 0) > log.flushed_offset:
            self.clean_offsets[_key(log)] = log.flushed_offset
            self.file_system.replace_file(
                join(directory.path, CLEANER_OFFSET_CHECKPOINT), self._clean_offsets(directory), sync=True
            )

    def _logs_in(self, directory: LogDirectory) -> list[Log]:
        return [log for key, log in self._logs.items() if self._directory_of[key] is directory]

    # Failure and the end

    def _failed(self, directory: LogDirectory, error: OSError) -> KafkaError:
        from .files import TRANSIENT_ERRNOS

        if error.errno not in TRANSIENT_ERRNOS:
            self.directory_failed(directory, error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory.path}: {error.strerror or error}")

    def directory_failed(self, directory: LogDirectory, error: OSError) -> None:
        """The directory's device is broken: it is offline, and so are its logs."""
        if not directory.online:
            return
        directory.online = False
        directory.failure = error.strerror or str(error)
        logs = self._logs_in(directory)
        for log in logs:
            log.take_offline(error.strerror or str(error))
        if self.on_directory_failure is not None:
            self.on_directory_failure(directory, error, logs)

    def close(
        self,
        *,
        now_ms: int,
        broker_epoch: int = -1,
        high_watermarks: Mapping[TopicPartition, int] | None = None,
        run: RunFlushes = map,
    ) -> None:
        """A clean stop: all logs closed and on the device, the directories marked so, the locks given back.

        `run` may use threads: what a stop takes is nearly all waiting for the device.
        """
        self._empty_interrupted_moves()
        clean = {id(directory): directory.online for directory in self.directories}
        logs = list(self._logs.values())
        for first in range(0, len(logs), _CLOSED_TOGETHER):
            for log in _close_logs(logs[first : first + _CLOSED_TOGETHER], now_ms, run):
                clean[id(self._directory_of[_key(log)])] = False
        self.flush_checkpoints(high_watermarks)
        for directory in self.directories:
            if clean[id(directory)] and directory.online:
                try:
                    directory.mark_clean(broker_epoch)
                except OSError as error:
                    self._failed(directory, error)
        self.files.close()
        for directory in self.directories:
            directory.release()


def _close_logs(logs: Iterable[Log], now_ms: int, run: RunFlushes) -> list[Log]:
    """Those of them that could not be closed."""
    failed = []
    closing: list[tuple[Log, Flush]] = []
    for log in logs:
        try:
            flush = log.begin_close()
        except KafkaError:
            failed.append(log)
            continue
        if flush is None:
            log.end_close(None, now_ms)
        else:
            closing.append((log, flush))
    for (log, flush), error in zip(closing, run(failure_of, [flush for _, flush in closing]), strict=True):
        if error is None:
            log.end_close(flush, now_ms)
        else:
            log.flush_failed(flush, error)
            failed.append(log)
    return failed


def _why_unusable(path: str, error: OSError) -> str:
    if isinstance(error, FileExistsError | NotADirectoryError):
        return f"{path} cannot be used: it, or a part of its path, is a file. Name a directory."
    advice = ""
    if error.errno in (errno.EACCES, errno.EPERM):
        advice = ". The user of the server must be able to write there: change the owner, or name another directory."
    elif error.errno == errno.EROFS:
        advice = ". Mount it for writing, or name another directory."
    where = f" at {error.filename}" if isinstance(error.filename, str) and error.filename != path else ""
    return f"{path} cannot be used: {error.strerror or error}{where}{advice}"


def _in_the_way(path: str, what: str) -> str:
    return f"{path} is in the way of the partition: {what}. Move it to another place"


def _new_path(key: TopicPartition, directory: LogDirectory, suffix: str) -> str:
    return join(directory.path, retired_directory_name(*key, random_uuid().hex(), suffix))


def _key(log: Log) -> TopicPartition:
    return log.topic, log.partition


def _recovery_points(logs: Iterable[Log]) -> bytes:
    return encode_offsets({_key(log): log.recovery_point for log in logs})


def _log_start_offsets(logs: Iterable[Log]) -> bytes:
    # As Apache Kafka: only where it is not simply the beginning of the first segment.
    return encode_offsets(
        {_key(log): log.log_start_offset for log in logs if log.log_start_offset > log.segments[0].base_offset}
    )
