"""What a case works with: connections, topics, names, and comparisons.

A comparison that fails ends the case with the verdict "failed". A step inside `setup` that fails ends it with
"inconclusive", because it is not what the case tests.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar

from ..protocol.api import ApiKey
from ..protocol.errors import ErrorCode, KafkaError, MalformedMessage
from ..protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ..protocol.messages.delete_groups import DeleteGroupsRequest
from ..protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ..protocol.messages.find_coordinator import FindCoordinatorRequest
from ..protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ..protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ..protocol.schema import Request
from .exchange import Connection, Recorder
from .outcome import InconclusiveError, MismatchError, NotApplicableError
from .target import CLIENT_ID, Target

T = TypeVar("T")

_PAUSE_SECONDS: Final = 0.02
_TIMEOUT_MS: Final = 30_000
GROUP: Final = 0
TRANSACTION: Final = 1
_COORDINATOR_NOT_READY: Final = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
)


class Topic(NamedTuple):
    """A topic as requests name it: by name in older versions, by ID in newer ones."""

    name: str
    topic_id: bytes


class Check:
    """The environment of one case, closed at its end."""

    def __init__(self, target: Target, prefix: str, seconds: float) -> None:
        """`prefix` begins the names of the case's topics and groups; `seconds` is its deadline."""
        self.target = target
        self.recorder = Recorder()
        self._prefix = prefix
        self._deadline = time.monotonic() + seconds
        self._connections: list[Connection] = []
        self._wire: Connection | None = None
        self._topics: list[str] = []
        self._groups: list[str] = []
        self._names = 0
        self._in_setup = 0

    # Connections

    @property
    def wire(self) -> Connection:
        """A connection to the server, opened when it is first used."""
        if self._wire is None:
            self._wire = self.connect()
        return self._wire

    def connect(self, *, client_id: str | None = CLIENT_ID, address: str | None = None) -> Connection:
        """A new connection, closed at the end of the case. A failure means that the server is lost."""
        try:
            connection = self.target.connect(self.recorder, self.remaining, client_id=client_id, address=address)
        except OSError as error:
            raise InconclusiveError(f"no connection to {address or self.target.address}: {error}") from error
        self._connections.append(connection)
        return connection

    def call(self, request: Request, version: int | None = None, *, to: Connection | None = None) -> Any:
        """Send a request and return its response; by default the highest common version, on `wire`."""
        if version is None:
            version = self.version(ApiKey(request.API_KEY))
        return (to or self.wire).call(request, version)

    def version(self, api: ApiKey, highest: int | None = None) -> int:
        """The highest version of an API that both sides have, up to `highest`."""
        version = self.target.highest_version(api)
        if version is None:
            raise NotApplicableError(f"the server has no version of {api.message_name} that this suite has")
        return version if highest is None else min(version, highest)

    def coordinator(self, key: str, kind: int = GROUP) -> Connection:
        """A connection to the coordinator of a group or transactional ID."""
        version = self.version(ApiKey.FIND_COORDINATOR)

        def find() -> str | None:
            request = FindCoordinatorRequest(key_type=kind, key=key, coordinator_keys=[key])
            if version < 4:
                request = FindCoordinatorRequest(key_type=kind, key=key)
            else:
                request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            answer = self.call(request, version)
            found = answer.coordinators[0] if version >= 4 else answer
            if found.error_code in _COORDINATOR_NOT_READY:
                return None
            self.error(found.error_code, ErrorCode.NONE, "FindCoordinator error_code")
            return self.target.brokers.get(found.node_id, f"{found.host}:{found.port}")

        with self.setup(f"finding the coordinator of {key}"):
            address = self.until(find, f"a coordinator for {key}")
        if len(self.target.brokers) <= 1 or address == self.target.brokers.get(self.target.node_id):
            return self.wire
        return self.connect(address=address)

    # Names and topics

    def name(self, word: str = "name") -> str:
        """A name that no other case has."""
        self._names += 1
        return f"{self._prefix}-{word}-{self._names}"

    def group(self, word: str = "group") -> str:
        """The name of a group that is deleted at the end, if the server still has it."""
        group = self.name(word)
        self._groups.append(group)
        return group

    def topic_name(self, word: str = "topic") -> str:
        """The name of a topic that the case may create, and that is deleted at the end."""
        topic = self.name(word)
        self._topics.append(topic)
        return topic

    def topic(self, partitions: int = 1, configs: Mapping[str, str] | None = None, *, name: str | None = None) -> Topic:
        """A new topic, led by the broker at the address. Returns when its partitions can be used."""
        topic = name or self.topic_name()
        wanted = CreatableTopic(
            name=topic,
            num_partitions=partitions,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        if len(self.target.brokers) > 1:
            wanted.num_partitions = wanted.replication_factor = -1
            wanted.assignments = [
                CreatableReplicaAssignment(partition_index=index, broker_ids=[self.target.node_id])
                for index in range(partitions)
            ]
        with self.setup(f"creating the topic {topic}"):
            answer = self.call(CreateTopicsRequest(topics=[wanted], timeout_ms=_TIMEOUT_MS))
            (created,) = answer.topics
            if created.error_code:
                message = f" ({created.error_message})" if created.error_message else ""
                raise InconclusiveError(f"the topic {topic} was not created: {code(created.error_code)}{message}")
            return self.topic_ready(topic, partitions)

    def topic_ready(self, topic: str, partitions: int = 1) -> Topic:
        """Wait until a topic has this many partitions with leaders."""
        version = self.version(ApiKey.METADATA, 12)

        def is_known() -> Topic | None:
            request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=version < 4)
            (found,) = self.call(request, version).topics
            complete = not found.error_code and len(found.partitions) == partitions
            return Topic(topic, found.topic_id) if complete else None

        def has_leaders() -> bool:
            requested = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(partitions)]
            request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=requested)])
            answer = self.call(request, self.version(ApiKey.LIST_OFFSETS, 7))
            return all(each.error_code == 0 for each in answer.topics[0].partitions)

        with self.setup(f"waiting for the topic {topic}"):
            found = self.until(is_known, f"{partitions} partitions of {topic} in Metadata")
            self.until(has_leaders, f"leaders of the partitions of {topic}")
            return found

    # Comparisons

    def equal(self, actual: object, expected: object, what: str) -> None:
        """`what` is the field of the response, such as `topics[0].error_code`, or a description."""
        if actual != expected:
            raise MismatchError(what, shown(expected), shown(actual))

    def error(self, actual: int, expected: ErrorCode | Collection[ErrorCode], what: str = "error_code") -> None:
        """Compare an error code with the one, or the ones, that are right."""
        allowed = (expected,) if isinstance(expected, ErrorCode) else tuple(expected)
        if actual not in allowed:
            raise MismatchError(what, " or ".join(code(each) for each in allowed), code(actual))

    def true(self, condition: object, what: str, *, expected: str, actual: object) -> None:
        """For what is not a comparison with one value, such as "at least 3"."""
        if not condition:
            raise MismatchError(what, expected, shown(actual))

    def closed(self, connection: Connection, what: str = "the connection") -> None:
        """The server closes a connection without sending anything."""
        try:
            closed = connection.closed_by_server()
        except TimeoutError:
            raise MismatchError(what, "closed by the server", "still open") from None
        if not closed:
            raise MismatchError(what, "closed by the server", "a response")

    def until(self, condition: Callable[[], T | None], what: str) -> T:
        """Repeat until the result is true; the case fails at its deadline."""
        while True:
            result = condition()
            if result:
                return result
            if self.remaining() <= _PAUSE_SECONDS:
                raise MismatchError(what, "before the deadline", f"not yet; last result {shown(result)}")
            time.sleep(_PAUSE_SECONDS)

    def remaining(self) -> float:
        """The seconds until the deadline, at least 10 ms, as sockets require a positive timeout."""
        return max(self._deadline - time.monotonic(), 0.01)

    @contextlib.contextmanager
    def setup(self, what: str) -> Iterator[None]:
        """A failure inside is not what the case tests: its verdict is "inconclusive"."""
        try:
            yield
        except (MismatchError, OSError, MalformedMessage) as error:
            raise InconclusiveError(f"{what}: {error}") from error
        except KafkaError as error:
            raise NotApplicableError(f"{what}: {error}") from error

    # Its end

    def interrupt(self) -> None:
        """Called by another thread: end the case, which waits for a response, a condition or nothing."""
        self._deadline = 0.0
        for connection in list(self._connections):
            connection.interrupt()

    def clean_up(self) -> None:
        """Delete topics and groups. Failures do not change the verdict: the case has already ended."""
        if not (self._topics or self._groups):
            return
        with (
            contextlib.suppress(
                OSError, KafkaError, MalformedMessage, InconclusiveError, NotApplicableError, MismatchError
            ),
            self.target.connect(self.recorder, lambda: 5.0 * self.target.patience) as wire,
        ):
            if self._groups and self.target.highest_version(ApiKey.DELETE_GROUPS) is not None:
                self.call(DeleteGroupsRequest(groups_names=self._groups), to=wire)
            if self._topics:
                version = self.version(ApiKey.DELETE_TOPICS)
                request = DeleteTopicsRequest(timeout_ms=_TIMEOUT_MS)
                if version >= 6:
                    request.topics = [DeleteTopicState(name=topic) for topic in self._topics]
                else:
                    request.topic_names = self._topics
                self.call(request, version, to=wire)

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def code(number: int) -> str:
    """The name and number of an error code."""
    try:
        return f"{ErrorCode(number).name} ({number})"
    except ValueError:
        return f"unknown error code {number}"


def shown(value: object) -> str:
    """A value in a failure, shortened."""
    text = repr(value)
    return text if len(text) <= 2_000 else f"{text[:2_000]}... ({len(text)} characters)"
