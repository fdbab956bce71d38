"""Listening sockets and the connections that they accept.

A listener has a `Security`, which determines how its connections send and receive (`transport`), and how their peers
are identified (`authentication`). A connection whose peer does not authenticate in time is closed.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import weakref
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final, Protocol

from ...security.quotas import CONNECTION_CREATION_RATE
from ..concurrency.background import Background
from ..concurrency.event_loop import hang_ups_of, readiness_of, turns_of
from ..concurrency.timers import TimerWheel
from .authentication import ANONYMOUS, Authentication
from .connection import Connection
from .connection_limits import ConnectionLimits, Limits
from .frames import FrameHandler
from .memory import MemoryBudget
from .peer_log import Pace, PeerLog
from .read_ahead import ReadAhead
from .sending import OUTGOING_BYTES
from .spare_frames import SpareFrames
from .transport import TRANSPORTS, Transport
from .unread_responses import UnreadResponses
from .unserved import Unserved

logger = logging.getLogger(__name__)

# Connections are accepted in batches: a burst costs one iteration of the event loop, and a flood leaves time for
# requests.
ACCEPTS_PER_EVENT = 64
# Without a free descriptor, accepting is retried after this time. Waiting connections stay in the kernel's queue.
ACCEPT_PAUSE_MS = 500
# The congestion control of local connections: it never paces, and Linux lets every process select it. BBR, if it is the
# system's default, paces 1 MB with timers, which cost CPU time (docs/decisions/0020).
LOCAL_CONGESTION_CONTROL = b"reno"
# The unsent response bytes that the kernel may hold for all connections together, as far as they can be bounded when a
# connection is accepted. A new connection gets an equal share of them (docs/decisions/0026).
UNSENT_BYTES = 128 * 1024 * 1024
# A larger share would have no effect: by default, Linux lets no send buffer grow further (`net.ipv4.tcp_wmem`).
MAX_UNSENT_BYTES = 4 * 1024 * 1024
# A smaller share would not reduce the memory further: the kernel accepts this many bytes in one step.
MIN_UNSENT_BYTES = 64 * 1024


class Security(Protocol):
    """The security of a listener, by its security protocol and its settings."""

    def accept(self, sock: socket.socket, /) -> tuple[Transport, Authentication]:
        """The transport and the authentication state of a new connection. Raises OSError."""


class Plaintext:
    """Neither encryption nor authentication."""

    def accept(self, sock: socket.socket, /) -> tuple[Transport, Authentication]:
        """See `Security`."""
        return TRANSPORTS["PLAINTEXT"](sock), ANONYMOUS


PLAINTEXT: Final = Plaintext()


class Listener:
    """One listening socket."""

    def __init__(
        self, network: Network, name: str, sock: socket.socket, security: Security, *, is_listening: bool = True
    ) -> None:
        self._network = network
        self._sock = sock
        self._is_listening = is_listening
        self.name = name
        self.security = security
        self._waits = False  # until another connection is closed
        address = sock.getsockname()
        self.host = str(address[0])
        self.port = int(address[1])

    def start(self) -> None:
        """Start accepting connections.

        Raises:
            OSError: the socket was only bound, and another process listens on its address now.
        """
        if not self._is_listening:
            self._sock.listen(self._network.backlog)
            self._is_listening = True
        self._network.loop.add_reader(self._sock.fileno(), self._on_acceptable)

    def close(self) -> None:
        """Stop accepting connections."""
        if self._sock.fileno() >= 0:
            self._network.loop.remove_reader(self._sock.fileno())
            self._sock.close()

    def _on_acceptable(self) -> None:
        counts = self._network.counts
        now_ms = int(self._network.loop.time() * 1000)
        for _ in range(ACCEPTS_PER_EVENT):
            if counts.is_full(self.name):
                self._waits = True
                self._network.loop.remove_reader(self._sock.fileno())
                return
            wait_ms = counts.wait_ms(self.name, now_ms)
            if wait_ms > 0:
                self._network.loop.remove_reader(self._sock.fileno())
                self._network.timers.call_after(wait_ms, self._accept_again)
                return
            try:
                sock, _address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    raise
                address = f"{self.host}:{self.port}"
                self._network.peer_log.log(
                    logging.ERROR, address, "cannot accept",
                    f"Cannot accept a connection on {address}: {error.strerror}. "
                    "Raise the limit of open files (ulimit -n).",
                )  # fmt: skip
                self._network.loop.remove_reader(self._sock.fileno())
                self._network.timers.call_after(ACCEPT_PAUSE_MS, self._accept_again)
                return
            counts.accepted(self.name, now_ms)
            self._network.connected(sock, self)

    def accept_waiting(self) -> None:
        """There may be room for connections that wait because of a limit."""
        if self._waits and not self._network.counts.is_full(self.name):
            self._waits = False
            self._accept_again()

    def _accept_again(self) -> None:
        if self._sock.fileno() >= 0:
            self.start()


class Network:
    """All sockets of one server, and the state that its connections share."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        timers: TimerWheel,
        dispatcher: FrameHandler,
        background: Background,
        *,
        max_request_bytes: int,
        queued_max_request_bytes: int,
        max_idle_ms: int,
        backlog: int,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
        authentication_timeout_ms: int = 0,
        pace: Pace | None = None,
    ) -> None:
        """``authentication_timeout_ms``: how long a peer may take to authenticate; 0 is unlimited. ``pace``: that of
        the other networks of the node."""
        self.loop = loop
        self.readiness = readiness_of(loop)
        self.hang_ups = hang_ups_of(loop)
        self.turns = turns_of(loop)
        self.timers = timers
        self.dispatcher = dispatcher
        self.max_request_bytes = max_request_bytes
        self.max_idle_ms = max_idle_ms
        self.budget = MemoryBudget(queued_max_request_bytes, timers, loop.time, largest_frame=max_request_bytes)
        self.unread = UnreadResponses(loop.call_soon)
        self.spare_frames = SpareFrames()
        self.unserved = Unserved()
        self.outgoing = memoryview(bytearray(OUTGOING_BYTES))
        self.read_ahead = ReadAhead(background)
        self.pace = pace or Pace(loop.time)
        self.peer_log = PeerLog(logging.getLogger(Connection.__module__), timers, loop.time, pace=self.pace)
        self.listeners: list[Listener] = []
        self.connections: dict[Connection, None] = {}  # a set in the order of arrival
        self.counts = ConnectionLimits()
        self._throttled: set[socket.socket] = set()  # they will be closed
        self._backlog = backlog
        self._send_buffer_bytes = send_buffer_bytes
        self._receive_buffer_bytes = receive_buffer_bytes
        self._authentication_timeout_ms = authentication_timeout_ms
        self._drained: asyncio.Event | None = None

    @property
    def backlog(self) -> int:
        """How many connections may wait to be accepted."""
        return self._backlog if self._backlog > 0 else socket.SOMAXCONN

    def listen(
        self, name: str, host: str, port: int, security: Security = PLAINTEXT, *, refuse_until_start: bool = False
    ) -> Listener:
        """Bind and listen. Connections are not accepted before `Listener.start`. Until then they wait or, with
        ``refuse_until_start``, they are refused.

        Raises:
            OSError: the address is in use, or does not belong to this machine.
        """
        sock = self.bound_socket(host, port, listen=not refuse_until_start)
        return self.add(name, sock, security, is_listening=not refuse_until_start)

    def add(self, name: str, sock: socket.socket, security: Security, *, is_listening: bool = True) -> Listener:
        """A listener with a socket of `bound_socket`."""
        listener = Listener(self, name, sock, security, is_listening=is_listening)
        self.listeners.append(listener)
        return listener

    def remove(self, name: str, grace_ms: int) -> None:
        """Close a listener, and its connections when their pending responses are sent, or after ``grace_ms``."""
        for listener in [each for each in self.listeners if each.name == name]:
            self.listeners.remove(listener)
            listener.close()
        connections = [each for each in self.connections if each.listener_name == name]
        for connection in connections:
            connection.close_after_responses()

        def close() -> None:
            for connection in connections:
                connection.close(None)

        self.timers.call_after(grace_ms, close)

    def bound_socket(self, host: str, port: int, *, listen: bool = True) -> socket.socket:
        """Bind an address, and listen on it. Another thread may call this. Raises OSError."""
        # For a `str`, getaddrinfo imports the codec of internationalized names (IDNA), which takes a millisecond.
        name_or_address = host.encode() if host.isascii() else host
        family, _, _, _, address = socket.getaddrinfo(
            name_or_address or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if self._receive_buffer_bytes > 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer_bytes)
            sock.bind(address)
            if listen:
                sock.listen(self.backlog)
            sock.setblocking(False)
        except OSError:
            sock.close()
            raise
        return sock

    def connected(self, sock: socket.socket, listener: Listener) -> None:
        """Serve a new connection."""
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if self._send_buffer_bytes > 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)
            address = str(sock.getpeername()[0])
            throttle_ms = self.counts.throttle_ms(address, int(self.loop.time() * 1000))
            if throttle_ms > 0:
                self._close_later(sock, throttle_ms)
                line = f"Closing connections from {address} ({listener.name}): too many per second"
                self.peer_log.log(
                    logging.WARNING, address, "too many new connections", f"{line} ('{CONNECTION_CREATION_RATE}')"
                )
                return
            limit = self.counts.limit_of(address)
            if limit is not None:
                sock.close()
                line = (
                    f"Closing a connection from {address} ({listener.name}): it has {limit} ('max.connections.per.ip')"
                )
                self.peer_log.log(logging.WARNING, address, "too many connections", line)
                return
            if address == sock.getsockname()[0]:
                _set_tcp_option(sock, "TCP_CONGESTION", LOCAL_CONGESTION_CONTROL)
            _bound_unsent(sock, len(self.connections) + 1)
            transport, authentication = listener.security.accept(sock)
            connection = Connection(self, sock, transport, authentication, listener.name)
        except OSError as error:  # the peer has disconnected since accept
            logger.debug("A connection was closed while it was being accepted: %s", error)
            sock.close()
            return
        if authentication.pending_authentication and self._authentication_timeout_ms > 0:
            # The timer must not keep a closed connection in memory.
            check = partial(_check_authenticated, weakref.ref(connection), self._authentication_timeout_ms)
            self.timers.call_after(self._authentication_timeout_ms, check)
        self.connections[connection] = None
        self.counts.opened(connection.listener_name, connection.peer_host)

    def _close_later(self, sock: socket.socket, milliseconds: int) -> None:
        """Close a socket that is not served. Its peer waits meanwhile."""
        self._throttled.add(sock)

        def close() -> None:
            self._throttled.discard(sock)
            sock.close()

        self.timers.call_after(milliseconds, close)

    def limit_addresses(self, rates: Mapping[str | None, float]) -> None:
        """Apply other rates of new connections by address; None is the default."""
        self.counts.limit_addresses({_as_peer(address): rate for address, rate in rates.items()})

    def forget_fast_paths(self) -> None:
        """The next request of each connection takes the slow path: what earlier requests were allowed has changed."""
        for connection in self.connections:
            connection.forget_fast_paths()

    def set_limits(self, limits: Limits) -> None:
        """Apply other limits on the number of connections."""
        self.counts.apply(limits)
        self._accept_waiting()

    def _accept_waiting(self) -> None:
        for listener in self.listeners:
            listener.accept_waiting()

    def connection_closed(self, connection: Connection) -> None:
        """Remove a closed connection. Called by the connection."""
        if connection in self.connections:
            del self.connections[connection]
            self.counts.closed(connection.listener_name, connection.peer_host)
            self._accept_waiting()
        if not self.connections and self._drained is not None:
            self._drained.set()

    def _stop_accepting(self) -> None:
        for listener in self.listeners:
            listener.close()
        while self._throttled:
            self._throttled.pop().close()

    def disconnect(self) -> None:
        """Stop accepting, and close every connection immediately. Unsent responses are lost."""
        self._stop_accepting()
        for connection in list(self.connections):
            connection.close(None)

    async def close(self, grace_seconds: float, finish: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """Stop accepting, wait for pending responses, and close every connection.

        ``finish`` is awaited if connections remain after ``grace_seconds``: it may complete responses that are worth a
        longer wait.
        """
        self._stop_accepting()
        if self.connections:
            self._drained = asyncio.Event()
            for connection in list(self.connections):
                connection.close_after_responses()
            if self.connections:
                try:
                    await asyncio.wait_for(self._drained.wait(), grace_seconds)
                except TimeoutError:
                    logger.debug("%d connections did not drain in time", len(self.connections))
                    if finish is not None:
                        await finish()
        for connection in list(self.connections):
            connection.close(None)
        # Requests of closed connections are canceled in turns, which are before this one in the same queue.
        served = self.loop.create_future()
        self.turns.later(-1, partial(served.set_result, None), disconnected=True)
        await served
        self.pace.close()
        await self.read_ahead.close()


def _check_authenticated(reference: weakref.ref[Connection], timeout_ms: int) -> None:
    connection = reference()
    if connection is not None and not connection.closed and connection.authentication.pending_authentication:
        connection.close(f"it did not authenticate within {timeout_ms} ms ('moldau.authentication.timeout.ms')")


def _as_peer(address: str | None) -> str | None:
    """An address in the form in which the system has those of peers."""
    if address is None or ":" not in address:
        return address
    try:
        return socket.inet_ntop(socket.AF_INET6, socket.inet_pton(socket.AF_INET6, address)).removeprefix("::ffff:")
    except OSError:  # with a zone; peers have none
        return address


def _bound_unsent(sock: socket.socket, connections: int) -> None:
    """Limit the unsent bytes that the kernel accepts for this socket, if there are many connections."""
    share = UNSENT_BYTES // connections
    if share < MAX_UNSENT_BYTES:
        _set_tcp_option(sock, "TCP_NOTSENT_LOWAT", max(share, MIN_UNSENT_BYTES))


def _set_tcp_option(sock: socket.socket, name: str, value: int | bytes) -> None:
    """Set a TCP option if this system has it."""
    option = getattr(socket, name, None)
    if option is None:
        return
    try:
        sock.setsockopt(socket.IPPROTO_TCP, option, value)
    except OSError as error:  # the connection works without it
        logger.debug("Cannot set %s of a connection: %s", name, error)
