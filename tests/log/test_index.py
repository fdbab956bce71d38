"""The sparse indexes: entries in Apache Kafka's format, found whether they are in the file or still buffered."""

from __future__ import annotations

import struct
from bisect import bisect_right

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.log.descriptors import DescriptorCache
from moldau.log.files import FileSystem
from moldau.log.index import OffsetIndex, TimeIndex
from moldau.log.memory_files import MemoryFileSystem

Disk = tuple[FileSystem, str]


def offset_index(disk: Disk, *, new: bool = True, base_offset: int = 100, max_bytes: int = 1 << 20) -> OffsetIndex:
    file_system, root = disk
    return OffsetIndex(DescriptorCache(file_system), f"{root}/0.index", base_offset, max_bytes, new=new)


def time_index(disk: Disk, *, new: bool = True, base_offset: int = 100, max_bytes: int = 1 << 20) -> TimeIndex:
    file_system, root = disk
    return TimeIndex(DescriptorCache(file_system), f"{root}/0.timeindex", base_offset, max_bytes, new=new)


def test_offset_entries_are_relative_offsets_and_positions(disk: Disk) -> None:
    index = offset_index(disk)
    index.append(105, 0)
    index.append(112, 4_200)
    assert not disk[0].exists(index.path), "nothing is written before it is time"
    index.persist()
    assert disk[0].read_file(index.path) == struct.pack(">iiii", 5, 0, 12, 4_200)


@pytest.mark.parametrize("count", [0, 1, 7, 5_000])
@pytest.mark.parametrize("stored", [0.0, 0.6, 1.0], ids=["buffered", "some in the file", "in the file"])
def test_the_first_batch_that_begins_at_a_position_or_later_is_found(disk: Disk, count: int, stored: float) -> None:
    index = offset_index(disk)
    for number in range(count):
        if number == int(count * stored):
            index.persist()
        index.append(102 + number * 3, number * 50)
    if stored == 1.0:
        index.persist()
        index = offset_index(disk, new=False)
    for number in {0, 1, count // 3, count // 2, count - 2, count - 1} & set(range(count)):
        assert index.upper_bound(number * 50) == 102 + number * 3
        assert index.upper_bound(number * 50 - 1) == 102 + number * 3
    assert index.upper_bound(count * 50) is None


def test_time_entries_are_timestamps_and_relative_offsets_that_grow(disk: Disk) -> None:
    index = time_index(disk)
    index.maybe_append(1_000, 105)
    index.maybe_append(1_000, 109)
    index.maybe_append(900, 110)
    index.maybe_append(1_001, 112)
    index.persist()
    assert disk[0].read_file(index.path) == struct.pack(">qiqi", 1_000, 5, 1_001, 12)
    assert index.last_entry() == (1_001, 112)


def test_empty_indexes_return_the_beginning(disk: Disk) -> None:
    assert offset_index(disk).position(100) == 0
    assert offset_index(disk).last_offset() == 100
    assert time_index(disk).offset(5) == 100
    assert time_index(disk).last_entry() == (-1, 100)


def test_entries_survive_reopening_and_continue(disk: Disk) -> None:
    index = offset_index(disk)
    for number in range(10):
        index.append(100 + number * 3, number * 50)
    index.persist()
    again = offset_index(disk, new=False)
    assert again.entries == 10
    again.append(200, 777)
    assert (again.entries, again.position(199), again.position(200)) == (11, 450, 777)
    again.persist()
    assert offset_index(disk, new=False).entries == 11


def test_a_torn_last_entry_is_no_entry(disk: Disk) -> None:
    disk[0].replace_file(f"{disk[1]}/0.index", struct.pack(">iiii", 5, 0, 12, 4_200)[:-3], sync=False)
    index = offset_index(disk, new=False)
    assert (index.entries, index.position(500)) == (1, 0)
    index.append(113, 99)
    index.persist()
    assert disk[0].read_file(index.path) == struct.pack(">iiii", 5, 0, 13, 99)


def test_append_returns_when_persist_is_due(disk: Disk) -> None:
    index = offset_index(disk)
    said = [index.append(100 + number, number) for number in range(600)]
    assert said.index(True) == 511, "after 4 kB"


def test_full_indexes_have_no_room(disk: Disk) -> None:
    offsets = offset_index(disk, max_bytes=25)
    for number in range(3):
        assert offsets.room() > 0
        offsets.append(100 + number, number)
    assert offsets.room() == 0
    times = time_index(disk, max_bytes=36)
    for number in range(2):
        assert times.room() > 0
        times.maybe_append(number, 100 + number)
    assert times.room() == 0, "the last slot is for the entry that sealing adds"


def test_truncating_drops_the_offset_and_all_after_it(disk: Disk) -> None:
    for persisted in (0, 4, 9, 10):
        index = offset_index(disk)
        times = time_index(disk)
        for number in range(10):
            index.append(100 + number * 10, number)
            times.maybe_append(number, 100 + number * 10)
            if number == persisted - 1:
                index.persist()
                times.persist()
        index.truncate_to(160)
        times.truncate_to(160)
        assert (index.entries, index.last_offset()) == (6, 150)
        assert times.last_entry() == (5, 150)
        index.truncate_to(155)
        assert index.entries == 6
        index.truncate_to(0)
        times.truncate_to(0)
        assert index.entries == times.entries == 0
        index.reset()
        times.reset()


def test_touch_creates_an_empty_file(disk: Disk) -> None:
    index = offset_index(disk)
    index.touch()
    assert disk[0].read_file(index.path) == b""


def test_a_failed_persist_loses_nothing() -> None:
    file_system = MemoryFileSystem()
    file_system.make_directory("/d")
    index = offset_index((file_system, "/d"))
    for number in range(20):
        index.append(100 + number, number * 10)
    file_system.capacity_bytes = 44
    with pytest.raises(OSError, match="No space"):
        index.persist()
    assert [index.position(100 + number) for number in range(20)] == [number * 10 for number in range(20)]
    file_system.capacity_bytes = None
    index.persist()
    assert offset_index((file_system, "/d"), new=False).entries == 20


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 5_000), min_size=1, max_size=1_500, unique=True).map(sorted),
    st.floats(0, 1),
    st.lists(st.integers(-5, 5_100), min_size=1, max_size=30),
)
def test_lookups_find_the_last_entry_at_or_before(offsets: list[int], stored: float, targets: list[int]) -> None:
    file_system = MemoryFileSystem(recording=False)
    file_system.make_directory("/d")
    index = offset_index((file_system, "/d"), base_offset=0)
    times = time_index((file_system, "/d"), base_offset=0)
    for number, offset in enumerate(offsets):
        index.append(offset, number * 7)
        times.maybe_append(offset * 2, offset)
        if number == int(stored * len(offsets)):
            index.persist()
            times.persist()
    for target in targets:
        at = bisect_right(offsets, target)
        assert index.position(target) == (0 if at == 0 else (at - 1) * 7)
        assert times.offset(target * 2) == (0 if at == 0 else offsets[at - 1])
