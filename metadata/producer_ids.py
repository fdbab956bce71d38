"""AllocateProducerIds (67): allocates a unique block of 1,000 producer ids to a broker (KIP-730).

The ProducerIdsRecord holds the first id of the next block. Unused ids of a block are lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from .brokers import check_broker_epoch
from .outcome import Outcome, Versioned
from .records import ProducerIdsRecord

if TYPE_CHECKING:
    from .image import MetadataImage

BLOCK_SIZE: Final = 1000
_MAX_INT64: Final = 2**63 - 1


def allocate_producer_ids(
    image: MetadataImage, request: AllocateProducerIdsRequest
) -> Outcome[AllocateProducerIdsResponse]:
    """Decide on an AllocateProducerIdsRequest. Raises STALE_BROKER_EPOCH for an earlier incarnation of the broker."""
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    first = 0 if image.producer_ids is None else image.producer_ids.next_producer_id
    if first > _MAX_INT64 - BLOCK_SIZE:
        message = "All producer IDs have been allocated."
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message)
    record = ProducerIdsRecord(
        broker_id=request.broker_id, broker_epoch=request.broker_epoch, next_producer_id=first + BLOCK_SIZE
    )
    response = AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=BLOCK_SIZE)
    return Outcome(response, [Versioned(record)])
