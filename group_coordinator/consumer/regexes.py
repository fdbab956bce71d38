"""Subscription by regular expression: the matching topics.

The matches of an expression are kept in the log, so that every member of a group sees the same topics. A new expression
is looked up immediately. All expressions are looked up again when topics have changed, but not within ten seconds of
the last time, and every `group.consumer.regex.refresh.interval.ms`. Only changed matches are written as records.

Topics that a member may not describe are no matches. As in Apache Kafka, the member whose request causes the lookup
decides this for the whole group.

Some expressions take milliseconds for one name. So the server asks which expressions a decision will look up
(`to_look_up`), matches them in steps (`Lookup`), and keeps the result in `Topics.matching` for the decision.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ...coordinator.patterns import Pattern
from ...protocol.errors import KafkaError
from . import as_records
from .group import ConsumerGroup
from .subscriptions import ResolvedRegex, Subscriptions

if TYPE_CHECKING:
    from ...coordinator.outcome import Caller, Now, Record
    from ...protocol.steps import Steps
    from ..states import GroupStates, Topics

logger = logging.getLogger(__name__)

# Matching every topic with every expression is the most work that a heartbeat can cause, and topics are often created
# one by one.
_REFRESH_INTERVAL_MIN_MS: Final = 10_000


def resolve_new(
    states: GroupStates, caller: Caller, group_id: str, regex: str, subscriptions: Subscriptions, now: Now
) -> list[Record]:
    """Look up an expression that no member has subscribed with before.

    Raises:
        KafkaError: INVALID_REGULAR_EXPRESSION.
    """
    return _resolve(states, group_id, regex, _matching(states, caller, regex), subscriptions, now)


def refresh(
    states: GroupStates, caller: Caller, group: ConsumerGroup, subscriptions: Subscriptions, now: Now
) -> list[Record]:
    """Look up all expressions again; returns records for those whose matches have changed."""
    group.regexes_version = states.topics.version
    group.regexes_refreshed_ms = now.monotonic_ms
    records: list[Record] = []
    for regex in subscriptions.regexes:
        try:
            matched = _matching(states, caller, regex)
        except KafkaError as error:
            # It was valid for the coordinator that accepted it (Apache Kafka, or another release of Moldau).
            logger.warning("group %r: an invalid regular expression matches no topics: %s", group.group_id, error)
            matched = frozenset()
        records += _resolve(states, group.group_id, regex, matched, subscriptions, now)
    return records


def needs_refresh(states: GroupStates, group: ConsumerGroup, subscriptions: Subscriptions, now: Now) -> bool:
    """Whether all expressions are due to be looked up."""
    if not subscriptions.regexes:
        return False
    last_ms = group.regexes_refreshed_ms
    if last_ms is None or len(subscriptions.regexes) > len(subscriptions.resolved):
        return True
    if now.monotonic_ms >= last_ms + states.config.consumer_regex_refresh_interval_ms:
        return True
    return group.regexes_version != states.topics.version and now.monotonic_ms >= last_ms + _REFRESH_INTERVAL_MIN_MS


def drop_unused_regexes(group_id: str, subscriptions: Subscriptions) -> list[Record]:
    """Remove the expressions that no member subscribes with."""
    records = []
    for regex in [regex for regex in subscriptions.resolved if regex not in subscriptions.regexes]:
        records.append(as_records.regex_tombstone(group_id, regex))
        subscriptions.resolve(regex, None)
    return records


def to_look_up(states: GroupStates, group_id: str, regex: str | None, now: Now) -> list[str]:
    """The expressions that a request of a member would look up now; ``regex`` is the one in the request."""
    group = states.find(group_id, ConsumerGroup)
    subscriptions = Subscriptions() if group is None else group.subscriptions
    found = [regex] if regex and regex not in subscriptions.resolved else []
    if group is not None and needs_refresh(states, group, subscriptions, now):
        found += [one for one in subscriptions.regexes if one != regex or not found]
    return found


def compiled(regex: str) -> Pattern:
    """The pattern of an expression.

    Raises:
        KafkaError: INVALID_REGULAR_EXPRESSION.
    """
    return Pattern(regex, name="SubscribedTopicRegex")


class Lookup:
    """An expression and the topics that it matches, which are found in steps."""

    __slots__ = ("__weakref__", "_error", "_matched", "_matches", "_pattern", "version")

    def __init__(self, regex: str) -> None:
        self._error: KafkaError | None = None
        self._pattern: Pattern | None = None
        try:
            self._pattern = compiled(regex)
        except KafkaError as error:
            self._error = error
        self._matches: dict[str, bool] = {}
        self._matched = frozenset[str]()
        self.version: int | None = None
        """The version of the topics that were matched; None before the first time."""

    def run(self, topics: Topics) -> Steps[None]:
        """Match each topic, one per step, including topics that are created while this runs."""
        matches, pattern = self._matches, self._pattern
        while self.version != topics.version:
            version, names = topics.version, list(topics.names())
            if pattern is not None:
                for name in names:
                    if name not in matches:
                        matches[name] = pattern.matches(name)
                        yield 0
            self._matched = frozenset(name for name in names if matches.get(name))
            self.version = version

    @property
    def is_valid(self) -> bool:
        """Whether this is a regular expression."""
        return self._error is None

    def matched(self) -> frozenset[str]:
        """The names of the matching topics of that version.

        Raises:
            KafkaError: INVALID_REGULAR_EXPRESSION.
        """
        if self._error is not None:
            raise self._error
        return self._matched


def _matching(states: GroupStates, caller: Caller, regex: str) -> frozenset[str]:
    """The matching topics that the client may describe."""
    matched = states.topics.matching(regex)
    may_describe = states.may_describe
    return matched if may_describe is None else frozenset(name for name in matched if may_describe(caller, name))


def _resolve(
    states: GroupStates, group_id: str, regex: str, topics: frozenset[str], subscriptions: Subscriptions, now: Now
) -> list[Record]:
    before = subscriptions.resolved.get(regex)
    if before is not None and before.topics == topics:
        return []
    resolved = ResolvedRegex(topics, states.topics.version, now.epoch_ms)
    subscriptions.resolve(regex, resolved)
    return [as_records.regex_record(group_id, regex, resolved)]
