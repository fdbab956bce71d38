"""Java and franz-go over SASL_SSL, with the settings of `Broker.client_config`: records, offsets of groups, topics.

The user has ACLs for exactly what it does. Moldau only: these are the configurations of clients, and Apache Kafka
accepts them by definition. `test_sasl` has kafka-python, librdkafka and the console tools.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moldau.testing import Broker
from moldau.testing.client import ClientError, Record
from moldau.testing.clients.franz_go import FranzGoClient
from moldau.testing.clients.java import JavaClient
from moldau.testing.clients.program import ProgramClient
from moldau.testing.full_run import first_of

pytestmark = pytest.mark.slow

MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
ACLS = (
    "alice create topic events- --prefix",
    "alice describe-configs topic events- --prefix",
    "alice read topic events- --prefix",
    "alice write topic events- --prefix",
    "alice delete topic events- --prefix",
    "alice read group readers",
)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(tls=True, users={"alice": "p,a=s s"}, acls=ACLS) as broker:
        yield broker
        assert "Traceback" not in broker.log()
        assert "p,a=s s" not in broker.log()


def open_as_alice(kind: type[ProgramClient], broker: Broker, mechanism: str) -> ProgramClient:
    settings = "java" if kind is JavaClient else "confluent-kafka"
    return kind(broker.bootstrap_servers, broker.client_config("alice", client=settings, mechanism=mechanism))


@pytest.mark.parametrize("mechanism", first_of(MECHANISMS))
@pytest.mark.parametrize("kind", [JavaClient, FranzGoClient], ids=["java", "franz-go"])
def test_records_groups_and_topics(broker: Broker, kind: type[ProgramClient], mechanism: str) -> None:
    topic = f"events-{kind.name}-{mechanism}"
    with open_as_alice(kind, broker, mechanism) as client:
        client.send_create_topic(topic, 2, {})
        records = [Record(partition=number % 2, value=b"%d" % number) for number in range(100)]
        sent = client.produce(topic, records, idempotent=True)
        assert [(each.partition, each.offset) for each in sent] == [(number % 2, number // 2) for number in range(100)]
        values = [received.value for partition in (0, 1) for received in client.read(topic, partition)]
        assert sorted(values, key=int) == [record.value for record in records]  # type: ignore[arg-type]
        client.commit_offset("readers", topic, 0, 7)
        assert client.committed_offset("readers", topic, 0) == 7
        assert topic in client.topics()
        with pytest.raises(ClientError) as refused:
            client.commit_offset("others", topic, 0, 7)
        assert refused.value.code == "GROUP_AUTHORIZATION_FAILED"
        with pytest.raises(ClientError) as refused:
            client.send_create_topic("others", 1, {})
        assert refused.value.code == "TOPIC_AUTHORIZATION_FAILED"
        client.delete_topic(topic)


def test_tools_of_apache_kafka(broker: Broker, tmp_path: Path) -> None:
    """Topics, records and groups, by the command-line tools with ``--command-config``."""
    path = tmp_path / "alice.properties"
    settings = broker.client_config("alice", client="java", mechanism="SCRAM-SHA-512")
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    with JavaClient(broker.bootstrap_servers) as java:

        def tool(main_class: str, *arguments: str, standard_input: str = "") -> Any:
            common = ["--bootstrap-server", broker.bootstrap_servers, "--command-config", str(path)]
            return java.tool(main_class, [*common, *arguments], standard_input)

        created = tool("org.apache.kafka.tools.TopicCommand", "--create", "--topic", "events-tools")
        assert created.exit_code == 0, created
        produced = tool("org.apache.kafka.tools.ConsoleProducer", "--topic", "events-tools", standard_input="a\nb\n")
        assert produced.exit_code == 0, produced
        consumed = tool(
            "org.apache.kafka.tools.consumer.ConsoleConsumer", "--topic", "events-tools", "--from-beginning",
            "--max-messages", "2", "--timeout-ms", "60000", "--group", "readers",
        )  # fmt: skip
        assert sorted(consumed.stdout.split()) == ["a", "b"], consumed
        listed = tool("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--list")
        assert listed.stdout.split() == ["readers"], listed
        refused = tool("org.apache.kafka.tools.AclCommand", "--list")
        assert "ClusterAuthorizationException" in refused.stdout + refused.stderr
