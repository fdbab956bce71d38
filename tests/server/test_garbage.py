"""The garbage collector of a server process: the work of each pass, and that garbage is eventually collected.

The tests change the collector of the test process. Each test restores it.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import signal
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moldau.server.concurrency.garbage import (
    FEW_BLOCKS,
    FEWER_BLOCKS,
    IDLE_CPU_S,
    LONGEST_WAIT_CHECKS,
    MANY_NEW_OBJECTS,
    MUCH_MEMORY_BYTES,
    THRESHOLDS,
    Collector,
)
from moldau.testing import Broker

MANY_BLOCKS = 10 * FEW_BLOCKS
COUNT = 10 * MANY_NEW_OBJECTS
START_BYTES = 30_000_000


class Node:
    """An object that refers to itself, so that only the collector frees it."""

    def __init__(self) -> None:
        self.itself = self


class Fixture:
    """A collector whose CPU time and number of allocated blocks are set by the test."""

    def __init__(self) -> None:
        self.blocks = MANY_BLOCKS
        self.cpu_s = 0.0
        self.resident = START_BYTES
        self.heap = 0  # bytes that a trim returns
        self.trims = 0
        self.collector = Collector(
            blocks=lambda: self.blocks,
            cpu_s=lambda: self.cpu_s,
            resident=lambda: self.resident,
            trim=self.trim,
        )

    def trim(self) -> None:
        self.trims += 1
        self.resident -= self.heap
        self.heap = 0

    def frozen_garbage(self) -> weakref.ref[Node]:
        node = Node()
        reference = weakref.ref(node)
        gc.collect()
        del node
        gc.collect()
        assert reference() is not None, "it was not frozen"
        return reference

    def check(self, *, busy: bool) -> None:
        self.cpu_s += 2 * IDLE_CPU_S if busy else 0.0
        self.collector.check()


@pytest.fixture
def fixture() -> Iterator[Fixture]:
    gc.collect()
    fixture = Fixture()
    fixture.collector.begin()
    try:
        yield fixture
    finally:
        fixture.collector.end()
        gc.unfreeze()


def visited_by_full_passes(objects: int) -> list[int]:
    """The number of objects that each full pass visits while this many objects are created and kept."""
    visited = []

    def before(phase: str, info: dict[str, Any]) -> None:
        if phase == "start" and info["generation"] == 2:
            visited.append(len(gc.get_objects()))  # without frozen objects

    kept: list[Any] = []
    gc.callbacks.append(before)
    try:
        for _ in range(objects):
            kept.append([kept])
    finally:
        gc.callbacks.remove(before)
    return visited


def test_a_full_pass_visits_only_new_objects(fixture: Fixture) -> None:
    young, middle, old = THRESHOLDS
    visited = visited_by_full_passes(500_000)
    assert visited, "there was none"
    assert max(visited) < 2 * young * (middle + 1) * (old + 1)


def test_objects_created_while_the_collector_was_off_are_not_visited_in_one_pass(fixture: Fixture) -> None:
    gc.disable()
    try:
        kept = [[index] for index in range(COUNT)]
    finally:
        gc.enable()
    visited_by_full_passes(2 * THRESHOLDS[0])  # at least one pass of the youngest generation
    assert len(gc.get_objects()) < COUNT
    assert len(kept) == COUNT


@pytest.mark.parametrize("blocks", [MANY_BLOCKS * 2, MANY_BLOCKS // 2], ids=["grown", "shrunk"])
def test_frozen_garbage_is_collected_when_the_process_is_idle(fixture: Fixture, blocks: int) -> None:
    garbage = fixture.frozen_garbage()
    fixture.blocks = blocks
    fixture.check(busy=True)
    assert garbage() is not None
    fixture.check(busy=False)
    assert garbage() is None


def test_frozen_garbage_is_collected_when_few_blocks_remain(fixture: Fixture) -> None:
    garbage = fixture.frozen_garbage()
    fixture.blocks = FEW_BLOCKS
    fixture.check(busy=True)
    assert garbage() is None


def test_frozen_garbage_of_a_busy_process_is_eventually_collected(fixture: Fixture) -> None:
    garbage = fixture.frozen_garbage()
    fixture.blocks = 2 * MANY_BLOCKS
    for _ in range(LONGEST_WAIT_CHECKS - 1):
        fixture.check(busy=True)
    assert garbage() is not None
    fixture.check(busy=True)
    assert garbage() is None


def test_all_objects_are_visited_once_for_each_change(fixture: Fixture) -> None:
    fixture.blocks = 2 * MANY_BLOCKS
    fixture.check(busy=False)
    garbage = fixture.frozen_garbage()
    fixture.blocks += fixture.blocks // 5
    for _ in range(2 * LONGEST_WAIT_CHECKS):
        fixture.check(busy=False)
    assert garbage() is not None, "little has changed"
    fixture.blocks += fixture.blocks // 5
    fixture.check(busy=False)
    assert garbage() is None


def test_no_garbage_is_collected_while_the_collector_is_off(fixture: Fixture) -> None:
    garbage = fixture.frozen_garbage()
    fixture.blocks = FEW_BLOCKS
    gc.disable()
    try:
        fixture.check(busy=False)
    finally:
        gc.enable()
    assert garbage() is not None
    fixture.check(busy=False)
    assert garbage() is None


def test_survivors_are_frozen_again(fixture: Fixture) -> None:
    node = Node()
    fixture.collector.collect_all()
    reference = weakref.ref(node)
    del node
    gc.collect()
    assert reference() is not None


def test_the_heap_is_trimmed_once_for_each_change(fixture: Fixture) -> None:
    fixture.resident += MUCH_MEMORY_BYTES - 1
    fixture.check(busy=True)
    assert fixture.trims == 0, "there is little memory to release"
    fixture.resident += 10 * MUCH_MEMORY_BYTES
    fixture.heap = 2 * MUCH_MEMORY_BYTES
    for _ in range(3):
        fixture.check(busy=True)
    assert fixture.trims == 1
    fixture.resident -= 5 * MUCH_MEMORY_BYTES
    for _ in range(3):
        fixture.check(busy=True)
    assert fixture.trims == 2
    fixture.resident = START_BYTES
    fixture.check(busy=True)
    assert fixture.trims == 2


def test_the_heap_is_trimmed_when_freed_memory_is_still_resident(fixture: Fixture) -> None:
    fixture.resident += 10 * MUCH_MEMORY_BYTES
    fixture.check(busy=True)
    assert fixture.trims == 1, "at the peak of a load"
    fixture.blocks -= FEWER_BLOCKS
    for _ in range(3):
        fixture.check(busy=True)
    assert fixture.trims == 2, "once after its end"
    fixture.blocks += 10 * FEWER_BLOCKS
    fixture.check(busy=True)
    assert fixture.trims == 2, "new objects free nothing"


def test_the_heap_is_not_trimmed_while_the_collector_is_off(fixture: Fixture) -> None:
    fixture.resident += 2 * MUCH_MEMORY_BYTES
    gc.disable()
    try:
        fixture.check(busy=False)
    finally:
        gc.enable()
    assert fixture.trims == 0
    fixture.check(busy=False)
    assert fixture.trims == 1


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs malloc_trim")
def test_a_process_returns_free_memory_between_blocks_in_use() -> None:
    """Runs in a separate process, because the heap of the test process may be fragmented already."""
    program = """if True:
        from moldau.server.concurrency.garbage import Collector, MEGABYTE, resident_bytes
        collector = Collector()
        collector.begin()
        before = resident_bytes()
        used = [bytes(10_000) for _ in range(6_000)]
        del used[:-1]  # the last one is at the top of the heap, and stays
        assert resident_bytes() - before > 40 * MEGABYTE
        collector.check()
        assert resident_bytes() - before < 10 * MEGABYTE
        collector.end()
    """
    subprocess.run([sys.executable, "-c", program], check=True)


def test_an_embedded_server_does_not_change_the_collector() -> None:
    before = gc.get_threshold(), list(gc.callbacks)
    with Broker(thread=True, memory=True):
        assert (gc.get_threshold(), gc.callbacks) == before
        assert gc.isenabled()


def test_a_server_process_manages_its_collector(tmp_path: Path) -> None:
    program = (
        "import atexit, gc, json, sys; from moldau.cli.main import main;"
        "atexit.register(lambda: print(json.dumps([gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(),"
        "len(gc.get_objects())])));"
        "main(['serve', '--listen', '127.0.0.1:0', '--ephemeral'])"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        enabled, thresholds, frozen, others = json.loads(process.stdout.read())
    assert enabled
    assert tuple(thresholds) == THRESHOLDS
    assert frozen > others
