"""The cost of a small request with an increasing number of idle partitions, connections or consumers.

One record is produced with 1 connection x 1 in flight to one partition, while the broker has more partitions, more
connections or more waiting consumers, level by level. The server's CPU per request, and its latency, should stay
constant: `cpu_growth`, `p50_growth` and `p99_growth` are the cost at the highest level divided by that at the lowest.

Each level begins with some uncounted requests, so that the setup of the level is not measured, and ends with a check
that the idle clients were idle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ...protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from .. import filling, load
from ..crowd import Crowd, max_connections
from ..measurement import create_topic, settle
from ..row import Bench, Numbers, Row, Server, Subject, Target
from .lifetime import API_VERSIONS

GROUP = "Cost beside what is idle"

_SERVERS = (Subject.APACHE, Subject.MOLDAU)

_PARTITIONS = (1, 10, 100, 1_000, 10_000)
_PARTITIONS_OF_TOPIC = 1_000
_CONNECTIONS = (1, 100, 1_000)
_IDLE_CONNECTIONS = (1, 10, 100, 1_000, 10_000)
_WAITING = (1, 10, 100, 500)
_OTHER_PARTITIONS = 10

_WARM_UP_MS = 4_000
_UNCOUNTED_MS = 300
_COUNTED_MS = 1_000
_LOOKS = 4

# Longer than a row takes: no timeout must occur during the measurement.
_MAX_WAIT_MS = 600_000
_OUT_OF_REACH = 2**31 - 1

_MAX_GROWTH = 1.5
"""A tolerance for the processor's caches, which are fuller with 10,000 partitions, and for chance."""

_Cost = dict[str, float]
"""Numbers by name."""

_COSTS = {"cpu": "cpu_us_per_request", "p50": "p50_us", "p99": "p99_us"}


class _Producer:
    """Produces one record at a time to a partition, and counts the records it should have."""

    def __init__(self, bench: Bench, server: Server, topic: str) -> None:
        self._bench = bench
        self._server = server
        self._topic = topic
        self._request = load.produce_frame(topic, load.batch_of(1, 100))
        self._produced = 0

    def warm_up(self) -> None:
        """Warm up a server that was just started."""
        self._run(seconds=self._seconds(_WARM_UP_MS), connections=8, in_flight=4)

    def cost(self) -> _Cost:
        """CPU per request, and latencies."""
        self._run(seconds=self._seconds(_UNCOUNTED_MS))
        before = self._server.cpu_seconds()
        run = self._run(seconds=self._seconds(_COUNTED_MS))
        cpu = self._server.cpu_seconds() - before
        return {"cpu_us_per_request": cpu / run.requests * 1e6, "p50_us": run.p50_us, "p99_us": run.p99_us}

    def sequential_cost(self, crowd: Crowd) -> _Cost:
        """The same, with one connection of ``crowd`` after the other. The cost of opening them is not counted."""
        self._produced += len(crowd.take_turns(self._request, self._seconds(_UNCOUNTED_MS)))
        before = self._server.cpu_seconds()
        took = crowd.take_turns(self._request, self._seconds(_COUNTED_MS))
        cpu = self._server.cpu_seconds() - before
        self._produced += len(took)
        took.sort()
        return {
            "cpu_us_per_request": cpu / len(took) * 1e6,
            "p50_us": took[len(took) // 2],
            "p99_us": took[len(took) * 99 // 100],
        }

    def check(self) -> None:
        """Check that all produced records are in the log."""
        load.check_end_offset(self._server, self._topic, self._produced)

    def _seconds(self, milliseconds: int) -> float:
        return self._bench.count(milliseconds) / 1000

    def _run(self, *, seconds: float, connections: int = 1, in_flight: int = 1) -> load.Load:
        run = load.run(
            self._bench, self._server, self._request, connections=connections, in_flight=in_flight, seconds=seconds
        )
        self._produced += run.requests
        return run


def partitions(bench: Bench) -> Numbers:
    """Partitions with a record each, created while the server runs. The busy one is the first."""
    server = bench.start_server()
    create_topic(server, "busy", partitions=1, config={})
    producer = _Producer(bench, server, "busy")
    producer.warm_up()
    costs = {}
    there = 1
    for level in _levels(bench, _PARTITIONS):
        while there < level:
            more = min(level - there, _PARTITIONS_OF_TOPIC)
            filling.topic_with_records(server, f"idle-{there}", more)
            there += more
        settle()  # otherwise the disk would still be busy with the new files
        costs[level] = _minimum_of_rounds([level], lambda _level: producer.cost())[level]
    producer.check()
    server.kill()  # the files are not needed; a clean shutdown would write all of them to the disk
    return _numbers(costs)


def sequential_requests(bench: Bench) -> Numbers:
    """A single pending request in total: the next connection sends when the previous one has its response.

    With as many pending requests as connections, the server would find more waiting requests with more connections,
    which makes each cheaper and all of them slower, independent of the number of connections.
    """
    producer = _Producer(bench, bench.server, bench.topic())

    def cost(size: int) -> _Cost:
        with Crowd(bench.server.bootstrap_servers, size, API_VERSIONS) as crowd:
            return producer.sequential_cost(crowd)

    costs = _minimum_of_rounds(_levels(bench, _CONNECTIONS), cost)
    producer.check()
    return _numbers(costs)


def idle_connections(bench: Bench) -> Numbers:
    return _with_crowds(
        bench, bench.topic(), _IDLE_CONNECTIONS, lambda size: Crowd(bench.server.bootstrap_servers, size, API_VERSIONS)
    )


def waiting_for_other_partitions(bench: Bench) -> Numbers:
    """Each consumer has a waiting Fetch on one of ten partitions of the topic to which no records are produced."""
    topic = bench.topic(partitions=1 + _OTHER_PARTITIONS)

    def waiting(number: int) -> bytes:
        return _waiting_fetch(topic, partition=1 + number % _OTHER_PARTITIONS, min_bytes=1)

    return _with_crowds(
        bench, topic, _WAITING, lambda size: Crowd(bench.server.bootstrap_servers, size, API_VERSIONS, waiting)
    )


def waiting_for_more(bench: Bench) -> Numbers:
    """Each consumer has a waiting Fetch on the busy partition itself, for more bytes than will arrive."""
    topic = bench.topic()

    def waiting(_number: int) -> bytes:
        return _waiting_fetch(topic, partition=0, min_bytes=_OUT_OF_REACH)

    return _with_crowds(
        bench, topic, _WAITING, lambda size: Crowd(bench.server.bootstrap_servers, size, API_VERSIONS, waiting)
    )


def _with_crowds(bench: Bench, topic: str, sizes: Sequence[int], crowd_of: Callable[[int], Crowd]) -> Numbers:
    """The cost of producing to ``topic`` with crowds of all sizes."""
    producer = _Producer(bench, bench.server, topic)

    def cost(size: int) -> _Cost:
        with crowd_of(size) as crowd:
            found = producer.cost()
            crowd.check()
        return found

    costs = _minimum_of_rounds(_levels(bench, [min(size, max_connections()) for size in sizes]), cost)
    producer.check()
    return _numbers(costs)


def _minimum_of_rounds(levels: Sequence[int], cost: Callable[[int], _Cost]) -> dict[int, _Cost]:
    """The minimum of several measurements at each level, upwards and downwards alternately.

    Other load on the machine only increases a cost, and would be mistaken for growth if it occurred at a high level.
    Other rows measure how often a request is late.
    """
    found: dict[int, list[_Cost]] = {level: [] for level in levels}
    for number in range(_LOOKS):
        for level in levels if number % 2 == 0 else reversed(levels):
            found[level].append(cost(level))
    return {level: {name: min(look[name] for look in looks) for name in looks[0]} for level, looks in found.items()}


def _waiting_fetch(topic: str, *, partition: int, min_bytes: int) -> bytes:
    wanted = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=_MAX_WAIT_MS,
        min_bytes=min_bytes,
        max_bytes=_OUT_OF_REACH,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    return load.frame(request, load.FETCH_VERSION)


def _levels(bench: Bench, levels: Sequence[int]) -> list[int]:
    """The levels for this run; at least the two lowest, since growth needs two."""
    highest = bench.count(max(levels))
    return [level for number, level in enumerate(levels) if number < 2 or level <= highest]


def _numbers(costs: Mapping[int, _Cost]) -> Numbers:
    """Each cost at each level, and its growth from the lowest to the highest."""
    named = {f"{cost}_at_{level}": value for level, at in costs.items() for cost, value in at.items()}
    lowest, highest = costs[min(costs)], costs[max(costs)]
    return named | {f"{short}_growth": highest[cost] / lowest[cost] for short, cost in _COSTS.items()}


_GROWTH = (Target("cpu_growth", at_most=_MAX_GROWTH, against=None),)

ROWS = (
    Row(
        name="scaling-partitions",
        title="one-record produce 1x1 to one of 1, 10, 100, 1,000, 10,000 partitions",
        group=GROUP,
        measure=partitions,
        subjects=_SERVERS,
        needs=("cc",),
        own_server=True,
        targets=_GROWTH,
    ),
    Row(
        name="scaling-connections",
        title="one-record produce, one at a time, by 1, 100, 1,000 connections in turn",
        group=GROUP,
        measure=sequential_requests,
        subjects=_SERVERS,
        needs=("cc",),
        targets=_GROWTH,
    ),
    Row(
        name="scaling-idle-connections",
        title="one-record produce 1x1 beside 1, 10, 100, 1,000, 10,000 idle connections",
        group=GROUP,
        measure=idle_connections,
        subjects=_SERVERS,
        needs=("cc",),
        targets=_GROWTH,
    ),
    Row(
        name="scaling-waiting",
        title="one-record produce 1x1 while 1, 10, 100, 500 consumers wait on the topic's other partitions",
        group=GROUP,
        measure=waiting_for_other_partitions,
        subjects=_SERVERS,
        needs=("cc",),
        targets=_GROWTH,
    ),
    Row(
        name="scaling-waiting-for-more",
        title="one-record produce 1x1 while 1, 10, 100, 500 consumers wait on the same partition for more bytes",
        group=GROUP,
        measure=waiting_for_more,
        subjects=_SERVERS,
        needs=("cc",),
        targets=_GROWTH,
    ),
)
