"""Apache Kafka's `DumpLogSegments --offsets-decoder` prints the records of a log that Moldau wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moldau.coordinator.outcome import Record
from moldau.group_coordinator.records import KEYS, VALUES, decode_record, encode_record
from moldau.protocol.samples import Samples

from ..coordinator.apache_dump import check_dump, write_segment

KEYS_TO_TYPES: dict[type[Any], int] = {key_type: record_type for record_type, key_type in KEYS.items()}


def every_kind_of_record() -> Iterator[Record]:
    """Each type, in each version of its value, and as a tombstone."""
    for record_type, key_type in KEYS.items():
        value_type = VALUES[record_type]
        for version in value_type.VERSIONS:
            for seed in range(4):
                samples = Samples(100 * record_type + seed, null_probability=seed / 3, tag_probability=0)
                yield Record(samples.message(key_type, 0), samples.message(value_type, version), version)
        yield Record(Samples(record_type).message(key_type, 0), None)


def test_a_record_is_decoded_from_its_bytes() -> None:
    for record in every_kind_of_record():
        assert decode_record(*encode_record(record)) == record


@pytest.mark.slow
def test_apache_kafka_prints_the_records_of_moldau(tmp_path: Path) -> None:
    records = list(every_kind_of_record())
    segment = write_segment(tmp_path, "__consumer_offsets", records, encode_record)
    check_dump(segment, "--offsets-decoder", records, lambda record: KEYS_TO_TYPES[type(record.key)])
