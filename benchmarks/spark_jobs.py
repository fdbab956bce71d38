"""What Spark is given to do in the benchmarks, and what it says of it: plain values that go through a pipe.

Each job's clock includes what the job needs of the server besides records (partitions, offsets), and not the start of
Spark. The noop sink takes every row and does nothing with it; the counts and lengths that are observed on the way there
see to it that no column is left out, and are the proof that everything came.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ..spark_integration.options import kafka_options

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

KEY_BYTES = 8

# What is observed of rows that pass.
_SEEN = "seen"

_STREAM_SECONDS = 600


@dataclass(frozen=True)
class Done:
    """What a job did."""

    records: int
    bytes: int
    """Of keys and values; of an archive, those of its files."""
    seconds: float


class Job(Protocol):
    """A dataclass of numbers and words."""

    def run(self, spark: SparkSession) -> Done: ...


@dataclass(frozen=True)
class Read:
    """A batch of everything that the topic has."""

    address: str
    topic: str

    def run(self, spark: SparkSession) -> Done:
        from pyspark.sql import Observation

        seen = Observation(_SEEN)
        began = time.perf_counter()
        rows = spark.read.format("kafka").options(**kafka_options(self.address, self.topic)).load()
        rows = rows.select("key", "value").observe(seen, *_counts())
        rows.write.format("noop").mode("overwrite").save()
        seconds = time.perf_counter() - began
        return Done(*_added([seen.get]), seconds)


@dataclass(frozen=True)
class Stream:
    """A stream that reads everything the topic has when it starts, and ends."""

    address: str
    topic: str
    records_of_batch: int
    checkpoint: str

    def run(self, spark: SparkSession) -> Done:
        options = kafka_options(self.address, self.topic, starting_offsets="earliest")
        options["maxOffsetsPerTrigger"] = str(self.records_of_batch)
        began = time.perf_counter()
        rows = spark.readStream.format("kafka").options(**options).load()
        rows = rows.select("key", "value").observe(_SEEN, *_counts())
        writer = rows.writeStream.format("noop").option("checkpointLocation", self.checkpoint)
        query = writer.trigger(availableNow=True).start()
        if not query.awaitTermination(_STREAM_SECONDS):
            query.stop()
            raise TimeoutError(f"the stream has not ended within {_STREAM_SECONDS} s")
        seconds = time.perf_counter() - began
        seen = [batch["observedMetrics"][_SEEN] for batch in query.recentProgress if batch["numInputRows"]]
        return Done(*_added(row if isinstance(row, dict) else row.asDict() for row in seen), seconds)


@dataclass(frozen=True)
class Write:
    """Records of ``size`` bytes, made by Spark: a number as the key, which chooses the partition, and a value.

    A ``random`` value has digits that nobody can compress; otherwise it costs as little as it can, so that the sink has
    the processor.
    """

    address: str
    topic: str
    records: int
    size: int
    random: bool = False

    def run(self, spark: SparkSession) -> Done:
        length = self.size - KEY_BYTES
        value = _digits(length) if self.random else f"rpad(cast(id AS string), {length}, 'x')"
        began = time.perf_counter()
        rows = spark.range(self.records).selectExpr(f"lpad(cast(id AS string), {KEY_BYTES}, '0') key", f"{value} value")
        rows.write.format("kafka").options(**kafka_options(self.address, self.topic)).save()
        return Done(self.records, self.records * self.size, time.perf_counter() - began)


@dataclass(frozen=True)
class Archive:
    """``moldau spark archive`` of everything that the topic has."""

    address: str
    topic: str
    folder: str

    def run(self, spark: SparkSession) -> Done:
        from ..spark_integration.archive import ArchiveRequest, open_archive

        began = time.perf_counter()
        with open_archive(ArchiveRequest(self.topic, self.folder, self.address)) as job:
            manifest = job.run(spark, lambda _batch: None)
        return Done(manifest.records, manifest.bytes, time.perf_counter() - began)


@dataclass(frozen=True)
class Replay:
    """``moldau spark replay`` of a whole archive into an empty topic."""

    address: str
    topic: str
    folder: str

    def run(self, spark: SparkSession) -> Done:
        from ..spark_integration.archive_layout import Layout, local_folder
        from ..spark_integration.archive_manifest import load_existing
        from ..spark_integration.replay import ReplayRequest, open_replay

        began = time.perf_counter()
        with open_replay(ReplayRequest(self.folder, self.topic, self.address)) as job:
            replayed = job.run(spark, lambda _stored, _all: None)
        seconds = time.perf_counter() - began
        manifest = load_existing(Layout(local_folder(self.folder)))
        return Done(sum(replayed.records.values()), manifest.bytes, seconds)


JOBS: dict[str, type[Any]] = {job.__name__: job for job in (Read, Stream, Write, Archive, Replay)}


def _counts() -> list[Column]:
    from pyspark.sql import functions as F  # noqa: N812

    return [
        F.count(F.lit(1)).alias("records"),
        F.sum(F.length("key")).alias("key_bytes"),
        F.sum(F.length("value")).alias("value_bytes"),
    ]


def _added(observed: Iterable[dict[str, int | None]]) -> tuple[int, int]:
    """Records and bytes of several observations. The sum of nothing is null."""
    records = size = 0
    for each in observed:
        records += each["records"] or 0
        size += (each["key_bytes"] or 0) + (each["value_bytes"] or 0)
    return records, size


def _digits(length: int) -> str:
    """Spark's expression for as many digits, others in each row."""
    of_a_hash = 128
    hashes = [f"sha2(concat(id, '-{number}'), 512)" for number in range(-(-length // of_a_hash))]
    return f"substring(concat({', '.join(hashes)}), 1, {length})"
