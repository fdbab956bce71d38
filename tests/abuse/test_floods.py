"""Very many groups, members, transactional ids, producers, topics and fetches."""

from __future__ import annotations

import random
from typing import Any

import pytest

from moldau.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from moldau.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.describe_groups import DescribeGroupsRequest
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from moldau.protocol.messages.list_groups import ListGroupsRequest
from moldau.protocol.messages.list_transactions import ListTransactionsRequest
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.records import Record, build_batch
from moldau.server.network.connection import MAX_IN_FLIGHT
from moldau.testing.builders import FETCH_VERSION, PRODUCE_VERSION, fetch_request, produce_request

from . import attackers
from .bystander import TOPIC
from .conftest import MakeTarget, Target
from .watch import MEGABYTE

# A flood leaves state that clients have requested: this much may remain for each group, id and so on.
KEPT_FOR_EACH = 8_000
SLICE = 500  # requests in flight over one connection


def kept(count: int) -> int:
    return 64 * MEGABYTE + count * KEPT_FOR_EACH


def in_slices(target: Target, frames: list[bytes]) -> None:
    """Send all over four connections."""

    def run(index: int) -> None:
        mine = frames[index::4]
        for first in range(0, len(mine), SLICE):
            attackers.pipeline(target.address, mine[first : first + SLICE])

    attackers.in_parallel(4, run)


def join(
    group_id: str, *, session_timeout_ms: int = 6000, member_id: str = "", metadata: bytes = b""
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=session_timeout_ms,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )


@pytest.mark.timeout(1200)
def test_groups(target: Target, dice: random.Random, long: bool) -> None:
    count = 20_000 if long else 500
    classic = [attackers.frame(join(f"group-{index}"), 3) for index in range(count)]
    modern = [
        attackers.frame(
            ConsumerGroupHeartbeatRequest(
                group_id=f"modern-{index}",
                member_id=f"member-{index}",
                member_epoch=0,
                rebalance_timeout_ms=10_000,
                subscribed_topic_names=[TOPIC],
                topic_partitions=[],
            ),
            1,
        )
        for index in range(count // 4)
    ]
    frames = classic + modern
    dice.shuffle(frames)
    allowed: dict[str, Any] = {
        "memory_bytes_allowed": 200 * MEGABYTE + count * KEPT_FOR_EACH,
        "kept_bytes": kept(count),
    }
    with target.attack(f"{len(frames)} groups", **allowed):
        in_slices(target, frames)
    with target.attack("all groups listed and described", **allowed):
        attackers.exchange(target.address, attackers.frame(ListGroupsRequest(), 4))
        names = [f"group-{index}" for index in range(count)]
        attackers.exchange(target.address, attackers.frame(DescribeGroupsRequest(groups=names), 5))
    with target.attack("the sessions of all groups end", **allowed):
        attackers.hold(15 if long else 8)


def test_member_ids(target: Target, dice: random.Random, long: bool) -> None:
    """Ids that are assigned but not used, and members that join one group and wait in it."""
    count = 50_000 if long else 2000
    with target.attack(f"{count} member ids of one group", kept_bytes=kept(count)):
        in_slices(target, [attackers.frame(join("one", session_timeout_ms=10_000), 4)] * count)
    waiting = attackers.at_most_connections(2000 if long else 200)
    with (
        target.attack(f"{waiting} members of one group", kept_bytes=kept(waiting)),
        attackers.connections(target.address, waiting) as opened,
    ):
        for connection in opened:
            attackers.send(connection, attackers.frame(join("crowded", metadata=dice.randbytes(1000)), 3))
        attackers.hold(10 if long else 2)
        for connection in opened:
            attackers.send(connection, attackers.frame(HeartbeatRequest(group_id="crowded", generation_id=1), 3))


def test_transactional_ids(target: Target, long: bool) -> None:
    count = 20_000 if long else 500
    ids = [f"transactional-{index}" for index in range(count)]
    producers: list[InitProducerIdResponse] = []
    with target.attack(f"{count} transactional ids", kept_bytes=kept(count)), target.wire() as wire:
        for first in range(0, count, SLICE):
            requested = ids[first : first + SLICE]
            for id in requested:
                wire.send(InitProducerIdRequest(transactional_id=id, transaction_timeout_ms=5000), 4)
            producers += [wire.receive() for _ in requested]
    assert [producer.error_code for producer in producers] == [0] * count
    topics = [AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])]
    frames = [
        attackers.frame(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=id,
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.producer_epoch,
                v3_and_below_topics=topics,
            ),
            3,
        )
        for id, producer in zip(ids, producers, strict=True)
    ]
    with target.attack(f"{count} transactions are begun and time out", kept_bytes=kept(count)):
        in_slices(target, frames)
        attackers.hold(8)
    with target.attack("all transactions listed", kept_bytes=kept(count)):
        attackers.exchange(target.address, attackers.frame(ListTransactionsRequest(), 1))


def test_idempotent_producers(target: Target, long: bool) -> None:
    """A partition keeps the state of each producer id that has written to it."""
    count = 50_000 if long else 2000
    record = Record(offset=0, timestamp=1, key=None, value=b"x", headers=[])
    target.create_topic("producers")
    frames = [
        attackers.frame(
            produce_request(
                "producers", build_batch([record], producer_id=1_000_000 + id, producer_epoch=0, base_sequence=0)
            ),
            PRODUCE_VERSION,
        )
        for id in range(count)
    ]
    with target.attack(f"{count} producers of one partition", kept_bytes=kept(count)):
        in_slices(target, frames)


@pytest.mark.timeout(1200)
def test_topics_and_the_groups_that_read_them(target: Target, long: bool) -> None:
    groups, topics, per_request = (5000, 400, 100) if long else (300, 60, 20)
    names = [f"topic-{index}" for index in range(topics)]
    allowed: dict[str, Any] = {"memory_bytes_allowed": 400 * MEGABYTE, "kept_bytes": 300 * MEGABYTE + topics * 50_000}
    with target.attack(f"{topics} topics are created", **allowed):
        for first in range(0, topics, per_request):
            wanted = [
                CreatableTopic(name=name, num_partitions=1, replication_factor=1)
                for name in names[first:][:per_request]
            ]
            attackers.exchange(target.address, attackers.frame(CreateTopicsRequest(topics=wanted), 7))
    partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")]
    committed = [OffsetCommitRequestTopic(name=name, partitions=partitions) for name in names]
    frames = [
        attackers.frame(OffsetCommitRequest(group_id=f"group-{index}", topics=committed), 8) for index in range(groups)
    ]
    # A committed offset takes about 300 bytes.
    allowed["kept_bytes"] += groups * topics * 400
    allowed["memory_bytes_allowed"] += groups * topics * 400
    with target.attack(f"{groups} groups commit offsets of {topics} topics", **allowed):
        in_slices(target, frames)
    with target.attack(f"{topics} topics of {groups} groups are deleted", **allowed):
        for first in range(0, topics, per_request):
            deleted = [DeleteTopicState(name=name) for name in names[first:][:per_request]]
            attackers.exchange(
                target.address, attackers.frame(DeleteTopicsRequest(topics=deleted, timeout_ms=60_000), 6)
            )


def test_topics_that_metadata_creates(make_target: MakeTarget, dice: random.Random, long: bool) -> None:
    with make_target(config={"auto.create.topics.enable": True}) as target:
        count = 2000 if long else 100
        wanted = [MetadataRequestTopic(name=f"auto-{dice.randrange(10**9)}") for _ in range(count)]
        # A directory, files and an event of the metadata log for each; docs/known_gaps.md has the time it takes.
        with target.attack(f"{count} topics by Metadata", kept_bytes=kept(count * 6)):
            for first in range(0, count, 20):
                request = MetadataRequest(topics=wanted[first : first + 20], allow_auto_topic_creation=True)
                attackers.exchange(target.address, attackers.frame(request, 9))


def test_waiting_fetches(target: Target, long: bool) -> None:
    """Fetches with an unreachable min_bytes, from many connections, and many on each connection."""
    target.create_topic("awaited", partitions=10)
    count = attackers.at_most_connections(1000 if long else 50)
    frames = b"".join(
        attackers.frame(
            fetch_request("awaited", partition=index % 10, max_wait_ms=600_000, min_bytes=10**9), FETCH_VERSION, index
        )
        for index in range(
            MAX_IN_FLIGHT - 1
        )  # with one more, the server would stop reading and not notice the disconnect
    )
    with (
        # The remainder is partly used pages of Python's allocator: 54 to 82 MB after 99,000 fetches.
        target.attack(f"{count * (MAX_IN_FLIGHT - 1)} fetches that wait", kept_bytes=96 * MEGABYTE),
        attackers.connections(target.address, count) as opened,
    ):
        for connection in opened:
            attackers.send(connection, frames)
        attackers.hold(10 if long else 1)
        with target.wire() as wire:
            for index in range(500):
                wire.call(
                    produce_request("awaited", attackers.batch_of(b"\x0c\0\0\0\1\1\0", 1), partition=index % 10), 9
                )


def test_fetch_sessions(target: Target, long: bool) -> None:
    """Sessions with many partitions, more than the server keeps."""
    target.create_topic("sessions", partitions=100)
    topics = [FetchTopic(topic="sessions", partitions=[FetchPartition(partition=index) for index in range(100)])]
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1000, session_id=0, session_epoch=0, topics=topics)
    count = 10_000 if long else 300
    with target.attack(f"{count} fetch sessions of 100 partitions", kept_bytes=kept(count * 2)):
        in_slices(target, [attackers.frame(request, FETCH_VERSION)] * count)
