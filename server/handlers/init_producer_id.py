"""InitProducerId (API key 22): a producer id and epoch (KIP-98).

- Versions 0 to 5. Without a transactional id, every call gets a new id with epoch 0. Ids come in blocks from the
  controller (`coordination.producer_ids`).
- With a transactional id, the transaction coordinator responds. It bumps the epoch of the id, so that earlier producers
  with this id can write no more. An open transaction is aborted first (CONCURRENT_TRANSACTIONS until that is complete).
- Since version 3, a producer may send its id and epoch, and is fenced if a newer producer exists (KIP-360).
  PRODUCER_FENCED since version 4, INVALID_PRODUCER_EPOCH before.
- Two-phase commit (version 6, KIP-939) is not supported, as in Apache Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ...protocol.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ..context import DEFERRED, Deferred

if TYPE_CHECKING:
    from ..broker import Broker
    from ..concurrency.slices import Sliced
    from ..context import RequestContext


def handle(
    broker: Broker, context: RequestContext, request: InitProducerIdRequest
) -> Sliced[InitProducerIdResponse | Deferred]:
    """Assign the next producer id, or have the coordinator do so."""
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Producer id and producer epoch must both be set, or neither.")
    transactional_id = request.transactional_id
    if transactional_id is None:
        producer_id = yield from broker.producer_ids.take()
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The transactional id is empty.")
    yield from broker.producer_ids.ready()  # the first call of a transactional id needs one
    broker.transactions.run(transactional_id, context, lambda shard, now: shard.init_producer_id(context, request, now))
    return DEFERRED


def failed(request: InitProducerIdRequest, error: KafkaError) -> InitProducerIdResponse:
    """The error, without an id."""
    return InitProducerIdResponse(error_code=error.code, producer_id=-1, producer_epoch=-1)
