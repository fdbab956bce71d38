"""Compaction alone, without a server: MB of log per second of CPU time, and the distribution of the time.

    python -m moldau.benchmarks.compaction --apache

compacts one partition for each shape of records, completely dirty. With ``--apache``, Apache Kafka's own cleaner does
the same in a Java process. CPU time is used because it is hardly affected by other load. Each measurement is repeated,
and the fastest counts, so that Java's code is compiled by then.
"""

import argparse
import random
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..log.compaction.compact import compact
from ..log.compaction.job import CompactionJob, CompactionStatistics, SegmentFiles
from ..log.files import RealFileSystem
from ..log.names import LOG, offset_file_name
from ..protocol.compression import Codec
from ..protocol.records import Record, build_batch
from . import measurement, programs, session

_SEGMENT_BYTES = 16 << 20
_MAP_BYTES = 120 << 20
_PASSES = 4
_DAY_MS = 86_400_000


@dataclass(frozen=True)
class Shape:
    """The properties of a partition's records."""

    name: str
    value_bytes: int
    records_per_batch: int
    keys_per_record: float
    """0.1: each key is written ten times; 100: keys are rarely written twice."""
    codec: Codec = Codec.NONE


SHAPES = (
    Shape("1kB-x16", 1_000, 16, 0.1),
    Shape("100B-x100", 100, 100, 0.1),
    Shape("100B-x1", 100, 1, 0.1),
    Shape("100B-x100-half-stay", 100, 100, 1.0),
    Shape("100B-x100-all-stay", 100, 100, 100.0),
    Shape("1kB-x16-lz4", 1_000, 16, 0.1, Codec.LZ4),
    Shape("100B-x100-zstd", 100, 100, 0.1, Codec.ZSTD),
)


def write_partition(directory: Path, shape: Shape, megabytes: float, now_ms: int) -> list[SegmentFiles]:
    """Segments of ``megabytes`` MB without indexes; the records are a day old, with timestamps 1 ms apart."""
    directory.mkdir(parents=True)
    dice = random.Random(1)
    words = [dice.randbytes(8) for _ in range(64)]
    records_in_all = max(int(megabytes * 1e6 / (shape.value_bytes + 25)), 1)
    keys = max(int(records_in_all * shape.keys_per_record), 1)

    def batches() -> Iterator[tuple[int, bytes]]:
        for offset in range(0, records_in_all, shape.records_per_batch):
            records = [
                Record(
                    0,
                    now_ms - _DAY_MS + offset + number,
                    b"key-%08d" % dice.randrange(keys),
                    b"".join(dice.choices(words, k=shape.value_bytes // 8)),
                )
                for number in range(shape.records_per_batch)
            ]
            yield offset, build_batch(records, base_offset=offset, codec=shape.codec, leader_epoch=0)

    segments: list[SegmentFiles] = []
    content = bytearray()
    base_offset = end_offset = 0

    def finish() -> None:
        (directory / offset_file_name(base_offset, LOG)).write_bytes(content)
        segments.append(SegmentFiles(base_offset, len(content), end_offset, now_ms))
        content.clear()

    for offset, data in batches():
        if len(content) + len(data) > _SEGMENT_BYTES:
            finish()
            base_offset = offset
        content += data
        end_offset = offset + shape.records_per_batch
    finish()
    return segments


def compact_once(directory: Path, segments: Sequence[SegmentFiles], now_ms: int) -> CompactionStatistics:
    """One pass of Moldau's compaction, with times in seconds of CPU; the new files are removed."""
    job = CompactionJob(
        directory=str(directory),
        topic="topic",
        partition=0,
        segments=tuple(segments),
        later_segments=(),
        first_dirty_offset=0,
        now_ms=now_ms,
        delete_retention_ms=_DAY_MS,
        segment_bytes=1 << 30,
        segment_index_bytes=10 << 20,
        index_interval_bytes=4096,
        dedupe_buffer_bytes=_MAP_BYTES,
        io_bytes_per_second=0,
        last_batches={},
    )
    statistics = compact(job, RealFileSystem(durable=False), clock=time.process_time).statistics
    for path in directory.glob("*.cleaned"):
        path.unlink()
    return statistics


def compact_by_apache(directory: Path, work: Path) -> float:
    """The seconds of CPU of Apache Kafka's cleaner for a copy of the directory."""
    copies = [work / str(number) / "topic-0" for number in range(_PASSES)]
    for copy in copies:
        shutil.copytree(directory, copy)
    try:
        command = [*programs.command("CompactLog"), str(_MAP_BYTES), *map(str, copies)]
        return float(programs.run_for_json("Apache Kafka's cleaner", command, timeout_s=600)["cpu_seconds"])
    finally:
        for copy in copies:
            shutil.rmtree(copy.parent)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print a line for each shape."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="*", metavar="SHAPE", help=", ".join(shape.name for shape in SHAPES))
    parser.add_argument("--megabytes", type=float, default=64.0, help="size of the log for each shape")
    parser.add_argument("--apache", action="store_true", help="also measure Apache Kafka's cleaner (Java)")
    options = parser.parse_args(arguments)
    unknown = set(options.shapes) - {shape.name for shape in SHAPES}
    if unknown:
        parser.error(f"unknown shape {', '.join(sorted(unknown))}")
    now_ms = int(time.time() * 1000)
    print(f"{'':22}{'MB':>6}{'kept':>7}{'MB/s':>8}{'us/record':>11}{'reading keys':>14}{'Apache MB/s':>13}")
    for shape in SHAPES:
        if options.shapes and shape.name not in options.shapes:
            continue
        with measurement.run_directory(session.cache_folder() / "work") as work:
            directory = work / "ours" / "topic-0"
            segments = write_partition(directory, shape, options.megabytes, now_ms)
            found = [compact_once(directory, segments, now_ms) for _ in range(_PASSES)]
            fastest = min(found, key=lambda statistics: statistics.seconds)
            megabytes = sum(segment.size for segment in segments) / 1e6
            records = fastest.records_kept + fastest.records_dropped
            apache = f"{megabytes / compact_by_apache(directory, work):.0f}" if options.apache else "-"
        print(
            f"{shape.name:22}{megabytes:6.0f}{fastest.records_kept / records:7.0%}{megabytes / fastest.seconds:8.0f}"
            f"{fastest.seconds / records * 1e6:11.2f}{fastest.indexing_seconds / fastest.seconds:14.0%}{apache:>13}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
