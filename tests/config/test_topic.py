"""A topic's settings: which ones are valid, and the values in effect."""

import pytest

from moldau.config.broker import validate_dynamic_configs
from moldau.config.broker_config import BrokerConfig, StaticValue
from moldau.config.definition import ConfigError
from moldau.config.topic import resolve_topic_config, validate_topic_config, validate_topic_configs


def test_unknown_name_is_rejected_by_name() -> None:
    with pytest.raises(ConfigError) as refused:
        validate_topic_config("retention.msec", "1")
    assert str(refused.value) == "Unknown topic config name: retention.msec"


def test_segments_below_a_mebibyte_need_the_internal_name() -> None:
    with pytest.raises(ConfigError, match="Value must be at least 1048576"):
        validate_topic_config("segment.bytes", "1048575")
    validate_topic_config("segment.bytes", "1048576")
    validate_topic_config("internal.segment.bytes", "100")


def test_overrides_take_precedence_over_the_broker_and_the_defaults() -> None:
    broker = BrokerConfig({"log.retention.bytes": StaticValue("5000", "--set")})
    assert resolve_topic_config({"retention.ms": "7"}, None)["retention.bytes"] == -1
    resolved = resolve_topic_config({"retention.ms": "7", "cleanup.policy": "compact,delete"}, broker)
    assert resolved["retention.ms"] == 7
    assert resolved["retention.bytes"] == 5000
    assert resolved["cleanup.policy"] == ("compact", "delete")
    assert resolved["segment.ms"] == 604_800_000


def test_resolving_does_not_change_the_defaults() -> None:
    broker = BrokerConfig()
    resolve_topic_config({"retention.ms": "7"}, broker)
    assert resolve_topic_config({}, broker)["retention.ms"] == 604_800_000
    resolve_topic_config({"retention.ms": "7"}, None)
    assert resolve_topic_config({}, None)["retention.ms"] == 604_800_000


def test_lags_of_compaction_are_compared_with_the_values_in_effect() -> None:
    validate_topic_configs({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"})
    with pytest.raises(ConfigError, match=r"no more than max\.compaction\.lag\.ms \(4\)"):
        validate_topic_configs({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"})
    broker = BrokerConfig({"log.cleaner.max.compaction.lag.ms": StaticValue("4", "--set")})
    with pytest.raises(ConfigError, match=r"\(4\)"):
        validate_topic_configs({"min.compaction.lag.ms": "5"}, broker)


def test_tiered_storage_is_rejected() -> None:
    validate_topic_configs({"remote.storage.enable": "false"})
    with pytest.raises(ConfigError, match="no tiered storage"):
        validate_topic_configs({"remote.storage.enable": "true"})


def test_read_only_broker_settings_cannot_be_changed_while_running() -> None:
    with pytest.raises(ConfigError) as refused:
        validate_dynamic_configs({"num.partitions": "2", "broker.id": "3", "message.max.bytes": "1"}, per_broker=True)
    assert str(refused.value) == "Cannot update these configs dynamically: broker.id, num.partitions"


def test_settings_of_one_broker_cannot_be_set_for_all() -> None:
    validate_dynamic_configs({"listeners": "PLAINTEXT://:1"}, per_broker=True)
    with pytest.raises(ConfigError, match=r"a broker id is needed: listeners"):
        validate_dynamic_configs({"listeners": "PLAINTEXT://:1"}, per_broker=False)


def test_security_settings_are_changed_by_listener() -> None:
    with pytest.raises(ConfigError, match=r"listener's prefix: ssl\.keystore\.location"):
        validate_dynamic_configs({"ssl.keystore.location": "/x"}, per_broker=True)
    validate_dynamic_configs({"listener.name.external.ssl.keystore.location": "/x"}, per_broker=True)


def test_dynamic_value_is_checked() -> None:
    with pytest.raises(ConfigError, match=r"Invalid value x for configuration message\.max\.bytes"):
        validate_dynamic_configs({"message.max.bytes": "x"}, per_broker=False)
    validate_dynamic_configs({"leader.replication.throttled.rate": "100"}, per_broker=False)
