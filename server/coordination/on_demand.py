"""The coordinators of a broker, each of which is created when it is first used: many servers never need one.

Their modules take tens of milliseconds to import, so this module imports them on first use, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ...metadata.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.named_tuples import NamedTuple
from .markers import MarkerWriter

if TYPE_CHECKING:
    from random import Random

    from ...config.sources import BrokerConfig
    from ...coordinator.outcome import Caller
    from ...group_coordinator.states import GroupStates
    from ...metadata.image import MetadataImage
    from ...replication.replicas import Replicas
    from ...transaction_coordinator.states import TransactionStates
    from ..concurrency.clock import Clock
    from ..concurrency.file_jobs import FileJobs
    from ..concurrency.slices import Sliced
    from ..concurrency.timers import TimerWheel
    from .coordinators import Coordinators
    from .groups import GroupCoordinators
    from .peers import Peers
    from .transactions import TransactionCoordinators

logger = logging.getLogger(__name__)


class Services(NamedTuple):
    """What a broker provides to each of its coordinators: event loop, clocks, threads, metadata and partitions."""

    loop: asyncio.AbstractEventLoop
    timers: TimerWheel
    now_ms: Clock
    rng: Random
    file_jobs: FileJobs
    node_id: int
    replicas: Replicas
    image: Callable[[], MetadataImage]
    """The current metadata."""
    run_soon: Callable[[Callable[[], None]], None]
    """Run the callback at the end of this iteration of the event loop."""
    create_topic: Callable[[str], Sliced[ErrorCode | None]]
    """Create a coordinator's topic if it does not exist. Returns the error if it still does not exist."""
    peers: Callable[[], Peers]
    """The other brokers. Created on first use."""
    may_describe: Callable[[Caller, str], bool] | None = None
    """Whether a client may describe a topic. None: there is no authorizer."""


class CoordinatorsOnDemand:
    """The group coordinator and the transaction coordinator."""

    def __init__(self, services: Services, config: BrokerConfig, new_producer_id: Callable[[], int]) -> None:
        self._services = services
        self._config = config
        self._new_producer_id = new_producer_id
        self._groups: GroupCoordinators | None = None
        self._transactions: TransactionCoordinators | None = None
        self.markers = MarkerWriter(services.replicas, services.now_ms, lambda: self.groups)
        """Writes the markers of the transaction coordinator, and those that other brokers send."""

    @property
    def groups(self) -> GroupCoordinators:
        """The group coordinator. It is created on first use.

        Raises:
            KafkaError: it could not be created, for example because no file descriptor is free.
        """
        if self._groups is None:
            try:
                from .group_settings import group_config
                from .groups import GroupCoordinators
            except OSError as error:
                raise _not_loaded(error) from error

            config = self._config
            self._groups = GroupCoordinators(
                self._services,
                group_config(config),
                codec=config.int("offsets.topic.compression.codec"),
                load_bytes=config.int("offsets.load.buffer.size"),
            )
            self._groups.load()
        return self._groups

    @property
    def transactions(self) -> TransactionCoordinators:
        """The transaction coordinator. It is created on first use.

        Raises:
            KafkaError: as for `groups`.
        """
        if self._transactions is None:
            try:
                from .transaction_settings import transaction_config
                from .transactions import TransactionCoordinators
            except OSError as error:
                raise _not_loaded(error) from error

            config = self._config
            self._transactions = TransactionCoordinators(
                self._services,
                transaction_config(config),
                self.markers,
                self._new_producer_id,
                load_bytes=config.int("transaction.state.log.load.buffer.size"),
            )
            self._transactions.load()
        return self._transactions

    def group_states(self) -> list[GroupStates]:
        """The groups of this coordinator, by shard, for metrics. Another thread may call this."""
        return [] if self._groups is None else [shard.states for shard in self._groups.shards()]

    def transaction_states(self) -> list[TransactionStates]:
        """The transactions of this coordinator, by shard, for metrics. Another thread may call this."""
        return [] if self._transactions is None else [shard.states for shard in self._transactions.shards()]

    def transaction_load_times(self) -> list[float]:
        """See `Coordinators.load_times`. Another thread may call this."""
        return [] if self._transactions is None else list(self._transactions.load_times)

    def __iter__(self) -> Iterator[Coordinators[Any]]:
        """The coordinators that exist. Groups come first: transaction markers are written to their partitions."""
        if self._groups is not None:
            yield self._groups
        if self._transactions is not None:
            yield self._transactions

    def load(self) -> None:
        """Create the coordinators whose topics exist. Called at startup."""
        topics = self._services.image().topics_by_name
        if CONSUMER_OFFSETS in topics:
            self.groups  # noqa: B018 - loads them
        if TRANSACTION_STATE in topics:
            self.transactions  # noqa: B018 - loads them

    def update_config(self, config: BrokerConfig) -> None:
        """Apply the broker's dynamic settings."""
        self._config = config
        if self._groups is not None:
            from .group_settings import group_config

            self._groups.update_config(group_config(config))

    async def close(self) -> None:
        """Close the coordinators: requests that wait for a rebalance or a transaction are completed."""
        for coordinators in reversed(list(self)):
            await coordinators.close()


def _not_loaded(error: OSError) -> KafkaError:
    logger.warning("Cannot load a coordinator; clients retry: %s", error)
    return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error))
