"""Placement of the replicas of new partitions.

Replicas are striped over racks (KIP-36): a partition takes its replicas from one rack after the other, starting one
rack further for each partition, and within a rack from one broker after the other. Only unfenced brokers become
leaders; fenced brokers are used for other replicas if necessary. A deterministic stripe would start at the same broker
for each topic: the parameter `start` varies this, and the caller draws it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..protocol.errors import ErrorCode, KafkaError
from .registrations import BrokerRegistration


def place(
    brokers: Iterable[BrokerRegistration], partition_count: int, replication_factor: int, start: int = 0
) -> list[tuple[int, ...]]:
    """The replicas of `partition_count` new partitions, the leader first.

    Raises INVALID_REPLICATION_FACTOR if there are not enough brokers.
    """
    usable = [broker for broker in brokers if not broker.in_controlled_shutdown and not _is_cordoned(broker)]
    if replication_factor <= 0:
        raise _refusal(f"the replication factor {replication_factor} is not positive.")
    unfenced = _striped([broker for broker in usable if not broker.fenced])
    if not unfenced:
        raise _refusal("no broker accepts new replicas; all are fenced or cordoned.")
    if replication_factor > len(usable):
        raise _refusal(f"only {len(usable)} broker(s) accept new replicas.")
    fenced = _striped([broker for broker in usable if broker.fenced])
    return [_replicas(unfenced, fenced, replication_factor, start + index) for index in range(partition_count)]


def _replicas(unfenced: Sequence[int], fenced: Sequence[int], count: int, index: int) -> tuple[int, ...]:
    """Return `count` brokers; the leader is number `index` of the stripe. After each round over all brokers, the
    distance between leader and followers grows by one, so that a leader's followers vary."""
    size = len(unfenced)
    leader = index % size
    shift = (index // size) % max(size - 1, 1)
    others = [unfenced[(leader + 1 + (shift + step) % (size - 1)) % size] for step in range(size - 1)]
    return (unfenced[leader], *others, *fenced)[:count]


def _striped(brokers: Sequence[BrokerRegistration]) -> list[int]:
    """Broker ids in an order in which neighbors are in different racks as long as possible."""
    racks: dict[str, list[int]] = {}
    for broker in sorted(brokers, key=lambda broker: broker.id):
        racks.setdefault(broker.rack or "", []).append(broker.id)
    stripes = [racks[rack] for rack in sorted(racks)]
    longest = max(map(len, stripes), default=0)
    return [rack[position] for position in range(longest) for rack in stripes if position < len(rack)]


def _is_cordoned(broker: BrokerRegistration) -> bool:
    """Whether all directories of the broker are closed to new replicas (KIP-1066)."""
    return bool(broker.cordoned_directories) and set(broker.directories) <= set(broker.cordoned_directories or ())


def _refusal(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
