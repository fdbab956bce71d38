"""Opens many TLS connections: each has its handshake, and the response to an ApiVersions request.

One thread opens them, with a limited number at the same time: a server's queue of new connections is short (Apache
Kafka: 50), and a connection that does not fit into it is retried after a second.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import time
from pathlib import Path

_PATIENCE_SECONDS = 60.0
_RECEIVE_BYTES = 1 << 16


def open_connections(address: str, ca_file: Path, count: int, *, in_flight: int, greeting: bytes) -> float:
    """Open ``count`` connections, each of which sends ``greeting``, and close them when the last one has its response.
    Returns the elapsed seconds until then."""
    host, port = address.rsplit(":", 1)
    context = ssl.create_default_context(cafile=str(ca_file))
    opened: list[_Connection] = []
    began = time.perf_counter()
    try:
        with selectors.DefaultSelector() as selector:
            served = 0
            while served < count:
                while len(opened) < count and len(opened) - served < in_flight:
                    connection = _Connection(context, (host, int(port)), greeting)
                    opened.append(connection)
                    wanted = connection.step()
                    if wanted:
                        selector.register(connection.socket, wanted, connection)
                    else:  # this process was suspended, and everything has arrived meanwhile
                        served += 1
                ready = selector.select(_PATIENCE_SECONDS) if len(opened) > served else []
                if not ready and len(opened) > served:
                    raise TimeoutError(f"{served} of {count} connections were served, and then none")
                for key, _events in ready:
                    wanted = key.data.step()
                    if wanted:
                        selector.modify(key.fileobj, wanted, key.data)
                    else:
                        selector.unregister(key.fileobj)
                        served += 1
        return time.perf_counter() - began
    finally:
        for connection in opened:
            connection.socket.close()


class _Connection:
    """One connection, until its first response."""

    def __init__(self, context: ssl.SSLContext, address: tuple[str, int], greeting: bytes) -> None:
        plain = socket.create_connection(address)
        plain.setblocking(False)
        self.socket = context.wrap_socket(plain, server_hostname=address[0], do_handshake_on_connect=False)
        self._greeting = greeting
        self._is_connected = False
        self._received = b""

    def step(self) -> int:
        """Continue as far as possible; returns the events to wait for, 0 after the response."""
        try:
            if not self._is_connected:
                self.socket.do_handshake()
                self._is_connected = True
                self.socket.sendall(self._greeting)  # a new connection has room for it
            while len(self._received) < 4 or len(self._received) < 4 + int.from_bytes(self._received[:4], "big"):
                piece = self.socket.recv(_RECEIVE_BYTES)
                if not piece:
                    raise ConnectionError("the server closed a connection")
                self._received += piece
        except ssl.SSLWantReadError:
            return selectors.EVENT_READ
        except ssl.SSLWantWriteError:
            return selectors.EVENT_WRITE
        return 0
