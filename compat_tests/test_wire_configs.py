"""Configs on the wire: which settings of brokers can be changed, how they are described, what numbers and lists look
like, and resources of every type.

``broker_config_updates.json`` holds what Apache Kafka 4.3.1 answers when every setting of the broker's table is set by
itself: for this broker, for all brokers, and both once more with the prefix of a listener. ``--apache`` compares the
file with Apache Kafka; ``python -m moldau.compat_tests.test_wire_configs HOST:PORT`` writes it from a server.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from moldau.config import broker as broker_settings
from moldau.config.definition import ConfigType, Setting, format_value
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from moldau.testing.config_requests import (
    ALL_BROKERS,
    APPEND,
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    DELETE,
    GROUP,
    SET,
    TOPIC,
    Described,
    alter,
    answer,
    describe,
    described,
    node_id,
    replace,
)
from moldau.testing.servers import Server
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

FACTS = Path(__file__).parent / "broker_config_updates.json"

DYNAMIC_BROKER, DYNAMIC_DEFAULT_BROKER, STATIC_BROKER, DEFAULT = 2, 3, 4, 5
UNKNOWN_TYPE = 0

LISTENER = "listener.name.other."
CLASSES = {"ssl.engine.factory.class": "org.apache.kafka.common.security.ssl.DefaultSslEngineFactory"}
SAMPLES = {ConfigType.BOOLEAN: "true", ConfigType.INT: "1", ConfigType.LONG: "1"}
# Only what fits the running server is accepted for these.
AS_IT_IS = ("listeners", "listener.security.protocol.map")
# Depends on the feature eligible.leader.replicas.version, which Moldau does not finalize automatically.
LEFT_OUT = "min.insync.replicas"


@pytest.fixture
def wire(bootstrap_servers: str) -> Iterator[WireClient]:
    with WireClient(bootstrap_servers) as client:
        yield client


@pytest.fixture
def broker_id(wire: WireClient) -> str:
    return node_id(wire)


# Which settings of a broker can be changed


def sample(setting: Setting) -> str:
    """A value that the setting can have: the default if it has one."""
    return CLASSES.get(setting.name) or format_value(setting.kafka_default) or SAMPLES.get(setting.type, "")


def update_answers(wire: WireClient, own: str) -> dict[str, list[str]]:
    """The names of settings by what is answered to them: for this broker, for all, and both for one listener."""
    present = {config.name: config.value for config in describe(wire, BROKER, own, AS_IT_IS).configs}
    outcomes: dict[str, list[str]] = {}
    for setting in (*broker_settings.SETTINGS.values(), *broker_settings.DYNAMIC_ONLY.values()):
        if setting.name.startswith("moldau.") or setting.name == LEFT_OUT:
            continue
        value = present.get(setting.name) or sample(setting)
        answers = [
            alter(wire, BROKER, scope, (prefix + setting.name, SET, value), validate_only=True)
            for prefix in ("", LISTENER)
            for scope in (own, ALL_BROKERS)
        ]
        outcomes.setdefault(" ".join(answers), []).append(setting.name)
        # AlterConfigs has to name what must not be deleted.
        kept = {LEFT_OUT: "1"}
        replaced = [
            replace(wire, BROKER, scope, {setting.name: value, **more}, validate_only=True)
            for scope, more in ((own, {}), (ALL_BROKERS, kept))
        ]
        assert replaced == answers[:2], setting.name
    return {key: sorted(names) for key, names in sorted(outcomes.items())}


def test_every_setting_of_a_broker_can_be_changed_where_apache_kafka_allows_it(
    wire: WireClient, broker_id: str
) -> None:
    assert update_answers(wire, broker_id) == json.loads(FACTS.read_text())


@pytest.mark.parametrize("change", [("ssl.client.auth", "required"), ("sasl.login.refresh.buffer.seconds", "5")])
def test_security_settings_of_a_broker_can_be_changed_without_a_listener(
    wire: WireClient, broker_id: str, change: tuple[str, str]
) -> None:
    name, value = change
    assert replace(wire, BROKER, broker_id, {name: value}, validate_only=True) == "NONE"
    assert alter(wire, BROKER, broker_id, (name, SET, value)) == "NONE"
    wait_until(lambda: (described(wire, BROKER, broker_id, name) or [None])[0] == value, "the new value")
    found = described(wire, BROKER, broker_id, name)
    assert found is not None
    assert (found[1], found[3:5]) == (DYNAMIC_BROKER, (False, False))
    assert alter(wire, BROKER, broker_id, (name, DELETE, None)) == "NONE"
    wait_until(lambda: source_of(wire, broker_id, name) == DEFAULT, "the default again")


@pytest.mark.parametrize("name", ["ssl.key.password", "ssl.keystore.type", "ssl.truststore.location"])
def test_stores_of_keys_can_be_changed_for_one_listener_only(wire: WireClient, broker_id: str, name: str) -> None:
    for scope in (broker_id, ALL_BROKERS):
        assert alter(wire, BROKER, scope, (name, SET, "x"), validate_only=True) == "INVALID_REQUEST"
    assert alter(wire, BROKER, broker_id, (LISTENER + name, SET, "x"), validate_only=True) == "NONE"


@pytest.mark.parametrize("name", ["max.connections", "log.retention.ms"])
def test_a_value_for_one_listener_is_checked_as_that_of_the_setting(
    wire: WireClient, broker_id: str, name: str
) -> None:
    for scope in (broker_id, ALL_BROKERS):
        refused = answer(wire, BROKER, scope, (LISTENER + name, SET, "many"), validate_only=True)
        assert ErrorCode(refused.error_code).name == "INVALID_REQUEST"
        assert f"Invalid value many for configuration {name}: Not a number" in refused.error_message


def source_of(wire: WireClient, scope: str, name: str) -> int | None:
    found = described(wire, BROKER, scope, name)
    return None if found is None else found[1]


# What is described of settings outside the table

LONG, INT, STRING, PASSWORD = 5, 3, 2, 9
THROTTLE = "leader.replication.throttled.rate"

OUTSIDE = {
    THROTTLE: ("1000", LONG, False),
    "follower.replication.throttled.rate": ("1001", LONG, False),
    "replica.alter.log.dirs.io.max.bytes.per.second": ("1002", LONG, False),
    "some.plugin.setting": ("x", UNKNOWN_TYPE, True),
    "listener.name.short": ("x", UNKNOWN_TYPE, True),
    LISTENER + "max.connections": ("100", INT, False),
}
OF_ONE_BROKER = {
    LISTENER + "ssl.client.auth": ("none", STRING, False),
    LISTENER + "ssl.keystore.password": ("secret", PASSWORD, True),
    LISTENER + "plain.sasl.jaas.config": ("secret", PASSWORD, True),
    LISTENER + "another.plugin.setting": ("x", UNKNOWN_TYPE, True),
}
BEHIND = {
    LISTENER + "max.connections": ("max.connections", "2147483647"),
    LISTENER + "ssl.client.auth": ("ssl.client.auth", "none"),
}


def expected(name: str, sources: Sequence[int], *, with_default: bool) -> Described:
    """How a setting that is not in the table is described."""
    value, kind, hidden = {**OUTSIDE, **OF_ONE_BROKER}[name]
    shown = None if hidden else value
    synonyms: list[tuple[str, str | None, int]] = [(name, shown, source) for source in sources]
    if with_default and name in BEHIND:
        synonyms.append((*BEHIND[name], DEFAULT))
    read_only = name not in broker_settings.DYNAMIC_ONLY
    return shown, sources[0], kind, read_only, hidden, synonyms


def test_settings_outside_the_table_are_described_where_they_were_set(
    own_server: Server,
) -> None:
    """Also after a restart. A value that may be secret is not shown."""
    with WireClient(own_server.bootstrap_servers) as wire:
        own = node_id(wire)
        for name in OUTSIDE | OF_ONE_BROKER:
            assert described(wire, BROKER, own, name) is None
            assert described(wire, BROKER, ALL_BROKERS, name) is None
        for name, (value, _, _) in OUTSIDE.items():
            assert alter(wire, BROKER, ALL_BROKERS, (name, SET, value)) == "NONE"
        for name in OF_ONE_BROKER:
            assert alter(wire, BROKER, ALL_BROKERS, (name, SET, "x")) == "INVALID_REQUEST"
        wait_until(lambda: source_of(wire, own, name_of_last(OUTSIDE)) is not None, "the settings of all brokers")
        for name in OUTSIDE:
            assert described(wire, BROKER, ALL_BROKERS, name) == expected(
                name, [DYNAMIC_DEFAULT_BROKER], with_default=False
            )
            assert described(wire, BROKER, own, name) == expected(name, [DYNAMIC_DEFAULT_BROKER], with_default=True)
        for name, (value, _, _) in (OUTSIDE | OF_ONE_BROKER).items():
            assert alter(wire, BROKER, own, (name, SET, value)) == "NONE"
        wait_until(lambda: source_of(wire, own, name_of_last(OF_ONE_BROKER)) is not None, "the settings of this broker")
        both = {name: [DYNAMIC_BROKER, DYNAMIC_DEFAULT_BROKER] for name in OUTSIDE}
        sources = both | {name: [DYNAMIC_BROKER] for name in OF_ONE_BROKER}
        for name in sources:
            assert described(wire, BROKER, own, name) == expected(name, sources[name], with_default=True)
        assert set(sources) <= {config.name for config in describe(wire, BROKER, own).configs}
        assert set(both) <= {config.name for config in describe(wire, BROKER, ALL_BROKERS).configs}
    own_server.restart()
    with WireClient(own_server.bootstrap_servers) as wire:
        for name in sources:
            assert described(wire, BROKER, own, name) == expected(name, sources[name], with_default=True)
        for scope, names in ((own, sources), (ALL_BROKERS, both)):
            assert alter(wire, BROKER, scope, *((name, DELETE, None) for name in names)) == "NONE"
        wait_until(lambda: source_of(wire, own, name_of_last(OUTSIDE)) is None, "no settings outside the table")
        for name in sources:
            assert described(wire, BROKER, own, name) is None
            assert described(wire, BROKER, ALL_BROKERS, name) is None


def name_of_last(settings: Mapping[str, object]) -> str:
    return list(settings)[-1]


def test_static_settings_of_a_listener_are_described(
    new_server: Callable[..., Any], request: pytest.FixtureRequest
) -> None:
    config = {LISTENER + "max.connections": "7", LISTENER + "ssl.key.password": "s"}
    apache = bool(request.config.getoption("apache"))
    if apache:  # Moldau's test broker refuses unknown names; tests/server/test_unknown_settings.py has the same for it
        config["some.plugin.setting"] = "secret"
    with new_server(config) as server, WireClient(server.bootstrap_servers) as wire:
        own = node_id(wire)
        if apache:
            unknown = [("some.plugin.setting", None, STATIC_BROKER)]
            assert described(wire, BROKER, own, "some.plugin.setting") == (
                (None, STATIC_BROKER, UNKNOWN_TYPE, True, True, unknown)
            )
        name = LISTENER + "max.connections"
        synonyms = [(name, "7", STATIC_BROKER), ("max.connections", "2147483647", DEFAULT)]
        assert described(wire, BROKER, own, name) == ("7", STATIC_BROKER, INT, True, False, synonyms)
        name = LISTENER + "ssl.key.password"
        assert described(wire, BROKER, own, name) == (
            (None, STATIC_BROKER, PASSWORD, True, True, [(name, None, STATIC_BROKER)])
        )


# Numbers and lists

HUGE = "9" * 4301
PADDED = "0" * 5000 + "7"


@pytest.mark.parametrize("value", ["9" * 4300, HUGE, "-" + HUGE, "1" * 32_000, "1_0", "0x10", "+"])
def test_text_that_is_no_number_of_its_type_is_refused(
    wire: WireClient, broker_id: str, topic: str, value: str
) -> None:
    for kind, name, key, error in (
        (TOPIC, topic, "retention.ms", "INVALID_CONFIG"),
        (TOPIC, topic, "segment.bytes", "INVALID_CONFIG"),
        (TOPIC, topic, "compression.gzip.level", "INVALID_CONFIG"),
        (GROUP, topic, "consumer.session.timeout.ms", "INVALID_CONFIG"),
        (BROKER, broker_id, "log.retention.ms", "INVALID_REQUEST"),
        (BROKER, ALL_BROKERS, THROTTLE, "INVALID_REQUEST"),
        (BROKER, broker_id, LISTENER + "max.connections", "INVALID_REQUEST"),
    ):
        refused = answer(wire, kind, name, (key, SET, value), validate_only=True)
        assert ErrorCode(refused.error_code).name == error
        assert refused.error_message.startswith(f"Invalid value {value[:20]}"), refused.error_message[:100]
    assert replace(wire, TOPIC, topic, {"retention.ms": value}, validate_only=True) == "INVALID_CONFIG"
    wanted = CreatableTopic(
        name=f"{topic}-2",
        num_partitions=1,
        replication_factor=1,
        configs=[CreatableTopicConfig(name="retention.ms", value=value)],
    )
    (created,) = wire.call(CreateTopicsRequest(topics=[wanted], validate_only=True), 7).topics
    assert ErrorCode(created.error_code).name == "INVALID_CONFIG"


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("retention.ms", PADDED, "7"),
        ("retention.ms", "+8", "8"),
        ("retention.ms", "\u0663\u0664", "34"),  # Arabic digits
        ("min.cleanable.dirty.ratio", "0x1p-2d", "0.25"),
        ("min.cleanable.dirty.ratio", "." + "1" * 5000, "0.1111111111111111"),
        ("cleanup.policy", "compact,compact", "compact"),
        ("cleanup.policy", " compact,delete , compact", "compact,delete"),
        ("leader.replication.throttled.replicas", "0:1,0:1", "0:1,0:1"),
    ],
)
def test_odd_forms_of_a_value_are_understood(wire: WireClient, topic: str, key: str, text: str, value: str) -> None:
    assert alter(wire, TOPIC, topic, (key, SET, text)) == "NONE"

    def shown() -> str | None:
        found = described(wire, TOPIC, topic, key)
        return None if found is None else found[0]

    wait_until(lambda: shown() == value, f"{key}={value}")


@pytest.mark.parametrize("value", [HUGE, "0x1", "1.5ff", "٣"])
def test_text_that_is_no_double_is_refused(wire: WireClient, topic: str, value: str) -> None:
    assert alter(wire, TOPIC, topic, ("min.cleanable.dirty.ratio", SET, value)) == "INVALID_CONFIG"


@pytest.mark.parametrize("value", ["compact,,delete", "compact,compact,", ",", "compact,x,x"])
def test_lists_that_a_topic_cannot_have(wire: WireClient, topic: str, value: str) -> None:
    assert alter(wire, TOPIC, topic, ("cleanup.policy", SET, value)) == "INVALID_CONFIG"


@pytest.mark.parametrize("added", [",", "delete,", "delete,compact,delete"])
def test_entries_that_are_appended(wire: WireClient, topic: str, added: str) -> None:
    assert alter(wire, TOPIC, topic, ("cleanup.policy", SET, "compact")) == "NONE"
    assert alter(wire, TOPIC, topic, ("cleanup.policy", APPEND, added)) == "NONE"


@pytest.mark.parametrize("added", ["", ",delete", "compact,,delete", "x"])
def test_entries_that_cannot_be_appended(wire: WireClient, topic: str, added: str) -> None:
    assert alter(wire, TOPIC, topic, ("cleanup.policy", SET, "compact")) == "NONE"
    assert alter(wire, TOPIC, topic, ("cleanup.policy", APPEND, added)) == "INVALID_CONFIG"


@pytest.mark.parametrize(
    ("name", "duration", "error"),
    [
        ("padded", "P" + "0" * 5000 + "1D", "NONE"),
        ("longest", "PT9223372036854775807S", "NONE"),
        ("too long", "PT9223372036854775808S", "INVALID_CONFIG"),
        ("huge", "P" + HUGE + "D", "INVALID_CONFIG"),
    ],
)
def test_durations_of_any_length(wire: WireClient, topic: str, name: str, duration: str, error: str) -> None:
    change = ("share.auto.offset.reset", SET, f"by_duration:{duration}")
    assert alter(wire, GROUP, topic, change, validate_only=True) == error


# Resources of every type


@pytest.mark.parametrize("kind", [0, 1, 3, 5, 33, 64, 127])
def test_types_of_resources_without_configs_are_invalid(wire: WireClient, broker_id: str, kind: int) -> None:
    for name in ("", broker_id, "x"):
        assert alter(wire, kind, name, ("a", SET, "b"), validate_only=True) == "INVALID_REQUEST"
        assert replace(wire, kind, name, {"a": "b"}, validate_only=True) == "INVALID_REQUEST"
        assert ErrorCode(describe(wire, kind, name).error_code).name == "INVALID_REQUEST"


@pytest.mark.parametrize(("kind", "type_name"), [(BROKER_LOGGER, "BROKER_LOGGER"), (CLIENT_METRICS, "CLIENT_METRICS")])
def test_types_that_a_server_does_not_support_are_named_and_are_not_the_clients_mistake(
    wire: WireClient, broker_id: str, kind: int, type_name: str
) -> None:
    """Apache Kafka describes these; a server that does not says that it lacks the feature."""
    result = describe(wire, kind, broker_id)
    if result.error_code == 0:
        assert result.configs
        return
    refused = answer(wire, kind, broker_id, ("a", SET, "b"), validate_only=True)
    for code, message in ((result.error_code, result.error_message), (refused.error_code, refused.error_message)):
        assert ErrorCode(code).name == "UNSUPPORTED_VERSION"
        assert type_name in message
    assert replace(wire, kind, broker_id, {"a": "b"}, validate_only=True) == "UNSUPPORTED_VERSION"


def test_groups_have_configs(wire: WireClient, topic: str) -> None:
    assert describe(wire, GROUP, topic).error_code == 0
    assert alter(wire, GROUP, topic, ("a", SET, "b"), validate_only=True) == "INVALID_CONFIG"


@pytest.mark.parametrize("name", ["7777", "x", "٣", "9" * 5000])
def test_another_broker_than_the_one_that_is_asked(wire: WireClient, name: str) -> None:
    assert ErrorCode(describe(wire, BROKER, name).error_code).name == "INVALID_REQUEST"
    assert alter(wire, BROKER, name, ("a", SET, "b"), validate_only=True) == "INVALID_REQUEST"


@pytest.fixture
def topic(make_topic: Callable[..., str]) -> str:
    return make_topic()


if __name__ == "__main__":
    with WireClient(sys.argv[1]) as server_under_test:
        FACTS.write_text(json.dumps(update_answers(server_under_test, node_id(server_under_test)), indent=1) + "\n")
