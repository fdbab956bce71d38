"""Markers that end a transaction in a partition: commit or abort (KIP-98)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..metadata.topic_names import CONSUMER_OFFSETS
from ..protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from .broker import Broker

# That a group coordinator is not ready is nothing that a transaction coordinator has to know.
_NOT_READY = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
)


def write_marker(
    broker: Broker,
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
    """Write the marker of one transaction into one partition that is led here.

    ``written`` is called once it is below the high watermark, now or later; or with KAFKA_STORAGE_ERROR,
    NOT_LEADER_OR_FOLLOWER or UNKNOWN_TOPIC_OR_PARTITION if nobody knows whether it ever will be. Nobody may be told
    before that the transaction has ended: its coordinator would forget it, and the partition might lose the marker.

    Offsets of groups are the group coordinator's: it must see that they count now, or never will.

    Raises:
        KafkaError: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, INVALID_PRODUCER_EPOCH,
            TRANSACTION_COORDINATOR_FENCED.
    """
    partition = broker.replicas.partition_by_key(topic, index)
    if partition is None or partition.offline:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic != CONSUMER_OFFSETS:
        info = partition.append_marker(
            producer_id,
            producer_epoch,
            coordinator_epoch=coordinator_epoch,
            committed=committed,
            transaction_version=transaction_version,
            now_ms=broker.now_ms(),
        )
        partition.when_committed(info.last_offset + 1, written)
        return
    try:
        end_offset = broker.groups.end_transaction(
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
