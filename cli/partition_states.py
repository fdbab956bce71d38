"""The partitions of a cluster that need attention, and those that are being moved: a part of ``moldau cluster``.

A partition can be in several states:

- ``offline``: it has no leader, so it can be neither written nor read.
- ``under-replicated``: a replica is not in sync. A reassignment's new replicas count only when they are in sync, as for
  ``kafka-topics.sh --under-replicated-partitions``.
- ``below min ISR``: fewer replicas are in sync than `min.insync.replicas`, so producers with acks=all are rejected. A
  partition without a leader is below, as for ``kafka-topics.sh --under-min-isr-partitions``.
- ``at min ISR``: a replica is not in sync, and after the loss of one more, producers with acks=all are rejected.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from ..protocol.api import ApiKey
from ..protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ..protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from ..protocol.messages.metadata import MetadataResponseTopic
from .cluster import Cluster

OFFLINE: Final = "offline"
UNDER_REPLICATED: Final = "under-replicated"
BELOW_MIN_ISR: Final = "below min ISR"
AT_MIN_ISR: Final = "at min ISR"
STATES: Final = (OFFLINE, BELOW_MIN_ISR, AT_MIN_ISR, UNDER_REPLICATED)

_TOPIC: Final = 2
_MIN_ISR: Final = "min.insync.replicas"
_TOPICS_PER_REQUEST: Final = 1000
_TIMEOUT_MS: Final = 30_000


class PartitionState(NamedTuple):
    """A partition and the brokers of its replicas."""

    topic: str
    partition: int
    leader: int
    """-1 without one."""
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    min_isr: int | None
    """`min.insync.replicas`; None if the cluster does not say."""
    adding: tuple[int, ...] = ()
    """The replicas that a reassignment adds; they are among ``replicas``."""

    @property
    def states(self) -> list[str]:
        """The states of the module docstring; an empty list if the partition needs no attention."""
        found = []
        missing = len(self.isr) < len(self.replicas) - len(self.adding)
        # As brokers see it: with fewer replicas than the minimum, all of them must be in sync.
        least = None if self.min_isr is None else min(self.min_isr, len(self.replicas))
        if self.leader < 0:
            found.append(OFFLINE)
        if least is not None and (self.leader < 0 or len(self.isr) < least):
            found.append(BELOW_MIN_ISR)
        elif missing and len(self.isr) == least:
            found.append(AT_MIN_ISR)
        if missing:
            found.append(UNDER_REPLICATED)
        return found


class Move(NamedTuple):
    """A reassignment in progress."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def most_urgent_first(partitions: Iterable[PartitionState]) -> list[PartitionState]:
    """The partitions that need attention, by their worst state in the order of ``STATES``, then by topic."""
    return sorted((each for each in partitions if each.states), key=lambda each: (STATES.index(each.states[0]), each))


def partitions_of(
    servers: Cluster, topics: Iterable[MetadataResponseTopic], moves: Iterable[Move] = ()
) -> list[PartitionState]:
    """All partitions, in order. `min.insync.replicas` is requested only for topics of which a replica is missing.

    ``moves``: the reassignments in progress.
    """
    adding = {(move.topic, move.partition): move.adding for move in moves}
    known = [topic for topic in topics if topic.name]
    incomplete = [
        topic.name
        for topic in known
        if topic.name and any(len(each.isr_nodes) < len(each.replica_nodes) for each in topic.partitions)
    ]
    minimums = _min_isr(servers, incomplete)
    return sorted(
        PartitionState(
            topic.name or "",
            each.partition_index,
            each.leader_id,
            tuple(each.replica_nodes),
            tuple(each.isr_nodes),
            minimums.get(topic.name or ""),
            adding.get((topic.name or "", each.partition_index), ()),
        )
        for topic in known
        for each in topic.partitions
    )


def _min_isr(servers: Cluster, topics: list[str]) -> Mapping[str, int]:
    if not servers.bootstrap.offers(ApiKey.DESCRIBE_CONFIGS):
        return {}
    found: dict[str, int] = {}
    for first in range(0, len(topics), _TOPICS_PER_REQUEST):
        resources = [
            DescribeConfigsResource(resource_type=_TOPIC, resource_name=name, configuration_keys=[_MIN_ISR])
            for name in topics[first : first + _TOPICS_PER_REQUEST]
        ]
        for result in servers.ask(DescribeConfigsRequest(resources=resources)).results:
            for config in result.configs:
                if config.value is not None:
                    found[result.resource_name] = int(config.value)
    return found


def moves_of(servers: Cluster) -> list[Move] | None:
    """The reassignments in progress; None if the cluster does not say."""
    if not servers.bootstrap.offers(ApiKey.LIST_PARTITION_REASSIGNMENTS):
        return None
    response = servers.ask_controller(ListPartitionReassignmentsRequest(topics=None, timeout_ms=_TIMEOUT_MS))
    if response is None or response.error_code:
        return None
    return sorted(
        Move(
            topic.name,
            each.partition_index,
            tuple(each.replicas),
            tuple(each.adding_replicas),
            tuple(each.removing_replicas),
        )
        for topic in response.topics
        for each in topic.partitions
    )


def as_json(partition: PartitionState) -> dict[str, Any]:
    """The facts of a partition, with its states."""
    return {**partition._asdict(), "states": partition.states}
