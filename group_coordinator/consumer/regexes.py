"""Subscription by regular expression: which topics match.

What an expression matches is kept in the log, so that every member of a group sees the same topics; a new expression
is looked up at once. They are all looked up again when topics have come, but not within ten seconds of the last time,
and every `group.consumer.regex.refresh.interval.ms`. Only those that match something else make a record.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ...coordinator.patterns import Pattern
from ...protocol.errors import KafkaError
from . import as_records
from .subscriptions import ResolvedRegex, Subscriptions

if TYPE_CHECKING:
    from ...coordinator.outcome import Now, Record
    from ..states import GroupStates
    from .group import ConsumerGroup

logger = logging.getLogger(__name__)

# Looking at every topic for every expression is the most work that a heartbeat can cause, and topics are often created
# one after the other.
_REFRESH_INTERVAL_MIN_MS: Final = 10_000


def resolve_new(states: GroupStates, group_id: str, regex: str, subscriptions: Subscriptions, now: Now) -> list[Record]:
    """Look up an expression that nobody has subscribed by until now.

    Raises:
        KafkaError: INVALID_REGULAR_EXPRESSION.
    """
    return _resolve(states, group_id, regex, _compiled(regex), subscriptions, now)


def refresh(states: GroupStates, group: ConsumerGroup, subscriptions: Subscriptions, now: Now) -> list[Record]:
    """Look up all expressions again; the records of those that match something else now."""
    group.regexes_version = states.topics.version
    group.regexes_refreshed_ms = now.monotonic_ms
    records: list[Record] = []
    for regex in subscriptions.regexes:
        try:
            pattern: Pattern | None = _compiled(regex)
        except KafkaError as error:
            # Whoever let it in (Apache Kafka, another release of ours) understood it.
            logger.warning("group %r: an expression matches nothing: %s", group.group_id, error)
            pattern = None
        records += _resolve(states, group.group_id, regex, pattern, subscriptions, now)
    return records


def needs_refresh(states: GroupStates, group: ConsumerGroup, subscriptions: Subscriptions, now: Now) -> bool:
    """Whether it is time to look up all expressions."""
    if not subscriptions.regexes:
        return False
    last_ms = group.regexes_refreshed_ms
    if last_ms is None or len(subscriptions.regexes) > len(subscriptions.resolved):
        return True
    if now.monotonic_ms >= last_ms + states.config.consumer_regex_refresh_interval_ms:
        return True
    return group.regexes_version != states.topics.version and now.monotonic_ms >= last_ms + _REFRESH_INTERVAL_MIN_MS


def drop_unused_regexes(group_id: str, subscriptions: Subscriptions) -> list[Record]:
    """Forget the expressions that nobody subscribes by any more."""
    records = []
    for regex in [regex for regex in subscriptions.resolved if regex not in subscriptions.regexes]:
        records.append(as_records.regex_tombstone(group_id, regex))
        subscriptions.resolve(regex, None)
    return records


def _compiled(regex: str) -> Pattern:
    return Pattern(regex, name="SubscribedTopicRegex")


def _resolve(
    states: GroupStates, group_id: str, regex: str, pattern: Pattern | None, subscriptions: Subscriptions, now: Now
) -> list[Record]:
    topics = frozenset[str]() if pattern is None else pattern.matching(states.topics.names())
    before = subscriptions.resolved.get(regex)
    if before is not None and before.topics == topics:
        return []
    resolved = ResolvedRegex(topics, states.topics.version, now.epoch_ms)
    subscriptions.resolve(regex, resolved)
    return [as_records.regex_record(group_id, regex, resolved)]
