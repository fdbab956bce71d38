"""A real Apache Kafka with groups of every kind is stopped; Moldau restores the groups from its offsets topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from moldau.coordinator.outcome import Now, Record
from moldau.coordinator.runtime import CoordinatorRuntime
from moldau.group_coordinator.classic import kind as classic
from moldau.group_coordinator.config import GroupConfig
from moldau.group_coordinator.consumer import kind as consumer
from moldau.group_coordinator.consumer.regexes import compiled
from moldau.group_coordinator.records import decode_record, encode_record
from moldau.group_coordinator.shard import GroupShard
from moldau.group_coordinator.states import GroupStates
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.delete_groups import DeleteGroupsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.describe_groups import DescribeGroupsRequest
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.list_groups import ListGroupsRequest
from moldau.protocol.messages.metadata import MetadataRequest
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
from moldau.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from moldau.protocol.records import RecordBatch, iter_batches, iter_records
from moldau.protocol.steps import completed
from moldau.testing.apache_kafka import ApacheKafka
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

from ..coordinator.harness import decoded

pytestmark = pytest.mark.slow

SIMPLE, CLASSIC, PYTHON, CONSUMER, MIXED, LEFT, DELETED = (
    "simple", "classic", "kafka-python", "consumer", "mixed", "left", "deleted",
)  # fmt: skip
GROUPS = [SIMPLE, CLASSIC, PYTHON, CONSUMER, MIXED, LEFT, DELETED]


@dataclass
class Known:
    """The state of Apache Kafka, and its records."""

    listed: dict[str, Any]
    offsets: dict[str, Any]
    described: dict[str, Any]
    described_consumer_groups: dict[str, Any]
    topic_ids: dict[str, bytes]
    batches: dict[str, list[RecordBatch]]
    """Of each partition of the offsets topic."""
    simple_commits: list[tuple[int, OffsetCommitRequest]]

    def records(self) -> list[Record]:
        found: list[Any] = []
        for batches in self.batches.values():
            for batch in batches:
                found += (decoded(record, decode_record) for record in iter_records(batch))
        return found


class KnownTopics:
    """The topics of the cluster."""

    version = 1

    def __init__(self, ids: dict[str, bytes]) -> None:
        self.ids = ids

    def id_of(self, name: str) -> bytes | None:
        return self.ids.get(name)

    def name_of(self, topic_id: bytes) -> str | None:
        return next((name for name, one in self.ids.items() if one == topic_id), None)

    def partition_count(self, name: str) -> int:
        return 3 if name in self.ids else 0

    def names(self) -> Any:
        return self.ids.keys()

    def matching(self, regex: str) -> frozenset[str]:
        return compiled(regex).matching(self.names())


class Caller:
    client_id = "client"
    client_host = "/127.0.0.1"
    principal = "User:ANONYMOUS"
    listener_name = "PLAINTEXT"

    def __init__(self, api_version: int) -> None:
        self.api_version = api_version


def commit_request(
    group_id: str, version: int, topic: str, topic_id: bytes, *, retention_ms: int = -1
) -> OffsetCommitRequest:
    """A commit to three partitions, with all that the version has."""
    return OffsetCommitRequest(
        group_id=group_id,
        retention_time_ms=retention_ms,
        topics=[
            OffsetCommitRequestTopic(
                name=topic if version < 10 else "",
                topic_id=topic_id if version >= 10 else bytes(16),
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=1000 * version + index if index else -1,
                        committed_leader_epoch=version if version >= 6 else -1,
                        committed_metadata=(None, "", f"version {version} é \U0001f600")[index],
                    )
                    for index in range(3)
                ],
            )
        ],
    )


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Known]:
    config = {"offsets.topic.num.partitions": "3"}
    with ApacheKafka(config, parent=tmp_path_factory.mktemp("apache")) as kafka, ExitStack() as consumers:
        with closing(WireClient(kafka.bootstrap_servers)) as wire:
            topic_ids = create_topics(wire, "t", "u", "gone")
            for group_id in GROUPS:
                find_coordinator(wire, group_id)
            commits = commit_as_simple_groups(wire, topic_ids)
            run_members(kafka.bootstrap_servers, wire, consumers)
            delete_some(wire)
            del topic_ids["gone"]
            listed = {group.group_id: group for group in wire.call(ListGroupsRequest(), 5).groups}
            requested = OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in GROUPS]
            )
            offsets = {group.group_id: group for group in wire.call(requested, 9).groups}
            described = {group.group_id: group for group in wire.call(DescribeGroupsRequest(groups=GROUPS), 6).groups}
            described_consumer_groups = {
                group.group_id: group for group in wire.call(ConsumerGroupDescribeRequest(group_ids=GROUPS), 1).groups
            }
        kafka.stop()
        batches = {
            directory.name: [
                batch for segment in sorted(directory.glob("*.log")) for batch in iter_batches(segment.read_bytes())
            ]
            for directory in Path(kafka.data_dir).glob("__consumer_offsets-*")
        }
        yield Known(listed, offsets, described, described_consumer_groups, topic_ids, batches, commits)


def create_topics(wire: WireClient, *names: str) -> dict[str, bytes]:
    topics = [CreatableTopic(name=name, num_partitions=3, replication_factor=1) for name in names]
    response = wire.call(CreateTopicsRequest(topics=topics, timeout_ms=30_000))
    assert [topic.error_code for topic in response.topics] == [0] * len(names)
    wait_until(
        lambda: {topic.name for topic in wire.call(MetadataRequest(topics=None)).topics} >= set(names), "the topics"
    )
    return {topic.name: topic.topic_id for topic in wire.call(MetadataRequest(topics=None)).topics}


def find_coordinator(wire: WireClient, group_id: str) -> None:
    def found() -> bool:
        response = wire.call(FindCoordinatorRequest(coordinator_keys=[group_id]), 4)
        if response.coordinators[0].error_code:
            return False
        fetched = wire.call(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)]), 8)
        return not fetched.groups[0].error_code

    wait_until(found, "the coordinators")


def commit_as_simple_groups(wire: WireClient, topic_ids: dict[str, bytes]) -> list[tuple[int, OffsetCommitRequest]]:
    """Commit with each version, and with a retention time. Returns the offsets of `SIMPLE`."""

    def commit(group_id: str, version: int, topic: str, retention_ms: int = -1) -> OffsetCommitRequest:
        request = commit_request(group_id, version, topic, topic_ids[topic], retention_ms=retention_ms)
        response = wire.call(request, version)
        assert {partition.error_code for topic in response.topics for partition in topic.partitions} == {0}
        return request

    done = [(version, commit(SIMPLE, version, "t")) for version in range(2, 11)]
    done.append((4, commit(SIMPLE, 4, "u", 3_600_000)))
    commit(SIMPLE, 9, "gone")
    commit(DELETED, 9, "t")
    return done


def run_members(address: str, wire: WireClient, consumers: ExitStack) -> None:
    """Members of all kinds. All but those of `LEFT` stay until the server has stopped."""
    confluent = pytest.importorskip("confluent_kafka")
    kafka_python = pytest.importorskip("kafka")

    def open_consumer(group_id: str, topics: list[str], **config: str) -> Any:
        settings = {"bootstrap.servers": address, "group.id": group_id, "enable.auto.commit": "false", **config}
        consumer = confluent.Consumer({name.replace("_", "."): value for name, value in settings.items()})
        consumers.callback(consumer.close)
        consumer.subscribe(topics)
        return consumer

    def commit(consumer: Any, topic: str, partition: int, offset: int) -> None:
        where = confluent.TopicPartition(topic, partition, offset, f"note of {offset}")
        consumer.commit(offsets=[where], asynchronous=False)

    members = [
        open_consumer(CLASSIC, ["t"]),
        open_consumer(CLASSIC, ["t", "u"], group_instance_id="static"),
        open_consumer(CONSUMER, ["t", "u"], group_protocol="consumer"),
        open_consumer(CONSUMER, ["^[tu]$"], group_protocol="consumer", group_instance_id="static", client_rack="r"),
    ]
    classic_in_mixed = open_consumer(MIXED, ["t"], partition_assignment_strategy="range")
    left = open_consumer(LEFT, ["u"])
    python = kafka_python.KafkaConsumer("u", group_id=PYTHON, bootstrap_servers=address, enable_auto_commit=False)
    python.partitions_for_topic("u")  # before it joins: see testing/clients/group_member_kafka_python
    consumers.callback(lambda: python.close(autocommit=False, timeout_ms=100))

    def assigned(*some: Any) -> Callable[[], bool]:
        def look() -> bool:
            for one in some:
                one.poll(0.05)
            return all(one.assignment() for one in some)

        return look

    wait_until(assigned(classic_in_mixed, left, *members), "the assignments")
    members += [classic_in_mixed, open_consumer(MIXED, ["t", "u"], group_protocol="consumer")]
    commit(left, "u", 1, 77)
    left.close()

    def settled() -> bool:
        for one in members:
            one.poll(0.05)
        python.poll(50)
        states = {group.group_id: group.group_state for group in wire.call(ListGroupsRequest(), 5).groups}
        counts = {group.group_id: len(group.members) for group in described(CLASSIC, PYTHON)}
        counts |= {
            group.group_id: len(group.members)
            for group in wire.call(ConsumerGroupDescribeRequest(group_ids=[CONSUMER, MIXED]), 1).groups
        }
        stable = all(states.get(name) == "Stable" for name in (CLASSIC, PYTHON, CONSUMER, MIXED))
        know = all(one.assignment() for one in (*members, python))
        return stable and counts == {CLASSIC: 2, PYTHON: 1, CONSUMER: 2, MIXED: 2} and know

    def described(*names: str) -> Any:
        return wire.call(DescribeGroupsRequest(groups=list(names)), 5).groups

    wait_until(settled, "the groups as they are to be")
    for number, one in enumerate(members):
        where = one.assignment()[0]
        commit(one, where.topic, where.partition, 100 + number)
    where = next(iter(python.assignment()))
    python.commit({where: kafka_python.OffsetAndMetadata(55, "of kafka-python", -1)})
    assert settled()


def delete_some(wire: WireClient) -> None:
    partitions = [OffsetDeleteRequestPartition(partition_index=1)]
    topics = [OffsetDeleteRequestTopic(name="t", partitions=partitions)]
    assert wire.call(OffsetDeleteRequest(group_id=SIMPLE, topics=topics)).error_code == 0
    assert wire.call(DeleteGroupsRequest(groups_names=[DELETED])).results[0].error_code == 0
    response = wire.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="gone")], timeout_ms=30_000))
    assert response.responses[0].error_code == 0

    def forgotten() -> bool:
        requested = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=SIMPLE, topics=None)])
        return {topic.name for topic in wire.call(requested, 9).groups[0].topics} == {"t", "u"}

    wait_until(forgotten, "the end of the offsets of the topic")


@pytest.fixture(scope="module")
def shards(known: Known) -> list[GroupShard]:
    """A coordinator for each partition, with all records replayed."""

    class NoWriter:
        max_batch_bytes = 1 << 20
        high_watermark = 0

        def append(self, batch: bytes, *, verification: Any = None) -> int:
            raise AssertionError("loading writes nothing")

        def append_marker(self, *arguments: Any, **named: Any) -> int:
            raise AssertionError("loading writes nothing")

    def failed() -> None:
        raise AssertionError("a record could not be replayed")

    made = []
    for name, batches in known.batches.items():
        states = GroupStates(GroupConfig(), KnownTopics(known.topic_ids), new_uuid=lambda: "")
        shard = GroupShard(states)
        runtime = CoordinatorRuntime(
            name, shard, NoWriter(), lambda: Now(0, 0), request_flush=lambda: None, failed=failed
        )
        for batch in batches:
            for _ in runtime.load(batch):
                pass
        runtime.activate()
        made.append(shard)
    return made


def shard_of(shards: list[GroupShard], group_id: str) -> GroupShard:
    return next((shard for shard in shards if group_id in shard.states.groups), shards[0])


def test_every_record_is_decoded_and_encoded_unchanged(known: Known) -> None:
    kinds = set()
    for batches in known.batches.values():
        for batch in batches:
            for record in iter_records(batch):
                assert encode_record(decoded(record, decode_record)) == (record.key, record.value)
                assert record.key is not None
                kinds.add(int.from_bytes(record.key[:2], "big"))
    assert kinds == {1, 2, 3, 5, 6, 7, 8, 16}


def test_the_groups_are_the_same(known: Known, shards: list[GroupShard]) -> None:
    ours = {group.group_id: group for shard in shards for some in shard.list_groups([], []) for group in some}

    assert ours == known.listed
    assert {name: (group.group_type, group.group_state) for name, group in ours.items()} == {
        SIMPLE: ("classic", "Empty"),
        CLASSIC: ("classic", "Stable"),
        PYTHON: ("classic", "Stable"),
        CONSUMER: ("consumer", "Stable"),
        MIXED: ("consumer", "Stable"),
        LEFT: ("classic", "Empty"),
    }


@pytest.mark.parametrize("group_id", GROUPS)
def test_the_offsets_are_the_same(known: Known, shards: list[GroupShard], group_id: str) -> None:
    request = OffsetFetchRequestGroup(group_id=group_id, topics=None)
    ours = completed(shard_of(shards, group_id).fetch_offsets(request, require_stable=True))

    def by_partition(answer: Any) -> dict[tuple[str, int], Any]:
        assert answer.error_code == 0
        return {(topic.name, one.partition_index): one for topic in answer.topics for one in topic.partitions}

    assert by_partition(ours) == by_partition(known.offsets[group_id])
    assert bool(by_partition(ours)) == (group_id != DELETED)


@pytest.mark.parametrize("group_id", GROUPS)
def test_classic_groups_have_the_same_members(known: Known, shards: list[GroupShard], group_id: str) -> None:
    ours = shard_of(shards, group_id).describe(classic.CLASSIC, group_id, api_version=6)
    theirs = known.described[group_id]
    for described in (ours, theirs):
        described.members.sort(key=lambda member: member.member_id)
        described.error_message = None  # in words of their own

    assert ours == theirs
    if group_id in (CLASSIC, PYTHON):
        assert all(member.member_assignment for member in ours.members)


@pytest.mark.parametrize("group_id", GROUPS)
def test_consumer_groups_have_the_same_members(known: Known, shards: list[GroupShard], group_id: str) -> None:
    ours = shard_of(shards, group_id).describe(consumer.CONSUMER, group_id, api_version=1)
    theirs = known.described_consumer_groups[group_id]
    for described in (ours, theirs):
        described.members.sort(key=lambda member: member.member_id)
        described.error_message = None
        for member in described.members:
            member.subscribed_topic_names.sort()
            for assignment in (member.assignment, member.target_assignment):
                assignment.topic_partitions.sort(key=lambda topic: topic.topic_name)
                for topic in assignment.topic_partitions:
                    topic.partitions.sort()

    assert ours == theirs
    assert (ours.error_code == ErrorCode.NONE) == (group_id in (CONSUMER, MIXED))


def test_the_same_commits_make_the_same_records(known: Known) -> None:
    """For each version of the request: the version of the record, and its fields."""
    states = GroupStates(GroupConfig(), KnownTopics(known.topic_ids), new_uuid=lambda: "")
    shard = GroupShard(states)
    ours: list[Record] = []
    for version, request in known.simple_commits:
        topic = request.topics[0]
        # The commits of every version.
        topic.name = topic.name or "t"
        topic.topic_id = known.topic_ids[topic.name]
        caller: Any = Caller(version)
        ours += shard.commit_offsets(caller, request, Now(0, 0)).records

    theirs = []
    for record in known.records():
        key: Any = record.key
        value: Any = record.value
        if value is not None and getattr(key, "group", None) == SIMPLE and key.topic != "gone":
            if value.expire_timestamp != -1:
                value.expire_timestamp -= value.commit_timestamp
            value.commit_timestamp = 0
            theirs.append(record)

    assert ours == theirs
    assert {record.value_version for record in ours} == {1, 4}
