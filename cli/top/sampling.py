"""Reading a cluster once: offsets of topics, groups with their offsets, and the metrics of brokers.

Everything except the metrics comes from an ordinary client, so it is there for any Kafka. Connections are kept from
sample to sample. They are opened again after an error, and after a while, because brokers move.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from ...protocol.api import ApiKey
from ...protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from ...protocol.messages.list_groups import ListedGroup
from ...protocol.messages.metadata import MetadataRequest, MetadataResponseTopic
from ..client import connect
from ..client_security import Security
from ..cluster import LATEST_OFFSET, Cluster
from ..connection import PeerError
from ..failure import Failure
from ..group_client import GroupClient, TopicPartition
from .discovery import discover
from .endpoint import Address, Endpoint, Scrapes

CLIENT_ID: Final = "moldau-top"
MAX_GROUPS: Final = 200
"""Groups whose members and offsets are read in a sample."""

# How long a sample waits for metrics, which may belong to the next sample.
_PATIENCE_S: Final = 1.0
_MAX_AGE_S: Final = 60.0
_SIZES_EVERY_S: Final = 10.0
_WITH_OFFSETS: Final = ("classic", "consumer", "")


class TopicSample(NamedTuple):
    """The partitions of a topic."""

    is_internal: bool
    partitions: int
    without_leader: int
    under_replicated: int
    size_bytes: int | None
    """Of the leaders' logs; None if the brokers do not say."""


class MemberSample(NamedTuple):
    """A member of a group."""

    client_id: str
    host: str
    partitions: int


class GroupSample(NamedTuple):
    """A group. Without offsets: it is of a kind that has none, or was not read."""

    type: str
    state: str
    members: list[MemberSample]
    committed: dict[TopicPartition, int] | None
    problem: str | None = None
    assigned: frozenset[TopicPartition] = frozenset()
    """The partitions of all members."""


class Sample(NamedTuple):
    """A cluster at a time."""

    taken_s: float
    """Of a monotonic clock."""
    time_ms: int
    cluster_id: str | None
    controller: int | None
    brokers: int
    topics: dict[str, TopicSample]
    ends: dict[tuple[str, int], int]
    """The high watermarks of partitions with a leader."""
    groups: dict[str, GroupSample]
    unread_groups: int
    """How many groups were not read because there are too many."""
    scrapes: dict[Address, Scrapes]
    missing: list[str]
    """Why metrics are missing, and how to get them."""


class Sampler:
    """See the module docstring."""

    def __init__(self, bootstrap_server: str, security: Security, metrics: Sequence[Address]) -> None:
        """``metrics``: the endpoints; if there are none, brokers are asked for theirs."""
        self._bootstrap_server = bootstrap_server
        self._security = security
        self._given = [Endpoint(address) for address in metrics]
        self._cluster: Cluster | None = None
        self._opened_s = 0.0
        self._endpoints: list[Endpoint] = []
        self._undiscovered: list[str] = []
        self._sizes: dict[str, int] | None = None
        self._sized_s = 0.0

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def sample(self, *, patience_s: float = _PATIENCE_S) -> Sample:
        """Read the cluster, and wait for its metrics for this time at most. Raises Failure."""
        try:
            return self._sample(self._connected(), patience_s)
        except PeerError as problem:
            self.close()
            raise Failure(f"{self._bootstrap_server}: {problem}") from problem
        except Failure:
            self.close()
            raise

    def _connected(self) -> Cluster:
        if self._cluster is not None and (
            time.monotonic() - self._opened_s > _MAX_AGE_S or not self._cluster.is_open()
        ):
            self.close()
        if self._cluster is None:
            self._cluster = Cluster(connect(self._bootstrap_server, security=self._security, client_id=CLIENT_ID))
            self._opened_s = time.monotonic()
            self._sized_s = 0.0
            self._find_endpoints(self._cluster)
        return self._cluster

    def _sample(self, cluster: Cluster, patience_s: float) -> Sample:
        metadata = cluster.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False))
        topics: list[MetadataResponseTopic] = [each for each in metadata.topics if each.error_code == 0 and each.name]
        groups, unread = _groups(cluster)
        # Committed offsets are read before the ends of logs, so that a lag is not negative.
        ends = {key: found.offset for key, found in cluster.positions(topics, LATEST_OFFSET).items()}
        sizes = self._sizes_of(cluster, topics)
        taken_s, time_ms = time.monotonic(), time.time_ns() // 1_000_000
        scrapes, missing = self._scrape(patience_s)
        return Sample(
            taken_s=taken_s,
            time_ms=time_ms,
            cluster_id=metadata.cluster_id,
            controller=metadata.controller_id if metadata.controller_id >= 0 else None,
            brokers=len(metadata.brokers),
            topics={each.name or "": _topic(each, sizes) for each in topics},
            ends=ends,
            groups=groups,
            unread_groups=unread,
            scrapes=scrapes,
            missing=missing,
        )

    def _sizes_of(self, cluster: Cluster, topics: Iterable[MetadataResponseTopic]) -> dict[str, int] | None:
        """The sizes of topics, which are read less often, because the response names every replica."""
        now = time.monotonic()
        if self._sized_s and now - self._sized_s < _SIZES_EVERY_S:
            return self._sizes
        self._sized_s = now
        self._sizes = None
        if not cluster.bootstrap.offers(ApiKey.DESCRIBE_LOG_DIRS):
            return None
        leaders = {
            (topic.name, partition.partition_index): partition.leader_id
            for topic in topics
            for partition in topic.partitions
        }
        sizes: dict[str, int] = {}
        for node_id in cluster.broker_ids():
            for directory in cluster.ask_broker(node_id, DescribeLogDirsRequest(topics=None)).results:
                for topic in directory.topics:
                    for each in topic.partitions:
                        if leaders.get((topic.name, each.partition_index)) == node_id and not each.is_future_key:
                            sizes[topic.name] = sizes.get(topic.name, 0) + each.partition_size
        self._sizes = sizes or None  # without the right to describe the cluster, the response is empty
        return self._sizes

    # -- metrics -------------------------------------------------------------------------------------------------------

    def _find_endpoints(self, cluster: Cluster) -> None:
        """The endpoints that were given, or those that brokers of Moldau name in their settings."""
        if self._given:
            self._endpoints = self._given
            return
        known = {endpoint.address: endpoint for endpoint in self._endpoints}
        found = discover(cluster)
        self._endpoints = [known.get(address) or Endpoint(address) for address in found.addresses]
        self._undiscovered = found.missing

    def _scrape(self, patience_s: float) -> tuple[dict[Address, Scrapes], list[str]]:
        until = time.monotonic() + patience_s
        for endpoint in self._endpoints:
            endpoint.read(max(0.0, until - time.monotonic()))
        problems = (endpoint.problem() for endpoint in self._endpoints)
        found = {each.address: each.scrapes for each in self._endpoints if each.scrapes is not None}
        return found, [*self._undiscovered, *(problem for problem in problems if problem is not None)]


def _topic(topic: MetadataResponseTopic, sizes: dict[str, int] | None) -> TopicSample:
    return TopicSample(
        is_internal=topic.is_internal,
        partitions=len(topic.partitions),
        without_leader=sum(each.leader_id < 0 for each in topic.partitions),
        under_replicated=sum(len(each.isr_nodes) < len(each.replica_nodes) for each in topic.partitions),
        size_bytes=None if sizes is None else sizes.get(topic.name or "", 0),
    )


def _groups(cluster: Cluster) -> tuple[dict[str, GroupSample], int]:
    client = GroupClient(cluster)
    listed = client.list()
    # Groups with members first, if there are too many.
    listed.sort(key=lambda each: (each.group_state in ("Empty", "Dead"), each.group_id))
    found = {}
    for each in listed[:MAX_GROUPS]:
        try:
            found[each.group_id] = _group(client, each)
        except Failure as problem:  # of this group: it moves, or this user may not see it
            found[each.group_id] = GroupSample(
                each.group_type.lower(), each.group_state, [], None, problem.message.splitlines()[0]
            )
    return found, max(0, len(listed) - MAX_GROUPS)


def _group(client: GroupClient, listed: ListedGroup) -> GroupSample:
    kind = listed.group_type.lower()
    if kind not in _WITH_OFFSETS:
        return GroupSample(kind, listed.group_state, [], None)
    described = client.describe(listed.group_id, is_classic=kind == "classic")
    committed = client.committed(listed.group_id)
    members = [] if described is None else described.members
    return GroupSample(
        type=kind or "classic",
        state=listed.group_state if described is None else described.state,
        members=[MemberSample(each.client_id, each.host, len(each.assignment)) for each in members],
        committed={partition: each.offset for partition, each in committed.items()},
        assigned=frozenset(partition for each in members for partition in each.assignment),
    )
