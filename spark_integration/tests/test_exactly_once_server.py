"""Exactly-once writing to Kafka while the server is unavailable: open transactions continue, or are repeated.

A task can be paused after it has sent about half of its rows. Then the server is stopped while transactions are open,
and their producers have not noticed it yet.
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

from moldau.spark_integration import kafka_options
from moldau.spark_integration.exactly_once import ExactlyOnceWriter
from moldau.spark_integration.tasks import use_this_python
from moldau.spark_integration.tests.halting import halt_at, halted, resume
from moldau.testing.client import Record
from moldau.testing.clients import open_client
from moldau.testing.full_run import first_of
from moldau.testing.waiting import wait_until

from .exactly_once_reading import committed, everything, watching
from .streams import DEADLINE_S
from .support import read_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from moldau.testing.servers import Server

WRITERS = 2
ROWS = 6_000
# Enough rows that half of a task's rows do not fit into the buffers between Spark's processes.
FILLING = b"." * 500


class Copy:
    """A query that copies a topic, and continues from its checkpoint each time it is started."""

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
        """Write all current records. ``halting``: each task pauses in the middle. ``around``: a context manager for
        each batch."""
        options = kafka_options(self.address, self._source, starting_offsets="earliest")
        frame = read_stream(self._spark, {**options, "maxOffsetsPerTrigger": str(ROWS // batches)})
        # With a column that names the writer, rows are not shuffled: they are read while they are written.
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
        """Return when every task is paused and some of their records are in the log."""
        with watching(self.address, [self.target]) as has_open_transaction:

            def all_halted() -> bool:
                if not query.isActive:
                    raise query.exception() or AssertionError("the query ended")
                return len(halted(self._folder)) >= WRITERS and has_open_transaction()

            wait_until(all_halted, "the pause of all tasks", seconds=DEADLINE_S, pause=0.05)

    def resume(self) -> None:
        """Let paused tasks continue."""
        resume(self._folder)

    def check(self) -> None:
        """Check that each row was written once, and that no transaction is open."""
        with watching(self.address, [self.target]) as has_open_transaction:
            wait_until(
                lambda: not has_open_transaction(),
                "the marker of each transaction",
                seconds=DEADLINE_S,
                pause=0.05,
            )
        found = Counter(record.value for record in committed(self.address, self.target))
        assert found == Counter(b"%d" % n + FILLING for n in range(ROWS))


@pytest.mark.parametrize("end", first_of(["kill", "stop"]))
def test_a_transaction_continues_after_a_restart_of_the_server(
    spark: SparkSession, own_server: Server, tmp_path: Path, end: str
) -> None:
    copy = Copy(spark, own_server, tmp_path)
    query = copy.start(halting=True)
    copy.wait_halted(query)

    getattr(own_server, end)()
    own_server.start()
    copy.resume()

    assert query.awaitTermination(DEADLINE_S), "the query did not end"
    copy.check()
    assert len(everything(copy.address, copy.target)) == ROWS, "a row was written and aborted"


def test_a_task_continues_while_the_server_is_unavailable(
    spark: SparkSession, own_server: Server, tmp_path: Path
) -> None:
    """The task has written all rows, and is waiting to commit, when the server restarts."""
    copy = Copy(spark, own_server, tmp_path)
    query = copy.start(halting=True)
    copy.wait_halted(query)

    own_server.kill()
    copy.resume()
    assert not query.awaitTermination(3), "the query ended without an acknowledged commit"
    own_server.start()

    assert query.awaitTermination(DEADLINE_S), "the query did not end"
    copy.check()


@pytest.mark.extended
def test_a_query_that_timed_out_can_be_restarted(spark: SparkSession, own_server: Server, tmp_path: Path) -> None:
    copy = Copy(spark, own_server, tmp_path)
    query = copy.start(halting=True, message_timeout_ms="2000")
    copy.wait_halted(query)

    own_server.kill()
    copy.resume()
    with pytest.raises(Exception, match=r"the server rejected a row|MSG_TIMED_OUT"):
        query.awaitTermination(DEADLINE_S)
    own_server.start()
    assert copy.start().awaitTermination(DEADLINE_S), "the query did not end"

    copy.check()
    assert len(everything(copy.address, copy.target)) > ROWS, "no record was aborted"


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.usefixtures("markers_after_death")
@pytest.mark.parametrize("kills", [2, pytest.param(6, marks=pytest.mark.extended)])
@pytest.mark.full
def test_each_row_is_written_once_after_kills_of_the_server(
    spark: SparkSession, own_server: Server, tmp_path: Path, kills: int
) -> None:
    """One kill in each batch: alternately during an open transaction and at a random moment."""
    copy, moments = Copy(spark, own_server, tmp_path), random.Random(7)

    def die(batch: int, written: Event) -> None:
        if batch % 2:
            with watching(copy.address, [copy.target]) as has_open_transaction:
                while not (has_open_transaction() or written.is_set()):
                    pass
        else:
            time.sleep(moments.uniform(0, 1.5))  # a random moment, not a wait for a condition
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

    query = copy.start(batches=kills, around=dying)

    assert query.awaitTermination(4 * DEADLINE_S), "the query did not end"
    copy.check()
