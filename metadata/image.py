"""The metadata image: the state of the cluster, as the records of the metadata log define it.

Brokers, topics, configs, features and all other state are the result of the log's records (KIP-500). A `MetadataImage`
is the state at one offset. It is immutable: changes replace it, so each holder sees a consistent state. `apply` replays
records onto an image and returns the next image with a `MetadataDelta`, which contains the differences. Brokers act on
deltas.

Invariants:

* Replay is total. A record that is invalid in the current state (a change of a missing partition) is skipped with a
  warning: an existing log must not keep a broker from starting.
* Only changed entries are copied. Of a changed table, the outermost dictionary is copied as well (10,000 topics: about
  0.1 ms, far below the fsync that follows); within a topic only the partitions of that topic are copied.
* Records without a use here (access control, quotas, credentials, tokens) are kept unchanged, so that a snapshot
  contains them.

The image contains no files, no offsets of batches, and not the writers of records. `transactions.py` resolves the
markers of metadata transactions (KIP-868) before replay.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ..protocol.named_tuples import NamedTuple
from ..protocol.steps import Steps, completed
from ..protocol.uuid import uuid_to_str
from .records import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)
from .registrations import (
    NO_LEADER,
    RECOVERING,
    BrokerRegistration,
    ControllerRegistration,
    PartitionRegistration,
    TopicImage,
)
from .topic_names import has_collision_characters, unify_collision_characters

logger = logging.getLogger(__name__)

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
BROKER_LOGGER_RESOURCE: Final = 8
CLIENT_METRICS_RESOURCE: Final = 16
GROUP_RESOURCE: Final = 32
"""Types of resources with configs, with their numbers in requests and in ConfigRecord."""


class ConfigResource(NamedTuple):
    """The owner of configs. A broker's name is its id; the empty name means the default of all brokers."""

    type: int
    name: str


QuotaEntity = tuple[tuple[str, str | None], ...]
"""(entity type, name) pairs, sorted; the name None means the default entity."""


class MetadataImage(NamedTuple):
    """The state of the cluster after all records up to and including `offset`. Every mapping is read-only."""

    offset: int = -1
    """The offset of the last record; -1 for the empty image."""
    epoch: int = -1
    """The raft epoch of that record."""
    timestamp_ms: int = -1
    """The append time of that record's batch."""
    cluster_id: str = ""
    topics_by_name: Mapping[str, TopicImage] = {}
    topics_by_id: Mapping[bytes, TopicImage] = {}
    colliding_topics: Mapping[str, frozenset[str]] = {}
    """Topics with '.' or '_' in their names, by the name with every '.' replaced (`topic_names`)."""
    brokers: Mapping[int, BrokerRegistration] = {}
    controllers: Mapping[int, ControllerRegistration] = {}
    configs: Mapping[ConfigResource, Mapping[str, str]] = {}
    features: Mapping[str, int] = {}
    """Finalized levels above 0. All come from FeatureLevelRecords except kraft.version, which is in control records."""
    producer_ids: ProducerIdsRecord | None = None
    """The latest allocation of producer ids."""
    client_quotas: Mapping[QuotaEntity, Mapping[str, float]] = {}
    access_control_entries: Mapping[bytes, AccessControlEntryRecord] = {}
    scram_credentials: Mapping[tuple[str, int], UserScramCredentialRecord] = {}
    """The credentials by user and mechanism."""
    delegation_tokens: Mapping[str, DelegationTokenRecord] = {}
    zk_migration_state: int | None = None

    @property
    def metadata_version(self) -> int:
        """The level of metadata.version, which determines the records that may be written; 0 before the bootstrap."""
        return self.features.get("metadata.version", 0)

    @property
    def record_count(self) -> int:
        """The approximate number of records in a snapshot of this image."""
        partitions = sum(len(topic.partitions) for topic in self.topics_by_id.values())
        return len(self.topics_by_id) + partitions + sum(map(len, self.configs.values()))

    def partition(self, topic: str, partition: int) -> PartitionRegistration | None:
        """The partition's registration; None if the topic or the partition does not exist."""
        found = self.topics_by_name.get(topic)
        return None if found is None else found.partitions.get(partition)

    def config(self, resource_type: int, name: str) -> Mapping[str, str]:
        """The configs that requests have set for the resource; empty if there are none."""
        return self.configs.get(ConfigResource(resource_type, name), _NOTHING)

    def topic_configs(self, topic: str) -> Mapping[str, str]:
        """The configs that the topic overrides."""
        return self.config(TOPIC_RESOURCE, topic)

    def apply(
        self, records: Iterable[MetadataRecord], *, end_offset: int, epoch: int, timestamp_ms: int
    ) -> tuple[MetadataImage, MetadataDelta]:
        """The image after `records`, whose last offset is `end_offset` - 1, and the delta."""
        update = MetadataUpdate(self)
        for record in records:
            update.replay(record)
        return update.finish(offset=end_offset - 1, epoch=epoch, timestamp_ms=timestamp_ms)

    def replayed(self, records: Iterable[MetadataRecord]) -> MetadataImage:
        """The image after these records, with the same offset: to decide more records for the same batch."""
        return self.apply(records, end_offset=self.offset + 1, epoch=self.epoch, timestamp_ms=self.timestamp_ms)[0]


_NOTHING: Final[Mapping[str, str]] = {}


_CHANGES_IN_A_STEP: Final = 100


class PartitionChange(NamedTuple):
    """One partition before and after: `before` is None for a new partition, `after` for a deleted one."""

    topic: str
    topic_id: bytes
    partition: int
    before: PartitionRegistration | None
    after: PartitionRegistration | None


class MetadataDelta(NamedTuple):
    """The differences between `before` and `after`. Intermediate states are not included."""

    before: MetadataImage
    after: MetadataImage
    created_topics: tuple[TopicImage, ...] = ()
    deleted_topics: tuple[TopicImage, ...] = ()
    """The topics before their deletion. A topic that was deleted and re-created is in both sets, with different ids."""
    partitions: tuple[PartitionChange, ...] = ()
    """Every partition that was created, changed or deleted, including those of created and deleted topics."""
    configs: frozenset[ConfigResource] = frozenset()
    """Resources whose configs changed or were all removed; deleted topics are not included."""
    brokers: frozenset[int] = frozenset()
    """Ids of brokers that were registered, changed or removed."""
    has_new_features: bool = False

    @property
    def unclean_elections(self) -> int:
        """How many partitions got a leader that was not in sync, which is recovering at first (KIP-704)."""
        return sum(
            each.before is not None and each.after is not None and _is_unclean_election(each.before, each.after)
            for each in self.partitions
        )


def _is_unclean_election(before: PartitionRegistration, after: PartitionRegistration) -> bool:
    if after.leader_recovery_state != RECOVERING or after.leader == NO_LEADER:
        return False
    if before.leader_recovery_state != RECOVERING:
        return True
    return after.leader != before.leader and after.leader not in before.isr and after.leader not in before.elr


class MetadataUpdate:
    """Replays records onto an image. Used once: `replay` any number of times, then `finish`.

    `prepare` can do the slow part of `finish` for many partitions in steps. Tables start as those of the previous
    image, and are copied when a record first changes them (`_own`).
    """

    def __init__(self, before: MetadataImage) -> None:
        self._before = before
        # The copied tables of the new image, by field name. Only changed tables are here.
        self._owned: dict[str, dict[Any, Any]] = {}
        self._single: dict[str, Any] = {}
        # The partitions of every changed topic, by topic id; finish() builds TopicImages from them.
        self._partitions: dict[bytes, dict[int, PartitionRegistration]] = {}
        self._touched: dict[bytes, set[int]] = {}
        self._created: dict[bytes, str] = {}
        self._deleted: dict[bytes, TopicImage] = {}
        self._configs: set[ConfigResource] = set()
        self._own_configs: dict[ConfigResource, dict[str, str]] = {}
        self._brokers: set[int] = set()
        # The results of finish().
        self._created_topics: list[TopicImage] = []
        self._changes: list[PartitionChange] = []
        self._is_prepared = False

    def replay(self, record: MetadataRecord) -> None:
        """Apply one record."""
        _REPLAY[type(record)](self, record)

    def finish(self, *, offset: int, epoch: int, timestamp_ms: int) -> tuple[MetadataImage, MetadataDelta]:
        """Return the new image, whose last record is at `offset`, and the delta."""
        if not self._is_prepared:
            completed(self.prepare())
        before = self._before
        changes_of_image: dict[str, Any] = {**self._owned, **self._single}
        after = before._replace(offset=offset, epoch=epoch, timestamp_ms=timestamp_ms, **changes_of_image)
        delta = MetadataDelta(
            before,
            after,
            tuple(self._created_topics),
            tuple(self._deleted.values()),
            tuple(self._changes),
            frozenset(self._configs),
            frozenset(self._brokers),
            after.features != before.features,
        )
        return after, delta

    def prepare(self) -> Steps[None]:
        """Do most of the work of `finish`, after the last record."""
        before = self._before
        changes = self._changes
        for deleted in self._deleted.values():
            for index, gone in deleted.partitions.items():
                changes.append(PartitionChange(deleted.name, deleted.topic_id, index, gone, None))
                if not len(changes) % _CHANGES_IN_A_STEP:
                    yield 0
        for topic_id, partitions in self._partitions.items():
            previous = None if topic_id in self._created else before.topics_by_id[topic_id]
            topic = TopicImage(self._name(topic_id), topic_id, partitions)
            self._own("topics_by_id")[topic_id] = topic
            self._own("topics_by_name")[topic.name] = topic
            if previous is None:
                self._created_topics.append(topic)
            yield 0
            for partition in sorted(self._touched[topic_id]):
                old = None if previous is None else previous.partitions.get(partition)
                changes.append(PartitionChange(topic.name, topic_id, partition, old, partitions[partition]))
                if not len(changes) % _CHANGES_IN_A_STEP:
                    yield 0
        self._is_prepared = True

    def _own(self, table: str) -> dict[Any, Any]:
        owned = self._owned.get(table)
        if owned is None:
            owned = self._owned[table] = dict(getattr(self._before, table))
        return owned

    def _look(self, table: str) -> Mapping[Any, Any]:
        owned = self._owned.get(table)
        if owned is not None:
            return owned
        found: Mapping[Any, Any] = getattr(self._before, table)
        return found

    # Topics and partitions

    def _name(self, topic_id: bytes) -> str:
        created = self._created.get(topic_id)
        return self._before.topics_by_id[topic_id].name if created is None else created

    def _exists(self, topic_id: bytes) -> bool:
        return topic_id in self._created or (topic_id in self._before.topics_by_id and topic_id not in self._deleted)

    def _topic_partitions(self, topic_id: bytes) -> dict[int, PartitionRegistration] | None:
        """The topic's partitions as a copy that may be changed; None if the topic does not exist."""
        partitions = self._partitions.get(topic_id)
        if partitions is None and self._exists(topic_id):
            is_new = topic_id in self._created
            partitions = self._partitions[topic_id] = (
                {} if is_new else dict(self._before.topics_by_id[topic_id].partitions)
            )
            self._touched[topic_id] = set()
        return partitions

    def _replay_topic(self, record: TopicRecord) -> None:
        if self._exists(record.topic_id):
            _skip(record, "there is a topic with this id")
            return
        self._created[record.topic_id] = record.name
        self._topic_partitions(record.topic_id)
        if has_collision_characters(record.name):
            colliding = self._own("colliding_topics")
            unified = unify_collision_characters(record.name)
            colliding[unified] = colliding.get(unified, frozenset()) | {record.name}

    def _replay_partition(self, record: PartitionRecord) -> None:
        partitions = self._topic_partitions(record.topic_id)
        if partitions is None:
            _skip(record, "there is no such topic")
            return
        partitions[record.partition_id] = PartitionRegistration.from_record(record)
        self._touched[record.topic_id].add(record.partition_id)

    def _replay_partition_change(self, record: PartitionChangeRecord) -> None:
        partitions = self._topic_partitions(record.topic_id)
        registration = None if partitions is None else partitions.get(record.partition_id)
        if partitions is None or registration is None:
            _skip(record, "there is no such partition")
            return
        partitions[record.partition_id] = registration.merge(record)
        self._touched[record.topic_id].add(record.partition_id)

    def _replay_remove_topic(self, record: RemoveTopicRecord) -> None:
        topic_id = record.topic_id
        if not self._exists(topic_id):
            _skip(record, "there is no such topic")
            return
        name = self._name(topic_id)
        is_new = self._created.pop(topic_id, None) is not None
        self._partitions.pop(topic_id, None)
        self._touched.pop(topic_id, None)
        if not is_new:
            self._deleted[topic_id] = self._before.topics_by_id[topic_id]
            self._own("topics_by_id").pop(topic_id, None)
            self._own("topics_by_name").pop(name, None)
        if has_collision_characters(name):
            colliding = self._own("colliding_topics")
            unified = unify_collision_characters(name)
            remaining = colliding.pop(unified, frozenset()) - {name}
            if remaining:
                colliding[unified] = remaining
        resource = ConfigResource(TOPIC_RESOURCE, name)
        if resource in self._look("configs"):
            del self._own("configs")[resource]
        self._own_configs.pop(resource, None)
        self._configs.discard(resource)

    def _replay_clear_elr(self, record: ClearElrRecord) -> None:
        """Remove the eligible leader replicas of one topic, or of all topics if the record names none (KIP-966)."""
        topic_ids = [*self._before.topics_by_id, *(t for t in self._created if t not in self._before.topics_by_id)]
        for topic_id in topic_ids:
            if not self._exists(topic_id) or record.topic_name not in ("", self._name(topic_id)):
                continue
            known: Mapping[int, PartitionRegistration] | None = self._partitions.get(topic_id)
            if known is None:
                known = self._before.topics_by_id[topic_id].partitions
            affected = [p for p, registration in known.items() if registration.elr or registration.last_known_elr]
            for partition in affected:
                self._replay_partition_change(
                    PartitionChangeRecord(
                        topic_id=topic_id, partition_id=partition, eligible_leader_replicas=[], last_known_elr=[]
                    )
                )

    # Brokers and controllers

    def _replay_register_broker(self, record: RegisterBrokerRecord) -> None:
        self._own("brokers")[record.broker_id] = BrokerRegistration.from_record(record)
        self._brokers.add(record.broker_id)

    def _replay_unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        if self._registered(record, record.broker_id, record.broker_epoch) is None:
            return
        del self._own("brokers")[record.broker_id]
        self._brokers.add(record.broker_id)

    def _replay_broker_registration_change(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._registered(record, record.broker_id, record.broker_epoch)
        if broker is None:
            return
        if record.fenced:
            broker = broker._replace(fenced=record.fenced > 0)
        if record.in_controlled_shutdown > 0:
            broker = broker._replace(in_controlled_shutdown=True)
        if record.log_dirs:
            broker = broker._replace(directories=tuple(sorted(record.log_dirs)))
        if record.cordoned_log_dirs is not None:
            broker = broker._replace(cordoned_directories=tuple(record.cordoned_log_dirs))
        self._change_broker(broker)

    def _replay_fence_broker(self, record: FenceBrokerRecord) -> None:
        broker = self._registered(record, record.id, record.epoch)
        if broker is not None:
            self._change_broker(broker._replace(fenced=True))

    def _replay_unfence_broker(self, record: UnfenceBrokerRecord) -> None:
        broker = self._registered(record, record.id, record.epoch)
        if broker is not None:
            self._change_broker(broker._replace(fenced=False))

    def _registered(self, record: MetadataRecord, broker_id: int, broker_epoch: int) -> BrokerRegistration | None:
        broker: BrokerRegistration | None = self._look("brokers").get(broker_id)
        if broker is None or broker.epoch != broker_epoch:
            _skip(record, "there is no broker registered with this epoch")
            return None
        return broker

    def _change_broker(self, broker: BrokerRegistration) -> None:
        self._own("brokers")[broker.id] = broker
        self._brokers.add(broker.id)

    def _replay_register_controller(self, record: RegisterControllerRecord) -> None:
        self._own("controllers")[record.controller_id] = ControllerRegistration.from_record(record)

    # Other records

    def _replay_config(self, record: ConfigRecord) -> None:
        resource = ConfigResource(record.resource_type, record.resource_name)
        configs = self._own_configs.get(resource)
        if configs is None:
            configs = self._own_configs[resource] = dict(self._look("configs").get(resource, _NOTHING))
        if record.value is None:
            configs.pop(record.name, None)
        else:
            configs[record.name] = record.value
        if configs:
            self._own("configs")[resource] = configs
        else:
            self._own("configs").pop(resource, None)
        self._configs.add(resource)

    def _replay_feature_level(self, record: FeatureLevelRecord) -> None:
        if record.name == "kraft.version":
            return  # it is stored in control records; early versions of Kafka wrote it here as well (KAFKA-18979)
        self._set_feature(record.name, record.feature_level)

    def _set_feature(self, name: str, level: int) -> None:
        if level > 0:
            self._own("features")[name] = level
        else:
            self._own("features").pop(name, None)

    def _replay_producer_ids(self, record: ProducerIdsRecord) -> None:
        self._single["producer_ids"] = record

    def _replay_client_quota(self, record: ClientQuotaRecord) -> None:
        pairs = ((entity.entity_type, entity.entity_name) for entity in record.entity)
        key: QuotaEntity = tuple(sorted(pairs, key=lambda pair: (pair[0], pair[1] is not None, pair[1] or "")))
        quotas = dict(self._look("client_quotas").get(key, {}))
        if record.remove:
            quotas.pop(record.key, None)
        else:
            quotas[record.key] = record.value
        if quotas:
            self._own("client_quotas")[key] = quotas
        else:
            self._own("client_quotas").pop(key, None)

    def _replay_access_control_entry(self, record: AccessControlEntryRecord) -> None:
        self._own("access_control_entries")[record.id] = record

    def _replay_remove_access_control_entry(self, record: RemoveAccessControlEntryRecord) -> None:
        self._own("access_control_entries").pop(record.id, None)

    def _replay_user_scram_credential(self, record: UserScramCredentialRecord) -> None:
        self._own("scram_credentials")[record.name, record.mechanism] = record

    def _replay_remove_user_scram_credential(self, record: RemoveUserScramCredentialRecord) -> None:
        self._own("scram_credentials").pop((record.name, record.mechanism), None)

    def _replay_delegation_token(self, record: DelegationTokenRecord) -> None:
        self._own("delegation_tokens")[record.token_id] = record

    def _replay_remove_delegation_token(self, record: RemoveDelegationTokenRecord) -> None:
        self._own("delegation_tokens").pop(record.token_id, None)

    def _replay_zk_migration_state(self, record: ZkMigrationStateRecord) -> None:
        self._single["zk_migration_state"] = record.zk_migration_state

    def _replay_nothing(self, record: MetadataRecord) -> None:
        """Records without effect on the state: no-op records and markers of transactions."""


def _skip(record: MetadataRecord, reason: str) -> None:
    topic_id = getattr(record, "topic_id", None)
    what = f"{type(record).__name__} of topic {uuid_to_str(topic_id)}" if topic_id else repr(record)
    logger.warning("Skipping %s: %s", what, reason)


_REPLAY: Final[dict[type[MetadataRecord], Callable[[MetadataUpdate, Any], None]]] = {
    RegisterBrokerRecord: MetadataUpdate._replay_register_broker,
    UnregisterBrokerRecord: MetadataUpdate._replay_unregister_broker,
    TopicRecord: MetadataUpdate._replay_topic,
    PartitionRecord: MetadataUpdate._replay_partition,
    ConfigRecord: MetadataUpdate._replay_config,
    PartitionChangeRecord: MetadataUpdate._replay_partition_change,
    FenceBrokerRecord: MetadataUpdate._replay_fence_broker,
    UnfenceBrokerRecord: MetadataUpdate._replay_unfence_broker,
    RemoveTopicRecord: MetadataUpdate._replay_remove_topic,
    DelegationTokenRecord: MetadataUpdate._replay_delegation_token,
    UserScramCredentialRecord: MetadataUpdate._replay_user_scram_credential,
    FeatureLevelRecord: MetadataUpdate._replay_feature_level,
    ClientQuotaRecord: MetadataUpdate._replay_client_quota,
    ProducerIdsRecord: MetadataUpdate._replay_producer_ids,
    BrokerRegistrationChangeRecord: MetadataUpdate._replay_broker_registration_change,
    AccessControlEntryRecord: MetadataUpdate._replay_access_control_entry,
    RemoveAccessControlEntryRecord: MetadataUpdate._replay_remove_access_control_entry,
    NoOpRecord: MetadataUpdate._replay_nothing,
    ZkMigrationStateRecord: MetadataUpdate._replay_zk_migration_state,
    RemoveUserScramCredentialRecord: MetadataUpdate._replay_remove_user_scram_credential,
    BeginTransactionRecord: MetadataUpdate._replay_nothing,
    EndTransactionRecord: MetadataUpdate._replay_nothing,
    AbortTransactionRecord: MetadataUpdate._replay_nothing,
    RemoveDelegationTokenRecord: MetadataUpdate._replay_remove_delegation_token,
    RegisterControllerRecord: MetadataUpdate._replay_register_controller,
    ClearElrRecord: MetadataUpdate._replay_clear_elr,
}
