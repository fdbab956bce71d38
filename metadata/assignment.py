"""Replicas that a request assigns, and the record of a new partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..protocol.errors import ErrorCode, KafkaError
from .features import DIRECTORIES_SINCE, partition_version
from .outcome import Versioned
from .records import PartitionRecord
from .registrations import UNASSIGNED_DIRECTORY

if TYPE_CHECKING:
    from .image import MetadataImage


def validate_replicas(image: MetadataImage, replicas: Sequence[int], replication_factor: int | None = None) -> None:
    """Raise INVALID_REPLICA_ASSIGNMENT unless these are registered brokers without duplicates.

    `replication_factor`, if given, is the required number of replicas.
    """
    if not replicas:
        raise _refusal("A partition needs at least one replica.")
    previous: int | None = None
    for replica in sorted(replicas):
        if replica not in image.brokers:
            raise _refusal(f"Broker {replica} is not registered.")
        if replica == previous:
            raise _refusal(f"Broker {replica} is listed more than once for a partition.")
        previous = replica
    if replication_factor is not None and len(replicas) != replication_factor:
        raise _refusal(
            f"Partitions have {len(replicas)} and {replication_factor} replicas; all partitions need the same number."
        )


def check_replica_count(count: int, limit: int) -> None:
    """Raise INVALID_REPLICATION_FACTOR if a partition would have more replicas than `moldau.max.replicas`."""
    if count > limit:
        message = f"A partition of this cluster has at most {limit} replica(s), not {count} (moldau.max.replicas)."
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)


def validate_manual_assignment(
    image: MetadataImage, replicas: Sequence[int], replication_factor: int | None, partition: int
) -> None:
    """The same as `validate_replicas`, for a new partition. At least one replica must be able to lead."""
    validate_replicas(image, replicas, replication_factor)
    if not any(image.brokers[replica].is_active for replica in replicas):
        raise _refusal(f"All brokers for partition {partition} are fenced or shutting down.")


def default_directory(image: MetadataImage, broker_id: int) -> bytes:
    """The directory of a broker's new replica: its only directory, otherwise the broker chooses (KIP-858)."""
    broker = image.brokers.get(broker_id)
    if broker is not None and len(broker.directories) == 1:
        return broker.directories[0]
    return UNASSIGNED_DIRECTORY


def new_partition_record(image: MetadataImage, topic_id: bytes, partition: int, replicas: Sequence[int]) -> Versioned:
    """The record of a new partition: all active replicas are in sync, and the first of them leads in epoch 0."""
    isr = [replica for replica in replicas if image.brokers[replica].is_active]
    if not isr:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "All brokers for the partition are fenced or shutting down.",
        )
    record = PartitionRecord(
        partition_id=partition,
        topic_id=topic_id,
        replicas=list(replicas),
        isr=isr,
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
    )
    if image.metadata_version >= DIRECTORIES_SINCE:
        record.directories = [default_directory(image, replica) for replica in replicas]
    return Versioned(record, partition_version(image.metadata_version))


def _refusal(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
