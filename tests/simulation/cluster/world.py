"""Virtual time, and one event loop per simulated process.

A `World` has the time, the random source, and a queue of events. A `SimulatedLoop` is an asyncio event loop that never
waits: the world runs one iteration of it when it has something to do. Its sockets belong to `network`. Each iteration
takes some microseconds of virtual time, so the processes run side by side. A process that is paused runs no iteration;
its sockets still receive, as those of a process that got SIGSTOP.

`SimulatedBackground` stands for the threads of a process: it does each job at a random later moment, and reports its
end after another pause. A crash in between finds the work done and not reported.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from asyncio import events as asyncio_events
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Protocol, TypeVarTuple, Unpack

from moldau.server.concurrency.background import Background

if TYPE_CHECKING:
    from moldau.server.concurrency.background import _Job

Callback = Callable[[], object]
Ts = TypeVarTuple("Ts")

START_SECONDS = 1000.0
"""The monotonic clock at the beginning."""

EPOCH_MS = 1_700_000_000_000
"""The time of day at the beginning."""

MAX_ITERATIONS = 2_000_000
"""A simulation with more iterations of event loops does not end: a process repeats something without a pause."""


_MAX_AWAITS = 100
"""How many things the cleanup of a coroutine may await."""


class Descriptor(Protocol):
    """What a loop can wait for."""

    @property
    def is_readable(self) -> bool:
        """Whether receiving, or accepting, does not block."""

    @property
    def is_writable(self) -> bool:
        """Whether sending does not block."""


class World:
    """See the module docstring."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice
        self.now = START_SECONDS
        self.loops: list[SimulatedLoop] = []
        self.running: SimulatedLoop | None = None
        """The process whose code runs now."""
        self.on_iteration: Callable[[SimulatedLoop], None] = lambda loop: None
        """Called after each iteration of a loop."""
        self.iterations = 0
        self.dead: list[tuple[SimulatedLoop, object]] = []
        """What dead processes have left: nothing of it may run, not even when Python releases it."""
        self._queue: list[tuple[float, int, Callback]] = []
        self._numbers = itertools.count()

    def wall_ms(self) -> int:
        """The time of day, in milliseconds."""
        return EPOCH_MS + int((self.now - START_SECONDS) * 1000)

    def at(self, seconds: float, callback: Callback) -> None:
        """Call back at this time."""
        heapq.heappush(self._queue, (max(seconds, self.now), next(self._numbers), callback))

    def after(self, seconds: float, callback: Callback) -> None:
        """Call back after this time."""
        self.at(self.now + seconds, callback)

    def run_for(self, seconds: float) -> None:
        """Let everything run for this time."""
        self.run_until(lambda: False, seconds)

    def run_until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Let everything run until the condition holds, or for this time. Returns whether it holds."""
        end = self.now + seconds
        while not condition():
            due = self._queue[0][0] if self._queue else end
            first: list[SimulatedLoop] = []
            for loop in self.loops:
                wanted = loop.next_time()
                if wanted is None:
                    continue
                if wanted < due:
                    due, first = wanted, [loop]
                elif wanted == due:
                    first.append(loop)
            if due > end:
                self.now = end
                return condition()
            self.now = max(self.now, due)
            if self._queue and self._queue[0][0] <= self.now:
                heapq.heappop(self._queue)[2]()
            elif first:
                self._iterate(first[0] if len(first) == 1 else self.dice.choice(first))
            else:
                self.now = end
                return condition()
        return True

    def _iterate(self, loop: SimulatedLoop) -> None:
        self.iterations += 1
        assert self.iterations < MAX_ITERATIONS, f"too many iterations of event loops, now of {loop.name}"
        self.running = loop
        try:
            loop.iterate()
            loop.busy_until = self.now + self.dice.choice((5e-6, 2e-5, 1e-4)) * loop.slowness
            self.on_iteration(loop)
        finally:
            self.running = None


class SimulatedLoop(asyncio.BaseEventLoop):
    """The event loop of one process."""

    def __init__(self, world: World, name: str, address: str, descriptors: dict[int, Any]) -> None:
        """``address``: of the machine. ``descriptors``: all open ones, by number."""
        super().__init__()
        self.name = name
        self.address = address
        self.world = world
        self.is_paused = False
        self.busy_until = 0.0
        self.slowness = 1.0
        """A factor for the time of an iteration."""
        self._tasks: list[asyncio.Task[Any]] = []
        self.failures: list[str] = []
        """Exceptions that only the event loop has noticed."""
        self._descriptors: dict[int, Descriptor] = descriptors
        self._readers: dict[int, asyncio.Handle] = {}
        self._writers: dict[int, asyncio.Handle] = {}
        self._selector = self
        self.set_exception_handler(self._failed)

    def time(self) -> float:
        return self.world.now

    # What the world calls

    def next_time(self) -> float | None:
        """When the next iteration is due; None if nothing is pending."""
        if self.is_paused:
            return None
        if self._ready or self._has_events():  # type: ignore[attr-defined]
            return max(self.busy_until, self.world.now)
        scheduled = self._scheduled  # type: ignore[attr-defined]
        return max(self.busy_until, self.world.now, scheduled[0]._when) if scheduled else None

    def iterate(self) -> None:
        """Run one iteration."""
        asyncio_events._set_running_loop(self)
        try:
            self._run_once()  # type: ignore[attr-defined]
        finally:
            asyncio_events._set_running_loop(None)

    def discard(self) -> None:
        """The process has died: its tasks never continue."""
        self._readers.clear()
        self._writers.clear()
        self._tasks = list(asyncio.all_tasks(self))

    def end_tasks(self) -> None:
        """Nothing else runs any longer: end the coroutines of a dead process, before Python ends them at any moment."""
        for task in self._tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine = task.get_coro()
            for _ in range(_MAX_AWAITS):
                try:
                    coroutine.close()
                    break
                except RuntimeError:  # its cleanup awaits something
                    continue
        self._tasks.clear()

    # What asyncio's loop needs of its subclass

    def select(self, timeout: float | None) -> list[asyncio.Handle]:
        """The callbacks of the descriptors that are ready."""
        found = [handle for fd, handle in self._readers.items() if self._descriptors[fd].is_readable]
        return found + [handle for fd, handle in self._writers.items() if self._descriptors[fd].is_writable]

    def _has_events(self) -> bool:
        descriptors = self._descriptors
        return any(descriptors[fd].is_readable for fd in self._readers) or any(
            descriptors[fd].is_writable for fd in self._writers
        )

    def _process_events(self, event_list: list[asyncio.Handle]) -> None:
        self._ready.extend(event_list)  # type: ignore[attr-defined]

    def _write_to_self(self) -> None:
        """Nothing waits in `select`."""

    def add_reader(self, fd: Any, callback: Callable[[Unpack[Ts]], Any], *args: *Ts) -> None:
        self.remove_reader(fd)
        self._readers[fd] = asyncio.Handle(callback, args, self)

    def remove_reader(self, fd: Any) -> bool:
        handle = self._readers.pop(fd, None)
        if handle is not None:
            handle.cancel()
        return handle is not None

    def add_writer(self, fd: Any, callback: Callable[[Unpack[Ts]], Any], *args: *Ts) -> None:
        self.remove_writer(fd)
        self._writers[fd] = asyncio.Handle(callback, args, self)

    def remove_writer(self, fd: Any) -> bool:
        handle = self._writers.pop(fd, None)
        if handle is not None:
            handle.cancel()
        return handle is not None

    def _failed(self, loop: object, context: dict[str, Any]) -> None:
        self.failures.append(f"{context.get('message')}: {context.get('exception')!r}")


class SimulatedBackground(Background):
    """See the module docstring."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        assert isinstance(loop, SimulatedLoop)
        self._simulated = loop

    def _pause_s(self) -> float:
        dice = self._simulated.world.dice
        return dice.choice((1e-5, 2e-4, 2e-3, 2e-2)) * dice.random()

    def _enqueue(self, job: _Job[Any]) -> None:
        if self._closed:
            raise RuntimeError("the server has stopped; its threads accept no more jobs")
        self._unfinished += 1
        self._simulated.call_later(self._pause_s(), self._perform, job)

    def _perform(self, job: _Job[Any]) -> None:
        job.perform()
        self._simulated.call_later(self._pause_s(), self._finished, job)

    def _start_threads(self) -> None:
        """There are no threads."""
