"""Where the replicas of new partitions go.

Striped over racks (KIP-36): partitions take their replicas from one rack after the other, starting one rack further for
each partition, and within a rack from one broker after the other. Leaders are chosen among unfenced brokers only;
fenced ones are used for further replicas when there is no other way. What a deterministic stripe cannot do is start
elsewhere for each topic: `start` says where, and the caller draws it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..protocol.errors import ErrorCode, KafkaError
from .registrations import BrokerRegistration


def place(
    brokers: Iterable[BrokerRegistration], partition_count: int, replication_factor: int, start: int = 0
) -> list[tuple[int, ...]]:
    """Replicas for `partition_count` new partitions, the leader first.

    Raises INVALID_REPLICATION_FACTOR when the brokers do not suffice.
    """
    usable = [broker for broker in brokers if not broker.in_controlled_shutdown and not _is_cordoned(broker)]
    if replication_factor <= 0:
        raise _refusal(f"the replication factor {replication_factor} is not positive.")
    unfenced = _striped([broker for broker in usable if not broker.fenced])
    if not unfenced:
        raise _refusal("no broker takes new replicas, all are fenced or cordoned.")
    if replication_factor > len(usable):
        raise _refusal(f"only {len(usable)} broker(s) take new replicas.")
    fenced = _striped([broker for broker in usable if broker.fenced])
    return [_replicas(unfenced, fenced, replication_factor, start + index) for index in range(partition_count)]


def _replicas(unfenced: Sequence[int], fenced: Sequence[int], count: int, index: int) -> tuple[int, ...]:
    """`count` brokers: the leader is number `index` of the stripe. In every round over all brokers the distance between
    leader and followers grows by one, so that a leader's followers are not the same ones each time."""
    size = len(unfenced)
    leader = index % size
    shift = (index // size) % max(size - 1, 1)
    others = [unfenced[(leader + 1 + (shift + step) % (size - 1)) % size] for step in range(size - 1)]
    return (unfenced[leader], *others, *fenced)[:count]


def _striped(brokers: Sequence[BrokerRegistration]) -> list[int]:
    """Broker ids so that neighbours are in different racks as long as racks last."""
    racks: dict[str, list[int]] = {}
    for broker in sorted(brokers, key=lambda broker: broker.id):
        racks.setdefault(broker.rack or "", []).append(broker.id)
    stripes = [racks[rack] for rack in sorted(racks)]
    longest = max(map(len, stripes), default=0)
    return [rack[position] for position in range(longest) for rack in stripes if position < len(rack)]


def _is_cordoned(broker: BrokerRegistration) -> bool:
    """Whether no directory of the broker takes new replicas (KIP-1066)."""
    return bool(broker.cordoned_directories) and set(broker.directories) <= set(broker.cordoned_directories or ())


def _refusal(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
