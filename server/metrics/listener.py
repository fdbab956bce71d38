"""The HTTP listener of metrics: `/metrics`, `/healthz` and `/readyz`, in a thread with its own sockets.

The port may be reachable by strangers, so each resource is bounded: the number of connections, the size of a request,
the time for a request and for a response, and the CPU time for scrapes. A response ends its connection. If there are
too many connections, the oldest one without a complete request is closed, or else the oldest one that does not read its
response: a client that sends its request immediately is served, whatever other clients do.

All scrapes of a dialect that arrive while its metrics are being built get the same text. Building takes turns with the
event loop of the server (`pace`), and between its pieces this thread serves its sockets. After a build that took some
CPU time, the text is reused for `_REUSE` times as long, so that the scrapes of a dialect use at most a tenth of a core.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import logging
import selectors
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Final, Protocol
from urllib.parse import parse_qs, urlsplit

from .families import CONTENT_TYPE, DIALECTS
from .pace import PAUSE_S, WORK_S, monotonic, pause, thread_cpu

logger = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 32
MAX_REQUEST_BYTES: Final = 8192
REQUEST_S: Final = 10.0
RESPONSE_S: Final = 60.0
HEALTH_S: Final = 5.0

_LINGER_S: Final = 2.0
_ACCEPT_PAUSE_S: Final = 0.5
_SEND_BYTES: Final = 256 * 1024
_REUSE: Final = 9
_TEXT: Final = "text/plain; charset=utf-8"
_PATHS: Final = ("/metrics", "/healthz", "/readyz")

_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class MetricsError(Exception):
    """The address of the metrics cannot be used. The message is for the user."""


class Source(Protocol):
    """What the listener serves. Its methods are called in the listener's thread."""

    def unready(self) -> str | None:
        """Why the server does not serve clients; None if it does."""

    def check(self, alive: Callable[[], None]) -> bool:
        """Have the event loop of the server call ``alive``. Returns False if the loop is not running yet."""

    def text(self, dialect: str) -> Iterator[str]:
        """The metrics, in small pieces of text, which may be empty."""


class _Phase(enum.Enum):
    READING = enum.auto()
    WAITING = enum.auto()  # for the metrics, or for the event loop
    SENDING = enum.auto()
    LINGERING = enum.auto()  # until the peer has closed the connection: unread data would discard the response


_DISPLACED: Final = (_Phase.READING, _Phase.LINGERING, _Phase.SENDING)
"""Connections in these phases are closed if there are too many: in this order, the oldest one first."""


class _Connection:
    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self.sock = sock
        self.deadline = deadline
        self.phase = _Phase.READING
        self.received = bytearray()
        self.head_only = False
        self.head = memoryview(b"")
        self.body = memoryview(b"")


class _Build:
    """The metrics of a dialect, which are being built."""

    def __init__(self, pieces: Iterator[str]) -> None:
        self.pieces = pieces
        self.text = bytearray()
        self.waiting: list[_Connection] = []
        self.cpu_s = 0.0


class MetricsListener:
    """See the module docstring."""

    def __init__(self, host: str, port: int, source: Source) -> None:
        """Bind. Raises `MetricsError`."""
        self._source = source
        self._sock = _bind(host, port)
        name = self._sock.getsockname()
        self.host, self.port = str(name[0]), int(name[1])
        self._selector = selectors.DefaultSelector()
        self._connections: dict[int, _Connection] = {}  # in the order of their arrival
        self._builds: dict[str, _Build] = {}
        self._built: dict[str, tuple[float, bytes]] = {}  # until when it is reused, and the text
        self._checking: list[_Connection] = []  # connections that wait for the event loop of the server
        self._is_alive = False
        self._closing = False
        self._worked_s = 0.0  # since the last pause
        self._accepts_at: float | None = None  # after a pause: no descriptor was free
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)

    @property
    def address(self) -> str:
        """`HOST:PORT`, with the port that was selected for port 0."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def start(self) -> None:
        """Serve. Raises `MetricsError` if no thread can be started."""
        try:
            self._thread.start()
        except RuntimeError as error:
            self._release()
            raise MetricsError(f"The metrics need a thread: {error}") from error

    def close(self) -> None:
        """Close all sockets, and return when the thread has ended."""
        self._closing = True
        self._wake()
        if self._thread.is_alive():
            self._thread.join()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # full: it will wake up
            self._waker.send(b"\0")

    def _alive(self) -> None:
        """Called by the event loop of the server."""
        if not self._closing:
            self._is_alive = True
            self._wake()

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._selector.register(self._sock, selectors.EVENT_READ, None)
            self._selector.register(self._woken, selectors.EVENT_READ, None)
            while not self._closing:
                self._step()
        except Exception:
            logger.exception("Metrics are no longer served because of an unexpected error")
        finally:
            self._release()

    def _step(self) -> None:
        ready = self._selector.select(self._timeout())
        began = monotonic()
        for key, _ in ready:
            if key.fileobj is self._sock:
                self._accept()
            elif key.fileobj is self._woken:
                self._woken.recv(4096)
            elif (connection := self._connections.get(key.fd)) is not None and connection is key.data:
                self._ready(connection)  # unless a connection that was accepted just now has displaced it
        if self._is_alive:
            self._is_alive = False
            checked, self._checking = self._checking, []
            for connection in checked:
                self._respond(connection, 200, "ok\n")
        self._expire()
        for dialect in list(self._builds):
            self._build(dialect)
        self._worked_s += monotonic() - began
        if self._worked_s >= WORK_S:
            self._worked_s = 0.0
            pause(PAUSE_S)  # also if clients send requests without a pause

    def _timeout(self) -> float | None:
        if self._builds:
            return 0.0
        deadlines = [connection.deadline for connection in self._connections.values()]
        if self._accepts_at is not None:
            deadlines.append(self._accepts_at)
        return max(0.0, min(deadlines) - monotonic()) if deadlines else None

    def _release(self) -> None:
        for connection in list(self._connections.values()):
            self._close(connection)
        self._selector.close()
        self._sock.close()
        self._woken.close()
        self._waker.close()

    def _accept(self) -> None:
        try:
            sock, _ = self._sock.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                raise
            self._selector.unregister(self._sock)
            self._accepts_at = monotonic() + _ACCEPT_PAUSE_S
            return
        if len(self._connections) >= MAX_CONNECTIONS:
            displaced = self._displaced()
            if displaced is None:
                sock.close()
                return
            self._close(displaced)
        sock.setblocking(False)
        connection = _Connection(sock, monotonic() + REQUEST_S)
        self._connections[sock.fileno()] = connection
        self._selector.register(sock, selectors.EVENT_READ, connection)

    def _displaced(self) -> _Connection | None:
        """The connection that is closed for a new one; None if all wait for the metrics or the event loop."""
        for phase in _DISPLACED:
            for connection in self._connections.values():
                if connection.phase is phase:
                    return connection
        return None

    def _expire(self) -> None:
        now = monotonic()
        if self._accepts_at is not None and self._accepts_at <= now:
            self._accepts_at = None
            self._selector.register(self._sock, selectors.EVENT_READ, None)
        for connection in [each for each in self._connections.values() if each.deadline <= now]:
            if connection in self._checking:
                self._checking.remove(connection)
                self._respond(connection, 503, f"the event loop has not responded for {HEALTH_S:g} s\n")
            else:
                self._close(connection)

    def _close(self, connection: _Connection) -> None:
        self._connections.pop(connection.sock.fileno(), None)
        with contextlib.suppress(KeyError):  # it waits, and is not registered
            self._selector.unregister(connection.sock)
        for waiting in (self._checking, *(build.waiting for build in self._builds.values())):
            if connection in waiting:
                waiting.remove(connection)
        connection.sock.close()

    def _ready(self, connection: _Connection) -> None:
        try:
            match connection.phase:
                case _Phase.READING:
                    self._read(connection)
                case _Phase.SENDING:
                    self._send(connection)
                case _:
                    if not connection.sock.recv(65_536):
                        self._close(connection)
        except BlockingIOError:
            return
        except OSError as error:
            logger.debug("A connection for metrics has failed: %s", error)
            self._close(connection)

    # -- requests ------------------------------------------------------------------------------------------------------

    def _read(self, connection: _Connection) -> None:
        data = connection.sock.recv(MAX_REQUEST_BYTES + 1 - len(connection.received))
        if not data:
            self._close(connection)
            return
        connection.received += data
        end = connection.received.find(b"\r\n\r\n")
        if end >= 0:
            self._request(connection, bytes(connection.received[:end]))
        elif len(connection.received) > MAX_REQUEST_BYTES:
            self._respond(connection, 431, f"a request has at most {MAX_REQUEST_BYTES} bytes\n")

    def _request(self, connection: _Connection, head: bytes) -> None:
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            self._respond(connection, 400, "the request is not HTTP/1.1\n")
            return
        method, target, _ = words
        connection.head_only = method == "HEAD"
        try:
            url = urlsplit(target)
            query = parse_qs(url.query, max_num_fields=16)
        except ValueError:
            self._respond(connection, 400, "the path of the request is invalid\n")
            return
        if url.path not in _PATHS:
            self._respond(connection, 404, f"the paths are {', '.join(_PATHS)}\n")
        elif method not in ("GET", "HEAD"):
            self._respond(connection, 405, "the methods are GET and HEAD\n", "Allow: GET, HEAD\r\n")
        elif url.path == "/healthz":
            self._check_health(connection)
        elif url.path == "/readyz":
            reason = self._source.unready()
            self._respond(connection, 200 if reason is None else 503, f"{reason or 'ok'}\n")
        else:
            self._scrape(connection, query.get("dialect", [DIALECTS[0]])[-1])

    def _check_health(self, connection: _Connection) -> None:
        if not self._checking and not self._source.check(self._alive):
            self._respond(connection, 200, "starting\n")
            return
        self._checking.append(connection)
        self._wait(connection, HEALTH_S)

    def _wait(self, connection: _Connection, seconds: float) -> None:
        connection.phase = _Phase.WAITING
        connection.deadline = monotonic() + seconds
        self._selector.unregister(connection.sock)  # the peer may have ended its side, which is no reason to close

    def _scrape(self, connection: _Connection, dialect: str) -> None:
        if dialect not in DIALECTS:
            self._respond(connection, 400, f"the dialects are {', '.join(DIALECTS)}\n")
            return
        until, text = self._built.get(dialect, (0.0, b""))
        if monotonic() < until:
            self._start_response(connection, 200, text, CONTENT_TYPE)
            return
        build = self._builds.get(dialect)
        if build is None:
            build = self._builds[dialect] = _Build(self._source.text(dialect))
        build.waiting.append(connection)
        self._wait(connection, RESPONSE_S)

    def _build(self, dialect: str) -> None:
        """Build a piece of the metrics."""
        build = self._builds[dialect]
        cpu = thread_cpu()
        until = monotonic() + WORK_S
        ended = False
        try:
            while not ended and monotonic() < until:
                piece = next(build.pieces, None)
                if piece is None:
                    ended = True
                else:
                    build.text += piece.encode()
        except Exception:
            logger.exception("Metrics cannot be built because of an unexpected error")
            del self._builds[dialect]
            for connection in list(build.waiting):
                self._respond(connection, 500, "internal error; see the server log\n")
            return
        build.cpu_s += thread_cpu() - cpu
        if not ended:
            return
        del self._builds[dialect]
        text = bytes(build.text)
        self._built[dialect] = (monotonic() + _REUSE * build.cpu_s, text)
        for connection in list(build.waiting):
            self._start_response(connection, 200, text, CONTENT_TYPE)

    # -- responses -----------------------------------------------------------------------------------------------------

    def _respond(self, connection: _Connection, status: int, text: str, headers: str = "") -> None:
        self._start_response(connection, status, text.encode(), _TEXT, headers)

    def _start_response(
        self, connection: _Connection, status: int, body: bytes, content_type: str, headers: str = ""
    ) -> None:
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
            f"Connection: close\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n{headers}\r\n"
        )
        connection.head = memoryview(head.encode())
        connection.body = memoryview(b"" if connection.head_only else body)
        if connection.phase is _Phase.WAITING:
            self._selector.register(connection.sock, selectors.EVENT_WRITE, connection)
        else:
            self._selector.modify(connection.sock, selectors.EVENT_WRITE, connection)
        connection.phase = _Phase.SENDING
        connection.deadline = monotonic() + RESPONSE_S

    def _send(self, connection: _Connection) -> None:
        while connection.head:
            connection.head = connection.head[connection.sock.send(connection.head) :]
        if connection.body:
            connection.body = connection.body[connection.sock.send(connection.body[:_SEND_BYTES]) :]
        if not connection.body:
            connection.sock.shutdown(socket.SHUT_WR)
            connection.phase = _Phase.LINGERING
            connection.deadline = monotonic() + _LINGER_S
            self._selector.modify(connection.sock, selectors.EVENT_READ, connection)


def parse_address(text: str) -> tuple[str, int]:
    """The host and the port of `HOST:PORT`. Raises `MetricsError`."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise MetricsError(
            f"moldau.metrics.listener={text} is not HOST:PORT, such as 127.0.0.1:9404 (port 0 selects a free port)."
        )
    return host.removeprefix("[").removesuffix("]"), int(port)


def _bind(host: str, port: int) -> socket.socket:
    where = f"{host}:{port}"
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except OSError as error:
        raise MetricsError(f"Cannot serve metrics on {where}: {error.strerror or error}.") from None
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen()
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise MetricsError(
                f"Cannot serve metrics on {where}: the address is in use. Use another one with --metrics HOST:PORT "
                "(port 0 selects a free port)."
            ) from None
        if error.errno == errno.EACCES:
            raise MetricsError(f"Cannot serve metrics on {where}: no permission; use a port above 1023.") from None
        raise MetricsError(f"Cannot serve metrics on {where}: {error.strerror or error}.") from None
    return sock
