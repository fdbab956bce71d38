"""The settings of the group coordinator, from the broker's settings and the finalized features."""

from __future__ import annotations

from collections.abc import Mapping

from ...config.broker_config import BrokerConfig
from ...config.broker_groups import consumer_assignor
from ...group_coordinator.config import GroupConfig
from ...metadata.features import GROUP_VERSION

_MINUTE_MS = 60_000


def group_config(config: BrokerConfig) -> GroupConfig:
    """The settings of all groups; built again when dynamic settings change.

    A dynamic assignment interval is not checked against its limits when it is set, as in Apache Kafka. It is clamped
    here.
    """
    minimum_assignment_interval_ms = config.int("group.consumer.min.assignment.interval.ms")
    maximum_assignment_interval_ms = config.int("group.consumer.max.assignment.interval.ms")
    assignment_interval_ms = config.int("group.consumer.assignment.interval.ms")
    return GroupConfig(
        offset_metadata_max_bytes=config.int("offset.metadata.max.bytes"),
        offsets_retention_ms=config.int("offsets.retention.minutes") * _MINUTE_MS,
        offsets_retention_check_interval_ms=config.int("offsets.retention.check.interval.ms"),
        group_initial_rebalance_delay_ms=config.int("group.initial.rebalance.delay.ms"),
        group_min_session_timeout_ms=config.int("group.min.session.timeout.ms"),
        group_max_session_timeout_ms=config.int("group.max.session.timeout.ms"),
        group_max_size=config.int("group.max.size"),
        rebalance_protocols=frozenset(config.list("group.coordinator.rebalance.protocols")),
        consumer_assignors=tuple(
            assignor for name in config.list("group.consumer.assignors") if (assignor := consumer_assignor(name))
        ),
        consumer_heartbeat_interval_ms=config.int("group.consumer.heartbeat.interval.ms"),
        consumer_min_heartbeat_interval_ms=config.int("group.consumer.min.heartbeat.interval.ms"),
        consumer_max_heartbeat_interval_ms=config.int("group.consumer.max.heartbeat.interval.ms"),
        consumer_session_timeout_ms=config.int("group.consumer.session.timeout.ms"),
        consumer_min_session_timeout_ms=config.int("group.consumer.min.session.timeout.ms"),
        consumer_max_session_timeout_ms=config.int("group.consumer.max.session.timeout.ms"),
        consumer_assignment_interval_ms=min(
            max(assignment_interval_ms, minimum_assignment_interval_ms), maximum_assignment_interval_ms
        ),
        consumer_min_assignment_interval_ms=minimum_assignment_interval_ms,
        consumer_max_assignment_interval_ms=maximum_assignment_interval_ms,
        consumer_max_size=config.int("group.consumer.max.size"),
        consumer_migration_policy=config.str("group.consumer.migration.policy"),
        consumer_regex_refresh_interval_ms=config.int("group.consumer.regex.refresh.interval.ms"),
    )


def serves_consumer_protocol(config: BrokerConfig, features: Mapping[str, int]) -> bool:
    """Whether members may use ConsumerGroupHeartbeat: the feature is finalized and the settings permit it."""
    return features.get(GROUP_VERSION, 0) >= 1 and "consumer" in config.list("group.coordinator.rebalance.protocols")
