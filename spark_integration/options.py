"""The options of ``format("kafka")``, as Python values instead of JSON in strings.

One dictionary serves ``spark.read``, ``spark.readStream``, ``DataFrame.write`` and ``writeStream``. The source reads
the option ``subscribe`` and the sink the option ``topic``; each ignores the other's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

# One topic; several topics; all topics whose name matches (in Java's syntax); or chosen partitions, by topic.
Topics = str | Sequence[str] | re.Pattern[str] | Mapping[str, Sequence[int]]

# A number for each partition of a single topic, or for each partition by topic.
PartitionNumbers = Mapping[int, int] | Mapping[str, Mapping[int, int]]

# By partition: an offset, or -2 for the earliest and -1 for the latest.
Offsets = Literal["earliest", "latest"] | PartitionNumbers

# Milliseconds since 1970, for all partitions or for each.
Timestamps = int | PartitionNumbers


class HasBootstrapServers(Protocol):
    """Any object with the address of a broker, such as ``moldau.testing.Broker``."""

    @property
    def bootstrap_servers(self) -> str: ...


def kafka_options(
    broker: HasBootstrapServers | str,
    topic: Topics,
    *,
    starting_offsets: Offsets | None = None,
    ending_offsets: Offsets | None = None,
    starting_timestamp_ms: Timestamps | None = None,
    ending_timestamp_ms: Timestamps | None = None,
    no_record_since_timestamp: Literal["error", "latest"] | None = None,
    include_headers: bool = False,
    fail_on_data_loss: bool | None = None,
    client: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Options to read ``topic`` from, or write it to, the broker (an address ``HOST:PORT``, or an object with one).

    ``topic``: a topic; for reading also several (``["a", "b"]``), a pattern (``re.compile("orders-.*")``) or chosen
    partitions (``{"a": [0, 2]}``).
    ``starting_offsets`` are inclusive and ``ending_offsets`` exclusive. A mapping must name every partition, as Spark
    requires: ``{0: 5, 1: -1}`` for one topic, ``{"a": {0: 5}, "b": {0: -2}}`` for several. A timestamp (milliseconds
    since 1970, one for all or one for each partition) stands for the first offset of a partition at or after that time.
    ``no_record_since_timestamp`` decides about a partition that has no such record to start at. Spark's defaults: a
    batch reads from the earliest to the latest offset, a stream starts at the latest, and a partition without a record
    to start at is an error.
    ``client``: settings of the Kafka client in Spark, without their prefix: ``{"max.request.size": "2000000"}``.
    """
    if starting_offsets is not None and starting_timestamp_ms is not None:
        raise ValueError("starting_offsets and starting_timestamp_ms are mutually exclusive: give only one")
    if ending_offsets is not None and ending_timestamp_ms is not None:
        raise ValueError("ending_offsets and ending_timestamp_ms are mutually exclusive: give only one")
    chosen: dict[str, str | None] = {
        "kafka.bootstrap.servers": broker if isinstance(broker, str) else broker.bootstrap_servers,
        **_topic_options(topic),
        "startingOffsets": _offsets_text(topic, starting_offsets),
        "endingOffsets": _offsets_text(topic, ending_offsets),
        **_timestamp_options(topic, "starting", starting_timestamp_ms),
        **_timestamp_options(topic, "ending", ending_timestamp_ms),
        "startingOffsetsByTimestampStrategy": no_record_since_timestamp,
        "includeHeaders": "true" if include_headers else None,
        "failOnDataLoss": None if fail_on_data_loss is None else str(fail_on_data_loss).lower(),
    }
    options = {name: value for name, value in chosen.items() if value is not None}
    return options | {f"kafka.{name}": value for name, value in (client or {}).items()}


def _topic_options(topic: Topics) -> dict[str, str]:
    match topic:
        case str():
            return {"subscribe": topic, "topic": topic}
        case re.Pattern():
            return {"subscribePattern": topic.pattern}
        case Mapping():
            return {"assign": json.dumps({name: list(partitions) for name, partitions in topic.items()})}
        case _:
            return {"subscribe": ",".join(topic)}


def _offsets_text(topic: Topics, offsets: Offsets | None) -> str | None:
    return offsets if offsets is None or isinstance(offsets, str) else _partitions_text(topic, offsets)


def _timestamp_options(topic: Topics, end: str, timestamps: Timestamps | None) -> dict[str, str]:
    if timestamps is None:
        return {}
    if isinstance(timestamps, int):
        return {f"{end}Timestamp": str(timestamps)}
    return {f"{end}OffsetsByTimestamp": _partitions_text(topic, timestamps)}


def _partitions_text(topic: Topics, numbers: PartitionNumbers) -> str:
    """Spark's JSON of numbers by topic and partition."""
    by_topic: dict[str, dict[str, int]] = {}
    for key, value in sorted(numbers.items()):
        if isinstance(value, Mapping):
            by_topic[str(key)] = {str(partition): number for partition, number in sorted(value.items())}
        else:
            assert isinstance(value, int)
            by_topic.setdefault(_only_topic(topic), {})[str(key)] = value
    return json.dumps(by_topic)


def _only_topic(topic: Topics) -> str:
    names = [topic] if isinstance(topic, str) else [] if isinstance(topic, re.Pattern) else list(topic)
    if len(names) != 1:
        raise ValueError(f"{topic!r} is not one topic: give the numbers by topic, as {{'a': {{0: 5}}}}")
    return names[0]
