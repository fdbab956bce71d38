"""asyncio's event loop, with a short way for connections.

For every socket that is ready asyncio makes a list entry, looks up a key, queues a handle and runs it in a context,
which together costs about as much as serving a small request. Connections need none of it: their callback is a method,
and it is known by the descriptor. So the selector of this loop calls it at once, when the kernel has told it, and hands
asyncio only what is asyncio's: its own pipe, the listening sockets, other people's transports.

A server may also run in a loop of somebody else's, who embeds it, or on a system without epoll (macOS). Then
`readiness_of` is that loop itself: the same methods, the long way.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import select
import selectors
from collections.abc import Callable
from typing import Protocol
from weakref import WeakKeyDictionary

logger = logging.getLogger(__name__)

# So many sockets are served in one turn of the loop; timers and tasks have their turn in between.
MAX_EVENTS = 128

Callback = Callable[[], None]


class Readiness(Protocol):
    """Tells when descriptors can be read or written."""

    def add_reader(self, fd: int, callback: Callback, /) -> object:
        """Call whenever ``fd`` can be read, or has an error, or its peer has hung up."""

    def remove_reader(self, fd: int, /) -> object: ...

    def add_writer(self, fd: int, callback: Callback, /) -> object:
        """Call whenever ``fd`` can be written, or has an error, or its peer has hung up."""

    def remove_writer(self, fd: int, /) -> object: ...


class HangUps(Protocol):
    """Notices peers that leave while nothing is read from them."""

    def add_hang_up(self, fd: int, callback: Callback, /) -> object:
        """Call once when the peer of ``fd`` will send no more. For descriptors without a reader."""

    def remove_hang_up(self, fd: int, /) -> object: ...


def new_event_loop() -> asyncio.AbstractEventLoop:
    """The loop that a server runs best in."""
    if not hasattr(select, "epoll"):
        return asyncio.new_event_loop()
    selector = DirectSelector()
    loop = asyncio.SelectorEventLoop(selector)
    _selectors[loop] = selector
    return loop


def readiness_of(loop: asyncio.AbstractEventLoop) -> Readiness:
    """The short way of a loop of ours, or the loop."""
    return _selectors.get(loop, loop)


def hang_ups_of(loop: asyncio.AbstractEventLoop) -> HangUps | None:
    """The same for peers that leave; None in other loops, which cannot notice it without reading."""
    return _selectors.get(loop)


def polls_for_all(loop: asyncio.AbstractEventLoop) -> int:
    """How many polls serve everything that is ready now, as far as the latest one showed; asyncio's own serves all."""
    selector = _selectors.get(loop)
    return 1 if selector is None else selector.polls_for_all


class DirectSelector(selectors.EpollSelector):
    """What asyncio asks which descriptors are ready. Those of `add_reader` and `add_writer` it serves itself.

    The callbacks run in the loop's thread, between two turns: they may use the loop in every way.
    """

    def __init__(self) -> None:
        super().__init__()
        # The same epoll by a descriptor of its own: both objects close theirs.
        self._direct = select.epoll.fromfd(os.dup(self.fileno()))
        self._readers: dict[int, Callback] = {}
        self._writers: dict[int, Callback] = {}
        self._hang_ups: dict[int, Callback] = {}
        self.polls_for_all = 1
        """How many more polls it may take until everything is served that was ready at the latest one."""

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
            # Out of the epoll where nothing is waited for: a peer that hangs up would be reported again and again.
            self._direct.unregister(fd)

    def _events(self, fd: int) -> int:
        return (
            (select.EPOLLIN if fd in self._readers else 0)
            | (select.EPOLLOUT if fd in self._writers else 0)
            | (select.EPOLLRDHUP if fd in self._hang_ups else 0)
        )

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait up to ``timeout`` seconds (None: for ever), serve connections, and return what else is ready."""
        if timeout is None:
            wait = -1.0
        elif timeout <= 0:
            wait = 0.0
        else:
            wait = math.ceil(timeout * 1e3) * 1e-3  # epoll counts milliseconds: not too early
        try:
            events = self._direct.poll(wait, MAX_EVENTS)
        except InterruptedError:
            return []
        readers, writers, hang_ups = self._readers, self._writers, self._hang_ups
        # The kernel puts what it has reported behind what it has not.
        self.polls_for_all = 1 if len(events) < MAX_EVENTS else 1 + len(readers) // MAX_EVENTS
        others = []
        for fd, event in events:
            # An error or a hang-up is for both. One callback may remove another's descriptor, or its own.
            reader, writer = readers.get(fd), writers.get(fd)
            if reader is None and fd in hang_ups and event & ~select.EPOLLOUT:
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
        return others

    def close(self) -> None:
        self._direct.close()
        super().close()


# Which selector is in a loop: asyncio does not tell.
_selectors: WeakKeyDictionary[asyncio.AbstractEventLoop, DirectSelector] = WeakKeyDictionary()


def _call(callback: Callback) -> None:
    try:
        callback()
    except Exception:  # as the loop does: it is told, and the others go on
        logger.exception("Exception in callback %r", callback)
