"""Configs of groups (KIP-848): they come from the broker unless they are set for a group."""

from __future__ import annotations

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from .. import configs as k
from ..case import Layer, Level, Release, case, needs, versions_of
from ..check import Check
from ..configs import Resource
from ..consumer_group import FEATURES
from ..group_configs import (
    ALTER,
    ASSIGNMENT,
    DESCRIBE,
    INTERVAL,
    RESET,
    SESSION,
    SOURCE,
    broker_value,
    described,
    group,
)

OF_BROKERS = {
    SESSION: k.INT,
    INTERVAL: k.INT,
}
"""Configs that brokers have too, with the prefix `group.`, and their types."""
OF_BROKERS_SINCE_4_3 = {
    ASSIGNMENT: k.INT,
    "share.assignment.interval.ms": k.INT,
    "share.delivery.count.limit": k.INT,
    "share.heartbeat.interval.ms": k.INT,
    "share.partition.max.record.locks": k.INT,
    "share.record.lock.duration.ms": k.INT,
    "share.session.timeout.ms": k.INT,
    "streams.assignment.interval.ms": k.INT,
    "streams.heartbeat.interval.ms": k.INT,
    "streams.initial.rebalance.delay.ms": k.INT,
    "streams.num.standby.replicas": k.INT,
    "streams.session.timeout.ms": k.INT,
}
OF_GROUPS = {
    RESET: (k.STRING, "latest"),
    "share.isolation.level": (k.STRING, "read_uncommitted"),
    "share.renew.acknowledge.enable": (k.BOOLEAN, "true"),
}
"""Configs that only groups have, with types and defaults."""


def inherited(c: Check, key: str, type: int) -> None:
    """Compare a config of a group with that of the broker."""
    resource = group(c)
    expected = broker_value(c, f"group.{key}")
    found = described(c, resource, key)
    c.equal(found.value, expected.value, f"the value of {key}, which the broker has as group.{key}")
    c.equal(found.config_source, expected.config_source, "config_source")
    c.equal(found.config_type, type, "config_type")
    c.equal((found.read_only, found.is_sensitive), (False, False), "read_only and is_sensitive")
    synonyms, behind = ([(each.name, each.value, each.source) for each in one.synonyms] for one in (found, expected))
    c.equal(synonyms, behind, "synonyms, which are those of the broker's config")


@case(
    "group-configs.inherited",
    "a group has the broker's values",
    source=SOURCE,
    features=FEATURES,
    needs=DESCRIBE,
    variants={key.replace(".", "-"): (key, type) for key, type in OF_BROKERS.items()},
)
def inherited_always(c: Check, key: str, type: int) -> None:
    """Sends: DescribeConfigs of a group that does not exist, and of the broker.

    Expects: value, source and synonyms of the broker's config with the prefix `group.`; not read-only.

    Why: an operator wants to see what is valid for a group before changing it.
    """
    inherited(c, key, type)


@case(
    "group-configs.inherited",
    "a group has the broker's values",
    source="KIP-848, KIP-932, KIP-1071 and KIP-1240: Group Configurations",
    level=Level.SHOULD,
    features=FEATURES,
    needs=DESCRIBE,
    since=Release(4, 3),
    variants={key.replace(".", "-"): (key, type) for key, type in OF_BROKERS_SINCE_4_3.items()},
)
def inherited_since_4_3(c: Check, key: str, type: int) -> None:
    """Sends: DescribeConfigs of a group that does not exist, and of the broker.

    Expects: value, source and synonyms of the broker's config with the prefix `group.`; not read-only.

    Why: an operator wants to see what is valid for a group before changing it.
    """
    inherited(c, key, type)


@case(
    "group-configs.own",
    "a config that brokers do not have has a default",
    source="KIP-932: Group Configurations",
    level=Level.SHOULD,
    features=FEATURES,
    needs=DESCRIBE,
    since=Release(4, 3),
    variants={key.replace(".", "-"): (key, *rest) for key, rest in OF_GROUPS.items()},
)
def own(c: Check, key: str, type: int, default: str) -> None:
    """Sends: DescribeConfigs of a group that does not exist.

    Expects: the default value with source DEFAULT_CONFIG and one synonym of the same name.

    Why: an operator wants to see what is valid for a group before changing it.
    """
    found = described(c, group(c), key)
    c.equal((found.value, found.config_source, found.config_type), (default, k.DEFAULT, type), "value, source and type")
    synonyms = [(each.name, each.value, each.source) for each in found.synonyms]
    c.equal(synonyms, [(key, default, k.DEFAULT)], "synonyms")


@case(
    "group-configs.describe.names",
    "all configs of a group are described",
    source=SOURCE,
    level=Level.APACHE,
    features=FEATURES,
    needs=DESCRIBE,
    since=Release(4, 3),
)
def names(c: Check) -> None:
    """Sends: DescribeConfigs of a group without names of configs.

    Expects: the 17 configs of Apache Kafka 4.3, and no others.

    Why: user interfaces offer what is described.
    """
    result = k.describe(c, group(c))
    c.error(result.error_code, ErrorCode.NONE)
    expected = sorted([*OF_BROKERS, *OF_BROKERS_SINCE_4_3, *OF_GROUPS])
    c.equal(sorted(each.name for each in result.configs), expected, "configs (name)")


@case(
    "group-configs.describe.exchange",
    "DescribeConfigs describes a group in each version",
    source="KIP-226, KIP-569 and KIP-848",
    layer=Layer.WIRE,
    features=FEATURES,
    needs=needs(ApiKey.DESCRIBE_CONFIGS, 4),
    versions=versions_of(ApiKey.DESCRIBE_CONFIGS, 1),
)
def describe_exchange(c: Check, version: int) -> None:
    """Sends: DescribeConfigs of a group for two names, one of which does not exist; with and without synonyms.

    Expects: only the config that exists, with value and source; synonyms only if they are requested; since version 3
    its type, and documentation if it is requested.

    Why: tools request single configs by their names.
    """
    resource = group(c)
    expected = broker_value(c, f"group.{SESSION}")
    for synonyms in (False, True):
        result = k.describe(
            c, resource, [SESSION, "no.such.config"], version=version, synonyms=synonyms, documentation=True
        )
        c.error(result.error_code, ErrorCode.NONE)
        c.equal([each.name for each in result.configs], [SESSION], "configs (name)")
        found = result.configs[0]
        c.equal((found.value, found.config_source), (expected.value, expected.config_source), "value and config_source")
        c.equal(bool(found.synonyms), synonyms, "whether there are synonyms")
        if version >= 3:
            c.equal(found.config_type, k.INT, "config_type")
            c.true(found.documentation, "documentation", expected="a text", actual=found.documentation)


@case(
    "group-configs.describe.no-name",
    "the configs of all groups cannot be described or changed",
    source=SOURCE,
    features=FEATURES,
    needs=ALTER,
    alters_configs=True,
)
def no_name(c: Check) -> None:
    """Sends: DescribeConfigs and IncrementalAlterConfigs of the group with the empty name.

    Expects: INVALID_REQUEST for both.

    Why: defaults for all groups are the broker's configs; a group without a name does not exist.
    """
    resource = Resource(k.GROUP, "")
    c.error(k.describe(c, resource).error_code, ErrorCode.INVALID_REQUEST, "DescribeConfigs error_code")
    answer = k.alter(c, resource, (SESSION, k.SET, broker_value(c, f"group.{SESSION}").value))
    c.error(answer.error_code, ErrorCode.INVALID_REQUEST, "IncrementalAlterConfigs error_code")
