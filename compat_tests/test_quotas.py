"""Client quotas: librdkafka is throttled, kafka-configs sets and describes them."""

from __future__ import annotations

import pytest

from moldau.compat_tests.conftest import OpenClient
from moldau.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from moldau.testing import Broker
from moldau.testing.clients.java import JavaClient
from moldau.testing.wire import WireClient

RATE = 100_000.0  # bytes per second; a burst of a megabyte passes


def test_librdkafka_is_throttled() -> None:
    from confluent_kafka import Consumer, Producer, ThrottleEvent, TopicPartition

    throttled: list[ThrottleEvent] = []
    with Broker() as broker:
        entity = [EntityData(entity_type="client-id", entity_name="limited")]
        ops = [OpData(key=key, value=RATE) for key in ("producer_byte_rate", "consumer_byte_rate")]
        with WireClient(broker.bootstrap_servers) as wire:
            request = AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=ops)])
            assert wire.call(request).entries[0].error_code == 0
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "client.id": "limited",
            "throttle_cb": throttled.append,
        }
        producer = Producer(settings)
        for number in range(11):
            producer.produce("events", bytes(100_000), key=str(number))
            producer.flush(60)
        assert len(producer) == 0
        assert throttled
        assert max(event.throttle_time for event in throttled) > 0
        throttled.clear()
        consumer = Consumer({**settings, "group.id": "g", "fetch.message.max.bytes": 200_000})
        consumer.assign([TopicPartition("events", 0, 0)])
        keys: list[bytes | None] = []
        while len(keys) < 11:
            message = consumer.poll(60)
            assert message is not None
            assert message.error() is None
            keys.append(message.key())
        consumer.close()
        assert keys == [str(number).encode() for number in range(11)]
        assert "Traceback" not in broker.log()


@pytest.mark.slow
def test_kafka_configs(client_of: OpenClient) -> None:
    java = client_of("java")
    assert isinstance(java, JavaClient)
    with Broker() as broker:

        def configs(*arguments: str) -> str:
            result = java.tool(
                "kafka.admin.ConfigCommand", ["--bootstrap-server", broker.bootstrap_servers, *arguments]
            )
            assert result.exit_code == 0, result
            return result.stdout

        user = ("--entity-type", "users", "--entity-name", "alice")
        configs("--alter", *user, "--add-config", "producer_byte_rate=1024,consumer_byte_rate=2048")
        described = configs("--describe", *user)
        assert "producer_byte_rate=1024.0" in described
        assert "consumer_byte_rate=2048.0" in described
        configs("--alter", *user, "--delete-config", "producer_byte_rate")
        assert "producer_byte_rate" not in configs("--describe", *user)
