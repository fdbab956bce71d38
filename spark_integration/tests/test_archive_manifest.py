"""The files of an archive, without Spark: manifests, leftovers, the lock, and rejected archives."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from moldau.spark_integration.archive_layout import (
    ArchiveError,
    Layout,
    local_folder,
    locked,
    publish,
    remove_leftovers,
    write_atomically,
)
from moldau.spark_integration.archive_manifest import (
    Manifest,
    PartitionRange,
    Piece,
    check_files,
    load,
    load_existing,
    save,
)
from moldau.spark_integration.archive_values import ValueSchema, check_avro, read_schema_text


def piece(
    batch: int, ranges: dict[int, PartitionRange], last: int | None = None, files: dict[str, int] | None = None
) -> Piece:
    name = f"batch={batch}" if last is None else f"batch={batch}-{last}"
    return Piece(
        name=name,
        first_batch=batch,
        last_batch=batch if last is None else last,
        records=sum(each.records for each in ranges.values()),
        unfit=1,
        oldest_ms=1000 * batch,
        newest_ms=1000 * batch + 999,
        largest_record_bytes=100,
        partitions=ranges,
        files=files or {"date=2026-01-31/partition=0/part-0.parquet": 4},
    )


EMPTY = Manifest("events", "4L62bhGPQdq5XnRu5HxZ6w", 2, ValueSchema("json", "id INT"))
FIRST = piece(0, {0: PartitionRange(10, 0, 9)})
SECOND = piece(1, {0: PartitionRange(5, 12, 20), 1: PartitionRange(1, 7, 7)})
ARCHIVE = replace(EMPTY.with_batch(0, FIRST).with_batch(1, SECOND), query_id="q", row_schema={"type": "struct"})


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    found = Layout(tmp_path)
    found.data.mkdir()
    return found


def test_a_saved_manifest_is_loaded_unchanged(layout: Layout) -> None:
    save(layout, EMPTY)
    assert load(layout) == EMPTY
    save(layout, ARCHIVE)
    assert load(layout) == ARCHIVE
    assert sorted(path.name for path in layout.root.iterdir()) == ["data", "manifest.json"]


def test_an_archive_has_its_content_and_next_offsets() -> None:
    assert (ARCHIVE.records, ARCHIVE.unfit, ARCHIVE.last_batch) == (16, 2, 1)
    assert ARCHIVE.partitions == {0: PartitionRange(15, 0, 20), 1: PartitionRange(1, 7, 7)}
    assert ARCHIVE.next_offsets == {0: 21, 1: 8}


def test_a_batch_without_records_is_counted_but_is_not_a_piece() -> None:
    after = ARCHIVE.with_batch(2, None)

    assert (after.last_batch, after.pieces) == (2, ARCHIVE.pieces)


def test_an_added_partition_is_counted() -> None:
    assert ARCHIVE.with_batch(2, piece(2, {4: PartitionRange(1, 0, 0)})).partition_count == 5


@pytest.mark.parametrize(
    ("batch", "first_offset", "reason"),
    [(1, 21, "batch 1 does not follow batch 1"), (2, 20, "batch 2 begins at offset 20 of partition 0")],
)
def test_a_record_is_never_in_two_batches(batch: int, first_offset: int, reason: str) -> None:
    again = piece(batch, {0: PartitionRange(1, first_offset, first_offset)})

    with pytest.raises(ArchiveError, match=reason):
        ARCHIVE.with_batch(batch, again)


def test_a_merged_piece_replaces_its_parts() -> None:
    merged = piece(0, ARCHIVE.partitions, last=1)
    after = ARCHIVE.with_batch(2, piece(2, {1: PartitionRange(1, 8, 8)})).with_merged((FIRST, SECOND), merged)

    assert [each.name for each in after.pieces] == ["batch=0-1", "batch=2"]
    assert after.next_offsets == {0: 21, 1: 9}


def test_a_merged_piece_that_lacks_a_record_is_rejected() -> None:
    merged = piece(0, {0: PartitionRange(14, 0, 20), 1: PartitionRange(1, 7, 7)}, last=1)

    with pytest.raises(ArchiveError, match="does not contain the same records as batch=0 to batch=1"):
        ARCHIVE.with_merged((FIRST, SECOND), merged)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "cannot be read"),
        ("{", "cannot be read"),
        ("[]", "is not marked as a moldau archive"),
        ('{"format": "other"}', "is not marked as a moldau archive"),
        ('{"format": "moldau archive"}', "cannot be read"),
        ('{"format": "moldau archive", "version": 2}', "has version 2, and this Moldau supports version 1"),
        ('{"format": "moldau archive", "version": 1, "topic": "x"}', "cannot be read"),
        ("\udcff", "cannot be read"),
    ],
)
def test_an_invalid_manifest_is_rejected_with_the_reason(layout: Layout, text: str, reason: str) -> None:
    layout.manifest.write_bytes(text.encode("utf-8", "surrogateescape"))

    with pytest.raises(ArchiveError, match=reason):
        load(layout)


def test_every_field_of_a_manifest_is_required(layout: Layout) -> None:
    save(layout, ARCHIVE)
    document = json.loads(layout.manifest.read_text())
    for name in ("topic", "topic_id", "partition_count", "value_schema", "pieces"):
        layout.manifest.write_text(json.dumps({key: value for key, value in document.items() if key != name}))
        with pytest.raises(ArchiveError, match="cannot be read"):
            load(layout)


def test_a_folder_without_a_manifest_is_not_an_archive(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match=r"is not an archive: it has no manifest\.json"):
        load_existing(Layout(tmp_path))
    with pytest.raises(ArchiveError, match="there is no folder"):
        load_existing(Layout(tmp_path / "nowhere"))


def test_a_missing_file_or_a_different_file_size_is_damage(layout: Layout) -> None:
    for each in ARCHIVE.pieces:
        file = layout.data / each.name / "date=2026-01-31/partition=0/part-0.parquet"
        file.parent.mkdir(parents=True)
        file.write_bytes(b"PAR1")
    check_files(layout, ARCHIVE)

    file.write_bytes(b"PAR")
    with pytest.raises(ArchiveError, match=r"batch=1/.*part-0\.parquet: it has 3 bytes, and was written with 4"):
        check_files(layout, ARCHIVE)
    file.unlink()
    with pytest.raises(ArchiveError, match=r"part-0\.parquet: No such file"):
        check_files(layout, ARCHIVE)


def test_only_files_that_the_manifest_does_not_name_are_removed(layout: Layout) -> None:
    for name in ("batch=0", "batch=1", "batch=0-1", ".writing-2-00ff", "notes", "batch=x"):
        (layout.data / name / "date=2026-01-31").mkdir(parents=True)
    (layout.root / ".manifest.json.00ff").write_text("{")

    removed = remove_leftovers(layout, {"batch=0-1"})

    assert removed == [".writing-2-00ff", "batch=0", "batch=1", ".manifest.json.00ff"]
    assert sorted(path.name for path in layout.data.iterdir()) == ["batch=0-1", "batch=x", "notes"]
    assert not list(layout.root.glob(".manifest*"))


def test_a_folder_is_renamed_when_it_is_complete(layout: Layout) -> None:
    temporary, final = layout.temporary(3), layout.piece(3, 3)
    (temporary / "date=2026-01-31").mkdir(parents=True)
    (temporary / "date=2026-01-31" / "part.parquet").write_bytes(b"PAR1")

    publish(temporary, final)

    assert (final / "date=2026-01-31" / "part.parquet").read_bytes() == b"PAR1"
    assert not temporary.exists()


def test_temporary_names_are_never_used_twice(layout: Layout) -> None:
    assert layout.temporary(1) != layout.temporary(1)


def test_a_file_that_cannot_be_replaced_is_unchanged(layout: Layout) -> None:
    write_atomically(layout.manifest, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(layout.manifest, "new \udcff")

    assert layout.manifest.read_text() == "old"


def test_an_archive_has_one_writer(layout: Layout) -> None:
    with (
        locked(layout),
        pytest.raises(ArchiveError, match="another program is writing to"),
        locked(layout),
    ):
        pass
    with locked(layout):
        pass


def test_a_folder_that_is_not_writable_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(ArchiveError, match=r"cannot write to .*file"), locked(Layout(tmp_path / "file")):
        pass


def test_an_archive_must_be_in_a_local_folder() -> None:
    assert local_folder("file:///a/b") == local_folder("file:/a/b") == Path("/a/b")
    with pytest.raises(ArchiveError, match="s3a://bucket/events is not a folder of this machine"):
        local_folder("s3a://bucket/events")


def test_a_schema_is_a_text_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "schema").write_text("id INT\n")

    assert read_schema_text("id INT") == read_schema_text(f"@{tmp_path / 'schema'}") == "id INT"
    with pytest.raises(ArchiveError, match=r"the schema cannot be read, .*nowhere"):
        read_schema_text(f"@{tmp_path / 'nowhere'}")


@pytest.mark.parametrize("text", ['"string"', '["null", "string"]', '{"type": "array", "items": "int"}'])
def test_an_avro_schema_must_describe_a_record(text: str) -> None:
    with pytest.raises(ArchiveError, match="must describe a record"):
        check_avro(text)
    with pytest.raises(ArchiveError, match="is not JSON"):
        check_avro("{")
