"""Everything that a shard knows: its groups, their offsets, their deadlines, and what it may look up.

The modules of `classic`, `consumer` and `offsets` decide with this value; it has no rules of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from ..coordinator.deadlines import Deadlines
from ..coordinator.outcome import Caller
from .classic.group import ClassicGroup
from .config import GroupConfig
from .consumer.group import ConsumerGroup
from .offsets.deleted_topics import DeletedTopics
from .offsets.store import OffsetStore


class Topics(Protocol):
    """The topics of the cluster, as they are now."""

    @property
    def version(self) -> int:
        """Another number whenever a topic or its partitions have changed."""

    def id_of(self, name: str) -> bytes | None:
        """The topic's id; None when there is no such topic."""

    def name_of(self, topic_id: bytes) -> str | None:
        """The topic's name; None when there is no such topic."""

    def partition_count(self, name: str) -> int:
        """0 when there is no such topic."""

    def names(self) -> Iterable[str]:
        """Of all topics."""


class GroupStates:
    """The state of one shard."""

    def __init__(
        self,
        config: GroupConfig,
        topics: Topics,
        *,
        overrides: Callable[[str], Mapping[str, str]] = lambda group_id: {},
        new_uuid: Callable[[], str],
    ) -> None:
        """``overrides`` gives the configs of a group's GROUP resource; ``new_uuid`` makes member ids."""
        self.config = config
        self.topics = topics
        self.overrides = overrides
        self.new_uuid = new_uuid
        self.deadlines = Deadlines()
        self.groups: dict[str, ClassicGroup | ConsumerGroup] = {}
        self.offsets = OffsetStore()
        self.deleted_topics = DeletedTopics()
        self.being_deleted: dict[str, list[Caller]] = {}
        """Groups that are deleted in slices, with whoever waits for it; see `delete_groups`."""
