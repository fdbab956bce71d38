"""Servers that the suite does not expect, in threads of the test."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from moldau.protocol.api import ApiKey, request_class, response_class, response_header_version
from moldau.protocol.codec import decode_at, encode
from moldau.protocol.messages.headers import ResponseHeader
from moldau.protocol.schema import Response

Change = Callable[[ApiKey, Response], None]


@contextlib.contextmanager
def fake_server(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """The address of a server that calls `serve` with each connection, in a thread for each."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=handle, args=(peer,), daemon=True).start()

        def handle(peer: socket.socket) -> None:
            with contextlib.suppress(OSError), peer:
                serve(peer)

        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)


class Proxy:
    """A proxy before a server, which decodes responses and can change them, keep them, or die."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.change: Change = lambda api, response: None
        """Called with each response."""
        self.extra = b""
        """Bytes at the end of each response."""
        self.kept: set[ApiKey] = set()
        """The APIs whose responses never arrive."""
        self.held: set[ApiKey] = set()
        """The APIs whose requests are sent to the server by `release`, even if the client is gone by then."""
        self._waiting: list[socket.socket] = []
        """The clients whose requests are held."""
        self._released = threading.Event()
        self.seen = threading.Condition()
        self.requests: list[ApiKey] = []
        """Guarded by `seen`."""
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def wait_for(self, api: ApiKey, times: int = 1) -> None:
        """Return when so many requests have arrived."""
        with self.seen:
            assert self.seen.wait_for(lambda: self.requests.count(api) >= times, 60), self.requests

    def release(self) -> bool:
        """Send the requests that are held, and hold no more. Returns whether all their clients are still connected."""
        connected = not any(_closed_by_peer(each) for each in self._waiting)
        self._released.set()
        return connected

    def die(self) -> None:
        """Close all connections, and accept no more."""
        self._released.set()
        for each in (self._listener, *self._connections):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                host, port = self._server.split(":")
                server = socket.create_connection((host, int(port)))
            except OSError:
                return
            self._connections += [client, server]
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pending: list[tuple[int, int]] = []
            for pipe, arguments in ((self._requests, (client, server)), (self._responses, (server, client))):
                threading.Thread(target=self._forward, args=(pipe, *arguments, pending), daemon=True).start()

    def _forward(
        self,
        pipe: Callable[[socket.socket, socket.socket, list[tuple[int, int]]], None],
        source: socket.socket,
        sink: socket.socket,
        pending: list[tuple[int, int]],
    ) -> None:
        try:
            pipe(source, sink, pending)
        except OSError:
            pass
        finally:
            for each in (source, sink):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def _requests(self, client: socket.socket, server: socket.socket, pending: list[tuple[int, int]]) -> None:
        while True:
            frame = _frame(client)
            api, version = ApiKey(int.from_bytes(frame[:2], "big")), int.from_bytes(frame[2:4], "big")
            if not (api is ApiKey.PRODUCE and _acks_none(frame, version)):
                pending.append((api, version))
            if api in self.held:
                self._waiting.append(client)
            with self.seen:
                self.requests.append(api)
                self.seen.notify_all()
            if api in self.held:
                self._released.wait()
            server.sendall(len(frame).to_bytes(4, "big") + frame)

    def _responses(self, server: socket.socket, client: socket.socket, pending: list[tuple[int, int]]) -> None:
        while True:
            frame = _frame(server)
            api, version = pending.pop(0)
            if ApiKey(api) in self.kept:
                continue
            header_version = response_header_version(api, version)
            header, at = decode_at(ResponseHeader, frame, header_version, 0)
            response, _ = decode_at(response_class(api), frame, version, at)
            self.change(ApiKey(api), response)
            frame = encode(header, header_version) + encode(response, version) + self.extra
            client.sendall(len(frame).to_bytes(4, "big") + frame)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.die()


def _closed_by_peer(peer: socket.socket) -> bool:
    """Whether the connection is closed and all received bytes have been read."""
    try:
        return not peer.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:  # closed here
        return True


def _acks_none(frame: bytes, version: int) -> bool:
    from moldau.protocol.api import request_header_version
    from moldau.protocol.messages.headers import RequestHeader
    from moldau.protocol.messages.produce import ProduceRequest

    _, at = decode_at(RequestHeader, frame, request_header_version(ApiKey.PRODUCE, version), 0)
    request, _ = decode_at(request_class(ApiKey.PRODUCE), frame, version, at)
    assert isinstance(request, ProduceRequest)
    return request.acks == 0


def _frame(peer: socket.socket) -> bytes:
    return _exactly(peer, int.from_bytes(_exactly(peer, 4), "big"))


def _exactly(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = peer.recv(size - len(data))
        if not piece:
            raise ConnectionError("end of the connection")
        data += piece
    return data
