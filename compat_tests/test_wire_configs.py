"""Configs on the wire: which settings of brokers can be changed, and how settings outside the table are described.

The conformance cases `configs` test any server with its settings. These tests need a server with known settings, change
them, restart it, or query each of its several hundred settings.

``broker_config_updates.json`` holds the responses of Apache Kafka 4.3.1 to changes of each setting of the broker's
table: for this broker, for all brokers, and both again with the prefix of a listener. ``--apache`` compares the file
with Apache Kafka; ``python -m moldau.compat_tests.test_wire_configs HOST:PORT`` writes it from a server.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from moldau.config import broker as broker_settings
from moldau.config.definition import ConfigType, Setting, format_value
from moldau.testing.config_requests import (
    ALL_BROKERS,
    BROKER,
    DELETE,
    SET,
    Described,
    alter,
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
EXISTING = "listener.name.plaintext."
CLASSES = {"ssl.engine.factory.class": "org.apache.kafka.common.security.ssl.DefaultSslEngineFactory"}
SAMPLES = {ConfigType.BOOLEAN: "true", ConfigType.INT: "1", ConfigType.LONG: "1"}
# For these, only values that fit the running server are accepted.
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
    """The names of settings, grouped by the responses to their changes: for this broker, for all, and both for one
    listener."""
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
        # AlterConfigs must contain all configs that must not be deleted.
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


def source_of(wire: WireClient, scope: str, name: str) -> int | None:
    found = described(wire, BROKER, scope, name)
    return None if found is None else found[1]


# Descriptions of settings outside the table

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
    """It remains set after a restart. A value that may be secret is not shown."""
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
    config = {EXISTING + "max.connections": "7", EXISTING + "ssl.key.password": "s"}
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
        name = EXISTING + "max.connections"
        synonyms = [(name, "7", STATIC_BROKER), ("max.connections", "2147483647", DEFAULT)]
        assert described(wire, BROKER, own, name) == ("7", STATIC_BROKER, INT, True, False, synonyms)
        name = EXISTING + "ssl.key.password"
        assert described(wire, BROKER, own, name) == (
            (None, STATIC_BROKER, PASSWORD, True, True, [(name, None, STATIC_BROKER)])
        )


if __name__ == "__main__":
    with WireClient(sys.argv[1]) as server_under_test:
        FACTS.write_text(json.dumps(update_answers(server_under_test, node_id(server_under_test)), indent=1) + "\n")
