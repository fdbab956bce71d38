"""A broker: the parts that handlers work with, and how a change of the metadata reaches them.

Everything here belongs to one event loop. The metadata log is the truth of which topics there are; the broker makes,
changes and removes partitions as its records are committed (`apply`), and at a start it does the same with the whole
image. Topics made by a request are there when its answer leaves, because commit and apply are one step.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ..log.manager import NotYetError
from ..metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE
from ..metadata.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    DirectoryData,
    PartitionData,
    TopicData,
)
from ..replication.partition import Partition
from ..replication.replicas import Replicas
from .appends import AppendQueues
from .chores import Chores
from .clock import Clock, wall_clock
from .decoding import Decoder
from .fetch_session import FetchSessionCache
from .group_commit import GroupCommit
from .housekeeping import Housekeeping
from .late_replicas import LateReplicas
from .log_cleaner import CleanerSettings, LogCleaner
from .log_configs import topic_log_config, topic_min_insync_replicas
from .metadata_snapshots import MetadataSnapshots
from .replica_mover import ReplicaMover
from .retention import Retention
from .slices import Slices
from .trash import Trash
from .verification import Verifications

if TYPE_CHECKING:
    from ..config.sources import BrokerConfig
    from ..log.checkpoints import TopicPartition
    from ..log.config import LogConfig
    from ..log.directory import LogDirectory
    from ..log.partition_log import Log
    from ..metadata.image import MetadataDelta, MetadataImage
    from ..metadata.registrations import TopicImage
    from .background import Background
    from .coordinators import Coordinators
    from .groups import GroupCoordinators
    from .read_ahead import ReadAhead
    from .request import RequestContext
    from .storage import Storage
    from .timers import TimerWheel
    from .transactions import TransactionCoordinators

logger = logging.getLogger(__name__)

_STORAGE_FAILURE_LOG_SECONDS = 10.0

# How many jobs of a kind are in threads at once: codecs, which compute, and the file work of everything periodic.
CODECS = 2
CHORES = 8

NodeEndpoint = tuple[int, str, int, str | None]  # node id, host, port, rack


class Broker:
    """What handlers are given besides the request."""

    def __init__(
        self,
        config: BrokerConfig,
        loop: asyncio.AbstractEventLoop,
        timers: TimerWheel,
        storage: Storage,
        read_ahead: ReadAhead,
        background: Background,
        *,
        advertised: dict[str, tuple[str, int]],
        clock: Clock = wall_clock,
    ) -> None:
        self.config = config
        self.now_ms = clock
        """Milliseconds since the epoch."""
        self.loop = loop
        self.timers = timers
        self.read_ahead = read_ahead
        self.slices = Slices(loop.call_soon)
        self.log_manager = storage.log_manager
        self.metadata = storage.metadata
        self.node_id = self.metadata.node_id
        self.cluster_id = self.metadata.cluster_id
        self.replicas = Replicas()
        self.fetch_sessions = FetchSessionCache(config.int("max.incremental.fetch.session.cache.slots"))
        self.fetch_max_bytes = config.int("fetch.max.bytes")
        self.auto_create_topics = config.bool("auto.create.topics.enable")
        self._advertised = advertised
        self._rack = config.optional_str("broker.rack")
        self.background = background
        self.chores = Chores(background.lane(CHORES))
        self._codecs = background.lane(CODECS)
        self.decoder = Decoder(loop, self._codecs)
        self.appends = AppendQueues(self.decoder, self.now_ms)
        self._soon: deque[Callable[[], None]] = deque()
        self.group_commit = GroupCommit(loop, background, self.now_ms, self.run_soon)
        self._producer_ids = iter(range(0))
        self._storage_failure_logged = float("-inf")
        self.late_replicas = LateReplicas(timers, self._make_late)
        self._misplaced: list[tuple[bytes, Partition]] = []  # (the directory it is in, replica)
        self._groups: GroupCoordinators | None = None
        self._transactions: TransactionCoordinators | None = None
        self.verifications = Verifications(self)
        self.housekeeping = Housekeeping(
            loop,
            self.chores,
            timers,
            self.log_manager,
            self.now_ms,
            self.group_commit.flush,
            high_watermarks=self.high_watermarks,
            flush_interval_ms=config.int("log.flush.scheduler.interval.ms"),
            checkpoint_interval_ms=config.int("log.flush.offset.checkpoint.interval.ms"),
            start_offset_checkpoint_interval_ms=config.int("log.flush.start.offset.checkpoint.interval.ms"),
            producer_expiration_check_ms=config.int("producer.id.expiration.check.interval.ms"),
        )
        self.trash = Trash(
            loop,
            self.chores,
            timers,
            self.log_manager,
            self.now_ms,
            directory_delay_ms=lambda: self.config.int("log.segment.delete.delay.ms"),
        )
        self.retention = Retention(
            loop,
            self.chores,
            timers,
            self.replicas,
            self.trash,
            self.log_manager.file_system,
            self.now_ms,
            self.group_commit.flush,
            initial_delay_ms=config.int("log.initial.task.delay.ms"),
            interval_ms=config.int("log.retention.check.interval.ms"),
        )
        self.log_cleaner = LogCleaner(
            loop,
            self.chores,
            self.log_manager,
            self.now_ms,
            CleanerSettings.of(config),
            last_stable_offset=self._last_stable_offset,
            flush=self.group_commit.flush,
            write_checkpoints=self.housekeeping.write_checkpoints,
            swapped=self.trash.deleted,
        )
        threads = config.get("num.replica.alter.log.dirs.threads")
        self.replica_mover = ReplicaMover(
            self, threads if isinstance(threads, int) and threads > 0 else len(self.log_manager.directories)
        )
        self.metadata.subscribe(self.apply)
        self.metadata_snapshots = MetadataSnapshots(
            loop,
            self.chores,
            timers,
            self.metadata,
            self.log_manager,
            self.now_ms,
            self.trash,
        )
        self.log_manager.on_directory_failure = self._directory_failed

    @property
    def groups(self) -> GroupCoordinators:
        """The group coordinator; made when the first group is asked for, as many servers never have one.

        Raises:
            KafkaError: the system has no file descriptor, say, to load it with.
        """
        if self._groups is None:
            try:
                from .group_settings import group_config
                from .groups import GroupCoordinators
            except OSError as error:
                raise _coordinator_not_loaded(error) from error

            self._groups = GroupCoordinators(
                self,
                group_config(self.config),
                codec=self.config.int("offsets.topic.compression.codec"),
                load_bytes=self.config.int("offsets.load.buffer.size"),
            )
            self._groups.load()
        return self._groups

    @property
    def transactions(self) -> TransactionCoordinators:
        """The transaction coordinator; made when the first transactional id is asked for.

        Raises:
            KafkaError: as for `groups`.
        """
        if self._transactions is None:
            try:
                from .transaction_settings import transaction_config
                from .transactions import TransactionCoordinators
            except OSError as error:
                raise _coordinator_not_loaded(error) from error

            self._transactions = TransactionCoordinators(
                self,
                transaction_config(self.config),
                load_bytes=self.config.int("transaction.state.log.load.buffer.size"),
            )
            self._transactions.load()
        return self._transactions

    def _coordinators(self) -> Iterator[Coordinators[Any]]:
        """Those that were made. Groups come first: markers of transactions go to their partitions."""
        if self._groups is not None:
            yield self._groups
        if self._transactions is not None:
            yield self._transactions

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """Of every partition that is served, for the checkpoint."""
        return {(partition.topic, partition.index): partition.high_watermark for partition in self.replicas}

    def _last_stable_offset(self, topic: str, index: int) -> int | None:
        partition = self.replicas.partition_by_key(topic, index)
        return None if partition is None else partition.last_stable_offset

    def run_soon(self, callback: Callable[[], None]) -> None:
        """Call at the end of this turn of the loop; many callbacks cost the loop one."""
        if not self._soon:
            self.loop.call_soon(self._run_soon)
        self._soon.append(callback)

    def _run_soon(self) -> None:
        callbacks = list(self._soon)
        self._soon.clear()
        for callback in callbacks:
            try:
                callback()
            except Exception:
                logger.exception("Answering a parked request failed")

    def node_endpoints(self, context: RequestContext) -> list[NodeEndpoint]:
        """The brokers as a client of this listener reaches them.

        Without ``advertised.listeners`` that is the address which the client connected to: whatever it calls us, it
        works for the client.
        """
        host, port = self._advertised.get(context.listener_name) or context.local_address
        return [(self.node_id, host, port, self._rack)]

    def next_producer_id(self) -> int:
        """A producer id that was never given out before; ids come from the controller in blocks."""
        producer_id = next(self._producer_ids, None)
        if producer_id is None:
            self._producer_ids = iter(self.metadata.allocate_producer_ids(now_ms=self.now_ms()))
            producer_id = next(self._producer_ids)
        return producer_id

    def missing_topics(self, names: Iterable[str], *, create: bool) -> dict[str, ErrorCode]:
        """Make topics that a client asked for by name and that are not there; returns why where they are still not."""
        return self.metadata.auto_create_topics(list(names), create=create, now_ms=self.now_ms())

    # -- partitions follow the metadata --------------------------------------------------------------------------------

    def load(self) -> None:
        """Serve every partition of the image: at the start."""
        image = self.metadata.image
        self._take_dynamic_config(image)
        for topic in image.topics_by_id.values():
            self._update_topic(image, topic, topic.partitions)
        self.run_soon(self.replica_mover.go_on)  # when the controller knows where they are now
        if CONSUMER_OFFSETS in image.topics_by_name:
            self.groups  # noqa: B018 - loads them
        if TRANSACTION_STATE in image.topics_by_name:
            self.transactions  # noqa: B018 - loads them

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Follow a committed change."""
        for topic in delta.deleted_topics:
            for index in topic.partitions:
                self._remove(topic, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        # One topic that cannot be followed must not keep the others from it: the change is committed.
        changed: dict[bytes, list[int]] = {}
        for change in delta.partitions:
            if change.after is not None:
                changed.setdefault(change.topic_id, []).append(change.partition)
        for topic_id, indexes in changed.items():
            try:
                self._update_topic(image, image.topics_by_id[topic_id], indexes)
            except Exception:
                logger.exception(
                    "The partitions of %s could not be brought up to date", image.topics_by_id[topic_id].name
                )
        if any(resource.type == BROKER_RESOURCE for resource in delta.configs):
            self._update_broker_config(image)
        for resource in delta.configs:
            if resource.type == TOPIC_RESOURCE:
                self._update_topic_config(image, resource.name)
        for coordinators in self._coordinators():
            coordinators.apply(delta, image)

    def _update_topic(self, image: MetadataImage, topic: TopicImage, indexes: Iterable[int]) -> None:
        overrides = image.config(TOPIC_RESOURCE, topic.name)
        log_config: LogConfig | None = None
        min_insync_replicas = 1
        for index in indexes:
            registration = topic.partitions[index]
            partition = self.replicas.partition_by_key(topic.topic_id, index)
            if self.node_id not in registration.replicas:
                if partition is not None:
                    self._remove(topic, index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
                continue
            if partition is None:
                if log_config is None:
                    log_config = topic_log_config(overrides, self.config)
                    min_insync_replicas = topic_min_insync_replicas(overrides, self.config)
                try:
                    log = self.log_manager.create(
                        topic.name,
                        topic.topic_id,
                        index,
                        log_config,
                        now_ms=self.now_ms(),
                        directory_id=registration.directory(self.node_id),
                    )
                except KafkaError as error:
                    self.replicas.add_offline(topic.name, topic.topic_id, index)
                    if isinstance(error, NotYetError):
                        self.late_replicas.add(topic.name, topic.topic_id, index, error)
                    else:
                        self.late_replicas.discard(topic.topic_id, index)
                        logger.error("%s-%d is offline: %s", topic.name, index, error)
                    continue
                self.late_replicas.discard(topic.topic_id, index)
                partition = Partition(
                    topic.name, topic.topic_id, index, self.node_id, log, self.group_commit.flush_soon
                )
                partition.update_config(log_config, min_insync_replicas=min_insync_replicas)
                self.replicas.add(partition)
                self._note_directory(partition, registration.directory(self.node_id))
            partition.update(
                leader_id=registration.leader,
                leader_epoch=registration.leader_epoch,
                partition_epoch=registration.partition_epoch,
                replicas=registration.replicas,
                isr=registration.isr,
            )

    def _make_late(self, topic_id: bytes, index: int) -> None:
        """Try again to serve a partition whose log could not be made."""
        image = self.metadata.image
        topic = image.topics_by_id.get(topic_id)
        if topic is None or index not in topic.partitions:
            self.late_replicas.discard(topic_id, index)
            return
        self._update_topic(image, topic, [index])
        for coordinators in self._coordinators():
            if topic.name == coordinators.topic:
                coordinators.follow(index)

    def _note_directory(self, partition: Partition, registered: bytes) -> None:
        """Tell the controller later which log directory a replica is in, if it knows otherwise (KIP-858)."""
        directory = self.log_manager.directory_of(partition.topic, partition.index)
        if directory is None or directory.directory_id == registered:
            return
        if not self._misplaced:
            self.run_soon(self._report_directories)
        self._misplaced.append((directory.directory_id, partition))

    def _report_directories(self) -> None:
        by_directory: dict[bytes, dict[bytes, list[int]]] = {}
        for directory_id, partition in self._misplaced:
            by_directory.setdefault(directory_id, {}).setdefault(partition.topic_id, []).append(partition.index)
        self._misplaced.clear()
        request = AssignReplicasToDirsRequest(
            broker_id=self.node_id,
            broker_epoch=self.metadata.broker_epoch,
            directories=[
                DirectoryData(
                    id=directory_id,
                    topics=[
                        TopicData(topic_id=topic_id, partitions=[PartitionData(partition_index=i) for i in indexes])
                        for topic_id, indexes in topics.items()
                    ],
                )
                for directory_id, topics in by_directory.items()
            ],
        )
        self.metadata.assign_replicas_to_directories(request, now_ms=self.now_ms())

    def _update_broker_config(self, image: MetadataImage) -> None:
        """Dynamic settings of the broker changed: what is kept of them, and the defaults of every topic."""
        self._take_dynamic_config(image)
        for name in image.topics_by_name:
            self._update_topic_config(image, name)

    def _take_dynamic_config(self, image: MetadataImage) -> None:
        self.config = self.metadata.broker_config
        self.fetch_max_bytes = self.config.int("fetch.max.bytes")
        self.verifications.update_config(self.config)
        self.log_cleaner.update_settings(CleanerSettings.of(self.config))
        if self._groups is not None:
            from .group_settings import group_config

            self._groups.update_config(group_config(self.config))

    def _update_topic_config(self, image: MetadataImage, name: str) -> None:
        topic = image.topics_by_name.get(name)
        if topic is None:
            return
        overrides = image.config(TOPIC_RESOURCE, name)
        log_config = topic_log_config(overrides, self.config)
        min_insync_replicas = topic_min_insync_replicas(overrides, self.config)
        for index in topic.partitions:
            partition = self.replicas.partition_by_key(topic.topic_id, index)
            if partition is not None:
                partition.update_config(log_config, min_insync_replicas=min_insync_replicas)

    def _remove(self, topic: TopicImage, index: int, code: ErrorCode) -> None:
        """Serve the partition no more; who waits for it is told ``code``."""
        partition = self.replicas.remove(topic.name, topic.topic_id, index)
        was_late = self.late_replicas.discard(topic.topic_id, index)
        if partition is not None:
            partition.close(code)
            self.appends.forget(partition)
        if partition is not None or was_late:
            self.log_cleaner.forget(topic.name, index)
            try:
                self.log_manager.delete(topic.name, index)
            except KafkaError as error:  # its directory has failed; the next start sets it aside
                logger.error("The files of %s-%d could not be deleted: %s", topic.name, index, error.message)
            self.trash.deleted()

    def _directory_failed(self, directory: LogDirectory, error: OSError, logs: list[Log]) -> None:
        """A log directory cannot be used any more: its partitions go offline, the others are served."""
        logger.error("The log directory %s has failed and is offline until the next start: %s", directory.path, error)
        for log in logs:
            partition = self.replicas.partition_by_key(log.topic, log.partition)
            if partition is not None:
                partition.go_offline()
                for coordinators in self._coordinators():
                    if log.topic == coordinators.topic:
                        coordinators.follow(log.partition)

    def storage_failed(self, error: KafkaError) -> None:
        """An append was refused because of the disk: say so in the log, but not for each of thousands of requests."""
        now = self.loop.time()
        if now - self._storage_failure_logged >= _STORAGE_FAILURE_LOG_SECONDS:
            self._storage_failure_logged = now
            logger.error("An append failed and was refused: %s", error)

    async def close_coordinators(self) -> None:
        """Coordinate no more: those who wait for a rebalance or a transaction are answered."""
        for coordinators in reversed(list(self._coordinators())):
            await coordinators.close()

    async def close(self) -> None:
        """Stop what runs beside the requests; the logs and the metadata are closed by their owner."""
        self.late_replicas.close()
        self.slices.close()
        await self.metadata_snapshots.close()
        await self.replica_mover.close()
        await self.log_cleaner.close()
        await self.retention.close()
        await self.trash.close()
        await self.housekeeping.close()
        await self.group_commit.close()
        await self.decoder.close()
        self._codecs.close()


def _coordinator_not_loaded(error: OSError) -> KafkaError:
    logger.warning("A coordinator cannot be loaded; clients retry: %s", error)
    return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error))
