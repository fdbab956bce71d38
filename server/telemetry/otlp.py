"""The metrics in a push of a client: a reader of OTLP's `MetricsData` (opentelemetry-proto, metrics.proto).

Only what clients of Kafka send is read: gauges and sums of numbers, with their attributes. Histograms and summaries are
skipped. The input is untrusted: texts are truncated, attributes are limited, and `points` yields None after each few
fields, so that its caller can pause.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator
from typing import Any, Final, NamedTuple

MAX_TEXT: Final = 256
MAX_ATTRIBUTES: Final = 8

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_VARINT_BYTES: Final = 10
_DELTA: Final = 1  # AggregationTemporality

_RESOURCE_METRICS: Final = 1
_SCOPE_METRICS: Final = 2
_METRICS: Final = 2
_METRIC_NAME, _METRIC_GAUGE, _METRIC_SUM = 1, 5, 7
_DATA_POINTS, _TEMPORALITY, _IS_MONOTONIC = 1, 2, 3
_AS_DOUBLE, _AS_INT, _ATTRIBUTES = 4, 6, 7
_KEY, _VALUE = 1, 2
_STRING_VALUE, _BOOL_VALUE, _INT_VALUE, _DOUBLE_VALUE = 1, 2, 3, 4


class OtlpError(ValueError):
    """Bytes that are not a message of protobuf."""


class Point(NamedTuple):
    """A number of a metric."""

    name: str
    attributes: tuple[tuple[str, str], ...]
    value: float
    is_counter: bool
    """It only grows, except when the client starts again."""
    is_delta: bool
    """The value is to be added to those before."""


def points(data: bytes) -> Iterator[Point | None]:
    """The numbers in a serialized `MetricsData`. Raises OtlpError, possibly after some of them."""
    for resource in _fields(data):
        yield None
        if resource[0] != _RESOURCE_METRICS:
            continue
        for scope in _fields(resource[1]):
            yield None
            if scope[0] != _SCOPE_METRICS:
                continue
            for metric in _fields(scope[1]):
                yield None
                if metric[0] == _METRICS:
                    yield from _points_of(metric[1])


def _points_of(metric: Any) -> Iterator[Point | None]:
    name, kinds = "", []
    for number, value in _fields(metric):
        yield None
        if number == _METRIC_NAME:
            name = _text(value)
        elif number in (_METRIC_GAUGE, _METRIC_SUM):
            kinds.append((number, value))
    for kind, body in kinds:
        is_delta = is_monotonic = False
        found = []
        for number, value in _fields(body):
            yield None
            if number == _DATA_POINTS:
                found.append(value)
            elif kind == _METRIC_SUM and number == _TEMPORALITY:
                is_delta = value == _DELTA
            elif kind == _METRIC_SUM and number == _IS_MONOTONIC:
                is_monotonic = bool(value)
        for each in found:
            point = yield from _number(each)
            if point is not None:
                yield Point(name, point[0], point[1], is_monotonic, is_delta)


def _number(body: Any) -> Generator[None, None, tuple[tuple[tuple[str, str], ...], float] | None]:
    attributes: list[tuple[str, str]] = []
    found: float | None = None
    for number, value in _fields(body):
        yield None
        if number == _AS_DOUBLE:
            found = _as("<d", value)
        elif number == _AS_INT:
            found = _as("<q", value)
        elif number == _ATTRIBUTES and len(attributes) < MAX_ATTRIBUTES:
            attribute = yield from _attribute(value)
            if attribute is not None:
                attributes.append(attribute)
    return None if found is None else (tuple(attributes), found)


def _attribute(body: Any) -> Generator[None, None, tuple[str, str] | None]:
    key, text = "", None
    for number, value in _fields(body):
        yield None
        if number == _KEY:
            key = _text(value)
        elif number == _VALUE:
            for kind, scalar in _fields(value):
                yield None
                if kind == _STRING_VALUE:
                    text = _text(scalar)
                elif kind == _BOOL_VALUE:
                    text = "true" if scalar else "false"
                elif kind == _INT_VALUE and isinstance(scalar, int):
                    text = str(scalar - (1 << 64) if scalar >> 63 else scalar)
                elif kind == _DOUBLE_VALUE:
                    text = repr(_as("<d", scalar))
    return None if not key or text is None else (key, text)


def _as(form: str, value: Any) -> float:
    if not isinstance(value, bytes) or len(value) != struct.calcsize(form):
        raise OtlpError("a number has the wrong type")
    number: float = struct.unpack(form, value)[0]
    return number


def _text(value: Any) -> str:
    if not isinstance(value, bytes):
        raise OtlpError("a text has the wrong type")
    return value[: 4 * MAX_TEXT].decode(errors="replace")[:MAX_TEXT]


def _fields(body: Any) -> Iterator[tuple[int, Any]]:
    """The fields of a message: their numbers, and an int for varints, otherwise bytes."""
    if not isinstance(body, bytes):
        raise OtlpError("a message has the wrong type")
    position, end = 0, len(body)
    while position < end:
        tag, position = _varint(body, position)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == _VARINT:
            value, position = _varint(body, position)
            yield number, value
            continue
        if wire_type == _BYTES:
            size, position = _varint(body, position)
        elif wire_type in (_FIXED64, _FIXED32):
            size = 8 if wire_type == _FIXED64 else 4
        else:
            raise OtlpError(f"wire type {wire_type}")
        if size > end - position:
            raise OtlpError("the bytes end inside of a field")
        yield number, body[position : position + size]
        position += size


def _varint(body: bytes, position: int) -> tuple[int, int]:
    value = 0
    for index in range(_MAX_VARINT_BYTES):
        if position + index >= len(body):
            raise OtlpError("the bytes end inside of a number")
        byte = body[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, position + index + 1
    raise OtlpError("a number has more than 10 bytes")
