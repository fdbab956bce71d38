"""Every row of the log can be measured: records are synced, servers restart with their data, topics are deleted.

Only against Moldau, with default settings. The rows are small: their values do not matter, but must exist.
"""

from __future__ import annotations

import sys
import uuid
from pathlib import Path

import pytest

from moldau.benchmarks import filling, restart
from moldau.benchmarks.registry import all_rows
from moldau.benchmarks.row import Row
from moldau.benchmarks.rows.durability import GROUP
from moldau.benchmarks.servers import MoldauServer
from moldau.testing.full_run import first_of

from .small import measured

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the benchmarks use epoll and /proc")

ROWS = [row for row in all_rows() if row.group == GROUP]


@pytest.mark.slow
@pytest.mark.parametrize("row", first_of(ROWS), ids=lambda row: row.name)
def test_row(row: Row, server: MoldauServer, tmp_path: Path) -> None:
    numbers = measured(row, server, tmp_path, scale=0.01)
    assert [name for name, number in numbers.items() if number <= 0] == []


def test_a_partition_with_lost_records_is_not_a_measurement(server: MoldauServer) -> None:
    topic = f"topic-{uuid.uuid4().hex}"
    filling.topic_with_records(server, topic, 2)
    assert restart.seconds_to_take_a_record(server, topic, 1, records=1) > 0
    with pytest.raises(RuntimeError, match=f"{topic}-1 had 3 records before the restart, and 2 after it"):
        restart.seconds_to_take_a_record(server, topic, 1, records=3)
