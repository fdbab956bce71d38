"""Connections in memory, for links in tests and simulations: the twin of `moldau.server.network.dialing.SocketDialer`.

    network = MemoryNetwork(later)
    network.listen(Address("broker-1", 9092), accept)    # accept(end) receives the other end of each connection
    links = Links(network, timers, later, rng)

An end behaves as a non-blocking socket: data is readable in the next step, a full buffer raises BlockingIOError, a
closed connection delivers what was sent before its end, and `MemoryEnd.reset` discards it. All callbacks run by
``later``, so the order of events depends only on the caller. `MemoryNetwork.cut` and `heal` cut an address off.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..server.network.dialing import Address, Dialed, Secure

if TYPE_CHECKING:
    from ..log.descriptors import FileRange
    from ..protocol.records import Buffer
    from ..server.network.transport import Transport

BUFFER_BYTES = 64 * 1024
Callback = Callable[[], None]
Later = Callable[[Callback], object]


class MemoryEnd:
    """One end of a connection: a `Stream` and its own `Transport`."""

    def __init__(self, later: Later, capacity: int) -> None:
        self._later = later
        self._capacity = capacity
        self._other: MemoryEnd
        self._incoming = bytearray()
        self._has_ended = False  # the other end sends no more
        self._error: OSError | None = None
        self._readable: Callback | None = None
        self._writable: Callback | None = None
        self.is_closed = False
        self.transport: Transport = self

    # -- Transport -----------------------------------------------------------------------------------------------------

    def receive_into(self, buffer: memoryview, /) -> int:
        """See `Transport.receive_into`."""
        if self._error is not None:
            raise self._error
        count = min(len(buffer), len(self._incoming))
        if not count:
            if self._has_ended:
                return 0
            raise BlockingIOError
        buffer[:count] = self._incoming[:count]
        del self._incoming[:count]
        self._other._wake()
        return count

    def send(self, data: Buffer, _flags: int = 0, /) -> int:
        """See `Transport.send`."""
        if self._error is not None:
            raise self._error
        if self.is_closed or self._other.is_closed:
            raise OSError(errno.EPIPE, os.strerror(errno.EPIPE))
        other = self._other
        count = min(len(data), self._capacity - len(other._incoming))
        if not count:
            raise BlockingIOError
        other._incoming += data[:count]
        other._wake()
        return count

    def send_file(self, file_range: FileRange, start: int, length: int, /) -> int:
        """See `Transport.send_file`."""
        return self.send(file_range.read(start, length))

    def pending(self) -> int:
        """See `Transport.pending`."""
        return 0

    # -- Stream --------------------------------------------------------------------------------------------------------

    def on_readable(self, callback: Callback) -> None:
        """See `Stream.on_readable`."""
        self._readable = callback
        self._wake()

    def on_writable(self, callback: Callback | None) -> None:
        """See `Stream.on_writable`."""
        self._writable = callback
        self._wake()

    def close(self) -> None:
        """See `Stream.close`."""
        if not self.is_closed:
            self.is_closed = True
            self._other._has_ended = True
            self._other._wake()

    # -- faults and the peer's side ------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Close both ends with an error; data that was not received is lost."""
        for end in (self, self._other):
            end._error = ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
            end._incoming.clear()
            end._wake()

    def take(self) -> bytes:
        """All bytes that have arrived."""
        data = bytes(self._incoming)
        self._incoming.clear()
        self._other._wake()
        return data

    def _wake(self) -> None:
        self._later(self._notify)

    def _notify(self) -> None:
        if self._readable is not None and not self.is_closed and (self._incoming or self._has_ended or self._error):
            self._readable()
            if self._incoming:
                self._wake()
        room = self._capacity - len(self._other._incoming)
        if self._writable is not None and not self.is_closed and (room or self._error):
            self._writable()


class MemoryNetwork:
    """The addresses of a simulated network, and the dialer of its nodes."""

    def __init__(self, later: Later, *, capacity: int = BUFFER_BYTES) -> None:
        """``later`` calls back soon, never immediately. ``capacity``: of the buffer of one direction."""
        self._later = later
        self._capacity = capacity
        self._listeners: dict[Address, Callable[[MemoryEnd], None]] = {}
        self._silent: set[Address] = set()
        self._ends: dict[Address, list[MemoryEnd]] = {}

    def listen(self, address: Address, accept: Callable[[MemoryEnd], None]) -> None:
        """Accept connections to an address."""
        self._listeners[address] = accept

    def stop_listening(self, address: Address) -> None:
        """Refuse connections to an address, and reset those that exist."""
        self._listeners.pop(address, None)
        for end in self._ends.pop(address, []):
            end.reset()

    def cut(self, address: Address) -> None:
        """Reset the connections to an address, and leave attempts to connect without an answer until `heal`."""
        self._silent.add(address)
        for end in self._ends.pop(address, []):
            end.reset()

    def heal(self, address: Address) -> None:
        """End `cut`."""
        self._silent.discard(address)

    def dial(self, address: Address, done: Dialed, secure: Secure | None = None) -> Callable[[], None]:
        """See `Dialer.dial`. There is no TLS."""
        assert secure is None
        waiting: list[Dialed] = [done]

        def connect() -> None:
            if not waiting or address in self._silent:
                return
            waiting.clear()
            accept = self._listeners.get(address)
            if accept is None:
                done(ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED)))
                return
            ours, theirs = MemoryEnd(self._later, self._capacity), MemoryEnd(self._later, self._capacity)
            ours._other, theirs._other = theirs, ours
            self._ends.setdefault(address, []).append(theirs)
            accept(theirs)
            done(ours)

        self._later(connect)
        return waiting.clear
