"""The fixtures for users' tests: what ``run_until`` waits for and how it fails; and the documented example."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from moldau.spark_integration import kafka_options
from moldau.testing.client import Client

from .streams import produce
from .support import read_stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from ..fixtures import RunUntil
    from .conftest import MakeTopic

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


def start(
    spark: SparkSession, bootstrap_servers: str, topic: str, *columns: str, now: bool = False, per_trigger: int = 1000
) -> StreamingQuery:
    options = kafka_options(bootstrap_servers, topic, starting_offsets="earliest")
    source = read_stream(spark, {**options, "maxOffsetsPerTrigger": str(per_trigger)})
    writer = source.selectExpr(*(columns or ("value",))).writeStream.format("noop")
    return (writer.trigger(availableNow=True) if now else writer).start()


def test_it_returns_when_the_conditions_are_met(
    spark: SparkSession, bootstrap_servers: str, client: Client, make_topic: MakeTopic, run_until: RunUntil
) -> None:
    topic = make_topic(2)
    produce(client, topic, range(40), partitions=2)
    query = start(spark, bootstrap_servers, topic, per_trigger=10)

    assert run_until(query, rows=15).rows >= 15
    assert run_until(query, lambda progress: len(progress) >= 3)[2].batchId == 2
    assert run_until(query, offsets={topic: {1: 20}}).end_offsets[topic][1] == 20
    everything = run_until(query)
    assert (everything.rows, everything.end_offsets) == (40, {topic: {0: 20, 1: 20}})

    produce(client, topic, range(40, 50), partitions=2)
    assert run_until(query, rows=50, offsets={topic: {0: 25, 1: 25}}).rows == 50
    assert query.isActive


def test_it_returns_the_reports_of_a_query_that_has_ended(
    spark: SparkSession, bootstrap_servers: str, client: Client, make_topic: MakeTopic, run_until: RunUntil
) -> None:
    topic = make_topic()
    produce(client, topic, range(10), partitions=1)
    query = start(spark, bootstrap_servers, topic, now=True)

    assert run_until(query).rows == 10
    assert query.awaitTermination(60)
    assert run_until(query, rows=10).end_offsets == {topic: {0: 10}}


def test_it_fails_if_the_query_ends_or_hangs_before_the_conditions_are_met(
    spark: SparkSession, bootstrap_servers: str, client: Client, make_topic: MakeTopic, run_until: RunUntil
) -> None:
    topic = make_topic()
    produce(client, topic, range(10), partitions=1)

    with pytest.raises(AssertionError, match=r"had read 10 rows in 1 batch, up to .*: \{0: 10\}\}, when it ended"):
        run_until(start(spark, bootstrap_servers, topic, now=True), rows=11)
    query = start(spark, bootstrap_servers, topic)
    run_until(query)
    with pytest.raises(AssertionError, match=r"had read 10 rows in 1 batch, .* after 0\.2 s"):
        run_until(query, rows=11, timeout_s=0.2)


@pytest.mark.parametrize("rows", [1, None])
def test_it_raises_the_exception_of_the_query(
    spark: SparkSession,
    bootstrap_servers: str,
    client: Client,
    make_topic: MakeTopic,
    run_until: RunUntil,
    rows: int | None,
) -> None:
    topic = make_topic()
    produce(client, topic, range(1), partitions=1)
    query = start(spark, bootstrap_servers, topic, "raise_error('no such order')")

    with pytest.raises(Exception, match="no such order"):
        run_until(query, rows=rows)


@pytest.mark.full
@pytest.mark.usefixtures("spark_conf")
def test_the_documented_example_passes(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if request.config.getoption("apache") or request.config.getoption("bootstrap_server"):
        pytest.skip("the example starts its own Moldau")
    files = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE.read_text(), re.DOTALL))
    assert set(files) == {"conftest.py", "test_orders.py"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert run.returncode == 0, run.stdout + run.stderr
    assert "1 passed" in run.stdout
