"""Connections that record what they send and receive, and how a recorded frame is shown.

Frames are stored as bytes and decoded only for a report.
"""

from __future__ import annotations

import contextlib
import math
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from ..protocol.api import (
    ApiKey,
    request_class,
    request_header_version,
    response_class,
    response_header_version,
)
from ..protocol.codec import decode_at
from ..protocol.errors import MalformedMessage, UnsupportedVersion
from ..protocol.messages.headers import RequestHeader, ResponseHeader
from ..protocol.schema import Request
from ..testing.wire import WireClient
from .error_codes import with_names

FRAMES_PER_CASE: Final = 200
"""The frames of a case that are kept: its last ones."""
BYTES_PER_RESPONSE: Final = 1 << 28
"""A longer response is malformed."""
BYTES_PER_FRAME: Final = 16_384
"""The bytes of a frame that are kept: its first ones."""
_INTERRUPTED: Final = "the run was interrupted"

CHANGING: Final = frozenset(
    {
        ApiKey.METADATA,  # it creates topics
        ApiKey.CREATE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.CREATE_ACLS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.UPDATE_FEATURES,
    }
)
"""What these do outlives the connection, and is removed at the end of a case: not before they have done it."""


class Frame(NamedTuple):
    """One frame, without its length."""

    seconds: float
    """Since the start of the case."""
    connection: int
    """The number of the connection within the case."""
    sent: bool
    data: bytes
    size: int
    """The frame's length, which may exceed that of `data`."""
    api_key: int = -1
    """For a response: the API and version of its request; -1 if there is none."""
    version: int = -1

    @property
    def title(self) -> str:
        """Such as "Produce v9 request"."""
        api_key, version = self.api_key, self.version
        if self.sent:
            api_key, version = int.from_bytes(self.data[:2], "big", signed=True), int.from_bytes(self.data[2:4], "big")
        kind = "request" if self.sent else "response"
        try:
            return f"{ApiKey(api_key).message_name} v{version} {kind}"
        except ValueError:
            return f"unknown {kind}"

    @property
    def versions(self) -> tuple[int, int]:
        """The versions of header and message; only if both can be decoded."""
        api_key, version = self.api_key, self.version
        if self.sent:
            api_key, version = int.from_bytes(self.data[:2], "big", signed=True), int.from_bytes(self.data[2:4], "big")
        try:
            of_header = request_header_version if self.sent else response_header_version
            return of_header(api_key, version), version
        except (MalformedMessage, ValueError):
            return 0, version

    def decoded(self) -> list[Any]:
        """Header and message; fewer if the rest is not decodable or was not kept."""
        found: list[Any] = []
        try:
            if self.sent:
                api_key = int.from_bytes(self.data[:2], "big", signed=True)
                version = int.from_bytes(self.data[2:4], "big")
                request_header, at = decode_at(RequestHeader, self.data, request_header_version(api_key, version), 0)
                found.append(request_header)
                found.append(decode_at(request_class(api_key), self.data, version, at)[0])
            elif self.api_key >= 0:
                header_version = response_header_version(self.api_key, self.version)
                header, at = decode_at(ResponseHeader, self.data, header_version, 0)
                found.append(header)
                found.append(decode_at(response_class(self.api_key), self.data, self.version, at)[0])
        except (MalformedMessage, UnsupportedVersion, ValueError):
            return found
        return found


class Recorder:
    """The frames of one case."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._frames: list[Frame] = []
        self._connections = 0
        self._lock = threading.Lock()
        self.dropped = 0

    def new_connection(self) -> int:
        """The number of a new connection."""
        with self._lock:
            self._connections += 1
            return self._connections - 1

    def add(self, connection: int, sent: bool, data: bytes, api_key: int = -1, version: int = -1) -> None:
        """Called by several threads if a client is behind a `RecordingProxy`."""
        with self._lock:
            if len(self._frames) >= FRAMES_PER_CASE:
                del self._frames[0]
                self.dropped += 1
            self._frames.append(
                Frame(
                    time.monotonic() - self._began,
                    connection,
                    sent,
                    bytes(data[:BYTES_PER_FRAME]),
                    len(data),
                    api_key,
                    version,
                )
            )

    def frames(self) -> tuple[Frame, ...]:
        with self._lock:
            return tuple(self._frames)

    def last_request(self) -> str:
        """The last request that was sent, such as "Produce v9"; empty if there is none."""
        title = next((frame.title for frame in reversed(self.frames()) if frame.sent), "")
        return title.removesuffix(" request")

    def last_response(self) -> str:
        """The last response that was received, such as "Produce v9 response"; empty if there is none."""
        return next((frame.title for frame in reversed(self.frames()) if not frame.sent), "")


class Connection(WireClient):
    """A connection of a case. Each wait for bytes ends at the deadline of the case."""

    def __init__(
        self,
        address: str,
        recorder: Recorder,
        *,
        client_id: str | None,
        remaining: Callable[[], float],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`remaining` returns the seconds until the case's deadline, at least a small positive number."""
        self.address = address
        self.number = recorder.new_connection()
        self._recorder = recorder
        self._remaining = remaining
        self._renew_at = math.inf
        self._renewal: Callable[[], None] = lambda: None
        self._changes: set[bytes] = set()
        """The correlation IDs of the pending requests of `CHANGING`; guarded by `_lock`, as is `_interrupted`."""
        self._interrupted = False
        self._lock = threading.RLock()
        super().__init__(address, client_id=client_id, timeout_s=remaining())
        if tls is not None:
            host = address.rpartition(":")[0].strip("[]")
            try:
                self._socket = tls.wrap_socket(self._socket, server_hostname=host)
            except BaseException:
                self._socket.close()
                raise

    @contextlib.contextmanager
    def unrecorded(self) -> Iterator[None]:
        """The frames inside are not recorded, because they contain a password."""
        recorder, self._recorder = self._recorder, Recorder()
        try:
            yield
        finally:
            self._recorder = recorder

    def renew(self, at: float, renewal: Callable[[], None]) -> None:
        """Call `renewal` before the first request after this time (`time.monotonic`) for which nothing is pending."""
        self._renew_at, self._renewal = at, renewal

    def send(self, request: Request, version: int, *, answered: bool = True) -> int:
        if time.monotonic() > self._renew_at and not self._expected:
            self._renew_at = math.inf
            self._renewal()
        return super().send(request, version, answered=answered)

    def send_frame(self, payload: bytes) -> None:
        with self._lock:
            if self._interrupted:
                raise ConnectionError(_INTERRUPTED)
            if int.from_bytes(payload[:2], "big") in CHANGING:
                self._changes.add(payload[4:8])
        self._recorder.add(self.number, True, payload)
        super().send_frame(payload)

    def send_bytes(self, data: bytes) -> None:
        self._socket.settimeout(self._remaining())
        super().send_bytes(data)

    def receive_frame(self) -> bytes:
        size = int.from_bytes(self._receive_exactly(4), "big")
        if size > BYTES_PER_RESPONSE:
            raise MalformedMessage(f"the length of a response is {size} bytes", 0)
        frame = self._receive_exactly(size)
        # `receive` has removed its expectation already; it is the last that was removed.
        api_key, version = self._receiving
        self._recorder.add(self.number, False, frame, api_key, version)
        with self._lock:
            self._changes.discard(frame[:4])
            if self._interrupted and not self._changes:
                raise ConnectionError(_INTERRUPTED)
        return frame

    def _receive_exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            # A server that sends a byte now and then does not extend the deadline. `interrupt` has set the deadline of
            # an interrupted case to now; the runner ends its wait for the response to a change.
            self._socket.settimeout(None if self._interrupted else self._remaining())
            piece = self._socket.recv(min(size - len(data), 1 << 20))
            if not piece:
                raise ConnectionError(f"the server closed the connection ({len(data)} of {size} bytes received)")
            data += piece
        return bytes(data)

    def receive(self) -> Any:
        expected = self._expected[0]
        self._receiving = expected.api_key, expected.version
        try:
            response = super().receive()
        finally:
            self._receiving = -1, -1
        with_names(response)
        return response

    _receiving: tuple[int, int] = -1, -1
    extra_bytes: Callable[[], bool] = staticmethod(lambda: False)

    def accepts_extra_bytes(self) -> bool:
        return self.extra_bytes()

    def closed_by_server(self) -> bool:
        self._socket.settimeout(self._remaining())
        return super().closed_by_server()

    def detach(self) -> socket.socket:
        """The socket, for a caller that sends and receives itself. The connection must not be used afterwards."""
        return self._socket

    def end_of_stream(self) -> None:
        """Close the sending half: the server sees the end, and can still send."""
        self._socket.shutdown(socket.SHUT_WR)

    def interrupt(self, *, now: bool) -> bool:
        """End a wait for bytes in another thread: it sees the end of the connection. No more requests are sent.

        Unless it must end `now`, the responses to `CHANGING` are awaited first. Returns whether one is pending.
        """
        with self._lock:
            self._interrupted = True
            pending = bool(self._changes)
        if now or not pending:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        return pending


def open_socket(address: str, seconds: float) -> socket.socket:
    """A connected socket without the protocol."""
    host, _, port = address.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), timeout=seconds)
