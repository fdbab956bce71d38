"""Groups in the broker: their location, loading, shutdown, failures, and responses that combine several parts."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from moldau.coordinator.outcome import Record
from moldau.coordinator.runtime import State
from moldau.group_coordinator.records import GroupMetadataKey, OffsetCommitKey, OffsetCommitValue, encode_record
from moldau.log.memory_files import MemoryFileSystem
from moldau.metadata.outcome import Versioned
from moldau.metadata.records import PartitionChangeRecord
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.delete_groups import DeleteGroupsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from moldau.protocol.messages.leave_group import LeaveGroupRequest
from moldau.protocol.messages.list_groups import ListGroupsRequest
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
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.messages.sync_group import SyncGroupRequest
from moldau.protocol.records import Record as LogRecord
from moldau.protocol.records import build_batch
from moldau.protocol.steps import completed
from moldau.server.coordination import coordinators as hosting
from moldau.server.coordination.coordinators import partition_of
from moldau.server.handlers.group_offsets import handle_offset_delete
from moldau.testing.wire import WireClient

from .conftest import MakeServer, RunningServer

QUICK = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "5"}


@pytest.fixture
def server(make_server: MakeServer) -> RunningServer:
    return make_server(config=QUICK)


@pytest.fixture
def wire(server: RunningServer) -> Iterator[Any]:
    with server.wire() as wire:
        yield wire


def find(wire: WireClient, group_id: str) -> Any:
    """Wait until the coordinator of the group is available."""
    (found,) = wire.call(FindCoordinatorRequest(coordinator_keys=[group_id]), 4).coordinators
    assert found.error_code == 0, found
    return found


def commit(
    wire: WireClient, group_id: str, topic: str, offset: int, *, partitions: int = 1, version: int = 9
) -> list[Any]:
    request = OffsetCommitRequest(
        group_id=group_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
                    for index in range(partitions)
                ],
            )
        ],
    )
    (answer,) = wire.call(request, version).topics
    return [partition.error_code for partition in answer.partitions]


def committed(wire: WireClient, group_id: str) -> dict[Any, Any]:
    """All committed offsets of a group."""
    (group,) = wire.call(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)]), 8).groups
    assert group.error_code == 0, ErrorCode(group.error_code)
    return {
        (topic.name, partition.partition_index): partition.committed_offset
        for topic in group.topics
        for partition in topic.partitions
    }


def join(wire: WireClient, group_id: str, member_id: str = "") -> Any:
    send_join(wire, group_id, member_id)
    return wire.receive()


def send_join(wire: WireClient, group_id: str, member_id: Any) -> None:
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\0\0\0\0")]
    wire.send(
        JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=protocols,
        ),
        3,
    )


# Java: Math.abs(text.hashCode()) % 50, with 0 for the smallest integer, which is the hash of "polygenelubricants".
@pytest.mark.parametrize(
    ("group_id", "partition"),
    [
        ("", 0),
        ("a", 47),
        ("my-group", 12),
        ("polygenelubricants", 0),
        ("grüße", 23),
        ("😀 group", 6),
        ("console-consumer-12345", 6),
    ],
)
def test_a_group_belongs_to_the_same_partition_as_in_apache_kafka(group_id: str, partition: int) -> None:
    assert partition_of(group_id, 50) == partition


def test_the_offsets_topic_is_created_by_the_first_find_coordinator(server: RunningServer, wire: WireClient) -> None:
    assert "__consumer_offsets" not in server.broker.metadata.image.topics_by_name
    found = find(wire, "g")
    assert (found.node_id, f"{found.host}:{found.port}") == (server.broker.node_id, server.bootstrap_servers)
    topic = server.broker.metadata.image.topics_by_name["__consumer_offsets"]
    assert len(topic.partitions) == 5
    assert server.broker.metadata.image.config(2, "__consumer_offsets")["cleanup.policy"] == "compact"


@pytest.mark.parametrize("version", range(7))
def test_every_version_finds_the_coordinator(server: RunningServer, wire: WireClient, version: int) -> None:
    if version < 4:
        found = wire.call(FindCoordinatorRequest(key="g"), version)
        assert (found.error_code, found.node_id, found.port) == (
            0,
            server.broker.node_id,
            server.server.addresses[0][1],
        )
    else:
        answer = wire.call(FindCoordinatorRequest(coordinator_keys=["g", "h"]), version)
        assert [(c.key, c.error_code, c.node_id) for c in answer.coordinators] == [("g", 0, 1), ("h", 0, 1)]


def test_before_find_coordinator_no_coordinator_is_available(wire: WireClient) -> None:
    answer = wire.call(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4)
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert wire.call(ListGroupsRequest(), 5).groups == []


def test_committed_offsets_survive_a_restart(server: RunningServer, wire: WireClient) -> None:
    server.create_topic("t", partitions=3)
    for number in range(20):
        find(wire, f"g{number}")
        assert commit(wire, f"g{number}", "t", number, partitions=3) == [0, 0, 0]
    server.restart()
    with server.wire() as wire:
        server.wait_until(lambda: all_active(server))
        for number in range(20):
            assert committed(wire, f"g{number}") == {("t", index): number for index in range(3)}


def all_active(server: RunningServer) -> Any:
    hosted = server.broker.groups._hosted.values()
    return bool(hosted) and all(one.runtime.state is State.ACTIVE for one in hosted)


def test_commits_of_one_iteration_share_batches(server: RunningServer, wire: WireClient) -> None:
    server.create_topic("t")
    find(wire, "g")
    # Requests for groups of one partition of the offsets topic. They arrive while the event loop is blocked.
    index = partition_of("g", 5)
    group_ids = [f"g{number}" for number in range(200) if partition_of(f"g{number}", 5) == index][:20]
    blocked, all_sent = threading.Event(), threading.Event()

    def block() -> None:
        blocked.set()
        assert all_sent.wait(60)

    server.loop.call_soon_threadsafe(block)
    assert blocked.wait(60)
    for group_id in group_ids:
        request = OffsetCommitRequest(
            group_id=group_id,
            topics=[OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition(committed_offset=7)])],
        )
        wire.send(request, 9)
    all_sent.set()
    for _ in group_ids:
        (topic,) = wire.receive().topics
        assert topic.partitions[0].error_code == 0
    log = server.partition("__consumer_offsets", index).log
    batches = server.call(lambda: [batch.record_count for batch in log.batches(0)])
    assert sum(batches) == len(group_ids)
    assert len(batches) < len(group_ids) / 2


def offset_record(group_id: str, partition: Any, offset: int) -> Any:
    key, value = encode_record(
        Record(
            OffsetCommitKey(group=group_id, topic="t", partition=partition),
            OffsetCommitValue(offset=offset, metadata="", commit_timestamp=1_700_000_000_000),
            3,
        )
    )
    return LogRecord(key=key, value=value, timestamp=1_700_000_000_000)


def produce(server: RunningServer, index: int, batch: Any, client_id: str = "__admin_client") -> Any:
    partition = PartitionProduceData(index=index, records=batch)
    request = ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="__consumer_offsets", partition_data=[partition])]
    )
    with WireClient(server.bootstrap_servers, client_id=client_id) as wire:
        return wire.call(request, 9).responses[0].partition_responses[0].error_code


def test_only_an_admin_client_can_write_to_the_offsets_topic(server: RunningServer, wire: WireClient) -> None:
    find(wire, "g")
    batch = build_batch([offset_record("g", 0, 1)])
    assert produce(server, 0, batch, "anybody") == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert produce(server, 0, batch) == 0


def test_while_a_partition_loads_its_groups_get_an_error_and_others_are_served(
    server: RunningServer, wire: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    find(wire, "g")
    index = partition_of("g", 5)
    for number in range(10):
        records = [offset_record("g", partition, number) for partition in range(2000)]
        assert produce(server, index, build_batch(records)) == 0
    monkeypatch.setattr(hosting, "SLICE_MS", 0.0)
    was_refused = threading.Event()
    run_slice = hosting.Coordinators._run_slice

    def a_slice_after_a_request_was_refused(coordinators: Any, steps: Any) -> Any:
        return was_refused.is_set() and run_slice(coordinators, steps)

    monkeypatch.setattr(hosting.Coordinators, "_run_slice", a_slice_after_a_request_was_refused)
    seen = set()
    activate = hosting.Coordinators._activate

    def activated(self: Any, hosted: Any) -> None:
        if hosted.partition.index == index:
            states = {one.runtime.state for one in self._hosted.values() if one is not hosted}
            seen.add(frozenset(states))
        activate(self, hosted)

    monkeypatch.setattr(hosting.Coordinators, "_activate", activated)
    server.restart()
    codes = []
    with server.wire() as wire:
        other = next(f"o{n}" for n in range(100) if partition_of(f"o{n}", 5) != index)
        while True:
            heartbeat = wire.call(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4).error_code
            code = wire.call(SyncGroupRequest(group_id="g", generation_id=1, member_id="m"), 4).error_code
            codes.append(code)
            answer = wire.call(HeartbeatRequest(group_id=other, generation_id=1, member_id="m"), 4).error_code
            assert answer == ErrorCode.UNKNOWN_MEMBER_ID
            if code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                break
            # Clients fail on an unexpected error of a heartbeat, so the heartbeat succeeds without a check.
            assert heartbeat == ErrorCode.NONE
            listed = wire.call(ListGroupsRequest(), 5)
            assert listed.error_code in (0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            find(wire, "g")  # the location of the group is known
            was_refused.set()
        assert codes[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert codes[-1] == ErrorCode.UNKNOWN_MEMBER_ID
        assert committed(wire, "g") == {("t", partition): 9 for partition in range(2000)}
    assert seen == {frozenset({State.ACTIVE})}


def test_a_broken_record_does_not_prevent_loading_the_others(
    server: RunningServer, wire: WireClient, caplog: pytest.LogCaptureFixture
) -> None:
    find(wire, "g")
    index = partition_of("g", 5)
    broken = LogRecord(key=b"\0\1\0", value=b"\0\3", timestamp=1)
    unknown = LogRecord(key=b"\x7f\1abc", value=b"\0\3", timestamp=1)
    batch = build_batch([offset_record("g", 0, 5), broken, unknown, offset_record("g", 1, 6)])
    assert produce(server, index, batch) == 0
    server.restart()
    with server.wire() as wire:
        server.wait_until(lambda: all_active(server))
        assert committed(wire, "g") == {("t", 0): 5, ("t", 1): 6}
    assert "record at offset 1, which cannot be decoded" in caplog.text


def test_a_shutdown_completes_requests_that_wait_for_a_rebalance(make_server: MakeServer) -> None:
    server = make_server(config=QUICK | {"group.initial.rebalance.delay.ms": "60000"})
    with server.wire() as wire:
        find(wire, "g")
        protocols = [JoinGroupRequestProtocol(name="range")]
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=protocols,
        )
        wire.send(request, 3)
        server.wait_until(lambda: "g" in server.broker.groups.runtime_of("g").shard.states.groups)
        server.stop()
        assert wire.receive().error_code == ErrorCode.NOT_COORDINATOR


def elect_again(server: RunningServer, topic: str) -> None:
    """A new leader epoch of partition 0, with the same leader. Another broker may have led in between."""
    broker = server.broker
    topic_id = server.call(lambda: broker.metadata.image.topics_by_name[topic].topic_id)
    partition = server.partition(topic)
    epoch = partition.leader_epoch
    record = PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=broker.node_id)
    server.append_metadata(lambda end_offset: Versioned(record))
    server.wait_until(lambda: partition.leader_epoch == epoch + 1)


def test_in_a_new_leader_epoch_groups_are_loaded_again(make_server: MakeServer) -> None:
    config = QUICK | {"group.initial.rebalance.delay.ms": "60000", "offsets.topic.num.partitions": "1"}
    server = make_server(config=config)
    server.create_topic("t")
    with server.wire() as wire, server.wire() as member:
        find(wire, "g")
        assert commit(wire, "g", "t", 7) == [0]
        send_join(member, "h", "")
        runtime = server.broker.groups.runtime_of("h")
        server.wait_until(lambda: "h" in runtime.shard.states.groups)
        elect_again(server, "__consumer_offsets")
        assert member.receive().error_code == ErrorCode.NOT_COORDINATOR
        assert runtime.state is State.CLOSED
        server.wait_until(lambda: server.broker.groups.runtime_of("g").state is State.ACTIVE)
        assert committed(wire, "g") == {("t", 0): 7}
        assert commit(wire, "g", "t", 8) == [0]


def test_a_decision_of_an_earlier_leader_epoch_is_not_written(make_server: MakeServer) -> None:
    server = make_server(config=QUICK | {"offsets.topic.num.partitions": "1"})
    server.create_topic("t")
    with server.wire() as wire, server.wire() as committing:
        find(wire, "g")
        assert commit(wire, "g", "t", 7) == [0]
        partition = server.partition("__consumer_offsets", 0)
        end_offset = partition.log.log_end_offset
        server.call(lambda: setattr(partition, "leader_epoch", partition.leader_epoch + 1))  # known here first
        assert commit(committing, "g", "t", 8) == [ErrorCode.NOT_COORDINATOR]
        assert partition.log.log_end_offset == end_offset
        server.call(lambda: server.broker.groups.follow(0))
        server.wait_until(lambda: server.broker.groups.runtime_of("g").state is State.ACTIVE)
        assert committed(wire, "g") == {("t", 0): 7}


def test_a_generation_survives_a_restart(server: RunningServer, wire: WireClient) -> None:
    find(wire, "g")
    joined = join(wire, "g")
    assert joined.error_code == 0
    synced = wire.call(
        SyncGroupRequest(
            group_id="g",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[],
        ),
        3,
    )
    assert synced.error_code == 0
    server.restart()
    with server.wire() as wire:
        server.wait_until(lambda: all_active(server))
        beat = HeartbeatRequest(group_id="g", generation_id=joined.generation_id, member_id=joined.member_id)
        assert wire.call(beat, 4).error_code == 0


def test_a_full_disk_rejects_commits_until_space_is_available(make_server: MakeServer) -> None:
    file_system = MemoryFileSystem()
    server = make_server(log_dirs=["/data"], config=QUICK, file_system=file_system)
    with server.wire() as wire:
        server.create_topic("t")
        find(wire, "g")
        assert commit(wire, "g", "t", 1) == [0]
        server.call(lambda: setattr(file_system, "capacity_bytes", 0))
        assert commit(wire, "g", "t", 2) == [ErrorCode.NOT_COORDINATOR]
        assert committed(wire, "g") == {("t", 0): 1}
        server.call(lambda: setattr(file_system, "capacity_bytes", None))
        assert commit(wire, "g", "t", 3) == [0]
        assert committed(wire, "g") == {("t", 0): 3}


def test_offsets_of_a_deleted_topic_are_removed(server: RunningServer, wire: WireClient) -> None:
    server.create_topic("t")
    server.create_topic("kept")
    find(wire, "g")
    assert commit(wire, "g", "t", 1) == [0]
    assert commit(wire, "g", "kept", 2) == [0]
    assert wire.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000), 6)
    offsets = server.broker.groups.runtime_of("g").shard.states.offsets
    server.wait_until(lambda: not list(offsets.partitions("g", "t")))
    assert committed(wire, "g") == {("kept", 0): 2}


def test_committing_fails_only_for_unknown_topics(server: RunningServer, wire: WireClient) -> None:
    topic_id = server.create_topic("t")
    find(wire, "g")
    partitions = [OffsetCommitRequestPartition(committed_offset=4)]
    by_name = OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(name="nope", partitions=partitions),
            OffsetCommitRequestTopic(name="t", partitions=partitions),
        ],
    )
    answer = wire.call(by_name, 9)
    assert {topic.name: topic.partitions[0].error_code for topic in answer.topics} == {
        "nope": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "t": 0,
    }
    by_id = OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(topic_id=b"x" * 16, partitions=partitions),
            OffsetCommitRequestTopic(topic_id=topic_id, partitions=partitions),
        ],
    )
    answer = wire.call(by_id, 10)
    assert {topic.topic_id: topic.partitions[0].error_code for topic in answer.topics} == {
        b"x" * 16: ErrorCode.UNKNOWN_TOPIC_ID,
        topic_id: 0,
    }


def test_committing_fails_only_for_unknown_partitions(server: RunningServer, wire: WireClient) -> None:
    server.create_topic("t", partitions=2)
    find(wire, "g")
    partitions = [OffsetCommitRequestPartition(partition_index=index, committed_offset=4) for index in (0, 7, 1)]
    topics = [OffsetCommitRequestTopic(name="t", partitions=partitions)]
    (topic,) = wire.call(OffsetCommitRequest(group_id="g", topics=topics), 9).topics
    assert [(partition.partition_index, partition.error_code) for partition in topic.partitions] == [
        (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (0, 0),
        (1, 0),
    ]
    assert committed(wire, "g") == {("t", 0): 4, ("t", 1): 4}
    stranger = OffsetCommitRequest(group_id="g", member_id="x", generation_id_or_member_epoch=5, topics=topics)
    (topic,) = wire.call(stranger, 9).topics
    assert [(partition.partition_index, partition.error_code) for partition in topic.partitions] == [
        (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (0, ErrorCode.UNKNOWN_MEMBER_ID),
        (1, ErrorCode.UNKNOWN_MEMBER_ID),
    ]
    topics = [OffsetCommitRequestTopic(name="t", partitions=partitions[1:2])]
    (topic,) = wire.call(OffsetCommitRequest(group_id="new", topics=topics), 9).topics
    assert [partition.error_code for partition in topic.partitions] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert committed(wire, "new") == {}


@pytest.mark.parametrize("version", range(1, 11))
def test_every_version_reads_committed_offsets(server: RunningServer, wire: WireClient, version: int) -> None:
    topic_id = server.create_topic("t")
    find(wire, "g")
    assert commit(wire, "g", "t", 11) == [0]
    if version < 8:
        topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
        (topic,) = wire.call(OffsetFetchRequest(group_id="g", topics=topics), version).topics
    else:
        named: dict[str, Any] = {"topic_id": topic_id} if version >= 10 else {"name": "t"}
        requested = [OffsetFetchRequestTopics(partition_indexes=[0, 1], **named)]
        (group,) = wire.call(
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=requested)]), version
        ).groups
        (topic,) = group.topics
        if version >= 10:
            assert topic.topic_id == topic_id
    assert [(p.partition_index, p.committed_offset, p.error_code) for p in topic.partitions] == [(0, 11, 0), (1, -1, 0)]


def test_each_group_of_a_request_is_deleted_independently(server: RunningServer, wire: WireClient) -> None:
    server.create_topic("t")
    for group_id in ("a", "b"):
        find(wire, group_id)
        assert commit(wire, group_id, "t", 1) == [0]
    joined = join(wire, "busy")
    assert joined.error_code == 0
    answer = wire.call(DeleteGroupsRequest(groups_names=["a", "missing", "b", "busy"]), 2)
    assert [(result.group_id, result.error_code) for result in answer.results] == [
        ("a", 0),
        ("missing", ErrorCode.GROUP_ID_NOT_FOUND),
        ("b", 0),
        ("busy", ErrorCode.NON_EMPTY_GROUP),
    ]
    assert {group.group_id for group in wire.call(ListGroupsRequest(), 5).groups} == {"busy"}
    left = wire.call(LeaveGroupRequest(group_id="busy", member_id=joined.member_id), 0)
    assert left.error_code == 0
    left = wire.call(LeaveGroupRequest(group_id="busy", member_id=joined.member_id), 0)
    assert left.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_deleting_offsets_of_unknown_partitions_fails_only_for_them(server: RunningServer, wire: WireClient) -> None:
    server.create_topic("t")
    find(wire, "g")
    assert commit(wire, "g", "t", 1) == [0]
    topics = [
        OffsetDeleteRequestTopic(
            name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
        )
        for name, indexes in (("t", [0, 5]), ("nope", [0]))
    ]
    answer = wire.call(OffsetDeleteRequest(group_id="g", topics=topics), 0)
    assert answer.error_code == 0
    codes = {
        (topic.name, partition.partition_index): partition.error_code
        for topic in answer.topics
        for partition in topic.partitions
    }
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == {("t", 0): 0, ("t", 5): unknown, ("nope", 0): unknown}
    assert committed(wire, "g") == {}


class Caller:
    """A caller of a handler, without a connection. Keeps the responses."""

    api_version = 0

    def __init__(self) -> None:
        self.answers: list[Any] = []

    def reply(self, response: Any) -> None:
        self.answers.append(response)


def offset_delete_in_halves(server: RunningServer, partitions: Any) -> Any:
    """OffsetDelete for two topics of which every second partition exists. Returns the CPU time of the server's thread
    in seconds, the best of five, and the response."""
    there = SimpleNamespace(partitions=dict.fromkeys(range(0, partitions, 2)))
    image = SimpleNamespace(topics_by_name={"a": there, "b": there})
    broker = SimpleNamespace(metadata=SimpleNamespace(image=image), groups=server.broker.groups)

    def ask() -> Any:
        topics = [
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=i) for i in range(partitions)]
            )
            for name in ("a", "b")
        ]
        request, caller = OffsetDeleteRequest(group_id="g", topics=topics), Caller()
        before = time.thread_time()
        completed(handle_offset_delete(broker, caller, request))  # type: ignore[arg-type]
        took = time.thread_time() - before
        (answer,) = caller.answers
        return took, answer

    runs = [server.call(ask) for _ in range(5)]
    return min(took for took, _ in runs), runs[0][1]


def test_the_time_to_delete_offsets_is_proportional_to_their_number(server: RunningServer, wire: WireClient) -> None:
    server.create_topic("t")
    find(wire, "g")
    assert commit(wire, "g", "t", 1) == [0]
    few, _ = offset_delete_in_halves(server, 1_250)
    many, answer = offset_delete_in_halves(server, 5_000)
    codes = {
        (topic.name, partition.partition_index): partition.error_code
        for topic in answer.topics
        for partition in topic.partitions
    }
    assert codes == {
        (name, index): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if index % 2 else 0
        for name in ("a", "b")
        for index in range(5_000)
    }
    # Four times the work takes four times as long, or 16 times if the search for each partition visits all others.
    assert many < 9 * few


def test_deleting_the_offsets_topic_removes_its_groups(server: RunningServer, wire: WireClient) -> None:
    server.create_topic("t")
    find(wire, "g")
    assert commit(wire, "g", "t", 1) == [0]
    answer = wire.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="__consumer_offsets")], timeout_ms=1000), 6)
    assert answer.responses[0].error_code == 0
    assert commit(wire, "g", "t", 1) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    find(wire, "g")
    assert committed(wire, "g") == {}


def test_keys_of_groups_are_those_of_apache_kafka() -> None:
    assert encode_record(Record(GroupMetadataKey(group="g"), None)) == (b"\0\2\0\1g", None)
