"""The user's commands that kill the server and start it again, for crash cases.

`/bin/sh` runs them, in a session of their own, so that Ctrl-C ends the suite and not the server. Their output goes to a
file: with a pipe, a server that a command starts in the background would keep the command's end of it open.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from typing import IO, Final

from .target import Target

_PAUSE_SECONDS: Final = 0.05
_SECONDS: Final = 120.0
_SHOWN: Final = 300


def use_commands(target: Target, kill: str, restart: str) -> None:
    """Set the target's `kill` and `restart`, which raise OSError if a command fails."""
    commands = _Commands(target)
    target.kill = lambda: commands.run("--kill-command", kill)
    target.restart = lambda: commands.run("--restart-command", restart, starts_server=True)


class _Commands:
    def __init__(self, target: Target) -> None:
        self._target = target
        self._foreground: list[subprocess.Popen[bytes]] = []
        """Restart commands that are the server themselves."""

    def run(self, option: str, line: str, *, starts_server: bool = False) -> None:
        """Return when the command has ended, or, with `starts_server`, when the server accepts connections."""
        seconds = _SECONDS * self._target.patience
        deadline = time.monotonic() + seconds
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                ["/bin/sh", "-c", line],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            while process.poll() is None:
                if starts_server and self._target.accepts_connections():
                    self._foreground.append(process)
                    return
                if time.monotonic() > deadline:
                    with contextlib.suppress(OSError):
                        os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                    raise OSError(f"{option} `{line}` has not ended within {seconds:g} s{_tail(output)}")
                time.sleep(_PAUSE_SECONDS)
            if process.returncode:
                raise OSError(f"{option} `{line}` ended with exit code {process.returncode}{_tail(output)}")
        # A server that ran in the foreground is dead now.
        self._foreground = [each for each in self._foreground if each.poll() is None]


def _tail(output: IO[bytes]) -> str:
    output.seek(0)
    text = output.read().decode(errors="replace").strip()
    return f": {text[-_SHOWN:]}" if text else ", without output"
