"""A power failure at any moment of a move between two disks loses no acknowledged record and leaves one replica.

The histories of `test_crash`, on two log directories on two disks. Each disk keeps a different part of the unsynced
data. The steps of a move run between appends, flushes, rolls and deletions, as in the server. Metadata are durable when
they are committed.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from moldau.log.directory import LogDirectory
from moldau.log.future_log import Copy, FutureLog
from moldau.log.manager import LogManager
from moldau.log.memory_files import MemoryFileSystem, SimulatedCrash
from moldau.log.names import DELETED, TRANSACTION_INDEX
from moldau.replication.partition import Partition

from .test_crash import NOW, TOPIC_ID, History


class Countdown:
    """The number of remaining changes on all disks together; None means unlimited."""

    def __init__(self) -> None:
        self.left: int | None = None


class Disk(MemoryFileSystem):
    """One of several disks of the same machine."""

    def __init__(self, countdown: Countdown, *, journalled: bool) -> None:
        super().__init__(journalled=journalled)
        self.countdown = countdown

    def _count_down(self) -> None:
        if self.countdown.left is not None:
            if self.countdown.left <= 0:
                raise SimulatedCrash
            self.countdown.left -= 1


class Disks:
    """Two disks, mounted at /a and /b. Each call goes to the disk of its path."""

    def __init__(self, *, journalled: bool) -> None:
        self.countdown = Countdown()
        self.journalled = journalled
        self.disks = {name: Disk(self.countdown, journalled=journalled) for name in "ab"}
        for name, disk in self.disks.items():
            disk.make_directory(f"/{name}")
            disk.sync_directory("")

    def __getattr__(self, name: str) -> Any:
        return lambda path, *arguments, **options: getattr(self.disks[path[1]], name)(path, *arguments, **options)

    @property
    def operations_left(self) -> int | None:
        return self.countdown.left

    @operations_left.setter
    def operations_left(self, left: int | None) -> None:
        self.countdown.left = left

    def crash(self, dice: Random | None) -> Disks:
        found = Disks(journalled=self.journalled)
        for name, disk in self.disks.items():
            survivor = disk.crash(dice)
            found.disks[name]._names = survivor._names
            found.disks[name]._durable_names = survivor._durable_names
            found.disks[name]._journal.clear()
        return found


class Moving(History):
    """A history with moves; see the docstring of the module."""

    STEPS = (*History.STEPS, "move", "go_on_moving", "give_up")
    WEIGHTS = (*History.WEIGHTS, 10, 90, 1)

    def __init__(self, seed: int, *, journalled: bool) -> None:
        self.disks = Disks(journalled=journalled)
        self.home: bytes | None = None
        """The directory of the replica in the metadata."""
        self.swaps = 0
        super().__init__(seed, journalled=journalled)

    def start(self) -> None:
        self.file_system = self.disks
        self.future: FutureLog | None = None
        self.copy: Copy | None = None
        self.is_last = self.has_copied = self.is_held = self.is_assigned = False
        self.to_sync: list[str] = []
        self.manager = self._load(self.disks)
        log = self.manager.get("t", 0)
        if log is None:
            log = self.manager.get_or_create("t", TOPIC_ID, 0, self.config, now_ms=NOW, directory_id=self.home)
        directory = self.manager.directory_of("t", 0)
        assert directory is not None
        self.home = directory.directory_id
        self.wanted = []
        self.flush = None
        self.has_run = False
        self.partition = Partition("t", TOPIC_ID, 0, 1, log, self.wanted.append)
        self.leader_epoch = log.latest_epoch + 1
        self.lead()
        self.epochs = {entry.producer_id: entry.epoch for entry in log.producers}
        self.sequences = {entry.producer_id: entry.last_sequence + 1 for entry in log.producers}
        for topic, partition, target, path in self.manager.interrupted_moves:
            if self.future is None:
                self.future = self.manager.begin_move(topic, partition, target)
            self.manager.retire(topic, partition, target, path)

    def _load(self, disks: Any) -> LogManager:
        manager = LogManager(["/a", "/b"], node_id=1, cluster_id="c", file_system=disks)
        manager.open()
        self.report = manager.load(
            now_ms=NOW, config_of=lambda topic: self.config, directory_id_of=lambda topic, partition: self.home
        )
        return manager

    # The steps

    def begin(self) -> None:
        if not self.is_held:
            super().begin()

    def move(self) -> None:
        if self.future is None and not self.is_held:
            current = self.manager.directory_of("t", 0)
            (target,) = [directory for directory in self.manager.directories if directory is not current]
            self.future = self.manager.begin_move("t", 0, target)

    def give_up(self) -> None:
        if self.future is not None and self.copy is None and not self.is_held:
            self.manager.end_move(self.future)
            self.future = None

    def go_on_moving(self) -> None:
        if self.to_sync:
            self.file_system.sync_directory(self.to_sync.pop())
            self.is_held = bool(self.to_sync)
        elif self.future is None:
            return
        elif self.is_assigned:
            self.is_assigned = False
            if self.future.is_durable:
                self._swap(self.future)
            else:
                self._assign(self.manager.directory_of("t", 0))
        elif self.copy is None:
            self._begin_copy(self.future)
        elif not self.has_copied:
            self.copy.run()
            self.has_copied = True
        else:
            self.future.end_copy(self.copy, last=self.is_last)
            self.copy = None
            if self.is_last:
                self.checkpoint()
                if self.future.missing_bytes() <= self.dice.choice([0, 100, 1000]):
                    self._assign(self.future.directory)
                    self.is_assigned = True  # other steps may come before the swap

    def _assign(self, directory: LogDirectory | None) -> None:
        assert directory is not None
        self.home = directory.directory_id

    def _begin_copy(self, future: FutureLog) -> None:
        self.has_copied = False
        self.copy = None if self.is_held else future.begin_copy(self.dice.choice([100, 5000, 100_000]))
        if self.copy is None and self.flush is None:
            self.is_held = self.is_last = True
            self.copy = future.begin_last_copy()
        else:
            self.is_last = False

    def _swap(self, future: FutureLog) -> None:
        source, target = self.manager.directory_of("t", 0), future.directory
        assert source is not None
        retired = self.manager.swap(future)
        assert self._files(self.partition.log.directory) == self._files(retired)
        self.future = None
        self.swaps += 1
        self.to_sync = self.dice.sample([source.path, target.path], 2)

    def _files(self, directory: str) -> dict[str, bytes]:
        """The relevant files of a partition directory."""
        names, _directories = self.disks.list_directory(directory)
        files = {name: self.disks.read_file(f"{directory}/{name}") for name in names}
        return {
            name: data
            for name, data in files.items()
            if name[0].isdigit() and not name.endswith(DELETED) and not (name.endswith(TRANSACTION_INDEX) and not data)
        }

    def look(self) -> None:
        survivor = self.disks.crash(self.dice)
        self.check(self._load(survivor).get("t", 0))

    def crash(self) -> None:
        self.disks = self.disks.crash(self.dice)
        self.start()
        self.check(self.partition.log)
        del self.values[self.partition.log.log_end_offset :]


@pytest.mark.parametrize("journalled", [True, False], ids=["journal", "posix"])
@pytest.mark.parametrize("seed", range(25))
def test_no_acknowledged_or_visible_record_is_lost_in_a_power_failure(seed: int, journalled: bool) -> None:
    history = Moving(seed, journalled=journalled)
    for _ in range(3):
        history.file_system.operations_left = history.dice.randint(0, 400)
        history.run(200)
        history.crash()


@pytest.mark.slow
@pytest.mark.parametrize(
    "journalled", [pytest.param(False, id="posix"), pytest.param(True, id="journal", marks=pytest.mark.full)]
)
def test_a_power_failure_at_each_change_loses_no_record(journalled: bool) -> None:
    """One history, stopped after one change, after two, and so on, until it completes."""
    changes = completed = 0
    while True:
        history = Moving(8, journalled=journalled)
        history.file_system.operations_left = changes
        history.run(150)
        through = history.file_system.operations_left > 0
        for _ in range(3):
            history.look()
            completed += any(text.startswith("completed the move") for text in history.report.repairs)
        history.crash()
        if through:
            break
        changes += 1
    assert changes > 100
    assert completed
    assert history.swaps >= 2
    assert history.promised > 10


def test_a_replica_moves_back_and_forth_without_a_crash() -> None:
    history = Moving(1, journalled=True)
    history.run(1500)
    assert history.swaps > 10
    history.check(history.partition.log)
