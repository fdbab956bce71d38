"""The options of ``format("kafka")``, with Python's values instead of JSON inside strings.

One dictionary serves all four uses: ``spark.read``, ``spark.readStream``, ``DataFrame.write`` and ``writeStream``. The
source reads ``subscribe`` and the sink ``topic``, and each leaves the other's alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Literal, Protocol

# By partition: an offset, or -2 for the earliest and -1 for the latest.
Offsets = Literal["earliest", "latest"] | Mapping[int, int]


class HasBootstrapServers(Protocol):
    """Anything that knows a broker's address, such as ``moldau.testing.Broker``."""

    @property
    def bootstrap_servers(self) -> str: ...


def kafka_options(
    broker: HasBootstrapServers | str,
    topic: str,
    *,
    starting_offsets: Offsets | None = None,
    ending_offsets: Offsets | None = None,
    starting_timestamp_ms: int | None = None,
    ending_timestamp_ms: int | None = None,
    include_headers: bool = False,
    fail_on_data_loss: bool | None = None,
    client: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Options to read ``topic`` from, or write it to, the broker (an address ``HOST:PORT``, or something that has one).

    ``starting_offsets`` is included in what is read, ``ending_offsets`` is not; a mapping must name every partition,
    as Spark wants it. The timestamps (milliseconds since 1970) stand for the first offset of each partition at or
    after them. Spark's defaults where nothing is given: a batch reads from the earliest to the latest, a stream from
    the latest.
    ``client``: settings of the Kafka client inside Spark, without their prefix: ``{"max.request.size": "2000000"}``.
    """
    if starting_offsets is not None and starting_timestamp_ms is not None:
        raise ValueError("starting_offsets and starting_timestamp_ms both say where to start: give one of them")
    if ending_offsets is not None and ending_timestamp_ms is not None:
        raise ValueError("ending_offsets and ending_timestamp_ms both say where to end: give one of them")
    chosen: dict[str, str | None] = {
        "kafka.bootstrap.servers": broker if isinstance(broker, str) else broker.bootstrap_servers,
        "subscribe": topic,
        "topic": topic,
        "startingOffsets": _offsets_text(topic, starting_offsets),
        "endingOffsets": _offsets_text(topic, ending_offsets),
        "startingTimestamp": None if starting_timestamp_ms is None else str(starting_timestamp_ms),
        "endingTimestamp": None if ending_timestamp_ms is None else str(ending_timestamp_ms),
        "includeHeaders": "true" if include_headers else None,
        "failOnDataLoss": None if fail_on_data_loss is None else str(fail_on_data_loss).lower(),
    }
    options = {name: value for name, value in chosen.items() if value is not None}
    return options | {f"kafka.{name}": value for name, value in (client or {}).items()}


def _offsets_text(topic: str, offsets: Offsets | None) -> str | None:
    if offsets is None or isinstance(offsets, str):
        return offsets
    return json.dumps({topic: {str(partition): offset for partition, offset in sorted(offsets.items())}})
