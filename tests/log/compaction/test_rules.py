"""Which records of a batch are kept and removed, rule by rule."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from moldau.log.compaction.compact import compact
from moldau.log.verification import DISABLED
from moldau.protocol.compression import Codec
from moldau.protocol.records import BatchHeader, Record, build_batch, iter_records

NOW = 1_700_000_000_000
RETENTION_MS = 1_000


def batch(*pairs: tuple[bytes | None, bytes | None], timestamp: int = NOW, step: int = 0, **fields: Any) -> bytes:
    """A batch of these keys and values; the records are `step` ms apart."""
    records = [Record(0, timestamp + step * number, key, value) for number, (key, value) in enumerate(pairs)]
    return build_batch(records, **fields)


def produced(producer_id: int, sequence: int, *pairs: tuple[bytes, bytes | None], **fields: Any) -> bytes:
    return batch(*pairs, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, **fields)


def append(compactor: Any, *batches: bytes) -> None:
    for data in batches:
        compactor.partition.append(data, verification=DISABLED)


def end_transaction(compactor: Any, producer_id: int, *, commit: bool, epoch: int = 0) -> None:
    record = Record(0, NOW, struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 4))
    data = build_batch([record], producer_id=producer_id, producer_epoch=epoch, transactional=True, control=True)
    compactor.partition.append(data, client=False)


def advance(compactor: Any, milliseconds: int) -> None:
    compactor.partition.now_ms += milliseconds


def without(header: BatchHeader, *names: str) -> dict[str, Any]:
    return {name: getattr(header, name) for name in BatchHeader.__slots__ if name not in names}


def test_the_latest_record_of_each_key_is_kept_at_its_offset(compactor: Any) -> None:
    append(compactor, batch((b"a", b"1"), (b"b", b"1")), batch((b"a", b"2")), batch((b"c", b"1"), (b"b", b"2")))
    compactor.roll()
    result = compactor.compact()
    assert compactor.contents() == [(2, b"a", b"2"), (3, b"c", b"1"), (4, b"b", b"2")]
    assert (result.statistics.records_kept, result.statistics.records_dropped) == (3, 2)
    assert result.clean_offset == 5


def test_the_latest_record_replaces_those_in_the_clean_part(compactor: Any) -> None:
    append(compactor, batch((b"a", b"1"), (b"b", b"1")))
    compactor.roll()
    compactor.compact()
    append(compactor, batch((b"a", b"2")))
    compactor.roll()
    compactor.compact()
    assert compactor.contents() == [(1, b"b", b"1"), (2, b"a", b"2")]


def test_the_active_segment_is_unchanged(compactor: Any) -> None:
    append(compactor, batch((b"a", b"1")))
    compactor.roll()
    append(compactor, batch((b"a", b"2")), batch((b"a", b"3")))
    compactor.compact()
    assert compactor.contents() == [(0, b"a", b"1"), (1, b"a", b"2"), (2, b"a", b"3")]


def test_long_and_short_keys_are_distinguished(compactor: Any) -> None:
    keys = [b"k" * length for length in (0, 1, 31, 32, 33, 63, 64, 100, 8_191, 8_192, 20_000)]
    append(compactor, *(batch(*((key, b"%d" % number) for key in keys)) for number in range(3)))
    append(compactor, batch((b"last", b"")))
    compactor.roll()
    compactor.compact()
    assert [(key, value) for _offset, key, value in compactor.contents()][:-1] == [(key, b"2") for key in keys]


def test_a_record_without_a_key_is_removed(compactor: Any) -> None:
    append(compactor, batch((None, b"1"), (b"a", b"1")), batch((None, None)), batch((b"b", b"1")))
    compactor.roll()
    compactor.compact()
    assert compactor.contents() == [(1, b"a", b"1"), (3, b"b", b"1")]


def test_a_batch_that_is_kept_completely_is_copied_unchanged(memory_compactor: Any) -> None:
    """It is not compressed again: the output of other libraries is kept, byte for byte."""
    unusual = batch((b"a", b"x" * 2_000), (b"b", b"y" * 2_000), codec=Codec.GZIP, level=1)
    append(memory_compactor, batch((b"c", b"1")), unusual, batch((b"c", b"2")))
    memory_compactor.roll()
    before = [bytes(found.data) for found in memory_compactor.batches()]
    memory_compactor.compact()
    assert [bytes(found.data) for found in memory_compactor.batches()] == before[1:]


def test_a_segment_that_is_kept_completely_is_not_written(memory_compactor: Any) -> None:
    append(memory_compactor, batch((b"a", b"1")), batch((b"b", b"1")))
    memory_compactor.roll()
    before = memory_compactor.partition.names()
    result = compact(memory_compactor.job(), memory_compactor.partition.file_system)
    assert (result.replacements, result.statistics.bytes_written, result.clean_offset) == ((), 0, 2)
    assert memory_compactor.partition.names() == before


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("log_append_time", [False, True])
def test_the_rest_of_a_batch_keeps_everything_else(memory_compactor: Any, codec: Codec, log_append_time: bool) -> None:
    if log_append_time:
        memory_compactor.partition.configure(message_timestamp_type="LogAppendTime")
    headers = (("one", b"1"), ("one", None))
    records = [Record(0, NOW + 70 * n, b"%d" % (n % 3), b"value %d" % n * 20, headers) for n in range(5)]
    data = build_batch(records, codec=codec, producer_id=5, producer_epoch=3, base_sequence=0)
    append(memory_compactor, batch((b"x", b"1")), data, batch((b"3", b"1")), batch((b"x", b"2")))
    memory_compactor.roll()
    before = memory_compactor.batches()[1]
    all_records = {record.offset: record for record in iter_records(before)}
    memory_compactor.compact()
    after = memory_compactor.batches()[0]
    assert list(iter_records(after)) == [all_records[3], all_records[4], all_records[5]]
    changed = ("batch_length", "crc", "record_count", "base_timestamp", "max_timestamp")
    assert without(after, *changed) == without(before, *changed)
    assert after.max_timestamp == before.max_timestamp
    assert after.base_timestamp == all_records[3].timestamp
    assert (after.last_sequence, after.last_offset) == (4, 5)


def test_max_timestamp_is_that_of_the_remaining_records(memory_compactor: Any) -> None:
    data = build_batch([Record(0, NOW + 90, b"a", b"1"), Record(0, NOW - 5, b"b", b"1"), Record(0, NOW, b"c", b"1")])
    append(memory_compactor, data, batch((b"a", b"2")))
    memory_compactor.roll()
    memory_compactor.compact()
    assert memory_compactor.batches()[0].max_timestamp == NOW
    assert memory_compactor.partition.log.segments[0].max_timestamp == NOW


# Tombstones


def test_a_tombstone_is_removed_when_its_horizon_has_passed(compactor: Any) -> None:
    append(compactor, batch((b"a", b"1")), batch((b"b", b"1"), (b"a", None), step=7), batch((b"c", b"1")))
    compactor.roll()
    compactor.compact()
    tombstone = compactor.batches()[0]
    assert tombstone.delete_horizon_ms == NOW + RETENTION_MS
    assert list(iter_records(tombstone)) == [Record(1, NOW, b"b", b"1"), Record(2, NOW + 7, b"a", None)]
    advance(compactor, RETENTION_MS - 1)
    assert not compactor.compact().replacements
    assert compactor.contents() == [(1, b"b", b"1"), (2, b"a", None), (3, b"c", b"1")]
    advance(compactor, 1)
    compactor.compact()
    assert compactor.contents() == [(1, b"b", b"1"), (3, b"c", b"1")]
    assert compactor.batches()[0].delete_horizon_ms == tombstone.delete_horizon_ms
    assert list(iter_records(compactor.batches()[0])) == [Record(1, NOW, b"b", b"1")]


def test_a_tombstone_that_is_not_the_latest_is_removed_immediately(compactor: Any) -> None:
    append(compactor, batch((b"a", None)), batch((b"a", b"1")))
    compactor.roll()
    compactor.compact()
    assert compactor.contents() == [(1, b"a", b"1")]


def test_a_tombstone_keeps_its_horizon_when_the_clean_offset_is_forgotten(compactor: Any) -> None:
    append(compactor, batch((b"a", None)), batch((b"b", b"1")))
    compactor.roll()
    compactor.compact()
    advance(compactor, 400)
    compactor.clean_offset = 0
    assert not compactor.compact().replacements
    assert compactor.batches()[0].delete_horizon_ms == NOW + RETENTION_MS
    advance(compactor, 600)
    compactor.clean_offset = 0
    compactor.compact()
    assert compactor.contents() == [(1, b"b", b"1")]


def test_a_tombstone_beyond_the_map_gets_its_horizon(memory_compactor: Any) -> None:
    append(memory_compactor, batch((b"a", b"1")), batch((b"b", b"1")), batch((b"a", None)), batch((b"d", None)))
    memory_compactor.roll()
    memory_compactor.dedupe_buffer_bytes = 1
    memory_compactor.compact()
    assert memory_compactor.clean_offset == 1
    assert [found.delete_horizon_ms for found in memory_compactor.batches()] == [None, None, *[NOW + RETENTION_MS] * 2]


# Transactions


def test_records_of_an_aborted_transaction_are_removed_and_replace_no_other_records(compactor: Any) -> None:
    append(compactor, batch((b"a", b"1")), produced(5, 0, (b"a", b"2"), transactional=True))
    end_transaction(compactor, 5, commit=False)
    append(compactor, batch((b"b", b"1")))
    compactor.roll()
    compactor.compact()
    assert compactor.contents() == [(0, b"a", b"1"), (3, b"b", b"1")]


def test_records_of_a_committed_transaction_stay_with_their_marker(compactor: Any) -> None:
    append(compactor, batch((b"a", b"1")), produced(5, 0, (b"a", b"2"), transactional=True))
    end_transaction(compactor, 5, commit=True)
    append(compactor, batch((b"b", b"1")))
    compactor.roll()
    for _pass in range(3):
        compactor.compact()
        assert compactor.contents() == [(1, b"a", b"2"), (3, b"b", b"1")]
        assert [(found.base_offset, found.record_count) for found in compactor.batches()] == [(1, 1), (2, 1), (3, 1)]
        assert compactor.batches()[1].delete_horizon_ms is None
        advance(compactor, 10 * RETENTION_MS)


@pytest.mark.parametrize("commit", [False, True])
def test_a_marker_is_removed_a_horizon_after_its_transaction(compactor: Any, commit: bool) -> None:
    compactor.last_batches = False
    append(compactor, produced(5, 0, (b"a", b"1"), transactional=True))
    end_transaction(compactor, 5, commit=commit)
    append(compactor, batch((b"a", b"2")))
    compactor.roll()
    indexed = [(5, 0, 1)] if not commit else []

    def aborted() -> list[tuple[int, ...]]:
        return [entry[:3] for entry in compactor.partition.log.aborted_transactions(0, 3)]

    compactor.compact()  # which still met the transaction's batch
    assert [(found.base_offset, found.delete_horizon_ms) for found in compactor.batches()] == [(1, None), (2, None)]
    assert aborted() == indexed
    compactor.compact()
    horizon = compactor.partition.now_ms + RETENTION_MS
    assert [(found.base_offset, found.delete_horizon_ms) for found in compactor.batches()] == [(1, horizon), (2, None)]
    assert [record.timestamp for record in iter_records(compactor.batches()[0])] == [NOW]
    assert aborted() == []
    advance(compactor, RETENTION_MS - 1)
    assert not compactor.compact().replacements
    advance(compactor, 1)
    compactor.compact()
    assert [found.base_offset for found in compactor.batches()] == [2]


def test_a_marker_is_kept_while_an_empty_batch_of_its_transaction_is_kept(compactor: Any) -> None:
    append(compactor, produced(5, 0, (b"a", b"1"), transactional=True))
    end_transaction(compactor, 5, commit=False)
    append(compactor, batch((b"a", b"2")))
    compactor.roll()
    for _pass in range(3):
        compactor.compact()
        assert [(found.base_offset, found.record_count) for found in compactor.batches()] == [(0, 0), (1, 1), (2, 1)]
        assert compactor.partition.log.aborted_transactions(0, 3)[0][:3] == (5, 0, 1)
        advance(compactor, 2 * RETENTION_MS)


def test_a_transaction_that_is_aborted_in_a_later_segment_is_known(compactor: Any) -> None:
    """The marker is in a part of the log that is not compacted yet."""
    append(compactor, batch((b"a", b"1")), produced(5, 0, (b"a", b"2"), transactional=True), batch((b"b", b"1")))
    compactor.roll()
    end_transaction(compactor, 5, commit=False)
    compactor.last_batches = False
    compactor.compact()
    assert compactor.contents() == [(0, b"a", b"1"), (2, b"b", b"1")]


def test_an_open_transaction_is_out_of_reach(compactor: Any) -> None:
    append(compactor, batch((b"a", b"1")))
    compactor.roll()
    append(compactor, batch((b"a", b"2")), produced(5, 0, (b"a", b"3"), transactional=True))
    compactor.roll()
    compactor.compact()
    assert compactor.contents() == [(0, b"a", b"1"), (1, b"a", b"2"), (2, b"a", b"3")]
    assert compactor.clean_offset == 1


# Batches that are kept without records


def test_the_last_batch_of_a_producer_is_kept_without_records(compactor: Any) -> None:
    append(compactor, produced(5, 0, (b"a", b"1")), produced(5, 1, (b"a", b"2"), (b"b", b"1")))
    append(compactor, batch((b"b", b"2")), batch((b"a", b"3")))
    compactor.roll()
    before = compactor.batches()[1]
    compactor.compact()
    empty, *_others = compactor.batches()
    assert compactor.contents() == [(3, b"b", b"2"), (4, b"a", b"3")]
    changed = ("batch_length", "crc", "record_count", "base_timestamp")
    assert without(empty, *changed) == without(before, *changed)
    assert (empty.record_count, empty.size, empty.base_timestamp) == (0, 61, -1)
    assert not compactor.compact().replacements
    assert compactor.partition.append(produced(5, 1, (b"a", b"2"), (b"b", b"1"))).duplicate


def test_the_last_batch_of_an_expired_producer_is_removed(compactor: Any) -> None:
    compactor.last_batches = False
    append(compactor, produced(5, 0, (b"a", b"1")), batch((b"a", b"2")))
    compactor.roll()
    compactor.compact()
    assert [found.base_offset for found in compactor.batches()] == [1]


def test_the_marker_of_a_producer_without_data_is_kept_without_records(compactor: Any) -> None:
    """It has the epoch that fences older instances."""
    end_transaction(compactor, 5, commit=True, epoch=4)
    append(compactor, batch((b"a", b"1")))
    compactor.roll()
    compactor.compact()
    advance(compactor, RETENTION_MS)
    compactor.compact()
    marker = compactor.batches()[0]
    assert (marker.base_offset, marker.record_count, marker.producer_epoch, marker.is_control) == (0, 0, 4, True)
    assert [(p.producer_id, p.epoch) for p in compactor.partition.log.active_producers()] == [(5, 4)]


def test_the_last_batch_is_kept_empty_so_that_offsets_continue(compactor: Any) -> None:
    append(compactor, batch((b"a", b"1")), batch((b"a", None), (b"b", None)))
    compactor.roll()
    compactor.compact()
    advance(compactor, RETENTION_MS)
    compactor.compact()
    assert compactor.contents() == []
    assert [(found.base_offset, found.last_offset) for found in compactor.batches()] == [(1, 2)]
    assert compactor.partition.log.log_end_offset == 3


# Segments


def test_small_segments_become_one(compactor: Any, segments_of: Any) -> None:
    compactor.partition.configure(segment_bytes=1_000)
    for number in range(40):
        append(compactor, batch((b"%d" % (number % 4), b"x" * 100)))
    compactor.roll()
    assert len(segments_of(compactor.partition.log)) > 5
    before = compactor.reader()
    compactor.compact()
    assert len(compactor.compact().replacements[0].old_base_offsets) > 1
    assert segments_of(compactor.partition.log) == [0, 40]
    assert compactor.reader() == before


def test_a_new_segment_is_as_old_as_the_last_old_one(compactor: Any) -> None:
    partition = compactor.partition
    append(compactor, batch((b"a", b"1")))
    compactor.roll()
    append(compactor, batch((b"a", b"2")))
    compactor.roll()
    for number, segment in enumerate(list(partition.log.segments)[:2]):
        partition.file_system.set_modified_ms(segment.path, NOW + number)
    compactor.compact()
    assert partition.file_system.modified_ms(partition.log.segments[0].path) == NOW + 1


def test_new_segments_are_handed_over_one_by_one(memory_compactor: Any) -> None:
    memory_compactor.partition.configure(segment_bytes=1_000)
    for number in range(20):
        append(memory_compactor, batch((b"%d" % (number % 12), b"x" * 100)))
    memory_compactor.roll()
    partition, handed_over = memory_compactor.partition, []

    def note(replacement: Any) -> None:
        assert partition.file_system.size(partition.path(f"{replacement.base_offset:020d}.log.cleaned")) == (
            replacement.size
        )
        handed_over.append(replacement)

    result = compact(memory_compactor.job(), partition.file_system, on_replacement=note)
    assert len(handed_over) > 1
    assert result.replacements == tuple(handed_over)


def test_progress_reaches_the_end_and_may_end_the_pass(memory_compactor: Any) -> None:
    for number in range(20):
        append(memory_compactor, batch((b"%d" % (number % 3), b"x" * 100)))
        memory_compactor.roll()
    reported: list[tuple[int, int]] = []
    partition = memory_compactor.partition
    compact(memory_compactor.job(), partition.file_system, on_progress=lambda *progress: reported.append(progress))
    assert reported == sorted(reported)
    assert reported[-1][0] == reported[-1][1]

    def end(done: int, total: int) -> None:
        if done > total * 0.7:
            raise KeyboardInterrupt

    memory_compactor.put_in_place(compact(memory_compactor.job(), partition.file_system))
    append(memory_compactor, *(batch((b"%d" % (number % 2), b"x" * 100)) for number in range(20)))
    memory_compactor.roll()
    before = partition.names()
    with pytest.raises(KeyboardInterrupt):
        compact(memory_compactor.job(), partition.file_system, on_progress=end)
    assert partition.names() == before


def test_a_throttled_pass_sleeps(memory_compactor: Any) -> None:
    for number in range(20):
        append(memory_compactor, batch((b"%d" % (number % 3), b"x" * 1_000)))
    memory_compactor.roll()
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    job = memory_compactor.job(io_bytes_per_second=1_000)
    result = compact(job, memory_compactor.partition.file_system, clock=lambda: now[0], sleep=sleep)
    statistics = result.statistics
    assert statistics.seconds == pytest.approx((statistics.bytes_read + statistics.bytes_written) / 1_000, rel=0.05)


@pytest.mark.parametrize("retention_ms", [0, 1, RETENTION_MS, 2**62, 2**63 - 1 - NOW, 2**63 - 1])
@pytest.mark.parametrize("timestamp", [-1, 0, NOW, -(2**62)])
def test_a_tombstone_is_kept_for_any_retention_time(compactor: Any, retention_ms: int, timestamp: int) -> None:
    compactor.delete_retention_ms = retention_ms
    append(compactor, batch((b"a", b"1"), (b"b", b"1")), batch((b"a", None), timestamp=timestamp))
    compactor.roll()
    compactor.compact()
    assert compactor.contents() == [(1, b"b", b"1"), (2, b"a", None)]
    assert [record.timestamp for record in compactor.records()] == [NOW, timestamp]
    (horizon,) = [b.delete_horizon_ms for b in compactor.batches() if b.delete_horizon_ms is not None]
    assert horizon == min(NOW + retention_ms, 2**63 - 1)
    advance(compactor, RETENTION_MS)
    append(compactor, batch((b"c", b"1")))
    compactor.roll()
    compactor.compact()
    assert ((2, b"a", None) in compactor.contents()) is (retention_ms > RETENTION_MS)
