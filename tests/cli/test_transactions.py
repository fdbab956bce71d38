"""`moldau transactions` against a real server, with confluent-kafka's producer."""

from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest
from confluent_kafka import KafkaException, Producer

from moldau.protocol.records import Record, build_batch
from moldau.testing import Broker
from moldau.testing.topic_requests import produce_request
from moldau.testing.wire import WireClient

from .conftest import Run

TIMEOUT_S = 120


@pytest.fixture
def new_id() -> str:
    return f"cli-{uuid4().hex[:8]}"


@pytest.fixture
def producer(bootstrap_servers: str, new_id: str) -> Producer:
    """A transactional producer that is ready to begin."""
    made = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": new_id, "log_level": 0})
    made.init_transactions(TIMEOUT_S)
    return made


def write(producer: Producer, topic: str, *values: str, partition: int = 0) -> None:
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(TIMEOUT_S) == 0


def test_a_transactional_id_is_listed_with_its_state(
    ask: Run, producer: Producer, new_id: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    producer.begin_transaction()
    write(producer, topic, "a")

    listed = {each["transactional_id"]: each["state"] for each in ask("transactions", "list", "--json").json()}
    assert listed[new_id] == "Ongoing"
    producer.commit_transaction(TIMEOUT_S)
    (only,) = ask("transactions", "list", "--matching", new_id, "--state", "CompleteCommit", "--json").json()
    assert only["transactional_id"] == new_id
    assert ask("transactions", "list", "--matching", new_id).lines[1].split()[:2] == [new_id, "CompleteCommit"]


def test_transactions_are_filtered_by_duration(
    ask: Run, producer: Producer, new_id: str, new_topic: Callable[..., str]
) -> None:
    producer.begin_transaction()
    write(producer, new_topic(), "a")

    # Both clocks count whole milliseconds, and all of this can happen within one: retry until it has passed.
    while not ask("transactions", "list", "--matching", new_id, "--longer-than", "1ms", "--json").json():
        assert ask("transactions", "list", "--matching", new_id, "--state", "Ongoing", "--json").json()
    long = ask("transactions", "list", "--matching", new_id, "--longer-than", "1h")
    assert (long.code, long.text, long.err) == (0, "", "No matching transactions.\n")
    producer.abort_transaction(TIMEOUT_S)


def test_an_open_transaction_is_described_with_where_it_has_written(
    ask: Run, producer: Producer, new_id: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(2)
    producer.begin_transaction()
    write(producer, topic, "a")
    producer.abort_transaction(TIMEOUT_S)
    producer.begin_transaction()
    write(producer, topic, "b", "c")
    write(producer, topic, "d", partition=1)

    (described,) = ask("transactions", "describe", new_id, "--json").json()

    assert (described["state"], described["timeout_ms"]) == ("Ongoing", 60_000)
    assert described["partitions"] == [
        {"topic": topic, "partition": 0, "start_offset": 2},
        {"topic": topic, "partition": 1, "start_offset": 0},
    ]
    text = ask("transactions", "describe", new_id).text
    assert f"{new_id}: Ongoing\nproducer     {described['producer_id']}, epoch" in text
    assert "timeout      60 s" in text
    producer.commit_transaction(TIMEOUT_S)
    (after,) = ask("transactions", "describe", new_id, "--json").json()
    assert (after["state"], after["started_ms"], after["partitions"]) == ("CompleteCommit", None, [])


def test_an_unknown_transactional_id_is_reported_with_the_others(ask: Run, producer: Producer, new_id: str) -> None:
    described = ask("transactions", "describe", "unknown", new_id, "--json")

    assert described.code == 1
    assert [each["transactional_id"] for each in described.json()] == [new_id]
    assert "unknown: the transactional id does not exist; `moldau transactions list` lists them" in described.err


def test_abort_discards_the_records_and_fences_the_producer(
    ask: Run, bootstrap_servers: str, producer: Producer, new_id: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    producer.begin_transaction()
    write(producer, topic, "a")

    aborted = ask("transactions", "abort", new_id)

    assert aborted.code == 0, aborted.err
    assert f"Aborted the transaction of {new_id}" in aborted.text
    with pytest.raises(KafkaException):
        producer.commit_transaction(TIMEOUT_S)
    assert ask("consume", topic, "--from-beginning", "--read-committed").text == ""
    again = ask("transactions", "abort", new_id)
    assert again.code == 1
    assert f"{new_id} has no open transaction: its state is" in again.err


def test_abort_does_not_create_a_transactional_id(ask: Run) -> None:
    assert ask("transactions", "abort", "unknown").code == 1
    assert "unknown" not in [each["transactional_id"] for each in ask("transactions", "list", "--json").json()]


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("some-id", "--topic", "t", "--partition", "0", "--start-offset", "0"),
        ("--topic", "t"),
        ("--partition", "0"),
    ],
)
def test_abort_requires_exactly_one_selection(ask: Run, arguments: tuple[str, ...]) -> None:
    assert ask("transactions", "abort", *arguments).code == 2


def test_a_transaction_known_to_its_coordinator_is_not_hanging(
    ask: Run, producer: Producer, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    producer.begin_transaction()
    write(producer, topic, "a")

    found = ask("transactions", "find-hanging", "--topic", topic, "--older-than", "0s")

    assert (found.code, found.text, found.err) == (0, "", "No hanging transactions.\n")
    producer.abort_transaction(TIMEOUT_S)


def test_an_unknown_topic_is_reported(ask: Run) -> None:
    found = ask("transactions", "find-hanging", "--topic", "nowhere")

    assert found.code == 1
    assert "nowhere: the topic or partition does not exist; `moldau topics list` lists topics" in found.err


@pytest.fixture(scope="module")
def lenient() -> Iterator[Broker]:
    """A broker that accepts transactional records outside of a transaction, as before KIP-890."""
    with Broker(config={"transaction.partition.verification.enable": "false"}) as broker:
        yield broker


def test_a_hanging_transaction_is_found_and_aborted(run: Run, lenient: Broker) -> None:
    servers = lenient.bootstrap_servers
    assert run("topics", "create", "hung", "-b", servers).code == 0
    record = Record(timestamp=1_700_000_000_000, key=b"k", value=b"v")
    batch = build_batch([record], producer_id=4711, producer_epoch=3, base_sequence=0, transactional=True)
    request = produce_request("hung", batch)
    request.transactional_id = "gone"
    with WireClient(servers) as wire:
        ((answer,),) = [topic.partition_responses for topic in wire.call(request, 11).responses]
    assert answer.error_code == 0

    (found,) = run("transactions", "find-hanging", "-b", servers, "--json").json()
    assert (found["topic"], found["partition"], found["start_offset"], found["producer_id"]) == ("hung", 0, 0, 4711)
    text = run("transactions", "find-hanging", "-b", servers).text
    assert "moldau transactions abort --topic hung --partition 0 --start-offset 0" in text
    wrong = run("transactions", "abort", "--topic", "hung", "--partition", "0", "--start-offset", "7", "-b", servers)
    assert wrong.code == 1
    assert "no open transaction starts at offset 7 of hung-0" in wrong.err

    ended = run("transactions", "abort", "--topic", "hung", "--partition", "0", "--start-offset", "0", "-b", servers)

    assert ended.code == 0, ended.err
    assert run("transactions", "find-hanging", "-b", servers, "--json").json() == []
