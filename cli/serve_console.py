"""``moldau serve --console``: the web console as a child process, which ends with the server, also a killed one."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ..config.definition import ConfigError
from ..server.processes.piped_child import PipedChild
from .listen_address import parse_address

if TYPE_CHECKING:
    from ..config.broker_config import BrokerConfig

_NEEDED: Final = ("cbor2", "jinja2", "msgpack", "starlette", "uvicorn")


class ServedConsole:
    """The console of a server, from `start` to `close`."""

    def __init__(self, listen: str, config: BrokerConfig, options: Mapping[str, list[str]]) -> None:
        """Raises ConfigError if the console could not run, or could not connect."""
        missing = [name for name in _NEEDED if find_spec(name) is None]
        if missing:
            raise ConfigError(f"--console needs {', '.join(missing)}; install with: pip install 'moldau[console]'")
        try:
            parse_address(listen, "--console")
        except click.BadParameter as problem:
            raise ConfigError(f"--console: {problem.message}, such as 127.0.0.1:8080") from None
        self._listen = listen
        self._properties = _client_properties(config, options)
        self._control = options.get("--control", [None])[0]
        self._child: PipedChild | None = None

    def start(self, bootstrap_servers: str) -> None:
        arguments = ["console", "--listen", self._listen, "-b", bootstrap_servers]
        if self._properties is not None:
            arguments += ["--command-config", str(self._properties)]
        if self._control is not None:
            arguments += ["--control", self._control]
        self._child = PipedChild(arguments)

    def close(self) -> None:
        if self._child is not None:
            self._child.close()


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
