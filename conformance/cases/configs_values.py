"""Values of configs: how the text of numbers and lists is understood."""

from __future__ import annotations

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from .. import configs as k
from .. import topic_admin as t
from ..case import Level, Release, case, needs
from ..check import Check
from .configs_describe import new_topic

ALTER = needs(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, ApiKey.DESCRIBE_CONFIGS, 4)
NOT_NUMBERS = {
    "word": ("soon",),
    "empty": ("",),
    "plus": ("+",),
    "underscore": ("1_0",),
    "hexadecimal": ("0x10",),
    "fraction": ("1.0",),
    "too-large": ("9" * 20,),
    "4300-digits": ("9" * 4_300,),
    "4301-digits": ("9" * 4_301,),
    "4301-digits-negative": ("-" + "9" * 4_301,),
    "32000-digits": ("1" * 32_000,),
}


@case(
    "configs.value.not-a-number",
    "text that is no number of its type is rejected",
    source="KIP-339",
    needs=(*ALTER, *needs(ApiKey.ALTER_CONFIGS, 2, ApiKey.CREATE_TOPICS, 7)),
    variants=NOT_NUMBERS,
)
def not_a_number(c: Check, text: str) -> None:
    """Sends: a text that is no number, or has many thousand digits, as `retention.ms` (64 bits), `segment.bytes` (32
    bits) and `compression.gzip.level` of a topic, and as settings of a broker, of its listener and of all brokers; with
    each API.

    Expects: INVALID_CONFIG for the topic, INVALID_REQUEST for brokers, with a message.

    Why: limits of a server's language must not decide which numbers it accepts, nor may they be an internal error.
    """
    topic = new_topic(c)
    broker = k.this_broker(c)
    for resource, key, expected in (
        (topic, "retention.ms", ErrorCode.INVALID_CONFIG),
        (topic, "segment.bytes", ErrorCode.INVALID_CONFIG),
        (topic, "compression.gzip.level", ErrorCode.INVALID_CONFIG),
        (broker, "log.retention.ms", ErrorCode.INVALID_REQUEST),
        (broker, "listener.name.other.max.connections", ErrorCode.INVALID_REQUEST),
        (k.Resource(k.BROKER, k.ALL_BROKERS), "leader.replication.throttled.rate", ErrorCode.INVALID_REQUEST),
    ):
        result = k.alter(c, resource, (key, k.SET, text), validate_only=True)
        c.error(result.error_code, expected, f"IncrementalAlterConfigs error_code with {key}")
        c.true(result.error_message, "error_message", expected="a message", actual=result.error_message)
    result = k.replace(c, topic, {"retention.ms": text}, validate_only=True)
    c.error(result.error_code, ErrorCode.INVALID_CONFIG, "AlterConfigs error_code")
    name = c.topic_name("other")
    created = t.create(c, t.creatable(name, configs={"retention.ms": text}), validate_only=True)[name]
    c.error(created.error_code, ErrorCode.INVALID_CONFIG, "CreateTopics error_code")


@case(
    "configs.value.unusual",
    "unusual forms of a value are understood",
    source="Documentation: Configuration",
    needs=ALTER,
    level=Level.APACHE,
    variants={
        "zeros": ("retention.ms", "0" * 5_000 + "7", "7"),
        "sign": ("retention.ms", "+8", "8"),
        "arabic-digits": ("retention.ms", "\u0663\u0664", "34"),
        "spaces": ("retention.ms", " 9 ", "9"),
        "hexadecimal-ratio": ("min.cleanable.dirty.ratio", "0x1p-2d", "0.25"),
        "long-ratio": ("min.cleanable.dirty.ratio", "." + "1" * 5_000, "0.1111111111111111"),
        "boolean-in-capitals": ("preallocate", "TRUE", "true"),
        "list-with-spaces": ("cleanup.policy", " compact , delete ", "compact,delete"),
        "replicas-twice": ("leader.replication.throttled.replicas", "0:1,0:1", "0:1,0:1"),
    },
)
def unusual(c: Check, key: str, text: str, value: str) -> None:
    """Sends: IncrementalAlterConfigs with a value in a form that Java's parsers accept, such as a number with a sign.

    Expects: no error; DescribeConfigs returns the value in its usual form.

    Why: configs of existing clusters and tools have these forms.
    """
    resource = new_topic(c)
    result = k.alter(c, resource, (key, k.SET, text))
    c.error(result.error_code, ErrorCode.NONE)
    k.until_value(c, resource, key, (value, k.DYNAMIC_TOPIC))


@case(
    "configs.value.list-duplicates",
    "entries that occur twice in a list are kept once",
    source="KIP-1161",
    needs=ALTER,
    level=Level.APACHE,
    since=Release(4, 2),
    variants={
        "two": ("compact,compact", "compact"),
        "three": (" compact,delete , compact", "compact,delete"),
    },
)
def list_duplicates(c: Check, text: str, value: str) -> None:
    """Sends: IncrementalAlterConfigs with a `cleanup.policy` that has an entry twice.

    Expects: no error; DescribeConfigs returns the entry once.

    Why: configs of existing clusters have such lists, and tools compare them with what they have set.
    """
    unusual(c, "cleanup.policy", text, value)


@case(
    "configs.value.not-a-ratio",
    "text that is no floating-point number of its range is rejected",
    source="KIP-339",
    needs=ALTER,
    variants={
        "large": ("9" * 4_301,),
        "above-1": ("1.01",),
        "negative": ("-0.1",),
        "hexadecimal-integer": ("0x1",),
        "suffix-twice": ("1.5ff",),
        "arabic-digit": ("\u0663",),
    },
)
def not_a_ratio(c: Check, text: str) -> None:
    """Sends: IncrementalAlterConfigs with a `min.cleanable.dirty.ratio` that is no number from 0 to 1.

    Expects: INVALID_CONFIG with a message; the config is unchanged.

    Why: the ratio decides when a log is compacted, which a wrong value would prevent.
    """
    resource = new_topic(c, min_cleanable_dirty_ratio="0.5")
    result = k.alter(c, resource, ("min.cleanable.dirty.ratio", k.SET, text))
    c.error(result.error_code, ErrorCode.INVALID_CONFIG)
    c.true(result.error_message, "error_message", expected="a message", actual=result.error_message)
    k.unchanged(c, resource, "min.cleanable.dirty.ratio", ("0.5", k.DYNAMIC_TOPIC))


@case(
    "configs.value.not-a-list",
    "lists with entries that are empty or unknown are rejected",
    source="KIP-339",
    needs=ALTER,
    variants={
        "gap": ("compact,,delete",),
        "end": ("compact,compact,",),
        "comma": (",",),
        "unknown": ("compact,x",),
        "unknown-twice": ("compact,x,x",),
        "capitals": ("Compact",),
    },
)
def not_a_list(c: Check, text: str) -> None:
    """Sends: IncrementalAlterConfigs with a `cleanup.policy` that has an empty or an unknown entry.

    Expects: INVALID_CONFIG with a message; the config is unchanged.

    Why: the list decides whether records are deleted by age or by key.
    """
    resource = new_topic(c, cleanup_policy="delete")
    result = k.alter(c, resource, ("cleanup.policy", k.SET, text))
    c.error(result.error_code, ErrorCode.INVALID_CONFIG)
    c.true(result.error_message, "error_message", expected="a message", actual=result.error_message)
    k.unchanged(c, resource, "cleanup.policy", ("delete", k.DYNAMIC_TOPIC))


@case(
    "configs.value.append",
    "several entries are appended together, each of them once",
    source="KIP-339",
    needs=ALTER,
    level=Level.APACHE,
    variants={
        "comma": (",", "compact"),
        "comma-at-the-end": ("delete,", "compact,delete"),
        "repeated": ("delete,compact,delete", "compact,delete"),
    },
)
def append(c: Check, added: str, value: str) -> None:
    """Sends: IncrementalAlterConfigs with APPEND of several entries to `cleanup.policy=compact`, some of which it has.

    Expects: no error; the list has each entry once.

    Why: a program appends its entry at each start, and the list must not grow.
    """
    resource = new_topic(c, cleanup_policy="compact")
    result = k.alter(c, resource, ("cleanup.policy", k.APPEND, added))
    c.error(result.error_code, ErrorCode.NONE)
    k.until_value(c, resource, "cleanup.policy", (value, k.DYNAMIC_TOPIC))


@case(
    "configs.value.not-appendable",
    "entries that are empty or unknown cannot be appended",
    source="KIP-339",
    needs=ALTER,
    level=Level.APACHE,
    variants={"empty": ("",), "empty-first": (",delete",), "gap": ("compact,,delete",), "unknown": ("x",)},
)
def not_appendable(c: Check, added: str) -> None:
    """Sends: IncrementalAlterConfigs with APPEND of an empty or unknown entry to `cleanup.policy=compact`.

    Expects: INVALID_CONFIG with a message; the list is unchanged.

    Why: a list with such an entry could not be set, and no later change of it would be accepted.
    """
    resource = new_topic(c, cleanup_policy="compact")
    result = k.alter(c, resource, ("cleanup.policy", k.APPEND, added))
    c.error(result.error_code, ErrorCode.INVALID_CONFIG)
    c.true(result.error_message, "error_message", expected="a message", actual=result.error_message)
    k.unchanged(c, resource, "cleanup.policy", ("compact", k.DYNAMIC_TOPIC))
