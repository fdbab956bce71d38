"""Record batches v2: built, read, rejected, and exchanged with Apache Kafka's own classes."""

from __future__ import annotations

import os
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.protocol.checksum import crc32c
from moldau.protocol.compression import Codec, CompressionError
from moldau.protocol.records import (
    BATCH_OVERHEAD,
    CREATE_TIME,
    LOG_APPEND_TIME,
    CorruptBatchError,
    InvalidRecordsError,
    Record,
    RecordBatch,
    UnsupportedMagicError,
    build_batch,
    increment_sequence,
    iter_batches,
    iter_records,
    read_batch_header,
)
from moldau.testing.requirements import require_program

NOW = 1_700_000_000_000

RECORDS = [
    Record(0, NOW, b"key", b"value"),
    Record(1, NOW + 1, None, b"no key"),
    Record(2, NOW - 5, b"tombstone", None),
    Record(3, NOW + 1_000_000, None, None),
    Record(4, NOW, b"", b""),
    Record(5, NOW, b"k", b"v" * 5_000, (("same", b"1"), ("same", None), ("", b""), ("žluťoučký", b"\x00\xff"))),
]


def only_batch(data: bytes) -> RecordBatch:
    (batch,) = iter_batches(data)
    assert len(batch.data) == len(data)
    return batch


def with_crc(batch: bytes | bytearray) -> bytes:
    """The batch with the CRC of its content."""
    fixed = bytearray(batch)
    fixed[17:21] = crc32c(memoryview(fixed)[21:]).to_bytes(4, "big")
    return bytes(fixed)


@pytest.mark.parametrize("codec", list(Codec))
def test_records_of_every_kind_are_restored(codec: Codec) -> None:
    batch = only_batch(build_batch(RECORDS, codec=codec))
    assert batch.codec == codec
    assert batch.has_valid_crc()
    assert list(iter_records(batch)) == RECORDS


def test_the_header_describes_the_records() -> None:
    data = build_batch(
        RECORDS,
        base_offset=100,
        leader_epoch=7,
        codec=Codec.GZIP,
        producer_id=4_000_000_000,
        producer_epoch=3,
        base_sequence=2**31 - 3,
        transactional=True,
    )
    header = read_batch_header(b"before" + data, 6)
    assert (header.base_offset, header.last_offset, header.next_offset) == (100, 105, 106)
    assert header.size == len(data)
    assert header.partition_leader_epoch == 7
    assert (header.base_timestamp, header.max_timestamp) == (NOW, NOW + 1_000_000)
    assert (header.producer_id, header.producer_epoch) == (4_000_000_000, 3)
    assert (header.base_sequence, header.last_sequence) == (2**31 - 3, 2), "sequence numbers wrap to 0"
    assert header.record_count == 6
    assert header.is_transactional
    assert not header.is_control
    assert header.timestamp_type == CREATE_TIME
    assert header.delete_horizon_ms is None


def test_offset_and_epoch_are_not_covered_by_the_crc() -> None:
    data = bytearray(build_batch(RECORDS))
    struct.pack_into(">q", data, 0, 12345)
    struct.pack_into(">i", data, 12, 9)
    batch = only_batch(bytes(data))
    assert batch.has_valid_crc()
    assert [record.offset for record in iter_records(batch)] == list(range(12345, 12351))


def test_under_log_append_time_every_record_has_the_batchs_time() -> None:
    batch = only_batch(build_batch(RECORDS, log_append_time_ms=42))
    assert batch.timestamp_type == LOG_APPEND_TIME
    assert {record.timestamp for record in iter_records(batch)} == {42}


def test_records_without_timestamps() -> None:
    batch = only_batch(build_batch([Record(value=b"v"), Record(value=b"w")]))
    assert (batch.base_timestamp, batch.max_timestamp) == (-1, -1)
    assert [record.timestamp for record in iter_records(batch)] == [-1, -1]


def test_compacted_batches_keep_their_offsets_and_delete_horizon() -> None:
    kept = [Record(100, NOW, b"a", None), Record(107, NOW + 3, b"b", b"1")]
    data = build_batch(kept, base_offset=98, keep_offsets=True, last_offset_delta=11, delete_horizon_ms=NOW - 1)
    batch = only_batch(data)
    assert (batch.base_offset, batch.last_offset) == (98, 109)
    assert batch.delete_horizon_ms == NOW - 1
    assert list(iter_records(batch)) == kept


def test_a_batch_may_have_lost_all_its_records_to_compaction() -> None:
    batch = only_batch(
        build_batch(
            [], base_offset=10, last_offset_delta=4, codec=Codec.ZSTD, max_timestamp=NOW, producer_id=5, base_sequence=9
        )
    )
    assert len(batch.data) == BATCH_OVERHEAD
    assert batch.codec == Codec.NONE
    assert (batch.base_offset, batch.last_offset, batch.last_sequence) == (10, 14, 13)
    assert list(iter_records(batch)) == []


def test_header_keys_that_are_not_utf_8_are_preserved() -> None:
    key = b"\xff\xfe".decode("utf-8", "surrogateescape")
    record = Record(0, NOW, None, None, ((key, b"v"),))
    data = build_batch([record])
    assert b"\xff\xfe" in data
    assert list(iter_records(only_batch(data))) == [record]


def test_several_consecutive_batches() -> None:
    data = b"".join(build_batch(RECORDS[:count], base_offset=count) for count in (1, 2, 3))
    assert [batch.record_count for batch in iter_batches(data)] == [1, 2, 3]
    assert [batch.base_offset for batch in iter_batches(data, len(build_batch(RECORDS[:1])))] == [2, 3]


def test_a_truncated_last_batch_is_ignored() -> None:
    first, second = build_batch(RECORDS), build_batch(RECORDS[:2])
    for length in range(len(second)):
        assert [batch.record_count for batch in iter_batches(first + second[:length])] == [6]


@pytest.mark.parametrize("magic", [0, 1])
def test_older_message_formats_are_rejected_by_name(magic: int) -> None:
    data = bytearray(build_batch(RECORDS))
    data[16] = magic
    for read in (read_batch_header, lambda data: list(iter_batches(data))):
        with pytest.raises(UnsupportedMagicError, match=f"v{magic}"):
            read(bytes(data))


@pytest.mark.parametrize(
    ("position", "value", "message"),
    [
        (16, b"\x03", "magic 3"),
        (16, b"\xff", "magic -1"),
        (8, b"\x00\x00\x00\x0d", "below the minimum"),
        (8, b"\xff\xff\xff\xff", "below the minimum"),
        (8, b"\x00\x00\x00\x20", "too short"),
    ],
)
def test_impossible_headers_are_rejected(position: int, value: bytes, message: str) -> None:
    data = bytearray(build_batch(RECORDS))
    data[position : position + len(value)] = value
    with pytest.raises(CorruptBatchError, match=message):
        read_batch_header(bytes(data))
    with pytest.raises(CorruptBatchError, match=message):
        list(iter_batches(bytes(data)))


def test_a_truncated_header_is_rejected() -> None:
    data = build_batch(RECORDS)
    for length in range(BATCH_OVERHEAD):
        with pytest.raises(CorruptBatchError):
            read_batch_header(data[:length])


def test_any_changed_bit_after_the_crc_is_detected() -> None:
    data = build_batch(RECORDS[:2])
    for position in range(17, len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        assert not only_batch(bytes(damaged)).has_valid_crc()


@pytest.mark.parametrize("count", [-1, 0, 1, 5, 7, 2**31 - 1])
def test_a_wrong_record_count_is_rejected(count: int) -> None:
    data = bytearray(build_batch(RECORDS))
    struct.pack_into(">i", data, 57, count)
    with pytest.raises(InvalidRecordsError):
        list(iter_records(only_batch(with_crc(data))))


def raw_batch(records: bytes, count: int = 1) -> RecordBatch:
    """A batch with these record bytes."""
    data = bytearray(build_batch([Record(0, NOW, None, b"x")])[:BATCH_OVERHEAD]) + records
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">i", data, 57, count)
    return only_batch(with_crc(data))


@pytest.mark.parametrize(
    "records",
    [
        pytest.param(bytes.fromhex("0c 00 00 00 01 01"), id="shorter than declared"),
        pytest.param(bytes.fromhex("0c 00 00 00 01 01 00 00"), id="longer than declared"),
        pytest.param(bytes.fromhex("01 00 00 00 01 01 00"), id="negative length"),
        pytest.param(bytes.fromhex("0c 00 00 00 01 01 01"), id="negative header count"),
        pytest.param(bytes.fromhex("0c 00 00 00 01 01 7e"), id="more headers than bytes"),
        pytest.param(bytes.fromhex("10 00 00 00 01 01 02 01 01"), id="header without a key"),
        pytest.param(bytes.fromhex("0c 00 00 00 7e 01 00"), id="key past the record"),
        pytest.param(bytes.fromhex("0c 00 00 00 01 7e 00"), id="value past the record"),
        pytest.param(bytes.fromhex("ff ff ff ff ff ff 00"), id="varint of six bytes"),
        pytest.param(bytes.fromhex("1e 00 ff ff ff ff ff ff ff ff ff ff 01 00 01 01 00"), id="varlong of eleven bytes"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_malformed_records_are_rejected(records: bytes) -> None:
    with pytest.raises(InvalidRecordsError):
        list(iter_records(raw_batch(records)))


def test_a_well_formed_record_by_hand() -> None:
    record = bytes.fromhex("18 00 02 00 04 6b31 02 76 02 02 68 01".replace(" ", ""))
    assert list(iter_records(raw_batch(record))) == [Record(0, NOW + 1, b"k1", b"v", (("h", None),))]


def test_timestamps_wrap_around_at_64_bits_as_in_java() -> None:
    data = bytearray(build_batch([Record(0, NOW, None, b"x"), Record(1, NOW + 2**40, None, b"x")]))
    struct.pack_into(">q", data, 27, 2**63 - 1)
    timestamps = [record.timestamp for record in iter_records(only_batch(with_crc(data)))]
    assert timestamps == [2**63 - 1, -(2**63) + 2**40 - 1]


@pytest.mark.parametrize("timestamp", [-(2**63), -(2**63) + 1, -1, 0, 2**63 - 1])
@pytest.mark.parametrize("base", [-(2**63), -1, 0, NOW, 2**63 - 1])
def test_any_two_timestamps_are_possible_in_one_batch(base: int, timestamp: int) -> None:
    batch = only_batch(build_batch([Record(0, base, None, b"x"), Record(1, timestamp, None, b"x")]))
    assert [record.timestamp for record in iter_records(batch)] == [base, timestamp]


def test_decompression_is_bounded() -> None:
    batch = only_batch(build_batch([Record(0, NOW, None, bytes(1_000_000))], codec=Codec.ZSTD))
    assert len(list(iter_records(batch, 1_100_000))) == 1
    with pytest.raises(CompressionError):
        list(iter_records(batch, 1_000_000))


def test_sequence_numbers_wrap() -> None:
    assert increment_sequence(5, 3) == 8
    assert increment_sequence(2**31 - 1, 1) == 0
    assert increment_sequence(2**31 - 1, 2**31 - 1) == 2**31 - 2
    assert increment_sequence(2, -3) == 2**31 - 1


header_pairs = st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8))
some_records = st.lists(
    st.builds(
        Record,
        timestamp=st.integers(0, 2**50),
        key=st.none() | st.binary(max_size=20),
        value=st.none() | st.binary(max_size=200),
        headers=st.lists(header_pairs, max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=20,
)


@settings(max_examples=150, deadline=None)
@given(some_records, st.sampled_from(list(Codec)), st.integers(0, 2**60))
def test_any_records_are_restored(records: list[Record], codec: Codec, base_offset: int) -> None:
    batch = only_batch(build_batch(records, codec=codec, base_offset=base_offset))
    expected = [record._replace(offset=base_offset + index) for index, record in enumerate(records)]
    assert list(iter_records(batch)) == expected
    assert batch.max_timestamp == max(record.timestamp for record in records)


@settings(max_examples=300, deadline=None)
@given(some_records, st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4, Codec.SNAPPY]), st.data())
def test_damaged_batches_decode_or_are_rejected(records: list[Record], codec: Codec, data: st.DataObject) -> None:
    damaged = bytearray(build_batch(records, codec=codec))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    del damaged[data.draw(st.integers(0, len(damaged))) :]
    try:
        for batch in iter_batches(damaged):
            list(iter_records(batch, 1_000_000))
    except (InvalidRecordsError, CompressionError):
        pass


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_batches_or_rejected(data: bytes) -> None:
    try:
        for batch in iter_batches(data):
            list(iter_records(batch, 1_000_000))
    except (InvalidRecordsError, CompressionError):
        pass


# Exchange with Apache Kafka's own classes

SOURCE = Path(__file__).parent / "java" / "KafkaRecords.java"


def as_text(record: Record) -> str:
    """A record in the format of KafkaRecords.java, without its offset."""

    def word(data: bytes | None) -> str:
        return "null" if data is None else "x" + data.hex()

    headers = [f"{key.encode().hex()}={word(value)}" for key, value in record.headers]
    return " ".join([str(record.timestamp), word(record.key), word(record.value), *headers])


def many_records() -> list[Record]:
    random_bytes = os.urandom(40_000)
    return RECORDS + [
        Record(
            0,
            NOW + index * 7 % 1_000,
            None if index % 5 == 0 else b"key-%d" % index,
            None if index % 11 == 0 else random_bytes[index : index + index % 90] + b"padding " * (index % 30),
            (("header", b"%d" % index),) if index % 3 == 0 else (),
        )
        for index in range(2_000)
    ]


@pytest.fixture(scope="module")
def kafka_records(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that runs KafkaRecords.java."""
    classes = tmp_path_factory.mktemp("classes")
    jars = f"{kafka_jars}/*"
    subprocess.run([require_program("javac"), "-cp", jars, "-d", str(classes), str(SOURCE)], check=True)
    return [require_program("java"), "-XX:TieredStopAtLevel=1", "-cp", f"{classes}{os.pathsep}{jars}", "KafkaRecords"]


def test_apache_kafka_reads_batches_of_moldau(kafka_records: list[str], tmp_path: Path) -> None:
    records = many_records()
    arguments = []
    for codec in Codec:
        data = build_batch(
            records,
            base_offset=1_000,
            leader_epoch=4,
            codec=codec,
            producer_id=9,
            producer_epoch=2,
            base_sequence=2**31 - 2,
            transactional=True,
        )
        (tmp_path / codec.name).write_bytes(data)
        arguments += ["read", str(tmp_path / codec.name), str(tmp_path / f"{codec.name}.txt")]
    special = build_batch(
        RECORDS[:1], base_offset=7, keep_offsets=False, last_offset_delta=3, delete_horizon_ms=NOW, control=True
    ) + build_batch(RECORDS[:1], log_append_time_ms=NOW + 9)
    (tmp_path / "special").write_bytes(special)
    arguments += ["read", str(tmp_path / "special"), str(tmp_path / "special.txt")]
    subprocess.run([*kafka_records, *arguments], check=True, timeout=120)
    for codec in Codec:
        batch, *lines = (tmp_path / f"{codec.name}.txt").read_text().splitlines()
        last = 1_000 + len(records) - 1
        assert batch == (
            f"batch 1000 {last} 4 {codec.name.lower()} CreateTime {NOW + 1_000_000} 9 2 {2**31 - 2} "
            f"{(2**31 - 2 + len(records) - 1) % 2**31} true false -1 {len(records)}"
        )
        assert lines == [f"record {1_000 + index} {as_text(record)}" for index, record in enumerate(records)]
    assert (tmp_path / "special.txt").read_text().splitlines() == [
        f"batch 7 10 -1 none CreateTime {NOW} -1 -1 -1 -1 false true {NOW} 1",
        f"record 7 {as_text(RECORDS[0])}",
        f"batch 0 0 -1 none LogAppendTime {NOW + 9} -1 -1 -1 -1 false false -1 1",
        f"record 0 {as_text(RECORDS[0]._replace(timestamp=NOW + 9))}",
    ]


def test_moldau_reads_batches_that_apache_kafka_compressed(kafka_records: list[str], tmp_path: Path) -> None:
    records = many_records()
    (tmp_path / "records").write_text("\n".join(map(as_text, records)))
    levels = [("none", "-"), ("gzip", "-"), ("gzip", "1"), ("gzip", "9"), ("snappy", "-"), ("lz4", "-"), ("lz4", "1")]
    levels += [("lz4", "17"), ("zstd", "-"), ("zstd", "-7"), ("zstd", "22")]
    arguments = []
    for codec, level in levels:
        arguments += ["write", codec, level, str(tmp_path / "records"), str(tmp_path / f"{codec}{level}")]
    subprocess.run([*kafka_records, *arguments], check=True, timeout=120)
    expected = [record._replace(offset=index) for index, record in enumerate(records)]
    for codec, level in levels:
        batch = only_batch((tmp_path / f"{codec}{level}").read_bytes())
        assert batch.codec == Codec[codec.upper()]
        assert batch.has_valid_crc()
        assert list(iter_records(batch)) == expected
