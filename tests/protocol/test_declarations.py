"""The declarations are compared with the JSON in Apache Kafka's jars: every property of every field and message."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.group_coordinator.records import KEYS, VALUES
from moldau.metadata.records import RECORD_TYPES
from moldau.protocol.api import ApiKey, message_classes, request_class
from moldau.protocol.schema import Field, Message, Request, Struct, Versions, parse_versions
from moldau.protocol.source import snake_case
from moldau.protocol.uuid import ZERO_UUID

MESSAGES = {cls.__name__: cls for cls in message_classes()}
METADATA_RECORDS = {cls.__name__: cls for cls in RECORD_TYPES.values()}
GROUP_RECORDS = {cls.__name__: cls for cls in (*KEYS.values(), *VALUES.values())}


def test_every_message_is_declared_and_no_other(kafka_messages: dict[str, Any]) -> None:
    assert set(MESSAGES) == set(kafka_messages)


def test_every_metadata_record_is_declared_and_no_other(kafka_metadata_records: dict[str, Any]) -> None:
    assert set(METADATA_RECORDS) == set(kafka_metadata_records)


def test_every_group_record_is_declared_but_those_of_share_and_streams_groups(
    kafka_group_records: dict[str, Any],
) -> None:
    expected = {name for name in kafka_group_records if not name.startswith(("ShareGroup", "StreamsGroup"))}
    assert set(GROUP_RECORDS) == expected


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_message(name: str, kafka_messages: dict[str, Any]) -> None:
    compare_message(MESSAGES[name], kafka_messages[name])


@pytest.mark.parametrize("name", sorted(METADATA_RECORDS))
def test_metadata_record(name: str, kafka_metadata_records: dict[str, Any]) -> None:
    compare_message(METADATA_RECORDS[name], kafka_metadata_records[name])


@pytest.mark.parametrize("name", sorted(GROUP_RECORDS))
def test_group_record(name: str, kafka_group_records: dict[str, Any]) -> None:
    compare_message(GROUP_RECORDS[name], kafka_group_records[name])


@pytest.mark.parametrize("api_key", list(ApiKey))
def test_api_key_names_the_request_of_that_key(api_key: ApiKey) -> None:
    cls = request_class(api_key)
    assert api_key == cls.API_KEY
    assert cls.__name__ == f"{api_key.message_name}Request"


def compare_message(cls: type[Message], fact: dict[str, Any]) -> None:
    assert str(cls.VERSIONS) == fact["validVersions"]
    assert str(cls.FLEXIBLE_VERSIONS) == fact.get("flexibleVersions", "none")
    unstable = fact.get("latestVersionUnstable", False)
    assert cls.STABLE_VERSIONS.highest == cls.VERSIONS.highest - int(unstable)
    assert getattr(cls, "API_KEY", None) == fact.get("apiKey")
    if issubclass(cls, Request):
        assert tuple(fact.get("listeners", ())) == cls.LISTENERS
    common = {struct["name"]: struct for struct in fact.get("commonStructs", [])}
    compare_fields(cls, fact.get("fields", []), common, cls.VERSIONS)


def compare_fields(cls: type[Struct], facts: list[dict[str, Any]], common: dict[str, Any], outer: Versions) -> None:
    assert [field.name for field in cls.FIELDS] == [field_name(fact["name"]) for fact in facts]
    for field, fact in zip(cls.FIELDS, facts, strict=True):
        where = f"{cls.__name__}.{field.name}"
        assert described(field) == expected(fact), where
        assert is_default(field, fact), where
        if field.struct is not None:
            struct_name = fact["type"].removeprefix("[]")
            assert field.struct.__name__.endswith(struct_name), where
            inner = fact.get("fields") or common[struct_name]["fields"]
            compare_fields(field.struct, inner, common, outer)


def field_name(name: str) -> str:
    return "enable_2pc" if name == "Enable2Pc" else snake_case(name)


def described(field: Field) -> dict[str, Any]:
    return {
        "type": "struct" if field.struct else field.type,
        "is_array": field.is_array,
        "versions": field.versions,
        "nullable": field.nullable,
        "tag": field.tag,
        "ignorable": field.ignorable,
        "flexible": field.flexible,
    }


def expected(fact: dict[str, Any]) -> dict[str, Any]:
    element = fact["type"].removeprefix("[]")
    # One version range stands for both in the declarations; no field of Kafka's has two.
    assert fact.get("taggedVersions", fact["versions"]) == fact["versions"]
    return {
        "type": "struct" if element[0].isupper() else element,
        "is_array": fact["type"].startswith("[]"),
        "versions": parse_versions(fact["versions"]),
        "nullable": parse_versions(fact.get("nullableVersions", "none")),
        "tag": fact.get("tag"),
        "ignorable": str(fact.get("ignorable", False)).lower() == "true",
        "flexible": fact.get("flexibleVersions"),
    }


def is_default(field: Field, fact: dict[str, Any]) -> bool:
    """Whether the declared default is that of the JSON, which omits implicit ones."""
    # Apache Kafka's generator treats the JSON's null, in contrast to the string "null", as no default.
    text = str(fact["default"]) if fact.get("default") is not None else None
    default = field.make_default()
    if text == "null":
        return default is None
    if field.is_array:
        return text in (None, "") and default == []
    if field.struct is not None:
        return text in (None, "") and default == field.struct()
    if field.type == "records":
        return default is None
    if field.type == "bool":
        return default is ((text or "false").lower() == "true")
    if field.type in ("string", "bytes", "uuid", "float64"):
        natural = {"string": "", "bytes": b"", "uuid": ZERO_UUID, "float64": 0.0}
        return text in (None, "") and default == natural[field.type]
    return type(default) is int and default == int(text or "0", 0)
