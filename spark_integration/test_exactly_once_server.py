"""Exactly once into Kafka, when it is the server that goes away: what was begun goes on, or is done again.

A task can be made to stand still when about half of its rows are sent. Then the server goes away while transactions are
open, and whoever has them does not know it yet.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from moldau.compat_tests.client import Record
from moldau.compat_tests.clients import open_client
from moldau.spark_integration import kafka_options
from moldau.spark_integration.exactly_once import ExactlyOnceWriter
from moldau.spark_integration.halting import go_on, halt_at, halted
from moldau.spark_integration.tasks import use_this_python

from .exactly_once_reading import committed, everything, watching
from .streams import DEADLINE_S
from .support import read_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from moldau.compat_tests.servers import Server

WRITERS = 2
ROWS = 6_000
# Large enough that half of a task's rows do not stay in the buffers between Spark's processes.
FILLING = b"." * 500
KILLS = 6


class Copy:
    """A query that copies a topic, and goes on with its checkpoint each time that it is started."""

    def __init__(self, spark: SparkSession, server: Server, folder: Path) -> None:
        name = uuid4().hex[:12]
        self.address, self.target = server.bootstrap_servers, f"to-{name}"
        self._spark, self._folder = spark, folder
        self._name, self._source = f"query-{name}", f"from-{name}"
        use_this_python(spark)
        with open_client("confluent-kafka", self.address) as client:
            client.create_topic(self.target, 1)
            client.create_topic(self._source, WRITERS)
            client.produce(self._source, [Record(b"%d" % n + FILLING, partition=n % WRITERS) for n in range(ROWS)])

    def start(
        self,
        *,
        batches: int = 1,
        halting: bool = False,
        around: Callable[[int], AbstractContextManager[object]] = nullcontext,
        **client: str,
    ) -> StreamingQuery:
        """Write all that is there. ``halting``: each task stands still in its middle. ``around``: each batch is written
        within that."""
        options = kafka_options(self.address, self._source, starting_offsets="earliest")
        frame = read_stream(self._spark, {**options, "maxOffsetsPerTrigger": str(ROWS // batches)})
        # With a column that names the writer nothing is shuffled: rows are read while they are written.
        rows = frame.selectExpr("value", "partition writer")
        if halting:
            middle = {b"%d" % (ROWS // 2 + partition) + FILLING: partition for partition in range(WRITERS)}
            rows = rows.withColumn("value", halt_at(self._folder, middle)(rows.value))
        writer = ExactlyOnceWriter(
            self.address,
            self._name,
            topic=self.target,
            writers=WRITERS,
            writer_column="writer",
            client={name.replace("_", "."): value for name, value in client.items()},
        )

        def write(batch_rows: DataFrame, batch: int) -> None:
            with around(batch):
                writer(batch_rows, batch)

        stream = rows.writeStream.foreachBatch(write).option("checkpointLocation", str(self._folder / "checkpoint"))
        return stream.trigger(availableNow=True).start()

    def wait_halted(self, query: StreamingQuery) -> None:
        """Return when every task stands still and records of theirs are in the log."""
        deadline = time.monotonic() + DEADLINE_S
        with watching(self.address, [self.target]) as has_open_transaction:
            while len(halted(self._folder)) < WRITERS or not has_open_transaction():
                if not query.isActive:
                    raise query.exception() or AssertionError("the query has ended")
                assert time.monotonic() < deadline, "the tasks do not come to their middle"
                time.sleep(0.05)

    def go_on(self) -> None:
        """Whoever stands still goes on."""
        go_on(self._folder)

    def check(self) -> None:
        """Each row is there, once, and no transaction is left open."""
        deadline = time.monotonic() + DEADLINE_S
        with watching(self.address, [self.target]) as has_open_transaction:
            while has_open_transaction():
                assert time.monotonic() < deadline, "a transaction has no marker"
                time.sleep(0.05)
        found = Counter(record.value for record in committed(self.address, self.target))
        assert found == Counter(b"%d" % n + FILLING for n in range(ROWS))


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_transaction_goes_on_when_the_server_is_back(
    spark: SparkSession, own_server: Server, tmp_path: Path, end: str
) -> None:
    copy = Copy(spark, own_server, tmp_path)
    query = copy.start(halting=True)
    copy.wait_halted(query)

    getattr(own_server, end)()
    own_server.start()
    copy.go_on()

    assert query.awaitTermination(DEADLINE_S), "the query did not end"
    copy.check()
    assert len(everything(copy.address, copy.target)) == ROWS, "a row was written and taken back"


def test_a_task_goes_on_while_the_server_is_away(spark: SparkSession, own_server: Server, tmp_path: Path) -> None:
    """It has written everything, and waits with the commit, when the server comes back."""
    copy = Copy(spark, own_server, tmp_path)
    query = copy.start(halting=True)
    copy.wait_halted(query)

    own_server.kill()
    copy.go_on()
    assert not query.awaitTermination(3), "it has ended, and nobody could tell it that it is done"
    own_server.start()

    assert query.awaitTermination(DEADLINE_S), "the query did not end"
    copy.check()


def test_a_query_that_waits_no_longer_is_started_again(spark: SparkSession, own_server: Server, tmp_path: Path) -> None:
    copy = Copy(spark, own_server, tmp_path)
    query = copy.start(halting=True, message_timeout_ms="2000")
    copy.wait_halted(query)

    own_server.kill()
    copy.go_on()
    with pytest.raises(Exception, match=r"the server has not taken a row|MSG_TIMED_OUT"):
        query.awaitTermination(DEADLINE_S)
    own_server.start()
    assert copy.start().awaitTermination(DEADLINE_S), "the query did not end"

    copy.check()
    assert len(everything(copy.address, copy.target)) > ROWS, "nothing was taken back"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("markers_after_death")
def test_each_row_is_there_once_whenever_the_server_was_killed(
    spark: SparkSession, own_server: Server, tmp_path: Path
) -> None:
    """Once in each batch: when a transaction is open, and in turn with that at any moment."""
    copy, moments = Copy(spark, own_server, tmp_path), random.Random(7)

    def die(batch: int, written: Event) -> None:
        if batch % 2:
            with watching(copy.address, [copy.target]) as has_open_transaction:
                while not (has_open_transaction() or written.is_set()):
                    pass
        else:
            time.sleep(moments.uniform(0, 1.5))  # the moment, not a wait for something
        own_server.kill()
        own_server.start()

    @contextmanager
    def dying(batch: int) -> Iterator[None]:
        written = Event()
        with ThreadPoolExecutor(1) as thread:
            death = thread.submit(die, batch, written)
            try:
                yield
            finally:
                written.set()
        death.result()

    query = copy.start(batches=KILLS, around=dying)

    assert query.awaitTermination(4 * DEADLINE_S), "the query did not end"
    copy.check()
