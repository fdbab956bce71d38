"""UpdateFeatures: levels of features that are accepted and rejected (KIP-584, KIP-778). No level is changed."""

from __future__ import annotations

from typing import Any

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.api_versions import ApiVersionsRequest
from ...protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from .. import topic_admin as t
from ..case import Layer, Release, case, needs, versions_of
from ..check import Check

UPDATE = needs(ApiKey.UPDATE_FEATURES, 1)
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
TOO_HIGH = 32_767

Update = tuple[str, int, int]
"""A feature, its level, and the kind of the update."""


def dry_run(c: Check, *updates: Update, version: int | None = None) -> Any:
    keys = [FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind) for name, level, kind in updates]
    request = UpdateFeaturesRequest(feature_updates=keys, validate_only=True, timeout_ms=t.TIMEOUT_MS)
    return c.call(request, version)


def errors(response: Any) -> set[int]:
    """The error codes: until 3.9, features have results of their own; since 4.0 an error is that of the response."""
    return {response.error_code, *(each.error_code for each in response.results)} - {int(ErrorCode.NONE)}


def finalized(c: Check) -> dict[str, tuple[int, int]]:
    """The finalized levels at this moment."""
    request = ApiVersionsRequest(client_software_name="conformance", client_software_version="1")
    response = c.call(request, c.version(ApiKey.API_VERSIONS))
    return {each.name: (each.min_version_level, each.max_version_level) for each in response.finalized_features}


@case(
    "cluster.features.exchange",
    "a request with the present level of a feature succeeds",
    source="KIP-584 and KIP-778",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.UPDATE_FEATURES),
    needs=needs(ApiKey.API_VERSIONS, 3),
    features={"metadata.version": 1},
)
def exchange(c: Check, version: int) -> None:
    """Sends: UpdateFeatures with the present level of `metadata.version`; as a dry run since version 1.

    Expects: no errors; before version 2 a result for the feature; the finalized levels are unchanged.

    Why: tools that bring a cluster to a release send the levels of all features, most of which are already right.
    """
    before = finalized(c)
    level = before["metadata.version"][1]
    key = FeatureUpdateKey(feature="metadata.version", max_version_level=level)
    request = UpdateFeaturesRequest(feature_updates=[key], validate_only=version >= 1, timeout_ms=t.TIMEOUT_MS)
    response = c.call(request, version)
    c.error(response.error_code, ErrorCode.NONE)
    if version < 2:
        c.equal([each.feature for each in response.results], ["metadata.version"], "results (features)")
        c.error(response.results[0].error_code, ErrorCode.NONE, "error_code of metadata.version")
    c.equal(finalized(c), before, "finalized features")


@case(
    "cluster.features.none",
    "a request without features succeeds",
    source="KIP-584",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.UPDATE_FEATURES),
)
def none(c: Check, version: int) -> None:
    """Sends: UpdateFeatures without features, in version 0 without `validate_only`, which it does not have.

    Expects: no error, and no results.

    Why: a request that changes nothing must have no effect in any version.
    """
    request = UpdateFeaturesRequest(validate_only=version >= 1, timeout_ms=t.TIMEOUT_MS)
    response = c.call(request, version)
    c.error(response.error_code, ErrorCode.NONE)
    if version < 2:
        c.equal(response.results, [], "results")


@case(
    "cluster.features.reject",
    "features and levels that the cluster does not have are rejected",
    source="KIP-584",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.UPDATE_FEATURES),
    needs=needs(ApiKey.API_VERSIONS, 3),
    variants={
        "unknown-feature": ("no.such.feature", 1),
        "no-name": ("", 1),
        "level-too-high": ("metadata.version", TOO_HIGH),
    },
)
def reject(c: Check, version: int, feature: str, level: int) -> None:
    """Sends: UpdateFeatures with a feature that does not exist, or a level that no server has; as a dry run since
    version 1.

    Expects: INVALID_UPDATE_VERSION, of the response or of the feature; the finalized levels are unchanged.

    Why: a cluster with a level that one of its nodes does not support does not start again.
    """
    before = finalized(c)
    key = FeatureUpdateKey(feature=feature, max_version_level=level)
    request = UpdateFeaturesRequest(feature_updates=[key], validate_only=version >= 1, timeout_ms=t.TIMEOUT_MS)
    response = c.call(request, version)
    c.equal(errors(response), {int(ErrorCode.INVALID_UPDATE_VERSION)}, "error codes of the response and its results")
    c.equal(finalized(c), before, "finalized features")


@case(
    "cluster.features.level",
    "levels of known features are accepted or rejected",
    source="KIP-584 and KIP-1022",
    needs=UPDATE,
    features={"metadata.version": 30, "kraft.version": 1},
    since=Release(4, 3),
    until=Release(4, 4),
    variants={
        "transaction-too-high": (("transaction.version", 3, UPGRADE), False),
        "replicas-too-high": (("eligible.leader.replicas.version", 2, UPGRADE), False),
        "replicas-0": (("eligible.leader.replicas.version", 0, SAFE_DOWNGRADE), True),
        "share-0": (("share.version", 0, SAFE_DOWNGRADE), True),
        "share-too-high": (("share.version", 2, UPGRADE), False),
        "streams-1": (("streams.version", 1, UPGRADE), True),
        "group-0": (("group.version", 0, SAFE_DOWNGRADE), True),
        "group-1": (("group.version", 1, SAFE_DOWNGRADE), True),
        "group-no-kind": (("group.version", 1, 0), False),
        "group-unknown-kind": (("group.version", 1, 4), False),
        "metadata-same": (("metadata.version", 30, UPGRADE), True),
        "metadata-too-high": (("metadata.version", 31, UPGRADE), False),
        "metadata-lower": (("metadata.version", 29, UPGRADE), False),
        "metadata-downgrade": (("metadata.version", 29, SAFE_DOWNGRADE), False),
        "metadata-unsafe-downgrade": (("metadata.version", 29, UNSAFE_DOWNGRADE), False),
        "metadata-0": (("metadata.version", 0, SAFE_DOWNGRADE), False),
        "kraft-0": (("kraft.version", 0, SAFE_DOWNGRADE), False),
        "kraft-1": (("kraft.version", 1, UPGRADE), True),
    },
)
def level(c: Check, update: Update, is_accepted: bool) -> None:
    """Sends: UpdateFeatures with `validate_only`, one feature, a level, and the kind of the update (upgrade, safe or
    unsafe downgrade, or one that does not exist).

    Expects: no error, or INVALID_UPDATE_VERSION: an upgrade must not lower a level, `metadata.version` and
    `kraft.version` cannot be lowered, and a level must be supported. The finalized levels are unchanged.

    Why: operators check an upgrade by a dry run, and make it if the dry run succeeds.
    """
    before = finalized(c)
    response = dry_run(c, update)
    expected = ErrorCode.NONE if is_accepted else ErrorCode.INVALID_UPDATE_VERSION
    c.error(response.error_code, expected)
    c.equal(bool(response.error_message), not is_accepted, "whether there is an error_message")
    c.equal(finalized(c), before, "finalized features")


@case(
    "cluster.features.unknown",
    "a feature that does not exist has no level, not even 0",
    source="KIP-584",
    needs=UPDATE,
    since=Release(4, 0),
    variants={
        f"{kind_name}-{level_name}": (level, kind)
        for kind_name, kind in (("upgrade", UPGRADE), ("safe", SAFE_DOWNGRADE), ("unsafe", UNSAFE_DOWNGRADE))
        for level_name, level in (("0", 0), ("1", 1), ("minus-1", -1))
    },
)
def unknown(c: Check, level: int, kind: int) -> None:
    """Sends: UpdateFeatures with `validate_only` and a feature that does not exist, alone and together with one that
    does.

    Expects: INVALID_UPDATE_VERSION with a message that has its name.

    Why: with a misspelled name, an operator would believe that a feature is disabled.
    """
    name = "no.such.feature"
    for updates in ([(name, level, kind)], [("metadata.version", metadata_level(c), UPGRADE), (name, level, kind)]):
        response = dry_run(c, *updates)
        c.error(response.error_code, ErrorCode.INVALID_UPDATE_VERSION)
        message = response.error_message
        c.true(name in (message or ""), "error_message", expected=f"a text with {name}", actual=message)


def metadata_level(c: Check) -> int:
    return c.target.features.get("metadata.version", 1)


@case(
    "cluster.features.release",
    "the features of a release are accepted together",
    source="KIP-1022",
    versions=versions_of(ApiKey.UPDATE_FEATURES, 1),
    features={"metadata.version": 30, "kraft.version": 1},
    since=Release(4, 3),
    until=Release(4, 4),
)
def release(c: Check, version: int) -> None:
    """Sends: UpdateFeatures with `validate_only` and the levels of all seven features of Apache Kafka 4.3.

    Expects: no error; in version 1, a result without error for each feature.

    Why: `kafka-features upgrade --release-version 4.3` sends this request.
    """
    levels = {
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "kraft.version": 1,
        "metadata.version": 30,
        "share.version": 1,
        "streams.version": 1,
        "transaction.version": 2,
    }
    response = dry_run(c, *((name, level, UPGRADE) for name, level in levels.items()), version=version)
    c.error(response.error_code, ErrorCode.NONE)
    if version == 1:
        found = {each.feature: each.error_code for each in response.results}
        c.equal(found, dict.fromkeys(levels, int(ErrorCode.NONE)), "results (feature and error_code)")


@case(
    "cluster.features.versions",
    "ApiVersions has the same features in versions 3 and 4, except for those of a lowest version of 0",
    source="KIP-584 and KAFKA-17011",
    layer=Layer.WIRE,
    needs=needs(ApiKey.API_VERSIONS, 4),
)
def versions(c: Check) -> None:
    """Sends: ApiVersions in versions 3 and 4.

    Expects: the same finalized features and levels in both; the supported features of version 3 are those of version 4
    whose lowest version is not 0.

    Why: clients of version 3 cannot parse a lowest version of 0, and decide by the finalized levels like newer ones.
    """
    request = ApiVersionsRequest(client_software_name="conformance", client_software_version="1")
    older, newer = c.call(request, 3), c.call(request, 4)
    for field, low, high in (
        ("finalized_features", "min_version_level", "max_version_level"),
        ("supported_features", "min_version", "max_version"),
    ):
        before = {each.name: (getattr(each, low), getattr(each, high)) for each in getattr(older, field)}
        after = {each.name: (getattr(each, low), getattr(each, high)) for each in getattr(newer, field)}
        expected = {name: levels for name, levels in after.items() if levels[0] > 0}
        c.equal(before, expected, f"{field} of version 3, compared with version 4")
