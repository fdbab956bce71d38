"""Group commit: records are acknowledged and visible after their flush, and one sync serves all pending requests.

The disk is in memory. Its syncs wait until the test releases them.
"""

from __future__ import annotations

import errno
import logging
import select
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from moldau.log.memory_files import MemoryFileSystem
from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.describe_groups import DescribeGroupsRequest
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.messages.list_groups import ListGroupsRequest
from moldau.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.protocol.messages.list_transactions import ListTransactionsRequest
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
from moldau.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from moldau.protocol.records import Record, build_batch
from moldau.testing.builders import batch, fetch, fetch_request, produce, produce_request, values
from moldau.testing.wire import WireClient

from .conftest import MakeServer, RunningServer
from .transactional import Transactional, error_of
from .transactional import fetch as fetch_committed
from .transactional import values as committed_values

FEW = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
DURABLE = FEW | {"log.flush.interval.messages": "1"}


class SlowDisk(MemoryFileSystem):
    """A disk whose syncs can be blocked, by path prefix, and made to fail."""

    def __init__(self) -> None:
        super().__init__(recording=False)
        self._changed = threading.Condition()
        self._blocked: set[str] = set()
        self.errors: dict[str, int] = {}
        """The errno with which a sync fails, by path prefix."""
        self.syncs: list[str] = []
        """Paths whose sync has ended, in threads; syncs on the event loop are omitted."""
        self.waiting: list[str] = []
        """Paths whose sync is currently blocked."""
        self.fail_with = self._operation

    def block(self, prefix: str) -> None:
        with self._changed:
            self._blocked.add(prefix)

    def release(self, prefix: str | None = None) -> None:
        """Release the syncs with this path prefix, or all of them."""
        with self._changed:
            self._blocked = self._blocked - {prefix} if prefix is not None else set()
            self._changed.notify_all()

    def _is_blocked(self, path: str) -> bool:
        return any(path.startswith(prefix) for prefix in self._blocked)

    def syncs_of(self, prefix: str) -> int:
        return sum(path.startswith(prefix) for path in self.syncs)

    def _operation(self, operation: str, path: str) -> int | None:
        if operation != "sync" or not threading.current_thread().name.startswith("moldau-background"):
            return None
        with self._changed:
            if self._is_blocked(path):
                self.waiting.append(path)
                assert self._changed.wait_for(lambda: not self._is_blocked(path), 60)
                self.waiting.remove(path)
            self.syncs.append(path)
            for prefix, code in self.errors.items():
                if path.startswith(prefix):
                    return code
        return None


@pytest.fixture
def disk() -> Iterator[Any]:
    disk = SlowDisk()
    yield disk
    disk.release()


@pytest.fixture
def server(make_server: MakeServer, disk: SlowDisk) -> RunningServer:
    return make_server(log_dirs=["/a"], file_system=disk, config=FEW)


@pytest.fixture
def durable_server(make_server: MakeServer, disk: SlowDisk) -> RunningServer:
    return make_server(log_dirs=["/a"], file_system=disk, config=DURABLE)


@pytest.fixture
def topic(server: RunningServer, disk: SlowDisk) -> str:
    """A topic that flushes each append. The names of its files are durable."""
    server.create_topic("t", flush_messages=1)
    with server.wire() as wire:
        assert produce(wire, "t", batch(b"first")).base_offset == 0
    return "t"


def partition_of(server: RunningServer, topic: str = "t", index: int = 0) -> Any:
    return server.partition(topic, index)


def wait_blocked(server: RunningServer, disk: SlowDisk, prefix: str = "/a/t-0") -> None:
    server.wait_until(lambda: any(path.startswith(prefix) for path in disk.waiting))


def wait_end(server: RunningServer, end_offset: int, topic: str = "t", index: int = 0) -> None:
    server.wait_until(lambda: partition_of(server, topic, index).log.log_end_offset == end_offset)


def end_offset(wire: WireClient, topic: str = "t", *, isolation_level: int = 0, timestamp: int = -1) -> Any:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(
        isolation_level=isolation_level, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])]
    )
    (answer,) = wire.call(request, 7).topics[0].partitions
    assert answer.error_code == 0
    return answer.offset


def silent(server: RunningServer, *wires: Any) -> bool:
    """Whether no response has arrived, although the event loop has completed an iteration since."""
    server.call(lambda: None)
    readable, _, _ = select.select([wire._socket for wire in wires], [], [], 0)
    return not readable


# -- acknowledged and visible after the flush --------------------------------------------------------------------------


@pytest.mark.parametrize("acks", [1, -1])
def test_an_append_is_not_visible_before_it_is_durable(
    server: RunningServer, disk: SlowDisk, topic: str, acks: int
) -> None:
    disk.block("/a/t-0")
    with server.wire() as producer, server.wire() as wire:
        # The result for -3 is the first of equal timestamps, and both records may be of the same millisecond.
        later_ms = int(time.time() * 1000) + 1_000
        second = build_batch([Record(timestamp=later_ms, key=None, value=b"second")])
        producer.send(produce_request(topic, second, acks=acks), 9)
        wait_blocked(server, disk)
        assert server.call(lambda: partition_of(server).log.log_end_offset) == 2
        answer = fetch(wire, topic)
        assert (values(answer), answer.high_watermark, answer.last_stable_offset) == ([b"first"], 1, 1)
        assert values(fetch(wire, topic, 1)) == []
        assert [end_offset(wire, isolation_level=level) for level in (0, 1)] == [1, 1]
        assert end_offset(wire, timestamp=-3) == -1  # the record is not visible yet
        assert server.call(lambda: server.broker.replicas.high_watermarks()["t", 0]) == 1
        assert silent(server, producer)
        disk.release()
        answer = producer.receive().responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (0, 1)
        answer = fetch(wire, topic)
        assert (values(answer), answer.high_watermark) == ([b"first", b"second"], 2)
        assert end_offset(wire) == 2


def test_a_waiting_fetch_completes_when_the_records_are_durable(
    server: RunningServer, disk: SlowDisk, topic: str
) -> None:
    disk.block("/a/t-0")
    with server.wire() as producer, server.wire() as consumer:
        consumer.send(fetch_request(topic, 1, max_wait_ms=60_000), 12)
        server.wait_until(lambda: partition_of(server).waiters)
        producer.send(produce_request(topic, batch(b"second")), 9)
        wait_blocked(server, disk)
        assert silent(server, consumer)
        disk.release()
        (answer,) = consumer.receive().responses[0].partitions
        assert values(answer) == [b"second"]


def test_acks_0_does_not_wait_for_a_flush(server: RunningServer, disk: SlowDisk, topic: str) -> None:
    disk.block("/a/t-0")
    with server.wire() as producer, server.wire() as wire:
        producer.send(produce_request(topic, batch(b"second"), acks=0), 9, answered=False)
        wait_blocked(server, disk)
        # The connection continues immediately.
        assert end_offset(producer) == 1
        disk.release()
        server.wait_until(lambda: partition_of(server).uncommitted is None)
        assert end_offset(wire) == 2


def test_one_sync_serves_all_appends_that_arrived_during_the_previous_sync(
    server: RunningServer, disk: SlowDisk, topic: str
) -> None:
    wires = [server.wire() for _ in range(64)]
    try:
        before = disk.syncs_of("/a/t-0")
        disk.block("/a/t-0")
        for number, wire in enumerate(wires):
            wire.send(produce_request(topic, batch(b"%d" % number)), 9)
            if not number:
                wait_blocked(server, disk)
        wait_end(server, 65)
        disk.release()
        assert {wire.receive().responses[0].partition_responses[0].base_offset for wire in wires} == set(range(1, 65))
        assert disk.syncs_of("/a/t-0") - before == 2  # one for the first append, and one for 63
    finally:
        for wire in wires:
            wire.close()


def test_different_partitions_are_flushed_at_the_same_time(server: RunningServer, disk: SlowDisk) -> None:
    server.create_topic("p", partitions=4, flush_messages=1)
    with server.wire() as wire:
        for index in range(4):
            produce(wire, "p", batch(b"x"), partition=index)
        disk.block("/a/p-")
        for index in range(4):
            wire.send(produce_request("p", batch(b"y"), partition=index), 9)
        server.wait_until(lambda: len(disk.waiting) == 4)
        disk.release()
        for _ in range(4):
            assert error_of(wire.receive()) == 0


def test_the_responses_of_a_connection_stay_in_order(server: RunningServer, disk: SlowDisk, topic: str) -> None:
    server.create_topic("plain")
    disk.block("/a/t-0")
    with server.wire() as wire:
        wire.send(produce_request(topic, batch(b"second")), 9)
        wire.send(produce_request("plain", batch(b"x")), 9)
        wire.send(produce_request(topic, batch(b"third")), 9)
        wait_blocked(server, disk)
        wait_end(server, 1, "plain")
        assert silent(server, wire)
        disk.release()
        answers = [wire.receive().responses[0] for _ in range(3)]
    assert [(answer.name, answer.partition_responses[0].base_offset) for answer in answers] == [
        ("t", 1), ("plain", 0), ("t", 2)
    ]  # fmt: skip


def test_a_request_for_several_partitions_waits_for_the_last(server: RunningServer, disk: SlowDisk, topic: str) -> None:
    server.create_topic("plain")
    request = produce_request(topic, batch(b"second"))
    request.topic_data += produce_request("plain", batch(b"x")).topic_data
    disk.block("/a/t-0")
    with server.wire() as wire:
        wire.send(request, 9)
        wait_blocked(server, disk)
        assert silent(server, wire)
        disk.release()
        assert [r.partition_responses[0].error_code for r in wire.receive().responses] == [0, 0]


def test_with_a_larger_flush_messages_only_the_append_that_reaches_it_waits(
    server: RunningServer, disk: SlowDisk
) -> None:
    server.create_topic("t", flush_messages=3)
    with server.wire() as producer, server.wire() as wire:
        assert produce(producer, "t", batch(b"1", b"2")).base_offset == 0
        assert end_offset(wire) == 2
        disk.block("/a/t-0")
        producer.send(produce_request("t", batch(b"3")), 9)
        wait_blocked(server, disk)
        producer.send(produce_request("t", batch(b"4")), 9)
        wait_end(server, 4)
        assert end_offset(wire) == 2
        assert silent(server, producer)
        disk.release()
        assert [error_of(producer.receive()) for _ in range(2)] == [0, 0]
        assert end_offset(wire) == 4
        assert server.call(lambda: partition_of(server).log.flushed_offset) == 3


def test_a_duplicate_of_an_unflushed_batch_completes_after_the_flush(
    server: RunningServer, disk: SlowDisk, topic: str
) -> None:
    first = batch(b"x", producer_id=7, producer_epoch=0, base_sequence=0)
    disk.block("/a/t-0")
    with server.wire() as producer, server.wire() as again:
        producer.send(produce_request(topic, first), 9)
        wait_blocked(server, disk)
        again.send(produce_request(topic, first), 9)
        # It has been served: the log contains the next batch of the same connection.
        again.send(produce_request(topic, batch(b"y")), 9)
        wait_end(server, 3)
        assert silent(server, again)
        disk.release()
        for wire in (producer, again):
            answer = wire.receive().responses[0].partition_responses[0]
            assert (answer.error_code, answer.base_offset) == (0, 1)
        assert produce(producer, topic, first).base_offset == 1  # no flush is running


def test_delete_records_is_limited_by_the_high_watermark(server: RunningServer, disk: SlowDisk, topic: str) -> None:
    disk.block("/a/t-0")

    def delete(offset: int) -> Any:
        partitions = [DeleteRecordsPartition(partition_index=0, offset=offset)]
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=partitions)], timeout_ms=1000)
        (result,) = wire.call(request, 2).topics[0].partitions
        return result.error_code, result.low_watermark

    with server.wire() as producer, server.wire() as wire:
        producer.send(produce_request(topic, batch(b"second")), 9)
        wait_blocked(server, disk)
        assert delete(2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert delete(-1) == (0, 1)
        disk.release()
        assert error_of(producer.receive()) == 0
        assert delete(-1) == (0, 2)


def test_the_setting_may_change_while_records_are_being_flushed(
    server: RunningServer, disk: SlowDisk, topic: str
) -> None:
    def set_flush_messages(value: Any) -> None:
        config = AlterableConfig(name="flush.messages", config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=2, resource_name=topic, configs=[config])
        (answer,) = wire.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
        assert answer.error_code == 0

    with server.wire() as producer, server.wire() as wire:
        disk.block("/a/t-0")
        producer.send(produce_request(topic, batch(b"second")), 9)
        wait_blocked(server, disk)
        set_flush_messages(str(2**63 - 1))
        producer.send(produce_request(topic, batch(b"third")), 9)
        wait_end(server, 3)
        assert end_offset(wire) == 1
        disk.release()
        # The second batch must be durable when it is acknowledged; the third need not be.
        assert [error_of(producer.receive()) for _ in range(2)] == [0, 0]
        disk.block("/a/t-0")
        assert [produce(producer, topic, batch(b"x")).base_offset for _ in range(3)] == [3, 4, 5]
        assert end_offset(wire) == 6
        set_flush_messages("1")
        producer.send(produce_request(topic, batch(b"waits")), 9)
        wait_blocked(server, disk)
        assert end_offset(wire) == 6
        disk.release()
        assert error_of(producer.receive()) == 0


def test_recompressed_appends_wait_for_the_flush_as_well(server: RunningServer, disk: SlowDisk) -> None:
    server.create_topic("t", flush_messages=1, compression_type="gzip")
    with server.wire() as producer, server.wire() as wire:
        produce(producer, "t", batch(b"first"))
        disk.block("/a/t-0")
        producer.send(produce_request("t", batch(b"x" * 10_000)), 9)
        wait_blocked(server, disk)
        assert silent(server, producer)
        assert end_offset(wire) == 1
        disk.release()
        assert error_of(producer.receive()) == 0


# -- errors ------------------------------------------------------------------------------------------------------------


def test_after_a_failed_sync_the_directory_is_offline_and_no_sync_is_retried(
    make_server: MakeServer, disk: SlowDisk
) -> None:
    server = make_server(log_dirs=["/a", "/b"], file_system=disk, config=FEW)
    server.create_topic("t", partitions=4, flush_messages=1)
    directory = server.call(lambda: server.directory("t", 0).path)
    there = [
        index
        for index in range(4)
        if server.call(lambda index=index: server.directory("t", index).path) == directory  # type: ignore[misc]
    ]
    (elsewhere, *_) = set(range(4)) - set(there)
    with server.wire() as producer, server.wire() as wire:
        for index in range(4):
            assert produce(producer, "t", batch(b"x"), partition=index).error_code == 0
        for index in there:
            disk.block(f"{directory}/t-{index}/")
            producer.send(produce_request("t", batch(b"y"), partition=index), 9)
        server.wait_until(lambda: len(disk.waiting) == len(there))
        disk.errors[f"{directory}/t-0/"] = errno.EIO
        disk.release(f"{directory}/t-0/")
        # All pending requests of the directory fail, including those whose sync is still running.
        for _ in there:
            answer = producer.receive().responses[0].partition_responses[0]
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert (answer.base_offset, answer.log_append_time_ms, answer.log_start_offset) == (-1, -1, -1)
        disk.errors.clear()
        disk.release()
        server.wait_until(lambda: not server.broker.group_commit._running)
        syncs = disk.syncs_of(directory)
        for index in there:
            answer = produce(wire, "t", batch(b"z"), partition=index)
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert fetch(wire, "t", partition=index).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert disk.syncs_of(directory) == syncs
        assert produce(wire, "t", batch(b"z"), partition=elsewhere).base_offset == 1


def test_a_flush_with_an_internal_error_completes_all_pending_requests(
    server: RunningServer, disk: SlowDisk, topic: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from moldau.log.flushing import Flush

    class UnexpectedError(RuntimeError):
        pass

    def broken(self: Any) -> None:
        raise UnexpectedError("made up by the test")

    monkeypatch.setattr(Flush, "run", broken)
    with server.wire() as wire:
        assert produce(wire, topic, batch(b"x")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert produce(wire, topic, batch(b"x")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert "made up by the test" in caplog.text


def test_a_flush_that_cannot_start_is_retried(
    server: RunningServer, disk: SlowDisk, topic: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = partition_of(server).log
    begin = type(log).begin_flush
    refused: list[Any] = []

    def no_descriptors(self: Any, up_to: Any = None) -> Any:
        if self is log and len(refused) < 3:
            refused.append(self)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "too many open files")
        return begin(self, up_to)

    monkeypatch.setattr(type(log), "begin_flush", no_descriptors)
    with caplog.at_level(logging.ERROR), server.wire() as wire:
        assert produce(wire, topic, batch(b"x")).base_offset == 1
    assert len(refused) == 3
    assert "Cannot flush" in caplog.text


def test_records_that_a_full_disk_cannot_flush_stay_invisible_and_are_logged_once(
    server: RunningServer, disk: SlowDisk, caplog: pytest.LogCaptureFixture
) -> None:
    """There is space for the append, but not for the checkpoint that its flush writes."""
    server.create_topic("t", flush_messages=1)
    refused = []

    def full(operation: str, path: str) -> Any:
        if operation == "write" and path == "/a/t-0/leader-epoch-checkpoint.tmp":
            refused.append(path)
            return errno.ENOSPC
        return None

    disk.fail_with = full
    with caplog.at_level(logging.ERROR), server.wire() as producer, server.wire() as wire:
        producer.send(produce_request("t", batch(b"x")), 9)
        server.wait_until(lambda: len(refused) >= 3)
        assert silent(server, producer)
        assert end_offset(wire) == 0
        disk.fail_with = None
        assert producer.receive().responses[0].partition_responses[0].base_offset == 0
        assert end_offset(wire) == 1
    assert caplog.text.count("Cannot flush t-0; the flush is retried: No space left on device") == 1
    assert not server.call(lambda: server.broker.group_commit._postponed)


def test_pending_produce_requests_fail_immediately_when_their_topic_is_deleted(
    server: RunningServer, disk: SlowDisk, topic: str
) -> None:
    disk.block("/a/t-0")
    with server.wire() as producer, server.wire() as admin:
        producer.send(produce_request(topic, batch(b"second")), 9)
        wait_blocked(server, disk)
        producer.send(produce_request(topic, batch(b"third")), 9)
        wait_end(server, 3)
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=1000)
        assert admin.call(request, 6).responses[0].error_code == 0
        # The requests fail immediately, although the sync is still running.
        assert [error_of(producer.receive()) for _ in range(2)] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
        disk.release()
        server.create_topic(topic, flush_messages=1)
        assert produce(producer, topic, batch(b"again")).base_offset == 0
        assert values(fetch(admin, topic)) == [b"again"]


def test_pending_produce_requests_fail_when_the_leader_changes(
    server: RunningServer, disk: SlowDisk, topic: str
) -> None:
    disk.block("/a/t-0")
    partition = partition_of(server)
    with server.wire() as producer:
        producer.send(produce_request(topic, batch(b"second")), 9)
        wait_blocked(server, disk)
        server.call(
            lambda: partition.become_follower(
                leader_id=99, leader_epoch=9, partition_epoch=9, replicas=(1, 99), isr=(99,)
            )
        )
        assert error_of(producer.receive()) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_records_are_flushed_after_their_producer_disconnects(
    server: RunningServer, disk: SlowDisk, topic: str
) -> None:
    disk.block("/a/t-0")
    with server.wire() as producer:
        producer.send(produce_request(topic, batch(b"x" * 200_000)), 9)
        wait_blocked(server, disk)
        assert server.call(lambda: server.network.budget.used_bytes) > 0
    disk.release()
    server.wait_until(lambda: partition_of(server).uncommitted is None)
    server.wait_until(lambda: not server.network.budget.used_bytes)
    with server.wire() as wire:
        assert values(fetch(wire, topic)) == [b"first", b"x" * 200_000]


def test_a_shutdown_waits_for_the_device_and_acknowledges(server: RunningServer, disk: SlowDisk, topic: str) -> None:
    disk.block("/a/t-0")
    with server.wire() as producer:
        producer.send(produce_request(topic, batch(b"second")), 9)
        wait_blocked(server, disk)
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        # This takes longer than the grace period of connections. The listener is closed, and the response is pending.
        server.wait_until(lambda: server.broker.group_commit._idle is not None)
        assert silent(server, producer)
        disk.release()
        assert error_of(producer.receive()) == 0
        stopping.join(60)
        assert not stopping.is_alive()
    server.start()
    with server.wire() as wire:
        assert values(fetch(wire, topic)) == [b"first", b"second"]


# -- groups and transactions -------------------------------------------------------------------------------------------


def commit_request(group_id: str, topic: str, offset: int) -> Any:
    partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)]
    return OffsetCommitRequest(group_id=group_id, topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions)])


def offset_fetch_request(group_id: str, topic: str) -> Any:
    topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=topics)])


def committed_offset(answer: Any) -> Any:
    return answer.groups[0].topics[0].partitions[0].committed_offset


def find(wire: WireClient, key: Any, key_type: int = 0) -> None:
    (found,) = wire.call(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), 6).coordinators
    assert found.error_code == 0, found


def test_committed_offsets_are_acknowledged_and_visible_when_they_are_durable(
    durable_server: RunningServer, disk: SlowDisk
) -> None:
    server = durable_server
    server.create_topic("t")
    with server.wire() as member, server.wire() as wire, server.wire() as tool, server.wire() as lister:
        find(member, "g")
        assert member.call(commit_request("g", "t", 1), 9).topics[0].partitions[0].error_code == 0
        assert committed_offset(wire.call(offset_fetch_request("g", "t"), 9)) == 1
        disk.block("/a/__consumer_offsets-0")
        member.send(commit_request("g", "t", 2), 9)
        wait_blocked(server, disk, "/a/__consumer_offsets-0")
        wire.send(offset_fetch_request("g", "t"), 9)
        tool.send(DescribeGroupsRequest(groups=["g"]), 5)
        lister.send(ListGroupsRequest(), 4)
        server.wait_until(lambda: sum(len(c._in_flight) for c in server.network.connections) == 4)
        assert silent(server, member, wire, tool, lister)
        disk.release()
        assert member.receive().topics[0].partitions[0].error_code == 0
        assert committed_offset(wire.receive()) == 2
        assert tool.receive().groups[0].group_state == "Empty"
        assert [group.group_id for group in lister.receive().groups] == ["g"]
        assert committed_offset(wire.call(offset_fetch_request("g", "t"), 9)) == 2


def test_a_coordinator_with_a_failed_disk_returns_not_coordinator(
    durable_server: RunningServer, disk: SlowDisk
) -> None:
    server = durable_server
    server.create_topic("t")
    with server.wire() as member, server.wire() as wire:
        find(member, "g")
        assert member.call(commit_request("g", "t", 1), 9).topics[0].partitions[0].error_code == 0
        disk.block("/a/__consumer_offsets-0")
        member.send(commit_request("g", "t", 2), 9)
        wait_blocked(server, disk, "/a/__consumer_offsets-0")
        wire.send(offset_fetch_request("g", "t"), 9)
        server.wait_until(lambda: sum(len(c._in_flight) for c in server.network.connections) == 2)
        disk.errors["/a/__consumer_offsets-0"] = errno.EIO
        disk.release()
        assert member.receive().topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
        assert wire.receive().groups[0].error_code == ErrorCode.NOT_COORDINATOR


def test_a_transaction_is_decided_only_when_the_decision_is_durable(
    durable_server: RunningServer, disk: SlowDisk
) -> None:
    server = durable_server
    server.create_topic("t")
    with server.wire() as wire, server.wire() as reader, server.wire() as tool:
        producer = Transactional(wire, "x")
        assert producer.init() == 0
        assert producer.produce("t", "a") == 0
        disk.block("/a/__transaction_state-0")
        committing = threading.Thread(target=producer.commit)
        committing.start()
        wait_blocked(server, disk, "/a/__transaction_state-0")
        # No marker is written before the decision is durable.
        assert server.call(lambda: partition_of(server).log.log_end_offset) == 1
        assert committed_values(reader, "t") == []
        tool.send(ListTransactionsRequest(), 0)
        disk.release()
        committing.join(60)
        assert not committing.is_alive()
        assert [one.transactional_id for one in tool.receive().transaction_states] == ["x"]
        server.wait_until(lambda: server.broker.transactions.has_ended("x"))
        server.wait_until(lambda: partition_of(server).uncommitted is None)
        assert committed_values(reader, "t") == ["a"]


def test_a_transaction_is_complete_when_its_markers_are_durable(durable_server: RunningServer, disk: SlowDisk) -> None:
    server = durable_server
    server.create_topic("t")
    with server.wire() as wire, server.wire() as reader:
        producer = Transactional(wire, "x")
        assert producer.init() == 0
        assert producer.produce("t", "a") == 0
        disk.block("/a/t-0")
        assert producer.commit() == 0
        wait_blocked(server, disk)
        assert server.call(lambda: partition_of(server).log.log_end_offset) == 2
        # The marker is in the log but must not take effect yet.
        assert fetch_committed(reader, "t").last_stable_offset == 0
        assert committed_values(reader, "t") == []
        assert committed_values(reader, "t", committed=False) == ["a"]
        assert not server.call(lambda: server.broker.transactions.has_ended("x"))
        waiting = fetch_request("t", max_wait_ms=60_000)
        waiting.isolation_level = 1
        reader.send(waiting, 12)
        server.wait_until(lambda: partition_of(server).waiters)
        disk.release()
        (answer,) = reader.receive().responses[0].partitions
        assert values(answer)[:1] == [b"a"]
        server.wait_until(lambda: server.broker.transactions.has_ended("x"))
        assert fetch_committed(reader, "t").last_stable_offset == 2


def test_offsets_of_a_transaction_take_effect_when_the_marker_is_durable(
    durable_server: RunningServer, disk: SlowDisk
) -> None:
    server = durable_server
    server.create_topic("t")
    with server.wire() as wire, server.wire() as reader:
        find(wire, "g")
        producer = Transactional(wire, "x")
        assert producer.init() == 0
        assert producer.commit_offset("g", "t", 5) == 0
        disk.block("/a/__consumer_offsets-0")
        assert producer.commit() == 0
        wait_blocked(server, disk, "/a/__consumer_offsets-0")
        reader.send(offset_fetch_request("g", "t"), 9)
        server.wait_until(lambda: sum(len(c._in_flight) for c in server.network.connections) == 1)
        assert silent(server, reader)
        assert not server.call(lambda: server.broker.transactions.has_ended("x"))
        disk.release()
        assert committed_offset(reader.receive()) == 5
        server.wait_until(lambda: server.broker.transactions.has_ended("x"))


def test_a_requested_marker_is_acknowledged_when_it_is_durable(
    server: RunningServer, disk: SlowDisk, topic: str
) -> None:
    def markers(producer_id: int) -> Any:
        return WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=producer_id,
                    producer_epoch=0,
                    transaction_result=False,
                    topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[0, 1])],
                )
            ]
        )

    with server.wire() as coordinator, server.wire() as reader:
        disk.block("/a/t-0")
        coordinator.send(markers(7), 1)
        wait_blocked(server, disk)
        assert silent(server, coordinator)
        disk.release()
        (answer,) = coordinator.receive().markers
        codes = {p.partition_index: p.error_code for p in answer.topics[0].partitions}
        assert codes == {0: 0, 1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert end_offset(reader) == 2
        disk.block("/a/t-0")
        coordinator.send(markers(8), 1)
        wait_blocked(server, disk)
        disk.errors["/a/t-0"] = errno.EIO
        disk.release()
        (answer,) = coordinator.receive().markers
        codes = {p.partition_index: p.error_code for p in answer.topics[0].partitions}
        assert codes[0] == ErrorCode.KAFKA_STORAGE_ERROR


def test_records_of_a_killed_process_are_visible_after_their_flush(make_server: MakeServer, disk: SlowDisk) -> None:
    server = make_server(log_dirs=["/a"], file_system=disk, config=FEW)
    server.create_topic("t", flush_messages=1)
    disk.block("/a/t-0")
    with server.wire() as wire:
        wire.send(produce_request("t", batch(b"x")), 9)
        wait_blocked(server, disk)
        wire.send(produce_request("t", batch(b"y")), 9)
        wait_end(server, 2)
        survivor = SlowDisk()
        survivor._names = disk.crash()._names
        disk.release()
    server.stop()
    survivor.block("/a/t-0")
    server = make_server(log_dirs=["/a"], file_system=survivor, config=FEW)
    with server.wire() as wire:
        wait_blocked(server, survivor)
        assert (end_offset(wire), values(fetch(wire, "t"))) == (0, [])
        survivor.release()
        server.wait_until(lambda: partition_of(server).uncommitted is None)
        assert (end_offset(wire), values(fetch(wire, "t"))) == (2, [b"x", b"y"])


# -- flushes without pending requests ----------------------------------------------------------------------------------


def test_flush_ms_flushes_periodically_without_delaying_visibility(make_server: MakeServer, disk: SlowDisk) -> None:
    server = make_server(log_dirs=["/a"], file_system=disk, config=FEW | {"log.flush.scheduler.interval.ms": "20"})
    server.create_topic("t", flush_ms=1)
    disk.block("/a/t-0")
    with server.wire() as wire:
        assert produce(wire, "t", batch(b"x")).base_offset == 0
        assert values(fetch(wire, "t")) == [b"x"]
        wait_blocked(server, disk)
        assert produce(wire, "t", batch(b"y")).base_offset == 1
        assert end_offset(wire) == 2
        disk.release()
        server.wait_until(lambda: partition_of(server).log.flushed_offset == 2)


def test_an_append_waits_for_the_flush_that_housekeeping_has_started(make_server: MakeServer, disk: SlowDisk) -> None:
    """That flush syncs file names, which the flush of the append does not sync again."""
    server = make_server(log_dirs=["/a"], file_system=disk, config=FEW | {"log.flush.scheduler.interval.ms": "20"})
    server.create_topic("t", flush_ms=1, flush_messages=2)
    disk.block("/a/t-0")
    with server.wire() as wire:
        assert produce(wire, "t", batch(b"x")).base_offset == 0
        wait_blocked(server, disk)
        wire.send(produce_request("t", batch(b"y", b"z")), 9)
        wait_end(server, 3)
        assert len(disk.waiting) == 1
        assert silent(server, wire)
        disk.release()
        assert error_of(wire.receive()) == 0
        assert server.call(lambda: partition_of(server).log.flushed_offset) == 3


def test_a_new_segment_counts_when_its_name_is_durable(server: RunningServer, disk: SlowDisk) -> None:
    server.create_topic("t", flush_messages=1)
    with server.wire() as wire:
        produce(wire, "t", batch(b"x"))
        server.call(lambda: partition_of(server).log.roll(server.broker.now_ms()))
        before = len(disk.syncs)
        disk.block("/a/t-0/00000000000000000001.log")
        wire.send(produce_request("t", build_batch([Record(timestamp=1, value=b"y")])), 9)
        wait_blocked(server, disk, "/a/t-0/00000000000000000001.log")
        assert silent(server, wire)
        disk.release()
        assert error_of(wire.receive()) == 0
        synced = disk.syncs[before:]
    assert "/a/t-0/00000000000000000001.log" in synced
    assert "/a/t-0/00000000000000000000.index" in synced
    assert synced[-1] == "/a/t-0"
