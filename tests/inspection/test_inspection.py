"""An inspection of a whole log directory: good ones have no findings, and all damage is found."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest

from moldau.inspection.log_directories import inspect
from moldau.log.memory_files import MemoryFileSystem
from moldau.metadata.log_copy import MetadataLogCopy
from moldau.metadata.settings import MetadataLogSettings
from moldau.testing.full_run import in_extended_run, in_full_run

from .directories import DIRECTORY, Storage, clean_directory, files_of, overwrite


@pytest.fixture
def directory() -> Any:
    return clean_directory()


def found(file_system: Any) -> set[Any]:
    """All findings, notes too, in words."""
    return {(finding.path, finding.text) for finding in inspect(file_system, [DIRECTORY], deep=True).findings}


def test_a_directory_after_a_clean_shutdown(directory: Any) -> None:
    report = inspect(directory, [DIRECTORY], deep=True)
    assert report.findings == []
    assert report.totals.partitions == 4
    assert report.totals.segments == 10
    assert report.totals.bytes == sum(len(data) for path, data in files_of(directory).items() if path.endswith(".log"))


# Undetected changes must be in bytes without meaning:


def has_no_meaning(path: str, before: Any, after: Any) -> str | None:
    """Why the check cannot find it, or need not; None where it must."""
    if path.endswith("/meta.properties"):
        without_cluster = [
            [line for line in data.split(b"\n") if line and not line.startswith(b"cluster.id=")]
            for data in (before, after)
        ]
        if without_cluster[0] == without_cluster[1] and after.count(b"cluster.id=") == 1:
            return "nothing else in the directory names the cluster"
    if path.endswith(".index") and before.startswith(after) and len(after) % 8 == 0:
        return "fewer entries are right too: a search begins earlier"
    if path.endswith("/log-start-offset-checkpoint") and not after and before == b"0\n0\n":
        return "no offsets, in another way"
    return None


def flip(data: Any, rng: Any) -> bytes:
    changed = bytearray(data)
    changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def cut(data: Any, rng: Any) -> Any:
    return data[: rng.randrange(len(data))]


def swap(data: Any, rng: Any) -> Any:
    """Two blocks of the file change places."""
    size = rng.randint(1, max(1, len(data) // 2))
    first = rng.randint(0, len(data) - size)
    second = rng.randint(0, len(data) - size)
    first, second = min(first, second), max(first, second)
    size = min(size, second - first)
    return (
        data[:first]
        + data[second : second + size]
        + data[first + size : second]
        + data[first : first + size]
        + data[second + size :]
    )


def blank(data: Any, rng: Any) -> Any:
    """A stretch was never written."""
    begin = rng.randrange(len(data))
    end = rng.randint(begin + 1, len(data))
    return data[:begin] + bytes(end - begin) + data[end:]


def append(data: Any, rng: Any) -> Any:
    return data + rng.randbytes(rng.randint(1, 70))


CHANGES = (flip, cut, swap, blank, append)


def check_changes(file_system: Any, rounds: Any, seed: Any) -> None:
    rng = random.Random(seed)
    paths = {path: data for path, data in files_of(file_system).items() if data}
    for number in range(rounds):
        path = rng.choice(list(paths))
        change = rng.choice(CHANGES)
        before, after = paths[path], change(paths[path], rng)
        if before == after or has_no_meaning(path, before, after):
            continue
        overwrite(file_system, path, after)
        assert found(file_system), f"seed {seed}, round {number}: {change.__name__} in {path}: {before!r} to {after!r}"
        overwrite(file_system, path, before)
    assert not found(file_system)


@pytest.mark.parametrize("seed", range(4))
def test_no_change_of_any_file_is_passed_over(directory: Any, seed: int) -> None:
    check_changes(directory, 100, seed)


@pytest.mark.extended
def test_no_change_of_any_file_is_passed_over_in_the_long_run(directory: Any) -> None:
    check_changes(directory, 10_000, 77)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("step", [*in_full_run(3), *in_extended_run(1)])
def test_no_flipped_bit_is_passed_over(directory: Any, step: int) -> None:
    """One bit in each byte, or in every third one."""
    rng = random.Random(5)
    for path, before in files_of(directory).items():
        for position in range(rng.randrange(step), len(before), step):
            after = bytearray(before)
            after[position] ^= 1 << rng.randrange(8)
            if has_no_meaning(path, before, bytes(after)):
                continue
            overwrite(directory, path, bytes(after))
            assert found(directory), (path, position, after[position])
        overwrite(directory, path, before)


def test_files_that_changed_places(directory: Any) -> None:
    """Each with its neighbour of the same kind, as after a restore that went wrong."""
    files = files_of(directory)
    by_kind: dict[Any, Any] = {}
    for path, data in files.items():
        by_kind.setdefault(path.partition(".")[2] or path.rpartition("/")[2], []).append((path, data))
    swapped = 0
    for same in by_kind.values():
        for (first, first_data), (second, second_data) in pairwise(same):
            if first_data == second_data:
                continue
            overwrite(directory, first, second_data)
            overwrite(directory, second, first_data)
            assert found(directory), (first, second)
            overwrite(directory, first, first_data)
            overwrite(directory, second, second_data)
            swapped += 1
    assert swapped > 20


def test_missing_files(directory: Any) -> None:
    # The bootstrap is read while the metadata log is empty, and the voters of the first snapshot are in the log too.
    # The content of a producer snapshot also follows from the previous one and the batches.
    without_meaning = (".lock", "/bootstrap.checkpoint", "/00000000000000000000-0000000000.checkpoint", ".snapshot")
    for path in files_of(directory):
        changed = MemoryFileSystem(recording=False)
        for other, data in files_of(directory).items():
            changed.make_directory(other.rpartition("/")[0])
            if other != path:
                changed.open(other, create=True).write_at((data,), 0, len(data))
        if not path.endswith(without_meaning):
            assert found(changed), path


def test_a_high_watermark_of_a_deleted_topic_of_the_same_name() -> None:
    """A server that was killed soon after the topic was re-created had not written its checkpoint again."""
    storage = Storage(MemoryFileSystem(recording=False))
    storage.create("t", {})
    storage.append("t", b"new")
    storage.kill()
    overwrite(storage.file_system, f"{DIRECTORY}/replication-offset-checkpoint", b"0\n1\nt 0 9\n")

    def texts() -> Any:
        return " ".join(finding.text for finding in inspect(storage.file_system, [DIRECTORY]).findings)

    assert "its high watermark was 9" in texts()
    storage.file_system.set_modified_ms(f"{DIRECTORY}/t-0/partition.metadata", 5)
    assert "high watermark" not in texts()


@pytest.mark.parametrize(("node_id", "is_voter"), [(2, False), (100, True)])
def test_a_broker_does_not_need_the_voters_in_its_copy_of_the_log(node_id: int, is_voter: bool) -> None:
    """With `controller.quorum.voters`, the log does not name them."""
    files = MemoryFileSystem()
    copy = MetadataLogCopy.open(files, DIRECTORY, MetadataLogSettings(), node_id=2, now_ms=0)
    copy.set_leader(100, 1)
    copy.close(0)
    files.replace_file(f"{DIRECTORY}/meta.properties", b"version=1\ncluster.id=c\nnode.id=%d\n" % node_id, sync=True)
    assert any("voters are in the log" in text for _, text in found(files)) is is_voter
