"""The settings of a group: the table, the checks of a client's request, and the values in effect for a group.

They are set with resources of type GROUP, whether a group with that name exists or not. A group has only overrides; the
other values come from the corresponding broker setting (`synonyms`). The broker also has limits, the settings with
``.min.`` and ``.max.`` in their names. An override outside of the limits is rejected. If the limits change later, the
override is clamped to them where it is used (`group_coordinator.config.consumer_times`). Settings of share groups and
streams groups are known, checked, stored and described, but have no effect: such groups are not supported.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from .definition import (
    BOOLEAN,
    INT,
    MEDIUM,
    STRING,
    ConfigError,
    ConfigValue,
    Setting,
    Validator,
    at_least,
    format_value,
    invalid_value,
    one_of,
)
from .durations import parse_duration_ms

if TYPE_CHECKING:
    from .broker_config import BrokerConfig


class OffsetResetStrategy(Validator):
    """Where a share group begins in a partition that it has not read before."""

    __slots__ = ()

    def check(self, name: str, value: ConfigValue) -> None:
        if value in ("earliest", "latest"):
            return
        rule = "Value must be earliest, latest or by_duration:PnDTnHnMn.nS"
        kind, _, duration = str(value).partition(":")
        try:
            if kind != "by_duration" or parse_duration_ms(duration) < 0:
                raise invalid_value(name, format_value(value), rule)
        except ValueError:
            raise invalid_value(name, format_value(value), rule) from None

    def __str__(self) -> str:
        return "[latest, earliest, by_duration:PnDTnHnMn.nS]"


# fmt: off
_TABLE: Final = (
    Setting(
        "consumer.session.timeout.ms", INT, 45_000, at_least(1), MEDIUM,
        "Time without a heartbeat after which a member of a consumer group is removed.",
        synonyms=(("group.consumer.session.timeout.ms", 1),), acted_on=True,
    ),
    Setting(
        "consumer.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM,
        "Heartbeat interval of the members of a consumer group.",
        synonyms=(("group.consumer.heartbeat.interval.ms", 1),), acted_on=True,
    ),
    Setting(
        "consumer.assignment.interval.ms", INT, 1000, at_least(0), MEDIUM,
        "Minimum time between two new assignments of a consumer group.",
        synonyms=(("group.consumer.assignment.interval.ms", 1),), acted_on=True,
    ),
    Setting(
        "share.session.timeout.ms", INT, 45_000, at_least(1), MEDIUM,
        "Time without a heartbeat after which a member of a share group is removed.",
        synonyms=(("group.share.session.timeout.ms", 1),),
    ),
    Setting(
        "share.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM,
        "Heartbeat interval of the members of a share group.",
        synonyms=(("group.share.heartbeat.interval.ms", 1),),
    ),
    Setting(
        "share.record.lock.duration.ms", INT, 30_000, at_least(1000), MEDIUM,
        "Time for which a record stays acquired by a member.",
        synonyms=(("group.share.record.lock.duration.ms", 1),),
    ),
    Setting(
        "share.delivery.count.limit", INT, 5, at_least(2), MEDIUM,
        "Maximum number of deliveries of a record.",
        synonyms=(("group.share.delivery.count.limit", 1),),
    ),
    Setting(
        "share.partition.max.record.locks", INT, 2000, at_least(100), MEDIUM,
        "Maximum number of records of a partition that are acquired at the same time.",
        synonyms=(("group.share.partition.max.record.locks", 1),),
    ),
    Setting(
        "share.auto.offset.reset", STRING, "latest", OffsetResetStrategy(), MEDIUM,
        "Where a share group begins in a partition: at the first record, at the end, or at a time in the past.",
    ),
    Setting(
        "share.isolation.level", STRING, "read_uncommitted", one_of("read_committed", "read_uncommitted"), MEDIUM,
        "Whether a share group receives records of uncommitted transactions.",
    ),
    Setting(
        "share.renew.acknowledge.enable", BOOLEAN, True, None, MEDIUM,
        "Whether members may renew the acquisition of records.",
    ),
    Setting(
        "share.assignment.interval.ms", INT, 1000, at_least(0), MEDIUM,
        "Minimum time between two new assignments of a share group.",
        synonyms=(("group.share.assignment.interval.ms", 1),),
    ),
    Setting(
        "streams.session.timeout.ms", INT, 45_000, at_least(1), MEDIUM,
        "Time without a heartbeat after which a member of a streams group is removed.",
        synonyms=(("group.streams.session.timeout.ms", 1),),
    ),
    Setting(
        "streams.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM,
        "Heartbeat interval of the members of a streams group.",
        synonyms=(("group.streams.heartbeat.interval.ms", 1),),
    ),
    Setting(
        "streams.num.standby.replicas", INT, 0, at_least(0), MEDIUM,
        "Number of standby replicas of each task.",
        synonyms=(("group.streams.num.standby.replicas", 1),),
    ),
    Setting(
        "streams.initial.rebalance.delay.ms", INT, 3000, at_least(0), MEDIUM,
        "Time that a new streams group waits for more members before its first assignment.",
        synonyms=(("group.streams.initial.rebalance.delay.ms", 1),),
    ),
    Setting(
        "streams.assignment.interval.ms", INT, 1000, at_least(0), MEDIUM,
        "Minimum time between two new assignments of a streams group.",
        synonyms=(("group.streams.assignment.interval.ms", 1),),
    ),
)
# fmt: on

SETTINGS: Final[dict[str, Setting]] = {entry.name: entry for entry in _TABLE}

# The broker's limits: of an override, the minimum and the maximum. None is no limit.
_LIMITS: Final[dict[str, tuple[str | None, str | None]]] = {
    **{
        f"{kind}.{what}": (f"group.{kind}.min.{what}", f"group.{kind}.max.{what}")
        for kind in ("consumer", "share", "streams")
        for what in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")
    },
    **{
        f"share.{what}": (f"group.share.min.{what}", f"group.share.max.{what}")
        for what in ("record.lock.duration.ms", "delivery.count.limit", "partition.max.record.locks")
    },
    "streams.num.standby.replicas": (None, "group.streams.max.standby.replicas"),
}


def setting(name: str) -> Setting:
    """The setting with this name; ConfigError with Kafka's text if a group has no such setting."""
    found = SETTINGS.get(name)
    if found is None:
        raise ConfigError(f"Unknown group config name: {name}", name)
    return found


def default_from_broker(group_setting: Setting, broker: "BrokerConfig") -> ConfigValue:
    """The value for a group without an override."""
    for name, _ in group_setting.synonyms:
        return broker.get(name)
    return group_setting.default


def validate_group_configs(overrides: Mapping[str, str], broker: "BrokerConfig") -> None:
    """Raise ConfigError unless exactly these overrides are valid for a group, each one and in combination."""
    for name, text in overrides.items():
        value = setting(name).parse(text)
        low, high = _LIMITS.get(name, (None, None))
        if low is not None and _int(value) < broker.int(low):
            raise invalid_value(name, text, f"Value must be at least {low} ({broker.int(low)})")
        if high is not None and _int(value) > broker.int(high):
            raise invalid_value(name, text, f"Value must be no more than {high} ({broker.int(high)})")
    for kind in ("consumer", "share", "streams"):
        heartbeat, session = f"{kind}.heartbeat.interval.ms", f"{kind}.session.timeout.ms"
        interval, timeout = (_int(_in_force(overrides, name, broker)) for name in (heartbeat, session))
        if interval < timeout:
            continue
        if session in overrides:
            raise invalid_value(session, str(timeout), f"Value must be greater than {heartbeat} ({interval})")
        raise invalid_value(heartbeat, str(interval), f"Value must be less than {session} ({timeout})")


def _in_force(overrides: Mapping[str, str], name: str, broker: "BrokerConfig") -> ConfigValue:
    entry = SETTINGS[name]
    return entry.parse(overrides[name]) if name in overrides else default_from_broker(entry, broker)


def _int(value: ConfigValue) -> int:
    assert isinstance(value, int)
    return value
