"""Configures the garbage collector of a server process, so that it does not block all clients for long.

Reference counts free nearly everything that Moldau creates. The collector is for reference cycles. Its *full passes*
visit all objects, 0.2 to 0.3 µs for each, while the process does nothing else: 0.4 s for the 1.4 million objects of
100,000 waiting fetches. CPython up to 3.13 runs a full pass whenever the number of objects has grown by a quarter. So:

- A full pass visits only objects that are new since the previous one. The objects that survive it are frozen
  (`gc.freeze`), and `THRESHOLDS` bounds the number of new ones.
- Objects that were created while the collector was disabled are not visited in one pass afterwards, but frozen.
- A frozen object may become part of a garbage cycle later. `Collector.check` detects from the number of allocated
  memory blocks that much has changed. Then it visits all objects when that is quick, when the process is idle, or after
  it has waited for an hour.

Not all freed memory returns to the system: CPython's free lists keep blocks here and there, and the heap of the C
library keeps its free pages. `Collector.check` empties both when the process has become larger or smaller
(docs/decisions/0025).

The collector belongs to the process. So `main` uses this module, and an embedded server does not.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import time
from collections.abc import Callable
from typing import Any

# A full pass runs after 700 * 11 * 3 new objects, and takes 3 to 11 ms. Smaller passes cost no more in total, because
# each object is visited once. The default of CPython 3.13 is 2000 * 11 * 11.
THRESHOLDS = (700, 10, 2)
# If there are more new objects when a pass begins, the collector was disabled.
MANY_NEW_OBJECTS = 2000

CHECK_S = 10.0
# The CPU time between two checks of an idle process. Ten requests per second take more.
IDLE_CPU_S = 0.01
# With this many blocks, visiting all objects takes 25 ms. A server without topics has 130,000 blocks, and takes 17 ms.
FEW_BLOCKS = 200_000
LONGEST_WAIT_CHECKS = 360

MEGABYTE = 1024 * 1024
# Memory beyond that of the process at startup. Returning less is not worth the work.
MUCH_MEMORY_BYTES = 16 * MEGABYTE
# Memory has changed if it differs by this much from its size after it was last returned to the system.
CHANGE_BYTES = 2 * MEGABYTE
# So many blocks fewer than then are a change, too. Memory that was freed and not returned is still resident, so the
# size alone does not show that a large load has ended.
FEWER_BLOCKS = 2_000


def resident_bytes() -> int:
    """Resident memory of this process; 0 if the system does not report it (macOS, or no descriptor is free)."""
    try:
        with open("/proc/self/statm", "rb") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    except OSError:
        return 0


def trim_heap() -> None:
    """Return the free pages of the C library's heap to the system, also those between used pages."""
    try:
        import ctypes  # imported here: most servers never need it
    except ImportError:
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only
    if trim is not None:
        trim(0)


class Collector:
    """Controls the garbage collector of this process, from `begin` on."""

    def __init__(
        self,
        *,
        blocks: Callable[[], int] = sys.getallocatedblocks,
        cpu_s: Callable[[], float] = time.process_time,
        resident: Callable[[], int] = resident_bytes,
        trim: Callable[[], None] = trim_heap,
    ) -> None:
        """``blocks``: the number of allocated memory blocks. ``cpu_s``: the CPU time of this process in seconds.
        ``resident``: its memory in bytes. ``trim`` returns the free memory of the C library to the system."""
        self._count_blocks = blocks
        self._cpu_s = cpu_s
        self._resident_bytes = resident
        self._trim = trim
        self._much_bytes = 0  # less resident memory than this is not returned
        self._left_bytes = 0  # resident memory after memory was last returned
        self._left_blocks = 0  # allocated blocks at that time
        self._thresholds = gc.get_threshold()
        self._collecting_all = False
        self._collected_blocks = 0  # when all objects were visited
        self._checked_cpu_s = 0.0
        self._waited = 0  # checks since all objects were visited

    def begin(self) -> None:
        """Freeze all existing objects, and control each pass from now on."""
        gc.set_threshold(*THRESHOLDS)
        gc.freeze()
        _forget_frozen()
        gc.callbacks.append(self._on_pass)
        self._collected_blocks = self._count_blocks()
        self._checked_cpu_s = self._cpu_s()
        self._much_bytes = self._resident_bytes() + MUCH_MEMORY_BYTES

    def end(self) -> None:
        """Stop controlling passes. Frozen objects stay frozen."""
        gc.callbacks.remove(self._on_pass)
        gc.set_threshold(*self._thresholds)

    def check_regularly(self, loop: asyncio.AbstractEventLoop) -> None:
        """Check every `CHECK_S` seconds, until the event loop ends."""

        def check() -> None:
            self.check()
            loop.call_later(CHECK_S, check)

        loop.call_later(CHECK_S, check)

    def check(self) -> None:
        """Visit all objects if that is worthwhile and permitted now. Then return memory to the system."""
        self._check_cycles()
        self._check_memory()

    def _check_cycles(self) -> None:
        cpu_s = self._cpu_s()
        idle = cpu_s - self._checked_cpu_s <= IDLE_CPU_S
        self._checked_cpu_s = cpu_s
        self._waited += 1
        blocks = self._count_blocks()
        if abs(blocks - self._collected_blocks) * 4 <= self._collected_blocks:
            return
        if (blocks <= FEW_BLOCKS or idle or self._waited >= LONGEST_WAIT_CHECKS) and gc.isenabled():
            self.collect_all()

    def _check_memory(self) -> None:
        resident = self._resident_bytes()
        changed = (
            abs(resident - self._left_bytes) >= CHANGE_BYTES or self._count_blocks() <= self._left_blocks - FEWER_BLOCKS
        )
        if resident < self._much_bytes or not changed or not gc.isenabled():
            return
        gc.collect()  # visits the new objects, and empties the free lists, which keep whole arenas
        self._trim()
        self._left_bytes = self._resident_bytes()
        self._left_blocks = self._count_blocks()

    def collect_all(self) -> None:
        """Visit all objects."""
        self._collecting_all = True
        try:
            gc.unfreeze()
            gc.collect()
            _forget_frozen()
        finally:
            self._collecting_all = False
        self._collected_blocks = self._count_blocks()
        self._waited = 0

    def _on_pass(self, phase: str, info: dict[str, Any]) -> None:
        """Called before and after each pass, in the thread that runs it."""
        if phase == "start":
            if gc.get_count()[0] > MANY_NEW_OBJECTS and not self._collecting_all:
                gc.freeze()
        elif info["generation"] == 2:
            gc.freeze()


def _forget_frozen() -> None:
    """Prevent CPython from counting frozen objects.

    CPython delays a full pass until the new objects are a quarter of those that the latest full pass has left, and that
    pass would be long.
    """
    gc.collect()
