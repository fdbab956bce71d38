"""Features and their levels (KIP-584): what this software supports, and what a metadata.version allows to be written.

A feature is finalized for the whole cluster at one level, which a FeatureLevelRecord says; brokers and controllers
register the ranges they support. Clients switch protocol by what is finalized, so a feature enters `SUPPORTED_FEATURES`
when it is done here and not before. `metadata.version` is the feature that says which records the log may hold and in
which versions; `kraft.version` 1 means that voters are known by directory and can be changed (KIP-853), and lives in
control records of the log.

`group.version` 1 opens the protocol of consumer groups (KIP-848); it can be taken back, and comes with 4.0-IV0. New
directories are formatted with it; one that was last started by software which did not support it gets it at its next
start, and one where it was taken back does not (`missing_features`).

`transaction.version` comes with 4.0-IV2. At 1 the records of transactions may have tagged fields; at 2 producers that
know it write to partitions without adding them to the transaction first, and get a new epoch with each transaction
(KIP-890). It can be taken to 1 and to 0 at any time: each request says by its version what its producer goes by.

`eligible.leader.replicas.version` 1 keeps replicas that left the in-sync set eligible as leaders (KIP-966). New
directories are not formatted with it.

A directory that Apache Kafka wrote may finalize features that are not supported here (share.version, ...). They are
kept and not reported to clients (`reported_features`). The same happens to those of Apache Kafka 4.3 that an
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
"""4.3-IV0, which new directories are formatted with."""

SUPPORTED_FEATURES: Final[Mapping[str, VersionRange]] = {
    METADATA_VERSION: VersionRange(7, LATEST_METADATA_VERSION),
    KRAFT_VERSION: VersionRange(0, 1),
    GROUP_VERSION: VersionRange(0, 1),
    TRANSACTION_VERSION: VersionRange(0, 2),
    ELIGIBLE_LEADER_REPLICAS_VERSION: VersionRange(0, 1),
}
"""The ranges that brokers and controllers of this software register, and that ApiVersions reports."""

KEPT_FEATURES: Final[Mapping[str, VersionRange]] = {
    "share.version": VersionRange(0, 1),
    "streams.version": VersionRange(0, 1),
}
"""Features of Apache Kafka 4.3 that are not supported here: their levels can be recorded, and have no effect."""

BOOTSTRAP_FEATURES: Final[Mapping[str, int]] = {
    METADATA_VERSION: LATEST_METADATA_VERSION,
    GROUP_VERSION: 1,
    TRANSACTION_VERSION: 2,
}
"""The levels that new directories are formatted with, in the order of their records."""

_CHANGES_METADATA: Final = frozenset({7, 8, 11, 13, 14, 15, 17, 23, 30})
"""Levels that brought new records or fields: going back below one of them may lose something."""

# The levels from which something may be written.
TRANSACTIONS_SINCE: Final = 13
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
"""The level of metadata.version that each other feature comes with."""


def loses_metadata(current: int, target: int) -> bool:
    """Whether going down from one level of metadata.version to another could drop records or fields."""
    return any(level in _CHANGES_METADATA for level in range(target + 1, current + 1))


def reported_features(finalized: Mapping[str, int]) -> dict[str, int]:
    """Of the finalized features, those that clients may rely on here."""
    return {name: level for name, level in finalized.items() if level in SUPPORTED_FEATURES.get(name, ())}


def missing_features(finalized: Mapping[str, int], last_supported: Mapping[str, VersionRange]) -> dict[str, int]:
    """What to finalize in a directory of ours, now that it is supported: its last start knew nothing of it.

    ``last_supported`` is what the controller of the last start registered. What it supported and did not finalize was
    somebody's decision. Directories of Apache Kafka have the feature since the metadata.version that it comes with.
    """
    return {
        feature: BOOTSTRAP_FEATURES[feature]
        for feature, since in _FEATURES_SINCE.items()
        if finalized.get(METADATA_VERSION, 0) >= since and feature not in finalized and feature not in last_supported
    }


def register_broker_version(metadata_version: int) -> int:
    """Version of the RegisterBrokerRecord to write at this level."""
    if metadata_version >= CORDONED_DIRECTORIES_SINCE:
        return 4
    if metadata_version >= DIRECTORIES_SINCE:
        return 3
    return 2 if metadata_version >= 8 else 1


def partition_version(metadata_version: int) -> int:
    """Version of the PartitionRecord and of the PartitionChangeRecord to write at this level."""
    if metadata_version >= ELR_SINCE:
        return 2
    return 1 if metadata_version >= DIRECTORIES_SINCE else 0
