"""The group coordinator of a broker: a runtime for each partition of `__consumer_offsets` that it leads.

Hosting is in `coordinators`. This module adds what groups need: the topics of the cluster, from which members are
assigned partitions, and the settings of single groups.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Set
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from ...coordinator.runtime import State
from ...group_coordinator.config import GroupConfig
from ...group_coordinator.consumer.regexes import Lookup, compiled
from ...group_coordinator.shard import GroupShard
from ...group_coordinator.states import GroupStates
from ...metadata.image import GROUP_RESOURCE
from ...metadata.topic_names import CONSUMER_OFFSETS
from ...protocol.errors import ErrorCode, KafkaError
from .coordinators import Coordinators

if TYPE_CHECKING:
    from ...coordinator.outcome import Caller
    from ...metadata.image import MetadataDelta, MetadataImage
    from ...replication.partition import Partition
    from ..concurrency.slices import Sliced
    from .on_demand import Services

_FEW_TOPICS: Final = 16
"""The most topics that are matched with a regular expression in one step: some take milliseconds per topic."""


class ImageTopics:
    """The topics of the current metadata image; see `group_coordinator.states.Topics`."""

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        self._image = image
        self.version = 0
        """Changes whenever a topic or its partitions change."""
        self._lookups: WeakValueDictionary[str, Lookup] = WeakValueDictionary()

    def id_of(self, name: str) -> bytes | None:
        """The topic's id; None if the topic does not exist."""
        topic = self._image().topics_by_name.get(name)
        return None if topic is None else topic.topic_id

    def name_of(self, topic_id: bytes) -> str | None:
        """The topic's name; None if the topic does not exist."""
        topic = self._image().topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def partition_count(self, name: str) -> int:
        """The number of the topic's partitions; 0 if the topic does not exist."""
        topic = self._image().topics_by_name.get(name)
        return 0 if topic is None else len(topic.partitions)

    def names(self) -> Set[str]:
        """The names of all topics."""
        return self._image().topics_by_name.keys()

    def matching(self, regex: str) -> frozenset[str]:
        """The names that the whole of a regular expression matches. Immediate if the expression has been looked up.

        Raises:
            KafkaError: INVALID_REGULAR_EXPRESSION.
        """
        if self.has_looked_up(regex):
            return self._lookups[regex].matched()
        return compiled(regex).matching(self.names())

    def has_looked_up(self, regex: str) -> bool:
        """Whether `matching` has the result in its cache."""
        found = self._lookups.get(regex)
        return found is not None and found.version == self.version

    def look_up(self, regex: str) -> Lookup:
        """Start to look up a regular expression. The result is valid as long as the returned object exists."""
        found = self._lookups.get(regex)
        if found is None:
            found = self._lookups[regex] = Lookup(regex)
        return found


class GroupCoordinators(Coordinators[GroupShard]):
    """The runtimes of this broker, by partition of `__consumer_offsets`."""

    topic = CONSUMER_OFFSETS

    def __init__(self, services: Services, config: GroupConfig, *, codec: int = 0, load_bytes: int = 5 << 20) -> None:
        super().__init__(services, codec=codec, load_bytes=load_bytes)
        self.config = config
        self.topics = ImageTopics(services.image)

    def update_config(self, config: GroupConfig) -> None:
        """Apply dynamic settings of the broker; existing deadlines do not change."""
        self.config = config
        for hosted in self._hosted.values():
            hosted.runtime.shard.states.config = config

    def looking_up(self, caller: Caller, group_id: str, regex: str | None) -> Sliced[object] | None:
        """The work before a JoinGroup or ConsumerGroupHeartbeat with this expression is decided: look up
        regular expressions, in slices. The result is valid as long as it is referenced. None: there is little to do."""
        if len(self.topics.names()) <= _FEW_TOPICS or not self._to_look_up(group_id, regex):
            return None
        return self._look_up(caller, group_id, regex)

    def _look_up(self, caller: Caller, group_id: str, regex: str | None) -> Sliced[dict[str, Lookup]]:
        kept: dict[str, Lookup] = {}
        while missing := [one for one in self._to_look_up(group_id, regex) if not self.topics.has_looked_up(one)]:
            for one in missing:
                kept[one] = self.topics.look_up(one)
                yield from kept[one].run(self.topics)
                yield from self._authorize(caller, kept[one])
        return kept

    def _authorize(self, caller: Caller, lookup: Lookup) -> Sliced[None]:
        """Decide in steps which topics the client may describe. The authorizer remembers its decisions."""
        may_describe = self._services.may_describe
        if may_describe is None or not lookup.is_valid:
            return
        for name in lookup.matched():
            may_describe(caller, name)
            yield 0

    def _to_look_up(self, group_id: str, regex: str | None) -> list[str]:
        try:
            return self.read(group_id).regexes_to_look_up(group_id, regex, self.now())
        except KafkaError:
            return []  # the request will be rejected

    def end_session(self, group_id: str, member: str) -> None:
        """End the session of a member now, given its member id or its instance id. For tests.

        Raises:
            KafkaError: NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, GROUP_ID_NOT_FOUND,
                UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS.
        """
        hosted = self.hosted_of(group_id)
        hosted.runtime.decide(group_id, hosted.runtime.read(group_id).end_session(group_id, member))
        self.flush(hosted)

    def end_transaction(
        self,
        index: int,
        producer_id: int,
        producer_epoch: int,
        *,
        coordinator_epoch: int,
        committed: bool,
        transaction_version: int,
    ) -> int:
        """Write a transaction marker into this partition: its pending offsets take effect, or are discarded.

        Returns the offset after the marker.

        Raises:
            KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, or an error of `Partition.append_marker`.
        """
        hosted = self._hosted.get(index)
        if hosted is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        end_offset = hosted.runtime.end_transaction(
            producer_id,
            producer_epoch,
            coordinator_epoch=coordinator_epoch,
            committed=committed,
            transaction_version=transaction_version,
        )
        self._arm(hosted)
        return end_offset

    def make_shard(self, partition: Partition) -> GroupShard:
        """The groups of one partition."""
        states = GroupStates(
            self.config,
            self.topics,
            overrides=self._overrides,
            may_describe=self._services.may_describe,
            new_uuid=lambda: str(uuid.UUID(int=self._services.rng.getrandbits(128), version=4)),
        )
        return GroupShard(states)

    def _overrides(self, group_id: str) -> Mapping[str, str]:
        return self._services.image().config(GROUP_RESOURCE, group_id)

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply a committed change of the metadata; the broker's partitions are already up to date."""
        if delta.partitions or delta.deleted_topics or delta.created_topics:
            self.topics.version += 1
        super().apply(delta, image)

    def deleted(self, names: list[str]) -> None:
        """Delete the offsets of deleted topics, in all groups."""
        for hosted in list(self._hosted.values()):
            runtime = hosted.runtime
            if runtime.state is State.ACTIVE:
                runtime.decide("", runtime.shard.delete_offsets_of_topics(names))
                self._arm(hosted)
