"""Configs of brokers: static ones, dynamic ones of one broker and of all brokers, and those of listeners (KIP-226)."""

from __future__ import annotations

from typing import Any

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from .. import configs as k
from ..case import Layer, Level, case, needs, versions_of
from ..check import Check
from .configs_describe import new_topic

DESCRIBE = needs(ApiKey.DESCRIBE_CONFIGS, 4)
ALTER = needs(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, ApiKey.ALTER_CONFIGS, 2, ApiKey.DESCRIBE_CONFIGS, 4)
ALL = k.Resource(k.BROKER, k.ALL_BROKERS)
LISTENER = "listener.name.other."


def of_broker(c: Check, *keys: str) -> dict[str, Any]:
    result = k.describe(c, k.this_broker(c), keys)
    c.error(result.error_code, ErrorCode.NONE, "DescribeConfigs error_code")
    return {each.name: each for each in result.configs}


@case(
    "configs.broker.exchange",
    "a broker describes its own configs",
    source="KIP-133 and KIP-226",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DESCRIBE_CONFIGS),
)
def exchange(c: Check, version: int) -> None:
    """Sends: DescribeConfigs of the broker at the address, for `node.id`, `log.segment.bytes` and a password.

    Expects: exactly these. `node.id` is the node ID of Metadata and read-only; `log.segment.bytes` is a number that can
    be changed; the password is sensitive and its value null. Since version 3: the types INT and PASSWORD.

    Why: tools find out with which settings a broker runs, and must never be able to read its secrets.
    """
    names = ["log.segment.bytes", "node.id", "ssl.keystore.password"]
    result = k.describe(c, k.this_broker(c), names, version=version)
    c.error(result.error_code, ErrorCode.NONE)
    c.equal(sorted(each.name for each in result.configs), names, "configs (names)")
    segment, node, password = sorted(result.configs, key=lambda each: str(each.name))
    c.equal(node.value, str(c.target.node_id), "value of node.id")
    c.equal((node.read_only, node.is_sensitive), (True, False), "node.id (read_only, is_sensitive)")
    c.true(
        node.config_source in (k.STATIC_BROKER, k.DEFAULT), "config_source of node.id", expected="4 or 5", actual=node
    )
    c.equal((segment.read_only, segment.is_sensitive), (False, False), "log.segment.bytes (read_only, is_sensitive)")
    c.true(int(segment.value) > 0, "value of log.segment.bytes", expected="a positive number", actual=segment.value)
    c.equal((password.value, password.is_sensitive), (None, True), "ssl.keystore.password (value, is_sensitive)")
    if version >= 3:
        found = (segment.config_type, node.config_type, password.config_type)
        c.equal(found, (k.INT, k.INT, k.PASSWORD), "config_type of log.segment.bytes, node.id, ssl.keystore.password")


@case(
    "configs.broker.other",
    "a broker does not describe other brokers",
    source="KIP-226",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DESCRIBE_CONFIGS),
    variants={"unknown": ("2000000000",), "word": ("x",), "arabic-digit": ("\u0663",), "long": ("9" * 5_000,)},
)
def other_broker(c: Check, version: int, name: str) -> None:
    """Sends: DescribeConfigs of a broker with a name that is not the node ID of the broker at the address.

    Expects: INVALID_REQUEST with a message, and no configs.

    Why: brokers have different settings, so a client must send the request to the right one.
    """
    result = k.describe(c, k.Resource(k.BROKER, name), version=version)
    c.error(result.error_code, ErrorCode.INVALID_REQUEST)
    c.true(result.error_message, "error_message", expected="a message", actual=result.error_message)
    c.equal(result.configs, [], "configs")


# Type, and whether it is read-only.
KINDS = {
    "auto.create.topics.enable": (k.BOOLEAN, True),
    "broker.rack": (k.STRING, True),
    "compression.type": (k.STRING, False),
    "group.initial.rebalance.delay.ms": (k.INT, True),
    "log.cleaner.min.cleanable.ratio": (k.DOUBLE, False),
    "log.cleaner.threads": (k.INT, False),
    "log.cleanup.policy": (k.LIST, False),
    "log.retention.bytes": (k.LONG, False),
    "log.retention.hours": (k.INT, True),
    "log.retention.ms": (k.LONG, False),
    "message.max.bytes": (k.INT, False),
    "num.io.threads": (k.INT, False),
    "num.partitions": (k.INT, True),
    "offsets.topic.compression.codec": (k.INT, True),
    "process.roles": (k.LIST, True),
    "sasl.jaas.config": (k.PASSWORD, False),
    "socket.request.max.bytes": (k.INT, True),
    "ssl.key.password": (k.PASSWORD, False),
    "ssl.keystore.location": (k.STRING, False),
    "unclean.leader.election.enable": (k.BOOLEAN, False),
}


@case(
    "configs.broker.types",
    "configs of brokers have their types, and those that cannot be changed are read-only",
    source="KIP-226 and KIP-569",
    needs=DESCRIBE,
)
def types(c: Check) -> None:
    """Sends: DescribeConfigs of 20 configs of the broker at the address.

    Expects: all of them, with the type and `read_only` of Apache Kafka; those of the type PASSWORD are sensitive.

    Why: tools offer only those configs for a change that can be changed without a restart.
    """
    found = of_broker(c, *KINDS)
    c.equal(sorted(found), sorted(KINDS), "configs (names)")
    for name, (kind, read_only) in KINDS.items():
        config = found[name]
        c.equal(config.config_type, kind, f"config_type of {name}")
        c.equal(config.read_only, read_only, f"read_only of {name}")
        c.equal(config.is_sensitive, kind == k.PASSWORD, f"is_sensitive of {name}")


@case(
    "configs.broker.all",
    "the defaults of all brokers are only what has been set for them",
    source="KIP-226",
    needs=DESCRIBE,
)
def all_brokers(c: Check) -> None:
    """Sends: DescribeConfigs of brokers with an empty name.

    Expects: no error; every config has the source 3 (default of all brokers).

    Why: a tool shows what was set dynamically for the cluster, as opposed to what each broker has in its file.
    """
    result = k.describe(c, ALL)
    c.error(result.error_code, ErrorCode.NONE)
    sources = {each.name: each.config_source for each in result.configs}
    c.equal({*sources.values()} - {k.DYNAMIC_DEFAULT_BROKER}, set(), "config_source of the configs other than 3")


@case(
    "configs.broker.precedence",
    "a topic inherits from its broker, the broker from all brokers",
    source="KIP-226",
    needs=ALTER,
    alters_configs=True,
    exclusive=True,
)
def precedence(c: Check) -> None:
    """Sends: IncrementalAlterConfigs of `log.index.interval.bytes` for all brokers, then for the broker at the address,
    then DELETE of both; DescribeConfigs of the broker and of a topic in between.

    Expects: first the value of all brokers with source 3, then that of the broker with source 2, each time also as
    `index.interval.bytes` of the topic; the synonyms in this order; at the end neither.

    Why: operators change a setting of the whole cluster without a restart, and of one broker to try it.
    """
    key = "log.index.interval.bytes"
    broker = k.this_broker(c)
    topic = new_topic(c)
    with k.restored(c, ALL, key), k.restored(c, broker, key):
        with c.setup("removing the present values"):
            c.error(k.alter(c, broker, (key, k.DELETE, None)).error_code, ErrorCode.NONE)
        c.error(k.alter(c, ALL, (key, k.SET, "5001")).error_code, ErrorCode.NONE, "error_code for all brokers")
        k.until_value(c, broker, key, ("5001", k.DYNAMIC_DEFAULT_BROKER))
        k.until_value(c, topic, "index.interval.bytes", ("5001", k.DYNAMIC_DEFAULT_BROKER))
        c.equal(k.value(c, ALL, key), ("5001", k.DYNAMIC_DEFAULT_BROKER), f"{key} of all brokers")

        c.error(k.alter(c, broker, (key, k.SET, "6001")).error_code, ErrorCode.NONE, "error_code for the broker")
        k.until_value(c, broker, key, ("6001", k.DYNAMIC_BROKER))
        k.until_value(c, topic, "index.interval.bytes", ("6001", k.DYNAMIC_BROKER))
        expected = [(key, "6001", k.DYNAMIC_BROKER), (key, "5001", k.DYNAMIC_DEFAULT_BROKER)]
        for resource, name in ((broker, key), (topic, "index.interval.bytes")):
            found = k.config(c, resource, name)
            synonyms = [] if found is None else [(each.name, each.value, each.source) for each in found.synonyms]
            c.equal(synonyms[:2], expected, f"first synonyms of {name}")
            c.equal([name for name, _, source in synonyms if source == k.DEFAULT], [key], f"last synonym of {name}")

        c.error(k.alter(c, broker, (key, k.DELETE, None)).error_code, ErrorCode.NONE, "error_code of DELETE")
        k.until_value(c, broker, key, ("5001", k.DYNAMIC_DEFAULT_BROKER))
        c.error(k.alter(c, ALL, (key, k.DELETE, None)).error_code, ErrorCode.NONE, "error_code of DELETE for all")
        k.until_value(c, ALL, key, None)


@case(
    "configs.broker.one",
    "a setting of one broker is changed and deleted",
    source="KIP-226",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.INCREMENTAL_ALTER_CONFIGS),
    needs=DESCRIBE,
    alters_configs=True,
    exclusive=True,
)
def one_broker(c: Check, version: int) -> None:
    """Sends: IncrementalAlterConfigs with SET, then DELETE, of `sasl.login.refresh.buffer.seconds` of the broker.

    Expects: no errors; DescribeConfigs returns the value with source 2, neither read-only nor sensitive; then another
    source.

    Why: security settings without the prefix of a listener are changed for all listeners that have none of their own.
    """
    name = "sasl.login.refresh.buffer.seconds"
    broker = k.this_broker(c)
    with k.restored(c, broker, name):
        result = k.alter(c, broker, (name, k.SET, "5"), version=version)
        c.error(result.error_code, ErrorCode.NONE, "error_code of SET")
        k.until_value(c, broker, name, ("5", k.DYNAMIC_BROKER))
        found = of_broker(c, name)[name]
        c.equal((found.read_only, found.is_sensitive), (False, False), "read_only, is_sensitive")
        result = k.alter(c, broker, (name, k.DELETE, None), version=version)
        c.error(result.error_code, ErrorCode.NONE, "error_code of DELETE")
        c.until(lambda: of_broker(c, name)[name].config_source != k.DYNAMIC_BROKER, "a source other than the broker")


@case(
    "configs.broker.reject",
    "settings that cannot be changed dynamically are rejected",
    source="KIP-226",
    needs=ALTER,
    variants={
        "read-only": ("node.id", "7", True, True),
        "read-only-hours": ("log.retention.hours", "7", True, True),
        "listeners-of-all": ("listeners", "PLAINTEXT://:0", False, True),
        "key-store": ("ssl.keystore.type", "x", True, True),
        "key-password": ("ssl.key.password", "x", True, True),
        "trust-store": ("ssl.truststore.location", "x", True, True),
        "not-a-number": ("log.retention.ms", "x", True, True),
        "not-a-choice": ("compression.type", "rar", True, True),
        "listener-not-a-number": (f"{LISTENER}max.connections", "many", True, True),
        "listener-log-not-a-number": (f"{LISTENER}log.retention.ms", "many", True, True),
    },
)
def reject(c: Check, key: str, value: str, for_one: bool, for_all: bool) -> None:
    """Sends: IncrementalAlterConfigs and AlterConfigs, as dry runs, of a setting that is read-only, or belongs to one
    broker or one listener, or with a wrong value; for the broker at the address and for all brokers.

    Expects: INVALID_REQUEST with a message.

    Why: if the server accepted it, the setting would be stored without effect, or prevent the next start.
    """
    resources = [k.this_broker(c)] * for_one + [ALL] * for_all
    for resource in resources:
        shown = resource.name or "all brokers"
        result = k.alter(c, resource, (key, k.SET, value), validate_only=True)
        c.error(result.error_code, ErrorCode.INVALID_REQUEST, f"IncrementalAlterConfigs error_code of {shown}")
        c.true(result.error_message, "error_message", expected="a message", actual=result.error_message)
        result = k.replace(c, resource, {key: value}, validate_only=True)
        c.error(result.error_code, ErrorCode.INVALID_REQUEST, f"AlterConfigs error_code of {shown}")


@case(
    "configs.broker.accept",
    "settings that can be changed dynamically are accepted",
    source="KIP-226",
    needs=ALTER,
    variants={
        "number": ("log.retention.ms", "3600000", True),
        "ratio": ("log.cleaner.min.cleanable.ratio", "0.6", True),
        "unknown": ("some.plugin.setting", "x", True),
        "client-auth": ("ssl.client.auth", "required", False),
        "key-store-of-listener": (f"{LISTENER}ssl.keystore.type", "x", False),
        "key-password-of-listener": (f"{LISTENER}ssl.key.password", "x", False),
        "trust-store-of-listener": (f"{LISTENER}ssl.truststore.location", "x", False),
        "connections-of-listener": (f"{LISTENER}max.connections", "100", True),
    },
)
def accept(c: Check, key: str, value: str, for_all: bool) -> None:
    """Sends: IncrementalAlterConfigs as a dry run, for the broker at the address, and some settings for all brokers.

    Expects: no error and no message; DescribeConfigs has no such value afterwards.

    Why: these are the settings that operators change while the cluster runs; plug-ins have settings of their own.
    """
    for resource in [k.this_broker(c)] + [ALL] * for_all:
        before = k.value(c, resource, key)
        result = k.alter(c, resource, (key, k.SET, value), validate_only=True)
        c.error(result.error_code, ErrorCode.NONE, f"error_code of {resource.name or 'all brokers'}")
        c.true(not result.error_message, "error_message", expected="none", actual=result.error_message)
        c.equal(k.value(c, resource, key), before, f"{key} after the dry run (value and source)")


@case(
    "configs.broker.logger",
    "loggers of a broker have levels",
    source="KIP-412",
    needs=ALTER,
    level=Level.SHOULD,
)
def logger(c: Check) -> None:
    """Sends: DescribeConfigs and IncrementalAlterConfigs (dry runs) of the broker's loggers: a level that does not
    exist, a logger that does not exist, and DELETE of the root logger.

    Expects: the logger `root` with a level and source 6 (dynamic logger of the broker); INVALID_CONFIG for the changes
    with a message. A server without this type of resource responds UNSUPPORTED_VERSION and names it.

    Why: operators change the levels of loggers while they examine a problem.
    """
    loggers = k.Resource(k.BROKER_LOGGER, str(c.target.node_id))
    result = k.describe(c, loggers)
    if unsupported(c, loggers, result):
        return
    c.error(result.error_code, ErrorCode.NONE)
    found = {each.name: (each.value, each.config_source) for each in result.configs}
    level = found.get("root", ("", 0))
    c.true(
        level[0] in ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL", "OFF") and level[1] == 6,
        "root (value and source)",
        expected="a level, and source 6",
        actual=level,
    )
    for change in (("root", k.SET, "LOUD"), ("no.such.logger", k.SET, "INFO"), ("root", k.DELETE, None)):
        rejected = k.alter(c, loggers, change, validate_only=True)
        expected = ErrorCode.INVALID_REQUEST if change[1] == k.DELETE else ErrorCode.INVALID_CONFIG
        c.error(rejected.error_code, expected, f"error_code of {change}")
        c.true(rejected.error_message, "error_message", expected="a message", actual=rejected.error_message)


def unsupported(c: Check, resource: k.Resource, described: Any) -> bool:
    """Whether the server does not have this type of resource, which it then says of each request."""
    if described.error_code != ErrorCode.UNSUPPORTED_VERSION:
        return False
    altered = k.alter(c, resource, ("a", k.SET, "b"), validate_only=True)
    replaced = k.replace(c, resource, {"a": "b"}, validate_only=True)
    type_name = {k.BROKER_LOGGER: "BROKER_LOGGER", k.CLIENT_METRICS: "CLIENT_METRICS"}[resource.type]
    for result in (described, altered, replaced):
        c.error(result.error_code, ErrorCode.UNSUPPORTED_VERSION)
        c.true(
            type_name in (result.error_message or ""), "error_message", expected=type_name, actual=result.error_message
        )
    c.equal(described.configs, [], "configs")
    return True
