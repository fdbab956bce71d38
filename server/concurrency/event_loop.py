"""asyncio's event loop, with a fast path for connections.

For every ready socket, asyncio creates a list entry, looks up a key, queues a handle and runs it in a context. Together
this costs about as much as serving a small request. Connections need none of it: their callback is a method, which the
descriptor identifies. So the selector of this loop calls it directly when the kernel reports the descriptor, and
returns to asyncio only the rest: its own pipe, the listening sockets, and transports of other code.

A server may also run in the loop of a program that embeds it, or on a system without epoll (macOS). Then `readiness_of`
is that loop itself: the same methods on the slow path.

If many connections are ready, the selector measures each of them. It leaves slow connections and those whose peer has
disconnected to the queue of `turns`. Their sockets stay in the epoll meanwhile, which reports them at each poll. So
each poll asks for that many more events.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import select
import selectors
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol
from weakref import WeakKeyDictionary

from .turns import SLICE_MS, Turns

logger = logging.getLogger(__name__)

# The maximum number of sockets that are served in one iteration of the loop. Timers and tasks run in between.
MAX_EVENTS = 128
# The maximum number of iterations to wait until the connections in the queue of turns were served (`polls_for_all`).
_MAX_TURNS = 64

# The peer has disconnected and waits for nothing. (macOS has no epoll, and so no fast path.)
_HANG_UP = select.EPOLLHUP | select.EPOLLERR | select.EPOLLRDHUP if hasattr(select, "epoll") else 0

Callback = Callable[[], None]


class Readiness(Protocol):
    """Reports when descriptors are readable or writable."""

    def add_reader(self, fd: int, callback: Callback, /) -> object:
        """Call ``callback`` whenever ``fd`` is readable, has an error, or its peer has hung up."""

    def remove_reader(self, fd: int, /) -> object: ...

    def add_writer(self, fd: int, callback: Callback, /) -> object:
        """Call ``callback`` whenever ``fd`` is writable, has an error, or its peer has hung up."""

    def remove_writer(self, fd: int, /) -> object: ...


class HangUps(Protocol):
    """Reports peers that disconnect while nothing is read from them."""

    def add_hang_up(self, fd: int, callback: Callback, /) -> object:
        """Call ``callback`` once when the peer of ``fd`` will send no more data. For descriptors without a reader."""

    def remove_hang_up(self, fd: int, /) -> object: ...


def new_event_loop(
    clock: Callable[[], float] = time.perf_counter, cpu_clock: Callable[[], float] = time.thread_time
) -> asyncio.AbstractEventLoop:
    """Create the loop that is best for a server. ``clock`` and ``cpu_clock``, in seconds, are for its turns."""
    if not hasattr(select, "epoll"):
        return asyncio.new_event_loop()
    selector = DirectSelector()
    loop = asyncio.SelectorEventLoop(selector)
    selector.turns = Turns(loop.call_soon, clock=clock, cpu_clock=cpu_clock)
    _selectors[loop] = selector
    return loop


def readiness_of(loop: asyncio.AbstractEventLoop) -> Readiness:
    """The fast path of a loop of `new_event_loop`; otherwise the loop itself."""
    return _selectors.get(loop, loop)


def hang_ups_of(loop: asyncio.AbstractEventLoop) -> HangUps | None:
    """The `HangUps` of a loop of `new_event_loop`. None for other loops, which notice a disconnect only by reading."""
    return _selectors.get(loop)


def turns_of(loop: asyncio.AbstractEventLoop) -> Turns:
    """The turns of a loop of `new_event_loop`. Other loops get new ones, and do not measure their callbacks."""
    selector = _selectors.get(loop)
    return Turns(loop.call_soon, clock=loop.time) if selector is None else selector.turns


class EndOfIteration:
    """Calls callbacks at the end of the current iteration of the event loop. Many of them cost one call of the loop."""

    __slots__ = ("_call_soon", "_callbacks")

    def __init__(self, call_soon: Callable[[Callback], object]) -> None:
        self._call_soon = call_soon
        self._callbacks: list[Callback] = []

    def __call__(self, callback: Callback) -> None:
        """Call ``callback`` at the end of this iteration."""
        if not self._callbacks:
            self._call_soon(self._run)
        self._callbacks.append(callback)

    def _run(self) -> None:
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback()
            except Exception:
                logger.exception("Completing a waiting request failed with an unexpected error")


def polls_for_all(loop: asyncio.AbstractEventLoop) -> int:
    """How many polls serve everything that is ready now, as far as the latest poll showed.

    One poll of asyncio's own selector serves everything. While connections wait in the queue of turns, the number is
    larger. It is bounded, so that connections which always want more do not delay deadlines for long.
    """
    selector = _selectors.get(loop)
    if selector is None:
        return 1
    return selector.polls_for_all + (_MAX_TURNS if selector.turns else 0)


class DirectSelector(selectors.EpollSelector):
    """The selector of asyncio's loop. It serves the descriptors of `add_reader` and `add_writer` itself.

    The callbacks run in the thread of the loop, between two iterations. They may use the loop without restrictions.
    """

    def __init__(self) -> None:
        super().__init__()
        # The same epoll by a separate descriptor: both objects close theirs.
        self._direct = select.epoll.fromfd(os.dup(self.fileno()))
        self._readers: dict[int, Callback] = {}
        self._writers: dict[int, Callback] = {}
        self._hang_ups: dict[int, Callback] = {}
        self._postponed: dict[int, int] = {}  # events of the connections that wait for their turn
        self.turns: Turns  # of the loop, which is created after this
        self.polls_for_all = 1
        """How many more polls may be necessary to serve everything that was ready at the latest one."""

    def add_reader(self, fd: int, callback: Callback, /) -> None:
        self._change(fd, self._readers, callback)

    def remove_reader(self, fd: int, /) -> None:
        self._change(fd, self._readers, None)

    def add_writer(self, fd: int, callback: Callback, /) -> None:
        self._change(fd, self._writers, callback)

    def remove_writer(self, fd: int, /) -> None:
        self._change(fd, self._writers, None)

    def add_hang_up(self, fd: int, callback: Callback, /) -> None:
        self._change(fd, self._hang_ups, callback)

    def remove_hang_up(self, fd: int, /) -> None:
        self._change(fd, self._hang_ups, None)

    def _change(self, fd: int, callbacks: dict[int, Callback], callback: Callback | None) -> None:
        before = self._events(fd)
        if callback is not None:
            callbacks[fd] = callback
        else:
            callbacks.pop(fd, None)
        after = self._events(fd)
        if before == after:
            return
        if not before:
            self._direct.register(fd, after)
        elif after:
            self._direct.modify(fd, after)
        else:
            # Remove the descriptor if nothing is awaited: a hang-up of its peer would be reported again and again.
            self._direct.unregister(fd)
            if fd in self._postponed:
                self._postponed[fd] = 0  # the descriptor may soon belong to another connection

    def _events(self, fd: int) -> int:
        return (
            (select.EPOLLIN if fd in self._readers else 0)
            | (select.EPOLLOUT if fd in self._writers else 0)
            | (select.EPOLLRDHUP if fd in self._hang_ups else 0)
        )

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait up to ``timeout`` seconds (None: forever), serve connections, and return the other ready descriptors."""
        if timeout is None:
            wait = -1.0
        elif timeout <= 0:
            wait = 0.0
        else:
            wait = math.ceil(timeout * 1e3) * 1e-3  # epoll counts milliseconds; round up, so as not to be early
        limit = MAX_EVENTS + len(self._postponed)
        try:
            events = self._direct.poll(wait, limit)
        except InterruptedError:
            return []
        # The kernel moves reported descriptors behind those that it has not reported.
        self.polls_for_all = 1 if len(events) < limit else 1 + len(self._readers) // MAX_EVENTS
        measured = self.turns.begin(len(events))
        if measured or not self.turns.penalties:
            return self._serve(events, measured=measured)
        others = []
        for event in events:
            others += self._serve_alone(event)
        return others

    def _serve(self, events: Sequence[tuple[int, int]], *, measured: bool) -> list[tuple[selectors.SelectorKey, int]]:
        """Serve connections, and return the other ready descriptors. If ``measured``, postpone slow connections."""
        readers, writers, hang_ups = self._readers, self._writers, self._hang_ups
        turns, postponed = self.turns, self._postponed
        penalties, clock = turns.penalties, turns.clock
        now = turns.start() if measured else 0.0
        others = []
        for fd, event in events:
            if measured and (fd in penalties or fd in postponed or event & _HANG_UP) and self._events(fd):
                self._serve_later(fd, event)
                continue
            # An error or a hang-up concerns both callbacks. One callback may remove another's descriptor, or its own.
            reader, writer = readers.get(fd), writers.get(fd)
            if reader is None and fd in hang_ups and event & _HANG_UP:
                hung_up = hang_ups[fd]
                self.remove_hang_up(fd)  # it would be reported again and again
                _call(hung_up)
                writer = writers.get(fd)
            elif reader is None and writer is None:
                key = self.get_map().get(fd)
                if key is not None:
                    mask = (selectors.EVENT_WRITE if event & ~select.EPOLLIN else 0) | (
                        selectors.EVENT_READ if event & ~select.EPOLLOUT else 0
                    )
                    others.append((key, mask & key.events))
                continue
            if reader is not None and event & ~select.EPOLLOUT:
                _call(reader)
                writer = writers.get(fd)
            if writer is not None and event & ~select.EPOLLIN:
                _call(writer)
            if measured:
                began, now = now, clock()
                if now - began >= SLICE_MS / 1000:
                    turns.record(fd, began, now)
        return others

    def _serve_alone(self, event: tuple[int, int]) -> list[tuple[selectors.SelectorKey, int]]:
        """Serve one event while few are ready. A connection with penalties loses one if it is quick."""
        turns, fd = self.turns, event[0]
        if fd not in turns.penalties:
            return self._serve([event], measured=False)
        began = turns.start()
        others = self._serve([event], measured=False)
        if fd in turns.penalties:  # otherwise it is closed
            turns.record(fd, began, turns.clock())
        return others

    def _serve_later(self, fd: int, event: int) -> None:
        if fd not in self._postponed:
            self.turns.later(fd, partial(self._serve_in_turn, fd), disconnected=bool(event & _HANG_UP))
            self._postponed[fd] = event
        else:
            self._postponed[fd] |= event

    def _serve_in_turn(self, fd: int) -> None:
        self._serve([(fd, self._postponed.pop(fd))], measured=False)

    def close(self) -> None:
        self._direct.close()
        super().close()


# The selector of each loop, which asyncio does not expose.
_selectors: WeakKeyDictionary[asyncio.AbstractEventLoop, DirectSelector] = WeakKeyDictionary()


def _call(callback: Callback) -> None:
    try:
        callback()
    except Exception:  # like the event loop: log it and continue with the others
        logger.exception("Exception in callback %r", callback)
