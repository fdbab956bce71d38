"""Elections that no request has caused: to preferred leaders, and unclean ones where there is no leader.

After a failure, the leaderships of a broker stay where they went. With `auto.leader.rebalance.enable` they return to
the preferred replicas, which are the first ones, as soon as these are in sync.

When a topic permits unclean elections, its partitions without an in-sync replica get a leader when a broker fails or
returns. If it permits them later, the next check elects the leaders.

A decision has at most `MAX_ELECTIONS` records. If it has as many, there may be more to elect.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from .brokers import Partition, elections, may_lead, unclean_election_enabled
from .outcome import Outcome, Versioned
from .partition_changes import Election
from .registrations import NO_LEADER

if TYPE_CHECKING:
    from ..protocol.steps import Steps
    from .context import ControllerContext
    from .image import MetadataImage

MAX_ELECTIONS: Final = 1000
"""The limit of Apache Kafka."""

_PER_STEP: Final = 100
"""How many partitions are looked at in one step."""

_ELECTIONS_PER_STEP: Final = 20


def elect_preferred_leaders(image: MetadataImage, context: ControllerContext) -> Steps[Outcome[int]]:
    """Elect the preferred replica where another one leads and the preferred one can. The response is the number of
    elections."""
    found: list[Partition] = []
    looked_at = 0
    for topic in image.topics_by_id.values():
        for index, partition in topic.partitions.items():
            preferred = partition.preferred_replica
            if (
                partition.leader not in (preferred, NO_LEADER)
                and preferred in partition.isr
                and may_lead(image, partition)(preferred)
            ):
                found.append((topic, index, partition))
            looked_at += 1
            if not looked_at % _PER_STEP:
                yield 0
    return (yield from _elect(image, found[:MAX_ELECTIONS], context, Election.PREFERRED))


def elect_unclean_leaders(image: MetadataImage, context: ControllerContext) -> Steps[Outcome[int]]:
    """Elect leaders of partitions that have none, where the topic permits the loss of records. The response is the
    number of elections."""
    found: list[Partition] = []
    looked_at = 0
    for topic in image.topics_by_id.values():
        permitted: bool | None = None
        for index, partition in topic.partitions.items():
            if partition.leader == NO_LEADER:
                if permitted is None:
                    permitted = unclean_election_enabled(image, topic.name, context)
                if permitted and any(map(may_lead(image, partition), partition.replicas)):
                    found.append((topic, index, partition))
            looked_at += 1
            if not looked_at % _PER_STEP:
                yield 0
    return (yield from _elect(image, found[:MAX_ELECTIONS], context, Election.UNCLEAN))


def _elect(
    image: MetadataImage, partitions: list[Partition], context: ControllerContext, election: Election
) -> Steps[Outcome[int]]:
    records: list[Versioned] = []
    for group in _groups(partitions):
        records += elections(image, group, context, election=election)
        yield 0
    return Outcome(len(records), records)


def _groups(partitions: list[Partition]) -> Iterable[list[Partition]]:
    return (partitions[first : first + _ELECTIONS_PER_STEP] for first in range(0, len(partitions), _ELECTIONS_PER_STEP))
