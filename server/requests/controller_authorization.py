"""The authorization checks of the APIs of a controller listener; see `authorization`.

Brokers need CLUSTER_ACTION on the cluster. A request of a client arrives in the Envelope of a broker, and is checked
for the client, or from a tool with ``--bootstrap-controller``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ...protocol.acl import AclOperation as Can
from ...protocol.api import ApiKey
from ..controller_apis import CONTROLLER_APIS
from .authorization import CHECKS, Check, checked_by, on_cluster

if TYPE_CHECKING:
    from ..broker import Broker
    from ..concurrency.slices import Sliced
    from ..context import ServedRequest
    from .dispatch import Route

_OF_BROKERS: Final = on_cluster(Can.CLUSTER_ACTION)

_OWN: Final[dict[ApiKey, Check]] = {
    ApiKey.DESCRIBE_CLUSTER: on_cluster(Can.ALTER),
    ApiKey.FETCH: _OF_BROKERS,
    ApiKey.FETCH_SNAPSHOT: _OF_BROKERS,
    ApiKey.BROKER_REGISTRATION: _OF_BROKERS,
    ApiKey.BROKER_HEARTBEAT: _OF_BROKERS,
    ApiKey.ALTER_PARTITION: _OF_BROKERS,
    ApiKey.ALLOCATE_PRODUCER_IDS: _OF_BROKERS,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: _OF_BROKERS,
    ApiKey.ENVELOPE: _OF_BROKERS,
}

CONTROLLER_CHECKS: Final[dict[ApiKey, Check]] = {
    api.key: _OWN[api.key] if api.key in _OWN else CHECKS[api.key] for api in CONTROLLER_APIS
}


def authorized(node: Broker, context: ServedRequest, route: Route, request: Any) -> Sliced[Any]:
    """Check a request, and call its handler if the check does not refuse it."""
    return (yield from checked_by(CONTROLLER_CHECKS[route.api.key], node, context, route, request))
