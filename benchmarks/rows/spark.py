"""Spark's own source and sink, and the two jobs of Moldau's package: batches, a stream, an archive and its replay.

One Spark on the machine's two cores works for both servers alternately. Spark is the bottleneck: two servers of equal
speed differ by some percent, so the meaningful figure is the CPU of the server. There is no ceiling: that server has
one partition, and Spark would be as slow with it.

When reading, each task waits half a second at the end of its partition: Spark's consumer requests the ends of the
partition while its own fetch, for records that will not arrive, is waiting on the same connection
(``fetch.max.wait.ms``). So the time for 64 partitions is at least 16 s on two cores, with either server.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .. import page_cache
from ..row import Bench, Numbers, Row, Subject, Target
from ..spark_client import SparkClient
from ..spark_jobs import Archive, Done, Job, Read, Replay, Stream, Write
from ..spark_topics import check_records, filled_topic

GROUP = "Spark"

_SERVERS = (Subject.APACHE, Subject.MOLDAU)

_RECORDS = 5_000_000
_SIZE = 100
_BATCHES_OF_STREAM = 5

_LEVELS = (1, 4, 16, 64)
_RECORDS_OF_LEVEL = 2_000_000

_ARCHIVED_RECORDS = 500_000
_ARCHIVED_SIZE = 1000
_ARCHIVED_PARTITIONS = 4

SPARK = SparkClient()


@dataclass(frozen=True)
class Cost:
    """The cost of some records: time, and CPU of the server."""

    records: int
    size: int
    seconds: float
    cpu_seconds: float

    @property
    def records_per_s(self) -> float:
        return self.records / self.seconds

    @property
    def mb_per_s(self) -> float:
        return self.records * self.size / 1e6 / self.seconds

    @property
    def cpu_s_per_gb(self) -> float:
        return self.cpu_seconds / (self.records * self.size / 1e9)

    def numbers(self) -> dict[str, float]:
        return {
            "records_per_s": self.records_per_s,
            "mb_per_s": self.mb_per_s,
            "cpu_s_per_gb": self.cpu_s_per_gb,
            "cpu_us_per_record": self.cpu_seconds / self.records * 1e6,
        }


Work = Callable[[Bench, int, int], Cost]
"""By the number of partitions and of records."""


def read(bench: Bench, partitions: int, records: int) -> Cost:
    topic = filled_topic(bench, partitions=partitions, records=records, size=_SIZE)
    return _read_by(bench, Read(bench.server.bootstrap_servers, topic.name), topic.records)


def stream(bench: Bench, partitions: int, records: int) -> Cost:
    topic = filled_topic(bench, partitions=partitions, records=records, size=_SIZE)
    records_of_batch = -(-topic.records // _BATCHES_OF_STREAM)
    checkpoint = str(bench.work_dir / "checkpoint")
    return _read_by(
        bench, Stream(bench.server.bootstrap_servers, topic.name, records_of_batch, checkpoint), topic.records
    )


def write(bench: Bench, partitions: int, records: int) -> Cost:
    topic = bench.topic(partitions=partitions)
    done, cpu_seconds = _run(bench, Write(bench.server.bootstrap_servers, topic, records, _SIZE))
    check_records(bench.server, topic, partitions, records)
    _sync(bench, topic)
    return Cost(records, _SIZE, done.seconds, cpu_seconds)


@dataclass(frozen=True)
class Once:
    """The work with one number of partitions."""

    work: Work
    partitions: int

    def __call__(self, bench: Bench) -> Numbers:
        return self.work(bench, self.partitions, bench.count(_RECORDS)).numbers()


@dataclass(frozen=True)
class Growth:
    """The same work with increasing numbers of partitions, and the growth of its cost."""

    work: Work

    def __call__(self, bench: Bench) -> Numbers:
        costs = {level: self.work(bench, level, bench.count(_RECORDS_OF_LEVEL)) for level in _LEVELS}
        lowest, highest = costs[_LEVELS[0]], costs[_LEVELS[-1]]
        numbers: dict[str, float] = {}
        for level, cost in costs.items():
            numbers[f"records_per_s_at_{level}"] = cost.records_per_s
            numbers[f"cpu_s_per_gb_at_{level}"] = cost.cpu_s_per_gb
        return numbers | {
            "rate_growth": highest.records_per_s / lowest.records_per_s,
            "cpu_growth": highest.cpu_s_per_gb / lowest.cpu_s_per_gb,
        }


def archive_and_replay(bench: Bench) -> Numbers:
    """A topic that Spark has filled is archived as Parquet, and replayed to a second topic. MB are those of keys and
    values."""
    address, folder = bench.server.bootstrap_servers, str(bench.work_dir / "archive")
    records = bench.count(_ARCHIVED_RECORDS)
    source, target = (
        bench.topic(partitions=_ARCHIVED_PARTITIONS, config={"retention.ms": "-1"}) for _ in ("source", "target")
    )
    # Each value is unique, since Parquet would store duplicates once.
    SPARK.run(Write(address, source, records, _ARCHIVED_SIZE, random=True))
    check_records(bench.server, source, _ARCHIVED_PARTITIONS, records)
    _sync(bench, source)
    archived = _archive_cost(bench, Archive(address, source, folder), records)
    page_cache.sync(Path(folder).rglob("*.parquet"))
    replayed = _archive_cost(bench, Replay(address, target, folder), records)
    check_records(bench.server, target, _ARCHIVED_PARTITIONS, records)
    return {
        f"{name}_{what}": value
        for what, cost in (("archived", archived), ("replayed", replayed))
        for name, value in cost.numbers().items()
    }


def _archive_cost(bench: Bench, job: Job, records: int) -> Cost:
    done, cpu_seconds = _run(bench, job)
    if done.records != records:
        raise RuntimeError(f"{job} should have {records} records, but had {done.records}")
    return Cost(records, _ARCHIVED_SIZE, done.seconds, cpu_seconds)


def _read_by(bench: Bench, job: Job, records: int) -> Cost:
    done, cpu_seconds = _run(bench, job)
    if (done.records, done.bytes) != (records, records * _SIZE):
        raise RuntimeError(
            f"there were {records} records with {records * _SIZE} bytes, and Spark has read {done.records} with "
            f"{done.bytes}"
        )
    return Cost(records, _SIZE, done.seconds, cpu_seconds)


def _run(bench: Bench, job: Job) -> tuple[Done, float]:
    """The result of a job, and the CPU seconds of the server during it."""
    before = bench.server.cpu_seconds()
    done = SPARK.run(job)
    return done, bench.server.cpu_seconds() - before


def _sync(bench: Bench, topic: str) -> None:
    """Write the topic's files to the disk, so that the next step of this measurement does not wait for it."""
    page_cache.sync(bench.server.data_dir.glob(f"{topic}-*/*.log"))


_AS_FAST = (Target("records_per_s", at_least=0.95),)


def _row(
    name: str, title: str, measure: Callable[[Bench], Numbers], *needs: str, targets: tuple[Target, ...] = ()
) -> Row:
    return Row(
        name,
        title,
        GROUP,
        measure,
        subjects=_SERVERS,
        needs=("pyspark", "java", *needs),
        targets=targets,
        during=SPARK.running,
    )


ROWS = (
    *(
        _row(
            f"spark-read-{partitions}",
            f"a batch reads 5,000,000 records of 100 B from {partitions} partitions",
            Once(read, partitions),
            "cc",
            targets=_AS_FAST,
        )
        for partitions in (4, 16)
    ),
    *(
        _row(
            f"spark-write-{partitions}",
            f"a batch writes 5,000,000 records of 100 B into {partitions} partitions",
            Once(write, partitions),
            targets=_AS_FAST,
        )
        for partitions in (4, 16)
    ),
    _row(
        "spark-stream",
        "a stream reads 5,000,000 records of 100 B from 4 partitions (availableNow, maxOffsetsPerTrigger=1000000)",
        Once(stream, 4),
        "cc",
        targets=_AS_FAST,
    ),
    _row(
        "spark-read-partitions",
        "a batch reads 2,000,000 records of 100 B from 1, 4, 16, 64 partitions",
        Growth(read),
        "cc",
    ),
    _row(
        "spark-write-partitions",
        "a batch writes 2,000,000 records of 100 B into 1, 4, 16, 64 partitions",
        Growth(write),
    ),
    _row(
        "spark-archive-replay",
        "moldau spark archive of 500,000 records of 1,000 B in 4 partitions, and moldau spark replay of them",
        archive_and_replay,
        "confluent-kafka",
    ),
)
