"""Shared code of OffsetCommit, OffsetDelete and TxnOffsetCommit.

The server knows which partitions exist. Missing partitions get their errors here, and the coordinator receives only the
others. The coordinator's results, including a failure, apply only to those.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Iterator
from copy import copy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..concurrency.slices import Sliced

PARTITIONS_PER_STEP = 100
"""The maximum number of offsets that are committed by one change of a group, which takes one or two milliseconds."""


def take_missing(topic: Any, there: Container[int]) -> Sliced[list[Any]]:
    """Keep only the partitions that are ``there`` in a topic of a request. Returns the others."""
    known: list[Any] = []
    missing: list[Any] = []
    yield 0
    for partition in topic.partitions:
        yield 0
        (known if partition.partition_index in there else missing).append(partition)
    topic.partitions = known
    return missing


def some_of(partitions: list[Any]) -> Iterator[list[Any]]:
    """The partitions in lists of at most `PARTITIONS_PER_STEP`."""
    for first in range(0, len(partitions), PARTITIONS_PER_STEP):
        yield partitions[first : first + PARTITIONS_PER_STEP]


def in_pieces(topics: list[Any]) -> Sliced[list[list[Any]]]:
    """Split the topics of a request into lists of topics with at most `PARTITIONS_PER_STEP` partitions each."""
    pieces: list[list[Any]] = [[]]
    room = PARTITIONS_PER_STEP
    for topic in topics:
        yield 0
        if len(topic.partitions) <= room:
            pieces[-1].append(topic)
            room -= max(len(topic.partitions), 1)
        else:
            for some in some_of(topic.partitions):
                part = copy(topic)
                part.partitions = some
                pieces.append([part])
                room = PARTITIONS_PER_STEP - len(some)
                yield 0
        if room <= 0:
            pieces.append([])
            room = PARTITIONS_PER_STEP
    return [piece for piece in pieces if piece]


def each_topic_once(topics: Iterable[Any], key: Callable[[Any], Hashable]) -> Sliced[list[Any]]:
    """Merge repeated topics of a response: each has the place of the first, with all of its partitions."""
    once: dict[Hashable, Any] = {}
    for topic in topics:
        yield 0
        first = once.setdefault(key(topic), topic)
        if first is not topic:
            first.partitions += topic.partitions
    return list(once.values())
