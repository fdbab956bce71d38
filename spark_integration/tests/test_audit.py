"""The audit with a real server: it finds exactly the planted discrepancies.

The tests choose the timestamps of the records, so the windows do not depend on the clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from moldau.spark_integration.archive import ArchiveRequest, open_archive
from moldau.spark_integration.audit import Audit
from moldau.spark_integration.audit.balance import audit as run_audit
from moldau.spark_integration.audit.report import Finding, Kind, Report, State, with_late_counts
from moldau.spark_integration.audit.request import AuditError, AuditRequest
from moldau.testing.client import Client, Record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .conftest import MakeTopic

MINUTE_MS = 60_000
# 2026-01-05 12:00 UTC; the n-th window begins n minutes later.
START_MS = 1_767_614_400_000
WATERMARK_MS = 5 * MINUTE_MS

DEADLINE_S = 180


def at(window: int, second: int = 0) -> int:
    """A timestamp in the n-th window."""
    return START_MS + window * MINUTE_MS + second * 1000


@pytest.fixture
def audit_topic() -> str:
    return f"audit-{uuid4().hex[:12]}"


@pytest.fixture
def counting(bootstrap_servers: str, audit_topic: str) -> Iterator[Callable[[], Audit]]:
    """``counting()``: the audit of the clients of one process; closed at the end of the test at the latest."""
    opened: list[Audit] = []

    def open_audit() -> Audit:
        opened.append(Audit(bootstrap_servers, topic=audit_topic))
        return opened[-1]

    yield open_audit
    for each in opened:
        each.close()


@pytest.fixture
def balance(spark: SparkSession, bootstrap_servers: str, audit_topic: str) -> Callable[..., Report]:
    """``balance(topic, ...)``: the report of an audit in which all windows are over."""

    def run(*topics: str, archives: Sequence[str] = (), **options: Any) -> Report:
        request = AuditRequest(
            bootstrap_servers,
            topics,
            audit_topic=audit_topic,
            watermark_ms=WATERMARK_MS,
            archives=tuple(archives),
            **options,
        )
        return run_audit(spark, request)

    return run


def produce(producer: Any, topic: str, records: Sequence[Record]) -> None:
    """Produce with confluent-kafka, counting or not; all records are delivered when this returns."""
    for record in records:
        producer.produce(
            topic, value=record.value, key=record.key, partition=record.partition, timestamp=record.timestamp_ms
        )
    assert producer.flush(DEADLINE_S) == 0


def numbered(numbers: range, timestamp_ms: int, partition: int = 0) -> list[Record]:
    return [Record(b"%d" % n, b"key", timestamp_ms=timestamp_ms, partition=partition) for n in numbers]


def read(consumer: Any, topic: str, partition: int, offsets: range) -> None:
    """Read only these offsets with a consumer of confluent-kafka."""
    consumer.assign([ConfluentPartition(topic, partition, offsets.start)])
    for offset in offsets:
        message = consumer.poll(DEADLINE_S)
        assert message is not None
        assert message.error() is None
        assert message.offset() == offset
    consumer.unassign()


def confluent_consumer(bootstrap_servers: str) -> Consumer:
    return Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "unused", "enable.auto.commit": False, "log_level": 0}
    )


def found(report: Report) -> list[tuple[str, str, int, int]]:
    """The findings: kind, tier, number of the window, records."""
    return [
        (each.kind.value, each.tier, (each.window_start - START_MS) // MINUTE_MS, each.count)
        for each in report.findings
    ]


def counts(report: Report) -> dict[int, dict[str, int]]:
    return {(each.books.window_start - START_MS) // MINUTE_MS: each.counts for each in report.windows}


def one(report: Report, kind: Kind, tier: str) -> Finding:
    (finding,) = [each for each in report.findings if each.kind is kind and each.tier == tier]
    return finding


def test_exactly_the_planted_loss_duplicate_and_late_window_are_found(
    bootstrap_servers: str,
    client: Client,
    make_topic: MakeTopic,
    audit_topic: str,
    counting: Callable[[], Audit],
    balance: Callable[..., Report],
) -> None:
    topic = make_topic(2)
    audit = counting()
    producer = audit.producer(Producer({"bootstrap.servers": bootstrap_servers}))
    for window in range(12):
        produce(producer, topic, numbered(range(window * 100, window * 100 + 10), at(window, 3), window % 2))
        if window == 4:
            # As by a retry without idempotence: a duplicate record that the client is not notified of.
            produce(Producer({"bootstrap.servers": bootstrap_servers}), topic, numbered(range(405, 406), at(4, 3), 0))
    # Window 3 is over long before, by the records in partition 1.
    produce(producer, topic, numbered(range(900, 907), at(3, 40), 1))
    consumer = audit.consumer(confluent_consumer(bootstrap_servers), group="billing")
    # Partition 0 has windows 0, 2, 4, ...: offsets 10 to 19 are in window 2, and three of them are skipped.
    read(consumer, topic, 0, range(14))
    read(consumer, topic, 0, range(17, 61))
    read(consumer, topic, 1, range(67))
    consumer.close()
    producer.close()

    report = balance(topic)

    assert found(report) == [
        ("missing", "consumer billing", 2, 3),
        ("late", "server", 3, 7),
        ("double", "server", 4, 1),
    ]
    assert one(report, Kind.MISSING, "consumer billing").places == {0: [(14, 16)]}
    assert one(report, Kind.LATE, "server").places == {1: [(60, 66)]}
    assert one(report, Kind.DOUBLE, "server").places == {0: [(30, 30)]}
    assert counts(report) == {
        **{window: {"producer": 10, "server": 10, "consumer billing": 10} for window in range(12)},
        2: {"producer": 10, "server": 10, "consumer billing": 7},
        3: {"producer": 17, "server": 17, "consumer billing": 17},
        4: {"producer": 10, "server": 11, "consumer billing": 11},
    }
    assert report.notes == ()

    # Other messages in the audit topic are reported, and do not stop the audit.
    client.produce(
        audit_topic, [Record(b'{"version": 2, "kind": "page"}', b"a"), Record(b"no JSON", b"b"), Record(None, b"c")]
    )
    # Delivery is at least once: messages may be duplicated, and an older revision may follow a newer one.
    messages = client.read(audit_topic, 0)
    client.produce(audit_topic, [Record(each.value, each.key) for each in reversed(messages)])

    again = balance(topic)
    assert again.windows == report.windows
    assert again.notes == ("4 messages of the audit topic are not counts of version 1, and were ignored",)


@pytest.mark.full
def test_a_loss_and_duplicates_in_one_window_do_not_cancel_out(
    bootstrap_servers: str, make_topic: MakeTopic, counting: Callable[[], Audit], balance: Callable[..., Report]
) -> None:
    topic = make_topic()
    audit = counting()
    producer = audit.producer(Producer({"bootstrap.servers": bootstrap_servers}))
    produce(producer, topic, numbered(range(20), at(0)))
    consumer = audit.consumer(confluent_consumer(bootstrap_servers), group="billing")
    read(consumer, topic, 0, range(5))
    read(consumer, topic, 0, range(8, 20))
    read(consumer, topic, 0, range(10, 13))
    consumer.close()
    producer.close()

    report = balance()

    assert counts(report) == {0: {"producer": 20, "server": 20, "consumer billing": 20}}
    assert found(report) == [("missing", "consumer billing", 0, 3), ("double", "consumer billing", 0, 3)]
    assert one(report, Kind.MISSING, "consumer billing").places == {0: [(5, 7)]}
    assert one(report, Kind.DOUBLE, "consumer billing").places == {0: [(10, 12)]}
    assert one(report, Kind.MISSING, "consumer billing").behind == 0


def test_acknowledged_records_that_the_server_lost_are_found(
    bootstrap_servers: str,
    client: Client,
    make_topic: MakeTopic,
    counting: Callable[[], Audit],
    balance: Callable[..., Report],
) -> None:
    """A topic is restored from a copy without the newest three records; a new record then takes one of the offsets."""
    topic = make_topic()
    producer = counting().producer(Producer({"bootstrap.servers": bootstrap_servers}))
    produce(producer, topic, numbered(range(10), at(0)))
    client.delete_topic(topic)
    client.create_topic(topic, 1)
    client.produce(topic, numbered(range(7), at(0)))
    # A client without cached metadata of the old topic.
    other = counting().producer(Producer({"bootstrap.servers": bootstrap_servers}))
    produce(other, topic, numbered(range(10, 11), at(0)))
    producer.close()
    other.close()

    report = balance(topic)

    assert counts(report) == {0: {"producer": 11, "server": 8}}
    assert found(report) == [("missing", "server", 0, 3)]
    assert one(report, Kind.MISSING, "server").places == {0: [(7, 9)]}


def test_many_producers_and_consumers_that_count_are_balanced(
    bootstrap_servers: str, make_topic: MakeTopic, counting: Callable[[], Audit], balance: Callable[..., Report]
) -> None:
    topic = make_topic(3)
    audit, elsewhere = counting(), counting()
    first, second = (audit.producer(KafkaProducer(bootstrap_servers=bootstrap_servers)) for _ in range(2))
    third = elsewhere.producer(
        Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "compression.type": "lz4"})
    )
    acknowledged: list[object] = []
    for n in range(900):
        timestamp_ms = at(n // 300, n % 60)
        first.send(topic, b"a%d" % n, key=b"%d" % n, timestamp_ms=timestamp_ms)
        second.send(topic, b"b%d" % n, timestamp_ms=timestamp_ms)
        third.produce(
            topic,
            b"c%d" % n,
            b"%d" % n,
            timestamp=timestamp_ms,
            on_delivery=lambda error, _: acknowledged.append(error),
        )
    for producer in (first, second, third):
        producer.flush()
    assert acknowledged == [None] * 900

    async def send_and_receive() -> int:
        from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

        async with elsewhere.producer(AIOKafkaProducer(bootstrap_servers=bootstrap_servers)) as sending:
            for n in range(90):
                await sending.send_and_wait(topic, b"d%d" % n, partition=n % 3, timestamp_ms=at(3))
        receiving = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest")
        received = 0
        async with elsewhere.consumer(receiving, group="search", from_earliest=True) as counted:
            while received < 2000:
                polled = await counted.getmany(timeout_ms=DEADLINE_S * 1000, max_records=500)
                received += sum(len(records) for records in polled.values())
            async for _ in counted:
                received += 1
                if received == 2790:
                    break
        return received

    assert asyncio.run(send_and_receive()) == 2790
    polling = audit.consumer(
        KafkaConsumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest", group_id=None), group="billing"
    )
    polling.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
    read_by_billing = 0
    ends = sum(polling.end_offsets(polling.assignment()).values())
    while read_by_billing < ends // 2:
        read_by_billing += sum(map(len, polling.poll(timeout_ms=1000, max_records=100).values()))
    for _ in range(ends - read_by_billing):
        next(polling)
    fetching = elsewhere.consumer(confluent_consumer(bootstrap_servers), group="billing")
    fetching.assign([ConfluentPartition(topic, 2, 0)])
    left = 2790 - ends
    while left:
        left -= len(fetching.consume(100, 1.0))
    for client in (polling, fetching, first, second, third):
        client.close()

    report = balance(topic)

    tiers = ("producer", "server", "consumer billing", "consumer search")
    assert counts(report) == {
        **{window: dict.fromkeys(tiers, 900) for window in range(3)},
        3: dict.fromkeys(tiers, 90),
    }
    assert report.findings == []
    assert report.notes == ()
    assert {window.state for window in report.windows} == {State.BALANCED}


@pytest.mark.full
def test_counts_that_a_dead_producer_had_not_sent_are_reported_as_uncounted(
    bootstrap_servers: str, make_topic: MakeTopic, counting: Callable[[], Audit], balance: Callable[..., Report]
) -> None:
    topic = make_topic()
    producer = counting().producer(Producer({"bootstrap.servers": bootstrap_servers}))
    produce(producer, topic, numbered(range(10), at(0)))
    # Delivered and reported to a client that never made its next call.
    produce(Producer({"bootstrap.servers": bootstrap_servers}), topic, numbered(range(10, 14), at(0, 30)))

    report = balance(topic)

    assert found(report) == [("uncounted", "server", 0, 4)]
    assert one(report, Kind.UNCOUNTED, "server").places == {0: [(10, 13)]}
    (note,) = report.notes
    assert note.startswith("1 books are not closed")


@pytest.mark.full
def test_records_without_offsets_are_balanced_by_their_number(
    bootstrap_servers: str, make_topic: MakeTopic, counting: Callable[[], Audit], balance: Callable[..., Report]
) -> None:
    """With acks=0 a producer learns neither the offsets of its records nor whether they were appended."""
    topic = make_topic()
    producer = counting().producer(Producer({"bootstrap.servers": bootstrap_servers, "acks": 0}))
    produce(producer, topic, numbered(range(20), at(0)))
    checked = counting().producer(Producer({"bootstrap.servers": bootstrap_servers}))
    produce(checked, topic, numbered(range(20, 25), at(1)))
    producer.close()
    checked.close()

    report = balance(topic)

    assert counts(report) == {0: {"producer": 20, "server": 20}, 1: {"producer": 5, "server": 5}}
    assert report.findings == []


@pytest.mark.full
def test_a_group_accounts_for_records_after_its_first_one(
    bootstrap_servers: str, make_topic: MakeTopic, counting: Callable[[], Audit], balance: Callable[..., Report]
) -> None:
    topic = make_topic()
    audit = counting()
    producer = audit.producer(Producer({"bootstrap.servers": bootstrap_servers}))
    for window in range(3):
        produce(producer, topic, numbered(range(10), at(window)))
    late_comer = audit.consumer(confluent_consumer(bootstrap_servers), group="late-comer")
    read(late_comer, topic, 0, range(15, 28))
    whole = audit.consumer(confluent_consumer(bootstrap_servers), group="whole", from_earliest=True)
    read(whole, topic, 0, range(2, 30))
    for client in (producer, late_comer, whole):
        client.close()

    report = balance(topic)

    # The second group has not read the last two records, and may still read them.
    assert found(report) == [("missing", "consumer whole", 0, 2), ("missing", "consumer late-comer", 2, 2)]
    assert one(report, Kind.MISSING, "consumer late-comer").behind == 2
    assert one(report, Kind.MISSING, "consumer whole").behind == 0


def test_deleted_records_are_not_missing(
    bootstrap_servers: str,
    client: Client,
    make_topic: MakeTopic,
    counting: Callable[[], Audit],
    balance: Callable[..., Report],
) -> None:
    topic = make_topic()
    producer = counting().producer(Producer({"bootstrap.servers": bootstrap_servers}))
    for window in range(2):
        produce(producer, topic, numbered(range(10), at(window)))
    producer.close()
    client.delete_records(topic, 0, 4)

    report = balance(topic)

    assert counts(report) == {0: {"producer": 6, "server": 6}, 1: {"producer": 10, "server": 10}}
    assert report.findings == []


@pytest.mark.full
def test_an_archive_is_a_tier(
    spark: SparkSession,
    bootstrap_servers: str,
    make_topic: MakeTopic,
    counting: Callable[[], Audit],
    balance: Callable[..., Report],
    tmp_path: Path,
) -> None:
    topic = make_topic(2)
    producer = counting().producer(Producer({"bootstrap.servers": bootstrap_servers}))
    for partition in range(2):
        produce(producer, topic, numbered(range(10), at(0), partition))
    with open_archive(ArchiveRequest(topic, str(tmp_path / "archive"), bootstrap_servers)) as job:
        job.run(spark, on_batch=lambda _: None)
    produce(producer, topic, numbered(range(10, 14), at(1), 1))
    producer.close()

    report = balance(topic, archives=[str(tmp_path / "archive")])

    assert counts(report) == {
        0: {"producer": 20, "server": 20, "archive": 20},
        1: {"producer": 4, "server": 4, "archive": 0},
    }
    assert found(report) == [("missing", "archive", 1, 4)]
    assert one(report, Kind.MISSING, "archive").behind == 4


@pytest.mark.full
def test_a_time_range_and_longer_windows(
    bootstrap_servers: str, make_topic: MakeTopic, counting: Callable[[], Audit], balance: Callable[..., Report]
) -> None:
    topic = make_topic()
    producer = counting().producer(Producer({"bootstrap.servers": bootstrap_servers}))
    for window in range(10):
        produce(producer, topic, numbered(range(10), at(window)))
    producer.close()

    by_two = balance(topic, window_ms=2 * MINUTE_MS, from_ms=at(3), until_ms=at(8))

    # The first window begins at a multiple of its length; a window that does not end in the range is omitted.
    assert counts(by_two) == {window: {"producer": 20, "server": 20} for window in (2, 4, 6)}
    with pytest.raises(AuditError, match=r"windows of 90 s cannot be balanced.*windows of 60 s"):
        balance(topic, window_ms=90_000)


@pytest.mark.full
def test_an_open_window_is_not_balanced_and_later_records_are_late(
    spark: SparkSession, bootstrap_servers: str, make_topic: MakeTopic, audit_topic: str, counting: Callable[[], Audit]
) -> None:
    topic = make_topic()
    audit = counting()
    producer = audit.producer(Producer({"bootstrap.servers": bootstrap_servers}))
    for window in range(2):
        produce(producer, topic, numbered(range(10), at(window)))
    consumer = audit.consumer(confluent_consumer(bootstrap_servers), group="billing")
    read(consumer, topic, 0, range(8))
    audit.flush()
    request = AuditRequest(bootstrap_servers, audit_topic=audit_topic, watermark_ms=WATERMARK_MS)

    before = run_audit(spark, request, lambda *_: at(1))
    read(consumer, topic, 0, range(8, 20))
    consumer.close()
    after = run_audit(spark, request, lambda *_: at(1))

    assert [window.state for window in before.windows] == [State.UNBALANCED, State.OPEN]
    assert found(before) == [("missing", "consumer billing", 0, 2)]
    assert found(after) == []
    late = with_late_counts(after.windows[0], before.windows[0])
    assert [(each.kind, each.tier, each.count) for each in late.findings] == [(Kind.LATE, "consumer billing", 2)]


@pytest.mark.full
def test_topics_that_cannot_be_audited_are_rejected(
    client: Client,
    bootstrap_servers: str,
    make_topic: MakeTopic,
    counting: Callable[[], Audit],
    balance: Callable[..., Report],
) -> None:
    with pytest.raises(AuditError, match=r"there is no topic audit-.*there are no counts"):
        balance()
    compacted = make_topic(1, {"cleanup.policy": "compact"})
    producer = counting().producer(Producer({"bootstrap.servers": bootstrap_servers}))
    produce(producer, compacted, numbered(range(3), at(0)))
    producer.close()

    with pytest.raises(AuditError, match=f"{compacted} is compacted"):
        balance(compacted)
    with pytest.raises(AuditError, match="there are no counts of other"):
        balance("other")
