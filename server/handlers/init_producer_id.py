"""InitProducerId (API key 22): a producer id for an idempotent producer (KIP-98).

- Versions 0 to 5. Without a transactional id every call gets a new id with epoch 0; ids come in blocks from the
  controller.
- With a transactional id it is for the transaction coordinator, which is not there yet: COORDINATOR_NOT_AVAILABLE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from ..broker import Broker
    from ..request import RequestContext


def handle(broker: Broker, context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Give out the next producer id."""
    if request.transactional_id is not None:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if request.transactional_id else ErrorCode.INVALID_REQUEST
        raise KafkaError(code)
    return InitProducerIdResponse(producer_id=broker.next_producer_id(), producer_epoch=0)


def failed(request: InitProducerIdRequest, error: KafkaError) -> InitProducerIdResponse:
    """An error comes without an id."""
    return InitProducerIdResponse(error_code=error.code, producer_id=-1, producer_epoch=-1)
