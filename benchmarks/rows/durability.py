"""Producers whose records must be synced before they are acknowledged: ``flush.messages=1`` on the topic.

Each connection is a producer that sends one record of 1,000 B and waits for its response, all to one partition. A
server that syncs each append can acknowledge as many records as the disk syncs; a higher rate means that records share
syncs. The disk has the largest effect: compare the servers, not two machines.
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import load
from ..row import Bench, Numbers, Row, Subject, Target

GROUP = "The log's whole life"
"""Also the group of the rows of recovery, starts, deletion and compaction, so that one name selects all of them."""

_SECONDS = 6
_SIZE = 1000


@dataclass(frozen=True)
class DurableProduce:
    """Produce one record repeatedly, each synced."""

    connections: int

    def __call__(self, bench: Bench) -> Numbers:
        topic = bench.topic(config={"flush.messages": "1"})
        before = bench.server.cpu_seconds()
        result = load.run(
            bench,
            bench.server,
            load.produce_frame(topic, load.batch_of(1, _SIZE)),
            connections=self.connections,
            seconds=bench.count(_SECONDS),
        )
        cpu = bench.server.cpu_seconds() - before
        load.check_end_offset(bench.server, topic, result.requests)
        return {
            "records_per_s": result.requests_per_s,
            **result.latencies(),
            "cpu_us_per_request": cpu / result.requests * 1e6,
        }


def _row(producers: int, *targets: Target) -> Row:
    who = "1 producer" if producers == 1 else f"{producers} producers"
    return Row(
        name=f"durable-{producers}",
        title=f"{who}, one record of 1,000 B at a time, flush.messages=1",
        group=GROUP,
        measure=DurableProduce(producers),
        subjects=(Subject.APACHE, Subject.MOLDAU),
        needs=("cc",),
        targets=targets,
    )


ROWS = (
    _row(1, Target("records_per_s", at_least=1.0)),
    _row(16, Target("records_per_s", at_least=1.0)),
    _row(64, Target("records_per_s", at_least=1.0)),
)
