"""The terminal while a program draws: keys without Enter and without echo, the size of the window, and signals.

Signals only set a flag and wake the program up, so that no drawing is interrupted in the middle, and the terminal is
always restored: Ctrl-C, Ctrl-Z, SIGTERM and SIGHUP. If the standard input is no terminal, there are no keys.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import socket
import sys
import termios
import tty
from types import FrameType
from typing import Any, Final, Self

INTERRUPT: Final = "interrupt"
SUSPEND: Final = "suspend"
END: Final = "end"
"""Besides characters and the names in `_SEQUENCES`, what `Keyboard.wait` returns."""

_SEQUENCES: Final = {
    "A": "up",
    "B": "down",
    "C": "right",
    "D": "left",
    "H": "home",
    "F": "end of list",
    # The Linux console, tmux and screen; rxvt.
    "1~": "home",
    "4~": "end of list",
    "7~": "home",
    "8~": "end of list",
    "5~": "page up",
    "6~": "page down",
    "Z": "back tab",
}
_KEY: Final = re.compile(r"\x1b(?:\[|O)([0-9;]*[A-Za-z~])|(.)", re.DOTALL)
_SIGNALS: Final = {
    signal.SIGINT: INTERRUPT,
    signal.SIGTERM: END,
    signal.SIGHUP: END,
    signal.SIGTSTP: SUSPEND,
    signal.SIGWINCH: "",
}


class Keyboard:
    """See the module docstring. A context manager, of the main thread."""

    def __init__(self) -> None:
        self._fd = sys.stdin.fileno() if sys.stdin.isatty() else None
        self._has_keys = self._fd is not None
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        self._caught: list[str] = []
        self._handlers: dict[int, Any] = {}
        self._attributes: list[Any] | None = None

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            self._handlers[number] = signal.signal(number, self._catch)
        self._take()
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._woken.close()
        self._waker.close()

    def wake(self) -> None:
        """Let `wait` return. Any thread may call this."""
        with contextlib.suppress(OSError):  # full: it will wake up
            self._waker.send(b"\0")

    def wait(self, seconds: float) -> list[str]:
        """The keys and events, after at most this time. The list is empty after `wake`, and if the size changes."""
        woken = self._woken.fileno()
        waited_for = [woken] if self._fd is None or not self._has_keys else [woken, self._fd]
        ready, _, _ = select.select(waited_for, [], [], seconds)
        if woken in ready:
            self._woken.recv(4096)
        keys: list[str] = []
        if self._fd is not None and self._fd in ready:
            data = self._read(self._fd)
            if not data:
                self._has_keys = False  # the terminal is gone, or its end was typed
            for sequence, letter in _KEY.findall(data.decode(errors="ignore")):
                keys.append(_SEQUENCES.get(sequence, "") if sequence else letter)
        caught, self._caught = self._caught, []
        return [*caught, *filter(None, keys)]

    def suspend(self) -> None:
        """Stop this process, as Ctrl-Z does. Returns when it continues."""
        self._restore()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._take()

    def _catch(self, number: int, _frame: FrameType | None) -> None:
        event = _SIGNALS[signal.Signals(number)]
        if event:
            self._caught.append(event)
        self.wake()

    def _take(self) -> None:
        if self._fd is not None:
            self._attributes = termios.tcgetattr(self._fd)
            tty.setcbreak(self._fd)

    def _restore(self) -> None:
        if self._fd is not None and self._attributes is not None:
            with contextlib.suppress(termios.error):  # the terminal is gone
                # Keys that were not read are discarded, so that the shell does not execute them.
                termios.tcsetattr(self._fd, termios.TCSAFLUSH, self._attributes)

    @staticmethod
    def _read(fd: int) -> bytes:
        try:
            return os.read(fd, 1024)
        except OSError:  # the terminal is gone
            return b""
