"""Which pieces of an archive are merged."""

from __future__ import annotations

from moldau.spark_integration.archive_compact import plan_merges
from moldau.spark_integration.archive_manifest import Piece


def piece(batch: int, *file_sizes: int) -> Piece:
    files = {f"{number}.parquet": size for number, size in enumerate(file_sizes)}
    return Piece(f"batch={batch}", batch, batch, 1, 0, 0, 0, 1, {}, files)


def merges(pieces: list[Piece], file_bytes: int = 100, merge_bytes: int = 1000) -> list[list[int]]:
    return [[each.first_batch for each in run] for run in plan_merges(pieces, file_bytes, merge_bytes)]


def test_adjacent_pieces_with_small_files_are_merged() -> None:
    assert merges([piece(0, 10, 20), piece(1, 30), piece(2, 1)]) == [[0, 1, 2]]


def test_a_piece_with_large_files_is_kept_and_separates_its_neighbors() -> None:
    assert merges([piece(0, 1), piece(1, 1), piece(2, 90, 90), piece(3, 1), piece(4, 1)]) == [[0, 1], [3, 4]]


def test_half_of_the_requested_size_is_large_enough() -> None:
    assert merges([piece(0, 50), piece(1, 50)]) == []
    assert merges([piece(0, 49), piece(1, 49)]) == [[0, 1]]


def test_a_single_small_piece_is_not_merged() -> None:
    assert merges([]) == []
    assert merges([piece(0, 1)]) == []
    assert merges([piece(0, 1), piece(1, 99)]) == []


def test_the_size_of_a_merge_is_limited() -> None:
    assert merges([piece(n, 40) for n in range(5)], merge_bytes=80) == [[0, 1], [2, 3]]
