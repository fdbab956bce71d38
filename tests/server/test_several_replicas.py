"""Partitions that also have a replica on a missing broker, as clients see them."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.metadata.outcome import Versioned
from moldau.metadata.records import PartitionChangeRecord
from moldau.metadata.registrations import UNASSIGNED_DIRECTORY
from moldau.protocol.errors import ErrorCode
from moldau.testing.builders import batch, fetch, produce, values

from .conftest import RunningServer

ABSENT = 77


def change(server: RunningServer, topic_id: Any, **changes: Any) -> None:
    """Append a change of partition 0. It is committed soon."""
    record = PartitionChangeRecord(partition_id=0, topic_id=topic_id, **changes)
    server.append_metadata(lambda end_offset: Versioned(record, 2))


def partition_of(server: RunningServer) -> Any:
    return server.partition("t", 0)


@pytest.fixture
def topic_id(server: RunningServer) -> Any:
    """The id of a topic with a second replica that is not in sync. Two in-sync replicas are required."""
    topic_id = server.create_topic("t", min_insync_replicas=2)
    node_id = server.broker.node_id
    directory = server.directory("t", 0).directory_id
    change(server, topic_id, replicas=[node_id, ABSENT], isr=[node_id], directories=[directory, UNASSIGNED_DIRECTORY])
    server.wait_until(lambda: partition_of(server).replicas == (node_id, ABSENT))
    return topic_id


def test_records_with_too_few_replicas_are_not_visible(server: RunningServer, topic_id: Any) -> None:
    with server.wire() as wire:
        assert produce(wire, "t", batch(b"refused"), acks=-1).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        for value in (b"first", b"second", b"third"):  # the fast path serves the second one and later ones
            assert produce(wire, "t", batch(value), acks=1).error_code == ErrorCode.NONE
        found = fetch(wire, "t", max_wait_ms=0)
        assert (found.high_watermark, values(found)) == (0, [])
        partition = partition_of(server)
        server.call(lambda: partition.update_config(partition.log.config, min_insync_replicas=1))
        assert values(fetch(wire, "t")) == [b"first", b"second", b"third"]


def test_the_high_watermark_is_read_from_the_checkpoint_at_startup(server: RunningServer, topic_id: Any) -> None:
    broker = server.broker
    with server.wire() as wire:
        for value in (b"first", b"second", b"third"):
            assert produce(wire, "t", batch(value), acks=1).error_code == ErrorCode.NONE

        def restart_with_checkpoint() -> None:
            broker.replicas.remove("t", topic_id, 0)
            broker.log_manager.high_watermarks["t", 0] = 2
            broker.publisher.load()

        server.call(restart_with_checkpoint)
        found = fetch(wire, "t")
        assert (found.high_watermark, values(found)) == (2, [b"first", b"second"])


def test_leadership_can_move_to_another_broker_and_back(server: RunningServer, topic_id: Any) -> None:
    change(server, topic_id, leader=ABSENT, isr=[ABSENT])
    server.wait_until(lambda: partition_of(server).leader_id == ABSENT)
    with server.wire() as wire:
        answer = produce(wire, "t", batch(b"refused"), acks=1)
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        change(server, topic_id, leader=server.broker.node_id, isr=[server.broker.node_id])
        server.wait_until(lambda: partition_of(server).leader_id == server.broker.node_id)
        assert produce(wire, "t", batch(b"taken"), acks=1).error_code == ErrorCode.NONE
    assert partition_of(server).log.latest_epoch == 2
