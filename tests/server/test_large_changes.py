"""Requests that change or access thousands of partitions: they are served in slices but remain one change each."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.steps import completed
from moldau.server.concurrency.slices import FIRST_SLICE_MS
from moldau.server.context import ServedRequest
from moldau.testing.builders import batch, produce

from .test_dense_requests import StepMeter

PARTITIONS = 1_500

_CALLS_OF_A_STEP = 8_000


def create(name: str, partitions: int = PARTITIONS) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)])


def delete(name: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=60_000)


def produce_to_all(name: str, *, acks: int = 1, partitions: int = PARTITIONS) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=batch(b"x")) for index in range(partitions)]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=name, partition_data=data)])


def fetch_from_all(name: str, **limits: Any) -> FetchRequest:
    wanted = [FetchPartition(partition=index, partition_max_bytes=1000) for index in range(PARTITIONS)]
    limits = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 50_000_000, "session_epoch": -1} | limits
    return FetchRequest(topics=[FetchTopic(topic=name, partitions=wanted)], **limits)


def partitions_served(server: Any, name: str) -> int:
    def count() -> int:
        return sum(server.broker.replicas.partition_by_key(name, i) is not None for i in range(2 * PARTITIONS))

    found: int = server.call(count)
    return found


def long_requests() -> list[tuple[str, Any, int]]:
    resource = AlterConfigsResource(
        resource_type=4, resource_name="", configs=[AlterableConfig(name="log.retention.ms", value="7000000")]
    )
    return [
        ("CreateTopics", create("large"), 7),
        (
            "CreatePartitions",
            CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name="large", count=PARTITIONS + 1_000, assignments=None)],
                timeout_ms=60_000,
            ),
            3,
        ),
        ("IncrementalAlterConfigs", IncrementalAlterConfigsRequest(resources=[resource]), 1),
        ("Produce", produce_to_all("large"), 9),
        ("Fetch", fetch_from_all("large"), 12),
        ("Fetch, waiting", fetch_from_all("large", max_wait_ms=50, min_bytes=50_000_000), 12),
        ("Fetch, committed", fetch_from_all("large", max_wait_ms=50, min_bytes=50_000_000, isolation_level=1), 12),
        ("DeleteTopics", delete("large"), 6),
    ]


def test_large_requests_are_served_in_small_steps(server: Any) -> None:
    # The first request of an API creates its route.
    server.create_topic("small")
    with server.wire() as wire:
        wire.call(CreatePartitionsRequest(timeout_ms=60_000), 3)
        wire.call(IncrementalAlterConfigsRequest(), 1)
        wire.call(DeleteTopicsRequest(timeout_ms=60_000), 6)
        produce(wire, "small", batch(b"x"))
        wire.call(FetchRequest(max_wait_ms=0, session_epoch=-1), 12)
        meter = StepMeter(server)
        for what, request, version in long_requests():
            server.call(meter.reset)
            wire.call(request, version)
            server.call(lambda: None)
            # A waiting request starts and stops waiting for all of its partitions in one step.
            allowed = 9 * PARTITIONS if "," in what else _CALLS_OF_A_STEP
            assert 0 < meter.largest <= allowed, what


def test_all_partitions_exist_when_the_response_arrives(server: Any) -> None:
    with server.wire() as wire:
        assert wire.call(create("t"), 7).topics[0].error_code == 0
        assert partitions_served(server, "t") == PARTITIONS
        answer = wire.call(produce_to_all("t"), 9)
        assert [p.error_code for p in answer.responses[0].partition_responses] == [0] * PARTITIONS
        fetched = wire.call(fetch_from_all("t"), 12).responses
        assert sum(len(topic.partitions) for topic in fetched) == PARTITIONS
        assert all(len(partition.records) > 0 for topic in fetched for partition in topic.partitions)
        assert wire.call(delete("t"), 6).responses[0].error_code == 0
        assert partitions_served(server, "t") == 0


def test_a_partly_created_topic_is_never_visible(server: Any) -> None:
    """All partitions are added to the image in one change."""
    seen = set()
    begin = server.broker.slices.begin

    def look(steps: Any) -> Any:
        for more in steps:
            topic = server.broker.metadata.image.topics_by_name.get("t")
            seen.add(0 if topic is None else len(topic.partitions))
            yield more

    server.broker.slices.begin = lambda steps, owner, **facts: begin(look(steps), owner, **facts)
    with server.wire() as wire:
        wire.call(create("t"), 7)
    assert seen == {0, PARTITIONS}


def test_one_of_several_concurrent_requests_creates_a_topic(server: Any) -> None:
    wires = [server.wire() for _ in range(4)]
    for wire in wires:
        wire.send(create("t"), 7)
    codes = sorted(wire.receive().topics[0].error_code for wire in wires)
    assert codes == [0, 36, 36, 36]  # TOPIC_ALREADY_EXISTS
    for wire in wires:
        wire.close()
    assert partitions_served(server, "t") == PARTITIONS


def test_a_concurrent_change_is_kept_and_the_request_is_decided_again(server: Any) -> None:
    """For example, a move between log directories does not wait for a request that is being decided."""
    controller = server.broker.metadata.controller
    change = controller.change
    began = 0

    def changed_meanwhile(decide: Any, now_ms: Any) -> Any:
        nonlocal began
        began += 1
        steps = change(decide, now_ms)
        yield next(steps)
        completed(change(controller.deciding(create("t", 3), 7, now_ms), now_ms))
        return (yield from steps)

    controller.change = changed_meanwhile
    with server.wire() as wire:
        assert wire.call(create("t"), 7).topics[0].error_code == 36
    assert began == 1
    assert partitions_served(server, "t") == 3


@pytest.mark.parametrize("again", [False, True])
def test_deleting_a_topic_during_its_creation_leaves_nothing_behind(server: Any, again: bool) -> None:
    with server.wire() as maker, server.wire() as other:
        maker.send(create("t"), 7)
        server.wait_until(lambda: "t" in server.broker.metadata.image.topics_by_name)
        assert other.call(delete("t"), 6).responses[0].error_code == 0
        if again:
            other.call(create("t", 3), 7)
        maker.receive()
    assert partitions_served(server, "t") == (3 if again else 0)
    assert not server.broker.publisher._leaving
    kept = server.call(lambda: [topic for topic, _ in server.broker.log_manager._logs if topic == "t"])
    assert len(kept) == (3 if again else 0)


def test_a_topic_that_is_recreated_during_its_deletion_has_new_files(server: Any) -> None:
    server.create_topic("t", partitions=PARTITIONS)
    with server.wire() as wire, server.wire() as other:
        wire.send(delete("t"), 6)
        server.wait_until(lambda: "t" not in server.broker.metadata.image.topics_by_name)
        assert other.call(create("t", 20), 7).topics[0].error_code == 0
        answer = other.call(produce_to_all("t", partitions=20), 9).responses[0]
        assert [(p.error_code, p.base_offset) for p in answer.partition_responses] == [(0, 0)] * 20
        wire.receive()
    assert partitions_served(server, "t") == 20
    server.restart()
    assert partitions_served(server, "t") == 20


def test_requests_in_progress_complete_after_their_client_disconnects(server: Any) -> None:
    with server.wire() as wire:
        wire.send(create("t"), 7)
        server.wait_until(lambda: "t" in server.broker.metadata.image.topics_by_name)
    server.wait_until(lambda: not len(server.broker.slices))
    assert partitions_served(server, "t") == PARTITIONS
    with server.wire() as wire:
        wire.send(produce_to_all("t", acks=0), 9)
    with server.wire() as wire:
        wire.send(produce_to_all("t", acks=0), 9)

    def appended() -> int:
        found = (server.broker.replicas.partition_by_key("t", index) for index in range(PARTITIONS))
        return sum(partition.log.log_end_offset for partition in found)

    server.wait_until(lambda: appended() == 2 * PARTITIONS)


def test_requests_in_progress_complete_when_the_server_stops(server: Any) -> None:
    server.create_topic("t", partitions=PARTITIONS)
    with server.wire() as wire:
        wire.send(delete("t"), 6)
        server.wait_until(lambda: "t" not in server.broker.metadata.image.topics_by_name)
        server.stop()
    server.start()
    assert partitions_served(server, "t") == 0
    assert not server.call(lambda: [topic for topic, _ in server.broker.log_manager._logs if topic == "t"])


def test_a_long_fetch_in_a_session_returns_only_changes(server: Any) -> None:
    server.create_topic("t", partitions=PARTITIONS)
    with server.wire() as wire:
        first = wire.call(fetch_from_all("t", session_epoch=0), 12)
        assert sum(len(topic.partitions) for topic in first.responses) == PARTITIONS
        request = FetchRequest(
            max_wait_ms=0, min_bytes=1, max_bytes=50_000_000, session_id=first.session_id, session_epoch=1
        )
        assert not wire.call(request, 12).responses
        produce(wire, "t", batch(b"x"))
        request.session_epoch = 2
        (topic,) = wire.call(request, 12).responses
        assert [partition.partition_index for partition in topic.partitions] == [0]


@pytest.mark.parametrize("isolation_level", [0, 1])
def test_an_append_completes_a_long_waiting_fetch(server: Any, isolation_level: int) -> None:
    server.create_topic("t", partitions=PARTITIONS)
    with server.wire() as consumer, server.wire() as producer:
        consumer.send(fetch_from_all("t", max_wait_ms=20_000, isolation_level=isolation_level), 12)
        partition = server.partition("t", 7)
        server.wait_until(lambda: bool(partition.waiters))
        produce(producer, "t", batch(b"x"), partition=7)
        (topic,) = consumer.receive().responses
        assert [p.partition_index for p in topic.partitions if len(p.records)] == [7]


def test_a_request_that_fits_into_the_first_slice_is_not_split(server: Any, monkeypatch: Any) -> None:
    """Its response is encoded in one piece. Creating one topic is such a request: it is suspended once, and no work
    remains after the response."""
    create_none = CreateTopicsRequest(topics=[])
    with server.wire() as wire:
        wire.call(create_none, 7)
        ticks = iter([0.0] + [0.9 * FIRST_SLICE_MS / 1000] * 100)
        monkeypatch.setattr(server.network.dispatcher, "_clock", lambda: next(ticks))
        meter = StepMeter(server)
        assert wire.call(create("t", 1), 7).topics[0].error_code == 0
        server.call(lambda: None)  # the response is sent before the step that makes it ends
        assert len([owner for owner in meter.owners if isinstance(owner, ServedRequest)]) == 2
