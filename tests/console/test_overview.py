"""The first screen, and the transactions that block readers."""

from __future__ import annotations

from collections.abc import Callable
from html import unescape
from typing import Any

import pytest

from moldau.cli.client import connect
from moldau.cli.cluster import Cluster
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ErrorCode
from moldau.protocol.records import Record, build_batch
from moldau.testing import Broker
from moldau.testing.builders import PRODUCE_VERSION, produce_request
from moldau.testing.topic_requests import create_topic
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

from .conftest import Console
from .test_groups import offsets as cells
from .test_messages import NewTopic, places

confluent_kafka = pytest.importorskip("confluent_kafka")

_TIMEOUT_S = 180


def test_the_first_screen_has_what_the_doctor_finds_and_the_brokers(console: Console, bootstrap_servers: str) -> None:
    cluster = Cluster(connect(bootstrap_servers))
    brokers = cluster.broker_ids()
    cluster.close()
    page = console.get("/").text
    assert "checks passed" in page
    assert "is reachable" in page
    assert [row[0] for row in cells(page)] == [str(broker) for broker in brokers]
    assert "free" in cells(page)[0][4]


def test_a_problem_is_first_with_what_to_do(new_console: Callable[..., Console], unused_port: int) -> None:
    page = new_console(f"127.0.0.1:{unused_port}").get("/")
    assert page.status == 200
    assert f"cannot reach 127.0.0.1:{unused_port}" in page.text
    assert "Start one" in page.text
    assert "Nothing is wrong" not in page.text


def test_a_part_whose_request_fails_says_so_in_its_place(new_console: Callable[..., Console]) -> None:
    with Broker(thread=True) as broker:
        create_topic(broker.bootstrap_servers, "events")
        settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "readers", "client.id": "reader"}
        consumer = confluent_kafka.Consumer(settings)
        consumer.subscribe(["events"])
        wait_until(lambda: consumer.poll(0.1) is not None or consumer.assignment())
        console = new_console(broker.bootstrap_servers)
        whole = console.get("/").text
        facts, disks, members = "<dt>Partitions</dt>", " free</span>", '<th scope="row">reader</th>'
        assert all(part in whole for part in (facts, disks, members))
        for api, text, others in (
            (ApiKey.DESCRIBE_LOG_DIRS, "not described: the broker did not respond", (facts, members)),
            (ApiKey.DESCRIBE_CLUSTER, "The cluster cannot be described: ", (members,)),
            (ApiKey.LIST_GROUPS, "Members are missing: ", (facts, disks)),
            (ApiKey.DESCRIBE_GROUPS, "Members are missing: ", (facts, disks)),
        ):
            with broker.faults.disconnect(api, client_id="moldau-console"):
                page = console.get("/")
                assert api is not ApiKey.DESCRIBE_LOG_DIRS or console.get("/topics").status == 200
            assert page.status == 200
            assert text in unescape(page.text), page.text
            assert [part for part in others if part not in page.text] == []
        with broker.faults.error(ApiKey.DESCRIBE_GROUPS, ErrorCode.GROUP_AUTHORIZATION_FAILED):
            for screen in ("/", "/clients"):
                page = console.get(screen)
                assert page.status == 200
                assert "Members are missing: readers: GROUP_AUTHORIZATION_FAILED" in page.text
        assert all(part in console.get("/").text for part in (facts, disks, members))
        consumer.close()


@pytest.fixture
def transaction(bootstrap_servers: str) -> Callable[[str], Any]:
    """``transaction(topic)``: a transaction with one record that is not committed."""

    def begin(topic: str) -> Any:
        settings = {"bootstrap.servers": bootstrap_servers, "transactional.id": f"id-<b>-{topic}", "log_level": 0}
        producer = confluent_kafka.Producer(settings)
        producer.init_transactions(_TIMEOUT_S)
        producer.begin_transaction()
        producer.produce(topic, b"open", partition=0)
        assert producer.flush(_TIMEOUT_S) == 0
        return producer

    return begin


def test_an_open_transaction_is_shown_and_aborted(
    console: Console, new_topic: NewTopic, transaction: Callable[[str], Any]
) -> None:
    topic = new_topic()
    producer = transaction(topic)
    page = console.get(f"/transactions?topic={topic}").text
    ((name, partition, offset, blocked, transactional_id, _producer, _since, _abort),) = cells(page)
    assert (name, partition, offset, blocked) == (topic, "0", "0", "1")
    assert transactional_id == f"id-<b>-{topic} Ongoing"
    assert "<b>-" not in page
    assert places(console.get(f"/topics/{topic}?committed=1").text) == []
    answer = console.post("/transactions/abort", {"id": f"id-<b>-{topic}"})
    assert answer.status == 303, answer.text
    wait_until(lambda: "No transaction is open" in console.get(f"/transactions?topic={topic}").text)
    with pytest.raises(confluent_kafka.KafkaException):
        producer.commit_transaction(_TIMEOUT_S)
    again = console.post("/transactions/abort", {"id": f"id-<b>-{topic}"})
    assert "has no open transaction any more" in unescape(again.text)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"id": "no-such-id"}, "does not exist any more"),
        ({"topic": "no-such-topic", "partition": "0", "offset": "0"}, "does not exist"),
        ({"partition": "x"}, "is not a number"),
    ],
)
def test_a_transaction_that_does_not_exist_is_not_aborted(
    console: Console, fields: dict[str, str], problem: str
) -> None:
    answer = console.post("/transactions/abort", fields)
    status = 400 if problem == "is not a number" else 404
    assert (answer.status, problem in unescape(answer.text)) == (status, True), answer.text


def test_a_hanging_transaction_is_aborted_in_its_partition(new_console: Callable[..., Console]) -> None:
    # Without verification, a batch of a transaction that the coordinator does not know is accepted.
    with Broker(thread=True, config={"transaction.partition.verification.enable": "false"}) as broker:
        create_topic(broker.bootstrap_servers, "events")
        with WireClient(broker.bootstrap_servers) as wire:
            records = [Record(0, 1_700_000_000_000, None, b"hangs")]
            batch = build_batch(records, producer_id=77, producer_epoch=3, base_sequence=0, transactional=True)
            request = produce_request("events", batch, acks=-1)
            request.transactional_id = "hangs"
            assert wire.call(request, PRODUCE_VERSION).responses[0].partition_responses[0].error_code == 0
        console = new_console(broker.bootstrap_servers)
        (row,) = cells(console.get("/transactions").text)
        assert row[:5] == ["events", "0", "0", "1", "hanging unknown to its coordinator"]
        assert places(console.get("/topics/events?committed=1").text) == []
        fields = {"topic": "events", "partition": "0", "offset": "0"}
        assert console.post("/transactions/abort", fields).status == 303
        assert "No transaction is open" in console.get("/transactions").text
        assert "any more" in unescape(console.post("/transactions/abort", fields).text)
