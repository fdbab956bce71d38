"""All logs of a broker, in its log directories.

The life cycle of a manager: `open` locks the directories and reads their owner; `load` opens every partition's log
(`broker_loading`); then `get`, `get_or_create` and `delete`, and `flush_checkpoints` periodically; `close` at shutdown.
The metadata log is in one of the directories too, but belongs to the controller, which opens it between `open` and
`load` (`partition_loading.load_log`).

A directory whose device fails goes offline with all its partitions; the others continue. A new partition is created in
the directory with the fewest partitions, and remains there until it is moved: `begin_move` - the steps of its
`FutureLog` - `swap`.

The swap consists of two renames, in two directories that may be on two disks. Before the swap, everything that was
flushed of the log is durable in the copy, and the metadata assigns the replica to the target directory; from then on,
and not before, a startup that finds only the copy uses it as the log. First the old directory is renamed to `-delete`,
then the copy gets the log's name. A startup that finds both names (after a power failure, if the file systems kept only
the second rename) follows the metadata. No flush of the log may end before both names are durable.

A log directory may contain directories of its user, and their names may look like a partition's. A directory that is
not in the metadata is renamed (`-stray`) or removed (`-delete`) only if it contains a partition and nothing else
(`partition_directory`); `load` reports the others, and does not change them.

Slow work on files can be moved to a thread, in steps: begin (on the loop) - run (anywhere) - end (on the loop). The
steps for checkpoints are in this module, those for flushing in `Log`. Files to be unlinked are renamed immediately, and
returned by `take_trash`.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.uuid import random_uuid, uuid_to_str
from .broker_loading import InterruptedMove, LoadedLogs, LoadProgress, LoadReport, load_logs
from .checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
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
from .names import (
    DELETE_DIRECTORY,
    FUTURE_DIRECTORY,
    PARTITION_METADATA,
    STRAY_DIRECTORY,
    parse_partition_directory_name,
    partition_directory_name,
)
from .partition_directory import (
    blocking_message,
    inspect_partition_directory,
    remove_partition_directory,
    retire_directory,
    unique_path,
)
from .partition_loading import load_log
from .partition_log import Log

_CLOSED_TOGETHER = 64
"""The number of logs that a clean shutdown keeps open at a time, with three files each, besides those in the cache."""

_MAX_PREFERRED = 10_000
"""The oldest preferences of more partitions that do not exist are forgotten."""

NO_DIRECTORY = frozenset(bytes(15) + bytes((number,)) for number in range(100))
"""IDs that are not a directory's: unassigned, lost, from before KIP-858. Kafka reserves the first hundred IDs."""


class RetriableLogError(KafkaError):
    """A log could not be created, and may be later (KAFKA_STORAGE_ERROR): the disk is full, there is no descriptor, or
    another file has its name. Everything that was created is removed, or is used by the next attempt."""


class CheckpointFiles:
    """Checkpoints to be written: `run`, in any thread, then `LogManager.end_checkpoints`."""

    def __init__(self, file_system: FileSystem, generation: int, number: int) -> None:
        self._file_system = file_system
        self.generation = generation
        self._number = number
        self._contents: list[tuple[LogDirectory, str, bytes]] = []
        self.failures: list[tuple[LogDirectory, OSError]] = []
        self.is_in_place = False
        """Whether all of them have replaced the old ones."""

    def add(self, directory: LogDirectory, name: str, data: bytes) -> None:
        self._contents.append((directory, name, data))

    def _temporary(self, directory: LogDirectory, name: str) -> str:
        # A separate name for each run, so that a concurrently written checkpoint does not interfere.
        return join(directory.path, f"{name}.{self._number}.tmp")

    def run(self) -> None:
        """Write and sync them next to the old ones."""
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

    def sync_names(self) -> None:
        """Sync the directories after `finish`. Raises OSError."""
        for path in dict.fromkeys(directory.path for directory, _name, _data in self._contents):
            self._file_system.sync_directory(path)

    def finish(self, *, keep: bool) -> None:
        """Put them in place, or discard them."""
        failed = {id(directory) for directory, _error in self.failures}
        self.is_in_place = keep and not failed
        for directory, name, _data in self._contents:
            temporary = self._temporary(directory, name)
            with contextlib.suppress(OSError):
                if keep and id(directory) not in failed:
                    self._file_system.rename(temporary, join(directory.path, name))
                else:
                    self._file_system.unlink(temporary)


class LogManager:
    """See the module docstring."""

    def __init__(
        self,
        directories: Sequence[str],
        *,
        node_id: int,
        cluster_id: str | None = None,
        file_system: FileSystem | None = None,
        max_open_files: int = 512,
        new_uuid: Callable[[], bytes] = random_uuid,
    ) -> None:
        """`cluster_id`: with None, the ID of the directories is used, or `new_uuid` creates one."""
        if len(set(directories)) != len(directories) or not directories:
            raise LogDirectoryError(
                f"log.dirs must contain at least one directory and no duplicates: {', '.join(directories)}"
            )
        self.file_system: FileSystem = file_system if file_system is not None else RealFileSystem()
        self.files = DescriptorCache(self.file_system, max_open_files)
        self.directories = [LogDirectory(self.file_system, path, new_uuid) for path in directories]
        self._new_uuid = new_uuid
        self.node_id = node_id
        self._cluster_id = cluster_id
        self._logs: dict[TopicPartition, Log] = {}
        self._directory_of: dict[TopicPartition, LogDirectory] = {}
        self._unloadable: dict[TopicPartition, str] = {}
        """Partitions that exist and could not be opened, and why."""
        self._preferred: dict[TopicPartition, LogDirectory] = {}
        """Where clients want partitions that do not exist yet."""
        self._trash: list[str] = []
        self._outdated: set[TopicPartition] = set()
        """Removed partitions that checkpoints on disk may still contain."""
        self._generation = 0
        self._checkpoint_number = 0
        self.high_watermarks: dict[TopicPartition, int] = {}
        """From the checkpoints when the logs were loaded."""
        self.clean_offsets: dict[TopicPartition, int] = {}
        """The offset up to which each log was compacted, if it ever was; updated by the cleaner."""
        self.futures: dict[TopicPartition, FutureLog] = {}
        """The running moves between log directories."""
        self.interrupted_moves: list[InterruptedMove] = []
        """Moves that were running when the previous process ended; the replica mover takes them from the list."""
        self.on_directory_failure: Callable[[LogDirectory, OSError, list[Log]], None] | None = None
        """Called when a directory goes offline, with its logs."""

    # Opening

    @property
    def cluster_id(self) -> str:
        """Known once `open` has returned."""
        assert self._cluster_id is not None, "the directories are not open"
        return self._cluster_id

    def open(self, before_changing: Callable[[], None] | None = None) -> None:
        """Lock the directories and determine the cluster ID. Raises `LogDirectoryError`; then none is locked.

        `before_changing` is called when all are locked and read, and nothing is written yet; its exceptions propagate.

        A directory that fails is offline from then on, and `load` reports it. If all fail, that is an error.
        """
        try:
            for directory in self.directories:
                self._try(directory, lambda directory: directory.open(self.node_id))
            known = {directory.cluster_id for directory in self.directories if directory.cluster_id is not None}
            cluster_id = self._cluster_id or (min(known) if known else uuid_to_str(self._new_uuid()))
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
        """A disk that is broken at startup takes only its own directory offline."""
        try:
            step(directory)
        except OSError as error:
            directory.online = False
            directory.failure = _unusable_message(directory.path, error)

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

        `config_of` returns a topic's configuration. `is_stray` returns whether a partition (topic, partition, topic ID;
        None if unknown) does not belong to this broker: its directory is renamed to `...-stray`, and never removed.
        `directory_id_of` returns the directory of a replica according to the metadata; it decides about interrupted
        moves. `compacted_anywhere`: the logs were compacted by a broker that does not write the cleaner checkpoint
        before a pass. Then a gap in a compacted log is never treated as lost records, and the recovered logs are
        flushed and written to the checkpoints before `load` returns.
        """
        loaded = load_logs(
            self.files,
            self.directories,
            now_ms=now_ms,
            config_of=config_of,
            is_stray=is_stray,
            directory_id_of=directory_id_of,
            compacted_anywhere=compacted_anywhere,
            progress=progress,
        )
        self._adopt(loaded)
        report = loaded.report
        if compacted_anywhere and report.recovered_directories:
            for log in self.logs():
                try:
                    if log.config.compacted:
                        log.flush(now_ms)
                except KafkaError as error:
                    report.failed.append(f"{log.directory}: {error}")
            self.flush_checkpoints()
        return report

    def _adopt(self, loaded: LoadedLogs) -> None:
        self.high_watermarks.update(loaded.high_watermarks)
        self.clean_offsets.update(loaded.clean_offsets)
        self.interrupted_moves += loaded.interrupted_moves
        self._unloadable.update(loaded.unloadable)
        self._outdated.update(loaded.in_checkpoints)
        self._trash += loaded.trash
        for log, directory in loaded.logs.values():
            self._add(log, directory)
        for directory, error in loaded.failures:
            self._report_failure(directory, error)

    def _add(self, log: Log, directory: LogDirectory) -> None:
        key = (log.topic, log.partition)
        self._outdated.discard(key)
        log.segments.trash = self._trash
        log.on_failure = lambda _log, error: self.directory_failed(directory, error)
        log.on_recovery_point_lowered = lambda log: self._before_truncation(log, directory)
        self._logs[key] = log
        self._directory_of[key] = directory
        directory.partitions += 1

    # Partitions

    def get(self, topic: str, partition: int) -> Log | None:
        """The partition's log, which may be offline; None if this broker has none."""
        return self._logs.get((topic, partition))

    def logs(self) -> Iterator[Log]:
        """All logs, in no particular order."""
        return iter(list(self._logs.values()))

    def __len__(self) -> int:
        return len(self._logs)

    def directory_of(self, topic: str, partition: int) -> LogDirectory | None:
        """The log directory of a partition."""
        return self._directory_of.get((topic, partition))

    def online_directories(self) -> list[LogDirectory]:
        return [directory for directory in self.directories if directory.online]

    def get_or_create(
        self,
        topic: str,
        topic_id: bytes,
        partition: int,
        config: LogConfig,
        *,
        now_ms: int,
        directory_id: bytes | None = None,
    ) -> Log:
        """The partition's log. If it is missing, it is created as a directory with its topic ID; the first append
        creates the other files.

        An existing log of another topic of this name, which was deleted while this broker was offline, becomes a stray
        first. A new log is created in the directory with `directory_id`, or in the one with the fewest partitions.
        Raises `KafkaError` KAFKA_STORAGE_ERROR, also for a log that could not be loaded, or that may be in an
        unavailable directory; `RetriableLogError` if a retry may succeed.
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
        directory = self._directory_for((topic, partition), directory_id)
        path = join(directory.path, partition_directory_name(topic, partition))
        log = self._make(path, (topic, partition), config, directory, now_ms)
        self._add(log, directory)
        self._preferred.pop((topic, partition), None)
        log.note_unsynced_names(parent=True)
        self._name_topic(log, topic_id)
        return log

    def _make(self, path: str, key: TopicPartition, config: LogConfig, directory: LogDirectory, now_ms: int) -> Log:
        """A log in a new directory, or in an existing one that contains nothing except files of a partition."""
        there = self.file_system.exists(path)
        try:
            if there and (foreign := inspect_partition_directory(self.file_system, path).foreign) is not None:
                raise RetriableLogError(ErrorCode.KAFKA_STORAGE_ERROR, blocking_message(path, foreign))
            self.file_system.make_directory(path)
            return load_log(self.files, path, *key, config, clean=True, now_ms=now_ms)
        except (FileExistsError, NotADirectoryError):
            raise RetriableLogError(ErrorCode.KAFKA_STORAGE_ERROR, blocking_message(path, "it is a file")) from None
        except OSError as error:
            if not there:
                with contextlib.suppress(OSError):
                    self.file_system.remove_directory(path)
            failure = self._failed(directory, error)
            if directory.online:
                raise RetriableLogError(failure.code, failure.message) from error
            raise failure from error

    @staticmethod
    def _name_topic(log: Log, topic_id: bytes) -> None:
        try:
            log.set_topic_id(topic_id)
        except KafkaError as error:
            if log.offline is None:
                raise RetriableLogError(error.code, error.message) from error
            raise

    def _forget_outdated(self) -> None:
        """Remove the offsets of deleted logs from the checkpoints: after an unclean shutdown they would make startup
        treat the records of new logs of the same names as deleted, flushed or compacted."""
        self._generation += 1  # checkpoints that are being written now contain them, too
        self._outdated.clear()
        self.flush_checkpoints()
        files = self.begin_cleaner_checkpoints()
        files.run()
        self.end_checkpoints(files)

    def prefer(self, topic: str, partition: int, directory: LogDirectory) -> None:
        """If this partition gets a replica on this broker, and the metadata does not name its directory, create its log
        here. The preference is lost when the process ends."""
        self._preferred.pop((topic, partition), None)
        self._preferred[topic, partition] = directory
        if len(self._preferred) > _MAX_PREFERRED:
            del self._preferred[next(iter(self._preferred))]

    def _directory_for(self, key: TopicPartition, directory_id: bytes | None) -> LogDirectory:
        online = self.online_directories()
        if directory_id is not None:
            named = [directory for directory in online if directory.directory_id == directory_id]
            offline = [directory.path for directory in self.directories if not directory.online]
            if not named and directory_id not in NO_DIRECTORY:
                # It may exist there with all its records. An empty log elsewhere would hide them, and conflict with
                # them when the disk is available again.
                where = f"it may be in {' or '.join(offline)}, which is offline"
                if not offline:
                    where = (
                        f"it is in the log directory with directory.id={uuid_to_str(directory_id)}, which is "
                        "missing from log.dirs, or on a disk that is not mounted"
                    )
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, where)
            if named:
                return named[0]
        if not online:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "all log directories are offline")
        preferred = self._preferred.get(key)
        if preferred is not None and preferred.online:
            return preferred
        if len(online) == 1:
            return online[0]  # as in Apache Kafka, also if it is cordoned
        usable = [directory for directory in online if not directory.is_cordoned]
        if not usable:
            raise RetriableLogError(ErrorCode.KAFKA_STORAGE_ERROR, "all log directories are cordoned")
        return min(usable, key=lambda directory: directory.partitions)

    def cordon(self, paths: Collection[str]) -> bool:
        """From now on, new replicas are not created in these log directories; ``*`` are all. Returns whether this is a
        change."""
        cordoned = [directory for directory in self.directories if "*" in paths or directory.path in paths]
        changed = False
        for directory in self.directories:
            changed |= directory.is_cordoned != (directory in cordoned)
            directory.is_cordoned = directory in cordoned
        return changed

    def cordoned_directories(self) -> list[bytes]:
        """The ids of the cordoned log directories that are online."""
        return [directory.directory_id for directory in self.online_directories() if directory.is_cordoned]

    def delete(self, topic: str, partition: int) -> None:
        """Forget the partition and rename its directory, which is then part of `take_trash`.

        Ranges that are being sent stay valid. A missing partition is no error.
        """
        log = self._logs.get((topic, partition))
        if log is not None:
            path = self._remove(log, DELETE_DIRECTORY)
            if path is not None:
                self._trash.append(path)

    def _remove(self, log: Log, suffix: str) -> str | None:
        """Forget a log and rename its directory; the new path, None if the directory is unavailable."""
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
            return retire_directory(self.file_system, log.directory, _key(log), directory, suffix)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._failed(directory, error) from error

    # Moves between log directories

    def begin_move(self, topic: str, partition: int, directory: LogDirectory) -> FutureLog:
        """Begin to move a partition's log to another log directory. The log must exist and not be moving.

        Raises `KafkaError` KAFKA_STORAGE_ERROR.
        """
        log = self._logs[topic, partition]
        assert (topic, partition) not in self.futures
        log.check_online()
        path = unique_path((topic, partition), directory, FUTURE_DIRECTORY)
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
        """Cancel a move; no effect if it has ended. `keep`: the copy's directory remains, so that the next startup
        resumes the move."""
        key = _key(future.log)
        if self.futures.get(key) is not future:
            return
        del self.futures[key]
        if future.directory.online and not keep:
            with contextlib.suppress(OSError):  # the next startup finds it again
                self.retire(*key, future.directory, future.path)

    def _empty_interrupted_moves(self) -> None:
        """Replace incomplete copies by empty ones: after a clean shutdown, a part of a segment would not be checked."""
        for topic, partition, directory, path in self.interrupted_moves:
            try:
                if (topic, partition) in self._logs and directory.online:
                    self.end_move(self.begin_move(topic, partition, directory), keep=True)
                    self.retire(topic, partition, directory, path)
            except (KafkaError, OSError):
                directory.online = False  # so that it is not marked clean

    def retire(self, topic: str, partition: int, directory: LogDirectory, path: str) -> None:
        """Rename a partition's directory, which is then part of `take_trash`."""
        key = (topic, partition)
        self._trash.append(retire_directory(self.file_system, path, key, directory, DELETE_DIRECTORY))

    def move_failed(self, future: FutureLog, failure: CopyError) -> KafkaError:
        """A step of a move failed; a broken device takes its directory offline."""
        directory = self._directory_of.get(_key(future.log))
        if failure.of_target or directory is None:
            directory = future.directory
        return self._failed(directory, failure.error)

    def swap(self, future: FutureLog) -> str:
        """Replace the log by its copy; returns the path of the old directory, which may be removed when both log
        directories have been synced. See the module docstring.

        The metadata must already assign the replica to the target directory. Raises `KafkaError`; then the log is where
        it was, and may be offline. If it is online, the metadata must assign the replica to its directory again.
        """
        log, target = future.log, future.directory
        key = _key(log)
        source = self._directory_of[key]
        try:
            trash = future.complete()
        except CopyError as error:
            raise self.move_failed(future, error) from error
        try:
            retired = retire_directory(self.file_system, log.directory, key, source, DELETE_DIRECTORY)
        except OSError as error:
            raise self._failed(source, error) from error
        path = join(target.path, partition_directory_name(*key))
        try:
            self.file_system.rename(future.path, path)
        except OSError as error:
            try:
                self.file_system.rename(retired, log.directory)
            except OSError as second:
                self.directory_failed(source, second)
            raise self._failed(target, error) from error
        del self.futures[key]
        log.switch_directory(path)
        source.partitions -= 1
        self._add(log, target)
        self._trash += [join(path, name) for name in trash]
        return retired

    def add_trash(self, path: str) -> None:
        """Add a path to those that `take_trash` returns."""
        self._trash.append(path)

    def sync_names(self) -> None:
        """Sync the log directories, so that names of partitions are durable. May run in a thread. Raises OSError."""
        for directory in self.online_directories():
            self.file_system.sync_directory(directory.path)

    def take_trash(self) -> list[str]:
        """Files and directories without any reference, for `remove_trash`; each is returned once."""
        trash, self._trash[:] = list(self._trash), []
        return trash

    def delete_delay_ms(self, path: str) -> int | None:
        """How long a file of the trash must be kept: its topic's `file.delete.delay.ms`; None if it does not belong to
        a topic."""
        parsed = parse_partition_directory_name(path.rpartition("/")[0].rpartition("/")[2])
        log = None if parsed is None else self._logs.get(parsed[:2])
        return None if log is None else log.config.file_delete_delay_ms

    def remove_trash(self, paths: Iterable[str]) -> list[OSError]:
        """Unlink them. May be called from a thread. Returns the errors; the next startup retries these paths."""
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
        """The current checkpoints of all online directories, or some kinds of them; see the module docstring."""
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
        """They are written. Put them in place, unless a log was truncated since then: they may be ahead of it."""
        files.finish(keep=files.generation == self._generation)
        for directory, error in files.failures:
            self._failed(directory, error)

    def flush_checkpoints(self, high_watermarks: Mapping[TopicPartition, int] | None = None) -> None:
        """All three steps; waits for the device."""
        files = self.begin_checkpoints(high_watermarks)
        files.run()
        self.end_checkpoints(files)

    def begin_cleaner_checkpoints(self) -> CheckpointFiles:
        """The offsets up to which the logs were compacted. Completed by `end_checkpoints`, too."""
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
        """The logs that are about to be replaced by copies in this directory: its checkpoints must contain them."""
        return [future.log for future in self.futures.values() if future.is_durable and future.directory is directory]

    def begin_truncations(self, truncations: Mapping[Log, int]) -> CheckpointFiles | None:
        """The lower checkpoints that must be durable before these logs are truncated to these offsets; None if the
        present ones are not ahead of them.

        `run` them, in any thread, then call `end_truncation_checkpoints`. Without all of this, `Log.truncate_to` lowers
        the checkpoints, and waits for the device.
        """
        lowered = {_key(log): offset for log, offset in truncations.items() if offset < log.flushed_offset}
        if not lowered:
            return None
        self._checkpoint_number += 1
        files = CheckpointFiles(self.file_system, self._generation, self._checkpoint_number)
        for key, offset in lowered.items():
            self._lower_clean_offset(key, offset)
        for directory in {id(found): found for found in map(self._directory_of.get, lowered) if found}.values():
            points = {_key(log): log.recovery_point for log in self._logs_in(directory)}
            for key in points.keys() & lowered.keys():
                points[key] = min(points[key], lowered[key])
            files.add(directory, RECOVERY_POINT_CHECKPOINT, encode_offsets(points))
            files.add(directory, CLEANER_OFFSET_CHECKPOINT, self._clean_offsets(directory))
        return files

    def end_truncation_checkpoints(
        self, files: CheckpointFiles, truncations: Mapping[Log, int]
    ) -> Callable[[], None] | None:
        """They are written: put them in place. Returns the sync of their names, to be called in any thread; it raises
        OSError. None if another log was truncated meanwhile, so that they are not in place."""
        self.end_checkpoints(files)
        if not files.is_in_place:
            return None
        self._generation += 1  # checkpoints that are being written have the earlier offsets
        for log, offset in truncations.items():
            log.lower_recovery_point(offset)
        return files.sync_names

    def _before_truncation(self, log: Log, directory: LogDirectory) -> None:
        """Lower the checkpoints immediately, because a log is about to be truncated: they must not be ahead of it."""
        self._generation += 1
        self.file_system.replace_file(
            join(directory.path, RECOVERY_POINT_CHECKPOINT), _recovery_points(self._logs_in(directory)), sync=True
        )
        if self._lower_clean_offset(_key(log), log.flushed_offset):
            self.file_system.replace_file(
                join(directory.path, CLEANER_OFFSET_CHECKPOINT), self._clean_offsets(directory), sync=True
            )

    def _lower_clean_offset(self, key: TopicPartition, offset: int) -> bool:
        """What is not in the log any more is not compacted. Returns whether that has changed."""
        if self.clean_offsets.get(key, 0) <= offset:
            return False
        self.clean_offsets[key] = offset
        return True

    def _logs_in(self, directory: LogDirectory) -> list[Log]:
        return [log for key, log in self._logs.items() if self._directory_of[key] is directory]

    # Failure and shutdown

    def _failed(self, directory: LogDirectory, error: OSError) -> KafkaError:
        from .files import TRANSIENT_ERRNOS

        if error.errno not in TRANSIENT_ERRNOS:
            self.directory_failed(directory, error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory.path}: {error.strerror or error}")

    def directory_failed(self, directory: LogDirectory, error: OSError) -> None:
        """The directory's device failed: take it and its logs offline."""
        if directory.online:
            directory.fail(error, self._logs_in(directory))
            self._report_failure(directory, error)

    def _report_failure(self, directory: LogDirectory, error: OSError) -> None:
        if self.on_directory_failure is not None:
            self.on_directory_failure(directory, error, self._logs_in(directory))

    def close(
        self,
        *,
        now_ms: int,
        broker_epoch: int = -1,
        high_watermarks: Mapping[TopicPartition, int] | None = None,
        run: RunFlushes = map,
    ) -> None:
        """A clean shutdown: close and sync all logs, mark the directories clean, release the locks.

        `run` may use threads: nearly all of the time is spent waiting for the device.
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
    """Close the logs; returns those that failed."""
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


def _unusable_message(path: str, error: OSError) -> str:
    if isinstance(error, FileExistsError | NotADirectoryError):
        return f"{path} cannot be used: it, or a part of its path, is a file. Name a directory."
    advice = ""
    if error.errno in (errno.EACCES, errno.EPERM):
        advice = ". The user of the server must be able to write there: change the owner, or name another directory."
    elif error.errno == errno.EROFS:
        advice = ". Mount it for writing, or name another directory."
    where = f" at {error.filename}" if isinstance(error.filename, str) and error.filename != path else ""
    return f"{path} cannot be used: {error.strerror or error}{where}{advice}"


def _key(log: Log) -> TopicPartition:
    return log.topic, log.partition


def _recovery_points(logs: Iterable[Log]) -> bytes:
    return encode_offsets({_key(log): log.recovery_point for log in logs})


def _log_start_offsets(logs: Iterable[Log]) -> bytes:
    # As in Apache Kafka: only where it is not the base offset of the first segment.
    return encode_offsets(
        {_key(log): log.log_start_offset for log in logs if log.log_start_offset > log.segments[0].base_offset}
    )
