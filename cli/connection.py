"""One connection to a server and single requests over it, for APIs and details that kafka-python does not expose.

There are no retries and no metadata, so a command sees exactly what happens on this connection. Each request uses the
newest version that both sides support, as learned from ApiVersions when the connection is opened.
"""

import itertools
import select
import socket
import sys
from struct import Struct
from types import TracebackType
from typing import Any, Final, Self

from ..protocol.api import ApiKey, request_header_version, response_class, response_header_version
from ..protocol.codec import decode_at, encode
from ..protocol.errors import ErrorCode, MalformedMessage
from ..protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ..protocol.messages.headers import RequestHeader, ResponseHeader
from ..protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ..protocol.messages.sasl_handshake import SaslHandshakeRequest
from ..protocol.schema import Request
from .client_security import PLAINTEXT, Security

CLIENT_ID: Final = "moldau-cli"
# Responses to these requests are far smaller; a larger length means that the peer does not speak Kafka's protocol.
_MAX_RESPONSE_BYTES: Final = 100_000_000
_LENGTH: Final = Struct(">i")
_SECURITY_HINT: Final = "; a listener with TLS or SASL needs --command-config"


class PeerError(Exception):
    """The peer is unreachable or does not behave like a Kafka server; the message is a short reason."""


class Connection:
    """A connection that has exchanged ApiVersions: ``api_versions`` maps API keys to the server's versions."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        timeout_s: float,
        security: Security = PLAINTEXT,
        client_id: str = CLIENT_ID,
    ) -> None:
        """Connect, request the server's API versions, and authenticate. Raises PeerError."""
        self.host, self.port = host, port
        self.security = security
        self.client_id = client_id
        self._timeout_s = timeout_s
        self._correlation_ids = itertools.count(1)
        try:
            self._socket = socket.create_connection((host, port), timeout_s)
        except OSError as error:
            raise PeerError(_connect_problem(error, timeout_s)) from error
        try:
            try:
                self._socket = security.secure(self._socket, host)
            except OSError as error:
                raise PeerError(_tls_problem(error, timeout_s)) from error
            self.greeting = self._greet()
            self._authenticate()
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

    def is_open(self) -> bool:
        """Whether the server has not closed the connection, which has no request in flight."""
        idle = select.poll()
        idle.register(self._socket, select.POLLIN)
        return not idle.poll(0)

    def offers(self, api_key: ApiKey) -> bool:
        return api_key in self.api_versions

    def version_of(self, request: type[Request], *, at_most: int | None = None) -> int:
        """The newest version of a request that both sides support, up to ``at_most``. Raises PeerError if none."""
        name = ApiKey(request.API_KEY).message_name
        lowest, highest = self.api_versions.get(request.API_KEY, (0, -1))
        version = min(highest, request.STABLE_VERSIONS.highest if at_most is None else at_most)
        if highest < 0:
            raise PeerError(f"the server does not support {name}")
        if version < max(lowest, request.STABLE_VERSIONS.lowest):
            raise PeerError(f"the server supports only versions {lowest}-{highest} of {name}")
        return version

    def ask(self, request: Request, *, at_most: int | None = None) -> Any:
        """Send a request, with version ``at_most`` at most, and return the response. Raises PeerError."""
        return self._exchange(request, self.version_of(type(request), at_most=at_most))

    def _greet(self) -> ApiVersionsResponse:
        request = ApiVersionsRequest(client_software_name="moldau", client_software_version="0")
        answer = self._exchange(request, ApiVersionsRequest.STABLE_VERSIONS.highest)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            # KIP-511: the error response has version 0, whatever was requested, so the retry uses version 0.
            answer = self._exchange(ApiVersionsRequest(), 0)
        if answer.error_code:
            raise PeerError(f"ApiVersions failed with {ErrorCode(answer.error_code).name}")
        assert isinstance(answer, ApiVersionsResponse)
        return answer

    def _authenticate(self) -> None:
        client = self.security.new_sasl_client(self.host)
        if client is None:
            return
        from ..security.sasl_client import SaslClientError

        assert self.security.credentials is not None
        mechanism = self.security.credentials.mechanism
        offered = {entry.api_key: entry.max_version for entry in self.greeting.api_keys}
        if ApiKey.SASL_AUTHENTICATE not in offered:
            raise PeerError("the listener has no SASL")
        answer = self._exchange(SaslHandshakeRequest(mechanism=mechanism), 1)
        if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            raise PeerError(f"the listener has no {mechanism}, but {', '.join(answer.mechanisms) or 'no mechanism'}")
        if answer.error_code:
            raise PeerError(f"the listener has no SASL ({ErrorCode(answer.error_code).name})")
        version = min(offered[ApiKey.SASL_AUTHENTICATE], SaslAuthenticateRequest.STABLE_VERSIONS.highest)
        try:
            token: bytes | None = client.first()
            while token is not None:
                answer = self._exchange(SaslAuthenticateRequest(auth_bytes=token), version)
                if answer.error_code:
                    reason = answer.error_message or ErrorCode(answer.error_code).name
                    raise PeerError(f"the user {self.security.credentials.user} was not authenticated: {reason}")
                token = client.next(bytes(answer.auth_bytes))
        except SaslClientError as error:
            raise PeerError(f"the authentication failed: {error}") from None

    def _exchange(self, request: Request, version: int) -> Any:
        correlation_id = next(self._correlation_ids)
        header = RequestHeader(
            request_api_key=request.API_KEY,
            request_api_version=version,
            correlation_id=correlation_id,
            client_id=self.client_id,
        )
        body = encode(header, request_header_version(request.API_KEY, version)) + encode(request, version)
        name = ApiKey(request.API_KEY).message_name
        try:
            self._socket.sendall(_LENGTH.pack(len(body)) + body)
            (length,) = _LENGTH.unpack(self._receive(4))
            if not 0 <= length <= _MAX_RESPONSE_BYTES:
                raise PeerError(f"the response to {name} is not Kafka's protocol")
            data = self._receive(length)
        except TimeoutError as error:
            raise PeerError(f"no response to {name} within {self._timeout_s:g} seconds") from error
        except OSError as error:
            raise PeerError(f"the connection failed while waiting for {name}: {error.strerror}") from error
        return self._decode(request, version, correlation_id, data)

    def _decode(self, request: Request, version: int, correlation_id: int, data: bytes) -> Any:
        name = ApiKey(request.API_KEY).message_name
        try:
            header, offset = decode_at(ResponseHeader, data, response_header_version(request.API_KEY, version), 0)
            if request.API_KEY == ApiKey.API_VERSIONS and data[offset : offset + 2] == _UNSUPPORTED_VERSION:
                version = 0
            answer, _ = decode_at(response_class(request.API_KEY), data, version, offset)
        except MalformedMessage as error:
            raise PeerError(f"cannot decode the response to {name}: {error}") from error
        if header.correlation_id != correlation_id:
            raise PeerError(f"the response to {name} has the wrong correlation id")
        return answer

    def _receive(self, count: int) -> bytes:
        received = bytearray()
        while len(received) < count:
            data = self._socket.recv(min(count - len(received), 1 << 20))
            if not data:
                hint = "" if self.security.protocol != "PLAINTEXT" else _SECURITY_HINT
                raise PeerError(f"the server closed the connection without a response{hint}")
            received += data
        return bytes(received)


_UNSUPPORTED_VERSION: Final = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")


def _tls_problem(error: OSError, timeout_s: float) -> str:
    """Why TLS could not begin."""
    ssl = sys.modules["ssl"]  # a connection with TLS has imported it
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate of the server is not valid: {error.verify_message}"
    if isinstance(error, TimeoutError):
        return f"TLS did not begin within {timeout_s:g} seconds"
    reason = getattr(error, "reason", None) or error.strerror or str(error)
    return f"TLS failed ({str(reason).replace('_', ' ').lower()}); does the listener use TLS?"


def _connect_problem(error: OSError, timeout_s: float) -> str:
    if isinstance(error, socket.gaierror):
        return f"cannot resolve the host name ({error.strerror})"
    if isinstance(error, TimeoutError):
        return f"no response within {timeout_s:g} seconds"
    return (error.strerror or str(error)).lower()
