"""Damaged segments, full and failing disks, and a process that dies: the old state stays whole."""

from __future__ import annotations

import errno
import pickle
import random
import tracemalloc
from typing import Any

import pytest

from moldau.log.compaction.compact import compact
from moldau.log.compaction.job import CorruptSegmentError
from moldau.log.memory_files import SimulatedCrash
from moldau.protocol.checksum import crc32c
from moldau.protocol.compression import Codec, compress
from moldau.protocol.records import Record, build_batch

NOW = 1_700_000_000_000
FIRST = "00000000000000000000.log"
ONE_OF_MANY = b"\x0c\x00\x00\x00\x00\x01\x00"
MAX_COUNT = 0x7FFF_FFFF - 10  # the offsets of a segment have 31 bits


def batch(*keys: bytes, **fields: Any) -> bytes:
    return build_batch([Record(0, NOW, key, b"value") for key in keys], **fields)


@pytest.fixture
def compactor(memory_compactor: Any) -> Any:
    """A job for a partition with a clean and a dirty part, both with records to remove."""
    for keys in ((b"a", b"b"), (b"c", b"d"), (b"e",)):
        memory_compactor.partition.append(batch(*keys))
    memory_compactor.roll()
    memory_compactor.compact()
    for keys in ((b"a", b"f"), (b"d", b"g"), (b"f",)):
        memory_compactor.partition.append(batch(*keys, codec=Codec.LZ4))
    memory_compactor.roll()
    return memory_compactor


def contents(partition: Any) -> dict[str, bytes]:
    return {name: partition.file_system.read_file(partition.path(name)) for name in partition.names()}


def error_of(compactor: Any) -> Exception | None:
    """The errors of a pass."""
    try:
        compact(compactor.job(), compactor.partition.file_system)
    except (CorruptSegmentError, OSError) as error:
        return error
    return None


def refused(compactor: Any) -> CorruptSegmentError:
    """The error of a pass, which must not change any file."""
    before = contents(compactor.partition)
    with pytest.raises(CorruptSegmentError) as caught:
        compact(compactor.job(), compactor.partition.file_system)
    assert contents(compactor.partition) == before
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    return caught.value


def test_any_flipped_bit_stops_it_or_does_not_affect_readers(compactor: Any) -> None:
    """No CRC covers the base offset (the first 8 bytes) and the leader epoch, so not all damage to them is found."""
    partition = compactor.partition
    dice = random.Random(0)
    for segment in list(partition.log.segments)[:2]:
        name = segment.path.rpartition("/")[2]
        data = partition.file_system.read_file(segment.path)
        for position in range(len(data)):
            damaged = data[position] ^ 1 << dice.randrange(8)
            partition.damage(name, position, bytes((damaged,)))
            found = error_of(compactor)
            if found is not None:
                assert isinstance(found, CorruptSegmentError)
                assert found.path == segment.path
                assert 0 <= found.position <= position
            else:
                starts = [start for start, _length in batch_starts(data)]
                within = position - max(start for start in starts if start <= position)
                assert within < 8 or 12 <= within < 16, f"byte {within} of a batch"
                for cleaned in [n for n in partition.names() if n.endswith(".cleaned")]:
                    partition.file_system.unlink(partition.path(cleaned))
            partition.damage(name, position, data[position : position + 1])


def batch_starts(data: bytes) -> list[tuple[int, int]]:
    found, position = [], 0
    while position < len(data):
        length = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        found.append((position, length))
        position += length
    return found


def test_the_error_contains_the_place(compactor: Any) -> None:
    segment = compactor.partition.log.segments[1]
    position, _length = batch_starts(compactor.partition.file_system.read_file(segment.path))[1]
    compactor.partition.damage(segment.path.rpartition("/")[2], position + 70, b"?")
    error = refused(compactor)
    assert (error.path, error.position, error.offset) == (segment.path, position, 7)
    assert "CRC" in error.problem


def test_a_base_offset_that_cannot_be_is_found(compactor: Any) -> None:
    segment = compactor.partition.log.segments[1]
    compactor.partition.damage(segment.path.rpartition("/")[2], 0, (3).to_bytes(8, "big"))
    assert "offsets 3 to 4" in refused(compactor).problem


@pytest.mark.parametrize("cut", [1, 30, 80])
def test_a_segment_that_ends_within_a_batch(compactor: Any, cut: int) -> None:
    segment = compactor.partition.log.segments[1]
    size = segment.size
    compactor.partition.cut(segment.path.rpartition("/")[2], -cut)
    assert "shorter" in refused(compactor).problem
    segment.size = size - cut
    assert "past the end" in refused(compactor).problem


@pytest.mark.parametrize(
    "records",
    [
        b"",
        b"\x00",
        b"\x10\x00\x00\x00\x01\x01\x00",
        b"\x0a\x00\x00\x00\x7e\x01\x00",
        b"\x0c\x00\x00\x00\x01\x01\x00\xff",
        b"\xff" * 30,
        b"\x0c\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    ],
)
@pytest.mark.parametrize("dirty", [True, False])
def test_malformed_records_with_a_correct_crc(memory_compactor: Any, records: bytes, dirty: bool) -> None:
    refuses_records(memory_compactor, records, dirty=dirty)


@pytest.mark.parametrize(
    "records",
    [
        b"\x00" * 50,
        ONE_OF_MANY * 9,
        ONE_OF_MANY * 11,
        ONE_OF_MANY * 9 + b"\x0c",
        ONE_OF_MANY * 9 + b"\xff\xff\xff\xff\x0f" + b"x" * 50,  # the length -2^31
        ONE_OF_MANY * 9 + b"\xff\xff\xff\xff\xff\x01" + b"x" * 50,
        ONE_OF_MANY * 9 + b"\xfe\x01\x00\x00\x12\x00\x01\x00" + b"x" * 50,  # a long record, cut short
        ONE_OF_MANY * 9 + b"\xfe\x01\x00\x00\x12\xfe\x01" + b"x" * 300,  # a key as long as its record
        ONE_OF_MANY * 9 + b"\x80\x01\x00\x00\x12\x00\x01\x00" + b"x" * 60 + ONE_OF_MANY,
    ],
)
@pytest.mark.parametrize("dirty", [True, False])
@pytest.mark.usefixtures("in_parts")
def test_records_that_are_none_in_a_large_batch(memory_compactor: Any, records: bytes, dirty: bool) -> None:
    refuses_records(memory_compactor, records, dirty=dirty, count=10)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("size", [100, 3 << 20])
@pytest.mark.parametrize("dirty", [True, False])
def test_a_record_count_takes_no_memory(memory_compactor: Any, codec: Codec, size: int, dirty: bool) -> None:
    memory_compactor.partition.configure(max_message_bytes=10 << 20)
    records = compress(codec, b"x" * size)
    tracemalloc.start()
    try:
        refuses_records(memory_compactor, records, dirty=dirty, count=MAX_COUNT, codec=codec)
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()


def refuses_records(
    memory_compactor: Any, records: bytes, *, dirty: bool, count: int = 1, codec: Codec = Codec.NONE
) -> None:
    partition = memory_compactor.partition
    for _ in range(2):
        partition.append(batch(b"a"))
    memory_compactor.roll()
    data = bytearray(batch(b"a"))[:61] + records
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[21:23] = codec.to_bytes(2, "big")
    data[23:27] = (count - 1).to_bytes(4, "big")
    data[57:61] = count.to_bytes(4, "big")
    data[17:21] = crc32c(memoryview(data)[21:]).to_bytes(4, "big")
    partition.append(bytes(data))
    memory_compactor.roll()
    partition.append(batch(b"z"))
    memory_compactor.roll()
    if not dirty:
        memory_compactor.clean_offset = 2 + count
    assert refused(memory_compactor).offset == 2


def test_a_large_batch_and_many_small_ones_are_read_in_pieces(memory_compactor: Any) -> None:
    partition = memory_compactor.partition
    partition.configure(max_message_bytes=10 << 20)
    large = build_batch([Record(0, NOW, b"large", b"x" * (3 << 20)), Record(0, NOW, b"a", b"1")])
    for _ in range(3_000):
        partition.append(build_batch([Record(0, NOW, b"%d" % _, b"y" * 500)]))
    partition.append(large)
    partition.append(build_batch([Record(0, NOW, b"a", b"2")]))
    memory_compactor.roll()
    memory_compactor.compact()
    kept = memory_compactor.records()
    assert len(kept) == 3_002
    assert [(record.key, len(record.value)) for record in kept[-2:]] == [(b"large", 3 << 20), (b"a", 1)]


# Disks


@pytest.mark.parametrize("room", [0, 1, 100, 200, 400])
def test_a_full_disk_preserves_the_old_state(compactor: Any, room: int) -> None:
    file_system = compactor.partition.file_system
    before = contents(compactor.partition)
    file_system.capacity_bytes = file_system.used_bytes() + room
    with pytest.raises(OSError) as caught:
        compact(compactor.job(), file_system)
    assert caught.value.errno == errno.ENOSPC
    assert contents(compactor.partition) == before
    file_system.capacity_bytes = None
    compactor.compact()
    assert [key for _offset, key, _value in compactor.contents()] == [b"b", b"c", b"e", b"a", b"d", b"g", b"f"]


def test_any_failure_preserves_the_old_state(compactor: Any) -> None:
    """Each operation on the file system fails in turn."""
    file_system = compactor.partition.file_system
    before = contents(compactor.partition)
    failures = 0
    while True:
        left = failures

        def fail(operation: str, path: str) -> int | None:
            nonlocal left
            if operation == "unlink":
                return None
            left -= 1
            return errno.EIO if left == -1 else None

        file_system.fail_with = fail
        error = error_of(compactor)
        file_system.fail_with = None
        if error is None:
            break
        assert isinstance(error, OSError)
        assert contents(compactor.partition) == before
        failures += 1
    assert failures > 20


def test_a_process_that_dies_has_touched_no_file_of_the_log(compactor: Any) -> None:
    before = contents(compactor.partition)
    operations = 0
    while True:
        file_system = compactor.partition.file_system.crash()
        file_system.operations_left = operations
        try:
            result = compact(compactor.job(), file_system)
        except SimulatedCrash:
            found = {name: file_system.read_file(compactor.partition.path(name)) for name in before}
            assert found == before
        else:
            break
        operations += 1
    assert operations > 8
    # Reported progress is durable.
    survivor = file_system.crash(random.Random(0))
    for replacement in result.replacements:
        for suffix in ("log", "index", "timeindex"):
            name = compactor.partition.path(f"{replacement.base_offset:020d}.{suffix}.cleaned")
            assert survivor.read_file(name) == file_system.read_file(name)


def test_files_of_an_earlier_pass_that_died_are_no_hindrance(compactor: Any) -> None:
    partition = compactor.partition
    for suffix in (".log", ".index", ".timeindex"):
        file = partition.file_system.open(partition.path(f"{0:020d}{suffix}.cleaned"), create=True)
        file.write_at((b"left over " * 500,), 0, 5_000)
        file.close()
    compactor.compact()
    assert [key for _offset, key, _value in compactor.contents()] == [b"b", b"c", b"e", b"a", b"d", b"g", b"f"]


def test_no_descriptor_remains_open(compactor: Any) -> None:
    file_system = compactor.partition.file_system
    before = file_system.open_files
    compact(compactor.job(), file_system)
    assert file_system.open_files == before
    compactor.partition.damage(FIRST, 90, b"?")
    with pytest.raises(CorruptSegmentError):
        compact(compactor.job(), file_system)
    assert file_system.open_files == before
