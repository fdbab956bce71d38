"""Configs of groups (resources of type GROUP): described with their sources, changed within the broker's limits."""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.messages.list_config_resources import ListConfigResourcesRequest
from moldau.testing.group_requests import ConsumerMember, wait_for_coordinator
from moldau.testing.topic_requests import Topic
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

GROUP = 32
SET, DELETE = 0, 1
DYNAMIC_GROUP_CONFIG, STATIC_BROKER_CONFIG, DEFAULT_CONFIG = 8, 4, 5
BOOLEAN, STRING, INT = 1, 2, 3

DEFAULTS = {
    "consumer.assignment.interval.ms": (INT, "0"),
    "consumer.heartbeat.interval.ms": (INT, "5000"),
    "consumer.session.timeout.ms": (INT, "45000"),
    "share.assignment.interval.ms": (INT, "1000"),
    "share.auto.offset.reset": (STRING, "latest"),
    "share.delivery.count.limit": (INT, "5"),
    "share.heartbeat.interval.ms": (INT, "5000"),
    "share.isolation.level": (STRING, "read_uncommitted"),
    "share.partition.max.record.locks": (INT, "2000"),
    "share.record.lock.duration.ms": (INT, "30000"),
    "share.renew.acknowledge.enable": (BOOLEAN, "true"),
    "share.session.timeout.ms": (INT, "45000"),
    "streams.assignment.interval.ms": (INT, "1000"),
    "streams.heartbeat.interval.ms": (INT, "5000"),
    "streams.initial.rebalance.delay.ms": (INT, "3000"),
    "streams.num.standby.replicas": (INT, "0"),
    "streams.session.timeout.ms": (INT, "45000"),
}
# The tests' servers have this in their static settings, so that no test waits for an assignment.
STATIC = "consumer.assignment.interval.ms"
OF_NO_BROKER = {"share.auto.offset.reset", "share.isolation.level", "share.renew.acknowledge.enable"}


@pytest.fixture
def wire(bootstrap_servers: str) -> Iterator[WireClient]:
    with WireClient(bootstrap_servers) as client:
        yield client


@pytest.fixture
def group(topic_name: Callable[[], str]) -> str:
    """The name of a group that no test uses."""
    return topic_name()


def describe(wire: WireClient, name: str, keys: list[str] | None = None) -> Any:
    """The result of describing one group, with synonyms."""
    asked = DescribeConfigsResource(resource_type=GROUP, resource_name=name, configuration_keys=keys)
    (result,) = wire.call(DescribeConfigsRequest(resources=[asked], include_synonyms=True), 4).results
    return result


def described(wire: WireClient, name: str) -> dict[str, tuple[str | None, int, list[tuple[str, str | None, int]]]]:
    """Value, source and synonyms of each config of a group."""
    result = describe(wire, name)
    assert (result.error_code, result.resource_type, result.resource_name) == (0, GROUP, name)
    return {
        config.name: (
            config.value,
            config.config_source,
            [(synonym.name, synonym.value, synonym.source) for synonym in config.synonyms],
        )
        for config in result.configs
    }


def alter(wire: WireClient, name: str, *changes: tuple[str, int, str | None]) -> str:
    """The name of the error code of one IncrementalAlterConfigs."""
    configs = [AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in changes]
    resource = AlterConfigsResource(resource_type=GROUP, resource_name=name, configs=configs)
    (answer,) = wire.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    return ErrorCode(answer.error_code).name


def test_a_group_that_is_not_there_has_the_brokers_configs(wire: WireClient, group: str) -> None:
    result = describe(wire, group)
    assert {config.name: (config.config_type, config.value) for config in result.configs} == DEFAULTS
    assert not any(config.read_only or config.is_sensitive for config in result.configs)
    for name, (value, source, synonyms) in described(wire, group).items():
        behind = name if name in OF_NO_BROKER else f"group.{name}"
        if name == STATIC:
            assert source == STATIC_BROKER_CONFIG
            assert synonyms == [(behind, value, STATIC_BROKER_CONFIG), (behind, "1000", DEFAULT_CONFIG)]
        else:
            assert (source, synonyms) == (DEFAULT_CONFIG, [(behind, value, DEFAULT_CONFIG)])


def test_what_is_set_comes_before_what_the_broker_has(wire: WireClient, group: str) -> None:
    name = "consumer.session.timeout.ms"
    assert alter(wire, group, (name, SET, "50000"), ("share.auto.offset.reset", SET, "by_duration:PT1H")) == "NONE"
    wait_until(lambda: described(wire, group)[name][0] == "50000", "the new value")
    found = described(wire, group)
    assert found[name] == (
        "50000",
        DYNAMIC_GROUP_CONFIG,
        [(name, "50000", DYNAMIC_GROUP_CONFIG), (f"group.{name}", "45000", DEFAULT_CONFIG)],
    )
    assert found["share.auto.offset.reset"] == (
        "by_duration:PT1H",
        DYNAMIC_GROUP_CONFIG,
        [
            ("share.auto.offset.reset", "by_duration:PT1H", DYNAMIC_GROUP_CONFIG),
            ("share.auto.offset.reset", "latest", DEFAULT_CONFIG),
        ],
    )
    assert {config.name for config in describe(wire, group, [name, "no.such"]).configs} == {name}
    listed = wire.call(ListConfigResourcesRequest(resource_types=[GROUP]), 1).config_resources
    assert (GROUP, group) in {(resource.resource_type, resource.resource_name) for resource in listed}
    assert alter(wire, group, (name, DELETE, None), ("share.auto.offset.reset", DELETE, None)) == "NONE"
    wait_until(lambda: described(wire, group)[name][1] == DEFAULT_CONFIG, "the default again")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (("consumer.session.timeout.ms", SET, "44999"), "INVALID_CONFIG"),
        (("consumer.session.timeout.ms", SET, "60001"), "INVALID_CONFIG"),
        (("consumer.heartbeat.interval.ms", SET, "soon"), "INVALID_CONFIG"),
        (("retention.ms", SET, "1"), "INVALID_CONFIG"),
        (("consumer.session.timeout.ms", SET, None), "INVALID_REQUEST"),
    ],
)
def test_what_a_group_cannot_have(
    wire: WireClient, group: str, change: tuple[str, int, str | None], error: str
) -> None:
    assert alter(wire, group, change) == error


def test_members_get_the_interval_of_their_group(bootstrap_servers: str, wire: WireClient, group: str) -> None:
    wait_for_coordinator(bootstrap_servers, group)
    with ConsumerMember(bootstrap_servers, group, Topic("no-such-topic", bytes(16)), member_id=uuid4().hex) as member:
        assert member.join().heartbeat_interval_ms == 5000
        assert alter(wire, group, ("consumer.heartbeat.interval.ms", SET, "6000")) == "NONE"
        wait_until(lambda: member.heartbeat().heartbeat_interval_ms == 6000, "the new interval")
        assert alter(wire, group, ("consumer.heartbeat.interval.ms", DELETE, None)) == "NONE"
        wait_until(lambda: member.heartbeat().heartbeat_interval_ms == 5000, "the broker's interval again")
        member.leave()
