"""Where reading starts and ends: offsets, times, "earliest" and "latest", resolved to offsets of each partition.

A time is the first offset whose record has this timestamp or a later one (ListOffsets, KIP-79). The end is exclusive.
Both ends are resolved once, so that a read of a topic that grows is finite, and a repeated read returns the same range.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final

from .errors import TopicReadError

if TYPE_CHECKING:
    from confluent_kafka import Consumer

Position = int | str | datetime
"""An offset (negative: counted from the end of each partition), "earliest", "latest", or a time: a datetime, or text
in ISO 8601. A time without an offset from UTC is local time."""

Positions = Position | Mapping[int, Position]
"""One position for all partitions, or one for each partition."""

Range = tuple[int, int]
"""The first offset, and the offset after the last one."""

_END_OF_PARTITION: Final = -1


def resolve(
    consumer: Consumer, topic: str, partitions: list[int], start: Positions, end: Positions, timeout_s: float
) -> dict[int, Range]:
    """The range of each partition. Raises TopicReadError, KafkaException, and ValueError for an invalid position."""
    from confluent_kafka import TopicPartition

    there = {
        partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout_s, cached=False)
        for partition in partitions
    }
    starts = _offsets(consumer, topic, there, start, "start", timeout_s)
    ends = _offsets(consumer, topic, there, end, "end", timeout_s)
    return {partition: (starts[partition], max(starts[partition], ends[partition])) for partition in partitions}


def _offsets(
    consumer: Consumer, topic: str, there: Mapping[int, Range], positions: Positions, name: str, timeout_s: float
) -> dict[int, int]:
    from confluent_kafka import TopicPartition

    found: dict[int, int] = {}
    times: dict[int, int] = {}
    for partition, (first, after_last) in there.items():
        position = _for_partition(positions, partition, name)
        if isinstance(position, int):
            found[partition] = _checked_offset(topic, partition, position, (first, after_last), name)
        elif position == "earliest":
            found[partition] = first
        elif position == "latest":
            found[partition] = after_last
        else:
            times[partition] = _milliseconds(position, name)
    if times:
        wanted = [TopicPartition(topic, partition, time_ms) for partition, time_ms in times.items()]
        for each in consumer.offsets_for_times(wanted, timeout_s):
            if each.error is not None:
                raise TopicReadError(f"cannot find offsets by time in {topic}-{each.partition}: {each.error.str()}")
            later = each.offset if each.offset != _END_OF_PARTITION else there[each.partition][1]
            found[each.partition] = min(later, there[each.partition][1])
    return found


def _for_partition(positions: Positions, partition: int, name: str) -> Position:
    if not isinstance(positions, Mapping):
        position = positions
    elif partition in positions:
        position = positions[partition]
    else:
        raise ValueError(f"{name} has no position for partition {partition}; add one, or set `partitions`")
    if isinstance(position, bool):
        raise ValueError(f"{name} is {position}; use an offset, 'earliest', 'latest', or a time")
    return position


def _checked_offset(topic: str, partition: int, offset: int, there: Range, name: str) -> int:
    first, after_last = there
    if offset < 0:
        return max(first, after_last + offset)
    if not first <= offset <= after_last:
        raise TopicReadError(
            f"{name}={offset} is out of range: {topic}-{partition} has the offsets {first} to {after_last} (exclusive)"
        )
    return offset


def _milliseconds(position: object, name: str) -> int:
    moment = position
    if isinstance(position, str):
        try:
            moment = datetime.fromisoformat(position)
        except ValueError:
            moment = None
    if not isinstance(moment, datetime):
        raise ValueError(
            f"{name} is {position!r}; use an offset, 'earliest', 'latest', or a time like 2026-01-31T12:00:00Z"
        )
    return round(moment.timestamp() * 1000)
