"""What a small request costs while more and more stands beside it and does nothing.

One record is produced with 1 connection x 1 in flight to one partition, while the broker has more partitions, more
connections or more waiting consumers, level by level. The server's CPU for a request, and its latency, should stay as
they are: `cpu_growth`, `p50_growth` and `p99_growth` are the cost at the highest level over that at the lowest.

Each level begins with some uncounted requests, so that what it takes to come there is not measured, and ends with a
look whether those who should have been idle were.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ...protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from .. import filling, load
from ..crowd import Crowd, most_connections
from ..measurement import create_topic
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

_TURNS_RATE = 2_000
_WARM_UP_SECONDS = 4
_SECONDS = 2
_UNCOUNTED_SECONDS = 0.3

# Longer than a row takes: nobody's time is to run out while the cost of others is measured.
_MAX_WAIT_MS = 600_000
_OUT_OF_REACH = 2**31 - 1

_MOST_GROWTH = 1.5
"""What is left to the processor's caches, which are fuller beside 10,000 partitions, and to chance."""

_Cost = dict[str, float]
"""Numbers by name."""

_COSTS = {"cpu": "cpu_us_per_request", "p50": "p50_us", "p99": "p99_us"}


class _Producer:
    """Produces one record at a time to a partition, and knows how many it should have by now."""

    def __init__(self, bench: Bench, server: Server, topic: str) -> None:
        self._bench = bench
        self._server = server
        self._topic = topic
        self._request = load.produce_frame(topic, load.batch_of(1, 100))
        self._produced = 0

    def warm_up(self) -> None:
        """For servers that nobody has warmed."""
        self._run(seconds=self._bench.count(_WARM_UP_SECONDS), connections=8, in_flight=4)

    def cost(self, *, connections: int = 1, rate: float | None = None) -> _Cost:
        """CPU for a request, and latencies."""
        self._run(seconds=_UNCOUNTED_SECONDS, connections=connections, rate=rate)
        before = self._server.cpu_seconds()
        run = self._run(seconds=self._bench.count(_SECONDS), connections=connections, rate=rate)
        cpu = self._server.cpu_seconds() - before
        return {"cpu_us_per_request": cpu / run.requests * 1e6, "p50_us": run.p50_us, "p99_us": run.p99_us}

    def check(self) -> None:
        """All that was produced is in the log; the generator does not look into answers."""
        if (found := load.end_offset(self._server, self._topic)) != self._produced:
            raise RuntimeError(f"{self._produced} records were produced, and the log has {found}")

    def _run(self, *, seconds: float, connections: int = 1, in_flight: int = 1, rate: float | None = None) -> load.Load:
        run = load.run(
            self._bench,
            self._server,
            self._request,
            connections=connections,
            in_flight=in_flight,
            seconds=seconds,
            rate=rate,
        )
        self._produced += run.requests
        return run


def partitions(bench: Bench) -> Numbers:
    """Partitions with a record each, made while the server runs. The busy one is the first."""
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
        costs[level] = producer.cost()
    producer.check()
    server.kill()  # nobody needs the files; a clean stop would write all of them to the disk
    return _numbers(costs)


def connections_in_turn(bench: Bench) -> Numbers:
    """The same requests a second in all, an open loop that goes from one connection to the next.

    Not as many as the server can do: then it would find more requests waiting the more connections there are, which
    makes each cheaper and all of them slower, and neither has to do with their number.
    """
    producer = _Producer(bench, bench.server, bench.topic())
    costs = _up_and_down(_levels(bench, _CONNECTIONS), lambda level: producer.cost(connections=level, rate=_TURNS_RATE))
    producer.check()
    return _numbers(costs)


def idle_connections(bench: Bench) -> Numbers:
    return _beside_crowds(
        bench, bench.topic(), _IDLE_CONNECTIONS, lambda size: Crowd(bench.server.bootstrap_servers, size, API_VERSIONS)
    )


def waiting_for_other_partitions(bench: Bench) -> Numbers:
    """Each consumer has a Fetch parked on one of ten partitions of the topic, to none of which is produced."""
    topic = bench.topic(partitions=1 + _OTHER_PARTITIONS)

    def waiting(number: int) -> bytes:
        return _parked_fetch(topic, partition=1 + number % _OTHER_PARTITIONS, min_bytes=1)

    return _beside_crowds(
        bench, topic, _WAITING, lambda size: Crowd(bench.server.bootstrap_servers, size, API_VERSIONS, waiting)
    )


def waiting_for_more(bench: Bench) -> Numbers:
    """Each consumer has a Fetch parked on the busy partition itself, and wants more bytes than will come."""
    topic = bench.topic()

    def waiting(_number: int) -> bytes:
        return _parked_fetch(topic, partition=0, min_bytes=_OUT_OF_REACH)

    return _beside_crowds(
        bench, topic, _WAITING, lambda size: Crowd(bench.server.bootstrap_servers, size, API_VERSIONS, waiting)
    )


def _beside_crowds(bench: Bench, topic: str, sizes: Sequence[int], crowd_of: Callable[[int], Crowd]) -> Numbers:
    """The cost of producing to ``topic`` beside crowds of all sizes."""
    producer = _Producer(bench, bench.server, topic)

    def cost(size: int) -> _Cost:
        with crowd_of(size) as crowd:
            found = producer.cost()
            crowd.check()
        return found

    costs = _up_and_down(_levels(bench, [min(size, most_connections()) for size in sizes]), cost)
    producer.check()
    return _numbers(costs)


def _up_and_down(levels: Sequence[int], cost: Callable[[int], _Cost]) -> dict[int, _Cost]:
    """The mean of two looks at each level, first upwards, then downwards: a machine that becomes slower meanwhile, or a
    server that becomes warmer, is not taken for a cost that grows or falls."""
    up = {level: cost(level) for level in levels}
    down = {level: cost(level) for level in reversed(levels)}
    return {level: {name: (up[level][name] + down[level][name]) / 2 for name in up[level]} for level in levels}


def _parked_fetch(topic: str, *, partition: int, min_bytes: int) -> bytes:
    wanted = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=_MAX_WAIT_MS,
        min_bytes=min_bytes,
        max_bytes=_OUT_OF_REACH,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    return load.frame(request, load.FETCH_VERSION)


def _levels(bench: Bench, levels: Sequence[int]) -> list[int]:
    """Those that the run wants; at least the two lowest, for growth needs two."""
    highest = bench.count(max(levels))
    return [level for number, level in enumerate(levels) if number < 2 or level <= highest]


def _numbers(costs: Mapping[int, _Cost]) -> Numbers:
    """Each cost at each level, and how much it grew from the lowest to the highest."""
    named = {f"{cost}_at_{level}": value for level, at in costs.items() for cost, value in at.items()}
    lowest, highest = costs[min(costs)], costs[max(costs)]
    return named | {f"{short}_growth": highest[cost] / lowest[cost] for short, cost in _COSTS.items()}


_GROWTH = (Target("cpu_growth", at_most=_MOST_GROWTH, against=None),)

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
        title=f"one-record produce, {_TURNS_RATE:,} a second, by 1, 100, 1,000 connections in turn",
        group=GROUP,
        measure=connections_in_turn,
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
