"""What DescribeConfigs tells of settings: value, source, and the synonyms that would count without it (KIP-226,
KIP-569).

The value in force is the first of: the topic's override, this broker's dynamic setting, the dynamic setting of all
brokers, the static one, the default. Synonyms are all of those that are there, in that order, under the names they
have on the broker (``retention.ms`` of a topic is ``log.retention.ms``, or ``.minutes`` or ``.hours``). Passwords are
never told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ..config import broker as broker_settings
from ..config import group as group_settings
from ..config import topic as topic_settings
from ..config.broker_config import BrokerConfig
from ..config.definition import ConfigSource, Setting, UpdateMode, format_value

_SOURCES = (
    ConfigSource.DYNAMIC_BROKER_CONFIG,
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
    ConfigSource.STATIC_BROKER_CONFIG,
    ConfigSource.DEFAULT_CONFIG,
)


class Synonym(NamedTuple):
    """A value of the same setting in one source."""

    name: str
    value: str | None
    source: ConfigSource


class Entry(NamedTuple):
    """A setting as DescribeConfigs describes it."""

    setting: Setting
    value: str | None
    read_only: bool
    source: ConfigSource
    synonyms: list[Synonym]


def topic_entries(overrides: Mapping[str, str], config: BrokerConfig, names: Iterable[str] | None) -> list[Entry]:
    """The settings of a topic with these overrides; ``names`` None is all of them."""
    entries = []
    defaults = config.topic_defaults()
    for setting in _selected(topic_settings.SETTINGS, names):
        broker_names = [name for name, _ in setting.synonyms]
        synonyms = _synonyms(config, broker_names, sensitive=setting.is_sensitive) if broker_names else []
        if setting.name in overrides:
            value: str | None = format_value(setting.parse(overrides[setting.name]))  # as it is in force
            synonyms.insert(0, Synonym(setting.name, value, ConfigSource.DYNAMIC_TOPIC_CONFIG))
        else:
            value = format_value(defaults[setting.name])
        entries.append(Entry(setting, value, False, _source(synonyms), synonyms))
    return entries


def group_entries(overrides: Mapping[str, str], config: BrokerConfig, names: Iterable[str] | None) -> list[Entry]:
    """The settings of a group with these overrides; ``names`` None is all of them."""
    entries = []
    for setting in _selected(group_settings.SETTINGS, names):
        value = format_value(group_settings.default_from_broker(setting, config))
        broker_names = [name for name, _ in setting.synonyms]
        if broker_names:
            synonyms = _synonyms(config, broker_names, sensitive=setting.is_sensitive)
        else:
            synonyms = [Synonym(setting.name, value, ConfigSource.DEFAULT_CONFIG)]
        if setting.name in overrides:
            value = format_value(setting.parse(overrides[setting.name]))
            synonyms.insert(0, Synonym(setting.name, value, ConfigSource.DYNAMIC_GROUP_CONFIG))
        entries.append(Entry(setting, value, False, _source(synonyms), synonyms))
    return entries


def broker_entries(config: BrokerConfig, names: Iterable[str] | None) -> list[Entry]:
    """The settings of this broker."""
    entries = []
    for setting in _selected(broker_settings.SETTINGS, names):
        synonyms = _synonyms(
            config, list(broker_settings.synonyms(setting.name)), primary=setting.name, sensitive=setting.is_sensitive
        )
        value = None if setting.is_sensitive else format_value(config.get(setting.name))
        entries.append(Entry(setting, value, setting.update_mode is UpdateMode.READ_ONLY, _source(synonyms), synonyms))
    return entries


def default_broker_entries(config: BrokerConfig, names: Iterable[str] | None) -> list[Entry]:
    """What was set dynamically for all brokers, and only that."""
    written = config.written(ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    entries = []
    for setting in _selected(
        broker_settings.SETTINGS, written if names is None else [n for n in names if n in written]
    ):
        value = None if setting.is_sensitive else written[setting.name]
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        entries.append(Entry(setting, value, False, source, [Synonym(setting.name, value, source)]))
    return entries


def _selected(settings: Mapping[str, Setting], names: Iterable[str] | None) -> list[Setting]:
    chosen = settings.values() if names is None else [settings[name] for name in names if name in settings]
    return [setting for setting in chosen if not setting.internal]


def _source(synonyms: list[Synonym]) -> ConfigSource:
    return synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG


def _synonyms(config: BrokerConfig, names: list[str], *, sensitive: bool, primary: str | None = None) -> list[Synonym]:
    found = [
        Synonym(name, None if sensitive else written[name], source)
        for source in _SOURCES
        for written in (config.written(source),)
        for name in names
        if name in written
    ]
    # Kafka leaves out what stands before the first one under the setting's own name.
    own = primary or names[0]
    while found and found[0].name != own:
        del found[0]
    return found
