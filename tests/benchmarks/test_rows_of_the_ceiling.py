"""Every row with a ceiling can be measured: its programs run to their end, and their output is understood.

The ceiling is a server too, and starts at once, so it stands for all of them here. The rows are small: what the numbers
are does not matter, only that each is there.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from moldau.benchmarks import programs
from moldau.benchmarks.ceiling import CeilingServer
from moldau.benchmarks.registry import all_rows
from moldau.benchmarks.row import Row, Server, Subject
from moldau.benchmarks.rows import latency, producers
from moldau.compat_tests.requirements import missing, require_kafka_jars

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the benchmarks use epoll and /proc")

ROWS = [row for row in all_rows() if Subject.CEILING in row.subjects]


@dataclass
class SmallBench:
    """A `row.Bench` for a thousandth of the work."""

    server: Server
    work_dir: Path
    subject: Subject = Subject.CEILING

    def count(self, full: int) -> int:
        return max(1, full // 1000)

    def topic(self, *, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        assert isinstance(self.server, CeilingServer)
        return self.server.topic

    def start_server(self, *, config: Mapping[str, str] | None = None, data_dir: Path | None = None) -> Server:
        raise AssertionError("no row with a ceiling starts servers")

    def program(self, name: str) -> list[str]:
        return programs.command(name)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CeilingServer]:
    if gone := programs.missing(["cc"]):
        missing(*gone.popitem())
    started = CeilingServer(programs.command("ceiling"), tmp_path_factory.mktemp("ceiling"))
    try:
        started.start()
        yield started
    finally:
        started.close()


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_row(row: Row, server: CeilingServer, tmp_path: Path) -> None:
    for need, how_to_get_it in programs.missing(row.needs).items():
        missing(need, how_to_get_it)
    if programs.needs_jars(row.needs):
        require_kafka_jars()
    numbers = row.measure(SmallBench(server, tmp_path))
    assert numbers.keys() >= {target.number for target in row.targets}
    for name, number in numbers.items():
        assert math.isfinite(number), name
        # Kafka's tool rounds its milliseconds down.
        assert number > 0 or (number == 0 and name.endswith("_ms")), name


@pytest.mark.parametrize("last_line", ["", "11 steady state records sent, 10.0 records/sec", "no such topic"])
def test_a_tool_that_fails_is_no_measurement(last_line: str, server: CeilingServer, tmp_path: Path) -> None:
    class Failing(SmallBench):
        def program(self, name: str) -> list[str]:
            return ["sh", "-c", f"echo {json.dumps(last_line)}", name]

    bench = Failing(server, tmp_path)
    with pytest.raises(RuntimeError, match="ProducerPerformance failed"):
        producers.ROWS[0].measure(bench)
    with pytest.raises(RuntimeError, match="EndToEndLatency failed"):
        latency.end_to_end_latency(bench)
    with pytest.raises(ValueError):  # no JSON
        latency.round_trip(bench)
