"""`read_topic`: a range of a topic, read with librdkafka in batches of bounded size.

A `TopicRange` is resolved once and can be read several times. It holds no connection between reads. Reading joins no
group and commits nothing. Completion is decided by positions and by the end-of-partition event, not by the number of
records: transaction markers, aborted records and compacted records leave offsets without records, also at the end.

Memory is bounded by one batch (``batch_rows`` records, about `BATCH_BYTES` of keys and values) and librdkafka's queue
(`QUEUED_KBYTES`), independent of the size of the topic.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from .decoders import ColumnDecoder, DecodeError, Decoder, Place
from .errors import TopicReadError, UnknownTopicError
from .positions import Positions, Range, resolve
from .progress import Progress, ReportProgress, progress_bar

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from confluent_kafka import Consumer, KafkaError, Message

IsolationLevel = Literal["read_committed", "read_uncommitted"]

DEFAULT_BOOTSTRAP_SERVERS: Final = "127.0.0.1:9092"
BATCH_ROWS: Final = 65_536
BATCH_BYTES: Final = 64 << 20
QUEUED_KBYTES: Final = 32 << 10
_CONSUMED_AT_ONCE: Final = 5_000
_POLL_S: Final = 0.2

# librdkafka logs each attempt to connect, twenty per second. What matters is raised as an exception, so its lines are
# only shown to programs that configure logging.
logger = logging.getLogger("moldau.dataframes")
logger.addHandler(logging.NullHandler())


def read_topic(
    topic: str,
    bootstrap_servers: str | None = None,
    *,
    start: Positions = "earliest",
    end: Positions = "latest",
    partitions: Iterable[int] | None = None,
    limit: int | None = None,
    isolation_level: IsolationLevel = "read_committed",
    key: Decoder = "bytes",
    value: Decoder = "bytes",
    key_type: pa.DataType | pa.Schema | None = None,
    value_type: pa.DataType | pa.Schema | None = None,
    headers: bool = True,
    config: Mapping[str, Any] | None = None,
    progress: ReportProgress | bool | None = None,
    timeout_s: float = 30.0,
) -> TopicRange:
    """A range of a topic's records, for Arrow, pandas and Polars.

    The offsets of the range are found immediately; the records are read by the methods of the result.

    :param bootstrap_servers: ``host:port``, several with commas. Default: the environment variable
        ``KAFKA_BOOTSTRAP_SERVERS``, then 127.0.0.1:9092.
    :param start: the first record: an offset (negative: from the end of each partition), "earliest", a time, or a
        mapping from partitions to these.
    :param end: the same for the end, which is exclusive. "latest" is the end at the time of this call.
    :param partitions: only these partitions.
    :param limit: at most this many records, in any order of the partitions.
    :param isolation_level: "read_committed" omits the records of open and aborted transactions.
    :param key: "bytes", "utf8", "json", or a function that receives bytes.
    :param value: the same for values.
    :param key_type: the Arrow type (or schema) of decoded keys; default: inferred from the records.
    :param value_type: the same for values.
    :param headers: include the column ``headers``.
    :param config: further properties of librdkafka, for example ``security.protocol``.
    :param progress: a function that is called after each batch of records, or whether to show a progress bar. The bar
        is on standard error, if that is a terminal and the read takes longer than a second. None (default) shows one
        except in ``iter_batches``, whose caller may print in between.
    :param timeout_s: the longest wait, in seconds, for a response and for the next record.
    :raises UnknownTopicError: the topic or a partition does not exist.
    :raises TopicReadError: the server does not respond, or an offset is out of range.
    :raises ValueError: an argument is invalid.
    :raises ImportError: the extra ``moldau[dataframes]`` is not installed.
    """
    _require_packages()
    if not isinstance(topic, str) or not topic:
        raise ValueError(f"topic is {topic!r}; it must be the name of a topic")
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
        raise ValueError(f"limit is {limit!r}; it must be a number of records and not negative")
    if isinstance(partitions, int):
        raise ValueError(f"partitions is {partitions}; it must be a list such as [{partitions}]")
    if isolation_level not in ("read_committed", "read_uncommitted"):
        raise ValueError(f"isolation_level is {isolation_level!r}; use 'read_committed' or 'read_uncommitted'")
    servers = bootstrap_servers or os.environ.get("KAFKA_BOOTSTRAP_SERVERS") or DEFAULT_BOOTSTRAP_SERVERS
    properties = _properties(servers, isolation_level, config or {})
    decoders = ColumnDecoder("key", key, key_type), ColumnDecoder("value", value, value_type)
    with _connected(properties, topic) as consumer:
        chosen = _choose_partitions(consumer, topic, partitions, timeout_s)
        offsets = resolve(consumer, topic, chosen, start, end, timeout_s)
    return TopicRange(topic, offsets, limit, decoders, headers, properties, progress, timeout_s)


class TopicRange:
    """A range of offsets of a topic. Each method reads it from the server again."""

    def __init__(
        self,
        topic: str,
        offsets: Mapping[int, Range],
        limit: int | None,
        decoders: tuple[ColumnDecoder, ColumnDecoder],
        headers: bool,
        properties: Mapping[str, Any],
        progress: ReportProgress | bool | None,
        timeout_s: float,
    ) -> None:
        self.topic = topic
        self.offsets = dict(offsets)
        """For each partition the first offset, and the offset after the last one."""
        self._limit = limit
        self._key, self._value = decoders
        self._headers = headers
        self._properties = properties
        self._progress = progress
        self._timeout_s = timeout_s

    def __repr__(self) -> str:
        return f"<TopicRange {self.topic} {self.offsets}>"

    def iter_batches(self, batch_rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Record batches of at most ``batch_rows`` records and about 64 MB, all with one schema.

        The first batch determines inferred types, and a later record of another type raises DecodeError. Raises
        TopicReadError.
        """

        schema: pa.Schema | None = None
        with closing(self._batches(batch_rows, self._progress or False)) as batches:
            for batch in batches:
                if schema is None:
                    schema = batch.schema
                elif batch.schema != schema:
                    batch = _cast(batch, schema)
                yield batch

    def to_arrow(self) -> pa.Table:
        """All records as a table in memory. Inferred types take all records into account.

        Raises TopicReadError, and DecodeError if keys or values have no common type.
        """
        import pyarrow as pa

        progress = True if self._progress is None else self._progress
        tables = [pa.Table.from_batches([batch]) for batch in self._batches(BATCH_ROWS, progress)]
        if not tables:
            return self._empty()
        try:
            return pa.concat_tables(tables, promote_options="permissive")
        except pa.ArrowException as error:
            raise DecodeError(
                f"the records of {self.topic} have no common type: {error}; set key_type or value_type, "
                "or decode as 'utf8' or with a function"
            ) from error

    def to_pandas(self) -> pd.DataFrame:
        """All records as a pandas.DataFrame. Raises as `to_arrow`, and ImportError without pandas."""
        _require("pandas")
        return cast("pd.DataFrame", self.to_arrow().to_pandas())

    def to_polars(self) -> pl.DataFrame:
        """All records as a polars.DataFrame. Raises as `to_arrow`, and ImportError without Polars."""
        _require("polars")
        import polars as pl

        return cast("pl.DataFrame", pl.from_arrow(self.to_arrow()))

    def _batches(self, batch_rows: int, progress: ReportProgress | bool) -> Generator[pa.RecordBatch, None, None]:
        if batch_rows < 1:
            raise ValueError(f"batch_rows is {batch_rows}; it must be positive")
        pending: list[Message] = []
        size = 0
        with self._reporting(progress) as report:
            for messages in self._messages(report):
                for message in messages:
                    pending.append(message)
                    size += len(message)
                    if len(pending) == batch_rows or size >= BATCH_BYTES:
                        yield self._record_batch(pending)
                        pending, size = [], 0
            if pending:
                yield self._record_batch(pending)

    def _reporting(self, progress: ReportProgress | bool) -> AbstractContextManager[ReportProgress | None]:
        if isinstance(progress, bool):
            return progress_bar(self.topic) if progress else nullcontext()
        return nullcontext(progress)

    def _messages(self, report: ReportProgress | None) -> Iterator[list[Message]]:
        """The records of the range as they arrive, in offset order within each partition."""
        from confluent_kafka import TopicPartition

        read = _Remaining(self.topic, self.offsets, self._limit)
        if read.is_complete:
            return
        with _connected(self._properties, self.topic) as consumer:
            consumer.assign([TopicPartition(self.topic, each, read.positions[each]) for each in read.positions])
            last_arrival = time.monotonic()
            while not read.is_complete:
                # consume() waits until it has all that was requested: wait for one message, then take what is there.
                first = consumer.poll(_POLL_S)
                arrived = [] if first is None else [first, *consumer.consume(_CONSUMED_AT_ONCE, 0)]
                records, finished = read.take(arrived)
                if records or finished:
                    last_arrival = time.monotonic()
                elif time.monotonic() - last_arrival > self._timeout_s:
                    raise TopicReadError(read.stalled(self._timeout_s))
                if not arrived:
                    continue
                if finished and not read.is_complete:
                    consumer.incremental_unassign([TopicPartition(self.topic, each) for each in finished])
                if report is not None:
                    report(read.progress())
                if records:
                    yield records
                    last_arrival = time.monotonic()  # not counting the time of the caller

    def _record_batch(self, messages: list[Message]) -> pa.RecordBatch:
        import pyarrow as pa

        places: list[Place] = [(message.partition(), message.offset()) for message in messages]
        # A pair: the kind of the timestamp (0: the record has none), and milliseconds since 1970.
        timestamps = [time_ms if kind else None for kind, time_ms in (message.timestamp() for message in messages)]
        columns = {
            "partition": pa.array([place[0] for place in places], pa.int32()),
            "offset": pa.array([place[1] for place in places], pa.int64()),
            "timestamp": pa.array(timestamps, pa.int64()).cast(_timestamp_type()),
            "key": self._key.array([message.key() for message in messages], places),
            "value": self._value.array([message.value() for message in messages], places),
        }
        if self._headers:
            columns["headers"] = pa.array([_headers(message) for message in messages], _headers_type())
        return pa.RecordBatch.from_pydict(columns)

    def _empty(self) -> pa.Table:
        """A table without records. The type of a column whose type is inferred is null."""
        import pyarrow as pa

        fields = [
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", _timestamp_type()),
            ("key", self._key.type or pa.null()),
            ("value", self._value.type or pa.null()),
        ]
        if self._headers:
            fields.append(("headers", _headers_type()))
        return pa.schema(fields).empty_table()


class _Remaining:
    """What remains to be read of each partition."""

    def __init__(self, topic: str, offsets: Mapping[int, Range], limit: int | None) -> None:
        self._topic = topic
        self._limit = limit
        self._records = 0
        self._total = sum(end - start for start, end in offsets.values())
        self._ends = {partition: end for partition, (start, end) in offsets.items() if start < end}
        self.positions = {partition: offsets[partition][0] for partition in self._ends}

    @property
    def is_complete(self) -> bool:
        return not self.positions or self._records == self._limit

    def take(self, messages: list[Message]) -> tuple[list[Message], list[int]]:
        """The records of the range among these messages, and the partitions that are complete now."""
        records: list[Message] = []
        finished: list[int] = []
        for message in messages:
            error = message.error()
            if error is not None and not _is_end_of_partition(error):
                _check(error, self._topic)
                continue
            partition, offset = message.partition(), message.offset()
            end = self._ends[partition]
            if partition not in self.positions:
                continue  # queued before the partition was unassigned
            if error is None and offset < end and self._records != self._limit:
                records.append(message)
                self._records += 1
                self.positions[partition] = offset + 1
            if error is not None or offset + 1 >= end:
                finished.append(partition)
                del self.positions[partition]
        return records, finished

    def progress(self) -> Progress:
        left = sum(self._ends[partition] - position for partition, position in self.positions.items())
        return Progress(self._records, self._total - left, self._total)

    def stalled(self, seconds: float) -> str:
        partitions = ", ".join(map(str, sorted(self.positions)))
        return (
            f"no records of {self._topic} from partition {partitions} for {seconds:g} seconds; "
            "check that its leader is running (`moldau doctor`)"
        )


def _headers(message: Message) -> list[dict[str, Any]]:
    return [{"key": name, "value": value} for name, value in message.headers() or ()]


def _timestamp_type() -> pa.DataType:
    import pyarrow as pa

    return pa.timestamp("ms", tz="UTC")


def _headers_type() -> pa.DataType:
    import pyarrow as pa

    return pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch with inferred types, in the types of the first batch, without losing a field or a digit."""
    import pyarrow as pa

    first, last = batch.column("offset")[0], batch.column("offset")[-1]
    for name in ("key", "value"):
        merged = None
        try:
            merged = pa.unify_schemas(
                [pa.schema([schema.field(name)]), pa.schema([batch.schema.field(name)])], promote_options="permissive"
            ).field(name)
        except pa.ArrowException:
            merged = None  # no common type
        if merged is None or merged.type != schema.field(name).type:
            raise DecodeError(
                f"the {name}s between the offsets {first} and {last} have the type {batch.schema.field(name).type}, "
                f"those of the first batch {schema.field(name).type}; set {name}_type, or use to_arrow()"
            )
    table = pa.concat_tables([schema.empty_table(), pa.Table.from_batches([batch])], promote_options="permissive")
    return table.combine_chunks().to_batches()[0]


def _properties(servers: str, isolation_level: str, config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "client.id": "moldau-dataframes",
        # librdkafka requires a name. No member joins, and nothing is committed.
        "group.id": "moldau-dataframes",
        "queued.max.messages.kbytes": QUEUED_KBYTES,
        **config,
        "bootstrap.servers": servers,
        "isolation.level": isolation_level,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        # A record that was deleted in the meantime is an error, not a reason to start elsewhere.
        "auto.offset.reset": "error",
    }


@contextmanager
def _connected(properties: Mapping[str, Any], topic: str) -> Iterator[Consumer]:
    """A consumer, whose errors become TopicReadError. Raises ValueError for a property that librdkafka refuses."""
    from confluent_kafka import Consumer, KafkaError, KafkaException

    reasons: list[str] = []
    own_callback = properties.get("error_cb")

    def keep(error: KafkaError) -> None:
        reasons.append(error.str())
        if own_callback is not None:
            own_callback(error)

    try:
        consumer = Consumer({**properties, "error_cb": keep}, logger=logger)
    except KafkaException as exception:
        raise ValueError(f"librdkafka refuses the configuration: {exception.args[0].str()}") from None
    try:
        yield consumer
    except KafkaException as exception:
        error = exception.args[0]
        if error.code() in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN):
            consumer.poll(0)  # calls `keep`
            details = "; ".join(dict.fromkeys([error.str(), *reasons[-1:]]))
            raise TopicReadError(
                f"no response from {properties['bootstrap.servers']}: {details}; "
                "check the address and the client's security settings"
            ) from exception
        _check(error, topic)
        raise
    finally:
        consumer.close()


def _choose_partitions(consumer: Consumer, topic: str, wanted: Iterable[int] | None, timeout_s: float) -> list[int]:
    found = consumer.list_topics(topic, timeout=timeout_s).topics[topic]
    if found.error is not None:
        _check(found.error, topic)
    if wanted is None:
        return sorted(found.partitions)
    chosen = sorted(set(wanted))
    missing = [partition for partition in chosen if partition not in found.partitions]
    if missing:
        there = ", ".join(map(str, sorted(found.partitions)))
        raise UnknownTopicError(f"{topic} has no partition {', '.join(map(str, missing))}, only {there}")
    return chosen


def _is_end_of_partition(error: KafkaError) -> bool:
    from confluent_kafka import KafkaError

    return bool(error.code() == KafkaError._PARTITION_EOF)


def _check(error: KafkaError, topic: str) -> None:
    """Raise what this error means for the read, unless librdkafka recovers from it."""
    from confluent_kafka import KafkaError

    code = error.code()
    if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
        raise UnknownTopicError(f"topic {topic} does not exist; `moldau topics list` lists the topics")
    if code == KafkaError._AUTO_OFFSET_RESET:
        raise TopicReadError(f"records of {topic} were deleted before they were read: {error.str()}")
    if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        raise TopicReadError(f"not authorized to read topic {topic}; an ACL must allow the operation Read")
    # librdkafka looks for the group's coordinator even though no group is used; connections are retried.
    recovers = (KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
    if code not in recovers and not error.retriable():
        raise TopicReadError(f"cannot read topic {topic}: {error.str()}")


def _require_packages() -> None:
    for package, name in (("pyarrow", "pyarrow"), ("confluent_kafka", "confluent-kafka")):
        try:
            __import__(package)
        except ImportError as error:
            raise ImportError(f"read_topic needs {name}: pip install 'moldau[dataframes]'") from error


def _require(package: str) -> None:
    try:
        __import__(package)
    except ImportError as error:
        raise ImportError(f"this method needs {package}: pip install {package}") from error
