"""A broker: creates the parts that handlers use, and connects them.

All of it belongs to one event loop. The metadata log defines which topics exist. `MetadataPublisher` creates, changes
and removes partitions when the records of the metadata log are committed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from random import Random
from typing import TYPE_CHECKING, Any

from ..metadata.auto_create import missing_topics
from ..metadata.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from ..protocol.errors import ErrorCode, KafkaError
from ..replication.replicas import Replicas
from .concurrency.clock import Clock, wall_clock
from .concurrency.event_loop import turns_of
from .concurrency.file_jobs import FileJobs
from .concurrency.slices import Slices
from .controller_client import ControllerClient, LocalController, Origin
from .coordination.markers import MarkerWriter
from .coordination.producer_ids import ProducerIds
from .coordination.services import Services
from .coordination.verification import Verifications
from .metadata_publisher import MetadataPublisher
from .records.appends import AppendQueues
from .records.decoder import Decoder
from .records.fetch_session import FetchSessionCache
from .records.group_commit import GroupCommit
from .records.search_queue import SearchQueue
from .upkeep.directory_assignments import DirectoryAssignments
from .upkeep.housekeeping import Housekeeping
from .upkeep.log_cleaner import CleanerSettings, LogCleaner
from .upkeep.metadata_snapshots import MetadataSnapshots
from .upkeep.replica_mover import ReplicaMover
from .upkeep.retention import Retention
from .upkeep.trash import Trash

if TYPE_CHECKING:
    from ..config.sources import BrokerConfig
    from ..log.checkpoints import TopicPartition
    from .concurrency.background import Background
    from .concurrency.slices import Sliced
    from .concurrency.timers import TimerWheel
    from .context import RequestContext
    from .coordination.coordinators import Coordinators
    from .coordination.groups import GroupCoordinators
    from .coordination.transactions import TransactionCoordinators
    from .network.read_ahead import ReadAhead
    from .storage.opening import Storage

logger = logging.getLogger(__name__)

_STORAGE_FAILURE_LOG_SECONDS = 10.0

# Maximum number of concurrent jobs in threads: for codecs, which compute, and for the file I/O of periodic work.
CODECS = 2
FILE_JOBS = 8

_CREATE_TOPICS = 7
"""The version of CreateTopics with which a broker requests missing topics from the controller."""

NodeEndpoint = tuple[int, str, int, str | None]  # node id, host, port, rack


class Broker:
    """The parts of a broker that handlers use."""

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
        rng: Random,
    ) -> None:
        self.config = config
        self.now_ms = clock
        """Milliseconds since the epoch."""
        self.loop = loop
        self.timers = timers
        self.read_ahead = read_ahead
        self.turns = turns_of(loop)
        self.slices = Slices(loop.call_soon, clock=self.turns.clock)
        self.log_manager = storage.log_manager
        self.metadata = storage.metadata
        self.node_id = self.metadata.node_id
        self.cluster_id = self.metadata.cluster_id
        self.replicas = Replicas()
        self.fetch_sessions = FetchSessionCache(config.int("max.incremental.fetch.session.cache.slots"), rng)
        self.fetch_max_bytes = config.int("fetch.max.bytes")
        self.auto_create_topics = config.bool("auto.create.topics.enable")
        self._advertised = advertised
        self._rack = config.optional_str("broker.rack")
        self.background = background
        self.file_jobs = FileJobs(background.executor(FILE_JOBS))
        self._codecs = background.executor(CODECS)
        self.decoder = Decoder(loop, self._codecs)
        self.appends = AppendQueues(self.decoder, self.slices, self.now_ms)
        self.searches = SearchQueue(self.decoder)
        self._soon: deque[Callable[[], None]] = deque()
        self.group_commit = GroupCommit(loop, background, self.now_ms, self.run_soon)
        self.controller: ControllerClient = LocalController(
            self.metadata, self.slices, self.group_commit, clock, timers
        )
        self.producer_ids = ProducerIds(
            self.slices,
            lambda request: self.controller.request(request, 0, None),
            self.node_id,
            lambda: self.metadata.broker_epoch,
        )
        self._storage_failure_logged = float("-inf")
        self._groups: GroupCoordinators | None = None
        self._transactions: TransactionCoordinators | None = None
        self._coordinator_services = Services(
            loop=loop,
            timers=timers,
            now_ms=clock,
            rng=rng,
            file_jobs=self.file_jobs,
            node_id=self.node_id,
            replicas=self.replicas,
            image=lambda: self.metadata.image,
            run_soon=self.run_soon,
            create_topic=self._create_topic,
        )
        self.markers = MarkerWriter(self.replicas, clock, lambda: self.groups)
        self.verifications = Verifications(loop, timers, self.slices, clock, lambda: self.transactions)
        self.housekeeping = Housekeeping(
            loop,
            self.file_jobs,
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
            self.file_jobs,
            timers,
            self.log_manager,
            self.now_ms,
            directory_delay_ms=lambda: self.config.int("log.segment.delete.delay.ms"),
        )
        self.retention = Retention(
            loop,
            self.file_jobs,
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
            self.file_jobs,
            self.log_manager,
            self.now_ms,
            CleanerSettings.of(config),
            last_stable_offset=self._last_stable_offset,
            flush=self.group_commit.flush,
            write_checkpoints=self.housekeeping.write_checkpoints,
            swapped=self.trash.deleted,
        )
        assignments = DirectoryAssignments(self.metadata, self.controller, self.log_manager, self.slices)
        threads = config.get("num.replica.alter.log.dirs.threads")
        self.replica_mover = ReplicaMover(
            loop,
            background,
            self.log_manager,
            self.replicas,
            group_commit=self.group_commit,
            housekeeping=self.housekeeping,
            log_cleaner=self.log_cleaner,
            trash=self.trash,
            assignments=assignments,
            threads=threads if isinstance(threads, int) and threads > 0 else len(self.log_manager.directories),
            bytes_per_second=lambda: self.config.int("replica.alter.log.dirs.io.max.bytes.per.second"),
        )
        self.publisher = MetadataPublisher(
            self.metadata,
            self.replicas,
            self.log_manager,
            timers,
            clock,
            appends=self.appends,
            group_commit=self.group_commit,
            log_cleaner=self.log_cleaner,
            trash=self.trash,
            assignments=assignments,
            coordinators=self._coordinators,
            update_config=self._update_config,
        )
        self.metadata_snapshots = MetadataSnapshots(
            loop,
            self.file_jobs,
            timers,
            self.metadata,
            self.log_manager,
            self.now_ms,
            self.trash,
            self.group_commit.flush,
            self.slices,
        )

    @property
    def groups(self) -> GroupCoordinators:
        """The group coordinator. It is created when the first group is used: many servers never have one.

        Raises:
            KafkaError: it could not be created, for example because no file descriptor is free.
        """
        if self._groups is None:
            try:
                from .coordination.group_settings import group_config
                from .coordination.groups import GroupCoordinators
            except OSError as error:
                raise _coordinator_not_loaded(error) from error

            self._groups = GroupCoordinators(
                self._coordinator_services,
                group_config(self.config),
                codec=self.config.int("offsets.topic.compression.codec"),
                load_bytes=self.config.int("offsets.load.buffer.size"),
            )
            self._groups.load()
        return self._groups

    @property
    def transactions(self) -> TransactionCoordinators:
        """The transaction coordinator. It is created when the first transactional id is used.

        Raises:
            KafkaError: as for `groups`.
        """
        if self._transactions is None:
            try:
                from .coordination.transaction_settings import transaction_config
                from .coordination.transactions import TransactionCoordinators
            except OSError as error:
                raise _coordinator_not_loaded(error) from error

            self._transactions = TransactionCoordinators(
                self._coordinator_services,
                transaction_config(self.config),
                self.markers,
                self.producer_ids.next,
                load_bytes=self.config.int("transaction.state.log.load.buffer.size"),
            )
            self._transactions.load()
        return self._transactions

    def _coordinators(self) -> Iterator[Coordinators[Any]]:
        """The coordinators that exist. Groups come first: transaction markers are written to their partitions."""
        if self._groups is not None:
            yield self._groups
        if self._transactions is not None:
            yield self._transactions

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """The high watermark of each partition that is served, for the checkpoint."""
        return {(partition.topic, partition.index): partition.high_watermark for partition in self.replicas}

    def _last_stable_offset(self, topic: str, index: int) -> int | None:
        partition = self.replicas.partition_by_key(topic, index)
        return None if partition is None else partition.last_stable_offset

    def run_soon(self, callback: Callable[[], None]) -> None:
        """Run the callback at the end of this iteration of the event loop. Many callbacks cost one call of the loop."""
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
                logger.exception("Completing a waiting request failed with an unexpected error")

    def node_endpoints(self, context: RequestContext) -> list[NodeEndpoint]:
        """The active brokers that have this listener, with the addresses that clients of the listener connect to.

        Without ``advertised.listeners``, the address of this broker is the address that the client connected to. This
        works for the client, whatever name it uses.
        """
        host, port = self._advertised.get(context.listener_name) or context.local_address
        endpoints: list[NodeEndpoint] = [(self.node_id, host, port, self._rack)]
        brokers = self.metadata.image.brokers
        if len(brokers) > 1:
            for broker in brokers.values():
                listener = broker.listeners.get(context.listener_name)
                if broker.id != self.node_id and broker.is_active and listener is not None:
                    endpoints.append((broker.id, listener.host, listener.port, broker.rack))
            endpoints.sort()
        return endpoints

    @property
    def controller_id(self) -> int:
        """The broker to which clients send requests for the controller, or -1 if there is none. As in Apache Kafka's
        KRaft mode, this is any active broker, which forwards them. This broker is preferred if it is active."""
        brokers = self.metadata.image.brokers
        own = brokers.get(self.node_id)
        if own is not None and own.is_active:
            return self.node_id
        return min((broker.id for broker in brokers.values() if broker.is_active), default=-1)

    def missing_topics(self, names: list[str], origin: Origin | None, *, create: bool) -> Sliced[dict[str, ErrorCode]]:
        """Create the topics of these names that do not exist. With ``create`` false, return only the errors.

        ``origin``: see `ControllerClient.request`. Returns the error of each name for which no topic exists afterwards.
        Coordinators' topics get their configs.
        """
        missing, errors = missing_topics(self.metadata.image, names)
        if missing and not create:
            errors |= dict.fromkeys(missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif missing:
            from ..metadata.create_topics import auto_create_request

            request = auto_create_request(missing, self.config)
            response = yield from self.controller.request(request, _CREATE_TOPICS, origin)
            failed = {topic.name: ErrorCode(topic.error_code) for topic in response.topics if topic.error_code}
            # If several requests need the same missing topic, one of them creates it.
            errors |= {name: code for name, code in failed.items() if code is not ErrorCode.TOPIC_ALREADY_EXISTS}
        return errors

    def _create_topic(self, name: str) -> Sliced[ErrorCode | None]:
        errors = yield from self.missing_topics([name], None, create=True)
        return errors.get(name)

    def load(self) -> None:
        """Serve every partition of the metadata. Called at startup."""
        self.publisher.load()
        # Runs after the controller has been informed where the replicas are now.
        self.run_soon(lambda: self.slices.begin_shielded(self.replica_mover.resume(), immediately=True))
        topics = self.metadata.image.topics_by_name
        if CONSUMER_OFFSETS in topics:
            self.groups  # noqa: B018 - loads them
        if TRANSACTION_STATE in topics:
            self.transactions  # noqa: B018 - loads them

    def _update_config(self, config: BrokerConfig) -> None:
        """Apply the broker's dynamic settings."""
        self.config = config
        self.fetch_max_bytes = config.int("fetch.max.bytes")
        self.verifications.update_config(config)
        self.log_cleaner.update_settings(CleanerSettings.of(config))
        if self._groups is not None:
            from .coordination.group_settings import group_config

            self._groups.update_config(group_config(config))

    def storage_failed(self, error: KafkaError) -> None:
        """An append failed because of the disk: log this, but not for each of thousands of requests."""
        now = self.loop.time()
        if now - self._storage_failure_logged >= _STORAGE_FAILURE_LOG_SECONDS:
            self._storage_failure_logged = now
            logger.error("An append failed; the request was rejected: %s", error)

    async def close_coordinators(self) -> None:
        """Close the coordinators: requests that wait for a rebalance or a transaction are completed."""
        for coordinators in reversed(list(self._coordinators())):
            await coordinators.close()

    async def close(self) -> None:
        """Stop the background work. The owner of the logs and of the metadata closes those."""
        self.publisher.late_replicas.close()
        await self.replica_mover.close()  # it may still have to ask the controller, which needs slices
        if self.metadata.is_changing:
            # The last try of a postponed flush. The changes must be applied here: afterwards, they would become durable
            # without it, and the next startup would find the directories of deleted topics.
            await self.group_commit.flush(self.metadata.log)
        await self.group_commit.wait_idle()  # effects of its last flush run in slices
        self.slices.close()
        await self.metadata_snapshots.close()
        await self.log_cleaner.close()
        await self.retention.close()
        await self.trash.close()
        await self.housekeeping.close()
        await self.group_commit.close()
        await self.decoder.close()
        self._codecs.close()


def _coordinator_not_loaded(error: OSError) -> KafkaError:
    logger.warning("Cannot load a coordinator; clients retry: %s", error)
    return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error))
