"""Which operations a client may do, as the bit field of Metadata, DescribeCluster and others (KIP-430).

Without an authorizer everybody may do everything that the kind of resource has.
"""

from __future__ import annotations

# Bits are the codes of AclOperation: READ 3, WRITE 4, CREATE 5, DELETE 6, ALTER 7, DESCRIBE 8, CLUSTER_ACTION 9,
# DESCRIBE_CONFIGS 10, ALTER_CONFIGS 11, IDEMPOTENT_WRITE 12.
NOT_ASKED = -0x80000000
TOPIC = sum(1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))
GROUP = sum(1 << code for code in (3, 6, 8, 10, 11))
