"""Metrics of the cluster as this node knows it: the controller, the metadata log, brokers and topics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...metadata.quorum import Metadata
from .families import Family, Kind, Sample, counter, gauge, labels

if TYPE_CHECKING:
    from ...metadata.image import MetadataImage
    from ..broker import Broker
    from .rates import Rates


def cluster_families(broker: Broker, rates: Rates, now: float, max_partitions: int) -> Iterator[Family | None]:
    """The metrics of the cluster. None: a moment to pause."""
    image = broker.metadata.image
    if not broker.has_remote_controller:
        assert isinstance(broker.metadata, Metadata), "this node has no controller"
        yield from _controller(image, broker.metadata.controller.unclean_elections)
    yield from _metadata_log(broker, rates, now)
    yield gauge("kafka_brokers", "Brokers of the cluster.", len(image.brokers))
    yield Family(
        "kafka_broker_info", Kind.GAUGE, "The address of a broker.", [Sample(text, 1) for text in _addresses(image)]
    )
    samples = []
    for topic in image.topics_by_name.values():
        first = topic.partitions.get(0)
        if first is not None and first.leader == broker.node_id:  # one broker of the cluster reports it
            samples.append(Sample(labels(topic=topic.name), len(topic.partitions)))
        if len(samples) >= max_partitions:
            break
        yield None
    yield Family("kafka_topic_partitions", Kind.GAUGE, "Partitions of a topic.", samples)


def _addresses(image: MetadataImage) -> Iterator[str]:
    for broker in image.brokers.values():
        for listener in broker.listeners.values():
            yield labels(id=broker.id, address=f"{listener.host}:{listener.port}")
            break


def _controller(image: MetadataImage, unclean_elections: int) -> Iterator[Family | None]:
    offline = partitions = imbalanced = 0
    for topic in image.topics_by_name.values():
        partitions += len(topic.partitions)
        for partition in topic.partitions.values():
            offline += partition.leader < 0
            imbalanced += partition.leader != partition.replicas[0] if partition.replicas else 0
        yield None
    fenced = sum(broker.fenced for broker in image.brokers.values())
    for name, value, text in (
        ("ActiveControllerCount", 1, "1 if this node is the active controller."),
        ("ActiveBrokerCount", len(image.brokers) - fenced, "Brokers that are not fenced."),
        ("FencedBrokerCount", fenced, "Brokers that are fenced."),
        ("GlobalTopicCount", len(image.topics_by_name), "Topics of the cluster."),
        ("GlobalPartitionCount", partitions, "Partitions of the cluster."),
        ("OfflinePartitionsCount", offline, "Partitions without a leader."),
        ("PreferredReplicaImbalanceCount", imbalanced, "Partitions that their first replica does not lead."),
        ("MetadataErrorCount", 0, "Always 0: a controller that cannot apply a record ends."),
        ("LastCommittedRecordOffset", image.offset, "The offset of the last committed record of the metadata log."),
        ("LastAppliedRecordOffset", image.offset, "The offset of the last applied record of the metadata log."),
        ("LastAppliedRecordLagMs", 0, "Always 0: the active controller applies records when they are committed."),
    ):
        yield gauge(f"kafka.controller:KafkaController:{name}", text, value)
    yield counter(
        "kafka.controller:ControllerStats:UncleanLeaderElectionsPerSec",
        "Leaders elected without being in sync.",
        unclean_elections,
    )


def _metadata_log(broker: Broker, rates: Rates, now: float) -> Iterator[Family]:
    metadata = broker.metadata
    leader, epoch = metadata.quorum_leader
    end_offset = metadata.log.log_end_offset
    is_leader = not broker.has_remote_controller
    appended = rates.per_second("metadata", end_offset, now)
    for name, value, text in (
        ("current-leader", leader, "The active controller; -1 if it is unknown."),
        ("current-epoch", epoch, "The epoch of the quorum."),
        ("current-vote", broker.node_id if is_leader else -1, "The candidate that this node has voted for."),
        ("high-watermark", metadata.image.offset + 1, "The committed records of the metadata log."),
        ("log-end-offset", end_offset, "The end of the metadata log on this node."),
        ("append-records-rate", appended if is_leader else 0.0, "Records appended per second by the controller."),
        ("fetch-records-rate", 0.0 if is_leader else appended, "Records copied per second from the controller."),
    ):
        yield gauge(f"kafka.server:raftmetrics:{name}", text, value)
    state = "leader" if is_leader else "observer"
    yield Family(
        "kafka.server:raftmetrics:current-state",
        Kind.GAUGE,
        "The state of this node in the quorum.",
        [Sample(labels(current_state=state), 1)],
    )
