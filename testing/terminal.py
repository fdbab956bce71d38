"""A program in a pseudo terminal: what it draws, the keys that it receives, and the size of its window."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import threading
from collections.abc import Sequence
from typing import Final, Self

_CONTROL: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_END_S: Final = 100.0


class Terminal:
    """A process with a terminal for its input and output. The block ends the process if it still runs."""

    def __init__(
        self, command: Sequence[str], *, columns: int = 100, lines: int = 40, stdout: int | None = None
    ) -> None:
        """``stdout``: where the standard output goes instead, for example `subprocess.PIPE`."""
        self._screen, terminal = pty.openpty()
        self.resize(columns, lines)
        environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.process = subprocess.Popen(
            command,
            stdin=terminal,
            stdout=terminal if stdout is None else stdout,
            stderr=terminal,
            env={**environment, "TERM": "xterm-256color"},
        )
        os.close(terminal)
        self._text = bytearray()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self._reader.is_alive():
            self._reader.join()
            os.close(self._screen)

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._screen, 65_536)
            except OSError:  # the last writer has closed the terminal
                return
            if not data:
                return
            self._text += data

    def resize(self, columns: int, lines: int) -> None:
        """Change the size of the window."""
        fcntl.ioctl(self._screen, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys: str) -> None:
        """Type these keys."""
        os.write(self._screen, keys.encode())

    @property
    def text(self) -> str:
        """All that was drawn so far, with the sequences that control the terminal."""
        return self._text.decode(errors="replace")

    @property
    def plain(self) -> str:
        """The text without the sequences that control the terminal."""
        return _CONTROL.sub("", self.text).replace("\r", "")

    def end(self) -> int:
        """The exit code, when the process has ended. Raises AssertionError if it has drawn a traceback."""
        code = self.process.wait(_END_S)
        self._reader.join()
        os.close(self._screen)
        assert "Traceback" not in self.text, self.text
        return code
