"""The protocol of a generation, and the subscriptions of its members.

A protocol here is a client's assignor: ``range``, ``cooperative-sticky``, ... Only protocols that every member supports
can be chosen; each member votes for its preferred one among these. The metadata is opaque, with one exception: if the
protocol type of a group is ``consumer``, the topics are parsed, so that offsets of subscribed topics are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from ...protocol.codec import decode_at
from ...protocol.errors import MalformedMessage
from ...protocol.messages.consumer_protocol import ConsumerProtocolSubscription

CONSUMER_PROTOCOL_TYPE = "consumer"


class ProtocolCounts:
    """The number of members that support each protocol."""

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

    def any_common(self, members: int, names: Iterable[str]) -> bool:
        """Whether that many members support one of these protocols."""
        return any(self._counts.get(name, 0) == members for name in names)

    def supported_by(self, members: int) -> set[str]:
        """The protocols that this many members support."""
        return {name for name, count in self._counts.items() if count == members}


def select_protocol(candidates: set[str], members: Iterable[Mapping[str, bytes]]) -> str:
    """The candidate with the most votes; among equals, the one that the earliest member voted for."""
    votes = Counter(next(name for name in protocols if name in candidates) for protocols in members)
    return votes.most_common(1)[0][0]


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all these subscriptions; None if one of them cannot be parsed.

    Each is parsed as version 0, which is the beginning of all later versions.
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
