"""Validation of topic names.

Names are used as directories and in metrics: 1 to 249 ASCII letters, digits, '.', '_' and '-', but neither "." nor
"..". In metrics '.' becomes '_', so that two topics must not differ only in these two characters.
"""

import re
from typing import Final

from ..protocol.errors import ErrorCode, KafkaError

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
SHARE_GROUP_STATE: Final = "__share_group_state"
INTERNAL_TOPICS: Final = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE})
"""Topics in which coordinators store their state; clients see them as `is_internal`."""
CLUSTER_METADATA: Final = "__cluster_metadata"
"""The metadata log itself. It is not a topic and cannot be created."""

MAX_NAME_LENGTH: Final = 249
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+\Z")


def invalid_reason(name: str) -> str | None:
    """Why this name is invalid for a topic; None if it is valid."""
    if not name:
        return "it is empty"
    if name in (".", ".."):
        return "'.' and '..' are directories"
    if len(name) > MAX_NAME_LENGTH:
        return f"it has {len(name)} characters, {MAX_NAME_LENGTH} are allowed"
    if not _LEGAL.match(name):
        return "it has characters other than ASCII letters, digits, '.', '_' and '-'"
    return None


def validate_topic_name(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION if the name is invalid for a topic."""
    reason = invalid_reason(name)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Invalid topic name '{name}': {reason}")


def is_internal(name: str) -> bool:
    return name in INTERNAL_TOPICS


def has_collision_characters(name: str) -> bool:
    return "." in name or "_" in name


def unify_collision_characters(name: str) -> str:
    """A key that is equal for names that collide in metrics."""
    return name.replace(".", "_")
