"""What OffsetCommit, OffsetDelete and TxnOffsetCommit have in common.

Which partitions there are is the server's to know: those that are not there are answered here, each by itself, and the
coordinator is asked about the others. What it says, also that it failed, is of those alone.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable
from typing import TYPE_CHECKING, Any

from ...protocol.errors import KafkaError
from ..callers import Rewritten

if TYPE_CHECKING:
    from ..request import RequestContext


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


def take_missing(topic: Any, there: Container[int]) -> list[Any]:
    """Leave the partitions in a topic of a request that are ``there``; returns the others."""
    missing = [partition for partition in topic.partitions if partition.partition_index not in there]
    if missing:
        topic.partitions = [partition for partition in topic.partitions if partition.partition_index in there]
    return missing


def each_topic_once(topics: Iterable[Any], key: Callable[[Any], Hashable]) -> list[Any]:
    """The topics of a response with each of them in one place, the first, with all of its partitions."""
    once: dict[Hashable, Any] = {}
    for topic in topics:
        first = once.setdefault(key(topic), topic)
        if first is not topic:
            first.partitions += topic.partitions
    return list(once.values())
