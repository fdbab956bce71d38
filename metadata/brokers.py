"""The life cycle of a broker in the metadata: registration, unfencing, controlled shutdown, removal.

A broker registers fenced; its epoch is the offset of the registration record. It is unfenced when it has caught up, and
then partitions without a leader get this broker as leader if it may lead them. At shutdown the broker first resigns as
leader (`in_controlled_shutdown`), then it is fenced. After a crash, its next registration does both. Because an
election raises the leader epoch, clients see every restart as a new epoch. So they also detect a crash, which may have
truncated the log (KIP-320).

The embedded broker passes through the same states in its own controller, as a combined node of Apache Kafka does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages import assign_replicas_to_dirs as directories
from ..protocol.named_tuples import NamedTuple
from .features import (
    CORDONED_DIRECTORIES_SINCE,
    DIRECTORIES_SINCE,
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    SUPPORTED_FEATURES,
    register_broker_version,
)
from .outcome import Outcome, Versioned
from .partition_changes import Election, change_partition
from .records import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ControllerEndpoint,
    ControllerFeature,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
)
from .registrations import (
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    NO_LEADER,
    UNASSIGNED_DIRECTORY,
    Endpoint,
    PartitionRegistration,
    TopicImage,
)

if TYPE_CHECKING:
    from ..protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
    from .context import ControllerContext
    from .image import MetadataImage

_FENCE = 1
_UNFENCE = -1

Partition = tuple[TopicImage, int, PartitionRegistration]


class NodeDescription(NamedTuple):
    """The registration data of a node."""

    node_id: int
    incarnation_id: bytes
    """The id of this run of the process."""
    broker_endpoints: tuple[Endpoint, ...]
    controller_endpoint: Endpoint
    directories: tuple[bytes, ...]
    """The ids of its log directories."""
    rack: str | None = None


def register_controller(node: NodeDescription) -> list[Versioned]:
    """Records that register the node as a controller (KIP-919)."""
    endpoint = node.controller_endpoint
    record = RegisterControllerRecord(
        controller_id=node.node_id,
        incarnation_id=node.incarnation_id,
        end_points=[
            ControllerEndpoint(
                name=endpoint.name,
                host=endpoint.host,
                port=endpoint.port,
                security_protocol=endpoint.security_protocol,
            )
        ],
        features=[
            ControllerFeature(name=name, min_supported_version=lowest, max_supported_version=highest)
            for name, (lowest, highest) in SUPPORTED_FEATURES.items()
        ],
    )
    return [Versioned(record)]


def register_broker(
    image: MetadataImage, node: NodeDescription, broker_epoch: int, context: ControllerContext
) -> list[Versioned]:
    """Records that register the node as a broker, fenced. Leaderships from before a crash end."""
    return [*remove_from_partitions(image, node.node_id, context), broker_record(image, node, broker_epoch)]


def broker_record(image: MetadataImage, node: NodeDescription, broker_epoch: int) -> Versioned:
    """The registration of a broker of this software."""
    record = RegisterBrokerRecord(
        broker_id=node.node_id,
        incarnation_id=node.incarnation_id,
        broker_epoch=broker_epoch,
        end_points=[
            BrokerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in node.broker_endpoints
        ],
        features=[
            BrokerFeature(name=name, min_supported_version=lowest, max_supported_version=highest)
            for name, (lowest, highest) in SUPPORTED_FEATURES.items()
        ],
        rack=node.rack,
        fenced=True,
    )
    if image.metadata_version >= DIRECTORIES_SINCE:
        record.log_dirs = list(node.directories)
    return Versioned(record, register_broker_version(image.metadata_version))


def unfence_broker(image: MetadataImage, broker_id: int, context: ControllerContext) -> list[Versioned]:
    """Records that unfence a registered broker. It becomes leader where there is none and it may lead."""
    broker = image.brokers[broker_id]
    records = [_change(broker_id, broker.epoch, fenced=_UNFENCE)]
    if image.metadata_version >= CORDONED_DIRECTORIES_SINCE and broker.cordoned_directories is None:
        cordoned = BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker.epoch, cordoned_log_dirs=[])
        records.append(Versioned(cordoned, 3))
    leaderless = (partition for partition in _partitions(image) if partition[2].leader == NO_LEADER)
    records += elections(image, leaderless, context, joining=broker_id)
    return records


def shut_down_broker(image: MetadataImage, broker_id: int, context: ControllerContext) -> list[Versioned]:
    """Records of a controlled shutdown: the broker resigns as leader. `fence_broker` follows."""
    broker = image.brokers[broker_id]
    return [
        _change(broker_id, broker.epoch, in_controlled_shutdown=1, version=1),
        *remove_from_partitions(image, broker_id, context),
    ]


def fence_broker(image: MetadataImage, broker_id: int, context: ControllerContext) -> list[Versioned]:
    """Records that fence a broker."""
    epoch = image.brokers[broker_id].epoch
    return [*remove_from_partitions(image, broker_id, context), _change(broker_id, epoch, fenced=_FENCE)]


def fail_directories(
    image: MetadataImage, broker_id: int, offline: Collection[bytes], context: ControllerContext
) -> list[Versioned]:
    """Records after a failure of log directories: the broker leaves the partitions in them (KIP-858)."""
    broker = image.brokers[broker_id]
    affected = (
        partition
        for partition in _partitions(image)
        if partition[2].directory(broker_id) in offline
        and (broker_id in partition[2].isr or broker_id in partition[2].elr)
    )
    remaining = [directory for directory in broker.directories if directory not in offline]
    record = BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker.epoch, log_dirs=remaining)
    return [*elections(image, affected, context, leaving=broker_id), Versioned(record, 2)]


def change_directories(
    image: MetadataImage,
    broker_id: int,
    online: Collection[bytes],
    cordoned: Collection[bytes],
    context: ControllerContext,
) -> Outcome[None]:
    """Decide what follows if these log directories of a broker are online and cordoned now (KIP-858, KIP-1066)."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        return Outcome(None, [])
    records: list[Versioned] = []
    offline = set(broker.directories) - set(online)
    if offline:
        records += fail_directories(image, broker_id, offline, context)
    if image.metadata_version >= CORDONED_DIRECTORIES_SINCE and set(cordoned) != set(broker.cordoned_directories or ()):
        record = BrokerRegistrationChangeRecord(
            broker_id=broker_id, broker_epoch=broker.epoch, cordoned_log_dirs=sorted(cordoned)
        )
        records.append(Versioned(record, 3))
    return Outcome(None, records)


def unregister_broker(
    image: MetadataImage, request: UnregisterBrokerRequest, context: ControllerContext
) -> Outcome[UnregisterBrokerResponse]:
    """Decide on an UnregisterBrokerRequest (64). Raises BROKER_ID_NOT_REGISTERED if the broker is not registered."""
    from ..protocol.messages.unregister_broker import UnregisterBrokerResponse  # not needed for a registration

    broker = image.brokers.get(request.broker_id)
    if broker is None:
        message = f"There is no broker {request.broker_id}"
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, message)
    record = UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch)
    records = [*remove_from_partitions(image, broker.id, context), Versioned(record)]
    return Outcome(UnregisterBrokerResponse(error_message=None), records)


def check_broker_epoch(image: MetadataImage, broker_id: int, broker_epoch: int) -> None:
    """Raise unless the broker is registered with this epoch: an earlier incarnation must not change anything."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"Broker {broker_id} is not registered")
    if broker.epoch != broker_epoch:
        message = f"Broker {broker_id} has the epoch {broker.epoch}, not {broker_epoch}"
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, message)


def assign_replicas_to_directories(
    image: MetadataImage, request: directories.AssignReplicasToDirsRequest, context: ControllerContext
) -> Outcome[directories.AssignReplicasToDirsResponse]:
    """Decide on an AssignReplicasToDirsRequest (73), which reports the directories of a broker's replicas (KIP-858).

    Raises STALE_BROKER_EPOCH for an earlier incarnation of the broker.
    """
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    records: list[Versioned] = []
    answers: list[directories.ResponseDirectoryData] = []
    for directory in request.directories:
        topics = [
            directories.ResponseTopicData(
                topic_id=topic.topic_id,
                partitions=[
                    directories.ResponsePartitionData(
                        partition_index=partition.partition_index,
                        error_code=_assign(
                            image, request.broker_id, directory.id, topic.topic_id, partition, context, records
                        ),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in directory.topics
        ]
        answers.append(directories.ResponseDirectoryData(id=directory.id, topics=topics))
    return Outcome(directories.AssignReplicasToDirsResponse(directories=answers), records)


def _assign(
    image: MetadataImage,
    broker_id: int,
    directory: bytes,
    topic_id: bytes,
    wanted: directories.PartitionData,
    context: ControllerContext,
    records: list[Versioned],
) -> ErrorCode:
    topic = image.topics_by_id.get(topic_id)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    partition = topic.partitions.get(wanted.partition_index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if broker_id not in partition.replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    record = change_partition(
        partition,
        topic_id,
        wanted.partition_index,
        may_lead=may_lead(image, partition),
        metadata_version=image.metadata_version,
        elr_minimum=elr_minimum(image, topic.name, context),
        directories={broker_id: directory},
    )
    if record is not None:
        records.append(record)
    return ErrorCode.NONE


def may_lead(
    image: MetadataImage,
    partition: PartitionRegistration,
    *,
    joining: int | None = None,
    leaving: int | None = None,
) -> Callable[[int], bool]:
    """Returns a function: may a broker lead the partition? It must be active, and its log directory online.

    `joining` counts as active although it is fenced in the image; `leaving` does not count although it is active.
    """

    def acceptable(broker_id: int) -> bool:
        broker = image.brokers.get(broker_id)
        if broker is None or broker_id == leaving or not (broker_id == joining or broker.is_active):
            return False
        directory = partition.directory(broker_id)
        if directory == LOST_DIRECTORY:
            return False
        known = not broker.directories or directory in broker.directories
        return known or directory in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY)

    return acceptable


def unclean_election_enabled(image: MetadataImage, topic: str, context: ControllerContext) -> bool:
    """Whether the topic prefers a leader with possible data loss to no leader."""
    own = image.topic_configs(topic).get("unclean.leader.election.enable")
    if own is not None:
        return own.strip().lower() == "true"
    return bool(context.broker_config(image).get("unclean.leader.election.enable"))


def _change(
    broker_id: int, broker_epoch: int, *, fenced: int = 0, in_controlled_shutdown: int = 0, version: int = 0
) -> Versioned:
    record = BrokerRegistrationChangeRecord(
        broker_id=broker_id, broker_epoch=broker_epoch, fenced=fenced, in_controlled_shutdown=in_controlled_shutdown
    )
    return Versioned(record, version)


def _partitions(image: MetadataImage) -> Iterator[Partition]:
    for topic in image.topics_by_id.values():
        for partition, registration in topic.partitions.items():
            yield topic, partition, registration


def remove_from_partitions(
    image: MetadataImage, broker_id: int, context: ControllerContext, *, unclean: bool = False
) -> list[Versioned]:
    """Records that remove a broker from in-sync sets and leadership, as far as other replicas can take over.

    `unclean`: its data may be lost, so it is no longer an eligible leader (KIP-966).
    """
    elr_enabled = bool(image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION))
    affected = (
        partition
        for partition in _partitions(image)
        if (broker_id in partition[2].isr or broker_id in partition[2].elr)
        and (elr_enabled or not _needs_no_election(partition[2]))
    )
    return elections(image, affected, context, leaving=broker_id, is_unclean=unclean)


def _needs_no_election(partition: PartitionRegistration) -> bool:
    """Whether the partition has one replica, in sync, and no leader. Then, without eligible leader replicas, there is
    nothing to elect or to remove. After a clean shutdown this is true for all partitions of a single broker: the check
    saves much of its startup time."""
    return (
        partition.leader == NO_LEADER
        and len(partition.replicas) == 1
        and partition.isr == partition.replicas
        and not partition.elr
        and not partition.last_known_elr
        and not partition.is_reassigning
    )


def elections(
    image: MetadataImage,
    partitions: Iterable[Partition],
    context: ControllerContext,
    *,
    election: Election | None = None,
    joining: int | None = None,
    leaving: int | None = None,
    is_unclean: bool = False,
) -> list[Versioned]:
    """Records of elections in these partitions, as far as their leaders or their in-sync sets change.

    ``election``: which replicas may be elected; None: as the topic permits. ``joining``, ``leaving``: see `may_lead`.
    ``is_unclean``: see `remove_from_partitions`.
    """
    unclean: dict[str, bool] = {}
    records = []
    for topic, index, partition in partitions:
        if election is None and topic.name not in unclean:
            unclean[topic.name] = unclean_election_enabled(image, topic.name, context)
        record = change_partition(
            partition,
            topic.topic_id,
            index,
            may_lead=may_lead(image, partition, joining=joining, leaving=leaving),
            metadata_version=image.metadata_version,
            election=election or (Election.UNCLEAN if unclean[topic.name] else Election.ONLINE),
            isr=tuple(replica for replica in partition.isr if replica != leaving),
            elr_minimum=elr_minimum(image, topic.name, context),
            unclean_replicas=(leaving,) if is_unclean and leaving is not None else (),
        )
        if record is not None:
            records.append(record)
    return records


def elr_minimum(image: MetadataImage, topic: str, context: ControllerContext) -> int | None:
    """`min.insync.replicas` of a topic, if the cluster has eligible leader replicas: see `change_partition`."""
    if not image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION):
        return None
    own = image.topic_configs(topic).get("min.insync.replicas")
    return context.broker_config(image).int("min.insync.replicas") if own is None else int(own)
