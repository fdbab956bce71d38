"""FindCoordinator (API key 10): which broker coordinates a group or a transactional id.

- Versions 0 to 6; several keys at once since version 4 (KIP-699).
- There is no coordinator yet (docs/known_gaps.md): the answer is COORDINATOR_NOT_AVAILABLE, which clients retry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from ..broker import Broker
    from ..request import RequestContext

_KEY_TYPES = {0: "group", 1: "transaction", 2: "share group"}


def handle(broker: Broker, context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Say for every key that its coordinator is not available."""
    kind = _KEY_TYPES.get(request.key_type)
    if kind is None or (kind == "share group" and context.api_version < 6):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{request.key_type} is no coordinator type of this version.")
    error = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"This server has no {kind} coordinator yet.")
    return failed(request, error) if request.coordinator_keys or context.api_version < 4 else FindCoordinatorResponse()


def failed(request: FindCoordinatorRequest, error: KafkaError) -> FindCoordinatorResponse:
    """The error, in the form of either range of versions."""
    if not request.coordinator_keys:
        return FindCoordinatorResponse(error_code=error.code, error_message=error.message, node_id=-1, port=-1)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=-1, port=-1, error_code=error.code, error_message=error.message)
            for key in request.coordinator_keys
        ]
    )
