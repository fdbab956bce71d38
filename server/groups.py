"""The group coordinator of a broker: a runtime for each partition of `__consumer_offsets` that it leads.

Hosting them is in `coordinators`. Here is what groups need besides: the topics of the cluster, which members are
assigned, and the settings that single groups have.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from ..coordinator.runtime import CoordinatorRuntime, State
from ..group_coordinator.config import GroupConfig
from ..group_coordinator.shard import GroupShard
from ..group_coordinator.states import GroupStates
from ..metadata.image import GROUP_RESOURCE
from ..metadata.topic_names import CONSUMER_OFFSETS
from ..protocol.errors import ErrorCode, KafkaError
from .coordinators import Coordinators

if TYPE_CHECKING:
    from ..metadata.image import MetadataDelta, MetadataImage
    from ..replication.partition import Partition
    from .broker import Broker

GroupRuntime = CoordinatorRuntime[GroupShard]


class ImageTopics:
    """The topics of the present metadata image; see `group_coordinator.states.Topics`."""

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        self._image = image
        self.version = 0
        """Another number whenever a topic or its partitions have changed."""

    def id_of(self, name: str) -> bytes | None:
        """The topic's id; None when there is no such topic."""
        topic = self._image().topics_by_name.get(name)
        return None if topic is None else topic.topic_id

    def name_of(self, topic_id: bytes) -> str | None:
        """The topic's name; None when there is no such topic."""
        topic = self._image().topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def partition_count(self, name: str) -> int:
        """0 when there is no such topic."""
        topic = self._image().topics_by_name.get(name)
        return 0 if topic is None else len(topic.partitions)

    def names(self) -> Iterable[str]:
        """Of all topics."""
        return self._image().topics_by_name


class GroupCoordinators(Coordinators[GroupShard]):
    """The runtimes of this broker, by partition of `__consumer_offsets`."""

    topic = CONSUMER_OFFSETS

    def __init__(self, broker: Broker, config: GroupConfig, *, codec: int = 0, load_bytes: int = 5 << 20) -> None:
        super().__init__(broker, codec=codec, load_bytes=load_bytes)
        self.config = config
        self.topics = ImageTopics(lambda: broker.metadata.image)

    def update_config(self, config: GroupConfig) -> None:
        """Take over dynamic settings of the broker; deadlines that are set keep their time."""
        self.config = config
        for hosted in self._hosted.values():
            hosted.runtime.shard.states.config = config

    def end_session(self, group_id: str, member: str) -> None:
        """End the session of a member now, who goes by its member id or its instance id: for tests.

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
        """Write a transaction's marker into this partition: the offsets that it committed count now, or never. Returns
        the offset after it.

        Raises:
            KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, or what `Partition.append_marker` refuses.
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
        """Groups of one partition."""
        states = GroupStates(
            self.config,
            self.topics,
            overrides=self._overrides,
            new_uuid=lambda: str(uuid.uuid4()),
        )
        return GroupShard(states)

    def _overrides(self, group_id: str) -> Mapping[str, str]:
        return self._broker.metadata.image.config(GROUP_RESOURCE, group_id)

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Follow a committed change of the metadata; the broker's partitions have been brought up to date."""
        if delta.partitions or delta.deleted_topics or delta.created_topics:
            self.topics.version += 1
        super().apply(delta, image)

    def deleted(self, names: list[str]) -> None:
        """Offsets of topics that are gone are forgotten, of all groups."""
        for hosted in list(self._hosted.values()):
            runtime = hosted.runtime
            if runtime.state is State.ACTIVE:
                runtime.decide("", runtime.shard.delete_offsets_of_topics(names))
                self._arm(hosted)
