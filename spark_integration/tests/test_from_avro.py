"""Spark's ``from_avro`` reads what confluent-kafka's serializer has written with Moldau's schema registry."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from moldau.testing.client import Client, Record
from moldau.testing.schema_registry import SchemaRegistry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .conftest import MakeTopic

DEADLINE_S = 500
ORDER = {
    "type": "record",
    "name": "order",
    "fields": [{"name": "id", "type": "long"}, {"name": "city", "type": ["null", "string"]}],
}


@pytest.mark.full
def test_from_avro_reads_values_of_a_serializer_with_the_schema_of_the_registry(
    spark_conf: Mapping[str, str], bootstrap_servers: str, client: Client, make_topic: MakeTopic
) -> None:
    for package in ("authlib", "fastavro", "grpc_tools", "jsonschema", "starlette", "uvicorn"):
        pytest.importorskip(package, reason="needs pip install 'moldau[registry]' and confluent-kafka[schemaregistry]")
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    topic = make_topic(2)
    context = SerializationContext(topic, MessageField.VALUE)
    orders: list[dict[str, Any]] = [
        {"id": number, "city": f"city {number}" if number % 2 else None} for number in range(100)
    ]
    with SchemaRegistry(bootstrap_servers) as registry:
        serialize = AvroSerializer(SchemaRegistryClient({"url": registry.url}), json.dumps(ORDER))
        client.produce(topic, [Record(serialize(each, context), partition=each["id"] % 2) for each in orders])

        program = Path(__file__).with_name("from_avro_program.py")
        done = subprocess.run(
            [sys.executable, str(program), bootstrap_servers, topic, registry.url],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )

    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == orders
