"""The settings of logs and partitions, from a topic's configuration."""

from __future__ import annotations

from collections.abc import Mapping

from ...config.broker_config import BrokerConfig
from ...config.topic import resolve_topic_config
from ...log.config import LogConfig


def topic_log_config(overrides: Mapping[str, str], config: BrokerConfig) -> LogConfig:
    """The settings of a topic's logs: the topic's overrides, and the broker's settings for the rest."""
    values = dict(resolve_topic_config(dict(overrides), config))
    values["validate.records"] = config.bool("moldau.validate.records")
    values["producer.id.expiration.ms"] = config.int("producer.id.expiration.ms")
    return LogConfig.from_topic_config(values)


def topic_min_insync_replicas(overrides: Mapping[str, str], config: BrokerConfig) -> int:
    """How many replicas must be in sync for ``acks=all``."""
    value = resolve_topic_config(dict(overrides), config)["min.insync.replicas"]
    assert isinstance(value, int)
    return value
