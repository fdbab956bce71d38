"""Transactions across ``kill -9``: decisions are completed. States that cannot be reached quickly are written to the
coordinator's log. `conformance.cases.crash_transactions` has the rest.

The server is killed once, after all preparations. Its last responses are those to two EndTxn.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from moldau.compat_tests.transaction_wire import (
    Producer,
    consume,
    describe,
    producers,
    read,
    wait_for_coordinators,
)
from moldau.coordinator.outcome import Record as LogRecord
from moldau.protocol.messages.end_txn import EndTxnRequest
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.records import Record, build_batch
from moldau.testing import topic_requests as w
from moldau.testing.group_requests import code
from moldau.testing.servers import Server
from moldau.testing.topic_requests import Topic
from moldau.testing.wire import WireClient
from moldau.transaction_coordinator.records import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
    encode_record,
)

LOG = "__transaction_state"

EMPTY, ONGOING, PREPARE_COMMIT = range(3)

LAST_EPOCH = 32_766
"""The highest that a producer has: one more is for fencing it."""

IDLE_ID, ENDING_ID, FENCED_ID, LAST_BUT_ONE_ID, UNFINISHED_ID = range(5_000_000, 5_000_005)


@dataclass
class Before:
    """The state before the server was killed, and a connection to the restarted server."""

    wire: WireClient
    topics: dict[str, Topic] = field(default_factory=dict)
    producers: dict[str, Producer] = field(default_factory=dict)

    def __getitem__(self, name: str) -> tuple[Producer, Topic]:
        """The prepared state of this name; each test has its own."""
        return self.producers[name].duplicate(), self.topics[name]


def in_log(
    transactional_id: str, producer_id: int, epoch: int, status: int, partitions: dict[str, list[int]] | None = None
) -> Record:
    """A record as the coordinator writes it."""
    now = int(time.time() * 1000)
    value = TransactionLogValue(
        producer_id=producer_id,
        previous_producer_id=producer_id,
        producer_epoch=epoch,
        transaction_timeout_ms=60_000,
        transaction_status=status,
        transaction_partitions=[
            PartitionsSchema(topic=topic, partition_ids=each) for topic, each in (partitions or {}).items()
        ],
        transaction_last_update_timestamp_ms=now,
        transaction_start_timestamp_ms=now,
        client_transaction_version=2,
    )
    key_bytes, value_bytes = encode_record(LogRecord(TransactionLogKey(transactional_id=transactional_id), value, 1))
    return Record(timestamp=now, key=key_bytes, value=value_bytes)


def write_log(address: str, records: list[Record]) -> None:
    """Append to the coordinator's log, as only an administrator's client may. The coordinator does not see it now."""
    data = PartitionProduceData(index=0, records=build_batch(records))
    request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(name=LOG, partition_data=[data])])
    with WireClient(address, client_id="__admin_client") as wire:
        ((answer,),) = [each.partition_responses for each in wire.call(request, 12).responses]
    assert code(answer.error_code) == "NONE"


@pytest.fixture(scope="module")
def before(restartable_transaction_server: Server) -> Iterator[Before]:
    server = restartable_transaction_server
    address = server.bootstrap_servers
    names = ("late", "idle", "committed", "aborted", "ending", "fenced", "last-but-one", "unfinished")
    topics = {name: w.create_topic(address, f"kept-{name}", 2) for name in names}
    opened: dict[str, Producer] = {}
    with WireClient(address) as wire, WireClient(address) as other:

        def begin(name: str, *, timeout_ms: int = 60_000) -> Producer:
            opened[name] = Producer(wire, name, timeout_ms=timeout_ms).begin()
            return opened[name]

        begin("idle")
        begin("late", timeout_ms=10_000).write(topics["late"], b"lost")
        for name in ("committed", "aborted"):
            begin(name)
            for partition in (0, 1):
                opened[name].write(topics[name], b"a", b"b", partition=partition)
        begin("ending")
        write_log(
            address,
            [
                in_log("idle", IDLE_ID, LAST_EPOCH, EMPTY),
                in_log("ending", ENDING_ID, LAST_EPOCH, ONGOING, {topics["ending"].name: [0]}),
                in_log("fenced", FENCED_ID, LAST_EPOCH, ONGOING, {topics["fenced"].name: [0]}),
                in_log("last-but-one", LAST_BUT_ONE_ID, LAST_EPOCH - 1, ONGOING, {topics["last-but-one"].name: [0]}),
                in_log(
                    "unfinished", UNFINISHED_ID, 4, PREPARE_COMMIT, {topics["unfinished"].name: [0, 1], "gone": [0]}
                ),
            ],
        )
        assert describe(wire, "idle").producer_epoch == 0
        for connection, name in ((wire, "committed"), (other, "aborted")):
            request = EndTxnRequest(
                transactional_id=name,
                producer_id=opened[name].producer_id,
                producer_epoch=opened[name].epoch,
                committed=name == "committed",
            )
            connection.send(request, 5)
        for connection in (wire, other):
            assert connection.receive().error_code == 0
        server.kill()
    server.start()
    wait_for_coordinators(address)
    for topic in topics.values():
        w.wait_for_topic(address, topic.name, 2)
    with WireClient(address) as wire:
        for producer in opened.values():
            producer.wire = wire
        yield Before(wire, topics, opened)


# -- open transactions --


@pytest.mark.usefixtures("markers_after_death")
def test_a_transaction_that_timed_out_during_the_restart(before: Before) -> None:
    producer, topic = before["late"]
    producer.wait_for_state("CompleteAbort")
    assert consume(before.wire, topic) == []
    assert read(before.wire, topic).aborted == [(producer.producer_id, 0)]
    assert producer.produce(topic, b"late") == "INVALID_PRODUCER_EPOCH"


# -- decided transactions --


@pytest.mark.usefixtures("markers_after_death")
@pytest.mark.parametrize("name", ["committed", "aborted"])
def test_acknowledged_decisions_are_completed(before: Before, name: str) -> None:
    producer, topic = before[name]
    producer.wait_for_state("CompleteCommit" if name == "committed" else "CompleteAbort")
    for partition in (0, 1):
        found = consume(before.wire, topic, partition=partition)
        assert found == ([b"a", b"b"] if name == "committed" else [])
        stored = read(before.wire, topic, partition=partition)
        assert stored.high_watermark == stored.last_stable_offset
    # A retry gets the same response, and the producer continues from there.
    assert producer.end(committed=name != "committed") == "INVALID_TXN_STATE"
    assert producer.end(committed=name == "committed") == "NONE"
    assert producer.epoch == 1
    producer.write(topic, b"c")
    producer.commit()
    assert consume(before.wire, topic)[-1] == b"c"


@pytest.mark.usefixtures("markers_after_death")
def test_markers_that_were_not_written(before: Before) -> None:
    """A prepared transaction in the log: the existing partitions get their markers."""
    producer = Producer(before.wire, "unfinished")
    found = producer.wait_for_state("CompleteCommit")
    assert (found.producer_id, found.producer_epoch) == (UNFINISHED_ID, 4)
    for partition in (0, 1):
        assert read(before.wire, before.topics["unfinished"], partition=partition)[:2] == (1, 1)
    assert producer.init() == "NONE"
    assert (producer.producer_id, producer.epoch) == (UNFINISHED_ID, 5)


# -- epochs that are used up --


def test_a_producer_whose_epochs_are_used_up_gets_a_new_producer_id(before: Before) -> None:
    """It continues with another id, and a retry gets the same id."""
    producer = Producer(before.wire, "idle")
    producer.producer_id, producer.epoch = IDLE_ID, LAST_EPOCH
    lost = producer.duplicate()
    assert producer.init(resume=True) == "NONE"
    assert (producer.producer_id != IDLE_ID, producer.epoch) == (True, 0)
    assert lost.init(resume=True) == "NONE"
    assert (lost.producer_id, lost.epoch) == (producer.producer_id, 0)
    assert Producer(before.wire, "idle").init() == "NONE"
    assert describe(before.wire, "idle").producer_epoch == 1


def test_the_last_transaction_of_a_producer_id(before: Before) -> None:
    """The response to EndTxn contains the next id."""
    producer, topic = before["ending"]
    producer.producer_id, producer.epoch = ENDING_ID, LAST_EPOCH
    last = producer.duplicate()
    producer.write(topic, b"last")
    assert producer.end() == "NONE"
    assert (producer.producer_id != ENDING_ID, producer.epoch) == (True, 0)
    found = producer.wait_for_state("CompleteCommit")
    assert (found.producer_id, found.producer_epoch) == (producer.producer_id, 0)
    assert producers(before.wire, topic)[ENDING_ID].producer_epoch == LAST_EPOCH + 1
    retried = last.duplicate()
    assert retried.end() == "NONE"
    assert (retried.producer_id, retried.epoch) == (producer.producer_id, 0)
    assert last.end(committed=False) == "INVALID_TXN_STATE"
    assert last.send(topic, last.batch(b"zombie", sequence=1)) == "INVALID_PRODUCER_EPOCH"
    producer.write(topic, b"next")
    producer.commit()
    assert consume(before.wire, topic) == [b"last", b"next"]
    assert last.end() == "INVALID_PRODUCER_ID_MAPPING"


def test_the_last_epoch_but_one(before: Before) -> None:
    producer, topic = Producer(before.wire, "last-but-one"), before.topics["last-but-one"]
    producer.producer_id, producer.epoch = LAST_BUT_ONE_ID, LAST_EPOCH - 1
    producer.write(topic, b"a")
    producer.commit()
    assert (producer.producer_id, producer.epoch) == (LAST_BUT_ONE_ID, LAST_EPOCH)
    producer.write(topic, b"b")
    producer.abort()
    assert (producer.producer_id != LAST_BUT_ONE_ID, producer.epoch) == (True, 0)
    assert consume(before.wire, topic) == [b"a"]


def test_a_producer_with_the_last_epoch_is_fenced(before: Before) -> None:
    """It is fenced with the maximum epoch, which no producer gets. The end of that transaction assigns another id, and
    the successor gets the next epoch of that id."""
    successor = Producer(before.wire, "fenced").begin()
    assert (successor.producer_id != FENCED_ID, successor.epoch) == (True, 1)
    topic = before.topics["fenced"]
    assert producers(before.wire, topic)[FENCED_ID].producer_epoch == LAST_EPOCH + 1
    assert read(before.wire, topic)[:2] == (1, 1)
