"""Features and their levels (KIP-584): what this software supports, and what a metadata.version allows to be written.

A feature is finalized for the whole cluster at one level, which a FeatureLevelRecord says; brokers and controllers
register the ranges they support. Clients switch protocol by what is finalized, so a feature enters `SUPPORTED_FEATURES`
when it is done here and not before. `metadata.version` is the feature that says which records the log may hold and in
which versions; `kraft.version` 1 means that voters are known by directory and can be changed (KIP-853), and lives in
control records of the log.

A directory that Apache Kafka wrote may finalize features that are not supported here (group.version, ...). They are
kept and not reported to clients (`reported_features`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .registrations import VersionRange

METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
ELIGIBLE_LEADER_REPLICAS_VERSION: Final = "eligible.leader.replicas.version"

LATEST_METADATA_VERSION: Final = 30
"""4.3-IV0, which new directories are formatted with."""

SUPPORTED_FEATURES: Final[Mapping[str, VersionRange]] = {
    METADATA_VERSION: VersionRange(7, LATEST_METADATA_VERSION),
    KRAFT_VERSION: VersionRange(0, 1),
}
"""The ranges that brokers and controllers of this software register, and that ApiVersions reports."""

_CHANGES_METADATA: Final = frozenset({7, 8, 11, 13, 14, 15, 17, 23, 30})
"""Levels that brought new records or fields: going back below one of them may lose something."""

# The levels from which something may be written.
TRANSACTIONS_SINCE: Final = 13
CONTROLLER_REGISTRATION_SINCE: Final = 15
DIRECTORIES_SINCE: Final = 17
ELR_SINCE: Final = 23
CORDONED_DIRECTORIES_SINCE: Final = 30


def loses_metadata(current: int, target: int) -> bool:
    """Whether going down from one level of metadata.version to another could drop records or fields."""
    return any(level in _CHANGES_METADATA for level in range(target + 1, current + 1))


def reported_features(finalized: Mapping[str, int]) -> dict[str, int]:
    """Of the finalized features, those that clients may rely on here."""
    return {name: level for name, level in finalized.items() if level in SUPPORTED_FEATURES.get(name, ())}


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
