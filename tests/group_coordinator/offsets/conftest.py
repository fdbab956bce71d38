"""A coordinator on a log in memory, with a clock that the test moves."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence, Set
from types import SimpleNamespace
from typing import Any

import pytest

from moldau.coordinator.outcome import Now, Record
from moldau.group_coordinator.config import GroupConfig
from moldau.group_coordinator.consumer.regexes import compiled
from moldau.group_coordinator.offsets.store import CommittedOffset
from moldau.group_coordinator.records import (
    AssignedTopicPartitions,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    decode_record,
    encode_record,
)
from moldau.group_coordinator.shard import GroupShard
from moldau.group_coordinator.states import GroupStates
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from moldau.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
)
from moldau.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from moldau.protocol.records import Record as LogRecord
from moldau.protocol.records import build_batch, iter_records
from moldau.protocol.steps import completed

from ...coordinator.harness import FakeCaller, Harness, MemoryLog, decoded


def tombstone(group_id: str, topic: str, partition: int) -> Record:
    """The record that deletes an offset."""
    return Record(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)


def end_of_classic_group(group_id: str) -> Record:
    """The record that deletes a classic or simple group."""
    return Record(GroupMetadataKey(group=group_id), None)


def subscription(topics: Sequence[str]) -> bytes:
    """The metadata of a consumer in JoinGroup: version 0, topics, no user data."""
    names = [name.encode() for name in topics]
    listed = b"".join(len(name).to_bytes(2, "big") + name for name in names)
    return b"\0\0" + len(names).to_bytes(4, "big") + listed + b"\xff\xff\xff\xff"


class Log(MemoryLog):
    """A log that reports the written records and the number of rejections."""

    refused = 0

    def append(self, batch: bytes, *, verification: object = None) -> int:
        self.refused += self.refuses_with is not None
        return super().append(batch, verification=verification)

    def records(self) -> list[Record]:
        """All written records, except markers."""
        batches = (batch for batch in self.batches() if not batch.is_control)
        return [decoded(record, decode_record) for batch in batches for record in iter_records(batch)]


class TopicsOfTheTest:
    """Topics with ids made of their names."""

    version = 1

    def __init__(self) -> None:
        self.ids: dict[str, bytes] = {}

    def add(self, *names: str) -> None:
        for name in names:
            self.ids[name] = name.encode().ljust(16, b".")[:16]

    def id_of(self, name: str) -> bytes | None:
        return self.ids.get(name)

    def name_of(self, topic_id: bytes) -> str | None:
        return next((name for name, one in self.ids.items() if one == topic_id), None)

    def partition_count(self, name: str) -> int:
        return 1 if name in self.ids else 0

    def names(self) -> Set[str]:
        return self.ids.keys()

    def matching(self, regex: str) -> frozenset[str]:
        return compiled(regex).matching(self.names())


class Coordinator(Harness[GroupShard]):
    """The coordinator of one partition. Requests are answered when they return, unless they wait."""

    log: Log

    def __init__(self, config: GroupConfig | None = None) -> None:
        super().__init__()
        self.config = config or GroupConfig()
        self.log = Log()
        self.topics = TopicsOfTheTest()
        self.restart()

    def new_shard(self) -> GroupShard:
        numbers = itertools.count()
        self.states = GroupStates(self.config, self.topics, new_uuid=lambda: f"uuid-{next(numbers)}")
        return GroupShard(self.states)

    def write(self, *records: Record, producer_id: int = -1) -> None:
        """Records of another coordinator."""
        encoded = [LogRecord(0, self.now().epoch_ms, *encode_record(record)) for record in records]
        transactional = producer_id >= 0
        self.log.append(build_batch(encoded, producer_id=producer_id, transactional=transactional))
        for record in records:
            self.shard.replay(record, producer_id=producer_id)

    def classic_group(
        self,
        group_id: str,
        *,
        members: Mapping[str, Sequence[str]] | None = None,
        generation: int = 3,
        protocol_type: str = "consumer",
        state_timestamp_ms: int | None = None,
        session_timeout_ms: int = 1_000_000_000,
        instance_ids: Mapping[str, str] | None = None,
    ) -> None:
        """A classic group with these members and subscriptions; without members it is empty."""
        value = GroupMetadataValue(
            protocol_type=protocol_type,
            generation=generation,
            protocol="range" if members else None,
            leader=next(iter(members or ()), None),
            current_state_timestamp=self.now().epoch_ms if state_timestamp_ms is None else state_timestamp_ms,
            members=[
                MemberMetadata(
                    member_id=member_id,
                    group_instance_id=(instance_ids or {}).get(member_id),
                    client_id="client",
                    client_host="/127.0.0.1",
                    rebalance_timeout=60_000,
                    session_timeout=session_timeout_ms,
                    subscription=subscription(topics),
                    assignment=b"",
                )
                for member_id, topics in (members or {}).items()
            ],
        )
        self.write(Record(GroupMetadataKey(group=group_id), value, 4))

    def consumer_group(
        self, group_id: str, *, members: Mapping[str, Sequence[str]] | None = None, epoch: int = 3
    ) -> None:
        """A consumer group with these members and subscriptions."""
        records = [Record(ConsumerGroupMetadataKey(group_id=group_id), ConsumerGroupMetadataValue(epoch=epoch))]
        for member_id, topics in (members or {}).items():
            records += [
                Record(
                    ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id),
                    ConsumerGroupMemberMetadataValue(
                        instance_id=None,
                        rack_id=None,
                        client_id="client",
                        client_host="/127.0.0.1",
                        subscribed_topic_names=list(topics),
                        subscribed_topic_regex=None,
                        rebalance_timeout_ms=60_000,
                        server_assignor=None,
                        classic_member_metadata=None,
                    ),
                ),
                Record(
                    ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
                    ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch),
                ),
                Record(
                    ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id),
                    ConsumerGroupCurrentMemberAssignmentValue(member_epoch=epoch, previous_member_epoch=epoch - 1),
                ),
            ]
        self.write(*records)

    def assign(
        self, group_id: str, member_id: str, assigned_at: Mapping[str, Mapping[int, int]], *, epoch: int
    ) -> None:
        """Give a member of a consumer group these partitions, by topic, each with its own epoch (KIP-1251)."""
        value = ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=epoch,
            previous_member_epoch=epoch - 1,
            assigned_partitions=[
                AssignedTopicPartitions(
                    topic_id=self.topics.ids[name],
                    partitions=list(partitions),
                    assignment_epochs=list(partitions.values()),
                )
                for name, partitions in assigned_at.items()
            ],
        )
        self.write(Record(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), value))

    def records_since(self, position: int) -> list[Record]:
        return self.log.records()[position:]

    # -- requests ------------------------------------------------------------------------------------------------------

    def ask(
        self, group_id: str, decide: Callable[[GroupShard, FakeCaller, Now], Any], *, version: int = 9
    ) -> FakeCaller:
        client = FakeCaller(version)
        self.runtime.run(group_id, client, lambda shard, now: decide(shard, client, now))
        self.runtime.flush()
        return client

    def commit(
        self,
        group_id: str,
        offsets: Mapping[str, Mapping[int, int | CommittedOffset]],
        *,
        version: int = 9,
        member_id: str = "",
        generation: int = -1,
        instance_id: str | None = None,
        retention_ms: int = -1,
    ) -> Any:
        """The response's errors by topic and partition, or the error of the request."""

        def partition(index: int, committed: int | CommittedOffset) -> OffsetCommitRequestPartition:
            if isinstance(committed, int):
                committed = CommittedOffset(committed)
            return OffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                committed_metadata=committed.metadata,
            )

        request = OffsetCommitRequest(
            group_id=group_id,
            member_id=member_id,
            generation_id_or_member_epoch=generation,
            group_instance_id=instance_id,
            retention_time_ms=retention_ms,
            topics=[
                OffsetCommitRequestTopic(
                    name=name,
                    topic_id=self.topics.id_of(name) or bytes(16),
                    partitions=[partition(index, committed) for index, committed in partitions.items()],
                )
                for name, partitions in offsets.items()
            ],
        )
        answer = self.ask(
            group_id, lambda shard, client, now: shard.commit_offsets(client, request, now), version=version
        ).answer
        if isinstance(answer, ErrorCode):
            return answer
        assert [topic.topic_id for topic in answer.topics] == [topic.topic_id for topic in request.topics]
        return {t.name: {p.partition_index: ErrorCode(p.error_code) for p in t.partitions} for t in answer.topics}

    def commit_in_transaction(
        self,
        group_id: str,
        offsets: Mapping[str, Mapping[int, int | CommittedOffset]],
        *,
        producer_id: int = 7,
        producer_epoch: int = 0,
        version: int = 5,
        member_id: str = "",
        generation: int = -1,
        instance_id: str | None = None,
    ) -> Any:
        """The response's errors by topic and partition, or the error of the request."""

        def partition(index: int, committed: int | CommittedOffset) -> TxnOffsetCommitRequestPartition:
            if isinstance(committed, int):
                committed = CommittedOffset(committed)
            return TxnOffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                committed_metadata=committed.metadata,
            )

        request = TxnOffsetCommitRequest(
            transactional_id="transactional",
            group_id=group_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=name, partitions=[partition(index, committed) for index, committed in partitions.items()]
                )
                for name, partitions in offsets.items()
            ],
        )
        answer = self.ask(
            group_id,
            lambda shard, client, now: shard.commit_transactional_offsets(client, request, now),
            version=version,
        ).answer
        if isinstance(answer, ErrorCode):
            return answer
        return {t.name: {p.partition_index: ErrorCode(p.error_code) for p in t.partitions} for t in answer.topics}

    def end_transaction(self, producer_id: int = 7, *, committed: bool) -> None:
        self.runtime.end_transaction(producer_id, 0, coordinator_epoch=0, committed=committed, transaction_version=2)

    def fetch(
        self,
        group_id: str,
        topics: Mapping[str, Sequence[int]] | None = None,
        *,
        member_id: str | None = None,
        member_epoch: int = -1,
        require_stable: bool = False,
        topic_ids: Mapping[str, bytes] | None = None,
    ) -> OffsetFetchResponseGroup:
        request = OffsetFetchRequestGroup(
            group_id=group_id, member_id=member_id, member_epoch=member_epoch, topics=None
        )
        if topics is not None:
            request.topics = [
                OffsetFetchRequestTopics(
                    name=name, topic_id=(topic_ids or {}).get(name, bytes(16)), partition_indexes=list(partitions)
                )
                for name, partitions in topics.items()
            ]
        return completed(self.runtime.read(group_id).fetch_offsets(request, require_stable=require_stable))

    def fetched(self, group_id: str, topics: Mapping[str, Sequence[int]] | None = None) -> dict[str, dict[int, int]]:
        """The committed offsets by topic and partition."""
        answer = self.fetch(group_id, topics)
        assert answer.error_code == 0
        return {t.name: {p.partition_index: p.committed_offset for p in t.partitions} for t in answer.topics}

    def delete_offsets(self, group_id: str, topics: Mapping[str, Sequence[int]]) -> Any:
        request = OffsetDeleteRequest(
            group_id=group_id,
            topics=[
                OffsetDeleteRequestTopic(
                    name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in partitions]
                )
                for name, partitions in topics.items()
            ],
        )
        answer = self.ask(
            group_id, lambda shard, client, now: shard.delete_offsets(client, request, now), version=0
        ).answer
        if isinstance(answer, ErrorCode):
            return answer
        assert answer.error_code == 0
        return {t.name: {p.partition_index: ErrorCode(p.error_code) for p in t.partitions} for t in answer.topics}

    def delete_group(self, group_id: str) -> FakeCaller:
        return self.ask(group_id, lambda shard, client, now: shard.delete_group(client, group_id, now), version=2)

    def delete_topics(self, *names: str) -> None:
        for name in names:
            self.topics.ids.pop(name, None)
        self.runtime.decide("", self.shard.delete_offsets_of_topics(names))
        self.runtime.flush()


@pytest.fixture
def records() -> Any:
    """The makers of the records that delete: `tombstone` and `end_of_classic_group`."""
    return SimpleNamespace(tombstone=tombstone, end_of_classic_group=end_of_classic_group)


@pytest.fixture
def coordinator() -> Coordinator:
    """With the topics a, b and c."""
    made = Coordinator()
    made.topics.add("a", "b", "c")
    return made


@pytest.fixture
def new_coordinator() -> Callable[..., Coordinator]:
    """``new_coordinator(**settings)``, with the topics a, b and c."""

    def new(**settings: Any) -> Coordinator:
        made = Coordinator(GroupConfig(**settings))
        made.topics.add("a", "b", "c")
        return made

    return new
