"""The signals that end a server process.

SIGTERM, SIGINT and SIGHUP stop it cleanly, and so does every other signal that would end it where it stands and that a
handler can take: SIGQUIT, SIGUSR1, SIGXCPU and the like. Of those that ask for a core dump, SIGABRT, SIGTRAP and SIGSYS
are taken only when the process has a directory to remove. SIGKILL cannot be taken; SIGSEGV, SIGBUS, SIGFPE and SIGILL
are not, because a handler of Python's runs after the faulty instruction, which would fault again and again.

What was ignored when the process began stays ignored (`nohup`, SIGPIPE). SIGINT and SIGTERM are the exception: a shell
ignores SIGINT for what it starts in the background, and both are asked for by name where they are sent.

The first signal may come at any moment, also before there is an event loop: `wait` returns at once then. Later ones
change nothing, because one request to stop often comes as several: a terminal that closes sends SIGHUP twice, systemd
sends SIGHUP after SIGTERM. Only SIGINT, a second after the first signal or later, is a person at a terminal who does
not want to wait for a clean stop (`on_impatience`). The exit status is 128 and the signal's number, as of a program
that the signal has ended, but 0 for SIGTERM and SIGINT, which are the ordinary ways to stop a server.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable
from types import FrameType

PATIENCE_SECONDS = 1.0

_ALWAYS = (signal.SIGTERM, signal.SIGINT)
_FAULTS = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL")
_CORE_DUMPS = ("SIGABRT", "SIGTRAP", "SIGSYS")
# What does not end a process by default, or cannot be taken.
_HARMLESS = (
    *("SIGKILL", "SIGSTOP", "SIGCHLD", "SIGCONT", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGURG", "SIGWINCH", "SIGINFO"),
)


class EndSignals:
    """Takes the signals from `install` on, in the main thread."""

    def __init__(self, on_impatience: Callable[[int], None], *, clock: Callable[[], float] = time.monotonic) -> None:
        """``on_impatience`` is called with the number of the signal; it need not return. ``clock`` is in seconds."""
        self._on_impatience = on_impatience
        self._clock = clock
        self._received_at = 0.0
        self._readable, self._writable = socket.socketpair()
        self._readable.setblocking(False)
        self._writable.setblocking(False)
        self.received: int | None = None
        """The number of the first signal."""

    @property
    def exit_status(self) -> int:
        """Of a process that has stopped cleanly, because of the signal if there was one."""
        return 0 if self.received is None or self.received in _ALWAYS else 128 + self.received

    def install(self, *, with_core_dumps: bool) -> None:
        """``with_core_dumps``: take also those that would leave a core dump."""
        left_alone = {getattr(signal, name, None) for name in _HARMLESS + _FAULTS}
        if not with_core_dumps:
            left_alone |= {getattr(signal, name, None) for name in _CORE_DUMPS}
        # The loop does not see a handler that runs between two of its system calls; the byte in the socket it does.
        signal.set_wakeup_fd(self._writable.fileno(), warn_on_full_buffer=False)
        for number in signal.valid_signals() - left_alone:
            before = signal.getsignal(number)
            if number in _ALWAYS or before is signal.SIG_DFL:
                with contextlib.suppress(OSError, ValueError):  # the C library keeps some for itself
                    signal.signal(number, self._received)

    def _received(self, number: int, _frame: FrameType | None) -> None:
        if self.received is None:
            self.received = number
            self._received_at = self._clock()
        elif number == signal.SIGINT and self._clock() - self._received_at >= PATIENCE_SECONDS:
            self._on_impatience(number)

    async def wait(self) -> None:
        """Return when a signal has come."""
        loop = asyncio.get_running_loop()
        come = asyncio.Event()

        def look() -> None:
            with contextlib.suppress(BlockingIOError):
                while self._readable.recv(4096):
                    pass
            if self.received is not None:
                come.set()

        loop.add_reader(self._readable.fileno(), look)
        try:
            look()
            await come.wait()
        finally:
            loop.remove_reader(self._readable.fileno())


def end_by(number: int) -> None:
    """End this process by the signal, as if it had never been taken."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
