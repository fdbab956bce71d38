"""What is in force for a broker: its static settings, the dynamic ones over them, the table's defaults under them.

A ``BrokerConfig`` does not change. Dynamic settings, which the metadata log holds, make a new one (``with_dynamic``);
whoever keeps a value for long has to ask again then. Values are parsed when asked for, once.

The order in which sources count is Kafka's (KIP-226): this broker's dynamic settings, those of all brokers, the static
ones (file < environment < command line, merged before they come here), the defaults.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from . import broker, topic
from .definition import ConfigError, ConfigSource, ConfigValue, format_value, invalid_value
from .integers import bounded_integer
from .typed_access import TypedAccess

_NONE: Final[Mapping[str, str]] = {}


class Listener(NamedTuple):
    """An address to listen on or to advertise. An empty ``host`` is every interface, ``port`` 0 any free port."""

    name: str
    host: str
    port: int
    security_protocol: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


class StaticValue(NamedTuple):
    """A value given to the server at its start, and by what: ``file /etc/server.properties``, ``--set``, ..."""

    text: str
    origin: str


class BrokerConfig(TypedAccess):
    """A broker's settings; see the module. ``static`` maps names to what the sources said.

    Besides ``get`` there are ``config.int(name)``, ``config.optional_str(name)`` and so on (``TypedAccess``).
    """

    __slots__ = ("_dynamic_broker", "_dynamic_default", "_parsed", "_topic_defaults", "static")

    def __init__(
        self,
        static: Mapping[str, StaticValue] | None = None,
        *,
        dynamic_default: Mapping[str, str] = _NONE,
        dynamic_broker: Mapping[str, str] = _NONE,
    ) -> None:
        self.static = dict(static or {})
        # node.id was called broker.id; whichever is given stands for both.
        for given, other in (("node.id", "broker.id"), ("broker.id", "node.id")):
            if given in self.static and other not in self.static:
                self.static[other] = self.static[given]
        self._dynamic_default = dynamic_default
        self._dynamic_broker = dynamic_broker
        self._parsed: dict[str, ConfigValue] = {}
        self._topic_defaults: dict[str, ConfigValue] | None = None

    def with_dynamic(self, *, default: Mapping[str, str], broker_specific: Mapping[str, str]) -> "BrokerConfig":
        """The same static settings under other dynamic ones: those of all brokers, and of this one.

        What cannot be changed on a running broker, or does not parse, is left out, as Kafka leaves it out: it was
        refused when it was set, so it can only come from another version's metadata. Unknown names stay: they have no
        effect, and DescribeConfigs names them.
        """
        return BrokerConfig(
            self.static,
            dynamic_default=_usable(default, per_broker=False),
            dynamic_broker=_usable(broker_specific, per_broker=True),
        )

    def with_static(self, more: Mapping[str, StaticValue]) -> "BrokerConfig":
        """The same with these static settings over the others; for a start, before there are dynamic ones."""
        return BrokerConfig({**self.static, **more})

    def without_static(self, name: str) -> "BrokerConfig":
        """The same without this static setting; for a start, too."""
        return BrokerConfig({key: value for key, value in self.static.items() if key != name})

    def get(self, name: str) -> ConfigValue:
        """The parsed value in force. KeyError for a name the table does not have, ConfigError for a bad value."""
        try:
            return self._parsed[name]
        except KeyError:
            pass
        text = self._text(name)
        setting = broker.SETTINGS.get(name) or broker.DYNAMIC_ONLY[name]
        value = self._parsed[name] = setting.default if text is None else setting.parse(text)
        return value

    def origin(self, name: str) -> str:
        """Where the value in force comes from, for people."""
        if name in self._dynamic_broker:
            return "dynamic, this broker"
        if name in self._dynamic_default:
            return "dynamic, all brokers"
        return self.static[name].origin if name in self.static else "default"

    def written(self, source: ConfigSource) -> Mapping[str, str]:
        """The values of one source as they were written; of DEFAULT_CONFIG, the defaults that are not null."""
        if source is ConfigSource.DYNAMIC_BROKER_CONFIG:
            return self._dynamic_broker
        if source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG:
            return self._dynamic_default
        if source is ConfigSource.STATIC_BROKER_CONFIG:
            return {name: value.text for name, value in self.static.items()}
        if source is ConfigSource.DEFAULT_CONFIG:
            return _written_defaults()
        return _NONE

    def topic_defaults(self) -> Mapping[str, ConfigValue]:
        """What every topic setting is for a topic that overrides none."""
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
        """The data directories as given; empty when none is configured."""
        given = self.get("log.dirs") or self.get("log.dir") or ()
        assert isinstance(given, tuple)
        return given

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """The addresses to listen on: ``listeners`` without those that only a separate controller would serve."""
        parsed = self._parse_listeners("listeners")
        return tuple(listener for listener in parsed if listener.name not in self.controller_listener_names)

    @property
    def controller_listener_names(self) -> frozenset[str]:
        return frozenset(name.upper() for name in self.list("controller.listener.names"))

    @property
    def advertised_listeners(self) -> dict[str, Listener]:
        """What to tell clients, by listener name; a listener that is missing here advertises what they connected to.

        Port 0 stands for the port that the listener got.
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
                raise invalid_value(name, text, "entries are written NAME:PROTOCOL, with commas between")
            protocols[listener.upper()] = protocol.upper()
        return protocols

    def _text(self, name: str) -> str | None:
        if name in self._dynamic_broker:
            return self._dynamic_broker[name]
        if name in self._dynamic_default:
            return self._dynamic_default[name]
        return self.static[name].text if name in self.static else None

    def _parse_listeners(self, name: str) -> tuple[Listener, ...]:
        return tuple(_parse_listener(name, entry, self.security_protocols) for entry in self.list(name))


def _usable(dynamic: Mapping[str, str], *, per_broker: bool) -> dict[str, str]:
    usable = {}
    for name, text in dynamic.items():
        try:
            broker.validate_dynamic_configs({name: text}, per_broker=per_broker)
        except ConfigError:
            continue
        usable[name] = text
    return usable


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
