"""Pytest fixtures for tests of Spark jobs: ``spark``, one session for all tests, and ``run_until``, which waits.

In ``conftest.py``, with the extra ``spark`` installed:

    pytest_plugins = ["moldau.spark_integration.fixtures"]

The broker is the fixture ``kafka`` of ``moldau.testing``. docs/spark.md has an example.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

import pytest

from .session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from .query_progress import Condition, EndOffsets, Progress

# A session for small data and many short jobs, twice as fast as with the defaults: only the quick compiler of the JVM,
# no code generation per query, few partitions after a shuffle, no web interface. The settings change no result.
TEST_CONF: Mapping[str, str] = {
    "spark.master": "local[2]",
    "spark.driver.memory": "700m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


class RunUntil(Protocol):
    """``run_until(query, ...)``: wait until the query meets the conditions, and return its progress reports so far."""

    def __call__(
        self,
        query: StreamingQuery,
        condition: Condition | None = None,
        *,
        rows: int | None = None,
        offsets: EndOffsets | None = None,
        timeout_s: float = 60.0,
    ) -> Progress: ...


@pytest.fixture(scope="session")
def spark_conf() -> Mapping[str, str]:
    """Spark's settings for the session, in addition to ``TEST_CONF``; override it in conftest.py."""
    return {}


@pytest.fixture(scope="session")
def spark(spark_conf: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session of ``moldau.spark_integration.session`` for all tests; its tables are in a temporary folder."""
    warehouse = {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("spark"))}
    with session("tests", {**TEST_CONF, **warehouse, **spark_conf}) as running:
        # Spark caches its producers, which would otherwise log errors about a stopped server after pytest's last line.
        running.sparkContext.setLogLevel("ERROR")
        yield running


@pytest.fixture
def run_until(spark: SparkSession) -> Iterator[RunUntil]:
    """``run_until(query)`` returns when all existing records have been read. Queries run until the test ends.

    ``rows=100``: the query has read 100 rows since its start. ``offsets={"orders": {0: 50}}``: it has read partition 0
    up to offset 50. ``condition``: a predicate of the reports so far (a list of Spark's ``StreamingQueryProgress``,
    with the attributes ``rows`` and ``end_offsets``). If several are given, all must hold.

    If the query fails, its exception is raised here. If it ends too early or takes longer than ``timeout_s`` seconds,
    an AssertionError states its progress.
    """
    from .query_progress import QueryProgress

    listener = QueryProgress()
    spark.streams.addListener(listener)
    before = {str(query.runId) for query in spark.streams.active}

    def wait(
        query: StreamingQuery,
        condition: Condition | None = None,
        *,
        rows: int | None = None,
        offsets: EndOffsets | None = None,
        timeout_s: float = 60.0,
    ) -> Progress:
        conditions: list[Condition] = [] if condition is None else [condition]
        if rows is not None:
            conditions.append(lambda progress: progress.rows >= rows)
        if offsets is not None:
            conditions.append(lambda progress: progress.has_read_to(offsets))
        if conditions:
            return listener.wait(query, conditions, timeout_s)
        return listener.wait_all_available(query, timeout_s)

    try:
        yield wait
    finally:
        for query in spark.streams.active:
            if str(query.runId) not in before:
                query.stop()
        spark.streams.removeListener(listener)
