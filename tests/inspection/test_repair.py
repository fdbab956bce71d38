"""After a repair there are no findings, only the announced batches are missing, and the server starts."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from moldau.inspection.finding import Remedy, Severity
from moldau.inspection.log_directories import CannotInspectError, inspect
from moldau.inspection.repair import Repair
from moldau.protocol.records import InvalidRecordsError, iter_batches

from .directories import DIRECTORY, NOW, TOPICS, Storage, clean_directory, files_of, overwrite
from .test_inspection import CHANGES, has_no_meaning

METADATA = f"{DIRECTORY}/__cluster_metadata-0/"


@pytest.fixture
def directory() -> Any:
    return clean_directory()


def repair(file_system: Any, *, truncate: bool = False) -> Any:
    with Repair(file_system, [DIRECTORY], truncate=truncate) as work:
        actions = work.inspect()
        work.run(actions, now_ms=NOW)
    return work


def batches_of(file_system: Any, topic: str) -> Any:
    """The batches of a partition, from its beginning to the first that is not whole."""
    found: list[Any] = []
    for path, data in sorted(files_of(file_system).items()):
        if path.startswith(f"{DIRECTORY}/{topic}-0/") and path.endswith(".log"):
            try:
                for batch in iter_batches(data):
                    if not batch.has_valid_crc():
                        return found
                    found.append(bytes(batch.data))
            except InvalidRecordsError:
                return found
    return found


def start_without_a_word(file_system: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.clear()
    storage = Storage(file_system)
    assert [record.getMessage() for record in caplog.records] == []
    storage.stop()


def test_a_directory_without_findings_is_not_changed(directory: Any) -> None:
    before = files_of(directory)
    work = repair(directory)
    assert work.done == []
    assert files_of(directory) == before


def change_derived_files(file_system: Any, rng: Any) -> Any:
    """Change files that are derived from others. Returns whether a relevant byte was changed."""
    paths = {
        path: data
        for path, data in files_of(file_system).items()
        if data and not path.startswith(METADATA) and not path.endswith((".log", ".properties", "bootstrap.checkpoint"))
    }
    changed = []
    for path in rng.sample(sorted(paths), 3):
        after = rng.choice(CHANGES)(paths[path], rng)
        if after != paths[path] and not has_no_meaning(path, paths[path], after):
            overwrite(file_system, path, after)
            changed.append(path)
    return changed


@pytest.mark.parametrize("seed", range(25))
def test_data_derived_from_the_batches_is_rebuilt(directory: Any, seed: int, caplog: pytest.LogCaptureFixture) -> None:
    before = {topic: batches_of(directory, topic) for topic in TOPICS}
    changed = change_derived_files(directory, random.Random(seed))
    work = repair(directory)
    left = [finding for finding in inspect(directory, [DIRECTORY]).findings if finding.severity is not Severity.NOTE]
    # A readable topic id may be correct, and the directory that of another topic. The user must decide this.
    others = [finding for finding in left if "an older topic of this name" in finding.text]
    assert left == others, (changed, [action.text for action in work.done])
    assert {topic: batches_of(directory, topic) for topic in TOPICS} == before
    if not others:
        start_without_a_word(directory, caplog)


@pytest.mark.parametrize("seed", range(25))
def test_damaged_logs_are_truncated_only_on_request(
    directory: Any, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    rng = random.Random(seed)
    before = {topic: batches_of(directory, topic) for topic in TOPICS}
    logs = {path: data for path, data in files_of(directory).items() if path.endswith(".log") and METADATA not in path}
    path = rng.choice(sorted(logs))
    after = rng.choice(CHANGES)(logs[path], rng)
    overwrite(directory, path, after)
    first = inspect(directory, [DIRECTORY])
    wanted = any(finding.remedy is Remedy.TRUNCATE for finding in first.findings)

    repair(directory)
    if wanted:
        assert files_of(directory)[path] == after
        assert not inspect(directory, [DIRECTORY]).is_clean

    repair(directory, truncate=True)
    report = inspect(directory, [DIRECTORY])
    # Batches that are lost without a trace cannot be restored; all other damage is repaired.
    assert all("are missing" in finding.text for finding in report.findings if finding.severity is not Severity.NOTE)
    for topic, all_batches in before.items():
        found = batches_of(directory, topic)
        assert [batch for batch in found if batch not in all_batches] == []
        if path.startswith(f"{DIRECTORY}/{topic}-0/") and wanted:
            assert found == all_batches[: len(found)] or not report.is_clean
            kept = [name for name in files_of(directory) if ".log.cut-" in name]
            assert kept
        else:
            assert found == all_batches
    if report.is_clean:
        start_without_a_word(directory, caplog)


def test_the_metadata_log_is_never_truncated(directory: Any) -> None:
    path = f"{METADATA}00000000000000000000.log"
    damaged = bytearray(files_of(directory)[path])
    damaged[200] ^= 1
    overwrite(directory, path, bytes(damaged))
    report = inspect(directory, [DIRECTORY])
    assert not report.is_clean
    assert all(finding.remedy is not Remedy.TRUNCATE for finding in report.findings)
    repair(directory, truncate=True)
    assert files_of(directory)[path] == bytes(damaged)


def test_a_second_repair_after_a_missing_segment_changes_nothing(directory: Any) -> None:
    """Damage that cannot be repaired is reported again, and repaired files are not repaired again."""
    paths = [path for path in sorted(files_of(directory)) if path.startswith(f"{DIRECTORY}/plain-0/")]
    logs = [path for path in paths if path.endswith(".log")]
    assert len(logs) >= 3
    for suffix in (".log", ".index", ".timeindex"):
        directory.unlink(logs[1].removesuffix(".log") + suffix)
    directory.unlink(f"{DIRECTORY}/recovery-point-offset-checkpoint")
    first = repair(directory)
    assert first.done
    (left,) = [finding for finding in first.report.findings if finding.severity is not Severity.NOTE]
    assert "are missing" in left.text
    second = repair(directory)
    assert second.done == []
    assert second.report.findings == first.report.findings


def test_a_high_watermark_that_followers_limit_is_unchanged(directory: Any) -> None:
    name = f"{DIRECTORY}/replication-offset-checkpoint"
    overwrite(directory, name, b"0\n2\nplain 0 20\ntransactions 0 99\n")
    repair(directory)
    assert dict(line.rsplit(b" ", 1) for line in files_of(directory)[name].splitlines()[2:]) == {
        b"plain 0": b"20",
        b"transactions 0": b"23",
        b"compacted 0": b"25",
    }
    assert inspect(directory, [DIRECTORY]).is_clean


def test_a_repair_reports_its_actions(directory: Any) -> None:
    path = f"{DIRECTORY}/plain-0/00000000000000000008.timeindex"
    overwrite(directory, path, b"x" * 12)
    work = repair(directory)
    assert [action.remedy for action in work.done] == [Remedy.INDEXES]
    (report,) = [path for path in files_of(directory) if "moldau-repair-" in path]
    written_report = json.loads(files_of(directory)[report])
    assert [found["file"] for found in written_report["found"]] == [path]
    assert [done["action"] for done in written_report["done"]] == ["indexes"]
    assert written_report["left"] == []


def test_a_directory_in_use_is_not_changed(directory: Any) -> None:
    storage = Storage(directory)
    with pytest.raises(CannotInspectError, match="in use"):
        repair(directory)
    with pytest.raises(CannotInspectError, match="in use"):
        inspect(directory, [DIRECTORY])
    storage.stop()
