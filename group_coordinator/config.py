"""The settings of the group coordinator as one value, which the server creates from the broker's settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ConsumerTimes:
    """The times of one consumer group: the GROUP config resource may override the broker's settings."""

    heartbeat_interval_ms: int
    session_timeout_ms: int
    assignment_interval_ms: int


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Each field is the broker's setting of that name; times are in milliseconds."""

    # Offsets
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    offsets_retention_check_interval_ms: int = 600_000
    # Classic groups
    group_initial_rebalance_delay_ms: int = 3000
    group_min_session_timeout_ms: int = 6000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 0x7FFF_FFFF
    # Consumer groups (KIP-848)
    rebalance_protocols: frozenset[str] = frozenset({"classic", "consumer"})
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    consumer_heartbeat_interval_ms: int = 5000
    consumer_min_heartbeat_interval_ms: int = 5000
    consumer_max_heartbeat_interval_ms: int = 15_000
    consumer_session_timeout_ms: int = 45_000
    consumer_min_session_timeout_ms: int = 45_000
    consumer_max_session_timeout_ms: int = 60_000
    consumer_assignment_interval_ms: int = 1000
    consumer_min_assignment_interval_ms: int = 0
    consumer_max_assignment_interval_ms: int = 15_000
    consumer_max_size: int = 0x7FFF_FFFF
    consumer_migration_policy: str = "bidirectional"
    consumer_regex_refresh_interval_ms: int = 600_000

    consumer_times: ConsumerTimes = field(init=False, repr=False, compare=False)
    """The times of groups without overrides. Precomputed, because every heartbeat needs them."""

    def __post_init__(self) -> None:
        times = ConsumerTimes(
            heartbeat_interval_ms=self.consumer_heartbeat_interval_ms,
            session_timeout_ms=self.consumer_session_timeout_ms,
            assignment_interval_ms=self.consumer_assignment_interval_ms,
        )
        object.__setattr__(self, "consumer_times", times)

    @property
    def allows_upgrade(self) -> bool:
        """Whether a classic group may become a consumer group."""
        return self.consumer_migration_policy.lower() in ("bidirectional", "upgrade")

    @property
    def allows_downgrade(self) -> bool:
        """Whether a consumer group may become a classic group."""
        return self.consumer_migration_policy.lower() in ("bidirectional", "downgrade")


def consumer_times(config: GroupConfig, overrides: Mapping[str, str]) -> ConsumerTimes:
    """The times of a group with these overrides.

    They were checked when they were set; limits that were narrowed since then are applied.
    """
    if not overrides:
        return config.consumer_times

    def of(name: str, default: int, lowest: int, highest: int) -> int:
        value = overrides.get(name)
        return default if value is None else min(max(int(value), lowest), highest)

    return ConsumerTimes(
        heartbeat_interval_ms=of(
            "consumer.heartbeat.interval.ms",
            config.consumer_heartbeat_interval_ms,
            config.consumer_min_heartbeat_interval_ms,
            config.consumer_max_heartbeat_interval_ms,
        ),
        session_timeout_ms=of(
            "consumer.session.timeout.ms",
            config.consumer_session_timeout_ms,
            config.consumer_min_session_timeout_ms,
            config.consumer_max_session_timeout_ms,
        ),
        assignment_interval_ms=of(
            "consumer.assignment.interval.ms",
            config.consumer_assignment_interval_ms,
            config.consumer_min_assignment_interval_ms,
            config.consumer_max_assignment_interval_ms,
        ),
    )
