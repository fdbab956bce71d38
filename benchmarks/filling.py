"""Fills topics quickly: the same batch, encoded once, is sent repeatedly through the socket."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ..testing.wire import WireClient
from . import load
from .measurement import create_topic
from .row import Bench, Server

RECORD_BYTES = 1000

_IN_FLIGHT = 4


@dataclass(frozen=True)
class Filled:
    """The content of partition 0 of a topic."""

    topic: str
    records: int
    size: int
    files: tuple[Path, ...]
    """The segments, oldest first."""


def fill(bench: Bench, server: Server, topic: str, *, size: int, batch_bytes: int) -> Filled:
    """Produce ``size`` bytes or a little more to partition 0 of an empty topic, in batches of about ``batch_bytes``."""
    records = max(1, batch_bytes // RECORD_BYTES)
    batch = load.batch_of(records, RECORD_BYTES)
    count = -(-size // len(batch))
    load.fill(bench, server, topic, batch, count, in_flight=_IN_FLIGHT)
    files = tuple(sorted((server.data_dir / f"{topic}-0").glob("*.log")))
    return Filled(topic, count * records, count * len(batch), files)


def fill_each_partition(server: Server, topic: str, partitions: int) -> None:
    """Produce one record to each partition, so that each has its files on disk."""
    batch = load.batch_of(1, 100)
    data = [PartitionProduceData(index=index, records=batch) for index in range(partitions)]
    request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=data)])
    with WireClient(server.bootstrap_servers, timeout_s=60.0) as wire:
        (answered,) = wire.call(request, load.PRODUCE_VERSION).responses
    failed = [partition.index for partition in answered.partition_responses if partition.error_code]
    if failed or len(answered.partition_responses) != partitions:
        raise RuntimeError(f"{len(failed)} of {partitions} partitions of {topic} rejected the record")


def topic_with_records(server: Server, topic: str, partitions: int) -> None:
    """A new topic with one record in each partition."""
    create_topic(server, topic, partitions=partitions, config={})
    fill_each_partition(server, topic, partitions)
