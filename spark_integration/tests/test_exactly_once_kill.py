"""Exactly-once writing to Kafka, with repeated kill -9 of all processes: each row is committed exactly once.

Some kills are at random moments, others while a transaction is open. Some kill all processes of Spark, as a failure of
the machine would; others kill only the driver, so that its workers are in the middle of their tasks.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from moldau.spark_integration import kafka_options
from moldau.testing.client import Client, Record

from .exactly_once_reading import committed, everything, watching
from .support import driver_conf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .conftest import MakeTopic

PARTITIONS = 3
ROWS = 90_000
ROWS_OF_BATCH = 6_000
# A driver that has not started to work in this time hangs.
DEADLINE_S = 500

# A driver in a separate process: copies a topic to two others, and prints the number of each batch that it starts.
DRIVER = """
import json, sys
from moldau.spark_integration import session
from moldau.spark_integration.exactly_once import ExactlyOnceWriter

conf, options, address, name, topics, checkpoint = json.loads(sys.argv[1])
writer = ExactlyOnceWriter(address, query_name=name)

def take(rows, batch):
    print(batch, flush=True)
    writer(rows, batch)

source = session("to be killed", conf).readStream.format("kafka").options(**options).load()
rows = source.selectExpr("key", "value", "headers", f"if(partition = 0, '{topics[0]}', '{topics[1]}') topic")
stream = rows.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint)
stream.trigger(availableNow=True).start().awaitTermination()
"""


@pytest.mark.extended
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("kills", [1, 2, 4])
def test_each_row_is_written_once_after_kills_at_any_moment(
    spark: SparkSession, bootstrap_servers: str, client: Client, make_topic: MakeTopic, tmp_path: Path, kills: int
) -> None:
    source, topics = make_topic(PARTITIONS), [make_topic(), make_topic()]
    client.produce(source, [record(n) for n in range(ROWS)])
    options = kafka_options(bootstrap_servers, source, starting_offsets="earliest", include_headers=True)
    conf = driver_conf(spark, tmp_path)
    name = f"query-{uuid4().hex[:12]}"
    settings = json.dumps(
        [
            conf,
            {**options, "maxOffsetsPerTrigger": str(ROWS_OF_BATCH)},
            bootstrap_servers,
            name,
            topics,
            str(tmp_path / "checkpoint"),
        ]
    )
    moments, log = random.Random(7), tmp_path / "log"
    left_open = 0

    with watching(bootstrap_servers, topics) as has_open_transaction:
        for kill in range(kills):
            with started(settings, log) as driver:
                next_batch(driver)
                if kill % 2 == 0:
                    # When the second batch begins, Spark has started its workers.
                    next_batch(driver)
                    groups = process_groups(driver.pid)
                    pause_in_transaction(has_open_transaction, driver, groups)
                else:
                    time.sleep(moments.uniform(0, 1))  # a random moment, not a wait for a condition
                    groups = process_groups(driver.pid)
                assert driver.poll() is None, "the driver had written everything before it was killed"
                # The first kill ends all processes: a worker that outlives its driver may commit its transaction.
                signal_all(groups if kill < (kills + 1) // 2 else [driver.pid], signal.SIGKILL)
                signal_all(groups, signal.SIGCONT)
            left_open += has_open_transaction()
    with started(settings, log) as driver:
        driver.communicate(timeout=DEADLINE_S)
        assert driver.returncode == 0, log.read_text()[-3000:]

    seen = [found for topic in topics for found in committed(bootstrap_servers, topic)]
    written = [found for topic in topics for found in everything(bootstrap_servers, topic)]
    assert Counter((found.key, found.value, found.headers) for found in seen) == Counter(map(content, range(ROWS)))
    assert left_open, "no kill happened during a transaction"
    assert len(written) > len(seen), "no record was aborted"


def content(n: int) -> tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]:
    """Each row occurs once, since duplicates among the rows would hide duplicate writes."""
    return (
        None if n % 4 == 0 else b"key-%d" % (n % 100),
        b"%d" % n,
        (("n", b"%d" % n), ("null", None)) if n % 3 else (),
    )


def record(n: int) -> Record:
    key, value, headers = content(n)
    return Record(value, key, headers, partition=n % PARTITIONS)


@contextmanager
def started(settings: str, log: Path) -> Iterator[subprocess.Popen[str]]:
    """A driver, with its JVM in the same process group; its standard error goes to ``log``."""
    command = [sys.executable, "-c", DRIVER, settings]
    with (
        log.open("w") as words,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=words, text=True, start_new_session=True) as driver,
    ):
        try:
            yield driver
        finally:
            if driver.poll() is None:
                os.killpg(driver.pid, signal.SIGKILL)


def next_batch(driver: subprocess.Popen[str]) -> None:
    """Return when the driver begins a batch."""
    assert driver.stdout is not None
    assert driver.stdout.readline(), "the driver has ended"


def process_groups(driver: int) -> list[int]:
    """The driver's process group and those of its descendants, youngest first: Spark's workers create their own.

    The youngest are killed first, because they would notice that the JVM has exited.
    """
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,pgid="], capture_output=True, text=True, check=True).stdout
    processes = [tuple(map(int, line.split())) for line in listed.splitlines()]
    found, groups = [driver], [driver]
    for ancestor in found:
        found += [pid for pid, parent, _ in processes if parent == ancestor]
        groups += [group for pid, parent, group in processes if parent == ancestor and group not in groups]
    return groups[::-1]


def pause_in_transaction(has_open_transaction: Any, driver: subprocess.Popen[str], groups: list[int]) -> None:
    """Stop the driver and its workers with SIGSTOP, at a moment when one has an open transaction."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        signal_all(groups, signal.SIGSTOP)
        if has_open_transaction():
            return
        signal_all(groups, signal.SIGCONT)
        assert driver.poll() is None, "the driver has ended"
        assert time.monotonic() < deadline, "no transaction was open"
        time.sleep(0.02)  # time to run


def signal_all(groups: list[int], number: signal.Signals) -> None:
    for group in groups:
        with suppress(ProcessLookupError):
            os.killpg(group, number)
