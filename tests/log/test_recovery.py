"""Startup after a clean stop and after crashes: what is kept, repaired and logged."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from moldau.log.checkpoints import CorruptCheckpointError, encode_partition_metadata
from moldau.log.verification import DISABLED
from moldau.protocol.records import Record, UnsupportedMagicError, build_batch

NOW = 1_700_000_000_000
Batch = Callable[..., bytes]
BaseOffsets = Callable[[Any], list[int]]

LOG = "00000000000000000000.log"
INDEX = "00000000000000000000.index"
TIME_INDEX = "00000000000000000000.timeindex"


def fill(partition: Any, producer_batch: Batch, count: int, *, per_segment: int = 4) -> list[bytes]:
    """`count` batches of one producer, some to a segment, some to an index entry; their values."""
    size = len(producer_batch(0))
    partition.configure(segment_bytes=size * per_segment, index_interval_bytes=size)
    for sequence in range(count):
        partition.leader_epoch = 1 + sequence // 5
        partition.append(producer_batch(sequence, timestamp=NOW + sequence))
    return [b"%04d" % sequence for sequence in range(count)]


def index_content(partition: Any) -> dict[str, bytes]:
    return {
        name: partition.file_system.read_file(partition.path(name))
        for name in partition.names()
        if name.endswith(("index", ".snapshot"))
    }


# After a clean stop


def test_after_a_clean_shutdown_the_log_is_unchanged(
    partition: Any, producer_batch: Batch, segments_of: BaseOffsets
) -> None:
    values = fill(partition, producer_batch, 11)
    before = (segments_of(partition.log), partition.log.leader_epochs.entries)
    partition.reopen()
    assert partition.log.repairs == []
    assert (segments_of(partition.log), partition.log.leader_epochs.entries) == before
    assert partition.values() == values
    assert (partition.log.log_end_offset, partition.log.recovery_point) == (11, 11)
    assert partition.append(producer_batch(10)).duplicate
    assert partition.append(producer_batch(11)).first_offset == 11


def test_after_a_clean_shutdown_no_sealed_segment_is_read(memory_partition: Any, producer_batch: Batch) -> None:
    fill(memory_partition, producer_batch, 50)
    memory_partition.log.close(NOW)
    read: set[str] = set()
    memory_partition.file_system.fail_with = lambda operation, path: (
        read.add(path.rpartition("/")[2]) if operation == "read" else None
    )
    memory_partition.open()
    assert {name for name in read if name.endswith(".log")} == {"00000000000000000048.log"}


def test_a_second_clean_shutdown_changes_nothing(partition: Any, producer_batch: Batch) -> None:
    fill(partition, producer_batch, 6)
    partition.reopen()
    before = {name: partition.file_system.read_file(partition.path(name)) for name in partition.names()}
    partition.reopen()
    partition.reopen()
    assert {name: partition.file_system.read_file(partition.path(name)) for name in partition.names()} == before


def test_an_empty_log_is_reopened(partition: Any) -> None:
    partition.reopen()
    partition.reopen(clean=False)
    assert partition.log.repairs == []
    assert partition.log.log_end_offset == 0


def test_a_log_that_began_later_is_reopened(partition: Any, batch: Batch) -> None:
    partition.configure(segment_bytes=200)
    partition.append_values(*[b"x" * 100] * 5)
    partition.log.flush(NOW)
    partition.log.delete_records_before(4)
    partition.reopen()
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (4, 5)
    partition.reopen(log_start_offset=5)
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (5, 5)


def test_after_a_clean_shutdown_the_indexes_are_trusted_only_if_they_match(
    partition: Any, producer_batch: Batch
) -> None:
    """An index that points into the wrong batch must not cause an offset to be assigned twice."""
    for content in (struct.pack(">ii", 7, 0), struct.pack(">ii", 2, 7), struct.pack(">ii", 1, 1 << 30)):
        values = fill(partition, producer_batch, 3, per_segment=100)
        partition.log.close(NOW)
        partition.file_system.replace_file(partition.path(INDEX), content, sync=False)
        partition.open()
        assert partition.log.log_end_offset == 3
        assert partition.values() == values
        assert len(partition.log.repairs) == 1
        partition.log.truncate_fully_and_start_at(0, NOW)


def test_a_missing_index_is_rebuilt(partition: Any, producer_batch: Batch) -> None:
    for missing in (INDEX, TIME_INDEX):
        values = fill(partition, producer_batch, 10)
        partition.log.close(NOW)
        before = index_content(partition)
        partition.file_system.unlink(partition.path(missing))
        partition.open()
        assert "rebuilt the indexes" in partition.log.repairs[0]
        partition.log.close(NOW)
        assert index_content(partition) == before
        partition.open()
        assert partition.values() == values
        partition.log.truncate_fully_and_start_at(0, NOW)


# After kill -9


def test_kill_loses_no_data(partition: Any, producer_batch: Batch, segments_of: BaseOffsets) -> None:
    values = fill(partition, producer_batch, 11)
    before = segments_of(partition.log)
    partition.reopen(clean=False)
    assert partition.log.repairs == []
    assert partition.values() == values
    assert segments_of(partition.log) == before
    assert partition.log.leader_epochs.entries == [(1, 0), (2, 5), (3, 10)]
    for sequence in range(6, 11):
        assert partition.append(producer_batch(sequence)).duplicate
    assert partition.append(producer_batch(11)).first_offset == 11


def test_recovery_creates_the_same_indexes_as_appending(partition: Any, producer_batch: Batch) -> None:
    fill(partition, producer_batch, 30, per_segment=10)
    partition.log.close(NOW)
    before = index_content(partition)
    for name in before:
        partition.file_system.unlink(partition.path(name))
    partition.open(clean=False)
    partition.log.close(NOW)
    assert index_content(partition) == before


def test_leftovers_of_preallocated_indexes_do_no_harm(partition: Any, producer_batch: Batch) -> None:
    """Apache Kafka preallocates the active segment's indexes, 10 MB of zeros, and a kill leaves them so."""
    values = fill(partition, producer_batch, 10)
    partition.log.close(NOW)
    for name in (INDEX, TIME_INDEX, "00000000000000000008.index", "00000000000000000008.timeindex"):
        file = partition.file_system.open(partition.path(name))
        file.truncate(100_000)
        file.close()
    partition.open(clean=False)
    assert partition.values() == values
    assert partition.log.offset_of_max_timestamp().offset == 9
    partition.reopen()
    assert partition.values() == values
    assert partition.file_system.size(partition.path(INDEX)) < 100


# After a loss of power: damaged files


@pytest.mark.parametrize("lost", [1, 20, 70, 100, 150])
def test_a_torn_tail_is_truncated(partition: Any, producer_batch: Batch, lost: int) -> None:
    values = fill(partition, producer_batch, 3)
    size = len(producer_batch(0))
    partition.cut(LOG, -lost)
    partition.reopen(clean=False)
    left = (3 * size - lost) // size
    assert partition.values() == values[:left]
    assert partition.log.log_end_offset == left
    (repair,) = partition.log.repairs
    assert LOG in repair
    assert f"offset {left}" in repair
    assert partition.append(producer_batch(left)).first_offset == left
    assert partition.append(producer_batch(left)).duplicate


@pytest.mark.parametrize(
    ("position", "data"),
    [
        pytest.param(-1, b"?", id="records"),
        pytest.param(30, b"?", id="header"),
        pytest.param(0, b"\0" * 80, id="never written: zeros"),
        pytest.param(16, b"\0" * 64, id="only 16 bytes written, and the magic reads 0"),
        pytest.param(16, b"\1" + b"\0" * 63, id="the same with magic 1"),
        pytest.param(0, b"\0" * 8, id="an offset that does not follow"),
        pytest.param(8, b"\x7f\xff\xff\xff", id="a length past the end"),
        pytest.param(8, b"\0\0\0\1", id="a length too small"),
    ],
)
def test_a_damaged_batch_ends_the_log(partition: Any, producer_batch: Batch, position: int, data: bytes) -> None:
    values = fill(partition, producer_batch, 3)
    size = len(producer_batch(0))
    assert size <= 80
    partition.damage(LOG, 2 * size + position if position >= 0 else position, data[: size - max(position, 0)])
    partition.reopen(clean=False)
    assert partition.values() == values[:2]
    assert len(partition.log.repairs) == 1


def test_segments_after_the_damage_are_removed(partition: Any, producer_batch: Batch, segments_of: BaseOffsets) -> None:
    values = fill(partition, producer_batch, 18)
    partition.damage("00000000000000000004.log", -5, b"?")
    partition.reopen(clean=False)
    assert segments_of(partition.log) == [0, 4]
    assert partition.values() == values[:7]
    assert len(partition.log.repairs) == 2
    assert "3 segments" in partition.log.repairs[1]
    assert partition.log.snapshots.offsets == [4]
    assert partition.log.leader_epochs.entries == [(1, 0), (2, 5)]
    assert not [name for name in partition.names() if name.startswith("00000000000000000008") and "deleted" not in name]
    (producer,) = partition.log.active_producers()
    assert producer.last_sequence == 6
    partition.append(producer_batch(7))
    partition.reopen()
    assert partition.values() == values[:8]


def test_a_segment_that_lost_its_end_at_a_batchs_border_ends_the_log(
    partition: Any, producer_batch: Batch, segments_of: BaseOffsets
) -> None:
    values = fill(partition, producer_batch, 10)
    partition.cut("00000000000000000004.log", len(producer_batch(0)) * 2)
    partition.reopen(clean=False)
    assert segments_of(partition.log) == [0, 4]
    assert partition.values() == values[:6]
    assert "no segment begins at offset 6" in partition.log.repairs[0]


def test_on_a_compacted_topic_gaps_between_segments_are_no_loss(
    partition: Any, batch: Batch, segments_of: BaseOffsets
) -> None:
    for base_offset in (0, 10, 20):
        record = Record(base_offset, NOW, b"k", b"%d" % base_offset)
        data = build_batch([record], base_offset=base_offset, keep_offsets=True)
        partition.log.append_as_follower(data, now_ms=NOW, leader_epoch=1)
        partition.log.roll(NOW)
    partition.log.close(NOW)
    # A result of compaction: the end of the second segment, offsets 11 to 14, is missing.
    for kind in ("log", "index", "timeindex"):
        partition.file_system.rename(partition.path(f"{11:020d}.{kind}"), partition.path(f"{15:020d}.{kind}"))
    partition.configure(cleanup_policy=("compact",))
    partition.open(clean=False)
    assert segments_of(partition.log) == [0, 1, 15]
    assert [record.offset for record in partition.records()] == [0, 10, 20]
    partition.log.close(NOW)
    partition.configure(cleanup_policy=("delete",))
    partition.open(clean=False)
    assert segments_of(partition.log) == [0, 1]


def test_segments_before_the_recovery_point_are_not_read(memory_partition: Any, producer_batch: Batch) -> None:
    values = fill(memory_partition, producer_batch, 20)
    memory_partition.log.flush(NOW)
    read: set[str] = set()
    memory_partition.files.close()
    memory_partition.file_system = memory_partition.file_system.crash()
    memory_partition.file_system.fail_with = lambda operation, path: (
        read.add(path.rpartition("/")[2]) if operation == "read" else None
    )
    memory_partition.open(clean=False, recovery_point=13)
    assert {name for name in read if name.endswith(".log")} == {
        "00000000000000000012.log",
        "00000000000000000016.log",
    }
    memory_partition.file_system.fail_with = None
    assert memory_partition.values() == values
    assert memory_partition.append(producer_batch(19)).duplicate


def test_damage_before_the_recovery_point_is_not_searched_for(partition: Any, producer_batch: Batch) -> None:
    fill(partition, producer_batch, 20)
    partition.log.flush(NOW)
    partition.damage(LOG, -1, b"?")
    partition.reopen(clean=False, recovery_point=16)
    assert (partition.log.repairs, partition.log.log_end_offset) == ([], 20)
    partition.reopen(clean=False, recovery_point=0)
    assert partition.log.log_end_offset == 3


def test_damaged_snapshots_are_replaced_by_the_log(partition: Any, producer_batch: Batch) -> None:
    fill(partition, producer_batch, 10)
    partition.log.close(NOW)
    for name in [name for name in partition.names() if name.endswith(".snapshot")]:
        partition.damage(name, 10, b"?")
    partition.open()
    assert len(partition.log.repairs) == 3
    for sequence in range(5, 10):
        assert partition.append(producer_batch(sequence)).duplicate


def test_a_snapshot_of_records_that_were_lost_is_not_used(partition: Any, producer_batch: Batch) -> None:
    fill(partition, producer_batch, 8)
    partition.log.close(NOW)
    partition.cut("00000000000000000004.log", len(producer_batch(0)) * 2)
    partition.open(clean=False)
    assert partition.log.log_end_offset == 6
    assert partition.append(producer_batch(6)).first_offset == 6


def test_only_useful_snapshots_are_kept(partition: Any, producer_batch: Batch) -> None:
    fill(partition, producer_batch, 5)
    for _ in range(3):
        partition.reopen()
        partition.append(producer_batch(partition.log.log_end_offset))
    assert partition.log.snapshots.offsets == [4, 7]


def test_damaged_leader_epochs_are_read_from_the_batches(partition: Any, producer_batch: Batch) -> None:
    values = fill(partition, producer_batch, 11)
    partition.log.close(NOW)
    for content in (b"\0" * 20, b"0\n9\n1 0\n"):
        partition.file_system.replace_file(partition.path("leader-epoch-checkpoint"), content, sync=False)
        partition.open(clean=True, recovery_point=11)
        assert partition.log.leader_epochs.entries == [(1, 0), (2, 5), (3, 10)]
        assert len(partition.log.repairs) == 1
        assert partition.values() == values
        partition.log.close(NOW)


def test_leader_epochs_past_the_end_are_forgotten(partition: Any, producer_batch: Batch) -> None:
    fill(partition, producer_batch, 11)
    partition.log.flush(NOW)
    partition.cut("00000000000000000008.log", 0)
    partition.reopen(clean=False, recovery_point=8)
    assert partition.log.leader_epochs.entries == [(1, 0), (2, 5)]


def test_a_log_start_beyond_the_end_starts_the_log_over(partition: Any, producer_batch: Batch) -> None:
    fill(partition, producer_batch, 6)
    partition.reopen(log_start_offset=50)
    assert (partition.log.log_start_offset, partition.log.log_end_offset, partition.log.size) == (50, 50, 0)
    assert "deleted all segments" in partition.log.repairs[0]
    assert partition.append(producer_batch(9)).first_offset == 50


def test_the_index_of_aborted_transactions_is_rebuilt(partition: Any, producer_batch: Batch) -> None:
    partition.append(producer_batch(0, 2, transactional=True), verification=DISABLED)
    marker = Record(0, NOW, struct.pack(">hh", 0, 0), struct.pack(">hi", 0, 4))
    partition.append(
        build_batch([marker], producer_id=7, producer_epoch=0, transactional=True, control=True), client=False
    )
    partition.append(producer_batch(2, transactional=True), verification=DISABLED)
    before = partition.log.aborted_transactions(0, 10)
    assert len(before) == 1
    name = "00000000000000000000.txnindex"
    for damage in (
        partial(partition.damage, name, 3, b"?"),
        partial(partition.file_system.unlink, partition.path(name)),
    ):
        damage()
        partition.reopen(clean=False)
        assert partition.log.aborted_transactions(0, 10) == before
        assert partition.log.first_unstable_offset() == 3


# Leftover files


@pytest.mark.parametrize("clean", [True, False])
def test_leftovers_are_removed(partition: Any, producer_batch: Batch, clean: bool) -> None:
    values = fill(partition, producer_batch, 6)
    partition.log.close(NOW)
    leftovers = [
        "00000000000000000099.log.deleted",
        "00000000000000000004.index.deleted",
        "00000000000000000004.log.cleaned",
        "00000000000000000006.log.swap",
        "00000000000000000099.index",
        "00000000000000000099.timeindex",
        "00000000000000000099.snapshot",
        "00000000000000000098.snapshot.tmp",
        "leader-epoch-checkpoint.tmp",
    ]
    strangers = ["00000000000000000000-0000000000.checkpoint", "quorum-state", "readme.txt", "1.log"]
    for name in leftovers + strangers:
        partition.file_system.replace_file(partition.path(name), b"left over", sync=False)
    partition.open(clean=clean)
    assert partition.values() == values
    assert not set(leftovers) & set(partition.names())
    assert set(strangers) <= set(partition.names())


def test_a_compaction_that_was_complete_is_swapped_in(partition: Any, batch: Batch, segments_of: BaseOffsets) -> None:
    partition.configure(segment_bytes=250)
    for number in range(6):
        partition.append(batch(Record(0, NOW, b"k", b"%d" % number * 60)))
    assert segments_of(partition.log) == [0, 2, 4] or segments_of(partition.log) == [0, 1, 2, 3, 4, 5]
    partition.log.close(NOW)
    compacted = build_batch([Record(3, NOW, b"k", b"compacted")], base_offset=3, keep_offsets=True)
    partition.file_system.replace_file(partition.path(LOG + ".swap"), compacted, sync=False)
    partition.open()
    assert partition.values()[0] == b"compacted"
    assert [record.offset for record in partition.records()] == [3, 4, 5]
    assert not [name for name in partition.names() if name.endswith(".swap")]


def test_a_segment_of_an_older_format_is_unchanged(partition: Any, batch: Batch) -> None:
    body = struct.pack(">bbqi", 1, 0, NOW, -1) + struct.pack(">i", 5) + b"value"
    message = struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body
    partition.file_system.replace_file(partition.path(LOG), message, sync=False)
    with pytest.raises(UnsupportedMagicError):
        partition.open(clean=False)
    assert partition.file_system.read_file(partition.path(LOG)) == message


def test_the_topic_id_is_remembered(partition: Any) -> None:
    topic_id = bytes(range(16))
    assert partition.log.topic_id is None
    partition.log.set_topic_id(topic_id)
    partition.reopen()
    assert partition.log.topic_id == topic_id
    assert partition.file_system.read_file(partition.path("partition.metadata")) == encode_partition_metadata(topic_id)


def test_the_topic_id_of_a_killed_process_is_synced_before_the_directory_is_clean(partition: Any) -> None:
    partition.log.set_topic_id(bytes(range(16)))
    partition.open(clean=False)
    flush = partition.log.begin_close()
    assert flush is not None
    assert flush.paths == [partition.path("partition.metadata")]
    assert flush.directories == [partition.log.directory]
    flush.run()
    partition.log.end_close(flush, 0)


def test_a_damaged_topic_id_is_unknown_after_a_crash_and_an_error_otherwise(partition: Any) -> None:
    partition.file_system.replace_file(partition.path("partition.metadata"), b"", sync=False)
    partition.open(clean=False)
    assert partition.log.topic_id is None
    assert len(partition.log.repairs) == 1
    partition.open(clean=True)  # the id was not known before a clean shutdown
    assert partition.log.topic_id is None
    partition.file_system.replace_file(partition.path("partition.metadata"), b"", sync=False)
    with pytest.raises(CorruptCheckpointError):
        partition.open(clean=True)
