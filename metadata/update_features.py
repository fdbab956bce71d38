"""UpdateFeatures (57): the finalized level of a feature is raised or lowered, for the whole cluster (KIP-584).

* All updates of a request are made, or none: the first error is that of the request.
* Every broker and controller has to support the level; lowering one has to be asked for as such (KIP-778). A feature
  that no node knows is refused at every level.
* Features of Apache Kafka 4.3 that are not supported here (`KEPT_FEATURES`) are recorded and have no effect: a request
  for the features of a release is not refused because of them.
* With eligible.leader.replicas.version 1, min.insync.replicas is a config of all brokers and of no single one: raising
  the feature writes that config, from the static setting, and deletes those of single brokers (KIP-966).
* metadata.version can only go down over levels that brought no new records, because nothing here rewrites the log.
* kraft.version goes up and never down.
* `validate_only` answers the same and writes nothing. Up to version 1 each feature has a result of its own.
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
    """Decide on an UpdateFeaturesRequest of this version, on which the form of the answer depends."""
    records: list[Versioned] = []
    try:
        for update in request.feature_updates:
            records += _update(image, update, _upgrade_type(update, version), context)
    except KafkaError as error:
        message = f"No feature was changed: {error.message}"
        return Outcome(UpdateFeaturesResponse(error_code=error.code, error_message=message), [])
    results = [UpdatableFeatureResult(feature=update.feature, error_message=None) for update in request.feature_updates]
    response = UpdateFeaturesResponse(error_message=None, results=results if version <= 1 else [])
    return Outcome(response, [] if request.validate_only else records)


def _upgrade_type(update: FeatureUpdateKey, version: int) -> int:
    """Version 0 has a boolean for what later became a type."""
    if version == 0:
        return SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
    return update.upgrade_type


def _update(
    image: MetadataImage, update: FeatureUpdateKey, upgrade_type: int, context: ControllerContext
) -> list[Versioned]:
    feature, level = update.feature, update.max_version_level
    current = image.features.get(feature, 0)
    if upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise _invalid(feature, level, "There is no such type of update.")
    if level < 0:
        raise _invalid(feature, level, "Levels begin at 0.")
    _check_supported(image, feature, level, context)
    if level < current and upgrade_type == UPGRADE:
        raise _invalid(
            feature,
            level,
            f"The level is {current}, and only a request for a downgrade can lower it.",
        )
    if level > current and upgrade_type != UPGRADE:
        raise _invalid(feature, level, f"The level is {current}, so this is no downgrade.")
    if feature == KRAFT_VERSION:
        return _update_kraft_version(level, current)
    if feature == METADATA_VERSION:
        _check_metadata_version(level, current, upgrade_type)
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
    """A directory of ours has the highest level from its first record on, so there is nothing to raise."""
    if level != current:
        raise _invalid(KRAFT_VERSION, level, "The level of this feature cannot be lowered.")
    return [Versioned(NoOpRecord())]


def _check_metadata_version(level: int, current: int, upgrade_type: int) -> None:
    if level >= current or not loses_metadata(current, level):
        return
    reason = (
        "The metadata cannot be rewritten to leave it out."
        if upgrade_type == UNSAFE_DOWNGRADE
        else "The request wants to lose nothing."
    )
    message = f"metadata.version {current} has records and fields that {level} does not have. {reason}"
    raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, message)


def _check_supported(image: MetadataImage, feature: str, level: int, context: ControllerContext) -> None:
    """Raise unless this controller and every registered broker and controller supports the level."""
    if feature in KEPT_FEATURES:
        if level not in KEPT_FEATURES[feature]:
            raise _invalid(feature, level, f"Apache Kafka 4.3 has the levels {KEPT_FEATURES[feature]}.")
        return
    nodes = [(f"Local controller {context.node_id}", SUPPORTED_FEATURES)]
    nodes += [(f"Broker {broker.id}", broker.features) for broker in image.brokers.values()]
    nodes += [
        (f"Controller {controller.id}", controller.features)
        for controller in image.controllers.values()
        if controller.id != context.node_id
    ]
    if level == 0 and feature not in image.features and not any(feature in features for _, features in nodes):
        raise _invalid(feature, level, "There is no such feature.")
    for node, features in nodes:
        supported = features.get(feature, _DISABLED)
        if level not in supported:
            if supported.maximum == 0:
                raise _invalid(feature, level, f"{node} does not know the feature.")
            raise _invalid(feature, level, f"{node} supports the levels {supported}.")


def _invalid(feature: str, level: int, message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"{feature} cannot be set to {level}: {message}")
