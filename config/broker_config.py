"""The settings in effect for a broker: dynamic ones over static ones over the defaults of the table.

A ``BrokerConfig`` is immutable. Dynamic settings, which are in the metadata log, result in a new one
(``with_dynamic``), so callers must not store a value for long. Values are parsed once, on first use.

The order of precedence is Kafka's (KIP-226): this broker's dynamic settings, those of all brokers, the static ones
(file < environment < command line, merged by ``sources.py``), the defaults.
"""

import logging
import os
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from . import broker, topic
from .definition import ConfigError, ConfigSource, ConfigValue, format_value, invalid_value
from .integers import bounded_integer
from .typed_access import TypedAccess

logger = logging.getLogger(__name__)

_NONE: Final[Mapping[str, str]] = {}


class Listener(NamedTuple):
    """An address to listen on or to advertise. An empty ``host`` means every interface, ``port`` 0 any free port."""

    name: str
    host: str
    port: int
    security_protocol: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


class StaticValue(NamedTuple):
    """A value given to the server at startup, and its origin: ``file /etc/server.properties``, ``--set``, ..."""

    text: str
    origin: str
    reference: str | None = None
    """The value as it was written, if a part of it comes from a provider (`providers`). It is shown instead of
    the text, which may be a secret."""


Replace = Callable[[str, str], str]
"""The text of a setting, given by its name, with the values of its references (`providers`). Raises ConfigError."""


class BrokerConfig(TypedAccess):
    """A broker's settings; see the module. ``static`` maps names to the values of the sources.

    Besides ``get`` there are ``config.int(name)``, ``config.optional_str(name)`` and so on (``TypedAccess``).
    """

    __slots__ = (
        "_dynamic_broker",
        "_dynamic_default",
        "_new_replacement",
        "_parsed",
        "_topic_defaults",
        "_written_broker",
        "_written_default",
        "static",
    )

    def __init__(
        self,
        static: Mapping[str, StaticValue] | None = None,
        *,
        dynamic_default: Mapping[str, str] = _NONE,
        dynamic_broker: Mapping[str, str] = _NONE,
        new_replacement: Callable[[], Replace | None] = lambda: None,
    ) -> None:
        """``new_replacement`` returns what replaces references in dynamic settings; None: there are no providers. Each
        one reads a file once."""
        self._new_replacement = new_replacement
        self.static = dict(static or {})
        # node.id replaced broker.id; the setting that is given applies to both.
        for given, other in (("node.id", "broker.id"), ("broker.id", "node.id")):
            if given in self.static and other not in self.static:
                self.static[other] = self.static[given]
        # As they are in the metadata log, and with the values of references.
        self._written_default, self._written_broker = dynamic_default, dynamic_broker
        self._dynamic_default, self._dynamic_broker = dynamic_default, dynamic_broker
        self._parsed: dict[str, ConfigValue] = {}
        self._topic_defaults: dict[str, ConfigValue] | None = None

    def with_dynamic(self, *, default: Mapping[str, str], broker_specific: Mapping[str, str]) -> "BrokerConfig":
        """The same static settings with different dynamic ones: those of all brokers, and of this one.

        Settings that cannot be changed on a running broker or cannot be parsed are ignored, as in Kafka. They were
        rejected when they were set, so they can only come from metadata of another version, or have a reference whose
        value has changed. Unknown names are kept: they have no effect, and DescribeConfigs lists them.
        """
        replace = self._new_replacement() if default or broker_specific else None
        config = BrokerConfig(self.static, new_replacement=self._new_replacement)
        config._written_default, config._dynamic_default = _usable(default, replace, per_broker=False)
        config._written_broker, config._dynamic_broker = _usable(broker_specific, replace, per_broker=True)
        return config

    def replaced(self, dynamic: Mapping[str, str]) -> dict[str, str]:
        """Dynamic settings with the values of their references. Raises ConfigError."""
        replace = self._new_replacement()
        return dict(dynamic) if replace is None else {name: replace(name, text) for name, text in dynamic.items()}

    def with_static(self, more: Mapping[str, StaticValue]) -> "BrokerConfig":
        """The same settings with these static settings over the others; for startup, before there are dynamic ones."""
        return BrokerConfig({**self.static, **more}, new_replacement=self._new_replacement)

    def without_static(self, name: str) -> "BrokerConfig":
        """The same settings without this static setting; also for startup."""
        remaining = {key: value for key, value in self.static.items() if key != name}
        return BrokerConfig(remaining, new_replacement=self._new_replacement)

    def get(self, name: str) -> ConfigValue:
        """The parsed value in effect. KeyError for an unknown name, ConfigError for an invalid value."""
        try:
            return self._parsed[name]
        except KeyError:
            pass
        text = self._text(name)
        setting = broker.SETTINGS.get(name) or broker.DYNAMIC_ONLY[name]
        value = self._parsed[name] = setting.default if text is None else setting.parse(text)
        return value

    def for_listener(self, name: str) -> "ListenerConfig":
        """The settings in effect for one listener."""
        return ListenerConfig(self, name)

    def text(self, name: str) -> str | None:
        """The unparsed value in effect, if the name was set; the name need not be in a table."""
        return self._text(name)

    def texts(self, prefixes: tuple[str, ...]) -> dict[str, str]:
        """The unparsed values in effect of all settings whose names begin with one of these prefixes."""
        texts = {name: value.text for name, value in self.static.items()} | {**self._dynamic_default}
        return {name: text for name, text in (texts | {**self._dynamic_broker}).items() if name.startswith(prefixes)}

    def without_values(self, message: str) -> str:
        """See the function of this name: for the dynamic settings."""
        message = without_values(message, self._written_broker, self._dynamic_broker)
        return without_values(message, self._written_default, self._dynamic_default)

    def reference(self, name: str) -> str | None:
        """The value in effect as it was written, if a part of it comes from a provider."""
        for written, texts in (
            (self._written_broker, self._dynamic_broker),
            (self._written_default, self._dynamic_default),
        ):
            if name in written:
                return None if written[name] == texts[name] else written[name]
        return self.static[name].reference if name in self.static else None

    def origin(self, name: str) -> str:
        """The origin of the value in effect, for messages."""
        if name in self._dynamic_broker:
            return "dynamic, this broker"
        if name in self._dynamic_default:
            return "dynamic, all brokers"
        return self.static[name].origin if name in self.static else "default"

    def written(self, source: ConfigSource) -> Mapping[str, str]:
        """The unparsed values of one source; for DEFAULT_CONFIG, the defaults that are not null."""
        if source is ConfigSource.DYNAMIC_BROKER_CONFIG:
            return self._written_broker
        if source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG:
            return self._written_default
        if source is ConfigSource.STATIC_BROKER_CONFIG:
            return {name: value.reference or value.text for name, value in self.static.items()}
        if source is ConfigSource.DEFAULT_CONFIG:
            return _written_defaults()
        return _NONE

    def topic_defaults(self) -> Mapping[str, ConfigValue]:
        """The value of every topic setting for a topic without overrides."""
        if self._topic_defaults is None:
            self._topic_defaults = {
                name: topic.default_from_broker(setting, self) for name, setting in topic.SETTINGS.items()
            }
        return self._topic_defaults

    @property
    def node_id(self) -> int:
        return self.int("node.id")

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """The data directories as given; empty if none are configured."""
        given = self.get("log.dirs") or self.get("log.dir") or ()
        assert isinstance(given, tuple)
        return given

    @property
    def cordoned_log_dirs(self) -> tuple[str, ...]:
        """The absolute paths of data directories that get no new replicas; ``*`` are all."""
        return tuple(path if path == "*" else os.path.abspath(path) for path in self.list("cordoned.log.dirs"))

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """The addresses on which a broker serves clients: ``listeners`` without those of the controller."""
        parsed = self._parse_listeners("listeners")
        return tuple(listener for listener in parsed if listener.name not in self.controller_listener_names)

    @property
    def controller_listeners(self) -> tuple[Listener, ...]:
        """The addresses in ``listeners`` on which a controller serves other brokers."""
        parsed = self._parse_listeners("listeners")
        return tuple(listener for listener in parsed if listener.name in self.controller_listener_names)

    @property
    def roles(self) -> frozenset[str]:
        """``process.roles``."""
        return frozenset(self.list("process.roles"))

    @property
    def has_remote_controllers(self) -> bool:
        """Whether this node is only a broker, and other processes are the controllers."""
        return self.roles == {"broker"}

    @property
    def serves_brokers(self) -> bool:
        """Whether this node is a broker whose controller also serves other brokers, on a listener of its own."""
        return self.roles == {"broker", "controller"} and bool(self.controller_listeners)

    @property
    def has_peers(self) -> bool:
        """Whether this node is a broker beside other ones."""
        return self.has_remote_controllers or self.serves_brokers

    @property
    def controller_listener_names(self) -> frozenset[str]:
        return frozenset(name.upper() for name in self.list("controller.listener.names"))

    @property
    def controller_listener_name(self) -> str:
        """The listener of controllers to which this node connects: the first of ``controller.listener.names``."""
        return next(iter(self.list("controller.listener.names")), "CONTROLLER").upper()

    @property
    def token_secret(self) -> str | None:
        """``delegation.token.secret.key``; None: there are no tokens. So it is with an empty one, as in Apache Kafka:
        everyone can compute the HMACs that result from it."""
        return self.optional_str("delegation.token.secret.key") or None

    @property
    def inter_broker_listener_name(self) -> str:
        """The listener to which other brokers connect.

        Without ``inter.broker.listener.name``, it is the first one with ``security.inter.broker.protocol``.
        """
        name = self.optional_str("inter.broker.listener.name")
        if name is not None:
            return name.upper()
        protocol = self.str("security.inter.broker.protocol")
        return next((each.name for each in self.listeners if each.security_protocol == protocol), protocol)

    @property
    def advertised_listeners(self) -> dict[str, Listener]:
        """The addresses reported to clients, by listener name. Clients of any other listener get the address they used.

        Port 0 stands for the port that the listener is bound to.
        """
        if self.get("advertised.listeners") is None:
            return {}
        return {listener.name: listener for listener in self._parse_listeners("advertised.listeners")}

    @property
    def security_protocols(self) -> dict[str, str]:
        """Security protocol by listener name."""
        name = "listener.security.protocol.map"
        text = self.str(name)
        protocols: dict[str, str] = {}
        for entry in filter(None, (part.strip() for part in text.split(","))):
            listener, colon, protocol = entry.rpartition(":")
            if not colon or not listener:
                raise invalid_value(name, text, "entries are written NAME:PROTOCOL, separated by commas")
            if listener.upper() in protocols:
                raise invalid_value(name, text, f"{listener.upper()} has two entries")
            protocols[listener.upper()] = protocol.upper()
        if self.origin(name) == "default":
            for listener in self.controller_listener_names:
                protocols.setdefault(listener, "PLAINTEXT")
        return protocols

    def _text(self, name: str) -> str | None:
        if name in self._dynamic_broker:
            return self._dynamic_broker[name]
        if name in self._dynamic_default:
            return self._dynamic_default[name]
        return self.static[name].text if name in self.static else None

    def _parse_listeners(self, name: str) -> tuple[Listener, ...]:
        return tuple(_parse_listener(name, entry, self.security_protocols) for entry in self.list(name))


class ListenerConfig(TypedAccess):
    """The settings of one listener: ``listener.name.<listener>.<setting>`` over ``<setting>``."""

    __slots__ = ("_config", "listener_name")

    def __init__(self, config: BrokerConfig, listener_name: str) -> None:
        self._config = config
        self.listener_name = listener_name

    def get(self, name: str) -> ConfigValue:
        """The parsed value in effect. ConfigError for an invalid value."""
        return self._parsed(name) if self.is_own(name) else self._config.get(name)

    def of_mechanism(self, mechanism: str, name: str) -> tuple[str, ConfigValue]:
        """The value for a SASL mechanism on this listener, for the listener, or in general, with the name under which
        it was set. ConfigError for an invalid value."""
        prefix = f"{mechanism.lower()}."
        if self.is_own(prefix + name):
            return self.own_name(prefix + name), self._parsed(name, prefix)
        return self.name_in_effect(name), self.get(name)

    def _parsed(self, name: str, prefix: str = "") -> ConfigValue:
        own = self.own_name(prefix + name)
        try:
            return broker.SETTINGS[name].parse(self._config.text(own) or "")
        except ConfigError as error:
            raise ConfigError(error.message.replace(name, own), own) from None

    def is_own(self, name: str) -> bool:
        """Whether the value was set for this listener."""
        return self._config.text(self.own_name(name)) is not None

    @property
    def is_inter_broker(self) -> bool:
        """Whether other brokers connect to this listener."""
        return self._config.inter_broker_listener_name == self.listener_name.upper()

    def text(self, name: str) -> str | None:
        """The unparsed value of a setting under its full name."""
        return self._config.text(name)

    def texts(self, prefixes: tuple[str, ...]) -> dict[str, str]:
        """See `BrokerConfig.texts`; the prefixes are those of full names."""
        return self._config.texts(prefixes)

    def own_name(self, name: str) -> str:
        """The name of the setting for this listener alone."""
        return f"listener.name.{self.listener_name.lower()}.{name}"

    def name_in_effect(self, name: str) -> str:
        """The name under which the value in effect was set, for messages."""
        return self.own_name(name) if self.is_own(name) else name


def without_values(message: str, written: Mapping[str, str], values: Mapping[str, str]) -> str:
    """An error message in which the values of references are the references again: they may be secrets.

    ``written`` are the settings with the references, ``values`` the same settings with the values.
    """
    for name, value in values.items():
        if value and value != written[name]:
            message = message.replace(value, written[name])
    return message


def _usable(
    dynamic: Mapping[str, str], replace: Replace | None, *, per_broker: bool
) -> tuple[dict[str, str], dict[str, str]]:
    """The settings that can be used, as they were written, and with the values of their references."""
    written, usable = {}, {}
    for name, text in dynamic.items():
        value = text
        try:
            if replace is not None:
                value = replace(name, text)
            broker.validate_dynamic_configs({name: value}, per_broker=per_broker)
        except ConfigError as error:
            if replace is not None:
                reason = without_values(error.message, {name: text}, {name: value})
                logger.warning("The dynamic setting %s is ignored: %s", name, reason)
            continue
        written[name], usable[name] = text, value
    return written, usable


def _parse_listener(setting: str, entry: str, protocols: Mapping[str, str]) -> Listener:
    name, separator, address = entry.partition("://")
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise invalid_value(setting, entry, "an IPv6 address is written in brackets, NAME://[address]:port")
    number = bounded_integer(port, 65_535)
    if not name or not separator or not colon or number is None:
        raise invalid_value(setting, entry, "a listener is written NAME://host:port, the port from 0 to 65535")
    name = name.upper()
    if name not in protocols:
        raise invalid_value(setting, entry, f"listener.security.protocol.map has no protocol for {name}")
    return Listener(name, host, number, protocols[name])


_defaults: dict[str, str] = {}


def _written_defaults() -> Mapping[str, str]:
    if not _defaults:
        for name, setting in broker.SETTINGS.items():
            text = format_value(setting.default)
            if text is not None:
                _defaults[name] = text
    return _defaults
