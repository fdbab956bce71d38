"""``moldau log dump``: synthetic files, damaged files, and files of a real log directory."""

import base64
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from moldau.coordinator.outcome import Record as CoordinatorRecord
from moldau.group_coordinator.records import OffsetCommitKey, OffsetCommitValue, encode_record
from moldau.log.producer_state import ProducerState
from moldau.metadata.batches import control_batch, metadata_batches
from moldau.metadata.outcome import Versioned
from moldau.metadata.records import ConfigRecord, PartitionRecord, TopicRecord, UserScramCredentialRecord
from moldau.protocol.compression import Codec
from moldau.protocol.messages.control_records import LeaderChangeMessage, Voter
from moldau.protocol.records import Record, build_batch, iter_batches
from moldau.protocol.uuid import uuid_from_str
from moldau.testing import Broker
from moldau.transaction_coordinator.records import PartitionsSchema, TransactionLogKey, TransactionLogValue
from moldau.transaction_coordinator.records import encode_record as encode_transaction_record

from .conftest import Run

SEGMENT = "00000000000000000100.log"
TOPIC_ID = "656syCwDTVqynuWiBlcUhA"


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    directory = tmp_path / "events-0"
    directory.mkdir()
    return directory


def two_batches() -> tuple[bytes, bytes]:
    first = build_batch(
        [
            Record(timestamp=1_700_000_000_000, key=b"k", value=b"v", headers=[("h", b"1"), ("h", None)]),
            Record(timestamp=1_700_000_001_500, key=None, value=b"\xff"),
        ],
        base_offset=100,
        leader_epoch=3,
        codec=Codec.ZSTD,
    )
    second = build_batch([Record(timestamp=1_700_000_002_000, value=b"x")], base_offset=102, leader_epoch=4)
    return first, second


def facts(run: Run, *arguments: str | Path, code: int = 0) -> list[dict[str, Any]]:
    dumped = run("log", "dump", "--json", *map(str, arguments))
    assert dumped.code == code, dumped.err
    return dumped.json_lines()


def test_batches_and_records_of_a_segment(run: Run, partition: Path) -> None:
    first, second = two_batches()
    (partition / SEGMENT).write_bytes(first + second)
    batch, record, other, last, _ = facts(run, "--records", partition / SEGMENT)
    assert batch["kind"] == "batch"
    assert {name: batch[name] for name in ("position", "bytes", "base_offset", "last_offset", "records")} == {
        "position": 0,
        "bytes": len(first),
        "base_offset": 100,
        "last_offset": 101,
        "records": 2,
    }
    assert (batch["codec"], batch["leader_epoch"], batch["max_timestamp"]) == ("zstd", 3, 1_700_000_001_500)
    assert (batch["producer_id"], batch["transactional"], batch["control"]) == (None, False, False)
    assert record == {
        "file": str(partition / SEGMENT),
        "kind": "record",
        "offset": 100,
        "timestamp": 1_700_000_000_000,
        "key": "k",
        "value": "v",
        "headers": [{"name": "h", "value": "1"}, {"name": "h", "value": None}],
    }
    assert (other["offset"], other["key"], other["value_base64"]) == (101, None, "/w==")
    assert (last["position"], last["base_offset"], last["leader_epoch"]) == (len(first), 102, 4)


def test_text_output(run: Run, partition: Path) -> None:
    (partition / SEGMENT).write_bytes(b"".join(two_batches()))
    dumped = run("log", "dump", "-r", str(partition / SEGMENT))
    assert dumped.lines[0].startswith("offsets 100-101  position 0  ")
    assert "2 records  codec zstd  CreateTime 1700000001500 (2023-11-14 22:13:21.500 UTC)" in dumped.lines[0]
    moment = "1700000000000 (2023-11-14 22:13:20.000 UTC)"
    assert dumped.lines[1] == f"  100  {moment}  key 'k'  value 'v'  headers {{h: value '1', h: value null}}"


def test_batches_alone_without_the_option(run: Run, partition: Path) -> None:
    (partition / SEGMENT).write_bytes(b"".join(two_batches()))
    assert [fact["kind"] for fact in facts(run, partition / SEGMENT)] == ["batch", "batch"]


def test_wrong_crc_is_reported_and_reading_continues(run: Run, partition: Path) -> None:
    first, second = two_batches()
    broken = bytearray(first)
    broken[-1] ^= 1
    (partition / SEGMENT).write_bytes(bytes(broken) + second)
    dumped = facts(run, "--records", partition / SEGMENT, code=1)
    assert [fact["kind"] for fact in dumped] == ["batch", "batch", "record"]
    assert dumped[0]["problem"] == "the CRC does not match"
    assert "DAMAGED: the CRC does not match" in run("log", "dump", str(partition / SEGMENT)).text


@pytest.mark.parametrize("kept", [8, 17, 60, 61, 65])
def test_truncated_batch_is_reported_with_its_position(run: Run, partition: Path, kept: int) -> None:
    first, second = two_batches()
    (partition / SEGMENT).write_bytes(first + second[:kept])
    whole, torn = facts(run, partition / SEGMENT, code=1)
    assert whole["kind"] == "batch"
    assert (torn["kind"], torn["position"], torn["bytes"]) == ("damage", len(first), min(kept, len(second)))


def test_garbage_is_damage(run: Run, partition: Path) -> None:
    (partition / SEGMENT).write_bytes(b"\xff" * 200)
    (damage,) = facts(run, partition / SEGMENT, code=1)
    assert (damage["kind"], damage["position"], damage["bytes"]) == ("damage", 0, 200)


def test_preallocated_space_is_not_damage(run: Run, partition: Path) -> None:
    first, second = two_batches()
    (partition / SEGMENT).write_bytes(first + second + bytes(100_000))
    *_, unused = facts(run, partition / SEGMENT)
    assert (unused["kind"], unused["position"], unused["bytes"]) == ("unused", len(first + second), 100_000)


def test_empty_segment(run: Run, partition: Path) -> None:
    (partition / SEGMENT).write_bytes(b"")
    assert facts(run, partition / SEGMENT) == []


def test_index_entries_are_compared_with_the_log(run: Run, partition: Path) -> None:
    first, second = two_batches()
    (partition / SEGMENT).write_bytes(first + second)
    index = partition / SEGMENT.replace(".log", ".index")
    index.write_bytes(struct.pack(">iiii", 1, 0, 2, len(first)) + bytes(64))
    assert [(fact["offset"], fact["position"]) for fact in facts(run, index)] == [(101, 0), (102, len(first))]
    index.write_bytes(struct.pack(">iiii", 1, len(first), 2, 7))
    wrong_offset, wrong_position = facts(run, index, code=1)
    assert wrong_offset["problem"] == "the batch at this position does not contain this offset"
    assert wrong_position["problem"] == "no batch starts at this position of the segment"


def test_index_without_its_log_is_read(run: Run, partition: Path) -> None:
    index = partition / SEGMENT.replace(".log", ".index")
    index.write_bytes(struct.pack(">ii", 5, 4096))
    assert [(fact["offset"], fact["position"]) for fact in facts(run, index)] == [(105, 4096)]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_preallocated_index_has_no_entries(run: Run, partition: Path, suffix: str) -> None:
    index = partition / SEGMENT.replace(".log", suffix)
    index.write_bytes(bytes(96))
    assert facts(run, index) == []


def test_index_out_of_order_is_damage(run: Run, partition: Path) -> None:
    index = partition / SEGMENT.replace(".log", ".timeindex")
    index.write_bytes(struct.pack(">qiqi", 2_000, 1, 1_000, 2))
    entry, damage = facts(run, index, code=1)
    assert (entry["timestamp"], entry["offset"]) == (2_000, 101)
    assert damage["problem"] == "the index entries are out of order"


def test_transaction_index(run: Run, partition: Path) -> None:
    index = partition / SEGMENT.replace(".log", ".txnindex")
    index.write_bytes(struct.pack(">hqqqq", 0, 7, 100, 105, 106))
    (aborted,) = facts(run, index)
    assert (aborted["producer_id"], aborted["first_offset"], aborted["last_offset"]) == (7, 100, 105)
    assert aborted["last_stable_offset"] == 106


def test_producer_snapshot(run: Run, partition: Path) -> None:
    state = ProducerState()
    batch = build_batch(
        [Record(timestamp=5, value=b"a"), Record(timestamp=6, value=b"b")],
        base_offset=10,
        producer_id=7,
        producer_epoch=2,
        base_sequence=4,
    )
    (read,) = iter_batches(batch)
    state.replay(read, read)
    snapshot = partition / "00000000000000000012.snapshot"
    snapshot.write_bytes(state.encode_snapshot())
    (producer,) = facts(run, snapshot)
    assert (producer["producer_id"], producer["producer_epoch"], producer["last_sequence"]) == (7, 2, 5)
    assert (producer["last_offset"], producer["open_transaction_first_offset"]) == (11, None)
    snapshot.write_bytes(state.encode_snapshot()[:-1])
    assert facts(run, snapshot, code=1)[0]["kind"] == "damage"


def test_metadata_records_are_decoded(run: Run, tmp_path: Path) -> None:
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    leader = LeaderChangeMessage(leader_id=1, voters=[Voter(voter_id=1)])
    topic = TopicRecord(name="events", topic_id=uuid_from_str(TOPIC_ID))
    placed = PartitionRecord(partition_id=0, topic_id=uuid_from_str(TOPIC_ID), replicas=[1], isr=[1], leader=1)
    data = control_batch([leader], base_offset=0, epoch=1, timestamp_ms=1000)
    for _, batch in metadata_batches(
        [Versioned(topic, 0), Versioned(placed, 0)], base_offset=1, epoch=1, timestamp_ms=1000, max_records=100
    ):
        data += batch
    segment = directory / "00000000000000000000.log"
    segment.write_bytes(data)
    decoded = [fact for fact in facts(run, "-r", segment) if fact["kind"] == "metadata"]
    assert [(fact["offset"], fact["type"]) for fact in decoded] == [
        (0, "LeaderChangeMessage"),
        (1, "TopicRecord"),
        (2, "PartitionRecord"),
    ]
    assert decoded[1]["fields"] == {"name": "events", "topic_id": TOPIC_ID}
    assert decoded[2]["fields"]["partition_id"] == 0
    words = run("log", "dump", "-r", str(segment)).text
    assert f"TopicRecord(name='events', topic_id={TOPIC_ID})" in words


def test_passwords_and_keys_of_metadata_records_are_hidden(run: Run, tmp_path: Path) -> None:
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    user = UserScramCredentialRecord(
        name="alice", mechanism=1, salt=b"secret", stored_key=b"secret", server_key=b"secret", iterations=4096
    )
    configs = [
        ConfigRecord(resource_type=4, resource_name="1", name=name, value=value)
        for name, value in (
            ("listener.name.x.plain.sasl.jaas.config", 'module required password="secret";'),
            ("ssl.key.password", "secret"),
            ("a.plugin.key", "secret"),
            ("num.io.threads", "8"),
        )
    ]
    records = [Versioned(record, 0) for record in (user, *configs)]
    data = b"".join(
        batch for _, batch in metadata_batches(records, base_offset=0, epoch=1, timestamp_ms=1000, max_records=100)
    )
    segment = directory / "00000000000000000000.log"
    segment.write_bytes(data)
    decoded = [fact["fields"] for fact in facts(run, "-r", segment) if fact["kind"] == "metadata"]
    assert (decoded[0]["name"], decoded[0]["iterations"], decoded[0]["stored_key"]) == ("alice", 4096, "")
    assert [fields["value"] for fields in decoded[1:]] == ["[hidden]", "[hidden]", "[hidden]", "8"]
    words = run("log", "dump", "-r", str(segment)).text
    assert "secret" not in words
    assert base64.b64encode(b"secret").decode() not in words


def test_records_of_groups_are_decoded(run: Run, tmp_path: Path) -> None:
    directory = tmp_path / "__consumer_offsets-7"
    directory.mkdir()
    key = OffsetCommitKey(group="billing", topic="events", partition=3)
    value = OffsetCommitValue(offset=42, leader_epoch=1, commit_timestamp=1000, topic_id=uuid_from_str(TOPIC_ID))
    records = [
        Record(0, 1000, *encode_record(CoordinatorRecord(key, value, 4))),
        Record(0, 1000, *encode_record(CoordinatorRecord(key, None))),
        Record(0, 1000, b"\0\x63unknown", b"v"),
        Record(0, 1000, b"\0\1broken", b"v"),
    ]
    marker = Record(0, 1000, struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 5))
    (directory / "00000000000000000000.log").write_bytes(
        build_batch(records[:3])
        + build_batch([marker], base_offset=3, producer_id=9, producer_epoch=0, transactional=True, control=True)
        + build_batch(records[3:], base_offset=4)
    )

    decoded = facts(run, "-r", directory / "00000000000000000000.log", code=1)

    committed, deleted, unknown, marked, broken = (fact for fact in decoded if fact["kind"] in ("group", "record"))
    assert (committed["kind"], committed["type"], committed["value_version"]) == ("group", "OffsetCommit", 4)
    assert committed["key"] == {"group": "billing", "topic": "events", "partition": 3}
    assert (committed["value"]["offset"], committed["value"]["topic_id"]) == (42, TOPIC_ID)
    assert (deleted["kind"], deleted["value"], deleted["value_version"]) == ("group", None, None)
    assert (unknown["kind"], unknown["value"]) == ("record", "v")
    assert (marked["kind"], marked["marker"]) == ("record", "COMMIT")
    assert (broken["kind"], "cannot decode the group record" in broken["problem"]) == ("record", True)
    words = run("log", "dump", "-r", str(directory / "00000000000000000000.log")).text
    assert "OffsetCommitKey(group='billing', topic='events', partition=3)  OffsetCommitValue(offset=42," in words
    assert "OffsetCommitKey(group='billing', topic='events', partition=3)  deleted" in words


def test_records_of_transactions_are_decoded_with_the_names_of_their_states(run: Run, tmp_path: Path) -> None:
    directory = tmp_path / "__transaction_state-3"
    directory.mkdir()
    key = TransactionLogKey(transactional_id="billing-1")
    value = TransactionLogValue(
        producer_id=7,
        producer_epoch=2,
        transaction_timeout_ms=60_000,
        transaction_status=2,
        transaction_partitions=[PartitionsSchema(topic="events", partition_ids=[0, 3])],
        client_transaction_version=2,
    )
    records = [
        Record(0, 1000, *encode_transaction_record(CoordinatorRecord(key, value, 1))),
        Record(0, 1000, *encode_transaction_record(CoordinatorRecord(key, None))),
        Record(0, 1000, b"\0\0broken", b"v"),
    ]
    segment = directory / "00000000000000000000.log"
    segment.write_bytes(build_batch(records))

    prepared, forgotten, broken = (
        fact for fact in facts(run, "-r", segment, code=1) if fact["kind"] in ("transaction", "record")
    )

    assert (prepared["state"], prepared["key"]) == ("PrepareCommit", {"transactional_id": "billing-1"})
    assert prepared["value"]["transaction_partitions"] == [{"topic": "events", "partition_ids": [0, 3]}]
    assert (forgotten["kind"], forgotten["value"]) == ("transaction", None)
    assert (broken["kind"], "cannot decode the transaction record" in broken["problem"]) == ("record", True)
    words = run("log", "dump", "-r", str(segment)).text
    assert "PrepareCommit  TransactionLogKey(transactional_id='billing-1')  TransactionLogValue(producer_id=7," in words


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        (
            "leader-epoch-checkpoint",
            "0\n2\n0 0\n3 17\n",
            [{"epoch": 0, "start_offset": 0}, {"epoch": 3, "start_offset": 17}],
        ),
        ("partition.metadata", f"version: 0\ntopic_id: {TOPIC_ID}", [{"topic_id": TOPIC_ID}]),
        (
            "recovery-point-offset-checkpoint",
            "0\n1\nevents 0 42\n",
            [{"topic": "events", "partition": 0, "offset": 42}],
        ),
        ("meta.properties", "version=1\ncluster.id=abc\n", [{"version": "1", "cluster.id": "abc"}]),
    ],
)
def test_text_files(run: Run, tmp_path: Path, name: str, content: str, expected: list[dict[str, Any]]) -> None:
    (tmp_path / name).write_text(content)
    found = facts(run, tmp_path / name)
    assert [{key: value for key, value in fact.items() if key not in ("file", "kind")} for fact in found] == expected


def test_damaged_text_file_is_reported(run: Run, tmp_path: Path) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n5\n0 0\n")
    (damage,) = facts(run, tmp_path / "leader-epoch-checkpoint", code=1)
    assert damage["problem"].startswith("leader-epoch-checkpoint ")


def test_unknown_files_are_rejected_by_name(run: Run, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    refused = run("log", "dump", str(tmp_path / "notes.txt"))
    assert refused.code == 1
    assert refused.err.startswith("moldau: cannot dump notes.txt: not a file of a log directory; known files: .log, ")
    assert run("log", "dump", str(tmp_path / "absent.log")).code == 2


@pytest.fixture(scope="module")
def log_directory(tmp_path_factory: pytest.TempPathFactory, run: Run) -> Path:
    """The directory of a server that has stopped cleanly, with 300 records in a topic called events."""
    directory = tmp_path_factory.mktemp("data")
    with Broker(data_dir=directory) as broker:
        lines = b"".join(b"key:%d\n" % number for number in range(300))
        sent = run("produce", "events", "-k", ":", "-b", broker.bootstrap_servers, input=lines)
        assert sent.code == 0, sent.err
    return directory


def test_every_file_of_a_server_is_read_without_damage(run: Run, log_directory: Path) -> None:
    kinds = set()
    for path in sorted(log_directory.rglob("*")):
        if path.is_file() and path.name not in (".lock", ".kafka_cleanshutdown", "quorum-state"):
            kinds |= {fact["kind"] for fact in facts(run, "--records", path)}
    assert {"batch", "record", "metadata", "producer", "leader epoch", "partition", "properties", "offset"} <= kinds
    values = [
        fact["value"]
        for fact in facts(run, "-r", *sorted(log_directory.glob("events-0/*.log")))
        if fact["kind"] == "record"
    ]
    assert values == [str(number) for number in range(300)]


def test_several_files_have_headings(run: Run, log_directory: Path) -> None:
    paths = sorted(str(path) for path in log_directory.glob("events-0/*.log"))
    paths.append(str(log_directory / "meta.properties"))
    dumped = run("log", "dump", *paths)
    assert [f"{path}:" in dumped.lines for path in paths] == [True] * len(paths)
    assert json.loads(run("log", "dump", "--json", *paths).lines[-1])["file"] == paths[-1]
