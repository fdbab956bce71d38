"""Reads the checkpoint of a Spark query, and decides whether it belongs to an archive.

    metadata       {"id": "..."}: the query
    offsets/N      the offsets that batch N reads, written before it runs; its last line is {"topic": {"0": end, ...}}
    commits/N      written after batch N has ended

A restarted query repeats the batch that is planned and not committed, with the same offsets. So for an archive that is
complete up to batch B, ``committed <= B <= planned`` holds. Otherwise one of the two was replaced, and continuing
would omit records or store them twice.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from .archive_layout import ArchiveError
from .archive_manifest import Manifest


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state in a checkpoint folder: the numbers of the last planned and the last committed batch, -1 for none."""

    query_id: str
    planned: int
    committed: int
    topics: frozenset[str]


def read_checkpoint(folder: Path) -> Checkpoint | None:
    """The checkpoint in ``folder``, None if there is none; ArchiveError if it cannot be parsed."""
    metadata = folder / "metadata"
    if not metadata.exists():
        if folder.is_dir() and any(folder.iterdir()):
            raise ArchiveError(f"{folder} is not empty and not a Spark checkpoint: choose another folder for it")
        return None
    try:
        query_id = json.loads(metadata.read_text(encoding="utf-8"))["id"]
        planned, committed = _last(folder / "offsets"), _last(folder / "commits")
        topics = frozenset() if planned < 0 else _topics(folder / "offsets" / str(planned))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArchiveError(f"the checkpoint {folder} cannot be read: {error}") from error
    return Checkpoint(query_id, planned, committed, topics)


def check_checkpoint(folder: Path, checkpoint: Checkpoint | None, manifest: Manifest, archive: Path) -> None:
    """ArchiveError unless a query with this checkpoint continues exactly where the archive ends."""
    if checkpoint is None:
        if manifest.last_batch >= 0:
            raise ArchiveError(f"the archive {archive} has no checkpoint in {folder}. {_recovery_advice(manifest)}")
        return
    if checkpoint.topics and checkpoint.topics != {manifest.topic}:
        raise ArchiveError(
            f"{folder} is a checkpoint of {', '.join(sorted(checkpoint.topics))}, not of {manifest.topic}: name "
            "another folder for the checkpoint"
        )
    if manifest.query_id is not None and manifest.query_id != checkpoint.query_id:
        raise ArchiveError(
            f"{folder} is the checkpoint of a query that did not write the archive {archive}. "
            f"{_recovery_advice(manifest)}"
        )
    if not checkpoint.committed <= manifest.last_batch <= checkpoint.planned:
        raise ArchiveError(
            f"the checkpoint {folder} has committed batch {checkpoint.committed} (and planned {checkpoint.planned}), "
            f"but the archive {archive} ends with batch {manifest.last_batch}: one of the two was replaced. "
            f"{_recovery_advice(manifest)}"
        )


def _recovery_advice(manifest: Manifest) -> str:
    if not manifest.pieces:
        return "Restore it, or choose an empty folder for it."
    offsets = json.dumps({str(partition): offset for partition, offset in manifest.next_offsets.items()})
    return (
        "Restore the matching one; or archive the following records into another folder, from the end of this archive: "
        f"--starting-offsets '{offsets}'"
    )


def _last(folder: Path) -> int:
    if not folder.is_dir():
        return -1
    return max((int(path.name) for path in folder.iterdir() if path.name.isdecimal()), default=-1)


def _topics(path: Path) -> frozenset[str]:
    """The topics of an entry of Spark's offset log: a version, the settings of the batch, and offsets per source."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return frozenset(topic for line in lines[2:] for topic in json.loads(line))
