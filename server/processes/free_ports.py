"""Free TCP ports for servers that are started later, in other processes.

Between the choice of a port and the start of its server, another process may be given the port. On Linux, a socket that
is bound and does not listen prevents that: the kernel gives the port to no one who asks for any port, and a server with
SO_REUSEADDR can still listen on it, as often as it is restarted.
"""

from __future__ import annotations

import socket
import sys
from typing import Final

_CAN_RESERVE: Final = sys.platform == "linux"


class FreePorts:
    """Finds free ports, and reserves them until `close`."""

    def __init__(self) -> None:
        self._reserved: list[socket.socket] = []

    def __call__(self, host: str, port: int) -> int:
        """The port if it is free on the host, otherwise another one that is free. Port 0: any free one."""
        for candidate in dict.fromkeys((port, 0)):
            family, _, _, _, address = socket.getaddrinfo(
                host or None, candidate, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            probe = socket.socket(family, socket.SOCK_STREAM)
            self._reserved.append(probe)
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(address)
            except OSError:
                self._reserved.remove(probe)
                probe.close()
                continue
            found = int(probe.getsockname()[1])
            if not _CAN_RESERVE:
                self.close()
            return found
        return port  # the server reports why it cannot listen

    def close(self) -> None:
        """Other processes may be given the ports from now on."""
        while self._reserved:
            self._reserved.pop().close()
