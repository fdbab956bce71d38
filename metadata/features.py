"""Features and their levels (KIP-584): the supported ranges, and what each metadata.version permits to be written.

A feature is finalized for the whole cluster at one level, with a FeatureLevelRecord. Brokers and controllers register
the ranges that they support. Clients choose protocols by the finalized features, so a feature is added to
`SUPPORTED_FEATURES` only when it is complete here. `metadata.version` determines which records the log may contain, and
in which versions. `kraft.version` 1 means that voters are identified by directory and can be changed (KIP-853). It is
stored in control records of the log.

`group.version` 1 enables the protocol of consumer groups (KIP-848). It requires 4.0-IV0 and can be lowered again. New
directories are formatted with it. A directory that was last used by software without this feature gets it at the next
startup, unless the feature was lowered (`missing_features`).

`transaction.version` requires 4.0-IV2. At 1 the records of transactions may have tagged fields. At 2 producers that
support it write to partitions without adding them to the transaction first, and get a new epoch with each transaction
(KIP-890). It can be lowered to 1 and to 0 at any time: the version of each request shows what its producer supports.

`eligible.leader.replicas.version` 1 keeps replicas that left the in-sync set eligible as leaders (KIP-966). New
directories are not formatted with it.

A directory of Apache Kafka may have finalized features that are not supported here (share.version, ...). They are kept
and not reported to clients (`reported_features`). The same applies to features of Apache Kafka 4.3 that an
UpdateFeatures request names (`KEPT_FEATURES`), because `kafka-features upgrade --release-version` names all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .registrations import VersionRange

METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
GROUP_VERSION: Final = "group.version"
TRANSACTION_VERSION: Final = "transaction.version"
ELIGIBLE_LEADER_REPLICAS_VERSION: Final = "eligible.leader.replicas.version"

LATEST_METADATA_VERSION: Final = 30
"""4.3-IV0; new directories are formatted with it."""

SUPPORTED_FEATURES: Final[Mapping[str, VersionRange]] = {
    METADATA_VERSION: VersionRange(7, LATEST_METADATA_VERSION),
    KRAFT_VERSION: VersionRange(0, 1),
    GROUP_VERSION: VersionRange(0, 1),
    TRANSACTION_VERSION: VersionRange(0, 2),
    ELIGIBLE_LEADER_REPLICAS_VERSION: VersionRange(0, 1),
}
"""The ranges that brokers and controllers of this software register and that ApiVersions returns."""

KEPT_FEATURES: Final[Mapping[str, VersionRange]] = {
    "share.version": VersionRange(0, 1),
    "streams.version": VersionRange(0, 1),
}
"""Features of Apache Kafka 4.3 that are not supported here: their levels are stored and have no effect."""

BOOTSTRAP_FEATURES: Final[Mapping[str, int]] = {
    METADATA_VERSION: LATEST_METADATA_VERSION,
    GROUP_VERSION: 1,
    TRANSACTION_VERSION: 2,
}
"""The feature levels of new directories, in the order of their records."""

_CHANGES_METADATA: Final = frozenset({7, 8, 11, 13, 14, 15, 17, 23, 30})
"""Levels that introduced records or fields: a downgrade below one of them may lose data."""

# The levels that permit a write.
TRANSACTIONS_SINCE: Final = 13
DELEGATION_TOKENS_SINCE: Final = 14
CONTROLLER_REGISTRATION_SINCE: Final = 15
DIRECTORIES_SINCE: Final = 17
GROUP_VERSION_SINCE: Final = 22
ELR_SINCE: Final = 23
TRANSACTION_VERSION_SINCE: Final = 24
CORDONED_DIRECTORIES_SINCE: Final = 30

_FEATURES_SINCE: Final[Mapping[str, int]] = {
    GROUP_VERSION: GROUP_VERSION_SINCE,
    TRANSACTION_VERSION: TRANSACTION_VERSION_SINCE,
}
"""The level of metadata.version that each other feature requires."""


def loses_metadata(current: int, target: int) -> bool:
    """Whether a downgrade of metadata.version could drop records or fields."""
    return any(level in _CHANGES_METADATA for level in range(target + 1, current + 1))


def reported_features(finalized: Mapping[str, int]) -> dict[str, int]:
    """The finalized features that clients may use here."""
    return {name: level for name, level in finalized.items() if level in SUPPORTED_FEATURES.get(name, ())}


def missing_features(finalized: Mapping[str, int], last_supported: Mapping[str, VersionRange]) -> dict[str, int]:
    """The features to finalize now in a directory of Moldau, because its last startup did not support them.

    ``last_supported``: what the controller of the last startup registered. If it supported a feature and the feature
    is not finalized, this was an explicit decision. Directories of Apache Kafka have the feature since the
    metadata.version that it requires.
    """
    return {
        feature: BOOTSTRAP_FEATURES[feature]
        for feature, since in _FEATURES_SINCE.items()
        if finalized.get(METADATA_VERSION, 0) >= since and feature not in finalized and feature not in last_supported
    }


def register_broker_version(metadata_version: int) -> int:
    """The version of RegisterBrokerRecord to write at this level."""
    if metadata_version >= CORDONED_DIRECTORIES_SINCE:
        return 4
    if metadata_version >= DIRECTORIES_SINCE:
        return 3
    return 2 if metadata_version >= 8 else 1


def partition_version(metadata_version: int) -> int:
    """The version of PartitionRecord and PartitionChangeRecord to write at this level."""
    if metadata_version >= ELR_SINCE:
        return 2
    return 1 if metadata_version >= DIRECTORIES_SINCE else 0
