"""confluent-kafka's serializers with Moldau's schema registry, on the server under test."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from moldau.testing.schema_registry import SchemaRegistry
from moldau.testing.topic_requests import create_topic

for package in ("confluent_kafka", "fastavro", "grpc_tools", "jsonschema", "starlette", "uvicorn", "authlib"):
    pytest.importorskip(package, reason="needs pip install 'moldau[registry]' and confluent-kafka[schemaregistry]")

RECORD = {"type": "record", "name": "Order", "fields": [{"name": "amount", "type": "int"}]}
JSON = {"title": "Order", "type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]}


@pytest.fixture(scope="module")
def registry(bootstrap_servers: str) -> Iterator[str]:
    """The address of a registry."""
    with SchemaRegistry(bootstrap_servers) as started:
        yield started.url


@pytest.mark.parametrize("kind", ["AVRO", "JSON", "PROTOBUF"])
def test_what_a_serializer_of_confluent_kafka_writes_its_deserializer_reads(
    bootstrap_servers: str, registry: str, kind: str
) -> None:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.serialization import MessageField, SerializationContext

    client = SchemaRegistryClient({"url": registry})
    serialize, deserialize, value = serializers(kind, client)
    topic = f"orders-{uuid4().hex[:8]}"
    create_topic(bootstrap_servers, topic)
    context = SerializationContext(topic, MessageField.VALUE)
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    producer.produce(topic, serialize(value, context))
    assert producer.flush(120) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(120)
    consumer.close()

    assert message is not None
    assert message.error() is None
    version = client.get_latest_version(f"{topic}-value")
    assert message.value()[:5] == b"\x00" + version.schema_id.to_bytes(4, "big")
    assert deserialize(message.value(), context) == value
    assert version.schema.schema_type == kind


def serializers(kind: str, client: Any) -> tuple[Any, Any, Any]:
    """A serializer, its deserializer, and a value."""
    if kind == "AVRO":
        from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer

        return AvroSerializer(client, json.dumps(RECORD)), AvroDeserializer(client), {"amount": 3}
    if kind == "JSON":
        from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer

        reader = JSONDeserializer(None, schema_registry_client=client)
        return JSONSerializer(json.dumps(JSON), client), reader, {"amount": 3}
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass

    file = FileDescriptorProto(name="orders.proto", syntax="proto3")
    message = file.message_type.add(name="Order")
    message.field.add(
        name="amount", number=1, type=FieldDescriptorProto.TYPE_INT32, label=FieldDescriptorProto.LABEL_OPTIONAL
    )
    pool = DescriptorPool()
    pool.Add(file)
    order = GetMessageClass(pool.FindMessageTypeByName("Order"))
    settings = {"use.deprecated.format": False}
    reader = ProtobufDeserializer(order, settings, schema_registry_client=client)
    return ProtobufSerializer(order, client, settings), reader, order(amount=3)


def test_the_client_of_confluent_kafka_manages_subjects(registry: str) -> None:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, SchemaRegistryError

    client = SchemaRegistryClient({"url": registry})
    old, new = Schema('"long"', "AVRO"), Schema('"int"', "AVRO")
    subject = uuid4().hex

    first = client.register_schema(subject, old)
    assert not client.test_compatibility(subject, new)
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema(subject, new)
    assert refused.value.error_code == 409
    client.set_compatibility(subject, "NONE")
    assert client.get_compatibility(subject) == "NONE"
    assert client.register_schema(subject, new) > first
    assert client.lookup_schema(subject, new).version == 2
    assert client.get_versions(subject) == [1, 2]
    assert client.delete_subject(subject) == [1, 2]
    assert client.delete_subject(subject, permanent=True) == [1, 2]
    assert subject not in client.get_subjects()


def test_the_fixture_is_a_registry_without_schemas(schema_registry: str) -> None:
    from confluent_kafka.schema_registry import SchemaRegistryClient

    assert SchemaRegistryClient({"url": schema_registry}).get_subjects() == []
