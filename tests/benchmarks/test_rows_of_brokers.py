"""The rows with several brokers: processes that are one server to the runner."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from moldau.benchmarks.row import Row
from moldau.benchmarks.rows.brokers import ROWS
from moldau.testing.full_run import first_of

from .small import measured, started

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the benchmarks use epoll and /proc")

# The first one has several brokers.
_ORDERED = sorted(ROWS, key=lambda row: row.name != "brokers-2-librdkafka-produce")


@pytest.mark.slow
@pytest.mark.parametrize("row", first_of(_ORDERED), ids=lambda row: row.name)
def test_row(row: Row, tmp_path: Path) -> None:
    numbers = measured(row, None, tmp_path, scale=0.001)
    assert min(numbers.values()) > 0


def test_the_cpu_time_and_memory_are_those_of_all_brokers(tmp_path: Path) -> None:
    server = started(tmp_path, {}, None, 2, {})
    try:
        first = server.cpu_seconds()
        assert first > 0
        assert server.cpu_seconds() >= first
        assert server.resident_bytes() > 3 * 1_000_000
        assert len(server.bootstrap_servers.split(",")) == 1
    finally:
        server.close()
