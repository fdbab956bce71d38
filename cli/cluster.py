"""A cluster as seen by a command: most requests go to any broker, others to the one that holds the state."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from ..protocol.errors import ErrorCode
from ..protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ..protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from ..protocol.schema import Request
from .client import CONNECT_TIMEOUT_S, connect
from .connection import Connection, PeerError
from .failure import Failure

EARLIEST_OFFSET = -2
LATEST_OFFSET = -1
OFFSET_OF_MAX_TIMESTAMP = -3


class Position(NamedTuple):
    """A ListOffsets result; offset and timestamp are -1 if there is no such record."""

    offset: int
    timestamp_ms: int


class BrokerError(PeerError):
    """A broker is unreachable or does not respond. The message names it, because it may not be the bootstrap broker."""


class Cluster:
    """Connections to brokers, opened on first use."""

    def __init__(self, bootstrap: Connection) -> None:
        self._bootstrap = bootstrap
        self._brokers: dict[int, Connection] = {}
        self._addresses: dict[int, tuple[str, int]] = {}
        self._forwarding: Connection | None = None
        self.controller_responds = True
        """False after a request to the controller without a response."""

    def close(self) -> None:
        for connection in (self._bootstrap, *self._brokers.values()):
            connection.close()
        if self._forwarding is not None:
            self._forwarding.close()

    def is_open(self) -> bool:
        """Whether no broker has closed its connection while it was idle."""
        return all(connection.is_open() for connection in (self._bootstrap, *self._brokers.values()))

    @property
    def bootstrap(self) -> Connection:
        """The connection to the bootstrap broker."""
        return self._bootstrap

    def ask(self, request: Request) -> Any:
        """The response of any broker."""
        return self._bootstrap.ask(request)

    def ask_controller(self, request: Request) -> Any | None:
        """The response to a request that brokers forward to the controller. None if there is none; no other request is
        sent then."""
        if not self.controller_responds:
            return None
        try:
            if self._forwarding is None:
                # A late response on the bootstrap connection would be taken for that to the next request.
                self._forwarding = self._connect(self._bootstrap.host, self._bootstrap.port)
            return self._forwarding.ask(request)
        except PeerError:
            self.controller_responds = False
            return None

    def ask_broker(self, node_id: int, request: Request) -> Any:
        """The response of one broker. Raises Failure for an unknown id, BrokerError if the broker does not respond."""
        connection = self.broker(node_id)
        try:
            return connection.ask(request)
        except PeerError as problem:
            # A late response would be taken for that to the next request.
            self._brokers.pop(node_id).close()
            raise self._broker_error(node_id, problem) from problem

    def broker_ids(self) -> list[int]:
        """The ids of all brokers."""
        return sorted(self._known_addresses())

    def topics(self, names: Iterable[str] | None) -> list[MetadataResponseTopic]:
        """Metadata of these topics (None: all), each with its error code. Does not create topics."""
        wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        metadata = self.ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=False))
        assert isinstance(metadata, MetadataResponse)
        return metadata.topics

    def positions(self, topics: Iterable[MetadataResponseTopic], timestamp: int) -> dict[tuple[str, int], Position]:
        """The ListOffsets results for ``timestamp``, for all partitions whose leader responds."""
        by_leader: dict[int, list[ListOffsetsTopic]] = {}
        for topic in topics:
            for partition in topic.partitions:
                if partition.leader_id >= 0:
                    wanted = ListOffsetsPartition(partition_index=partition.partition_index, timestamp=timestamp)
                    entry = ListOffsetsTopic(name=topic.name or "", partitions=[wanted])
                    by_leader.setdefault(partition.leader_id, []).append(entry)
        positions = {}
        for leader, entries in by_leader.items():
            request = ListOffsetsRequest(replica_id=-1, topics=_merged(entries), timeout_ms=5000)
            try:
                answer = self.ask_broker(leader, request)
            except BrokerError:
                continue
            for topic in answer.topics:
                for partition in topic.partitions:
                    if partition.error_code == 0:
                        position = Position(partition.offset, partition.timestamp)
                        positions[topic.name, partition.partition_index] = position
        return positions

    def broker(self, node_id: int) -> Connection:
        """The connection to one broker. Raises Failure for an unknown id, BrokerError if the broker is unreachable."""
        if node_id not in self._brokers:
            addresses = self._known_addresses()
            if node_id not in addresses:
                known = ", ".join(map(str, sorted(addresses)))
                raise Failure(f"unknown broker {node_id}; the cluster has: {known}")
            try:
                self._brokers[node_id] = self._connect(*addresses[node_id])
            except PeerError as problem:
                raise self._broker_error(node_id, problem) from problem
        return self._brokers[node_id]

    def _broker_error(self, node_id: int, problem: PeerError) -> BrokerError:
        host, port = self._known_addresses()[node_id]
        return BrokerError(f"broker {node_id} at {host}:{port}: {problem}")

    def _connect(self, host: str, port: int) -> Connection:
        return Connection(
            host,
            port,
            timeout_s=CONNECT_TIMEOUT_S,
            security=self._bootstrap.security,
            client_id=self._bootstrap.client_id,
        )

    def _known_addresses(self) -> dict[int, tuple[str, int]]:
        if not self._addresses:
            brokers = self.ask(MetadataRequest(topics=[])).brokers
            self._addresses = {broker.node_id: (broker.host, broker.port) for broker in brokers}
        return self._addresses


@contextmanager
def cluster(bootstrap_server: str) -> Iterator[Cluster]:
    """The cluster at an address as a context manager. PeerError becomes Failure."""
    found = Cluster(connect(bootstrap_server))
    try:
        yield found
    except PeerError as problem:
        named = problem if isinstance(problem, BrokerError) else f"{bootstrap_server}: {problem}"
        raise Failure(f"{named}\nRun `moldau doctor` to check the server.") from problem
    finally:
        found.close()


def error_name(code: int) -> str:
    """The Kafka name of an error code; the number if the code is unknown."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def explain(code: int, message: str | None = None, hints: dict[ErrorCode, str] | None = None) -> str:
    """A readable error: a hint if there is one, else the server's message, always with the Kafka error name."""
    name = error_name(code)
    words = next((hint for known, hint in (hints or {}).items() if known == code), None) or message
    return f"{words} ({name})" if words else name


def check_accepted(what: str, code: int, message: str | None) -> None:
    """Raise Failure if the server has refused something; ``what`` is a phrase such as "cannot list quotas"."""
    if code:
        raise Failure(f"{what}: {explain(code, message or 'the server refused')}")


def _merged(entries: Iterable[ListOffsetsTopic]) -> list[ListOffsetsTopic]:
    by_name: dict[str, ListOffsetsTopic] = {}
    for entry in entries:
        by_name.setdefault(entry.name, ListOffsetsTopic(name=entry.name)).partitions.extend(entry.partitions)
    return list(by_name.values())
