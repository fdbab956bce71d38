"""The subscriptions of the members of a consumer group, counted, so that no decision iterates over the members.

A decision about a change of one member works on a copy in which that member is replaced: the group itself changes only
by replay.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from .member import ConsumerGroupMember


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matched, the version of the metadata, and when."""

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
        """Each regular expression that members subscribe with, with the number of these members."""
        return self._regexes

    @property
    def resolved(self) -> Mapping[str, ResolvedRegex]:
        """The regular expressions that were looked up. A new one may be missing."""
        return self._resolved

    def topics(self) -> set[str]:
        """The names of all subscribed topics."""
        return {*self._names, *self._matched}

    def __contains__(self, topic: str) -> bool:
        return topic in self._names or topic in self._matched

    def topics_of(self, member: ConsumerGroupMember) -> frozenset[str]:
        """The topics of one member. An expression that was not looked up yet matches none."""
        regex = member.regex
        resolved = self._resolved.get(regex) if regex is not None else None
        if resolved is None:
            return member.subscribed_topic_names
        return member.subscribed_topic_names | resolved.topics if member.subscribed_topic_names else resolved.topics

    def is_homogeneous(self, members: int) -> bool:
        """Whether all members, of this number, have the same subscription: assignors have a fast path for this."""
        if not self._regexes:
            return all(count == members for count in self._names.values())
        return not self._names and len(self._regexes) == 1 and next(iter(self._regexes.values())) == members

    def exchange(self, old: ConsumerGroupMember | None, new: ConsumerGroupMember | None) -> None:
        """Count ``new`` instead of ``old``; either may be None."""
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
        """Set or remove the matches of an expression."""
        before = self._resolved.pop(regex, None)
        if resolved is not None:
            self._resolved[regex] = resolved
            _count(self._matched, resolved.topics)
        if before is not None:
            _uncount(self._matched, before.topics)

    def copy(self) -> Subscriptions:
        """A copy that may be changed."""
        copied = Subscriptions()
        copied._names = self._names.copy()
        copied._regexes = self._regexes.copy()
        copied._resolved = self._resolved.copy()
        copied._matched = self._matched.copy()
        return copied


def _count(counts: dict[str, int], names: Collection[str]) -> None:
    if not counts:
        counts.update(dict.fromkeys(names, 1))
        return
    for name in names:
        counts[name] = counts.get(name, 0) + 1


def _uncount(counts: dict[str, int], names: Iterable[str]) -> None:
    for name in names:
        left = counts.get(name, 0) - 1
        if left > 0:
            counts[name] = left
        else:
            counts.pop(name, None)
