"""Client metrics (KIP-714): subscriptions with Apache Kafka's own tool, and real clients that push by themselves."""

from __future__ import annotations

import math
import re
import subprocess
import urllib.request

from confluent_kafka import Producer

from moldau.compat_tests.conftest import OpenClient
from moldau.testing import Broker
from moldau.testing.clients.java import JavaClient, java_command
from moldau.testing.config_requests import CLIENT_METRICS, SET, alter
from moldau.testing.topic_requests import create_topic
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

LATENCY = "kafka_client_producer_request_latency_avg"

TOOL = "org.apache.kafka.tools.ClientMetricsCommand"


def test_kafka_client_metrics_creates_describes_lists_and_deletes_a_subscription(
    client_of: OpenClient, bootstrap_servers: str
) -> None:
    java = client_of("java")
    assert isinstance(java, JavaClient)

    def run(*arguments: str) -> list[str]:
        result = java.tool(TOOL, ["--bootstrap-server", bootstrap_servers, *arguments])
        assert result.exit_code == 0, result
        return [line.strip() for line in result.stdout.splitlines()]

    name, settings = ("--name", "latency"), ("--metrics", "a.,b.", "--interval", "2000", "--match", "client_id=x.*")
    run("--alter", *name, *settings)
    assert {"interval.ms=2000", "match=client_id=x.*", "metrics=a.,b."} <= set(run("--describe", *name))
    assert "latency" in run("--list")
    run("--delete", *name)
    assert "latency" not in run("--list")


def latencies(address: str) -> dict[str, float]:
    """The highest latency that each producer has pushed, by client ID.

    The Java client has one for each connection. It is NaN where nothing was sent, as for the bootstrap address.
    """
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as response:
        text = response.read().decode()
    found: dict[str, float] = {}
    for client_id, value in re.findall(rf'^{LATENCY}{{client_id="([^"]*)",[^}}]*}} (.*)$', text, re.MULTILINE):
        if not math.isnan(float(value)):
            found[client_id] = max(float(value), found.get(client_id, 0.0))
    return found


def test_librdkafka_and_the_java_client_push_their_latencies_if_there_is_a_subscription() -> None:
    with Broker(config={"moldau.metrics.listener": "127.0.0.1:0"}) as broker:
        listener = re.search(r"Metrics at http://(\S+)/metrics", broker.log())
        assert listener is not None, broker.log()
        address = listener[1]
        create_topic(broker.bootstrap_servers, "orders")
        with WireClient(broker.bootstrap_servers) as wire:
            metrics = ("metrics", SET, "org.apache.kafka.producer.request.latency")
            assert alter(wire, CLIENT_METRICS, "latency", metrics, ("interval.ms", SET, "200")) == "NONE"
            assert alter(wire, CLIENT_METRICS, "latency", ("match", SET, "client_id=librdkafka|java")) == "NONE"
        producers = [
            Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": name, "log_level": 0})
            for name in ("librdkafka", "other")
        ]

        def pushed() -> dict[str, float] | None:
            for producer in producers:
                producer.produce("orders", b"1")
                producer.poll(0)
            found = latencies(address)
            return found if found.get("librdkafka", 0) > 0 else None

        assert wait_until(pushed, LATENCY, pause=0.1).keys() == {"librdkafka"}
        for producer in producers:
            producer.flush()
        # On a busy machine the first push takes longer than the tool's 1.5 s, and after a timeout the client waits for
        # five minutes.
        command = [*java_command("org.apache.kafka.tools.ConsoleProducer"), "--topic", "orders",
                   "--bootstrap-server", broker.bootstrap_servers, "--command-property", "client.id=java",
                   "--request-timeout-ms", "60000"]  # fmt: skip
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as java:
            assert java.stdin is not None
            try:
                java.stdin.write("2\n")
                java.stdin.flush()
                wait_until(lambda: "java" in latencies(address), LATENCY, pause=0.1)
            finally:
                java.terminate()
