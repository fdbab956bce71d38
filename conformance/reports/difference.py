"""Where the field that differs is: in which frame, at which path of the decoded message, and at which bytes.

A failed case names the field in words such as "topics[0].error_code" or "error_code of partition 7". The field is
searched from the last response back; of several fields with the name, those that have the value that the case got are
taken. A failure that names no field of a response, such as a closed connection, has no place.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ...protocol.codec import encode
from ...protocol.errors import MalformedMessage
from ...protocol.schema import Message, Struct
from ..check import code, shown
from ..exchange import Frame

Path = tuple[str | int, ...]

_FIELDS = re.compile(r"[a-z][a-z0-9_]*(?:\[\d+\])?(?:\.[a-z][a-z0-9_]*(?:\[\d+\])?)*")
_PART = re.compile(r"([a-z][a-z0-9_]*)(?:\[(\d+)\])?")


class Place(NamedTuple):
    """Where the field is."""

    frame: int
    paths: list[Path]
    """In the decoded message; several if the name is not sufficient to find one."""
    ranges: list[tuple[int, int]]
    """The first byte in the frame and the one after the last, for each path for which this is known."""


def locate(frames: Sequence[Frame], what: str, actual: str) -> Place | None:
    """`what` and `actual` are those of the failure."""
    names = [_parsed(found) for found in _FIELDS.findall(what)]
    names.sort(key=len, reverse=True)
    if not names:
        return None
    fallback: Place | None = None
    for index in range(len(frames) - 1, -1, -1):
        frame = frames[index]
        decoded = [] if frame.sent else frame.decoded()
        if len(decoded) < 2:
            continue
        fields = list(_fields(decoded[1], (), frame.version))
        for name in names:
            found = [(path, value) for path, value in fields if _ends_with(path, name)]
            same = [path for path, value in found if actual in (shown(value), _code(value))]
            if same:
                return Place(index, same, _ranges(frame, decoded[1], same))
            if found and fallback is None and len(name) == len(names[0]):
                paths = [path for path, _ in found]
                fallback = Place(index, paths, _ranges(frame, decoded[1], paths))
    return fallback


def _parsed(text: str) -> Path:
    found: list[str | int] = []
    for name, index in _PART.findall(text):
        found.append(name)
        if index:
            found.append(int(index))
    return tuple(found)


def _ends_with(path: Path, name: Path) -> bool:
    """Whether the end of a path is this name; indexes that the name does not have are ignored."""
    at = len(path)
    for part in reversed(name):
        while at and isinstance(path[at - 1], int) and not isinstance(part, int):
            at -= 1
        if not at or path[at - 1] != part:
            return False
        at -= 1
    return True


def _fields(message: Struct, path: Path, version: int) -> Iterator[tuple[Path, Any]]:
    """All fields of a version, also those that contain others."""
    for field in message.FIELDS:
        if version not in field.versions:
            continue
        value = getattr(message, field.name)
        here = (*path, field.name)
        yield here, value
        if isinstance(value, Struct):
            yield from _fields(value, here, version)
        elif isinstance(value, list):
            for index, element in enumerate(value):
                if isinstance(element, Struct):
                    yield from _fields(element, (*here, index), version)


def _code(value: object) -> str | None:
    return code(value) if isinstance(value, int) else None


def _ranges(frame: Frame, message: Message, paths: Sequence[Path]) -> list[tuple[int, int]]:
    if len(frame.data) != frame.size:
        return []
    try:
        original = encode(message, frame.version)
        if not frame.data.endswith(original):
            return []
        start = frame.size - len(original)
        found = (_range(message, frame.version, original, path) for path in paths)
        return [(start + each[0], start + each[1]) for each in found if each is not None]
    except (MalformedMessage, ValueError, TypeError, OverflowError, struct.error):
        return []


def _range(message: Message, version: int, original: bytes, path: Path) -> tuple[int, int] | None:
    """The bytes that change if the field changes."""
    owner: Any = message
    for part in path[:-1]:
        owner = owner[part] if isinstance(part, int) else getattr(owner, part)
    name = str(path[-1])
    before = getattr(owner, name)
    after = _other(before)
    if after is None:
        return None
    setattr(owner, name, after)
    try:
        changed = encode(message, version)
    finally:
        setattr(owner, name, before)
    shorter = min(len(original), len(changed))
    first = next((at for at in range(shorter) if original[at] != changed[at]), shorter)
    same = next((at for at in range(shorter - first) if original[-1 - at] != changed[-1 - at]), shorter - first)
    return (first, max(len(original) - same, first + 1)) if first < len(original) else None


def _other(value: object) -> object:
    """A value of the same type whose bytes all differ; None if there is none."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return ~value
    if isinstance(value, str):
        return "".join("b" if letter == "a" else "a" for letter in value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(byte ^ 0xFF for byte in bytes(value))
    return None
