"""Programs that archive, merge and replay are killed with -9 and restarted: the results are exact.

They run in separate processes, because Spark's driver is killed. Some kills are at planted points: a function of the
job is replaced by one that kills the process before or after its work. Others are at random moments.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from moldau.spark_integration.archive_layout import Layout
from moldau.spark_integration.archive_manifest import load_existing
from moldau.testing.client import Client, Record
from moldau.testing.waiting import wait_until

from .archive_rows import archive_rows, topic_rows
from .conftest import MakeTopic
from .support import driver_conf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

PARTITIONS = 3
FIRST_MS = 1_600_000_000_000
# A program that is not killed in this time hangs.
DEADLINE_S = 500

# Arguments: Spark's settings, the point at which to die (module.function:before|after:call, or "-"), the command,
# and its arguments.
PROGRAM = """
import importlib, json, os, signal, sys

def plant(point):
    where, when, call = point.split(":")
    module_name, function_name = where.rsplit(".", 1)
    module = importlib.import_module("moldau.spark_integration." + module_name)
    original = getattr(module, function_name)
    calls = 0

    def planted(*arguments):
        nonlocal calls
        calls += 1
        if calls == int(call) and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*arguments)
        if calls == int(call):
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(module, function_name, planted)

def archive(spark, topic, folder, address):
    from moldau.spark_integration.archive import ArchiveRequest, open_archive
    with open_archive(ArchiveRequest(topic, folder, address, batch_records=60)) as job:
        job.run(spark(), lambda done: print("batch", done.batch, flush=True))

def compact(spark, folder):
    from moldau.spark_integration.archive_compact import open_compaction
    with open_compaction(folder) as job:
        job.run(spark(), lambda done: print("merged", flush=True))

def replay(spark, folder, topic, address, resume):
    from moldau.spark_integration.replay import ReplayRequest, open_replay
    # The program that is killed sends thousands of requests, so that it can be killed between two of them.
    client = {} if resume else {"batch.num.messages": "5"}
    with open_replay(ReplayRequest(folder, topic, address, resume=bool(resume), client=client)) as job:
        job.run(spark(), lambda stored, total: None)

def spark():
    from moldau.spark_integration import session
    return session("killed", json.loads(conf))

conf, point, what, *arguments = sys.argv[1:]
if point != "-":
    plant(point)
{"archive": archive, "compact": compact, "replay": replay}[what](spark, *arguments)
"""


class Programs:
    """Starts the program with the settings ``conf`` of Spark."""

    def __init__(self, conf: Mapping[str, str]) -> None:
        self._conf = json.dumps(conf)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM, self._conf, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> None:
        """Run the program to its end."""
        with self.start("-", *arguments) as program:
            _, said = program.communicate(timeout=DEADLINE_S)
        assert program.returncode == 0, said[-3000:]

    def run_to_its_death(self, point: str, *arguments: str) -> None:
        with self.start(point, *arguments) as program:
            _, said = program.communicate(timeout=DEADLINE_S)
        assert program.returncode == -signal.SIGKILL, f"it did not reach {point}: {said[-3000:]}"


@pytest.fixture
def programs(spark: SparkSession, tmp_path: Path) -> Programs:
    return Programs(driver_conf(spark, tmp_path / "warehouse"))


def numbered(client: Client, topic: str, numbers: range) -> None:
    client.produce(
        topic,
        [Record(b"%d" % n, b"%d" % (n % 7), (), FIRST_MS + n * 3_600_000, n % PARTITIONS) for n in numbers],
    )


def pieces(folder: Path) -> Sequence[str]:
    return sorted(path.name for path in Layout(folder).data.iterdir())


@pytest.mark.extended
@pytest.mark.timeout(1500)
def test_an_archive_is_exact_after_a_kill_at_any_point(
    spark: SparkSession,
    bootstrap_servers: str,
    client: Client,
    make_topic: MakeTopic,
    programs: Programs,
    tmp_path: Path,
) -> None:
    topic = make_topic(PARTITIONS, {"retention.ms": "-1"})
    folder = tmp_path / "archive"
    job = ("archive", topic, str(folder), bootstrap_servers)
    numbered(client, topic, range(500))

    # The files of the first batch are written but not renamed.
    programs.run_to_its_death("archive.write_piece:after:1", *job)
    (left,) = pieces(folder)
    assert left.startswith(".writing-0-")
    # The files of the second batch are renamed, but the manifest does not name them.
    programs.run_to_its_death("archive.publish_piece:after:2", *job)
    assert (pieces(folder), load_existing(Layout(folder)).last_batch) == (["batch=0", "batch=1"], 0)
    # The second batch is in the manifest, but Spark has not committed it. (The first manifest is written at the start.)
    programs.run_to_its_death("archive.save:after:2", *job)
    assert load_existing(Layout(folder)).last_batch == 1
    assert not (folder / "checkpoint" / "commits" / "1").exists()
    # The third batch: the new manifest is written under its temporary name.
    programs.run_to_its_death("archive_layout._replace:before:3", *job)
    assert load_existing(Layout(folder)).last_batch == 1
    assert list(folder.glob(".manifest.json.*"))
    # The third batch, with half of its files synced to disk.
    programs.run_to_its_death("archive_layout._force:before:3", *job)
    # Two batches are complete, and the next one is in progress.
    programs.run_to_its_death("archive.write_piece:before:3", *job)
    assert load_existing(Layout(folder)).last_batch == 3
    programs.run(*job)

    assert archive_rows(spark, str(folder)) == topic_rows(client, topic, PARTITIONS)
    assert pieces(folder) == [f"batch={batch}" for batch in range(9)]
    assert not list(folder.glob(".manifest.json.*"))


@pytest.mark.timeout(1500)
@pytest.mark.extended
@pytest.mark.parametrize("kills", [1, 3])
def test_an_archive_is_exact_after_kills_at_random_moments(
    spark: SparkSession,
    bootstrap_servers: str,
    client: Client,
    make_topic: MakeTopic,
    programs: Programs,
    tmp_path: Path,
    kills: int,
) -> None:
    topic = make_topic(PARTITIONS, {"retention.ms": "-1"})
    folder = tmp_path / "archive"
    job = ("archive", topic, str(folder), bootstrap_servers)
    moments = random.Random(6)
    numbered(client, topic, range(600))

    for _ in range(kills):
        with programs.start("-", *job) as program:
            assert program.stdout is not None
            assert program.stderr is not None
            for _ in range(moments.randint(1, 2)):
                if not program.stdout.readline():
                    break
            time.sleep(moments.uniform(0, 1))  # a random moment, not a wait for a condition
            program.kill()
            program.stderr.read()
        numbered(client, topic, range(600, 650))
    programs.run(*job)

    assert archive_rows(spark, str(folder)) == topic_rows(client, topic, PARTITIONS)


@pytest.mark.extended
@pytest.mark.timeout(1500)
def test_merged_files_are_exact_after_a_kill_at_any_point(
    spark: SparkSession,
    bootstrap_servers: str,
    client: Client,
    make_topic: MakeTopic,
    programs: Programs,
    tmp_path: Path,
) -> None:
    topic = make_topic(PARTITIONS, {"retention.ms": "-1"})
    folder = tmp_path / "archive"
    numbered(client, topic, range(200))
    programs.run("archive", topic, str(folder), bootstrap_servers)
    parts = pieces(folder)
    expected = topic_rows(client, topic, PARTITIONS)

    # The merged files are renamed, but the manifest still names the parts.
    programs.run_to_its_death("archive_compact.publish_piece:after:1", "compact", str(folder))
    assert pieces(folder) == sorted([*parts, "batch=0-3"])
    assert archive_rows(spark, str(folder)) == expected
    # The manifest names the merged files, and one of the parts has been removed.
    programs.run_to_its_death("archive_compact.remove_piece:after:1", "compact", str(folder))
    assert pieces(folder) == sorted([*parts[1:], "batch=0-3"])
    assert archive_rows(spark, str(folder)) == expected
    # No files remain to be merged, but there are leftovers to remove.
    programs.run("archive", topic, str(folder), bootstrap_servers)

    assert pieces(folder) == ["batch=0-3"]
    assert archive_rows(spark, str(folder)) == expected


@pytest.mark.extended
@pytest.mark.timeout(1500)
def test_a_replay_that_was_killed_is_resumed_to_the_same_records(
    spark: SparkSession,
    bootstrap_servers: str,
    client: Client,
    make_topic: MakeTopic,
    programs: Programs,
    tmp_path: Path,
) -> None:
    topic, again = make_topic(PARTITIONS, {"retention.ms": "-1"}), make_topic(PARTITIONS, {"retention.ms": "-1"})
    folder = tmp_path / "archive"
    count = 60_000
    client.produce(topic, [Record(b"%d" % n, b"k", (), FIRST_MS + n, n % PARTITIONS) for n in range(count)])
    from moldau.spark_integration.archive import ArchiveRequest, open_archive

    with open_archive(ArchiveRequest(topic, str(folder), bootstrap_servers)) as job:
        job.run(spark, lambda done: None)

    with programs.start("-", "replay", str(folder), again, bootstrap_servers, "") as program:
        wait_stored(client, again, 1, program)
        program.kill()
        program.communicate(timeout=DEADLINE_S)
    stored = sum(client.offsets(again, partition)[1] for partition in range(PARTITIONS))
    programs.run("replay", str(folder), again, bootstrap_servers, "resume")

    assert 0 < stored < count
    assert topic_rows(client, again, PARTITIONS) == topic_rows(client, topic, PARTITIONS)


def wait_stored(client: Client, topic: str, count: int, program: subprocess.Popen[str]) -> None:
    """Return when the topic has this many records, while the program runs."""

    def stored() -> int:
        assert program.poll() is None, "the replay has ended"
        return sum(client.offsets(topic, partition)[1] for partition in range(PARTITIONS))

    try:
        wait_until(lambda: stored() >= count, f"{count} records", seconds=DEADLINE_S, pause=0.02, state=stored)
    except BaseException:
        program.kill()
        raise
