"""UpdateFeatures (57): the finalized level of a feature is raised or lowered, for the whole cluster (KIP-584).

* All updates of a request are made, or none: the first error is that of the request.
* Every broker and controller has to support the level; lowering one has to be asked for as such (KIP-778).
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
    KRAFT_VERSION,
    METADATA_VERSION,
    SUPPORTED_FEATURES,
    loses_metadata,
)
from .outcome import Outcome, Versioned
from .records import FeatureLevelRecord, NoOpRecord
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
    return [Versioned(FeatureLevelRecord(name=feature, feature_level=level))]


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
    nodes = [(f"Local controller {context.node_id}", SUPPORTED_FEATURES)]
    nodes += [(f"Broker {broker.id}", broker.features) for broker in image.brokers.values()]
    nodes += [
        (f"Controller {controller.id}", controller.features)
        for controller in image.controllers.values()
        if controller.id != context.node_id
    ]
    for node, features in nodes:
        supported = features.get(feature, _DISABLED)
        if level not in supported:
            if supported.maximum == 0:
                raise _invalid(feature, level, f"{node} does not know the feature.")
            raise _invalid(feature, level, f"{node} supports the levels {supported}.")


def _invalid(feature: str, level: int, message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"{feature} cannot be set to {level}: {message}")
