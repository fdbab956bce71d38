"""Every message in every version against Apache Kafka's own classes.

`java/MessageOracle.java` decodes Moldau's encoding, encodes it again, and returns its content as JSON. It also encodes
the message from Moldau's JSON. Both encodings and the JSON must be equal to Moldau's: bytes alone would not show that
two adjacent fields of the same type are swapped.
"""

from __future__ import annotations

import base64
import json
import random
import re
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moldau.group_coordinator.records import KEYS, VALUES
from moldau.metadata.records import RECORD_TYPES, decode_record, encode_record
from moldau.protocol.api import (
    ApiKey,
    message_classes,
    request_class,
    request_header_version,
    response_header_version,
)
from moldau.protocol.codec import decode_at, encode
from moldau.protocol.errors import ErrorCode, MalformedMessage
from moldau.protocol.samples import Samples
from moldau.protocol.schema import Field, Message, Struct
from moldau.protocol.uuid import uuid_to_str
from moldau.server.apis import APIS, Listeners
from moldau.testing import jvm
from moldau.testing.requirements import require_program

MESSAGES = [cls for cls in message_classes() if cls.VERSIONS]
METADATA_RECORDS = list(RECORD_TYPES.values())
GROUP_RECORDS = [*KEYS.values(), *VALUES.values()]
SAMPLES_OF_EACH = 6

SOURCE = Path(__file__).parent / "java" / "MessageOracle.java"


class OracleError(Exception):
    """Apache Kafka's classes rejected the input."""


class Oracle:
    """Apache Kafka's classes in one JVM, with requests and responses through pipes."""

    def __init__(self, classes: Path) -> None:
        command = jvm.command("MessageOracle", options=["-Xmx256M"], classes=classes)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def close(self) -> None:
        self._process.communicate(timeout=120)
        assert self._process.returncode == 0

    def ask(self, name: str, version: int, data: bytes, json_text: bytes = b"") -> tuple[bytes, bytes, bytes]:
        """The oracle's encoding of `data`, its JSON of it, and its encoding of our JSON."""
        assert self._process.stdin
        class_name = name.encode()
        self._process.stdin.write(
            struct.pack(">H", len(class_name))
            + class_name
            + struct.pack(">hi", version, len(data))
            + data
            + struct.pack(">i", len(json_text))
            + json_text
        )
        self._process.stdin.flush()
        if self._read(1) != b"\0":
            raise OracleError(f"{name} v{version}: {self._read_blob().decode()}")
        return self._read_blob(), self._read_blob(), self._read_blob()

    def _read_blob(self) -> bytes:
        (length,) = struct.unpack(">i", self._read(4))
        return self._read(length)

    def _read(self, size: int) -> bytes:
        assert self._process.stdout
        data = self._process.stdout.read(size)
        assert len(data) == size, "the JVM ended"
        return data


@pytest.fixture(scope="module")
def oracle(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    classes = tmp_path_factory.mktemp("classes")
    javac = [require_program("javac"), "-cp", f"{kafka_jars}/*", "-d", str(classes), str(SOURCE)]
    subprocess.run(javac, check=True, timeout=120)
    oracle = Oracle(classes)
    yield oracle
    oracle.close()


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_message(cls: type[Message], oracle: Oracle, kafka_messages: dict[str, Any]) -> None:
    fact = kafka_messages[cls.__name__]
    suffix = "" if fact["type"] == "data" else "Data"
    compare(oracle, cls, f"org.apache.kafka.common.message.{cls.__name__}{suffix}", fact)


@pytest.mark.parametrize("cls", METADATA_RECORDS, ids=lambda cls: cls.__name__)
def test_metadata_record(cls: type[Message], oracle: Oracle, kafka_metadata_records: dict[str, Any]) -> None:
    compare(oracle, cls, f"org.apache.kafka.common.metadata.{cls.__name__}", kafka_metadata_records[cls.__name__])


@pytest.mark.parametrize("cls", GROUP_RECORDS, ids=lambda cls: cls.__name__)
def test_group_record(cls: type[Message], oracle: Oracle, kafka_group_records: dict[str, Any]) -> None:
    class_name = f"org.apache.kafka.coordinator.group.generated.{cls.__name__}"
    compare(oracle, cls, class_name, kafka_group_records[cls.__name__])


@pytest.mark.parametrize("cls", METADATA_RECORDS, ids=lambda cls: cls.__name__)
def test_frame_of_metadata_record(cls: type[Any], oracle: Oracle) -> None:
    samples = Samples(seed=cls.API_KEY)
    for version in cls.VERSIONS:
        record = samples.message(cls, version)
        frame = encode_record(record, version)
        assert oracle.ask("frame", 0, frame)[0] == frame
        assert decode_record(frame) == (record, version)


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_changed_bytes(cls: type[Message], oracle: Oracle, kafka_messages: dict[str, Any]) -> None:
    """Bytes that may or may not be a valid message: Moldau and Apache Kafka agree on that, and on their content."""
    suffix = "" if kafka_messages[cls.__name__]["type"] == "data" else "Data"
    class_name = f"org.apache.kafka.common.message.{cls.__name__}{suffix}"
    source = random.Random(cls.__name__)
    for version in cls.VERSIONS:
        data = encode(Samples(seed=version, tag_probability=0.3).message(cls, version), version)
        for _ in range(6 if data else 0):
            changed = bytearray(data)
            for _ in range(source.randint(1, 2)):
                changed[source.randrange(len(changed))] = source.choice((0, 1, 2, 127, 128, 255, source.randrange(256)))
            ours = encoded_again_by_moldau(cls, version, bytes(changed))
            theirs = encoded_again_by_apache(oracle, class_name, version, bytes(changed))
            if isinstance(ours, bytes) and isinstance(theirs, bytes):
                assert ours == theirs
            elif isinstance(theirs, bytes):
                assert re.search(MOLDAU_IS_STRICTER, str(ours)), (version, changed.hex(), ours)
            elif isinstance(ours, bytes):
                assert re.search(APACHE_WRITER_IS_STRICTER, theirs), (version, changed.hex(), theirs)


MOLDAU_IS_STRICTER = "not UTF-8|its tag says|past the end of the frame"
"""See `protocol.compiler`: invalid UTF-8, and the size of a known tag, which Apache Kafka ignores."""

APACHE_WRITER_IS_STRICTER = "Invalid raw tag field list|as an undefined tag"
"""Duplicate or unordered tags are read, but not written again. Moldau sorts them, and keeps the last."""


def encoded_again_by_moldau(cls: type[Message], version: int, data: bytes) -> bytes | MalformedMessage:
    try:
        message, end = decode_at(cls, data, version, 0)
    except MalformedMessage as error:
        return error
    return encode(message, version) if end == len(data) else MalformedMessage("bytes were not read", end)


def encoded_again_by_apache(oracle: Oracle, class_name: str, version: int, data: bytes) -> bytes | str:
    try:
        return oracle.ask(class_name, version, data)[0]
    except OracleError as error:
        return str(error)


def test_error_codes(oracle: Oracle) -> None:
    lines = oracle.ask("errors", 0, b"")[0].decode().splitlines()
    theirs = {name: (int(code), retriable == "true") for name, code, retriable in map(str.split, lines)}
    assert {error.name: (error.value, error.retriable) for error in ErrorCode} == theirs


def test_header_versions(oracle: Oracle) -> None:
    lines = oracle.ask("headers", 0, b"")[0].decode().splitlines()
    ours = []
    for key in ApiKey:
        versions = [
            f" {v}:{request_header_version(key, v)}:{response_header_version(key, v)}" for v in versions_of(key)
        ]
        ours.append(f"{key.name} {key.value}{''.join(versions)}")
    assert sorted(ours) == sorted(lines)


def test_listeners(oracle: Oracle) -> None:
    lines = oracle.ask("listeners", 0, b"")[0].decode().splitlines()
    theirs = {name: (broker == "true", controller == "true") for name, broker, controller in map(str.split, lines)}
    for api in APIS:
        assert (Listeners.BROKER in api.listeners, Listeners.CONTROLLER in api.listeners) == theirs[api.key.name]


def versions_of(api_key: ApiKey) -> list[int]:
    return list(request_class(api_key).VERSIONS)


def compare(oracle: Oracle, cls: type[Message], class_name: str, fact: dict[str, Any]) -> None:
    naming = Naming(fact)
    for version in cls.VERSIONS:
        for seed in range(SAMPLES_OF_EACH):
            # The first message has every possible null, the second has none.
            nulls = {0: 1.0, 1: 0.0}.get(seed, 0.3)
            message = Samples(seed, null_probability=nulls, tag_probability=0).message(cls, version)
            ours = encode(message, version)
            document = naming.document(message, version)
            again, theirs, from_json = oracle.ask(class_name, version, ours, json.dumps(document).encode())
            assert again == ours, f"{cls.__name__} v{version}: {message}"
            assert from_json == ours, f"{cls.__name__} v{version}: {message}"
            assert json.loads(theirs) == naming.document(message, version, records_as_size=True)
            assert decode_at(cls, from_json, version, 0) == (message, len(ours))
        # JSON has no unknown tagged fields, but bytes do.
        message = Samples(seed=99, tag_probability=1).message(cls, version)
        ours = encode(message, version)
        assert oracle.ask(class_name, version, ours)[0] == ours, f"{cls.__name__} v{version}: {message}"


class Naming:
    """Writes Moldau's messages like Apache Kafka's JSON converters, with the names of the schemas."""

    def __init__(self, fact: dict[str, Any]) -> None:
        self.fact = fact
        self.common = {struct["name"]: struct for struct in fact.get("commonStructs", [])}

    def document(self, message: Message, version: int, records_as_size: bool = False) -> Any:
        return self._struct(message, version, self.fact.get("fields", []), records_as_size)

    def _struct(self, value: Struct, version: int, facts: list[dict[str, Any]], records_as_size: bool) -> Any:
        document: dict[str, Any] = {}
        for field, fact in zip(value.FIELDS, facts, strict=True):
            content = getattr(value, field.name)
            if version not in field.versions or (field.tag is not None and content == field.make_default()):
                continue
            key = fact["name"][0].lower() + fact["name"][1:]
            if field.type == "records" and records_as_size and content is not None:
                document[f"{key}SizeInBytes"] = len(content)
            elif content is None:
                document[key] = None
            elif field.is_array:
                document[key] = [self._value(field, item, version, fact, records_as_size) for item in content]
            else:
                document[key] = self._value(field, content, version, fact, records_as_size)
        return document

    def _value(self, field: Field, value: Any, version: int, fact: dict[str, Any], records_as_size: bool) -> Any:
        if field.struct is not None:
            inner = fact.get("fields") or self.common[fact["type"].removeprefix("[]")]["fields"]
            return self._struct(value, version, inner, records_as_size)
        if field.type == "uuid":
            return uuid_to_str(value)
        if field.type in ("bytes", "records"):
            return base64.b64encode(value).decode()
        return value
