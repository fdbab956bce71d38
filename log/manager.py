"""All logs of a broker, in its log directories.

The life of a manager: `open` locks the directories and reads whose they are; `load` opens every partition's log,
recovering those of a directory that was not left cleanly; then `get`, `create` and `delete`, and
`flush_checkpoints` now and then; `close` at the end. The metadata log lies in one of the directories too, but belongs
to the controller, which opens it itself (`loader.load_log`), between `open` and `load`.

A directory whose device fails goes offline with all its partitions; the others go on. A partition stays in the
directory it was made in; a new one goes to the directory with the fewest.

Slow work on files can be taken to a thread, in steps: begin (on the loop) - run (anywhere) - end (on the loop). There
is one for checkpoints here and one for flushing in `Log`. What is to be unlinked is renamed at once and waits in
`take_trash`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.records import UnsupportedMagicError
from ..protocol.uuid import random_uuid, uuid_to_str
from .checkpoints import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    CorruptCheckpointError,
    TopicPartition,
    encode_offsets,
)
from .config import LogConfig
from .descriptors import DescriptorCache
from .directory import LogDirectory, LogDirectoryError
from .files import FileSystem, RealFileSystem, join
from .loader import load_log
from .names import (
    DELETE_DIRECTORY,
    METADATA_TOPIC,
    STRAY_DIRECTORY,
    parse_partition_directory_name,
    partition_directory_name,
    retired_directory_name,
)
from .partition_log import Log


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
        if self.failed:
            parts.append(f"{len(self.failed)} failed: {'; '.join(self.failed)}")
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
        self._trash: list[str] = []
        self._generation = 0
        self._checkpoint_number = 0
        self.high_watermarks: dict[TopicPartition, int] = {}
        """As the checkpoints had them when the logs were loaded."""
        self.on_directory_failure: Callable[[LogDirectory, OSError, list[Log]], None] | None = None
        """Told when a directory goes offline, with the logs that went with it."""

    # Opening

    @property
    def cluster_id(self) -> str:
        """Known once `open` has returned."""
        assert self._cluster_id is not None, "the directories are not open"
        return self._cluster_id

    def open(self) -> None:
        """Lock the directories and agree on the cluster. Raises `LogDirectoryError`, and leaves none locked.

        A directory that fails is offline from the start, and `load` reports it, unless it is the last.
        """
        try:
            for directory in self.directories:
                self._try(directory, lambda directory: directory.open(self.node_id))
            known = {directory.cluster_id for directory in self.directories if directory.cluster_id is not None}
            cluster_id = self._cluster_id or (min(known) if known else uuid_to_str(random_uuid()))
            self._cluster_id = cluster_id
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
            directory.failure = f"{directory.path} cannot be used: {error.strerror or error}"

    def load(
        self,
        *,
        now_ms: int,
        config_of: Callable[[str], LogConfig],
        is_stray: Callable[[str, int, bytes | None], bool] | None = None,
    ) -> LoadReport:
        """Open every partition's log.

        `config_of` gives a topic's configuration. `is_stray` says of a (topic, partition, topic id, None if unknown)
        that it is not this broker's: its directory is renamed to `...-stray`, and left to people.
        """
        report = LoadReport()
        report.failed += [directory.failure for directory in self.directories if directory.failure is not None]
        for directory in self.online_directories():
            try:
                self._load_directory(directory, now_ms, config_of, is_stray, report)
            except OSError as error:
                report.failed.append(f"{directory.path}: {error.strerror or error}")
                self._directory_failed(directory, error)
        report.loaded = len(self._logs)
        return report

    def _load_directory(
        self,
        directory: LogDirectory,
        now_ms: int,
        config_of: Callable[[str], LogConfig],
        is_stray: Callable[[str, int, bytes | None], bool] | None,
        report: LoadReport,
    ) -> None:
        directory.begin_loading()
        recovery_points, problem = directory.read_offsets(RECOVERY_POINT_CHECKPOINT)
        start_offsets, second = directory.read_offsets(LOG_START_OFFSET_CHECKPOINT)
        high_watermarks, third = directory.read_offsets(HIGH_WATERMARK_CHECKPOINT)
        report.repairs += [text for text in (problem, second, third) if text is not None]
        self.high_watermarks.update(high_watermarks)
        _files, names = self.file_system.list_directory(directory.path)
        recovered = False
        for name in sorted(names):
            parsed = parse_partition_directory_name(name)
            path = join(directory.path, name)
            if parsed is None:
                report.ignored.append(path)
                continue
            topic, partition, state = parsed
            if topic == METADATA_TOPIC:
                continue
            if state == DELETE_DIRECTORY:
                self._trash.append(path)
                continue
            if state:
                report.ignored.append(path)
                continue
            key = (topic, partition)
            if key in self._logs:
                raise LogDirectoryError(
                    f"{topic}-{partition} is both in {path} and in {self._logs[key].directory}. "
                    f"Remove the copy that is out of date."
                )
            recovered = recovered or not directory.was_clean
            try:
                log = load_log(
                    self.files,
                    path,
                    topic,
                    partition,
                    config_of(topic),
                    clean=directory.was_clean,
                    now_ms=now_ms,
                    recovery_point=recovery_points.get(key, 0),
                    log_start_offset=start_offsets.get(key, 0),
                )
            except (CorruptCheckpointError, UnsupportedMagicError) as error:
                report.failed.append(f"{path}: {error}")
                continue
            self._trash += log.trash
            report.repairs += log.repairs
            if is_stray is not None and is_stray(topic, partition, log.topic_id):
                self._set_aside(log, directory, report)
            else:
                self._add(log, directory)
        if recovered:
            report.recovered_directories.append(directory.path)

    def _set_aside(self, log: Log, directory: LogDirectory, report: LoadReport) -> None:
        empty = not log.size
        log.abandon()
        path = self._retire(log, directory, DELETE_DIRECTORY if empty else STRAY_DIRECTORY)
        if empty:
            self._trash.append(path)
        else:
            report.strays.append(path)

    def _add(self, log: Log, directory: LogDirectory) -> None:
        key = (log.topic, log.partition)
        log.segments.trash = self._trash
        log.on_failure = lambda _log, error: self._directory_failed(directory, error)
        log.on_recovery_point_lowered = lambda _log: self._write_recovery_points(directory)
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
        KAFKA_STORAGE_ERROR.
        """
        log = self._logs.get((topic, partition))
        if log is not None:
            if log.topic_id is None:
                log.set_topic_id(topic_id)
            if log.topic_id == topic_id:
                return log
            self._remove(log, STRAY_DIRECTORY)
        directory = self._directory_for(directory_id)
        path = join(directory.path, partition_directory_name(topic, partition))
        try:
            self.file_system.make_directory(path)
            log = load_log(self.files, path, topic, partition, config, clean=True, now_ms=now_ms)
        except OSError as error:
            raise self._failed(directory, error) from error
        self._add(log, directory)
        log.set_topic_id(topic_id)
        return log

    def _directory_for(self, directory_id: bytes | None) -> LogDirectory:
        online = self.online_directories()
        if directory_id is not None:
            online = [directory for directory in online if directory.directory_id == directory_id] or online
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
        directory = self._directory_of.pop((log.topic, log.partition))
        del self._logs[(log.topic, log.partition)]
        directory.partitions -= 1
        log.abandon()
        if not directory.online:
            return None
        try:
            return self._retire(log, directory, suffix)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._failed(directory, error) from error

    def _retire(self, log: Log, directory: LogDirectory, suffix: str) -> str:
        path = join(directory.path, retired_directory_name(log.topic, log.partition, random_uuid().hex(), suffix))
        self.file_system.rename(log.directory, path)
        return path

    def take_trash(self) -> list[str]:
        """Files and directories that nothing refers to any more, for `remove_trash`; each is given out once."""
        trash, self._trash[:] = list(self._trash), []
        return trash

    def remove_trash(self, paths: Iterable[str]) -> None:
        """Unlink them. May be called from a thread; what cannot be removed is tried again by the next start."""
        for path in paths:
            with contextlib.suppress(OSError):
                if path.endswith(DELETE_DIRECTORY):
                    self.file_system.remove_tree(path)
                else:
                    self.file_system.unlink(path)

    # Checkpoints

    def begin_checkpoints(self, high_watermarks: Mapping[TopicPartition, int] | None = None) -> CheckpointFiles:
        """The checkpoints of all online directories as of now; see the module's text."""
        self._checkpoint_number += 1
        files = CheckpointFiles(self.file_system, self._generation, self._checkpoint_number)
        for directory in self.online_directories():
            logs = self._logs_in(directory)
            files.add(directory, RECOVERY_POINT_CHECKPOINT, _recovery_points(logs))
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

    def _write_recovery_points(self, directory: LogDirectory) -> None:
        """Now, because a log is about to be cut: the checkpoint must not be ahead of it."""
        self._generation += 1
        self.file_system.replace_file(
            join(directory.path, RECOVERY_POINT_CHECKPOINT), _recovery_points(self._logs_in(directory)), sync=True
        )

    def _logs_in(self, directory: LogDirectory) -> list[Log]:
        return [log for key, log in self._logs.items() if self._directory_of[key] is directory]

    # Failure and the end

    def _failed(self, directory: LogDirectory, error: OSError) -> KafkaError:
        from .files import TRANSIENT_ERRNOS

        if error.errno not in TRANSIENT_ERRNOS:
            self._directory_failed(directory, error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory.path}: {error.strerror or error}")

    def _directory_failed(self, directory: LogDirectory, error: OSError) -> None:
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
    ) -> None:
        """A clean stop: all logs closed and on the device, the directories marked so, the locks given back."""
        clean = {id(directory): directory.online for directory in self.directories}
        for key, log in self._logs.items():
            try:
                log.close(now_ms)
            except KafkaError:
                clean[id(self._directory_of[key])] = False
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


def _key(log: Log) -> TopicPartition:
    return log.topic, log.partition


def _recovery_points(logs: Iterable[Log]) -> bytes:
    return encode_offsets({_key(log): log.recovery_point for log in logs})


def _log_start_offsets(logs: Iterable[Log]) -> bytes:
    # As Apache Kafka: only where it is not simply the beginning of the first segment.
    return encode_offsets(
        {_key(log): log.log_start_offset for log in logs if log.log_start_offset > log.segments[0].base_offset}
    )
