"""Python stream processors and Airflow's Kafka provider read and write every record.

They need heavy packages that exclude each other, and run in their own environments: ``make test-processors``. A test
is skipped where its package is not installed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import util
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from moldau.compat_tests.processor_programs import PROGRAMS, RECORDS
from moldau.testing import Broker
from moldau.testing.waiting import wait_until

PACKAGES = {
    "quix_streams": ("quixstreams", "quixstreams"),
    "faststream_aiokafka": ("faststream", "faststream[kafka]"),
    "faststream_confluent": ("faststream", "faststream[confluent]"),
    "faust": ("faust", "faust-streaming"),
    "bytewax": ("bytewax", "bytewax confluent-kafka"),
    "pyflink": ("pyflink", "apache-flink"),
    "airflow": ("airflow", "apache-airflow apache-airflow-providers-apache-kafka"),
}
"""The module and what pip installs, by program."""


def needed(program: str) -> pytest.MarkDecorator:
    module, package = PACKAGES[program]
    is_missing = util.find_spec(module) is None
    if program == "pyflink" and not is_missing:
        reason = "needs the SQL connector of Kafka for Flink: its jar in MOLDAU_FLINK_KAFKA_JAR"
        return pytest.mark.skipif("MOLDAU_FLINK_KAFKA_JAR" not in os.environ, reason=reason)
    return pytest.mark.skipif(is_missing, reason=f"needs {module}: pip install {package} (make test-processors)")


@pytest.mark.slow
@pytest.mark.parametrize("program", [pytest.param(program, marks=needed(program)) for program in PROGRAMS])
def test_a_stream_processor_doubles_every_number_once(program: str, tmp_path: Path) -> None:
    with Broker() as broker:
        address = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": address})
        for created in admin.create_topics([NewTopic(name, 1, 1) for name in ("numbers", "doubled")]).values():
            created.result(60)
        producer = Producer({"bootstrap.servers": address})
        for number in range(RECORDS):
            producer.produce("numbers", json.dumps({"n": number}), key="k")
        assert producer.flush(60) == 0
        command = [sys.executable, "-m", "moldau.compat_tests.processor_programs"]
        log = tmp_path / "log"
        with (
            log.open("w") as output,
            subprocess.Popen(
                [*command, program, address, "numbers", "doubled", str(tmp_path)], stdout=output, stderr=output
            ) as running,
        ):
            try:
                found = read_until_complete(address, running, log)
            finally:
                running.kill()
    assert sorted(found) == [2 * number for number in range(RECORDS)]


def read_until_complete(address: str, running: subprocess.Popen[bytes], log: Path) -> list[int]:
    """The numbers of the sink, when there are as many as in the source, or when the program has failed."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "test", "auto.offset.reset": "earliest"})
    consumer.subscribe(["doubled"])
    found: list[int] = []

    def is_complete() -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append(json.loads(message.value())["n"])
        assert not running.poll(), log.read_text()[-4000:]
        return len(found) >= RECORDS

    try:
        wait_until(is_complete, "all numbers are doubled", seconds=200, pause=0)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{log.read_text()[-4000:]}") from error
    finally:
        consumer.close()
    return found
