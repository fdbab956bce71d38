"""``moldau spark archive``: a streaming job from a topic to Parquet files, exactly once.

Spark's own file sink also writes exactly once, but its files can never be merged. So each batch is a folder (see
``archive_layout``) and a manifest lists the batches (``archive_manifest``). Three rules make the archive exact:

1. Spark records the offsets of a batch before it runs the batch, and repeats a batch that it has not committed.
2. A batch is in the manifest before Spark commits it. A repeated batch that is in the manifest is skipped.
3. A batch that is not in the manifest does not exist. Its leftover files are removed before the job begins.

The checkpoint and the manifest are compared before a JVM is started; see ``archive_checkpoint``.

    with open_archive(request) as job:
        job.run(session("archive"), on_batch=print)
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .archive_checkpoint import check_checkpoint, read_checkpoint
from .archive_cluster import KafkaCluster, Topic
from .archive_failures import error_summary, spark_failures
from .archive_layout import ArchiveError, Layout, local_folder, locked, remove_leftovers
from .archive_manifest import Manifest, Piece, load, save
from .archive_pieces import COLUMNS, kafka_date, publish_piece, schema_json, unfit_rows, write_piece
from .archive_values import ValueSchema, check_avro, parsed_column
from .options import kafka_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

DEFAULT_BATCH_RECORDS = 1_000_000
# How often a running job checks whether it was stopped.
_LOOK_EVERY_S = 0.5
_UNKNOWN_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"


@dataclass(frozen=True, slots=True)
class ArchiveRequest:
    """What to archive. ``starting_offsets`` apply to the first run only; later runs continue from the checkpoint."""

    topic: str
    folder: str
    bootstrap_servers: str
    checkpoint: str | None = None
    # "earliest", "latest", or an offset by partition (-2 the earliest, -1 the latest).
    starting_offsets: str | Mapping[int, int] = "earliest"
    # None: the schema with which the archive was created.
    value_schema: ValueSchema | None = None
    # Stop at a value that does not match the schema, instead of storing it with a null in the column `parsed`.
    strict: bool = False
    # Read the existing records and end; otherwise continue, with at most one batch every ``interval_s``.
    once: bool = True
    interval_s: float = 10.0
    batch_records: int = DEFAULT_BATCH_RECORDS
    # Continue when records were deleted on the server before they were archived.
    accept_data_loss: bool = False
    # Kafka client settings whose names are the same in Java and librdkafka: "security.protocol", ...
    client: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BatchDone:
    """A batch that has been added to the archive."""

    batch: int
    records: int
    unfit: int
    bytes: int
    files: int
    seconds: float


@contextmanager
def open_archive(request: ArchiveRequest) -> Iterator[ArchiveJob]:
    """The job of a request, inside a ``with`` block. Raises ArchiveError if the archive would not be exact.

    Everything that can be checked without a JVM is checked here. The archive is locked against other writers.
    """
    layout = Layout(local_folder(request.folder))
    checkpoint = layout.checkpoint if request.checkpoint is None else local_folder(request.checkpoint)
    if request.value_schema is not None and request.value_schema.format == "avro":
        check_avro(request.value_schema.text)
    topic = _topic(request)
    if layout.root.exists():
        _check_root(layout)
    with locked(layout):
        known = load(layout)
        manifest = _new_manifest(request, topic) if known is None else _continued(known, request, topic, layout)
        check_checkpoint(checkpoint, read_checkpoint(checkpoint), manifest, layout.root)
        remove_leftovers(layout, {piece.name for piece in manifest.pieces})
        yield ArchiveJob(request, layout, checkpoint, manifest)


def _topic(request: ArchiveRequest) -> Topic:
    topic = KafkaCluster(request.bootstrap_servers, request.client).topic(request.topic)
    if topic is None:
        raise ArchiveError(
            f"there is no topic {request.topic} at {request.bootstrap_servers}: `moldau topics list` shows the topics "
            "that exist"
        )
    return topic


def _check_root(layout: Layout) -> None:
    if not layout.root.is_dir():
        raise ArchiveError(f"{layout.root} is a file: choose a folder")
    ours = {layout.manifest.name, layout.data.name, layout.lock.name, layout.checkpoint.name}
    foreign = sorted(path.name for path in layout.root.iterdir() if path.name not in ours and path.name[0] != ".")
    if foreign and not layout.manifest.exists():
        raise ArchiveError(
            f"{layout.root} is not empty and not an archive (it contains {foreign[0]}): choose another folder"
        )


def _new_manifest(request: ArchiveRequest, topic: Topic) -> Manifest:
    return Manifest(topic.name, topic.topic_id, topic.partition_count, request.value_schema)


def _continued(known: Manifest, request: ArchiveRequest, topic: Topic, layout: Layout) -> Manifest:
    if known.topic != request.topic:
        raise ArchiveError(f"{layout.root} archives {known.topic}, not {request.topic}: choose another folder")
    if known.topic_id != topic.topic_id and _UNKNOWN_TOPIC_ID not in (known.topic_id, topic.topic_id):
        raise ArchiveError(
            f"{request.topic} is not the topic that was archived in {layout.root}: it was deleted and created again, or"
            f" is on another cluster (its id is {topic.topic_id}, the archived id {known.topic_id}). Archive it into "
            "another folder"
        )
    value_schema = request.value_schema or known.value_schema
    # Before the first batch the schema may be corrected: with --strict the first values may prevent that batch.
    if value_schema != known.value_schema and known.last_batch >= 0:
        was = (
            "without a schema"
            if known.value_schema is None
            else f"with the {known.value_schema.format} schema {known.value_schema.text}"
        )
        raise ArchiveError(f"{layout.root} was created {was}: omit the schema option, or archive into another folder")
    partition_count = max(known.partition_count, topic.partition_count)
    return replace(known, value_schema=value_schema, partition_count=partition_count)


class ArchiveJob:
    """A request that is ready to run: the archive is locked, and matches its checkpoint."""

    def __init__(self, request: ArchiveRequest, layout: Layout, checkpoint: Path, manifest: Manifest) -> None:
        self._request = request
        self._layout = layout
        self._checkpoint = checkpoint
        self.manifest = manifest
        self._failure: ArchiveError | None = None
        self._stopping = threading.Event()
        # Held while a batch is written, by a thread of Spark. Stopping a query does not wait for that thread.
        self._taking = threading.Lock()
        self._on_batch: Callable[[BatchDone], None] = lambda done: None

    @property
    def value_schema(self) -> ValueSchema | None:
        """The schema of the values: that of the request, or that with which the archive was created."""
        return self.manifest.value_schema

    def run(self, spark: SparkSession, on_batch: Callable[[BatchDone], None]) -> Manifest:
        """Archive until all records are read (``once``) or until ``stop``. Returns the resulting manifest."""
        self._on_batch = on_batch
        query = self._start(spark)
        try:
            while not self._stopping.is_set() and not query.awaitTermination(_LOOK_EVERY_S):
                pass
        except spark_failures() as error:
            raise (self._failure or self._explained(error)) from error
        finally:
            self._stopping.set()
            query.stop()
            with self._taking:
                pass
        return self.manifest

    def stop(self) -> None:
        """Stop a running job, from a signal handler or another thread. A running batch is stored whole or not."""
        self._stopping.set()

    def records_left(self) -> int:
        """An upper bound on the number of records that remained to be archived at the time of the call."""
        cluster = KafkaCluster(self._request.bootstrap_servers, self._request.client)
        partitions = range(self.manifest.partition_count)
        ends = cluster.ends(self._request.topic, partitions)
        starts = cluster.beginnings(self._request.topic, partitions)
        known = self.manifest.next_offsets
        given = self._request.starting_offsets
        if not known and given == "latest":
            return 0
        chosen = given if isinstance(given, Mapping) and not known else known
        return sum(
            max(0, ends[partition] - max(starts[partition], chosen.get(partition, 0))) for partition in partitions
        )

    def _start(self, spark: SparkSession) -> StreamingQuery:
        request = self._request
        options = kafka_options(
            request.bootstrap_servers,
            request.topic,
            starting_offsets=request.starting_offsets,  # type: ignore[arg-type]
            include_headers=True,
            fail_on_data_loss=not request.accept_data_loss,
            client=request.client,
        )
        rows = (
            spark.readStream.format("kafka").options(**options, maxOffsetsPerTrigger=str(request.batch_records)).load()
        )
        columns: list[Any] = [*COLUMNS]
        if self.value_schema is not None:
            columns.append(parsed_column(spark, self.value_schema))
        writer = (
            rows.withColumn("date", kafka_date())
            .select(*columns)
            .writeStream.foreachBatch(self._take)
            .option("checkpointLocation", str(self._checkpoint))
        )
        interval = f"{request.interval_s * 1000:.0f} milliseconds"
        trigger: dict[str, Any] = {"availableNow": True} if request.once else {"processingTime": interval}
        # Only now: a start that fails earlier (Java is missing, Spark rejects the schema) must not create an archive.
        save(self._layout, self.manifest)
        try:
            return writer.trigger(**trigger).start()
        except spark_failures() as error:
            raise self._explained(error) from error

    def _take(self, frame: DataFrame, batch: int) -> None:
        """Called by Spark with each batch, and again with a batch that was not committed."""
        with self._taking:
            if self._stopping.is_set():
                raise ArchiveError("the job is stopped")
            try:
                if batch > self.manifest.last_batch:
                    self._archive(frame, batch)
            # The caller of the query receives only a text from Java, so the error itself is kept here.
            except ArchiveError as error:
                self._failure = error
                raise
            except OSError as error:
                self._failure = ArchiveError(f"batch {batch} cannot be written: {error}")
                raise
            except spark_failures() as error:
                self._failure = self._explained(error)
                raise

    def _archive(self, frame: DataFrame, batch: int) -> None:
        began = time.monotonic()
        # The settings of this batch only: Spark gives each query a copy of the session.
        spark = frame.sparkSession
        written = write_piece(spark, frame, self._layout, batch, batch)
        piece = None
        if written is not None:
            piece, temporary = written
            if self._request.strict and piece.unfit:
                raise self._unfit(frame, piece)
            publish_piece(self._layout, temporary, piece)
        counted = self.manifest.with_batch(batch, piece)
        checkpoint = read_checkpoint(self._checkpoint)
        assert checkpoint is not None, "a running query has a checkpoint"
        manifest = replace(counted, query_id=checkpoint.query_id, row_schema=schema_json(frame))
        save(self._layout, manifest)
        self.manifest = manifest
        if piece is not None:
            seconds = time.monotonic() - began
            self._on_batch(BatchDone(batch, piece.records, piece.unfit, piece.bytes, len(piece.files), seconds))

    def _unfit(self, frame: DataFrame, piece: Piece) -> ArchiveError:
        assert self.value_schema is not None
        row = frame.filter(unfit_rows(frame)).orderBy("partition", "offset").select("partition", "offset").first()
        where = "" if row is None else f", the first at offset {row.offset} of partition {row.partition}"
        return ArchiveError(
            f"{piece.unfit} of the {piece.records} values of batch {piece.last_batch} do not match the "
            f"{self.value_schema.format} schema{where}. No record of this batch was archived; without --strict they "
            "are stored, with null in the column `parsed`"
        )

    def _explained(self, error: Exception) -> ArchiveError:
        text = str(error)
        if "data may have been lost" in text or "failOnDataLoss" in text:
            return ArchiveError(
                f"records of {self._request.topic} were deleted on the server before they were archived, or the topic "
                "was deleted and created again. --accept-data-loss continues with the existing records\n"
                + error_summary(error)
            )
        return ArchiveError(f"Spark ended the job: {error_summary(error)}")


def parse_starting_offsets(text: str) -> str | dict[int, int]:
    """``earliest``, ``latest``, or a JSON object of offsets by partition; ArchiveError for any other text."""
    if text in ("earliest", "latest"):
        return text
    try:
        return {int(partition): int(offset) for partition, offset in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise ArchiveError(
            f'{text!r} is not earliest, latest or offsets by partition such as \'{{"0": 12, "1": -2}}\' '
            "(-2 is the earliest, -1 the latest)"
        ) from error
