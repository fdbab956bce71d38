"""The building blocks of the settings tables: a ``Setting`` has a name, a type, a default, a range and a description.

Values are text until ``Setting.parse`` converts them. The syntax is that of Kafka's own parser, because both servers
read the same ``server.properties`` and topic configs: blanks around a value are ignored, numbers are any number of
decimal digits within the range of the type, and lists are separated by commas. The error of an invalid value has
Kafka's text, which clients and tools know, since they receive it as the message of INVALID_CONFIG:

    Invalid value abc for configuration segment.bytes: Not a number of type INT
    Invalid value 1 for configuration segment.bytes: Value must be at least 1048576

Java classes (type ``CLASS``) are stored as names; no class is loaded.

Everything in this module is cheap to construct, since some 380 settings are created at every startup.
"""

import re
from abc import ABC, abstractmethod
from enum import Enum, IntEnum
from typing import Final

from .integers import signed_integer

_SHOWN_CHARACTERS: Final = 100

# A parsed value. Lists are tuples, so that values can be shared.
ConfigValue = bool | int | float | str | tuple[str, ...] | None


class ConfigError(Exception):
    """An invalid name or value of a setting; ``str(error)`` is the message to show or to send."""

    def __init__(self, message: str, name: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.name = name


class ConfigType(IntEnum):
    """The type of a value; the numbers are those of DescribeConfigsResponse (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """Where a value comes from; the numbers are those of DescribeConfigsResponse.

    The lowest number has the highest precedence, except for groups and client metrics, whose numbers were added later.
    """

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class UpdateMode(Enum):
    """Whether a broker setting can be changed while the server runs, and for which brokers (KIP-226)."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Importance(Enum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


# Short names for the tables, which are read much more often than this module.
BOOLEAN: Final = ConfigType.BOOLEAN
STRING: Final = ConfigType.STRING
INT: Final = ConfigType.INT
SHORT: Final = ConfigType.SHORT
LONG: Final = ConfigType.LONG
DOUBLE: Final = ConfigType.DOUBLE
LIST: Final = ConfigType.LIST
CLASS: Final = ConfigType.CLASS
PASSWORD: Final = ConfigType.PASSWORD

HIGH: Final = Importance.HIGH
MEDIUM: Final = Importance.MEDIUM
LOW: Final = Importance.LOW

READ_ONLY: Final = UpdateMode.READ_ONLY
PER_BROKER: Final = UpdateMode.PER_BROKER
CLUSTER_WIDE: Final = UpdateMode.CLUSTER_WIDE

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
DOUBLE_MAX: Final = 1.7976931348623157e308

_INTEGER_BITS: Final = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}

# A double in Java's syntax, in which hexadecimal numbers must have an exponent. Compiled when it is first needed, which
# few servers ever do.
_DOUBLE: Final = (
    r"[-+]?(NaN|Infinity"
    r"|((\d+\.?\d*|\.\d+)([eE][-+]?\d+)?"
    r"|0[xX]([0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][-+]?\d+)[fFdD]?)"
)

# The characters that Java's String.trim removes: all up to U+0020, but none of Unicode's other spaces.
_BLANKS: Final = "".join(map(chr, range(33)))


class Validator(ABC):
    """A rule for a parsed value. ``str(validator)`` is the rule as shown in documentation."""

    __slots__ = ()

    @abstractmethod
    def check(self, name: str, value: ConfigValue) -> None:
        """Raise ConfigError when ``value`` breaks the rule."""


class Range(Validator):
    """A number with an inclusive lower bound and an optional inclusive upper bound."""

    __slots__ = ("maximum", "minimum")

    def __init__(self, minimum: float, maximum: float | None) -> None:
        self.minimum = minimum
        self.maximum = maximum

    def check(self, name: str, value: ConfigValue) -> None:
        if value is None:
            raise invalid_value(name, None, "Value must be non-null")
        assert isinstance(value, int | float)
        if value < self.minimum:
            raise invalid_value(name, format_value(value), f"Value must be at least {self.minimum}")
        if self.maximum is not None and value > self.maximum:
            raise invalid_value(name, format_value(value), f"Value must be no more than {self.maximum}")

    def __str__(self) -> str:
        return f"[{self.minimum},...]" if self.maximum is None else f"[{self.minimum},...,{self.maximum}]"


class OneOf(Validator):
    """One of a few words, case-sensitive."""

    __slots__ = ("words",)

    def __init__(self, words: tuple[str, ...]) -> None:
        self.words = words

    def check(self, name: str, value: ConfigValue) -> None:
        if value not in self.words:
            raise invalid_value(name, format_value(value), f"String must be one of: {', '.join(self.words)}")

    def __str__(self) -> str:
        return f"[{', '.join(self.words)}]"


class OneOfAnyCase(OneOf):
    """One of a few words, case-insensitive."""

    __slots__ = ()

    def check(self, name: str, value: ConfigValue) -> None:
        if not isinstance(value, str) or value.upper() not in self.words:
            rule = f"String must be one of (case insensitive): {', '.join(self.words)}"
            raise invalid_value(name, format_value(value), rule)

    def __str__(self) -> str:
        return f"(case insensitive) [{', '.join(self.words)}]"


class NonEmpty(Validator):
    """A string that is null or not empty."""

    __slots__ = ()

    def check(self, name: str, value: ConfigValue) -> None:
        if value == "":
            raise invalid_value(name, "", "String must be non-empty")

    def __str__(self) -> str:
        return "non-empty string"


class NonNull(Validator):
    __slots__ = ()

    def check(self, name: str, value: ConfigValue) -> None:
        if value is None:
            raise invalid_value(name, None, "entry must be non null")

    def __str__(self) -> str:
        return "non-null string"


class ListOf(Validator):
    """A list without empty entries, of given words or of any words.

    Duplicates are dropped before the check (`Setting.parse`), as in Apache Kafka.
    """

    __slots__ = ("empty_allowed", "null_allowed", "words")

    def __init__(self, words: tuple[str, ...], *, empty_allowed: bool, null_allowed: bool) -> None:
        self.words = words
        self.empty_allowed = empty_allowed
        self.null_allowed = null_allowed

    def check(self, name: str, value: ConfigValue) -> None:
        if value is None:
            if self.null_allowed:
                return
            raise ConfigError(f"Configuration '{name}' values must not be null.", name)
        assert isinstance(value, tuple)
        if not value and not self.empty_allowed:
            valid = f"[{', '.join(self.words)}]" if self.words else "any non-empty value"
            raise ConfigError(f"Configuration '{name}' must not be empty. Valid values include: {valid}", name)
        for entry in value:
            if not entry:
                raise ConfigError(f"Configuration '{name}' values must not be empty.", name)
            if self.words and entry not in self.words:
                raise invalid_value(name, entry, f"String must be one of: {', '.join(self.words)}")

    def __str__(self) -> str:
        return f"[{', '.join(self.words)}]" if self.words else ""


class GzipLevel(Validator):
    """gzip's levels, and -1 for the library's own default."""

    __slots__ = ()

    def check(self, name: str, value: ConfigValue) -> None:
        if value is None:
            raise invalid_value(name, None, "Value must be non-null")
        assert isinstance(value, int)
        if value != -1 and not 1 <= value <= 9:
            raise invalid_value(name, str(value), "Value must be between 1 and 9 or equal to -1")

    def __str__(self) -> str:
        return "[1,...,9] or -1"


class ThrottledReplicas(Validator):
    """``*``, or replicas written as ``partition:broker``."""

    __slots__ = ()

    def check(self, name: str, value: ConfigValue) -> None:
        if value is None:
            raise ConfigError(f"Configuration '{name}' values must not be null.", name)
        assert isinstance(value, tuple)
        # Kafka drops an empty last entry before it checks the entries.
        entries = value[:-1] if len(value) > 1 and not value[-1] else value
        if entries != ("*",) and not all(_is_replica(entry) for entry in entries):
            rule = f"{name} must be the literal '*' or a list of replicas in the following format: {self}"
            raise invalid_value(name, f"[{', '.join(value)}]", rule)

    def __str__(self) -> str:
        return "[partitionId]:[brokerId],[partitionId]:[brokerId],..."


class HostsAndPorts(Validator):
    """``host:port``, or ``id@host:port`` for the voters of a quorum."""

    __slots__ = ("with_id",)

    def __init__(self, *, with_id: bool) -> None:
        self.with_id = with_id

    def check(self, name: str, value: ConfigValue) -> None:
        if value is None:
            raise invalid_value(name, None, "entry must be non null")
        assert isinstance(value, tuple)
        form = "{id}@{host}:{port}" if self.with_id else "{host}:{port}"
        for entry in value:
            node_id, at, address = entry.rpartition("@")
            host, colon, port = address.rpartition(":")
            if not host or not colon or not port.isdecimal() or bool(at) != self.with_id:
                raise invalid_value(name, entry, f"Each entry should be in the form {form}")
            if self.with_id and not node_id.isdecimal():
                raise invalid_value(name, entry, f"Each entry should be in the form {form}")

    def __str__(self) -> str:
        return "non-empty list"


def _is_replica(entry: str) -> bool:
    partition, _, broker = entry.partition(":")
    return partition.isdecimal() and broker.isdecimal()


def at_least(minimum: float) -> Range:
    return Range(minimum, None)


def between(minimum: float, maximum: float) -> Range:
    return Range(minimum, maximum)


def one_of(*words: str) -> OneOf:
    return OneOf(words)


def list_of(*words: str, empty_allowed: bool = True, null_allowed: bool = False) -> ListOf:
    return ListOf(words, empty_allowed=empty_allowed, null_allowed=null_allowed)


class _Same:
    """Marks a default that is equal to Kafka's (``None`` is a valid default)."""


_SAME: Final = _Same()


class Setting:
    """The definition of a setting.

    ``default`` is the parsed value; ``kafka_default`` is Apache Kafka's if it differs. ``synonyms`` are the broker
    settings that provide the value of a topic setting without an override. The first one that is set wins, and its
    value is multiplied by the given number (hours to milliseconds). ``acted_on`` states whether the value currently
    changes Moldau's behavior. All other settings are known, checked, stored and described, but have no effect.
    ``internal`` settings are for tests and are not shown.
    """

    __slots__ = (
        "acted_on",
        "default",
        "documentation",
        "importance",
        "internal",
        "kafka_default",
        "name",
        "synonyms",
        "type",
        "update_mode",
        "validator",
    )

    def __init__(
        self,
        name: str,
        type: ConfigType,
        default: ConfigValue,
        validator: Validator | None,
        importance: Importance,
        documentation: str,
        *,
        update: UpdateMode = READ_ONLY,
        acted_on: bool = False,
        internal: bool = False,
        kafka_default: ConfigValue | _Same = _SAME,
        synonyms: tuple[tuple[str, int], ...] = (),
    ) -> None:
        self.name = name
        self.type = type
        self.default = default
        self.validator = validator
        self.importance = importance
        self.documentation = documentation
        self.update_mode = update
        self.acted_on = acted_on
        self.internal = internal
        self.kafka_default: ConfigValue = default if isinstance(kafka_default, _Same) else kafka_default
        self.synonyms = synonyms

    @property
    def is_sensitive(self) -> bool:
        """Whether the value must never be shown, logged or sent."""
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str | None) -> ConfigValue:
        """The value written as ``text`` (``None``: explicitly no value), checked against the range.

        Raises ConfigError with Kafka's text.
        """
        value = None if text is None else parse_value(self.name, self.type, text)
        if isinstance(value, tuple) and isinstance(self.validator, ListOf):
            value = tuple(dict.fromkeys(value))
        if self.validator is not None:
            self.validator.check(self.name, value)
        return value

    @property
    def expected(self) -> str | None:
        """The valid values, for messages; None if only the error of a value can describe them."""
        if self.type is ConfigType.BOOLEAN:
            return "true or false"
        if isinstance(self.validator, OneOf):
            return f"one of {', '.join(self.validator.words)}"
        if isinstance(self.validator, GzipLevel):
            return "a whole number from 1 to 9, or -1"
        if self.validator is not None and not isinstance(self.validator, Range):
            return None
        bits = _INTEGER_BITS.get(self.type)
        if bits is None and self.type is not ConfigType.DOUBLE:
            return None
        noun = "a number" if bits is None else "a whole number"
        if self.validator is None:
            return noun if bits is None else f"{noun} of {bits} bits"
        maximum = self.validator.maximum
        if maximum is None and bits is not None:
            maximum = (1 << (bits - 1)) - 1
        minimum = self.validator.minimum
        return f"{noun} of at least {minimum}" if maximum is None else f"{noun} from {minimum} to {maximum}"

    def __repr__(self) -> str:
        return f"<Setting {self.name} {self.type.name}>"


class Section:
    """A group of related settings, as shown in documentation."""

    __slots__ = ("settings", "title")

    def __init__(self, title: str, *settings: Setting) -> None:
        self.title = title
        self.settings = settings


def parse_value(name: str, type: ConfigType, text: str) -> ConfigValue:
    """``text`` as a value of ``type``, by the rules of Kafka's ConfigDef; raises ConfigError naming the setting."""
    trimmed = text.strip(_BLANKS)
    if type is ConfigType.BOOLEAN:
        word = trimmed.lower()
        if word not in ("true", "false"):
            raise invalid_value(name, text, "Expected value to be either true or false")
        return word == "true"
    if type in _INTEGER_BITS:
        return _parse_integer(name, type, text, trimmed)
    if type is ConfigType.DOUBLE:
        return _parse_double(name, text, trimmed)
    if type is ConfigType.LIST:
        return tuple(entry.strip() for entry in trimmed.split(",")) if trimmed else ()
    return trimmed


def _parse_integer(name: str, type: ConfigType, text: str, trimmed: str) -> int:
    # int() alone would accept "1_000", and blanks after the sign.
    number = signed_integer(trimmed, _INTEGER_BITS[type])
    if number is None:
        raise invalid_value(name, text, f"Not a number of type {type.name}")
    return number


def _parse_double(name: str, text: str, trimmed: str) -> float:
    # float() alone would accept "inf", "nan" and "1_0", and reject Java's suffixes f and d.
    if re.fullmatch(_DOUBLE, trimmed, re.ASCII) is None:
        raise invalid_value(name, text, "Not a number of type DOUBLE")
    if trimmed.endswith(("NaN", "Infinity")):
        return float(trimmed)
    number = trimmed[:-1] if trimmed[-1] in "fFdD" else trimmed  # the exponent of a hexadecimal number is decimal
    try:
        return float.fromhex(number) if "x" in number.lower() else float(number)
    except OverflowError:  # raised by fromhex; float() returns infinity
        return float("-inf" if number.startswith("-") else "inf")


def format_value(value: ConfigValue) -> str | None:
    """A value in Kafka's format for DescribeConfigs; the inverse of parsing. ``None`` stays ``None``."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _format_double(value)
    return ",".join(value)


def _format_double(value: float) -> str:
    """The format of Java's Double.toString: decimal between 1e-3 and 1e7, otherwise with an exponent (1.0E22)."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    for precision in range(17):
        mantissa, _, exponent = f"{value:.{precision}e}".partition("e")
        if float(f"{mantissa}e{exponent}") == value:
            break
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"


def invalid_value(name: str, text: str | None, rule: str) -> ConfigError:
    """The error of an invalid value; it contains the setting, the value and the rule."""
    return ConfigError(
        f"Invalid value {'null' if text is None else abridged(text)} for configuration {name}: {rule}", name
    )


def abridged(text: str) -> str:
    """A value for a message: a very long one is truncated."""
    if len(text) <= _SHOWN_CHARACTERS:
        return text
    return f"{text[:_SHOWN_CHARACTERS]}... ({len(text)} characters)"
