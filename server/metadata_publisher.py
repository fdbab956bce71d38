"""Brings a broker's partitions, settings and coordinators up to date with the metadata.

Apache Kafka's name for this is BrokerMetadataPublisher. `load` publishes the whole image at startup. Afterwards `apply`
publishes each committed change, in steps, so that a change of many partitions does not block the event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ..log.manager import RetriableLogError
from ..metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE
from ..protocol.errors import ErrorCode, KafkaError
from ..replication.partition import Partition
from .storage.log_configs import topic_log_config, topic_min_insync_replicas
from .upkeep.late_replicas import LateReplicas

if TYPE_CHECKING:
    from ..config.sources import BrokerConfig
    from ..log.config import LogConfig
    from ..log.directory import LogDirectory
    from ..log.manager import LogManager
    from ..log.partition_log import Log
    from ..metadata.broker_metadata import BrokerMetadata
    from ..metadata.image import MetadataDelta, MetadataImage
    from ..metadata.registrations import PartitionRegistration, TopicImage
    from ..replication.replicas import Replicas
    from .concurrency.clock import Clock
    from .concurrency.slices import Sliced
    from .concurrency.timers import TimerWheel
    from .coordination.coordinators import Coordinators
    from .records.appends import AppendQueues
    from .records.group_commit import GroupCommit
    from .replication.manager import Replication
    from .upkeep.directory_assignments import DirectoryAssignments
    from .upkeep.log_cleaner import LogCleaner
    from .upkeep.trash import Trash

logger = logging.getLogger(__name__)

_PARTITIONS_PER_STEP = 5
"""How many partitions are created or removed in one step: the file I/O takes time."""


class MetadataPublisher:
    """The partitions of one broker, as the metadata define them."""

    def __init__(
        self,
        metadata: BrokerMetadata,
        replicas: Replicas,
        log_manager: LogManager,
        timers: TimerWheel,
        now_ms: Clock,
        *,
        appends: AppendQueues,
        group_commit: GroupCommit,
        log_cleaner: LogCleaner,
        trash: Trash,
        assignments: DirectoryAssignments,
        coordinators: Iterable[Coordinators[Any]],
        update_config: Callable[[BrokerConfig], None],
        create_replication: Callable[[], Replication],
    ) -> None:
        """``coordinators``: iterating yields those that exist; ``update_config`` applies dynamic broker settings;
        ``create_replication`` is called for the first partition with several replicas."""
        self._metadata = metadata
        self._node_id = metadata.node_id
        self._replicas = replicas
        self._log_manager = log_manager
        self._timers = timers
        self._now_ms = now_ms
        self._appends = appends
        self._group_commit = group_commit
        self._log_cleaner = log_cleaner
        self._trash = trash
        self._assignments = assignments
        self._coordinators = coordinators
        self._update_config = update_config
        self._create_replication = create_replication
        self._replication: Replication | None = None
        self._config = metadata.broker_config
        self._leaving: dict[tuple[str, int], TopicImage] = {}  # partitions of deleted topics, still to be removed
        self.late_replicas = LateReplicas(timers, self._retry)
        self.on_directory_failed: Callable[[bytes], None] | None = None
        """Called with the id of a log directory that has failed, when its partitions are offline."""
        metadata.subscribe(self.apply)
        log_manager.on_directory_failure = self._directory_failed

    def load(self) -> None:
        """Serve every partition of the image. Called at startup."""
        image = self._metadata.image
        self._take_dynamic_config()
        for topic in image.topics_by_id.values():
            self._update_topic(image, topic, topic.partitions)

    def apply(self, delta: MetadataDelta, _image: MetadataImage) -> Sliced[None]:
        """Apply a committed change, in steps.

        Other changes may be committed between the steps, so each step uses the current metadata. Until the last step,
        partitions of deleted topics may still exist and new partitions may be missing, as in Apache Kafka's brokers.
        """
        for topic in delta.deleted_topics:
            self._leaving.update(((topic.name, index), topic) for index in topic.partitions)
        for topic in delta.deleted_topics:
            for count, index in enumerate(topic.partitions, 1):
                self._remove_deleted(topic.name, index)
                if not count % _PARTITIONS_PER_STEP:
                    yield 0
            yield 0
        self._assignments.hold()
        try:
            yield from self._update_partitions(delta)
        finally:
            self._assignments.release()
        if delta.brokers and self._replication is not None:
            self._replication.brokers_changed(delta.brokers)
        if any(resource.type == BROKER_RESOURCE for resource in delta.configs):
            yield from self._update_broker_config()
        for resource in delta.configs:
            if resource.type == TOPIC_RESOURCE:
                yield from self._update_topic_config(resource.name)
        for coordinators in self._coordinators:
            coordinators.apply(delta, self._metadata.image)

    def _update_partitions(self, delta: MetadataDelta) -> Sliced[None]:
        # The change is committed, so a topic that cannot be updated must not keep the others from being updated.
        changed: dict[bytes, list[int]] = {}
        for count, change in enumerate(delta.partitions, 1):
            if change.after is not None:
                changed.setdefault(change.topic_id, []).append(change.partition)
            if not count % 500:
                yield 0
        for topic_id, indexes in changed.items():
            for first in range(0, len(indexes), _PARTITIONS_PER_STEP):
                if first:
                    yield 0
                image = self._metadata.image
                topic = image.topics_by_id.get(topic_id)
                if topic is None:
                    break  # the topic was deleted in the meantime
                try:
                    self._update_topic(image, topic, indexes[first : first + _PARTITIONS_PER_STEP])
                except Exception:
                    logger.exception("Updating the partitions of %s failed with an unexpected error", topic.name)
            yield 0

    def _remove_deleted(self, name: str, index: int) -> None:
        """Remove a partition of a deleted topic, once."""
        topic = self._leaving.pop((name, index), None)
        if topic is not None:
            self._remove(topic, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _update_topic(self, image: MetadataImage, topic: TopicImage, indexes: Iterable[int]) -> None:
        overrides = image.config(TOPIC_RESOURCE, topic.name)
        log_config: LogConfig | None = None
        min_insync_replicas = 1
        for index in indexes:
            registration = topic.partitions[index]
            partition = self._replicas.partition_by_key(topic.topic_id, index)
            if self._node_id not in registration.replicas:
                if partition is not None:
                    self._remove(topic, index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
                continue
            if partition is None:
                if self._leaving:
                    self._remove_deleted(topic.name, index)  # remove the files of a deleted topic with the same name
                if log_config is None:
                    log_config = topic_log_config(overrides, self._config)
                    min_insync_replicas = topic_min_insync_replicas(overrides, self._config)
                try:
                    log = self._log_manager.get_or_create(
                        topic.name,
                        topic.topic_id,
                        index,
                        log_config,
                        now_ms=self._now_ms(),
                        directory_id=registration.directory(self._node_id),
                    )
                except KafkaError as error:
                    self._replicas.add_offline(topic.name, topic.topic_id, index)
                    if isinstance(error, RetriableLogError):
                        self.late_replicas.add(topic.name, topic.topic_id, index, error)
                    else:
                        self.late_replicas.discard(topic.topic_id, index)
                        logger.error("%s-%d is offline: %s", topic.name, index, error)
                    continue
                self.late_replicas.discard(topic.topic_id, index)
                partition = Partition(
                    topic.name, topic.topic_id, index, self._node_id, log, self._group_commit.flush_soon
                )
                partition.update_config(log_config, min_insync_replicas=min_insync_replicas)
                self._replicas.add(partition)
                self._assignments.note(partition, registration.directory(self._node_id))
                if len(registration.replicas) > 1:
                    known = self._log_manager.high_watermarks.get((topic.name, index), 0)
                    partition.restore_high_watermark(known)
            self._lead_or_follow(partition, registration)

    def _lead_or_follow(self, partition: Partition, registration: PartitionRegistration) -> None:
        if registration.leader == self._node_id:
            partition.become_leader(
                leader_epoch=registration.leader_epoch,
                partition_epoch=registration.partition_epoch,
                replicas=registration.replicas,
                isr=registration.isr,
                now_ms=self._timers.now_ms(),  # the lag of replicas is measured by the monotonic clock
            )
        else:
            partition.become_follower(
                leader_id=registration.leader,
                leader_epoch=registration.leader_epoch,
                partition_epoch=registration.partition_epoch,
                replicas=registration.replicas,
                isr=registration.isr,
            )
        if self._replication is None and len(registration.replicas) > 1:
            self._replication = self._create_replication()
        if self._replication is not None:
            self._replication.changed(partition)

    def _retry(self, topic_id: bytes, index: int) -> None:
        """Retry to serve a partition whose log could not be created."""
        image = self._metadata.image
        topic = image.topics_by_id.get(topic_id)
        if topic is None or index not in topic.partitions:
            self.late_replicas.discard(topic_id, index)
            return
        self._update_topic(image, topic, [index])
        for coordinators in self._coordinators:
            if topic.name == coordinators.topic:
                coordinators.follow(index)

    def _update_broker_config(self) -> Sliced[None]:
        """Dynamic settings of the broker changed: apply them, and update the defaults of every topic."""
        image = self._metadata.image
        self._take_dynamic_config()
        for name in image.topics_by_name:
            yield from self._update_topic_config(name)

    def _take_dynamic_config(self) -> None:
        self._config = self._metadata.broker_config
        self._update_config(self._config)

    def _update_topic_config(self, name: str) -> Sliced[None]:
        image = self._metadata.image
        topic = image.topics_by_name.get(name)
        if topic is None:
            return
        overrides = image.config(TOPIC_RESOURCE, name)
        log_config = topic_log_config(overrides, self._config)
        min_insync_replicas = topic_min_insync_replicas(overrides, self._config)
        for count, index in enumerate(topic.partitions, 1):
            partition = self._replicas.partition_by_key(topic.topic_id, index)
            if partition is not None:
                partition.update_config(log_config, min_insync_replicas=min_insync_replicas)
            if not count % 100:
                yield 0
                if self._metadata.image is not image and self._has_other_config(image, name):
                    return  # the newer change updates all partitions
        yield 0

    def _has_other_config(self, image: MetadataImage, name: str) -> bool:
        present = self._metadata.image
        return image.config(TOPIC_RESOURCE, name) != present.config(TOPIC_RESOURCE, name) or any(
            image.config(BROKER_RESOURCE, broker) != present.config(BROKER_RESOURCE, broker)
            for broker in ("", str(self._node_id))
        )

    def _remove(self, topic: TopicImage, index: int, code: ErrorCode) -> None:
        """Stop serving the partition; requests that wait for it fail with ``code``."""
        partition = self._replicas.remove(topic.name, topic.topic_id, index)
        was_late = self.late_replicas.discard(topic.topic_id, index)
        if partition is not None:
            partition.close(code)
            self._appends.forget(partition)
            if self._replication is not None:
                self._replication.forget(partition)
        if partition is not None or was_late:
            self._log_cleaner.forget(topic.name, index)
            try:
                self._log_manager.delete(topic.name, index)
            except KafkaError as error:  # the log directory has failed; the next startup sets the files aside
                logger.error("Cannot delete the files of %s-%d: %s", topic.name, index, error.message)
            self._trash.deleted()

    def _directory_failed(self, directory: LogDirectory, error: OSError, logs: list[Log]) -> None:
        """A log directory failed: its partitions go offline. The others are still served."""
        logger.error("Log directory %s failed and is offline until the server restarts: %s", directory.path, error)
        for log in logs:
            partition = self._replicas.partition_by_key(log.topic, log.partition)
            if partition is not None:
                partition.go_offline()
                if self._replication is not None:
                    self._replication.changed(partition)
                for coordinators in self._coordinators:
                    if log.topic == coordinators.topic:
                        coordinators.follow(log.partition)
        if self.on_directory_failed is not None:
            self.on_directory_failed(directory.directory_id)
