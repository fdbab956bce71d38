"""The settings of a broker: the whole table, and the rules for changing settings of a running broker.

The table is written in five parts, one per family (``broker_server``, ``broker_log``, ``broker_groups``,
``broker_security``, ``broker_tiered``). Moldau's own settings, which begin with ``moldau.``, are here.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from . import broker_groups, broker_log, broker_security, broker_server, broker_tiered
from .definition import (
    BOOLEAN,
    CLUSTER_WIDE,
    INT,
    LONG,
    LONG_MAX,
    LOW,
    MEDIUM,
    PASSWORD,
    PER_BROKER,
    READ_ONLY,
    STRING,
    ConfigError,
    Section,
    Setting,
    at_least,
    one_of,
)

# fmt: off
_OWN: Final = Section(
    "Moldau's own",
    Setting(
        "moldau.validate.records", BOOLEAN, False, None, LOW,
        "Whether every record of every batch is decoded and validated before the batch is stored. Otherwise the header "
        "and the checksum of a batch are validated, and its records are decoded only if the response depends on them.",
        acted_on=True,
    ),
    Setting(
        "moldau.max.replicas", INT, 32767, at_least(1), LOW,
        "The highest number of replicas of a new partition. With 1, partitions cannot be moved to another broker.",
        acted_on=True,
    ),
    Setting(
        "moldau.authentication.timeout.ms", LONG, 10_000, at_least(0), LOW,
        "Time within which a client of a listener with TLS or SASL must authenticate; 0 is unlimited. Apache Kafka "
        "closes such connections after connections.max.idle.ms.",
        acted_on=True,
    ),
    Setting(
        "moldau.allow.unsecured.tokens", BOOLEAN, False, None, LOW,
        "Whether OAUTHBEARER accepts tokens without a signature, with which every client can be any user. For tests.",
        acted_on=True,
    ),
    Setting(
        "moldau.allow.unenforced.acls", BOOLEAN, False, None, LOW,
        "Whether a node without authorizer.class.name starts although the metadata has ACLs, so that every client has "
        "full access.",
        acted_on=True,
    ),
    Setting(
        "moldau.jaas.file", STRING, None, None, LOW,
        "File with JAAS configurations, for listeners without one in the settings: that of -Djava.security.auth.login."
        "config. By default, that in the environment variable KAFKA_OPTS.",
        acted_on=True,
    ),
    Setting(
        "moldau.metrics.listener", STRING, None, None, LOW,
        "HOST:PORT of the HTTP listener of metrics: /metrics for Prometheus, /healthz and /readyz. Not set: none.",
        acted_on=True,
    ),
    Setting(
        "moldau.metrics.otlp.endpoint", STRING, None, None, LOW,
        "URL to which metrics are pushed: OTLP over HTTP, such as http://localhost:4318/v1/metrics. Not set: none. "
        "Needs the extra moldau[otlp].",
        acted_on=True,
    ),
    Setting(
        "moldau.metrics.otlp.ca.file", STRING, None, None, LOW,
        "PEM file with the certificates of the authorities that may issue the certificate of an https receiver. "
        "Not set: the authorities of the system.",
        acted_on=True,
    ),
    Setting(
        "moldau.metrics.otlp.headers", PASSWORD, None, None, LOW,
        "Headers of these requests, such as Authorization=Bearer%20TOKEN: NAME=VALUE separated by commas, with values "
        "that are percent-encoded.",
        acted_on=True,
    ),
    Setting(
        "moldau.metrics.otlp.interval.ms", LONG, 60_000, at_least(1000), LOW,
        "Time between two pushes of metrics.",
        acted_on=True,
    ),
    Setting(
        "moldau.log.level", STRING, "INFO", one_of("DEBUG", "INFO", "WARNING", "ERROR"), LOW,
        "The lowest level of events in the log on standard error.",
        acted_on=True,
    ),
    Setting(
        "moldau.log.format", STRING, "text", one_of("text", "json"), LOW,
        "The format of the log on standard error: lines of text, or one JSON object per line.",
        acted_on=True,
    ),
    Setting(
        "moldau.metrics.max.partitions", INT, 10_000, at_least(0), LOW,
        "The highest number of partitions that have their own metrics. Metrics of topics and totals have no limit.",
        acted_on=True,
    ),
)

# Settings that exist only on a running server: a file cannot contain them.
_DYNAMIC_ONLY: Final = (
    Setting(
        "leader.replication.throttled.rate", LONG, LONG_MAX, at_least(0), MEDIUM,
        "Maximum bytes per second that a leader sends to throttled followers.",
        update=CLUSTER_WIDE, acted_on=True,
    ),
    Setting(
        "follower.replication.throttled.rate", LONG, LONG_MAX, at_least(0), MEDIUM,
        "Maximum bytes per second that throttled followers copy.",
        update=CLUSTER_WIDE, acted_on=True,
    ),
    Setting(
        "replica.alter.log.dirs.io.max.bytes.per.second", LONG, LONG_MAX, at_least(0), MEDIUM,
        "Maximum bytes per second for moves of replicas between directories.",
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

# Settings of Apache Kafka's authorizer, which are in none of its tables, and system properties of its JVM.
_IN_NO_TABLE: Final = frozenset(
    {
        "super.users",
        "allow.everyone.if.no.acl.found",
        "org.apache.kafka.sasl.oauthbearer.allowed.files",
        "org.apache.kafka.sasl.oauthbearer.allowed.urls",
    }
)

# Names with these prefixes belong to a listener or a plugin, so they are not misspelled.
KNOWN_PREFIXES: Final = ("listener.name.", "config.providers.", "rlmm.config.", "rsm.config.")

# Settings with the same meaning in several units: the first one that is set wins.
_UNITS: Final = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
_SYNONYMS: Final = {name: names for names in _UNITS for name in names}

# ``listener.name.<listener>.<setting>`` is a setting for one listener.
_LISTENER_PREFIX: Final = "listener.name."

# These can also have a prefix for a mechanism: ``listener.name.<listener>.<mechanism>.sasl.jaas.config``.
_OF_MECHANISM: Final = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
    "moldau.allow.unsecured.tokens",
    *(name for name in SETTINGS if name.startswith("sasl.oauthbearer.")),
)

# These can only be changed for one listener (``listener.name.<listener>.ssl.keystore.location``), not for all.
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

# These protect a listener, besides those that begin with ``ssl.`` and ``sasl.``.
_OF_PROTECTION: Final = frozenset(
    {"connections.max.reauth.ms", "max.connection.creation.rate", "max.connections", "principal.builder.class"}
)

# Of the settings for one listener, these can be set for all brokers.
_OF_LISTENERS_OF_ALL_BROKERS: Final = frozenset(
    {"max.connection.creation.rate", "max.connections", "num.network.threads"}
)


def setting(name: str) -> Setting:
    """The setting with this name. A KeyError is an error in the code, not of a user."""
    return SETTINGS[name]


def is_known(name: str) -> bool:
    """Whether ``name`` is valid in a static configuration."""
    return name in SETTINGS or name in _IN_NO_TABLE or name.startswith(KNOWN_PREFIXES)


def synonyms(name: str) -> tuple[str, ...]:
    """The settings with the same meaning as ``name`` in other units, and ``name``, in order of precedence."""
    return _SYNONYMS.get(name, (name,))


def base_name(name: str) -> str:
    """The name without the prefixes for a listener and a mechanism."""
    base = _of_listener(name)
    if base is None:
        return name
    return next((setting for setting in _OF_MECHANISM if base.endswith(setting)), base)


def listener_of(name: str) -> str | None:
    """The listener that a setting is for, as it was written; None: the name has no prefix for a listener."""
    if _of_listener(name) is None:
        return None
    return name.removeprefix(_LISTENER_PREFIX).partition(".")[0]


def protects_listener(name: str) -> bool:
    """Whether a setting with the prefix of a listener is one of those without which the listener is more open."""
    base = base_name(name)
    return base.startswith(("ssl.", "sasl.")) or base in _OF_PROTECTION


def _of_listener(name: str) -> str | None:
    """The name without the prefix for a listener; None if it has none."""
    if not name.startswith(_LISTENER_PREFIX):
        return None
    _, dot, base = name.removeprefix(_LISTENER_PREFIX).partition(".")
    return base if dot else None


def setting_behind(name: str) -> Setting | None:
    """The setting of a name in a static or dynamic configuration, which may have a listener prefix."""
    base = base_name(name)
    return SETTINGS.get(base) or DYNAMIC_ONLY.get(base)


def validate_dynamic_configs(configs: Mapping[str, str], *, per_broker: bool) -> None:
    """Raise ConfigError unless these can be set on a running broker, or with ``per_broker=False`` on all brokers.

    Names that are in no table are accepted, as in Kafka, because a plugin may use them. A setting for one listener may
    be one that cannot be changed: Apache Kafka accepts it, and it has no effect. It also accepts a listener in upper
    case, which would have no effect, but could open a listener by mistake.
    """
    behind = {name: setting_behind(name) for name in configs}
    fixed = [
        name for name, entry in behind.items() if entry is not None and name == entry.name and not _can_change(entry)
    ]
    _refuse(fixed, "Cannot update these configs dynamically")
    unprefixed = [name for name in configs if name in _ONLY_PER_LISTENER]
    _refuse(unprefixed, "These security configs can be dynamically updated only with their listener's prefix")
    upper = [name for name in configs if (listener := listener_of(name)) is not None and listener != listener.lower()]
    _refuse(upper, "These configs have no effect, because names of listeners are in lower case in them")
    for name, entry in behind.items():
        if entry is not None and _can_change(entry):
            entry.parse(configs[name])
    if not per_broker:
        own = [name for name, entry in behind.items() if _is_of_one_broker(name, entry)]
        _refuse(own, "Cannot update these configs for all brokers, a broker id is needed")


def _can_change(entry: Setting) -> bool:
    return entry.update_mode is not READ_ONLY


def _is_of_one_broker(name: str, entry: Setting | None) -> bool:
    if _of_listener(name) is not None:
        return base_name(name) not in _OF_LISTENERS_OF_ALL_BROKERS
    return entry is not None and entry.update_mode is PER_BROKER


def _refuse(names: Iterable[str], reason: str) -> None:
    listed = ", ".join(sorted(names))
    if listed:
        raise ConfigError(f"{reason}: {listed}")
