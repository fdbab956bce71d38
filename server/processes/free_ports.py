"""Free TCP ports for servers that are started later, in other processes.

After a port was chosen and before its server listens, the kernel may assign the port to another process. On Linux, a
socket that is bound but does not listen prevents that: the kernel does not assign its port to a socket that requests
any free port. A server with SO_REUSEADDR can still listen on it, also after restarts.
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
        """Release the ports: the kernel may assign them to other processes."""
        while self._reserved:
            self._reserved.pop().close()
