"""A broker: creates the parts that handlers use, and connects them.

All of it belongs to one event loop. The metadata log defines which topics exist. `MetadataPublisher` creates, changes
and removes partitions when the records of the metadata log are committed.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from ..metadata.auto_create import create_missing_topics
from ..metadata.quorum import Metadata
from ..replication.replicas import Replicas
from .concurrency.clock import Clock, wall_clock
from .concurrency.event_loop import EndOfIteration, readiness_of, turns_of
from .concurrency.file_jobs import FileJobs
from .concurrency.slices import Slices
from .controller_client import ControllerClient, LocalController, Origin
from .coordination.on_demand import CoordinatorsOnDemand, Services
from .coordination.producer_ids import ProducerIds
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
    from collections.abc import Callable

    from ..config.sources import BrokerConfig
    from ..metadata.broker_metadata import BrokerMetadata
    from ..protocol.errors import ErrorCode
    from ..replication.replicas import TopicKey
    from .authorizer import Authorizer
    from .concurrency.background import Background
    from .concurrency.slices import Sliced
    from .concurrency.timers import TimerWheel
    from .context import DynamicListeners, MutationQuotas, RequestTimes
    from .coordination.groups import GroupCoordinators
    from .coordination.peers import Peers
    from .coordination.transactions import TransactionCoordinators
    from .network.link_security import LinkSecurity
    from .network.links import Links
    from .network.peer_log import Pace
    from .network.read_ahead import ReadAhead
    from .replication.manager import Replication
    from .storage.opening import Storage
    from .telemetry.clients import ClientTelemetry

logger = logging.getLogger(__name__)

# Maximum number of concurrent jobs in threads: for codecs, which compute, and for the file I/O of periodic work.
CODECS = 2
FILE_JOBS = 8


class Broker:
    """The parts of a broker that handlers use."""

    has_own_configs = True
    """Whether only the configs of this broker, and of all brokers together, can be changed here."""

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
        slices: Slices | None = None,
        remote: Callable[[BrokerMetadata], ControllerClient] | None = None,
        links: Links | None = None,
        to_brokers: LinkSecurity | None = None,
        pace: Pace | None = None,
    ) -> None:
        """``remote`` creates the client of remote controllers; without it, the controller is in this process.
        ``slices`` and ``links``: those that such a client uses, for the other parts of the broker, too.
        ``to_brokers``: the security of the links to other brokers; None: it is PLAINTEXT.
        ``pace``: that of the log lines about peers."""
        self.config = config
        self.has_remote_controller = remote is not None
        """Whether requests that change the metadata are forwarded, and authorized there."""
        self._to_brokers = to_brokers
        self.now_ms = clock
        """Milliseconds since the epoch."""
        self.loop = loop
        self.timers = timers
        self.read_ahead = read_ahead
        self.turns = turns_of(loop)
        self.slices = slices if slices is not None else Slices(loop.call_soon, clock=self.turns.clock)
        self.log_manager = storage.log_manager
        self.metadata = storage.metadata
        self.node_id = self.metadata.node_id
        self.cluster_id = self.metadata.cluster_id
        self.replicas = Replicas(self._has_partition)
        self.fetch_sessions = FetchSessionCache(config.int("max.incremental.fetch.session.cache.slots"), rng)
        self.fetch_max_bytes = config.int("fetch.max.bytes")
        self.auto_create_topics = config.bool("auto.create.topics.enable")
        self.advertised = advertised
        """Host and port by listener name, of the listeners that have ``advertised.listeners``."""
        self.rack = config.optional_str("broker.rack")
        self.background = background
        self.file_jobs = FileJobs(background.executor(FILE_JOBS))
        self._codecs = background.executor(CODECS)
        self.decoder = Decoder(loop, self._codecs)
        self.appends = AppendQueues(self.decoder, self.slices, self.now_ms)
        self.searches = SearchQueue(self.decoder)
        self.run_soon = EndOfIteration(loop.call_soon)
        self.group_commit = GroupCommit(loop, background, self.now_ms, self.run_soon)
        self.controller = self._local_controller() if remote is None else remote(self.metadata)
        self.producer_ids = ProducerIds(
            self.slices,
            lambda request: self.controller.request(request, 0, None),
            self.node_id,
            lambda: self.metadata.broker_epoch,
        )
        self.authorizer = self._new_authorizer(config, pace)
        services = Services(
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
            peers=lambda: self.peers,
            may_describe=None if self.authorizer is None else self.authorizer.may_describe,
        )
        self.mutation_quotas: MutationQuotas | None = None
        """The quotas of clients, if there are any."""
        self.follower_fetches: dict[int, int] = {}
        """The number of fetches of followers, by version of the request."""
        self.produce_times: RequestTimes | None = None
        """The durations of produce requests, if they are measured."""
        self.telemetry: ClientTelemetry | None = None
        """The metrics that clients push, if they are served."""
        self.on_config_changed: Callable[[BrokerConfig], None] = lambda config: None
        """Called after a change of the dynamic settings."""
        self.on_directories_cordoned: Callable[[], None] = lambda: None
        """Called when other log directories are cordoned than before."""
        self.listener_reload: DynamicListeners | None = None
        """Checks and applies dynamic settings of listeners with TLS or SASL, if there are any."""
        self._links = links
        self._peers: Peers | None = None
        self._replication: Replication | None = None
        self._rng = rng
        self.coordinators = CoordinatorsOnDemand(services, config, self.producer_ids.next)
        self.markers = self.coordinators.markers
        self.verifications = Verifications(
            loop, timers, self.slices, clock, lambda: self.transactions, lambda: self.peers.verification
        )
        self.housekeeping = Housekeeping(
            loop,
            self.file_jobs,
            timers,
            self.log_manager,
            self.now_ms,
            self.group_commit.flush,
            high_watermarks=self.replicas.high_watermarks,
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
            last_stable_offset=self.replicas.last_stable_offset,
            flush=self.group_commit.flush,
            write_checkpoints=self.housekeeping.write_checkpoints,
            swapped=self.trash.deleted,
        )
        assignments = DirectoryAssignments(self.metadata, self.controller, self.log_manager, self.slices, timers)
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
            coordinators=self.coordinators,
            update_config=self._update_config,
            create_replication=lambda: self.replication,
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

    def _local_controller(self) -> ControllerClient:
        assert isinstance(self.metadata, Metadata), "this node has no controller"
        return LocalController(self.metadata, self.slices, self.group_commit, self.now_ms, self.timers)

    @property
    def groups(self) -> GroupCoordinators:
        """See `CoordinatorsOnDemand.groups`."""
        return self.coordinators.groups

    @property
    def transactions(self) -> TransactionCoordinators:
        """See `CoordinatorsOnDemand.transactions`."""
        return self.coordinators.transactions

    @property
    def peers(self) -> Peers:
        """The other brokers of the cluster. Created on first use: a single broker has none."""
        if self._peers is None:
            from .coordination.peers import Peers
            from .network.link_security import PLAINTEXT

            self._peers = Peers(
                self.links,
                self.run_soon,
                self.node_id,
                lambda: self.metadata.image,
                self.config,
                PLAINTEXT if self._to_brokers is None else self._to_brokers,
            )
        return self._peers

    @property
    def replication(self) -> Replication:
        """Followers and leaders of partitions with several replicas. Created on first use."""
        if self._replication is None:
            from .replication.fetcher import Local
            from .replication.manager import Replication
            from .replication.throttling import Throttling
            from .replication.truncation import Truncations

            metadata = self.metadata
            throttling = Throttling(self.node_id, lambda: metadata.image, self.timers.now_ms)
            throttling.update_config(self.config)
            self._replication = Replication(
                Local(
                    node_id=self.node_id,
                    broker_epoch=lambda: metadata.broker_epoch,
                    metadata_version=lambda: metadata.image.metadata_version,
                    slices=self.slices,
                    timers=self.timers,
                    now_ms=self.now_ms,
                    run_soon=self.run_soon,
                    throttling=throttling,
                    truncations=Truncations(
                        self.slices,
                        self.timers,
                        self.now_ms,
                        self.log_manager,
                        self.background.executor(FILE_JOBS),
                        self.group_commit.flush,
                    ),
                ),
                self.peers.brokers,
                self.controller,
                lambda: metadata.image,
                self.config,
            )
            self.housekeeping.checkpoint_high_watermarks(
                self.config.int("replica.high.watermark.checkpoint.interval.ms")
            )
        return self._replication

    @property
    def links(self) -> Links:
        """The connections to other nodes. Created on first use."""
        if self._links is None:
            from .network.links import Links

            self._links = Links.over_tcp(
                self.loop,
                readiness_of(self.loop),
                self.turns,
                self.timers,
                self.background,
                self.run_soon,
                self._rng,
            )
        return self._links

    def create_missing_topics(self, names: list[str], origin: Origin | None) -> Sliced[dict[str, ErrorCode]]:
        """Create the topics of these names that do not exist. Coordinators' topics get their configs.

        ``origin``: see `ControllerClient.request`. Returns the error of each name for which no topic exists afterwards.
        """
        request = partial(self.controller.request, origin=origin)
        return create_missing_topics(lambda: self.metadata.image, names, self.config, request)

    def _has_partition(self, topic: TopicKey, index: int) -> bool:
        image = self.metadata.image
        found = image.topics_by_name.get(topic) if isinstance(topic, str) else image.topics_by_id.get(topic)
        return found is not None and index in found.partitions

    def _create_topic(self, name: str) -> Sliced[ErrorCode | None]:
        errors = yield from self.create_missing_topics([name], None)
        return errors.get(name)

    def _new_authorizer(self, config: BrokerConfig, pace: Pace | None) -> Authorizer | None:
        """Created before the publisher: a change of the ACLs is in effect first."""
        if not config.str("authorizer.class.name"):
            return None
        from .authorizer import new_authorizer  # a broker without ACLs does not need it

        return new_authorizer(config, self.metadata, self.timers, self.loop.time, pace)

    def load(self) -> None:
        """Serve every partition of the metadata. Called at startup."""
        self.publisher.load()
        # Runs after the controller has been informed where the replicas are now.
        self.run_soon(lambda: self.slices.begin_shielded(self.replica_mover.resume(), immediately=True))
        self.coordinators.load()

    def _update_config(self, config: BrokerConfig) -> None:
        """Apply the broker's dynamic settings."""
        self.config = config
        self.fetch_max_bytes = config.int("fetch.max.bytes")
        self.verifications.update_config(config)
        self.log_cleaner.update_settings(CleanerSettings.of(config))
        self.coordinators.update_config(config)
        if self._replication is not None:
            self._replication.throttling.update_config(config)
        if self.log_manager.cordon(config.cordoned_log_dirs):
            self.on_directories_cordoned()
        self.on_config_changed(config)

    async def close(self) -> None:
        """Stop the background work. The owner of the logs and of the metadata closes those."""
        if self._replication is not None:
            self._replication.close()
        if self._peers is not None:
            self._peers.close()
        self.publisher.late_replicas.close()
        await self.replica_mover.close()  # it may still report a directory to the controller, in slices
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
