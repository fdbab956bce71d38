"""Appending as the leader: stored batches, results and rejections are those of Apache Kafka."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moldau.log.config import LogConfig
from moldau.log.producer_state import MARKER_BATCH_SIZE, EndTransactionMarker
from moldau.log.validation import InvalidRecordBatchError, needs_recompression, recompress
from moldau.log.verification import DISABLED
from moldau.protocol.checksum import crc32c
from moldau.protocol.compression import Codec
from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.records import CRC_POSITION, LOG_APPEND_TIME, Record, build_batch, iter_batches, iter_records

NOW = 1_700_000_000_000
HOUR_MS = 3_600_000

Batch = Callable[..., bytes]


def with_crc(batch: bytes | bytearray) -> bytes:
    fixed = bytearray(batch)
    fixed[17:21] = crc32c(memoryview(fixed)[21:]).to_bytes(4, "big")
    return bytes(fixed)


def patched(batch: bytes, position: int, layout: str, value: int) -> bytes:
    """The batch with another header field, and a CRC that fits."""
    data = bytearray(batch)
    struct.pack_into(layout, data, position, value)
    return with_crc(data)


def test_offsets_and_leader_epoch_are_assigned(partition: Any, batch: Batch) -> None:
    info = partition.append(batch(b"a", b"b", b"c"))
    assert (info.first_offset, info.last_offset, info.log_start_offset) == (0, 2, 0)
    assert (info.log_append_time_ms, info.duplicate) == (-1, False)
    partition.leader_epoch = 5
    assert partition.append(batch(b"d")).first_offset == 3
    assert partition.log.log_end_offset == 4
    stored = list(iter_batches(partition.fetch(0)))
    assert [(b.base_offset, b.partition_leader_epoch) for b in stored] == [(0, 1), (3, 5)]
    assert partition.values() == [b"a", b"b", b"c", b"d"]
    assert partition.log.end_offset_for_epoch(1) == (1, 3)
    assert partition.log.end_offset_for_epoch(5) == (5, 4)


@pytest.mark.parametrize(
    "form", [bytes, bytearray, lambda data: memoryview(bytearray(b"frame" + data + b"rest"))[5:-4]]
)
def test_the_input_is_never_changed(partition: Any, batch: Batch, form: Callable[[bytes], Any]) -> None:
    for changes in ({}, {"message_timestamp_type": "LogAppendTime"}, {"compression_type": "lz4"}):
        partition.configure(**changes)
        data = batch(b"value", producer_id=9, producer_epoch=0, base_sequence=partition.log.log_end_offset)
        given = form(data)
        partition.append(given)
        assert bytes(given) == data
    assert partition.values() == [b"value"] * 3


@pytest.mark.parametrize("codec", list(Codec))
def test_compressed_batches_are_stored_unchanged(partition: Any, batch: Batch, codec: Codec) -> None:
    data = batch(*[b"value %d" % index for index in range(100)], codec=codec)
    partition.append(data)
    stored = partition.fetch(0)
    assert stored[16:] == data[16:]
    assert len(partition.records()) == 100


def test_every_append_is_one_write(memory_partition: Any, batch: Batch) -> None:
    memory_partition.append(batch())
    operations: list[str] = []
    memory_partition.file_system.fail_with = lambda operation, _path: operations.append(operation)
    memory_partition.append(batch(b"x" * 2_000))
    assert operations == ["write"]


def test_the_first_append_creates_the_files(partition: Any, batch: Batch) -> None:
    assert partition.names() == []
    partition.append(batch())
    assert partition.names() == [f"00000000000000000000.{kind}" for kind in ("index", "log", "timeindex")]


# Rejections


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda b: b"", ErrorCode.INVALID_RECORD),
        (lambda b: b[:11], ErrorCode.INVALID_RECORD),
        (lambda b: b[:60], ErrorCode.INVALID_RECORD),
        (lambda b: b[:-1], ErrorCode.INVALID_RECORD),
        (lambda b: b + b, ErrorCode.INVALID_RECORD),
        (lambda b: b[:16] + b"\x00" + b[17:], ErrorCode.INVALID_RECORD),
        (lambda b: b[:16] + b"\x01" + b[17:], ErrorCode.INVALID_RECORD),
        (lambda b: b[:16] + b"\x03" + b[17:], ErrorCode.CORRUPT_MESSAGE),
        (lambda b: b[:16] + b"\xff" + b[17:], ErrorCode.CORRUPT_MESSAGE),
        (lambda b: b[:8] + b"\x00\x00\x00\x0d" + b[12:], ErrorCode.CORRUPT_MESSAGE),
        (lambda b: b[:8] + b"\xff\xff\xff\xff" + b[12:], ErrorCode.CORRUPT_MESSAGE),
        (lambda b: b[:8] + b"\x00\x00\x00\x1e" + b[12:42], ErrorCode.CORRUPT_MESSAGE),
        (lambda b: b + b[:8] + b"\x00\x00\x00\x05" + b[12:20], ErrorCode.CORRUPT_MESSAGE),
        (lambda b: b[:17] + b"\x00\x00\x00\x00" + b[21:], ErrorCode.CORRUPT_MESSAGE),
        (lambda b: b[:-1] + b"?", ErrorCode.CORRUPT_MESSAGE),
        (lambda b: patched(b, 0, ">q", 5), ErrorCode.INVALID_RECORD),
        (lambda b: patched(b, 21, ">h", 0x20), ErrorCode.INVALID_RECORD),
        (lambda b: patched(b, 21, ">h", 5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (lambda b: patched(b, 21, ">h", 7), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (lambda b: patched(b, 57, ">i", 0), ErrorCode.INVALID_RECORD),
        (lambda b: patched(b, 57, ">i", -1), ErrorCode.INVALID_RECORD),
        (lambda b: patched(b, 57, ">i", 3), ErrorCode.INVALID_RECORD),
        (lambda b: patched(b, 23, ">i", 2), ErrorCode.INVALID_RECORD),
        (lambda b: patched(b, 23, ">i", -1), ErrorCode.INVALID_RECORD),
        (lambda b: patched(b, 43, ">q", 5), ErrorCode.INVALID_RECORD),  # a producer id without a sequence number
    ],
)
def test_malformed_batches_are_rejected_with_apache_kafkas_codes(
    partition: Any, batch: Batch, change: Callable[[bytes], bytes], code: ErrorCode
) -> None:
    partition.append(batch(b"before"))
    assert partition.refused(change(batch(b"one", b"two"))).code == code
    assert partition.append(batch(b"after")).first_offset == 1


@pytest.mark.parametrize("rest", [b"\0" * 5, b"\0" * 11, b"\xff" * 11])
def test_incomplete_bytes_after_the_batch_are_ignored(partition: Any, batch: Batch, rest: bytes) -> None:
    partition.append(batch(b"a") + rest)
    partition.append(batch(b"b") + batch(b"cut off")[:-1])
    partition.append(batch(b"c"))
    assert partition.values() == [b"a", b"b", b"c"]


def test_a_batch_over_max_message_bytes_is_rejected(partition: Any, batch: Batch) -> None:
    data = batch(b"x" * 1_000)
    partition.configure(max_message_bytes=len(data) - 1)
    assert partition.refused(data).code == ErrorCode.MESSAGE_TOO_LARGE
    assert partition.refused(data, client=False).code == ErrorCode.MESSAGE_TOO_LARGE
    partition.configure(max_message_bytes=len(data))
    partition.append(data)


def test_a_batch_over_the_segment_size_is_rejected(partition: Any, batch: Batch) -> None:
    partition.configure(segment_bytes=500)
    assert partition.refused(batch(b"x" * 600)).code == ErrorCode.RECORD_LIST_TOO_LARGE


def test_the_size_is_checked_before_the_crc_and_the_crc_before_the_count(partition: Any, batch: Batch) -> None:
    bad = bytearray(batch(b"x" * 100))
    bad[57:61] = b"\0\0\0\x09"
    partition.configure(max_message_bytes=50)
    assert partition.refused(bytes(bad)).code == ErrorCode.MESSAGE_TOO_LARGE
    partition.configure(max_message_bytes=500)
    assert partition.refused(bytes(bad)).code == ErrorCode.CORRUPT_MESSAGE
    assert partition.refused(with_crc(bad)).code == ErrorCode.INVALID_RECORD


# Timestamps


def test_timestamps_out_of_range_are_rejected_record_by_record(partition: Any) -> None:
    partition.configure(message_timestamp_before_max_ms=1_000, message_timestamp_after_max_ms=500)
    times = [NOW, NOW - 1_001, NOW - 1_000, NOW + 500, NOW + 501]
    data = build_batch([Record(0, time, None, b"v") for time in times])
    error = partition.refused(data)
    assert error.code == ErrorCode.INVALID_TIMESTAMP
    assert isinstance(error, InvalidRecordBatchError)
    assert [index for index, _ in error.record_errors] == [1, 4]
    assert str(NOW - 1_001) in error.record_errors[0][1]
    for time in (NOW - 1_000, NOW + 500, -1):
        partition.append(build_batch([Record(0, time, None, b"v")]))
    for time in (NOW - 1_001, NOW + 501, 0):
        assert partition.refused(build_batch([Record(0, time, None, b"v")])).code == ErrorCode.INVALID_TIMESTAMP


def test_by_default_any_past_is_allowed_and_an_hour_of_future(partition: Any, batch: Batch) -> None:
    partition.append(batch(timestamp=0))
    partition.append(batch(timestamp=NOW + HOUR_MS))
    assert partition.refused(batch(timestamp=NOW + HOUR_MS + 1)).code == ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("timestamp", [-(2**63), -(2**63) + 1, 2**63 - 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_timestamps_at_the_ends_of_64_bits_are_out_of_range(partition: Any, timestamp: int, codec: Codec) -> None:
    data = build_batch([Record(0, timestamp, None, b"v")], codec=codec, max_timestamp=NOW)
    assert partition.refused(data).code == ErrorCode.INVALID_TIMESTAMP
    data = build_batch([Record(0, NOW, None, b"v"), Record(0, timestamp, None, b"v")], codec=codec)
    partition.configure(validate_records=True)
    assert partition.refused(data).code == ErrorCode.INVALID_TIMESTAMP


def test_of_many_bad_records_the_first_thousand_are_named(partition: Any) -> None:
    partition.configure(cleanup_policy=("compact",))
    error = partition.refused(build_batch([Record(0, NOW, None, b"v")] * 1_500))
    assert isinstance(error, InvalidRecordBatchError)
    assert [index for index, _ in error.record_errors] == list(range(1_000))


def test_records_whose_offsets_are_not_in_order_are_numbered_when_they_are_recompressed(partition: Any) -> None:
    partition.configure(compression_type="lz4")
    records = [Record(7 - number, NOW + number, b"k", b"%d" % number, (("h", b"x"),)) for number in range(5)]
    data = build_batch(records, base_offset=0, keep_offsets=True, last_offset_delta=4, codec=Codec.GZIP)
    partition.append(data)
    expected = [record._replace(offset=number) for number, record in enumerate(records)]
    assert partition.records() == expected


def test_a_claimed_append_time_becomes_the_time_of_the_records_when_they_are_recompressed(
    partition: Any, batch: Batch
) -> None:
    partition.configure(compression_type="zstd")
    partition.append(batch(b"a", b"b", timestamp=5, log_append_time_ms=NOW))
    assert [record.timestamp for record in partition.records()] == [NOW, NOW]


def test_the_records_of_a_compressed_batch_are_checked(partition: Any) -> None:
    records = [Record(0, NOW, None, b"fine"), Record(0, NOW + 2 * HOUR_MS, None, b"not")]
    error = partition.refused(build_batch(records, codec=Codec.ZSTD))
    assert isinstance(error, InvalidRecordBatchError)
    assert [index for index, _ in error.record_errors] == [1]


def test_an_impossible_largest_timestamp_is_corrected(partition: Any) -> None:
    records = [Record(0, NOW, None, b"a"), Record(0, NOW + 7, None, b"b")]
    for wrong in (-1, 0, NOW - 1, NOW + 9 * HOUR_MS):
        partition.append(build_batch(records, max_timestamp=wrong))
    stored = list(iter_batches(partition.fetch(0)))
    assert [b.max_timestamp for b in stored] == [NOW + 7] * 4
    assert all(b.has_valid_crc() for b in stored)


def test_log_append_time_is_written_into_the_header(partition: Any, batch: Batch) -> None:
    partition.configure(message_timestamp_type="LogAppendTime")
    for codec in (Codec.NONE, Codec.SNAPPY):
        info = partition.append(batch(b"a", b"b", timestamp=5, codec=codec))
        assert info.log_append_time_ms == NOW
    stored = list(iter_batches(partition.fetch(0)))
    assert [(b.timestamp_type, b.max_timestamp) for b in stored] == [(LOG_APPEND_TIME, NOW)] * 2
    assert all(b.has_valid_crc() for b in stored)
    assert {record.timestamp for record in partition.records()} == {NOW}


def test_a_producer_must_not_claim_log_append_time(partition: Any, batch: Batch) -> None:
    claim = batch(b"a", b"b", log_append_time_ms=NOW)
    partition.configure(message_timestamp_type="LogAppendTime")
    error = partition.refused(claim)
    assert error.code == ErrorCode.INVALID_TIMESTAMP
    assert isinstance(error, InvalidRecordBatchError)
    assert len(error.record_errors) == 2
    # Under CreateTime, Apache Kafka takes such a batch for one with create times.
    partition.configure(message_timestamp_type="CreateTime")
    partition.append(claim)
    (stored,) = iter_batches(partition.fetch(0))
    assert (stored.timestamp_type, stored.max_timestamp) == (0, NOW)
    assert stored.has_valid_crc()


# Records that must be looked at


def test_a_compacted_topic_needs_keys(partition: Any) -> None:
    partition.configure(cleanup_policy=("compact",))
    keyed, keyless = Record(0, NOW, b"k", b"v"), Record(0, NOW, None, b"v")
    for codec in (Codec.NONE, Codec.GZIP):
        error = partition.refused(build_batch([keyed, keyless, keyed, keyless], codec=codec))
        assert error.code == ErrorCode.INVALID_RECORD
        assert isinstance(error, InvalidRecordBatchError)
        assert [index for index, _ in error.record_errors] == [1, 3]
        assert "without key" in error.record_errors[0][1]
        partition.append(build_batch([keyed, keyed], codec=codec))
    partition.append(build_batch([keyless]), client=False)


@pytest.mark.parametrize(
    ("settings", "codec"),
    [
        ({"compression_type": "gzip"}, Codec.GZIP),
        ({"compression_type": "snappy"}, Codec.SNAPPY),
        ({"compression_type": "lz4", "compression_lz4_level": 12}, Codec.LZ4),
        ({"compression_type": "zstd", "compression_zstd_level": 9}, Codec.ZSTD),
        ({"compression_type": "uncompressed"}, Codec.NONE),
    ],
)
def test_batches_are_stored_in_the_topics_compression_type(
    partition: Any, batch: Batch, settings: dict[str, Any], codec: Codec
) -> None:
    partition.configure(**settings)
    values = [b"value %d" % index * 10 for index in range(50)]
    for number, source in enumerate(Codec):
        data = batch(*values, codec=source, producer_id=3, producer_epoch=1, base_sequence=number * 50)
        assert needs_recompression(data, partition.config) == (source != codec)
        partition.append(data)
    stored = list(iter_batches(partition.fetch(0)))
    assert [b.codec for b in stored] == [codec] * 5
    assert [(b.producer_id, b.producer_epoch, b.base_sequence) for b in stored] == [(3, 1, n * 50) for n in range(5)]
    assert partition.values() == values * 5


def test_a_separate_recompression_has_the_same_result_as_an_append(partition: Any, batch: Batch) -> None:
    partition.configure(compression_type="zstd")
    data = batch(b"a" * 500, b"b" * 500, codec=Codec.GZIP, producer_id=3, producer_epoch=0, base_sequence=0)
    prepared = recompress(data, partition.config, now_ms=NOW)
    assert not needs_recompression(prepared, partition.config)
    partition.append(prepared, validated=True)
    assert partition.append(data).duplicate
    assert partition.values() == [b"a" * 500, b"b" * 500]


def test_a_validated_batch_is_stored_unchanged_although_the_topic_requires_validation(
    partition: Any, batch: Batch
) -> None:
    partition.configure(cleanup_policy=("compact",))
    data = batch(Record(0, NOW, b"key", b"value"))
    partition.append(data, validated=True)
    partition.append(data)
    first, second = iter_batches(partition.fetch(0))
    assert (first.base_offset, second.base_offset) == (0, 1)
    assert first.data[CRC_POSITION:] == second.data[CRC_POSITION:] == data[CRC_POSITION:]
    partition.configure(message_timestamp_type="LogAppendTime")
    assert partition.append(data, validated=True, now_ms=NOW + 5).log_append_time_ms == NOW + 5


def test_a_separate_recompression_rejects_the_same_batches_as_an_append(partition: Any, batch: Batch) -> None:
    config = LogConfig(compression_type="zstd", cleanup_policy=("compact",))
    for data, code in (
        (batch(b"no key"), ErrorCode.INVALID_RECORD),
        (batch(b"x")[:-1], ErrorCode.INVALID_RECORD),
        (batch(b"x")[:-1] + b"?", ErrorCode.CORRUPT_MESSAGE),
        (batch(b"x", timestamp=NOW + 2 * HOUR_MS), ErrorCode.INVALID_RECORD),
    ):
        with pytest.raises(KafkaError) as caught:
            recompress(data, config, now_ms=NOW)
        assert caught.value.code == code


def test_a_batch_that_grows_over_the_limit_by_recompression_is_rejected(partition: Any, batch: Batch) -> None:
    data = batch(bytes(100_000), codec=Codec.ZSTD)
    partition.configure(compression_type="uncompressed", max_message_bytes=50_000)
    assert partition.refused(data).code == ErrorCode.MESSAGE_TOO_LARGE


def test_undecodable_records_are_rejected_where_records_are_validated(partition: Any, batch: Batch) -> None:
    good = batch(b"some value", codec=Codec.GZIP)
    garbage = with_crc(good[:61] + b"\0" * (len(good) - 61))
    for changes in ({"validate_records": True}, {"compression_type": "lz4"}):
        partition.configure(**changes)
        assert partition.refused(garbage).code == ErrorCode.INVALID_RECORD
    partition.append(good)


# Producers


def test_a_duplicate_is_acknowledged_with_its_offsets_and_not_stored(partition: Any, producer_batch: Batch) -> None:
    for sequence in range(6):
        partition.append(producer_batch(sequence))
    size = partition.log.size
    info = partition.append(producer_batch(2))
    assert (info.duplicate, info.first_offset, info.last_offset, info.log_append_time_ms) == (True, 2, 2, NOW)
    assert partition.refused(producer_batch(0)).code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (partition.log.size, partition.log.log_end_offset) == (size, 6)


def test_gaps_and_old_epochs_of_producers_are_rejected(partition: Any, producer_batch: Batch) -> None:
    partition.append(producer_batch(0, 3, epoch=1))
    assert partition.refused(producer_batch(4, epoch=1)).code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.refused(producer_batch(3, epoch=0)).code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert partition.refused(producer_batch(3, epoch=2)).code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    partition.append(producer_batch(3, epoch=1))
    partition.append(producer_batch(0, epoch=2))


def test_transactional_batches_need_verification(partition: Any, producer_batch: Batch) -> None:
    data = producer_batch(0, transactional=True)
    assert partition.refused(data).code == ErrorCode.INVALID_TXN_STATE
    partition.append(data, verification=DISABLED)
    assert partition.log.first_unstable_offset() == 0
    (entry,) = partition.log.active_producers()
    assert (entry.producer_id, entry.last_sequence, entry.transaction_first_offset) == (7, 0, 0)


def test_silent_producers_expire(partition: Any, producer_batch: Batch) -> None:
    partition.append(producer_batch(5))
    partition.log.expire_producers(NOW + partition.config.producer_id_expiration_ms - 1)
    assert len(partition.log.active_producers()) == 1
    partition.log.expire_producers(NOW + partition.config.producer_id_expiration_ms)
    assert partition.log.active_producers() == []
    partition.append(producer_batch(99))


# Our own batches, and those of a leader


def test_internal_appends_accept_several_batches_and_control_batches(partition: Any, batch: Batch) -> None:
    info = partition.append(batch(b"a", b"b") + batch(b"control", control=True) + batch(b"c"), client=False)
    assert (info.first_offset, info.last_offset) == (0, 3)
    stored = list(iter_batches(partition.fetch(0)))
    assert [(b.base_offset, b.partition_leader_epoch, b.is_control) for b in stored] == [
        (0, 1, False),
        (2, 1, True),
        (3, 1, False),
    ]
    assert partition.refused(b"", client=False).code == ErrorCode.INVALID_RECORD
    assert partition.refused(batch()[:-1], client=False).code == ErrorCode.INVALID_RECORD
    assert partition.refused(batch()[:-1] + b"?", client=False).code == ErrorCode.CORRUPT_MESSAGE


def test_many_batches_in_one_append_are_written_completely(partition: Any, batch: Batch) -> None:
    partition.append(b"".join(batch(b"%d" % number) for number in range(1_500)), client=False)
    assert partition.values() == [b"%d" % number for number in range(1_500)]


def abort_marker(producer_id: int, *, commit: bool = False) -> bytes:
    record = Record(0, NOW, struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 4))
    return build_batch([record], producer_id=producer_id, producer_epoch=0, transactional=True, control=True)


def test_markers_end_transactions_and_aborted_ones_are_indexed(partition: Any, producer_batch: Batch) -> None:
    partition.append(producer_batch(0, 2, producer_id=1, transactional=True), verification=DISABLED)
    partition.append(producer_batch(0, 3, producer_id=2, transactional=True), verification=DISABLED)
    partition.append(abort_marker(1), client=False)
    assert partition.log.first_unstable_offset() == 2
    partition.append(abort_marker(2, commit=True), client=False)
    assert partition.log.first_unstable_offset() is None
    aborted = partition.log.aborted_transactions(0, 100)
    assert aborted == [(1, 0, 5, 2)]
    assert partition.log.aborted_transactions(6, 100) == []
    assert partition.file_system.read_file(partition.path("00000000000000000000.txnindex")) == struct.pack(
        ">hqqqq", 0, 1, 0, 5, 2
    )


def end_transaction(partition: Any, producer_id: int = 7, epoch: int = 0, *, committed: bool, version: int = 0) -> Any:
    return partition.log.append_marker(
        producer_id,
        epoch,
        EndTransactionMarker(committed, 4),
        transaction_version=version,
        now_ms=partition.now_ms,
        leader_epoch=partition.leader_epoch,
    )


@pytest.mark.parametrize("committed", [False, True])
def test_a_marker_is_a_control_batch_of_apache_kafkas_bytes(
    partition: Any, producer_batch: Batch, committed: bool
) -> None:
    partition.append(producer_batch(0, 2, transactional=True), verification=DISABLED)
    info = end_transaction(partition, committed=committed)
    assert (info.first_offset, info.last_offset, info.duplicate) == (2, 2, False)
    data = partition.fetch(2)
    assert len(data) == MARKER_BATCH_SIZE
    # Offset, length, leader epoch, magic; CRC; transactional and control; no delta; the time twice; producer id and
    # epoch; no sequence; one record of 16 bytes without attributes and deltas: key, value, no headers.
    kind = b"\0\1" if committed else b"\0\0"
    record = b"\x20\0\0\0\x08\0\0" + kind + b"\x0c\0\0\0\0\0\4\0"
    covered = struct.pack(">hiqqqhii", 0x30, 0, NOW, NOW, 7, 0, -1, 1) + record
    assert data == struct.pack(">qiib", 2, MARKER_BATCH_SIZE - 12, 1, 2) + struct.pack(">I", crc32c(covered)) + covered


def test_a_marker_is_never_too_large_nor_recompressed(partition: Any, producer_batch: Batch) -> None:
    partition.append(producer_batch(0, transactional=True), verification=DISABLED)
    partition.configure(max_message_bytes=10, compression_type="gzip", cleanup_policy=("compact",))
    end_transaction(partition, committed=True)
    (stored,) = iter_batches(partition.fetch(1))
    assert (stored.codec, stored.size) == (Codec.NONE, MARKER_BATCH_SIZE)
    assert partition.log.first_unstable_offset() is None


def test_a_marker_has_the_topics_timestamp_type(partition: Any, producer_batch: Batch) -> None:
    partition.configure(message_timestamp_type="LogAppendTime")
    partition.append(producer_batch(0, transactional=True), verification=DISABLED)
    partition.now_ms = NOW + 5
    end_transaction(partition, committed=True)
    (stored,) = iter_batches(partition.fetch(1))
    assert (stored.timestamp_type, stored.max_timestamp) == (LOG_APPEND_TIME, NOW + 5)


def test_a_rejected_marker_changes_nothing(partition: Any, producer_batch: Batch) -> None:
    partition.append(producer_batch(0, epoch=3, transactional=True), verification=DISABLED)
    for epoch, version in ((2, 0), (3, 2)):
        with pytest.raises(KafkaError) as caught:
            end_transaction(partition, epoch=epoch, committed=True, version=version)
        assert caught.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert (partition.log.log_end_offset, partition.log.first_unstable_offset()) == (1, 0)
    end_transaction(partition, epoch=4, committed=False, version=2)
    assert partition.log.aborted_transactions(0, 2) == [(7, 0, 1, 2)]
    end_transaction(partition, epoch=4, committed=False, version=2)
    assert partition.log.aborted_transactions(0, 3) == [(7, 0, 1, 2)], "the second ended nothing"


def test_a_marker_may_begin_a_segment(partition: Any, producer_batch: Batch) -> None:
    partition.append(producer_batch(0, transactional=True), verification=DISABLED)
    partition.configure(segment_bytes=partition.log.size)
    end_transaction(partition, committed=False)
    assert [segment.base_offset for segment in partition.log.segments] == [0, 1]
    assert partition.log.aborted_transactions(0, 1) == [(7, 0, 1, 2)], "which is in the second segment's index"


def test_the_first_batch_of_a_transaction_shows_its_verification(partition: Any, producer_batch: Batch) -> None:
    data = producer_batch(0, transactional=True)
    verification = partition.log.start_verification(7, 0, 0, epoch_per_transaction=True, now_ms=NOW)
    assert partition.refused(data).code == ErrorCode.INVALID_TXN_STATE
    partition.append(data, verification=verification)
    assert partition.log.has_open_transaction(7, 0)
    assert partition.log.start_verification(7, 0, 1, epoch_per_transaction=True, now_ms=NOW) is None
    partition.append(producer_batch(1, transactional=True))


def test_a_coordinators_batch_in_a_producers_name_has_no_sequence_numbers(partition: Any, batch: Batch) -> None:
    data = batch(b"a", b"b", producer_id=7, producer_epoch=1, transactional=True)
    assert partition.refused(data, client=False).code == ErrorCode.INVALID_TXN_STATE
    verification = partition.log.start_verification(7, 1, -1, epoch_per_transaction=True, now_ms=NOW)
    assert partition.append(data, client=False, verification=verification).last_offset == 1
    assert partition.append(data, client=False).last_offset == 3, "the same again is no duplicate"
    stale = batch(b"c", producer_id=7, producer_epoch=0, transactional=True)
    assert partition.refused(stale, client=False).code == ErrorCode.INVALID_PRODUCER_EPOCH
    end_transaction(partition, epoch=2, committed=False, version=2)
    assert partition.log.aborted_transactions(0, 5) == [(7, 0, 4, 5)]
    assert partition.refused(data, client=False).code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_transactional_batches_that_come_together_are_written_together(partition: Any, producer_batch: Batch) -> None:
    partition.append(producer_batch(0, transactional=True), verification=DISABLED)
    batches = [producer_batch(number, transactional=True) for number in (1, 2, 3)]
    infos = partition.log.append_plain([*batches, producer_batch(4)], now_ms=NOW, leader_epoch=1)
    assert [info.first_offset for info in infos] == [1, 2, 3], "a plain one is not written in a transaction"
    assert partition.refused(producer_batch(4)).code == ErrorCode.INVALID_TXN_STATE


def test_a_follower_keeps_offsets_and_epochs(partition: Any, batch: Batch) -> None:
    first = batch(b"a", b"b", leader_epoch=3)
    second = batch(b"c", base_offset=5, leader_epoch=4)
    info = partition.log.append_as_follower(first + second + first[:30], now_ms=NOW, leader_epoch=4)
    assert (info.first_offset, info.last_offset, partition.log.log_end_offset) == (0, 5, 6)
    assert partition.fetch(0) == first + second
    assert partition.log.end_offset_for_epoch(3) == (3, 5)


def test_a_follower_ignores_batches_of_a_later_epoch(partition: Any, batch: Batch) -> None:
    data = batch(b"a", leader_epoch=3) + batch(b"b", base_offset=1, leader_epoch=5) + batch(b"c", base_offset=2)
    partition.log.append_as_follower(data, now_ms=NOW, leader_epoch=4)
    assert partition.values() == [b"a"]
    info = partition.log.append_as_follower(batch(b"b", base_offset=1, leader_epoch=5), now_ms=NOW, leader_epoch=4)
    assert info.first_offset == -1


def test_a_follower_rejects_offsets_that_do_not_follow(partition: Any, batch: Batch) -> None:
    partition.append(batch(b"a", b"b"))
    for data, code in (
        (batch(b"x", base_offset=1), ErrorCode.OFFSET_OUT_OF_RANGE),
        (batch(b"x", base_offset=2) + batch(b"y", base_offset=2), ErrorCode.OFFSET_OUT_OF_RANGE),
        (batch(b"x", base_offset=2)[:-1] + b"?", ErrorCode.CORRUPT_MESSAGE),
        (b"\0" * 100, ErrorCode.CORRUPT_MESSAGE),
    ):
        with pytest.raises(KafkaError) as caught:
            partition.log.append_as_follower(data, now_ms=NOW, leader_epoch=9)
        assert caught.value.code == code
    assert partition.values() == [b"a", b"b"]


def test_a_follower_far_behind_a_compacted_log_begins_a_new_segment(
    partition: Any, batch: Batch, segments_of: Callable[[Any], list[int]]
) -> None:
    partition.append(batch(b"a"))
    far = 2**31 + 10
    partition.log.append_as_follower(batch(b"z", base_offset=far, leader_epoch=1), now_ms=NOW, leader_epoch=1)
    assert segments_of(partition.log) == [0, far]
    assert [record.offset for record in partition.records(0)] == [0, far]
    partition.reopen()
    assert partition.log.log_end_offset == far + 1


# Any bytes


DOCUMENTED = {
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.OFFSET_OUT_OF_RANGE,
}

hostile_configs = st.sampled_from(
    [
        LogConfig(),
        LogConfig(validate_records=True),
        LogConfig(cleanup_policy=("compact", "delete"), segment_bytes=400),
        LogConfig(compression_type="lz4", message_timestamp_type="LogAppendTime"),
        LogConfig(message_timestamp_before_max_ms=10, max_message_bytes=300),
    ]
)
hostile_bytes = st.one_of(
    st.binary(max_size=200),
    st.builds(
        lambda data, edits, keep, fix: _edited(data, edits, keep, fix),
        st.sampled_from(
            [
                build_batch([Record(0, NOW, b"k", b"v"), Record(0, NOW, b"k", b"w")]),
                build_batch([Record(0, NOW, b"k", b"v" * 50)], codec=Codec.GZIP, producer_id=4, base_sequence=0),
                build_batch([Record(0, NOW, b"k", b"v" * 50)], codec=Codec.SNAPPY, transactional=True, producer_id=4),
            ]
        ),
        st.lists(st.tuples(st.integers(0, 70), st.integers(0, 255)), max_size=4),
        st.integers(0, 400),
        st.booleans(),
    ),
)


def _edited(data: bytes, edits: list[tuple[int, int]], keep: int, fix_crc: bool) -> bytes:
    edited = bytearray(data)
    for position, value in edits:
        edited[position % len(edited)] = value
    edited = edited[:keep]
    return with_crc(edited) if fix_crc and len(edited) > 21 else bytes(edited)


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(hostile_configs, st.lists(hostile_bytes, min_size=1, max_size=6), st.sampled_from(["client", "own", "follower"]))
def test_any_bytes_are_accepted_or_rejected_with_a_documented_error(
    memory_partition: Any, config: LogConfig, inputs: list[bytes], way: str
) -> None:
    memory_partition.config = config
    memory_partition.log.update_config(config)
    log = memory_partition.log
    for data in inputs:
        before = log.log_end_offset
        refused = None
        try:
            if way == "follower":
                log.append_as_follower(data, now_ms=NOW, leader_epoch=2)
            else:
                log.append(data, now_ms=NOW, leader_epoch=1, client=way == "client", verification=DISABLED)
        except KafkaError as error:
            refused = error.code
        assert refused is None or (refused in DOCUMENTED and log.log_end_offset == before)
    # All accepted batches can be found by iterating over the log.
    end = log.log_start_offset
    for batch in log.batches(log.log_start_offset):
        assert batch.has_valid_crc()
        end = batch.next_offset
    assert end == log.log_end_offset
    log.truncate_fully_and_start_at(0, NOW)


def test_hostile_batches_that_were_accepted_decode_when_records_are_validated(partition: Any, batch: Batch) -> None:
    partition.configure(validate_records=True)
    partition.append(batch(b"a", codec=Codec.LZ4))
    (stored,) = iter_batches(partition.fetch(0))
    assert [record.value for record in iter_records(stored)] == [b"a"]


# -- several batches ---------------------------------------------------------------------------------------------------


def plain(partition: Any, batches: list[bytes]) -> list[int]:
    """The first offsets of those that one call appends."""
    infos = partition.log.append_plain(batches, now_ms=partition.now_ms, leader_epoch=partition.leader_epoch)
    return [info.first_offset for info in infos]


def test_plain_batches_are_appended_together_as_if_one_by_one(partition: Any, batch: Batch) -> None:
    batches = [batch(b"a", b"b"), batch(b"c", timestamp=NOW + 1), batch(*[b"d" * 500] * 20), batch(b"e")]
    assert plain(partition, batches[:1]) == [0]  # the first batch of a segment is written separately
    assert plain(partition, batches[1:]) == [2, 3, 23]
    assert partition.values() == [b"a", b"b", b"c", *[b"d" * 500] * 20, b"e"]
    stored = partition.log.segments.active
    sizes = [header.size for header, _ in stored.scan(0)]
    assert sizes == [len(each) for each in batches]
    assert stored.max_timestamp == NOW + 1
    for offset in range(24):
        assert partition.fetch(offset)


@pytest.mark.parametrize("odd", ["crc", "short", "two", "empty"])
def test_it_stops_before_the_first_invalid_batch(partition: Any, batch: Batch, odd: str) -> None:
    good = batch(b"a")
    bad = {"crc": good[:-1] + b"?", "short": good[:-1], "two": good + good, "empty": b""}[odd]
    plain(partition, [good])
    assert plain(partition, [good, good, bad, good]) == [1, 2]
    assert plain(partition, [bad, good]) == []
    assert partition.log.log_end_offset == 3


def test_it_stops_at_the_end_of_a_segment(partition: Any, batch: Batch) -> None:
    one = batch(b"x" * 1000)
    partition.configure(segment_bytes=3 * len(one) + 10)
    assert plain(partition, [one] * 9) == [0]
    assert plain(partition, [one] * 9) == [1, 2]
    assert plain(partition, [one] * 9) == [3]
    assert len(partition.log.segments) == 2


def test_an_idempotent_producer_continues_in_a_group(partition: Any, producer_batch: Batch) -> None:
    plain(partition, [producer_batch(0)])
    first, second = producer_batch(1, 2), producer_batch(3)
    assert plain(partition, [first, second, producer_batch(5)]) == [1, 3]  # 4 is missing
    with pytest.raises(KafkaError) as refused:
        plain(partition, [producer_batch(5)])
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    (again,) = partition.log.append_plain([second, producer_batch(4)], now_ms=NOW, leader_epoch=1)
    assert (again.duplicate, again.first_offset) == (True, 3)
    assert plain(partition, [producer_batch(4), producer_batch(0, producer_id=8)]) == [4]


def test_a_failed_group_leaves_the_log_unchanged(memory_partition: Any, producer_batch: Batch) -> None:
    plain(memory_partition, [producer_batch(0)])
    size = memory_partition.log.segments.active.size
    memory_partition.file_system.capacity_bytes = memory_partition.file_system.used_bytes() + 150
    with pytest.raises(KafkaError) as refused:
        plain(memory_partition, [producer_batch(1), producer_batch(2), producer_batch(3)])
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (memory_partition.log.log_end_offset, memory_partition.log.segments.active.size) == (1, size)
    memory_partition.file_system.capacity_bytes = None
    assert plain(memory_partition, [producer_batch(1), producer_batch(2)]) == [1, 2]
    assert memory_partition.values() == [b"0000", b"0001", b"0002"]
