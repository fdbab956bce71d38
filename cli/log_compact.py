"""``moldau log compact``: offline compaction of log directories."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .failure import Failure
from .output import print_json, print_table

if TYPE_CHECKING:
    from ..log.compaction.job import CompactionResult, CompactionStatistics, Replacement
    from ..log.manager import LogManager
    from ..log.partition_log import Log

Progress = Callable[[int, int], None]


@click.command("compact", short_help="Compact log directories while no server uses them.")
@click.argument("directories", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--now", is_flag=True, help="Compact everything, regardless of min.cleanable.dirty.ratio.")
@click.option("--topic", "topics", multiple=True, metavar="NAME", help="Compact only this topic; repeatable.")
@click.option("--config", "config_file", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
              help="The server's server.properties file, if it uses one.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per partition.")
def compact(
    directories: tuple[Path, ...], now: bool, topics: tuple[str, ...], config_file: Path | None, as_json: bool
) -> None:
    """Compact the topics with cleanup.policy=compact in DIRECTORIES, which must be all log directories of one server.

    Stop the server first; a directory in use is rejected. After an unclean shutdown the logs are recovered first, as at
    a server start. A running server compacts automatically.

    \b
    Examples:
      moldau log compact --now /var/lib/moldau
      moldau log compact --now /var/lib/moldau --topic __consumer_offsets
    """
    rows = []
    problems = []
    with _opened(directories, config_file) as manager:
        logs = sorted(manager.logs(), key=lambda log: (log.topic, log.partition))
        unknown = set(topics) - {log.topic for log in logs}
        if unknown:
            raise Failure(f"unknown topic {', '.join(sorted(unknown))} in {', '.join(map(str, directories))}")
        chosen = [log for log in logs if log.config.compacted and (not topics or log.topic in topics)]
        if topics and not chosen:
            raise Failure(f"cannot compact {', '.join(topics)}: cleanup.policy does not include compact")
        with _progress() as show:
            for log in chosen:
                name = f"{log.topic}-{log.partition}"
                before = log.size
                try:
                    done = _compact(manager, log, now, show(name))
                except _NotCompactedError as problem:
                    problems.append(f"{name}: {problem}")
                    continue
                kept = sum(statistics.records_kept for statistics in done[-1:])
                dropped = sum(statistics.records_dropped for statistics in done)
                rows.append((name, len(done), before, log.size, dropped, kept))
    columns = ("partition", "passes", "bytes before", "bytes after", "records dropped", "records kept")
    if as_json:
        for row in rows:
            print_json(dict(zip((column.replace(" ", "_") for column in columns), row, strict=True)))
    elif rows:
        print_table(columns, rows)
    if problems:
        raise Failure("; ".join(problems))


class _NotCompactedError(Exception):
    """A partition could not be compacted; the message says why."""


@contextlib.contextmanager
def _opened(directories: tuple[Path, ...], config_file: Path | None) -> "Iterator[LogManager]":
    """The logs as a context manager, opened and closed like in a server."""
    from ..config.definition import ConfigError
    from ..config.sources import load
    from ..log.checkpoints import META_PROPERTIES
    from ..log.files import RealFileSystem
    from ..server.storage.opening import StorageError, open_storage

    for directory in directories:
        if not (directory / META_PROPERTIES).exists():
            raise Failure(f"{directory} is not a log directory: {META_PROPERTIES} is missing")
    try:
        config = load(file=config_file)
        paths = [str(directory) for directory in directories]
        storage = open_storage(
            config, paths, config.listeners, now_ms=time.time_ns() // 1_000_000, file_system=RealFileSystem()
        )
    except (ConfigError, StorageError) as error:
        raise Failure(str(error)) from error
    try:
        yield storage.log_manager
        storage.log_manager.remove_trash(storage.log_manager.take_trash())
    finally:
        storage.close(_now_ms(), _high_watermarks(storage.log_manager))


def _high_watermarks(manager: "LogManager") -> dict[tuple[str, int], int]:
    """The checkpointed high watermarks; the log end offset of a log without one, which has no followers."""
    ends = {(log.topic, log.partition): log.log_end_offset for log in manager.logs()}
    return {key: min(manager.high_watermarks.get(key, end), end) for key, end in ends.items()}


def _compact(manager: "LogManager", log: "Log", now: bool, progress: Progress) -> "list[CompactionStatistics]":
    """Compact a log in as many passes as needed. Returns the statistics of each pass."""
    from ..log.compaction.job import CorruptSegmentError
    from ..protocol.errors import KafkaError

    done: list[CompactionStatistics] = []
    key = (log.topic, log.partition)
    clean_offset = None if now else manager.clean_offsets.get(key)
    try:
        if now:
            log.roll(_now_ms())
        while True:
            result = _pass(manager, log, clean_offset, None if now else log.config.min_cleanable_dirty_ratio, progress)
            if result is None:
                return done
            done.append(result.statistics)
            if clean_offset is not None and result.clean_offset <= clean_offset:
                return done
            clean_offset = manager.clean_offsets[key] = result.clean_offset
            files = manager.begin_cleaner_checkpoints()
            files.run()
            manager.end_checkpoints(files)
    except (CorruptSegmentError, KafkaError, OSError) as error:
        raise _NotCompactedError(str(error)) from error


def _pass(
    manager: "LogManager", log: "Log", clean_offset: int | None, ratio: float | None, progress: Progress
) -> "CompactionResult | None":
    """One pass, with the steps of `server.upkeep.log_cleaner` in order. None if there is nothing to compact."""
    from ..log.compaction.compact import compact

    first_unstable = log.first_unstable_offset()
    stable = log.log_end_offset if first_unstable is None else first_unstable
    cleanable = log.cleanable(clean_offset, stable, _now_ms())
    if not cleanable.cleanable_bytes or (ratio is not None and not cleanable.due(ratio)):
        return None
    log.prepare_compaction()
    log.flush(_now_ms())
    manager.flush_checkpoints()
    manager.file_system.sync_directory(log.log_dir)
    compaction = log.begin_compaction(cleanable, now_ms=_now_ms(), dedupe_buffer_bytes=_BUFFER_BYTES)
    if compaction is None:
        return None

    def put_in_place(replacement: "Replacement") -> None:
        compaction.put_in_place(replacement, _now_ms())

    try:
        result = compact(compaction.job, manager.file_system, on_progress=progress, on_replacement=put_in_place)
        compaction.end(result, _now_ms())
    except BaseException:
        compaction.cancel()
        raise
    manager.file_system.sync_directory(log.directory)
    return result


# A server's default: log.cleaner.dedupe.buffer.size times log.cleaner.io.buffer.load.factor.
_BUFFER_BYTES = 120_795_955


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str], Progress]]:
    """A progress bar on standard error, for one partition after another; nothing if it is not a terminal."""
    import sys

    if not sys.stderr.isatty():
        yield lambda name: lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Bars(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task("", total=None)

        def show(name: str) -> Progress:
            bars.reset(bar, description=name, total=None)
            return lambda done, total: bars.update(bar, completed=done, total=total)

        yield show
