"""``moldau serve --brokers N`` as a process, with its log: which process each broker has, and when it was restarted."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from .server_process import ServerProcess
from .waiting import wait_until

_TIMEOUT_S = 180


class ServedBrokers:
    """A running ``moldau serve`` with these options.

    The data, and the log of all runs, are in ``folder``. ``program`` replaces the interpreter's arguments that start
    Moldau.
    """

    def __init__(self, folder: Path, *options: str, program: Sequence[str] = ("-m", "moldau")) -> None:
        self._log_path = folder / "log"
        self._log_start = self._log_path.stat().st_size if self._log_path.exists() else 0
        command = [sys.executable, *program, "serve", "--exit-with-stdin", "--data-dir", str(folder / "data")]
        self.process = ServerProcess([*command, "--listen", "127.0.0.1:0", *options], self._log_path)
        self.addresses = self.process.wait_ready(_TIMEOUT_S).split(",")

    def log(self) -> str:
        """What this run has logged."""
        return self._log_path.read_bytes()[self._log_start :].decode()

    def pids(self) -> list[tuple[int, int]]:
        """Broker and process, in the order in which they have become ready."""
        found = re.findall(r"Broker (\d+) is ready: \S+, process (\d+)", self.log())
        return [(int(broker), int(pid)) for broker, pid in found]

    def wait_for_ready(self, count: int) -> None:
        """Return when brokers have become ready this many times."""
        wait_until(lambda: len(self.pids()) >= count)
