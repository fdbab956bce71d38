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

        ``written`` is called once, now or later: with None when the marker is below the high watermark, or with the
        error. Before the call, no client may learn that the transaction has ended: its coordinator would forget the
        transaction, and the partition could lose the marker.

        The partition rejects the marker with UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR,
        INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED. The first three are also the errors if it is unknown
        whether the marker will ever be below the high watermark.

        The group coordinator writes the markers of its own partitions, because they decide whether offsets take effect.
        """
        partition = self._replicas.partition_by_key(topic, index)
        if partition is None or partition.offline:
            written(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            return
        try:
            if topic == CONSUMER_OFFSETS:
                end_offset = self._groups().end_transaction(
                    index,
                    producer_id,
                    producer_epoch,
                    coordinator_epoch=coordinator_epoch,
                    committed=committed,
                    transaction_version=transaction_version,
                )
            else:
                info = partition.append_marker(
                    producer_id,
                    producer_epoch,
                    coordinator_epoch=coordinator_epoch,
                    committed=committed,
                    transaction_version=transaction_version,
                    now_ms=self._now_ms(),
                )
                end_offset = info.last_offset + 1
        except KafkaError as error:
            if topic == CONSUMER_OFFSETS and error.code in _NOT_READY:
                error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.message)
            written(error)
            return
        partition.when_committed(end_offset, written)
