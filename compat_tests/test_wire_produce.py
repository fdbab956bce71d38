"""Produce, request by request: acknowledgements, order, batches that are refused, and idempotence (KIP-98, KIP-360)."""

import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from moldau.protocol.checksum import crc32c
from moldau.protocol.codec import encode
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.records import CRC_POSITION, Record, build_batch, iter_records
from moldau.testing import topic_requests as w
from moldau.testing.client import CODECS
from moldau.testing.topic_requests import Topic
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

MAGIC_AT = 16
ATTRIBUTES_AT = 21
LAST_OFFSET_DELTA_AT = 23
RECORD_COUNT_AT = 57


@pytest.fixture
def wire(bootstrap_servers: str) -> Iterator[WireClient]:
    with WireClient(bootstrap_servers) as client:
        yield client


@pytest.fixture
def topic(bootstrap_servers: str, topic_name: Callable[[], str]) -> Topic:
    return w.create_topic(bootstrap_servers, topic_name(), 3)


def values(wire: WireClient, topic: Topic, partition: int = 0) -> list[bytes | None]:
    """All values of a partition."""
    found = w.batches_of(w.fetch(wire, topic.name, 0, partition=partition))
    return [record.value for batch in found for record in iter_records(batch)]


def spoiled(batch: bytes, position: int, data: bytes, *, with_crc: bool = True) -> bytes:
    """A batch with other bytes at a position, and the CRC that belongs to them unless ``with_crc`` is false."""
    changed = bytearray(batch)
    changed[position : position + len(data)] = data
    if with_crc:
        struct.pack_into(">I", changed, CRC_POSITION, crc32c(memoryview(changed)[ATTRIBUTES_AT:]))
    return bytes(changed)


# Acknowledgements and order


def test_offsets_are_assigned_in_order(wire: WireClient, topic: Topic) -> None:
    offsets = [w.produce(wire, topic.name, build_batch(w.records(b"a", b"b", b"c"))).base_offset for _ in range(4)]
    assert offsets == [0, 3, 6, 9]


@pytest.mark.parametrize("acks", [1, -1])
def test_the_answer(wire: WireClient, topic: Topic, acks: int) -> None:
    answer = w.produce(wire, topic.name, build_batch(w.records(b"a")), acks=acks)
    assert (answer.index, answer.error_code, answer.base_offset) == (0, 0, 0)
    assert (answer.log_append_time_ms, answer.log_start_offset) == (-1, 0)
    assert (answer.record_errors, answer.error_message) == ([], None)


def test_acks_0_gets_no_response_and_does_not_delay_later_requests(wire: WireClient, topic: Topic) -> None:
    """Many of them in a row, an answered request between any two: the answers are those of the others, in order."""
    expected: list[type] = []
    for number in range(50):
        request = w.produce_request(topic.name, build_batch(w.records(b"%d" % number)), acks=0)
        wire.send(request, 9, answered=False)
        if number % 3 == 0:
            wire.send(ApiVersionsRequest(), 0)
        if number % 7 == 0:
            wire.send(w.produce_request(topic.name, build_batch(w.records(b"acked")), partition=1), 9)
        expected += [ApiVersionsRequest] * (number % 3 == 0) + [ProduceRequest] * (number % 7 == 0)
    for kind in expected:
        response = wire.receive()
        if kind is ApiVersionsRequest:
            assert response.error_code == 0
        else:
            assert response.responses[0].partition_responses[0].error_code == 0
    assert values(wire, topic) == [b"%d" % number for number in range(50)]
    assert len(values(wire, topic, 1)) == 8


def test_an_error_with_acks_0_closes_the_connection(wire: WireClient, topic: Topic) -> None:
    """There is no answer to put it in, and the client has to learn that something is wrong."""
    wire.send(w.produce_request(topic.name, build_batch(w.records(b"-")), partition=77, acks=0), 9, answered=False)
    assert wire.closed_by_server()


@pytest.mark.parametrize("acks", [2, -2, 32_767])
def test_other_acks_are_invalid(wire: WireClient, topic: Topic, acks: int) -> None:
    answer = w.produce(wire, topic.name, build_batch(w.records(b"-")), acks=acks)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_REQUIRED_ACKS, -1)


def test_pipelined_requests_are_answered_and_stored_in_order(wire: WireClient, topic: Topic) -> None:
    for number in range(100):
        wire.send(w.produce_request(topic.name, build_batch(w.records(b"%d" % number))), 9)
    answers = [wire.receive().responses[0].partition_responses[0] for _ in range(100)]
    assert [(each.error_code, each.base_offset) for each in answers] == [(0, offset) for offset in range(100)]
    assert values(wire, topic) == [b"%d" % number for number in range(100)]


def test_each_partition_has_its_own_result(wire: WireClient, topic: Topic) -> None:
    good = build_batch(w.records(b"good"))
    bad = spoiled(good, len(good) - 1, b"\x7f", with_crc=False)
    data = [
        PartitionProduceData(index=2, records=good),
        PartitionProduceData(index=0, records=bad),
        PartitionProduceData(index=9, records=good),
        PartitionProduceData(index=1, records=good),
    ]
    to = [
        TopicProduceData(name=topic.name, partition_data=data),
        TopicProduceData(name="no-such-topic", partition_data=[PartitionProduceData(index=0, records=good)]),
    ]
    response = wire.call(ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=to), 9)
    results = {
        (each.name, partition.index): ErrorCode(partition.error_code)
        for each in response.responses
        for partition in each.partition_responses
    }
    assert results == {
        (topic.name, 2): ErrorCode.NONE,
        (topic.name, 0): ErrorCode.CORRUPT_MESSAGE,
        (topic.name, 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (topic.name, 1): ErrorCode.NONE,
        ("no-such-topic", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_producing_by_topic_id(wire: WireClient, topic: Topic) -> None:
    data = PartitionProduceData(index=0, records=build_batch(w.records(b"by id")))
    request = ProduceRequest(
        acks=-1, timeout_ms=5_000, topic_data=[TopicProduceData(topic_id=topic.topic_id, partition_data=[data])]
    )
    (answer,) = wire.call(request, 13).responses
    assert (answer.topic_id, answer.partition_responses[0].error_code) == (topic.topic_id, 0)
    request.topic_data[0].topic_id = b"\x07" * 16
    (answer,) = wire.call(request, 13).responses
    assert answer.partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert values(wire, topic) == [b"by id"]


def test_log_append_time_is_returned_and_stored(
    wire: WireClient, bootstrap_servers: str, topic_name: Callable[[], str]
) -> None:
    topic = w.create_topic(bootstrap_servers, topic_name(), 1, {"message.timestamp.type": "LogAppendTime"})
    before = int(time.time() * 1000)
    answer = w.produce(wire, topic.name, build_batch(w.records(b"a", b"b", timestamp=5)))
    assert before <= answer.log_append_time_ms <= int(time.time() * 1000)
    (batch,) = w.batches_of(w.fetch(wire, topic.name, 0))
    assert batch.has_valid_crc()
    assert (batch.timestamp_type, batch.max_timestamp) == (1, answer.log_append_time_ms)


@pytest.mark.parametrize("codec", range(5), ids=CODECS)
def test_a_batch_is_stored_as_it_came(wire: WireClient, topic: Topic, codec: int) -> None:
    """All that changes are the base offset and the leader epoch, which the CRC does not cover."""
    sent = build_batch(w.records(b"a" * 100, b"b" * 100), codec=codec, base_offset=0)
    w.produce(wire, topic.name, build_batch(w.records(b"first")))
    assert w.produce(wire, topic.name, sent).base_offset == 1
    stored = bytes(w.batches_of(w.fetch(wire, topic.name, 1))[0].data)
    assert stored[16:] == sent[16:]
    assert stored[:8] == (1).to_bytes(8, "big")
    assert int.from_bytes(stored[12:16], "big") >= 0


# Refused batches


def test_a_wrong_crc(wire: WireClient, topic: Topic) -> None:
    batch = build_batch(w.records(b"value"))
    for position in (ATTRIBUTES_AT, LAST_OFFSET_DELTA_AT, len(batch) - 1):
        damaged = spoiled(batch, position, bytes([batch[position] ^ 0x40]), with_crc=False)
        answer = w.produce(wire, topic.name, damaged)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.CORRUPT_MESSAGE, -1)
    assert values(wire, topic) == []


def test_a_truncated_batch(wire: WireClient, topic: Topic) -> None:
    batch = build_batch(w.records(b"value" * 20))
    codes = {length: w.produce(wire, topic.name, batch[:length]).error_code for length in (1, 12, 17, 60, 61, 100)}
    assert {ErrorCode(code) for code in codes.values()} <= {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}, codes
    assert values(wire, topic) == []


def test_no_batch_at_all(wire: WireClient, topic: Topic) -> None:
    assert w.produce(wire, topic.name, b"").error_code == ErrorCode.INVALID_RECORD


def test_two_batches_in_one_request(wire: WireClient, topic: Topic) -> None:
    batch = build_batch(w.records(b"value"))
    answer = w.produce(wire, topic.name, batch + batch)
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert values(wire, topic) == []


def test_bytes_after_a_batch(wire: WireClient, topic: Topic) -> None:
    """Too few for a batch: they are cut off."""
    batch = build_batch(w.records(b"value"))
    assert w.produce(wire, topic.name, batch + b"more").error_code == 0
    assert w.produce(wire, topic.name, batch).base_offset == 1
    assert values(wire, topic) == [b"value"] * 2


def _message_set(magic: int) -> bytes:
    """One message of the formats before Kafka 0.11: offset, size, CRC-32, magic, attributes, [timestamp], key,
    value."""
    from zlib import crc32

    body = struct.pack(">bb", magic, 0) + (struct.pack(">q", 5) if magic else b"") + struct.pack(">ii", -1, 1) + b"v"
    message = struct.pack(">I", crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("version", [3, 9, 12])
def test_old_message_formats(wire: WireClient, topic: Topic, magic: int, version: int) -> None:
    answer = w.produce(wire, topic.name, _message_set(magic), version=version)
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert values(wire, topic) == []


def test_an_unknown_magic(wire: WireClient, topic: Topic) -> None:
    batch = spoiled(build_batch(w.records(b"value")), MAGIC_AT, b"\x03", with_crc=False)
    assert w.produce(wire, topic.name, batch).error_code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)


def test_zstd_before_produce_version_7(wire: WireClient, topic: Topic) -> None:
    batch = build_batch(w.records(b"value"), codec=CODECS.index("zstd"))
    assert w.produce(wire, topic.name, batch, version=6).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert w.produce(wire, topic.name, batch, version=7).error_code == 0


def test_an_unknown_codec(wire: WireClient, topic: Topic) -> None:
    batch = spoiled(build_batch(w.records(b"value")), ATTRIBUTES_AT, b"\x00\x07")
    assert w.produce(wire, topic.name, batch).error_code != 0
    assert values(wire, topic) == []


def test_a_record_count_that_does_not_fit_the_offsets(wire: WireClient, topic: Topic) -> None:
    batch = build_batch(w.records(b"a", b"b"))
    for count in (1, 3, 0, -1):
        answer = w.produce(wire, topic.name, spoiled(batch, RECORD_COUNT_AT, struct.pack(">i", count)))
        assert answer.error_code == ErrorCode.INVALID_RECORD, count
    answer = w.produce(wire, topic.name, spoiled(batch, LAST_OFFSET_DELTA_AT, struct.pack(">i", 5)))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert values(wire, topic) == []


def test_a_control_batch_from_a_client(wire: WireClient, topic: Topic) -> None:
    batch = build_batch([Record(timestamp=5, key=b"\x00\x00\x00\x01", value=b"\x00\x00\x00\x00\x00\x00")], control=True)
    assert w.produce(wire, topic.name, batch).error_code == ErrorCode.INVALID_RECORD


def test_larger_than_max_message_bytes(wire: WireClient, bootstrap_servers: str, topic_name: Callable[[], str]) -> None:
    """The limit applies to the whole batch as stored."""
    batch = build_batch(w.records(bytes(1_000)))
    topic = w.create_topic(bootstrap_servers, topic_name(), 1, {"max.message.bytes": str(len(batch))})
    assert w.produce(wire, topic.name, batch).error_code == 0
    larger = build_batch(w.records(bytes(1_001)))
    assert w.produce(wire, topic.name, larger).error_code == ErrorCode.MESSAGE_TOO_LARGE
    compressed = build_batch(w.records(bytes(100_000)), codec=CODECS.index("zstd"))
    assert w.produce(wire, topic.name, compressed).error_code == 0


def test_a_record_without_key_in_a_compacted_topic(
    wire: WireClient, bootstrap_servers: str, topic_name: Callable[[], str]
) -> None:
    """The answer names the records at fault by their place in the batch (KIP-467)."""
    topic = w.create_topic(bootstrap_servers, topic_name(), 1, {"cleanup.policy": "compact"})
    batch = build_batch([Record(timestamp=5, key=key, value=b"v") for key in (b"a", None, b"c", None)])
    answer = w.produce(wire, topic.name, batch)
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [each.batch_index for each in answer.record_errors] == [1, 3]
    assert answer.error_message
    assert w.produce(wire, topic.name, build_batch([Record(timestamp=5, key=b"a", value=b"v")])).error_code == 0


def test_timestamps_out_of_the_topic_s_limits(
    wire: WireClient, bootstrap_servers: str, topic_name: Callable[[], str]
) -> None:
    limits = {"message.timestamp.before.max.ms": "60000", "message.timestamp.after.max.ms": "60000"}
    topic = w.create_topic(bootstrap_servers, topic_name(), 1, limits)
    now = int(time.time() * 1000)
    for when in (now - 3_600_000, now + 3_600_000):
        answer = w.produce(wire, topic.name, build_batch(w.records(b"-", timestamp=when)))
        assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert w.produce(wire, topic.name, build_batch(w.records(b"-", timestamp=now - 30_000))).error_code == 0


def test_a_transactional_batch_without_a_transactional_id(wire: WireClient, topic: Topic) -> None:
    batch = build_batch(w.records(b"-"), producer_id=123_456, producer_epoch=0, base_sequence=0, transactional=True)
    answer = w.produce(wire, topic.name, batch)
    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert values(wire, topic) == []


# Idempotence


class Producer:
    """An idempotent producer that says every sequence number itself."""

    def __init__(self, wire: WireClient, topic: Topic) -> None:
        self._wire = wire
        self._topic = topic
        given = wait_until(lambda: self._ask(wire), "a producer id")
        self.producer_id, self.epoch = given.producer_id, given.producer_epoch

    @staticmethod
    def _ask(wire: WireClient) -> Any:
        response = wire.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 4)
        return response if response.error_code == 0 else None

    def send(self, sequence: int, *, count: int = 1, epoch: int | None = None, partition: int = 0) -> tuple[str, int]:
        """The name of the error code, and the base offset."""
        batch = build_batch(
            w.records(*[b"%d" % (sequence + number) for number in range(count)]),
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            base_sequence=sequence,
        )
        answer = w.produce(self._wire, self._topic.name, batch, partition=partition)
        return ErrorCode(answer.error_code).name, answer.base_offset


@pytest.fixture
def producer(wire: WireClient, topic: Topic) -> Producer:
    return Producer(wire, topic)


def test_producer_ids_are_new_each_time(wire: WireClient, topic: Topic) -> None:
    ids = [Producer(wire, topic).producer_id for _ in range(5)]
    assert len(set(ids)) == 5
    assert min(ids) >= 0


def test_the_last_five_batches_are_recognized(wire: WireClient, producer: Producer, topic: Topic) -> None:
    for sequence in range(7):
        assert producer.send(sequence) == ("NONE", sequence)
    # Sent again, each of the last five gets the answer that it got.
    for sequence in range(2, 7):
        assert producer.send(sequence) == ("NONE", sequence)
    # An older one is a duplicate, of which the offset is not known any more.
    assert producer.send(1) in (("DUPLICATE_SEQUENCE_NUMBER", -1), ("OUT_OF_ORDER_SEQUENCE_NUMBER", -1), ("NONE", -1))
    assert values(wire, topic) == [b"%d" % sequence for sequence in range(7)]


def test_a_gap_in_the_sequence(wire: WireClient, producer: Producer, topic: Topic) -> None:
    assert producer.send(0, count=3) == ("NONE", 0)
    assert producer.send(4) == ("OUT_OF_ORDER_SEQUENCE_NUMBER", -1)
    assert producer.send(3) == ("NONE", 3)
    assert values(wire, topic) == [b"0", b"1", b"2", b"3"]


def test_an_overlapping_batch(producer: Producer) -> None:
    """The same first sequence with another length is no duplicate."""
    assert producer.send(0, count=3) == ("NONE", 0)
    assert producer.send(0, count=2)[0] == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert producer.send(1, count=2)[0] == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert producer.send(3, count=3) == ("NONE", 3)


@pytest.mark.parametrize("sequence", [0, 1, 42, 2**31 - 1])
def test_an_unknown_producer_may_begin_anywhere(producer: Producer, sequence: int) -> None:
    """Its state may have expired here while it was idle."""
    assert producer.send(sequence) == ("NONE", 0)


def test_the_sequence_begins_again_after_the_largest(producer: Producer) -> None:
    assert producer.send(2**31 - 2, count=2) == ("NONE", 0)
    assert producer.send(0) == ("NONE", 2)
    assert producer.send(1) == ("NONE", 3)
    # One batch across the end.
    assert producer.send(2**31 - 3, partition=1, count=5) == ("NONE", 0)
    assert producer.send(2, partition=1) == ("NONE", 5)


def test_partitions_count_for_themselves(producer: Producer) -> None:
    assert producer.send(0, partition=0) == ("NONE", 0)
    assert producer.send(0, partition=1) == ("NONE", 0)
    assert producer.send(1, partition=1) == ("NONE", 1)
    assert producer.send(1, partition=0) == ("NONE", 1)


def test_epochs(producer: Producer) -> None:
    assert producer.send(0, epoch=5) == ("NONE", 0)
    assert producer.send(1, epoch=4) == ("INVALID_PRODUCER_EPOCH", -1)
    # A new epoch begins at 0, and only there.
    assert producer.send(1, epoch=6) == ("OUT_OF_ORDER_SEQUENCE_NUMBER", -1)
    assert producer.send(0, epoch=6) == ("NONE", 1)
    assert producer.send(1, epoch=5) == ("INVALID_PRODUCER_EPOCH", -1)


def test_producer_id_without_sequence(wire: WireClient, topic: Topic, producer: Producer) -> None:
    batch = build_batch(w.records(b"-"), producer_id=producer.producer_id, producer_epoch=0, base_sequence=-1)
    assert w.produce(wire, topic.name, batch).error_code == ErrorCode.INVALID_RECORD


def test_create_topics_and_produce_at_once(
    wire: WireClient, bootstrap_servers: str, topic_name: Callable[[], str]
) -> None:
    """After the topic is created its clients produce to it; until it has a leader, they get a retriable error."""
    name = topic_name()
    wanted = CreatableTopic(
        name=name,
        num_partitions=1,
        replication_factor=1,
        configs=[CreatableTopicConfig(name="compression.type", value="producer")],
    )
    assert wire.call(CreateTopicsRequest(topics=[wanted]), 7).topics[0].error_code == 0
    codes: set[int] = set()

    def produced() -> bool:
        answer = w.produce(wire, name, build_batch(w.records(b"-")))
        codes.add(answer.error_code)
        return answer.error_code == 0

    wait_until(produced, "the first record")
    assert codes <= {0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER}


def test_a_request_larger_than_one_read(wire: WireClient, topic: Topic) -> None:
    value = bytes(range(256)) * 3_900
    assert w.produce(wire, topic.name, build_batch(w.records(value))).error_code == 0
    assert values(wire, topic) == [value]
    assert len(encode(w.produce_request(topic.name, build_batch(w.records(value))), 9)) > 900_000
