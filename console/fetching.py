"""Reading record batches from the leaders of partitions, with single Fetch requests.

A page of records is a handful of requests, so nothing is read ahead, and no consumer has to start first. Requests use
topic names (version 12 at most), which work in every supported version of Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from ..cli.cluster import EARLIEST_OFFSET, LATEST_OFFSET, Cluster, explain
from ..cli.failure import Failure
from ..protocol.errors import ErrorCode
from ..protocol.messages.fetch import AbortedTransaction, FetchPartition, FetchRequest, FetchTopic, PartitionData
from ..protocol.messages.metadata import MetadataResponseTopic
from ..protocol.records import BatchHeader, InvalidRecordsError, Record, RecordBatch, iter_batches, iter_records
from ..protocol.schema import Buffer
from .failures import NotAllowed, NotFound

_LAST_VERSION_WITH_NAMES: Final = 12
MAX_BYTES: Final = 8 << 20
"""The maximum size of a response, unless its first batch is larger."""
PARTITION_MAX_BYTES: Final = 1 << 20

_HINTS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "the topic or partition does not exist",
    ErrorCode.INVALID_TOPIC_EXCEPTION: (
        "no topic can have this name: names have letters, digits, dots, underscores and hyphens, at most 249 of them"
    ),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "the console may not read this topic; add an ACL for reading it",
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader; start its brokers",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the offset was deleted or does not exist yet; load the page again",
}
_MISTAKES: Final[Mapping[int, type[Failure]]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: NotFound,
    ErrorCode.INVALID_TOPIC_EXCEPTION: NotFound,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: NotAllowed,
}


class Bounds(NamedTuple):
    """The offsets of a partition: its first one, and the one after its last record."""

    first: int
    end: int


class Row(NamedTuple):
    """A record and its batch. ``problem`` says why the records of a batch cannot be read; its record is empty then."""

    partition: int
    record: Record
    batch: BatchHeader
    problem: str | None = None


class Fetched(NamedTuple):
    """What a leader returned for one partition."""

    records: Buffer
    end: int
    """The end of what this reader may see: the high watermark, or the last stable offset."""
    first: int
    aborted: tuple[AbortedTransaction, ...]


class Topic:
    """A topic as it was when the page was requested: its partitions, their leaders, and their offsets."""

    def __init__(self, metadata: MetadataResponseTopic) -> None:
        self.name = metadata.name or ""
        self.metadata = metadata
        self.leaders = {each.partition_index: each.leader_id for each in metadata.partitions}
        self.bounds: dict[int, Bounds] = {}

    @property
    def partitions(self) -> list[int]:
        return sorted(self.leaders)

    @property
    def without_leader(self) -> list[int]:
        """The partitions that cannot be read."""
        return [partition for partition in self.partitions if partition not in self.bounds]


def load_topic(cluster: Cluster, name: str) -> Topic:
    """A topic with the offsets of its partitions. Raises NotFound, NotAllowed, Failure."""
    (metadata,) = cluster.topics([name])
    if metadata.error_code:
        kind = _MISTAKES.get(metadata.error_code, Failure)
        raise kind(f"{name}: {explain(metadata.error_code, None, _HINTS)}")
    topic = Topic(metadata)
    topic.bounds = bounds(cluster, [metadata]).get(name, {})
    return topic


def bounds(cluster: Cluster, topics: Iterable[MetadataResponseTopic]) -> dict[str, dict[int, Bounds]]:
    """The offsets of all partitions whose leaders respond, by topic."""
    known = [topic for topic in topics if topic.error_code == 0]
    first = cluster.positions(known, EARLIEST_OFFSET)
    end = cluster.positions(known, LATEST_OFFSET)
    found: dict[str, dict[int, Bounds]] = {topic.name or "": {} for topic in known}
    for (name, partition), position in sorted(first.items()):
        if (name, partition) in end:
            found[name][partition] = Bounds(position.offset, max(position.offset, end[name, partition].offset))
    return found


def fetch(
    cluster: Cluster,
    topic: Topic,
    offsets: Mapping[int, int],
    *,
    committed: bool = False,
    max_bytes: int = MAX_BYTES,
    partition_max_bytes: int = PARTITION_MAX_BYTES,
    max_wait_ms: int = 0,
) -> dict[int, Fetched]:
    """One fetch of these partitions from their leaders, one request per leader. Raises Failure.

    A response contains at least one batch if there is one; partitions without records are included, empty.
    """
    by_leader: dict[int, list[FetchPartition]] = {}
    for partition, offset in offsets.items():
        wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
        by_leader.setdefault(topic.leaders[partition], []).append(wanted)
    found: dict[int, Fetched] = {}
    for leader, partitions in by_leader.items():
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1 if max_wait_ms else 0,
            max_bytes=max_bytes,
            isolation_level=int(committed),
            topics=[FetchTopic(topic=topic.name, partitions=partitions)],
        )
        answer = cluster.broker(leader).ask(request, at_most=_LAST_VERSION_WITH_NAMES)
        if answer.error_code:
            raise Failure(f"cannot read {topic.name}: {explain(answer.error_code, None, _HINTS)}")
        for data in (data for response in answer.responses for data in response.partitions):
            found[data.partition_index] = _fetched(topic.name, data, committed)
    return found


def _fetched(topic: str, data: PartitionData, committed: bool) -> Fetched:
    if data.error_code:
        raise Failure(f"cannot read {topic}-{data.partition_index}: {explain(data.error_code, None, _HINTS)}")
    records = data.records
    assert records is None or isinstance(records, (bytes, bytearray, memoryview))
    return Fetched(
        records or b"",
        data.last_stable_offset if committed else data.high_watermark,
        data.log_start_offset,
        tuple(data.aborted_transactions or ()),
    )


def batches(fetched: Fetched) -> Iterator[tuple[RecordBatch, bool]]:
    """The whole batches of a response, and whether a reader sees their records.

    Control batches are never seen, those of aborted transactions not by a reader of committed records: only such a
    reader receives a list of aborted transactions.
    """
    pending = sorted(fetched.aborted, key=lambda each: each.first_offset, reverse=True)
    aborted: set[int] = set()
    for batch in iter_batches(fetched.records):
        while pending and pending[-1].first_offset <= batch.last_offset:
            aborted.add(pending.pop().producer_id)
        if batch.is_control:
            aborted.discard(batch.producer_id)
            yield batch, False
        else:
            yield batch, not (batch.is_transactional and batch.producer_id in aborted)


def rows(partition: int, batch: RecordBatch, low: int, high: int) -> Iterator[Row]:
    """The records of a batch with offsets from ``low`` to below ``high``; one row with the problem if it is damaged."""
    try:
        for record in iter_records(batch):
            if low <= record.offset < high:
                yield Row(partition, record, batch)
    except ValueError as problem:  # InvalidRecordsError, CompressionError
        kind = (
            "the batch is damaged" if isinstance(problem, InvalidRecordsError) else "the batch cannot be decompressed"
        )
        offset = max(low, batch.base_offset)
        yield Row(partition, Record(offset, batch.max_timestamp), batch, f"{kind}: {problem}")
