"""What transactions leave in partitions, request by request: transactional Produce in every version, control batches,
markers, the last stable offset, and the aborted transactions in fetch responses (KIP-98, KIP-890)."""

import time
from collections.abc import Callable, Iterator

import pytest

from moldau.compat_tests.transaction_wire import (
    READ_COMMITTED,
    Producer,
    Stored,
    consume,
    describe,
    end_offset,
    fetch,
    marker,
    partitions_of,
    producers,
    read,
    write_markers,
)
from moldau.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.records import Record, build_batch, iter_records
from moldau.testing import topic_requests as w
from moldau.testing.client import CODECS
from moldau.testing.group_requests import code
from moldau.testing.topic_requests import Topic
from moldau.testing.wire import WireClient

COMMIT_KEY, ABORT_KEY = b"\x00\x00\x00\x01", b"\x00\x00\x00\x00"

IMPLICIT = (12, 13)
"""Versions of Produce that make a partition part of the transaction (KIP-890)."""


@pytest.fixture
def wire(transaction_servers: str) -> Iterator[WireClient]:
    with WireClient(transaction_servers) as client:
        yield client


@pytest.fixture
def topic(transaction_servers: str, topic_name: Callable[[], str]) -> Topic:
    return w.create_topic(transaction_servers, topic_name(), 3)


# -- Produce --


@pytest.mark.parametrize("version", range(3, 14))
def test_transactional_produce(producer: Producer, topic: Topic, version: int) -> None:
    for number in range(2):
        if version not in IMPLICIT:
            assert producer.add(topic, 0, 1) == {0: "NONE", 1: "NONE"}
        for partition in (0, 1):
            assert producer.produce(topic, b"%d" % number, b"more", partition=partition, version=version) == "NONE"
            assert producer.produce(topic, b"again", partition=partition, version=version) == "NONE"
        described = describe(producer.wire, producer.transactional_id)
        assert (described.transaction_state, partitions_of(described)) == ("Ongoing", {topic.name: [0, 1]})
        producer.commit(5 if version in IMPLICIT else 4)
    for partition in (0, 1):
        assert consume(producer.wire, topic, partition=partition) == [b"0", b"more", b"again", b"1", b"more", b"again"]


@pytest.mark.parametrize("codec", CODECS)
def test_compressed_transactions(producer: Producer, topic: Topic, codec: str) -> None:
    values = [b"%d" % number * 50 for number in range(20)]
    assert producer.produce(topic, *values, codec=CODECS.index(codec)) == "NONE"
    producer.abort()
    assert producer.produce(topic, *values, codec=CODECS.index(codec)) == "NONE"
    producer.commit()
    assert consume(producer.wire, topic) == values


@pytest.mark.parametrize(
    ("version", "expected"),
    [*((version, "INVALID_TXN_STATE") for version in range(3, 11)), (11, "TRANSACTION_ABORTABLE")],
)
def test_a_partition_that_was_not_added(producer: Producer, topic: Topic, version: int, expected: str) -> None:
    """Nobody would end what is written there (KIP-890)."""
    assert producer.produce(topic, b"-", version=version) == expected
    assert producer.add(topic, 1) == {1: "NONE"}
    assert producer.produce(topic, b"-", version=version) == expected
    assert producer.produce(topic, b"-", partition=1, version=version) == "NONE"
    assert read(producer.wire, topic, committed=False).high_watermark == 0


@pytest.mark.parametrize("version", range(3, 12))
def test_what_comes_after_the_end(producer: Producer, topic: Topic, version: int) -> None:
    """The partition was part of the transaction before, and is not of the next one."""
    producer.add(topic)
    assert producer.produce(topic, b"a", version=version) == "NONE"
    producer.commit(4)
    expected = "TRANSACTION_ABORTABLE" if version == 11 else "INVALID_TXN_STATE"
    assert producer.produce(topic, b"late", version=version) == expected
    assert consume(producer.wire, topic) == [b"a"]
    assert producer.state == "CompleteCommit"


@pytest.mark.parametrize("version", [3, 11, 12, 13])
def test_writes_of_a_stranger(producer: Producer, topic: Topic, version: int) -> None:
    unknown = producer.duplicate()
    unknown.transactional_id += "-unknown"
    assert unknown.produce(topic, b"-", version=version) == "INVALID_PRODUCER_ID_MAPPING"
    other = producer.duplicate()
    other.producer_id += 100_000
    assert other.produce(topic, b"-", version=version) == "INVALID_PRODUCER_ID_MAPPING"
    for difference in (-1, 1):
        other = producer.duplicate()
        other.epoch += difference
        assert other.produce(topic, b"-", version=version) == "INVALID_PRODUCER_EPOCH"
    assert producer.state == "Empty"
    assert read(producer.wire, topic, committed=False).high_watermark == 0


@pytest.mark.parametrize("version", [3, 11, 12, 13])
def test_a_transactional_batch_needs_a_transactional_id(producer: Producer, topic: Topic, version: int) -> None:
    request = producer.produce_request(topic, (0, producer.batch(b"-")))
    request.transactional_id = None
    ((answer,),) = [each.partition_responses for each in producer.wire.call(request, version).responses]
    assert code(answer.error_code) == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


def test_two_producers_in_one_request(producer: Producer, topic: Topic, name: str) -> None:
    other = Producer(producer.wire, f"{name}-other").begin()
    request = producer.produce_request(topic, (0, producer.batch(b"-")), (1, other.batch(b"-")))
    ((*answers,),) = [each.partition_responses for each in producer.wire.call(request, 12).responses]
    assert {each.index: code(each.error_code) for each in answers} == dict.fromkeys(
        (0, 1), "INVALID_PRODUCER_ID_MAPPING"
    )
    assert producer.state == "Empty"


def test_each_partition_of_a_request_has_its_own_result(producer: Producer, topic: Topic) -> None:
    producer.write(topic, b"a", partition=1)
    data = [(0, producer.batch(b"a")), (1, producer.batch(b"gap", sequence=5)), (77, producer.batch(b"a"))]
    ((*answers,),) = [
        each.partition_responses for each in producer.wire.call(producer.produce_request(topic, *data), 12).responses
    ]
    assert {each.index: code(each.error_code) for each in answers} == {
        0: "NONE",
        1: "OUT_OF_ORDER_SEQUENCE_NUMBER",
        77: "UNKNOWN_TOPIC_OR_PARTITION",
    }
    assert partitions_of(describe(producer.wire, producer.transactional_id)) == {topic.name: [0, 1]}


def test_sequence_numbers_in_transactions(producer: Producer, topic: Topic) -> None:
    producer.write(topic, b"a", b"b")
    assert producer.send(topic, producer.batch(b"gap", sequence=3)) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert producer.send(topic, producer.batch(b"a", b"b", sequence=0)) == "NONE"  # once more, as a retry
    assert producer.send(topic, producer.batch(b"c", sequence=2)) == "NONE"
    producer.commit()
    # A new epoch begins at 0 everywhere.
    assert producer.send(topic, producer.batch(b"-", sequence=3)) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert producer.send(topic, producer.batch(b"d", sequence=0)) == "NONE"
    producer.commit()
    assert consume(producer.wire, topic) == [b"a", b"b", b"c", b"d"]


def test_sequence_numbers_go_on_where_the_epoch_does(producer: Producer, topic: Topic) -> None:
    for number in range(3):
        producer.add(topic)
        assert producer.send(topic, producer.batch(b"%d" % number, sequence=number), version=11) == "NONE"
        producer.commit(4)
    assert producer.epoch == 0
    producer.add(topic)
    assert producer.send(topic, producer.batch(b"-", sequence=7), version=11) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert consume(producer.wire, topic) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("version", [11, 12])
def test_the_first_sequence_number(producer: Producer, topic: Topic, version: int) -> None:
    """Of a producer that a partition does not know any may come; with an epoch for each transaction, only 0."""
    if version == 11:
        producer.add(topic)
    expected = "NONE" if version == 11 else "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert producer.send(topic, producer.batch(b"-", sequence=5), version=version) == expected


def test_a_transactional_id_without_transactional_batches(producer: Producer, topic: Topic) -> None:
    """It is the batches that count."""
    assert producer.send(topic, producer.batch(b"a", transactional=False)) == "NONE"
    assert producer.state == "Empty"
    assert read(producer.wire, topic) == (1, 1, [], [b"a"])


@pytest.mark.parametrize("acks", [0, 1])
def test_acknowledgements_in_transactions(producer: Producer, topic: Topic, acks: int) -> None:
    """Clients always want them all; a server does not mind."""
    request = producer.produce_request(topic, (0, producer.batch(b"a")))
    request.acks = acks
    producer.wire.send(request, 12, answered=acks != 0)
    if acks:
        assert producer.wire.receive().responses[0].partition_responses[0].error_code == 0
    producer.wait_for_state("Ongoing")
    producer.commit()
    assert consume(producer.wire, topic) == [b"a"]


def test_a_retry_of_what_was_committed(producer: Producer, topic: Topic) -> None:
    """It is a duplicate as long as its epoch is the producer's; with the next epoch it is a zombie's."""
    producer.add(topic)
    batch = producer.batch(b"a")
    assert producer.send(topic, batch, version=11) == "NONE"
    producer.commit(4)
    # It is no part of the next transaction, and that is looked at first.
    assert producer.send(topic, batch, version=11) == "TRANSACTION_ABORTABLE"
    producer.add(topic)
    assert producer.send(topic, batch, version=11) == "NONE"
    producer.commit(5)
    assert producer.send(topic, batch, version=11) == "INVALID_PRODUCER_EPOCH"
    assert producer.send(topic, batch, version=12) == "INVALID_PRODUCER_EPOCH"
    assert consume(producer.wire, topic) == [b"a"]


def test_what_is_no_part_of_the_open_transaction(producer: Producer, topic: Topic) -> None:
    """A producer with an open transaction writes nothing beside it to that partition."""
    producer.write(topic, b"a")
    plain = producer.batch(b"-", sequence=1, transactional=False)
    assert code(w.produce(producer.wire, topic.name, plain).error_code) == "INVALID_TXN_STATE"
    producer.commit()
    assert code(w.produce(producer.wire, topic.name, producer.batch(b"b", transactional=False)).error_code) == "NONE"


def test_idempotent_producers_have_no_transactions(wire: WireClient, topic: Topic) -> None:
    """What is written without a transactional id stays outside of everything."""
    answer = wire.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1), 5)
    assert answer.error_code == 0
    batch = build_batch(w.records(b"a"), producer_id=answer.producer_id, producer_epoch=0, base_sequence=0)
    assert w.produce(wire, topic.name, batch).error_code == 0
    assert producers(wire, topic)[answer.producer_id].current_txn_start_offset == -1
    assert read(wire, topic) == (1, 1, [], [b"a"])


@pytest.mark.parametrize("version", [3, 9, 11, 12, 13])
@pytest.mark.parametrize("key", [COMMIT_KEY, ABORT_KEY], ids=["commit", "abort"])
def test_a_marker_from_a_client(producer: Producer, topic: Topic, key: bytes, version: int) -> None:
    producer.add(topic)
    producer.write(topic, b"a")
    batch = build_batch(
        [Record(timestamp=5, key=key, value=b"\x00\x00\x00\x00\x00\x00")],
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        transactional=True,
        control=True,
    )
    assert producer.send(topic, batch, version=version) == "INVALID_RECORD"
    assert read(producer.wire, topic) == (1, 0, [], [])


# -- markers in the log --


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("version", [4, 5])
def test_the_marker(producer: Producer, topic: Topic, version: int, committed: bool) -> None:
    """A control batch of one record. By EndTxn 5 it has the epoch of the next transaction."""
    producer.write(topic, b"a")
    producer_id = producer.producer_id
    if committed:
        producer.commit(version)
    else:
        producer.abort(version)
    _, batch = w.batches_of(fetch(producer.wire, topic))
    assert (batch.is_control, batch.is_transactional) == (True, True)
    assert (batch.producer_id, batch.producer_epoch) == (producer_id, 1 if version == 5 else 0)
    assert (batch.base_offset, batch.last_offset, batch.base_sequence) == (1, 1, -1)
    (record,) = iter_records(batch)
    assert record.key == (COMMIT_KEY if committed else ABORT_KEY)
    assert record.value is not None
    assert record.value[:2] == b"\x00\x00"
    assert int.from_bytes(record.value[2:], "big") == producers(producer.wire, topic)[producer_id].coordinator_epoch
    assert (record.headers, len(record.value)) == ((), 6)


def test_every_partition_of_a_transaction_has_a_marker(producer: Producer, topic: Topic) -> None:
    """Those too to which nothing was written."""
    assert producer.add(topic, 0, 1) == {0: "NONE", 1: "NONE"}
    producer.write(topic, b"a")
    producer.commit()
    assert [read(producer.wire, topic, partition=each).high_watermark for each in range(3)] == [2, 1, 0]


def test_an_abort_of_nothing_leaves_nothing(producer: Producer, topic: Topic) -> None:
    producer.write(topic, b"a")
    producer.commit()
    producer.abort()
    producer.abort()
    assert producer.epoch == 3
    assert read(producer.wire, topic) == (2, 2, [], [b"a"])


# -- WriteTxnMarkers --


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("version", [1, 2])
def test_markers_of_a_coordinator(wire: WireClient, topic: Topic, version: int, committed: bool) -> None:
    """Somewhere else a coordinator has decided."""
    producer_id = 7_000_000 + version * 10 + committed
    asked = marker(producer_id, 3, {topic.name: [0, 2, 77], "no-such-topic": [0]}, committed=committed)
    assert write_markers(wire, asked, version=version) == {
        producer_id: {
            (topic.name, 0): "NONE",
            (topic.name, 2): "NONE",
            (topic.name, 77): "UNKNOWN_TOPIC_OR_PARTITION",
            ("no-such-topic", 0): "UNKNOWN_TOPIC_OR_PARTITION",
        }
    }
    for partition in (0, 2):
        (batch,) = w.batches_of(fetch(wire, topic, partition=partition))
        assert (batch.is_control, batch.producer_id, batch.producer_epoch) == (True, producer_id, 3)
        found = producers(wire, topic, partition)[producer_id]
        assert (found.producer_epoch, found.coordinator_epoch, found.current_txn_start_offset) == (3, 0, -1)


@pytest.mark.parametrize("version", [1, 2])
def test_old_markers_are_refused(producer: Producer, topic: Topic, version: int) -> None:
    wire, producer_id = producer.wire, producer.producer_id

    def written(epoch: int, coordinator_epoch: int) -> str:
        asked = marker(producer_id, epoch, {topic.name: [0]}, coordinator_epoch=coordinator_epoch)
        return write_markers(wire, asked, version=version)[producer_id][topic.name, 0]

    assert written(4, 9) == "NONE"
    assert written(3, 9) == "INVALID_PRODUCER_EPOCH"
    assert written(4, 8) == "TRANSACTION_COORDINATOR_FENCED"
    assert written(3, 8) == "INVALID_PRODUCER_EPOCH"
    assert written(4, 9) == "NONE"  # a retry: its writer got no response
    assert written(5, 10) == "NONE"
    assert read(wire, topic).high_watermark == 3


def test_a_marker_for_an_open_transaction(producer: Producer, topic: Topic) -> None:
    """With an epoch for each transaction it has to be the next one (KIP-1228); without, any that is not older."""
    wire, producer_id = producer.wire, producer.producer_id
    producer.write(topic, b"a")

    def written(epoch: int, transaction_version: int, version: int = 2) -> str:
        asked = marker(producer_id, epoch, {topic.name: [0]}, transaction_version=transaction_version)
        return write_markers(wire, asked, version=version)[producer_id][topic.name, 0]

    assert written(0, 2) == "INVALID_PRODUCER_EPOCH"
    assert read(wire, topic).last_stable_offset == 0
    assert written(1, 2) == "NONE"
    assert read(wire, topic) == (2, 2, [], [b"a"])
    # The log knows only the next epoch now, and the coordinator, which has not ended anything, the one before.
    assert producer.send(topic, producer.batch(b"b", sequence=1)) == "INVALID_PRODUCER_EPOCH"


def test_a_marker_of_the_same_epoch(producer: Producer, topic: Topic) -> None:
    producer.write(topic, b"a")
    for transaction_version, version in ((0, 1), (1, 2)):
        asked = marker(
            producer.producer_id, 0, {topic.name: [0]}, committed=False, transaction_version=transaction_version
        )
        assert write_markers(producer.wire, asked, version=version)[producer.producer_id][topic.name, 0] == "NONE"
    assert read(producer.wire, topic) == (3, 3, [(producer.producer_id, 0)], [b"a"])


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (9_000_000, -1)])
def test_markers_of_an_unknown_producer(wire: WireClient, topic: Topic, producer_id: int, epoch: int) -> None:
    asked = marker(producer_id, epoch, {topic.name: [0]})
    assert write_markers(wire, asked) == {producer_id: {(topic.name, 0): "UNKNOWN_SERVER_ERROR"}}
    assert read(wire, topic).high_watermark == 0


def test_several_markers_in_one_request(wire: WireClient, topic: Topic) -> None:
    asked = [marker(8_000_000 + number, number, {topic.name: [number % 2]}) for number in range(4)]
    assert write_markers(wire, *asked) == {
        8_000_000 + number: {(topic.name, number % 2): "NONE"} for number in range(4)
    }
    assert write_markers(wire) == {}
    assert [read(wire, topic, partition=each).high_watermark for each in range(3)] == [2, 2, 0]


# -- readers --


@pytest.mark.parametrize("version", range(4, 19))
def test_fetches_of_every_version(producer: Producer, topic: Topic, version: int) -> None:
    producer.write(topic, b"a", b"b")
    producer.abort()
    producer.write(topic, b"c")
    producer.commit()
    producer.write(topic, b"d")
    first, last = producer.producer_id, producer.producer_id
    assert first == last
    assert read(producer.wire, topic, version=version) == (6, 5, [(first, 0)], [b"a", b"b", b"c"])
    assert read(producer.wire, topic, version=version, committed=False) == (6, 5, None, [b"a", b"b", b"c", b"d"])


@pytest.mark.parametrize("version", range(2, 12))
def test_list_offsets_of_every_version(producer: Producer, topic: Topic, version: int) -> None:
    wire = producer.wire
    producer.write(topic, b"a", b"b")
    assert end_offset(wire, topic, version=version).offset == 0
    assert end_offset(wire, topic, version=version, committed=False).offset == 2
    producer.commit()
    assert end_offset(wire, topic, version=version).offset == 3
    producer.write(topic, b"c")
    assert end_offset(wire, topic, version=version).offset == 3
    assert end_offset(wire, topic, version=version, committed=False).offset == 4
    assert end_offset(wire, topic, version=version, timestamp=-2).offset == 0


def test_offsets_by_time_end_at_the_last_stable_offset(producer: Producer, topic: Topic) -> None:
    """A fetch does not mention records that its client may not read."""
    wire = producer.wire
    assert producer.send(topic, producer.batch(b"a", timestamp=1_000)) == "NONE"
    producer.commit()
    assert producer.send(topic, producer.batch(b"b", timestamp=2_000)) == "NONE"
    now = int(time.time() * 1000) + 600_000
    assert producer.send(topic, producer.batch(b"c", sequence=1, timestamp=now)) == "NONE"
    # The marker at 1 has the present time.
    for timestamp, committed, expected in (
        (500, True, 0),
        (1_500, True, 1),
        (1_500, False, 1),
        (now, False, 3),
        (now, True, -1),
    ):
        found = end_offset(wire, topic, timestamp=timestamp, committed=committed)
        assert found.offset == expected, (timestamp, committed)
    producer.commit()
    assert end_offset(wire, topic, timestamp=now).offset == 3


def test_the_greatest_timestamp(producer: Producer, topic: Topic) -> None:
    wire = producer.wire
    future = int(time.time() * 1000) + 600_000
    assert producer.send(topic, producer.batch(b"a", timestamp=future)) == "NONE"
    for committed, expected in ((False, (0, future)), (True, (-1, -1))):
        found = end_offset(wire, topic, timestamp=-3, committed=committed)
        assert (found.offset, found.timestamp) == expected
    producer.commit()
    found = end_offset(wire, topic, timestamp=-3)
    assert (found.offset, found.timestamp) == (0, future)


def test_the_last_stable_offset_is_that_of_the_first_open_transaction(
    wire: WireClient, topic: Topic, name: str
) -> None:
    first, second, third = (Producer(wire, f"{name}-{number}").begin() for number in range(3))
    assert w.produce(wire, topic.name, build_batch(w.records(b"plain"))).error_code == 0
    assert read(wire, topic)[:2] == (1, 1)
    first.write(topic, b"1")
    second.write(topic, b"2")
    third.write(topic, b"3")
    first.write(topic, b"11")
    assert read(wire, topic) == (5, 1, [], [b"plain"])
    second.commit()  # 5
    assert read(wire, topic)[:2] == (6, 1)
    first.abort()  # 6
    assert read(wire, topic) == (7, 3, [(first.producer_id, 1)], [b"plain", b"1", b"2"])
    third.commit()  # 7
    assert read(wire, topic) == (8, 8, [(first.producer_id, 1)], [b"plain", b"1", b"2", b"3", b"11"])
    assert consume(wire, topic) == [b"plain", b"2", b"3"]


def test_aborted_transactions_of_what_was_fetched(wire: WireClient, topic: Topic, name: str) -> None:
    """Exactly those that overlap with it."""
    one, two = (Producer(wire, f"{name}-{number}").begin() for number in range(2))
    one.write(topic, b"a")  # 0
    two.write(topic, b"b")  # 1
    one.abort()  # 2
    one.write(topic, b"c")  # 3
    two.abort()  # 4
    one.commit()  # 5
    one.write(topic, b"d")  # 6
    one.abort()  # 7
    batch_size = len(one.batch(b"a"))
    first, second, third = (one.producer_id, 0), (two.producer_id, 1), (one.producer_id, 6)
    for offset, expected in (
        (0, [first, second, third]),
        (2, [first, second, third]),
        (3, [second, third]),
        (4, [second, third]),
        (5, [third]),
        (7, [third]),
        (8, []),
    ):
        assert read(wire, topic, offset).aborted == expected, offset
    # Responses may mention more than the records they contain: only the offset index limits the end of a read.
    for offset, batches, needed in ((0, 1, [first]), (0, 2, [first, second]), (3, 1, [second]), (5, 1, [])):
        found = read(wire, topic, offset, max_bytes=batches * batch_size + 10).aborted
        assert found is not None
        assert found[: len(needed)] == needed, (offset, batches)
        assert found == [each for each in (first, second, third) if each in found], (offset, batches)


def test_readers_of_committed_records_wait_for_the_end(
    transaction_servers: str, producer: Producer, topic: Topic
) -> None:
    producer.write(topic, b"x" * 1_000)
    with WireClient(transaction_servers) as reader:
        request = w.fetch_request(topic.name, {0: 0}, max_wait_ms=20_000, min_bytes=1)
        request.isolation_level = READ_COMMITTED
        reader.send(request, 12)
        producer.write(topic, b"more")  # wakes no fetch
        producer.commit()
        ((data,),) = [each.partitions for each in reader.receive().responses]
    assert (data.high_watermark, data.last_stable_offset) == (3, 3)
    assert [batch.is_control for batch in w.batches_of(data)] == [False, False, True]


def test_a_fetch_session_hears_of_the_last_stable_offset(producer: Producer, topic: Topic) -> None:
    """An incremental fetch brings what has changed (KIP-227)."""
    wire = producer.wire
    producer.write(topic, b"a")

    def fetched(session_id: int, epoch: int, offsets: dict[int, int]) -> tuple[int, list[tuple[int, int, int]]]:
        request = w.fetch_request(topic.name, offsets, max_wait_ms=0, session_id=session_id, session_epoch=epoch)
        request.isolation_level = READ_COMMITTED
        answer = wire.call(request, 12)
        found = [
            (data.high_watermark, data.last_stable_offset, len(w.batches_of(data)))
            for each in answer.responses
            for data in each.partitions
        ]
        return answer.session_id, found

    session_id, found = fetched(0, 0, {0: 0})
    assert (session_id > 0, found) == (True, [(1, 0, 0)])
    assert fetched(session_id, 1, {}) == (session_id, [])
    producer.commit()
    assert fetched(session_id, 2, {}) == (session_id, [(2, 2, 2)])


def test_deleting_records_of_an_open_transaction(producer: Producer, topic: Topic) -> None:
    wire = producer.wire
    producer.write(topic, b"a")
    producer.write(topic, b"b")

    def delete_up_to(offset: int) -> str:
        asked = DeleteRecordsPartition(partition_index=0, offset=offset)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic.name, partitions=[asked])], timeout_ms=5_000
        )
        return code(wire.call(request, 2).topics[0].partitions[0].error_code)

    assert delete_up_to(1) == "NONE"
    assert read(wire, topic, 1) == Stored(2, 1, [], [])
    producer.abort()
    assert read(wire, topic, 1) == Stored(3, 3, [(producer.producer_id, 0)], [b"b"])
    assert delete_up_to(2) == "NONE"
    assert read(wire, topic, 2)[:2] == (3, 3)
