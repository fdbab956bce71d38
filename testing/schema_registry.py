"""A schema registry for the duration of a test: ``moldau registry`` as a child process."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self

from ..server.processes.piped_child import PipedChild

_READY_PREFIX: Final = "moldau registry is ready: "


class SchemaRegistry:
    """A running registry; ``url`` is its address. It also ends if this process is killed."""

    def __init__(self, bootstrap_servers: str) -> None:
        """Raises RuntimeError with what the registry has written if it does not start."""
        arguments = ["registry", "-b", bootstrap_servers, "--listen", "127.0.0.1:0"]
        self._child = PipedChild(arguments, reads_output=True)
        line = self._child.output.readline()
        if not line.startswith(_READY_PREFIX):
            self.close()
            raise RuntimeError(f"`moldau registry` did not start (exit code {self._child.exit_code}); see its output")
        self.url = line.removeprefix(_READY_PREFIX).strip()

    def close(self) -> None:
        """Stop it."""
        self._child.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
