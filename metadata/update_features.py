"""UpdateFeatures (57): raises or lowers the finalized level of a feature, for the whole cluster (KIP-584).

* All updates of a request are applied, or none: the first error is the error of the request.
* Every broker and controller must support the level; a downgrade must be requested explicitly (KIP-778). A feature
  that no node supports is rejected at every level.
* Features of Apache Kafka 4.3 that are not supported here (`KEPT_FEATURES`) are stored and have no effect: a request
  for the features of a release is not rejected because of them.
* With eligible.leader.replicas.version 1, min.insync.replicas is a config of all brokers and not of single ones. When
  the feature is raised, that config is written from the static setting, and those of single brokers are deleted
  (KIP-966). The feature requires a metadata.version whose records have fields for these replicas.
* metadata.version can only be lowered across levels without new records, because the log is never rewritten.
* kraft.version can only be raised.
* `validate_only` returns the same response and writes nothing. Up to version 1 each feature has a separate result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from .features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    ELR_SINCE,
    KEPT_FEATURES,
    KRAFT_VERSION,
    METADATA_VERSION,
    SUPPORTED_FEATURES,
    loses_metadata,
)
from .image import BROKER_RESOURCE
from .outcome import Outcome, Versioned
from .records import ConfigRecord, FeatureLevelRecord, NoOpRecord
from .registrations import VersionRange

if TYPE_CHECKING:
    from .context import ControllerContext
    from .image import MetadataImage

UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2
UNSAFE_DOWNGRADE: Final = 3

_DISABLED: Final = VersionRange(0, 0)


def update_features(
    image: MetadataImage, request: UpdateFeaturesRequest, version: int, context: ControllerContext
) -> Outcome[UpdateFeaturesResponse]:
    """Decide on an UpdateFeaturesRequest. The form of the response depends on the version."""
    records: list[Versioned] = []
    levels = {update.feature: update.max_version_level for update in request.feature_updates}
    metadata_version = levels.get(METADATA_VERSION, image.metadata_version)
    try:
        for update in request.feature_updates:
            records += _update(image, update, _upgrade_type(update, version), metadata_version, context)
    except KafkaError as error:
        message = f"No feature was changed: {error.message}"
        return Outcome(UpdateFeaturesResponse(error_code=error.code, error_message=message), [])
    results = [UpdatableFeatureResult(feature=update.feature, error_message=None) for update in request.feature_updates]
    response = UpdateFeaturesResponse(error_message=None, results=results if version <= 1 else [])
    return Outcome(response, [] if request.validate_only else records)


def _upgrade_type(update: FeatureUpdateKey, version: int) -> int:
    """The upgrade type; version 0 has a boolean instead."""
    if version == 0:
        return SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
    return update.upgrade_type


def _update(
    image: MetadataImage, update: FeatureUpdateKey, upgrade_type: int, metadata_version: int, context: ControllerContext
) -> list[Versioned]:
    """The records of one update; `metadata_version` is the level after the request."""
    feature, level = update.feature, update.max_version_level
    current = image.features.get(feature, 0)
    if upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise _invalid(feature, level, "Unknown upgrade type.")
    if level < 0:
        raise _invalid(feature, level, "The level must not be negative.")
    _check_supported(image, feature, level, context)
    if level < current and upgrade_type == UPGRADE:
        raise _invalid(
            feature,
            level,
            f"The current level is {current}; lowering it requires a downgrade request.",
        )
    if level > current and upgrade_type != UPGRADE:
        raise _invalid(feature, level, f"The current level is {current}, so this is not a downgrade.")
    if feature == KRAFT_VERSION:
        return _update_kraft_version(level, current)
    if feature == METADATA_VERSION:
        _check_metadata_version(level, current, upgrade_type)
    if feature == ELIGIBLE_LEADER_REPLICAS_VERSION and level and metadata_version < ELR_SINCE:
        raise _invalid(
            feature, level, f"It requires metadata.version {ELR_SINCE}; the current one is {metadata_version}."
        )
    records = [Versioned(FeatureLevelRecord(name=feature, feature_level=level))]
    if feature == ELIGIBLE_LEADER_REPLICAS_VERSION and level > current:
        records += _common_min_insync_replicas(image, context)
    return records


def _common_min_insync_replicas(image: MetadataImage, context: ControllerContext) -> list[Versioned]:
    name = "min.insync.replicas"
    records = []
    if name not in image.config(BROKER_RESOURCE, ""):
        value = str(context.config.int(name))
        records.append(ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="", name=name, value=value))
    records += [
        ConfigRecord(resource_type=BROKER_RESOURCE, resource_name=resource.name, name=name, value=None)
        for resource, configs in image.configs.items()
        if resource.type == BROKER_RESOURCE and resource.name and name in configs
    ]
    return [Versioned(record) for record in records]


def _update_kraft_version(level: int, current: int) -> list[Versioned]:
    """A directory of Moldau has the highest level from its first record on, so that there is nothing to raise."""
    if level != current:
        raise _invalid(KRAFT_VERSION, level, "The level of this feature cannot be lowered.")
    return [Versioned(NoOpRecord())]


def _check_metadata_version(level: int, current: int, upgrade_type: int) -> None:
    if level >= current or not loses_metadata(current, level):
        return
    reason = (
        "The metadata cannot be rewritten without them."
        if upgrade_type == UNSAFE_DOWNGRADE
        else "The upgrade type of the request does not allow the loss of metadata."
    )
    message = f"metadata.version {current} has records and fields that {level} does not have. {reason}"
    raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, message)


def _check_supported(image: MetadataImage, feature: str, level: int, context: ControllerContext) -> None:
    """Raise unless this controller and every registered broker and controller supports the level."""
    if feature in KEPT_FEATURES:
        if level not in KEPT_FEATURES[feature]:
            raise _invalid(feature, level, f"Supported levels are {KEPT_FEATURES[feature]}.")
        return
    nodes = [(f"Local controller {context.node_id}", SUPPORTED_FEATURES)]
    nodes += [(f"Broker {broker.id}", broker.features) for broker in image.brokers.values()]
    nodes += [
        (f"Controller {controller.id}", controller.features)
        for controller in image.controllers.values()
        if controller.id != context.node_id
    ]
    if level == 0 and feature not in image.features and not any(feature in features for _, features in nodes):
        raise _invalid(feature, level, "Unknown feature.")
    for node, features in nodes:
        supported = features.get(feature, _DISABLED)
        if level not in supported:
            if supported.maximum == 0:
                raise _invalid(feature, level, f"{node} does not support the feature.")
            raise _invalid(feature, level, f"{node} supports levels {supported}.")


def _invalid(feature: str, level: int, message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"{feature} cannot be set to {level}: {message}")
