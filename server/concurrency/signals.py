"""The signals that end a server process.

SIGTERM, SIGINT and SIGHUP shut it down cleanly. So does every other signal that would end the process abruptly and that
can be handled: SIGQUIT, SIGUSR1, SIGXCPU and others. Signals that request a core dump (SIGABRT, SIGTRAP, SIGSYS and the
faults below) are handled only if the process has a directory to remove. SIGKILL cannot be handled. Neither can signal
32 of Linux, which glibc reserves (SIGCANCEL) and hides from Python.

**Faults** are SIGSEGV, SIGBUS, SIGFPE and SIGILL. A Python handler would run after the faulty instruction, which would
fault again and again. So faults are blocked in all threads, and one thread waits for them with `sigwait`, which
receives those that another process has sent. If the process itself faults, Linux removes the block and ends the process
immediately (`force_sig_info_to_task` in kernel/signal.c). POSIX leaves that case undefined, so faults are not handled
on other systems. They are also not handled while `faulthandler` is enabled, because a block would prevent its
traceback, and if the system refuses to start the thread.

A signal that was ignored when the process began stays ignored (`nohup`, SIGPIPE). SIGINT and SIGTERM are exceptions: a
shell ignores SIGINT for its background processes, and both signals are sent deliberately.

The first signal may arrive at any time, even before the event loop exists. Then `wait` returns immediately. Later
signals have no effect, because one shutdown request often consists of several: a terminal that closes sends SIGHUP
twice, and systemd sends SIGHUP after SIGTERM. The only exception is SIGINT, one second or more after the first signal.
It comes from a user at a terminal who does not want to wait for a clean shutdown (`on_second_signal`). The exit status
is 128 plus the number of the signal, like that of a program that the signal has ended, but 0 for SIGTERM and SIGINT,
which are the ordinary ways to shut down a server.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from types import FrameType

from .background import start_thread

PATIENCE_SECONDS = 1.0

_ALWAYS = (signal.SIGTERM, signal.SIGINT)
_FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
_CORE_DUMPS = ("SIGABRT", "SIGTRAP", "SIGSYS")
# Signals that do not end a process by default, or that cannot be handled.
_HARMLESS = (
    *("SIGKILL", "SIGSTOP", "SIGCHLD", "SIGCONT", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGURG", "SIGWINCH", "SIGINFO"),
)


class EndSignals:
    """Handles the signals from `install` on, in the main thread."""

    def __init__(self, on_second_signal: Callable[[int], None], *, clock: Callable[[], float] = time.monotonic) -> None:
        """``on_second_signal`` is called with the number of the signal; it need not return. ``clock`` is in seconds."""
        self._on_second_signal = on_second_signal
        self._clock = clock
        self._received_at = 0.0
        self._readable, self._writable = socket.socketpair()
        self._readable.setblocking(False)
        self._writable.setblocking(False)
        self.received: int | None = None
        """The number of the first signal."""

    @property
    def exit_status(self) -> int:
        """The exit status after a clean shutdown, which depends on the received signal, if any."""
        return 0 if self.received is None or self.received in _ALWAYS else 128 + self.received

    def install(self, *, with_core_dumps: bool) -> None:
        """Install the handlers. ``with_core_dumps``: also handle signals that request a core dump.

        To be called before other threads start.
        """
        excluded = {getattr(signal, name, None) for name in _HARMLESS} | set(_FAULTS)
        if not with_core_dumps:
            excluded |= {getattr(signal, name, None) for name in _CORE_DUMPS}
        # The event loop does not notice a handler that runs between two of its system calls, but it does notice the
        # byte in the socket.
        signal.set_wakeup_fd(self._writable.fileno(), warn_on_full_buffer=False)
        for number in signal.valid_signals() - excluded:
            before = signal.getsignal(number)
            if number in _ALWAYS or before is signal.SIG_DFL:
                with contextlib.suppress(OSError, ValueError):  # the C library reserves some
                    signal.signal(number, self._received)
        if with_core_dumps and sys.platform == "linux" and not faulthandler.is_enabled():
            signal.pthread_sigmask(signal.SIG_BLOCK, _FAULTS)
            if start_thread(self._wait_for_fault, "moldau-signals") is None:
                unblock_faults()

    def _wait_for_fault(self) -> None:
        """Runs in a thread, which ends with the first fault. Later faults stay blocked."""
        self._received(signal.sigwait(_FAULTS), None)
        with contextlib.suppress(BlockingIOError):  # the socket is full: the loop wakes up anyway
            self._writable.send(b"\0")

    def _received(self, number: int, _frame: FrameType | None) -> None:
        if self.received is None:
            self.received = number
            self._received_at = self._clock()
        elif number == signal.SIGINT and self._clock() - self._received_at >= PATIENCE_SECONDS:
            self._on_second_signal(number)

    async def wait(self) -> None:
        """Wait until a signal was received."""
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


def unblock_faults() -> None:
    """Unblock the faults in a child process, which inherits the blocked signals of its parent."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FAULTS)


def end_by(number: int) -> None:
    """End this process by the signal, as if it had never been handled."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
