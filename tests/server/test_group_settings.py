"""The settings and features of the broker that the group coordinator gets."""

import pytest

from moldau.config.broker_config import BrokerConfig, StaticValue
from moldau.config.checks import check_broker_config
from moldau.group_coordinator.config import GroupConfig
from moldau.server.coordination.group_settings import group_config, serves_consumer_protocol


def config_of(settings: dict[str, str]) -> BrokerConfig:
    config = BrokerConfig({name: StaticValue(text, "--set") for name, text in settings.items()})
    check_broker_config(config)
    return config


def test_the_defaults_of_settings_and_coordinator_agree() -> None:
    defaults = group_config(BrokerConfig())
    assert defaults.rebalance_protocols == {"classic", "consumer", "streams"}
    assert GroupConfig(rebalance_protocols=defaults.rebalance_protocols) == defaults


def test_every_setting_reaches_its_field() -> None:
    settings = {
        "offset.metadata.max.bytes": "1",
        "offsets.retention.minutes": "2",
        "offsets.retention.check.interval.ms": "3",
        "group.initial.rebalance.delay.ms": "4",
        "group.min.session.timeout.ms": "5",
        "group.max.session.timeout.ms": "6",
        "group.max.size": "7",
        "group.coordinator.rebalance.protocols": "classic",
        "group.consumer.assignors": "org.apache.kafka.coordinator.group.assignor.RangeAssignor,uniform",
        "group.consumer.min.heartbeat.interval.ms": "8",
        "group.consumer.heartbeat.interval.ms": "9",
        "group.consumer.max.heartbeat.interval.ms": "10",
        "group.consumer.min.session.timeout.ms": "11",
        "group.consumer.session.timeout.ms": "12",
        "group.consumer.max.session.timeout.ms": "13",
        "group.consumer.min.assignment.interval.ms": "14",
        "group.consumer.assignment.interval.ms": "15",
        "group.consumer.max.assignment.interval.ms": "16",
        "group.consumer.max.size": "17",
        "group.consumer.migration.policy": "Upgrade",
        "group.consumer.regex.refresh.interval.ms": "10001",
    }
    config = group_config(config_of(settings))
    assert config == GroupConfig(
        offset_metadata_max_bytes=1,
        offsets_retention_ms=120_000,
        offsets_retention_check_interval_ms=3,
        group_initial_rebalance_delay_ms=4,
        group_min_session_timeout_ms=5,
        group_max_session_timeout_ms=6,
        group_max_size=7,
        rebalance_protocols=frozenset({"classic"}),
        consumer_assignors=("range", "uniform"),
        consumer_min_heartbeat_interval_ms=8,
        consumer_heartbeat_interval_ms=9,
        consumer_max_heartbeat_interval_ms=10,
        consumer_min_session_timeout_ms=11,
        consumer_session_timeout_ms=12,
        consumer_max_session_timeout_ms=13,
        consumer_min_assignment_interval_ms=14,
        consumer_assignment_interval_ms=15,
        consumer_max_assignment_interval_ms=16,
        consumer_max_size=17,
        consumer_migration_policy="Upgrade",
        consumer_regex_refresh_interval_ms=10_001,
    )
    assert config.allows_upgrade
    assert not config.allows_downgrade


@pytest.mark.parametrize(("dynamic", "in_force"), [("7", 7), ("20000", 15_000), ("0", 5)])
def test_dynamic_assignment_interval_is_kept_within_its_limits(dynamic: str, in_force: int) -> None:
    config = config_of({"group.consumer.min.assignment.interval.ms": "5"})
    dynamic_settings = {"group.consumer.assignment.interval.ms": dynamic}
    assert (
        group_config(config.with_dynamic(default=dynamic_settings, broker_specific={})).consumer_assignment_interval_ms
        == in_force
    )


@pytest.mark.parametrize(
    ("protocols", "features", "served"),
    [
        ("classic,consumer", {"group.version": 1}, True),
        ("classic,consumer", {}, False),
        ("classic", {"group.version": 1}, False),
    ],
)
def test_consumer_protocol_needs_the_feature_and_the_setting(
    protocols: str, features: dict[str, int], served: bool
) -> None:
    config = config_of({"group.coordinator.rebalance.protocols": protocols})
    assert serves_consumer_protocol(config, features) is served
