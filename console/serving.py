"""The socket and the end of a process that serves HTTP: of the console, and of the registry."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import threading
from typing import TYPE_CHECKING, Final

from ..cli.failure import Failure
from ..cli.listen_address import parse_address

if TYPE_CHECKING:
    from uvicorn import Server
_REASONS: Final = {
    errno.EADDRINUSE: "the address is in use; use another one with --listen HOST:PORT (port 0 selects a free port)",
    errno.EACCES: "no permission; use a port above 1023",
}


def listen_on(address: str) -> socket.socket:
    """A listening socket at the address of ``--listen``. Raises BadParameter, Failure."""
    host, port = parse_address(address, "--listen")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        code = error.errno or 0
        # create_server appends the address to the text of a system error.
        text = os.strerror(code) if code in errno.errorcode else error.strerror or str(error)
        reason = _REASONS.get(code, text)
        raise Failure(f"cannot listen on {address}: {reason}") from None


def url_of(listening: socket.socket, address: str) -> str:
    """Where the socket is reached, with the host of ``--listen`` and the actual port."""
    host, _ = parse_address(address, "--listen")
    return f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"


def is_loopback(listening: socket.socket) -> bool:
    return ipaddress.ip_address(listening.getsockname()[0]).is_loopback


def serve(server: Server, listening: socket.socket, *, exit_with_stdin: bool) -> None:
    """Serve until a signal, or until standard input is closed: the parent process has ended."""
    if exit_with_stdin:
        threading.Thread(target=_exit_with_stdin, args=(server,), name="stdin", daemon=True).start()
    server.run(sockets=[listening])


def _exit_with_stdin(server: Server) -> None:
    while os.read(0, 4096):
        pass
    server.should_exit = True
