"""Client quotas: librdkafka is throttled, kafka-configs sets and describes them."""

from __future__ import annotations

from uuid import uuid4

import pytest

from moldau.compat_tests.conftest import OpenClient
from moldau.protocol.codec import encode
from moldau.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from moldau.testing import Broker
from moldau.testing.builders import batch, fetch_request, produce
from moldau.testing.clients.java import JavaClient
from moldau.testing.topic_requests import create_topic, wait_for_topic
from moldau.testing.waiting import wait_until
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


def test_librdkafka_is_throttled_because_of_the_time_of_its_requests() -> None:
    """The quota is so small that every request exceeds it."""
    from confluent_kafka import Producer, ThrottleEvent

    throttled: list[ThrottleEvent] = []
    with Broker() as broker:
        ops = [OpData(key="request_percentage", value=1e-6)]
        entity = [EntityData(entity_type="user", entity_name=None)]
        with WireClient(broker.bootstrap_servers) as wire:
            request = AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=ops)])
            assert wire.call(request).entries[0].error_code == 0
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "throttle_cb": throttled.append})
        producer.produce("events", b"one")
        assert producer.flush(60) == 0
        wait_until(lambda: (producer.poll(0.1), throttled)[1])
        assert {event.throttle_time for event in throttled} == {1.0}
        assert "Traceback" not in broker.log()


@pytest.mark.one_broker
def test_the_bytes_that_count_for_a_consumer(bootstrap_servers: str) -> None:
    """The body of the response and its length. After the first sample, the throttle time tells the number of bytes."""
    topic, rate, window_ms = f"fetched-{uuid4().hex[:8]}", 10.0, 10_000
    request = fetch_request(topic)
    client_id = f"limited-{topic}"
    create_topic(bootstrap_servers, topic)
    wait_for_topic(bootstrap_servers, topic, 1)
    with WireClient(bootstrap_servers, client_id=client_id) as limited, WireClient(bootstrap_servers) as wire:
        assert produce(wire, topic, batch(bytes(1000))).error_code == 0
        entity = [EntityData(entity_type="client-id", entity_name=client_id)]
        ops = [OpData(key="consumer_byte_rate", value=rate)]
        alteration = AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=ops)])
        assert wire.call(alteration).entries[0].error_code == 0
        served = wire.call(request, 12)
        assert served.throttle_time_ms == 0
        throttled = limited.call(request, 12)
    size = 4 + len(encode(served, 12))
    assert (throttled.throttle_time_ms, throttled.responses) == (round(size / rate * 1000) - window_ms, [])


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
        configs("--alter", *user, "--add-config", "request_percentage=12.5")
        assert "request_percentage=12.5" in configs("--describe", *user)
        address = ("--entity-type", "ips", "--entity-name", "10.1.2.3")
        configs("--alter", *address, "--add-config", "connection_creation_rate=5")
        assert "connection_creation_rate=5.0" in configs("--describe", *address)
        configs("--alter", "--entity-type", "ips", "--entity-default", "--add-config", "connection_creation_rate=7")
        assert "connection_creation_rate=7.0" in configs("--describe", "--entity-type", "ips")
