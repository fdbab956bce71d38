"""The commands as users run them: in separate processes, with their output, exit codes and signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from moldau.spark_integration.archive_layout import Layout
from moldau.spark_integration.archive_manifest import load
from moldau.spark_integration.archive_pieces import read_archive
from moldau.testing.client import Client, Record

from .archive_rows import archive_rows, topic_rows
from .conftest import MakeTopic
from .support import command_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

DEADLINE_S = 500
# As users start it: it finds its jars itself. The quick compiler is sufficient for one batch.
QUICK = "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
LOCAL = ("--master", "local[2]", "--spark-config", "spark.driver.memory=500m", "--spark-config", QUICK)
AVRO = {
    "type": "record",
    "name": "order",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "long"}, {"name": "city", "type": ["null", "string"]}],
}


def moldau(*arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "moldau", "spark", *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env={**os.environ, **(environment or {})},
    )


@pytest.fixture(autouse=True)
def _needs_spark(spark: SparkSession) -> None:
    """Skips the tests with a reason if Spark is missing."""


@pytest.mark.full
@pytest.mark.timeout(1500)
def test_a_topic_is_archived_merged_and_replayed(
    spark: SparkSession, bootstrap_servers: str, client: Client, make_topic: MakeTopic, tmp_path: Path
) -> None:
    quickly = command_options(spark, tmp_path)
    topic = make_topic(2, {"retention.ms": "-1"})
    folder, again = str(tmp_path / "archive"), f"{topic}-again"
    client.produce(topic, [Record(b'{"id": %d}' % n, timestamp_ms=1 + n, partition=n % 2) for n in range(20)])
    client.produce(topic, [Record(b"no JSON", timestamp_ms=100)])
    there = ("-b", bootstrap_servers, *quickly)

    archived = moldau(
        "archive", topic, "--to", folder, "--once", "--batch-records", "12", "--json-schema", "id INT", "--json", *there
    )
    merged = moldau("compact", folder, *quickly)
    replayed = moldau("replay", folder, "--to", again, "--from", "1970-01-01T00:00:00.011", *there)
    refused = moldau("replay", folder, "--to", again, *there)

    assert archived.returncode == 0, archived.stderr
    summary = json.loads(archived.stdout)
    assert (summary["topic"], summary["records"], summary["new_records"], summary["unfit"]) == (topic, 21, 21, 1)
    assert summary["partitions"] == [
        {"partition": 0, "records": 11, "first_offset": 0, "last_offset": 10},
        {"partition": 1, "records": 10, "first_offset": 0, "last_offset": 9},
    ]
    # The output of Spark and its launcher is hidden; the remaining output is a line for each batch.
    assert [line.split(":")[0] for line in archived.stderr.splitlines()] == ["batch 0", "batch 1"]
    assert archive_rows(spark, folder) == topic_rows(client, topic, 2)

    assert merged.returncode == 0, merged.stderr
    assert merged.stdout == f"{folder}: 21 records in 2 files, previously 4.\n"

    assert replayed.returncode == 0, replayed.stderr
    assert replayed.stdout.splitlines()[0] == f"{again}: 11 records of {folder} sent."
    assert [row.timestamp_ms for row in topic_rows(client, again, 2)] == [11, 13, 15, 17, 19, 100, 12, 14, 16, 18, 20]

    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1].startswith(f"moldau: {again} is not empty (partition 0 has 6 records)")


def zigzag(number: int) -> bytes:
    """A number below 64, in Avro's encoding."""
    return bytes([2 * number])


@pytest.mark.full
def test_values_are_parsed_as_avro(
    spark: SparkSession, bootstrap_servers: str, client: Client, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(1)
    header = b"\x00\x00\x00\x00\x07"
    order = zigzag(5) + zigzag(1) + zigzag(6) + b"Prague"
    no_city = zigzag(6) + zigzag(0)
    too_long = zigzag(1) + zigzag(1) + b"\xfe\xff\xff\xff\x0f"  # its length field claims 2 GB
    unfit = [order, header + order[:-1], header, b"", header + too_long]
    client.produce(topic, [Record(value) for value in (header + order, header + no_city, *unfit, None)])
    (tmp_path / "order.avsc").write_text(json.dumps(AVRO))
    schema = ("--avro-schema", f"@{tmp_path / 'order.avsc'}", "--registry-header")

    done = moldau(
        "archive", topic, "--to", str(tmp_path / "a"), "--once", *schema, "--json", "-b", bootstrap_servers, *LOCAL
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["unfit"] == len(unfit)
    rows = read_archive(spark, tmp_path / "a").orderBy("offset").collect()
    assert [row.parsed and tuple(row.parsed) for row in rows] == [(5, "Prague"), (6, None), *[None] * 6]


@pytest.mark.full
def test_an_avro_schema_that_spark_rejects_is_reported(
    bootstrap_servers: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    schema = json.dumps({**AVRO, "fields": [{"name": "id", "type": "nothing"}]})

    done = moldau(
        "archive",
        make_topic(),
        "--to",
        str(tmp_path / "a"),
        "--once",
        "--avro-schema",
        schema,
        "-b",
        bootstrap_servers,
        *LOCAL,
    )

    assert done.returncode == 1
    assert done.stderr.startswith("moldau: Spark rejects the avro schema: org.apache.avro.")
    assert "nothing" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.extended)])
def test_a_continuous_job_ends_with_a_signal_and_its_summary(
    spark: SparkSession,
    bootstrap_servers: str,
    client: Client,
    make_topic: MakeTopic,
    tmp_path: Path,
    number: signal.Signals,
) -> None:
    topic, quickly = make_topic(1), command_options(spark, tmp_path)
    client.produce(topic, [Record(b"%d" % n) for n in range(10)])
    command = ["archive", topic, "--to", str(tmp_path / "a"), "--interval", "0.2", "-b", bootstrap_servers, *quickly]

    with subprocess.Popen(
        [sys.executable, "-m", "moldau", "spark", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as job:
        assert job.stderr is not None
        assert job.stderr.readline().startswith("batch 0: 10 records")
        client.produce(topic, [Record(b"%d" % n) for n in range(10, 15)], linger_ms=1_000)
        assert job.stderr.readline().startswith("batch 1: 5 records")
        job.send_signal(number)
        out, said = job.communicate(timeout=DEADLINE_S)

    assert (job.returncode, said) == (0, "")
    assert out.splitlines()[0].startswith(f"{tmp_path / 'a'}: 15 records of {topic}, 15 of them new; 2 files")
    assert archive_rows(spark, str(tmp_path / "a")) == topic_rows(client, topic, 1)


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"PATH": "", "JAVA_HOME": ""}, "Spark needs Java, and there is none on the PATH"),
        ({"JAVA_HOME": "/nowhere"}, "JAVA_HOME=/nowhere has no bin/java"),
    ],
    ids=["none", "wrong"],
)
def test_a_job_without_java_reports_that_and_creates_no_archive(
    bootstrap_servers: str, make_topic: MakeTopic, tmp_path: Path, environment: dict[str, str], reason: str
) -> None:
    done = moldau(
        "archive", make_topic(), "--to", str(tmp_path / "a"), "--once", "-b", bootstrap_servers, environment=environment
    )

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("moldau: ")
    assert reason in done.stderr
    assert load(Layout(tmp_path / "a")) is None


def test_an_unavailable_connector_is_reported_with_the_message_of_spark(
    bootstrap_servers: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    (tmp_path / "jars").mkdir()

    done = moldau(
        "archive",
        make_topic(),
        "--to",
        str(tmp_path / "a"),
        "--once",
        "-b",
        bootstrap_servers,
        environment={"MOLDAU_SPARK_JARS": str(tmp_path / "jars")},
    )

    assert done.returncode == 1
    assert "must contain the Kafka connector of Spark" in done.stderr
