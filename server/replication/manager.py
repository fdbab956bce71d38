"""The replication of a broker: fetchers for the partitions that it follows, and in-sync sets of those that it leads.

Created when the broker gets the first partition with several replicas. Single brokers do not import it.

`Replication.changed` is called for each change of a partition with other replicas. Each leader has
`num.replica.fetchers` fetchers, and its partitions are distributed over them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from ...replication.following import Following
from ...replication.read_replica import RACK_AWARE, THIS_BROKER, preferred_read_replica
from ..records.follower_changes import FollowerChanges
from .fetcher import Fetcher, FetcherSettings, Local
from .in_sync_changes import InSyncChanges

if TYPE_CHECKING:
    from ...config.sources import BrokerConfig
    from ...metadata.image import MetadataImage
    from ...replication.partition import Partition
    from ...replication.replicas import Replicas
    from ..controller_client import ControllerClient
    from ..coordination.broker_links import BrokerLinks
    from ..records.fetch_session import FetchContext

logger = logging.getLogger(__name__)

_PURPOSE: Final = "fetcher"

Key = tuple[bytes, int]


class Replication:
    """See the module docstring."""

    def __init__(
        self,
        local: Local,
        links: BrokerLinks,
        controller: ControllerClient,
        image: Callable[[], MetadataImage],
        config: BrokerConfig,
    ) -> None:
        self._local = local
        self.throttling = local.throttling
        self._links = links
        self._image = image
        self._settings = FetcherSettings.of(config)
        self._fetchers_per_leader = config.int("num.replica.fetchers")
        self._selects_by_rack = config.optional_str("replica.selector.class") == RACK_AWARE
        self._fetchers: dict[tuple[int, int], Fetcher] = {}  # by leader and number
        self._followed: dict[Key, Fetcher] = {}
        self._led: dict[Key, Partition] = {}
        self._closed = False
        self.in_sync_changes = InSyncChanges(
            local.node_id,
            local.broker_epoch,
            controller,
            local.slices,
            local.timers,
            self._led.values,
            max_lag_ms=config.int("replica.lag.time.max.ms"),
        )

    # -- partitions follow the metadata --------------------------------------------------------------------------------

    def changed(self, partition: Partition) -> None:
        """The partition has other replicas, or had, and its state was updated: follow its leader, or lead."""
        key = (partition.topic_id, partition.index)
        if partition.in_sync is not None:
            self._led[key] = partition
            self.in_sync_changes.start()
            partition.review_deletions(self.is_live)
        else:
            self._led.pop(key, None)
        if partition.leader_id in (-1, self._local.node_id) or partition.offline or self._closed:
            self._unfollow(key)
            return
        fetcher = self._fetcher_for(partition)
        current = self._followed.get(key)
        if current is fetcher and fetcher.follows(partition):
            return
        self._unfollow(key)
        self._followed[key] = fetcher
        fetcher.follow(Following(partition))

    def forget(self, partition: Partition) -> None:
        """The partition is no longer served here."""
        key = (partition.topic_id, partition.index)
        self._led.pop(key, None)
        self._unfollow(key)

    def brokers_changed(self, broker_ids: Iterable[int]) -> None:
        """The registrations of these brokers have changed: fenced ones do not join in-sync sets, and the address of a
        leader may be another one."""
        image = self._image()
        inactive = [each for each in broker_ids if each not in image.brokers or not image.brokers[each].is_active]
        if inactive:
            for partition in list(self._led.values()):
                in_sync = partition.in_sync
                if in_sync is not None and in_sync.candidates:
                    for broker_id in inactive:
                        in_sync.exclude(broker_id)
                    partition.advance_high_watermark()
                partition.review_deletions(self.is_live)
        changed = set(broker_ids)
        for (leader_id, _), fetcher in self._fetchers.items():
            if leader_id in changed:
                fetcher.wake()

    def _unfollow(self, key: Key) -> None:
        fetcher = self._followed.pop(key, None)
        if fetcher is not None:
            fetcher.forget(key)

    def _fetcher_for(self, partition: Partition) -> Fetcher:
        number = (31 * _hash_of(partition.topic) + partition.index) % self._fetchers_per_leader
        leader_id = partition.leader_id
        fetcher = self._fetchers.get((leader_id, number))
        if fetcher is None:
            purpose = f"{_PURPOSE}-{number}"
            fetcher = self._fetchers[leader_id, number] = Fetcher(
                leader_id, lambda: self._links.link(leader_id, purpose), self._local, self._settings
            )
        return fetcher

    # -- followers of this broker --------------------------------------------------------------------------------------

    def look_at_changes(self, fetch: FetchContext, replicas: Replicas) -> None:
        """This is an incremental request of a follower: serve only the partitions that have changed for it."""
        session = fetch.session
        if session is not None and fetch.changes is None:
            changes = FollowerChanges(
                fetch.limits.replica_id, replicas, session.partitions.copy(), self.throttling.withholds
            )
            session.changes = changes
            fetch.look_at(changes)

    def may_join(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether the controller would permit the broker with this epoch to be in an in-sync set."""
        broker = self._image().brokers.get(broker_id)
        return broker is not None and broker.is_active and broker_epoch in (-1, broker.epoch)

    def is_live(self, broker_id: int) -> bool:
        """Whether the broker is registered and not fenced."""
        broker = self._image().brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def is_stale(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether this is the epoch of an earlier life of the broker (KIP-903)."""
        broker = self._image().brokers.get(broker_id)
        return broker is not None and 0 <= broker_epoch < broker.epoch

    def preferred_read_replica(self, partition: Partition, offset: int, rack: str) -> int:
        """The broker from which a consumer in this rack should read a partition that is led here: see `read_replica`;
        `THIS_BROKER` if it should read here."""
        in_sync = partition.in_sync
        if in_sync is None or not self._selects_by_rack or self._rack_of(self._local.node_id) == rack:
            return THIS_BROKER
        return preferred_read_replica(in_sync.in_sync_followers, offset, rack, self._rack_of)

    def _rack_of(self, broker_id: int) -> str | None:
        broker = self._image().brokers.get(broker_id)
        return None if broker is None or broker.fenced else broker.rack

    def close(self) -> None:
        """Stop all fetchers."""
        self._closed = True
        self.in_sync_changes.close()
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._followed.clear()
        self._led.clear()


def _hash_of(topic: str) -> int:
    """A hash that is the same in every process."""
    value = 0
    for byte in topic.encode():
        value = (31 * value + byte) & 0x7FFF_FFFF
    return value
