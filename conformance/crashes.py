"""Crashes that cases share: the server is killed when every running crash case has prepared what it compares.

A restart takes seconds, so that one for each case would take minutes. A case calls `Check.crash` and waits there; the
last of the running cases to do so, or to end, kills and restarts the server. No case has an exchange in progress then,
except those that write from a thread of their own to be interrupted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from .outcome import InconclusiveError
from .target import Target

_PAUSE_SECONDS: Final = 0.05
_KILL_SECONDS: Final = 30.0
_START_SECONDS: Final = 120.0


class Crashes:
    """The crashes of one run."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._changed = threading.Condition()
        self._running = 0
        self._waiting = 0
        self._crashing = False
        self._number = 0
        self._interrupted = False
        self.failure: str | None = None
        """Why the server could not be killed or restarted; no case can go on after that."""

    @contextmanager
    def running(self) -> Iterator[None]:
        """The run of a case that may crash the server. While it lasts, the server is killed only with its consent."""
        with self._changed:
            # A case that begins while the server is down would find it unreachable.
            self._changed.wait_for(lambda: not self._crashing)
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                crash = self._begin()
            if crash:
                self._crash()

    def crash(self) -> None:
        """Wait for the other running cases, and return when the server was killed and responds again.

        Raises InconclusiveError if a command failed or the run was interrupted.
        """
        with self._changed:
            number = self._number
            self._waiting += 1
            crash = self._begin()
        if crash:
            self._crash()
        with self._changed:
            self._changed.wait_for(lambda: self._number > number or self._interrupted)
            if self._number == number:
                self._waiting -= 1
        if self.failure is not None:
            raise InconclusiveError(self.failure)
        if self._interrupted:
            raise InconclusiveError("interrupted while it waited for the crash of the server")

    @contextmanager
    def none_in_progress(self) -> Iterator[None]:
        """Begins when no crash is in progress, and prevents one, for what must not meet a server that is down."""
        with self._changed:
            self._changed.wait_for(lambda: not self._crashing)
            yield

    def interrupt(self) -> None:
        """Release the waiting cases."""
        with self._changed:
            self._interrupted = True
            self._changed.notify_all()

    def _begin(self) -> bool:
        """Whether the caller has to crash the server now: all running cases wait for it."""
        if self._crashing or self._interrupted or not self._waiting or self._waiting < self._running:
            return False
        self._crashing = True
        return True

    def _crash(self) -> None:
        failure = self.failure
        try:
            if failure is None:
                self._kill_and_restart()
        except OSError as error:
            failure = str(error)
        finally:
            with self._changed:
                self.failure = failure
                self._crashing = False
                self._waiting = 0
                self._number += 1
                self._changed.notify_all()

    def _kill_and_restart(self) -> None:
        """Raises OSError with the reason."""
        target = self._target
        if target.kill is None or target.restart is None:
            raise OSError("the target has no commands that kill and restart it")
        target.kill()
        if not _until(lambda: not target.accepts_connections(), _KILL_SECONDS * target.patience):
            raise OSError(f"the kill command has ended, and {target.address} still accepts connections")
        target.restart()
        if not _until(target.responds, _START_SECONDS * target.patience):
            raise OSError(
                f"the restart command has ended, and {target.address} does not respond after "
                f"{_START_SECONDS * target.patience:g} s"
            )


def _until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE_SECONDS)
    return True
