"""Requests with as many elements as fit: each array of each API, one after another.

An array of a million small elements is a few megabytes on the wire, and a server that creates an object or a response
for each computes for seconds and takes gigabytes. The requests are created from the declarations of the messages, so
new APIs are covered. A server may answer such a request or refuse it by closing the connection.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from moldau.protocol.api import ApiKey, request_class
from moldau.protocol.schema import Field, Request, Struct
from moldau.server.apis import APIS, Api

from . import attackers
from .bystander import TOPIC
from .conftest import Target
from .watch import MEGABYTE

ELEMENTS = 100_000
ELEMENTS_LONG = 1_000_000  # a larger array is refused
FRAME_BYTES = 100_000_000  # a larger request is refused

# Values with which a request passes the first checks of its handler.
VALUES: dict[str, Any] = {
    "acks": 1,
    "allow_auto_topic_creation": False,
    "validate_only": True,
    "dry_run": True,
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "protocol_type": "consumer",
    "max_wait_ms": 0,
    "timeout_ms": 1000,
    "transaction_timeout_ms": 10_000,
    "replica_id": -1,
    "replication_factor": 1,
    "partition_max_bytes": 1000,
    "resource_type": 2,
    "session_epoch": -1,
    "name": TOPIC,
    "topic": TOPIC,
    "topic_name": TOPIC,
    "group_id": "dense",
    "transactional_id": "dense",
}


class Dense(NamedTuple):
    """A request with one dense array: its place, and whether its elements differ."""

    cls: type[Request]
    version: int
    path: tuple[Field, ...]
    distinct: bool

    def __str__(self) -> str:
        names = ".".join(field.name for field in self.path)
        return f"{self.cls.__name__} {self.version} {names}, {'distinct' if self.distinct else 'equal'}"

    def frame(self, count: int) -> bytes:
        """The request with so many elements in that array; fewer, if they would not fit."""
        while True:
            request = self._struct(self.cls, 0, count)
            made = attackers.frame(request, self.version)
            if len(made) <= FRAME_BYTES:
                return made
            count = count * 9 // 10 * FRAME_BYTES // len(made)

    def _struct(self, cls: type[Any], depth: int, count: int) -> Any:
        """A struct with one element in each array on the way to the dense one."""
        made: Struct = cls()
        for field in cls.FIELDS:
            if self.version not in field.versions:
                continue
            on_the_way = depth < len(self.path) and self.path[depth] is field
            if on_the_way and depth == len(self.path) - 1:
                setattr(made, field.name, [self._element(field, depth, index) for index in range(count)])
            elif on_the_way:
                assert field.struct is not None
                inner = self._struct(field.struct, depth + 1, count)
                setattr(made, field.name, [inner] if field.is_array else inner)
            elif field.struct is None and not field.is_array and field.name in VALUES:
                setattr(made, field.name, VALUES[field.name])
        return made

    def _element(self, field: Field, depth: int, index: int) -> Any:
        number = index if self.distinct else 0
        if field.struct is None:
            return plain(field, number)
        made = self._struct(field.struct, depth + 1, 0)
        if self.distinct:
            for inner in field.struct.FIELDS:
                if self.version in inner.versions and inner.tag is None and is_key(inner):
                    setattr(made, inner.name, plain(inner, number))
        return made


def is_key(field: Field) -> bool:
    """Whether this field identifies elements."""
    if field.struct is not None or field.is_array:
        return False
    return field.type in ("string", "uuid") or "partition" in field.name or field.name == "index"


def plain(field: Field, number: int) -> Any:
    """A small value of the field's type, different for each number if the type permits."""
    match field.type:
        case "string":
            return f"{number:x}"
        case "bytes" | "records":
            return b""
        case "uuid":
            return number.to_bytes(16, "big")
        case "bool":
            return bool(number & 1)
        case "float64":
            return float(number)
        case "int8":
            return number & 0x7F
        case "int16" | "uint16":
            return number & 0x7FFF
        case _:
            return number


def arrays(cls: type[Any], version: int) -> Iterator[tuple[Field, ...]]:
    """The places of the arrays of a version."""
    for field in cls.FIELDS:
        if version not in field.versions:
            continue
        if field.is_array:
            yield (field,)
        if field.struct is not None:
            yield from ((field, *inner) for inner in arrays(field.struct, version))


def dense_requests(api: Api) -> list[Dense]:
    """The dense requests of the highest version, and of the highest one without flexible encoding."""
    cls = request_class(api.key)
    lowest = max(api.min_version, api.lowest_served)
    versions = {api.max_version}
    plain_versions = [version for version in range(lowest, api.max_version) if version not in cls.FLEXIBLE_VERSIONS]
    versions.update(plain_versions[-1:])
    return [
        Dense(cls, version, path, distinct)
        for version in sorted(versions)
        for path in arrays(cls, version)
        for distinct in (False, True)
    ]


def attack_with(target: Target, dense: Dense, count: int) -> None:
    data = dense.frame(count)
    with target.attack(f"{dense}, {len(data) / MEGABYTE:.1f} MB"):
        attackers.exchange(target.address, data)


@pytest.mark.timeout(1800)
def test_arrays_of_all_apis(target: Target, dice: random.Random, long: bool) -> None:
    """All of them in the long form, some in the short one; the seed selects them."""
    every = [dense for api in APIS for dense in dense_requests(api)]
    for dense in dice.sample(every, len(every) if long else 8):
        attack_with(target, dense, ELEMENTS)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("key", [api.key for api in APIS if dense_requests(api)], ids=lambda key: ApiKey(key).name)
def test_as_many_elements_as_fit(target: Target, dice: random.Random, key: int) -> None:
    (api,) = (api for api in APIS if api.key == key)
    every = dense_requests(api)
    for dense in dice.sample(every, len(every)):
        attack_with(target, dense, ELEMENTS_LONG)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_several_dense_requests_at_the_same_time(target: Target, dice: random.Random) -> None:
    every = [dense for api in APIS for dense in dense_requests(api)]
    frames = [dense.frame(ELEMENTS_LONG // 5) for dense in dice.sample(every, 16)]
    with target.attack("16 dense requests at once"):
        attackers.in_parallel(len(frames), lambda index: attackers.exchange(target.address, frames[index]))
