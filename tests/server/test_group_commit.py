"""Group commit: what has to be flushed is acknowledged and seen when it was, and a sync serves everybody who waits.

The disk is in memory, and its syncs wait until the test lets them go.
"""

from __future__ import annotations

import errno
import logging
import select
import threading

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
    """A disk whose syncs can be held, by the beginning of their path, and made to fail."""

    def __init__(self) -> None:
        super().__init__(recording=False)
        self._changed = threading.Condition()
        self._held: set[str] = set()
        self.errors: dict[str, int] = {}
        """The errno that a sync fails with, by the beginning of its path."""
        self.syncs: list[str] = []
        """Paths whose sync has ended, by threads; the loop's own are left out."""
        self.waiting: list[str] = []
        """Paths whose sync is held now."""
        self.fail_with = self._operation

    def hold(self, prefix: str) -> None:
        with self._changed:
            self._held.add(prefix)

    def let_go(self, prefix: str | None = None) -> None:
        """Those of this prefix, or all."""
        with self._changed:
            self._held = self._held - {prefix} if prefix is not None else set()
            self._changed.notify_all()

    def _is_held(self, path: str) -> bool:
        return any(path.startswith(prefix) for prefix in self._held)

    def syncs_of(self, prefix: str) -> int:
        return sum(path.startswith(prefix) for path in self.syncs)

    def _operation(self, operation: str, path: str) -> int | None:
        if operation != "sync" or not threading.current_thread().name.startswith("moldau-background"):
            return None
        with self._changed:
            if self._is_held(path):
                self.waiting.append(path)
                assert self._changed.wait_for(lambda: not self._is_held(path), 60)
                self.waiting.remove(path)
            self.syncs.append(path)
            for prefix, code in self.errors.items():
                if path.startswith(prefix):
                    return code
        return None


@pytest.fixture
def disk():
    disk = SlowDisk()
    yield disk
    disk.let_go()


@pytest.fixture
def server(make_server, disk):
    return make_server(log_dirs=["/a"], file_system=disk, config=FEW)


@pytest.fixture
def durable_server(make_server, disk):
    return make_server(log_dirs=["/a"], file_system=disk, config=DURABLE)


@pytest.fixture
def topic(server, disk):
    """A topic that flushes each append, and whose names are on the device."""
    server.create_topic("t", flush_messages=1)
    with server.wire() as wire:
        assert produce(wire, "t", batch(b"first")).base_offset == 0
    return "t"


def partition_of(server, topic="t", index=0):
    return server.broker.replicas.partition_by_key(topic, index)


def wait_held(server, disk, prefix="/a/t-0"):
    server.wait_until(lambda: any(path.startswith(prefix) for path in disk.waiting))


def wait_end(server, end_offset, topic="t", index=0):
    server.wait_until(lambda: partition_of(server, topic, index).log.log_end_offset == end_offset)


def end_offset(wire, topic="t", *, isolation_level=0, timestamp=-1):
    wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(
        isolation_level=isolation_level, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])]
    )
    (answer,) = wire.call(request, 7).topics[0].partitions
    assert answer.error_code == 0
    return answer.offset


def silent(server, *wires):
    """Nothing has come, though the loop has had a turn since."""
    server.call(lambda: None)
    readable, _, _ = select.select([wire._socket for wire in wires], [], [], 0)
    return not readable


# -- acknowledged and seen when it was flushed -------------------------------------------------------------------------


@pytest.mark.parametrize("acks", [1, -1])
def test_nothing_of_an_append_is_seen_before_it_is_on_the_device(server, disk, topic, acks):
    disk.hold("/a/t-0")
    with server.wire() as producer, server.wire() as wire:
        producer.send(produce_request(topic, batch(b"second"), acks=acks), 9)
        wait_held(server, disk)
        assert server.call(lambda: partition_of(server).log.log_end_offset) == 2
        answer = fetch(wire, topic)
        assert (values(answer), answer.high_watermark, answer.last_stable_offset) == ([b"first"], 1, 1)
        assert values(fetch(wire, topic, 1)) == []
        assert [end_offset(wire, isolation_level=level) for level in (0, 1)] == [1, 1]
        assert end_offset(wire, timestamp=-3) == -1  # a record that is not to be seen yet
        assert server.call(lambda: server.broker.high_watermarks()["t", 0]) == 1
        assert silent(server, producer)
        disk.let_go()
        answer = producer.receive().responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (0, 1)
        answer = fetch(wire, topic)
        assert (values(answer), answer.high_watermark) == ([b"first", b"second"], 2)
        assert end_offset(wire) == 2


def test_a_fetch_that_waits_is_answered_when_the_records_are_on_the_device(server, disk, topic):
    disk.hold("/a/t-0")
    with server.wire() as producer, server.wire() as consumer:
        consumer.send(fetch_request(topic, 1, max_wait_ms=60_000), 12)
        server.wait_until(lambda: partition_of(server).waiters)
        producer.send(produce_request(topic, batch(b"second")), 9)
        wait_held(server, disk)
        assert silent(server, consumer)
        disk.let_go()
        (answer,) = consumer.receive().responses[0].partitions
        assert values(answer) == [b"second"]


def test_acks_0_waits_for_nothing(server, disk, topic):
    disk.hold("/a/t-0")
    with server.wire() as producer, server.wire() as wire:
        producer.send(produce_request(topic, batch(b"second"), acks=0), 9, answered=False)
        wait_held(server, disk)
        # The connection goes on at once.
        assert end_offset(producer) == 1
        disk.let_go()
        server.wait_until(lambda: partition_of(server).held_back is None)
        assert end_offset(wire) == 2


def test_one_sync_serves_everybody_who_came_while_the_one_before_was_under_way(server, disk, topic):
    wires = [server.wire() for _ in range(64)]
    try:
        before = disk.syncs_of("/a/t-0")
        disk.hold("/a/t-0")
        for number, wire in enumerate(wires):
            wire.send(produce_request(topic, batch(b"%d" % number)), 9)
            if not number:
                wait_held(server, disk)
        wait_end(server, 65)
        disk.let_go()
        assert {wire.receive().responses[0].partition_responses[0].base_offset for wire in wires} == set(range(1, 65))
        assert disk.syncs_of("/a/t-0") - before == 2  # the first one's, and one for 63
    finally:
        for wire in wires:
            wire.close()


def test_different_partitions_are_flushed_at_the_same_time(server, disk):
    server.create_topic("p", partitions=4, flush_messages=1)
    with server.wire() as wire:
        for index in range(4):
            produce(wire, "p", batch(b"x"), partition=index)
        disk.hold("/a/p-")
        for index in range(4):
            wire.send(produce_request("p", batch(b"y"), partition=index), 9)
        server.wait_until(lambda: len(disk.waiting) == 4)
        disk.let_go()
        for _ in range(4):
            assert error_of(wire.receive()) == 0


def test_the_answers_of_a_connection_stay_in_order(server, disk, topic):
    server.create_topic("plain")
    disk.hold("/a/t-0")
    with server.wire() as wire:
        wire.send(produce_request(topic, batch(b"second")), 9)
        wire.send(produce_request("plain", batch(b"x")), 9)
        wire.send(produce_request(topic, batch(b"third")), 9)
        wait_held(server, disk)
        wait_end(server, 1, "plain")
        assert silent(server, wire)
        disk.let_go()
        answers = [wire.receive().responses[0] for _ in range(3)]
    assert [(answer.name, answer.partition_responses[0].base_offset) for answer in answers] == [
        ("t", 1), ("plain", 0), ("t", 2)
    ]  # fmt: skip


def test_a_request_for_several_partitions_waits_for_the_last(server, disk, topic):
    server.create_topic("plain")
    request = produce_request(topic, batch(b"second"))
    request.topic_data += produce_request("plain", batch(b"x")).topic_data
    disk.hold("/a/t-0")
    with server.wire() as wire:
        wire.send(request, 9)
        wait_held(server, disk)
        assert silent(server, wire)
        disk.let_go()
        assert [r.partition_responses[0].error_code for r in wire.receive().responses] == [0, 0]


def test_with_a_larger_number_of_messages_only_the_append_that_reaches_it_waits(server, disk):
    server.create_topic("t", flush_messages=3)
    with server.wire() as producer, server.wire() as wire:
        assert produce(producer, "t", batch(b"1", b"2")).base_offset == 0
        assert end_offset(wire) == 2
        disk.hold("/a/t-0")
        producer.send(produce_request("t", batch(b"3")), 9)
        wait_held(server, disk)
        producer.send(produce_request("t", batch(b"4")), 9)
        wait_end(server, 4)
        assert end_offset(wire) == 2
        assert silent(server, producer)
        disk.let_go()
        assert [error_of(producer.receive()) for _ in range(2)] == [0, 0]
        assert end_offset(wire) == 4
        assert server.call(lambda: partition_of(server).log.flushed_offset) == 3


def test_a_duplicate_of_what_is_being_flushed_is_answered_when_that_is_flushed(server, disk, topic):
    first = batch(b"x", producer_id=7, producer_epoch=0, base_sequence=0)
    disk.hold("/a/t-0")
    with server.wire() as producer, server.wire() as again:
        producer.send(produce_request(topic, first), 9)
        wait_held(server, disk)
        again.send(produce_request(topic, first), 9)
        # It has been served: what came behind it on the same connection is in the log.
        again.send(produce_request(topic, batch(b"y")), 9)
        wait_end(server, 3)
        assert silent(server, again)
        disk.let_go()
        for wire in (producer, again):
            answer = wire.receive().responses[0].partition_responses[0]
            assert (answer.error_code, answer.base_offset) == (0, 1)
        assert produce(producer, topic, first).base_offset == 1  # nothing is being flushed any more


def test_delete_records_goes_by_the_high_watermark(server, disk, topic):
    disk.hold("/a/t-0")

    def delete(offset):
        partitions = [DeleteRecordsPartition(partition_index=0, offset=offset)]
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=partitions)], timeout_ms=1000)
        (result,) = wire.call(request, 2).topics[0].partitions
        return result.error_code, result.low_watermark

    with server.wire() as producer, server.wire() as wire:
        producer.send(produce_request(topic, batch(b"second")), 9)
        wait_held(server, disk)
        assert delete(2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert delete(-1) == (0, 1)
        disk.let_go()
        assert error_of(producer.receive()) == 0
        assert delete(-1) == (0, 2)


def test_the_setting_may_change_while_records_are_being_flushed(server, disk, topic):
    def set_flush_messages(value):
        config = AlterableConfig(name="flush.messages", config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=2, resource_name=topic, configs=[config])
        (answer,) = wire.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
        assert answer.error_code == 0

    with server.wire() as producer, server.wire() as wire:
        disk.hold("/a/t-0")
        producer.send(produce_request(topic, batch(b"second")), 9)
        wait_held(server, disk)
        set_flush_messages(str(2**63 - 1))
        producer.send(produce_request(topic, batch(b"third")), 9)
        wait_end(server, 3)
        assert end_offset(wire) == 1
        disk.let_go()
        # The second was promised to be on the device, the third was not.
        assert [error_of(producer.receive()) for _ in range(2)] == [0, 0]
        disk.hold("/a/t-0")
        assert [produce(producer, topic, batch(b"x")).base_offset for _ in range(3)] == [3, 4, 5]
        assert end_offset(wire) == 6
        set_flush_messages("1")
        producer.send(produce_request(topic, batch(b"waits")), 9)
        wait_held(server, disk)
        assert end_offset(wire) == 6
        disk.let_go()
        assert error_of(producer.receive()) == 0


def test_appends_that_are_recompressed_wait_as_well(server, disk):
    server.create_topic("t", flush_messages=1, compression_type="gzip")
    with server.wire() as producer, server.wire() as wire:
        produce(producer, "t", batch(b"first"))
        disk.hold("/a/t-0")
        producer.send(produce_request("t", batch(b"x" * 10_000)), 9)
        wait_held(server, disk)
        assert silent(server, producer)
        assert end_offset(wire) == 1
        disk.let_go()
        assert error_of(producer.receive()) == 0


# -- what goes wrong ---------------------------------------------------------------------------------------------------


def test_after_a_sync_that_failed_the_directory_is_offline_and_nothing_is_tried_again(make_server, disk):
    server = make_server(log_dirs=["/a", "/b"], file_system=disk, config=FEW)
    server.create_topic("t", partitions=4, flush_messages=1)
    directory = server.call(lambda: server.broker.log_manager.directory_of("t", 0).path)
    there = [
        index
        for index in range(4)
        if server.call(lambda index=index: server.broker.log_manager.directory_of("t", index).path) == directory
    ]
    (elsewhere, *_) = set(range(4)) - set(there)
    with server.wire() as producer, server.wire() as wire:
        for index in range(4):
            assert produce(producer, "t", batch(b"x"), partition=index).error_code == 0
        for index in there:
            disk.hold(f"{directory}/t-{index}/")
            producer.send(produce_request("t", batch(b"y"), partition=index), 9)
        server.wait_until(lambda: len(disk.waiting) == len(there))
        disk.errors[f"{directory}/t-0/"] = errno.EIO
        disk.let_go(f"{directory}/t-0/")
        # Everybody in the directory is told, also those whose sync is still under way.
        for _ in there:
            answer = producer.receive().responses[0].partition_responses[0]
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert (answer.base_offset, answer.log_append_time_ms, answer.log_start_offset) == (-1, -1, -1)
        disk.errors.clear()
        disk.let_go()
        server.wait_until(lambda: not server.broker.group_commit._running)
        syncs = disk.syncs_of(directory)
        for index in there:
            answer = produce(wire, "t", batch(b"z"), partition=index)
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert fetch(wire, "t", partition=index).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert disk.syncs_of(directory) == syncs
        assert produce(wire, "t", batch(b"z"), partition=elsewhere).base_offset == 1


def test_a_flush_that_fails_by_our_own_fault_leaves_nobody_waiting(server, disk, topic, monkeypatch, caplog):
    from moldau.log.flushing import Flush

    class UnexpectedError(RuntimeError):
        pass

    def broken(self):
        raise UnexpectedError("made up by the test")

    monkeypatch.setattr(Flush, "run", broken)
    with server.wire() as wire:
        assert produce(wire, topic, batch(b"x")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert produce(wire, topic, batch(b"x")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert "made up by the test" in caplog.text


def test_a_flush_that_cannot_begin_is_made_later(server, disk, topic, monkeypatch, caplog):
    log = partition_of(server).log
    begin = type(log).begin_flush
    refused = []

    def no_descriptors(self, up_to=None):
        if self is log and len(refused) < 3:
            refused.append(self)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "too many open files")
        return begin(self, up_to)

    monkeypatch.setattr(type(log), "begin_flush", no_descriptors)
    with caplog.at_level(logging.ERROR), server.wire() as wire:
        assert produce(wire, topic, batch(b"x")).base_offset == 1
    assert len(refused) == 3
    assert "could not be flushed" in caplog.text


def test_a_full_disk_holds_back_what_cannot_be_flushed_and_says_so_once(server, disk, caplog):
    """There is room for the append, and none for the checkpoint that its flush writes."""
    server.create_topic("t", flush_messages=1)
    refused = []

    def full(operation, path):
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
    assert caplog.text.count("t-0 could not be flushed and will be later: No space left on device") == 1
    assert not server.call(lambda: server.broker.group_commit._postponed)


def test_a_topic_that_is_deleted_while_its_records_are_being_flushed(server, disk, topic):
    disk.hold("/a/t-0")
    with server.wire() as producer, server.wire() as admin:
        producer.send(produce_request(topic, batch(b"second")), 9)
        wait_held(server, disk)
        producer.send(produce_request(topic, batch(b"third")), 9)
        wait_end(server, 3)
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=1000)
        assert admin.call(request, 6).responses[0].error_code == 0
        # Told at once, though the sync is still under way.
        assert [error_of(producer.receive()) for _ in range(2)] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
        disk.let_go()
        server.create_topic(topic, flush_messages=1)
        assert produce(producer, topic, batch(b"anew")).base_offset == 0
        assert values(fetch(admin, topic)) == [b"anew"]


def test_a_leader_that_leads_no_more_tells_those_who_wait(server, disk, topic):
    disk.hold("/a/t-0")
    partition = partition_of(server)
    with server.wire() as producer:
        producer.send(produce_request(topic, batch(b"second")), 9)
        wait_held(server, disk)
        server.call(
            lambda: partition.update(leader_id=99, leader_epoch=9, partition_epoch=9, replicas=(1, 99), isr=(99,))
        )
        assert error_of(producer.receive()) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_producer_that_goes_away_while_its_records_are_being_flushed(server, disk, topic):
    disk.hold("/a/t-0")
    with server.wire() as producer:
        producer.send(produce_request(topic, batch(b"x" * 200_000)), 9)
        wait_held(server, disk)
        assert server.call(lambda: server.server._network.budget.used_bytes) > 0
    disk.let_go()
    server.wait_until(lambda: partition_of(server).held_back is None)
    server.wait_until(lambda: not server.server._network.budget.used_bytes)
    with server.wire() as wire:
        assert values(fetch(wire, topic)) == [b"first", b"x" * 200_000]


def test_a_stop_waits_for_the_device_and_acknowledges(server, disk, topic):
    disk.hold("/a/t-0")
    with server.wire() as producer:
        producer.send(produce_request(topic, batch(b"second")), 9)
        wait_held(server, disk)
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        # Longer than the grace that connections have: nobody accepts, and the answer is still to come.
        server.wait_until(lambda: server.broker.group_commit._idle is not None)
        assert silent(server, producer)
        disk.let_go()
        assert error_of(producer.receive()) == 0
        stopping.join(30)
        assert not stopping.is_alive()
    server.start()
    with server.wire() as wire:
        assert values(fetch(wire, topic)) == [b"first", b"second"]


# -- groups and transactions -------------------------------------------------------------------------------------------


def commit_request(group_id, topic, offset):
    partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)]
    return OffsetCommitRequest(group_id=group_id, topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions)])


def offset_fetch_request(group_id, topic):
    topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=topics)])


def committed_offset(answer):
    return answer.groups[0].topics[0].partitions[0].committed_offset


def find(wire, key, key_type=0):
    (found,) = wire.call(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), 6).coordinators
    assert found.error_code == 0, found


def test_committed_offsets_are_acknowledged_and_shown_when_they_are_on_the_device(durable_server, disk):
    server = durable_server
    server.create_topic("t")
    with server.wire() as member, server.wire() as wire, server.wire() as tool, server.wire() as lister:
        find(member, "g")
        assert member.call(commit_request("g", "t", 1), 9).topics[0].partitions[0].error_code == 0
        assert committed_offset(wire.call(offset_fetch_request("g", "t"), 9)) == 1
        disk.hold("/a/__consumer_offsets-0")
        member.send(commit_request("g", "t", 2), 9)
        wait_held(server, disk, "/a/__consumer_offsets-0")
        wire.send(offset_fetch_request("g", "t"), 9)
        tool.send(DescribeGroupsRequest(groups=["g"]), 5)
        lister.send(ListGroupsRequest(), 4)
        server.wait_until(lambda: sum(len(c._in_flight) for c in server.server._network.connections) == 4)
        assert silent(server, member, wire, tool, lister)
        disk.let_go()
        assert member.receive().topics[0].partitions[0].error_code == 0
        assert committed_offset(wire.receive()) == 2
        assert tool.receive().groups[0].group_state == "Empty"
        assert [group.group_id for group in lister.receive().groups] == ["g"]
        assert committed_offset(wire.call(offset_fetch_request("g", "t"), 9)) == 2


def test_a_coordinator_whose_disk_fails_tells_everybody_to_look_elsewhere(durable_server, disk):
    server = durable_server
    server.create_topic("t")
    with server.wire() as member, server.wire() as wire:
        find(member, "g")
        assert member.call(commit_request("g", "t", 1), 9).topics[0].partitions[0].error_code == 0
        disk.hold("/a/__consumer_offsets-0")
        member.send(commit_request("g", "t", 2), 9)
        wait_held(server, disk, "/a/__consumer_offsets-0")
        wire.send(offset_fetch_request("g", "t"), 9)
        server.wait_until(lambda: sum(len(c._in_flight) for c in server.server._network.connections) == 2)
        disk.errors["/a/__consumer_offsets-0"] = errno.EIO
        disk.let_go()
        assert member.receive().topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
        assert wire.receive().groups[0].error_code == ErrorCode.NOT_COORDINATOR


def test_a_transaction_is_decided_when_the_decision_is_on_the_device_and_not_before(durable_server, disk):
    server = durable_server
    server.create_topic("t")
    with server.wire() as wire, server.wire() as reader, server.wire() as tool:
        producer = Transactional(wire, "x")
        assert producer.init() == 0
        assert producer.produce("t", "a") == 0
        disk.hold("/a/__transaction_state-0")
        committing = threading.Thread(target=producer.commit)
        committing.start()
        wait_held(server, disk, "/a/__transaction_state-0")
        # No marker before the decision cannot be lost any more.
        assert server.call(lambda: partition_of(server).log.log_end_offset) == 1
        assert committed_values(reader, "t") == []
        tool.send(ListTransactionsRequest(), 0)
        disk.let_go()
        committing.join(30)
        assert not committing.is_alive()
        assert [one.transactional_id for one in tool.receive().transaction_states] == ["x"]
        server.wait_until(lambda: server.broker.transactions.has_ended("x"))
        server.wait_until(lambda: partition_of(server).held_back is None)
        assert committed_values(reader, "t") == ["a"]


def test_a_transaction_is_over_when_its_markers_are_on_the_device(durable_server, disk):
    server = durable_server
    server.create_topic("t")
    with server.wire() as wire, server.wire() as reader:
        producer = Transactional(wire, "x")
        assert producer.init() == 0
        assert producer.produce("t", "a") == 0
        disk.hold("/a/t-0")
        assert producer.commit() == 0
        wait_held(server, disk)
        assert server.call(lambda: partition_of(server).log.log_end_offset) == 2
        # The marker is in the log, and nobody may go by it.
        assert fetch_committed(reader, "t").last_stable_offset == 0
        assert committed_values(reader, "t") == []
        assert committed_values(reader, "t", committed=False) == ["a"]
        assert not server.call(lambda: server.broker.transactions.has_ended("x"))
        waiting = fetch_request("t", max_wait_ms=60_000)
        waiting.isolation_level = 1
        reader.send(waiting, 12)
        server.wait_until(lambda: partition_of(server).waiters)
        disk.let_go()
        (answer,) = reader.receive().responses[0].partitions
        assert values(answer)[:1] == [b"a"]
        server.wait_until(lambda: server.broker.transactions.has_ended("x"))
        assert fetch_committed(reader, "t").last_stable_offset == 2


def test_offsets_of_a_transaction_count_when_the_marker_is_on_the_device(durable_server, disk):
    server = durable_server
    server.create_topic("t")
    with server.wire() as wire, server.wire() as reader:
        find(wire, "g")
        producer = Transactional(wire, "x")
        assert producer.init() == 0
        assert producer.commit_offset("g", "t", 5) == 0
        disk.hold("/a/__consumer_offsets-0")
        assert producer.commit() == 0
        wait_held(server, disk, "/a/__consumer_offsets-0")
        reader.send(offset_fetch_request("g", "t"), 9)
        server.wait_until(lambda: sum(len(c._in_flight) for c in server.server._network.connections) == 1)
        assert silent(server, reader)
        assert not server.call(lambda: server.broker.transactions.has_ended("x"))
        disk.let_go()
        assert committed_offset(reader.receive()) == 5
        server.wait_until(lambda: server.broker.transactions.has_ended("x"))


def test_a_marker_that_was_asked_for_is_acknowledged_when_it_is_on_the_device(server, disk, topic):
    def markers(producer_id):
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
        disk.hold("/a/t-0")
        coordinator.send(markers(7), 1)
        wait_held(server, disk)
        assert silent(server, coordinator)
        disk.let_go()
        (answer,) = coordinator.receive().markers
        codes = {p.partition_index: p.error_code for p in answer.topics[0].partitions}
        assert codes == {0: 0, 1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert end_offset(reader) == 2
        disk.hold("/a/t-0")
        coordinator.send(markers(8), 1)
        wait_held(server, disk)
        disk.errors["/a/t-0"] = errno.EIO
        disk.let_go()
        (answer,) = coordinator.receive().markers
        codes = {p.partition_index: p.error_code for p in answer.topics[0].partitions}
        assert codes[0] == ErrorCode.KAFKA_STORAGE_ERROR


def test_what_a_process_that_died_left_is_seen_when_it_has_been_flushed(make_server, disk):
    server = make_server(log_dirs=["/a"], file_system=disk, config=FEW)
    server.create_topic("t", flush_messages=1)
    disk.hold("/a/t-0")
    with server.wire() as wire:
        wire.send(produce_request("t", batch(b"x")), 9)
        wait_held(server, disk)
        wire.send(produce_request("t", batch(b"y")), 9)
        wait_end(server, 2)
        survivor = SlowDisk()
        survivor._names = disk.crash()._names
        disk.let_go()
    server.stop()
    survivor.hold("/a/t-0")
    server = make_server(log_dirs=["/a"], file_system=survivor, config=FEW)
    with server.wire() as wire:
        wait_held(server, survivor)
        assert (end_offset(wire), values(fetch(wire, "t"))) == (0, [])
        survivor.let_go()
        server.wait_until(lambda: partition_of(server).held_back is None)
        assert (end_offset(wire), values(fetch(wire, "t"))) == (2, [b"x", b"y"])


# -- flushes that nobody waits for -------------------------------------------------------------------------------------


def test_flush_ms_flushes_now_and_then_and_holds_nothing_back(make_server, disk):
    server = make_server(log_dirs=["/a"], file_system=disk, config=FEW | {"log.flush.scheduler.interval.ms": "20"})
    server.create_topic("t", flush_ms=1)
    disk.hold("/a/t-0")
    with server.wire() as wire:
        assert produce(wire, "t", batch(b"x")).base_offset == 0
        assert values(fetch(wire, "t")) == [b"x"]
        wait_held(server, disk)
        assert produce(wire, "t", batch(b"y")).base_offset == 1
        assert end_offset(wire) == 2
        disk.let_go()
        server.wait_until(lambda: partition_of(server).log.flushed_offset == 2)


def test_an_append_waits_for_the_flush_that_housekeeping_has_begun(make_server, disk):
    """It syncs names that the append's own flush would leave to it."""
    server = make_server(log_dirs=["/a"], file_system=disk, config=FEW | {"log.flush.scheduler.interval.ms": "20"})
    server.create_topic("t", flush_ms=1, flush_messages=2)
    disk.hold("/a/t-0")
    with server.wire() as wire:
        assert produce(wire, "t", batch(b"x")).base_offset == 0
        wait_held(server, disk)
        wire.send(produce_request("t", batch(b"y", b"z")), 9)
        wait_end(server, 3)
        assert len(disk.waiting) == 1
        assert silent(server, wire)
        disk.let_go()
        assert error_of(wire.receive()) == 0
        assert server.call(lambda: partition_of(server).log.flushed_offset) == 3


def test_a_new_segment_counts_when_its_name_is_on_the_device(server, disk):
    server.create_topic("t", flush_messages=1)
    with server.wire() as wire:
        produce(wire, "t", batch(b"x"))
        server.call(lambda: partition_of(server).log.roll(server.broker.now_ms()))
        before = len(disk.syncs)
        disk.hold("/a/t-0/00000000000000000001.log")
        wire.send(produce_request("t", build_batch([Record(timestamp=1, value=b"y")])), 9)
        wait_held(server, disk, "/a/t-0/00000000000000000001.log")
        assert silent(server, wire)
        disk.let_go()
        assert error_of(wire.receive()) == 0
        synced = disk.syncs[before:]
    assert "/a/t-0/00000000000000000001.log" in synced
    assert "/a/t-0/00000000000000000000.index" in synced
    assert synced[-1] == "/a/t-0"
