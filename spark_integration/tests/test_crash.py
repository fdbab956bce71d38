"""``kill -9`` during a stream, of Spark's driver and of the server: the next one continues, and no record is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from moldau.spark_integration import kafka_options
from moldau.testing.clients import open_client

from .streams import PARTITIONS, FileSink, numbers_of, produce
from .support import driver_conf, read_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from moldau.testing.client import Client
    from moldau.testing.servers import Server

    from ..fixtures import RunUntil
    from .conftest import MakeTopic

PER_BATCH = 100

# A driver in a separate process, with three kinds of sinks. It reads forever and prints the query and number of each
# finished batch. In its batch 2, foreachBatch blocks after it has written.
DRIVER = """
import json, sys, threading
from moldau.spark_integration import session
from moldau.spark_integration.query_progress import QueryProgress
from moldau.spark_integration.tests.test_crash import start_all

class Say(QueryProgress):
    def onQueryProgress(self, event):
        sys.stdout.write(f"{event.progress.name} {event.progress.batchId}\\n")
        sys.stdout.flush()

def written(batch):
    if batch == 2:
        sys.stdout.write("each written\\n")
        sys.stdout.flush()
        threading.Event().wait()

conf, *where = json.loads(sys.argv[1])
spark = session("to be killed", conf)
spark.streams.addListener(Say())
start_all(spark, *where, written)
spark.streams.awaitAnyTermination()
"""


def start_all(
    spark: SparkSession,
    options: dict[str, str],
    folder: str,
    topics: dict[str, str],
    written: Callable[[int], None] = lambda batch: None,
) -> dict[str, StreamingQuery]:
    """Write the numbers of a topic to files, to a topic, and with foreachBatch to another topic."""
    address = options["kafka.bootstrap.servers"]

    def each(frame: DataFrame, batch: int) -> None:
        frame.write.format("kafka").options(**kafka_options(address, topics["each"])).save()
        written(batch)

    files = FileSink(spark, Path(folder) / "files")
    values = read_stream(spark, options).select("value")
    to_topic = values.writeStream.format("kafka").options(**kafka_options(address, topics["topic"]))
    return {
        "files": files.start(numbers_of(read_stream(spark, options)), name="files"),
        "topic": to_topic.option("checkpointLocation", f"{folder}/topic").queryName("topic").start(),
        "each": values.writeStream.foreachBatch(each)
        .option("checkpointLocation", f"{folder}/each")
        .queryName("each")
        .start(),
    }


@pytest.mark.slow
def test_a_killed_driver_omits_no_record_and_repeats_at_most_one_batch(
    spark: SparkSession,
    bootstrap_servers: str,
    client: Client,
    make_topic: MakeTopic,
    tmp_path: Path,
    run_until: RunUntil,
) -> None:
    """Files have each record once. In a topic, the unfinished batch may be there twice, and no other batch."""
    topic, topics = make_topic(PARTITIONS), {"topic": make_topic(), "each": make_topic()}
    count = 100 * PER_BATCH
    produce(client, topic, range(count))
    options = kafka_options(bootstrap_servers, topic, starting_offsets="earliest")
    conf = driver_conf(spark, tmp_path)
    slowly = {**options, "maxOffsetsPerTrigger": str(PER_BATCH)}

    # The JVM is a child of the driver's Python: both are in the killed process group.
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, json.dumps([conf, slowly, str(tmp_path), topics])],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as driver:
        try:
            assert driver.stdout is not None
            awaited = {"files 2", "topic 2", "each written"}
            while awaited:
                awaited.discard(next(driver.stdout).strip())
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
    on_its_way = {name: batch_on_its_way(tmp_path / name, topic) for name in topics}
    produce(client, topic, range(count, count + PER_BATCH))
    assert set(range(count)) - set(FileSink(spark, tmp_path / "files").numbers()), (
        "the driver had read everything before it was killed"
    )

    queries = start_all(spark, options, str(tmp_path), topics)
    for query in queries.values():
        run_until(query)

    every = Counter(range(count + PER_BATCH))
    assert FileSink(spark, tmp_path / "files").numbers() == sorted(every)
    found = {name: Counter(numbers_in(client, topics[name])) for name in topics}
    assert found["each"] == every + on_its_way["each"]
    assert every <= found["topic"] <= every + on_its_way["topic"]


def batch_on_its_way(checkpoint: Path, topic: str) -> Counter[int]:
    """The numbers of the batch that is planned in the checkpoint but not committed; empty if all are committed."""
    planned, committed = (
        max(int(path.name) for path in (checkpoint / name).iterdir() if path.name.isdecimal())
        for name in ("offsets", "commits")
    )
    begin, end = (
        json.loads((checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1])[topic]
        for batch in (committed, planned)
    )
    return Counter(
        offset * PARTITIONS + int(partition)
        for partition in begin
        for offset in range(begin[partition], end[partition])
    )


def numbers_in(client: Client, topic: str) -> Iterator[int]:
    return (int(record.value or b"") for record in client.read(topic, 0))


def test_a_query_survives_a_kill_of_the_server(
    spark: SparkSession, own_server: Server, tmp_path: Path, run_until: RunUntil
) -> None:
    topic = "spark-server-killed"
    sink = FileSink(spark, tmp_path)
    options = kafka_options(own_server, topic, starting_offsets="earliest")
    with open_client("confluent-kafka", own_server.bootstrap_servers) as client:
        client.create_topic(topic, PARTITIONS)
        produce(client, topic, range(1000))
        query = sink.start(numbers_of(read_stream(spark, {**options, "maxOffsetsPerTrigger": "100"})))
        before = run_until(query, rows=200)

        own_server.kill()
        own_server.start()
        produce(client, topic, range(1000, 1500))
        run_until(query, rows=1500, timeout_s=120)

    assert before.rows < 1000, "the query had read everything before the server was killed"
    assert sink.numbers() == list(range(1500))


def test_a_query_continues_after_restarts_of_the_server(
    spark: SparkSession, own_server: Server, tmp_path: Path
) -> None:
    topic = "spark-restarts"
    sink = FileSink(spark, tmp_path)
    source = read_stream(spark, kafka_options(own_server, topic, starting_offsets="earliest"))
    with open_client("confluent-kafka", own_server.bootstrap_servers) as client:
        client.create_topic(topic, PARTITIONS)
        produce(client, topic, range(500))
        sink.run(source)

        own_server.restart()
        produce(client, topic, range(500, 800))
        sink.run(source)
        own_server.kill()
        own_server.start()
        produce(client, topic, range(800, 900))
        sink.run(source)

    assert sink.numbers() == list(range(900))
