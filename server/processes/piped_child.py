"""A command of Moldau as a child process that ends with this process.

The child's standard input is a pipe that only this process holds, and the child was started with ``--exit-with-stdin``:
it ends when the pipe is closed, so also when this process is killed.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import IO, Final

_EXIT_TIMEOUT_S: Final = 15.0


class PipedChild:
    """A running ``moldau ARGUMENTS --exit-with-stdin``."""

    def __init__(self, arguments: Sequence[str], *, reads_output: bool = False) -> None:
        """``reads_output``: its standard output is a pipe, which the caller reads (`output`)."""
        # -P: modules in the working directory of the user do not replace those of Python.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "moldau", *arguments, "--exit-with-stdin"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if reads_output else None,
            text=True,
        )

    @property
    def output(self) -> IO[str]:
        assert self._process.stdout is not None
        return self._process.stdout

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def close(self) -> None:
        """End it, and wait for that; kill it if it takes too long."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
