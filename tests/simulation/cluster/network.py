"""Sockets in memory: what the servers and their links use instead of the module `socket`.

A `SimulatedNetwork` has hosts, by address. Their sockets behave like non-blocking TCP sockets: data arrives in order
after the delay of its direction, a full buffer raises BlockingIOError, a closed socket delivers what was sent before
its end. What happens to a connection while its link is cut is what TCP does: data waits, and arrives after `heal`. A
process that is killed resets its connections; a machine that loses power sends nothing, and resets them when it runs
again: TCP's keep-alive probes find out.
"""

from __future__ import annotations

import errno
import os
import socket as real_socket
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

from moldau.server.network import dialing, listeners

if TYPE_CHECKING:
    from .world import World

Address = tuple[str, int]

BUFFER_BYTES = 64 * 1024
"""How many bytes of one direction may be on their way, or not received yet."""

_END = None
"""In the place of data: no more follows."""


def _error(code: int) -> OSError:
    return OSError(code, os.strerror(code))


class Host:
    """One address."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.has_power = True
        self.sockets: list[SimulatedSocket] = []
        self.listeners: dict[int, SimulatedSocket] = {}


class SimulatedSocket:
    """One socket. The methods are those of `socket.socket`."""

    def __init__(self, network: SimulatedNetwork, host: Host) -> None:
        self._network = network
        self.host = host
        self.other: SimulatedSocket | None = None
        self.local: Address = (host.address, 0)
        self.remote: Address = ("", 0)
        self.is_closed = False
        self.is_dead = False
        """The process has died."""
        self.is_connected = False
        self.error = 0
        self.incoming = bytearray()
        self.has_ended = False
        self.on_way: deque[bytes | None] = deque()
        """What this socket has sent, and the other one has not received yet."""
        self.on_way_bytes = 0
        self._arrives_at = 0.0
        self.pending: deque[SimulatedSocket] = deque()
        """Connections to accept."""
        self.is_listening = False
        self.loses_answer = False
        """What is sent next is lost, together with the connection."""
        self._fd = network.register(self)
        host.sockets.append(self)

    # Readiness

    @property
    def is_readable(self) -> bool:
        if self.is_listening:
            return bool(self.pending)
        return bool(self.incoming or self.has_ended or self.error)

    @property
    def is_writable(self) -> bool:
        return bool(self.error) or (self.is_connected and self._room() > 0)

    def _room(self) -> int:
        other = self.other
        return BUFFER_BYTES - self.on_way_bytes - (0 if other is None else len(other.incoming))

    # The methods of sockets

    def fileno(self) -> int:
        return -1 if self.is_closed else self._fd

    def setblocking(self, flag: bool) -> None:
        assert not flag

    def setsockopt(self, level: int, option: int, value: object) -> None:
        """The options have no effect here."""

    def getsockopt(self, level: int, option: int) -> int:
        assert option == real_socket.SO_ERROR
        return self.error

    def getsockname(self) -> Address:
        return self.local

    def getpeername(self) -> Address:
        if self.error or not self.is_connected:
            raise _error(errno.ENOTCONN)
        return self.remote

    def bind(self, address: Address) -> None:
        if address[1] in self.host.listeners:
            raise _error(errno.EADDRINUSE)
        self.local = (address[0], address[1])

    def listen(self, backlog: int) -> None:
        self.is_listening = True
        self.host.listeners[self.local[1]] = self

    def accept(self) -> tuple[SimulatedSocket, Address]:
        if not self.pending:
            raise BlockingIOError
        accepted = self.pending.popleft()
        return accepted, accepted.remote

    def connect_ex(self, address: Address) -> int:
        self._network.connect(self, address)
        return errno.EINPROGRESS

    def recv_into(self, buffer: memoryview) -> int:
        count = min(len(buffer), len(self.incoming))
        if count:
            buffer[:count] = self.incoming[:count]
            del self.incoming[:count]
            return count
        if self.error:
            raise _error(self.error)
        if self.has_ended:
            return 0
        raise BlockingIOError

    def send(self, data: Any, flags: int = 0) -> int:
        if self.error:
            raise _error(self.error)
        if self.is_closed or self.other is None:
            raise _error(errno.EPIPE)
        if self.loses_answer:
            self._network.reset(self)
            raise _error(errno.ECONNRESET)
        count = min(len(data), self._room())
        if count <= 0:
            raise BlockingIOError
        self.on_way.append(bytes(data[:count]))
        self.on_way_bytes += count
        self._network.sent(self)
        return count

    def close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        if self.is_dead:
            return
        if self.is_listening:
            del self.host.listeners[self.local[1]]
            for waiting in self.pending:
                self._network.reset(waiting)
        elif self.other is not None:
            self.on_way.append(_END)
            self._network.sent(self)
        self._network.forget(self)

    # What the network does

    def arrival(self, seconds: float) -> float:
        """When what is sent now arrives if its way takes this long: never before what was sent earlier."""
        self._arrives_at = max(self._arrives_at, self._network.now() + seconds)
        return self._arrives_at

    def fail(self, code: int) -> None:
        """The connection is lost."""
        self.error = self.error or code
        self.incoming.clear()
        self.on_way.clear()
        self.on_way_bytes = 0


class SimulatedNetwork:
    """See the module docstring. It stands for the module `socket` while `installed`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.hosts: dict[str, Host] = {}
        self.descriptors: dict[int, SimulatedSocket] = {}
        self.delays: dict[tuple[str, str], float] = {}
        """Additional seconds, by the addresses of sender and receiver."""
        self._cut: set[tuple[str, str]] = set()
        self._waiting: list[Callable[[], None]] = []  # for the end of a cut, or for power
        self._next_fd = 1000
        self._next_port = 40_000
        self.current_host: Callable[[], str] = lambda: ""
        """The address of the process that runs now."""

    def __getattr__(self, name: str) -> Any:
        """The constants and the other functions of the module `socket`."""
        return getattr(real_socket, name)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Servers and links use this network."""
        with mock.patch.object(listeners, "socket", self), mock.patch.object(dialing, "socket", self):
            yield

    def socket(self, family: int, kind: int) -> SimulatedSocket:
        """Create a socket of the process that runs now."""
        return SimulatedSocket(self, self.host(self.current_host()))

    def host(self, address: str) -> Host:
        if address not in self.hosts:
            self.hosts[address] = Host(address)
        return self.hosts[address]

    def register(self, sock: SimulatedSocket) -> int:
        self._next_fd += 1
        self.descriptors[self._next_fd] = sock
        return self._next_fd

    def forget(self, sock: SimulatedSocket) -> None:
        self.descriptors.pop(sock._fd, None)
        sock.host.sockets.remove(sock)

    def now(self) -> float:
        return self._world.now

    # Links

    def cut(self, sender: str, receiver: str) -> None:
        """Nothing arrives in this direction."""
        self._cut.add((sender, receiver))

    def heal(self) -> None:
        """Everything arrives."""
        self._cut.clear()
        self.delays.clear()
        self._retry()

    def heal_link(self, sender: str, receiver: str) -> None:
        """What was sent in this direction arrives."""
        self._cut.discard((sender, receiver))
        self._retry()

    def end_delay(self, sender: str, receiver: str) -> None:
        self.delays.pop((sender, receiver), None)

    def _retry(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each()

    def _delay(self, sender: str, receiver: str) -> float:
        dice = self._world.dice
        return dice.choice((2e-5, 1e-4, 1e-3)) * (0.5 + dice.random()) + self.delays.get((sender, receiver), 0.0)

    def _is_open(self, sender: str, receiver: str) -> bool:
        return (sender, receiver) not in self._cut and self.host(receiver).has_power

    # Connections

    def connect(self, sock: SimulatedSocket, address: Address) -> None:
        """Connect a socket: three packets, of which the link may lose any; they are sent again after the cut."""
        self._next_port += 1
        sock.local = (sock.host.address, self._next_port)
        sock.remote = address
        here, there = sock.host.address, address[0]

        def arrive() -> None:
            if sock.is_closed or sock.is_dead:
                return
            if not self._is_open(here, there):
                self._waiting.append(arrive)
                return
            listener = self.host(there).listeners.get(address[1])
            if listener is None:
                answer(None)
                return
            accepted = SimulatedSocket(self, listener.host)
            accepted.local, accepted.remote = address, sock.local
            accepted.other = sock
            accepted.is_connected = True
            listener.pending.append(accepted)
            answer(accepted)

        def answer(accepted: SimulatedSocket | None) -> None:
            self._world.after(self._delay(there, here), lambda: established(accepted))

        def established(accepted: SimulatedSocket | None) -> None:
            if sock.is_closed or sock.is_dead or (accepted is not None and accepted.error):
                if accepted is not None and not accepted.error:
                    self._tell_reset(accepted)
                if accepted is None or sock.is_closed or sock.is_dead:
                    return
                sock.error = errno.ECONNRESET
                return
            if not self._is_open(there, here):
                self._waiting.append(lambda: established(accepted))
            elif accepted is None:
                sock.error = errno.ECONNREFUSED
            else:
                sock.other = accepted
                sock.is_connected = True
                if accepted.is_dead and self.host(there).has_power:
                    sock.error = errno.ECONNRESET
                for _ in accepted.on_way:
                    self.sent(accepted)

        self._world.after(self._delay(here, there), arrive)

    def sent(self, sock: SimulatedSocket) -> None:
        """Something is on its way from this socket."""
        other = sock.other
        assert other is not None
        arrival = sock.arrival(self._delay(sock.host.address, other.host.address))
        self._world.at(arrival, lambda: self._arrive(sock))

    def _arrive(self, sock: SimulatedSocket) -> None:
        other = sock.other
        if other is None or not sock.on_way or not other.is_connected:
            return  # lost with the connection; or the other side is not connected yet
        if not self._is_open(sock.host.address, other.host.address):
            self._waiting.append(lambda: self._arrive(sock))
            return
        piece = sock.on_way.popleft()
        if other.is_dead or other.is_closed:
            if piece is not _END:
                self._tell_reset(sock)
        elif piece is _END:
            other.has_ended = True
        else:
            sock.on_way_bytes -= len(piece)
            other.incoming += piece

    def reset(self, sock: SimulatedSocket) -> None:
        """Both ends lose the connection, and what is on its way."""
        sock.fail(errno.ECONNRESET)
        if sock.other is not None:
            self._tell_reset(sock.other)

    def _tell_reset(self, sock: SimulatedSocket) -> None:
        """The other end does not exist any longer, and this end gets to know, if the link permits."""
        sock.on_way.clear()
        sock.on_way_bytes = 0

        def arrive() -> None:
            if sock.is_closed or sock.is_dead:
                return
            sender = sock.remote[0]
            if self._is_open(sender, sock.host.address) and self.host(sender).has_power:
                sock.fail(errno.ECONNRESET)
            else:
                self._waiting.append(arrive)

        self._world.after(self._delay(sock.remote[0], sock.host.address), arrive)

    def accepted_sockets(self) -> list[SimulatedSocket]:
        """The servers' ends of all connections."""
        return [
            sock
            for sock in self.descriptors.values()
            if sock.is_connected and not sock.error and sock.local[1] in sock.host.listeners
        ]

    # Processes

    def end_process(self, address: str, *, power_lost: bool) -> None:
        """The process at this address has died. All its sockets are gone."""
        host = self.host(address)
        host.has_power = not power_lost
        for sock in list(host.sockets):
            sock.is_dead = True
            other = sock.other
            if sock.is_listening:
                for waiting in sock.pending:
                    waiting.is_dead = True
            elif other is not None:
                self._tell_reset(other)  # without power: when the machine runs again
            sock.on_way.clear()
            self.descriptors.pop(sock._fd, None)
        host.sockets.clear()
        host.listeners.clear()

    def power_on(self, address: str) -> None:
        """The machine runs again: it resets connections that it does not know."""
        self.host(address).has_power = True
        self._retry()
