"""Which settings are valid for a group: each by itself, within the broker's limits, and in combination."""

import pytest

from moldau.config.broker_config import BrokerConfig, StaticValue
from moldau.config.definition import ConfigError
from moldau.config.durations import parse_duration_ms
from moldau.config.group import validate_group_configs


def broker_with(**settings: str) -> BrokerConfig:
    return BrokerConfig({name.replace("_", "."): StaticValue(text, "--set") for name, text in settings.items()})


def refusal(overrides: dict[str, str], broker: BrokerConfig | None = None) -> str:
    with pytest.raises(ConfigError) as refused:
        validate_group_configs(overrides, broker or BrokerConfig())
    return str(refused.value)


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"consumer.session.timeout.ms": "45000", "consumer.heartbeat.interval.ms": "15000"},
        {"consumer.session.timeout.ms": " 60000", "consumer.assignment.interval.ms": "0"},
        {"share.auto.offset.reset": "by_duration:P1DT2H3.5S", "share.isolation.level": "read_committed"},
        {"share.auto.offset.reset": "earliest", "share.renew.acknowledge.enable": "FALSE"},
        {"streams.num.standby.replicas": "2", "streams.initial.rebalance.delay.ms": "0"},
    ],
)
def test_valid_group_settings_are_accepted(overrides: dict[str, str]) -> None:
    validate_group_configs(overrides, BrokerConfig())


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        (
            "consumer.session.timeout.ms",
            "44999",
            "Value must be at least group.consumer.min.session.timeout.ms (45000)",
        ),
        (
            "consumer.session.timeout.ms",
            "60001",
            "Value must be no more than group.consumer.max.session.timeout.ms (60000)",
        ),
        ("consumer.session.timeout.ms", "0", "Value must be at least 1"),
        ("consumer.session.timeout.ms", "soon", "Not a number of type INT"),
        ("consumer.heartbeat.interval.ms", "4999", "group.consumer.min.heartbeat.interval.ms (5000)"),
        ("consumer.assignment.interval.ms", "15001", "group.consumer.max.assignment.interval.ms (15000)"),
        ("share.record.lock.duration.ms", "60001", "group.share.max.record.lock.duration.ms (60000)"),
        ("share.delivery.count.limit", "11", "group.share.max.delivery.count.limit (10)"),
        ("share.partition.max.record.locks", "4001", "group.share.max.partition.max.record.locks (4000)"),
        ("share.auto.offset.reset", "none", "Value must be earliest, latest or by_duration:PnDTnHnMn.nS"),
        ("share.auto.offset.reset", "by_duration", "by_duration:PnDTnHnMn.nS"),
        ("share.auto.offset.reset", "by_duration:soon", "by_duration:PnDTnHnMn.nS"),
        ("share.auto.offset.reset", "by_duration:-PT1S", "by_duration:PnDTnHnMn.nS"),
        ("share.isolation.level", "READ_COMMITTED", "String must be one of: read_committed, read_uncommitted"),
        ("streams.num.standby.replicas", "3", "group.streams.max.standby.replicas (2)"),
    ],
)
def test_invalid_value_is_reported_with_its_rule(name: str, value: str, rule: str) -> None:
    refused = refusal({name: value})
    assert refused.startswith(f"Invalid value {value} for configuration {name}: ")
    assert rule in refused


def test_unknown_name_is_rejected_with_kafkas_message() -> None:
    assert refusal({"consumer.nap.ms": "1"}) == "Unknown group config name: consumer.nap.ms"


def test_limits_are_those_of_the_broker() -> None:
    broker = broker_with(group_consumer_min_session_timeout_ms="100", group_consumer_min_heartbeat_interval_ms="10")
    validate_group_configs({"consumer.session.timeout.ms": "5001"}, broker)
    assert "(100)" in refusal({"consumer.session.timeout.ms": "99"}, broker)


def test_heartbeat_interval_must_be_below_the_session_timeout() -> None:
    broker = broker_with(
        group_consumer_min_session_timeout_ms="100",
        group_consumer_max_heartbeat_interval_ms="60000",
        group_consumer_min_heartbeat_interval_ms="10",
    )
    # A value that the group does not set is the broker's.
    assert "Value must be greater than consumer.heartbeat.interval.ms (5000)" in refusal(
        {"consumer.session.timeout.ms": "5000"}, broker
    )
    assert "Value must be less than consumer.session.timeout.ms (45000)" in refusal(
        {"consumer.heartbeat.interval.ms": "45000"}, broker
    )
    validate_group_configs({"consumer.session.timeout.ms": "5000", "consumer.heartbeat.interval.ms": "4999"}, broker)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("PT0S", 0),
        ("P1D", 86_400_000),
        ("PT30M", 1_800_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("pt1.0009s", 1000),
        ("PT-1H", -3_600_000),
        ("-PT1H", -3_600_000),
        ("-PT-0.25S", 250),
        ("PT1,5S", 1500),
        ("P" + "0" * 5000 + "1D", 86_400_000),
        ("PT9223372036854775807S", (2**63 - 1) * 1000),
    ],
)
def test_durations_are_parsed_as_by_java(text: str, milliseconds: int) -> None:
    assert parse_duration_ms(text) == milliseconds


@pytest.mark.parametrize(
    "text",
    [
        *("", "P", "PT", "P1DT", "1H", "P1H", "PT1D", "P1W", "PT1H ", "PT١S", "+P"),
        *("P" + "9" * 5000 + "D", "PT9223372036854775808S", "PT1H9223372036854775807S", "P106751991167301D"),
    ],
)
def test_other_texts_are_not_durations(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration_ms(text)
