"""SASL authentication of a connection (KIP-43, KIP-152, KIP-368): the frames before its first request.

`SaslAuthentication` serves the frames of a connection until the client is authenticated. After that, the dispatcher
serves them. The order of frames:

    ApiVersions (optional)
    SaslHandshake version 1, then SaslAuthenticate until the exchange is complete
    or SaslHandshake version 0, then tokens without headers

Any other frame closes the connection. During an exchange, the response to another request is ILLEGAL_SASL_STATE, if the
request is small and its response has a place for an error. Before an exchange, no other request is decoded.

- A failed authentication is answered, and the connection closed, after a delay. Nothing is read from it meanwhile.
- If the session has a lifetime, the client must authenticate again before its end, as the same principal, with the same
  mechanism, and not again within a second. After its end, any other request closes the connection. A session ends at
  the latest when the credential expires.
- What a mechanism computes in a thread (`security.sasl.Job`) delays only its connection: later frames wait for it.
- Tokens and passwords are never logged.
"""

from __future__ import annotations

import enum
import logging
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...protocol.api import ApiKey, request_header_version, response_header_version
from ...protocol.codec import decode_at, encode
from ...protocol.errors import ErrorCode, KafkaError, MalformedMessage
from ...protocol.messages.api_versions import ApiVersionsRequest
from ...protocol.messages.headers import ResponseHeader
from ...protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ...protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ...security.sasl import Job, Rejection, SaslExchange, SaslFailure, SaslInterruption
from ..handlers.api_versions import is_valid_software
from .dispatch import decode_client_id

if TYPE_CHECKING:
    import asyncio
    import socket

    from ...protocol.schema import Message
    from ..concurrency.clock import Clock
    from ..concurrency.timers import Timer, TimerWheel
    from ..network.authentication import Authentication
    from ..network.connection import Connection
    from ..network.frames import Frame, Gate, InFlight, Part
    from ..network.listeners import Security
    from ..network.transport import Transport

logger = logging.getLogger(__name__)

_HEADER_BYTES: Final = 8
"""API key, version and correlation id, with which each request begins."""
_MIN_REAUTHENTICATION_INTERVAL_MS: Final = 1000
_MAX_LIFETIME_MS: Final = 100 * 365 * 86_400_000
"""A credential that expires later than in 100 years counts as one that expires then."""


_Respond = Callable[["bytes | SaslFailure"], "list[Part]"]
"""Builds the response to a token from the result of its evaluation."""


class Mechanism(NamedTuple):
    """A mechanism of a listener."""

    new_exchange: Callable[[], SaslExchange]
    max_session_ms: int
    """``connections.max.reauth.ms``; 0 is unlimited."""
    run: Callable[[Job], asyncio.Future[bytes]]
    """Runs a job of an exchange in a thread."""


class State(enum.Enum):
    """What a connection may send next."""

    INITIAL = "ApiVersions or SaslHandshake"
    HANDSHAKE = "SaslHandshake"
    AUTHENTICATE = "SaslAuthenticate"
    TOKEN = "tokens without headers"
    COMPLETE = "requests"
    OTHER_MECHANISM = "nothing: it began to authenticate again with another mechanism"
    FAILED = "nothing"


class SaslSecurity:
    """The security of a listener with SASL; see `listeners.Security`."""

    def __init__(
        self,
        inner: Security,
        mechanisms: Mapping[str, Mechanism],
        timers: Callable[[], TimerWheel],
        *,
        now_ms: Clock,
        failure_delay_ms: int,
        max_receive_bytes: int,
    ) -> None:
        """``inner`` moves the bytes: plaintext or TLS. ``now_ms``: since the epoch."""
        self._inner = inner
        self.mechanisms = mechanisms
        """By name. Replaced while the server runs."""
        self._timers = timers
        self.now_ms = now_ms
        self.failure_delay_ms = failure_delay_ms
        self.max_receive_bytes = max_receive_bytes

    def accept(self, sock: socket.socket) -> tuple[Transport, SaslAuthentication]:
        """A connection that must authenticate."""
        transport, inner = self._inner.accept(sock)
        return transport, SaslAuthentication(self, inner, self._timers())


class SaslAuthentication:
    """See the module docstring."""

    def __init__(self, security: SaslSecurity, inner: Authentication, timers: TimerWheel) -> None:
        self._security = security
        self._timers = timers
        self._state = State.INITIAL
        self._name = ""  # of the mechanism
        self._mechanism: Mechanism | None = None
        self._exchange: SaslExchange | None = None
        self._ends_at_ms: int | None = None  # the session, on the clock of the timers
        self._authenticated_again_at_ms: int | None = None  # when the latest one of these began
        self.passed = False  # the last frame was passed on to the dispatcher
        self._is_authenticated = False
        self._by_token = False
        self._session_ms = 0
        self.principal = inner.principal
        self.max_request_bytes: int | None = security.max_receive_bytes

    @property
    def pending_authentication(self) -> bool:
        """See `authentication.Authentication`."""
        return not self._is_authenticated

    @property
    def may_manage_tokens(self) -> bool:
        """See `authentication.Authentication`."""
        return not self._by_token

    @property
    def gate(self) -> Gate | None:
        """See `authentication.Authentication`."""
        return self

    # -- frames: see `frames.Gate` -------------------------------------------------------------------------------------

    def handle(self, connection: Connection, frame: Frame) -> InFlight | list[Part] | None:
        """Serve one frame."""
        self.passed = False
        try:
            if self._state is State.TOKEN:
                return self._token(connection, bytes(frame))
            if len(frame) < _HEADER_BYTES:
                return self._refuse(connection, "a frame that is no request")
            key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
            if self._state is State.COMPLETE:
                return self._authenticated(connection, key, version, frame)
            if self._state is State.AUTHENTICATE:
                return self._during_exchange(connection, key, version, frame)
            if self._state in (State.INITIAL, State.HANDSHAKE):
                return self._before_exchange(connection, key, version, frame)
            return self._refuse(connection, "a request that its state does not permit")
        except MalformedMessage as error:
            return self._refuse(connection, f"a request that cannot be decoded: {error}")

    # -- states --------------------------------------------------------------------------------------------------------

    def _before_exchange(
        self, connection: Connection, key: int, version: int, frame: Frame
    ) -> InFlight | list[Part] | None:
        if key == ApiKey.API_VERSIONS and self._state is State.INITIAL:
            if _is_valid_api_versions(version, frame):
                self._state = State.HANDSHAKE
            return self._pass(connection, frame)
        if key == ApiKey.SASL_HANDSHAKE and version in SaslHandshakeRequest.VERSIONS:
            return self._handshake(connection, version, frame)
        return self._refuse(connection, f"{_name(key)} v{version}, but it must authenticate first")

    def _handshake(self, connection: Connection, version: int, frame: Frame) -> InFlight | list[Part] | None:
        request = _decode(SaslHandshakeRequest, version, frame)
        mechanisms = self._security.mechanisms
        if request.mechanism not in mechanisms:
            response = SaslHandshakeResponse(
                error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=list(mechanisms)
            )
            reason = "the SASL mechanism that it requested is not enabled on this listener"
            return self._fail(connection, _encode(response, version, frame), reason)
        self._begin(request.mechanism, mechanisms[request.mechanism], version)
        return _encode(SaslHandshakeResponse(mechanisms=list(mechanisms)), version, frame)

    def _begin(self, name: str, mechanism: Mechanism, version: int) -> None:
        self._name = name
        self._mechanism = mechanism
        self._exchange = mechanism.new_exchange()
        self._state = State.TOKEN if version == 0 else State.AUTHENTICATE

    def _during_exchange(
        self, connection: Connection, key: int, version: int, frame: Frame
    ) -> InFlight | list[Part] | None:
        if key == ApiKey.SASL_AUTHENTICATE and version in SaslAuthenticateRequest.VERSIONS:
            request = _decode(SaslAuthenticateRequest, version, frame)
            header = bytes(frame[:_HEADER_BYTES])
            return self._evaluate(connection, bytes(request.auth_bytes), partial(self._response, version, header))
        return self._refuse_with_error(connection, f"{_name(key)} v{version} during a SASL exchange", frame)

    def _response(self, version: int, header: bytes, result: bytes | SaslFailure) -> list[Part]:
        """The response to SaslAuthenticate. ``header``: that of the request."""
        if isinstance(result, SaslFailure):
            response = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=str(result)
            )
        else:
            response = SaslAuthenticateResponse(auth_bytes=result)
            if self._state is State.COMPLETE and version >= 1:
                response.session_lifetime_ms = self._session_ms
        return _encode(response, version, header)

    def _token(self, connection: Connection, token: bytes) -> InFlight | list[Part] | None:
        def respond(result: bytes | SaslFailure) -> list[Part]:
            return [] if isinstance(result, SaslFailure) else [len(result).to_bytes(4, "big") + result]

        return self._evaluate(connection, token, respond)

    def _evaluate(self, connection: Connection, token: bytes, respond: _Respond) -> InFlight | list[Part]:
        """The response to a token; the client may be authenticated after it."""
        assert self._exchange is not None
        try:
            answer = self._exchange.evaluate(token)
            if isinstance(answer, bytes):
                self._evaluated(connection, answer)
                return respond(answer)
        except SaslFailure as failure:
            return self._fail(connection, respond(failure), failure.reason)
        assert self._mechanism is not None
        pending = _Pending(connection)
        connection.begin_work()
        self._mechanism.run(answer).add_done_callback(partial(self._computed, connection, pending, respond))
        return pending

    def _computed(
        self, connection: Connection, pending: _Pending, respond: _Respond, job: asyncio.Future[bytes]
    ) -> None:
        """The response to a token was computed."""
        if connection.closed or job.cancelled():
            return
        try:
            answer = job.result()
            self._evaluated(connection, answer)
            pending.respond(respond(answer))
        except SaslFailure as failure:
            self._fail(connection, respond(failure), failure.reason, pending)
        except SaslInterruption as interruption:
            connection.close(f"it did not authenticate: {interruption}", level=logging.WARNING)
        except Exception:
            logger.exception("The authentication of %s failed with an unexpected error", connection.peer)
            connection.close("its authentication failed", level=logging.ERROR)
        connection.end_work()

    def _evaluated(self, connection: Connection, answer: bytes) -> None:
        """A token was evaluated: the exchange may be complete. Raises `SaslFailure`."""
        assert self._exchange is not None
        if isinstance(answer, Rejection):
            connection.log(f"its token is not valid: {answer.reason}", level=logging.INFO)
        identity = self._exchange.identity
        if identity is None:
            return
        principal = f"User:{identity.user}"
        if self._is_authenticated and principal != self.principal:
            raise SaslFailure("Cannot change principals during re-authentication")
        self.principal = principal
        self._by_token = identity.by_token
        self._complete(connection, identity.expires_ms)

    def _complete(self, connection: Connection, expires_ms: int | None) -> None:
        assert self._mechanism is not None
        self._exchange = None
        self._state = State.COMPLETE
        self._is_authenticated = True
        self.max_request_bytes = None
        lifetime_ms = max(0, self._mechanism.max_session_ms)
        if expires_ms is not None:
            remaining_ms = min(max(1, expires_ms - self._security.now_ms()), _MAX_LIFETIME_MS)
            lifetime_ms = min(lifetime_ms, remaining_ms) if lifetime_ms else remaining_ms
        self._session_ms = lifetime_ms
        connection.authenticated(keep_gate=lifetime_ms > 0)
        self._ends_at_ms = None
        if lifetime_ms:
            self._ends_at_ms = self._timers.now_ms() + lifetime_ms
            # The timer must not keep a closed connection in memory.
            reference = weakref.ref(connection)
            self._timers.call_after(lifetime_ms, lambda: self._session_ended(reference()))

    # -- sessions with a lifetime --------------------------------------------------------------------------------------

    def _authenticated(
        self, connection: Connection, key: int, version: int, frame: Frame
    ) -> InFlight | list[Part] | None:
        if key == ApiKey.SASL_HANDSHAKE and version in SaslHandshakeRequest.VERSIONS:
            return self._handshake_again(connection, version, frame)
        if self._is_over():
            return self._refuse(connection, f"{_name(key)} v{version} after the end of its session", logging.INFO)
        return self._pass(connection, frame)

    def _pass(self, connection: Connection, frame: Frame) -> InFlight | list[Part] | None:
        self.passed = True
        return connection.dispatch(frame)

    def _handshake_again(self, connection: Connection, version: int, frame: Frame) -> InFlight | list[Part] | None:
        now_ms, previous_ms = self._timers.now_ms(), self._authenticated_again_at_ms
        if previous_ms is not None and now_ms - previous_ms < _MIN_REAUTHENTICATION_INTERVAL_MS:
            return _encode(SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE), version, frame)
        request = _decode(SaslHandshakeRequest, version, frame)
        mechanisms = self._security.mechanisms
        if request.mechanism not in mechanisms:
            return self._refuse(connection, "a SaslHandshake with a mechanism that is not enabled")
        self._authenticated_again_at_ms = now_ms
        connection.forget_fast_paths()  # until it is authenticated again, requests are refused
        if request.mechanism == self._name:
            self._begin(request.mechanism, mechanisms[request.mechanism], version)
        else:
            self._state = State.OTHER_MECHANISM
        return _encode(SaslHandshakeResponse(mechanisms=list(mechanisms)), version, frame)

    def _is_over(self) -> bool:
        return self._ends_at_ms is not None and self._timers.now_ms() >= self._ends_at_ms

    def _session_ended(self, connection: Connection | None) -> None:
        """From now on each request is seen by `_authenticated`, which refuses it."""
        if connection is not None and not connection.closed and self._is_over():
            connection.forget_fast_paths()

    # -- ends ----------------------------------------------------------------------------------------------------------

    def _refuse(self, connection: Connection, what: str, level: int = logging.WARNING) -> InFlight | None:
        """Close the connection without a response."""
        self._state = State.FAILED
        connection.close(f"it sent {what}", level=level)
        return None

    def _refuse_with_error(self, connection: Connection, what: str, frame: Frame) -> InFlight:
        """Close the connection after the response ILLEGAL_SASL_STATE, if the request has one."""
        self._state = State.FAILED
        connection.stop_reading()
        pending = _Pending(connection)

        def respond(parts: list[Part] | None) -> None:
            if connection.closed:
                return
            if parts is None:
                self._refuse(connection, what)
            else:
                self._fail(connection, parts, what, pending)

        error = KafkaError(ErrorCode.ILLEGAL_SASL_STATE, "Another request during SASL authentication.")
        connection.refuse(frame, error, respond)
        return pending

    def _fail(
        self, connection: Connection, parts: list[Part], reason: str, pending: _Pending | None = None
    ) -> InFlight:
        """Send a response and close the connection, after the delay. ``pending``: the place of the response."""
        self._state = State.FAILED
        connection.log(f"it did not authenticate: {reason}", level=logging.WARNING)
        connection.stop_reading()
        if pending is None:
            pending = _Pending(connection)
        pending.respond_later(parts, self._timers, self._security.failure_delay_ms)
        return pending


class _Pending:
    """The place of a response that is sent later."""

    __slots__ = ("_connection", "_response", "_timer", "held_bytes", "keeps_request", "kept_bytes", "parts")

    completes_earlier = False

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._response: list[Part] | None = None  # until the timer expires
        self._timer: Timer | None = None
        self.parts: list[Part] | None = None
        self.held_bytes = 0
        self.keeps_request = False
        self.kept_bytes = 0

    def respond(self, parts: list[Part]) -> None:
        """Send the response, once."""
        if self.parts is None:
            self.parts = parts
            self._connection.response_ready(self)

    def respond_later(self, parts: list[Part], timers: TimerWheel, delay_ms: int) -> None:
        """Send the response after a delay."""
        self._response = parts
        self._timer = timers.call_after(delay_ms, self.complete_early)

    def cancel(self) -> None:
        """The connection is closed."""
        if self._timer is not None:
            self._timer.cancel()

    def complete_early(self) -> None:
        """The delay is over, or the server stops."""
        if self._response is not None:
            self.cancel()
            self.respond(self._response)


def _is_valid_api_versions(version: int, frame: Frame) -> bool:
    """Whether the response will not be an error, after which the client may try again."""
    if version not in ApiVersionsRequest.STABLE_VERSIONS:
        return False
    request = _decode(ApiVersionsRequest, version, frame)
    return version < 3 or is_valid_software(request)


def _decode(message: type[Any], version: int, frame: Frame) -> Any:
    _, offset = decode_client_id(frame, request_header_version(message.API_KEY, version))
    request, _ = decode_at(message, frame, version, offset)
    return request


def _encode(response: Message, version: int, frame: Frame) -> list[Part]:
    """The frame of a response to a request."""
    header = ResponseHeader(correlation_id=int.from_bytes(frame[4:8], "big", signed=True))
    key = type(response).API_KEY  # type: ignore[attr-defined]
    data = encode(header, response_header_version(key, version)) + encode(response, version)
    return [len(data).to_bytes(4, "big") + data]


def _name(key: int) -> str:
    return ApiKey(key).message_name if key in ApiKey.__members__.values() else f"API {key}"
