"""The elements of the metadata image: brokers, controllers, topics and their partitions, as immutable values.

A registration is the state after the latest change in the metadata log. A partition has two epochs:

* `leader_epoch` rises with every change that names a leader, even the same leader. This makes an election visible to
  clients, which reject older epochs (KIP-320);
* `partition_epoch` rises with every change, so that a leader's proposal for the in-sync set can be rejected if it is
  based on an older state (AlterPartition).

Ids of the replicas' log directories are stored in parallel to the replicas (KIP-858). Three values are not directories:
`UNASSIGNED_DIRECTORY` (the broker has not chosen yet), `LOST_DIRECTORY` (it is offline), `MIGRATING_DIRECTORY` (the
partition is older than KIP-858).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ..protocol.named_tuples import NamedTuple

if TYPE_CHECKING:
    from .records import PartitionChangeRecord, PartitionRecord, RegisterBrokerRecord, RegisterControllerRecord

NO_LEADER: Final = -1
NO_LEADER_CHANGE: Final = -2
"""In a PartitionChangeRecord: the leader, and with it the leader epoch, is unchanged."""

RECOVERED: Final = 0
RECOVERING: Final = 1
"""Leader recovery states (KIP-704): after an unclean election, a leader is recovering until it reports otherwise."""
NO_RECOVERY_STATE_CHANGE: Final = -1

MIGRATING_DIRECTORY: Final = bytes(16)
UNASSIGNED_DIRECTORY: Final = bytes(15) + b"\x01"
LOST_DIRECTORY: Final = bytes(15) + b"\x02"


class Endpoint(NamedTuple):
    """An advertised listener.

    `security_protocol` is Kafka's number: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.
    """

    name: str
    host: str
    port: int
    security_protocol: int = 0


class VersionRange(NamedTuple):
    """The versions of a feature that a node supports, from `minimum` to `maximum` inclusive."""

    minimum: int
    maximum: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.minimum <= version <= self.maximum

    def __str__(self) -> str:
        return f"{self.minimum}-{self.maximum}"


class BrokerRegistration(NamedTuple):
    """The latest registration of a broker. `epoch` is the offset of the registration record, unique in the cluster."""

    id: int
    epoch: int
    incarnation_id: bytes
    listeners: Mapping[str, Endpoint]
    features: Mapping[str, VersionRange]
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    directories: tuple[bytes, ...] = ()
    cordoned_directories: tuple[bytes, ...] | None = None

    @classmethod
    def from_record(cls, record: RegisterBrokerRecord) -> BrokerRegistration:
        cordoned = record.cordoned_log_dirs
        return cls(
            id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            listeners={e.name: Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points},
            features={f.name: VersionRange(f.min_supported_version, f.max_supported_version) for f in record.features},
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            directories=tuple(sorted(record.log_dirs)),
            cordoned_directories=None if cordoned is None else tuple(cordoned),
        )

    @property
    def is_active(self) -> bool:
        """Whether the broker may lead partitions and be in in-sync sets."""
        return not self.fenced and not self.in_controlled_shutdown


class ControllerRegistration(NamedTuple):
    """The latest registration of a controller (KIP-919)."""

    id: int
    incarnation_id: bytes
    listeners: Mapping[str, Endpoint]
    features: Mapping[str, VersionRange]
    zk_migration_ready: bool = False

    @classmethod
    def from_record(cls, record: RegisterControllerRecord) -> ControllerRegistration:
        return cls(
            id=record.controller_id,
            incarnation_id=record.incarnation_id,
            listeners={e.name: Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points},
            features={f.name: VersionRange(f.min_supported_version, f.max_supported_version) for f in record.features},
            zk_migration_ready=record.zk_migration_ready,
        )


class PartitionRegistration(NamedTuple):
    """One partition's state. `directories` is parallel to `replicas`; the first replica is the preferred leader."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    directories: tuple[bytes, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    leader_recovery_state: int = RECOVERED

    @classmethod
    def from_record(cls, record: PartitionRecord) -> PartitionRegistration:
        replicas = tuple(record.replicas)
        return cls(
            replicas,
            tuple(record.isr),
            record.leader,
            record.leader_epoch,
            record.partition_epoch,
            _directories(record.directories, len(replicas)),
            tuple(record.removing_replicas),
            tuple(record.adding_replicas),
            tuple(record.eligible_leader_replicas or ()),
            tuple(record.last_known_elr or ()),
            record.leader_recovery_state,
        )

    def merge(self, change: PartitionChangeRecord) -> PartitionRegistration:
        """The state after `change`, whose null fields mean unchanged."""
        leader, leader_epoch = self.leader, self.leader_epoch
        if change.leader != NO_LEADER_CHANGE:
            leader = change.leader
            leader_epoch += 1
        replicas = self.replicas if change.replicas is None else tuple(change.replicas)
        directories = self.directories if change.directories is None else change.directories
        recovery = change.leader_recovery_state
        return PartitionRegistration(
            replicas,
            self.isr if change.isr is None else tuple(change.isr),
            leader,
            leader_epoch,
            self.partition_epoch + 1,
            _directories(directories, len(replicas)),
            self.removing_replicas if change.removing_replicas is None else tuple(change.removing_replicas),
            self.adding_replicas if change.adding_replicas is None else tuple(change.adding_replicas),
            self.elr if change.eligible_leader_replicas is None else tuple(change.eligible_leader_replicas),
            self.last_known_elr if change.last_known_elr is None else tuple(change.last_known_elr),
            self.leader_recovery_state if recovery == NO_RECOVERY_STATE_CHANGE else recovery,
        )

    @property
    def preferred_replica(self) -> int:
        return self.replicas[0] if self.replicas else NO_LEADER

    @property
    def is_reassigning(self) -> bool:
        """Whether a reassignment (KIP-455) is in progress."""
        return bool(self.removing_replicas or self.adding_replicas)

    def directory(self, broker_id: int) -> bytes:
        """The directory of `broker_id`'s replica; `UNASSIGNED_DIRECTORY` if it has none."""
        for replica, directory in zip(self.replicas, self.directories, strict=False):
            if replica == broker_id:
                return directory
        return UNASSIGNED_DIRECTORY


def _directories(directories: list[bytes] | tuple[bytes, ...], replica_count: int) -> tuple[bytes, ...]:
    """One directory per replica. Records from before metadata.version 3.7 name none, and an invalid one too few."""
    if len(directories) == replica_count:
        return tuple(directories)
    return (MIGRATING_DIRECTORY,) * replica_count


class TopicImage(NamedTuple):
    """A topic, with its partitions by index."""

    name: str
    topic_id: bytes
    partitions: Mapping[int, PartitionRegistration]
