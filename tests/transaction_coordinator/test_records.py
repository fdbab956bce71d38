"""Records of `__transaction_state`: their bytes, arbitrary bytes, and the state after loading them."""

from __future__ import annotations

import random
from contextlib import suppress
from functools import partial

import pytest

from moldau.coordinator.outcome import Outcome, Record
from moldau.protocol.errors import ErrorCode, MalformedMessage
from moldau.protocol.samples import Samples
from moldau.transaction_coordinator.records import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
    decode_record,
    encode_record,
)

from ..coordinator.harness import EPOCH_MS
from .harness import Coordinator

KEY = TransactionLogKey(transactional_id="id")
VALUE = TransactionLogValue(
    producer_id=1000,
    previous_producer_id=999,
    next_producer_id=1001,
    producer_epoch=5,
    transaction_timeout_ms=60_000,
    transaction_status=2,
    transaction_partitions=[PartitionsSchema(topic="t", partition_ids=[0, 7])],
    transaction_last_update_timestamp_ms=0x1122334455667788,
    transaction_start_timestamp_ms=-1,
    client_transaction_version=2,
)
VERSION_0 = (
    "0000"  # version
    "00000000000003e8"  # producer id
    "0005"  # producer epoch
    "0000ea60"  # timeout
    "02"  # status: PREPARE_COMMIT
    "00000001 000174 00000002 00000000 00000007"  # partitions: one topic, two of them
    "1122334455667788"  # last update
    "ffffffffffffffff"  # start
)
VERSION_1 = (
    "0001"
    "00000000000003e8"
    "0005"
    "0000ea60"
    "02"
    "02 0274 03 00000000 00000007 00"
    "1122334455667788"
    "ffffffffffffffff"
    "03"  # tagged fields: previous and next producer id, the client's version
    "00 08 00000000000003e7"
    "01 08 00000000000003e9"
    "02 02 0002"
)


def test_the_bytes_of_a_record() -> None:
    assert encode_record(Record(KEY, VALUE, 0)) == (bytes.fromhex("0000 0002 6964"), bytes.fromhex(VERSION_0))
    assert encode_record(Record(KEY, VALUE, 1)) == (bytes.fromhex("0000 0002 6964"), bytes.fromhex(VERSION_1))
    assert encode_record(Record(KEY, None)) == (bytes.fromhex("0000 0002 6964"), None)


def test_version_0_omits_fields_that_it_lacks() -> None:
    assert decode_record(bytes.fromhex("000000026964"), bytes.fromhex(VERSION_1)) == Record(KEY, VALUE, 1)
    read = decode_record(bytes.fromhex("000000026964"), bytes.fromhex(VERSION_0))
    assert read is not None
    assert isinstance(read.value, TransactionLogValue)
    known = read.value.previous_producer_id, read.value.next_producer_id, read.value.client_transaction_version
    assert known == (-1, -1, 0)
    assert read.value.transaction_partitions == VALUE.transaction_partitions


def test_the_partitions_are_null_before_the_first_transaction() -> None:
    value = TransactionLogValue(transaction_partitions=None)
    _, encoded = encode_record(Record(KEY, value, 1))
    assert encoded is not None
    assert encoded[17] == 0
    assert decode_record(bytes.fromhex("000000026964"), encoded) == Record(KEY, value, 1)


@pytest.mark.parametrize(("transaction_version", "value_version"), [(0, 0), (1, 1), (2, 1), (3, 1)])
def test_the_version_of_a_record_is_that_of_the_feature(transaction_version: int, value_version: int) -> None:
    coordinator = Coordinator(transaction_version=transaction_version)
    coordinator.begin()

    (record,) = coordinator.written()
    assert record.value_version == value_version


def test_the_records_of_a_transaction_from_its_beginning_to_its_end() -> None:
    coordinator = Coordinator()
    producer = coordinator.begin()
    coordinator.advance(10)
    coordinator.add(producer, ("u", 0), ("t", 7), ("t", 0), client_version=2)
    coordinator.advance(10)
    coordinator.commit(producer)
    coordinator.advance(10)
    coordinator.write_markers()

    partitions = [
        PartitionsSchema(topic="t", partition_ids=[0, 7]),
        PartitionsSchema(topic="u", partition_ids=[0]),
    ]

    def value(status: int, at_ms: int, **fields: object) -> TransactionLogValue:
        written = TransactionLogValue(
            producer_id=1000,
            previous_producer_id=1000,
            transaction_timeout_ms=60_000,
            transaction_status=status,
            transaction_last_update_timestamp_ms=EPOCH_MS + at_ms,
            transaction_start_timestamp_ms=EPOCH_MS + 10,
            client_transaction_version=2,
        )
        for name, field in fields.items():
            setattr(written, name, field)
        return written

    assert coordinator.written() == [
        Record(KEY, one, 1)
        for one in (
            value(
                0, 0, transaction_partitions=None, transaction_start_timestamp_ms=-1, client_transaction_version=0
            ),
            value(1, 10, transaction_partitions=partitions),
            value(2, 20, transaction_partitions=partitions, producer_epoch=1),
            value(4, 30, transaction_partitions=[], producer_epoch=1),
        )
    ]  # fmt: skip


def test_other_types_of_records_are_ignored() -> None:
    for record_type in (1, 2, 1000, -1):
        assert decode_record(record_type.to_bytes(2, "big", signed=True) + b"whatever", b"\0\0") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("", VERSION_1),
        ("00", VERSION_1),
        ("0000 0003 6964", None),
        ("0000 ffff", None),
        ("0000 0002 6964", ""),
        ("0000 0002 6964", "0002"),
        ("0000 0002 6964", "ffff"),
        ("0000 0002 6964", VERSION_1[:-2]),
        ("0000 0002 6964", VERSION_0.replace("0000ea6002", "0000ea6006")),
        ("0000 0002 6964", VERSION_0.replace("0000ea6002", "0000ea60ff")),
    ],
)
def test_malformed_bytes_are_rejected(key: str, value: str | None) -> None:
    with pytest.raises(MalformedMessage):
        decode_record(bytes.fromhex(key), None if value is None else bytes.fromhex(value))


def test_any_record_can_be_loaded() -> None:
    """Any records in a log are accepted, and the coordinator serves requests afterwards."""
    for seed in range(300):
        samples = Samples(seed, null_probability=0.2)
        coordinator = Coordinator()
        for status in range(6):
            value = samples.message(TransactionLogValue, seed % 2)
            value.transaction_status = status
            record = Record(KEY, value, seed % 2)
            assert decode_record(*encode_record(record)) == record
            coordinator.runtime.decide("id", partial(lambda record, now: Outcome([record]), record))
            coordinator.runtime.flush()
            coordinator.restart()
            while coordinator.init().error is not ErrorCode.NONE:
                assert coordinator.write_markers()


def test_any_bytes_are_a_record_or_rejected() -> None:
    source = random.Random(2)
    key, value = encode_record(Record(KEY, VALUE, 1))
    assert value is not None
    read = 0
    for _ in range(3000):
        changed = bytearray(value)
        for _ in range(source.randint(1, 4)):
            changed[source.randrange(len(changed))] = source.choice((0, 1, 2, 5, 255, source.randrange(256)))
        with suppress(MalformedMessage):
            record = decode_record(key, bytes(changed[: source.choice((len(changed), source.randrange(len(changed))))]))
            assert record is not None
            Coordinator().shard.replay(record, producer_id=-1)
            read += 1
    assert read > 100
