"""Exactly-once writing to Kafka, below Spark: markers, settings, and one writer's part of a batch on a real server.

A task of Spark calls ``write_part`` with its rows, and so do these tests. They simulate what happens to tasks: they run
twice, are replaced and resume later, die with an open transaction, and receive changed rows.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from moldau.spark_integration.exactly_once import ExactlyOnceError, ExactlyOnceWriter
from moldau.spark_integration.exactly_once.errors import AttemptFailedError
from moldau.spark_integration.exactly_once.history import HistoryReader, create_history, find_history
from moldau.spark_integration.exactly_once.marker import Batch, Content, Marker, Part, check_same, standing
from moldau.spark_integration.exactly_once.producer import TransactionalProducer
from moldau.spark_integration.exactly_once.rows import SinkRow
from moldau.spark_integration.exactly_once.settings import ClientSettings
from moldau.spark_integration.exactly_once.transaction import Job, PartWritten, write_part

from .exactly_once_reading import committed, everything
from .streams import DEADLINE_S

if TYPE_CHECKING:
    from moldau.testing.client import Client
    from moldau.testing.servers import Server

    from .conftest import MakeTopic

BATCH = Batch("orders", "id-1", 7, 4, "content")


# -- markers: decisions without a server --


def test_a_marker_survives_a_round_trip_through_json() -> None:
    marker = Marker.of(BATCH, Content().and_row(-1).and_row(3))

    assert json.loads(marker.to_json()) == {
        "version": 1,
        "query_id": "id-1",
        "batch": 7,
        "rows": 2,
        "digest": "0000000000000002",
        "writers": 4,
        "split": "content",
    }
    assert Marker.from_json(marker.to_json()) == marker


def test_the_digest_does_not_depend_on_the_order_and_counts_duplicate_rows() -> None:
    def content(*hashes: int) -> Content:
        found = Content()
        for each in hashes:
            found = found.and_row(each)
        return found

    assert content(5, -(1 << 63), (1 << 63) - 1) == content((1 << 63) - 1, 5, -(1 << 63))
    assert len({content(), content(0), content(0, 0), content(1), content(1, 1), content(2)}) == 6


def test_without_a_marker_and_after_one_of_an_earlier_batch_a_part_is_not_written() -> None:
    assert standing(None, BATCH) is Part.NOT_WRITTEN
    assert standing(Marker("id-1", 6, Content(), 4, "content"), BATCH) is Part.NOT_WRITTEN
    # The number of writers may change between two batches.
    assert standing(Marker("id-1", 6, Content(), 2, "column"), BATCH) is Part.NOT_WRITTEN


def test_after_a_marker_of_the_batch_a_part_is_written() -> None:
    assert standing(Marker("id-1", 7, Content(), 4, "content"), BATCH) is Part.WRITTEN


@pytest.mark.parametrize(
    ("last", "said"),
    [
        (Marker("id-0", 6, Content(), 4, "content"), "orders has a different checkpoint than before"),
        (Marker("id-0", 7, Content(), 4, "content"), "orders has a different checkpoint than before"),
        (Marker("id-0", 8, Content(), 4, "content"), "orders has a different checkpoint than before"),
        (Marker("id-1", 8, Content(), 4, "content"), "batch 7 of orders is outdated: batch 8 is already written"),
        (Marker("id-1", 7, Content(), 1, "content"), "partly written by 1 writer without writer_column"),
        (Marker("id-1", 7, Content(), 4, "column"), "partly written by 4 writers with writer_column"),
    ],
)
def test_markers_after_which_a_batch_must_not_be_written(last: Marker, said: str) -> None:
    with pytest.raises(ExactlyOnceError, match=said):
        standing(last, BATCH)


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (Content(2, 6), "writer 3 had 2 rows then and has different rows now"),
        (Content(1, 5), "writer 3 had 2 rows then and has 1 row now"),
        (Content(), "writer 3 had 2 rows then and has 0 rows now"),
    ],
)
def test_a_written_part_with_different_content_is_detected(now: Content, said: str) -> None:
    last = Marker.of(BATCH, Content(2, 5))

    with pytest.raises(ExactlyOnceError, match=said):
        check_same(last, now, BATCH, 3)
    check_same(last, Content(2, 5), BATCH, 3)


def test_a_single_writer_has_the_complete_batch_so_its_content_may_differ() -> None:
    check_same(Marker.of(BATCH, Content(2, 5)), Content(3, 9), replace(BATCH, writers=1), 0)


@pytest.mark.parametrize("text", [None, b"", b"hello", b"[]", b"{}", b'{"version": 1}', b"\xff"])
def test_a_record_that_is_not_a_marker_is_detected(text: bytes | None) -> None:
    with pytest.raises(ExactlyOnceError, match="another producer writes to it"):
        Marker.from_json(text)


def test_a_marker_with_a_later_version_is_rejected() -> None:
    with pytest.raises(ExactlyOnceError, match="its marker has version 2, supported is 1"):
        Marker.from_json(b'{"version": 2, "batches": []}')


# -- settings --


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("acks", "1", "must be all or -1"),
        ("request.required.acks", "0", "must be all or -1"),
        ("enable.idempotence", "false", "must be true"),
        ("retries", "0", "at least 1"),
        ("max.in.flight", "6", "between 1 and 5"),
        ("max.in.flight.requests.per.connection", "many", "must be a number"),
        ("message.timeout.ms", "300001", r"between 1 and transaction_timeout_ms \(300000\)"),
        ("delivery.timeout.ms", "0", "between 1 and"),
        ("transactional.id", "mine", "derived from query_name"),
        ("transaction.timeout.ms", "1000", "use transaction_timeout_ms"),
        ("bootstrap.servers", "there:9092", "first argument"),
        ("isolation.level", "read_uncommitted", "read committed"),
        ("max.request.size", "1", "librdkafka rejects these settings.*max.request.size"),
        ("compression.type", "best", "librdkafka rejects these settings.*best"),
    ],
)
def test_settings_that_break_exactly_once_writing_are_rejected(name: str, value: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ExactlyOnceWriter("127.0.0.1:1", "orders", client={name: value})


@pytest.mark.parametrize(
    "client", [{"acks": "all"}, {"acks": "-1", "enable.idempotence": "True"}, {"max.in.flight": "1", "retries": "9"}]
)
def test_settings_that_repeat_the_fixed_values_are_accepted(client: Mapping[str, str]) -> None:
    ExactlyOnceWriter("127.0.0.1:1", "orders", client=client)


def test_invalid_arguments_are_rejected() -> None:
    for name in ("", "a b", "a/b", "x" * 201):
        with pytest.raises(ValueError, match="query_name"):
            ExactlyOnceWriter("127.0.0.1:1", name)
    with pytest.raises(ValueError, match="at least one"):
        ExactlyOnceWriter("127.0.0.1:1", "orders", writers=0)
    with pytest.raises(ValueError, match="transaction_timeout_ms=10"):
        ExactlyOnceWriter("127.0.0.1:1", "orders", transaction_timeout_ms=10)


# -- a part of a batch, and a server --


@pytest.fixture
def job(bootstrap_servers: str) -> Job:
    """The first batch of a new query, with two writers."""
    return new_job(bootstrap_servers)


def new_job(bootstrap_servers: str, timeout_ms: int = 60_000, client: Mapping[str, str] | None = None) -> Job:
    name = f"query-{uuid4().hex[:12]}"
    settings = ClientSettings(bootstrap_servers, timeout_ms, client or {})
    create_history(settings, f"_batches-{name}", 2)
    return Job(Batch(name, "id-1", 0, 2, "content"), f"_batches-{name}", settings)


def rows_of(topic: str | None, *numbers: int) -> list[SinkRow]:
    """A row with its hash for each number; every third row has no key."""
    return [row(topic, b"%d" % n, None if n % 3 == 0 else b"k", row_hash=n * n) for n in numbers]


def row(
    topic: str | None,
    value: bytes | None,
    key: bytes | None = None,
    *,
    headers: list[tuple[str, bytearray | None]] | None = None,
    partition: int | None = None,
    row_hash: int = 1,
    writer: int | None = None,
) -> SinkRow:
    """A row as Spark passes it to a task."""
    content = (None if each is None else bytearray(each) for each in (key, value))
    return *content, headers, topic, partition, row_hash, writer  # type: ignore[return-value]


def write(writer: int, rows: Sequence[SinkRow] | Iterator[SinkRow], job: Job) -> PartWritten:
    (part,) = write_part(writer, rows, job)
    return part


def next_batch(job: Job) -> Job:
    return replace(job, batch=replace(job.batch, number=job.batch.number + 1))


def last_marker(job: Job, writer: int) -> Marker | None:
    with HistoryReader(job.settings, job.batches_topic) as history:
        return history.last(writer)


def values(job: Job, topic: str) -> list[bytes | None]:
    return [record.value for record in committed(job.settings.bootstrap_servers, topic)]


def test_a_part_and_its_marker_become_visible_together(job: Job, make_topic: MakeTopic) -> None:
    topic = make_topic()
    seen: list[object] = []

    def rows() -> Iterator[SinkRow]:
        yield from rows_of(topic, 1, 2, 3)
        seen.append((values(job, topic), last_marker(job, 1)))

    assert write(1, rows(), job) == PartWritten(1, written=3)
    assert seen == [([], None)]
    assert values(job, topic) == [b"1", b"2", b"3"]
    assert last_marker(job, 1) == Marker("id-1", 0, Content(3, 1 + 4 + 9), 2, "content")
    assert last_marker(job, 0) is None


def test_a_repeated_part_is_written_once(job: Job, make_topic: MakeTopic) -> None:
    topic = make_topic()

    first = write(0, rows_of(topic, 1, 2, 3), job)
    again = write(0, rows_of(topic, 3, 2, 1), job)
    later = write(0, rows_of(topic, 1, 2, 3), next_batch(job))

    assert [first, again, later] == [PartWritten(0, 3), PartWritten(0, 0, found=3), PartWritten(0, 3)]
    assert values(job, topic) == [b"1", b"2", b"3"] * 2


def test_nulls_empty_bytes_and_headers_arrive_unchanged(job: Job, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    headers = [("h", bytearray(b"\x00\xff")), ("h", None), ("", bytearray())]
    rows: list[SinkRow] = [
        row(topic, None, None, partition=1),
        row(topic, b"", b"", headers=[], partition=1),
        row(topic, b"v", b"\x00", headers=headers, partition=0),
    ]

    assert write(0, rows, job).written == 3
    found = [
        (r.partition, r.key, r.value, r.headers) for r in committed(job.settings.bootstrap_servers, topic, partitions=2)
    ]
    assert found == [
        (0, b"\x00", b"v", (("h", b"\x00\xff"), ("h", None), ("", b""))),
        (1, None, None, ()),
        (1, b"", b"", ()),
    ]


def test_a_part_without_rows_leaves_no_marker(job: Job) -> None:
    assert list(write_part(0, [], job)) == []
    assert last_marker(job, 0) is None


def test_a_column_assigns_a_partition_of_spark_to_a_writer(job: Job, make_topic: MakeTopic) -> None:
    topic = make_topic()
    job = replace(job, batch=replace(job.batch, split="column"))

    assert write(17, [row(topic, b"1", writer=1), row(topic, b"2", writer=1)], job) == PartWritten(1, written=2)
    assert write(4, [row(topic, b"1", writer=1), row(topic, b"2", writer=1)], job) == PartWritten(1, found=2)
    assert "two of Spark's partitions" in write(3, [row(topic, b"3", writer=1)], job).problem
    for writer in (2, -1, None):
        assert f"a row names the writer {writer}" in write(0, [row(topic, b"3", writer=writer)], job).problem
    mixed = write(0, [row(topic, b"3", writer=0), row(topic, b"4", writer=1)], job)
    assert "has rows of the writers 0 and 1" in mixed.problem
    assert values(job, topic) == [b"1", b"2"]


def test_different_rows_with_the_same_batch_number_are_detected(job: Job, make_topic: MakeTopic) -> None:
    topic = make_topic()
    assert write(0, rows_of(topic, 1, 2), job).written == 2

    part = write(0, rows_of(topic, 1, 4), job)

    assert "batch 0 of" in part.problem
    assert "writer 0 had 2 rows then and has different rows now" in part.problem
    assert values(job, topic) == [b"1", b"2"]


def test_a_different_checkpoint_is_detected(job: Job, make_topic: MakeTopic) -> None:
    topic = make_topic()
    assert write(0, rows_of(topic, 1), next_batch(job)).written == 1

    other = write(0, rows_of(topic, 2), replace(job, batch=replace(job.batch, query_id="id-2")))
    older = write(0, rows_of(topic, 2), job)

    assert "has a different checkpoint than before: Spark's id of the query is id-2, and was id-1" in other.problem
    assert "is outdated: batch 1 is already written" in older.problem
    assert values(job, topic) == [b"1"]


def test_a_failed_attempt_leaves_no_committed_records(job: Job, make_topic: MakeTopic) -> None:
    topic = make_topic()

    def rows() -> Iterator[SinkRow]:
        yield from rows_of(topic, 1, 2)
        wait_written(job, topic, 2)
        raise EOFError("the JVM has ended")

    with pytest.raises(EOFError, match="the JVM has ended"):
        write(0, rows(), job)

    assert (values(job, topic), last_marker(job, 0)) == ([], None)
    assert write(0, rows_of(topic, 1, 2), job).written == 2
    assert values(job, topic) == [b"1", b"2"]
    assert [r.value for r in everything(job.settings.bootstrap_servers, topic)] == [b"1", b"2", b"1", b"2"]


def test_a_replaced_attempt_cannot_commit_after_the_next_one(job: Job, make_topic: MakeTopic) -> None:
    topic = make_topic()

    def rows() -> Iterator[SinkRow]:
        yield from rows_of(topic, 1, 2)
        wait_written(job, topic, 2)
        assert write(0, rows_of(topic, 1, 2, 3), job).written == 3
        yield from rows_of(topic, 3)

    with pytest.raises(AttemptFailedError, match="has taken over"):
        write(0, rows(), job)

    assert values(job, topic) == [b"1", b"2", b"3"]
    assert write(0, rows_of(topic, 1, 2, 3), job) == PartWritten(0, found=3)


def test_many_failed_attempts_do_not_hide_the_last_marker(job: Job, make_topic: MakeTopic) -> None:
    from confluent_kafka import Producer

    assert write(0, rows_of(make_topic(), 1), job).written == 1
    producer = Producer(job.settings.producer(f"{job.batch.query_name}-0"))
    producer.init_transactions(30)
    for _ in range(40):
        producer.begin_transaction()
        producer.produce(job.batches_topic, b"aborted", b"0", 0)
        producer.flush(120)
        producer.abort_transaction(30)

    assert last_marker(job, 0) == Marker("id-1", 0, Content(1, 1), 2, "content")


def test_a_row_that_is_too_large_is_reported_and_no_row_is_written(job: Job, make_topic: MakeTopic) -> None:
    topic = make_topic(1, {"max.message.bytes": "10000"})
    rows: list[SinkRow] = [*rows_of(topic, 1), row(topic, bytes(20_000)), *rows_of(topic, 2)]

    part = write(0, rows, job)

    assert f"the server rejected a row for {topic}" in part.problem
    assert "max.message.bytes of the topic" in part.problem
    assert values(job, topic) == []
    # Larger than the client's limit.
    assert "message.max.bytes in client=" in write(0, [row(topic, bytes(2_000_000))], job).problem


def test_a_row_without_a_key_for_a_compacted_topic_is_reported(job: Job, make_topic: MakeTopic) -> None:
    topic = make_topic(1, {"cleanup.policy": "compact"})

    assert "a compacted topic requires keys" in write(0, [row(topic, b"1", b"k"), row(topic, b"2")], job).problem
    assert values(job, topic) == []


def test_a_rejection_is_the_reason_even_if_later_records_are_reported_first() -> None:
    """Reports of different partitions arrive in any order."""
    from confluent_kafka import KafkaError

    class Report:
        def topic(self) -> str:
            return "orders"

    producer = TransactionalProducer(ClientSettings("127.0.0.1:1", 60_000, {}), "orders-0")
    for code in (KafkaError._PURGE_QUEUE, KafkaError.INVALID_RECORD, KafkaError._PURGE_INFLIGHT):
        producer._on_delivery(KafkaError(code), Report())

    with pytest.raises(ExactlyOnceError, match="a compacted topic requires keys"):
        producer._check_refused()


def test_a_row_without_a_topic_is_detected(job: Job, make_topic: MakeTopic) -> None:
    topic = make_topic()

    assert "a row has no topic" in write(0, [*rows_of(topic, 1), *rows_of(None, 2)], job).problem
    assert values(job, topic) == []


def test_a_missing_topic_or_partition_is_named(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    # librdkafka waits half a minute for an unknown topic.
    job = new_job(bootstrap_servers, client={"topic.metadata.propagation.max.ms": "500"})
    topic = make_topic()

    missing = write(0, rows_of("not-there", 1), job)
    partition = write(0, [row(topic, b"v", partition=5)], job)

    assert "the server rejected a row for not-there" in missing.problem
    assert "create the topic" in missing.problem
    assert "a row names a partition that the topic does not have" in partition.problem


def test_a_transaction_that_times_out_is_explained(
    new_server: Callable[..., AbstractContextManager[Server]],
) -> None:
    with new_server({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}) as server:
        job = new_job(server.bootstrap_servers, timeout_ms=1000)
        create_history(job.settings, "orders", 1)

        def rows() -> Iterator[SinkRow]:
            yield row("orders", b"1", b"k")
            wait_written(job, "orders", 2)  # the record, and the server's abort marker
            yield row("orders", b"2", b"k")

        with pytest.raises(AttemptFailedError, match=r"longer than transaction_timeout_ms \(1000\): raise that limit"):
            write(0, rows(), job)
        assert (values(job, "orders"), last_marker(job, 0)) == ([], None)


def test_a_transaction_timeout_that_the_server_rejects_is_explained(bootstrap_servers: str) -> None:
    job = new_job(bootstrap_servers, timeout_ms=900_001)

    assert "transaction.max.timeout.ms is the limit" in write(0, rows_of("any", 1), job).problem


def test_a_marker_is_read_again_if_the_client_replaced_its_connection(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    from confluent_kafka import KafkaError, KafkaException

    with HistoryReader(job.settings, job.batches_topic) as history:
        outcomes: list[KafkaException | None] = [KafkaException(KafkaError(KafkaError._DESTROY_BROKER)), None]

        def last(writer: int) -> None:
            if (outcome := outcomes.pop(0)) is not None:
                raise outcome

        monkeypatch.setattr(history, "_last", last)
        assert history.last(0) is None
        assert not outcomes


def test_the_topic_of_batches_is_compacted_and_any_other_policy_is_rejected(
    job: Job, client: Client, make_topic: MakeTopic
) -> None:
    assert find_history(job.settings, job.batches_topic) == 2
    assert client.topic_configs(job.batches_topic)["cleanup.policy"] == "compact"
    assert find_history(job.settings, f"{job.batches_topic}-not-there") is None
    with pytest.raises(ExactlyOnceError, match=r"its cleanup\.policy is delete"):
        find_history(job.settings, make_topic())


def wait_written(job: Job, topic: str, count: int) -> None:
    """Return when the log of the topic has this many records, committed or not."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": job.settings.bootstrap_servers, "group.id": "any", "isolation.level": "read_uncommitted"}
    )
    try:
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=120)
            if end >= count:
                return
            consumer.poll(0.01)
        raise AssertionError(f"{topic} has only {end} records")
    finally:
        consumer.close()
