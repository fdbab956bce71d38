"""Transactions in the broker: from the decisions of the coordinator to markers in partitions, with real requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from moldau.coordinator.runtime import State
from moldau.log.memory_files import MemoryFileSystem
from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.describe_transactions import DescribeTransactionsRequest
from moldau.protocol.messages.end_txn import EndTxnRequest
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.list_transactions import ListTransactionsRequest
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
from moldau.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from moldau.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from moldau.protocol.records import iter_records
from moldau.protocol.steps import completed
from moldau.server.coordination.markers import MarkerWriter
from moldau.testing.wire import WireClient

from .conftest import MakeServer, RunningServer
from .transactional import Transactional, fetch, values

QUICK = {"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "3"}


@pytest.fixture
def server(make_server: MakeServer) -> RunningServer:
    return make_server(config=QUICK)


@pytest.fixture
def wire(server: RunningServer) -> Iterator[Any]:
    with server.wire() as wire:
        yield wire


@pytest.fixture(params=[False, True], ids=["v1", "v2"])
def v2(request: Any) -> Any:
    """Whether the client supports transaction.version 2."""
    return request.param


def initialized(wire: WireClient, transactional_id: str = "p", *topics: Any, v2: bool = True, **settings: Any) -> Any:
    """An initialized producer that may write to these topics."""
    producer = Transactional(wire, transactional_id, v2=v2, **settings)
    assert producer.init() == 0
    if not v2 and topics:
        assert set(producer.add(*topics).values()) == {0}
    return producer


# -- finding the coordinator -------------------------------------------------------------------------------------------


def test_find_coordinator_of_a_transactional_id_creates_its_topic(server: RunningServer, wire: WireClient) -> None:
    request = FindCoordinatorRequest(key_type=1, coordinator_keys=["a", "b"])
    found = wire.call(request, 6).coordinators
    assert [(one.key, one.error_code, one.node_id) for one in found] == [("a", 0, 1), ("b", 0, 1)]
    assert server.broker.metadata.image.topics_by_name["__transaction_state"].partitions.keys() == {0, 1, 2}


def test_before_find_coordinator_no_coordinator_is_available(wire: WireClient) -> None:
    assert wire.call(EndTxnRequest(transactional_id="p"), 5).error_code == ErrorCode.NOT_COORDINATOR
    assert wire.call(ListTransactionsRequest(), 2).transaction_states == []


@pytest.mark.parametrize(("producer_id", "epoch"), [(7, -1), (-1, 0)])
def test_a_producer_id_without_its_epoch_is_rejected(wire: WireClient, producer_id: int, epoch: int) -> None:
    for transactional_id in (None, "p"):
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=1000,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        assert wire.call(request, 5).error_code == ErrorCode.INVALID_REQUEST


def test_an_empty_transactional_id_is_rejected(wire: WireClient) -> None:
    request = InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000)
    assert wire.call(request, 5).error_code == ErrorCode.INVALID_REQUEST


def test_the_broker_limits_the_transaction_timeout(make_server: MakeServer) -> None:
    server = make_server(config={"transaction.max.timeout.ms": "5000"})
    with server.wire() as wire:
        assert Transactional(wire, "p", timeout_ms=5001).init() == ErrorCode.INVALID_TRANSACTION_TIMEOUT
        assert Transactional(wire, "p", timeout_ms=5000).init() == 0


def hosted(server: RunningServer) -> Any:
    """The coordinators of the partitions of __transaction_state."""
    return server.broker.transactions._hosted.values()


def test_an_unused_transactional_id_expires(make_server: MakeServer) -> None:
    server = make_server(config=QUICK)
    with server.wire() as wire:
        server.create_topic("t")
        producer = initialized(wire)
        assert producer.produce("t", "a") == 0
    # Only now, because the id could also expire before the transaction begins.
    server.config["transactional.id.expiration.ms"] = "50"
    server.restart()
    server.wait_until(lambda: hosted(server) and all(one.runtime.state is State.ACTIVE for one in hosted(server)))
    with server.wire() as wire:
        producer.wire = wire
        states = server.broker.transactions.runtime_of("p").shard.states
        assert server.call(lambda: "p" in states.transactions)  # it stays while its transaction is open
        assert producer.commit() == 0
        server.wait_until(lambda: "p" not in states.transactions)
        assert producer.state() == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert producer.produce("t", "b") == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert initialized(wire).producer_id != producer.producer_id


def test_while_transactions_load_their_producers_get_retriable_errors(server: RunningServer, wire: WireClient) -> None:
    server.create_topic("t")
    with_group(wire)
    producer = initialized(wire)
    runtime = server.broker.transactions.runtime_of("p")
    server.call(lambda: setattr(runtime, "state", State.LOADING))
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert producer.init() == loading
    assert set(producer.add("t").values()) == {loading}
    assert producer.add_offsets("g") == loading
    assert producer.abort() == loading
    assert producer.state() == loading
    assert wire.call(ListTransactionsRequest(), 2).error_code == loading
    batch = producer.batch("t", "a")
    for version in (10, 11, 12):
        answer = wire.call(producer.request("t", batch), version)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert producer.commit_offset("g", "t", 1, version=5) == loading
    assert producer.commit_offset("g", "t", 1, version=1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    server.call(lambda: setattr(runtime, "state", State.ACTIVE))
    assert wire.call(producer.request("t", batch), 12).responses[0].partition_responses[0].error_code == 0
    assert producer.commit() == 0
    assert values(wire, "t") == ["a"]


# -- commit and abort --------------------------------------------------------------------------------------------------


def test_committed_records_are_visible_only_after_the_commit(server: RunningServer, wire: WireClient, v2: bool) -> None:
    server.create_topic("t")
    producer = initialized(wire, "p", "t", v2=v2)
    assert producer.produce("t", "a", "b") == 0
    assert values(wire, "t") == []
    assert values(wire, "t", committed=False) == ["a", "b"]
    assert fetch(wire, "t").last_stable_offset == 0
    assert producer.commit() == 0
    assert values(wire, "t") == ["a", "b"]
    assert fetch(wire, "t").last_stable_offset == 3


def test_aborted_records_are_visible_only_to_read_uncommitted_consumers(
    server: RunningServer, wire: WireClient, v2: bool
) -> None:
    server.create_topic("t")
    producer = initialized(wire, "p", "t", v2=v2)
    assert producer.produce("t", "a") == 0
    assert producer.abort() == 0
    assert values(wire, "t") == []
    assert values(wire, "t", committed=False) == ["a"]
    assert [one.first_offset for one in fetch(wire, "t").aborted_transactions or ()] == [0]


def test_a_transaction_ends_in_all_of_its_partitions(server: RunningServer, wire: WireClient, v2: bool) -> None:
    server.create_topic("t", partitions=3)
    producer = initialized(wire, v2=v2)
    for number, (end, kept) in enumerate([(producer.commit, True), (producer.abort, False), (producer.commit, True)]):
        before = {partition: values(wire, "t", partition=partition) for partition in range(3)}
        if not v2:
            assert set(producer.add("t", partitions=range(3)).values()) == {0}
        for partition in range(3):
            assert producer.produce("t", f"{number}", partition=partition) == 0
        assert end() == 0
        for partition in range(3):
            assert values(wire, "t", partition=partition) == before[partition] + [f"{number}"] * kept


def test_with_version_2_the_epoch_increases_with_each_transaction(server: RunningServer, wire: WireClient) -> None:
    server.create_topic("t")
    producer = initialized(wire)
    epochs = []
    for _ in range(3):
        assert producer.produce("t", "x") == 0
        assert producer.commit() == 0
        epochs.append(producer.epoch)
    assert epochs == [1, 2, 3]


def test_with_version_1_the_epoch_stays_the_same(server: RunningServer, wire: WireClient) -> None:
    server.create_topic("t")
    producer = initialized(wire, v2=False)
    for _ in range(3):
        producer.add("t")
        assert producer.produce("t", "x") == 0
        assert producer.commit() == 0
    assert producer.epoch == 0


def test_a_completed_commit_may_be_retried(server: RunningServer, wire: WireClient, v2: bool) -> None:
    server.create_topic("t")
    producer = initialized(wire, "p", "t", v2=v2)
    assert producer.produce("t", "a") == 0
    request = EndTxnRequest(
        transactional_id="p", producer_id=producer.producer_id, producer_epoch=producer.epoch, committed=True
    )
    answers = [wire.call(request, 5 if v2 else 4) for _ in range(2)]
    assert [answer.error_code for answer in answers] == [0, 0]
    assert answers[0].producer_epoch == answers[1].producer_epoch
    assert values(wire, "t") == ["a"]
    assert fetch(wire, "t").high_watermark == 2  # one marker


def test_initializing_again_aborts_the_open_transaction_and_fences_the_producer(
    server: RunningServer, wire: WireClient, v2: bool
) -> None:
    server.create_topic("t")
    zombie = initialized(wire, "p", "t", v2=v2)
    assert zombie.produce("t", "zombie's") == 0
    heir = Transactional(wire, "p", v2=v2)
    while (error := heir.init()) == ErrorCode.CONCURRENT_TRANSACTIONS:
        pass  # the first attempt starts the abort
    assert error == 0
    assert values(wire, "t") == []
    assert zombie.produce("t", "late") == ErrorCode.INVALID_PRODUCER_EPOCH
    assert zombie.end(committed=True) == ErrorCode.PRODUCER_FENCED
    if not v2:
        assert set(zombie.add("t").values()) == {ErrorCode.PRODUCER_FENCED}
        assert set(zombie.add("t", version=1).values()) == {ErrorCode.INVALID_PRODUCER_EPOCH}
        heir.add("t")
    assert heir.produce("t", "heir's") == 0
    assert heir.commit() == 0
    assert values(wire, "t") == ["heir's"]


def test_a_transaction_that_times_out_is_aborted(server: RunningServer, wire: WireClient, v2: bool) -> None:
    server.create_topic("t")
    producer = initialized(wire, "p", "t", v2=v2, timeout_ms=1000)
    assert producer.produce("t", "a") == 0
    partition = server.partition("t", 0)
    server.wait_until(lambda: partition.last_stable_offset == 2)
    assert producer.state() == "CompleteAbort"
    # With version 2 the request looks like a retry of EndTxn with another result.
    assert producer.commit() == (ErrorCode.INVALID_TXN_STATE if v2 else ErrorCode.PRODUCER_FENCED)


# -- adding partitions -------------------------------------------------------------------------------------------------


def test_partitions_are_added_all_or_none(server: RunningServer, wire: WireClient) -> None:
    server.create_topic("t", partitions=2)
    producer = initialized(wire, v2=False)
    assert producer.add("t", "none", partitions=[0]) == {
        ("t", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
        ("none", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert producer.add("t", partitions=[1, 2]) == {
        ("t", 1): ErrorCode.OPERATION_NOT_ATTEMPTED,
        ("t", 2): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert producer.add("t", "__transaction_state", partitions=[0]) == {
        ("t", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
        ("__transaction_state", 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
    assert producer.state() == "Empty"


def of_broker(producer: Any, *partitions: Any, verify_only: Any, epoch: Any = None) -> Any:
    return AddPartitionsToTxnTransaction(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch if epoch is None else epoch,
        verify_only=verify_only,
        topics=[AddPartitionsToTxnTopic(name="t", partitions=list(partitions))],
    )


def test_brokers_add_and_verify_many_transactions_in_one_request(server: RunningServer, wire: WireClient) -> None:
    server.create_topic("t", partitions=2)
    first, second, third = (initialized(wire, name) for name in ("one", "two", "three"))
    request = AddPartitionsToTxnRequest(
        transactions=[
            of_broker(first, 0, 1, verify_only=False),
            of_broker(second, 0, 5, verify_only=False),
            of_broker(third, 0, verify_only=False, epoch=9),
        ]
    )

    def codes(answer: Any) -> list[Any]:
        return [
            [result.partition_error_code for topic in one.topic_results for result in topic.results_by_partition]
            for one in answer.results_by_transaction
        ]

    assert codes(wire.call(request, 5)) == [
        [0, 0],
        [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
        [ErrorCode.PRODUCER_FENCED],
    ]
    request = AddPartitionsToTxnRequest(
        transactions=[of_broker(first, 0, verify_only=True), of_broker(second, 0, verify_only=True)]
    )
    assert codes(wire.call(request, 4)) == [[0], [ErrorCode.TRANSACTION_ABORTABLE]]
    assert wire.call(AddPartitionsToTxnRequest(), 5).results_by_transaction == []


# -- offsets of groups -------------------------------------------------------------------------------------------------


def committed_offset(wire: WireClient, group_id: str, *, require_stable: bool = False) -> Any:
    topic = OffsetFetchRequestTopics(name="t", partition_indexes=[0])
    group = OffsetFetchRequestGroup(group_id=group_id, topics=[topic])
    request = OffsetFetchRequest(groups=[group], require_stable=require_stable)
    (partition,) = wire.call(request, 8).groups[0].topics[0].partitions
    return partition.error_code or partition.committed_offset


def with_group(wire: WireClient, group_id: str = "g") -> None:
    assert wire.call(FindCoordinatorRequest(coordinator_keys=[group_id]), 6).coordinators[0].error_code == 0


def test_offsets_take_effect_when_the_transaction_commits(server: RunningServer, wire: WireClient, v2: bool) -> None:
    server.create_topic("t")
    with_group(wire)
    producer = initialized(wire, v2=v2)
    for offset, end, counts in [(5, producer.commit, 5), (7, producer.abort, 5), (9, producer.commit, 9)]:
        if not v2:
            assert producer.add_offsets("g") == 0
        before = committed_offset(wire, "g")
        assert producer.commit_offset("g", "t", offset) == 0
        assert committed_offset(wire, "g") == before
        assert committed_offset(wire, "g", require_stable=True) == ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert end() == 0
        assert committed_offset(wire, "g", require_stable=True) == counts


def test_offsets_of_an_ended_transaction_survive_a_restart(server: RunningServer, wire: WireClient) -> None:
    server.create_topic("t")
    with_group(wire)
    producer = initialized(wire)
    assert producer.commit_offset("g", "t", 5) == 0
    assert producer.commit() == 0
    assert producer.commit_offset("g", "t", 6) == 0
    server.restart()
    with server.wire() as wire:
        producer.wire = wire
        server.wait_until(lambda: all(one.state.name == "ACTIVE" for one in server.broker.groups.runtimes()))
        server.wait_until(lambda: all(one.state.name == "ACTIVE" for one in server.broker.transactions.runtimes()))
        assert committed_offset(wire, "g") == 5
        assert committed_offset(wire, "g", require_stable=True) == ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert producer.commit() == 0
        assert committed_offset(wire, "g", require_stable=True) == 6


@pytest.mark.parametrize(
    ("version", "error"),
    [(2, ErrorCode.INVALID_TXN_STATE), (3, ErrorCode.INVALID_TXN_STATE), (4, ErrorCode.TRANSACTION_ABORTABLE), (5, 0)],
)
def test_offsets_of_a_group_that_was_not_added_get_the_error_of_the_version(
    server: RunningServer, wire: WireClient, version: int, error: int
) -> None:
    server.create_topic("t")
    with_group(wire)
    producer = initialized(wire)
    assert producer.commit_offset("g", "t", 5, version=version) == error


def test_offset_commits_fail_only_for_unknown_partitions(server: RunningServer, wire: WireClient) -> None:
    server.create_topic("t")
    with_group(wire)
    producer = initialized(wire)

    def commit(group_id: str, **topics: Any) -> dict[Any, Any]:
        request = TxnOffsetCommitRequest(
            transactional_id="p",
            group_id=group_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=name, partitions=[TxnOffsetCommitRequestPartition(partition_index=index) for index in indexes]
                )
                for name, indexes in topics.items()
            ],
        )
        return {
            (topic.name, partition.partition_index): partition.error_code
            for topic in wire.call(request, 5).topics
            for partition in topic.partitions
        }

    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert commit("g", t=[0, 1], none=[0]) == {("t", 0): 0, ("t", 1): unknown, ("none", 0): unknown}
    assert commit("g", none=[0]) == {("none", 0): unknown}
    invalid = ErrorCode.INVALID_GROUP_ID
    assert commit("", t=[0], none=[0]) == {("t", 0): invalid, ("none", 0): unknown}


# -- delayed markers ---------------------------------------------------------------------------------------------------


class RejectingMarkers:
    """Makes the partitions of a topic reject markers while `refuses` is true."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, topic: str) -> None:
        self.topic = topic
        self.refuses = True
        self.attempts = 0
        write = MarkerWriter.write

        def write_marker(writer: Any, topic: str, index: int, **marker: Any) -> None:
            if topic == self.topic:
                self.attempts += 1
                if self.refuses:
                    marker["written"](KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
                    return
            write(writer, topic, index, **marker)

        monkeypatch.setattr(MarkerWriter, "write", write_marker)


def test_a_rejected_marker_is_retried(server: RunningServer, wire: WireClient, monkeypatch: pytest.MonkeyPatch) -> None:
    server.create_topic("t")
    server.create_topic("slow")
    slow = RejectingMarkers(monkeypatch, "slow")
    producer = initialized(wire)
    assert producer.produce("t", "a") == 0
    assert producer.produce("slow", "a") == 0
    assert producer.commit() == 0
    assert producer.state() == "PrepareCommit"
    assert values(wire, "t") == ["a"]
    assert values(wire, "slow") == []
    server.wait_until(lambda: slow.attempts > 3)
    slow.refuses = False
    server.wait_until(lambda: server.partition("slow", 0).last_stable_offset == 2)
    assert producer.state() == "CompleteCommit"
    assert values(wire, "slow") == ["a"]
    assert fetch(wire, "t").high_watermark == 2  # one marker


def test_a_topic_that_is_deleted_needs_no_marker(
    server: RunningServer, wire: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.create_topic("t")
    server.create_topic("gone")
    RejectingMarkers(monkeypatch, "gone")
    producer = initialized(wire)
    assert producer.produce("t", "a") == 0
    assert producer.produce("gone", "a") == 0
    assert producer.commit() == 0
    assert producer.state() == "PrepareCommit"
    assert wire.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="gone")], timeout_ms=1000), 6)
    shard = server.broker.transactions.runtime_of("p").shard
    server.wait_until(lambda: shard.describe("p").transaction_state == "CompleteCommit")


def test_only_the_producer_waits_for_the_end_of_its_transaction(
    server: RunningServer, wire: WireClient, monkeypatch: pytest.MonkeyPatch, v2: bool
) -> None:
    server.create_topic("t")
    server.create_topic("slow")
    slow = RejectingMarkers(monkeypatch, "slow")
    producer = initialized(wire, "p", "slow", v2=v2)
    assert producer.produce("slow", "a") == 0
    assert producer.commit() == 0
    concurrent = ErrorCode.CONCURRENT_TRANSACTIONS
    if v2:
        # The broker retries for a tenth of a second.
        assert producer.produce("t", "b") == concurrent
        server.wait_until(lambda: slow.attempts > 2)
        producer.sequences.clear()
    else:
        assert set(producer.add("t").values()) == {concurrent}
        assert producer.produce("t", "b") == ErrorCode.NOT_ENOUGH_REPLICAS
        producer.sequences.clear()
    assert Transactional(wire, "p").init() == concurrent
    other = initialized(wire, "other", "t", v2=v2)
    assert other.produce("t", "other's") == 0
    assert other.commit() == 0
    slow.refuses = False
    shard = server.broker.transactions.runtime_of("p").shard
    server.wait_until(lambda: shard.describe("p").transaction_state == "CompleteCommit")
    if not v2:
        assert set(producer.add("t").values()) == {0}
    assert producer.produce("t", "b") == 0
    assert producer.commit() == 0
    assert values(wire, "t") == ["other's", "b"]


def test_a_write_during_the_end_of_the_previous_transaction_is_appended_afterwards(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # By default, a write waits for a tenth of a second.
    server = make_server(config=QUICK | {"add.partitions.to.txn.retry.backoff.max.ms": "60000"})
    with server.wire() as wire:
        write_during_the_end_of_the_previous_transaction(server, wire, monkeypatch)


def write_during_the_end_of_the_previous_transaction(
    server: RunningServer, wire: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.create_topic("t")
    slow = RejectingMarkers(monkeypatch, "t")
    producer = initialized(wire)
    assert producer.produce("t", "a") == 0
    assert producer.commit() == 0
    producer.send("t", "b")
    producer.send("t", "c")  # must not be appended before the first
    server.wait_until(lambda: slow.attempts > 1)
    slow.refuses = False
    offsets = [wire.receive().responses[0].partition_responses[0].base_offset for _ in range(2)]
    assert offsets == [2, 3]
    assert producer.commit() == 0
    assert values(wire, "t") == ["a", "b", "c"]


def test_prepared_transactions_are_completed_after_a_restart(
    server: RunningServer, wire: WireClient, monkeypatch: pytest.MonkeyPatch, v2: bool
) -> None:
    server.create_topic("t", partitions=2)
    slow = RejectingMarkers(monkeypatch, "t")
    committing = initialized(wire, "p", "t", v2=v2)
    assert committing.produce("t", "a") == 0
    assert committing.commit() == 0
    aborting = initialized(wire, "q", v2=v2)
    if not v2:
        aborting.add("t", partitions=[1])
    assert aborting.produce("t", "b", partition=1) == 0
    assert aborting.abort() == 0
    server.stop()
    slow.refuses = False
    server.start()
    with server.wire() as wire:
        partitions = [server.partition("t", index) for index in range(2)]
        server.wait_until(lambda: all(partition.last_stable_offset == 2 for partition in partitions))
        assert values(wire, "t", partition=0) == ["a"]
        assert values(wire, "t", partition=1) == []
        for producer, state in [(committing, "CompleteCommit"), (aborting, "CompleteAbort")]:
            producer.wire = wire
            assert producer.state() == state


def test_a_transaction_that_a_later_coordinator_has_ended_is_not_completed(
    server: RunningServer, wire: WireClient
) -> None:
    server.create_topic("t")
    server.create_topic("other")
    producer = initialized(wire)
    assert producer.produce("t", "a") == 0
    assert producer.produce("other", "a") == 0
    at = producer.producer_id, "t", 0
    assert write_markers(wire, marker_of(producer, coordinator_epoch=1000, t=[0])) == {at: 0}
    assert producer.produce("t", "b") == 0
    assert producer.commit() == 0
    assert producer.state() == "PrepareCommit"
    assert values(wire, "other") == ["a"]
    assert values(wire, "t") == []


def test_an_internal_error_only_delays_a_marker(
    server: RunningServer, wire: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.create_topic("t")
    write = MarkerWriter.write
    failures = iter([ZeroDivisionError])

    def write_marker(*arguments: Any, **marker: Any) -> None:
        for failure in failures:
            raise failure
        write(*arguments, **marker)

    monkeypatch.setattr(MarkerWriter, "write", write_marker)
    producer = initialized(wire)
    assert producer.produce("t", "a") == 0
    assert producer.commit() == 0
    server.wait_until(lambda: server.partition("t", 0).last_stable_offset == 2)
    assert producer.state() == "CompleteCommit"


def test_a_full_disk_delays_the_end_of_a_transaction(make_server: MakeServer) -> None:
    file_system = MemoryFileSystem()
    server = make_server(log_dirs=["/data"], config=QUICK, file_system=file_system)
    with server.wire() as wire:
        server.create_topic("t")
        producer = initialized(wire)
        assert producer.produce("t", "a") == 0
        server.call(lambda: setattr(file_system, "capacity_bytes", 0))
        assert producer.commit() == ErrorCode.NOT_COORDINATOR
        assert producer.state() == "Ongoing"
        server.call(lambda: setattr(file_system, "capacity_bytes", None))
        assert producer.commit() == 0
        assert values(wire, "t") == ["a"]


# -- WriteTxnMarkers ---------------------------------------------------------------------------------------------------


def write_markers(wire: WireClient, *markers: Any, version: int = 2) -> dict[Any, Any]:
    answer = wire.call(WriteTxnMarkersRequest(markers=list(markers)), version)
    return {
        (marker.producer_id, topic.name, partition.partition_index): partition.error_code
        for marker in answer.markers
        for topic in marker.topics
        for partition in topic.partitions
    }


def marker_of(
    producer: Any,
    *,
    committed: bool = False,
    epoch: Any = None,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
    **topics: Any,
) -> Any:
    return WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch if epoch is None else epoch,
        transaction_result=committed,
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
        topics=[
            WritableTxnMarkerTopic(name=name.replace("offsets", "__consumer_offsets"), partition_indexes=indexes)
            for name, indexes in topics.items()
        ],
    )


@pytest.mark.parametrize("version", [1, 2])
def test_markers_of_several_producers_are_written(server: RunningServer, wire: WireClient, version: int) -> None:
    server.create_topic("t", partitions=2)
    one, two = initialized(wire, "one"), initialized(wire, "two")
    assert one.produce("t", "a") == 0
    assert two.produce("t", "b", partition=1) == 0
    assert write_markers(
        wire,
        marker_of(one, t=[0, 7], none=[0]),
        marker_of(two, committed=True, t=[1]),
        version=version,
    ) == {
        (one.producer_id, "t", 0): 0,
        (one.producer_id, "t", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (one.producer_id, "none", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (two.producer_id, "t", 1): 0,
    }
    assert values(wire, "t") == []
    assert values(wire, "t", partition=1) == ["b"]


def test_markers_of_an_old_epoch_are_rejected(server: RunningServer, wire: WireClient) -> None:
    server.create_topic("t")
    producer = initialized(wire)
    assert producer.produce("t", "a") == 0
    assert producer.commit() == 0
    assert producer.produce("t", "b") == 0
    at = producer.producer_id, "t", 0
    assert write_markers(wire, marker_of(producer, epoch=0, t=[0])) == {at: ErrorCode.INVALID_PRODUCER_EPOCH}
    assert write_markers(wire, marker_of(producer, transaction_version=2, t=[0])) == {
        at: ErrorCode.INVALID_PRODUCER_EPOCH
    }
    assert values(wire, "t") == ["a"]


def test_the_group_coordinator_applies_markers_in_the_offsets_topic(server: RunningServer, wire: WireClient) -> None:
    server.create_topic("t")
    with_group(wire)
    producer = initialized(wire)
    assert producer.commit_offset("g", "t", 5) == 0
    index = completed(server.broker.groups.partition_of("g"))
    at = producer.producer_id, "__consumer_offsets", index
    assert write_markers(wire, marker_of(producer, committed=True, offsets=[index])) == {at: 0}
    assert committed_offset(wire, "g", require_stable=True) == 5


# -- describing and listing --------------------------------------------------------------------------------------------


def test_each_transaction_is_described_independently(server: RunningServer, wire: WireClient) -> None:
    server.create_topic("t", partitions=2)
    producer = initialized(wire, timeout_ms=1234)
    assert producer.produce("t", "a", partition=1) == 0
    request = DescribeTransactionsRequest(transactional_ids=["p", "unknown", ""])
    known, unknown, empty = wire.call(request, 0).transaction_states
    assert (known.transaction_state, known.transaction_timeout_ms) == ("Ongoing", 1234)
    assert (known.producer_id, known.producer_epoch) == (producer.producer_id, producer.epoch)
    assert [(topic.topic, topic.partitions) for topic in known.topics] == [("t", [1])]
    assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert empty.error_code == ErrorCode.INVALID_REQUEST


def test_transactions_of_all_partitions_are_listed(server: RunningServer, wire: WireClient) -> None:
    server.create_topic("t")
    names = [f"p{number}" for number in range(10)]
    for name in names:
        producer = initialized(wire, name)
        if name in ("p3", "p4"):
            assert producer.produce("t", "a") == 0
    every = wire.call(ListTransactionsRequest(), 2)
    assert sorted(one.transactional_id for one in every.transaction_states) == names
    some = wire.call(ListTransactionsRequest(state_filters=["Ongoing", "Strange"]), 2)
    assert sorted(one.transactional_id for one in some.transaction_states) == ["p3", "p4"]
    assert some.unknown_state_filters == ["Strange"]
    matching = wire.call(ListTransactionsRequest(transactional_id_pattern="p[56]"), 2)
    assert sorted(one.transactional_id for one in matching.transaction_states) == ["p5", "p6"]
    refused = wire.call(ListTransactionsRequest(transactional_id_pattern="p["), 2)
    assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert refused.transaction_states == []


# -- transaction.version -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("level", "value_version"), [(0, 0), (1, 1), (2, 1)])
def test_the_level_of_the_feature_sets_the_version_of_records(
    server: RunningServer, wire: WireClient, level: int, value_version: int
) -> None:
    if level < 2:
        keys = [FeatureUpdateKey(feature="transaction.version", max_version_level=level, upgrade_type=2)]
        assert wire.call(UpdateFeaturesRequest(feature_updates=keys), 2).error_code == 0
    server.create_topic("t")
    producer = initialized(wire, "p", "t", v2=False)
    assert producer.produce("t", "a") == 0
    assert producer.commit() == 0
    assert values(wire, "t") == ["a"]
    index = completed(server.broker.transactions.partition_of("p"))
    log = server.partition("__transaction_state", index).log
    records = server.call(lambda: [record for batch in log.batches(0) for record in iter_records(batch)])
    assert {int.from_bytes((record.value or b"")[:2], "big") for record in records} == {value_version}
