"""A schema registry for the duration of a test: ``moldau registry`` as a child process."""

from __future__ import annotations

import subprocess
import sys
from types import TracebackType
from typing import Final, Self

_READY_PREFIX: Final = "moldau registry is ready: "
_STOP_TIMEOUT_S: Final = 15.0


class SchemaRegistry:
    """A running registry; ``url`` is its address. It also ends if this process is killed."""

    def __init__(self, bootstrap_servers: str) -> None:
        """Raises RuntimeError with what the registry has written if it does not start."""
        command = [sys.executable, "-P", "-m", "moldau", "registry", "-b", bootstrap_servers]
        self._process = subprocess.Popen(
            [*command, "--listen", "127.0.0.1:0", "--exit-with-stdin"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith(_READY_PREFIX):
            self.close()
            raise RuntimeError(
                f"`moldau registry` did not start (exit code {self._process.returncode}); see its output"
            )
        self.url = line.removeprefix(_READY_PREFIX).strip()

    def close(self) -> None:
        """Stop it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
