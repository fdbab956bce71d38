"""InitProducerId (API key 22): a producer id and epoch (KIP-98).

- Versions 0 to 5. Without a transactional id every call gets a new id with epoch 0; ids come in blocks from the
  controller.
- With a transactional id the transaction coordinator answers: the id's epoch is bumped, so that whoever had it before
  can write no more, and a transaction that was left open is aborted first (CONCURRENT_TRANSACTIONS until that is done).
- Since version 3 a producer may say which id and epoch it has, and is fenced if somebody came after it (KIP-360).
  PRODUCER_FENCED since version 4, INVALID_PRODUCER_EPOCH before.
- Two-phase commit (version 6, KIP-939) is not served, as in Apache Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ...protocol.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ..request import PARKED, Parked

if TYPE_CHECKING:
    from ..broker import Broker
    from ..request import RequestContext


def handle(broker: Broker, context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse | Parked:
    """Give out the next producer id, or have the coordinator do so."""
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A producer id comes with its epoch, or neither of them.")
    transactional_id = request.transactional_id
    if transactional_id is None:
        return InitProducerIdResponse(producer_id=broker.next_producer_id(), producer_epoch=0)
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The transactional id is empty.")
    broker.transactions.run(transactional_id, context, lambda shard, now: shard.init_producer_id(context, request, now))
    return PARKED


def failed(request: InitProducerIdRequest, error: KafkaError) -> InitProducerIdResponse:
    """An error comes without an id."""
    return InitProducerIdResponse(error_code=error.code, producer_id=-1, producer_epoch=-1)
