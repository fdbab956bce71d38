"""Apache Kafka's `DumpLogSegments --transaction-log-decoder` prints the records of a log that Moldau wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.coordinator.outcome import Record
from moldau.protocol.samples import Samples
from moldau.transaction_coordinator.records import TransactionLogKey, TransactionLogValue, decode_record, encode_record

from ..coordinator.apache_dump import check_dump, write_segment


def every_kind_of_record() -> Iterator[Record]:
    """In each state and in each version, and as a tombstone."""
    for version in TransactionLogValue.VERSIONS:
        for status in range(6):
            samples = Samples(10 * version + status, null_probability=status / 5, tag_probability=0)
            value = samples.message(TransactionLogValue, version)
            value.transaction_status = status
            yield Record(samples.message(TransactionLogKey, 0), value, version)
    yield Record(TransactionLogKey(transactional_id="forgotten"), None)


def test_a_record_is_decoded_from_its_bytes() -> None:
    for record in every_kind_of_record():
        assert decode_record(*encode_record(record)) == record


@pytest.mark.slow
def test_apache_kafka_prints_the_records_of_moldau(tmp_path: Path) -> None:
    records = list(every_kind_of_record())
    segment = write_segment(tmp_path, "__transaction_state", records, encode_record)
    check_dump(segment, "--transaction-log-decoder", records, lambda record: 0)
