"""Missing topics that a client named in a Metadata request, or that a coordinator needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..protocol.errors import ErrorCode
from .topic_names import CLUSTER_METADATA, invalid_reason

if TYPE_CHECKING:
    from .image import MetadataImage


def missing_topics(image: MetadataImage, names: Sequence[str]) -> tuple[list[str], dict[str, ErrorCode]]:
    """Return the missing topics that could be created, and the errors of the names that cannot be topics."""
    errors = {name: ErrorCode.INVALID_TOPIC_EXCEPTION for name in names if invalid_reason(name) is not None}
    if CLUSTER_METADATA in names:
        errors[CLUSTER_METADATA] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # this log is not a topic, and cannot be one
    missing = [name for name in dict.fromkeys(names) if name not in errors and name not in image.topics_by_name]
    return missing, errors
