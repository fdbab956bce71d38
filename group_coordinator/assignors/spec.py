"""What an assignor is given, and what it gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

Assignment = Mapping[bytes, frozenset[int]]
"""Topic id -> partitions; a topic without partitions is not in it."""


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """A member: the topics that it subscribes to and that exist, and what it was to have until now."""

    topics: frozenset[bytes]
    assigned: Assignment
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """A group. ``partitions`` has the number of partitions of every topic that a member subscribes to."""

    members: Mapping[str, MemberSpec]
    partitions: Mapping[bytes, int]
    homogeneous: bool
    """All members subscribe to the same topics."""


Assignor = Callable[[GroupSpec], dict[str, Assignment]]
"""Gives every member its assignment, and every partition that somebody subscribes to exactly one member."""
