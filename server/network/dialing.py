"""Opens outgoing connections without blocking the event loop.

`Dialer` is the port: it opens a `Stream`, or reports the error. `SocketDialer` uses TCP. The twin in memory for tests
and simulations is `moldau.testing.memory_dialer`; one set of tests runs on both.

A host name is resolved in a thread, and its addresses are tried one after the other. With TLS, the handshake is part of
the attempt: its steps run when the socket is ready, and take less than a millisecond. A connection can connect to
itself: Linux may select the destination as the source port if nothing listens there. A server that restarts could then
not bind its own port, so such a connection counts as refused.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from .transport import TRANSPORTS, SendFirst, Transport

if TYPE_CHECKING:
    import asyncio

    from ..concurrency.background import JobExecutor
    from ..concurrency.event_loop import Callback, Readiness
    from ..concurrency.turns import Turns


class Address(NamedTuple):
    """Where a peer listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Stream(Protocol):
    """An open connection: a transport, and notifications when it is ready."""

    transport: Transport

    def on_readable(self, callback: Callback) -> None:
        """From now on, call ``callback`` whenever data, an error or the end of the data can be received."""

    def on_writable(self, callback: Callback | None) -> None:
        """Call ``callback`` whenever data can be sent; None: no longer."""

    def close(self) -> None:
        """Close the connection. No callback is called afterwards."""


Dialed = Callable[[Stream | OSError], None]


class SecureTransport(Transport, Protocol):
    """A transport that must complete a handshake first; see `tls_client.TlsClientTransport`."""

    def shake_hands(self) -> None:
        """Continue the handshake, and return when it is complete."""


Secure = Callable[[socket.socket, str], SecureTransport]
"""Creates the transport of a connection to this host. Raises OSError."""


class Dialer(Protocol):
    """Opens connections."""

    def dial(self, address: Address, done: Dialed, secure: Secure | None = None) -> Callable[[], None]:
        """Open a connection. ``done`` is called once, later. The returned function cancels the attempt.

        ``secure``: None opens a connection without TLS.
        """


class SocketDialer:
    """Opens TCP connections."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        readiness: Readiness,
        turns: Turns,
        resolver: JobExecutor,
    ) -> None:
        """``resolver`` runs the look-ups of names."""
        self.loop = loop
        self.readiness = readiness
        self.turns = turns
        self.resolver = resolver

    def dial(self, address: Address, done: Dialed, secure: Secure | None = None) -> Callable[[], None]:
        """See `Dialer.dial`."""
        return _Attempt(self, address, done, secure).cancel


_Candidate = tuple[int, tuple[str, int] | tuple[str, int, int, int]]


class _Attempt:
    """One attempt to connect: the look-up, one address after the other, and the TLS handshake."""

    def __init__(self, dialer: SocketDialer, address: Address, done: Dialed, secure: Secure | None) -> None:
        self._dialer = dialer
        self._host = address.host
        self._done: Dialed | None = done
        self._secure = secure
        self._securing: SecureTransport | None = None  # during its handshake
        self._sock: socket.socket | None = None
        self._candidates: list[_Candidate] = []
        self._error = OSError(errno.EADDRNOTAVAIL, "the host name has no address")
        numeric = _numeric(address)
        if numeric is not None:
            self._candidates.append(numeric)
            dialer.loop.call_soon(self._next)
        else:
            lookup = dialer.resolver.run(partial(_resolve, address))
            lookup.add_done_callback(self._resolved)

    def cancel(self) -> None:
        """Give up; ``done`` is not called."""
        self._done = None
        self._drop()

    def _drop(self) -> None:
        sock, self._sock = self._sock, None
        if sock is not None:
            self._dialer.readiness.remove_writer(sock.fileno())
            if self._securing is not None:
                self._dialer.readiness.remove_reader(sock.fileno())
                self._dialer.turns.closed(sock.fileno())
                self._securing = None
            sock.close()

    def _resolved(self, lookup: asyncio.Future[list[_Candidate]]) -> None:
        if lookup.cancelled():
            self._error = OSError(errno.ECANCELED, "the server is stopping")
        else:
            error = lookup.exception()
            if error is None:
                self._candidates = lookup.result()[::-1]
            elif isinstance(error, OSError):
                self._error = error
            else:  # a name that cannot be encoded
                self._error = OSError(errno.EINVAL, f"the host name is invalid: {error}")
        self._next()

    def _next(self) -> None:
        """Try the next address."""
        while self._done is not None and self._candidates:
            family, address = self._candidates.pop()
            try:
                sock = socket.socket(family, socket.SOCK_STREAM)
            except OSError as error:
                self._error = error
                continue
            self._sock = sock
            try:
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                code = sock.connect_ex(address)
                if code not in (0, errno.EINPROGRESS):
                    raise OSError(code, os.strerror(code))
            except (OSError, OverflowError) as error:
                self._failed(error if isinstance(error, OSError) else OSError(errno.EINVAL, str(error)))
                continue
            self._dialer.readiness.add_writer(sock.fileno(), self._connected)
            return
        self._end(self._error)

    def _end(self, result: Stream | OSError) -> None:
        if self._done is not None:
            done, self._done = self._done, None
            done(result)

    def _failed(self, error: OSError) -> None:
        self._error = error
        self._drop()

    def _connected(self) -> None:
        sock = self._sock
        assert sock is not None
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if not code and is_connected_to_itself(sock):
            code = errno.ECONNREFUSED
        if code:
            self._failed(OSError(code, os.strerror(code)))
            self._next()
            return
        self._dialer.readiness.remove_writer(sock.fileno())
        if self._secure is None:
            self._sock = None
            self._end(_SocketStream(sock.fileno(), TRANSPORTS["PLAINTEXT"](sock), self._dialer))
            return
        try:
            self._securing = self._secure(sock, self._host)
        except OSError as error:
            self._failed(error)
            self._end(error)
            return
        self._shake_hands()

    def _shake_hands(self) -> None:
        """Continue the handshake, and wait for the socket until it is complete. Other addresses would fail as well."""
        sock, transport, readiness = self._sock, self._securing, self._dialer.readiness
        assert sock is not None
        assert transport is not None
        try:
            transport.shake_hands()
        except SendFirst:
            readiness.add_writer(sock.fileno(), self._shake_hands)
        except (BlockingIOError, InterruptedError):
            readiness.remove_writer(sock.fileno())
            readiness.add_reader(sock.fileno(), self._shake_hands)
        except OSError as error:
            self._failed(error)
            self._end(error)
        else:
            readiness.remove_reader(sock.fileno())
            readiness.remove_writer(sock.fileno())
            self._sock = self._securing = None
            self._end(_SocketStream(sock.fileno(), transport, self._dialer))


class _SocketStream:
    """A connected socket."""

    def __init__(self, fd: int, transport: Transport, dialer: SocketDialer) -> None:
        self.transport = transport
        self._fd = fd
        self._readiness = dialer.readiness
        self._turns = dialer.turns

    def on_readable(self, callback: Callback) -> None:
        self._readiness.add_reader(self._fd, callback)

    def on_writable(self, callback: Callback | None) -> None:
        if callback is None:
            self._readiness.remove_writer(self._fd)
        else:
            self._readiness.add_writer(self._fd, callback)

    def close(self) -> None:
        self._readiness.remove_reader(self._fd)
        self._readiness.remove_writer(self._fd)
        self._turns.closed(self._fd)
        self.transport.close()


def is_connected_to_itself(sock: socket.socket) -> bool:
    """Whether both ends of a connection are the same socket; see the module docstring."""
    try:
        return bool(sock.getsockname() == sock.getpeername())
    except OSError:  # already disconnected
        return False


def _numeric(address: Address) -> _Candidate | None:
    """The candidate of a numeric address; None for a name."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, address.host)
        except (OSError, ValueError):
            continue
        return family, (address.host, address.port)
    return None


def _resolve(address: Address) -> list[_Candidate]:
    """Look up a name. Runs in a thread."""
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    return [(family, target) for family, _, _, _, target in found]  # type: ignore[misc]  # a stream has these addresses
