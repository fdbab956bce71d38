"""``moldau serve --console``: the web console as a child process, which ends with the server.

The child's standard input is a pipe that only the server holds, so the console also ends when the server is killed.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..config.definition import ConfigError

if TYPE_CHECKING:
    from ..config.broker_config import BrokerConfig

_EXIT_TIMEOUT_S: Final = 5.0
_NEEDED: Final = ("jinja2", "starlette", "uvicorn")


class ServedConsole:
    """The console of a server, from `start` to `close`."""

    def __init__(self, listen: str, config: BrokerConfig, options: Mapping[str, list[str]]) -> None:
        """Raises ConfigError if the console could not run, or could not connect."""
        missing = [name for name in _NEEDED if find_spec(name) is None]
        if missing:
            raise ConfigError(f"--console needs {', '.join(missing)}; install with: pip install 'moldau[console]'")
        self._listen = listen
        self._properties = _client_properties(config, options)
        self._control = options.get("--control", [None])[0]
        self._child: subprocess.Popen[bytes] | None = None

    def start(self, bootstrap_servers: str) -> None:
        # -P: modules in the working directory of the user do not replace those of Python.
        command = [sys.executable, "-P", "-m", "moldau", "console", "--exit-with-stdin"]
        command += ["--listen", self._listen, "-b", bootstrap_servers]
        if self._properties is not None:
            command += ["--command-config", str(self._properties)]
        if self._control is not None:
            command += ["--control", self._control]
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE)

    def close(self) -> None:
        if self._child is None:
            return
        assert self._child.stdin is not None
        self._child.stdin.close()
        try:
            self._child.wait(_EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()


def _client_properties(config: BrokerConfig, options: Mapping[str, list[str]]) -> Path | None:
    """The file with the login of the console; None for a listener that needs none. Raises ConfigError."""
    if "--secure" in options:
        from .serve_secure import PROPERTIES, folder_of

        return folder_of(config) / PROPERTIES
    listener = config.listeners[0]
    protocol = listener.security_protocol
    if protocol != "PLAINTEXT":
        raise ConfigError(
            f"--console cannot log in to the {protocol} listener {listener.name}; start `moldau console` with "
            "--command-config instead"
        )
    return None
