"""The screen of clients: what they report (KIP-714), their software, and subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from html import unescape

import pytest

pytest.importorskip("starlette", reason="needs pip install 'moldau[console]'")

from moldau.cli.main import main
from moldau.cli.top.endpoint import Address
from moldau.console.clients import SUBSCRIPTION, Sample, clients_in
from moldau.server.processes.free_ports import FreePorts
from moldau.testing import Broker
from moldau.testing.waiting import wait_until

from .conftest import Console
from .test_groups import offsets as cells


@pytest.mark.parametrize("address", ["localhost", "http://host:1", "host:port"])
def test_wrong_addresses_are_explained(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        main(["console", "--metrics", address])
    assert exited.value.code == 2
    assert "--metrics" in capsys.readouterr().err


def test_the_latency_of_a_client_is_that_of_the_slowest_node() -> None:
    one = {"client_id": "a", "client_instance_id": "i", "client_software_name": "librdkafka"}
    found = clients_in(
        [
            Sample("kafka_client_producer_node_request_latency_avg", {**one, "node_id": "1"}, 2.0),
            Sample("kafka_client_producer_node_request_latency_avg", {**one, "node_id": "2"}, 7.0),
            Sample("kafka_client_producer_node_request_latency_max", {**one, "node_id": "1"}, 9.0),
            Sample("kafka_client_producer_produce_throttle_time_avg", one, 3.0),
            Sample("kafka_client_consumer_poll_idle_ratio_avg", {**one, "client_instance_id": "j"}, 0.5),
            Sample("kafka_topic_partitions", {"topic": "t"}, 1.0),
        ]
    )
    first, second = found
    assert (first.latency, first.throttled) == ({"avg": 7.0, "max": 9.0}, {"avg": 3.0})
    assert first.series[1] == ("producer node request latency avg", "node_id 2", 7.0)
    assert (second.kinds, second.latency) == ({"consumer"}, {})


@pytest.fixture(scope="module")
def measured() -> Iterator[str]:
    """The bootstrap servers of a broker with metrics."""
    with closing(FreePorts()) as ports:
        address = f"127.0.0.1:{ports('127.0.0.1', 0)}"
        with Broker(config={"moldau.metrics.listener": address}) as broker:
            yield broker.bootstrap_servers


def test_a_subscribed_client_reports_its_latency(measured: str) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    bootstrap_servers = measured
    console = Console(bootstrap_servers)
    try:
        assert "No client has pushed metrics" in console.get("/clients").text
        answer = console.post("/clients", {"action": "subscribe", "seconds": "1"})
        assert answer.status == 303, answer.text
        wait_until(lambda: SUBSCRIPTION in console.get("/clients").text)
        producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap_servers, "client.id": "<slow>"})

        def reported() -> bool:
            producer.produce("latencies", b"x")
            assert producer.flush(60) == 0
            return any(row[0] == "<slow>" and row[3].endswith(" ms") for row in cells(console.get("/clients").text))

        wait_until(reported)
        page = console.get("/clients").text
        assert "<slow>" not in page
        assert "confluent-kafka-python" in page
        assert "Connections by software" in page
        assert console.post("/clients", {"action": "unsubscribe"}).status == 303
        wait_until(lambda: "There are no subscriptions" in console.get("/clients").text)
    finally:
        console.close()


def test_without_metrics_the_page_says_how_to_get_them(console: Console) -> None:
    page = console.get("/clients")
    assert page.status == 200
    assert "moldau serve --metrics" in page.text


def test_metrics_that_cannot_be_read_are_explained(
    new_console: Callable[..., Console], console: Console, unused_port: int
) -> None:
    addresses = [Address("127.0.0.1", unused_port), Address("127.0.0.1", console.port)]
    page = unescape(new_console(metrics=addresses).get("/clients").text)
    assert f"the metrics of 127.0.0.1:{unused_port} cannot be read: connection refused" in page
    assert f"the metrics of 127.0.0.1:{console.port} cannot be read: the response to /metrics is 404" in page


@pytest.mark.parametrize("fields", [{"action": "explode"}, {"action": "subscribe", "seconds": "soon"}])
def test_a_wrong_change_is_explained(console: Console, fields: dict[str, str]) -> None:
    answer = console.post("/clients", fields)
    assert answer.status == 400
    assert fields[next(reversed(fields))] in answer.text
