"""The node's settings for the metadata log. All are static: Apache Kafka also reads them at startup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..log.config import LogConfig
from ..protocol.named_tuples import NamedTuple
from .batches import MAX_BATCH_BYTES

if TYPE_CHECKING:
    from ..config.sources import BrokerConfig


class MetadataLogSettings(NamedTuple):
    """When the log is rolled, when a snapshot is written, and how much of both is kept. Negative means no limit."""

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * 24 * 3_600_000
    snapshot_bytes: int = 20 * 1024 * 1024
    """A snapshot is due when the log has grown by this size."""
    snapshot_interval_ms: int = 3_600_000
    """A snapshot is due after this time if there were changes; 0 means never."""
    retention_bytes: int = 100 * 1024 * 1024
    """Limit for the total size of the log and its snapshots."""
    retention_ms: int = 7 * 24 * 3_600_000
    delete_delay_ms: int = 60_000
    """Delay between the renaming and the unlinking of a file that is no longer needed."""

    @classmethod
    def of(cls, config: BrokerConfig) -> MetadataLogSettings:
        return cls(
            segment_bytes=config.optional_int("internal.metadata.log.segment.bytes")
            or config.int("metadata.log.segment.bytes"),
            segment_ms=config.int("metadata.log.segment.ms"),
            snapshot_bytes=config.int("metadata.log.max.record.bytes.between.snapshots"),
            snapshot_interval_ms=config.int("metadata.log.max.snapshot.interval.ms"),
            retention_bytes=config.int("metadata.max.retention.bytes"),
            retention_ms=config.int("metadata.max.retention.ms"),
            delete_delay_ms=config.int("internal.metadata.delete.delay.millis"),
        )

    @property
    def log_config(self) -> LogConfig:
        """The settings of the log itself. Old segments are deleted with snapshots, never by age or size alone."""
        return LogConfig(
            segment_bytes=self.segment_bytes,
            segment_ms=self.segment_ms,
            max_message_bytes=MAX_BATCH_BYTES,
            retention_ms=-1,
            retention_bytes=-1,
        )
