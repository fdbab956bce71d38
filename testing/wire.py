"""One connection that speaks single requests of the protocol: for what no client offers, and for what a client hides.

    with WireClient(broker.bootstrap_servers) as wire:
        response = wire.call(MetadataRequest(topics=None))

It sends exactly what it is told and returns exactly what came: no retries, no metadata cache, no second connection. The
three layers can be used apart: :meth:`WireClient.call` for a request and its answer, :meth:`~WireClient.send` and
:meth:`~WireClient.receive` for several requests in flight, :meth:`~WireClient.send_frame` and
:meth:`~WireClient.receive_frame` for bytes that are no request at all.

A frame is a big-endian int32 with the length of what follows; a request's frame holds RequestHeader and the request, an
answer's ResponseHeader and the response. The server answers a connection's requests in their order.
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
    """A request without its answer."""

    correlation_id: int
    api_key: int
    version: int


class WireClient:
    """A blocking connection to ``address`` (``HOST:PORT``), open from the constructor to :meth:`close`.

    ``timeout_s`` bounds each wait for bytes; :class:`TimeoutError` when it passes. An end of the connection by the
    server is :class:`ConnectionError`, bytes that are no answer are :class:`moldau.protocol.errors.MalformedMessage`.
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
        """The response to ``request``: the struct of the same API. Without a version, the highest that both sides know.

        Raises :class:`KafkaError` with UNSUPPORTED_VERSION when the server and this package share no version of that
        API.
        """
        if version is None:
            version = self.highest_version(request)
        self.send(request, version)
        return self.receive()

    def send(self, request: Request, version: int, *, answered: bool = True) -> int:
        """Send without waiting, and return the correlation id. ``answered`` is false for Produce with acks=0 alone."""
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
        """The response to the oldest request that has none yet; it has to use up its frame."""
        expected = self._expected.popleft()
        frame = self.receive_frame()
        header_version = response_header_version(expected.api_key, expected.version)
        header, offset = decode_at(ResponseHeader, frame, header_version, 0)
        if header.correlation_id != expected.correlation_id:
            raise ConnectionError(f"an answer to request {header.correlation_id} instead of {expected.correlation_id}")
        response, end = decode_at(response_class(expected.api_key), frame, expected.version, offset)
        if end != len(frame):
            raise ConnectionError(f"{len(frame) - end} bytes too many at the end of {type(response).__name__}")
        return response

    def highest_version(self, request: Request) -> int:
        """The highest version of ``request`` that the server advertises and this package has, unstable ones left
        out."""
        if self._versions is None:
            # Version 0 is the one that every server answers, and it may be asked for at any time.
            answer = self.call(ApiVersionsRequest(), 0)
            self._versions = {api.api_key: api.max_version for api in answer.api_keys}
        version = min(self._versions.get(request.API_KEY, -1), request.STABLE_VERSIONS.highest)
        if version not in request.STABLE_VERSIONS:
            name = ApiKey(request.API_KEY).message_name
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"the server has no version of {name} that we have too")
        return version

    # -- bytes --

    def send_frame(self, payload: bytes) -> None:
        """Send ``payload`` with its length before it, whatever it is."""
        self.send_bytes(len(payload).to_bytes(4, "big") + payload)

    def send_bytes(self, data: bytes) -> None:
        """Send ``data`` as it is: half a frame, a wrong length, no protocol at all."""
        self._socket.sendall(data)

    def receive_frame(self) -> bytes:
        """The next frame without its length."""
        return self._receive_exactly(int.from_bytes(self._receive_exactly(4), "big"))

    def closed_by_server(self) -> bool:
        """Wait for what comes next: True if it is the end of the connection, False if it is data, which is dropped."""
        try:
            return not self._socket.recv(65536)
        except ConnectionError:
            return True

    def _receive_exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self._socket.recv(min(size - len(data), 1 << 20))
            if not piece:
                raise ConnectionError(f"the server closed the connection ({len(data)} of {size} bytes had come)")
            data += piece
        return bytes(data)

    # -- its life --

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
