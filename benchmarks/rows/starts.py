"""The downtime of a server with many partitions: after ``kill -9``, and after a clean shutdown.

Each partition has a record. The server is killed when all records are on the disk, so that it finds every partition
unclosed; then it is stopped cleanly. A start is complete when the partition that was created last accepts a record: a
server may respond to ApiVersions, and Metadata, long before. The time of the first response is also reported, and that
of the clean shutdown, which is part of every restart.

The session of a killed broker is as short as in the row `recovery`, for the same reason.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from .. import filling
from ..measurement import settle
from ..restart import seconds_to_answer, seconds_to_take_a_record
from ..row import Bench, Numbers, Row, Server, Subject, Target
from .durability import GROUP

_PARTITIONS_OF_TOPIC = 1_000
"""Apache Kafka's controller creates fewer than 10,000 at a time."""

_CONFIG = {"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "250"}


@dataclass(frozen=True)
class StartWithPartitions:
    """Starts of a server with this many partitions."""

    partitions: int

    def __call__(self, bench: Bench) -> Numbers:
        server = bench.start_server(config=_CONFIG)
        left = bench.count(self.partitions)
        topic = ""
        while left:
            there = min(left, _PARTITIONS_OF_TOPIC)
            topic = f"bench-{left}"
            filling.topic_with_records(server, topic, there)
            left -= there
        settle()
        server.kill()
        answered, served = _start(server, topic, there - 1, records=1)
        settle()
        began = time.perf_counter()
        server.stop()
        seconds_to_stop = time.perf_counter() - began
        settle()
        answered_after_stop, served_after_stop = _start(server, topic, there - 1, records=2)
        server.kill()  # the files are not needed
        return {
            "seconds": answered_after_stop,
            "seconds_until_served": served_after_stop,
            "seconds_after_kill": answered,
            "seconds_until_served_after_kill": served,
            "seconds_of_the_clean_stop": seconds_to_stop,
        }


def _start(server: Server, topic: str, partition: int, *, records: int) -> tuple[float, float]:
    """Start the server. Returns the time of its first response, and the time when the partition accepted a record after
    its ``records``."""
    answered = seconds_to_answer(server)
    return answered, answered + seconds_to_take_a_record(server, topic, partition, records)


def _row(partitions: int) -> Row:
    return Row(
        name=f"start-{partitions}-partitions",
        title=f"start with {partitions:,} partitions, a record in each: after a clean stop, and after kill -9",
        group=GROUP,
        measure=StartWithPartitions(partitions),
        subjects=(Subject.APACHE, Subject.MOLDAU),
        own_server=True,
        targets=(
            Target("seconds_until_served", at_most=1.0),
            Target("seconds_until_served_after_kill", at_most=1.0),
        ),
    )


ROWS = (_row(1_000), _row(10_000))
