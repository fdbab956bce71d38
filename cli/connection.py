"""One connection to a server and single requests over it, for what kafka-python does not offer or does not tell.

No retries and no metadata: a command that uses this wants to know what exactly happens on this connection. The version
of each request is the newest that both sides have, learned from ApiVersions when the connection is made.
"""

import itertools
import socket
from struct import Struct
from types import TracebackType
from typing import Any, Final, Self

from ..protocol.api import ApiKey, request_header_version, response_class, response_header_version
from ..protocol.codec import decode_at, encode
from ..protocol.errors import ErrorCode, MalformedMessage
from ..protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ..protocol.messages.headers import RequestHeader, ResponseHeader
from ..protocol.schema import Request

CLIENT_ID: Final = "moldau-cli"
# An answer to what is asked here is far smaller; a length beyond this is something else than Kafka's protocol.
_MAX_ANSWER_BYTES: Final = 100_000_000
_LENGTH: Final = Struct(">i")


class PeerError(Exception):
    """The peer cannot be reached, or does not behave like a Kafka server; the text says how, in a few words."""


class Connection:
    """A connection that has been greeted: ``api_versions`` maps API keys to the versions the server has."""

    def __init__(self, host: str, port: int, *, timeout_s: float) -> None:
        """Connect and ask for the server's versions; PeerError when that does not work."""
        self.host, self.port = host, port
        self._timeout_s = timeout_s
        self._correlation_ids = itertools.count(1)
        try:
            self._socket = socket.create_connection((host, port), timeout_s)
        except OSError as error:
            raise PeerError(_connect_problem(error, timeout_s)) from error
        try:
            self.greeting = self._greet()
        except BaseException:
            self._socket.close()
            raise
        self.api_versions = {entry.api_key: (entry.min_version, entry.max_version) for entry in self.greeting.api_keys}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def offers(self, api_key: ApiKey) -> bool:
        return api_key in self.api_versions

    def version_of(self, request: type[Request], *, at_most: int | None = None) -> int:
        """The newest version of a request that both sides have, up to ``at_most``; PeerError when there is none."""
        name = ApiKey(request.API_KEY).message_name
        lowest, highest = self.api_versions.get(request.API_KEY, (0, -1))
        version = min(highest, request.STABLE_VERSIONS.highest if at_most is None else at_most)
        if highest < 0:
            raise PeerError(f"the server does not offer {name}")
        if version < max(lowest, request.STABLE_VERSIONS.lowest):
            raise PeerError(f"the server has {name} in versions {lowest}-{highest} only")
        return version

    def ask(self, request: Request, *, at_most: int | None = None) -> Any:
        """Send a request, in no newer version than ``at_most``, and return its answer; PeerError when none comes."""
        return self._exchange(request, self.version_of(type(request), at_most=at_most))

    def _greet(self) -> ApiVersionsResponse:
        request = ApiVersionsRequest(client_software_name="moldau", client_software_version="0")
        answer = self._exchange(request, ApiVersionsRequest.STABLE_VERSIONS.highest)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            # KIP-511: the refusal comes in version 0, whatever was asked, and so can the next question.
            answer = self._exchange(ApiVersionsRequest(), 0)
        if answer.error_code:
            raise PeerError(f"ApiVersions was answered {ErrorCode(answer.error_code).name}")
        assert isinstance(answer, ApiVersionsResponse)
        return answer

    def _exchange(self, request: Request, version: int) -> Any:
        correlation_id = next(self._correlation_ids)
        header = RequestHeader(
            request_api_key=request.API_KEY,
            request_api_version=version,
            correlation_id=correlation_id,
            client_id=CLIENT_ID,
        )
        body = encode(header, request_header_version(request.API_KEY, version)) + encode(request, version)
        name = ApiKey(request.API_KEY).message_name
        try:
            self._socket.sendall(_LENGTH.pack(len(body)) + body)
            (length,) = _LENGTH.unpack(self._receive(4))
            if not 0 <= length <= _MAX_ANSWER_BYTES:
                raise PeerError(f"what came back for {name} is not Kafka's protocol")
            data = self._receive(length)
        except TimeoutError as error:
            raise PeerError(f"no answer to {name} within {self._timeout_s:g} seconds") from error
        except OSError as error:
            raise PeerError(f"the connection broke while waiting for {name}: {error.strerror}") from error
        return self._decode(request, version, correlation_id, data)

    def _decode(self, request: Request, version: int, correlation_id: int, data: bytes) -> Any:
        name = ApiKey(request.API_KEY).message_name
        try:
            header, offset = decode_at(ResponseHeader, data, response_header_version(request.API_KEY, version), 0)
            if request.API_KEY == ApiKey.API_VERSIONS and data[offset : offset + 2] == _UNSUPPORTED_VERSION:
                version = 0
            answer, _ = decode_at(response_class(request.API_KEY), data, version, offset)
        except MalformedMessage as error:
            raise PeerError(f"the answer to {name} cannot be read: {error}") from error
        if header.correlation_id != correlation_id:
            raise PeerError(f"the answer to {name} belongs to another request")
        return answer

    def _receive(self, count: int) -> bytes:
        received = bytearray()
        while len(received) < count:
            data = self._socket.recv(min(count - len(received), 1 << 20))
            if not data:
                raise PeerError("the server closed the connection without an answer")
            received += data
        return bytes(received)


_UNSUPPORTED_VERSION: Final = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")


def _connect_problem(error: OSError, timeout_s: float) -> str:
    if isinstance(error, socket.gaierror):
        return f"the name does not resolve ({error.strerror})"
    if isinstance(error, TimeoutError):
        return f"no answer within {timeout_s:g} seconds"
    return (error.strerror or str(error)).lower()
