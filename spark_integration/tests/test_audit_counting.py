"""Counting and sending: the messages of the audit topic, without a server and without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.spark_integration.audit import Audit, Counter
from moldau.spark_integration.audit.book import MAX_RUNS, Book, Rule
from moldau.spark_integration.audit.page import Owner

RULE = Rule(window_ms=1000, every_records=5, every_s=10)


class MemoryChannel:
    """The audit topic as a list. Messages that are sent while it is broken fail immediately."""

    def __init__(self) -> None:
        self.messages: list[tuple[bytes, bytes]] = []
        self.is_broken = False

    def send(self, key: bytes, value: bytes, on_failure: Callable[[], None]) -> None:
        if self.is_broken:
            on_failure()
        else:
            self.messages.append((key, value))

    def flush(self, timeout_s: float) -> bool:
        return True

    def close(self) -> None:
        """There is nothing to close."""

    @property
    def pages(self) -> dict[bytes, dict[str, Any]]:
        """The state of a reader: the last revision of each page, in any order."""
        last: dict[bytes, dict[str, Any]] = {}
        for key, value in self.messages:
            page = json.loads(value)
            if page["kind"] == "page" and page["revision"] > last.get(key, {"revision": 0})["revision"]:
                last[key] = page
        return last


def new_book(rule: Rule = RULE) -> Book:
    return Book(Owner("producer", "p-1"), rule, now_s=0)


def take(book: Book, now_s: float = 0) -> list[dict[str, Any]]:
    return [json.loads(message.value) for message in book.take(now_s, time_ms=7)]


def test_a_page_has_all_fields() -> None:
    book = Book(Owner("consumer", "c-1", "billing", from_earliest=True), RULE, now_s=0)
    for offset in (4, 5, 6, 9):
        book.count("orders", 2, offset, 12_345)

    (message,) = book.take(0, time_ms=777)

    assert message.key == b"c-1/1"
    assert json.loads(message.value) == {
        "version": 1,
        "kind": "page",
        "time": 777,
        "tier": "consumer",
        "group": "billing",
        "instance": "c-1",
        "from_earliest": True,
        "page": 1,
        "revision": 1,
        "topic": "orders",
        "partition": 2,
        "window_start": 12_000,
        "window_end": 13_000,
        "count": 4,
        "offsets": [[4, 6], [9, 9]],
        "unplaced": 0,
    }


def test_a_complete_page_is_sent_again_with_the_next_revision() -> None:
    book = new_book()
    book.count("t", 0, 0, 0)
    first = take(book)
    book.count("t", 0, 1, 0)
    second = take(book)

    assert [(page["page"], page["revision"], page["offsets"]) for page in first + second] == [
        (1, 1, [[0, 0]]),
        (1, 2, [[0, 1]]),
    ]
    assert take(book) == []


def test_an_idle_page_is_closed_and_its_window_continues_on_another_page() -> None:
    book = new_book()
    book.count("t", 0, 0, 0)
    take(book)
    take(book)
    book.count("t", 0, 1, 0)

    (page,) = take(book)

    assert (page["page"], page["revision"], page["count"]) == (2, 1, 1)


def test_partitions_and_windows_have_separate_pages() -> None:
    book = new_book()
    for partition, timestamp_ms in ((0, 999), (0, 1000), (1, 999), (0, -1)):
        book.count("t", partition, 0, timestamp_ms)

    assert [(page["partition"], page["window_start"]) for page in take(book)] == [
        (0, 0),
        (0, 1000),
        (1, 0),
        (0, -1000),
    ]


def test_an_offset_that_is_read_twice_is_counted_twice() -> None:
    book = new_book()
    for offset in (0, 1, 2, 1):
        book.count("t", 0, offset, 0)

    (page,) = take(book)

    assert (page["count"], page["offsets"]) == (4, [[0, 2], [1, 1]])


def test_records_without_an_offset_are_counted_as_such() -> None:
    book = new_book()
    for offset in (-1, 0, -1):
        book.count("t", 0, offset, 0)

    (page,) = take(book)

    assert (page["count"], page["offsets"], page["unplaced"]) == (3, [[0, 0]], 2)


def test_counts_are_due_with_the_next_record_after_enough_records_or_time() -> None:
    book = new_book()
    assert not book.due(1000)
    book.count("t", 0, 0, 0)
    assert not book.due(9.9)
    assert book.due(10)
    take(book, now_s=10)
    for offset in range(1, 6):
        assert not book.due(10)
        book.count("t", 0, offset, 0)
    assert book.due(10)


def test_an_undelivered_page_is_sent_again() -> None:
    book = new_book()
    book.count("t", 0, 0, 0)
    (message,) = book.take(0, time_ms=0)
    book.failed(message.page)

    assert book.unsent == 1
    assert book.due(10)
    (page,) = take(book)
    assert (page["page"], page["revision"], page["count"]) == (1, 2, 1)
    assert book.unsent == 0


def test_records_of_a_transaction_are_counted_when_it_is_committed() -> None:
    book = new_book()
    book.begin()
    book.count("t", 0, 0, 0)
    assert take(book) == []
    book.commit()
    assert [page["offsets"] for page in take(book)] == [[[0, 0]]]
    book.begin()
    book.count("t", 0, 2, 0)
    book.abort()
    book.count("t", 0, 4, 0)
    assert [page["offsets"] for page in take(book)] == [[[0, 0], [4, 4]]]


def test_the_size_of_a_page_is_limited() -> None:
    book = new_book()
    for n in range(2 * MAX_RUNS + 1):
        book.count("t", 0, 2 * n, 0)

    assert [len(page["offsets"]) for page in take(book)] == [MAX_RUNS, MAX_RUNS, 1]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.integers(0, 1), st.integers(-1, 20), st.integers(0, 3000)),
            st.sampled_from(["send", "send and lose", "break", "repair"]),
        )
    )
)
def test_after_lost_and_repeated_messages_the_last_pages_contain_each_record_once(steps: list[Any]) -> None:
    channel = MemoryChannel()
    audit = Audit(channel=channel, rule=RULE)
    counter = audit.counter("producer")
    counted: list[tuple[int, int, int]] = []
    for step in steps:
        match step:
            case "send":
                counter.flush()
            case "send and lose":
                # The last messages are duplicated.
                counter.flush()
                channel.messages += channel.messages[-2:]
            case "break" | "repair":
                channel.is_broken = step == "break"
            case partition, offset, timestamp_ms:
                counter.count("t", partition, offset, timestamp_ms)
                counted.append((partition, offset, timestamp_ms // 1000 * 1000))
                counter.send_if_due()
    channel.is_broken = False
    audit.close()

    counted_offsets = [
        (page["partition"], offset, page["window_start"])
        for page in channel.pages.values()
        for offset in [-1] * page["unplaced"]
        + [offset for first, last in page["offsets"] for offset in range(first, last + 1)]
    ]
    assert sorted(counted_offsets) == sorted(counted)
    assert json.loads(channel.messages[-1][1])["kind"] == "closed"


def test_books_with_undelivered_counts_are_not_closed() -> None:
    channel = MemoryChannel()
    audit = Audit(channel=channel)
    counter = audit.counter("producer")
    counter.count("t", 0, 0, 0)
    channel.is_broken = True
    audit.close()
    channel.is_broken = False

    assert channel.messages == []


def test_names_of_instances_are_unique() -> None:
    audit = Audit(channel=MemoryChannel(), application="my app/1")
    names = {audit.counter("producer").instance for _ in range(3)}

    assert len(names) == 3
    assert all(name.startswith("my_app_1-") for name in names)


# -- clients -----------------------------------------------------------------------------------------------------------


class Report(NamedTuple):
    """A delivery report of confluent-kafka, or a received message."""

    at: int
    failure: str | None = None

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return 1, 500

    def error(self) -> str | None:
        return self.failure


class FakeConfluentProducer:
    """Delivers at flush. A value that begins with an exclamation mark fails; one in an aborted transaction does not."""

    def __init__(self) -> None:
        self.reports: list[tuple[Any, bytes]] = []
        self.offset = 0
        self.steps: list[str] = []

    def produce(self, topic: str, value: bytes, *, on_delivery: Any = None) -> None:
        self.reports.append((on_delivery, value))

    def flush(self, timeout: float = -1) -> int:
        reports, self.reports = self.reports, []
        for on_delivery, value in reports:
            on_delivery("an error" if value.startswith(b"!") else None, Report(self.offset))
            self.offset += 1
        return 0

    def begin_transaction(self) -> None:
        self.steps.append("begin")

    def commit_transaction(self) -> None:
        self.steps.append("commit")

    def abort_transaction(self) -> None:
        self.steps.append("abort")

    def produce_batch(self) -> None:
        raise AssertionError("a counting producer must not pass this through")

    def purge(self) -> str:
        return "purged"


class FakeConfluentConsumer:
    def __init__(self) -> None:
        self.left: list[Report] = [Report(0), Report(1, "end of the partition"), Report(2), Report(3)]

    def poll(self, timeout: float) -> Report | None:
        return self.left.pop(0) if self.left else None

    def consume(self, count: int, timeout: float) -> list[Report]:
        taken, self.left = self.left[:count], self.left[count:]
        return taken

    def close(self) -> None:
        self.left = []


def wrapped(client: Any, channel: MemoryChannel) -> Any:
    audit = Audit(channel=channel, rule=RULE)
    return audit.producer(client) if hasattr(client, "produce") else audit.consumer(client, group="g")


def offsets(channel: MemoryChannel) -> list[list[int]]:
    return [run for page in channel.pages.values() for run in page["offsets"]]


def test_a_producer_counts_deliveries_and_still_calls_the_callback_of_the_application() -> None:
    channel = MemoryChannel()
    producer = wrapped(FakeConfluentProducer(), channel)
    reported: list[tuple[object, int]] = []
    producer.produce("t", b"0", on_delivery=lambda error, message: reported.append((error, message.at)))
    producer.produce("t", b"!1", on_delivery=lambda error, message: reported.append((error, message.at)))
    producer.produce("t", b"2")
    assert channel.messages == []
    producer.flush()

    assert offsets(channel) == [[0, 0], [2, 2]]
    assert reported == [(None, 0), ("an error", 1)]
    assert producer.purge() == "purged"


def test_a_producer_counts_a_transaction_when_it_is_committed() -> None:
    channel = MemoryChannel()
    client = FakeConfluentProducer()
    producer = wrapped(client, channel)
    producer.begin_transaction()
    producer.produce("t", b"0")
    producer.flush()
    assert channel.messages == []
    producer.produce("t", b"1")
    producer.commit_transaction()
    producer.begin_transaction()
    producer.produce("t", b"2")
    producer.flush()
    producer.abort_transaction()
    producer.flush()

    assert client.steps == ["begin", "commit", "begin", "abort"]
    assert offsets(channel) == [[0, 1]]


def test_a_way_of_sending_that_cannot_be_counted_is_rejected() -> None:
    producer = wrapped(FakeConfluentProducer(), MemoryChannel())

    with pytest.raises(TypeError, match="produce_batch"):
        producer.produce_batch("t", [{"value": b"0"}])


@pytest.mark.parametrize("read", [lambda consumer: [consumer.poll(1) for _ in range(5)], lambda c: c.consume(10, 1)])
def test_a_consumer_counts_the_records_that_it_returns(read: Callable[[Any], list[Any]]) -> None:
    channel = MemoryChannel()
    consumer = wrapped(FakeConfluentConsumer(), channel)

    assert [message.at for message in read(consumer) if message is not None] == [0, 1, 2, 3]
    consumer.close()

    assert offsets(channel) == [[0, 0], [2, 3]]


def test_an_object_that_is_not_a_client_is_rejected() -> None:
    audit = Audit(channel=MemoryChannel())

    with pytest.raises(TypeError, match=r"list is not a producer.*Audit\.counter"):
        audit.producer([])
    with pytest.raises(TypeError, match="list is not a consumer"):
        audit.consumer([], group="g")
    with pytest.raises(ValueError, match="consumers are counted by group"):
        audit.counter("consumer")
    with pytest.raises(ValueError, match="greater than 0"):
        Rule(window_ms=0)


def test_any_other_client_can_count_with_a_counter() -> None:
    channel = MemoryChannel()
    counter: Counter = Audit(channel=channel, rule=RULE).counter("consumer", "g")
    for offset in range(6):
        counter.send_if_due()
        counter.count("t", 0, offset, 0)

    assert offsets(channel) == [[0, 4]]
