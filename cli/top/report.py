"""The rows of the table: numbers of the newest sample, and rates since the one before it. No I/O.

A rate is None if it is unknown: at the first sample, without metrics, and if a counter was reset by a restart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from ..group_client import TopicPartition
from .endpoint import Scrapes
from .exposition import Scrape
from .sampling import GroupSample, Sample

MEDIAN: Final = "0.50"
HIGH: Final = "0.99"


class TopicRow(NamedTuple):
    """A topic. Rates are per second."""

    topic: str
    records: float | None
    bytes_in: float | None
    bytes_out: float | None
    produce_requests: float | None
    fetch_requests: float | None
    failed_requests: float | None
    size_bytes: int | None
    partitions: int
    without_leader: int
    under_replicated: int
    internal: bool


class GroupRow(NamedTuple):
    """A group. ``lag_change`` and ``records`` are per second; ``catches_up_s`` is None unless the lag decreases.

    ``uncommitted`` are the partitions of members that have had records, and have no committed offset. They have no lag.
    """

    group: str
    state: str
    members: int
    lag: int | None
    lag_change: float | None
    records: float | None
    catches_up_s: float | None
    partitions: int | None
    uncommitted: int | None
    type: str
    problem: str | None


class ClientRow(NamedTuple):
    """A member of a group, or the connections of a client software: then ``client`` and ``group`` are None."""

    client: str | None
    host: str | None
    group: str | None
    partitions: int | None
    software: str | None
    version: str | None
    connections: int | None


class RequestRow(NamedTuple):
    """The requests of an API: rates per second, and durations in ms, the longest of all brokers."""

    request: str
    per_second: float | None
    errors: float | None
    median_ms: float | None
    p99_ms: float | None
    working_p99_ms: float | None
    """On the broker's own threads."""
    waiting_p99_ms: float | None
    """For records, members, or other brokers."""


class Totals(NamedTuple):
    """Sums over the cluster. Rates are per second."""

    records: float | None
    bytes_in: float | None
    bytes_out: float | None
    requests: float | None
    idle: float | None
    """The smallest share of all brokers, from 0 to 1."""
    connections: int | None


class Report(NamedTuple):
    """What is shown of a sample."""

    time_ms: int
    seconds: float | None
    """The time since the previous sample; None at the first one."""
    cluster_id: str | None
    controller: int | None
    brokers: int
    partitions: int
    without_leader: int
    under_replicated: int
    totals: Totals
    topics: list[TopicRow]
    groups: list[GroupRow]
    clients: list[ClientRow]
    requests: list[RequestRow]
    has_metrics: bool
    missing: list[str]
    """What is not shown, and how to get it."""


def report(before: Sample | None, now: Sample) -> Report:
    """The rows for a sample."""
    missing = list(now.missing)
    if now.unread_groups:
        missing.append(f"the members and offsets of {now.unread_groups} more groups are not read")
    return Report(
        time_ms=now.time_ms,
        seconds=None if before is None else now.taken_s - before.taken_s,
        cluster_id=now.cluster_id,
        controller=now.controller,
        brokers=now.brokers,
        partitions=sum(each.partitions for each in now.topics.values()),
        without_leader=sum(each.without_leader for each in now.topics.values()),
        under_replicated=sum(each.under_replicated for each in now.topics.values()),
        totals=_totals(before, now),
        topics=_topics(before, now),
        groups=[_group(name, each, before, now) for name, each in now.groups.items()],
        clients=_clients(now),
        requests=_requests(now),
        has_metrics=bool(now.scrapes),
        missing=missing,
    )


def as_json(found: Report) -> dict[str, Any]:
    """A report as one object."""
    return {
        **found._asdict(),
        "time": datetime.fromtimestamp(found.time_ms / 1000, UTC).isoformat(timespec="milliseconds"),
        "totals": found.totals._asdict(),
        "topics": [each._asdict() for each in found.topics],
        "groups": [each._asdict() for each in found.groups],
        "clients": [each._asdict() for each in found.clients],
        "requests": [each._asdict() for each in found.requests],
    }


def _totals(before: Sample | None, now: Sample) -> Totals:
    software = [each.now.software for each in now.scrapes.values()]
    idle = [each.now.idle for each in now.scrapes.values() if each.now.idle is not None]
    by_topic = _records(before, now)
    return Totals(
        records=None if by_topic is None else sum(by_topic.values()),
        bytes_in=_rate(now, lambda scrape: scrape.topics["bytes_in", ""]),
        bytes_out=_rate(now, lambda scrape: scrape.topics["bytes_out", ""]),
        requests=_rate(now, lambda scrape: scrape.requests.total()),
        idle=min(idle, default=None),
        connections=sum(each.total() for each in software) if software else None,
    )


def _topics(before: Sample | None, now: Sample) -> list[TopicRow]:
    records = _records(before, now)

    def rate(counter: str, topic: str) -> float | None:
        return _rate(now, lambda scrape: scrape.topics[counter, topic])

    return [
        TopicRow(
            topic=name,
            records=None if records is None else records.get(name, 0.0),
            bytes_in=rate("bytes_in", name),
            bytes_out=rate("bytes_out", name),
            produce_requests=rate("produce_requests", name),
            fetch_requests=rate("fetch_requests", name),
            failed_requests=rate("failed_requests", name),
            size_bytes=each.size_bytes,
            partitions=each.partitions,
            without_leader=each.without_leader,
            under_replicated=each.under_replicated,
            internal=each.is_internal,
        )
        for name, each in now.topics.items()
    ]


def _records(before: Sample | None, now: Sample) -> dict[str, float] | None:
    """Records per second of each topic, from the ends of the partitions that both samples have."""
    if before is None or now.taken_s <= before.taken_s:
        return None
    found: Counter[str] = Counter()
    for (topic, partition), end in now.ends.items():
        found[topic] += max(0, end - before.ends.get((topic, partition), end))
    return {topic: count / (now.taken_s - before.taken_s) for topic, count in found.items()}


def _group(name: str, group: GroupSample, before: Sample | None, now: Sample) -> GroupRow:
    lag = _lag(group, now)
    earlier = None if before is None else before.groups.get(name)
    change = consumed = catches_up_s = None
    if before is not None and earlier is not None and now.taken_s > before.taken_s:
        seconds = now.taken_s - before.taken_s
        earlier_lag = _lag(earlier, before)
        if lag is not None and earlier_lag is not None:
            change = (lag - earlier_lag) / seconds
        if lag is not None and change is not None and change < 0:
            catches_up_s = lag / -change
        if group.committed is not None and earlier.committed is not None:
            consumed = _consumed(earlier.committed, group.committed) / seconds
    return GroupRow(
        group=name,
        state=group.state,
        members=len(group.members),
        lag=lag,
        lag_change=change,
        records=consumed,
        catches_up_s=catches_up_s,
        partitions=None if group.committed is None else len(group.committed),
        uncommitted=_uncommitted(group, now),
        type=group.type,
        problem=group.problem,
    )


def _lag(group: GroupSample, sample: Sample) -> int | None:
    """The lag over all partitions that exist; None for a group without committed offsets."""
    if not group.committed:
        return None
    lags = [max(0, sample.ends[key] - offset) for key, offset in group.committed.items() if key in sample.ends]
    return sum(lags) if lags else None


def _uncommitted(group: GroupSample, sample: Sample) -> int | None:
    """See `GroupRow`; None for a group that has no offsets or was not read."""
    if group.committed is None:
        return None
    return sum(sample.ends.get(each, 0) > 0 for each in group.assigned - group.committed.keys())


def _consumed(before: dict[TopicPartition, int], now: dict[TopicPartition, int]) -> int:
    return sum(max(0, offset - before.get(key, offset)) for key, offset in now.items())


def _clients(now: Sample) -> list[ClientRow]:
    members = [
        ClientRow(member.client_id, member.host, name, member.partitions, None, None, None)
        for name, group in now.groups.items()
        for member in group.members
    ]
    software = sum((each.now.software for each in now.scrapes.values()), Counter())
    return members + [
        ClientRow(None, None, None, None, each.name, each.version, connections)
        for each, connections in software.items()
    ]


def _requests(now: Sample) -> list[RequestRow]:
    names = {name for each in now.scrapes.values() for name in each.now.requests}
    times: dict[tuple[str, str, str], float] = {}
    for scrapes in now.scrapes.values():
        for key, value in scrapes.now.times_ms.items():
            times[key] = max(value, times.get(key, 0.0))

    def rate(counters: Callable[[Scrape], Counter[str]], name: str) -> float | None:
        return _rate(now, lambda scrape: counters(scrape)[name])

    return [
        RequestRow(
            request=name,
            per_second=rate(lambda scrape: scrape.requests, name),
            errors=rate(lambda scrape: scrape.errors, name),
            median_ms=times.get((name, "total", MEDIAN)),
            p99_ms=times.get((name, "total", HIGH)),
            working_p99_ms=times.get((name, "local", HIGH)),
            waiting_p99_ms=times.get((name, "wait", HIGH)),
        )
        for name in sorted(names)
        if any(each.now.requests[name] for each in now.scrapes.values())
    ]


def _rate(now: Sample, counter: Callable[[Scrape], float]) -> float | None:
    """The rate of a counter, over all brokers whose counter was not reset."""
    rates = list(_rates(now.scrapes.values(), counter))
    return sum(rates) if rates else None


def _rates(scrapes: Iterable[Scrapes], counter: Callable[[Scrape], float]) -> Iterable[float]:
    for before, after in scrapes:
        if before is not None and after.taken_s > before.taken_s:
            change = counter(after) - counter(before)
            if change >= 0:
                yield change / (after.taken_s - before.taken_s)
