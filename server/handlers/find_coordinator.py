"""FindCoordinator (API key 10): the broker that coordinates a group or a transactional id.

- Versions 0 to 6; several keys per request since version 4 (KIP-699). A key that is named twice is returned once.
- The coordinator of a group leads the partition of `__consumer_offsets` that the group id hashes to. The coordinator of
  a transactional id leads the partition of `__transaction_state`. The topic is created by the first request.
- There is no coordinator of share groups yet (docs/known_gaps.md): COORDINATOR_NOT_AVAILABLE, which clients retry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ...protocol.steps import each, each_once
from ...protocol.uuid import uuid_from_str
from .brokers import node_endpoints

if TYPE_CHECKING:
    from ..broker import Broker
    from ..concurrency.slices import Sliced
    from ..context import RequestContext
    from ..coordination.coordinators import Coordinators

_KEY_TYPES = {0: "group", 1: "transaction", 2: "share group"}
_GROUP = 0
_TRANSACTION = 1
_SHARE = 2


def handle(broker: Broker, context: RequestContext, request: FindCoordinatorRequest) -> Sliced[FindCoordinatorResponse]:
    """Find the coordinator of every key. Before version 4, there is one key."""
    if context.api_version >= 4:
        return (yield from _find_all(broker, context, request))
    _check_key_type(context, request)
    found = yield from _find(broker, context, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _find_all(
    broker: Broker, context: RequestContext, request: FindCoordinatorRequest
) -> Sliced[FindCoordinatorResponse]:
    response = FindCoordinatorResponse()
    request.coordinator_keys = yield from each_once(request.coordinator_keys)
    for key in request.coordinator_keys:
        _check_key_type(context, request)
        response.coordinators.append((yield from _find(broker, context, request.key_type, key)))
        yield 0
    return response


def _check_key_type(context: RequestContext, request: FindCoordinatorRequest) -> None:
    if request.key_type not in _KEY_TYPES or (request.key_type == _SHARE and context.api_version < 6):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Coordinator type {request.key_type} is not supported in this version."
        )


def _find(broker: Broker, context: RequestContext, key_type: int, key: str) -> Sliced[Coordinator]:
    try:
        if key_type in (_GROUP, _TRANSACTION):
            coordinators = broker.groups if key_type == _GROUP else broker.transactions
            node_id, host, port = yield from _coordinator(broker, context, coordinators, key)
            return Coordinator(key=key, node_id=node_id, host=host, port=port)
        if key_type == _SHARE and not _is_share_key(key):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Invalid share coordinator key {key!r}; the format is groupId:topicId:partition.",
            )
        raise KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, f"This server does not support the {_KEY_TYPES[key_type]} coordinator."
        )
    except KafkaError as error:
        return Coordinator(key=key, node_id=-1, port=-1, error_code=error.code, error_message=error.message)


def _coordinator(
    broker: Broker, context: RequestContext, coordinators: Coordinators[Any], key: str
) -> Sliced[tuple[int, str, int]]:
    index = yield from coordinators.partition_of(key)
    topic = broker.metadata.image.topics_by_name[coordinators.topic]
    leader = topic.partitions[index].leader
    for node_id, host, port, _ in node_endpoints(broker, context):
        if node_id == leader:
            return node_id, host, port
    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{coordinators.topic}-{index} has no leader.")


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


def failed(
    request: FindCoordinatorRequest, error: KafkaError
) -> FindCoordinatorResponse | Sliced[FindCoordinatorResponse]:
    """The error, in the form of the request's version."""
    if request.coordinator_keys:
        return _failed_keys(request.coordinator_keys, error)
    return FindCoordinatorResponse(error_code=error.code, error_message=error.message, node_id=-1, port=-1)


def _failed_keys(keys: list[str], error: KafkaError) -> Sliced[FindCoordinatorResponse]:
    def refused(key: str) -> Coordinator:
        return Coordinator(key=key, node_id=-1, port=-1, error_code=error.code, error_message=error.message)

    return FindCoordinatorResponse(coordinators=(yield from each(refused, keys)))
