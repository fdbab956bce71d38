"""Produce, Fetch and ListOffsets for one partition, in any version: by topic name or by topic ID."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from ..protocol.api import ApiKey
from ..protocol.errors import ErrorCode
from ..protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from ..protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ..protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from ..protocol.records import RecordBatch, iter_batches, iter_records
from .check import Check, Topic
from .exchange import Connection

LATEST = -1
NO_OFFSETS = (-1, 0)
"""What a response has as the base offset of a batch that was rejected."""
EARLIEST = -2

_PRODUCE_BY_ID = 13
_FETCH_BY_ID = 13
_UNLIMITED = 50_000_000


def produce_request(
    topic: Topic,
    batches: Mapping[int, bytes | None],
    *,
    version: int,
    acks: int = -1,
    transactional_id: str | None = None,
    timeout_ms: int = 30_000,
) -> ProduceRequest:
    """`batches`: the records for each partition."""
    data = [PartitionProduceData(index=partition, records=batch) for partition, batch in batches.items()]
    identity: dict[str, Any] = {"topic_id": topic.topic_id} if version >= _PRODUCE_BY_ID else {"name": topic.name}
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[TopicProduceData(partition_data=data, **identity)],
    )


def produce(
    c: Check,
    topic: Topic,
    batch: bytes | None,
    *,
    partition: int = 0,
    acks: int = -1,
    version: int | None = None,
    transactional_id: str | None = None,
    to: Connection | None = None,
) -> PartitionProduceResponse:
    """Produce to one partition, and return its part of the response."""
    version = c.version(ApiKey.PRODUCE) if version is None else version
    request = produce_request(topic, {partition: batch}, version=version, acks=acks, transactional_id=transactional_id)
    response = c.call(request, version, to=to)
    c.equal([len(each.partition_responses) for each in response.responses], [1], "Produce responses per topic")
    return cast(PartitionProduceResponse, response.responses[0].partition_responses[0])


def no_offset(c: Check, answer: PartitionProduceResponse, what: str = "base_offset") -> None:
    """The partition has an error, and no offset. Apache Kafka writes -1, and clients do not read it."""
    c.true(answer.base_offset in NO_OFFSETS, what, expected="-1 or 0", actual=answer.base_offset)


def append(c: Check, topic: Topic, batch: bytes, *, partition: int = 0, to: Connection | None = None) -> int:
    """Produce as a step of the setup, and return the base offset."""
    with c.setup(f"producing to {topic.name}"):
        answer = produce(c, topic, batch, partition=partition, to=to)
        c.error(answer.error_code, ErrorCode.NONE, "Produce error_code")
        return answer.base_offset


def fetch_request(
    topic: Topic,
    offsets: Mapping[int, int],
    *,
    version: int,
    max_wait_ms: int = 0,
    min_bytes: int = 0,
    max_bytes: int = _UNLIMITED,
    partition_max_bytes: int = _UNLIMITED,
    isolation_level: int = 0,
    session_id: int = 0,
    session_epoch: int = -1,
) -> FetchRequest:
    """A fetch of these partitions, each from its offset; without a session by default."""
    requested = [
        FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
        for partition, offset in offsets.items()
    ]
    identity: dict[str, Any] = {"topic_id": topic.topic_id} if version >= _FETCH_BY_ID else {"topic": topic.name}
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[FetchTopic(partitions=requested, **identity)] if requested else [],
    )


def fetch(
    c: Check,
    topic: Topic,
    offset: int = 0,
    *,
    partition: int = 0,
    version: int | None = None,
    to: Connection | None = None,
    **options: int,
) -> PartitionData:
    """One fetch of one partition, and its part of the response. `options` are those of `fetch_request`."""
    version = c.version(ApiKey.FETCH) if version is None else version
    response = c.call(fetch_request(topic, {partition: offset}, version=version, **options), version, to=to)
    if version >= 7:
        c.error(response.error_code, ErrorCode.NONE, "Fetch error_code")
    c.equal([len(each.partitions) for each in response.responses], [1], "Fetch responses per topic")
    return cast(PartitionData, response.responses[0].partitions[0])


def batches_of(data: PartitionData) -> list[RecordBatch]:
    """The whole batches of a partition in a fetch response."""
    return list(iter_batches(bytes(cast(memoryview, data.records or b""))))


def read_batches(
    c: Check, topic: Topic, *, partition: int = 0, isolation_level: int = 0, to: Connection | None = None
) -> list[RecordBatch]:
    """All batches of a partition, from its first offset, read as a consumer does.

    The fetches may wait, because not every server returns records immediately if they may not.
    """
    found: list[RecordBatch] = []
    offset = end_offset(c, topic, partition=partition, timestamp=EARLIEST, to=to)
    end = list_offset(c, topic, LATEST, partition=partition, isolation_level=isolation_level, to=to)
    c.error(end.error_code, ErrorCode.NONE, "ListOffsets error_code")
    while offset < end.offset:
        data = fetch(
            c, topic, offset, partition=partition, isolation_level=isolation_level, min_bytes=1, max_wait_ms=500, to=to
        )
        c.error(data.error_code, ErrorCode.NONE, "Fetch partition error_code")
        more = batches_of(data)
        if not more:
            break
        found += more
        offset = more[-1].next_offset
    return found


def values(c: Check, topic: Topic, *, partition: int = 0, to: Connection | None = None) -> list[bytes | None]:
    """The values of all records of a partition, without control records."""
    return [
        record.value
        for batch in read_batches(c, topic, partition=partition, to=to)
        if not batch.is_control
        for record in iter_records(batch)
    ]


def list_offset(
    c: Check,
    topic: Topic,
    timestamp: int,
    *,
    partition: int = 0,
    version: int | None = None,
    isolation_level: int = 0,
    to: Connection | None = None,
) -> ListOffsetsPartitionResponse:
    """ListOffsets of one partition, and its part of the response."""
    requested = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name=topic.name, partitions=[requested])],
    )
    return cast(ListOffsetsPartitionResponse, c.call(request, version, to=to).topics[0].partitions[0])


def end_offset(
    c: Check, topic: Topic, *, partition: int = 0, timestamp: int = LATEST, to: Connection | None = None
) -> int:
    """The log end offset, or with `EARLIEST` the log start offset."""
    answer = list_offset(c, topic, timestamp, partition=partition, to=to)
    c.error(answer.error_code, ErrorCode.NONE, "ListOffsets error_code")
    return answer.offset
