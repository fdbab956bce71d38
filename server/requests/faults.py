"""Faults for tests: which requests they affect, and when.

A fault has a kind, filters and a trigger. All filters that are given must match. The trigger counts the matching
requests: it skips some, then affects a number of them, or each with a probability. A request is affected by the first
fault that it triggers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from random import Random
from typing import Any, Final

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.schema import Struct


class Kind(StrEnum):
    """What happens to a request. The server processes it in the kinds that say "after"."""

    ERROR = "error"
    """The response has an error; the request is not processed."""
    ERROR_AFTER = "error after"
    """The request is processed, and its response has an error."""
    DELAY = "delay"
    """The request, and the later ones of its connection, are processed after a pause."""
    DISCONNECT = "disconnect"
    """The connection is closed; the request is not processed."""
    DISCONNECT_AFTER = "disconnect after"
    """The request is processed, and the connection is closed instead of a response."""
    DISCONNECT_MIDDLE = "disconnect middle"
    """The request is processed, and the connection is closed after half of its response."""
    BLACKHOLE = "blackhole"
    """The request is not processed, and neither it nor the later ones of its connection get a response."""
    THROTTLE = "throttle"
    """The response has a `throttle_time_ms`."""
    CORRUPT_RECORDS = "corrupt records"
    """The records of the response have a wrong byte, so that their CRC is wrong."""
    CAP_VERSIONS = "cap versions"
    """The response to ApiVersions has lower versions."""


class FaultError(ValueError):
    """The description of a fault is not valid; the message says why."""


_TOPIC_FIELDS: Final = ("topic", "name", "topic_name")
_TOPIC_ID_FIELDS: Final = ("topic_id",)
_PARTITION_FIELDS: Final = ("partition", "partition_index", "index", "partition_id")
_GROUP_FIELDS: Final = ("group_id", "group", "key", "transactional_id")
_GROUPS_FIELDS: Final = ("groups", "groups_names", "group_ids", "coordinator_keys")


class Fault:
    """One fault; the arguments are those of the command `add_fault` (`server.steering`)."""

    def __init__(self, description: Mapping[str, Any], topic_id_of: Callable[[str], bytes | None]) -> None:
        """Raises `FaultError`."""
        given = dict(description)
        try:
            self.kind = Kind(given.pop("kind"))
            api = given.pop("api", None)
            self.api = None if api is None else ApiKey(api)
            versions = given.pop("versions", None)
            self.versions = None if versions is None else range(versions[0], versions[1] + 1)
            self.error = ErrorCode(given.pop("error", ErrorCode.UNKNOWN_SERVER_ERROR))
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise FaultError(f"not a fault: {error}") from error
        self.client_id: str | None = given.pop("client_id", None)
        self.topic: str | None = given.pop("topic", None)
        self.partition: int | None = given.pop("partition", None)
        self.group: str | None = given.pop("group", None)
        self.milliseconds: int = given.pop("milliseconds", 0)
        self.highest: dict[int, int] = {int(key): version for key, version in given.pop("highest", {}).items()}
        self._skip: int = given.pop("skip", 0)
        self._times: int | None = given.pop("times", None)
        self._probability: float | None = given.pop("probability", None)
        self._random = Random(given.pop("seed", 0))
        self._topic_id_of = topic_id_of
        self.matched = 0
        self.triggered = 0
        if given:
            raise FaultError(f"a fault has no {', '.join(sorted(given))}")
        if self.partition is not None and self.topic is None:
            raise FaultError("a fault with a partition needs a topic")

    def affects(self, api: int, version: int, client_id: str, decode: Callable[[], Struct | None]) -> bool:
        """Whether the fault affects this request, which is counted. `decode` returns the request, or None if its bytes
        are not valid."""
        if self.api is not None and self.api != api:
            return False
        if self.versions is not None and version not in self.versions:
            return False
        if self.client_id is not None and self.client_id != client_id:
            return False
        if not (self.topic is None and self.group is None):
            request = decode()
            if request is None or not self._mentioned_in(request):
                return False
        self.matched += 1
        if self.matched <= self._skip or (self._times is not None and self.triggered >= self._times):
            return False
        if self._probability is not None and self._random.random() >= self._probability:
            return False
        self.triggered += 1
        return True

    def _mentioned_in(self, request: Struct) -> bool:
        if self.topic is not None:
            topic_id = self._topic_id_of(self.topic)
            topics = [each for each in _structs(request) if self._is_topic(each, topic_id)]
            if not topics and not self._lists_topic(request):
                return False
            if self.partition is not None and not any(self.partition in _partitions(each) for each in topics):
                return False
        return self.group is None or any(self.group in _groups(each) for each in _structs(request))

    def _is_topic(self, struct: Struct, topic_id: bytes | None) -> bool:
        if any(getattr(struct, name, None) == self.topic for name in _TOPIC_FIELDS):
            return True
        return topic_id is not None and any(getattr(struct, name, None) == topic_id for name in _TOPIC_ID_FIELDS)

    def _lists_topic(self, request: Struct) -> bool:
        """Old versions list plain names."""
        return any(
            isinstance(value, list) and self.topic in value
            for value in (getattr(request, name, None) for name in ("topic_names", "topics"))
        )


def _structs(value: Any) -> Iterator[Struct]:
    """A struct and all structs inside it."""
    if isinstance(value, Struct):
        yield value
        for field in value.FIELDS:
            yield from _structs(getattr(value, field.name, None))
    elif isinstance(value, list):
        for each in value:
            yield from _structs(each)


def _partitions(topic: Struct) -> set[int]:
    """The partitions that a request names below a topic."""
    found: set[int] = set()
    for struct in _structs(topic):
        found |= {value for name in _PARTITION_FIELDS if isinstance(value := getattr(struct, name, None), int)}
        for name in ("partitions", "partition_indexes"):
            values = getattr(struct, name, None)
            found |= {each for each in values if isinstance(each, int)} if isinstance(values, list) else set()
    return found


def _groups(struct: Struct) -> set[str]:
    """The groups and transactional IDs that a struct names."""
    found = {value for name in _GROUP_FIELDS if isinstance(value := getattr(struct, name, None), str)}
    for name in _GROUPS_FIELDS:
        values = getattr(struct, name, None)
        found |= {each for each in values if isinstance(each, str)} if isinstance(values, list) else set()
    return found
