"""A data directory may contain user files with any name: no startup, shutdown or maintenance deletes them."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest

from moldau.inspection.finding import Severity
from moldau.inspection.log_directories import inspect
from moldau.inspection.repair import Repair
from moldau.log.files import RealFileSystem
from moldau.log.memory_files import MemoryFileSystem
from moldau.log.names import is_leftover, is_partition_file, parse_partition_directory_name
from moldau.log.partition_directory import inspect_partition_directory, remove_partition_directory
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest
from moldau.server.nodes.server import StartError
from moldau.server.storage import data_directories
from moldau.testing import Broker, BrokerError
from moldau.testing.builders import batch, fetch, produce, values
from moldau.testing.wire import WireClient

from .conftest import MakeServer

UNIQUE = "0123456789abcdef0123456789abcdef"
SEGMENT = "00000000000000000000"
METADATA = "__cluster_metadata-0"

# Files that a user might keep next to partitions, and inside them.
BESIDE = (
    "backup-2024/photo.jpg",
    "backup-2024/summer/trip-1/photo.jpg",
    "x-1-stray/notes.txt",
    "foo-0.abc-delete/notes.txt",
    f"foo-0.{UNIQUE}-delete/notes.txt",
    f"foo-1.{UNIQUE}-delete/{SEGMENT}.log",
    f"foo-1.{UNIQUE}-delete/notes.txt",
    f"foo-2.{UNIQUE}-delete/{SEGMENT}.log/inside",
    f"foo-3.{UNIQUE.upper()}-delete/{SEGMENT}.log",
    f"bar-0.{UNIQUE}-future/notes.txt",
    f"bar-1.{UNIQUE}-future/folder/notes.txt",
    f"baz-0.{UNIQUE}-stray/notes.txt",
    "app-1/server.log",
    "app-1/notes.tmp",
    f"app-1/{SEGMENT}.mine.deleted",
    "app-2/server.log",
    "mixed-0/partition.metadata",
    f"mixed-0/{SEGMENT}.log",
    f"mixed-0/{SEGMENT}.index.deleted",
    "mixed-0/notes.txt",
    "backup-007/partition.metadata",
    "notes.tmp",
    "meta.properties.bak",
    "cleaner-offset-checkpoint.old.tmp",
    "README-1",
)
INSIDE = (
    "notes.txt",
    "notes.tmp",
    "photos.deleted",
    "photos.cleaned",
    "photos.swap",
    f"{SEGMENT}.log.bak",
    f"{SEGMENT}.mine.deleted",
    f"{SEGMENT}.mine.cleaned",
    f"{SEGMENT}.mine.swap",
    "folder/notes.txt",
    f"{SEGMENT}.log.deleted.d/notes.txt",
)
OF_THE_METADATA = ("notes.tmp", "mine.checkpoint.deleted", "mine.checkpoint.part", "folder/notes.txt")


def plant(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"the user's {path.name}")


def plant_next_to(directory: Path, outside: Path, *, with_segments: bool = True) -> None:
    """``with_segments``: include files that look like records; a new data directory with such files is refused."""
    for name in BESIDE:
        if with_segments or name != f"mixed-0/{SEGMENT}.log":
            plant(directory / name)
    (directory / "name-3").mkdir()
    (directory / f"name-4.{UNIQUE}").mkdir()
    plant(outside / "photo.jpg")
    if with_segments:
        plant(outside / f"{SEGMENT}.log")
    for name in ("link-5", f"link-6.{UNIQUE}-delete", f"link-7.{UNIQUE}-future"):
        (directory / name).symlink_to(outside)
    (directory / "gone-0").symlink_to(outside / "nothing")
    (directory / f"foo-8.{UNIQUE}-delete").mkdir()
    (directory / f"foo-8.{UNIQUE}-delete" / f"{SEGMENT}.log").symlink_to(outside / f"{SEGMENT}.log")


def plant_inside(partition: Path, names: tuple[str, ...], outside: Path) -> None:
    for name in names:
        plant(partition / name)
    (partition / "link").symlink_to(outside)


def tree(directory: Path, *, without: frozenset[Path] = frozenset()) -> dict[Path, str | None]:
    """All files below the directory with their content, and links with their targets, except those in ``without``."""
    found: dict[Path, str | None] = {}
    for parent, folders, files in os.walk(directory):
        for name in (*folders, *files):
            path = Path(parent) / name
            if path.is_symlink():
                found[path] = f"link to {path.readlink()}"
            else:
                found[path] = path.read_bytes().hex() if path.is_file() else None
    return {path: content for path, content in found.items() if path not in without}


def still_there(planted: dict[Path, str | None], directory: Path) -> bool:
    now = tree(directory)
    lost = {path for path, content in planted.items() if path not in now or now[path] != content}
    assert not lost
    return True


def check_files_survive(broker: Broker, planted: dict[Path, str | None], directory: Path) -> None:
    """Check that the files survive requests, due maintenance, clean and unclean shutdowns, and startups."""
    for number in range(4):
        with WireClient(broker.bootstrap_servers) as wire:
            assert produce(wire, "kept", batch(b"%d" % number)).error_code == 0
            assert values(fetch(wire, "kept"))[-1] == b"%d" % number
            created = wire.call(CreateTopicsRequest(topics=[new_topic("brief")]), 7).topics
            assert [topic.error_code for topic in created] == [0]
            deleted = wire.call(DeleteTopicsRequest(topic_names=["brief"], timeout_ms=60_000), 5).responses
            assert [topic.error_code for topic in deleted] == [0]
        broker.delete_old_segments()
        assert still_there(planted, directory)
        if number % 2:
            broker.stop()
        else:
            broker.kill()
        assert still_there(planted, directory)
        broker.start()
    broker.stop()
    assert still_there(planted, directory)
    assert not list(directory.glob("brief-*"))  # Kafka's own files are deleted


CONFIG = {"log.segment.delete.delay.ms": 0, "log.initial.task.delay.ms": 0}


def new_topic(name: str) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=1, replication_factor=1)


def create_topic(broker: Broker, name: str) -> None:
    with WireClient(broker.bootstrap_servers) as wire:
        (topic,) = wire.call(CreateTopicsRequest(topics=[new_topic(name)]), 7).topics
        assert topic.error_code == 0


def test_user_files_in_a_new_directory_are_kept(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    plant_next_to(directory, tmp_path / "outside", with_segments=False)
    planted = tree(tmp_path)
    with Broker(data_dir=directory, config=CONFIG, allow_non_empty=True) as broker:
        create_topic(broker, "kept")
        assert still_there(planted, tmp_path)
        check_files_survive(broker, planted, tmp_path)


def test_user_files_in_a_used_directory_and_in_partitions_are_kept(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with Broker(data_dir=directory, config=CONFIG) as broker:
        create_topic(broker, "kept")
        broker.stop()
        ours = frozenset(tree(tmp_path))
        plant_next_to(directory, tmp_path / "outside")
        plant_inside(directory / "kept-0", INSIDE, tmp_path / "outside")
        plant_inside(directory / METADATA, OF_THE_METADATA, tmp_path / "outside")
        planted = tree(tmp_path, without=ours)
        broker.start()
        assert still_there(planted, tmp_path)
        check_files_survive(broker, planted, tmp_path)


def test_user_files_in_a_second_log_directory_are_kept(make_server: MakeServer, tmp_path: Path) -> None:
    server = make_server(log_dirs=[tmp_path / "a", tmp_path / "b"])
    server.create_topic("kept", partitions=2)
    server.stop()
    ours = frozenset(tree(tmp_path))
    plant_next_to(tmp_path / "b", tmp_path / "outside")
    # The name of a partition, in the log directory that does not have the partition.
    empty, other = sorted(tmp_path.glob("?/kept-?"))
    plant((tmp_path / "b" / empty.name if empty.parent.name == "a" else tmp_path / "a" / empty.name) / "notes.txt")
    assert other.exists()
    for directory in ("a", "b"):
        plant(tmp_path / directory / "nowhere-0" / "notes.txt")
    planted = tree(tmp_path, without=ours)
    for _ in range(2):
        server.start()
        server.stop()
        assert still_there(planted, tmp_path)


def test_a_deleted_partition_with_a_user_file_is_kept(
    make_server: MakeServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = make_server(config={"log.segment.delete.delay.ms": "0"})
    server.create_topic("t")
    with server.wire() as wire:
        assert produce(wire, "t", batch(b"x")).error_code == 0
    plant(tmp_path / "data" / "t-0" / "notes.txt")
    with server.wire() as wire:
        assert wire.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=60_000), 5).responses[0].error_code == 0
    server.await_(server.broker.trash.remove_due)
    for _ in range(2):
        (left,) = (tmp_path / "data").glob("t-0.*-delete")
        assert {path.name for path in left.iterdir()} > {"notes.txt", f"{SEGMENT}.log"}
        server.restart()
    assert "it holds notes.txt, which is not a file of a partition" in caplog.text
    server.stop()
    (left / "notes.txt").rename(tmp_path / "notes.txt")
    server.start()
    server.await_(server.broker.trash.remove_due)
    assert not left.exists()


def test_a_stray_without_records_is_set_aside_and_not_removed(make_server: MakeServer, tmp_path: Path) -> None:
    other = make_server(log_dirs=[tmp_path / "other"])
    other.create_topic("empty")
    other.stop()
    server = make_server(log_dirs=[tmp_path / "data"])
    server.stop()
    (tmp_path / "other" / "empty-0").rename(tmp_path / "data" / "empty-0")
    for _ in range(2):
        server.restart()
        server.await_(server.broker.trash.remove_due)
        (stray,) = (tmp_path / "data").glob("empty-0*")
        assert re.fullmatch(r"empty-0\.[0-9a-f]{32}-stray", stray.name)
        assert (stray / "partition.metadata").exists()


def test_an_existing_directory_is_not_used_for_a_new_partition(make_server: MakeServer, tmp_path: Path) -> None:
    server = make_server()
    plant(tmp_path / "data" / "t-0" / "notes.txt")
    plant(tmp_path / "data" / "u-0")
    planted = tree(tmp_path / "data" / "t-0")
    server.create_topic("t")
    server.create_topic("u")
    server.create_topic("v")
    with server.wire() as wire:
        answers = [produce(wire, topic, batch(b"x")) for topic in "tuv"]
        assert [answer.error_code for answer in answers] == [56, 56, 0]
    assert tree(tmp_path / "data" / "t-0") == planted
    server.restart()  # nor after a restart, which finds it under a known name
    with server.wire() as wire:
        answers = [produce(wire, topic, batch(b"x")) for topic in "tuv"]
        assert [answer.error_code for answer in answers] == [56, 56, 0]
    assert tree(tmp_path / "data" / "t-0") == planted
    server.stop()
    (tmp_path / "data" / "t-0").rename(tmp_path / "notes")
    (tmp_path / "data" / "u-0").unlink()
    server.start()
    with server.wire() as wire:
        assert [produce(wire, topic, batch(b"x")).error_code for topic in "tuv"] == [0, 0, 0]


def test_a_partition_is_served_when_the_directory_that_blocks_it_is_removed(
    make_server: MakeServer, tmp_path: Path
) -> None:
    server = make_server()
    plant(tmp_path / "data" / "t-0" / "notes.txt")
    server.create_topic("t")
    assert server.call(lambda: len(server.broker.publisher.late_replicas)) == 1
    (tmp_path / "data" / "t-0").rename(tmp_path / "notes")
    server.wait_until(lambda: not len(server.broker.publisher.late_replicas))
    with server.wire() as wire:
        assert produce(wire, "t", batch(b"x")).error_code == 0


def test_an_unreadable_directory_does_not_prevent_startup(make_server: MakeServer) -> None:
    file_system = MemoryFileSystem()
    server = make_server(log_dirs=["/data"], file_system=file_system)
    server.create_topic("t")
    server.stop()
    names = ("name-3", f"foo-0.{UNIQUE}-delete", f"foo-0.{UNIQUE}-future")
    for name in names:
        file_system.make_directory(f"/data/{name}")
    file_system.fail_with = lambda operation, path: errno.EACCES if path.removeprefix("/data/") in names else None
    server.start()
    with server.wire() as wire:
        assert produce(wire, "t", batch(b"x")).error_code == 0
    server.await_(server.broker.trash.remove_due)
    assert set(file_system.list_directory("/data")[1]) > set(names)


@pytest.mark.parametrize("name", ["t-0", "name-3"])
def test_startup_and_log_verify_agree(
    make_server: MakeServer, tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = make_server()
    server.create_topic("t")
    server.stop()
    data = tmp_path / "data"
    plant_next_to(data, tmp_path / "outside")
    report = inspect(RealFileSystem(), [str(data)])
    partitions = {Path(path).name for path in report.partitions}
    left = {Path(finding.path).name for finding in report.findings if "Startup does not change it" in finding.text}
    server.start()
    served = {f"{log.topic}-{log.partition}" for log in server.broker.log_manager.logs()}
    assert partitions == {METADATA, *served}
    (line,) = (record.getMessage() for record in caplog.records if "ignored" in record.getMessage())
    assert left == set(re.findall(r"/([^/ ]+) \(", line))
    assert (name in left) == (name not in served)


# New data directories


def test_a_repair_does_not_change_directories_that_only_have_the_name_of_a_partition(
    make_server: MakeServer, tmp_path: Path
) -> None:
    data, other = tmp_path / "data", tmp_path / "other"
    server = make_server(log_dirs=[data, other])
    plant(data / "docs-0" / "mine.txt")
    plant(other / "docs-0" / "mine.txt")
    server.create_topic("docs")
    server.create_topic("empty")
    server.stop()
    plant(data / "__cluster_metadata-1" / "mine.txt")
    (place,) = (directory for directory in (data, other) if (directory / "empty-0").exists())
    elsewhere = other if place is data else data
    (elsewhere / "empty-0").mkdir()
    foreign = [data / "docs-0", other / "docs-0", data / "__cluster_metadata-1", elsewhere / "empty-0"]
    before = [tree(directory) for directory in foreign]
    for paths in ([str(elsewhere)], [str(data), str(other)]):
        with Repair(RealFileSystem(), paths, truncate=True) as work:
            work.run(work.inspect(), now_ms=0)
        assert [tree(directory) for directory in foreign] == before
    report = inspect(RealFileSystem(), [str(data), str(other)])
    blocking_message = [each for each in report.findings if "blocks the partition" in each.text]
    # The partition was never created, so it could belong to either directory.
    assert [each.severity for each in blocking_message] == [Severity.ERROR] * 2


def test_a_directory_that_is_not_empty_is_refused(tmp_path: Path, make_server: MakeServer) -> None:
    for name in ("photo.jpg", "letters/one.txt"):
        plant(tmp_path / "data" / name)
    before = tree(tmp_path)
    with pytest.raises(StartError, match=r"is not empty .* but contains letters, photo\.jpg\. .* --allow-non-empty"):
        make_server(log_dirs=[tmp_path / "data"])
    with pytest.raises(StartError, match="is not empty"):
        make_server(log_dirs=[tmp_path / "new", tmp_path / "data"])
    with pytest.raises(StartError, match="is not empty"):
        make_server(log_dirs=[tmp_path / "new"], config={"metadata.log.dir": str(tmp_path / "data")})
    assert tree(tmp_path) == before


def test_a_data_directory_without_meta_properties_is_always_refused(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data", thread=True) as broker:
        create_topic(broker, "t")
    (tmp_path / "data" / "meta.properties").unlink()
    for allow in (False, True):
        broker = Broker(data_dir=tmp_path / "data", thread=True, allow_non_empty=allow)
        with pytest.raises(BrokerError, match=r"contains data but no meta\.properties"):
            broker.start()
        broker.close()


def test_files_that_file_systems_create_are_ignored(tmp_path: Path, make_server: MakeServer) -> None:
    plant(tmp_path / "data" / ".DS_Store")
    (tmp_path / "data" / "lost+found").mkdir()
    make_server(log_dirs=[tmp_path / "data"])


def test_an_interrupted_first_startup_is_repeated(tmp_path: Path, make_server: MakeServer) -> None:
    make_server(log_dirs=[tmp_path / "data"]).stop()
    for path in sorted(tree(tmp_path / "data"), reverse=True):
        if path.name != "recovery-point-offset-checkpoint":
            path.rmdir() if path.is_dir() else path.unlink()
    plant(tmp_path / "data" / "meta.properties.tmp")
    make_server(log_dirs=[tmp_path / "data"])


def test_an_accepted_directory_is_a_data_directory_from_then_on(tmp_path: Path) -> None:
    plant(tmp_path / "data" / "photo.jpg")
    with Broker(data_dir=tmp_path / "data", thread=True, allow_non_empty=True) as broker:
        create_topic(broker, "t")
    with Broker(data_dir=tmp_path / "data", thread=True):
        assert (tmp_path / "data" / "photo.jpg").exists()


@pytest.mark.parametrize(
    "path", ["/", "/etc", "/usr", "/usr/", "/home", "/tmp", "/var/lib", "/proc/self", "/usr/../etc"]
)
def test_system_directories_are_refused(path: str) -> None:
    with pytest.raises(data_directories.DataDirectoryError, match="of the operating system, not a data directory"):
        data_directories.check_data_directories(RealFileSystem(), [path], allow_non_empty=True)


def test_the_error_names_the_root_directory(make_server: MakeServer) -> None:
    with pytest.raises(StartError, match=r"^/ is a directory of the operating system, .* for example /var/lib/moldau"):
        make_server(log_dirs=["/"])


def test_the_home_directory_and_links_to_it_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "ada"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    (tmp_path / "link").symlink_to(home)
    for path in (home, tmp_path / "link"):
        with pytest.raises(data_directories.DataDirectoryError, match="your home directory"):
            data_directories.check_data_directories(RealFileSystem(), [str(path)], allow_non_empty=True)
    data_directories.check_data_directories(RealFileSystem(), [str(home / "moldau")], allow_non_empty=False)
    (home / "meta.properties").touch()  # it is a data directory now
    data_directories.check_data_directories(RealFileSystem(), [str(home)], allow_non_empty=False)


# File and directory names


@pytest.mark.parametrize(
    "name",
    [
        "partition.metadata",
        "partition.metadata.tmp",
        "leader-epoch-checkpoint",
        f"{SEGMENT}.log",
        f"{SEGMENT}.txnindex.cleaned",
        f"{SEGMENT}.snapshot.deleted",
        f"{SEGMENT}.timeindex.swap",
        f"{SEGMENT}.log.cut-4096",
    ],
)
def test_file_names_of_kafka_are_partition_files(name: str) -> None:
    assert is_partition_file(name)


@pytest.mark.parametrize("name", [*INSIDE[:9], "partition.metadata.bak", f"{SEGMENT}.log.cut-", f"{SEGMENT[1:]}.log"])
def test_other_names_are_not_partition_files(name: str) -> None:
    assert not is_partition_file(name)
    assert not is_leftover(name)


@pytest.mark.parametrize(
    "name",
    [
        "backup-007",
        "x-1-stray",
        f"x-1.{UNIQUE[1:]}-delete",
        f"x-1.{UNIQUE.upper()}-delete",
        f"x-1{UNIQUE}-delete",
        "x-2147483648",
        "a b-1",
        "x-",
        "-1",
        "x-١",
        f"{'x' * 250}-1",
    ],
)
def test_a_name_that_kafka_does_not_write_is_not_a_partition_directory(name: str) -> None:
    assert parse_partition_directory_name(name) is None


def test_only_partition_directories_are_removed(tmp_path: Path) -> None:
    files = RealFileSystem()
    path = tmp_path / "t-0"
    path.mkdir()
    assert not inspect_partition_directory(files, str(path)).is_partition
    for name in (f"{SEGMENT}.log", f"{SEGMENT}.index.deleted", "partition.metadata"):
        plant(path / name)
    assert inspect_partition_directory(files, str(path)).is_partition
    plant(path / "notes.txt")
    with pytest.raises(OSError, match=r"notes\.txt"):
        remove_partition_directory(files, str(path))
    assert len(tree(path)) == 4
    (path / "notes.txt").unlink()
    remove_partition_directory(files, str(path))
    remove_partition_directory(files, str(path))
    assert not path.exists()


def test_removing_a_link_to_a_partition_keeps_the_partition(tmp_path: Path) -> None:
    plant(tmp_path / "elsewhere" / f"{SEGMENT}.log")
    (tmp_path / "link").symlink_to("elsewhere")
    remove_partition_directory(RealFileSystem(), str(tmp_path / "link"))
    assert [path.name for path in tree(tmp_path)] == ["elsewhere", f"{SEGMENT}.log"]
