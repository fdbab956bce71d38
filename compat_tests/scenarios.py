"""Scenarios that every client must complete with a server, written once.

A module ``test_<client>.py`` makes a test class of ``ClientScenarios`` by naming its client. A client declares missing
features with a reason (``Client.without``), and the scenarios that need them are skipped with that reason.

A scenario compares the received records with the sent ones. Where the stored form matters (whether it is compressed, or
one batch), it also reads them with a raw fetch.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import pytest

from moldau.compat_tests.conftest import MakeTopic, OpenClient
from moldau.testing.client import CODECS, Client, ClientError, Feature, Headers, Received, Record
from moldau.testing.clients import open_client
from moldau.testing.full_run import first_of
from moldau.testing.servers import Server
from moldau.testing.topic_requests import stored_batches, wait_for_no_topic, wait_for_topic
from moldau.testing.waiting import wait_until

# 2001-09-09: older than any retention, so topics that hold it keep records forever.
T0 = 1_000_000_000_000
KEEP = {"retention.ms": "-1"}


def needs(client: Client, feature: Feature) -> None:
    """Skip, with the declared reason, if the client lacks this feature."""
    if feature in client.without:
        pytest.skip(f"{client.name} cannot {feature.value}: {client.without[feature]}")


def numbered(count: int, *, partition: int = 0, size: int = 0) -> list[Record]:
    """Records with their numbers in key and value; the value is filled up to ``size`` bytes."""
    return [
        Record(key=b"key %d" % number, value=b"value %d" % number + b"." * size, partition=partition)
        for number in range(count)
    ]


def content(records: Sequence[Record] | Sequence[Received]) -> list[tuple[bytes | None, bytes | None, Headers]]:
    """Records that must be read as they were sent."""
    return [(record.key, record.value, record.headers) for record in records]


def error_code(action: Callable[[], object]) -> str:
    """The code of the error that ``action`` must end with."""
    with pytest.raises(ClientError) as raised:
        action()
    return raised.value.code


class ClientScenarios:
    """The scenarios; a subclass sets the client."""

    client_name: ClassVar[str]

    @pytest.fixture
    def client(self, client_of: OpenClient) -> Client:
        return client_of(self.client_name)

    # Producing and reading

    @pytest.mark.parametrize("partitions", [1, 6])
    def test_every_partition_of_a_topic(self, client: Client, make_topic: MakeTopic, partitions: int) -> None:
        topic = make_topic(partitions, client=client)
        sent = [record for partition in range(partitions) for record in numbered(20, partition=partition)]
        delivered = client.produce(topic, sent)
        assert [(each.partition, each.offset) for each in delivered] == [
            (partition, offset) for partition in range(partitions) for offset in range(20)
        ]
        for partition in range(partitions):
            received = client.read(topic, partition)
            assert content(received) == content(numbered(20))
            assert [(each.partition, each.offset) for each in received] == [(partition, n) for n in range(20)]

    @pytest.mark.parametrize("codec", CODECS)
    def test_codec(self, client: Client, bootstrap_servers: str, make_topic: MakeTopic, codec: str) -> None:
        topic = make_topic(1, client=client)
        sent = numbered(300, size=100)
        client.produce(topic, sent, codec=codec, linger_ms=200)
        assert {CODECS[batch.codec] for batch in stored_batches(bootstrap_servers, topic)} == {codec}
        assert content(client.read(topic, 0)) == content(sent)

    def test_keys_values_and_headers(self, client: Client, make_topic: MakeTopic) -> None:
        topic = make_topic(1, client=client)
        sent = [
            Record(key=None, value=b"no key"),
            Record(key=b"", value=b"empty key"),
            Record(key=b"\x00\x01\xfe\xff", value=b"\x00binary\xff\n"),
            Record(key=b"empty value", value=b""),
            Record(key=b"null value", value=None),
            Record(key="Vltava, Mělník".encode(), value="řeka".encode()),
            Record(key=b"headers", value=b"one", headers=(("trace", b"1"),)),
            Record(key=b"headers", value=b"twice", headers=(("same", b"1"), ("other", b"\x01\xff"), ("same", b"2"))),
            Record(key=b"headers", value=b"empty", headers=(("empty", b""), ("řeka", b"Labe"))),
            Record(key=b"headers", value=b"thirty", headers=tuple((f"h{n}", b"%d" % n) for n in range(30))),
            Record(key=b"headers", value=None, headers=(("tombstone", b"yes"),)),
        ]
        client.produce(topic, sent)
        assert content(client.read(topic, 0)) == content(sent)

    def test_null_header_values(self, client: Client, make_topic: MakeTopic) -> None:
        needs(client, Feature.NULL_HEADERS)
        topic = make_topic(1, client=client)
        sent = [Record(key=b"key", value=b"value", headers=(("null", None), ("empty", b""), ("null", None)))]
        client.produce(topic, sent)
        assert content(client.read(topic, 0)) == content(sent)

    def test_zero_bytes_in_headers(self, client: Client, make_topic: MakeTopic) -> None:
        needs(client, Feature.ZERO_BYTES_IN_HEADERS)
        topic = make_topic(1, client=client)
        sent = [Record(key=b"key", value=b"value", headers=(("zero", b"\x00"), ("inside", b"a\x00b")))]
        client.produce(topic, sent)
        assert content(client.read(topic, 0)) == content(sent)

    def test_neither_key_nor_value(self, client: Client, make_topic: MakeTopic) -> None:
        needs(client, Feature.NULL_KEY_AND_VALUE)
        topic = make_topic(1, client=client)
        sent = [Record(key=None, value=None)]
        client.produce(topic, sent)
        assert content(client.read(topic, 0)) == content(sent)

    @pytest.mark.parametrize("codec", ["none", "lz4"])
    def test_values_of_one_megabyte(self, client: Client, make_topic: MakeTopic, codec: str) -> None:
        topic = make_topic(1, client=client)
        values = [bytes([number]) * 1_000_000 for number in (0, 7, 255)]
        sent = [Record(key=b"large", value=value) for value in values]
        client.produce(topic, sent, codec=codec, max_request_size=1_048_576)
        received = client.read(topic, 0)
        assert [record.value == value for record, value in zip(received, values, strict=True)] == [True] * 3

    @pytest.mark.parametrize("acks", ["0", "1", "all"])
    def test_acks(self, client: Client, make_topic: MakeTopic, acks: str) -> None:
        topic = make_topic(1, client=client)
        sent = numbered(50)
        delivered = client.produce(topic, sent, acks=acks)
        if acks == "0":  # there is no acknowledgment
            wait_until(lambda: len(client.read(topic, 0)) >= 50, "50 records")
        else:
            assert [each.offset for each in delivered] == list(range(50))
        assert content(client.read(topic, 0)) == content(sent)

    def test_thousands_of_records_stay_in_order(self, client: Client, make_topic: MakeTopic) -> None:
        topic = make_topic(3, client=client)
        sent = [record for partition in range(3) for record in numbered(2_000, partition=partition, size=200)]
        client.produce(topic, sent, idempotent=True, codec="lz4")
        for partition in range(3):
            received = client.read(topic, partition)
            assert content(received) == content(sent[2_000 * partition : 2_000 * (partition + 1)])
            assert [record.offset for record in received] == list(range(2_000))

    # Time

    def test_create_time(self, client: Client, make_topic: MakeTopic) -> None:
        needs(client, Feature.SET_TIMESTAMP)
        topic = make_topic(1, KEEP, client=client)
        times = [T0, T0 + 5, T0 - 1_000, T0, int(time.time() * 1000)]
        client.produce(topic, [Record(value=b"%d" % when, timestamp_ms=when) for when in times])
        received = client.read(topic, 0)
        assert [record.timestamp_ms for record in received] == times
        if Feature.TIMESTAMP_TYPE not in client.without:
            assert {record.timestamp_type for record in received} == {"CreateTime"}

    def test_client_stamps_records_with_the_time_of_sending(self, client: Client, make_topic: MakeTopic) -> None:
        topic = make_topic(1, client=client)
        before = int(time.time() * 1000)
        client.produce(topic, numbered(3))
        after = int(time.time() * 1000)
        assert all(before <= record.timestamp_ms <= after for record in client.read(topic, 0))

    @pytest.mark.parametrize("codec", ["none", "zstd"])
    def test_log_append_time(self, client: Client, make_topic: MakeTopic, codec: str) -> None:
        topic = make_topic(1, {"message.timestamp.type": "LogAppendTime"}, client=client)
        stamp = None if Feature.SET_TIMESTAMP in client.without else T0
        before = int(time.time() * 1000)
        client.produce(topic, [Record(value=b"%d" % n, timestamp_ms=stamp) for n in range(10)], codec=codec)
        after = int(time.time() * 1000)
        received = client.read(topic, 0)
        assert all(before <= record.timestamp_ms <= after for record in received), (before, received, after)
        assert content(received) == content([Record(value=b"%d" % n) for n in range(10)])
        if Feature.TIMESTAMP_TYPE not in client.without:
            assert {record.timestamp_type for record in received} == {"LogAppendTime"}

    @pytest.mark.parametrize("codec", ["none", "gzip"])
    def test_offsets_for_times(self, client: Client, make_topic: MakeTopic, codec: str) -> None:
        """The result is exact inside a batch, compressed or not: the first record, not the first batch."""
        needs(client, Feature.SET_TIMESTAMP)
        topic = make_topic(1, KEEP, client=client)
        assert client.offset_for_time(topic, 0, T0) is None
        for batch in range(3):
            start = T0 + 1_000 * batch
            records = [Record(value=b"%d" % n, timestamp_ms=start + 10 * n) for n in range(10)]
            client.produce(topic, records, codec=codec, linger_ms=100)
        grid = {T0 - 1: 0, T0: 0, T0 + 1: 1, T0 + 50: 5, T0 + 90: 9, T0 + 91: 10, T0 + 1_000: 10, T0 + 1_011: 12,
                T0 + 2_089: 29, T0 + 2_090: 29, T0 + 2_091: None, 0: 0}  # fmt: skip
        assert {when: client.offset_for_time(topic, 0, when) for when in grid} == grid

    def test_offsets_for_times_out_of_order(self, client: Client, make_topic: MakeTopic) -> None:
        needs(client, Feature.SET_TIMESTAMP)
        topic = make_topic(1, KEEP, client=client)
        times = [T0 + 30, T0 + 10, T0 + 40, T0 + 20]
        client.produce(topic, [Record(value=b"-", timestamp_ms=when) for when in times], linger_ms=100)
        grid = {T0: 0, T0 + 10: 0, T0 + 30: 0, T0 + 31: 2, T0 + 40: 2, T0 + 41: None}
        assert {when: client.offset_for_time(topic, 0, when) for when in grid} == grid

    def test_reading_from_a_timestamp(self, client: Client, make_topic: MakeTopic) -> None:
        topic = make_topic(1, client=client)
        client.produce(topic, numbered(5))
        (*_, last) = client.read(topic, 0)
        wait_until(lambda: int(time.time() * 1000) > last.timestamp_ms, "a later millisecond", pause=0.001)
        client.produce(topic, numbered(7))
        start = client.offset_for_time(topic, 0, last.timestamp_ms + 1)
        assert start == 5
        assert content(client.read(topic, 0, start)) == content(numbered(7))

    # Offsets

    @pytest.mark.parametrize("codec", ["none", "snappy"])
    def test_reading_from_an_offset_inside_a_batch(
        self, client: Client, bootstrap_servers: str, make_topic: MakeTopic, codec: str
    ) -> None:
        topic = make_topic(1, client=client)
        sent = numbered(100)
        client.produce(topic, sent, codec=codec, linger_ms=200)
        assert len(stored_batches(bootstrap_servers, topic)) < 100
        for start in (0, 1, 37, 98, 99):
            received = client.read(topic, 0, start)
            assert [record.offset for record in received] == list(range(start, 100))
            assert content(received) == content(sent[start:])
        assert client.read(topic, 0, 100) == []

    def test_empty_topic(self, client: Client, make_topic: MakeTopic) -> None:
        topic = make_topic(2, client=client)
        assert client.read(topic, 0) == []
        assert client.read(topic, 1, 0) == []

    def test_a_batch_larger_than_the_fetch_limit(
        self, client: Client, bootstrap_servers: str, make_topic: MakeTopic
    ) -> None:
        """At least one complete batch is returned, whatever the limits are (KIP-74)."""
        topic = make_topic(1, client=client)
        for _ in range(3):
            client.produce(topic, numbered(30, size=1_000), linger_ms=200)
        assert max(batch.size for batch in stored_batches(bootstrap_servers, topic)) > 4 * 1_024
        assert content(client.read(topic, 0, fetch_max_bytes=1_024)) == content(3 * numbered(30, size=1_000))

    def test_first_and_last_offset(self, client: Client, make_topic: MakeTopic) -> None:
        needs(client, Feature.PARTITION_OFFSETS)
        topic = make_topic(2, client=client)
        client.produce(topic, numbered(12, partition=1))
        assert client.offsets(topic, 0) == (0, 0)
        assert client.offsets(topic, 1) == (0, 12)

    # Errors

    # The error of a producer that retries an unknown topic until it times out.
    unknown_topic_codes: ClassVar[tuple[str, ...]] = ("UNKNOWN_TOPIC_OR_PARTITION",)

    # Producers that report an unknown or invalid topic as soon as they are sure have a higher limit, for busy machines.
    topic_error_give_up_ms: ClassVar[int] = 2_000

    def test_producing_to_an_unknown_topic(self, client: Client, topic_name: Callable[[], str]) -> None:
        code = error_code(lambda: client.produce(topic_name(), numbered(1), give_up_ms=self.topic_error_give_up_ms))
        assert code in self.unknown_topic_codes

    def test_message_too_large(self, client: Client, make_topic: MakeTopic) -> None:
        topic = make_topic(1, {"max.message.bytes": "20000"}, client=client)
        large = Record(value=bytes(30_000))
        assert error_code(lambda: client.produce(topic, [large])) == "MESSAGE_TOO_LARGE"
        client.produce(topic, [Record(value=bytes(10_000))])
        assert [len(record.value or b"") for record in client.read(topic, 0)] == [10_000]

    # The error of a producer that checks the name locally instead of sending a request.
    invalid_topic_codes: ClassVar[tuple[str, ...]] = ("INVALID_TOPIC_EXCEPTION",)

    def test_invalid_topic_name(self, client: Client) -> None:
        code = error_code(lambda: client.produce("not a topic!", numbered(1), give_up_ms=self.topic_error_give_up_ms))
        assert code in self.invalid_topic_codes, code

    def test_offset_out_of_range(self, client: Client, make_topic: MakeTopic) -> None:
        topic = make_topic(1, client=client)
        client.produce(topic, numbered(10))
        assert error_code(lambda: client.read(topic, 0, 11)) == "OFFSET_OUT_OF_RANGE"

    # Administration

    def test_create_and_delete(self, client: Client, bootstrap_servers: str, topic_name: Callable[[], str]) -> None:
        needs(client, Feature.TOPIC_ADMIN)
        topic = topic_name()
        client.create_topic(topic, 3)
        assert client.topics()[topic] == 3
        assert error_code(lambda: client.create_topic(topic, 3)) == "TOPIC_ALREADY_EXISTS"
        client.produce(topic, numbered(5, partition=2))
        client.delete_topic(topic)
        wait_for_no_topic(bootstrap_servers, topic)
        assert topic not in client.topics()
        assert error_code(lambda: client.delete_topic(topic)) == "UNKNOWN_TOPIC_OR_PARTITION"
        # A new topic of the same name: no data of the first one remains.
        client.create_topic(topic, 1)
        assert client.topics()[topic] == 1
        assert client.read(topic, 0) == []
        assert [each.offset for each in client.produce(topic, numbered(2))] == [0, 1]

    @pytest.mark.parametrize("name", ["", ".", "..", "with space", "ž", "x" * 250])
    def test_create_with_an_invalid_name(self, client: Client, name: str) -> None:
        needs(client, Feature.TOPIC_ADMIN)
        assert error_code(lambda: client.create_topic(name, 1)) in self.invalid_name_codes

    invalid_name_codes: ClassVar[tuple[str, ...]] = ("INVALID_TOPIC_EXCEPTION",)

    def test_create_with_names_that_collide_as_metrics(self, client: Client, topic_name: Callable[[], str]) -> None:
        needs(client, Feature.TOPIC_ADMIN)
        topic = topic_name()
        client.create_topic(f"{topic}.a", 1)
        assert error_code(lambda: client.create_topic(f"{topic}_a", 1)) == "INVALID_TOPIC_EXCEPTION"

    def test_create_with_configs(self, client: Client, make_topic: MakeTopic) -> None:
        needs(client, Feature.CONFIG_ADMIN)
        wanted = {"cleanup.policy": "compact", "max.message.bytes": "123456", "retention.ms": "86400000",
                  "segment.bytes": "1048576", "min.insync.replicas": "1", "compression.type": "lz4"}  # fmt: skip
        configs = client.topic_configs(make_topic(2, wanted, client=client))
        assert {key: configs[key] for key in wanted} == wanted
        defaults = {"flush.messages": "9223372036854775807", "message.timestamp.type": "CreateTime",
                    "unclean.leader.election.enable": "false", "delete.retention.ms": "86400000"}  # fmt: skip
        assert {key: configs[key] for key in defaults} == defaults

    @pytest.mark.parametrize(
        "config",
        [
            {"no.such.config": "1"},
            {"retention.ms": "soon"},
            {"segment.bytes": "1000"},
            {"cleanup.policy": "shred"},
            {"compression.type": "brotli"},
            {"min.insync.replicas": "0"},
        ],
        ids=lambda config: "-".join(map("=".join, config.items())),
    )
    def test_create_with_an_invalid_config(
        self, client: Client, topic_name: Callable[[], str], config: dict[str, str]
    ) -> None:
        needs(client, Feature.TOPIC_ADMIN)
        assert error_code(lambda: client.create_topic(topic_name(), 1, config)) == "INVALID_CONFIG"

    def test_create_partitions(self, client: Client, bootstrap_servers: str, make_topic: MakeTopic) -> None:
        needs(client, Feature.TOPIC_ADMIN)
        topic = make_topic(2, client=client)
        client.produce(topic, numbered(3, partition=1))
        client.create_partitions(topic, 5)
        wait_for_topic(bootstrap_servers, topic, 5)
        assert client.topics()[topic] == 5
        client.produce(topic, numbered(4, partition=4))
        assert len(client.read(topic, 1)) == 3
        assert len(client.read(topic, 4)) == 4
        assert error_code(lambda: client.create_partitions(topic, 5)) == "INVALID_PARTITIONS"
        assert error_code(lambda: client.create_partitions(topic, 3)) == "INVALID_PARTITIONS"

    def test_alter_configs(self, client: Client, make_topic: MakeTopic) -> None:
        needs(client, Feature.CONFIG_ADMIN)
        topic = make_topic(1, {"retention.ms": "1234567"}, client=client)
        client.set_topic_config(topic, "max.message.bytes", "20000")
        wait_until(lambda: client.topic_configs(topic)["max.message.bytes"] == "20000", "the new value")
        assert error_code(lambda: client.produce(topic, [Record(value=bytes(30_000))])) == "MESSAGE_TOO_LARGE"
        assert error_code(lambda: client.set_topic_config(topic, "retention.ms", "never")) == "INVALID_CONFIG"
        if Feature.INCREMENTAL_CONFIGS not in client.without:
            assert client.topic_configs(topic)["retention.ms"] == "1234567"

    def test_delete_records(self, client: Client, make_topic: MakeTopic) -> None:
        needs(client, Feature.DELETE_RECORDS)
        topic = make_topic(2, client=client)
        sent = numbered(20, partition=1)
        client.produce(topic, sent, linger_ms=100)
        assert client.delete_records(topic, 1, 7) == 7
        assert client.offsets(topic, 1) == (7, 20)
        assert content(client.read(topic, 1)) == content(sent[7:])
        assert error_code(lambda: client.read(topic, 1, 3)) == "OFFSET_OUT_OF_RANGE"
        assert error_code(lambda: client.delete_records(topic, 1, 21)) == "OFFSET_OUT_OF_RANGE"
        assert client.delete_records(topic, 1, -1) == 20
        assert client.read(topic, 1) == []
        assert [each.offset for each in client.produce(topic, sent[:1])] == [20]

    # A server that stops

    @pytest.fixture
    def client_of_own_server(self, own_server: Server) -> Iterator[Client]:
        """A client of the server that may be stopped."""
        with open_client(self.client_name, own_server.bootstrap_servers) as client:
            yield client

    @pytest.mark.parametrize("how", first_of(["kill", "stop"]))
    def test_the_server_disappears_while_a_client_produces(
        self, client_of_own_server: Client, own_server: Server, topic_name: Callable[[], str], how: str
    ) -> None:
        """Earlier records are kept, and none of the records being written is lost, duplicated or out of order."""
        topic = topic_name()
        admin = client_of_own_server
        if Feature.TOPIC_ADMIN in client_of_own_server.without:
            admin = open_client("kafka-python", own_server.bootstrap_servers)
        admin.create_topic(f"{topic}-before")
        admin.create_topic(topic, 2)
        before = numbered(100, size=100)
        client_of_own_server.produce(f"{topic}-before", before, codec="gzip")

        stream = client_of_own_server.open_stream(topic, 2)
        stream.wait_acknowledged(2_000)
        if how == "stop":
            own_server.stop()
        else:
            own_server.kill()
        own_server.start()
        stream.wait_acknowledged(2_000)
        acknowledged = stream.stop()

        for partition, values in acknowledged.items():
            received = client_of_own_server.read(topic, partition)
            assert [record.value for record in received] == values
            assert [record.offset for record in received] == list(range(len(values)))
        assert content(client_of_own_server.read(f"{topic}-before", 0)) == content(before)
        assert [each.offset for each in client_of_own_server.produce(f"{topic}-before", numbered(1))] == [100]
        if admin is not client_of_own_server:
            admin.close()
