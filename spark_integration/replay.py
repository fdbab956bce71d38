"""``moldau spark replay``: sends an archive back to a topic, each record unchanged.

Spark's own sink cannot set a timestamp, so confluent-kafka sends the records, in Spark's tasks. One task has all
records of a Kafka partition, in the order of their offsets (see ``replay_send``). Spark sorts the archive, so it has
read all of it before the first record is sent. An archive that cannot be read leaves the topic unchanged.

Unlike files, records cannot be written under a temporary name and renamed: an interrupted replay leaves a topic with
the first part of each partition. Another run with ``resume`` compares these records, and sends the remaining ones.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .archive_cluster import KafkaCluster
from .archive_failures import error_summary, spark_failures
from .archive_layout import ArchiveError, Layout, local_folder
from .archive_manifest import Manifest, Piece, check_files, load_existing
from .archive_pieces import read_pieces
from .replay_send import Destination, Sent, send_partitions
from .replay_topic import Requirements, check_topic, create_topic
from .tasks import use_this_python

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LOOK_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """What to send: the records with ``from_ms <= timestamp < until_ms``, all by default."""

    folder: str
    topic: str
    bootstrap_servers: str
    from_ms: int | None = None
    until_ms: int | None = None
    # Send to a topic that already has records.
    append: bool = False
    # Continue an interrupted replay: the topic has the first of these records, and no other ones.
    resume: bool = False
    compression: str = "lz4"
    # Settings of librdkafka: "security.protocol", ...
    client: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Replayed:
    """The numbers of records sent, by partition; ``found`` are those that an earlier replay had already sent."""

    records: Mapping[int, int]
    found: Mapping[int, int]


@contextmanager
def open_replay(request: ReplayRequest) -> Iterator[ReplayJob]:
    """The job of a request. ArchiveError if the archive is incomplete or the topic is not suitable."""
    if request.append and request.resume:
        raise ArchiveError("append and resume are mutually exclusive: choose one")
    layout = Layout(local_folder(request.folder))
    manifest = load_existing(layout)
    check_files(layout, manifest)
    pieces = _pieces_in(manifest, request)
    if not pieces:
        raise _nothing(layout, request)
    requirements = requirements_of(manifest, pieces, request)
    cluster = KafkaCluster(request.bootstrap_servers, request.client)
    bases = check_topic(cluster, request.topic, requirements, append=request.append, resume=request.resume)
    yield ReplayJob(request, layout, manifest, pieces, requirements, cluster, bases)


def _pieces_in(manifest: Manifest, request: ReplayRequest) -> tuple[Piece, ...]:
    return tuple(
        piece
        for piece in manifest.pieces
        if (request.from_ms is None or piece.newest_ms >= request.from_ms)
        and (request.until_ms is None or piece.oldest_ms < request.until_ms)
    )


def requirements_of(manifest: Manifest, pieces: Sequence[Piece], request: ReplayRequest) -> Requirements:
    """What the topic must support, according to the manifest, whose pieces may include records of other times."""
    oldest_ms = min(piece.oldest_ms for piece in pieces)
    newest_ms = max(piece.newest_ms for piece in pieces)
    return Requirements(
        partition_count=manifest.partition_count,
        oldest_ms=oldest_ms if request.from_ms is None else max(oldest_ms, request.from_ms),
        newest_ms=newest_ms if request.until_ms is None else min(newest_ms, request.until_ms - 1),
        largest_record_bytes=max(piece.largest_record_bytes for piece in pieces),
    )


def _nothing(layout: Layout, request: ReplayRequest) -> ArchiveError:
    bounded = request.from_ms is not None or request.until_ms is not None
    return ArchiveError(f"the archive {layout.root} has no records{' in that time range' if bounded else ''}")


class ReplayJob:
    """A request that is ready to run: the archive's files exist, and the topic is suitable or will be created."""

    def __init__(
        self,
        request: ReplayRequest,
        layout: Layout,
        manifest: Manifest,
        pieces: tuple[Piece, ...],
        requirements: Requirements,
        cluster: KafkaCluster,
        bases: Mapping[int, int] | None,
    ) -> None:
        self._request = request
        self._layout = layout
        self._manifest = manifest
        self._pieces = pieces
        self._requirements = requirements
        self._cluster = cluster
        self._bases = bases

    def run(self, spark: SparkSession, on_progress: Callable[[int, int], None]) -> Replayed:
        """Send all records. ``on_progress(stored, all)`` is called from another thread, about twice a second."""
        request = self._request
        rows, expected = self._look(spark)
        bases = self._bases
        if bases is None:
            bases = create_topic(self._cluster, request.topic, self._requirements)
        destination = Destination(request.topic, bases, request.resume, self._producer_settings())
        with _watching(self._cluster, destination, sum(expected.values()), on_progress):
            sent = self._send(rows, destination, len(expected))
        _check_sent(sent, expected, request)
        return Replayed(
            {partition: each.sent for partition, each in sent.items()},
            {partition: each.found for partition, each in sent.items()},
        )

    def _look(self, spark: SparkSession) -> tuple[DataFrame, dict[int, int]]:
        """The rows, and their number in each partition; only timestamps are read for it."""
        from pyspark.sql import functions as F  # noqa: N812

        rows = read_pieces(spark, self._layout, self._manifest, self._pieces)
        timestamp_ms = F.expr("unix_millis(timestamp)")
        if self._request.from_ms is not None:
            rows = rows.filter(timestamp_ms >= self._request.from_ms)
        if self._request.until_ms is not None:
            rows = rows.filter(timestamp_ms < self._request.until_ms)
        counts = rows.groupBy("partition").agg(
            F.count("*").alias("records"), F.sum((timestamp_ms == 0).cast("int")).alias("at_zero")
        )
        try:
            found = counts.collect()
        except spark_failures() as error:
            raise self._unreadable(error) from error
        if not found:
            raise _nothing(self._layout, self._request)
        at_zero = sum(row.at_zero for row in found)
        if at_zero:
            raise ArchiveError(
                f"{at_zero} records have the timestamp 0 (1970-01-01T00:00:00Z), which librdkafka would replace with "
                "the time of sending: --from 1 omits them and all earlier records"
            )
        return rows, {row.partition: row.records for row in found}

    def _send(self, rows: DataFrame, destination: Destination, tasks: int) -> dict[int, Sent]:
        ordered = (
            rows.selectExpr("partition", "offset", "unix_millis(timestamp) timestamp_ms", "key", "value", "headers")
            .repartition(tasks, "partition")
            .sortWithinPartitions("partition", "offset")
        )
        use_this_python(rows.sparkSession)
        try:
            reports = ordered.rdd.mapPartitions(lambda task: send_partitions(task, destination)).collect()
        except spark_failures() as error:
            raise ArchiveError(
                f"Spark ended the replay: {error_summary(error)}\n{self._request.topic} may have some of the "
                "records; the same command with --resume sends the rest"
            ) from error
        return {report.partition: report for report in reports}

    def _producer_settings(self) -> dict[str, str]:
        request = self._request
        room = self._requirements.largest_record_bytes + 1024
        return {
            "bootstrap.servers": request.bootstrap_servers,
            "log_level": "0",
            "enable.idempotence": "true",
            # A rejected record ends the producer, so that no later record is stored.
            "enable.gapless.guarantee": "true",
            "compression.type": request.compression,
            "linger.ms": "20",
            "batch.size": str(1_000_000),
            "message.max.bytes": str(max(1_000_000, room)),
            # The buffer of each task, in kilobytes.
            "queue.buffering.max.kbytes": str(max(65_536, 4 * room // 1024)),
            **request.client,
        }

    def _unreadable(self, error: Exception) -> ArchiveError:
        return ArchiveError(
            f"the archive {self._layout.root} cannot be read, and nothing was sent: {error_summary(error)}\n"
            "If a file is damaged, restore it from a copy."
        )


def _check_sent(sent: Mapping[int, Sent], expected: Mapping[int, int], request: ReplayRequest) -> None:
    """ArchiveError unless every record is in the topic."""
    problems = [each.problem for each in sent.values() if each.problem]
    missing = [
        partition
        for partition, records in expected.items()
        if partition not in sent or sent[partition].found + sent[partition].sent != records
    ]
    if problems:
        raise ArchiveError("\n".join(problems) + f"\n{request.topic} has only some of the records.{_RESUME}")
    if missing:
        raise ArchiveError(f"not all records of partition {missing} were sent to {request.topic}.{_RESUME}")


_RESUME = " After the cause is removed, the same command with --resume sends the rest"


@contextmanager
def _watching(
    cluster: KafkaCluster, destination: Destination, total: int, on_progress: Callable[[int, int], None]
) -> Iterator[None]:
    """Report how many records the topic has received, while the ``with`` block runs.

    Spark reports a task when it has ended, and one task may be the whole replay. So the topic is queried.
    """
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(_LOOK_EVERY_S):
            try:
                ends = cluster.ends(destination.topic, destination.bases)
            except ArchiveError:
                continue  # the server may be unavailable for a moment; if it stays unavailable, the tasks fail
            on_progress(sum(end - destination.bases[partition] for partition, end in ends.items()), total)

    watcher = threading.Thread(target=look, name="replay progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
