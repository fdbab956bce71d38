"""Listening sockets and the connections that come in by them."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Coroutine
from typing import Any

from .background import Background
from .connection import OUTGOING_BYTES, SCRATCH_BYTES, Connection, FrameHandler
from .event_loop import hang_ups_of, readiness_of
from .memory import MemoryBudget
from .peer_log import PeerLog
from .read_ahead import ReadAhead
from .spare_frames import SpareFrames
from .timers import TimerWheel

logger = logging.getLogger(__name__)

# Accept in batches, so that a burst of connections costs one turn of the loop, and a flood leaves room for requests.
ACCEPTS_PER_EVENT = 64
# Out of descriptors: try again after this long. Waiting connections stay in the kernel's queue.
ACCEPT_PAUSE_MS = 500
# For connections that do not leave this machine: it never paces, and Linux lets every process choose it.
# BBR, where that is the system's default, paces 1 MB by timers, which cost CPU time (docs/decisions/0020).
LOCAL_CONGESTION_CONTROL = b"reno"


class Listener:
    """One listening socket."""

    def __init__(self, network: Network, name: str, sock: socket.socket) -> None:
        self._network = network
        self._sock = sock
        self.name = name
        address = sock.getsockname()
        self.host = str(address[0])
        self.port = int(address[1])

    def start(self) -> None:
        """Accept from now on."""
        self._network.loop.add_reader(self._sock.fileno(), self._on_acceptable)

    def close(self) -> None:
        """Accept no more."""
        if self._sock.fileno() >= 0:
            self._network.loop.remove_reader(self._sock.fileno())
            self._sock.close()

    def _on_acceptable(self) -> None:
        for _ in range(ACCEPTS_PER_EVENT):
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
            self._network.connected(sock, self.name)

    def _accept_again(self) -> None:
        if self._sock.fileno() >= 0:
            self.start()


class Network:
    """All sockets of one server, and what its connections share."""

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
    ) -> None:
        self.loop = loop
        self.readiness = readiness_of(loop)
        self.hang_ups = hang_ups_of(loop)
        self.timers = timers
        self.dispatcher = dispatcher
        self.max_request_bytes = max_request_bytes
        self.max_idle_ms = max_idle_ms
        self.budget = MemoryBudget(queued_max_request_bytes, timers, loop.time)
        self.spare_frames = SpareFrames()
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.outgoing = memoryview(bytearray(OUTGOING_BYTES))
        self.read_ahead = ReadAhead(background)
        self.peer_log = PeerLog(logging.getLogger(Connection.__module__), timers)
        self.listeners: list[Listener] = []
        self.connections: set[Connection] = set()
        self._backlog = backlog
        self._send_buffer_bytes = send_buffer_bytes
        self._receive_buffer_bytes = receive_buffer_bytes
        self._drained: asyncio.Event | None = None

    def listen(self, name: str, host: str, port: int) -> Listener:
        """Bind and listen, but accept nothing before `Listener.start`.

        Raises:
            OSError: the address is taken or is not ours.
        """
        family, _, _, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if self._receive_buffer_bytes > 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer_bytes)
            sock.bind(address)
            sock.listen(self._backlog if self._backlog > 0 else socket.SOMAXCONN)
            sock.setblocking(False)
        except OSError:
            sock.close()
            raise
        listener = Listener(self, name, sock)
        self.listeners.append(listener)
        return listener

    def connected(self, sock: socket.socket, listener_name: str) -> None:
        """Serve a new connection."""
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if self._send_buffer_bytes > 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)
            if sock.getpeername()[0] == sock.getsockname()[0]:
                _choose_local_congestion_control(sock)
            connection = Connection(self, sock, listener_name)
        except OSError as error:  # it went away between accept and here
            logger.debug("A connection was lost while it was accepted: %s", error)
            sock.close()
            return
        self.connections.add(connection)

    def connection_closed(self, connection: Connection) -> None:
        """Forget a connection; called by it."""
        self.connections.discard(connection)
        if not self.connections and self._drained is not None:
            self._drained.set()

    def disconnect(self) -> None:
        """Accept no more, and close every connection as it is, with what it was about to say."""
        for listener in self.listeners:
            listener.close()
        for connection in list(self.connections):
            connection.close(None)

    async def close(self, grace_seconds: float, finish: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """Accept no more, let answers that are on their way go out, and close every connection.

        ``finish`` is awaited when the grace is over: it may bring answers that are worth more than that.
        """
        for listener in self.listeners:
            listener.close()
        if self.connections:
            self._drained = asyncio.Event()
            for connection in list(self.connections):
                connection.close_after_answers()
            if self.connections:
                try:
                    await asyncio.wait_for(self._drained.wait(), grace_seconds)
                except TimeoutError:
                    logger.debug("%d connections did not drain in time", len(self.connections))
                    if finish is not None:
                        await finish()
        for connection in list(self.connections):
            connection.close(None)
        await self.read_ahead.close()


def _choose_local_congestion_control(sock: socket.socket) -> None:
    option = getattr(socket, "TCP_CONGESTION", None)  # Linux
    if option is None:
        return
    try:
        sock.setsockopt(socket.IPPROTO_TCP, option, LOCAL_CONGESTION_CONTROL)
    except OSError as error:  # the connection works with any other
        logger.debug("The congestion control of a local connection stays the system's: %s", error)
