"""The operations that a client may perform, as the bit field of Metadata, DescribeCluster and others (KIP-430).

Without an authorizer, every client may perform all operations of the resource type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from ...protocol.acl import AclOperation as Can
from ...protocol.acl import AclResource as On

if TYPE_CHECKING:
    from ..authorizer import Authorizer
    from ..context import RequestContext

_CLUSTER_NAME: Final = "kafka-cluster"
_OF: Final = {
    On.TOPIC: (
        Can.READ, Can.WRITE, Can.CREATE, Can.DELETE, Can.ALTER, Can.DESCRIBE, Can.DESCRIBE_CONFIGS, Can.ALTER_CONFIGS
    ),
    On.CLUSTER: (
        Can.CREATE, Can.ALTER, Can.DESCRIBE, Can.CLUSTER_ACTION, Can.DESCRIBE_CONFIGS, Can.ALTER_CONFIGS,
        Can.IDEMPOTENT_WRITE,
    ),
    On.GROUP: (Can.READ, Can.DELETE, Can.DESCRIBE, Can.DESCRIBE_CONFIGS, Can.ALTER_CONFIGS),
}  # fmt: skip
"""The operations of each resource type."""


def _bits(kind: On) -> int:
    """A bit field with a bit for each operation, at the position of its code."""
    return sum(1 << operation for operation in _OF[kind])


NOT_REQUESTED: Final = -0x80000000
TOPIC: Final = _bits(On.TOPIC)
CLUSTER: Final = _bits(On.CLUSTER)
GROUP: Final = _bits(On.GROUP)


class _Node(Protocol):
    authorizer: Authorizer | None


def of_topic(node: _Node, context: RequestContext, name: str) -> int:
    """The operations that the client may perform on a topic."""
    return TOPIC if node.authorizer is None else _of(node.authorizer, context, On.TOPIC, name)


def of_group(node: _Node, context: RequestContext, group_id: str) -> int:
    """The operations that the client may perform on a group."""
    return GROUP if node.authorizer is None else _of(node.authorizer, context, On.GROUP, group_id)


def of_cluster(node: _Node, context: RequestContext) -> int:
    """The operations that the client may perform on the cluster: none without DESCRIBE."""
    if node.authorizer is None:
        return CLUSTER
    found = _of(node.authorizer, context, On.CLUSTER, _CLUSTER_NAME)
    return found if found & 1 << Can.DESCRIBE else 0


def _of(authorizer: Authorizer, context: RequestContext, kind: On, name: str) -> int:
    host = authorizer.host_of(context.client_host)
    return authorizer.operations(context.principal, host, _OF[kind], kind, name)
