"""Subscriptions of client metrics (KIP-714), with Apache Kafka's own tool."""

from __future__ import annotations

from moldau.compat_tests.conftest import OpenClient
from moldau.testing.clients.java import JavaClient

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
