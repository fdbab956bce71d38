"""Which protocol a generation takes, and what its members subscribe to.

A protocol here is a client's assignor: ``range``, ``cooperative-sticky``, ... Only those that every member speaks can
be taken; of these each member votes for the one it likes best. Their metadata belongs to the clients, with one
exception: of groups whose protocol type is ``consumer``, the topics are read, so that offsets of subscribed topics are
kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from ...protocol.codec import decode_at
from ...protocol.errors import MalformedMessage
from ...protocol.messages.consumer_protocol import ConsumerProtocolSubscription

CONSUMER_PROTOCOL_TYPE = "consumer"


class ProtocolCounts:
    """How many members speak each protocol."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def add(self, names: Iterable[str]) -> None:
        for name in names:
            self._counts[name] = self._counts.get(name, 0) + 1

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            if self._counts[name] == 1:
                del self._counts[name]
            else:
                self._counts[name] -= 1

    def any_spoken_by(self, members: int, names: Iterable[str]) -> bool:
        """Whether one of these is spoken by so many members."""
        return any(self._counts.get(name, 0) == members for name in names)

    def spoken_by(self, members: int) -> set[str]:
        """What so many members speak."""
        return {name for name, count in self._counts.items() if count == members}


def select_protocol(candidates: set[str], members: Iterable[Mapping[str, bytes]]) -> str:
    """The candidate with the most votes; of several, the one that the earliest member voted for."""
    votes = Counter(next(name for name in protocols if name in candidates) for protocols in members)
    return votes.most_common(1)[0][0]


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all these subscriptions; None when one of them cannot be read.

    Each is read as version 0, which all later versions begin with.
    """
    topics: set[str] = set()
    for subscription in subscriptions:
        if len(subscription) < 2:
            return None
        try:
            decoded, _ = decode_at(ConsumerProtocolSubscription, subscription, 0, 2)
        except MalformedMessage:
            return None
        topics.update(decoded.topics)
    return frozenset(topics)
