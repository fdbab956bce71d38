"""Fixtures from Apache Kafka's jars: the JSON from which its messages are generated."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest

from moldau.testing.kafka_jars import KAFKA_VERSION
from moldau.testing.requirements import require_kafka_jars


@pytest.fixture(scope="session")
def kafka_jars() -> Path:
    return require_kafka_jars()


@pytest.fixture(scope="session")
def kafka_messages(kafka_jars: Path) -> dict[str, Any]:
    """The schemas of kafka-clients by name."""
    return read_schemas(kafka_jars / f"kafka-clients-{KAFKA_VERSION}.jar", "common/message/")


@pytest.fixture(scope="session")
def kafka_metadata_records(kafka_jars: Path) -> dict[str, Any]:
    """The schemas of the records of the metadata log by name."""
    return read_schemas(kafka_jars / f"kafka-metadata-{KAFKA_VERSION}.jar", "common/metadata/")


@pytest.fixture(scope="session")
def kafka_group_records(kafka_jars: Path) -> dict[str, Any]:
    """The schemas of the records of `__consumer_offsets` by name, keys and values."""
    return read_schemas(kafka_jars / f"kafka-group-coordinator-{KAFKA_VERSION}.jar", "common/message/")


def read_schemas(jar: Path, folder: str) -> dict[str, Any]:
    """Every schema in a folder of a jar: JSON with comments in separate lines."""
    schemas = {}
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if name.startswith(folder) and name.endswith(".json"):
                text = re.sub(r"^\s*//.*$", "", archive.read(name).decode(), flags=re.MULTILINE)
                schema = json.loads(text)
                schemas[schema["name"]] = schema
    return schemas
