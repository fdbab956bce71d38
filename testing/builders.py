"""Requests and batches for tests that use the protocol directly, with `WireClient`."""

from __future__ import annotations

import time
from typing import Any

from ..protocol.compression import Codec
from ..protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from ..protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from ..protocol.records import Record, build_batch, iter_batches, iter_records
from .wire import WireClient

PRODUCE_VERSION = 9
FETCH_VERSION = 12


def batch(*values: bytes | None, codec: Codec = Codec.NONE, **options: Any) -> bytes:
    """A record batch of these values, stamped now; ``options`` are those of `build_batch`."""
    now_ms = int(time.time() * 1000)
    records = [Record(offset=i, timestamp=now_ms, key=None, value=v, headers=[]) for i, v in enumerate(values)]
    return build_batch(records, codec=codec, **options)


def produce_request(topic: str, records: bytes | None, *, partition: int = 0, acks: int = 1) -> ProduceRequest:
    """A request with one batch for one partition."""
    data = PartitionProduceData(index=partition, records=records)
    return ProduceRequest(
        acks=acks, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )


def produce(
    wire: WireClient, topic: str, records: bytes | None, *, partition: int = 0, acks: int = 1
) -> PartitionProduceResponse:
    """Produce one batch, and return its partition's response."""
    response = wire.call(produce_request(topic, records, partition=partition, acks=acks), PRODUCE_VERSION)
    answer: PartitionProduceResponse = response.responses[0].partition_responses[0]
    return answer


def fetch_request(
    topic: str,
    offset: int = 0,
    *,
    partition: int = 0,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
) -> FetchRequest:
    """A request for one partition, without a session."""
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )


def fetch(wire: WireClient, topic: str, offset: int = 0, **options: int) -> PartitionData:
    """Fetch one partition, and return its response."""
    response = wire.call(fetch_request(topic, offset, **options), FETCH_VERSION)
    answer: PartitionData = response.responses[0].partitions[0]
    return answer


def values(partition: PartitionData) -> list[bytes | None]:
    """The values of the records of a fetch response."""
    records: Any = partition.records or b""  # bytes in a received response
    return [record.value for found in iter_batches(records) for record in iter_records(found)]
