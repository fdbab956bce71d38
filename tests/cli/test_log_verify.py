"""``moldau log verify`` and ``moldau log repair``: their output, and their exit codes."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from moldau.inspection.log_directories import inspect
from moldau.log.files import RealFileSystem
from moldau.protocol.records import Record, build_batch
from moldau.testing import Broker
from moldau.testing.builders import batch, produce
from moldau.testing.topic_requests import create_topic
from moldau.testing.wire import WireClient

from .conftest import Run

NOW = 1_700_000_000_000
LOG = "00000000000000000000.log"


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a server that has stopped cleanly, with a topic of two partitions."""
    directory = tmp_path_factory.mktemp("verify") / "data"
    with (
        Broker(data_dir=directory, config={"num.partitions": "2"}) as broker,
        WireClient(broker.bootstrap_servers) as wire,
    ):
        _create_by_writing(broker, wire)
    return directory


def _create_by_writing(broker: Broker, wire: WireClient) -> None:
    topic = create_topic(broker.bootstrap_servers, "events", 2)
    for partition in range(2):
        for number in range(20):
            produce(wire, topic.name, batch(b"value %d" % number), partition=partition)


@pytest.fixture
def directory(stopped: Path, tmp_path: Path) -> Path:
    """A copy of that directory, for damage."""
    return Path(shutil.copytree(stopped, tmp_path / "data"))


def partition_of(directory: Path, number: int = 0) -> Path:
    (found,) = directory.glob(f"events*-{number}")
    return found


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def test_a_directory_without_findings(run: Run, directory: Path) -> None:
    result = run("log", "verify", str(directory))
    assert (result.code, result.err) == (0, "")
    assert result.text.startswith("3 partitions, 3 segments, ")
    assert result.text.endswith(": no findings\n")


def test_deep_checks_each_record(run: Run, directory: Path) -> None:
    (totals,) = run("log", "verify", "--deep", "--json", str(directory)).json_lines()
    assert totals["kind"] == "totals"
    assert totals["records"] >= 40
    assert (totals["errors"], totals["warnings"], totals["notes"]) == (0, 0, 0)
    (totals,) = run("log", "verify", "--json", str(directory)).json_lines()
    assert totals["records"] == 0


def test_findings_are_grouped_by_partition_with_repairs(run: Run, directory: Path) -> None:
    log = partition_of(directory) / LOG
    flip(log, 70)
    name = "recovery-point-offset-checkpoint"
    (directory / name).write_bytes(b"0\nnonsense\n")
    result = run("log", "verify", str(directory))
    assert result.code == 1
    assert result.lines[:3] == [
        "log directory:",
        f"  warning  {directory}/{name}: {name} is not a checkpoint file",
        "           repair: correct the checkpoint",
    ]
    assert f"{partition_of(directory).name}:" in result.lines
    (line,) = [line for line in result.lines if "CRC" in line]
    assert line.startswith(f"  error    {log}, position 0, offset 0: the CRC of the batch does not match: ")
    assert "           repair: truncate the log here (only with --truncate)" in result.lines
    assert result.lines[-1].endswith(": 1 error, 1 warning")


def test_findings_as_json(run: Run, directory: Path) -> None:
    flip(partition_of(directory) / LOG, 70)
    result = run("log", "verify", "--json", str(directory))
    assert result.code == 1
    finding, totals = result.json_lines()
    assert finding["severity"] == "error"
    assert finding["kind"] == "batch"
    assert finding["partition"] == partition_of(directory).name
    assert finding["file"] == str(partition_of(directory) / LOG)
    assert (finding["position"], finding["offset"], finding["repair"]) == (0, 0, "truncate")
    assert (totals["kind"], totals["errors"]) == ("totals", 1)


def test_one_partition_and_one_file(run: Run, directory: Path) -> None:
    flip(partition_of(directory, 1) / LOG, 70)
    assert run("log", "verify", str(partition_of(directory, 0))).code == 0
    assert run("log", "verify", str(partition_of(directory, 1))).code == 1
    assert run("log", "verify", str(partition_of(directory, 1) / LOG)).code == 1
    assert run("log", "verify", str(partition_of(directory, 1) / "partition.metadata")).code == 0


def test_a_folder_without_a_server_around_it(run: Run, tmp_path: Path) -> None:
    """A copied partition directory without a metadata log."""
    folder = tmp_path / "copied-3"
    folder.mkdir()
    first = build_batch([Record(0, NOW, None, b"a")])
    later = build_batch([Record(0, NOW, None, b"b")], base_offset=7)
    (folder / LOG).write_bytes(first + later)
    result = run("log", "verify", str(folder))
    assert result.code == 0
    assert "the offsets 1 to 6 are missing" in result.text
    assert "whether the topic is compacted is unknown" in result.text


def test_after_kill_there_is_a_note(run: Run, tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data") as broker, WireClient(broker.bootstrap_servers) as wire:
        _create_by_writing(broker, wire)
        broker.kill()
        result = run("log", "verify", str(tmp_path / "data"))
    assert result.code == 0, result.text
    assert "  note     " in result.text
    assert "the last shutdown was not clean" in result.text


@pytest.mark.parametrize("command", ["verify", "repair"])
def test_a_directory_that_is_in_use(run: Run, tmp_path: Path, command: str) -> None:
    with Broker(data_dir=tmp_path / "data"):
        result = run("log", command, str(tmp_path / "data"))
    assert result.code == 2
    assert "is in use by a running server" in result.err


@pytest.mark.parametrize("command", ["verify", "repair"])
def test_other_directories_are_rejected(run: Run, tmp_path: Path, command: str) -> None:
    result = run("log", command, str(tmp_path / "missing"))
    assert (result.code, result.err) == (2, f"moldau: cannot read {tmp_path}/missing: No such file or directory\n")
    result = run("log", command, str(tmp_path))
    assert result.code == 2
    assert "is not a log directory: it has neither meta.properties nor partitions" in result.err


def test_directories_that_do_not_belong_together(run: Run, directory: Path, tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "other"):
        pass
    result = run("log", "verify", str(directory), str(tmp_path / "other"))
    assert result.code == 1
    assert "the directories have different cluster.ids" in result.text


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root may read and write everything")
def test_a_read_only_directory(run: Run, directory: Path) -> None:
    for path in [directory, *directory.rglob("*")]:
        path.chmod(path.stat().st_mode & ~0o222)
    try:
        assert run("log", "verify", str(directory)).code == 0
        result = run("log", "repair", str(directory))
        assert (result.code, "cannot write to" in result.err) == (2, True)
    finally:
        for path in [directory, *directory.rglob("*")]:
            path.chmod(path.stat().st_mode | 0o200)


def test_symbolic_links(run: Run, directory: Path, tmp_path: Path) -> None:
    partition = partition_of(directory)
    partition.rename(tmp_path / "elsewhere")
    partition.symlink_to(tmp_path / "elsewhere")
    result = run("log", "verify", str(directory))
    assert result.code == 1
    assert f"is a symbolic link to {tmp_path}/elsewhere" in result.text
    (tmp_path / "elsewhere").rename(tmp_path / "gone")
    result = run("log", "verify", str(directory))
    assert result.code == 1
    assert "which does not exist; check that the disk is mounted" in result.text


def rebuilt(result: Any) -> list[str]:
    return [line["action"] for line in result.json_lines() if "action" in line]


def test_a_repair_is_announced_and_needs_confirmation(run: Run, directory: Path) -> None:
    index = partition_of(directory) / "00000000000000000000.timeindex"
    before = index.read_bytes()
    flip(index, 3)
    damaged = index.read_bytes()
    result = run("log", "repair", "--dry-run", str(directory))
    assert result.code == 1
    assert result.lines[0] == f"rebuild the indexes of {partition_of(directory) / LOG}"
    assert index.read_bytes() == damaged

    result = run("log", "repair", str(directory), input=b"n\n")
    assert result.code == 1
    assert result.err.endswith("moldau: canceled; nothing was changed\n")
    assert index.read_bytes() == damaged

    result = run("log", "repair", str(directory), input=b"y\n")
    assert result.code == 0, result.text + result.err
    assert index.read_bytes() == before
    (report,) = directory.glob("moldau-repair-*.json")
    assert json.loads(report.read_text())["done"][0]["action"] == "indexes"
    assert f"report: {report}" in result.text
    assert run("log", "verify", str(directory)).text.endswith("no findings\n")


def test_logs_are_truncated_only_with_truncate(run: Run, directory: Path) -> None:
    log = partition_of(directory) / LOG
    flip(log, log.stat().st_size - 1)
    damaged = log.read_bytes()
    result = run("log", "repair", "--yes", "--json", str(directory))
    assert result.code == 1
    assert rebuilt(result) == []
    assert log.read_bytes() == damaged

    result = run("log", "repair", "--yes", "--truncate", "--json", str(directory))
    assert result.code == 0, result.text
    assert rebuilt(result)[0] == "truncate"
    (kept,) = log.parent.glob("*.cut-*")
    assert log.read_bytes() + kept.read_bytes() == damaged
    with Broker(data_dir=directory) as broker:
        assert not [line for line in broker.log().splitlines() if "WARN" in line or "ERROR" in line]


def test_progress_updates(directory: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    inspect(RealFileSystem(), [str(directory)], watcher=lambda done, total, name: seen.append((done, total, name)))
    assert seen[-1][0] == seen[-1][1] > 0
    assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)
    assert partition_of(directory).name in {name for _, _, name in seen}


@pytest.mark.parametrize("path", ["var", "var/mail.log"])
def test_logs_of_other_programs_are_not_partitions(run: Run, tmp_path: Path, path: str) -> None:
    """The check would find no log in them, which must not be reported as success."""
    (tmp_path / "var").mkdir()
    (tmp_path / "var" / "mail.log").write_text("a message")
    result = run("log", "verify", str(tmp_path / path))
    assert result.code == 2
    assert result.out == b""
    assert f"{path} is not a " in result.err


def test_a_partition_may_have_been_copied_to_a_folder_of_any_name(run: Run, directory: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(partition_of(directory), tmp_path / "backup")
    assert run("log", "verify", str(copy)).code == 0
    assert run("log", "verify", str(copy / LOG)).code == 0
    flip(copy / LOG, 100)
    assert run("log", "verify", str(copy)).code == 1
    assert run("log", "verify", str(copy / LOG)).code == 1
