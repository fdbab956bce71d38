"""The two throttles of this broker, with their settings: see `moldau.replication.throttles`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ...replication.throttles import Throttle, is_throttled

if TYPE_CHECKING:
    from ...config.broker_config import BrokerConfig
    from ...metadata.image import MetadataImage
    from ...replication.partition import Partition

_LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
_FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"

_EMPTY_RESPONSE_BYTES: Final = 16
"""The size of a fetch response without partitions, with its length. As in Apache Kafka, each response to a follower
counts. So a leader with a rate of 0 sends a throttled replica nothing more while followers fetch, whereas the rate of a
follower with 0 is measured by what it has received, and lets one response through every eleven seconds."""


class Throttling:
    """See the module docstring."""

    def __init__(self, node_id: int, image: Callable[[], MetadataImage], now_ms: Callable[[], int]) -> None:
        """``now_ms``: a monotonic clock."""
        self._node_id = node_id
        self._image = image
        self._now_ms = now_ms
        self._sending = Throttle()
        self._fetching = Throttle()

    def update_config(self, config: BrokerConfig) -> None:
        """Apply the rates, which can change at any time."""
        self._sending.bytes_per_second = config.int("leader.replication.throttled.rate")
        self._fetching.bytes_per_second = config.int("follower.replication.throttled.rate")

    # As leader

    def withholds(self, partition: Partition, replica_id: int) -> bool:
        """Whether a follower gets no records of this partition now."""
        sending = self._sending
        return (
            sending.is_limited
            and replica_id not in partition.isr
            and self._is_throttled(partition, _LEADER_REPLICAS)
            and sending.is_exceeded(self._now_ms())
        )

    def counts(self, partition: Partition) -> bool:
        """Whether the bytes that are sent to followers of this partition count."""
        return self._sending.is_limited and self._is_throttled(partition, _LEADER_REPLICAS)

    def responded(self, size: int) -> None:
        """A follower gets a response with this many bytes of records that count."""
        if self._sending.is_limited:
            self._sending.record(size + _EMPTY_RESPONSE_BYTES, self._now_ms())

    # As follower

    @property
    def limits_fetches(self) -> bool:
        """Whether `delays` depends on more than the partition."""
        return self._fetching.is_limited

    def delays(self, partition: Partition, *, is_caught_up: bool) -> bool:
        """Whether this partition is not to be fetched now."""
        fetching = self._fetching
        return (
            fetching.is_limited
            and not is_caught_up
            and self._is_throttled(partition, _FOLLOWER_REPLICAS)
            and fetching.is_exceeded(self._now_ms())
        )

    def received(self, partition: Partition, size: int) -> None:
        """This many bytes of the partition were fetched."""
        if self._fetching.is_limited and self._is_throttled(partition, _FOLLOWER_REPLICAS):
            self._fetching.record(size, self._now_ms())

    def _is_throttled(self, partition: Partition, setting: str) -> bool:
        replicas = self._image().topic_configs(partition.topic).get(setting)
        return is_throttled(replicas, partition.index, self._node_id)
