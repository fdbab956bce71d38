"""``moldau log compact`` on directories of stopped and running servers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from moldau.testing import Broker

from .conftest import Run


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(data_dir=tmp_path / "data", config={"log.cleaner.enable": False})


def fill(broker: Broker) -> None:
    """A compacted topic with 300 records of 3 keys in each of two partitions, and one that is not compacted."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    topics = [NewTopic("prices", 2, 1, config={"cleanup.policy": "compact"}), NewTopic("plain", 1, 1)]
    for made in admin.create_topics(topics).values():
        made.result(60)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 5})
    for number in range(300):
        for partition in range(2):
            producer.produce("prices", b"%d" % number, b"k%d" % (number % 3), partition)
        producer.produce("plain", b"%d" % number, b"k")
    assert producer.flush(120) == 0


def consume(run: Run, broker: Broker, topic: str) -> list[dict[str, object]]:
    found = run("consume", topic, "--json", "--from-beginning", "-b", broker.bootstrap_servers)
    assert found.code == 0, found.err
    return [dict(line) for line in found.json_lines()]


def test_a_server_starts_on_compacted_logs(run: Run, broker: Broker) -> None:
    with broker:
        fill(broker)
        broker.stop()
        done = run("log", "compact", "--now", str(broker.data_dir), "--json")
        assert done.code == 0, done.err
        rows = {row["partition"]: row for row in done.json_lines()}
        assert set(rows) == {"prices-0", "prices-1"}
        for row in rows.values():
            assert row["bytes_after"] < row["bytes_before"]
            assert (row["records_dropped"], row["records_kept"]) == (297, 3)
        assert not list(broker.data_dir.glob("*/*.deleted"))
        broker.start()
        assert "unclean" not in broker.log()
        values = sorted(str(record["value"]) for record in consume(run, broker, "prices"))
        assert values == ["297", "297", "298", "298", "299", "299"]
        assert len(consume(run, broker, "plain")) == 300


def test_a_directory_in_use_is_rejected(run: Run, broker: Broker) -> None:
    with broker:
        refused = run("log", "compact", "--now", str(broker.data_dir))
        assert refused.code == 1
        assert "is in use" in refused.err


def test_a_killed_server_is_recovered_first(run: Run, broker: Broker) -> None:
    with broker:
        fill(broker)
        broker.kill()
        done = run("log", "compact", "--now", str(broker.data_dir), "--topic", "prices")
        assert done.code == 0, done.err
        assert "prices-0" in done.text
        # The directory is in the same state as after a clean shutdown of a server.
        verified = run("log", "verify", str(broker.data_dir))
        assert verified.code == 0, verified.text
        broker.start()
        assert len(consume(run, broker, "prices")) == 6


def test_without_now_only_what_is_dirty_enough_is_compacted(run: Run, broker: Broker) -> None:
    with broker:
        fill(broker)
        broker.stop()
        done = run("log", "compact", str(broker.data_dir), "--json")
        assert done.code == 0, done.err
        assert [row["passes"] for row in done.json_lines()] == [0, 0], "the active segment is all there is"


def test_a_corrupt_batch_is_reported_and_other_partitions_are_compacted(run: Run, broker: Broker) -> None:
    with broker:
        fill(broker)
        broker.stop()
        segment = broker.data_dir / "prices-0" / "00000000000000000000.log"
        data = bytearray(segment.read_bytes())
        data[100] ^= 1
        segment.write_bytes(data)
        done = run("log", "compact", "--now", str(broker.data_dir), "--json")
        assert done.code == 1
        assert f"prices-0: {segment}" in done.err
        assert segment.read_bytes() == data
        assert [row["partition"] for row in done.json_lines()] == ["prices-1"]


def test_unknown_directories_and_topics_are_reported(run: Run, broker: Broker, tmp_path: Path) -> None:
    os.mkdir(tmp_path / "empty")
    refused = run("log", "compact", "--now", str(tmp_path / "empty"))
    assert refused.code == 1
    assert "is not a log directory" in refused.err
    assert not os.listdir(tmp_path / "empty")
    with broker:
        fill(broker)
        broker.stop()
        for topic, words in (("nothing", "unknown topic nothing"), ("plain", "does not include compact")):
            refused = run("log", "compact", "--now", str(broker.data_dir), "--topic", topic)
            assert refused.code == 1
            assert words in refused.err
