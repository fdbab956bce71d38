"""Which checkpoint goes with which archive: everything but the one that ends where the archive does is refused."""

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
    """A checkpoint as Spark 4.0.0 has it."""
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


def test_a_new_archive_takes_a_new_checkpoint(tmp_path: Path) -> None:
    check(tmp_path / "nothing", NEW)
    write(tmp_path / "planned", "q1", [0], [])
    check(tmp_path / "planned", NEW)


@pytest.mark.parametrize(("planned", "committed"), [([4], [4]), ([4], [3]), ([4, 5], [4])])
def test_an_archive_goes_on_with_its_checkpoint(tmp_path: Path, planned: list[int], committed: list[int]) -> None:
    write(tmp_path / "c", "q1", planned, committed)

    check(tmp_path / "c", ARCHIVE)


@pytest.mark.parametrize(
    ("query_id", "planned", "committed", "manifest", "reason"),
    [
        ("q2", [4], [4], ARCHIVE, "is the checkpoint of another query"),
        ("q1", [3], [3], ARCHIVE, "has come to batch 3 .*, and the archive archive to batch 4"),
        ("q1", [5], [5], ARCHIVE, "has come to batch 5 .*, and the archive archive to batch 4"),
        ("q1", [0], [0], NEW, "has come to batch 0 .*, and the archive archive to batch -1"),
    ],
    ids=["another", "older", "newer", "used"],
)
def test_a_checkpoint_that_was_replaced_is_refused(
    tmp_path: Path, query_id: str, planned: list[int], committed: list[int], manifest: Manifest, reason: str
) -> None:
    write(tmp_path / "c", query_id, planned, committed)

    with pytest.raises(ArchiveError, match=reason):
        check(tmp_path / "c", manifest)


def test_an_archive_without_its_checkpoint_says_how_to_go_on(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match=r"has lost its checkpoint.*--starting-offsets '\{\"0\": 7\}'"):
        check(tmp_path / "c", ARCHIVE)


def test_a_checkpoint_of_another_topic_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "c", "q1", [4], [4], topic="clicks")

    with pytest.raises(ArchiveError, match="is a checkpoint of clicks, and not of events"):
        check(tmp_path / "c", ARCHIVE)


def test_a_folder_with_something_else_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("")

    with pytest.raises(ArchiveError, match="is not empty, and not a checkpoint of Spark"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize("damage", ["metadata", "offsets/4"])
def test_a_damaged_checkpoint_is_refused(tmp_path: Path, damage: str) -> None:
    write(tmp_path / "c", "q1", [4], [4])
    (tmp_path / "c" / damage).write_text("v1\n{}\nnothing")

    with pytest.raises(ArchiveError, match=r"the checkpoint .* cannot be read"):
        read_checkpoint(tmp_path / "c")
