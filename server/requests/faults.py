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
from ...protocol.release_versions import HIGHEST_VERSIONS, KNOWN_FEATURES
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
    CORRUPT_BATCH = "corrupt batch"
    """The records of the response have a wrong byte, so that their CRC is wrong."""
    CAP_VERSIONS = "cap versions"
    """The response to ApiVersions has lower versions."""
    STALE_METADATA = "stale metadata"
    """The response to Metadata describes the topics as they were when the fault was added."""
    MOVE_COORDINATOR = "move coordinator"
    """Requests for a group or transactional ID get NOT_COORDINATOR until their client sends FindCoordinator then."""
    ADVERTISE = "advertise"
    """The responses that contain the addresses of brokers have another address."""
    TAGGED_FIELDS = "tagged fields"
    """Each struct of the response has a tagged field that no client knows (KIP-482)."""


_FIXED_API: Final = {
    Kind.CORRUPT_BATCH: ApiKey.FETCH,
    Kind.CAP_VERSIONS: ApiKey.API_VERSIONS,
    Kind.STALE_METADATA: ApiKey.METADATA,
}
"""Kinds that change the response of one API only."""

_WITH_ADDRESSES: Final = frozenset({ApiKey.METADATA, ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_CLUSTER})

_OF_COORDINATORS: Final = frozenset(
    {
        ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.JOIN_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP,
        ApiKey.SYNC_GROUP, ApiKey.DESCRIBE_GROUPS, ApiKey.DELETE_GROUPS, ApiKey.OFFSET_DELETE,
        ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE, ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_DESCRIBE, ApiKey.STREAMS_GROUP_HEARTBEAT, ApiKey.STREAMS_GROUP_DESCRIBE,
        ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.END_TXN, ApiKey.DESCRIBE_TRANSACTIONS,
    }
)  # fmt: skip
"""The APIs that Apache Kafka answers with NOT_COORDINATOR. Produce has a transactional ID, but goes to leaders."""


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
            self.versions = _versions(given.pop("versions", None))
            self.error = ErrorCode(given.pop("error", ErrorCode.UNKNOWN_SERVER_ERROR))
            self.highest, self.features = _capped(given.pop("highest", {}))
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise FaultError(f"not a fault: {error}") from error
        self.client_id = _text(given, "client_id")
        self.topic = _text(given, "topic")
        self.partition = _integer(given, "partition")
        self.group = _text(given, "group")
        self.milliseconds = _integer(given, "milliseconds") or 0
        self.address = (_text(given, "host") or "", _integer(given, "port") or 0)
        self._skip = _integer(given, "skip") or 0
        self._times = _integer(given, "times")
        self._probability = _probability(given)
        self._random = Random(_integer(given, "seed") or 0)
        self._topic_id_of = topic_id_of
        # For MOVE_COORDINATOR: client IDs. A lookup counts after the first error, because clients also look up without.
        self._have_failed: set[str] = set()
        self._have_looked_up: set[str] = set()
        self.matched = 0
        self.triggered = 0
        if given:
            raise FaultError(f"a fault has no {', '.join(sorted(given))}")
        if self.partition is not None and self.topic is None:
            raise FaultError("a fault with a partition needs a topic")
        self._check_kind()

    def affects(self, api: int, version: int, client_id: str, decode: Callable[[], Struct | None]) -> bool:
        """Whether the fault affects this request, which is counted. `decode` returns the request, or None if its bytes
        are not valid."""
        if self.api is not None and self.api != api:
            return False
        if self.versions is not None and version not in self.versions:
            return False
        if self.client_id is not None and self.client_id != client_id:
            return False
        if self.kind is Kind.ADVERTISE and api not in _WITH_ADDRESSES:
            return False
        if self.kind is Kind.MOVE_COORDINATOR and not self._is_for_old_coordinator(api, client_id, decode):
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
        self._have_failed.add(client_id)
        return True

    def _check_kind(self) -> None:
        if self.kind is Kind.MOVE_COORDINATOR:
            if self.group is None:
                raise FaultError("a coordinator is moved for one group or transactional ID: name it as the group")
            self.error = ErrorCode.NOT_COORDINATOR
        elif self.kind is Kind.ADVERTISE:
            host, port = self.address
            if not host or not 0 < port < 65_536:
                raise FaultError(f"an address has a host and a port from 1 to 65535, not {host!r} and {port}")
        fixed = _FIXED_API.get(self.kind)
        if fixed is not None and self.api not in (None, fixed):
            raise FaultError(f"{self.kind.value} is a fault of {fixed.message_name} only")
        self.api = fixed if fixed is not None else self.api

    def _is_for_old_coordinator(self, api: int, client_id: str, decode: Callable[[], Struct | None]) -> bool:
        if api == ApiKey.FIND_COORDINATOR:
            request = decode()
            if client_id in self._have_failed and request is not None and self._mentioned_in(request):
                self._have_looked_up.add(client_id)
            return False
        return api in _OF_COORDINATORS and client_id not in self._have_looked_up

    def _mentioned_in(self, request: Struct) -> bool:
        if self.topic is not None:
            topic_id = self._topic_id_of(self.topic)
            topics = [each for each in structs(request) if self._is_topic(each, topic_id)]
            if not topics and not self._lists_topic(request):
                return False
            if self.partition is not None and not any(self.partition in _partitions(each) for each in topics):
                return False
        return self.group is None or any(self.group in _groups(each) for each in structs(request))

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


def _text(given: dict[str, Any], name: str) -> str | None:
    value = given.pop(name, None)
    if value is not None and not isinstance(value, str):
        raise FaultError(f"not a fault: {name} is a string, not {value!r}")
    return value


def _integer(given: dict[str, Any], name: str) -> int | None:
    value = given.pop(name, None)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise FaultError(f"not a fault: {name} is an integer of at least 0, not {value!r}")
    return value


def _probability(given: dict[str, Any]) -> float | None:
    value = given.pop("probability", None)
    if value is None:
        return None
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value <= 1:
        raise FaultError(f"not a fault: a probability is a number from 0 to 1, not {value!r}")
    return value


def _versions(pair: Any) -> range | None:
    if pair is None:
        return None
    lowest, highest = pair
    if lowest > highest:
        raise ValueError(f"versions are the lowest and the highest, not {pair!r}")
    return range(lowest, highest + 1)


def _capped(highest: object) -> tuple[Mapping[int, int], frozenset[str] | None]:
    """The highest version by API, and the remaining features; None keeps all."""
    if isinstance(highest, str):
        if highest not in HIGHEST_VERSIONS:
            raise ValueError(
                f"there are no versions of Apache Kafka {highest}; known are {', '.join(HIGHEST_VERSIONS)}"
            )
        versions = HIGHEST_VERSIONS[highest]
        return {int(api): versions.get(api, -1) for api in ApiKey}, KNOWN_FEATURES[highest]
    if not isinstance(highest, Mapping):
        raise TypeError(f"highest is a release of Apache Kafka or an object, not {highest!r}")
    return {int(key): int(version) for key, version in highest.items()}, None


def structs(value: Any) -> Iterator[Struct]:
    """A struct and all structs inside it."""
    if isinstance(value, Struct):
        yield value
        for field in value.FIELDS:
            yield from structs(getattr(value, field.name, None))
    elif isinstance(value, list):
        for each in value:
            yield from structs(each)


def _partitions(topic: Struct) -> set[int]:
    """The partitions that a request names below a topic."""
    found: set[int] = set()
    for struct in structs(topic):
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
