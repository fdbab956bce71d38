"""Apache Kafka and Moldau start on each other's directories while transactions have pending offsets of groups."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.end_txn import EndTxnRequest
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from moldau.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from moldau.testing import Broker
from moldau.testing.apache_kafka import ApacheKafka
from moldau.testing.requirements import require_kafka_jars
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

pytestmark = pytest.mark.slow

GROUPS = ["committed", "older", "pending"]
GROUP, TRANSACTIONAL_ID = 0, 1
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


class Producer:
    """A producer with a transactional id; ``version`` is that of TxnOffsetCommit, which its other requests go by."""

    def __init__(self, transactional_id: str, *, version: int = 5) -> None:
        self.transactional_id = transactional_id
        self.version = version
        self.producer_id = -1
        self.epoch = -1

    def begin(self, wire: WireClient) -> Producer:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=600_000, producer_id=-1, producer_epoch=-1
        )

        def begun() -> bool:
            answer = wire.call(request, 5)
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            return not answer.error_code

        wait_until(begun, "the producer id")
        return self

    def commit_offsets(self, wire: WireClient, group_id: str, offsets: dict[int, int]) -> None:
        """Of partitions of the topic t."""
        mine: dict[str, Any] = {
            "transactional_id": self.transactional_id,
            "group_id": group_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }
        if self.version < 5:
            wait_until(lambda: not wire.call(AddOffsetsToTxnRequest(**mine), 3).error_code, "the group in it")
        partitions = [
            TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="é")
            for index, offset in offsets.items()
        ]
        request = TxnOffsetCommitRequest(**mine, topics=[TxnOffsetCommitRequestTopic(name="t", partitions=partitions)])

        def committed() -> bool:
            (topic,) = wire.call(request, self.version).topics
            return not any(partition.error_code for partition in topic.partitions)

        wait_until(committed, "the offsets of the transaction")

    def end(self, wire: WireClient, *, committed: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )
        wait_until(lambda: not wire.call(request, 5 if self.version >= 5 else 3).error_code, "its end")


def commit(wire: WireClient, group_id: str, offsets: dict[int, int]) -> None:
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        for index, offset in offsets.items()
    ]
    topics = [OffsetCommitRequestTopic(name="t", partitions=partitions)]
    (topic,) = wire.call(OffsetCommitRequest(group_id=group_id, topics=topics), 9).topics
    assert {partition.error_code for partition in topic.partitions} == {0}


def fetched(wire: WireClient, *, stable: bool) -> dict[str, list[int]]:
    """For each group the offset of each partition, or the error."""
    requested = [OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1, 2])]
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=name, topics=requested) for name in GROUPS], require_stable=stable
    )
    return {
        group.group_id: [one.error_code or one.committed_offset for one in group.topics[0].partitions]
        for group in wire.call(request, 8).groups
    }


def find_coordinators(wire: WireClient, key_type: int, keys: list[str]) -> None:
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=keys)
    wait_until(lambda: not any(one.error_code for one in wire.call(request, 4).coordinators), "the coordinators")


def find_groups(wire: WireClient) -> None:
    find_coordinators(wire, GROUP, GROUPS)
    requested = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in GROUPS])
    wait_until(
        lambda: not any(group.error_code for group in wire.call(requested, 8).groups), "the offsets of the groups"
    )


def begin_transactions(wire: WireClient) -> tuple[Producer, Producer, Producer]:
    """Those that are left open."""
    wire.call(CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=3, replication_factor=1)]), 7)
    find_groups(wire)
    find_coordinators(wire, TRANSACTIONAL_ID, ["ended", "open", "older", "pending"])
    commit(wire, "committed", {0: 1, 1: 2, 2: 3})
    ended = Producer("ended").begin(wire)
    ended.commit_offsets(wire, "committed", {0: 10})
    ended.end(wire, committed=True)
    ended.begin(wire)
    ended.commit_offsets(wire, "committed", {1: 20})
    ended.end(wire, committed=False)
    ended.begin(wire)  # after the response, the markers are written
    opened = Producer("open").begin(wire)
    opened.commit_offsets(wire, "committed", {2: 30})
    opened.commit_offsets(wire, "committed", {0: 31, 2: 32})
    older = Producer("older", version=3).begin(wire)
    older.commit_offsets(wire, "older", {0: 40, 1: 41})
    commit(wire, "older", {1: 5})
    pending = Producer("pending").begin(wire)
    pending.commit_offsets(wire, "pending", {0: 50})
    return opened, older, pending


def check_open(wire: WireClient) -> None:
    assert fetched(wire, stable=False) == {"committed": [10, 2, 3], "older": [-1, 5, -1], "pending": [-1, -1, -1]}
    assert fetched(wire, stable=True) == {
        "committed": [UNSTABLE, 2, UNSTABLE],
        "older": [UNSTABLE, UNSTABLE, -1],
        "pending": [UNSTABLE, -1, -1],
    }


def check_ended(wire: WireClient) -> None:
    expected = {"committed": [31, 2, 32], "older": [40, 5, -1], "pending": [-1, -1, -1]}
    wait_until(
        lambda: UNSTABLE not in [one for offsets in fetched(wire, stable=True).values() for one in offsets],
        "stable offsets",
    )
    assert fetched(wire, stable=True) == fetched(wire, stable=False) == expected


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(ApacheKafka, Broker, id="from Apache Kafka"),
        pytest.param(Broker, ApacheKafka, id="to Apache Kafka", marks=pytest.mark.full),
    ],
)
def test_transactions_with_pending_offsets_continue(tmp_path: Path, before: Any, after: Any) -> None:
    require_kafka_jars()
    directory = tmp_path / "data"
    with before(data_dir=directory) as broker, closing(WireClient(broker.bootstrap_servers)) as wire:
        opened, older, pending = begin_transactions(wire)
        check_open(wire)
    with after(data_dir=directory) as broker, closing(WireClient(broker.bootstrap_servers)) as wire:
        find_groups(wire)
        find_coordinators(wire, TRANSACTIONAL_ID, ["open", "older", "pending"])
        check_open(wire)
        opened.end(wire, committed=True)
        older.end(wire, committed=True)
        pending.end(wire, committed=False)
        check_ended(wire)
    with before(data_dir=directory) as broker, closing(WireClient(broker.bootstrap_servers)) as wire:
        find_groups(wire)
        check_ended(wire)
