"""Every row with a ceiling can be measured: its programs run to their end, and their output is understood.

The ceiling is a server too, and starts immediately, so the tests use only this server. The rows are small: their values
do not matter, but must exist.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.benchmarks import programs
from moldau.benchmarks.ceiling import CeilingServer
from moldau.benchmarks.registry import all_rows
from moldau.benchmarks.row import Row, Subject
from moldau.benchmarks.rows import latency, producers
from moldau.testing.full_run import first_of
from moldau.testing.requirements import missing

from .small import measured, small_bench

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the benchmarks use epoll and /proc")

ROWS = [row for row in all_rows() if Subject.CEILING in row.subjects]


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
@pytest.mark.parametrize("row", first_of(ROWS), ids=lambda row: row.name)
def test_row(row: Row, server: CeilingServer, tmp_path: Path) -> None:
    numbers = measured(row, server, tmp_path, scale=0.001, subject=Subject.CEILING)
    # Kafka's tool rounds its milliseconds down.
    assert [name for name, number in numbers.items() if number < 0 or (number == 0 and not name.endswith("_ms"))] == []


@pytest.mark.parametrize("last_line", ["", "11 steady state records sent, 10.0 records/sec", "no such topic"])
def test_a_failed_tool_is_not_a_measurement(
    last_line: str, server: CeilingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "command", lambda name: ["sh", "-c", f"echo {json.dumps(last_line)}", name])
    with small_bench(server, tmp_path, scale=0.001, subject=Subject.CEILING) as bench:
        with pytest.raises(RuntimeError, match="ProducerPerformance failed"):
            producers.ROWS[0].measure(bench)
        with pytest.raises(RuntimeError, match="EndToEndLatency failed"):
            latency.end_to_end_latency(bench)
        with pytest.raises(ValueError):  # no JSON
            latency.round_trip(bench)
