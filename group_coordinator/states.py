"""The state of a shard: its groups, their offsets, their deadlines, and the topics of the cluster.

The modules of `classic`, `consumer` and `offsets` decide with this value; it contains no rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from typing import Protocol, TypeVar

from ..coordinator.deadlines import Deadlines
from ..coordinator.outcome import Caller
from .config import GroupConfig
from .group import Group
from .kind import GroupKinds
from .offsets.deleted_topics import DeletedTopics
from .offsets.store import OffsetStore
from .registered_kinds import KINDS

G = TypeVar("G", bound=Group)


class Topics(Protocol):
    """The current topics of the cluster."""

    @property
    def version(self) -> int:
        """Changes whenever a topic or its partitions change."""

    def id_of(self, name: str) -> bytes | None:
        """The topic's ID; None if the topic does not exist."""

    def name_of(self, topic_id: bytes) -> str | None:
        """The topic's name; None if the topic does not exist."""

    def partition_count(self, name: str) -> int:
        """0 if the topic does not exist."""

    def names(self) -> Set[str]:
        """The names of all topics. A view: it may change with them."""

    def matching(self, regex: str) -> frozenset[str]:
        """The names that an expression matches completely.

        Raises:
            KafkaError: INVALID_REGULAR_EXPRESSION.
        """


class GroupStates:
    """The state of one shard."""

    def __init__(
        self,
        config: GroupConfig,
        topics: Topics,
        *,
        overrides: Callable[[str], Mapping[str, str]] = lambda group_id: {},
        may_describe: Callable[[Caller, str], bool] | None = None,
        new_uuid: Callable[[], str],
        kinds: GroupKinds = KINDS,
    ) -> None:
        """``overrides`` gives the configs of a group's GROUP resource; ``new_uuid`` creates member IDs.

        ``may_describe`` decides whether a client may describe a topic; without it, clients may describe all topics.
        """
        self.config = config
        self.topics = topics
        self.overrides = overrides
        self.may_describe = may_describe
        self.new_uuid = new_uuid
        self.kinds = kinds
        self.deadlines = Deadlines()
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetStore()
        self.deleted_topics = DeletedTopics()
        self.being_deleted: dict[str, list[Caller]] = {}
        """Groups that are being deleted in slices, with the callers that wait for it; see `delete_groups`."""

    def find(self, group_id: str, kind: type[G]) -> G | None:
        """The group if it is of this kind; None if it does not exist or is of another kind."""
        group = self.groups.get(group_id)
        return group if isinstance(group, kind) else None

    def not_found_message(self, group_id: str, kind: type[Group]) -> str:
        """Why `find` returns None."""
        return f"Group {group_id} {f'is not a {kind.type} group' if group_id in self.groups else 'not found'}."

    def all_of(self, kind: type[G]) -> Iterator[G]:
        """All groups of this kind. No group may be added or removed in between."""
        return (group for group in self.groups.values() if isinstance(group, kind))
