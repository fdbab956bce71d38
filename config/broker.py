"""The settings of a broker: the whole table, and the rules for changing a running broker's.

The table is written in five parts, one per family (``broker_server``, ``broker_log``, ``broker_groups``,
``broker_security``, ``broker_tiered``); Moldau's own settings, which all begin with ``moldau.``, are here.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from . import broker_groups, broker_log, broker_security, broker_server, broker_tiered
from .definition import (
    BOOLEAN,
    CLUSTER_WIDE,
    LONG,
    LONG_MAX,
    LOW,
    MEDIUM,
    PER_BROKER,
    READ_ONLY,
    ConfigError,
    Section,
    Setting,
    at_least,
)

# fmt: off
_OWN: Final = Section(
    "Moldau's own",
    Setting(
        "moldau.validate.records", BOOLEAN, False, None, LOW,
        "Whether every record of every batch is decoded and checked before it is stored. Without it a batch is checked "
        "by its header and its checksum, and decoded only where the answer depends on a record.",
        acted_on=True,
    ),
)

# Settings that exist only while the server runs: they cannot be written in a file.
_DYNAMIC_ONLY: Final = (
    Setting(
        "leader.replication.throttled.rate", LONG, LONG_MAX, at_least(0), MEDIUM,
        "Bytes a second that a leader sends to throttled followers.",
        update=CLUSTER_WIDE,
    ),
    Setting(
        "follower.replication.throttled.rate", LONG, LONG_MAX, at_least(0), MEDIUM,
        "Bytes a second that throttled followers copy.",
        update=CLUSTER_WIDE,
    ),
    Setting(
        "replica.alter.log.dirs.io.max.bytes.per.second", LONG, LONG_MAX, at_least(0), MEDIUM,
        "Bytes a second that moving replicas between directories may take.",
        update=CLUSTER_WIDE, acted_on=True,
    ),
)
# fmt: on

SECTIONS: Final[tuple[Section, ...]] = (
    _OWN,
    *broker_server.SECTIONS,
    *broker_log.SECTIONS,
    *broker_groups.SECTIONS,
    *broker_security.SECTIONS,
    *broker_tiered.SECTIONS,
)
SETTINGS: Final[dict[str, Setting]] = {entry.name: entry for section in SECTIONS for entry in section.settings}
DYNAMIC_ONLY: Final[dict[str, Setting]] = {entry.name: entry for entry in _DYNAMIC_ONLY}

# Names under these prefixes belong to a listener or a plugin; they are no spelling mistakes.
KNOWN_PREFIXES: Final = ("listener.name.", "config.providers.", "rlmm.config.", "rsm.config.")

# Settings that say one thing in several units: the first that is set wins.
_UNITS: Final = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
_SYNONYMS: Final = {name: names for names in _UNITS for name in names}

# ``listener.name.<listener>.<setting>`` is a setting for one listener.
_OF_LISTENER: Final = re.compile(r"listener\.name\.[^.]*\.(.*)", re.DOTALL)

# These come with the mechanism as well: ``listener.name.<listener>.<mechanism>.sasl.jaas.config``.
_OF_MECHANISM: Final = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)

# These may be changed for one listener only (``listener.name.<listener>.ssl.keystore.location``), not for all.
_ONLY_PER_LISTENER: Final = frozenset(
    {
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)

# Of the settings for one listener, these may be the same on all brokers.
_OF_LISTENERS_OF_ALL_BROKERS: Final = frozenset(
    {"max.connection.creation.rate", "max.connections", "num.network.threads"}
)


def setting(name: str) -> Setting:
    """The setting called ``name``; KeyError when there is none (a mistake in the code, not of a user)."""
    return SETTINGS[name]


def is_known(name: str) -> bool:
    """Whether a static configuration may mention ``name``."""
    return name in SETTINGS or name.startswith(KNOWN_PREFIXES)


def synonyms(name: str) -> tuple[str, ...]:
    """The settings that say the same as ``name`` in other units, and itself, in the order in which they count."""
    return _SYNONYMS.get(name, (name,))


def base_name(name: str) -> str:
    """The name without the prefix of a listener and of a mechanism."""
    of_listener = _OF_LISTENER.fullmatch(name)
    if of_listener is None:
        return name
    base = of_listener[1]
    return next((setting for setting in _OF_MECHANISM if base.endswith(setting)), base)


def setting_behind(name: str) -> Setting | None:
    """The setting that a name of a static or dynamic configuration stands for, which may be one for a listener."""
    base = base_name(name)
    return SETTINGS.get(base) or DYNAMIC_ONLY.get(base)


def validate_dynamic_configs(configs: Mapping[str, str], *, per_broker: bool) -> None:
    """Raise ConfigError unless these can be set on a running broker, or with ``per_broker=False`` on all of them.

    Names that no table knows are let through, as Kafka does: a plugin may know them. A setting for one listener may be
    one that cannot be changed: Apache Kafka accepts it, and it has no effect.
    """
    behind = {name: setting_behind(name) for name in configs}
    fixed = [
        name for name, entry in behind.items() if entry is not None and name == entry.name and not _can_change(entry)
    ]
    _refuse(fixed, "Cannot update these configs dynamically")
    unprefixed = [name for name in configs if name in _ONLY_PER_LISTENER]
    _refuse(unprefixed, "These security configs can be dynamically updated only with their listener's prefix")
    for name, entry in behind.items():
        if entry is not None and _can_change(entry):
            entry.parse(configs[name])
    if not per_broker:
        own = [name for name, entry in behind.items() if _is_of_one_broker(name, entry)]
        _refuse(own, "Cannot update these configs for all brokers, a broker id is needed")


def _can_change(entry: Setting) -> bool:
    return entry.update_mode is not READ_ONLY


def _is_of_one_broker(name: str, entry: Setting | None) -> bool:
    if _OF_LISTENER.fullmatch(name) is not None:
        return base_name(name) not in _OF_LISTENERS_OF_ALL_BROKERS
    return entry is not None and entry.update_mode is PER_BROKER


def _refuse(names: Iterable[str], reason: str) -> None:
    listed = ", ".join(sorted(names))
    if listed:
        raise ConfigError(f"{reason}: {listed}")
