"""A server that runs out of descriptors, threads or disk space, and recovers when they are available again."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.testing.builders import batch, produce
from moldau.testing.wire import WireClient

from . import attackers
from .bystander import TOPIC
from .conftest import MakeTarget, Target
from .watch import status_kb

CONTROL_GROUPS = Path("/sys/fs/cgroup")


def create(wire: WireClient, name: str) -> int:
    """The error code of creating a topic."""
    request = CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=2, replication_factor=1)])
    code: int = wire.call(request, 7).topics[0].error_code
    return code


def commit(wire: WireClient, group_id: str) -> int:
    """The error code of committing an offset, which needs `__consumer_offsets`."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    topic = OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])
    code: int = wire.call(OffsetCommitRequest(group_id=group_id, topics=[topic]), 8).topics[0].partitions[0].error_code
    return code


def find_usable(target: Target, created: list[str]) -> None:
    """All topics whose creation was acknowledged accept records, and groups work."""
    with target.wire() as wire:
        for name in created:
            for _ in range(300):  # the server retries periodically; nothing announces it
                code = produce(wire, name, batch(b"x")).error_code
                if not code:
                    break
                attackers.hold(0.1)
            else:
                target.faults.append(f"{name} was created, and is {ErrorCode(code).name} afterwards")
        for _ in range(100):  # the coordinator may have to be loaded first
            code = commit(wire, "afterwards")
            if not code:
                return
            attackers.hold(0.1)
        target.faults.append(f"no offset can be committed afterwards: {ErrorCode(code).name}")


def test_no_descriptors(target: Target, dice: random.Random, long: bool) -> None:
    """Connected clients are served while no descriptor is free.

    This includes APIs that were not used before: a server loads their modules in its first seconds.
    """
    attackers.hold(5)
    limits = resource.prlimit(target.pid, resource.RLIMIT_NOFILE)
    created = []
    with (
        target.attack("no descriptors"),
        target.wire() as wire,
        attackers.connections(target.address, 100) as opened,
    ):
        in_use = len(os.listdir(f"/proc/{target.pid}/fd"))
        resource.prlimit(target.pid, resource.RLIMIT_NOFILE, (in_use + 5, limits[1]))
        try:
            with attackers.connections(target.address, 100) as waiting:
                for connection in (*opened, *waiting):
                    attackers.send(connection, dice.randbytes(3))
                for index in range(20 if long else 5):
                    if create(wire, f"starved-{index}") == 0:
                        created.append(f"starved-{index}")
                    commit(wire, f"group-{index}")
                attackers.hold(10 if long else 1)
        finally:
            resource.prlimit(target.pid, resource.RLIMIT_NOFILE, limits)
    find_usable(target, created)


@contextlib.contextmanager
def no_more_threads(pid: int) -> Iterator[None]:
    """The process can start no thread and no child process, because of a dedicated control group."""
    parent = pids_group(pid)
    group = parent / f"moldau-abuse-{pid}"
    try:
        group.mkdir()
    except OSError as failure:
        pytest.skip(f"needs a control group that can be written to: {failure}")
    try:
        limit = group / "pids.max"
        if not limit.exists():
            pytest.skip("needs the controller `pids` of control groups")
        (group / "cgroup.procs").write_text(str(pid))
        limit.write_text(str(status_kb(pid, "Threads")))
        try:
            yield
        finally:
            limit.write_text("max")
            for each in (group / "cgroup.procs").read_text().split():
                (parent / "cgroup.procs").write_text(each)
    finally:
        group.rmdir()


def pids_group(pid: int) -> Path:
    """The control group that counts the threads of this process: version 1, else version 2."""
    groups = [line.split(":", 2) for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()]
    for _, controllers, path in groups:
        if "pids" in controllers.split(","):
            return CONTROL_GROUPS / "pids" / path.lstrip("/")
    return CONTROL_GROUPS / groups[-1][2].lstrip("/")


def test_no_threads(target: Target, long: bool) -> None:
    """Operations that need a thread or a process fail or wait, and work when threads are available again."""
    target.create_topic("compacted", configs={"cleanup.policy": "compact"})
    target.create_topic("flushed", configs={"flush.messages": "1"})
    target.create_topic("recompressed", configs={"compression.type": "gzip"})
    topics = ("compacted", "flushed", "recompressed")
    records = batch(bytes(500_000))
    with target.attack("no threads"), no_more_threads(target.pid):

        def use(index: int) -> None:
            with contextlib.suppress(TimeoutError), target.wire(timeout_s=10) as wire:
                produce(wire, topics[index % 3], records)
                create(wire, f"starved-{index}")
                commit(wire, f"group-{index}")

        attackers.in_parallel(30 if long else 6, use)
        attackers.hold(5 if long else 1)
    with target.wire(timeout_s=120) as wire:
        for topic in ("flushed", "recompressed"):
            try:
                code = produce(wire, topic, records).error_code
            except TimeoutError:
                target.faults.append(f"{topic} does not respond after a shortage of threads")
                return
            assert code == 0
    find_usable(target, [])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A dedicated file system of 60 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    if (
        mount is None
        or subprocess.run(
            [mount, "-t", "tmpfs", "-o", "size=60m", "tmpfs", str(place)], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("needs the right to mount a tmpfs")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_no_room_on_disk(make_target: MakeTarget, small_disk: Path, dice: random.Random, long: bool) -> None:
    """Requests that need space fail on a full disk. When there is space again, all acknowledged topics work."""
    with make_target(data_dir=small_disk / "data") as target:
        target.create_topic("filler")
        value = dice.randbytes(900_000)
        created = []
        storage_error = f"produce: {ErrorCode.KAFKA_STORAGE_ERROR.name}"
        with (
            target.attack("no room on disk", accepts_failure=lambda failure: failure == storage_error),
            target.wire() as wire,
        ):
            refused = 0
            while refused < 5:
                refused += produce(wire, "filler", batch(value)).error_code != 0
            while produce(wire, "filler", batch(value[:1000])).error_code == 0:
                pass
            for index in range(20 if long else 5):
                if create(wire, f"starved-{index}") == 0:
                    created.append(f"starved-{index}")
                commit(wire, f"group-{index}")
            attackers.hold(5 if long else 0.5)
            # Deleting takes space, too: it is a record of the metadata log.
            subprocess.run(["mount", "-o", "remount,size=120m", str(small_disk)], check=True)
        with target.attack("room on disk again"), target.wire() as wire:
            wire.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="filler")], timeout_ms=60_000), 6)
        find_usable(target, created)
