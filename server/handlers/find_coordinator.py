"""FindCoordinator (API key 10): which broker coordinates a group or a transactional id.

- Versions 0 to 6; several keys at once since version 4 (KIP-699).
- There is no coordinator yet (docs/known_gaps.md): the answer is COORDINATOR_NOT_AVAILABLE, which clients retry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ...protocol.uuid import uuid_from_str

if TYPE_CHECKING:
    from ..broker import Broker
    from ..request import RequestContext

_KEY_TYPES = {0: "group", 1: "transaction", 2: "share group"}
_SHARE = 2


def handle(broker: Broker, context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Say for every key that its coordinator is not available."""
    kind = _KEY_TYPES.get(request.key_type)
    if context.api_version >= 4 and not request.coordinator_keys:
        return FindCoordinatorResponse()
    if kind is None or (request.key_type == _SHARE and context.api_version < 6):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{request.key_type} is no coordinator type of this version.")
    response = failed(
        request, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"This server has no {kind} coordinator yet.")
    )
    if request.key_type == _SHARE:
        for coordinator in response.coordinators:
            if not _is_share_key(coordinator.key):
                coordinator.error_code = ErrorCode.INVALID_REQUEST
                coordinator.error_message = f"{coordinator.key!r} is not of the form group:topic id:partition."
    return response


def _is_share_key(key: str) -> bool:
    group, _, rest = key.partition(":")
    topic_id, _, partition = rest.partition(":")
    if not group or not (partition.isascii() and partition.isdecimal()):
        return False
    try:
        uuid_from_str(topic_id)
    except ValueError:
        return False
    return True


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
