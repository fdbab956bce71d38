"""Every row of Spark can be measured: its jobs run, and read all records.

Only against Moldau, with one Spark for all of them. The rows are small: their values do not matter, but must exist.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.benchmarks import programs
from moldau.benchmarks.registry import all_rows
from moldau.benchmarks.row import Row
from moldau.benchmarks.rows.spark import GROUP, SPARK
from moldau.benchmarks.servers import MoldauServer
from moldau.benchmarks.spark_jobs import Archive
from moldau.benchmarks.spark_topics import check_records, filled_topic
from moldau.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.testing.requirements import missing, require_program
from moldau.testing.wire import WireClient

from .small import measured, small_bench

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the benchmarks use epoll and /proc")

ROWS = [row for row in all_rows() if row.group == GROUP]


@pytest.fixture(scope="module")
def one_spark() -> Iterator[None]:
    if importlib.util.find_spec("pyspark") is None:
        pytest.skip("needs pyspark: pip install pyspark==4.0.0, or run `tox -e spark`")
    require_program("java")
    with SPARK.running():
        yield


@pytest.mark.full
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_row(row: Row, server: MoldauServer, one_spark: None, tmp_path: Path) -> None:
    numbers = measured(row, server, tmp_path, scale=0.001)
    assert [name for name, number in numbers.items() if number <= 0] == []


@pytest.mark.full
def test_the_error_of_a_spark_job_is_reported(server: MoldauServer, one_spark: None, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="ArchiveError: there is no topic nowhere"):
        SPARK.run(Archive(server.bootstrap_servers, "nowhere", str(tmp_path / "archive")))


def test_a_topic_is_filled_evenly_and_to_the_end(server: MoldauServer, tmp_path: Path) -> None:
    if gone := programs.missing(["cc"]):
        missing(*gone.popitem())
    # Three batches of 125 in each of four partitions are the least that has them all.
    with small_bench(server, tmp_path, scale=1) as bench:
        filled = filled_topic(bench, partitions=4, records=1_001, size=100)
        assert filled.records == 1_500
        wanted = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(4)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=filled.name, partitions=wanted)])
        with WireClient(server.bootstrap_servers) as wire:
            (topic,) = wire.call(request, 4).topics
        assert [(each.partition_index, each.offset) for each in topic.partitions] == [(at, 375) for at in range(4)]
        with pytest.raises(RuntimeError, match="should have 1501 records, but has 1500"):
            check_records(server, filled.name, 4, 1_501)
        with pytest.raises(RuntimeError, match="4: error 3"):
            check_records(server, filled.name, 5, 1_500)
