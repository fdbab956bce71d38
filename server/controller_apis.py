"""`CONTROLLER_APIS`: the table of the APIs that a controller listener serves; the columns are those of `apis`.

Brokers register, keep their sessions and fetch the metadata log here, and forward the requests of their clients in
envelopes. Tools with ``--bootstrap-controller`` use it directly.
"""

from __future__ import annotations

from typing import Final

from ..protocol.acl import AclOperation, AclResource
from ..protocol.api import ApiKey
from .apis import APIS, Api, Listeners
from .controller_client import FORWARDED

_CONTROLLER: Final = Listeners.CONTROLLER
_CLUSTER_ACTION: Final = ((AclOperation.CLUSTER_ACTION, AclResource.CLUSTER),)
_PARTITIONS: Final = 50_000

_SASL: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})

_FROM_CLIENTS: Final = FORWARDED | {ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS}
"""APIs with the same handlers as on a broker's listener."""

FORWARDABLE: Final = _FROM_CLIENTS - {ApiKey.DESCRIBE_ACLS}
"""APIs whose requests brokers forward in envelopes."""

# fmt: off
CONTROLLER_APIS: Final[tuple[Api, ...]] = (
    Api(ApiKey.API_VERSIONS, 0, 4, "quorum_cluster", (), Listeners.BROKER | _CONTROLLER),
    Api(ApiKey.DESCRIBE_CLUSTER, 0, 2, "quorum_cluster", (), Listeners.BROKER | _CONTROLLER),
    Api(ApiKey.FETCH, 4, 18, "quorum_log", _CLUSTER_ACTION, _CONTROLLER, lowest_served=12),
    Api(ApiKey.FETCH_SNAPSHOT, 0, 1, "quorum_log", _CLUSTER_ACTION, _CONTROLLER),
    Api(ApiKey.BROKER_REGISTRATION, 0, 4, "quorum_brokers", _CLUSTER_ACTION, _CONTROLLER),
    Api(ApiKey.BROKER_HEARTBEAT, 0, 2, "quorum_brokers", _CLUSTER_ACTION, _CONTROLLER),
    Api(ApiKey.ALTER_PARTITION, 2, 3, "quorum_brokers", _CLUSTER_ACTION, _CONTROLLER, _PARTITIONS),
    Api(ApiKey.ALLOCATE_PRODUCER_IDS, 0, 0, "quorum_brokers", _CLUSTER_ACTION, _CONTROLLER),
    Api(ApiKey.ASSIGN_REPLICAS_TO_DIRS, 0, 0, "quorum_brokers", _CLUSTER_ACTION, _CONTROLLER, _PARTITIONS),
    Api(ApiKey.ENVELOPE, 0, 0, "envelope", _CLUSTER_ACTION, _CONTROLLER),
    *(api for api in APIS if api.key in _SASL | _FROM_CLIENTS),
)
# fmt: on
