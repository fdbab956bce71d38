"""The operations that a client may perform, as the bit field of Metadata, DescribeCluster and others (KIP-430).

Without an authorizer, every client may perform all operations of the resource type.
"""

from __future__ import annotations

from ...protocol.acl import AclOperation as Can


def _bits(*operations: Can) -> int:
    """A bit field with a bit for each operation, at the position of its code."""
    return sum(1 << operation for operation in operations)


NOT_REQUESTED = -0x80000000
TOPIC = _bits(
    Can.READ, Can.WRITE, Can.CREATE, Can.DELETE, Can.ALTER, Can.DESCRIBE, Can.DESCRIBE_CONFIGS, Can.ALTER_CONFIGS
)
CLUSTER = _bits(
    Can.CREATE,
    Can.ALTER,
    Can.DESCRIBE,
    Can.CLUSTER_ACTION,
    Can.DESCRIBE_CONFIGS,
    Can.ALTER_CONFIGS,
    Can.IDEMPOTENT_WRITE,
)
GROUP = _bits(Can.READ, Can.DELETE, Can.DESCRIBE, Can.DESCRIBE_CONFIGS, Can.ALTER_CONFIGS)
