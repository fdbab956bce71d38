"""Which checkpoint belongs to which archive: only the one that ends where the archive ends is accepted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from moldau.spark_integration.archive_checkpoint import Checkpoint, check_checkpoint, read_checkpoint
from moldau.spark_integration.archive_layout import ArchiveError
from moldau.spark_integration.archive_manifest import Manifest, PartitionRange, Piece

NEW = Manifest("events", "id", 1, None)
PIECE = Piece("batch=4", 4, 4, 1, 0, 0, 0, 1, {0: PartitionRange(7, 0, 6)}, {"part.parquet": 1})
ARCHIVE = replace(NEW, query_id="q1", last_batch=4, pieces=(PIECE,))


def write(folder: Path, query_id: str, planned: list[int], committed: list[int], topic: str = "events") -> None:
    """Write a checkpoint in the format of Spark 4.0.0."""
    (folder / "offsets").mkdir(parents=True)
    (folder / "commits").mkdir()
    (folder / "metadata").write_text(json.dumps({"id": query_id}))
    for batch in planned:
        text = f'v1\n{{"batchWatermarkMs":0}}\n{{"{topic}":{{"0":{batch}}}}}'
        (folder / "offsets" / str(batch)).write_text(text)
        (folder / "offsets" / f".{batch}.crc").write_bytes(b"crc")
    for batch in committed:
        (folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def check(folder: Path, manifest: Manifest) -> None:
    check_checkpoint(folder, read_checkpoint(folder), manifest, Path("archive"))


def test_a_checkpoint_is_read(tmp_path: Path) -> None:
    assert read_checkpoint(tmp_path) is None
    write(tmp_path / "c", "q1", [3, 4, 10], [3, 4])

    assert read_checkpoint(tmp_path / "c") == Checkpoint("q1", 10, 4, frozenset({"events"}))


def test_a_new_archive_accepts_a_new_checkpoint(tmp_path: Path) -> None:
    check(tmp_path / "nothing", NEW)
    write(tmp_path / "planned", "q1", [0], [])
    check(tmp_path / "planned", NEW)


@pytest.mark.parametrize(("planned", "committed"), [([4], [4]), ([4], [3]), ([4, 5], [4])])
def test_an_archive_continues_with_its_checkpoint(tmp_path: Path, planned: list[int], committed: list[int]) -> None:
    write(tmp_path / "c", "q1", planned, committed)

    check(tmp_path / "c", ARCHIVE)


@pytest.mark.parametrize(
    ("query_id", "planned", "committed", "manifest", "reason"),
    [
        ("q2", [4], [4], ARCHIVE, "is the checkpoint of a query that did not write"),
        ("q1", [3], [3], ARCHIVE, "has committed batch 3 .*, but the archive archive ends with batch 4"),
        ("q1", [5], [5], ARCHIVE, "has committed batch 5 .*, but the archive archive ends with batch 4"),
        ("q1", [0], [0], NEW, "has committed batch 0 .*, but the archive archive ends with batch -1"),
    ],
    ids=["another", "older", "newer", "used"],
)
def test_a_replaced_checkpoint_is_rejected(
    tmp_path: Path, query_id: str, planned: list[int], committed: list[int], manifest: Manifest, reason: str
) -> None:
    write(tmp_path / "c", query_id, planned, committed)

    with pytest.raises(ArchiveError, match=reason):
        check(tmp_path / "c", manifest)


def test_the_error_about_a_missing_checkpoint_states_how_to_continue(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match=r"has no checkpoint in.*--starting-offsets '\{\"0\": 7\}'"):
        check(tmp_path / "c", ARCHIVE)


def test_a_checkpoint_of_another_topic_is_rejected(tmp_path: Path) -> None:
    write(tmp_path / "c", "q1", [4], [4], topic="clicks")

    with pytest.raises(ArchiveError, match="is a checkpoint of clicks, not of events"):
        check(tmp_path / "c", ARCHIVE)


def test_a_folder_with_other_content_is_not_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("")

    with pytest.raises(ArchiveError, match="is not empty and not a Spark checkpoint"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize("damage", ["metadata", "offsets/4"])
def test_a_damaged_checkpoint_is_rejected(tmp_path: Path, damage: str) -> None:
    write(tmp_path / "c", "q1", [4], [4])
    (tmp_path / "c" / damage).write_text("v1\n{}\nnothing")

    with pytest.raises(ArchiveError, match=r"the checkpoint .* cannot be read"):
        read_checkpoint(tmp_path / "c")
