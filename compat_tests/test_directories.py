"""One data directory, two servers: Apache Kafka continues with a directory of Moldau, and vice versa.

The tests compare records, topics with their ids and configs, and producer state: a producer that received no response
from one server may retry with the other. Apache Kafka's dump tool also reads the directory.
"""

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import pytest

from moldau.protocol.records import build_batch, iter_records
from moldau.testing import Broker
from moldau.testing import topic_requests as w
from moldau.testing.apache_kafka import ApacheKafka
from moldau.testing.clients import open_client
from moldau.testing.clients.java import JavaClient
from moldau.testing.dump_tool import COMPLAINTS
from moldau.testing.full_run import first_of
from moldau.testing.servers import Server
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

PRODUCER_ID = 7_000
DAY_MS = 86_400_000


pytestmark = pytest.mark.usefixtures("both_servers")


def moldau(directory: Path) -> AbstractContextManager[Server]:
    return Broker(data_dir=directory)


def apache(directory: Path) -> AbstractContextManager[Server]:
    # A new directory is formatted by Apache Kafka's own tool.
    return ApacheKafka(data_dir=directory if directory.exists() else None)


def values(address: str, topic: str, partition: int = 0) -> list[bytes | None]:
    """The stored records."""
    return [record.value for batch in w.stored_batches(address, topic, partition) for record in iter_records(batch)]


def send(address: str, topic: str, sequence: int) -> tuple[int, int]:
    """Ten records of an idempotent producer: error code and base offset."""
    batch = build_batch(
        w.records(*[b"%d" % (sequence + n) for n in range(10)]),
        codec=sequence // 10 % 5,
        producer_id=PRODUCER_ID,
        producer_epoch=0,
        base_sequence=sequence,
    )
    with WireClient(address) as wire:
        answer = w.produce(wire, topic, batch)
    return answer.error_code, answer.base_offset


def begin(server: Server) -> w.Topic:
    """A topic with fifty records and its own config."""
    topic = w.create_topic(server.bootstrap_servers, "shared", 2, {"retention.ms": str(30 * DAY_MS)})
    for sequence in range(0, 50, 10):
        assert send(server.bootstrap_servers, topic.name, sequence) == (0, sequence)
    return topic


def continue_writing(server: Server, topic: w.Topic, before: int) -> int:
    """Check the data of the other server, and add records. Returns their new number."""
    address = server.bootstrap_servers
    w.wait_for_topic(address, topic.name, 2)
    assert values(address, topic.name) == [b"%d" % number for number in range(before)]
    # The last batch again: known, and not stored twice. Then the next one.
    assert send(address, topic.name, before - 10) == (0, before - 10)
    assert send(address, topic.name, before) == (0, before)
    with open_client("kafka-python", address) as client:
        assert client.topic_configs(topic.name)["retention.ms"] == str(30 * DAY_MS)
        name = f"made-at-{before}"
        client.create_topic(name, 1)
        assert len(client.topics()) >= 2
    assert w.create_topic(address, f"{name}-too").topic_id != topic.topic_id
    return before + 10


def end(server: Server, how: str) -> None:
    """Stop it, or kill it."""
    if how == "kill":
        server.kill()
    else:
        server.stop()


@pytest.mark.parametrize("how", first_of(["kill", "stop"]))
def test_apache_kafka_continues_where_moldau_ended(tmp_path: Path, how: str) -> None:
    directory = tmp_path / "data"
    with moldau(directory) as server:
        topic = begin(server)
        end(server, how)
    with apache(directory) as server:
        continue_writing(server, topic, 50)


@pytest.mark.parametrize("how", first_of(["kill", "stop"]))
def test_moldau_continues_where_apache_kafka_ended(how: str) -> None:
    with ApacheKafka() as first:
        topic = begin(first)
        end(first, how)
        with moldau(first.data_dir) as server:
            continue_writing(server, topic, 50)


@pytest.mark.full
def test_to_and_fro(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with moldau(directory) as server:
        topic = begin(server)
    count = 50
    for start in (apache, moldau, apache, moldau):
        with start(directory) as server:
            count = continue_writing(server, topic, count)
    assert count == 90


# Frequent snapshots of the metadata, of which only the last is kept.
SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "2000", "metadata.max.retention.bytes": "1"}


def wait_for_snapshot(directory: Path, after: int) -> int:
    """Wait for a snapshot of the metadata that ends after this offset. Returns the end of the latest one."""

    def latest() -> int:
        return max(int(path.name[:20]) for path in directory.glob("__cluster_metadata-0/*.checkpoint"))

    wait_until(lambda: latest() > after, f"a snapshot after offset {after}", pause=0.1, state=latest)
    return latest()


@pytest.mark.full
def test_to_and_fro_with_snapshots_of_the_metadata(tmp_path: Path, java: JavaClient) -> None:
    """Each server starts from a snapshot of the other; the log contains only the records after a snapshot."""
    directory = tmp_path / "data"
    log = directory / "__cluster_metadata-0"
    end = 0
    with Broker(data_dir=directory, config=SNAPSHOTS) as server:
        topic = begin(server)
        for life in range(2):
            for number in range(20):
                w.create_topic(server.bootstrap_servers, f"t-{life}-{number}", 2)
            end = wait_for_snapshot(directory, end)
    count = 50
    for name in ("apache", "moldau"):
        if name == "moldau":
            opened: AbstractContextManager[Server] = Broker(data_dir=directory, config=SNAPSHOTS)
        else:
            assert min(int(path.name[:20]) for path in log.glob("*.log")) > 0  # the log was cut
            opened = ApacheKafka(SNAPSHOTS, data_dir=directory)
        with opened as server:
            count = continue_writing(server, topic, count)
            with open_client("kafka-python", server.bootstrap_servers) as client:
                assert {f"t-{life}-{number}" for life in range(2) for number in range(20)} <= set(client.topics())
            for number in range(20):
                w.create_topic(server.bootstrap_servers, f"{name}-{count}-{number}")
            end = wait_for_snapshot(directory, end)
        for snapshot in log.glob("*.checkpoint"):
            assert '"type":"PARTITION_RECORD"' in dump(
                java, "--files", str(snapshot), "--cluster-metadata-decoder", "--skip-record-metadata"
            )
    assert count == 70


# The dump tool


@pytest.fixture(params=["stop", "kill"])
def written(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A directory that a server has written in small segments, with every codec."""
    directory = tmp_path / "data"
    with moldau(directory) as server:
        topic = begin(server)
        w.create_topic(server.bootstrap_servers, "rolling", 1, {"segment.bytes": "1048576"})
        with WireClient(server.bootstrap_servers) as wire:
            for _ in range(40):
                assert w.produce(wire, "rolling", build_batch(w.records(bytes(90_000)))).error_code == 0
        assert values(server.bootstrap_servers, topic.name)
        end(server, request.param)
    return directory


@pytest.fixture
def java() -> Iterator[JavaClient]:
    with JavaClient("127.0.0.1:1") as client:
        yield client


def dump(java: JavaClient, *arguments: str) -> str:
    """The output of DumpLogSegments, whose exit code is always 0."""
    result = java.tool("org.apache.kafka.tools.DumpLogSegments", arguments)
    assert result.exit_code == 0, result
    # The first offset of every segment but that at 0 looks to the tool like a gap after -1.
    gaps = [gap for gap in re.findall(r"(-?\d+) is followed by \d+", result.stderr) if gap != "-1"]
    assert gaps == [], result.stderr
    assert not COMPLAINTS.search(result.stdout + result.stderr), result
    return result.stdout


def test_dump_of_segments(written: Path, java: JavaClient) -> None:
    segments = sorted(written.glob("*-[0-9]/*.log"))
    assert len(list(written.glob("rolling-0/*.log"))) > 2
    for segment in segments:
        if segment.parent.name.startswith("__"):
            continue
        dump(java, "--files", str(segment), "--deep-iteration", "--print-data-log")
    text = dump(java, "--files", str(written / "shared-0" / f"{0:020}.log"), "--deep-iteration", "--print-data-log")
    assert re.findall(r"payload: (\d+)", text) == [str(number) for number in range(50)]
    assert set(re.findall(r"compresscodec: (\w+)", text)) == {"none", "gzip", "snappy", "lz4", "zstd"}


def test_dump_of_indexes(written: Path, java: JavaClient) -> None:
    for suffix in ("index", "timeindex"):
        for index in sorted(written.glob(f"rolling-0/*.{suffix}")):
            dump(java, "--files", str(index), "--verify-index-only")
            if suffix == "index":
                text = dump(java, "--files", str(index), "--index-sanity-check")
                assert "passed sanity check" in text or "is empty" in text, text


def test_dump_of_the_metadata_log(written: Path, java: JavaClient) -> None:
    text = ""
    for segment in sorted(written.glob("__cluster_metadata-0/*.log")):
        text += dump(java, "--files", str(segment), "--cluster-metadata-decoder", "--skip-record-metadata")
    for kind in ("FEATURE_LEVEL_RECORD", "REGISTER_BROKER_RECORD", "TOPIC_RECORD", "PARTITION_RECORD", "CONFIG_RECORD"):
        assert f'"type":"{kind}"' in text, kind
    assert '"name":"shared"' in text
    with suppress(StopIteration):
        snapshot = next(written.glob("__cluster_metadata-0/*.checkpoint"))
        dump(java, "--files", str(snapshot), "--cluster-metadata-decoder")
