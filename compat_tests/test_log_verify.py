"""``moldau log verify`` and ``repair`` on directories that Apache Kafka wrote, compared with its own dump tool."""

import random
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from moldau.inspection.finding import Severity
from moldau.inspection.log_directories import InspectionReport, inspect
from moldau.inspection.repair import Repair
from moldau.log.files import RealFileSystem
from moldau.protocol.records import build_batch, iter_records
from moldau.testing import Broker
from moldau.testing import topic_requests as w
from moldau.testing.apache_kafka import ApacheKafka
from moldau.testing.clients.java import JavaClient
from moldau.testing.dump_tool import COMPLAINTS
from moldau.testing.full_run import first_of
from moldau.testing.requirements import require_kafka_jars
from moldau.testing.servers import Server
from moldau.testing.wire import WireClient

NOW = 1_700_000_000_000


@pytest.fixture(autouse=True)
def _both_servers(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("apache") or request.config.getoption("bootstrap_server"):
        pytest.skip("starts both servers itself, whichever is under test")
    require_kafka_jars()


def write(server: Server, name: str) -> None:
    """Several segments, every codec, transactions committed, aborted and left open, deleted records, a group."""
    address = server.bootstrap_servers
    w.create_topic(address, f"{name}-rolling", 2, {"segment.bytes": "1048576", "index.interval.bytes": "1000"})
    w.create_topic(address, f"{name}-transactions", 1)
    w.create_topic(address, f"{name}-compacted", 1, {"cleanup.policy": "compact"})
    with WireClient(address) as wire:
        for number in range(30):
            # A few of the larger ones first, so that there are segments; then one of each codec.
            data = build_batch(w.records(random.Random(number).randbytes(90_000)), codec=number % 5)
            assert w.produce(wire, f"{name}-rolling", data, partition=0).error_code == 0
    idempotent = Producer({"bootstrap.servers": address, "enable.idempotence": True, "batch.size": 1000})
    for number in range(2000):
        idempotent.produce(f"{name}-rolling", b"%d" % number, partition=1)
        idempotent.produce(f"{name}-compacted", b"%d" % number * 10, key=b"%d" % (number % 7))
        idempotent.poll(0)
    idempotent.flush()
    transactional = Producer({"bootstrap.servers": address, "transactional.id": name})
    transactional.init_transactions()
    for number in range(9):
        transactional.begin_transaction()
        for _ in range(3):
            transactional.produce(f"{name}-transactions", b"%d" % number * 100)
        transactional.flush()
        if number % 3 == 2:
            transactional.abort_transaction()
        else:
            transactional.commit_transaction()
    transactional.begin_transaction()
    transactional.produce(f"{name}-transactions", b"open")
    transactional.flush()
    partition = TopicPartition(f"{name}-rolling", 1, 500)
    # Without a name the client would be deleted before it sends the request.
    admin = AdminClient({"bootstrap.servers": address})
    for future in admin.delete_records([partition]).values():
        future.result(60)
    consumer = Consumer({"bootstrap.servers": address, "group.id": name})
    consumer.commit(offsets=[TopicPartition(f"{name}-rolling", 0, 7)], asynchronous=False)
    consumer.close()


def moldau(directory: Path) -> AbstractContextManager[Server]:
    return Broker(data_dir=directory)


def verify(*directories: Path) -> InspectionReport:
    return inspect(RealFileSystem(), [str(directory) for directory in directories], deep=True)


def wrong(report: InspectionReport) -> list[str]:
    return [f"{finding.path}: {finding.text}" for finding in report.findings if finding.severity is not Severity.NOTE]


@pytest.mark.parametrize("how", first_of(["kill", "stop"]))
def test_directories_of_apache_kafka_have_no_findings(how: str) -> None:
    with ApacheKafka() as server:
        write(server, "first")
        if how == "kill":
            server.kill()
        else:
            server.stop()
        report = verify(server.data_dir)
    assert wrong(report) == []
    notes = [finding.kind.value for finding in report.findings]
    if how == "kill":  # while it wrote a checkpoint, perhaps
        notes = [note for note in notes if note != "leftover"]
    assert notes == ([] if how == "stop" else ["not-closed-cleanly"])
    assert report.totals.segments > report.totals.partitions >= 6
    assert report.totals.records > 4000


@pytest.mark.full
def test_directories_of_both_servers_have_no_findings() -> None:
    with ApacheKafka() as first:
        write(first, "one")
        first.stop()
        for name in ("two", "three"):
            with moldau(first.data_dir) as server:
                write(server, f"{name}-moldau")
            assert wrong(verify(first.data_dir)) == []
            first.start()
            write(first, f"{name}-apache")
            first.stop()
            assert wrong(verify(first.data_dir)) == []


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 4
    path.write_bytes(data)


def damage(directory: Path) -> None:
    """One of each kind of file that is derived from others."""
    rolling, transactions = directory / "first-rolling-0", directory / "first-transactions-0"
    flip(next(rolling.glob("*.index")), 5)
    flip(max(rolling.glob("*.timeindex")), 3)
    flip(max(rolling.glob("*.snapshot")), 0)
    flip(max(transactions.glob("*.snapshot")), 20)
    flip(next(transactions.glob("*.txnindex")), 13)
    (directory / "first-compacted-0" / "leader-epoch-checkpoint").write_bytes(b"nonsense")
    (directory / "first-compacted-0" / "partition.metadata").write_bytes(b"nonsense")
    (directory / "recovery-point-offset-checkpoint").write_bytes(b"0\n1\nfirst-rolling 0 99999\n")


def stored(server: Server) -> list[bytes | None]:
    address = server.bootstrap_servers
    values: list[bytes | None] = []
    for topic, partitions in (("first-rolling", 2), ("first-transactions", 1), ("first-compacted", 1)):
        w.wait_for_topic(address, topic, partitions)
    with WireClient(address) as wire:
        for topic in ("first-transactions", "first-compacted"):
            found = w.fetch(wire, topic, 0)
            assert found.error_code == 0
            values += [record.value for batch in w.batches_of(found) for record in iter_records(batch)]
    return values


@pytest.mark.full
def test_apache_kafka_starts_on_a_repaired_directory() -> None:
    with ApacheKafka() as server:
        write(server, "first")
        before = stored(server)
        server.stop()
        damage(server.data_dir)
        assert len(wrong(verify(server.data_dir))) >= 8
        with Repair(RealFileSystem(), [str(server.data_dir)], truncate=False) as repair:
            repair.run(repair.inspect(), now_ms=NOW)
        assert wrong(verify(server.data_dir)) == []
        log_start = len(server.log())
        server.start()
        assert stored(server) == before
        warnings = [
            line for line in server.log()[log_start:].splitlines() if re.search(r"\] (WARN|ERROR|FATAL) ", line)
        ]
        # A controller may request its own registration before it has activated itself; it repeats the request.
        expected = re.compile("Performing controller activation|apiKey=CONTROLLER_REGISTRATION")
        assert [line for line in warnings if not expected.search(line)] == []
        server.stop()
        assert wrong(verify(server.data_dir)) == []


# Beside the dump tool


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("good") / "data"
    with moldau(directory) as server:
        write(server, "first")
    return directory


@pytest.fixture
def java() -> Iterator[JavaClient]:
    with JavaClient("127.0.0.1:1") as client:
        yield client


def complains(java: JavaClient, path: Path) -> bool:
    """Whether DumpLogSegments reports a problem of a file."""
    options = ["--files", str(path)]
    # The check comes first, because the tool cuts an index off behind its last whole entry.
    for mode in (["--deep-iteration"],) if path.suffix == ".log" else (["--index-sanity-check"], []):
        result = java.tool("org.apache.kafka.tools.DumpLogSegments", [*options, *mode])
        output = re.sub(r"-1 is followed by \d+", "", result.stdout + result.stderr)
        if result.exit_code != 0 or COMPLAINTS.search(output) or "is followed by" in output:
            return True
    return False


def cut(path: Path, position: int) -> None:
    path.write_bytes(path.read_bytes()[:position])


DAMAGE: list[tuple[str, Callable[[Path], None]]] = [
    ("first-rolling-1/*.log", lambda path: flip(path, path.stat().st_size // 2)),
    ("first-rolling-1/*.log", lambda path: flip(path, 17)),
    ("first-rolling-1/*.log", lambda path: cut(path, path.stat().st_size - 3)),
    ("first-rolling-0/*.log", lambda path: flip(path, 80_000)),
    ("first-transactions-0/*.log", lambda path: flip(path, 100)),
    ("first-rolling-0/*.index", lambda path: flip(path, 3)),
    ("first-rolling-0/*.index", lambda path: flip(path, 7)),
    ("first-rolling-0/*.index", lambda path: cut(path, path.stat().st_size - 3)),
    ("first-rolling-0/*.timeindex", lambda path: flip(path, 2)),
    ("first-rolling-0/*.timeindex", lambda path: flip(path, 7)),
    ("first-rolling-0/*.timeindex", lambda path: cut(path, path.stat().st_size - 3)),
    ("first-rolling-1/*.snapshot", lambda path: flip(path, 25)),
]


def test_the_dump_tool_and_verify_accept_good_files(java: JavaClient, good: Path) -> None:
    assert wrong(verify(good)) == []
    paths = [path for pattern in sorted({pattern for pattern, _ in DAMAGE}) for path in good.glob(pattern)]
    assert [path.name for path in paths if path.stat().st_size and complains(java, path)] == []


@pytest.mark.parametrize("number", range(len(DAMAGE)))
def test_verify_finds_what_the_dump_tool_reports(java: JavaClient, good: Path, tmp_path: Path, number: int) -> None:
    pattern, change = DAMAGE[number]
    directory = Path(shutil.copytree(good, tmp_path / "data"))
    path = min(directory.glob(pattern))
    change(path)
    found = wrong(verify(directory))  # before the tool has cut an index off behind its last whole entry
    assert complains(java, path)
    assert any(line.startswith(str(path.parent)) for line in found)
