"""What a case works with: connections, topics, names, and comparisons.

A comparison that fails ends the case with the verdict "failed". A step inside `setup` that fails ends it with
"inconclusive", because it is not what the case tests.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, Protocol, Self, TypeVar

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
from ..protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ..protocol.messages.describe_groups import DescribeGroupsRequest
from ..protocol.messages.describe_transactions import DescribeTransactionsRequest
from ..protocol.messages.find_coordinator import FindCoordinatorRequest
from ..protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ..protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ..protocol.schema import Request
from .crashes import Crashes
from .error_codes import Code, like
from .exchange import Connection, Recorder
from .outcome import InconclusiveError, MismatchError, NotApplicableError
from .target import CLIENT_ID, Target

if TYPE_CHECKING:
    from .real_clients import RealClients

T = TypeVar("T")

_PAUSE_SECONDS: Final = 0.02
_TIMEOUT_MS: Final = 30_000
_BROKER: Final = 4
GROUP: Final = 0
TRANSACTION: Final = 1
COORDINATOR_NOT_READY: Final = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
)


class Attachment(Protocol):
    """What belongs to a case besides connections."""

    def interrupt(self) -> None:
        """End what another thread waits for; called by a signal handler or another thread."""

    def close(self) -> None:
        """Release it, at the end of the case."""


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
        self.prefix = prefix
        self.crashes: Crashes | None = None
        """For cases of the layer `crash`."""
        self.clients: RealClients | None = None
        """For cases of the layer `clients`."""
        self._attachments: list[Attachment] = []
        self._seconds = seconds
        self._restarted = False
        self._deadline = time.monotonic() + seconds
        self._connections: list[Connection] = []
        self._wire: Connection | None = None
        self._topics: list[str] = []
        self._groups: list[str] = []
        self._coordinators: dict[tuple[str, int], Connection] = {}
        self._brokers: dict[int, Connection] = {}
        self._ready: dict[str, tuple[Topic, int]] = {}
        self._at_end: list[Callable[[Connection], object]] = []
        self._names = 0
        self._in_setup = 0
        self._interrupted = False
        self._lock = threading.RLock()
        """Guards `_interrupted` and, so that `interrupt` finds all of them, `_connections`."""

    # Connections

    @property
    def wire(self) -> Connection:
        """A connection to the server, opened when it is first used."""
        if self._wire is None:
            self._wire = self.connect()
        return self._wire

    def connect(
        self, *, client_id: str | None = CLIENT_ID, address: str | None = None, authenticated: bool = True
    ) -> Connection:
        """A new connection, closed at the end of the case. A failure means that the server is lost.

        `authenticated`: false for a case that authenticates itself, if the server uses SASL.
        """
        try:
            connection = self.target.connect(
                self.recorder, self.remaining, client_id=client_id, address=address, authenticated=authenticated
            )
        except OSError as error:
            raise InconclusiveError(f"no connection to {address or self.target.address}: {error}") from error
        connection.extra_bytes = lambda: self._in_setup > 0
        with self._lock:
            self._connections.append(connection)
            if self._interrupted:
                connection.interrupt(now=True)
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
        """A connection to the coordinator of a group or transactional ID, which has loaded its partition."""
        known = self._coordinators.get((key, kind))
        if known is not None:
            return known
        version = self.version(ApiKey.FIND_COORDINATOR)

        def find() -> str | None:
            request = FindCoordinatorRequest(key_type=kind, key=key, coordinator_keys=[key])
            if version < 4:
                request = FindCoordinatorRequest(key_type=kind, key=key)
            else:
                request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            answer = self.call(request, version)
            found = answer.coordinators[0] if version >= 4 else answer
            if found.error_code in COORDINATOR_NOT_READY:
                return None
            self.error(found.error_code, ErrorCode.NONE, "FindCoordinator error_code")
            return self.target.brokers.get(found.node_id, f"{found.host}:{found.port}")

        with self.setup(f"finding the coordinator of {key}"):
            address = self.until(find, f"a coordinator for {key}")
        here = len(self.target.brokers) <= 1 or address == self.target.brokers.get(self.target.node_id)
        connection = self.wire if here else self.connect(address=address)
        with self.setup(f"waiting for the coordinator of {key}"):
            self.until(lambda: self._has_loaded(key, kind, connection), f"that the coordinator of {key} has loaded")
            if connection is not self.wire:
                for topic, partitions in self._ready.values():
                    self._await_topic(topic.name, partitions, connection, topic.topic_id)
        self._coordinators[key, kind] = connection
        return connection

    def _has_loaded(self, key: str, kind: int, connection: Connection) -> bool:
        """Whether a coordinator responds: a moment after the start of a server it does not yet."""
        if kind == GROUP and self.target.highest_version(ApiKey.DESCRIBE_GROUPS) is not None:
            (found,) = self.call(DescribeGroupsRequest(groups=[key]), to=connection).groups
        elif kind == TRANSACTION and self.target.highest_version(ApiKey.DESCRIBE_TRANSACTIONS) is not None:
            (found,) = self.call(DescribeTransactionsRequest(transactional_ids=[key]), to=connection).transaction_states
        else:
            return True
        return found.error_code not in COORDINATOR_NOT_READY

    def crash(self) -> None:
        """Kill the server and start it again, together with the other running crash cases.

        Connections are closed before. The deadline of the case begins again, because a restart takes its own time.
        """
        assert self.crashes is not None, "only a case of the layer crash may kill the server"
        self.close()
        self._connections.clear()
        self._coordinators.clear()
        self._brokers.clear()
        self._wire = None
        self.crashes.crash()
        self._deadline = time.monotonic() + self._seconds
        self._restarted = True

    def attach(self, attachment: Attachment) -> None:
        """Interrupt it with the case, and close it at its end."""
        with self._lock:
            self._attachments.append(attachment)
            interrupted = self._interrupted
        if interrupted:
            attachment.interrupt()

    # Names and topics

    def name(self, word: str = "name") -> str:
        """A name that no other case has."""
        self._names += 1
        return f"{self.prefix}-{word}-{self._names}"

    def group(self, word: str = "group") -> str:
        """The name of a group that is deleted at the end, if the server still has it."""
        group = self.name(word)
        self._groups.append(group)
        return group

    def topic_name(self, word: str = "topic") -> str:
        """The name of a topic that the case may create, and that is deleted at the end."""
        topic = self.name(word)
        self.delete_later(topic)
        return topic

    def delete_later(self, topic: str) -> None:
        """Delete a topic at the end whose name begins with one of the case's names."""
        self._topics.append(topic)

    def topic(
        self,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        *,
        name: str | None = None,
        leaders: Sequence[int] | None = None,
    ) -> Topic:
        """A new topic. Returns when its partitions can be used.

        `leaders`: the brokers that lead its partitions, which all brokers know then; default: the one at the address.
        """
        topic = name or self.topic_name()
        if self.target.highest_version(ApiKey.CREATE_TOPICS) is None and not configs:
            return self._auto_created(topic, partitions)
        wanted = CreatableTopic(
            name=topic,
            num_partitions=partitions,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        self.led_here(wanted, leaders)
        with self.setup(f"creating the topic {topic}"):
            answer = self.call(CreateTopicsRequest(topics=[wanted], timeout_ms=_TIMEOUT_MS))
            (created,) = answer.topics
            if created.error_code:
                message = f" ({created.error_message})" if created.error_message else ""
                raise InconclusiveError(f"the topic {topic} was not created: {code(created.error_code)}{message}")
            ready = self.topic_ready(topic, partitions)
            if leaders is not None:
                self.known_everywhere(ready, partitions)
            return ready

    def led_here(self, wanted: CreatableTopic, leaders: Sequence[int] | None = None) -> CreatableTopic:
        """Assign the partitions of a topic to the broker at the address, or to other `leaders`, if there are several
        brokers; returns the topic."""
        if len(self.target.brokers) > 1:
            wanted.assignments = [
                CreatableReplicaAssignment(partition_index=index, broker_ids=[leader])
                for index, leader in enumerate(leaders or [self.target.node_id] * wanted.num_partitions)
            ]
            wanted.num_partitions = wanted.replication_factor = -1
        return wanted

    def _auto_created(self, topic: str, partitions: int) -> Topic:
        """A topic that Metadata creates, as the server does not have CreateTopics; it may have more partitions."""

        def count() -> int:
            request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True)
            (found,) = self.call(request, self.version(ApiKey.METADATA, 12)).topics
            return 0 if found.error_code else len(found.partitions)

        with self.setup(f"creating the topic {topic} with Metadata"):
            created = self.until(count, f"the topic {topic} in Metadata")
            if created < partitions:
                raise NotApplicableError(f"without CreateTopics, a topic has {created} partitions")
            return self.topic_ready(topic, created)

    def topic_ready(self, topic: str, partitions: int = 1) -> Topic:
        """Wait until a topic has this many partitions with leaders, and the coordinators know it."""
        version = self.version(ApiKey.METADATA, 12)

        def has_leaders() -> bool:
            for connection, indexes in self._leaders(topic, partitions, version).items():
                requested = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in indexes]
                request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=requested)])
                answer = self.call(request, self.version(ApiKey.LIST_OFFSETS, 7), to=connection)
                if any(each.error_code for each in answer.topics[0].partitions):
                    return False
            return True

        with self.setup(f"waiting for the topic {topic}"):
            found = self._await_topic(topic, partitions, self.wire)
            self.until(has_leaders, f"leaders of the partitions of {topic}")
            # Other brokers may learn of the topic later, and coordinators check the topics of offsets.
            for connection in {each for each in self._coordinators.values() if each is not self.wire}:
                self._await_topic(topic, partitions, connection, found.topic_id)
            self._ready[topic] = found, partitions
            return found

    def known_everywhere(self, topic: Topic, partitions: int = 1) -> None:
        """Wait until every broker knows a topic, as a step of the setup."""
        with self.setup(f"waiting until all brokers know the topic {topic.name}"):
            for node_id in self.target.brokers:
                self._await_topic(topic.name, partitions, self.to_broker(node_id), topic.topic_id)

    def _await_topic(self, topic: str, partitions: int, connection: Connection, topic_id: bytes | None = None) -> Topic:
        """Wait until a broker knows this many partitions of a topic, which may have been created again."""
        version = self.version(ApiKey.METADATA, 12)

        def known() -> Topic | None:
            request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=version < 4)
            (found,) = self.call(request, version, to=connection).topics
            complete = not found.error_code and len(found.partitions) == partitions
            return Topic(topic, found.topic_id) if complete and topic_id in (None, found.topic_id) else None

        return self.until(known, f"{partitions} partitions of {topic} in Metadata")

    def _leaders(self, topic: str, partitions: int, version: int) -> dict[Connection, list[int]]:
        """The partitions by the connection to their leader; `version` is that of Metadata."""
        if len(self.target.brokers) <= 1:
            return {self.wire: list(range(partitions))}
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=version < 4)
        (found,) = self.call(request, version).topics
        leaders: dict[Connection, list[int]] = {}
        for partition in found.partitions:
            leaders.setdefault(self.to_broker(partition.leader_id), []).append(partition.partition_index)
        return leaders

    def to_broker(self, node_id: int) -> Connection:
        """A connection to a broker; `wire` if it is the one under test, or unknown."""
        address = self.target.brokers.get(node_id)
        if address is None or node_id == self.target.node_id:
            return self.wire
        if node_id not in self._brokers:
            self._brokers[node_id] = self.connect(address=address)
        return self._brokers[node_id]

    def delete_topic(self, topic: Topic) -> None:
        """Delete a topic, as a step of the setup."""
        self._ready.pop(topic.name, None)
        version = self.version(ApiKey.DELETE_TOPICS)
        request = DeleteTopicsRequest(timeout_ms=_TIMEOUT_MS)
        if version >= 6:
            request.topics = [DeleteTopicState(name=topic.name)]
        else:
            request.topic_names = [topic.name]
        with self.setup(f"deleting the topic {topic.name}"):
            (deleted,) = self.call(request, version).responses
            self.error(deleted.error_code, ErrorCode.NONE, "DeleteTopics error_code")

    def broker_config(self, key: str, default: str) -> str:
        """A setting of the broker at the address, as it describes it; the default if it does not."""
        version = self.version(ApiKey.DESCRIBE_CONFIGS)
        resource = DescribeConfigsResource(
            resource_type=_BROKER, resource_name=str(self.target.node_id), configuration_keys=[key]
        )
        (result,) = self.call(DescribeConfigsRequest(resources=[resource]), version).results
        found = {each.name: each.value for each in result.configs}
        return found.get(key) or default

    # Comparisons

    def equal(self, actual: object, expected: object, what: str) -> None:
        """`what` is the field of the response, such as `topics[0].error_code`, or a description."""
        if actual != expected:
            raise MismatchError(what, shown(like(expected, actual)), shown(actual))

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
        result: T | None = None
        while True:
            try:
                result = condition()
            except TimeoutError as error:
                raise MismatchError(what, "before the deadline", f"not yet; last result {shown(result)}") from error
            if result:
                return result
            if self.remaining() <= _PAUSE_SECONDS:
                raise MismatchError(what, "before the deadline", f"not yet; last result {shown(result)}")
            time.sleep(_PAUSE_SECONDS)

    def remaining(self) -> float:
        """The seconds until the deadline, at least 10 ms, as sockets require a positive timeout."""
        return max(self._deadline - time.monotonic(), 0.01)

    def not_applicable(self, reason: str) -> NoReturn:
        """End the case: it does not apply to this server."""
        raise NotApplicableError(reason)

    @contextlib.contextmanager
    def setup(self, what: str) -> Iterator[None]:
        """A failure inside is not what the case tests: its verdict is "inconclusive".

        After a crash it is: whatever worked before has to work again. Inside, responses may be followed by extra bytes.
        """
        self._in_setup += 1
        try:
            yield
        except (MismatchError, OSError, MalformedMessage) as error:
            if self._restarted:
                raise
            request = "" if isinstance(error, MismatchError) else self.recorder.last_request()
            raise InconclusiveError(f"{what}: {request}{': ' if request else ''}{error}") from error
        except KafkaError as error:
            raise NotApplicableError(f"{what}: {error}") from error
        finally:
            self._in_setup -= 1

    # Its end

    def at_end(self, last: Request | Callable[[Connection], object], version: int | None = None) -> None:
        """When the case has ended, whatever its verdict, send this request, or call this with a new connection."""
        if isinstance(last, Request):
            request = last
            self._at_end.append(lambda wire: self.call(request, version, to=wire))
        else:
            self._at_end.append(last)

    def interrupt(self, *, now: bool) -> bool:
        """Called by another thread: end the case, which waits for a response, a condition or nothing.

        Unless it must end `now`, it ends when the server has made the changes that it was asked for: before that,
        `clean_up` would not find them. Returns whether the response to one is pending.
        """
        self._deadline = 0.0
        with self._lock:
            self._interrupted = True
            pending = [connection.interrupt(now=now) for connection in self._connections]
            attachments = list(self._attachments)
        for attachment in attachments:
            attachment.interrupt()
        return any(pending)

    def clean_up(self) -> None:
        """Perform the actions of `at_end`, and delete topics and groups.

        Failures do not change the verdict: the case has already ended.
        """
        if not (self._topics or self._groups or self._at_end):
            return
        with (
            contextlib.suppress(
                OSError, KafkaError, MalformedMessage, InconclusiveError, NotApplicableError, MismatchError
            ),
            self.target.connect(self.recorder, lambda: 5.0 * self.target.patience) as wire,
        ):
            for action in self._at_end:
                with contextlib.suppress(KafkaError):
                    action(wire)
            if self._groups and self.target.highest_version(ApiKey.DELETE_GROUPS) is not None:
                self._delete_groups(wire)
            if self._topics:
                version = self.version(ApiKey.DELETE_TOPICS)
                request = DeleteTopicsRequest(timeout_ms=_TIMEOUT_MS)
                if version >= 6:
                    request.topics = [DeleteTopicState(name=topic) for topic in self._topics]
                else:
                    request.topic_names = self._topics
                self.call(request, version, to=wire)

    def _delete_groups(self, wire: Connection) -> None:
        """Each broker deletes the groups that it coordinates."""
        request = DeleteGroupsRequest(groups_names=self._groups)
        self.call(request, to=wire)
        for address in self.target.other_brokers():
            with (
                contextlib.suppress(OSError),
                self.target.connect(self.recorder, lambda: 5.0 * self.target.patience, address=address) as other,
            ):
                self.call(request, to=other)

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        while self._attachments:
            self._attachments.pop().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def code(number: int) -> str:
    """The name and number of an error code."""
    return str(Code(number))


def shown(value: object) -> str:
    """A value in a failure, shortened."""
    text = repr(value)
    return text if len(text) <= 2_000 else f"{text[:2_000]}... ({len(text)} characters)"
