"""What the controller's decisions depend on besides the image and the request: settings, and dice.

Dice are drawn here, and only here: topic ids, and where a topic's replicas start. A test hands in its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from ..config import group as group_settings
from ..config import topic as topic_settings
from ..config.definition import ConfigError, ConfigSource, format_value
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.uuid import random_uuid
from .image import BROKER_RESOURCE

if TYPE_CHECKING:
    from ..config.sources import BrokerConfig
    from .image import MetadataImage


class EffectiveConfig(NamedTuple):
    """A config that is in force, and where its value comes from (a `ConfigSource`)."""

    name: str
    value: str | None
    source: int
    is_sensitive: bool = False
    is_read_only: bool = False


class ControllerContext:
    """Settings of the node that the controller runs on: `config` holds the static ones, the image the dynamic ones."""

    __slots__ = ("_dynamic", "_dynamic_source", "config", "draw", "node_id", "random_uuid")

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

    def random_below(self, bound: int) -> int:
        """A number from 0 to `bound` - 1."""
        if bound <= 1:
            return 0
        if self.draw is not None:
            return self.draw(bound)
        return int.from_bytes(random_uuid()[:4], "big") % bound

    @property
    def default_partitions(self) -> int:
        return self.config.int("num.partitions")

    @property
    def default_replication_factor(self) -> int:
        return self.config.int("default.replication.factor")

    @property
    def delete_topic_enabled(self) -> bool:
        return self.config.bool("delete.topic.enable")

    def broker_config(self, image: MetadataImage) -> BrokerConfig:
        """The node's settings with the dynamic ones of the image over them."""
        source = (image.config(BROKER_RESOURCE, ""), image.config(BROKER_RESOURCE, str(self.node_id)))
        if source != self._dynamic_source:
            self._dynamic = self.config.with_dynamic(default=source[0], broker_specific=source[1])
            self._dynamic_source = source
        return self._dynamic

    def check_topic_configs(self, image: MetadataImage, configs: Mapping[str, str]) -> None:
        """Raise INVALID_CONFIG unless a topic may override exactly these."""
        try:
            topic_settings.validate_topic_configs(configs, self.broker_config(image))
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, error.message) from None

    def check_group_configs(self, image: MetadataImage, configs: Mapping[str, str]) -> None:
        """Raise INVALID_CONFIG unless a group may override exactly these."""
        try:
            group_settings.validate_group_configs(configs, self.broker_config(image))
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, error.message) from None

    def effective_topic_configs(self, image: MetadataImage, overrides: Mapping[str, str]) -> list[EffectiveConfig]:
        """Every config of a topic with these overrides, by name."""
        broker = self.broker_config(image)
        defaults = broker.topic_defaults()
        sources = [(source, broker.written(source)) for source in _BROKER_SOURCES]
        entries = []
        for name, setting in sorted(topic_settings.SETTINGS.items()):
            if name in overrides:
                entries.append(EffectiveConfig(name, overrides[name], ConfigSource.DYNAMIC_TOPIC_CONFIG))
            elif not setting.internal:
                source = next(
                    (source for source, written in sources for synonym, _ in setting.synonyms if synonym in written),
                    ConfigSource.DEFAULT_CONFIG,
                )
                entries.append(EffectiveConfig(name, format_value(defaults[name]), source))
        return entries


_BROKER_SOURCES: Final = (
    ConfigSource.DYNAMIC_BROKER_CONFIG,
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
    ConfigSource.STATIC_BROKER_CONFIG,
)
