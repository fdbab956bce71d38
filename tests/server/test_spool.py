"""Storage for recompressed batches: small ones in memory, large ones in an unnamed file."""

from __future__ import annotations

import contextlib
import errno
import tempfile
from pathlib import Path
from random import Random

import pytest

from moldau.log.config import LogConfig
from moldau.log.partition_log import Log
from moldau.protocol.compression import Codec
from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.records import Record, build_batch
from moldau.server.records.decode_jobs import Prepare
from moldau.server.records.decode_process import Decoding
from moldau.server.records.spool import PART_BYTES, Spool
from moldau.testing.builders import produce, produce_request

from .conftest import RunningServer

NOW = 1_700_000_000_000


@pytest.mark.parametrize("part_bytes", [1, 100_000, 5_000_000])
@pytest.mark.parametrize("count", [0, 1, 2, 45])
def test_parts_are_returned_in_order(tmp_path: Path, part_bytes: int, count: int) -> None:
    spool = Spool(str(tmp_path))
    parts = [bytes((index,)) * part_bytes for index in range(count)]
    for part in parts:
        spool.append(part)
    spool.insert(0, b"header")
    for _ in range(2):
        read = list(spool)
        assert b"".join(read) == b"header" + b"".join(parts)
        assert len(spool) == len(read)
        assert spool.size == 6 + count * part_bytes
    if count * part_bytes > 4 << 20:  # then the data is in the unnamed file
        assert max(map(len, read)) <= PART_BYTES
    assert b"header" in spool
    assert not list(tmp_path.iterdir())
    spool.clear()
    assert not list(spool)
    assert not spool.size
    spool.append(b"again")
    assert list(spool) == [b"again"]


def test_a_directory_without_space_causes_a_retriable_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(str(tmp_path / "gone"))
    spool.append(b"in memory")
    with pytest.raises(KafkaError, match="No such file") as refused:
        spool.append(bytes(5 << 20))
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR

    with open("/dev/full", "r+b", buffering=0) as full:
        monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: full)
        with pytest.raises(KafkaError) as refused:
            spool.append(bytes(5 << 20))
        assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert refused.value.__cause__.errno == errno.ENOSPC  # type: ignore[union-attr]
        spool.clear()


def test_only_a_batch_that_the_process_recompresses_needs_a_file(tmp_path: Path) -> None:
    """In a thread, another limit applies to memory."""
    records = build_batch([Record(0, NOW, b"k", bytes(1_000_000))] * 5, codec=Codec.GZIP)
    config = LogConfig(compression_type="uncompressed", max_message_bytes=20_000_000)
    job = Prepare(records, config, NOW, directory=str(tmp_path / "gone"))
    with pytest.raises(KafkaError) as refused:
        list(job.steps(None))
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    list(job.steps(6_000_000))


def test_a_small_batch_that_becomes_large_is_appended_in_slices_and_freed(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = []
    write_ahead = Log.write_ahead
    monkeypatch.setattr(
        Log,
        "write_ahead",
        lambda log, *args, **options: ahead.append(log) or write_ahead(log, *args, **options),  # type: ignore[func-returns-value]
    )
    server.create_topic("t", compression_type="uncompressed", max_message_bytes="20000000")
    records = build_batch([Record(0, NOW, b"k", bytes(10_000_000))], codec=Codec.GZIP)
    with server.wire() as wire:
        for _ in range(3):
            assert produce(wire, "t", records).error_code == 0
    assert len(ahead) == 3
    assert server.broker.decoder.process.budget.used_bytes == 0  # type: ignore[union-attr]


def test_one_large_result_is_appended_at_a_time(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    held = []
    expect = Decoding.expect
    process = server.broker.decoder.process
    monkeypatch.setattr(
        Decoding,
        "expect",
        lambda self, *result: held.append(process.budget.used_bytes) or expect(self, *result),  # type: ignore[func-returns-value, union-attr]
    )
    records = build_batch([Record(0, NOW, b"k", bytes(5_000_000))], codec=Codec.GZIP)
    names = [f"t{index}" for index in range(6)]
    for name in names:
        server.create_topic(name, compression_type="uncompressed", max_message_bytes="20000000")
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(server.wire()) for _ in names]
        for name, wire in zip(names, wires, strict=True):
            wire.send(produce_request(name, records), 9)
        for wire in wires:
            assert wire.receive().responses[0].partition_responses[0].error_code == 0
    assert len(held) == len(names)
    assert max(held) < 5_000_000


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP], ids=lambda codec: codec.name)
def test_large_results_are_spooled_into_the_log_directory(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch, codec: Codec
) -> None:
    """This is independent of the system's directory for temporary files."""
    monkeypatch.setenv("TMPDIR", "/nowhere")
    target = "uncompressed" if codec else "zstd"
    server.create_topic("t", compression_type=target, max_message_bytes="20000000")
    value = bytes(10_000_000) if codec else Random(1).randbytes(10_000_000)
    with server.wire() as wire:
        assert produce(wire, "t", build_batch([Record(0, NOW, b"k", value)], codec=codec)).error_code == 0
