"""Compares the output of Apache Kafka's `DumpLogSegments` for the records of a coordinator with the records."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from moldau.coordinator.outcome import Record
from moldau.log.config import LogConfig
from moldau.log.descriptors import DescriptorCache
from moldau.log.files import RealFileSystem
from moldau.log.partition_loading import load_log
from moldau.protocol.records import Record as LogRecord
from moldau.protocol.records import build_batch
from moldau.protocol.schema import Field, Struct
from moldau.protocol.uuid import uuid_to_str
from moldau.testing import jvm

NOW = 1_700_000_000_000


def write_segment(
    folder: Path, topic: str, records: Sequence[Record], encode: Callable[[Record], tuple[bytes, bytes | None]]
) -> Path:
    """Write a log of these records, in batches of three. Returns the path of its segment."""
    directory = folder / f"{topic}-0"
    directory.mkdir()
    files = DescriptorCache(RealFileSystem(), 16)
    log = load_log(files, str(directory), topic, 0, LogConfig(), clean=True, now_ms=NOW)
    for first in range(0, len(records), 3):
        encoded = [LogRecord(0, NOW, *encode(record)) for record in records[first : first + 3]]
        log.append(build_batch(encoded), leader_epoch=0, now_ms=NOW)
    log.close(NOW)
    files.close()
    return directory / "00000000000000000000.log"


def check_dump(segment: Path, decoder: str, records: Sequence[Record], type_of: Callable[[Record], int]) -> None:
    """Check that Apache Kafka's tool prints these records. ``decoder`` is its option, ``type_of`` the type of a key."""
    printed = [line for line in _dump(segment, decoder).splitlines() if line.startswith("| offset:")]

    assert len(printed) == len(records)
    for line, record in zip(printed, records, strict=True):
        key, _, value = line.partition(" key: ")[2].partition(" payload: ")
        assert record.key is not None
        assert json.loads(key) == {"type": str(type_of(record)), "data": _as_kafka_prints(record.key, 0)}
        if record.value is None:
            assert value == "<DELETE>"
        else:
            version = record.value_version
            assert json.loads(value) == {"version": str(version), "data": _as_kafka_prints(record.value, version)}


def _dump(segment: Path, decoder: str) -> str:
    arguments = [decoder, "--print-data-log", "--files", str(segment)]
    utf_8 = ["-Dfile.encoding=UTF-8", "-Dsun.stdout.encoding=UTF-8"]
    command = jvm.command("org.apache.kafka.tools.DumpLogSegments", *arguments, options=utf_8)
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def _as_kafka_prints(struct: Struct, version: int) -> dict[str, Any]:
    """The JSON of Apache Kafka's converters, with their names and without tagged fields that have the default value."""
    fields = {}
    for field in struct.FIELDS:
        value = getattr(struct, field.name)
        if version in field.versions and not (field.tag is not None and value == field.make_default()):
            fields[_camel_case(field.name)] = _printed(field, value, version)
    return fields


def _printed(field: Field, value: Any, version: int) -> Any:
    if isinstance(value, list):
        return [_printed(field, item, version) for item in value]
    if isinstance(value, Struct):
        return _as_kafka_prints(value, version)
    if isinstance(value, bytes):
        return uuid_to_str(value) if field.type == "uuid" else base64.b64encode(value).decode()
    return value


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
