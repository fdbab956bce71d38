"""`APIS`: the table of the APIs that this server implements.

ApiVersions, docs/apis.md, the dispatcher and the tests read this table. An API is added when it is implemented. The
columns:

- versions: the range that ApiVersions advertises, and the lowest version that is served.
- handler: a module of `server.handlers`.
- elements: the maximum number of elements in all arrays of one request. A larger request closes the connection.
- listeners: the kinds of listeners on which Apache Kafka 4.3 serves the API (`ApiKeys.inScope`). This table is that of
  BROKER listeners, and `controller_apis` that of CONTROLLER listeners, so the column is used for documentation only.
- checks: the authorization checks that Apache Kafka's authorizer makes, in order. This column is used for documentation
  only; `requests.authorization` has the checks with their exceptions.
- blocking: whether the response may wait behind an earlier pending request of its connection, for example a waiting
  fetch. A request of any other API makes the pending request complete immediately.
"""

from __future__ import annotations

import enum
from typing import Final

from ..protocol.acl import AclOperation, AclResource
from ..protocol.api import ApiKey
from ..protocol.named_tuples import NamedTuple

# The maximum number of elements in all arrays of one request.
_IN_SLICES: Final = 250_000  # the handler is a generator
_PARTITIONS: Final = 50_000  # the controller's requests: 10,000 partitions with their replicas
_SHORT: Final = 10_000


class Listeners(enum.Flag):
    """Kinds of listeners."""

    BROKER = enum.auto()
    CONTROLLER = enum.auto()


_BROKER: Final = Listeners.BROKER
_BOTH: Final = Listeners.BROKER | Listeners.CONTROLLER

Check = tuple[AclOperation, AclResource]

_READ_TOPIC: Final = (AclOperation.READ, AclResource.TOPIC)
_WRITE_TOPIC: Final = (AclOperation.WRITE, AclResource.TOPIC)
_CREATE_TOPIC: Final = (AclOperation.CREATE, AclResource.TOPIC)
_DELETE_TOPIC: Final = (AclOperation.DELETE, AclResource.TOPIC)
_ALTER_TOPIC: Final = (AclOperation.ALTER, AclResource.TOPIC)
_DESCRIBE_TOPIC: Final = (AclOperation.DESCRIBE, AclResource.TOPIC)
_DESCRIBE_TOPIC_CONFIGS: Final = (AclOperation.DESCRIBE_CONFIGS, AclResource.TOPIC)
_ALTER_TOPIC_CONFIGS: Final = (AclOperation.ALTER_CONFIGS, AclResource.TOPIC)
_READ_GROUP: Final = (AclOperation.READ, AclResource.GROUP)
_DELETE_GROUP: Final = (AclOperation.DELETE, AclResource.GROUP)
_DESCRIBE_GROUP: Final = (AclOperation.DESCRIBE, AclResource.GROUP)
_DESCRIBE_GROUP_CONFIGS: Final = (AclOperation.DESCRIBE_CONFIGS, AclResource.GROUP)
_ALTER_GROUP_CONFIGS: Final = (AclOperation.ALTER_CONFIGS, AclResource.GROUP)
_WRITE_TRANSACTION: Final = (AclOperation.WRITE, AclResource.TRANSACTIONAL_ID)
_DESCRIBE_TRANSACTION: Final = (AclOperation.DESCRIBE, AclResource.TRANSACTIONAL_ID)
_ALTER_CLUSTER: Final = (AclOperation.ALTER, AclResource.CLUSTER)
_DESCRIBE_CLUSTER: Final = (AclOperation.DESCRIBE, AclResource.CLUSTER)
_DESCRIBE_CLUSTER_CONFIGS: Final = (AclOperation.DESCRIBE_CONFIGS, AclResource.CLUSTER)
_ALTER_CLUSTER_CONFIGS: Final = (AclOperation.ALTER_CONFIGS, AclResource.CLUSTER)
_CREATE_TOKENS: Final = (AclOperation.CREATE_TOKENS, AclResource.USER)
_DESCRIBE_TOKENS: Final = (AclOperation.DESCRIBE_TOKENS, AclResource.USER)
_DESCRIBE_TOKEN: Final = (AclOperation.DESCRIBE, AclResource.DELEGATION_TOKEN)
_IDEMPOTENT_WRITE: Final = (AclOperation.IDEMPOTENT_WRITE, AclResource.CLUSTER)


class Api(NamedTuple):
    """A row of the table; the module docstring describes the columns."""

    key: ApiKey
    min_version: int
    max_version: int
    module: str  # below server.handlers; has handle() or handle_<api>(), and failed() or failed_<api>()
    checks: tuple[Check, ...] = ()
    listeners: Listeners = _BROKER
    max_elements: int = _SHORT
    lowest_served: int = -1  # above min_version only where Apache Kafka advertises more than it serves
    may_wait_behind: bool = False


# fmt: off
APIS: Final[tuple[Api, ...]] = (
    Api(ApiKey.PRODUCE, 0, 13, "produce", (_WRITE_TRANSACTION, _WRITE_TOPIC), lowest_served=3),
    Api(ApiKey.FETCH, 4, 18, "fetch", (_READ_TOPIC,), _BOTH, _PARTITIONS),
    Api(ApiKey.LIST_OFFSETS, 1, 11, "list_offsets", (_DESCRIBE_TOPIC,), _BROKER, _IN_SLICES),
    Api(ApiKey.METADATA, 0, 13, "metadata", (_DESCRIBE_TOPIC,), _BROKER, _IN_SLICES, may_wait_behind=True),
    Api(ApiKey.OFFSET_COMMIT, 2, 10, "group_offsets", (_READ_GROUP, _READ_TOPIC), _BROKER, _IN_SLICES),
    Api(ApiKey.OFFSET_FETCH, 1, 10, "group_offsets", (_DESCRIBE_GROUP, _DESCRIBE_TOPIC), _BROKER, _IN_SLICES),
    Api(ApiKey.FIND_COORDINATOR, 0, 6, "find_coordinator", (_DESCRIBE_GROUP, _DESCRIBE_TRANSACTION), _BROKER,
        _IN_SLICES),
    Api(ApiKey.JOIN_GROUP, 0, 9, "group_members", (_READ_GROUP,)),
    Api(ApiKey.HEARTBEAT, 0, 4, "group_members", (_READ_GROUP,)),
    Api(ApiKey.LEAVE_GROUP, 0, 5, "group_members", (_READ_GROUP,)),
    Api(ApiKey.SYNC_GROUP, 0, 5, "group_members", (_READ_GROUP,)),
    Api(ApiKey.DESCRIBE_GROUPS, 0, 6, "group_admin", (_DESCRIBE_GROUP,), _BROKER, _IN_SLICES),
    Api(ApiKey.LIST_GROUPS, 0, 5, "group_admin", (_DESCRIBE_CLUSTER, _DESCRIBE_GROUP)),
    Api(ApiKey.SASL_HANDSHAKE, 0, 1, "security", (), _BOTH),
    Api(ApiKey.API_VERSIONS, 0, 4, "api_versions", (), _BOTH),
    Api(ApiKey.CREATE_TOPICS, 2, 7, "topics", (_CREATE_TOPIC, _DESCRIBE_TOPIC_CONFIGS), _BOTH, _PARTITIONS),
    Api(ApiKey.DELETE_TOPICS, 1, 6, "topics", (_DELETE_TOPIC, _DESCRIBE_TOPIC), _BOTH),
    Api(ApiKey.DELETE_RECORDS, 0, 2, "delete_records", (_DELETE_TOPIC,), _BROKER, _IN_SLICES),
    Api(ApiKey.INIT_PRODUCER_ID, 0, 5, "init_producer_id", (_WRITE_TRANSACTION, _IDEMPOTENT_WRITE)),
    Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, "offset_for_leader_epoch", (_DESCRIBE_TOPIC,), _BROKER, _IN_SLICES),
    Api(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5, "transactions", (_WRITE_TRANSACTION, _WRITE_TOPIC)),
    Api(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, "transactions", (_WRITE_TRANSACTION, _READ_GROUP)),
    Api(ApiKey.END_TXN, 0, 5, "transactions", (_WRITE_TRANSACTION,)),
    Api(ApiKey.WRITE_TXN_MARKERS, 1, 2, "transaction_markers", (_ALTER_CLUSTER,)),
    Api(ApiKey.TXN_OFFSET_COMMIT, 0, 5, "transaction_offsets", (_WRITE_TRANSACTION, _READ_GROUP, _READ_TOPIC)),
    Api(ApiKey.DESCRIBE_ACLS, 1, 3, "security", (_DESCRIBE_CLUSTER,), _BOTH),
    Api(ApiKey.CREATE_ACLS, 1, 3, "security", (_ALTER_CLUSTER,), _BOTH),
    Api(ApiKey.DELETE_ACLS, 1, 3, "security", (_ALTER_CLUSTER,), _BOTH),
    Api(ApiKey.DESCRIBE_CONFIGS, 1, 4, "configs",
        (_DESCRIBE_TOPIC_CONFIGS, _DESCRIBE_GROUP_CONFIGS, _DESCRIBE_CLUSTER_CONFIGS), _BOTH, _IN_SLICES),
    Api(ApiKey.ALTER_CONFIGS, 0, 2, "configs",
        (_ALTER_TOPIC_CONFIGS, _ALTER_GROUP_CONFIGS, _ALTER_CLUSTER_CONFIGS), _BOTH),
    Api(ApiKey.ALTER_REPLICA_LOG_DIRS, 1, 2, "alter_replica_log_dirs", (_ALTER_CLUSTER,)),
    Api(ApiKey.DESCRIBE_LOG_DIRS, 1, 5, "log_dirs", (_DESCRIBE_CLUSTER,), _BROKER, _IN_SLICES),
    Api(ApiKey.SASL_AUTHENTICATE, 0, 2, "security", (), _BOTH),
    Api(ApiKey.CREATE_PARTITIONS, 0, 3, "topics", (_ALTER_TOPIC,), _BOTH, _PARTITIONS),
    Api(ApiKey.CREATE_DELEGATION_TOKEN, 1, 3, "delegation_tokens", (_CREATE_TOKENS,), _BOTH),
    Api(ApiKey.RENEW_DELEGATION_TOKEN, 1, 2, "delegation_tokens", (), _BOTH),
    Api(ApiKey.EXPIRE_DELEGATION_TOKEN, 1, 2, "delegation_tokens", (), _BOTH),
    Api(ApiKey.DESCRIBE_DELEGATION_TOKEN, 1, 3, "delegation_tokens", (_DESCRIBE_TOKEN, _DESCRIBE_TOKENS), _BOTH,
        _IN_SLICES),
    Api(ApiKey.DELETE_GROUPS, 0, 2, "group_admin", (_DELETE_GROUP,)),
    Api(ApiKey.ELECT_LEADERS, 0, 2, "reassignment", (_ALTER_CLUSTER,), _BOTH, _PARTITIONS),
    Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, "configs",
        (_ALTER_TOPIC_CONFIGS, _ALTER_GROUP_CONFIGS, _ALTER_CLUSTER_CONFIGS), _BOTH),
    Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1, "reassignment", (_ALTER_CLUSTER,), _BOTH, _PARTITIONS),
    Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, "reassignment", (_DESCRIBE_CLUSTER,), _BOTH, _PARTITIONS),
    Api(ApiKey.OFFSET_DELETE, 0, 0, "group_offsets", (_DELETE_GROUP, _READ_TOPIC)),
    Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1, "security", (_DESCRIBE_CLUSTER_CONFIGS,)),
    Api(ApiKey.ALTER_CLIENT_QUOTAS, 0, 1, "security", (_ALTER_CLUSTER_CONFIGS,), _BOTH),
    Api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0, "security", (_DESCRIBE_CLUSTER,), _BOTH),
    Api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, 0, "security", (_ALTER_CLUSTER,), _BOTH),
    Api(ApiKey.DESCRIBE_QUORUM, 0, 2, "cluster", (_DESCRIBE_CLUSTER,), _BOTH),
    Api(ApiKey.UPDATE_FEATURES, 0, 2, "cluster", (_ALTER_CLUSTER,), _BOTH),
    Api(ApiKey.DESCRIBE_CLUSTER, 0, 2, "cluster", (), _BOTH),
    Api(ApiKey.DESCRIBE_PRODUCERS, 0, 0, "describe_producers", (_READ_TOPIC,), _BROKER, _IN_SLICES),
    Api(ApiKey.UNREGISTER_BROKER, 0, 0, "cluster", (_ALTER_CLUSTER,), _BOTH),
    Api(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, "transaction_admin", (_DESCRIBE_TRANSACTION, _DESCRIBE_TOPIC), _BROKER,
        _IN_SLICES),
    Api(ApiKey.LIST_TRANSACTIONS, 0, 2, "transaction_admin", (_DESCRIBE_TRANSACTION,)),
    Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1, "group_members", (_READ_GROUP, _DESCRIBE_TOPIC), _BROKER, _PARTITIONS),
    Api(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1, "group_admin", (_DESCRIBE_GROUP, _DESCRIBE_TOPIC), _BROKER, _IN_SLICES),
    Api(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, 0, "telemetry"),
    Api(ApiKey.PUSH_TELEMETRY, 0, 0, "telemetry"),
    Api(ApiKey.LIST_CONFIG_RESOURCES, 0, 1, "configs", (_DESCRIBE_CLUSTER_CONFIGS,)),
    Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, "describe_topic_partitions", (_DESCRIBE_TOPIC,), _BROKER, _IN_SLICES),
)
# fmt: on
