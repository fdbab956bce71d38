"""Loading all logs of a broker at startup: a function of the log directories and the metadata that returns its result.

Each partition's log is opened by `partition_loading.load_log`, which recovers it if its directory was not left cleanly.
Before that, the metadata decides about the directories: partitions that it does not know become strays, and of two
copies of a partition one is the replica. A log directory whose device fails goes offline with its logs; the others are
loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Protocol

from ..protocol.named_tuples import NamedTuple
from ..protocol.records import UnsupportedMagicError
from .checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    CorruptCheckpointError,
    TopicPartition,
)
from .config import LogConfig
from .descriptors import DescriptorCache
from .directory import LogDirectory, LogDirectoryError
from .files import join
from .names import (
    DELETE_DIRECTORY,
    METADATA_TOPIC,
    STRAY_DIRECTORY,
    parse_partition_directory_name,
    partition_directory_name,
)
from .partition_directory import blocking_message, inspect_partition_directory, retire_directory
from .partition_loading import load_log
from .partition_log import Log


class InterruptedMove(NamedTuple):
    """A `-future` directory that exists besides the log that it is a copy of."""

    topic: str
    partition: int
    directory: LogDirectory
    path: str


class UncleanLog(NamedTuple):
    """A log that has to be recovered."""

    path: str
    recovery_point: int
    """From the checkpoint; 0 without one."""


class LoadProgress(Protocol):
    """Observes the progress of loading."""

    def begin(self, unclean: Mapping[str, Sequence[UncleanLog]]) -> None:
        """These logs will be recovered, by log directory, in this order."""

    def next(self, path: str) -> None:
        """The next log of this directory is loaded now."""


class LoadReport:
    """What loading found, for the server's log."""

    def __init__(self) -> None:
        self.loaded = 0
        """The number of partitions that are open."""
        self.recovered_directories: list[str] = []
        """Log directories that were not left cleanly."""
        self.repairs: list[str] = []
        """One text for each repair; everything that was repaired lay beyond what had been synced."""
        self.strays: list[str] = []
        """Directories of partitions that do not belong to this broker, under their new names."""
        self.failed: list[str] = []
        """Partitions that could not be opened, and why; their files are unchanged."""
        self.ignored: list[str] = []
        """Directories that are not a partition's."""
        self.foreign: list[str] = []
        """Those of them that have a partition's name, and what they contain."""
        self.links: list[str] = []
        """Partition directories that are symbolic links, and their targets; they are served."""

    def summary(self) -> str:
        """One line for the server's log."""
        parts = [f"loaded {self.loaded} partitions"]
        if self.recovered_directories:
            parts.append(f"recovered {', '.join(self.recovered_directories)} after an unclean shutdown")
            parts.append(f"{len(self.repairs)} repairs" if self.repairs else "no repairs were needed")
        elif self.repairs:
            parts.append(f"{len(self.repairs)} repairs")
        if self.repairs:
            parts.append("; ".join(self.repairs))
        if self.strays:
            parts.append(f"set aside {len(self.strays)} strays: {', '.join(self.strays)}")
        if self.foreign:
            parts.append(
                f"ignored {len(self.foreign)} directories that have a partition's name but are not partitions: "
                f"{'; '.join(self.foreign)}"
            )
        if self.failed:
            parts.append(f"{len(self.failed)} failed: {'; '.join(self.failed)}")
        if self.links:
            parts.append(
                f"{len(self.links)} symbolic links (deleting a partition removes only the link): "
                f"{', '.join(self.links)}"
            )
        return ", ".join(parts)


class LoadedLogs:
    """The result of `load_logs`."""

    def __init__(self) -> None:
        self.report = LoadReport()
        self.logs: dict[TopicPartition, tuple[Log, LogDirectory]] = {}
        """The logs that are open, and those of directories that failed later, which are offline."""
        self.unloadable: dict[TopicPartition, str] = {}
        """Partitions that exist and could not be opened, and why."""
        self.failures: list[tuple[LogDirectory, OSError]] = []
        """Log directories that went offline during loading."""
        self.interrupted_moves: list[InterruptedMove] = []
        """Moves between log directories that must begin again."""
        self.trash: list[str] = []
        """Files and directories to be removed."""
        self.high_watermarks: dict[TopicPartition, int] = {}
        """From the checkpoints."""
        self.clean_offsets: dict[TopicPartition, int] = {}
        """From the checkpoints, for the logs that are open: the offset up to which each was compacted."""
        self.in_checkpoints: set[TopicPartition] = set()
        """The partitions that the checkpoints contain, whether or not they exist."""


def load_logs(
    files: DescriptorCache,
    directories: Sequence[LogDirectory],
    *,
    now_ms: int,
    config_of: Callable[[str], LogConfig],
    is_stray: Callable[[str, int, bytes | None], bool] | None,
    directory_id_of: Callable[[str, int], bytes | None],
    compacted_anywhere: bool,
    progress: LoadProgress | None,
) -> LoadedLogs:
    """Open the log of every partition in `directories`, which must be open. The arguments are those of
    `LogManager.load`, which has the defaults.

    Raises `LogDirectoryError` if a partition is in two directories and the metadata does not say in which it should be.
    """
    return _Loading(files, directories, now_ms, config_of, is_stray, directory_id_of).load(compacted_anywhere, progress)


class _Partition(NamedTuple):
    """A partition's directory that is to be loaded."""

    path: str
    topic: str
    partition: int

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition


class _Contents:
    """The contents of one log directory: its checkpoints and its partitions."""

    def __init__(self, directory: LogDirectory) -> None:
        self.directory = directory
        self.recovery_points: dict[TopicPartition, int] = {}
        self.start_offsets: dict[TopicPartition, int] = {}
        self.clean_offsets: dict[TopicPartition, int] = {}
        self.knows_gaps = False
        """Whether it is known which gaps between offsets may be the result of compaction."""
        self.partitions: list[_Partition] = []
        self.futures: list[_Partition] = []


class _Loading:
    """One call of `load_logs`: its arguments, and the result so far."""

    def __init__(
        self,
        files: DescriptorCache,
        directories: Sequence[LogDirectory],
        now_ms: int,
        config_of: Callable[[str], LogConfig],
        is_stray: Callable[[str, int, bytes | None], bool] | None,
        directory_id_of: Callable[[str, int], bytes | None],
    ) -> None:
        self._files = files
        self._file_system = files.file_system
        self._directories = directories
        self._now_ms = now_ms
        self._config_of = config_of
        self._is_stray = is_stray
        self._directory_id_of = directory_id_of
        self._loaded = LoadedLogs()
        self._report = self._loaded.report

    def load(self, compacted_anywhere: bool, progress: LoadProgress | None) -> LoadedLogs:
        self._report.failed += [each.failure for each in self._directories if each.failure is not None]
        found = []
        for directory in self._directories:
            if directory.online:
                try:
                    found.append(self._find_partitions(directory, compacted_anywhere))
                except OSError as error:
                    self._directory_failed(directory, error)
        if self._is_stray is not None:
            for contents in found:
                try:
                    self._retire_strays(contents)
                except OSError as error:
                    self._directory_failed(contents.directory, error)
        self._resolve_duplicates(found)
        if progress is not None:
            progress.begin(
                {
                    contents.directory.path: [
                        UncleanLog(each.path, contents.recovery_points.get(each.key, 0)) for each in contents.partitions
                    ]
                    for contents in found
                    if not contents.directory.was_clean
                }
            )
        # The directories alternate: they may be on different disks.
        for row in zip_longest(*(contents.partitions for contents in found)):
            for contents, partition in zip(found, row, strict=True):
                if partition is not None and contents.directory.online:
                    if progress is not None:
                        progress.next(contents.directory.path)
                    try:
                        self._load_partition(contents, partition)
                    except OSError as error:
                        self._directory_failed(contents.directory, error)
        for contents in found:
            if contents.directory.online:
                try:
                    self._load_futures(contents)
                    self._end_recovery(contents)
                except OSError as error:
                    self._directory_failed(contents.directory, error)
        self._report.loaded = len(self._loaded.logs)
        return self._loaded

    def _directory_failed(self, directory: LogDirectory, error: OSError) -> None:
        self._report.failed.append(f"{directory.path}: {error.strerror or error}")
        if not directory.online:
            return
        directory.fail(error, [log for log, parent in self._loaded.logs.values() if parent is directory])
        self._loaded.failures.append((directory, error))

    # Finding partitions

    def _find_partitions(self, directory: LogDirectory, compacted_anywhere: bool) -> _Contents:
        """Read the checkpoints, and list the partitions."""
        contents = _Contents(directory)
        directory.begin_loading()
        contents.recovery_points, problem = directory.read_offsets(RECOVERY_POINT_CHECKPOINT)
        contents.start_offsets, second = directory.read_offsets(LOG_START_OFFSET_CHECKPOINT)
        high_watermarks, third = directory.read_offsets(HIGH_WATERMARK_CHECKPOINT)
        contents.clean_offsets, fourth = directory.read_offsets(CLEANER_OFFSET_CHECKPOINT)
        self._report.repairs += [text for text in (problem, second, third, fourth) if text is not None]
        # The checkpoint is written before a pass puts segments in place. Where it is lost, compaction may have left any
        # gap.
        if problem is None and directory.has_checkpoint(RECOVERY_POINT_CHECKPOINT):
            contents.knows_gaps = not compacted_anywhere
        self._loaded.high_watermarks.update(high_watermarks)
        self._loaded.in_checkpoints.update(contents.recovery_points, contents.start_offsets, contents.clean_offsets)
        files, names = self._file_system.list_directory(directory.path)
        for name in sorted(files):
            self._check_file(join(directory.path, name), name)
        for name in sorted(names):
            self._classify(contents, name)
        return contents

    def _classify(self, contents: _Contents, name: str) -> None:
        parsed = parse_partition_directory_name(name)
        path = join(contents.directory.path, name)
        if parsed is None:
            self._report.ignored.append(path)
            return
        topic, partition, state = parsed
        if topic == METADATA_TOPIC:
            return
        found = _Partition(path, topic, partition)
        if state == STRAY_DIRECTORY:
            self._report.ignored.append(path)
        elif not state:
            contents.partitions.append(found)
        elif not self._report_foreign(path):
            if state == DELETE_DIRECTORY:
                self._loaded.trash.append(path)
            else:
                contents.futures.append(found)

    def _check_file(self, path: str, name: str) -> None:
        """A file with a partition's name is an error: a new partition in its place would hide what is lost."""
        parsed = parse_partition_directory_name(name)
        if parsed is None or parsed[2] or parsed[0] == METADATA_TOPIC:
            return
        target = self._file_system.link_target(path)
        if target is None:
            reason = "it is a file, but a partition's directory is expected here"
        else:
            reason = f"it is a symbolic link to {target}, which does not exist; check that the disk is mounted"
        self._report.failed.append(f"{path}: {reason}")
        self._loaded.unloadable[parsed[:2]] = f"{path}: {reason}"

    def _report_foreign(self, path: str) -> bool:
        """Whether a directory to be removed or moved contains anything else than a partition. Then it is reported."""
        target = self._file_system.link_target(path)
        foreign = (
            inspect_partition_directory(self._file_system, path).foreign
            if target is None
            else f"it is a symbolic link to {target}"
        )
        if foreign is not None:
            self._report.foreign.append(f"{path} ({foreign})")
        return foreign is not None

    def _retire_strays(self, contents: _Contents) -> None:
        """Partitions whose name the metadata does not know are not opened."""
        kept = []
        for found in contents.partitions:
            if self._is_unknown(found, None):
                self._retire_stray(found, contents.directory)
            else:
                kept.append(found)
        contents.partitions = kept

    def _is_unknown(self, found: _Partition, topic_id: bytes | None) -> bool:
        return self._is_stray is not None and self._is_stray(found.topic, found.partition, topic_id)

    def _retire_stray(self, found: _Partition, directory: LogDirectory) -> bool:
        """Rename a stray. A directory that is not a partition's is only reported. Returns whether it was renamed."""
        contents = inspect_partition_directory(self._file_system, found.path)
        if not contents.is_partition:
            self._report.foreign.append(f"{found.path} ({contents.problem})")
            return False
        path = retire_directory(self._file_system, found.path, found.key, directory, STRAY_DIRECTORY)
        self._report.strays.append(path)
        return True

    def _resolve_duplicates(self, found: Iterable[_Contents]) -> None:
        """If a partition is in two directories, the metadata decides, if one of them is the replica's."""
        places: dict[TopicPartition, list[tuple[_Contents, _Partition]]] = {}
        for contents in found:
            for partition in contents.partitions:
                places.setdefault(partition.key, []).append((contents, partition))
        for key, copies in places.items():
            if len(copies) == 1:
                continue
            directory_id = self._directory_id_of(*key)
            copies = self._without_foreign(copies)
            if len(copies) < 2:
                continue
            if all(contents.directory.directory_id != directory_id for contents, _partition in copies):
                raise LogDirectoryError(
                    f"{key[0]}-{key[1]} is both in {copies[1][1].path} and in {copies[0][1].path}. "
                    f"Remove the outdated copy."
                )
            for contents, partition in copies:
                if contents.directory.directory_id != directory_id:
                    contents.partitions.remove(partition)
                    self._retire_stray(partition, contents.directory)

    def _without_foreign(self, copies: list[tuple[_Contents, _Partition]]) -> list[tuple[_Contents, _Partition]]:
        """Report, and do not load, directories that contain other files and none of a partition."""
        kept = []
        for contents, partition in copies:
            inside = inspect_partition_directory(self._file_system, partition.path)
            if inside.foreign is None or inside.has_partition_files:
                kept.append((contents, partition))
            else:
                contents.partitions.remove(partition)
                self._report.foreign.append(f"{partition.path} ({inside.foreign})")
        return kept

    # Opening logs

    def _load_partition(self, contents: _Contents, found: _Partition) -> None:
        path, key, directory = found.path, found.key, contents.directory
        target = self._file_system.link_target(path)
        if target is not None:
            self._report.links.append(f"{path} to {target}")
        try:
            log = load_log(
                self._files,
                path,
                *key,
                self._config_of(found.topic),
                clean=directory.was_clean,
                now_ms=self._now_ms,
                recovery_point=contents.recovery_points.get(key, 0),
                log_start_offset=contents.start_offsets.get(key, 0),
                compacted_until=contents.clean_offsets.get(key, 0) if contents.knows_gaps else None,
            )
        except (CorruptCheckpointError, UnsupportedMagicError) as error:
            self._report.failed.append(f"{path}: {error}")
            self._loaded.unloadable[key] = str(error)
            return
        if log.topic_id is None:
            inside = inspect_partition_directory(self._file_system, path)
            if inside.foreign is not None and not inside.has_partition_files:
                log.abandon()
                self._loaded.unloadable[key] = f"{blocking_message(path, inside.foreign)}, then restart the server"
                self._report.failed.append(self._loaded.unloadable[key])
                return
        self._loaded.trash += log.trash
        self._report.repairs += log.repairs
        if self._is_unknown(found, log.topic_id):
            log.abandon()
            if not self._retire_stray(found, directory):
                reason = (
                    f"{path} belongs to another topic with this name, and contains files that are not a partition's"
                )
                self._loaded.unloadable[key] = reason
        else:
            self._loaded.logs[key] = log, directory
            if key in contents.clean_offsets:
                self._loaded.clean_offsets[key] = contents.clean_offsets[key]

    def _load_futures(self, contents: _Contents) -> None:
        """Interrupted moves: those that had reached the swap are completed, the others must begin again."""
        directory = contents.directory
        for found in contents.futures:
            if found.key in self._loaded.logs:
                if self._loaded.logs[found.key][1] is not directory:
                    move = InterruptedMove(found.topic, found.partition, directory, found.path)
                    self._loaded.interrupted_moves.append(move)
                else:
                    path = retire_directory(self._file_system, found.path, found.key, directory, DELETE_DIRECTORY)
                    self._loaded.trash.append(path)
            elif self._is_unknown(found, None):
                self._retire_stray(found, directory)
            elif (
                found.key not in self._loaded.unloadable and self._directory_id_of(*found.key) == directory.directory_id
            ):
                path = join(directory.path, partition_directory_name(*found.key))
                self._file_system.rename(found.path, path)
                self._report.repairs.append(
                    f"completed the move of {found.topic}-{found.partition} to {directory.path}"
                )
                contents.partitions.append(found)
                self._load_partition(contents, found._replace(path=path))
                self._file_system.sync_directory(directory.path)
            else:
                self._report.ignored.append(found.path)

    def _end_recovery(self, contents: _Contents) -> None:
        directory = contents.directory
        if not directory.was_clean:
            # The process that died may have created partitions.
            self._file_system.sync_directory(directory.path)
            if contents.partitions:
                self._report.recovered_directories.append(directory.path)
