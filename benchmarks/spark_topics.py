"""Topics for Spark: filled evenly over all their partitions, and counted over all of them.

Batches have the size of a producer with default settings. They are encoded once for the whole topic; a request contains
one for each partition.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from ..protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ..protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ..protocol.records import Record, build_batch
from ..testing.wire import WireClient
from . import load, page_cache
from .row import Bench, Server
from .spark_jobs import KEY_BYTES

RECORDS_OF_BATCH = 125
"""With 100 bytes each slightly less than 16,384 bytes, and a divisor of all round numbers of records in use."""

_LIST_OFFSETS_VERSION = 4
_LATEST = -1
_IN_FLIGHT = 2


@dataclass(frozen=True)
class FilledTopic:
    name: str
    records: int


def filled_topic(bench: Bench, *, partitions: int, records: int, size: int) -> FilledTopic:
    """A topic with ``records`` of at least ``size`` bytes, on the disk and in the page cache."""
    topic = bench.topic(partitions=partitions)
    requests = -(-records // (partitions * RECORDS_OF_BATCH))
    load.run(bench, bench.server, _produce_to_each(topic, partitions, size), in_flight=_IN_FLIGHT, requests=requests)
    filled = FilledTopic(topic, requests * partitions * RECORDS_OF_BATCH)
    check_records(bench.server, topic, partitions, filled.records)
    page_cache.sync(bench.server.data_dir.glob(f"{topic}-*/*.log"))  # or the disk is written during the reads
    return filled


def check_records(server: Server, topic: str, partitions: int, expected: int) -> None:
    """Raise RuntimeError if the partitions together have a different number of records."""
    wanted = [ListOffsetsPartition(partition_index=index, timestamp=_LATEST) for index in range(partitions)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=wanted)])
    with WireClient(server.bootstrap_servers) as wire:
        (answered,) = wire.call(request, _LIST_OFFSETS_VERSION).topics
    failed = [f"{each.partition_index}: error {each.error_code}" for each in answered.partitions if each.error_code]
    if failed:
        raise RuntimeError(f"the ends of {topic} are not known, {failed[0]}")
    found = sum(each.offset for each in answered.partitions)
    if found != expected:
        raise RuntimeError(f"{topic} should have {expected} records, but has {found}")


def _produce_to_each(topic: str, partitions: int, size: int) -> bytes:
    """A request with the same batch for each partition, stamped now, because retention deletes old records."""
    now_ms = int(time.time() * 1000)
    batch = build_batch(
        [
            Record(offset=i, timestamp=now_ms, key=os.urandom(KEY_BYTES), value=os.urandom(size - KEY_BYTES))
            for i in range(RECORDS_OF_BATCH)
        ]
    )
    data = [PartitionProduceData(index=index, records=batch) for index in range(partitions)]
    request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=data)])
    return load.frame(request, load.PRODUCE_VERSION)
