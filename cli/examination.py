"""What ``moldau doctor`` looks at, and what it makes of it.

An examination is a sequence of findings in the order a client would meet them: can the address be reached and does a
Kafka server answer there, what does it offer, can the addresses be reached that it sends clients to, do partitions have
leaders and replicas, is there room on its disks, do clocks agree. Nothing is changed by looking: no topic is created,
no group joined. The judgements are functions of what was answered; only ``examine`` talks.
"""

import ipaddress
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
from .cluster import OFFSET_OF_MAX_TIMESTAMP, Cluster, Position, error_name
from .connection import Connection, PeerError

# Names are listed up to this number; the rest is counted.
_LISTED: Final = 5
# Newest records are asked for of so many partitions at most.
_CLOCK_PARTITIONS: Final = 1000
# The default of message.timestamp.after.max.ms: producers further ahead than this are refused.
_CLOCK_AHEAD_MS: Final = 3_600_000
_SLOW_S: Final = 0.5
_FULL_SHARE: Final = 0.05
_TIMEOUT_S: Final = 5.0
# The version of ListOffsets that can be asked for the offset of the newest timestamp (KIP-734).
_MAX_TIMESTAMP_SINCE: Final = 7

# What the ordinary clients cannot do without, by what it is needed for.
_NEEDED: Final[Mapping[str, tuple[ApiKey, ...]]] = {
    "producing": (ApiKey.METADATA, ApiKey.PRODUCE),
    "producing with idempotence, the default of most clients,": (ApiKey.INIT_PRODUCER_ID,),
    "consuming": (ApiKey.METADATA, ApiKey.FETCH, ApiKey.LIST_OFFSETS),
    "making topics": (ApiKey.CREATE_TOPICS,),
}
_GROUPS: Final = (ApiKey.JOIN_GROUP, ApiKey.CONSUMER_GROUP_HEARTBEAT)


class Level(Enum):
    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


class Finding(NamedTuple):
    """One thing that was looked at. ``advice`` says what to do about a problem."""

    level: Level
    text: str
    advice: str | None = None


Connect = Callable[[str, int], Connection]


def connect(host: str, port: int) -> Connection:
    return Connection(host, port, timeout_s=_TIMEOUT_S)


def examine(addresses: Iterable[tuple[str, int]], *, now_ms: int, connect: Connect = connect) -> Iterator[Finding]:
    """Examine the cluster behind ``addresses``, all of which should lead to it."""
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
            yield _answered(host, port, time.monotonic() - started)
        if connections:
            yield from _examine_cluster(connections[0], now_ms, connect)
    finally:
        for connection in connections:
            connection.close()


def _examine_cluster(connection: Connection, now_ms: int, connect: Connect) -> Iterator[Finding]:
    yield from judge_offer(connection.greeting)
    if not connection.offers(ApiKey.METADATA):
        return
    cluster = Cluster(connection)
    try:
        metadata = cluster.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False))
        assert isinstance(metadata, MetadataResponse)
        yield from judge_cluster(metadata)
        reachable = set()
        for broker in metadata.brokers:
            problem, cluster_id = _visit(broker, connect)
            if problem is None:
                reachable.add(broker.node_id)
            yield judge_address(broker, problem, cluster_id, metadata.cluster_id, connection.host)
        yield from judge_topics(metadata.topics)
        for node_id in sorted(reachable):
            if connection.offers(ApiKey.DESCRIBE_LOG_DIRS):
                results = cluster.ask_broker(node_id, DescribeLogDirsRequest(topics=None)).results
                yield from judge_log_dirs(node_id, results)
        sample = _sample(metadata.topics, reachable)
        if sample and connection.version_of(ListOffsetsRequest) >= _MAX_TIMESTAMP_SINCE:
            yield judge_clock(cluster.positions(sample, OFFSET_OF_MAX_TIMESTAMP), now_ms)
    except PeerError as problem:
        yield Finding(
            Level.PROBLEM,
            f"the server stopped answering: {problem}",
            "Look into the server's log; it says which request it could not handle.",
        )


def unreachable(host: str, port: int, problem: str) -> Finding:
    """An address that was given, and where nobody speaks Kafka's protocol."""
    if "refused" in problem:
        advice = "Nothing listens there. Start a server (`moldau serve`), or correct --bootstrap-server."
    elif "resolve" in problem:
        advice = "Correct the name in --bootstrap-server, or add it to the DNS or to /etc/hosts."
    elif "closed" in problem or "not Kafka" in problem or "cannot be read" in problem:
        advice = "Something listens there, but not a Kafka server without TLS: is the port right, is it a TLS listener?"
    else:
        advice = "Is the server up, and does a firewall let this machine through?"
    return Finding(Level.PROBLEM, f"cannot reach {host}:{port}: {problem}", advice)


def _answered(host: str, port: int, seconds: float) -> Finding:
    text = f"{host}:{port} answers ({seconds * 1000:.0f} ms)"
    if seconds < _SLOW_S:
        return Finding(Level.OK, text)
    return Finding(Level.NOTE, text, "That is slow: a busy server, a slow name service, or a long way.")


def judge_offer(greeting: ApiVersionsResponse) -> Iterator[Finding]:
    """What the server says it can do: what clients need, and what is odd."""
    offered = {entry.api_key: entry for entry in greeting.api_keys}
    odd = [entry for entry in greeting.api_keys if entry.min_version > entry.max_version or entry.min_version < 0]
    for entry in odd:
        yield Finding(
            Level.PROBLEM,
            f"the server offers {_api_name(entry.api_key)} in versions {entry.min_version} to {entry.max_version}",
            "That is no range of versions; clients will not use it.",
        )
    for purpose, needed in _NEEDED.items():
        missing = [api_key.message_name for api_key in needed if api_key not in offered]
        if missing:
            yield Finding(
                Level.PROBLEM,
                f"the server does not offer {', '.join(missing)}, which {purpose} needs",
                "It is no complete Kafka server, or a controller: is this the listener for clients?",
            )
    if not any(api_key in offered for api_key in _GROUPS):
        yield Finding(
            Level.NOTE,
            "the server has no consumer groups",
            "Consumers have to assign partitions themselves (assign() instead of subscribe()), without committing.",
        )
    unknown = [entry.api_key for entry in greeting.api_keys if entry.api_key not in tuple(ApiKey)]
    newer = f", {len(unknown)} of them newer than this tool" if unknown else ""
    levels = ", ".join(f"{feature.name} {feature.max_version_level}" for feature in greeting.finalized_features)
    yield Finding(Level.OK, f"it offers {len(offered)} APIs{newer}" + (f"; features: {levels}" if levels else ""))


def judge_cluster(metadata: MetadataResponse) -> Iterator[Finding]:
    """Brokers and controller."""
    nodes = sorted(broker.node_id for broker in metadata.brokers)
    if not nodes:
        yield Finding(
            Level.PROBLEM,
            "the server names no broker, not even itself",
            "It is still starting, or was fenced by its controller: look into its log.",
        )
        return
    count = _counted(len(nodes), "broker")
    yield Finding(Level.OK, f"cluster {metadata.cluster_id}: {count} ({_listed(nodes)})")
    if metadata.controller_id < 0:
        yield Finding(
            Level.PROBLEM,
            "the cluster has no controller",
            "Topics cannot be made or changed, and leaders not be elected, until there is one.",
        )


def judge_address(
    broker: MetadataResponseBroker,
    problem: str | None,
    found_cluster_id: str | None,
    cluster_id: str | None,
    connected_host: str,
) -> Finding:
    """The address that clients are sent to for a broker: clients connect there, whatever they were given first."""
    address = f"{broker.host}:{broker.port}"
    if problem is not None:
        if _is_local(broker.host) and not _is_local(connected_host):
            advice = (
                f"Set advertised.listeners to an address that clients can reach, such as PLAINTEXT://{connected_host}:"
                f"{broker.port}; {broker.host} is this machine, not the server's."
            )
        else:
            advice = "Set advertised.listeners to an address that this machine can resolve and reach."
        return Finding(
            Level.PROBLEM, f"broker {broker.node_id} sends clients to {address}, which fails: {problem}", advice
        )
    if found_cluster_id != cluster_id:
        return Finding(
            Level.PROBLEM,
            f"broker {broker.node_id} sends clients to {address}, where a broker of cluster {found_cluster_id} answers",
            "Two servers share an address, or advertised.listeners names the wrong one.",
        )
    return Finding(Level.OK, f"broker {broker.node_id} sends clients to {address}, which answers")


def judge_topics(topics: Iterable[MetadataResponseTopic]) -> Iterator[Finding]:
    """Topics with errors, partitions without leaders, with replicas that are not in sync or offline."""
    topics = list(topics)
    leaderless, lagging, offline = [], [], []
    for topic in topics:
        if topic.error_code and topic.error_code != ErrorCode.LEADER_NOT_AVAILABLE:
            yield Finding(
                Level.PROBLEM,
                f"topic {topic.name}: {error_name(topic.error_code)}",
                "The server could not describe it; its log may say why.",
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
            "They can neither be written nor read. Start the brokers that hold them, or look whether a log directory "
            "failed.",
        )
    if offline:
        yield Finding(
            Level.PROBLEM,
            f"{_partitions(offline)} with replicas that are offline: {_listed(offline)}",
            "Start the brokers that hold them, or repair their log directories.",
        )
    if lagging:
        yield Finding(
            Level.PROBLEM,
            f"{_partitions(lagging)} with replicas that are not in sync: {_listed(lagging)}",
            "A broker is down, or too slow to follow; with too few in sync, acks=all is refused.",
        )
    if not leaderless and not lagging and not offline:
        partitions = sum(len(topic.partitions) for topic in topics)
        count = _counted(len(topics), "topic")
        yield Finding(Level.OK, f"{count} with {_counted(partitions, 'partition')}, all led and in sync")


def judge_log_dirs(node_id: int, results: Iterable[DescribeLogDirsResult]) -> Iterator[Finding]:
    """Directories that failed, or are almost full."""
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
                f"broker {node_id}: {result.log_dir} is almost full, {free} are free",
                "Delete topics or records, lower retention.ms or retention.bytes, or give it more room.",
            )
        else:
            yield Finding(Level.OK, f"broker {node_id}: log directory {result.log_dir} is online")


def judge_clock(newest: Mapping[tuple[str, int], Position], now_ms: int) -> Finding:
    """Records from the future: a clock is wrong, here or where they were produced."""
    ahead = {
        f"{topic}-{partition}": position.timestamp_ms - now_ms
        for (topic, partition), position in newest.items()
        if position.timestamp_ms > now_ms + _CLOCK_AHEAD_MS
    }
    if not ahead:
        return Finding(Level.OK, "no record is from the future, clocks agree")
    furthest = max(ahead, key=lambda name: ahead[name])
    return Finding(
        Level.PROBLEM,
        f"{_partitions(list(ahead))} with records from the future: {_listed(list(ahead))}, "
        f"up to {ahead[furthest] / 3_600_000:.1f} hours",
        "Set the clock of this machine or of the producers; such records are not deleted by retention.ms in time.",
    )


def _visit(broker: MetadataResponseBroker, connect: Connect) -> tuple[str | None, str | None]:
    """Why a broker cannot be reached at its advertised address, or else the cluster that it is found to belong to."""
    try:
        with connect(broker.host, broker.port) as connection:
            answer = connection.ask(MetadataRequest(topics=[]))
            assert isinstance(answer, MetadataResponse)
            return None, answer.cluster_id
    except PeerError as problem:
        return str(problem), None


def _sample(topics: Iterable[MetadataResponseTopic], reachable: set[int]) -> list[MetadataResponseTopic]:
    """Topics whose newest records are worth asking for: whole topics, up to a bound, led by brokers that answer."""
    sample, partitions = [], 0
    for topic in topics:
        if partitions + len(topic.partitions) > _CLOCK_PARTITIONS:
            break
        if topic.error_code == 0 and all(partition.leader_id in reachable for partition in topic.partitions):
            sample.append(topic)
            partitions += len(topic.partitions)
    return sample


def _is_local(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


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
