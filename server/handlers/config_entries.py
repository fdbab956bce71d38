"""Settings as DescribeConfigs describes them: value, source, and the synonyms that would apply without it (KIP-226,
KIP-569).

The value in effect is the first of: the topic's override, this broker's dynamic setting, the dynamic setting of all
brokers, the static setting, the default. Synonyms are all of these that exist, in that order, under their names on the
broker (``retention.ms`` of a topic is ``log.retention.ms``, or ``.minutes`` or ``.hours``).

A broker has more settings than those of its table: settings that exist only while they are set (replication throttles),
settings of one listener (``listener.name.<listener>.<setting>``), and unknown names. They are described where they were
set. The values of passwords and of unknown settings, which may be passwords, are never returned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Final, NamedTuple

from ...config import broker as broker_settings
from ...config import client_metrics as client_metrics_settings
from ...config import group as group_settings
from ...config import topic as topic_settings
from ...config.broker_config import BrokerConfig
from ...config.definition import ConfigSource, Setting, UpdateMode, format_value

_SOURCES = (
    ConfigSource.DYNAMIC_BROKER_CONFIG,
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
    ConfigSource.STATIC_BROKER_CONFIG,
    ConfigSource.DEFAULT_CONFIG,
)
_SET = _SOURCES[:-1]


class Synonym(NamedTuple):
    """A value of the same setting in one source."""

    name: str
    value: str | None
    source: ConfigSource


UNKNOWN_TYPE: Final = 0
"""The type of a setting that is in no table, in DescribeConfigsResponse."""


class Entry(NamedTuple):
    """A setting as DescribeConfigs describes it."""

    name: str
    type: int
    documentation: str | None
    is_sensitive: bool
    value: str | None
    read_only: bool
    source: ConfigSource
    synonyms: list[Synonym]

    @classmethod
    def of(
        cls,
        setting: Setting,
        value: str | None,
        source: ConfigSource,
        synonyms: list[Synonym],
        *,
        read_only: bool = False,
    ) -> Entry:
        """Create the entry of a setting that is in a table."""
        return cls(
            setting.name,
            setting.type,
            setting.documentation,
            setting.is_sensitive,
            None if setting.is_sensitive else value,
            read_only,
            source,
            synonyms,
        )


def describable(config: BrokerConfig) -> frozenset[str]:
    """Every name that a setting of any resource may have."""
    tables: list[Iterable[str]] = [
        topic_settings.SETTINGS,
        group_settings.SETTINGS,
        client_metrics_settings.SETTINGS,
        broker_settings.SETTINGS,
    ]
    return frozenset(chain(*tables, *(config.written(source) for source in _SET)))


def topic_entries(overrides: Mapping[str, str], config: BrokerConfig, names: Iterable[str] | None) -> list[Entry]:
    """The settings of a topic with these overrides; all settings if ``names`` is None."""
    entries = []
    defaults = config.topic_defaults()
    for setting in _selected(topic_settings.SETTINGS, names):
        broker_names = [name for name, _ in setting.synonyms]
        synonyms = _synonyms(config, broker_names, sensitive=setting.is_sensitive) if broker_names else []
        if setting.name in overrides:
            value: str | None = format_value(setting.parse(overrides[setting.name]))  # in the form that is in effect
            synonyms.insert(0, Synonym(setting.name, value, ConfigSource.DYNAMIC_TOPIC_CONFIG))
        else:
            value = format_value(defaults[setting.name])
        entries.append(Entry.of(setting, value, _source(synonyms), synonyms))
    return entries


def group_entries(overrides: Mapping[str, str], config: BrokerConfig, names: Iterable[str] | None) -> list[Entry]:
    """The settings of a group with these overrides; all settings if ``names`` is None."""
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
        entries.append(Entry.of(setting, value, _source(synonyms), synonyms))
    return entries


def client_metrics_entries(overrides: Mapping[str, str], names: Iterable[str] | None) -> list[Entry]:
    """The settings of a subscription of client metrics; all settings if ``names`` is None."""
    entries = []
    for setting in _selected(client_metrics_settings.SETTINGS, names):
        value, synonyms = format_value(setting.default), []
        if setting.name in overrides:
            value = format_value(setting.parse(overrides[setting.name]))
            synonyms = [Synonym(setting.name, value, ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG)]
        entries.append(Entry.of(setting, value, _source(synonyms), synonyms))
    return entries


def broker_entries(config: BrokerConfig, names: Iterable[str] | None) -> list[Entry]:
    """The settings of this broker."""
    names = None if names is None else list(names)
    entries = []
    for setting in _selected(broker_settings.SETTINGS, names):
        synonyms = _synonyms(
            config, list(broker_settings.synonyms(setting.name)), primary=setting.name, sensitive=setting.is_sensitive
        )
        value = config.reference(setting.name) or format_value(config.get(setting.name))
        read_only = setting.update_mode is UpdateMode.READ_ONLY
        entries.append(Entry.of(setting, value, _source(synonyms), synonyms, read_only=read_only))
    written = [name for source in _SET for name in config.written(source) if name not in broker_settings.SETTINGS]
    return entries + [_entry_outside_the_table(config, name, _SOURCES) for name in _chosen(written, names)]


def default_broker_entries(config: BrokerConfig, names: Iterable[str] | None) -> list[Entry]:
    """Only the settings that were set dynamically for all brokers."""
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    written = config.written(source)
    entries = []
    for name in _chosen(written, names):
        setting = broker_settings.SETTINGS.get(name)
        if setting is None:
            entries.append(_entry_outside_the_table(config, name, (source,), with_base=False))
        elif not setting.internal:
            value = None if setting.is_sensitive else written[name]
            entries.append(Entry.of(setting, value, source, [Synonym(name, value, source)]))
    return entries


def _entry_outside_the_table(
    config: BrokerConfig, name: str, sources: Iterable[ConfigSource], *, with_base: bool = True
) -> Entry:
    """The entry of a setting that is in no table, and is described only because it was set."""
    behind = broker_settings.setting_behind(name)
    sensitive = behind is None or behind.is_sensitive
    names = list(dict.fromkeys((name, broker_settings.base_name(name)))) if with_base else [name]
    synonyms = _synonyms(config, names, sensitive=sensitive, sources=sources)
    return Entry(
        name,
        UNKNOWN_TYPE if behind is None else behind.type,
        broker_settings.DYNAMIC_ONLY[name].documentation if name in broker_settings.DYNAMIC_ONLY else None,
        sensitive,
        synonyms[0].value,
        name not in broker_settings.DYNAMIC_ONLY,
        synonyms[0].source,
        synonyms,
    )


def _chosen(written: Iterable[str], names: Iterable[str] | None) -> list[str]:
    """The requested names of those that were written, each once."""
    present = dict.fromkeys(written)
    return list(present) if names is None else [name for name in dict.fromkeys(names) if name in present]


def _selected(settings: Mapping[str, Setting], names: Iterable[str] | None) -> list[Setting]:
    chosen = settings.values() if names is None else [settings[name] for name in names if name in settings]
    return [setting for setting in chosen if not setting.internal]


def _source(synonyms: list[Synonym]) -> ConfigSource:
    return synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG


def _synonyms(
    config: BrokerConfig,
    names: list[str],
    *,
    sensitive: bool,
    primary: str | None = None,
    sources: Iterable[ConfigSource] = _SOURCES,
) -> list[Synonym]:
    found = [
        Synonym(name, None if sensitive else written[name], source)
        for source in sources
        for written in (config.written(source),)
        for name in names
        if name in written
    ]
    # Kafka omits the synonyms before the first one that has the setting's own name.
    own = primary or names[0]
    while found and found[0].name != own:
        del found[0]
    return found
