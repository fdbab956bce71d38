"""What the members of a consumer group subscribe to, counted, so that nobody has to walk over the members.

A decision about a change of one member works on a copy in which that member is exchanged: the group itself
changes only by replay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from .member import ConsumerGroupMember


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matched, in which version of the metadata, and when."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class Subscriptions:
    """Topics and regular expressions with the number of members that subscribe to them."""

    __slots__ = ("_matched", "_names", "_regexes", "_resolved")

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self._regexes: dict[str, int] = {}
        self._resolved: dict[str, ResolvedRegex] = {}
        self._matched: dict[str, int] = {}  # topic -> number of resolved expressions that match it

    @property
    def regexes(self) -> Mapping[str, int]:
        """Each regular expression that members subscribe by, with the number of these members."""
        return self._regexes

    @property
    def resolved(self) -> Mapping[str, ResolvedRegex]:
        """The regular expressions that were looked up. One that is new may not be among them yet."""
        return self._resolved

    def topics(self) -> set[str]:
        """The names of all topics that somebody subscribes to."""
        return {*self._names, *self._matched}

    def __contains__(self, topic: str) -> bool:
        return topic in self._names or topic in self._matched

    def topics_of(self, member: ConsumerGroupMember) -> frozenset[str]:
        """The topics of one member. An expression that was not looked up yet matches nothing."""
        regex = member.regex
        resolved = self._resolved.get(regex) if regex is not None else None
        if resolved is None:
            return member.subscribed_topic_names
        return member.subscribed_topic_names | resolved.topics if member.subscribed_topic_names else resolved.topics

    def is_homogeneous(self, members: int) -> bool:
        """Whether all of so many members subscribe to the same, which is the case that assignors do fast."""
        if not self._regexes:
            return all(count == members for count in self._names.values())
        return not self._names and len(self._regexes) == 1 and next(iter(self._regexes.values())) == members

    def exchange(self, old: ConsumerGroupMember | None, new: ConsumerGroupMember | None) -> None:
        """Count ``new`` instead of ``old``; either may be missing."""
        if (
            old is not None
            and new is not None
            and old.subscribed_topic_names is new.subscribed_topic_names
            and old.subscribed_topic_regex == new.subscribed_topic_regex
        ):
            return
        if new is not None:
            _count(self._names, new.subscribed_topic_names)
            if new.regex is not None:
                _count(self._regexes, (new.regex,))
        if old is not None:
            _uncount(self._names, old.subscribed_topic_names)
            if old.regex is not None:
                _uncount(self._regexes, (old.regex,))

    def resolve(self, regex: str, resolved: ResolvedRegex | None) -> None:
        """Set what an expression matches, or forget it."""
        before = self._resolved.pop(regex, None)
        if resolved is not None:
            self._resolved[regex] = resolved
            _count(self._matched, resolved.topics)
        if before is not None:
            _uncount(self._matched, before.topics)

    def copy(self) -> Subscriptions:
        """Another one, to be changed."""
        copied = Subscriptions()
        copied._names = self._names.copy()
        copied._regexes = self._regexes.copy()
        copied._resolved = self._resolved.copy()
        copied._matched = self._matched.copy()
        return copied


def _count(counts: dict[str, int], names: Iterable[str]) -> None:
    for name in names:
        counts[name] = counts.get(name, 0) + 1


def _uncount(counts: dict[str, int], names: Iterable[str]) -> None:
    for name in names:
        left = counts.get(name, 0) - 1
        if left > 0:
            counts[name] = left
        else:
            counts.pop(name, None)
