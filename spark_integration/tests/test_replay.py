"""Replaying: the archived records are sent to the topic, and a second archive of it is equal to the first."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from moldau.spark_integration.archive import ArchiveRequest, open_archive
from moldau.spark_integration.archive_layout import ArchiveError, Layout
from moldau.spark_integration.archive_manifest import load_existing
from moldau.spark_integration.replay import Replayed, ReplayRequest, open_replay
from moldau.spark_integration.replay_send import _Outcome
from moldau.testing.client import CODECS, Client, Record
from moldau.testing.full_run import first_of

from .archive_rows import ODD_RECORDS, archive_rows, topic_rows, without_offsets
from .conftest import MakeTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 3
FIRST_MS = 1_600_000_000_000

Archive = Callable[..., str]


@pytest.fixture
def archive(spark: SparkSession, bootstrap_servers: str, tmp_path: Path) -> Archive:
    """``archive(topic)``: archives its current records and returns the folder."""

    def run(topic: str, **fields: Any) -> str:
        request = ArchiveRequest(topic, str(tmp_path / topic), bootstrap_servers, **fields)
        with open_archive(request) as job:
            job.run(spark, lambda done: None)
        return request.folder

    return run


@pytest.fixture
def replay(spark: SparkSession, bootstrap_servers: str) -> Callable[..., Replayed]:
    """``replay(folder, topic, ...)``: replays the archive and returns what was sent."""

    def run(folder: str, topic: str, **fields: Any) -> Replayed:
        with open_replay(ReplayRequest(folder, topic, bootstrap_servers, **fields)) as job:
            return job.run(spark, lambda stored, total: None)

    return run


def numbered(client: Client, topic: str, numbers: range) -> None:
    client.produce(
        topic, [Record(b"%d" % n, b"%d" % (n % 7), (), FIRST_MS + n * 1000, n % PARTITIONS) for n in numbers]
    )


@pytest.mark.extended
def test_an_archive_of_a_replayed_archive_is_equal(
    spark: SparkSession,
    archive: Archive,
    replay: Callable[..., Replayed],
    client: Client,
    make_topic: MakeTopic,
) -> None:
    topic = make_topic(PARTITIONS + 1, {"retention.ms": "-1"})
    for codec in CODECS:
        client.produce(topic, ODD_RECORDS, codec=codec)
    first = archive(topic, batch_records=10)
    again = f"{topic}-again"

    sent = replay(first, again)

    assert client.topics()[again] == PARTITIONS + 1
    assert topic_rows(client, again, PARTITIONS) == topic_rows(client, topic, PARTITIONS)
    assert sum(sent.records.values()) == len(CODECS) * len(ODD_RECORDS)
    assert without_offsets(archive_rows(spark, archive(again))) == without_offsets(archive_rows(spark, first))


def test_timestamps_of_the_server_become_timestamps_of_the_records(
    spark: SparkSession, archive: Archive, replay: Callable[..., Replayed], client: Client, make_topic: MakeTopic
) -> None:
    topic = make_topic(1, {"message.timestamp.type": "LogAppendTime", "retention.ms": "-1"})
    client.produce(topic, [Record(b"%d" % n, timestamp_ms=FIRST_MS) for n in range(3)])
    folder = archive(topic)

    replay(folder, f"{topic}-again")

    stamped = topic_rows(client, topic, 1)
    assert archive_rows(spark, folder) == stamped
    assert {row.timestamp_type for row in stamped} == {"LogAppendTime"}
    assert topic_rows(client, f"{topic}-again", 1) == [row._replace(timestamp_type="CreateTime") for row in stamped]


@pytest.mark.parametrize("codec", first_of(CODECS))
def test_records_are_sent_with_the_requested_codec(
    archive: Archive, replay: Callable[..., Replayed], client: Client, make_topic: MakeTopic, codec: str
) -> None:
    topic = make_topic(1, {"retention.ms": "-1"})
    client.produce(topic, [Record(b"x" * 1000, timestamp_ms=FIRST_MS)])

    replay(archive(topic), f"{topic}-again", compression=codec)

    assert topic_rows(client, f"{topic}-again", 1) == topic_rows(client, topic, 1)


def test_the_created_topic_keeps_all_records(
    archive: Archive, replay: Callable[..., Replayed], client: Client, make_topic: MakeTopic
) -> None:
    topic = make_topic(2, {"retention.ms": "-1", "max.message.bytes": "3000000"})
    client.produce(topic, [Record(b"x" * 2_000_000, timestamp_ms=1)], max_request_size=3_000_000)

    replay(archive(topic), f"{topic}-again")

    configs = client.topic_configs(f"{topic}-again")
    assert (configs["message.timestamp.type"], configs["cleanup.policy"]) == ("CreateTime", "delete")
    assert configs["retention.ms"] == configs["retention.bytes"] == "-1"
    assert int(configs["max.message.bytes"] or 0) > 2_000_000
    assert topic_rows(client, f"{topic}-again", 2) == topic_rows(client, topic, 2)


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ({"from_ms": FIRST_MS + 10_000}, range(10, 30)),
        pytest.param({"until_ms": FIRST_MS + 10_000}, range(10), marks=pytest.mark.full),
        pytest.param({"from_ms": FIRST_MS + 4_001, "until_ms": FIRST_MS + 7_001}, range(5, 8), marks=pytest.mark.full),
    ],
    ids=["from", "until", "both"],
)
def test_only_records_in_the_time_range_are_sent(
    archive: Archive,
    replay: Callable[..., Replayed],
    client: Client,
    make_topic: MakeTopic,
    bounds: dict[str, int],
    expected: Sequence[int],
) -> None:
    topic = make_topic(PARTITIONS, {"retention.ms": "-1"})
    numbered(client, topic, range(30))

    replay(archive(topic, batch_records=9), f"{topic}-again", **bounds)

    found = topic_rows(client, f"{topic}-again", PARTITIONS)
    assert sorted(int(row.value or b"") for row in found) == list(expected)
    assert client.topics()[f"{topic}-again"] == PARTITIONS


def test_a_time_range_without_records_is_rejected(
    archive: Archive, replay: Callable[..., Replayed], client: Client, make_topic: MakeTopic
) -> None:
    topic = make_topic(PARTITIONS, {"retention.ms": "-1"})
    client.produce(topic, [Record(b"x", timestamp_ms=FIRST_MS + ms) for ms in (0, 1000)])
    folder = archive(topic)

    for bounds in ({"until_ms": FIRST_MS}, {"from_ms": FIRST_MS + 1, "until_ms": FIRST_MS + 999}):
        with pytest.raises(ArchiveError, match="has no records in that time range"):
            replay(folder, f"{topic}-again", **bounds)
    assert f"{topic}-again" not in client.topics()


def test_a_topic_with_records_is_only_appended_to(
    archive: Archive, replay: Callable[..., Replayed], client: Client, make_topic: MakeTopic
) -> None:
    topic, other = make_topic(PARTITIONS, {"retention.ms": "-1"}), make_topic(PARTITIONS, {"retention.ms": "-1"})
    numbered(client, topic, range(30))
    client.produce(other, [Record(b"old", timestamp_ms=FIRST_MS)])
    folder = archive(topic)

    with pytest.raises(ArchiveError, match="is not empty"):
        replay(folder, other)
    replay(folder, other, append=True)

    old, *new = topic_rows(client, other, PARTITIONS)
    assert old.value == b"old"
    assert without_offsets(new) == without_offsets(topic_rows(client, topic, PARTITIONS))


def test_a_topic_that_would_drop_records_is_rejected_and_stays_empty(
    archive: Archive, replay: Callable[..., Replayed], client: Client, make_topic: MakeTopic
) -> None:
    topic, week, narrow = make_topic(2, {"retention.ms": "-1"}), make_topic(2), make_topic(1, {"retention.ms": "-1"})
    client.produce(topic, [Record(b"x", timestamp_ms=FIRST_MS, partition=1)])
    folder = archive(topic)

    with pytest.raises(ArchiveError, match=r"retention\.ms=604800000 would delete the older ones"):
        replay(folder, week)
    with pytest.raises(ArchiveError, match="it has 1 partitions, but the archive has 2"):
        replay(folder, narrow)
    assert topic_rows(client, week, 2) == topic_rows(client, narrow, 1) == []


@pytest.mark.parametrize("stored", first_of([4, 0, 1, 10]))
def test_a_resumed_replay_sends_the_missing_records(
    archive: Archive, replay: Callable[..., Replayed], client: Client, make_topic: MakeTopic, stored: int
) -> None:
    """As after a killed replay: partition 0 has no records, partition 1 all of them, partition 2 the first ones."""
    topic, other = make_topic(PARTITIONS, {"retention.ms": "-1"}), make_topic(PARTITIONS, {"retention.ms": "-1"})
    numbered(client, topic, range(30))
    folder = archive(topic, batch_records=9)
    there = topic_rows(client, topic, PARTITIONS)
    client.produce(
        other,
        [
            Record(row.value, row.key, row.headers, row.timestamp_ms, row.partition)
            for row in there
            if row.partition == 1 or (row.partition == 2 and row.offset < stored)
        ],
    )

    done = replay(folder, other, resume=True)

    assert done.found == {0: 0, 1: 10, 2: stored}
    assert done.records == {0: 10, 1: 0, 2: 10 - stored}
    assert topic_rows(client, other, PARTITIONS) == there


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        pytest.param(
            [Record(b"0", b"0", (), FIRST_MS), Record(b"4", b"3", (), FIRST_MS + 3000)],
            "is not the archived one",
            id="value",
        ),
        pytest.param(
            [Record(b"0", b"0", (), FIRST_MS + 1)], "is not the archived one", id="timestamp", marks=pytest.mark.full
        ),
        pytest.param(
            [Record(b"0", b"0", (("h", b""),), FIRST_MS)],
            "is not the archived one",
            id="headers",
            marks=pytest.mark.full,
        ),
        pytest.param(
            [Record(b"0", b"0", (), FIRST_MS)] * 11, "more than the archive", id="more", marks=pytest.mark.full
        ),
    ],
)
def test_a_topic_with_other_records_is_not_resumed(
    archive: Archive,
    replay: Callable[..., Replayed],
    client: Client,
    make_topic: MakeTopic,
    records: list[Record],
    reason: str,
) -> None:
    topic, other = make_topic(PARTITIONS, {"retention.ms": "-1"}), make_topic(PARTITIONS, {"retention.ms": "-1"})
    numbered(client, topic, range(30))
    client.produce(other, records)

    with pytest.raises(ArchiveError, match=reason):
        replay(archive(topic), other, resume=True)
    assert len(client.read(other, 0)) == len(records)


def test_a_record_that_the_server_rejects_stops_its_partition(
    archive: Archive, replay: Callable[..., Replayed], client: Client, make_topic: MakeTopic, monkeypatch: Any
) -> None:
    """The limit is set after the topic was checked. No record after the rejected one is stored."""
    topic, other = make_topic(1, {"retention.ms": "-1"}), make_topic(1, {"retention.ms": "-1"})
    sizes = [10, 20, 200_000, 30, 40]
    client.produce(topic, [Record(bytes(size), timestamp_ms=FIRST_MS) for size in sizes])
    folder = archive(topic)
    client.set_topic_config(other, "max.message.bytes", "100000")
    monkeypatch.setattr("moldau.spark_integration.replay_topic.unfit_reasons", lambda *_: [])
    one_by_one = {"batch.num.messages": "1", "compression.type": "none"}

    with pytest.raises(ArchiveError, match=r"(?s)partition 0: .*Message size too large.* has only some of"):
        replay(folder, other, client=one_by_one)
    assert [len(record.value or b"") for record in client.read(other, 0)] == sizes[:2]

    client.set_topic_config(other, "max.message.bytes", "1000000")
    assert replay(folder, other, resume=True).found == {0: 2}
    assert topic_rows(client, other, 1) == topic_rows(client, topic, 1)


def test_a_later_report_states_why_a_producer_ended_if_the_error_was_lost() -> None:
    from confluent_kafka import KafkaError

    outcome = _Outcome()
    with outcome.ended_by_fatal_error():
        raise SystemError("returned NULL without setting an exception")
    assert "without setting an exception" in outcome.problem

    outcome.on_delivery(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), None)
    assert "MSG_SIZE_TOO_LARGE" in outcome.problem


def test_the_timestamp_zero_is_rejected_because_it_cannot_be_sent(
    archive: Archive, replay: Callable[..., Replayed], make_topic: MakeTopic, bootstrap_servers: str, client: Client
) -> None:
    from kafka import KafkaProducer

    topic = make_topic(1, {"retention.ms": "-1"})
    producer = KafkaProducer(bootstrap_servers=bootstrap_servers)
    for timestamp_ms in (0, 1):
        producer.send(topic, b"%d" % timestamp_ms, timestamp_ms=timestamp_ms).get(10)
    producer.close()
    folder = archive(topic)

    with pytest.raises(ArchiveError, match="1 records have the timestamp 0"):
        replay(folder, f"{topic}-again")
    replay(folder, f"{topic}-again", from_ms=1)
    assert [row.value for row in topic_rows(client, f"{topic}-again", 1)] == [b"1"]


def test_a_damaged_archive_is_not_sent(
    archive: Archive, replay: Callable[..., Replayed], client: Client, make_topic: MakeTopic
) -> None:
    topic, other = make_topic(PARTITIONS, {"retention.ms": "-1"}), make_topic(PARTITIONS, {"retention.ms": "-1"})
    numbered(client, topic, range(30))
    folder = archive(topic)
    layout = Layout(Path(folder))
    (piece,) = load_existing(layout).pieces
    name, size = next(iter(piece.files.items()))
    file = layout.data / piece.name / name

    file.write_bytes(b"\0" * size)
    with pytest.raises(ArchiveError, match=r"cannot be read|ended the replay"):
        replay(folder, other)
    file.unlink()
    with pytest.raises(ArchiveError, match="is damaged"):
        replay(folder, other)
    assert topic_rows(client, other, PARTITIONS) == []


@pytest.mark.full
def test_progress_is_the_number_of_records_in_the_topic(
    spark: SparkSession,
    archive: Archive,
    bootstrap_servers: str,
    client: Client,
    make_topic: MakeTopic,
    monkeypatch: Any,
) -> None:
    topic = make_topic(PARTITIONS, {"retention.ms": "-1"})
    numbered(client, topic, range(3000))
    monkeypatch.setattr("moldau.spark_integration.replay._LOOK_EVERY_S", 0.001)
    seen: list[tuple[int, int]] = []

    with open_replay(ReplayRequest(archive(topic), f"{topic}-again", bootstrap_servers)) as job:
        job.run(spark, lambda stored, total: seen.append((stored, total)))

    assert {total for _, total in seen} == {3000}
    assert [stored for stored, _ in seen] == sorted(stored for stored, _ in seen)
    assert seen[-1][0] > 0


def test_a_missing_confluent_kafka_is_reported(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['confluent_kafka'] = None\n"
        "from moldau.spark_integration.archive import ArchiveRequest, open_archive\n"
        f"with open_archive(ArchiveRequest('t', {str(tmp_path / 'a')!r}, 'localhost:1')): pass"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)

    assert "ArchiveError: confluent-kafka is not installed: pip install confluent-kafka" in done.stderr
