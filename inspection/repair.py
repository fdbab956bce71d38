"""From findings to actions, until the offline check finds nothing more that can be repaired.

An action may cause other findings (a truncated log ends before its checkpoints), so a repair works in rounds: check,
plan, act. Damaged batches are removed only with `truncate`. Without it, no file of their partition is changed, because
data that is derived from the batches would be derived from only a part of them.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ..log.checkpoints import (
    HIGH_WATERMARK_CHECKPOINT,
    LOCK,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    CorruptCheckpointError,
    TopicPartition,
    decode_leader_epochs,
    encode_offsets,
    encode_partition_metadata,
)
from ..log.files import FileSystem, LockHeldError, join
from ..log.names import LEADER_EPOCH_CHECKPOINT, METADATA_TOPIC, PARTITION_METADATA, parse_offset_file_name
from .directory import (
    CLEANER_CHECKPOINT,
    REPORT_PREFIX,
    DirectoryContents,
    inspect_log_directory,
)
from .finding import Finding, Kind, Remedy
from .log_directories import CannotInspectError, InspectionReport, PartitionFacts, Watcher, inspect, log_directories
from .partition_repair import (
    correct_batch_epoch,
    cut_log,
    rebuild_indexes,
    rebuild_leader_epochs,
    rebuild_producers,
)

_MAX_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Action:
    """One action. `path` is a file for REMOVE, a segment's `.log` for TRUNCATE, BATCH_EPOCH and INDEXES, otherwise a
    directory."""

    remedy: Remedy
    path: str
    text: str
    """The text that is printed before the action."""
    partition: str | None = None
    position: int = 0
    offsets: tuple[int, ...] = ()
    """Offsets of the incorrect snapshots."""

    def as_json(self) -> dict[str, Any]:
        """The JSON form, also used in the report file."""
        return {
            "action": self.remedy.name.lower(),
            "file": self.path,
            "partition": self.partition,
            "position": self.position if self.remedy in (Remedy.TRUNCATE, Remedy.BATCH_EPOCH) else None,
            "text": self.text,
        }


def plan(report: InspectionReport, *, truncate: bool) -> list[Action]:
    """The actions that repair the findings, partition by partition."""
    by_directory: dict[str, list[Finding]] = {}
    for finding in report.findings:
        by_directory.setdefault(_folder(finding, report), []).append(finding)
    actions: list[Action] = []
    for folder, findings in by_directory.items():
        actions += _plan_folder(folder, findings, report, truncate)
    return list(dict.fromkeys(actions))


def _folder(finding: Finding, report: InspectionReport) -> str:
    """The partition's directory, or the log directory."""
    if finding.path in report.partitions or finding.path in report.directories:
        return finding.path
    return os.path.dirname(finding.path)


def _plan_folder(folder: str, findings: list[Finding], report: InspectionReport, truncate: bool) -> Iterator[Action]:
    name = findings[0].partition
    facts = report.partitions.get(folder)
    for finding in findings:
        if finding.remedy is Remedy.REMOVE:
            yield Action(Remedy.REMOVE, finding.path, f"remove {finding.path}", name)
    damage = [finding for finding in findings if finding.remedy is Remedy.TRUNCATE]
    if damage:
        if truncate:
            yield _cut(min(damage, key=lambda finding: (finding.path, finding.position or 0)))
        return
    if facts is not None and not facts.whole and not facts.gaps_only:
        return
    wrong = []
    for finding in findings:
        match finding.remedy:
            case Remedy.INDEXES:
                path = finding.path.rpartition("/")[0] + "/" + os.path.basename(finding.path).partition(".")[0] + ".log"
                yield Action(Remedy.INDEXES, path, f"rebuild the indexes of {path}", finding.partition)
            case Remedy.BATCH_EPOCH:
                position = finding.position or 0
                text = f"write the leader epoch of {LEADER_EPOCH_CHECKPOINT} to {finding.path} at position {position}"
                yield Action(Remedy.BATCH_EPOCH, finding.path, text, finding.partition, position)
            case Remedy.PRODUCERS:
                parsed = parse_offset_file_name(os.path.basename(finding.path))
                if finding.kind is Kind.SNAPSHOT and parsed is not None:
                    wrong.append(parsed[0])
            case Remedy.LEADER_EPOCHS:
                text = f"rebuild {join(folder, LEADER_EPOCH_CHECKPOINT)} from the batches"
                yield Action(Remedy.LEADER_EPOCHS, folder, text, finding.partition)
            case Remedy.TOPIC_ID:
                text = f"write {join(folder, PARTITION_METADATA)} from the metadata log"
                yield Action(Remedy.TOPIC_ID, folder, text, finding.partition)
            case Remedy.CHECKPOINT:
                directory = folder if facts is None else os.path.dirname(folder)
                yield Action(Remedy.CHECKPOINT, directory, f"correct the checkpoints of {directory}")
            case _:
                pass
    if any(finding.remedy is Remedy.PRODUCERS for finding in findings):
        text = f"rebuild producer snapshots and transaction indexes in {folder}"
        yield Action(Remedy.PRODUCERS, folder, text, name, offsets=tuple(wrong))


def _cut(finding: Finding) -> Action:
    position = finding.position or 0
    text = (
        f"truncate {finding.path} at position {position} and remove later segments; .cut- files keep the removed bytes"
    )
    return Action(Remedy.TRUNCATE, finding.path, text, finding.partition, position)


class Repair:
    """A repair of log directories; a context manager that locks them."""

    def __init__(self, file_system: FileSystem, paths: Sequence[str], *, truncate: bool) -> None:
        self._files = file_system
        self._paths = paths
        self._truncate = truncate
        self._stack = contextlib.ExitStack()
        self._directories: list[str] = []
        self.done: list[Action] = []
        self.report = InspectionReport()
        """The report of the latest inspection."""

    def __enter__(self) -> Repair:
        """Raises `CannotInspectError` if a server uses the directory or it is not writable."""
        self._directories = log_directories(self._files, self._paths)
        try:
            for directory in self._directories:
                lock = self._files.lock(join(directory, LOCK))
                self._stack.callback(lock.release)
        except LockHeldError:
            self._stack.close()
            raise CannotInspectError(f"{directory} is in use by a running server. Stop the server first.") from None
        except OSError as error:
            self._stack.close()
            raise CannotInspectError(f"cannot write to {directory}: {error.strerror or error}") from error
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def inspect(self, watcher: Watcher | None = None) -> list[Action]:
        """Inspect, and return the actions to take."""
        self.report = inspect(self._files, self._paths, watcher=watcher, is_locked=True)
        return plan(self.report, truncate=self._truncate)

    def run(self, actions: list[Action], *, now_ms: int, watcher: Watcher | None = None) -> list[str]:
        """Execute the actions and those that follow from them. Returns the report files, one in each directory."""
        before = list(self.report.findings)
        for _ in range(_MAX_ROUNDS):
            actions = [action for action in actions if self.done.count(action) < 2]
            if not actions:
                break
            for action in actions:
                self._perform(action)
                self.done.append(action)
            actions = self.inspect(watcher)
        return self._write_reports(before, now_ms)

    def _perform(self, action: Action) -> None:
        files, path = self._files, action.path
        match action.remedy:
            case Remedy.REMOVE:
                files.unlink(path)
                files.sync_directory(os.path.dirname(path))
            case Remedy.TRUNCATE:
                cut_log(files, os.path.dirname(path), _base_offset(path), action.position)
            case Remedy.BATCH_EPOCH:
                correct_batch_epoch(files, os.path.dirname(path), _base_offset(path), action.position)
            case Remedy.INDEXES:
                rebuild_indexes(files, os.path.dirname(path), _base_offset(path))
            case Remedy.PRODUCERS:
                rebuild_producers(files, path, action.offsets, clean=bool(self._facts(path).clean))
            case Remedy.LEADER_EPOCHS:
                rebuild_leader_epochs(files, path, self._facts(path).log_start_offset)
            case Remedy.TOPIC_ID:
                topic_id = self._facts(path).topic_id
                assert topic_id is not None
                files.replace_file(join(path, PARTITION_METADATA), encode_partition_metadata(topic_id), sync=True)
            case Remedy.CHECKPOINT:
                self._correct_checkpoints(path)

    def _facts(self, path: str) -> PartitionFacts:
        return self.report.partitions[path]

    # Checkpoints

    def _correct_checkpoints(self, directory: str) -> None:
        """Move the offsets of undamaged partitions into the range of their logs; the others are unchanged.

        This includes partitions with missing offsets, which cannot be repaired: otherwise the next repair would retry.
        """
        contents = inspect_log_directory(self._files, directory)
        facts = {
            key: found
            for key, name in contents.partitions.items()
            if key[0] != METADATA_TOPIC
            and (found := self.report.partitions.get(join(directory, name))) is not None
            and (found.whole or found.gaps_only)
        }
        for checkpoint, corrected in (
            (RECOVERY_POINT_CHECKPOINT, self._ends(contents, RECOVERY_POINT_CHECKPOINT, facts)),
            (HIGH_WATERMARK_CHECKPOINT, self._ends(contents, HIGH_WATERMARK_CHECKPOINT, facts)),
            (LOG_START_OFFSET_CHECKPOINT, self._starts(contents, facts)),
            (CLEANER_CHECKPOINT, _not_negative(contents.checkpoints.get(CLEANER_CHECKPOINT, {}))),
        ):
            path = join(directory, checkpoint)
            if not self._files.exists(path):
                wanted = contents.clean and checkpoint != CLEANER_CHECKPOINT
            else:
                wanted = self._files.read_file(path) != encode_offsets(corrected)
            if wanted:
                self._files.replace_file(path, encode_offsets(corrected), sync=True)

    def _ends(
        self, contents: DirectoryContents, checkpoint: str, facts: dict[TopicPartition, PartitionFacts]
    ) -> dict[TopicPartition, int]:
        """Recovery points and high watermarks must not exceed the log end offset; after a clean shutdown the recovery
        point is equal to it. A high watermark below it may be correct if there are followers. Without recovery points,
        startup recovers everything."""
        offsets = _not_negative(contents.checkpoints.get(checkpoint, {}))
        for key, found in facts.items():
            if contents.clean and (key not in offsets or checkpoint == RECOVERY_POINT_CHECKPOINT):
                offsets[key] = found.log_end_offset
            elif key in offsets:
                offsets[key] = min(offsets[key], found.log_end_offset)
        return offsets

    def _starts(
        self, contents: DirectoryContents, facts: dict[TopicPartition, PartitionFacts]
    ) -> dict[TopicPartition, int]:
        """Log start offsets. An offset beyond the log end offset is removed, so that the records are kept; the offsets
        of a damaged file are restored from the leader epochs, which begin with the log."""
        offsets = _not_negative(contents.checkpoints.get(LOG_START_OFFSET_CHECKPOINT, {}))
        for key, found in facts.items():
            if offsets.get(key, 0) > found.log_end_offset:
                del offsets[key]
            elif key not in offsets:
                start = self._first_epoch_offset(join(contents.path, contents.partitions[key]))
                if contents.clean and found.first_offset < start <= found.log_end_offset:
                    offsets[key] = start
        return offsets

    def _first_epoch_offset(self, folder: str) -> int:
        path = join(folder, LEADER_EPOCH_CHECKPOINT)
        try:
            entries = decode_leader_epochs(self._files.read_file(path), path)
        except (FileNotFoundError, CorruptCheckpointError):
            return -1
        return entries[0][1] if entries else -1

    # What was done

    def _write_reports(self, before: list[Finding], now_ms: int) -> list[str]:
        moment = datetime.fromtimestamp(now_ms / 1000, UTC)
        paths = []
        for directory in self._directories:
            prefix = directory.rstrip("/") + "/"
            content = {
                "time": moment.isoformat(timespec="seconds"),
                "found": [finding.as_json() for finding in before if _is_below(finding.path, directory, prefix)],
                "done": [action.as_json() for action in self.done if _is_below(action.path, directory, prefix)],
                "left": [
                    finding.as_json() for finding in self.report.findings if _is_below(finding.path, directory, prefix)
                ],
            }
            if not content["done"]:
                continue
            path = join(directory, f"{REPORT_PREFIX}{moment:%Y%m%dT%H%M%S}.json")
            self._files.replace_file(path, (json.dumps(content, indent=2) + "\n").encode(), sync=True)
            paths.append(path)
        return paths


def _is_below(path: str, directory: str, prefix: str) -> bool:
    return path == directory or path.startswith(prefix)


def _not_negative(offsets: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    return {key: offset for key, offset in offsets.items() if offset >= 0}


def _base_offset(path: str) -> int:
    parsed = parse_offset_file_name(os.path.basename(path))
    assert parsed is not None, path
    return parsed[0]
