"""The state of partitions, which several APIs return in the same way: Metadata and DescribeTopicPartitions, Produce and
Fetch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ...metadata.image import MetadataImage
    from ...metadata.registrations import PartitionRegistration, TopicImage
    from ...replication.partition import Partition
    from ...replication.replicas import TopicKey
    from ..broker import Broker

# Errors of partitions after which a client looks for the leader. The responses of Produce and Fetch name it (KIP-951).
LEADER_ERRORS = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


def current_leader(broker: Broker, partition: Partition | None, topic: TopicKey, index: int) -> tuple[int, int] | None:
    """The leader of a partition and its epoch, also of a partition without a replica here. None: it is unknown."""
    if partition is not None:
        return partition.leader_id, partition.leader_epoch
    image = broker.metadata.image
    found = image.topics_by_name.get(topic) if isinstance(topic, str) else image.topics_by_id.get(topic)
    registered = None if found is None else found.partitions.get(index)
    return None if registered is None else (registered.leader, registered.leader_epoch)


def leader_error(partition: PartitionRegistration) -> ErrorCode:
    """LEADER_NOT_AVAILABLE for a partition without a leader, otherwise NONE."""
    return ErrorCode.NONE if partition.leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE


def offline_replicas(
    broker: Broker, image: MetadataImage, topic: TopicImage, index: int, partition: PartitionRegistration
) -> list[int]:
    """The replicas on unavailable brokers, or in a failed log directory of this broker."""
    offline = []
    for replica in partition.replicas:
        if replica == broker.node_id:
            local = broker.replicas.partition_by_key(topic.topic_id, index)
            if local is None or local.offline:
                offline.append(replica)
        elif replica not in image.brokers or image.brokers[replica].fenced:
            offline.append(replica)
    return offline
