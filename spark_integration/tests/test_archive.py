"""Archiving from a server: every record is archived once, for all kinds of records and producers, over many runs."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from moldau.spark_integration.archive import (
    ArchiveRequest,
    BatchDone,
    open_archive,
    parse_starting_offsets,
)
from moldau.spark_integration.archive_compact import MergeDone, open_compaction
from moldau.spark_integration.archive_layout import ArchiveError, Layout
from moldau.spark_integration.archive_manifest import Manifest, load, load_existing
from moldau.spark_integration.archive_pieces import read_archive
from moldau.spark_integration.archive_values import ValueSchema
from moldau.testing.client import CODECS, Client, Record
from moldau.testing.clients import open_client

from .archive_rows import ODD_RECORDS, archive_rows, topic_rows
from .conftest import MakeTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from moldau.testing.servers import Server

PARTITIONS = 3
# 2020-09-13T12:26:40Z; the date changes eight hours later.
FIRST_MS = 1_600_000_000_000
HOUR_MS = 3_600_000


@pytest.fixture
def request_of(bootstrap_servers: str, tmp_path: Path) -> Any:
    """``request_of(topic, ...)``: a request to archive all current records into a separate folder."""

    def make(topic: str, **fields: Any) -> ArchiveRequest:
        return ArchiveRequest(topic, str(tmp_path / "archive"), bootstrap_servers, **fields)

    return make


def run(spark: SparkSession, request: ArchiveRequest) -> tuple[Manifest, list[BatchDone]]:
    batches: list[BatchDone] = []
    with open_archive(request) as job:
        return job.run(spark, batches.append), batches


def numbered(client: Client, topic: str, numbers: range) -> None:
    """One record for each number, spread over the partitions and several days."""
    client.produce(
        topic,
        [Record(b"%d" % n, b"%d" % (n % 7), (), FIRST_MS + n * HOUR_MS, n % PARTITIONS) for n in numbers],
    )


def values(client: Client, topic: str, texts: Sequence[bytes | None]) -> None:
    client.produce(topic, [Record(text, b"%d" % number) for number, text in enumerate(texts)])


def test_every_record_is_archived_unchanged(
    spark: SparkSession, request_of: Any, client: Client, make_topic: MakeTopic
) -> None:
    topic = make_topic(PARTITIONS, {"retention.ms": "-1"})
    for codec in CODECS:
        client.produce(topic, ODD_RECORDS, codec=codec)

    manifest, _ = run(spark, request_of(topic))

    expected = topic_rows(client, topic, PARTITIONS)
    assert len(expected) == len(CODECS) * len(ODD_RECORDS)
    assert archive_rows(spark, request_of(topic).folder) == expected
    assert manifest.records == len(expected)


def test_files_are_by_date_and_partition_and_the_manifest_counts_them(
    spark: SparkSession, request_of: Any, client: Client, make_topic: MakeTopic
) -> None:
    topic = make_topic(2, {"retention.ms": "-1"})
    moments = {0: [FIRST_MS, FIRST_MS + 12 * HOUR_MS, FIRST_MS + 1], 1: [-1000, 1]}
    client.produce(
        topic,
        [Record(b"x", timestamp_ms=ms, partition=partition) for partition in moments for ms in moments[partition]],
    )

    manifest, (batch,) = run(spark, request_of(topic))

    (piece,) = manifest.pieces
    assert sorted({name.rpartition("/")[0] for name in piece.files}) == [
        "date=1969-12-31/partition=1",
        "date=1970-01-01/partition=1",
        "date=2020-09-13/partition=0",
        "date=2020-09-14/partition=0",
    ]
    assert (piece.name, piece.oldest_ms, piece.newest_ms) == ("batch=0", -1000, FIRST_MS + 12 * HOUR_MS)
    assert {
        number: (found.records, found.first_offset, found.last_offset) for number, found in piece.partitions.items()
    } == {
        0: (3, 0, 2),
        1: (2, 0, 1),
    }
    assert (batch.batch, batch.records, batch.unfit, batch.files) == (0, 5, 0, 4)
    folder = Path(request_of(topic).folder) / "data" / "batch=0"
    assert batch.bytes == sum(path.stat().st_size for path in folder.rglob("*.parquet"))


def test_the_job_continues_where_it_ended_in_batches_of_the_requested_size(
    spark: SparkSession, request_of: Any, client: Client, make_topic: MakeTopic
) -> None:
    topic = make_topic(PARTITIONS, {"retention.ms": "-1"})
    request = request_of(topic, batch_records=120)
    numbered(client, topic, range(300))
    _, first = run(spark, request)
    numbered(client, topic, range(300, 330))
    _, second = run(spark, request)
    manifest, third = run(spark, request)

    assert [sum(batch.records for batch in batches) for batches in (first, second, third)] == [300, 30, 0]
    assert len(first) == 3
    assert max(batch.records for batch in first) <= 120
    assert archive_rows(spark, request.folder) == topic_rows(client, topic, PARTITIONS)
    assert manifest.last_batch == 3


def test_a_continuous_job_archives_new_records_until_it_is_stopped(
    spark: SparkSession, request_of: Any, client: Client, make_topic: MakeTopic
) -> None:
    topic = make_topic(PARTITIONS, {"retention.ms": "-1"})
    numbered(client, topic, range(30))
    seen: list[int] = []

    with open_archive(request_of(topic, once=False, interval_s=0.1)) as job:

        def on_batch(done: BatchDone) -> None:
            seen.append(done.records)
            if sum(seen) == 30:
                numbered(client, topic, range(30, 50))
            elif sum(seen) == 50:
                job.stop()

        manifest = job.run(spark, on_batch)

    assert sum(seen) == manifest.records == 50
    assert archive_rows(spark, request_of(topic).folder) == topic_rows(client, topic, PARTITIONS)


@pytest.mark.parametrize(
    ("starting_offsets", "expected"),
    [("earliest", [0, 1, 2, 3, 4, 5]), ("latest", []), ({0: 4, 1: -1}, [4, 5]), ({0: -2, 1: 3}, [0, 1, 2, 3, 4, 5])],
)
def test_a_new_archive_begins_at_the_starting_offsets(
    spark: SparkSession,
    request_of: Any,
    client: Client,
    make_topic: MakeTopic,
    starting_offsets: Any,
    expected: list[int],
) -> None:
    topic = make_topic(2)
    client.produce(topic, [Record(b"%d" % n) for n in range(6)] + [Record(b"x", partition=1) for _ in range(3)])

    manifest, _ = run(spark, request_of(topic, starting_offsets=starting_offsets))

    found = [] if not manifest.pieces else archive_rows(spark, request_of(topic).folder)
    assert [row.offset for row in found if row.partition == 0] == expected


def test_starting_offsets_are_names_or_offsets_by_partition() -> None:
    assert parse_starting_offsets("latest") == "latest"
    assert parse_starting_offsets('{"0": 12, "1": -2}') == {0: 12, 1: -2}
    for text in ("first", "[1]", '{"a": 1}', '{"0": null}'):
        with pytest.raises(ArchiveError, match="is not earliest, latest or offsets by partition"):
            parse_starting_offsets(text)


def test_merged_files_contain_the_same_records_and_the_job_continues(
    spark: SparkSession, request_of: Any, client: Client, make_topic: MakeTopic
) -> None:
    topic = make_topic(PARTITIONS, {"retention.ms": "-1"})
    request = request_of(topic, batch_records=30)
    numbered(client, topic, range(90))
    before, _ = run(spark, request)
    merges: list[MergeDone] = []

    with open_compaction(request.folder) as job:
        after = job.run(spark, merges.append)
    numbered(client, topic, range(90, 100))
    run(spark, request)

    assert [piece.name for piece in before.pieces] == ["batch=0", "batch=1", "batch=2"]
    assert [piece.name for piece in after.pieces] == ["batch=0-2"]
    # There is one file per date and partition; 90 hours are on five dates, four of them complete.
    assert (merges[0].pieces, merges[0].records, merges[0].files_after) == (3, 90, after.files)
    assert after.files == PARTITIONS * len({name.split("/")[0] for name in after.pieces[0].files}) < before.files
    assert archive_rows(spark, request.folder) == topic_rows(client, topic, PARTITIONS)
    assert sorted(path.name for path in Layout(Path(request.folder)).data.iterdir()) == ["batch=0-2", "batch=3"]


@pytest.mark.full
def test_merged_files_are_not_larger_than_requested(
    spark: SparkSession, request_of: Any, client: Client, make_topic: MakeTopic
) -> None:
    topic = make_topic(1, {"retention.ms": "-1"})
    request = request_of(topic, batch_records=30)
    client.produce(topic, [Record(bytes([n]) * 100, timestamp_ms=FIRST_MS) for n in range(90)])
    run(spark, request)
    manifest = load_existing(Layout(Path(request.folder)))

    with open_compaction(request.folder, file_bytes=manifest.bytes) as job:
        job._file_bytes = (manifest.bytes + 1) // 2
        after = job.run(spark, lambda done: None)

    assert after.files == 2


# -- values with a schema ----------------------------------------------------------------------------------------------

UNFIT = (b"", b"no JSON", b"[1]", b'{"id": "one"}', b'{"city": "Prague"}', b'{"id": 1', b"\xff\xfe")


def test_values_that_do_not_match_the_schema_are_stored_and_counted(
    spark: SparkSession, request_of: Any, client: Client, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    values(client, topic, [b'{"id": 1, "city": "Prague"}', *UNFIT, None, b'{"id": 2, "more": []}'])
    request = request_of(topic, value_schema=ValueSchema("json", "id INT NOT NULL, city STRING"))

    manifest, (batch,) = run(spark, request)

    rows = read_archive(spark, request.folder).orderBy("offset").collect()
    assert [row.parsed and tuple(row.parsed) for row in rows] == [
        (1, "Prague"),
        *(None for _ in UNFIT),
        None,
        (2, None),
    ]
    assert [None if row.value is None else bytes(row.value) for row in rows[1:-1]] == [*UNFIT, None]
    assert manifest.unfit == batch.unfit == len(UNFIT)


@pytest.mark.full
def test_a_strict_job_stops_at_the_first_batch_with_a_value_that_does_not_match(
    spark: SparkSession, request_of: Any, client: Client, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    values(client, topic, [b'{"id": %d}' % n for n in range(10)] + [b"no", b"neither"])
    request = request_of(topic, value_schema=ValueSchema("json", "id INT"), strict=True, batch_records=4)

    with pytest.raises(ArchiveError, match=r"2 of the 4 values of batch 2 do not match .* offset 10 of partition 0"):
        run(spark, request)

    # Earlier batches are in the archive, and a run without the option continues.
    assert [row.offset for row in archive_rows(spark, request.folder)] == list(range(8))
    manifest, _ = run(spark, request_of(topic))
    assert (manifest.records, manifest.unfit) == (12, 2)
    assert archive_rows(spark, request.folder) == topic_rows(client, topic, 1)


def test_a_schema_belongs_to_the_archive(
    spark: SparkSession, request_of: Any, client: Client, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    values(client, topic, [b'{"id": 1}'])
    run(spark, request_of(topic, value_schema=ValueSchema("json", "id INT")))

    other = request_of(topic, value_schema=ValueSchema("json", "id STRING"))
    with pytest.raises(ArchiveError, match="was created with the json schema id INT"), open_archive(other):
        pass


@pytest.mark.parametrize(
    ("text", "reason"),
    [("id WRONG", "cannot be parsed"), ('{"a": 1}', "cannot be parsed"), ("a INT, a INT", "Spark rejects")],
)
def test_an_invalid_schema_creates_no_archive(
    spark: SparkSession, request_of: Any, client: Client, make_topic: MakeTopic, text: str, reason: str
) -> None:
    topic = make_topic()
    values(client, topic, [b"{}"])
    request = request_of(topic, value_schema=ValueSchema("json", text))

    with pytest.raises(ArchiveError, match=reason):
        run(spark, request)
    assert load(Layout(Path(request.folder))) is None

    manifest, _ = run(spark, request_of(topic, value_schema=ValueSchema("json", "id INT")))
    assert (manifest.records, manifest.unfit) == (1, 0)


@pytest.mark.full
def test_a_schema_that_the_first_values_do_not_match_can_be_corrected(
    spark: SparkSession, request_of: Any, client: Client, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    values(client, topic, [b'{"id": "one"}'])
    request = request_of(topic, value_schema=ValueSchema("json", "id INT"), strict=True)
    with pytest.raises(ArchiveError, match="1 of the 1 values of batch 0 do not match"):
        run(spark, request)

    manifest, _ = run(spark, request_of(topic, value_schema=ValueSchema("json", "id STRING"), strict=True))

    assert (manifest.records, manifest.unfit) == (1, 0)
    (row,) = read_archive(spark, request.folder).collect()
    assert row.parsed.id == "one"


# -- rejected requests -------------------------------------------------------------------------------------------------


def refusal(request: ArchiveRequest) -> str:
    with pytest.raises(ArchiveError) as refused, open_archive(request):
        pass
    return str(refused.value)


def test_a_missing_topic_is_rejected_and_no_archive_is_created(request_of: Any) -> None:
    assert "there is no topic nowhere" in refusal(request_of("nowhere"))
    assert not Path(request_of("nowhere").folder).exists()


def test_an_archive_of_another_topic_is_rejected(
    spark: SparkSession, request_of: Any, client: Client, make_topic: MakeTopic
) -> None:
    topic, other = make_topic(), make_topic()
    values(client, topic, [b"x"])
    run(spark, request_of(topic))

    assert f"archives {topic}, not {other}" in refusal(request_of(other))


def test_a_checkpoint_of_another_topic_is_rejected(
    spark: SparkSession, request_of: Any, client: Client, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, other = make_topic(), make_topic()
    values(client, topic, [b"x"])
    run(spark, request_of(topic))
    checkpoint = str(tmp_path / "archive" / "checkpoint")
    elsewhere = ArchiveRequest(other, str(tmp_path / "b"), request_of(topic).bootstrap_servers, checkpoint)

    assert f"is a checkpoint of {topic}, not of {other}" in refusal(elsewhere)


def test_a_topic_that_was_created_again_is_a_different_one(
    spark: SparkSession, request_of: Any, client: Client, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    values(client, topic, [b"x"])
    run(spark, request_of(topic))
    client.delete_topic(topic)
    client.create_topic(topic)

    assert "it was deleted and created again, or is on another cluster" in refusal(request_of(topic))


def test_a_folder_with_other_content_is_rejected(request_of: Any, make_topic: MakeTopic) -> None:
    topic = make_topic()
    folder = Path(request_of(topic).folder)
    folder.mkdir()
    (folder / "thesis.tex").write_text("")

    assert "is not empty and not an archive (it contains thesis.tex)" in refusal(request_of(topic))
    assert [path.name for path in folder.iterdir()] == ["thesis.tex"]


def test_an_archive_without_its_checkpoint_is_rejected(
    spark: SparkSession, request_of: Any, client: Client, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic()
    values(client, topic, [b"x", b"y"])
    run(spark, request_of(topic))

    message = refusal(request_of(topic, checkpoint=str(tmp_path / "elsewhere")))
    assert "has no checkpoint in" in message
    assert "--starting-offsets '{\"0\": 2}'" in message


def test_a_second_job_is_rejected_while_the_first_one_runs(
    spark: SparkSession, request_of: Any, client: Client, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    values(client, topic, [b"x"])
    refusals: list[str] = []

    with open_archive(request_of(topic)) as job:
        second = threading.Thread(target=lambda: refusals.append(refusal(request_of(topic))))
        second.start()
        second.join()
        job.run(spark, lambda done: None)

    assert "another program is writing to" in refusals[0]


def test_deleted_unread_records_stop_the_job_unless_the_loss_is_accepted(
    spark: SparkSession, request_of: Any, client: Client, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    values(client, topic, [b"%d" % n for n in range(10)])
    run(spark, request_of(topic))
    values(client, topic, [b"%d" % n for n in range(10, 20)])
    client.delete_records(topic, 0, 15)

    with pytest.raises(ArchiveError, match="were deleted on the server before they were archived"):
        run(spark, request_of(topic))
    run(spark, request_of(topic, accept_data_loss=True))

    rows = archive_rows(spark, request_of(topic).folder)
    assert [row.offset for row in rows] == [*range(10), *range(15, 20)]


@pytest.fixture
def lonely(own_server: Server) -> Iterator[tuple[Server, Client]]:
    """A server that the test may stop, with a client."""
    with open_client("confluent-kafka", own_server.bootstrap_servers) as opened:
        yield own_server, opened


def test_a_server_that_is_killed_between_two_runs_changes_nothing(
    spark: SparkSession, lonely: tuple[Server, Client], tmp_path: Path
) -> None:
    server, client = lonely
    client.create_topic("archived", PARTITIONS, {"retention.ms": "-1"})
    numbered(client, "archived", range(50))
    request = ArchiveRequest("archived", str(tmp_path / "archive"), server.bootstrap_servers)
    run(spark, request)
    server.kill()
    message = refusal(request)
    server.start()
    numbered(client, "archived", range(50, 80))
    run(spark, request)

    assert "no Kafka server responds at" in message
    assert archive_rows(spark, request.folder) == topic_rows(client, "archived", PARTITIONS)


def test_the_manifest_is_as_documented(
    spark: SparkSession, request_of: Any, client: Client, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    values(client, topic, [b"x"])
    run(spark, request_of(topic))

    document = json.loads((Path(request_of(topic).folder) / "manifest.json").read_text())
    checkpoint = json.loads((Path(request_of(topic).folder) / "checkpoint" / "metadata").read_text())
    assert (document["format"], document["version"], document["topic"]) == ("moldau archive", 1, topic)
    assert (document["query_id"], document["last_batch"], document["pieces"][0]["name"]) == (
        checkpoint["id"],
        0,
        "batch=0",
    )
