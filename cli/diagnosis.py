"""The checks of ``moldau doctor``.

A diagnosis is a sequence of findings in the order in which a client would meet them: is the address reachable and does
a Kafka server respond, which APIs does it support, are its advertised addresses reachable, do partitions have leaders
and in-sync replicas, is there space on its disks, do clocks agree. Nothing is changed: no topic is created and no group
is joined. The checks are functions of responses; only ``diagnose`` sends requests.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Final, NamedTuple

from ..protocol.api import ApiKey
from ..protocol.errors import ErrorCode
from ..protocol.messages.api_versions import ApiVersionsResponse
from ..protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResult
from ..protocol.messages.list_offsets import ListOffsetsRequest
from ..protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from .client_security import security_of_command
from .cluster import OFFSET_OF_MAX_TIMESTAMP, BrokerError, Cluster, Position, error_name
from .connection import Connection, PeerError
from .loopback import is_loopback

# The maximum number of names in a list; the rest is counted.
_LISTED: Final = 5
# The maximum number of partitions whose newest timestamp is requested.
_CLOCK_PARTITIONS: Final = 1000
# The default of message.timestamp.after.max.ms: records with a later timestamp are rejected.
_CLOCK_AHEAD_MS: Final = 3_600_000
_SLOW_S: Final = 0.5
_FULL_SHARE: Final = 0.05
_TIMEOUT_S: Final = 5.0
# The first version of ListOffsets that returns the offset of the newest timestamp (KIP-734).
_MAX_TIMESTAMP_SINCE: Final = 7

# The APIs that ordinary clients require, by purpose.
_NEEDED: Final[Mapping[str, tuple[ApiKey, ...]]] = {
    "producing": (ApiKey.METADATA, ApiKey.PRODUCE),
    "idempotent producing (the default of most clients)": (ApiKey.INIT_PRODUCER_ID,),
    "consuming": (ApiKey.METADATA, ApiKey.FETCH, ApiKey.LIST_OFFSETS),
    "creating topics": (ApiKey.CREATE_TOPICS,),
}
_GROUPS: Final = (ApiKey.JOIN_GROUP, ApiKey.CONSUMER_GROUP_HEARTBEAT)


class Level(Enum):
    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


class Finding(NamedTuple):
    """The result of one check. ``advice`` says how to fix a problem."""

    level: Level
    text: str
    advice: str | None = None


Connect = Callable[[str, int], Connection]


def connect(host: str, port: int) -> Connection:
    return Connection(host, port, timeout_s=_TIMEOUT_S, security=security_of_command())


def diagnose(addresses: Iterable[tuple[str, int]], *, now_ms: int, connect: Connect = connect) -> Iterator[Finding]:
    """Check the cluster at ``addresses``, which should all belong to it."""
    connections: list[Connection] = []
    try:
        for host, port in addresses:
            started = time.monotonic()
            try:
                connection = connect(host, port)
            except PeerError as problem:
                yield unreachable(host, port, str(problem))
                continue
            connections.append(connection)
            yield _responded(host, port, time.monotonic() - started)
        if connections:
            yield from _diagnose_cluster(connections[0], now_ms, connect)
    finally:
        for connection in connections:
            connection.close()


def _diagnose_cluster(connection: Connection, now_ms: int, connect: Connect) -> Iterator[Finding]:
    yield from check_apis(connection.greeting)
    if not connection.offers(ApiKey.METADATA):
        return
    cluster = Cluster(connection)
    try:
        metadata = cluster.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False))
        assert isinstance(metadata, MetadataResponse)
        yield from check_cluster(metadata)
        reachable = set()
        for broker in metadata.brokers:
            problem, cluster_id = _probe(broker, connect)
            if problem is None:
                reachable.add(broker.node_id)
            yield check_advertised_address(broker, problem, cluster_id, metadata.cluster_id, connection.host)
        yield from check_topics(metadata.topics)
        for node_id in sorted(reachable):
            if connection.offers(ApiKey.DESCRIBE_LOG_DIRS):
                yield from _log_dirs(cluster, node_id)
        sample = _sample(metadata.topics, reachable)
        if sample and connection.version_of(ListOffsetsRequest) >= _MAX_TIMESTAMP_SINCE:
            yield check_clocks(cluster.positions(sample, OFFSET_OF_MAX_TIMESTAMP), now_ms)
    except PeerError as problem:
        yield Finding(
            Level.PROBLEM,
            f"the server stopped responding: {problem}",
            "Check the server's log for the request that failed.",
        )


def unreachable(host: str, port: int, problem: str) -> Finding:
    """The finding for a given address at which no Kafka server responds."""
    if "refused" in problem:
        advice = "No server listens at this address. Start one (`moldau serve`), or correct --bootstrap-server."
    elif "resolve" in problem:
        advice = "Correct the host name in --bootstrap-server, or add it to DNS or /etc/hosts."
    elif "closed" in problem or "not Kafka" in problem or "cannot decode" in problem:
        advice = "The listener is not a plaintext Kafka listener. Check the port, and whether the listener uses TLS."
    else:
        advice = "Check that the server is running and that no firewall blocks this machine."
    return Finding(Level.PROBLEM, f"cannot reach {host}:{port}: {problem}", advice)


def _responded(host: str, port: int, seconds: float) -> Finding:
    text = f"{host}:{port} responds ({seconds * 1000:.0f} ms)"
    if seconds < _SLOW_S:
        return Finding(Level.OK, text)
    return Finding(Level.NOTE, text, "This is slow. Check the server's load, name resolution and the network distance.")


def check_apis(greeting: ApiVersionsResponse) -> Iterator[Finding]:
    """The APIs that the server supports: required APIs that are missing, and invalid version ranges."""
    offered = {entry.api_key: entry for entry in greeting.api_keys}
    odd = [entry for entry in greeting.api_keys if entry.min_version > entry.max_version or entry.min_version < 0]
    for entry in odd:
        yield Finding(
            Level.PROBLEM,
            f"the server reports versions {entry.min_version} to {entry.max_version} of {_api_name(entry.api_key)}",
            "The version range is invalid, so clients cannot use this API.",
        )
    for purpose, needed in _NEEDED.items():
        missing = [api_key.message_name for api_key in needed if api_key not in offered]
        if missing:
            yield Finding(
                Level.PROBLEM,
                f"the server does not support {', '.join(missing)}, required for {purpose}",
                "Check that this is a client listener of a broker, not a controller's.",
            )
    if not any(api_key in offered for api_key in _GROUPS):
        yield Finding(
            Level.NOTE,
            "the server does not support consumer groups",
            "Consumers must use assign() instead of subscribe(), and cannot commit offsets.",
        )
    unknown = [entry.api_key for entry in greeting.api_keys if entry.api_key not in tuple(ApiKey)]
    newer = f", {len(unknown)} of them unknown to this tool" if unknown else ""
    levels = ", ".join(f"{feature.name} {feature.max_version_level}" for feature in greeting.finalized_features)
    yield Finding(
        Level.OK, f"the server supports {len(offered)} APIs{newer}" + (f"; features: {levels}" if levels else "")
    )


def check_cluster(metadata: MetadataResponse) -> Iterator[Finding]:
    """The brokers and the controller."""
    nodes = sorted(broker.node_id for broker in metadata.brokers)
    if not nodes:
        yield Finding(
            Level.PROBLEM,
            "the server reports no brokers, not even itself",
            "The server is still starting, or its controller fenced it. Check its log.",
        )
        return
    count = _counted(len(nodes), "broker")
    yield Finding(Level.OK, f"cluster {metadata.cluster_id}: {count} ({_listed(nodes)})")
    if metadata.controller_id < 0:
        yield Finding(
            Level.PROBLEM,
            "the cluster has no controller",
            "Start a controller. Without one, topics cannot be changed and leaders cannot be elected.",
        )


def check_advertised_address(
    broker: MetadataResponseBroker,
    problem: str | None,
    found_cluster_id: str | None,
    cluster_id: str | None,
    connected_host: str,
) -> Finding:
    """A broker's advertised address, to which clients connect after bootstrapping."""
    address = f"{broker.host}:{broker.port}"
    if problem is not None:
        if is_loopback(broker.host) and not is_loopback(connected_host):
            advice = (
                f"Set advertised.listeners to an address that clients can reach, such as PLAINTEXT://{connected_host}:"
                f"{broker.port}; {broker.host} is this machine, not the server."
            )
        else:
            advice = "Set advertised.listeners to an address that this machine can resolve and connect to."
        return Finding(
            Level.PROBLEM, f"broker {broker.node_id} advertises {address}, which is unreachable: {problem}", advice
        )
    if found_cluster_id != cluster_id:
        return Finding(
            Level.PROBLEM,
            f"broker {broker.node_id} advertises {address}, which belongs to cluster {found_cluster_id}",
            "Correct advertised.listeners, or give each server its own address.",
        )
    return Finding(Level.OK, f"broker {broker.node_id} advertises {address}, which is reachable")


def check_topics(topics: Iterable[MetadataResponseTopic]) -> Iterator[Finding]:
    """Topics with errors, leaderless partitions, out-of-sync and offline replicas."""
    topics = list(topics)
    leaderless, lagging, offline = [], [], []
    for topic in topics:
        if topic.error_code and topic.error_code != ErrorCode.LEADER_NOT_AVAILABLE:
            yield Finding(
                Level.PROBLEM,
                f"topic {topic.name}: {error_name(topic.error_code)}",
                "The server cannot describe the topic. Check its log.",
            )
        for partition in topic.partitions:
            name = f"{topic.name}-{partition.partition_index}"
            if partition.leader_id < 0:
                leaderless.append(name)
            elif len(partition.isr_nodes) < len(partition.replica_nodes):
                lagging.append(name)
            if partition.offline_replicas:
                offline.append(name)
    if leaderless:
        yield Finding(
            Level.PROBLEM,
            f"{_partitions(leaderless)} without a leader: {_listed(leaderless)}",
            "The partitions cannot be written or read. Start their brokers, or check for failed log directories.",
        )
    if offline:
        yield Finding(
            Level.PROBLEM,
            f"{_partitions(offline)} with offline replicas: {_listed(offline)}",
            "Start the brokers of these replicas, or repair their log directories.",
        )
    if lagging:
        yield Finding(
            Level.PROBLEM,
            f"{_partitions(lagging)} with out-of-sync replicas: {_listed(lagging)}",
            "A broker is down or too slow. With fewer than min.insync.replicas in sync, acks=all is rejected.",
        )
    if not leaderless and not lagging and not offline:
        partitions = sum(len(topic.partitions) for topic in topics)
        count = _counted(len(topics), "topic")
        yield Finding(Level.OK, f"{count} with {_counted(partitions, 'partition')}, all with a leader and in sync")


def _log_dirs(cluster: Cluster, node_id: int) -> Iterator[Finding]:
    try:
        response = cluster.ask_broker(node_id, DescribeLogDirsRequest(topics=[]))
    except BrokerError as problem:
        yield Finding(Level.PROBLEM, str(problem), "Check the log of this broker, and its disks.")
        return
    yield from check_log_dirs(node_id, response.results)


def check_log_dirs(node_id: int, results: Iterable[DescribeLogDirsResult]) -> Iterator[Finding]:
    """Log directories that are offline or almost full."""
    for result in results:
        if result.error_code:
            yield Finding(
                Level.PROBLEM,
                f"broker {node_id}: log directory {result.log_dir} is offline ({error_name(result.error_code)})",
                "Repair the disk and restart the broker.",
            )
        elif 0 <= result.usable_bytes < result.total_bytes * _FULL_SHARE:
            free = f"{result.usable_bytes / 2**30:.1f} GiB of {result.total_bytes / 2**30:.1f} GiB"
            yield Finding(
                Level.PROBLEM,
                f"broker {node_id}: log directory {result.log_dir} is almost full, {free} free",
                "Delete topics or records, lower retention.ms or retention.bytes, or add disk space.",
            )
        else:
            yield Finding(Level.OK, f"broker {node_id}: log directory {result.log_dir} is online")


def check_clocks(newest: Mapping[tuple[str, int], Position], now_ms: int) -> Finding:
    """Records with future timestamps, which mean that the clock of this machine or of a producer is wrong."""
    ahead = {
        f"{topic}-{partition}": position.timestamp_ms - now_ms
        for (topic, partition), position in newest.items()
        if position.timestamp_ms > now_ms + _CLOCK_AHEAD_MS
    }
    if not ahead:
        return Finding(Level.OK, "no record has a future timestamp; clocks agree")
    furthest = max(ahead, key=lambda name: ahead[name])
    return Finding(
        Level.PROBLEM,
        f"{_partitions(list(ahead))} with future timestamps: {_listed(list(ahead))}, "
        f"up to {ahead[furthest] / 3_600_000:.1f} hours ahead",
        "Correct the clock of this machine or of the producers. retention.ms deletes such records too late.",
    )


def _probe(broker: MetadataResponseBroker, connect: Connect) -> tuple[str | None, str | None]:
    """Why a broker's advertised address is unreachable, or else the cluster id that it reports."""
    try:
        with connect(broker.host, broker.port) as connection:
            answer = connection.ask(MetadataRequest(topics=[]))
            assert isinstance(answer, MetadataResponse)
            return None, answer.cluster_id
    except PeerError as problem:
        return str(problem), None


def _sample(topics: Iterable[MetadataResponseTopic], reachable: set[int]) -> list[MetadataResponseTopic]:
    """The topics whose newest timestamps are requested: led by reachable brokers, up to a bound of partitions."""
    sample, partitions = [], 0
    for topic in topics:
        if partitions + len(topic.partitions) > _CLOCK_PARTITIONS:
            break
        if topic.error_code == 0 and all(partition.leader_id in reachable for partition in topic.partitions):
            sample.append(topic)
            partitions += len(topic.partitions)
    return sample


def _api_name(api_key: int) -> str:
    try:
        return ApiKey(api_key).message_name
    except ValueError:
        return f"API {api_key}"


def _partitions(names: list[str]) -> str:
    return _counted(len(names), "partition")


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _listed(names: Iterable[object]) -> str:
    listed = [str(name) for name in names]
    more = len(listed) - _LISTED
    return ", ".join(listed[:_LISTED]) + (f" and {more} more" if more > 0 else "")
