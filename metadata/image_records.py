"""The records of an image: the content of a snapshot.

Replaying them onto an empty image restores the image. The order matters if a record refers to an earlier one: features
first, because they determine how other records are read; topics before their partitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .features import (
    CONTROLLER_REGISTRATION_SINCE,
    DIRECTORIES_SINCE,
    ELR_SINCE,
    KRAFT_VERSION,
    METADATA_VERSION,
    partition_version,
    register_broker_version,
)
from .outcome import Versioned
from .records import (
    BrokerEndpoint,
    BrokerFeature,
    ClientQuotaRecord,
    ConfigRecord,
    ControllerEndpoint,
    ControllerFeature,
    EntityData,
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
    ZkMigrationStateRecord,
)

if TYPE_CHECKING:
    from .image import MetadataImage
    from .registrations import BrokerRegistration, ControllerRegistration, PartitionRegistration


def image_records(image: MetadataImage) -> Iterator[Versioned]:
    """The records that define the image, each in the version that its metadata.version permits."""
    yield from _features(image)
    if image.metadata_version >= CONTROLLER_REGISTRATION_SINCE:
        for controller in image.controllers.values():
            yield Versioned(_register_controller(controller))
    for broker in image.brokers.values():
        yield _register_broker(broker, image.metadata_version)
    for topic in image.topics_by_id.values():
        yield Versioned(TopicRecord(name=topic.name, topic_id=topic.topic_id))
        for partition, registration in topic.partitions.items():
            yield _partition(topic.topic_id, partition, registration, image.metadata_version)
    for resource, configs in image.configs.items():
        for name, value in configs.items():
            yield Versioned(
                ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value)
            )
    for entity, quotas in image.client_quotas.items():
        entities = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
        for key, quota in quotas.items():
            yield Versioned(ClientQuotaRecord(entity=entities, key=key, value=quota, remove=False))
    if image.producer_ids is not None:
        yield Versioned(image.producer_ids)
    for record in (
        *image.access_control_entries.values(),
        *image.scram_credentials.values(),
        *image.delegation_tokens.values(),
    ):
        yield Versioned(record)
    if image.zk_migration_state is not None:
        yield Versioned(ZkMigrationStateRecord(zk_migration_state=image.zk_migration_state))


def _features(image: MetadataImage) -> Iterator[Versioned]:
    names = sorted(image.features, key=lambda name: (name != METADATA_VERSION, name))
    for name in names:
        if name != KRAFT_VERSION:
            yield Versioned(FeatureLevelRecord(name=name, feature_level=image.features[name]))


def _register_controller(controller: ControllerRegistration) -> RegisterControllerRecord:
    return RegisterControllerRecord(
        controller_id=controller.id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=controller.zk_migration_ready,
        end_points=[
            ControllerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in controller.listeners.values()
        ],
        features=[
            ControllerFeature(name=name, min_supported_version=lowest, max_supported_version=highest)
            for name, (lowest, highest) in controller.features.items()
        ],
    )


def _register_broker(broker: BrokerRegistration, metadata_version: int) -> Versioned:
    version = register_broker_version(metadata_version)
    record = RegisterBrokerRecord(
        broker_id=broker.id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            BrokerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in broker.listeners.values()
        ],
        features=[
            BrokerFeature(name=name, min_supported_version=lowest, max_supported_version=highest)
            for name, (lowest, highest) in broker.features.items()
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
    )
    if version >= 3:
        record.log_dirs = list(broker.directories)
    if version >= 4 and broker.cordoned_directories is not None:
        record.cordoned_log_dirs = list(broker.cordoned_directories)
    return Versioned(record, version)


def _partition(
    topic_id: bytes, partition: int, registration: PartitionRegistration, metadata_version: int
) -> Versioned:
    record = PartitionRecord(
        partition_id=partition,
        topic_id=topic_id,
        replicas=list(registration.replicas),
        isr=list(registration.isr),
        removing_replicas=list(registration.removing_replicas),
        adding_replicas=list(registration.adding_replicas),
        leader=registration.leader,
        leader_recovery_state=registration.leader_recovery_state,
        leader_epoch=registration.leader_epoch,
        partition_epoch=registration.partition_epoch,
    )
    if metadata_version >= DIRECTORIES_SINCE:
        record.directories = list(registration.directories)
    if metadata_version >= ELR_SINCE:
        record.eligible_leader_replicas = list(registration.elr) or None
        record.last_known_elr = list(registration.last_known_elr) or None
    return Versioned(record, partition_version(metadata_version))
