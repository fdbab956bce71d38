"""Whether a server may start with its settings: the checks of single values, and of combinations.

An invalid value prevents startup. So does a setting that Moldau does not support and that would be dangerous to ignore:
an authorizer of another class. A setting that merely has no effect is a warning (``warnings``).
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from . import broker
from .broker_config import BrokerConfig, Listener
from .broker_groups import CONSUMER_ASSIGNORS, consumer_assignor
from .connection_overrides import SETTING as OVERRIDES
from .connection_overrides import parse_overrides
from .definition import ConfigError, abridged, format_value, invalid_value

# Pairs of settings: the first must not exceed the second.
_ORDERED: Final = (
    ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
    ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
    ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
    ("group.share.max.size", "group.share.max.share.sessions"),
    ("group.streams.num.standby.replicas", "group.streams.max.standby.replicas"),
)

# The minimum of `log.cleaner.dedupe.buffer.size` per thread; with less, compaction would need many passes over a log.
_MORE_THAN_BYTES: Final = 1 << 20

_SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_REPLICA_SELECTORS: Final = (
    "org.apache.kafka.common.replica.LeaderSelector",
    "org.apache.kafka.common.replica.RackAwareReplicaSelector",
)

_STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

_CODECS: Final = 5
"""None, gzip, snappy, lz4 and zstd."""

# Group settings with limits: `group.<kind>.<name>` is between `.min.<name>` and `.max.<name>`.
_LIMITED: Final = (
    *(
        (kind, name)
        for kind in ("consumer", "share", "streams")
        for name in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms")
    ),
    ("share", "record.lock.duration.ms"),
    ("share", "delivery.count.limit"),
    ("share", "partition.max.record.locks"),
)


def check_broker_config(config: BrokerConfig) -> None:
    """Raise ConfigError, with a line for each value that prevents startup: key, value, rule and origin."""
    problems = list(_unparsable(config))
    if not problems:
        problems = list(_conflicts(config))
    if problems:
        raise ConfigError("\n".join(_with_origin(config, problem) for problem in problems))


def warnings(config: BrokerConfig) -> list[str]:
    """Given settings without effect: a line for unknown names, one for settings that Moldau does not use yet, one for
    settings of unknown listeners, and one for those of TLS and SASL for a listener without it."""
    of_listeners = {name: listener for name in config.static if (listener := broker.listener_of(name)) is not None}
    existing = _listener_names(config)
    # Not an error unless it protects a listener (`_unknown_listeners`): the listener may be that of another node.
    without_listener = sorted(name for name, listener in of_listeners.items() if listener not in existing)
    misspelled = {name for name in of_listeners if broker.setting_behind(name) is None}
    unknown = sorted(name for name in config.static if name in misspelled or not broker.is_known(name))
    without_effect = sorted(name for name in config.static if _has_no_effect(config, name))
    lines = []
    if unknown:
        lines.append(f"unknown settings, ignored: {', '.join(unknown)}")
    if without_effect:
        lines.append(f"settings that have no effect yet: {', '.join(without_effect)}")
    if without_listener:
        lines.append(f"settings of listeners that do not exist, ignored: {', '.join(without_listener)}")
    protocols = {
        each.name.lower(): each.security_protocol for each in (*config.listeners, *config.controller_listeners)
    }
    unprotected = sorted(
        name
        for name, listener in of_listeners.items()
        if listener in protocols and not _fits_protocol(broker.base_name(name), protocols[listener])
    )
    if unprotected:
        lines.append(f"settings of listeners whose protocol has no TLS or SASL, ignored: {', '.join(unprotected)}")
    return lines


def _fits_protocol(base: str, protocol: str) -> bool:
    """Whether a setting of a listener can have an effect with its security protocol."""
    if base.startswith("ssl."):
        return protocol in ("SSL", "SASL_SSL")
    return not base.startswith("sasl.") or protocol.startswith("SASL_")


def _listener_names(config: BrokerConfig) -> set[str]:
    """The names of all listeners that the settings have, in lower case, as settings of a listener have them."""
    mapped = set(config.security_protocols) - set(_SECURITY_PROTOCOLS)  # by default, each one is mapped to itself
    listening = {listener.name for listener in config.listeners}
    return {name.lower() for name in mapped | listening | config.controller_listener_names}


def _has_no_effect(config: BrokerConfig, name: str) -> bool:
    setting = broker.SETTINGS.get(name)
    if setting is None or setting.acted_on:
        return False
    # Standard configuration files contain many defaults, which need no warning.
    return config.get(name) not in (setting.default, setting.kafka_default)


def cordoned_problem(paths: Sequence[str], config: BrokerConfig) -> str | None:
    """What is wrong with these values of `cordoned.log.dirs`; None: they are all, or some, of the log directories."""
    if "*" in paths:
        return None if len(paths) == 1 else "* means all log directories, so there must be no other value"
    unknown = [path for path in paths if path not in config.log_dirs]
    if unknown and config.log_dirs:
        return f"{', '.join(unknown)} is not in log.dirs ({', '.join(config.log_dirs)})"
    return None


def _with_origin(config: BrokerConfig, problem: ConfigError) -> str:
    given = config.static.get(problem.name or "")
    return str(problem) if given is None else f"{problem} (from {given.origin})"


def _unparsable(config: BrokerConfig) -> Iterator[ConfigError]:
    """Unlike errors to clients, which have Kafka's texts, these errors state the expected values."""
    for name, given in config.static.items():
        if name in broker.SETTINGS:
            try:
                config.get(name)
            except ConfigError as error:
                expected = broker.SETTINGS[name].expected
                if expected is None:
                    yield error
                else:
                    yield ConfigError(f"Invalid value {abridged(given.text)} for {name}: expected {expected}", name)


def _conflicts(config: BrokerConfig) -> Iterator[ConfigError]:
    for low, high in _ORDERED:
        if config.int(low) > config.int(high):
            yield _invalid(config, low, f"Value must be no more than {high} ({config.int(high)})")
    yield from _group_conflicts(config)
    for name in ("offsets.topic.compression.codec", "share.coordinator.state.topic.compression.codec"):
        if config.int(name) not in range(_CODECS):
            yield _invalid(config, name, f"Value must be between 0 and {_CODECS - 1}, the number of a codec")
    problem = cordoned_problem(config.list("cordoned.log.dirs"), config)
    if problem is not None:
        yield _invalid(config, "cordoned.log.dirs", problem)
    threads = max(config.int("log.cleaner.threads"), 1)
    if config.int("log.cleaner.dedupe.buffer.size") // threads <= _MORE_THAN_BYTES:
        rule = f"Value must be more than {_MORE_THAN_BYTES * threads}, which is 1 MB for each of log.cleaner.threads"
        yield _invalid(config, "log.cleaner.dedupe.buffer.size", rule)
    if "broker.id" in config.static and config.int("broker.id") != config.node_id:
        yield _invalid(config, "broker.id", f"node.id is {config.node_id}, but both settings name this node")
    queued, largest = config.int("queued.max.request.bytes"), config.int("socket.request.max.bytes")
    if 0 < queued < largest:
        rule = f"Value must be at least socket.request.max.bytes ({largest}), or -1 for no limit"
        yield _invalid(config, "queued.max.request.bytes", rule)
    if config.optional_str("replica.selector.class") not in (None, "", *_REPLICA_SELECTORS):
        rule = f"Moldau loads no Java classes; supported are {' and '.join(_REPLICA_SELECTORS)}"
        yield _invalid(config, "replica.selector.class", rule)
    yield from _role_conflicts(config)
    yield from _authorizer_conflicts(config)
    yield from _connection_conflicts(config)
    yield from _listener_conflicts(config)


def _connection_conflicts(config: BrokerConfig) -> Iterator[ConfigError]:
    try:
        listeners = config.listeners
    except ConfigError:
        return  # another check reports it
    checks: list[Callable[[], object]] = [lambda: parse_overrides(config.str(OVERRIDES))]
    for name in ("max.connections", "max.connection.creation.rate"):
        checks += [partial(config.for_listener(each.name).int, name) for each in listeners]
    for check in checks:
        try:
            check()
        except ConfigError as error:
            yield error


def _authorizer_conflicts(config: BrokerConfig) -> Iterator[ConfigError]:
    name = config.str("authorizer.class.name")
    if name and name != _STANDARD_AUTHORIZER:
        rule = f"Java classes are not loaded; the authorizer of Moldau is {_STANDARD_AUTHORIZER}"
        yield _invalid(config, "authorizer.class.name", rule)
    everyone = config.text("allow.everyone.if.no.acl.found")
    if everyone is not None and everyone.strip().lower() not in ("true", "false"):
        yield ConfigError("allow.everyone.if.no.acl.found must be true or false", "allow.everyone.if.no.acl.found")
    users = config.text("super.users") or ""
    for user in filter(None, (each.strip() for each in users.split(";"))):
        if ":" not in user:
            rule = "principals are written User:name, separated by semicolons"
            yield ConfigError(f"Invalid value {abridged(users)} for configuration super.users: {rule}", "super.users")
            break
    for setting in ("super.users", "allow.everyone.if.no.acl.found"):
        if not name and config.text(setting) is not None:
            rule = "it has no effect without authorizer.class.name, so every client would have full access"
            yield ConfigError(f"Invalid configuration {setting}: {rule}", setting)


def _role_conflicts(config: BrokerConfig) -> Iterator[ConfigError]:
    voters = {entry.partition("@")[0] for entry in config.list("controller.quorum.voters")}
    if config.roles == {"broker"}:
        if not voters and not config.list("controller.quorum.bootstrap.servers"):
            rule = "a broker without the controller role requires controller.quorum.bootstrap.servers"
            yield _invalid(config, "process.roles", rule)
        if str(config.node_id) in voters:
            rule = f"node {config.node_id} is a voter, so process.roles must include controller"
            yield _invalid(config, "controller.quorum.voters", rule)
    elif len(voters) > 1:
        rule = "Moldau is the only voter of its quorum; the directory of one of several nodes cannot be served"
        yield _invalid(config, "controller.quorum.voters", rule)
    elif config.roles == {"controller"} and voters - {str(config.node_id)}:
        rule = f"the voter must be node {config.node_id}, which is the only controller"
        yield _invalid(config, "controller.quorum.voters", rule)


def _group_conflicts(config: BrokerConfig) -> Iterator[ConfigError]:
    for kind, what in _LIMITED:
        name, low, high = f"group.{kind}.{what}", f"group.{kind}.min.{what}", f"group.{kind}.max.{what}"
        minimum, maximum = config.int(low), config.int(high)
        if not minimum <= config.int(name) <= maximum:
            yield _invalid(config, name, f"Value must be between {low} ({minimum}) and {high} ({maximum})")
    for kind in ("consumer", "share", "streams"):
        heartbeat, session = f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms"
        if config.int(heartbeat) >= config.int(session):
            yield _invalid(config, heartbeat, f"Value must be less than {session} ({config.int(session)})")
    if "classic" not in config.list("group.coordinator.rebalance.protocols"):
        yield _invalid(config, "group.coordinator.rebalance.protocols", "the classic protocol cannot be disabled")
    strange = [name for name in config.list("group.consumer.assignors") if consumer_assignor(name) is None]
    if strange:
        rule = (
            f"unknown assignor {strange[0]}; available: {', '.join(CONSUMER_ASSIGNORS)} (Java classes are not loaded)"
        )
        yield _invalid(config, "group.consumer.assignors", rule)
    if len(config.list("group.share.assignors")) != 1:
        yield _invalid(config, "group.share.assignors", "there must be exactly one")


def _listener_conflicts(config: BrokerConfig) -> Iterator[ConfigError]:
    try:
        listeners, advertised = config.listeners, config.advertised_listeners
        if config.roles == {"controller"} and listeners:
            rule = f"without the broker role, {listeners[0].name} must be one of controller.listener.names"
            yield _invalid(config, "listeners", rule)
        if "controller" in config.roles:
            listeners += config.controller_listeners
    except ConfigError as error:
        yield error
        return
    names = {listener.name for listener in listeners}
    addresses = [(listener.host, listener.port) for listener in listeners if listener.port]
    if not (config.listeners if "broker" in config.roles else listeners):
        peers = "clients" if "broker" in config.roles else "brokers, with one of controller.listener.names"
        yield _invalid(config, "listeners", f"there must be a listener for {peers}")
    if len(names) != len(listeners):
        yield _invalid(config, "listeners", "the names of the listeners must be unique")
    if len(set(addresses)) != len(addresses):
        yield _invalid(config, "listeners", "the addresses of the listeners must be unique")
    yield from _security_conflicts(config, listeners)
    for name, address in advertised.items():
        if name not in names and name not in config.controller_listener_names:
            yield _invalid(config, "advertised.listeners", f"there is no listener {name}")
        if address.host in ("", "0.0.0.0", "::"):
            yield _invalid(config, "advertised.listeners", f"clients cannot connect to {address}, it must name a host")


def _security_conflicts(config: BrokerConfig, listeners: tuple[Listener, ...]) -> Iterator[ConfigError]:
    for listener in listeners:
        protocol = listener.security_protocol
        if protocol not in _SECURITY_PROTOCOLS:
            rule = f"{listener.name} has {protocol}, which is not one of {', '.join(_SECURITY_PROTOCOLS)}"
            yield _invalid(config, "listener.security.protocol.map", rule)
    yield from _override_conflicts(config)
    yield from _unknown_listeners(config)
    if config.has_peers:
        yield from _inter_broker_conflicts(config, {listener.name for listener in config.listeners})
    names = {listener.name for listener in listeners} | config.controller_listener_names
    early = config.get("early.start.listeners")
    for name in early if isinstance(early, tuple) else ():
        if name.upper() not in names:
            rule = f"{name} is neither in listeners nor in controller.listener.names"
            yield _invalid(config, "early.start.listeners", rule)


def _override_conflicts(config: BrokerConfig) -> Iterator[ConfigError]:
    """Settings of a listener that would have no effect, because its name is not in lower case."""
    existing = _listener_names(config)
    for name in config.static:
        listener = broker.listener_of(name)
        if listener is not None and listener not in existing and listener.lower() in existing:
            right = name.replace(listener, listener.lower(), 1)
            rule = f"it has no effect, because names of listeners are in lower case in settings. Write {right}"
            yield ConfigError(f"Invalid configuration {name}: {rule}", name)


def _unknown_listeners(config: BrokerConfig) -> Iterator[ConfigError]:
    """Settings that make a listener stricter, with a name that no listener has. A listener whose name is misspelled
    there would be open by mistake.

    Dynamic settings are not checked: they may be those of a listener that is added later.
    """
    of_listeners = {name: listener for name in config.static if (listener := broker.listener_of(name)) is not None}
    protecting = {name: listener for name, listener in of_listeners.items() if broker.protects_listener(name)}
    if not protecting:
        return
    known = _nameable_listeners(config)
    for name, listener in protecting.items():
        if listener.lower() not in known:
            rule = f"there is no listener {listener}, so it has no effect; the listeners are {', '.join(sorted(known))}"
            if listener.upper() not in _SECURITY_PROTOCOLS:
                rule += f". If another node has it, add {listener.upper()} to listener.security.protocol.map"
            yield ConfigError(f"Invalid configuration {name}: {rule}", name)


def _nameable_listeners(config: BrokerConfig) -> set[str]:
    """The names, in lower case, of the listeners of this node and of those that other nodes may have.

    By default, each protocol is also the name of a listener. It is none if a listener with another name has this
    protocol: then a setting of ``listener.name.ssl`` was meant for that listener.
    """
    names = set(_SECURITY_PROTOCOLS) - {each.security_protocol for each in config.listeners}
    for given in (BrokerConfig(config.static), config):  # a dynamic setting removes no name
        protocols = given.security_protocols
        names |= {name for name, protocol in protocols.items() if name != protocol}
        names |= {each.name for each in (*given.listeners, *given.controller_listeners)}
        names |= given.controller_listener_names | set(given.advertised_listeners)
    inter_broker = config.optional_str("inter.broker.listener.name")
    return {name.lower() for name in (names if inter_broker is None else {*names, inter_broker})}


def _inter_broker_conflicts(config: BrokerConfig, names: set[str]) -> Iterator[ConfigError]:
    """``names``: the listeners for clients, one of which other brokers use."""
    name = "inter.broker.listener.name"
    if config.optional_str(name) is not None and "security.inter.broker.protocol" in config.static:
        rule = "security.inter.broker.protocol is also set, which selects the listener by its protocol; remove one"
        yield _invalid(config, name, rule)
    elif config.inter_broker_listener_name not in names:
        selected_by = name if config.optional_str(name) is not None else "security.inter.broker.protocol"
        rule = f"other brokers connect to the listener {config.inter_broker_listener_name}, which is not in listeners"
        yield _invalid(config, selected_by, rule)


def _invalid(config: BrokerConfig, name: str, rule: str) -> ConfigError:
    return invalid_value(name, format_value(config.get(name)), rule)
