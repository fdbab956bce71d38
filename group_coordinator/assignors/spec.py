"""The arguments and the result of an assignor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

Assignment = Mapping[bytes, frozenset[int]]
"""Topic ID -> partitions; topics without partitions are omitted."""


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """A member: its existing subscribed topics, and its previous target assignment."""

    topics: frozenset[bytes]
    assigned: Assignment
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """A group. ``partitions`` contains the partition count of every subscribed topic."""

    members: Mapping[str, MemberSpec]
    partitions: Mapping[bytes, int]
    homogeneous: bool
    """All members subscribe to the same topics."""


Assignor = Callable[[GroupSpec], dict[str, Assignment]]
"""Returns the assignment of every member. Every partition of a subscribed topic has exactly one member."""
