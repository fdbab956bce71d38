"""The settings of a broker: the whole table, and the rules for changing a running broker's.

The table is written in five parts, one per family (``broker_server``, ``broker_log``, ``broker_groups``,
``broker_security``, ``broker_tiered``); Moldau's own settings, which all begin with ``moldau.``, are here.
"""

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

# These may be changed for one listener only (``listener.name.<listener>.ssl.keystore.location``), not for all.
_ONLY_PER_LISTENER: Final = ("ssl.", "sasl.")


def setting(name: str) -> Setting:
    """The setting called ``name``; KeyError when there is none (a mistake in the code, not of a user)."""
    return SETTINGS[name]


def is_known(name: str) -> bool:
    """Whether a static configuration may mention ``name``."""
    return name in SETTINGS or name.startswith(KNOWN_PREFIXES)


def synonyms(name: str) -> tuple[str, ...]:
    """The settings that say the same as ``name`` in other units, and itself, in the order in which they count."""
    return _SYNONYMS.get(name, (name,))


def validate_dynamic_configs(configs: Mapping[str, str], *, per_broker: bool) -> None:
    """Raise ConfigError unless these can be set on a running broker, or with ``per_broker=False`` on all of them.

    Names that no table knows are let through, as Kafka does: a plugin may know them.
    """
    known = {name: SETTINGS.get(name) or DYNAMIC_ONLY.get(name) for name in configs}
    fixed = [name for name, entry in known.items() if entry is not None and entry.update_mode is READ_ONLY]
    _refuse(fixed, "Cannot update these configs dynamically")
    unprefixed = [
        name
        for name, entry in known.items()
        if entry is not None and entry.update_mode is PER_BROKER and name.startswith(_ONLY_PER_LISTENER)
    ]
    _refuse(unprefixed, "These security configs can be dynamically updated only with their listener's prefix")
    for name, entry in known.items():
        if entry is not None:
            entry.parse(configs[name])
    if not per_broker:
        own = [name for name, entry in known.items() if entry is not None and entry.update_mode is PER_BROKER]
        _refuse(own, "Cannot update these configs for all brokers, a broker id is needed")


def _refuse(names: Iterable[str], reason: str) -> None:
    listed = ", ".join(sorted(names))
    if listed:
        raise ConfigError(f"{reason}: {listed}")
