"""The settings of a topic: the table, the checks of a client's request, and the values in effect for a topic.

A topic has only overrides. The other values come from the broker: each topic setting names the corresponding broker
settings (``synonyms``), sometimes several in different units (``log.retention.ms``, ``.minutes``, ``.hours``), of which
the first one that is set wins. If none is set, the default here applies.

Unknown names are rejected. ``internal.segment.bytes``, which Kafka has as well, allows segments below the minimum of
``segment.bytes`` in tests; it is neither shown nor documented for users.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from .definition import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    LONG_MAX,
    MEDIUM,
    STRING,
    ConfigError,
    ConfigValue,
    GzipLevel,
    Setting,
    ThrottledReplicas,
    at_least,
    between,
    invalid_value,
    list_of,
    one_of,
)

if TYPE_CHECKING:
    from .broker_config import BrokerConfig

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000

CODECS: Final = one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
CLEANUP_POLICIES: Final = list_of("compact", "delete")
TIMESTAMP_TYPES: Final = one_of("CreateTime", "LogAppendTime")


# fmt: off
_TABLE: Final = (
    Setting(
        "cleanup.policy", LIST, ("delete",), CLEANUP_POLICIES, MEDIUM,
        "Cleanup of old segments: `delete` deletes them by age and size, `compact` keeps the last record of every key; "
        "both together do both, an empty list keeps all records.",
        synonyms=(("log.cleanup.policy", 1),),
        acted_on=True,
    ),
    Setting(
        "compression.gzip.level", INT, -1, GzipLevel(), MEDIUM,
        "Level used when the broker itself compresses this topic's batches with gzip; -1 is the library's default.",
        synonyms=(("compression.gzip.level", 1),),
        acted_on=True,
    ),
    Setting(
        "compression.lz4.level", INT, 9, between(1, 17), MEDIUM,
        "Level used when the broker itself compresses this topic's batches with lz4.",
        synonyms=(("compression.lz4.level", 1),),
        acted_on=True,
    ),
    Setting(
        "compression.type", STRING, "producer", CODECS, MEDIUM,
        "Compression codec of stored batches: `producer` keeps the producer's codec, `uncompressed` stores them "
        "uncompressed, and with any other value the broker recompresses batches that have a different codec.",
        synonyms=(("compression.type", 1),),
        acted_on=True,
    ),
    Setting(
        "compression.zstd.level", INT, 3, between(-131072, 22), MEDIUM,
        "Level used when the broker itself compresses this topic's batches with zstd.",
        synonyms=(("compression.zstd.level", 1),),
        acted_on=True,
    ),
    Setting(
        "delete.retention.ms", LONG, 86_400_000, at_least(0), MEDIUM,
        "Time for which compaction keeps tombstones and transaction markers, so that a consumer that reads from the "
        "start within this time sees every deletion.",
        synonyms=(("log.cleaner.delete.retention.ms", 1),),
        acted_on=True,
    ),
    Setting(
        "file.delete.delay.ms", LONG, 60_000, at_least(0), MEDIUM,
        "Time between the removal of a segment from the log and the deletion of its files.",
        synonyms=(("log.segment.delete.delay.ms", 1),),
        acted_on=True,
    ),
    Setting(
        "flush.messages", LONG, LONG_MAX, at_least(1), MEDIUM,
        "Number of records after which the log is flushed; 1 makes every append durable before it is "
        "acknowledged, the default leaves flushing to the operating system.",
        synonyms=(("log.flush.interval.messages", 1),),
        acted_on=True,
    ),
    Setting(
        "flush.ms", LONG, LONG_MAX, at_least(0), MEDIUM,
        "Maximum time between an append and the flush of the log.",
        synonyms=(("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
        acted_on=True,
    ),
    Setting(
        "follower.replication.throttled.replicas", LIST, (), ThrottledReplicas(), MEDIUM,
        "Replicas whose followers copy at the throttled rate: `partition:broker` entries, or `*` for all of them.",
        acted_on=True,
    ),
    Setting(
        "index.interval.bytes", INT, 4096, at_least(0), MEDIUM,
        "Bytes of log between two entries of the offset index; a smaller value needs less scanning to find a position "
        "and more space.",
        synonyms=(("log.index.interval.bytes", 1),),
        acted_on=True,
    ),
    Setting(
        "internal.segment.bytes", INT, None, None, MEDIUM,
        "Size of a segment, without a lower limit, for tests only.",
        internal=True, acted_on=True,
    ),
    Setting(
        "leader.replication.throttled.replicas", LIST, (), ThrottledReplicas(), MEDIUM,
        "Replicas whose leaders send at the throttled rate: `partition:broker` entries, or `*` for all of them.",
        acted_on=True,
    ),
    Setting(
        "local.retention.bytes", LONG, -2, at_least(-2), MEDIUM,
        "With tiered storage, size of the log that is kept locally; -2 is the value of `retention.bytes`.",
        synonyms=(("log.local.retention.bytes", 1),),
    ),
    Setting(
        "local.retention.ms", LONG, -2, at_least(-2), MEDIUM,
        "With tiered storage, age of the log that is kept locally; -2 is the value of `retention.ms`.",
        synonyms=(("log.local.retention.ms", 1),),
    ),
    Setting(
        "max.compaction.lag.ms", LONG, LONG_MAX, at_least(1), MEDIUM,
        "Maximum age of an uncompacted record of a compacted topic, even if little of the log has changed.",
        synonyms=(("log.cleaner.max.compaction.lag.ms", 1),),
        acted_on=True,
    ),
    Setting(
        "max.message.bytes", INT, 1_048_588, at_least(0), MEDIUM,
        "Maximum size of a record batch, as it is sent (compressed, with its header); a larger one is "
        "rejected with MESSAGE_TOO_LARGE.",
        synonyms=(("message.max.bytes", 1),),
        acted_on=True,
    ),
    Setting(
        "message.timestamp.after.max.ms", LONG, 3_600_000, at_least(0), MEDIUM,
        "Maximum time by which a record's timestamp may be ahead of the broker's clock; otherwise the batch is "
        "rejected with INVALID_TIMESTAMP. Ignored with LogAppendTime.",
        synonyms=(("log.message.timestamp.after.max.ms", 1),),
        acted_on=True,
    ),
    Setting(
        "message.timestamp.before.max.ms", LONG, LONG_MAX, at_least(0), MEDIUM,
        "Maximum time by which a record's timestamp may be behind the broker's clock; otherwise the batch is "
        "rejected with INVALID_TIMESTAMP. Ignored with LogAppendTime.",
        synonyms=(("log.message.timestamp.before.max.ms", 1),),
        acted_on=True,
    ),
    Setting(
        "message.timestamp.type", STRING, "CreateTime", TIMESTAMP_TYPES, MEDIUM,
        "Clock of the record timestamps: the producer's (`CreateTime`) or the broker's (`LogAppendTime`).",
        synonyms=(("log.message.timestamp.type", 1),),
        acted_on=True,
    ),
    Setting(
        "min.cleanable.dirty.ratio", DOUBLE, 0.5, between(0, 1), MEDIUM,
        "Minimum uncompacted share of the log before it is compacted.",
        synonyms=(("log.cleaner.min.cleanable.ratio", 1),),
        acted_on=True,
    ),
    Setting(
        "min.compaction.lag.ms", LONG, 0, at_least(0), MEDIUM,
        "Minimum time before a record can be compacted.",
        synonyms=(("log.cleaner.min.compaction.lag.ms", 1),),
        acted_on=True,
    ),
    Setting(
        "min.insync.replicas", INT, 1, at_least(1), MEDIUM,
        "Minimum number of in-sync replicas for a produce request with acks=all; with fewer the request fails with "
        "NOT_ENOUGH_REPLICAS.",
        synonyms=(("min.insync.replicas", 1),),
        acted_on=True,
    ),
    Setting(
        "preallocate", BOOLEAN, False, None, MEDIUM,
        "Whether the full size of a new segment is preallocated on disk.",
        synonyms=(("log.preallocate", 1),),
    ),
    Setting(
        "remote.log.copy.disable", BOOLEAN, False, None, MEDIUM,
        "With tiered storage, stop copying segments; copied segments stay readable.",
    ),
    Setting(
        "remote.log.delete.on.disable", BOOLEAN, False, None, MEDIUM,
        "Whether disabling tiered storage for the topic deletes the copied segments.",
    ),
    Setting(
        "remote.storage.enable", BOOLEAN, False, None, MEDIUM,
        "Tiered storage for the topic. Rejected: Moldau has none.",
        acted_on=True,
    ),
    Setting(
        "retention.bytes", LONG, -1, None, MEDIUM,
        "Size of a partition above which its oldest segments are deleted; -1 is no limit.",
        synonyms=(("log.retention.bytes", 1),),
        acted_on=True,
    ),
    Setting(
        "retention.ms", LONG, 604_800_000, at_least(-1), MEDIUM,
        "Age after which segments are deleted; -1 keeps them forever.",
        synonyms=(
            ("log.retention.ms", 1),
            ("log.retention.minutes", _MINUTE_MS),
            ("log.retention.hours", _HOUR_MS),
        ),
        acted_on=True,
    ),
    Setting(
        "segment.bytes", INT, 1_073_741_824, at_least(1_048_576), MEDIUM,
        "Size at which a segment is closed and a new one is created; deletion and compaction work on closed segments.",
        synonyms=(("log.segment.bytes", 1),),
        acted_on=True,
    ),
    Setting(
        "segment.index.bytes", INT, 10_485_760, at_least(4), MEDIUM,
        "Maximum size of a segment's offset index; a full index closes the segment.",
        synonyms=(("log.index.size.max.bytes", 1),),
        acted_on=True,
    ),
    Setting(
        "segment.jitter.ms", LONG, 0, at_least(0), MEDIUM,
        "Maximum random time subtracted from `segment.ms`, so that many partitions do not roll at the same time.",
        synonyms=(("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS)),
        acted_on=True,
    ),
    Setting(
        "segment.ms", LONG, 604_800_000, at_least(1), MEDIUM,
        "Age at which a segment is closed even if it is not full.",
        synonyms=(("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS)),
        acted_on=True,
    ),
    Setting(
        "unclean.leader.election.enable", BOOLEAN, False, None, MEDIUM,
        "Whether an out-of-sync replica may become leader if no other can, with loss of the records it lacks.",
        synonyms=(("unclean.leader.election.enable", 1),),
        acted_on=True,
    ),
)
# fmt: on

SETTINGS: Final[dict[str, Setting]] = {entry.name: entry for entry in _TABLE}
DEFAULTS: Final[Mapping[str, ConfigValue]] = {entry.name: entry.default for entry in _TABLE}


def setting(name: str) -> Setting:
    """The setting with this name; ConfigError with Kafka's text if a topic has no such setting."""
    found = SETTINGS.get(name)
    if found is None:
        raise ConfigError(f"Unknown topic config name: {name}", name)
    return found


def validate_topic_config(name: str, value: str | None) -> None:
    """Raise ConfigError unless this single override is valid for a topic."""
    setting(name).parse(value)


def validate_topic_configs(overrides: Mapping[str, str | None], broker: "BrokerConfig | None" = None) -> None:
    """Raise ConfigError unless exactly these overrides are valid for a topic, each one and in combination.

    Rules between settings use the values in effect, so ``broker`` matters if a topic overrides only one of two.
    """
    for name, value in overrides.items():
        validate_topic_config(name, value)
    in_force = resolve_topic_config({name: value for name, value in overrides.items() if value is not None}, broker)
    minimum, maximum = in_force["min.compaction.lag.ms"], in_force["max.compaction.lag.ms"]
    assert isinstance(minimum, int)
    assert isinstance(maximum, int)
    if minimum > maximum:
        rule = f"Value must be no more than max.compaction.lag.ms ({maximum})"
        raise invalid_value("min.compaction.lag.ms", str(minimum), rule)
    if in_force["remote.storage.enable"]:
        raise invalid_value("remote.storage.enable", "true", "this server has no tiered storage")


def resolve_topic_config(overrides: Mapping[str, str], broker: "BrokerConfig | None") -> dict[str, ConfigValue]:
    """The values in effect for a topic with these overrides: the parsed value of every topic setting by name.

    Without a broker, the defaults of the table apply. Raises ConfigError for an invalid override (an override that was
    checked when it was set is always valid).
    """
    values = dict(DEFAULTS if broker is None else broker.topic_defaults())
    for name, text in overrides.items():
        values[name] = setting(name).parse(text)
    return values


def default_from_broker(topic_setting: Setting, broker: "BrokerConfig") -> ConfigValue:
    """The value of a topic without an override: that of the first corresponding broker setting that is set."""
    for name, factor in topic_setting.synonyms:
        value = broker.get(name)
        if value is None:
            continue
        if topic_setting.name == "retention.ms":
            assert isinstance(value, int)
            # Any negative age means "no limit", which is -1 in milliseconds, in any unit.
            return value * factor if value >= 0 else -1
        return value * factor if factor != 1 and isinstance(value, int) else value
    return topic_setting.default
