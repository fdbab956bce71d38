"""Missing topics that a client named in a Metadata request, or that a coordinator needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from ..protocol.errors import ErrorCode, KafkaError, known_error
from .topic_names import CLUSTER_METADATA, invalid_reason

if TYPE_CHECKING:
    from ..config.sources import BrokerConfig
    from ..protocol.messages.create_topics import CreateTopicsRequest
    from ..protocol.steps import Steps
    from .image import MetadataImage

_CREATE_TOPICS: Final = 7
"""The version of CreateTopics with which a broker requests missing topics from the controller."""


def missing_topics(image: MetadataImage, names: Sequence[str]) -> tuple[list[str], dict[str, ErrorCode]]:
    """Return the missing topics that could be created, and the errors of the names that cannot be topics."""
    errors = {name: ErrorCode.INVALID_TOPIC_EXCEPTION for name in names if invalid_reason(name) is not None}
    if CLUSTER_METADATA in names:
        errors[CLUSTER_METADATA] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # this log is not a topic, and cannot be one
    missing = [name for name in dict.fromkeys(names) if name not in errors and name not in image.topics_by_name]
    return missing, errors


def create_missing_topics(
    image: Callable[[], MetadataImage],
    names: Sequence[str],
    config: BrokerConfig,
    request: Callable[[CreateTopicsRequest, int], Steps[Any]],
) -> Steps[dict[str, ErrorCode]]:
    """Create the topics of these names that do not exist. Coordinators' topics get their configs.

    ``image`` returns the current image; ``request`` sends a request of a version to the controller, and returns the
    response. Returns the error of each name for which no topic exists afterwards.
    """
    missing, errors = missing_topics(image(), names)
    if missing:
        from .create_topics import auto_create_request

        try:
            response = yield from request(auto_create_request(missing, config), _CREATE_TOPICS)
        except KafkaError as error:
            if error.code is not ErrorCode.REQUEST_TIMED_OUT:
                raise
            # The controller is not available, or creates them later. Clients retry.
            return errors | dict.fromkeys(missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        failed = {topic.name: known_error(topic.error_code) for topic in response.topics if topic.error_code}
        # If several requests need the same missing topic, one of them creates it.
        errors |= {name: code for name, code in failed.items() if code is not ErrorCode.TOPIC_ALREADY_EXISTS}
    return errors
