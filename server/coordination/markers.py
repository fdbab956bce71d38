"""Markers that end a transaction in a partition: commit or abort (KIP-98)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...metadata.topic_names import CONSUMER_OFFSETS
from ...protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ...replication.replicas import Replicas
    from ..concurrency.clock import Clock
    from .groups import GroupCoordinators

# The states of a group coordinator that is not ready; the transaction coordinator need not know them.
_NOT_READY = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
)


class MarkerWriter:
    """Writes markers into the partitions that this broker leads."""

    def __init__(self, replicas: Replicas, now_ms: Clock, groups: Callable[[], GroupCoordinators]) -> None:
        """``groups`` returns the group coordinator, which is created on first use."""
        self._replicas = replicas
        self._now_ms = now_ms
        self._groups = groups

    def write(
        self,
        topic: str,
        index: int,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        committed: bool,
        transaction_version: int,
        written: Callable[[KafkaError | None], None],
    ) -> None:
        """Write the marker of one transaction into one partition that this broker leads.

        ``written`` is called once the marker is below the high watermark, now or later. If it is unknown whether the
        marker ever will be, ``written`` is called with KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER or
        UNKNOWN_TOPIC_OR_PARTITION. Before the call, no client may learn that the transaction has ended: its coordinator
        would forget the transaction, and the partition could lose the marker.

        The group coordinator writes the markers of its own partitions, because they decide whether offsets take effect.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, INVALID_PRODUCER_EPOCH,
                TRANSACTION_COORDINATOR_FENCED.
        """
        partition = self._replicas.partition_by_key(topic, index)
        if partition is None or partition.offline:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if topic != CONSUMER_OFFSETS:
            info = partition.append_marker(
                producer_id,
                producer_epoch,
                coordinator_epoch=coordinator_epoch,
                committed=committed,
                transaction_version=transaction_version,
                now_ms=self._now_ms(),
            )
            partition.when_committed(info.last_offset + 1, written)
            return
        try:
            end_offset = self._groups().end_transaction(
                index,
                producer_id,
                producer_epoch,
                coordinator_epoch=coordinator_epoch,
                committed=committed,
                transaction_version=transaction_version,
            )
        except KafkaError as error:
            if error.code in _NOT_READY:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.message) from error
            raise
        partition.when_committed(end_offset, written)
