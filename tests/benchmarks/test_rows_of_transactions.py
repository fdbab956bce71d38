"""Every row of the transactions can be measured: transactions end, readers see them, and producer state is kept.

Only against Moldau, with default settings. The rows are small: their values do not matter, but must exist.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from moldau.benchmarks.registry import all_rows
from moldau.benchmarks.row import Row
from moldau.benchmarks.rows.transactions import GROUP
from moldau.benchmarks.servers import MoldauServer
from moldau.testing.full_run import first_of

from .small import measured

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the benchmarks use epoll and /proc")

ROWS = [row for row in all_rows() if row.group == GROUP]

# No request needs a retry. The memory for a few producers may be memory that the server had already.
MAY_BE_NONE = ("retries", "kb_per_transactional_id", "kb_per_producer_id")


@pytest.mark.slow
@pytest.mark.parametrize("row", first_of(ROWS), ids=lambda row: row.name)
def test_row(row: Row, server: MoldauServer, tmp_path: Path) -> None:
    numbers = measured(row, server, tmp_path, scale=0.01)
    assert [name for name, number in numbers.items() if number <= 0 and name not in MAY_BE_NONE] == []
