"""Sending records to a topic, as a batch for one partition.

Records without a partition go where Kafka's clients would send them: by the murmur2 hash of the key, or, without a key,
all to one partition that is selected at random.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final, NamedTuple

from ..cli.cluster import Cluster, explain
from ..cli.failure import Failure
from ..protocol.errors import ErrorCode
from ..protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from ..protocol.records import Record, build_batch
from .failures import BadRequest, NotFound
from .fetching import Topic

_LAST_VERSION_WITH_NAMES: Final = 12
# Less than the time for which the client waits for a response.
_TIMEOUT_MS: Final = 4000

_HINTS: Final = {
    ErrorCode.MESSAGE_TOO_LARGE: "the record is larger than the topic's max.message.bytes",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "the console may not write to this topic; add an ACL for writing to it",
    ErrorCode.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas; start their brokers",
    ErrorCode.REQUEST_TIMED_OUT: "the replicas did not confirm the record in time; it may be stored nevertheless",
}
_MISTAKES: Final = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)
"""The record is refused, and would be refused again."""


class Outgoing(NamedTuple):
    """A record to send; ``partition`` None: by the key. ``timestamp_ms`` None: now."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class Sent(NamedTuple):
    """Where a record is stored."""

    partition: int
    offset: int


def send(cluster: Cluster, topic: Topic, records: Sequence[Outgoing], *, now_ms: int) -> list[Sent]:
    """Append records, and return where they are, in their order. Raises Failure.

    The records of one partition are one batch, so they are stored together or not at all.
    """
    without_key = random.choice(topic.partitions)
    places = [_partition(topic, record, without_key) for record in records]
    batches: dict[int, list[int]] = {}
    for number, partition in enumerate(places):
        batches.setdefault(partition, []).append(number)
    stored: dict[int, Sent] = {}
    for partition, numbers in batches.items():
        chosen = [records[number] for number in numbers]
        try:
            base_offset = _append(cluster, topic, partition, chosen, now_ms)
        except Failure as failure:
            if not stored:
                raise
            raise Failure(
                f"{failure.message}\n{len(stored)} records were sent to other partitions before."
            ) from failure
        stored.update((number, Sent(partition, base_offset + index)) for index, number in enumerate(numbers))
    return [stored[number] for number in range(len(records))]


def _partition(topic: Topic, record: Outgoing, without_key: int) -> int:
    if record.partition is not None:
        if record.partition not in topic.leaders:
            last = len(topic.leaders) - 1
            raise NotFound(f"{topic.name} has no partition {record.partition}; its partitions are 0 to {last}")
        return record.partition
    return without_key if record.key is None else (murmur2(record.key) & 0x7FFF_FFFF) % len(topic.leaders)


def _append(cluster: Cluster, topic: Topic, partition: int, records: Sequence[Outgoing], now_ms: int) -> int:
    batch = build_batch(
        [
            Record(0, now_ms if each.timestamp_ms is None else each.timestamp_ms, each.key, each.value, each.headers)
            for each in records
        ]
    )
    if topic.leaders[partition] < 0:
        raise Failure(f"{topic.name}-{partition} has no leader; start its brokers")
    data = TopicProduceData(name=topic.name, partition_data=[PartitionProduceData(index=partition, records=batch)])
    request = ProduceRequest(acks=-1, timeout_ms=_TIMEOUT_MS, topic_data=[data])
    answer = cluster.broker(topic.leaders[partition]).ask(request, at_most=_LAST_VERSION_WITH_NAMES)
    result: PartitionProduceResponse = answer.responses[0].partition_responses[0]
    if result.error_code:
        details = [each.batch_index_error_message for each in result.record_errors if each.batch_index_error_message]
        reason = explain(result.error_code, result.error_message, _HINTS)
        kind = BadRequest if result.error_code in _MISTAKES else Failure
        raise kind(f"{topic.name}-{partition} did not accept the record: {'; '.join([reason, *details[:3]])}")
    return result.base_offset


def murmur2(data: bytes) -> int:
    """The hash of a key by which Kafka's clients select its partition, as an unsigned number of 32 bits."""
    mask, multiplier = 0xFFFF_FFFF, 0x5BD1_E995
    result = (0x9747_B28C ^ len(data)) & mask
    whole = len(data) & ~3
    for position in range(0, whole, 4):
        part = int.from_bytes(data[position : position + 4], "little") * multiplier & mask
        part = (part ^ part >> 24) * multiplier & mask
        result = (result * multiplier & mask) ^ part
    rest = data[whole:]
    if rest:
        result = (result ^ int.from_bytes(rest, "little")) * multiplier & mask
    result = (result ^ result >> 13) * multiplier & mask
    return result ^ result >> 15
