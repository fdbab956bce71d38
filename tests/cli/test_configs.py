"""``moldau configs`` against a server."""

from collections.abc import Callable
from typing import Any

import pytest

from moldau.testing.waiting import wait_until

from .conftest import Run


@pytest.fixture
def broker_id(ask: Run, new_topic: Callable[..., str]) -> str:
    (described,) = ask("topics", "describe", new_topic(), "--json").json()
    return str(described["partitions"][0]["leader"])


def test_topic_settings_are_set_shown_and_removed(ask: Run, new_topic: Callable[..., str]) -> None:
    name = new_topic()
    assert ask("configs", "set", "topic", name, "retention.ms=5000", "cleanup.policy=compact,delete").code == 0
    shown = ask("configs", "describe", "topic", name, "--json").json()
    assert shown["retention.ms"]["value"] == "5000"
    assert shown["retention.ms"]["source"] == "DYNAMIC_TOPIC_CONFIG"
    assert shown["cleanup.policy"]["value"] == "compact,delete"
    assert ask("configs", "delete", "topic", name, "retention.ms").code == 0
    shown = ask("configs", "describe", "topic", name, "--all", "--json").json()
    assert shown["retention.ms"]["value"] == "604800000"
    assert shown["cleanup.policy"]["source"] == "DYNAMIC_TOPIC_CONFIG"
    assert len(shown) == 33


def test_a_subscription_of_client_metrics_is_set_shown_and_removed(ask: Run) -> None:
    name = "latency-of-configs"

    def shown() -> dict[str, str]:
        found = ask("configs", "describe", "client-metrics", name, "--json").json()
        return {key: entry["value"] for key, entry in found.items()}

    set_metrics = ("metrics=org.apache.kafka.producer.", "interval.ms=60000")
    assert ask("configs", "set", "client-metrics", name, *set_metrics).code == 0
    wait_until(lambda: shown() == {"metrics": "org.apache.kafka.producer.", "interval.ms": "60000"}, "the settings")
    refused = ask("configs", "set", "client-metrics", name, "interval.ms=1")
    assert refused.code == 1
    assert "interval.ms" in refused.err
    assert ask("configs", "delete", "client-metrics", name, "metrics", "interval.ms").code == 0
    wait_until(lambda: shown() == {}, "the end")


def test_only_changed_settings_are_shown_without_all(ask: Run, new_topic: Callable[..., str]) -> None:
    name = new_topic(1, "segment.ms=60000")
    shown = ask("configs", "describe", "topic", name)
    assert ["segment.ms", "60000", "dynamic", "topic", "config"] in [line.split() for line in shown.lines]
    assert "segment.bytes" not in shown.text
    assert "segment.bytes" in ask("configs", "describe", "topic", name, "--all").text


def test_broker_settings_have_sources(ask: Run, broker_id: str) -> None:
    shown = ask("configs", "describe", "broker", broker_id, "--all", "--json").json()
    assert shown["message.max.bytes"] == {
        "value": "1048588",
        "source": "DEFAULT_CONFIG",
        "read_only": False,
        "sensitive": False,
    }
    assert shown["listeners"]["source"] == "STATIC_BROKER_CONFIG"
    assert shown["num.partitions"]["read_only"]
    assert shown["ssl.key.password"]["sensitive"]
    assert "[hidden]" in ask("configs", "describe", "broker", broker_id, "--all").text


def test_setting_of_all_brokers_reaches_each(ask: Run, broker_id: str) -> None:
    assert ask("configs", "set", "broker", "default", "log.retention.bytes=123456789").code == 0

    def reported_for(broker: str) -> Any:
        return ask("configs", "describe", "broker", broker, "--json").json().get("log.retention.bytes")

    # A change reaches Apache Kafka's brokers a moment after the response.
    try:
        everywhere = wait_until(lambda: reported_for("default"), "the setting")
        assert everywhere["value"] == "123456789"
        here = wait_until(lambda: reported_for(broker_id), "the setting at the broker")
        assert (here["value"], here["source"]) == ("123456789", "DYNAMIC_DEFAULT_BROKER_CONFIG")
    finally:
        assert ask("configs", "delete", "broker", "default", "log.retention.bytes").code == 0
    wait_until(lambda: reported_for("default") is None, "the end of the setting")


def test_group_settings_are_set_shown_and_removed(ask: Run, new_topic: Callable[..., str]) -> None:
    group = f"{new_topic()}-group"
    assert ask("configs", "set", "group", group, "consumer.session.timeout.ms=50000").code == 0

    def shown() -> Any:
        return ask("configs", "describe", "group", group, "--json").json()

    wait_until(lambda: "consumer.session.timeout.ms" in shown(), "the setting")
    assert shown()["consumer.session.timeout.ms"] == {
        "value": "50000",
        "source": "DYNAMIC_GROUP_CONFIG",
        "read_only": False,
        "sensitive": False,
    }
    assert ask("configs", "delete", "group", group, "consumer.session.timeout.ms").code == 0
    wait_until(lambda: "consumer.session.timeout.ms" not in shown(), "the end of the setting")


def test_resource_without_changed_settings_has_the_defaults(
    ask: Run, new_topic: Callable[..., str], request: pytest.FixtureRequest
) -> None:
    topic = new_topic()
    described = ask("configs", "describe", "topic", topic)
    expected = [f"All settings of topic {topic} have their default values; use --all to show them."]
    if request.config.getoption(
        "apache"
    ):  # with eligible leader replicas, all brokers have a common min.insync.replicas
        expected = ["setting              value  source", "min.insync.replicas  1      dynamic default broker config"]
    assert described.lines == expected


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["set", "group", "g", "consumer.session.timeout.ms=1"], "(INVALID_CONFIG)"),
        (["set", "topic", "{topic}", "retention.ms=soon"], "Invalid value soon for configuration retention.ms"),
        (["set", "topic", "{topic}", "no.such=1"], "Unknown topic config name: no.such (INVALID_CONFIG)"),
        (["set", "topic", "no-such-topic", "retention.ms=1"], "(UNKNOWN_TOPIC_OR_PARTITION)"),
        (["describe", "topic", "no-such-topic"], "(UNKNOWN_TOPIC_OR_PARTITION)"),
        (["set", "broker", "{broker}", "num.partitions=4"], "num.partitions"),
        (["describe", "broker", "4711"], "unknown broker 4711; the cluster has: "),
    ],
)
def test_rejection_is_one_message(
    ask: Run, new_topic: Callable[..., str], broker_id: str, arguments: list[str], words: str
) -> None:
    topic = new_topic()
    refused = ask("configs", *(argument.format(topic=topic, broker=broker_id) for argument in arguments))
    assert refused.code == 1
    assert refused.err.startswith("moldau: ")
    assert words in refused.err or words.strip("()") in refused.err
    assert refused.out == b""


def test_broker_is_identified_by_its_id(ask: Run) -> None:
    refused = ask("configs", "describe", "broker", "first")
    assert refused.code == 2
    assert "is not a broker id; use a number" in refused.err
