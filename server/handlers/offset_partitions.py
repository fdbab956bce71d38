"""What OffsetCommit, OffsetDelete and TxnOffsetCommit have in common.

Which partitions there are is the server's to know: those that are not there are answered here, each by itself, and the
coordinator is asked about the others. What it says, also that it failed, is of those alone.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Iterator
from copy import copy
from typing import TYPE_CHECKING, Any

from ...protocol.errors import KafkaError
from ..callers import Rewritten
from ..slices import completed

if TYPE_CHECKING:
    from ..request import RequestContext
    from ..slices import Sliced

PARTITIONS_AT_ONCE = 100
"""So many offsets are committed by one change of a group, which takes one or two milliseconds."""


class BesideRefused(Rewritten):
    """Answers with what the coordinator says beside what was refused here."""

    __slots__ = ("_failed",)

    def __init__(
        self, context: RequestContext, merged: Callable[[Any], Any], failed: Callable[[KafkaError], Any]
    ) -> None:
        """``merged`` puts the coordinator's answer behind what was refused; ``failed`` makes one of an error, for each
        partition that the coordinator was asked about."""
        super().__init__(context, merged)
        self._failed = failed

    def fail(self, error: KafkaError) -> None:
        """Answer with this error for each partition that the coordinator was asked about, once."""
        self.reply(self._failed(error))


def take_missing(topic: Any, there: Container[int]) -> Sliced[list[Any]]:
    """Leave the partitions in a topic of a request that are ``there``; returns the others."""
    known: list[Any] = []
    missing: list[Any] = []
    for partition in topic.partitions:
        yield 0
        (known if partition.partition_index in there else missing).append(partition)
    topic.partitions = known
    return missing


def some_of(partitions: list[Any]) -> Iterator[list[Any]]:
    """The same in several lists that are not long."""
    for first in range(0, len(partitions), PARTITIONS_AT_ONCE):
        yield partitions[first : first + PARTITIONS_AT_ONCE]


def in_pieces(topics: list[Any]) -> Sliced[list[list[Any]]]:
    """Topics of a request as several lists of topics that have at most `PARTITIONS_AT_ONCE` partitions each."""
    pieces: list[list[Any]] = [[]]
    room = PARTITIONS_AT_ONCE
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
                room = PARTITIONS_AT_ONCE - len(some)
                yield 0
        if room <= 0:
            pieces.append([])
            room = PARTITIONS_AT_ONCE
    return [piece for piece in pieces if piece]


def each_topic_once_in_slices(topics: Iterable[Any], key: Callable[[Any], Hashable]) -> Sliced[list[Any]]:
    """As `each_topic_once`."""
    once: dict[Hashable, Any] = {}
    for topic in topics:
        yield 0
        first = once.setdefault(key(topic), topic)
        if first is not topic:
            first.partitions += topic.partitions
    return list(once.values())


def each_topic_once(topics: Iterable[Any], key: Callable[[Any], Hashable]) -> list[Any]:
    """The topics of a response with each of them in one place, the first, with all of its partitions."""
    return completed(each_topic_once_in_slices(topics, key))
