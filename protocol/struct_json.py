"""A protocol struct as JSON: all fields by name, ids in Kafka's notation."""

import base64
from typing import Any, Final

from .schema import Field, Struct
from .uuid import uuid_to_str

_EMPTY_VALUES: Final[tuple[object, ...]] = (None, "", b"", [])


def struct_as_json(struct: Struct, version: int | None = None) -> dict[str, Any]:
    """All fields of a struct, or those of one version; UUIDs in Kafka's notation, other bytes as base64."""
    return {
        field.name: _value_as_json(field, getattr(struct, field.name), version)
        for field in struct.FIELDS
        if version is None or version in field.versions
    }


def struct_as_text(struct: Struct) -> str:
    """``TopicRecord(name='events', topic_id=...)``, without null and empty fields and unset tags."""
    values = [
        f"{field.name}={_value_as_text(field, value)}"
        for field in struct.FIELDS
        if (value := getattr(struct, field.name)) not in _EMPTY_VALUES
        and (field.tag is None or value != field.make_default())
    ]
    return f"{type(struct).__name__}({', '.join(values)})"


def _value_as_json(field: Field, value: Any, version: int | None) -> Any:
    if field.is_array:
        return None if value is None else [_element_as_json(field, element, version) for element in value]
    return _element_as_json(field, value, version)


def _element_as_json(field: Field, value: Any, version: int | None = None) -> Any:
    if isinstance(value, Struct):
        return struct_as_json(value, version)
    if isinstance(value, bytes | bytearray | memoryview):
        return uuid_to_str(bytes(value)) if field.type == "uuid" else base64.b64encode(value).decode()
    return value


def _value_as_text(field: Field, value: Any) -> str:
    if field.is_array and value is not None:
        return f"[{', '.join(_element_as_text(field, element) for element in value)}]"
    return _element_as_text(field, value)


def _element_as_text(field: Field, value: Any) -> str:
    if isinstance(value, Struct):
        return struct_as_text(value)
    shown = _element_as_json(field, value)
    return shown if field.type == "uuid" else repr(shown)
