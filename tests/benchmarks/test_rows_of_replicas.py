"""The rows with three replicas."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from moldau.benchmarks.row import Row
from moldau.benchmarks.rows.replicas import ROWS
from moldau.testing.full_run import first_of

from .small import measured

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the benchmarks use epoll and /proc")

_PRODUCING = [row for row in ROWS if "java" in row.needs]


@pytest.mark.slow
@pytest.mark.parametrize("row", first_of(_PRODUCING), ids=lambda row: row.name)
def test_row(row: Row, tmp_path: Path) -> None:
    numbers = measured(row, None, tmp_path, scale=0.01)
    assert min(numbers.values()) > 0
