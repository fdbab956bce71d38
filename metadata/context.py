"""The inputs of the controller's decisions besides the image and the request: settings and randomness.

Random values are drawn only here: topic ids, and the first replica of a topic. Tests supply their own source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from ..config import topic as topic_settings
from ..config.definition import ConfigError, ConfigSource, format_value
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.named_tuples import NamedTuple
from ..protocol.uuid import random_uuid
from .image import BROKER_RESOURCE

if TYPE_CHECKING:
    from ..config.sources import BrokerConfig
    from .image import MetadataImage


class EffectiveConfig(NamedTuple):
    """The effective value of a config, and its source (a `ConfigSource`)."""

    name: str
    value: str | None
    source: int
    is_sensitive: bool = False
    is_read_only: bool = False


class ControllerContext:
    """Settings of the controller's node: `config` holds the static settings, the image the dynamic ones."""

    __slots__ = ("_default_topic_configs", "_dynamic", "_dynamic_source", "config", "draw", "node_id", "random_uuid")

    def __init__(
        self,
        node_id: int,
        config: BrokerConfig,
        *,
        random_uuid: Callable[[], bytes] = random_uuid,
        draw: Callable[[int], int] | None = None,
    ) -> None:
        self.node_id = node_id
        self.config = config
        self.random_uuid = random_uuid
        self.draw = draw
        self._dynamic = config
        self._dynamic_source: tuple[Mapping[str, str], Mapping[str, str]] | None = None
        # Computed once for each state of the broker's settings.
        self._default_topic_configs: tuple[BrokerConfig, list[tuple[str, EffectiveConfig | None]]] | None = None

    def random_below(self, bound: int) -> int:
        """A random number from 0 to `bound` - 1."""
        if bound <= 1:
            return 0
        if self.draw is not None:
            return self.draw(bound)
        return int.from_bytes(self.random_uuid()[:4], "big") % bound

    @property
    def default_partitions(self) -> int:
        return self.config.int("num.partitions")

    @property
    def default_replication_factor(self) -> int:
        return self.config.int("default.replication.factor")

    @property
    def max_replicas(self) -> int:
        """The highest number of replicas of a partition."""
        return self.config.int("moldau.max.replicas")

    @property
    def delete_topic_enabled(self) -> bool:
        return self.config.bool("delete.topic.enable")

    def broker_config(self, image: MetadataImage) -> BrokerConfig:
        """The node's settings, overridden with the dynamic settings of the image."""
        source = (image.config(BROKER_RESOURCE, ""), image.config(BROKER_RESOURCE, str(self.node_id)))
        if source != self._dynamic_source:
            self._dynamic = self.config.with_dynamic(default=source[0], broker_specific=source[1])
            self._dynamic_source = source
        return self._dynamic

    def check_topic_configs(self, image: MetadataImage, configs: Mapping[str, str]) -> None:
        """Raise INVALID_CONFIG unless a topic may override these configs."""
        try:
            topic_settings.validate_topic_configs(configs, self.broker_config(image))
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, error.message) from None

    def check_group_configs(self, image: MetadataImage, configs: Mapping[str, str]) -> None:
        """Raise INVALID_CONFIG unless a group may override these configs."""
        from ..config import group as group_settings  # the other requests do not need it

        try:
            group_settings.validate_group_configs(configs, self.broker_config(image))
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, error.message) from None

    def effective_topic_configs(self, image: MetadataImage, overrides: Mapping[str, str]) -> list[EffectiveConfig]:
        """Every config of a topic with these overrides, by name."""
        broker = self.broker_config(image)
        if self._default_topic_configs is None or self._default_topic_configs[0] is not broker:
            self._default_topic_configs = broker, _default_topic_configs(broker)
        entries = []
        for name, default in self._default_topic_configs[1]:
            if name in overrides:
                entries.append(EffectiveConfig(name, overrides[name], ConfigSource.DYNAMIC_TOPIC_CONFIG))
            elif default is not None:
                entries.append(default)
        return entries


def _default_topic_configs(broker: BrokerConfig) -> list[tuple[str, EffectiveConfig | None]]:
    """Each config of a topic without overrides, by name; None for an internal config."""
    defaults = broker.topic_defaults()
    sources = [(source, broker.written(source)) for source in _BROKER_SOURCES]
    entries: list[tuple[str, EffectiveConfig | None]] = []
    for name, setting in sorted(topic_settings.SETTINGS.items()):
        if setting.internal:
            entries.append((name, None))
            continue
        source = next(
            (source for source, written in sources for synonym, _ in setting.synonyms if synonym in written),
            ConfigSource.DEFAULT_CONFIG,
        )
        entries.append((name, EffectiveConfig(name, format_value(defaults[name]), source)))
    return entries


_BROKER_SOURCES: Final = (
    ConfigSource.DYNAMIC_BROKER_CONFIG,
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
    ConfigSource.STATIC_BROKER_CONFIG,
)
