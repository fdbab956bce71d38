"""A connection for single requests of the protocol, which no client offers or which clients hide.

    with WireClient(broker.bootstrap_servers) as wire:
        response = wire.call(MetadataRequest(topics=None))

It sends exactly the given request and returns exactly the response: no retries, no metadata cache, one connection.
It has three layers: :meth:`WireClient.call` for a request and its response, :meth:`~WireClient.send` and
:meth:`~WireClient.receive` for several requests in flight, :meth:`~WireClient.send_frame` and
:meth:`~WireClient.receive_frame` for arbitrary bytes.

A frame is a big-endian int32 with the length of what follows. A request's frame contains RequestHeader and the request,
a response's frame ResponseHeader and the response. Responses arrive in the order of the requests.
"""

from __future__ import annotations

import socket
from collections import deque
from types import TracebackType
from typing import Any, NamedTuple, Self

from ..protocol.api import ApiKey, request_header_version, response_class, response_header_version
from ..protocol.codec import decode_at, encode
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages.api_versions import ApiVersionsRequest
from ..protocol.messages.headers import RequestHeader, ResponseHeader
from ..protocol.schema import Request


class _Expected(NamedTuple):
    """A request whose response is pending."""

    correlation_id: int
    api_key: int
    version: int


class WireClient:
    """A blocking connection to ``address`` (``HOST:PORT``), open from the constructor to :meth:`close`.

    ``timeout_s`` limits each wait for bytes; :class:`TimeoutError` when it expires. :class:`ConnectionError` if the
    server closes the connection, :class:`moldau.protocol.errors.MalformedMessage` if bytes are not a valid response.
    """

    def __init__(self, address: str, *, client_id: str | None = "moldau-testing", timeout_s: float = 30.0) -> None:
        host, _, port = address.rpartition(":")
        self._client_id = client_id
        self._socket = socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._next_correlation_id = 0
        self._expected: deque[_Expected] = deque()
        self._versions: dict[int, int] | None = None

    # -- requests --

    def call(self, request: Request, version: int | None = None) -> Any:
        """Send a request and return its response. The default version is the highest that both sides support.

        Raises :class:`KafkaError` with UNSUPPORTED_VERSION if the server and this package share no version of the API.
        """
        if version is None:
            version = self.highest_version(request)
        self.send(request, version)
        return self.receive()

    def send(self, request: Request, version: int, *, answered: bool = True) -> int:
        """Send without waiting, and return the correlation id. ``answered`` is false only for Produce with acks=0."""
        correlation_id = self._next_correlation_id
        self._next_correlation_id += 1
        header = RequestHeader(
            request_api_key=request.API_KEY,
            request_api_version=version,
            correlation_id=correlation_id,
            client_id=self._client_id,
        )
        self.send_frame(encode(header, request_header_version(request.API_KEY, version)) + encode(request, version))
        if answered:
            self._expected.append(_Expected(correlation_id, request.API_KEY, version))
        return correlation_id

    def receive(self) -> Any:
        """Return the response to the oldest pending request; it must fill its frame."""
        expected = self._expected.popleft()
        frame = self.receive_frame()
        header_version = response_header_version(expected.api_key, expected.version)
        header, offset = decode_at(ResponseHeader, frame, header_version, 0)
        if header.correlation_id != expected.correlation_id:
            raise ConnectionError(f"a response to request {header.correlation_id} instead of {expected.correlation_id}")
        response, end = decode_at(response_class(expected.api_key), frame, expected.version, offset)
        if end != len(frame) and not self.accepts_extra_bytes():
            raise ConnectionError(f"{len(frame) - end} bytes too many at the end of {type(response).__name__}")
        return response

    def accepts_extra_bytes(self) -> bool:
        """Whether a frame may continue after the response, which most clients do not notice."""
        return False

    def highest_version(self, request: Request) -> int:
        """The highest stable version of ``request`` that the server advertises and this package implements."""
        if self._versions is None:
            # Every server supports version 0, at any time.
            answer = self.call(ApiVersionsRequest(), 0)
            self._versions = {api.api_key: api.max_version for api in answer.api_keys}
        version = min(self._versions.get(request.API_KEY, -1), request.STABLE_VERSIONS.highest)
        if version not in request.STABLE_VERSIONS:
            name = ApiKey(request.API_KEY).message_name
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, f"the server has no version of {name} that Moldau implements"
            )
        return version

    # -- bytes --

    def send_frame(self, payload: bytes) -> None:
        """Send ``payload`` as a frame, with its length; the payload may be invalid."""
        self.send_bytes(len(payload).to_bytes(4, "big") + payload)

    def send_bytes(self, data: bytes) -> None:
        """Send ``data`` unchanged: half a frame, a wrong length, arbitrary bytes."""
        self._socket.sendall(data)

    def receive_frame(self) -> bytes:
        """The next frame without its length."""
        return self._receive_exactly(int.from_bytes(self._receive_exactly(4), "big"))

    def closed_by_server(self) -> bool:
        """Wait for the next bytes: True at the end of the connection, False if data arrived, which is dropped."""
        try:
            return not self._socket.recv(65536)
        except ConnectionError:
            return True

    def _receive_exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self._socket.recv(min(size - len(data), 1 << 20))
            if not piece:
                raise ConnectionError(f"the server closed the connection ({len(data)} of {size} bytes received)")
            data += piece
        return bytes(data)

    # -- lifecycle --

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
