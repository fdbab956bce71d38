"""``moldau spark replay``: puts an archive back into a topic, record by record as it was.

Spark's own sink cannot set a timestamp, so the records are sent by confluent-kafka, in the tasks: one task has all
records of a Kafka partition, in the order of their offsets (see ``replay_send``). Before the first record is sent,
Spark has read the whole archive (it sorts it), so an archive that cannot be read leaves the topic as it was.

Records cannot be written under another name and renamed, as files are: a replay that is interrupted leaves a topic with
the first part of each partition. Run again with ``resume`` it compares, and sends the rest.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .archive_cluster import KafkaCluster
from .archive_failures import said, spark_failures
from .archive_layout import ArchiveError, Layout, local_folder
from .archive_manifest import Manifest, Piece, check_files, load_existing
from .archive_pieces import read_pieces
from .replay_send import Destination, Sent, send_partitions
from .replay_topic import Demands, check_topic, make_topic
from .tasks import use_this_python

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LOOK_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """What is to be put back: the records with ``from_ms <= timestamp < until_ms``, all by default."""

    folder: str
    topic: str
    bootstrap_servers: str
    from_ms: int | None = None
    until_ms: int | None = None
    # Send to a topic that has records already.
    append: bool = False
    # Go on with a replay that was interrupted: the topic has the first of these records, and nothing else.
    resume: bool = False
    compression: str = "lz4"
    # Settings of librdkafka: "security.protocol", ...
    client: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Replayed:
    """What was sent, by partition; ``found`` is what an earlier replay had sent already."""

    records: Mapping[int, int]
    found: Mapping[int, int]


@contextmanager
def open_replay(request: ReplayRequest) -> Iterator[ReplayJob]:
    """The job of a request; ArchiveError where the archive is not whole, or the topic will not do."""
    if request.append and request.resume:
        raise ArchiveError("append and resume exclude each other: choose one")
    layout = Layout(local_folder(request.folder))
    manifest = load_existing(layout)
    check_files(layout, manifest)
    pieces = _pieces_in(manifest, request)
    if not pieces:
        raise _nothing(layout, request)
    demands = demands_of(manifest, pieces, request)
    cluster = KafkaCluster(request.bootstrap_servers, request.client)
    bases = check_topic(cluster, request.topic, demands, append=request.append, resume=request.resume)
    yield ReplayJob(request, layout, manifest, pieces, demands, cluster, bases)


def _pieces_in(manifest: Manifest, request: ReplayRequest) -> tuple[Piece, ...]:
    return tuple(
        piece
        for piece in manifest.pieces
        if (request.from_ms is None or piece.newest_ms >= request.from_ms)
        and (request.until_ms is None or piece.oldest_ms < request.until_ms)
    )


def demands_of(manifest: Manifest, pieces: Sequence[Piece], request: ReplayRequest) -> Demands:
    """What a topic must bear, as far as the manifest tells: pieces may hold records of other times, too."""
    oldest_ms = min(piece.oldest_ms for piece in pieces)
    newest_ms = max(piece.newest_ms for piece in pieces)
    return Demands(
        partition_count=manifest.partition_count,
        oldest_ms=oldest_ms if request.from_ms is None else max(oldest_ms, request.from_ms),
        newest_ms=newest_ms if request.until_ms is None else min(newest_ms, request.until_ms - 1),
        largest_record_bytes=max(piece.largest_record_bytes for piece in pieces),
    )


def _nothing(layout: Layout, request: ReplayRequest) -> ArchiveError:
    bounded = request.from_ms is not None or request.until_ms is not None
    return ArchiveError(f"the archive {layout.root} has no records{' of that time' if bounded else ''}")


class ReplayJob:
    """A request that can be run: the archive's files are there, and the topic will do or is to be made."""

    def __init__(
        self,
        request: ReplayRequest,
        layout: Layout,
        manifest: Manifest,
        pieces: tuple[Piece, ...],
        demands: Demands,
        cluster: KafkaCluster,
        bases: Mapping[int, int] | None,
    ) -> None:
        self._request = request
        self._layout = layout
        self._manifest = manifest
        self._pieces = pieces
        self._demands = demands
        self._cluster = cluster
        self._bases = bases

    def run(self, spark: SparkSession, on_progress: Callable[[int, int], None]) -> Replayed:
        """Send everything. ``on_progress(stored, all)`` is called from another thread, about twice a second."""
        request = self._request
        rows, expected = self._look(spark)
        bases = self._bases
        if bases is None:
            bases = make_topic(self._cluster, request.topic, self._demands)
        destination = Destination(request.topic, bases, request.resume, self._producer_settings())
        with _watching(self._cluster, destination, sum(expected.values()), on_progress):
            sent = self._send(rows, destination, len(expected))
        _check_sent(sent, expected, request)
        return Replayed(
            {partition: each.sent for partition, each in sent.items()},
            {partition: each.found for partition, each in sent.items()},
        )

    def _look(self, spark: SparkSession) -> tuple[DataFrame, dict[int, int]]:
        """The rows, and how many there are of each partition; only timestamps are read for it."""
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
                f"{at_zero} records have the timestamp 0 (1970-01-01T00:00:00Z), for which librdkafka would put the "
                "time of sending: --from 1 leaves them out, and those before"
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
                f"Spark has ended the replay: {said(error)}\n{self._request.topic} may have a part of the records; the "
                "same with --resume sends the rest"
            ) from error
        return {report.partition: report for report in reports}

    def _producer_settings(self) -> dict[str, str]:
        request = self._request
        room = self._demands.largest_record_bytes + 1024
        return {
            "bootstrap.servers": request.bootstrap_servers,
            "log_level": "0",
            "enable.idempotence": "true",
            # A record that is refused ends the producer, so that none of those behind it is stored.
            "enable.gapless.guarantee": "true",
            "compression.type": request.compression,
            "linger.ms": "20",
            "batch.size": str(1_000_000),
            "message.max.bytes": str(max(1_000_000, room)),
            # Memory of each task, in kilobytes.
            "queue.buffering.max.kbytes": str(max(65_536, 4 * room // 1024)),
            **request.client,
        }

    def _unreadable(self, error: Exception) -> ArchiveError:
        return ArchiveError(
            f"the archive {self._layout.root} cannot be read, and nothing was sent: {said(error)}\n"
            "Where a file is damaged, put it back from a copy."
        )


def _check_sent(sent: Mapping[int, Sent], expected: Mapping[int, int], request: ReplayRequest) -> None:
    """ArchiveError unless every record is in the topic now."""
    problems = [each.problem for each in sent.values() if each.problem]
    missing = [
        partition
        for partition, records in expected.items()
        if partition not in sent or sent[partition].found + sent[partition].sent != records
    ]
    if problems:
        raise ArchiveError("\n".join(problems) + f"\n{request.topic} has a part of the records only.{_RESUME}")
    if missing:
        raise ArchiveError(f"not everything of partition {missing} was sent to {request.topic}.{_RESUME}")


_RESUME = " When the reason is gone, the same with --resume sends the rest"


@contextmanager
def _watching(
    cluster: KafkaCluster, destination: Destination, total: int, on_progress: Callable[[int, int], None]
) -> Iterator[None]:
    """Tell how many records the topic has received, as long as the ``with`` block runs.

    Spark tells of a task when it has ended, and one task may be the whole replay; so the topic is asked.
    """
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(_LOOK_EVERY_S):
            try:
                ends = cluster.ends(destination.topic, destination.bases)
            except ArchiveError:
                continue  # the server may be away for a moment; the tasks will say so if it stays away
            on_progress(sum(end - destination.bases[partition] for partition, end in ends.items()), total)

    watcher = threading.Thread(target=look, name="replay progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
