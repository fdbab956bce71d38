"""The part of a topic's configuration that a partition's log uses.

The names are Kafka's topic configs with dots replaced by underscores. The table of settings is in `config/`; the
creator of a log converts a resolved configuration with `LogConfig.from_topic_config`. Values below Kafka's public
minimum (`segment_bytes` under 1 MiB) are allowed here, so that tests can create small segments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..protocol.named_tuples import NamedTuple

_MAX_INT64 = 0x7FFF_FFFF_FFFF_FFFF
_DAY_MS = 24 * 60 * 60 * 1000


class LogConfig(NamedTuple):
    """Defaults are Apache Kafka 4.3's. Sizes in bytes, times in ms; -1 in `retention_*` means no limit."""

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * _DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * 1024 * 1024
    index_interval_bytes: int = 4096
    max_message_bytes: int = 1024 * 1024 + 12
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = _MAX_INT64
    message_timestamp_after_max_ms: int = 60 * 60 * 1000
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    flush_messages: int = _MAX_INT64
    flush_ms: int = _MAX_INT64
    retention_ms: int = 7 * _DAY_MS
    retention_bytes: int = -1
    cleanup_policy: tuple[str, ...] = ("delete",)
    file_delete_delay_ms: int = 60_000
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = _MAX_INT64
    delete_retention_ms: int = _DAY_MS
    validate_records: bool = False
    """`moldau.validate.records`: decode every batch and reject what Apache Kafka, which always does, would reject."""
    producer_id_expiration_ms: int = _DAY_MS
    """The broker's `producer.id.expiration.ms`: how long a producer is remembered after its last batch."""

    @classmethod
    def from_topic_config(cls, values: Mapping[str, Any]) -> LogConfig:
        """From a topic's resolved configuration: Kafka's names, typed values. Settings of other layers are ignored."""
        known = {name.replace(".", "_"): value for name, value in values.items()}
        chosen = {name: known[name] for name in cls._fields if known.get(name) is not None}
        if "cleanup_policy" in chosen:
            policy = chosen["cleanup_policy"]
            chosen["cleanup_policy"] = tuple(policy.split(",") if isinstance(policy, str) else policy)
        if known.get("internal_segment_bytes") is not None:
            chosen["segment_bytes"] = known["internal_segment_bytes"]
        return cls(**chosen)

    @property
    def deletes(self) -> bool:
        """Whether segments are deleted by age and size."""
        return "delete" in self.cleanup_policy

    @property
    def compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def largest_segment_ms(self) -> int:
        """The age in ms at which a segment rolls: on a compacted topic early enough to compact its records in time."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacted else self.segment_ms
