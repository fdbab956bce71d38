"""From what an inspection found to what is done about it, until an inspection finds nothing more that can be mended.

What is done in one round may bring something else to light (a log that was cut ends before its checkpoints), so it goes
round by round: look, plan, do. Damaged batches are cut off only with `truncate`; without it, their partition keeps all
its files as they are, because everything that is made from the batches would be made from a part of them.
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
from ..log.inspection.directory import (
    CLEANER_CHECKPOINT,
    REPORT_PREFIX,
    DirectoryContents,
    inspect_log_directory,
)
from ..log.inspection.finding import Finding, Kind, Remedy
from ..log.inspection.repair import (
    correct_batch_epoch,
    cut_log,
    rebuild_indexes,
    rebuild_leader_epochs,
    rebuild_producers,
)
from ..log.names import LEADER_EPOCH_CHECKPOINT, METADATA_TOPIC, PARTITION_METADATA, parse_offset_file_name
from .inspection import CannotInspectError, InspectionReport, PartitionFacts, Watcher, inspect, log_directories

_MOST_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do. `path` is a file for REMOVE, a segment's `.log` for TRUNCATE, BATCH_EPOCH and INDEXES, else a
    directory."""

    remedy: Remedy
    path: str
    text: str
    """For people: what will be done."""
    partition: str | None = None
    position: int = 0
    offsets: tuple[int, ...] = ()
    """Of the snapshots that are wrong."""

    def as_json(self) -> dict[str, Any]:
        """For programs, and for the report in the directory."""
        return {
            "action": self.remedy.name.lower(),
            "file": self.path,
            "partition": self.partition,
            "position": self.position if self.remedy in (Remedy.TRUNCATE, Remedy.BATCH_EPOCH) else None,
            "text": self.text,
        }


def plan(report: InspectionReport, *, truncate: bool) -> list[Action]:
    """What can be done about the findings, partition by partition."""
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
                yield Action(Remedy.INDEXES, path, f"make the indexes of {path} anew", finding.partition)
            case Remedy.BATCH_EPOCH:
                position = finding.position or 0
                text = f"write the leader epoch of {LEADER_EPOCH_CHECKPOINT} into {finding.path} at position {position}"
                yield Action(Remedy.BATCH_EPOCH, finding.path, text, finding.partition, position)
            case Remedy.PRODUCERS:
                parsed = parse_offset_file_name(os.path.basename(finding.path))
                if finding.kind is Kind.SNAPSHOT and parsed is not None:
                    wrong.append(parsed[0])
            case Remedy.LEADER_EPOCHS:
                text = f"write {join(folder, LEADER_EPOCH_CHECKPOINT)} from the batches"
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
        text = f"make producer snapshots and aborted transactions in {folder} anew"
        yield Action(Remedy.PRODUCERS, folder, text, name, offsets=tuple(wrong))


def _cut(finding: Finding) -> Action:
    position = finding.position or 0
    text = f"cut {finding.path} at position {position}, and the segments after it; what is cut off is kept beside it"
    return Action(Remedy.TRUNCATE, finding.path, text, finding.partition, position)


class Repair:
    """A repair of log directories, which are locked from `with` on."""

    def __init__(self, file_system: FileSystem, paths: Sequence[str], *, truncate: bool) -> None:
        self._files = file_system
        self._paths = paths
        self._truncate = truncate
        self._stack = contextlib.ExitStack()
        self._directories: list[str] = []
        self.done: list[Action] = []
        self.report = InspectionReport()
        """What the latest inspection found."""

    def __enter__(self) -> Repair:
        """Raises `CannotInspectError` when a server runs there, or nothing can be written."""
        self._directories = log_directories(self._files, self._paths)
        try:
            for directory in self._directories:
                lock = self._files.lock(join(directory, LOCK))
                self._stack.callback(lock.release)
        except LockHeldError:
            self._stack.close()
            raise CannotInspectError(f"{directory} is in use by a running server. Stop it first.") from None
        except OSError as error:
            self._stack.close()
            raise CannotInspectError(f"cannot write to {directory}: {error.strerror or error}") from error
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def look(self, watcher: Watcher | None = None) -> list[Action]:
        """Inspect; what would be done now."""
        self.report = inspect(self._files, self._paths, watcher=watcher, is_locked=True)
        return plan(self.report, truncate=self._truncate)

    def run(self, actions: list[Action], *, now_ms: int, watcher: Watcher | None = None) -> list[str]:
        """Do that, and what it brings to light. Returns the files that tell what was done, one in each directory."""
        before = list(self.report.findings)
        for _ in range(_MOST_ROUNDS):
            actions = [action for action in actions if self.done.count(action) < 2]
            if not actions:
                break
            for action in actions:
                self._perform(action)
                self.done.append(action)
            actions = self.look(watcher)
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
        """Bring the offsets of partitions without damage inside of their logs; others stay as they are.

        Also of those in which offsets are missing, to which a repair can do nothing: or the next one would try again.
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
        """Recovery points and high watermarks: never beyond the log's end; after a clean stop the recovery point is
        just that. A high watermark below it may be right, where there are followers. A start without recovery points
        looks at everything."""
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
        """Where logs begin. One that is beyond the log's end goes, so that the records stay; what a damaged file said
        is in the leader epochs too, which begin with the log."""
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
                "found": [finding.as_json() for finding in before if _lies_in(finding.path, directory, prefix)],
                "done": [action.as_json() for action in self.done if _lies_in(action.path, directory, prefix)],
                "left": [
                    finding.as_json() for finding in self.report.findings if _lies_in(finding.path, directory, prefix)
                ],
            }
            if not content["done"]:
                continue
            path = join(directory, f"{REPORT_PREFIX}{moment:%Y%m%dT%H%M%S}.json")
            self._files.replace_file(path, (json.dumps(content, indent=2) + "\n").encode(), sync=True)
            paths.append(path)
        return paths


def _lies_in(path: str, directory: str, prefix: str) -> bool:
    return path == directory or path.startswith(prefix)


def _not_negative(offsets: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    return {key: offset for key, offset in offsets.items() if offset >= 0}


def _base_offset(path: str) -> int:
    parsed = parse_offset_file_name(os.path.basename(path))
    assert parsed is not None, path
    return parsed[0]
