"""confluent-kafka's serializers with Moldau's schema registry, through the broker."""

from __future__ import annotations

import json
from typing import Any

import pytest

from moldau.testing import Broker

for package in ("confluent_kafka", "fastavro", "grpc_tools", "jsonschema", "starlette", "uvicorn", "authlib"):
    pytest.importorskip(package, reason="needs pip install 'moldau[registry]' and confluent-kafka[schemaregistry]")

RECORD = {"type": "record", "name": "Order", "fields": [{"name": "amount", "type": "int"}]}
JSON = {"title": "Order", "type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]}


@pytest.mark.parametrize("kind", ["AVRO", "JSON", "PROTOBUF"])
def test_what_a_serializer_of_confluent_kafka_writes_its_deserializer_reads(
    kafka: Broker, schema_registry: str, kind: str
) -> None:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.serialization import MessageField, SerializationContext

    client = SchemaRegistryClient({"url": schema_registry})
    serialize, deserialize, value = serializers(kind, client)
    context = SerializationContext("orders", MessageField.VALUE)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce("orders", serialize(value, context))
    assert producer.flush(30) == 0
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "readers", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    message = consumer.poll(30)
    consumer.close()

    assert message is not None
    assert message.error() is None
    assert message.value()[:5] == b"\x00\x00\x00\x00\x01"
    assert deserialize(message.value(), context) == value
    assert client.get_subjects() == ["orders-value"]
    assert client.get_latest_version("orders-value").schema.schema_type == kind


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


def test_the_client_of_confluent_kafka_manages_subjects(schema_registry: str) -> None:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, SchemaRegistryError

    client = SchemaRegistryClient({"url": schema_registry})
    old, new = Schema('"long"', "AVRO"), Schema('"int"', "AVRO")

    assert client.register_schema("a", old) == 1
    assert not client.test_compatibility("a", new)
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema("a", new)
    assert refused.value.error_code == 409
    client.set_compatibility("a", "NONE")
    assert client.get_compatibility("a") == "NONE"
    assert client.register_schema("a", new) == 2
    assert client.lookup_schema("a", new).version == 2
    assert client.get_versions("a") == [1, 2]
    assert client.delete_subject("a") == [1, 2]
    assert client.delete_subject("a", permanent=True) == [1, 2]
    assert client.get_subjects() == []
