"""Metrics of topics and partitions: traffic, logs, replicas, offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from .families import Family, Kind, Sample, counter, gauge, labels

if TYPE_CHECKING:
    from ...metadata.image import MetadataImage
    from ...replication.partition import Partition
    from ...replication.replicas import Replicas

_TRAFFIC: Final = (
    ("MessagesInPerSec", "messages_in", "Records appended."),
    ("BytesInPerSec", "bytes_in", "Bytes of records appended."),
    ("BytesOutPerSec", "bytes_out", "Bytes of records sent to consumers."),
    ("BytesRejectedPerSec", "bytes_rejected", "Bytes of batches larger than max.message.bytes."),
    ("TotalProduceRequestsPerSec", "produces", "Appends that clients have requested."),
    ("TotalFetchRequestsPerSec", "fetches", "Reads that consumers and followers have requested."),
    ("FailedProduceRequestsPerSec", "failed_produces", "Appends that have failed."),
    ("FailedFetchRequestsPerSec", "failed_fetches", "Reads that have failed."),
    ("ProduceMessageConversionsPerSec", "conversions", "Batches that the broker has compressed again."),
    ("FetchMessageConversionsPerSec", None, "Always 0: batches are sent as they are stored."),
)


class PartitionRow(NamedTuple):
    """The metrics of a partition, read together."""

    labels: str
    leads: bool
    leader: int
    preferred: int
    replicas: int
    isr: int
    is_under_replicated: bool
    min_isr: int
    offline: bool
    size: int
    start_offset: int
    end_offset: int
    high_watermark: int
    segments: int


class Totals:
    """Sums over the partitions of this broker."""

    def __init__(self) -> None:
        self.partitions = self.leaders = self.under_replicated = self.under_min_isr = self.at_min_isr = 0
        self.offline = 0

    def add(self, row: PartitionRow) -> None:
        """Add a partition."""
        self.partitions += 1
        self.offline += row.offline
        if row.leads:
            self.leaders += 1
            self.under_replicated += row.is_under_replicated
            self.under_min_isr += row.isr < row.min_isr
            self.at_min_isr += row.isr == row.min_isr


def topic_families(
    replicas: Replicas, image: Callable[[], MetadataImage], max_partitions: int
) -> Iterator[Family | None]:
    """The metrics of topics and partitions. None: a moment to pause."""
    yield from _traffic(replicas, image())
    totals = Totals()
    rows: list[PartitionRow] = []
    omitted = 0
    for partitions in replicas.topics():
        for partition in list(partitions.values()):
            row = _row(partition, image())
            totals.add(row)
            if len(rows) < max_partitions:
                rows.append(row)
            else:
                omitted += 1
            yield None
    yield from _replica_families(totals, replicas)
    yield from _partition_families(rows)
    yield gauge("moldau_metrics_omitted_partitions", "Partitions above moldau.metrics.max.partitions.", omitted)


def _traffic(replicas: Replicas, image: MetadataImage) -> Iterator[Family]:
    topics = replicas.traffic.copy()
    named = {
        labels(topic=image.topics_by_id[topic_id].name): traffic
        for topic_id, traffic in topics.items()
        if topic_id in image.topics_by_id
    }
    removed = replicas.removed_traffic
    for name, attribute, text in _TRAFFIC:
        samples = [Sample(each, getattr(traffic, attribute) if attribute else 0) for each, traffic in named.items()]
        total = sum(getattr(each, attribute) for each in (removed, *topics.values())) if attribute else 0
        yield Family(f"kafka.server:BrokerTopicMetrics:{name}", Kind.COUNTER, text, [Sample("", total), *samples])
    for name, attribute, text in (
        ("IsrShrinksPerSec", "isr_shrinks", "Reductions of in-sync sets of led partitions."),
        ("IsrExpandsPerSec", "isr_expands", "Expansions of in-sync sets of led partitions."),
    ):
        total = sum(getattr(each, attribute) for each in (removed, *topics.values()))
        yield counter(f"kafka.server:ReplicaManager:{name}", text, total)


def _row(partition: Partition, image: MetadataImage) -> PartitionRow:
    log = partition.log
    replicas = partition.replicas
    missing = len(replicas) - len(partition.isr)
    if missing > 0:
        # The new replicas of a reassignment need not be in sync, as in Apache Kafka.
        registration = image.partition(partition.topic, partition.index)
        missing -= 0 if registration is None else len(registration.adding_replicas)
    return PartitionRow(
        labels(topic=partition.topic, partition=partition.index),
        partition.leader_id == partition.local_id,
        partition.leader_id,
        replicas[0] if replicas else -1,
        len(replicas),
        len(partition.isr),
        missing > 0,
        min(partition.min_insync_replicas, len(replicas)),
        partition.offline,
        log.size,
        log.log_start_offset,
        log.log_end_offset,
        partition.high_watermark,
        len(log.segments),
    )


def _replica_families(totals: Totals, replicas: Replicas) -> Iterator[Family]:
    offline = totals.offline + replicas.offline_count
    for name, value, text in (
        ("LeaderCount", totals.leaders, "Partitions that this broker leads."),
        ("PartitionCount", totals.partitions, "Partitions with a replica on this broker."),
        ("UnderReplicatedPartitions", totals.under_replicated, "Led partitions with replicas that are not in sync."),
        ("UnderMinIsrPartitionCount", totals.under_min_isr, "Led partitions below min.insync.replicas."),
        ("AtMinIsrPartitionCount", totals.at_min_isr, "Led partitions with exactly min.insync.replicas."),
        ("OfflineReplicaCount", offline, "Replicas in failed log directories."),
    ):
        yield gauge(f"kafka.server:ReplicaManager:{name}", text, value)


def _partition_families(rows: list[PartitionRow]) -> Iterator[Family]:
    led = [row for row in rows if row.leads]

    def family(name: str, text: str, of: list[PartitionRow], value: Callable[[PartitionRow], int]) -> Family:
        return Family(name, Kind.GAUGE, text, (Sample(row.labels, value(row)) for row in of))

    yield family(
        "kafka.cluster:Partition:UnderMinIsr", "Below min.insync.replicas.", led, lambda row: int(row.isr < row.min_isr)
    )
    yield family(
        "kafka.cluster:Partition:AtMinIsr", "At min.insync.replicas.", led, lambda row: int(row.isr == row.min_isr)
    )
    yield family("kafka.cluster:Partition:ReplicasCount", "Replicas of the partition.", led, lambda row: row.replicas)
    yield family("kafka.log:Log:Size", "Bytes of the log.", rows, lambda row: row.size)
    yield family("kafka.log:Log:LogStartOffset", "The first offset.", rows, lambda row: row.start_offset)
    yield family("kafka.log:Log:LogEndOffset", "The next offset.", rows, lambda row: row.end_offset)
    yield family("kafka.log:Log:NumLogSegments", "Segments of the log.", rows, lambda row: row.segments)
    yield family("kafka_topic_partition_current_offset", "The high watermark.", led, lambda row: row.high_watermark)
    yield family("kafka_topic_partition_oldest_offset", "The first offset.", led, lambda row: row.start_offset)
    yield family("kafka_topic_partition_replicas", "Replicas of the partition.", led, lambda row: row.replicas)
    yield family("kafka_topic_partition_in_sync_replica", "Replicas that are in sync.", led, lambda row: row.isr)
    yield family("kafka_topic_partition_leader", "The leader.", led, lambda row: row.leader)
    yield family(
        "kafka_topic_partition_leader_is_preferred",
        "Whether the leader is the preferred one.",
        led,
        lambda row: int(row.leader == row.preferred),
    )
    yield family(
        "kafka_topic_partition_under_replicated_partition",
        "Whether a replica is not in sync.",
        led,
        lambda row: int(row.is_under_replicated),
    )
