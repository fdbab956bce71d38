"""Members of share groups (KIP-932): heartbeats to the coordinator, fetches and acknowledgments to the leader.

A `ShareMember` has one share session with the broker at the address, whose epoch it counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from ..protocol.api import ApiKey
from ..protocol.errors import ErrorCode
from ..protocol.messages import share_acknowledge, share_fetch
from ..protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from ..protocol.messages.share_group_describe import DescribedGroup, ShareGroupDescribeRequest
from ..protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from ..protocol.records import iter_batches, iter_records
from ..protocol.uuid import random_uuid, uuid_to_str
from . import configs
from .case import needs
from .check import Check, Topic
from .exchange import Connection
from .partitions import append
from .record_batches import batch

FEATURES: Final = {"share.version": 1}
"""What a server must have finalized for the cases of share groups."""
MEMBERS: Final = needs(ApiKey.SHARE_GROUP_HEARTBEAT, 1, ApiKey.SHARE_GROUP_DESCRIBE, 1)
RECORDS: Final = (
    *MEMBERS,
    *needs(ApiKey.SHARE_FETCH, 1, ApiKey.SHARE_ACKNOWLEDGE, 1, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1),
    *needs(ApiKey.DESCRIBE_CONFIGS, 4),
)

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
GAP = 0
CLOSE: Final = -1
"""The epoch that closes a share session."""

Acknowledgments = Mapping[int, Sequence[tuple[int, int, Sequence[int]]]]
"""By partition: first offset, last offset, and one type for all or one for each."""


class Acquired(NamedTuple):
    """One partition of a fetch response."""

    deliveries: dict[int, int]
    """The delivery count of each acquired record, by offset."""
    values: dict[int, bytes | None]
    """The values of all records in the response, by offset."""


class ShareMember:
    """A member of a share group, which the responses to its heartbeats update."""

    def __init__(self, c: Check, group: str, *topics: Topic, wire: Connection | None = None) -> None:
        self.c = c
        self.group = group
        self.topics = topics
        self.member_id = uuid_to_str(random_uuid())
        self.epoch = 0
        self.assigned: dict[bytes, list[int]] = {}
        self.session_epoch = 0
        self.wire = wire or c.coordinator(group)
        c.at_end(self._leave_at_end)

    # ShareGroupHeartbeat

    def request(self, **fields: Any) -> ShareGroupHeartbeatRequest:
        """A heartbeat without news, except for `fields`."""
        values: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
        }
        return ShareGroupHeartbeatRequest(**values | fields)

    def heartbeat(self, version: int | None = None, **fields: Any) -> ShareGroupHeartbeatResponse:
        """A heartbeat whose response may have an error."""
        answer = cast(ShareGroupHeartbeatResponse, self.c.call(self.request(**fields), version, to=self.wire))
        if answer.error_code == 0:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.assigned = {each.topic_id: sorted(each.partitions) for each in answer.assignment.topic_partitions}
        return answer

    def join(self, version: int | None = None, **fields: Any) -> ShareGroupHeartbeatResponse:
        """The first heartbeat, whose response may have an error."""
        names = [topic.name for topic in self.topics]
        values = {"member_epoch": 0, "subscribed_topic_names": names} | fields
        return self.heartbeat(version, **values)

    def follow(self) -> dict[bytes, list[int]]:
        """A heartbeat without an error; the assignment after it."""
        self.c.error(self.heartbeat().error_code, ErrorCode.NONE, "error_code of a ShareGroupHeartbeat")
        return self.assigned

    def _leave_at_end(self, wire: Connection) -> None:
        """So that the group can be deleted. An error is ignored: the member may have left."""
        if self.epoch > 0:
            wire.call(self.request(member_epoch=-1), 1)

    # ShareFetch and ShareAcknowledge

    def fetch_request(
        self,
        topic: Topic,
        partitions: Sequence[int] = (0,),
        acknowledgments: Acknowledgments | None = None,
        **fields: Any,
    ) -> share_fetch.ShareFetchRequest:
        """A fetch in the member's session; without partitions, of those that the session has already."""
        given = acknowledgments or {}
        requested = [
            share_fetch.FetchPartition(
                partition_index=index,
                acknowledgement_batches=[
                    share_fetch.AcknowledgementBatch(
                        first_offset=first, last_offset=last, acknowledge_types=list(types)
                    )
                    for first, last, types in given.get(index, ())
                ],
            )
            for index in sorted({*partitions, *given})
        ]
        values: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.member_id,
            "share_session_epoch": self.session_epoch,
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 100,
            "batch_size": 100,
            "topics": [share_fetch.FetchTopic(topic_id=topic.topic_id, partitions=requested)] if requested else [],
        }
        return share_fetch.ShareFetchRequest(**values | fields)

    def fetch(
        self, topic: Topic, partitions: Sequence[int] = (0,), *, version: int | None = None, **options: Any
    ) -> Any:
        """A fetch whose response may have an error."""
        answer = self.c.call(self.fetch_request(topic, partitions, **options), version)
        self._count(answer.error_code)
        return answer

    def acquire(self, topic: Topic, *, partition: int = 0, version: int | None = None, **options: Any) -> Acquired:
        """A fetch of one partition without an error; what it acquired, which may be nothing."""
        c = self.c
        answer = self.fetch(topic, (partition,), version=version, **options)
        c.error(answer.error_code, ErrorCode.NONE, "ShareFetch error_code")
        found = Acquired({}, {})
        for entry in answer.responses:
            c.equal(entry.topic_id, topic.topic_id, "ShareFetch responses[].topic_id")
            for data in entry.partitions:
                c.equal(data.partition_index, partition, "ShareFetch partition_index")
                c.error(data.error_code, ErrorCode.NONE, "ShareFetch error_code of the partition")
                c.error(data.acknowledge_error_code, ErrorCode.NONE, "ShareFetch acknowledge_error_code")
                for each in data.acquired_records:
                    offsets = range(each.first_offset, each.last_offset + 1)
                    found.deliveries.update(dict.fromkeys(offsets, each.delivery_count))
                for stored in iter_batches(bytes(data.records or b"")):
                    for number, record in enumerate(iter_records(stored)):
                        found.values[stored.base_offset + number] = record.value
        return found

    def acquire_until(self, topic: Topic, offsets: Sequence[int], **options: Any) -> Acquired:
        """Fetches until these records have been acquired, and no others."""
        c = self.c
        found = Acquired({}, {})

        def is_complete() -> bool:
            more = self.acquire(topic, max_wait_ms=100, **options)
            found.deliveries.update(more.deliveries)
            found.values.update(more.values)
            return set(offsets) <= set(found.deliveries)

        c.until(is_complete, f"acquired records {list(offsets)}")
        c.equal(sorted(found.deliveries), list(offsets), "the offsets of the acquired records")
        return found

    def acknowledge(self, topic: Topic, given: Acknowledgments, *, version: int | None = None, **fields: Any) -> Any:
        """ShareAcknowledge, whose response may have an error."""
        partitions = [
            share_acknowledge.AcknowledgePartition(
                partition_index=index,
                acknowledgement_batches=[
                    share_acknowledge.AcknowledgementBatch(
                        first_offset=first, last_offset=last, acknowledge_types=list(types)
                    )
                    for first, last, types in batches
                ],
            )
            for index, batches in given.items()
        ]
        values: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.member_id,
            "share_session_epoch": self.session_epoch,
            "topics": [share_acknowledge.AcknowledgeTopic(topic_id=topic.topic_id, partitions=partitions)],
        }
        answer = self.c.call(share_acknowledge.ShareAcknowledgeRequest(**values | fields), version)
        self._count(answer.error_code)
        return answer

    def acknowledged(self, topic: Topic, given: Acknowledgments, **options: Any) -> dict[int, int]:
        """ShareAcknowledge without an error of the request; the error codes by partition."""
        answer = self.acknowledge(topic, given, **options)
        self.c.error(answer.error_code, ErrorCode.NONE, "ShareAcknowledge error_code")
        self.c.equal([each.topic_id for each in answer.responses], [topic.topic_id], "responses (topic_id)")
        return {each.partition_index: each.error_code for each in answer.responses[0].partitions}

    def close(self, topic: Topic) -> Any:
        """Close the session; records that are still acquired are released."""
        answer = self.fetch(topic, (), share_session_epoch=CLOSE)
        self.session_epoch = 0
        return answer

    def _count(self, error_code: int) -> None:
        if error_code == 0:
            self.session_epoch += 1


def describe(c: Check, group: str, version: int | None = None) -> DescribedGroup:
    """ShareGroupDescribe of one group."""
    answer = c.call(ShareGroupDescribeRequest(group_ids=[group]), version, to=c.coordinator(group))
    c.equal([each.group_id for each in answer.groups], [group], "groups (group_id) of ShareGroupDescribe")
    return cast(DescribedGroup, answer.groups[0])


def joined(c: Check, *members: ShareMember) -> None:
    """The members join and are assigned all partitions of their topics, as a step of the setup."""
    with c.setup("a share group whose members have assignments"):
        for member in members:
            c.error(member.join().error_code, ErrorCode.NONE, "error_code of the first ShareGroupHeartbeat")
        for member in members:
            c.until(member.follow, "an assignment")


def group_from_start(c: Check) -> str:
    """The name of a new share group that reads topics from their start."""
    group = c.group("share")
    resource = configs.Resource(configs.GROUP, group)
    key = "share.auto.offset.reset"

    def delete(wire: Connection) -> None:
        change = configs.incremental_resource(resource, (key, configs.DELETE, None))
        wire.call(IncrementalAlterConfigsRequest(resources=[change]), 1)

    c.at_end(delete)
    with c.setup("share.auto.offset.reset = earliest"):
        c.error(configs.alter(c, resource, (key, configs.SET, "earliest")).error_code, ErrorCode.NONE)
        configs.until_value(c, resource, key, ("earliest", configs.DYNAMIC_GROUP))
    return group


def member_with_records(c: Check, records: int, *, members: int = 1) -> tuple[Topic, list[ShareMember]]:
    """A topic with so many records, each in its own batch, and the members of a share group that reads it."""
    topic = c.topic()
    for number in range(records):
        append(c, topic, batch(b"%d" % number))
    group = group_from_start(c)
    found = [ShareMember(c, group, topic) for _ in range(members)]
    joined(c, *found)
    return topic, found
