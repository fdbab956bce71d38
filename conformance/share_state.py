"""The requests of brokers to share coordinators (KIP-932), each for one share partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..protocol.api import ApiKey
from ..protocol.errors import ErrorCode
from ..protocol.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from ..protocol.schema import Request
from ..protocol.uuid import uuid_to_str
from .case import needs
from .check import COORDINATOR_NOT_READY, Check, Topic

NEEDS: Final = needs(
    ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, ApiKey.READ_SHARE_GROUP_STATE, 0, ApiKey.WRITE_SHARE_GROUP_STATE, 0,
    ApiKey.DELETE_SHARE_GROUP_STATE, 0, ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 0, ApiKey.FIND_COORDINATOR, 6,
)  # fmt: skip
COORDINATOR: Final = 2
"""The type of share coordinators in FindCoordinator."""

Batch = tuple[int, int, int, int]
"""First offset, last offset, delivery state, delivery count."""
AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4
NO_EPOCH: Final = -1
_NOT_READY: Final = frozenset({*COORDINATOR_NOT_READY, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


class SharePartition:
    """Partition 0 of a topic for a group that no member uses, and its share coordinator."""

    def __init__(self, c: Check) -> None:
        self.c = c
        self.topic: Topic = c.topic()
        self.group = c.name("share-state")
        self.wire = c.coordinator(f"{self.group}:{uuid_to_str(self.topic.topic_id)}:0", COORDINATOR)
        c.at_end(lambda wire: wire.call(self._deletion(), 0))
        with c.setup(f"waiting for the share coordinator of {self.group}"):
            # It has not loaded its partition a moment after the first request for a share coordinator, and it may learn
            # of a new topic after clients.
            c.until(lambda: self.summary(0).error_code not in _NOT_READY, "that it has loaded and knows the topic")

    def initialize(self, state_epoch: int, start_offset: int) -> Any:
        """The partition's part of the response, as for all methods."""
        data = initialize_share_group_state.PartitionData(
            partition=0, state_epoch=state_epoch, start_offset=start_offset
        )
        topic = initialize_share_group_state.InitializeStateData(topic_id=self.topic.topic_id, partitions=[data])
        request = initialize_share_group_state.InitializeShareGroupStateRequest(group_id=self.group, topics=[topic])
        return self._only(request, 0)

    def write(
        self,
        state_epoch: int,
        start_offset: int,
        batches: Sequence[Batch] = (),
        *,
        leader_epoch: int = 0,
        version: int | None = None,
        **fields: Any,
    ) -> Any:
        data = write_share_group_state.PartitionData(
            partition=0,
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            state_batches=[
                write_share_group_state.StateBatch(
                    first_offset=first, last_offset=last, delivery_state=state, delivery_count=count
                )
                for first, last, state, count in batches
            ],
            **fields,
        )
        topic = write_share_group_state.WriteStateData(topic_id=self.topic.topic_id, partitions=[data])
        request = write_share_group_state.WriteShareGroupStateRequest(group_id=self.group, topics=[topic])
        return self._only(request, version)

    def read(self, leader_epoch: int = 0) -> Any:
        data = read_share_group_state.PartitionData(partition=0, leader_epoch=leader_epoch)
        topic = read_share_group_state.ReadStateData(topic_id=self.topic.topic_id, partitions=[data])
        return self._only(read_share_group_state.ReadShareGroupStateRequest(group_id=self.group, topics=[topic]), 0)

    def summary(self, version: int, leader_epoch: int = 0) -> Any:
        messages = read_share_group_state_summary
        data = messages.PartitionData(partition=0, leader_epoch=leader_epoch)
        topic = messages.ReadStateSummaryData(topic_id=self.topic.topic_id, partitions=[data])
        request = messages.ReadShareGroupStateSummaryRequest(group_id=self.group, topics=[topic])
        return self._only(request, version)

    def delete(self) -> Any:
        return self._only(self._deletion(), 0)

    def _deletion(self) -> Request:
        data = delete_share_group_state.PartitionData(partition=0)
        topic = delete_share_group_state.DeleteStateData(topic_id=self.topic.topic_id, partitions=[data])
        return delete_share_group_state.DeleteShareGroupStateRequest(group_id=self.group, topics=[topic])

    def _only(self, request: Request, version: int | None) -> Any:
        results = self.c.call(request, version, to=self.wire).results
        found = [(each.topic_id, [one.partition for one in each.partitions]) for each in results]
        self.c.equal(found, [(self.topic.topic_id, [0])], "results (topic_id and partitions)")
        return results[0].partitions[0]


def fields_of(result: Any, names: Sequence[str]) -> Mapping[str, Any]:
    """Some fields of a result, for a comparison."""
    return {name: getattr(result, name) for name in names}


def batches_of(result: Any) -> list[Batch]:
    """The batches of a result of `read`."""
    return [
        (each.first_offset, each.last_offset, each.delivery_state, each.delivery_count) for each in result.state_batches
    ]
