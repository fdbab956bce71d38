"""SASL: what a connection may do before, during and after its authentication (KIP-43, KIP-84, KIP-152, KIP-368)."""

from __future__ import annotations

import contextlib
import time
from typing import Final

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.api_versions import ApiVersionsRequest
from ...protocol.messages.metadata import MetadataRequest
from ...protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ...protocol.messages.sasl_handshake import SaslHandshakeRequest
from .. import frames
from ..case import Layer, Level, case, needs, versions_of
from ..check import Check
from ..exchange import Connection
from ..outcome import MismatchError
from ..sasl import AuthenticationError, Credentials, exchange_tokens

# A session that a case waits for.
_SHORT_SESSION_MS: Final = 10_000
# The session began before the response with its lifetime arrived.
_EARLY: Final = 0.5
SASL = needs(ApiKey.SASL_HANDSHAKE, 1, ApiKey.SASL_AUTHENTICATE, 0)


def credentials_of(c: Check) -> Credentials:
    """What the suite authenticates with."""
    if c.target.security.credentials is None:
        c.not_applicable("the connection does not use SASL")
    return c.target.security.credentials


def handshake(c: Check, connection: Connection, mechanism: str, version: int = 1) -> None:
    """SaslHandshake, which the server accepts."""
    answer = connection.call(SaslHandshakeRequest(mechanism=mechanism), version)
    c.error(answer.error_code, ErrorCode.NONE, "SaslHandshake error_code")
    c.true(mechanism in answer.mechanisms, "mechanisms", expected=f"{mechanism} in it", actual=answer.mechanisms)


def authenticate(c: Check, connection: Connection, credentials: Credentials, version: int = 2) -> int:
    """SaslAuthenticate with each token of the mechanism, which the server accepts; the lifetime of the session in ms.

    Tokens are not recorded.
    """
    lifetime = 0

    def exchange(token: bytes) -> bytes:
        nonlocal lifetime
        answer = connection.call(SaslAuthenticateRequest(auth_bytes=token), version)
        c.error(answer.error_code, ErrorCode.NONE, "SaslAuthenticate error_code")
        c.equal(answer.error_message or "", "", "SaslAuthenticate error_message")
        if version >= 1:
            lifetime = answer.session_lifetime_ms
            c.true(lifetime >= 0, "session_lifetime_ms", expected="0 (no limit), or more", actual=lifetime)
        return bytes(answer.auth_bytes)

    with connection.unrecorded():
        try:
            exchange_tokens(credentials, exchange)
        except AuthenticationError as error:
            raise MismatchError("the tokens of the server", "a proof that it knows the password", str(error)) from error
    return lifetime


def is_served(c: Check, connection: Connection) -> None:
    metadata = c.call(MetadataRequest(topics=[]), to=connection)
    c.true(metadata.brokers, "brokers of Metadata", expected="at least one", actual=metadata.brokers)


@case(
    "security.sasl.handshake.exchange",
    "SaslHandshake accepts an enabled mechanism, and lists all of them",
    source="KIP-43 and KIP-152",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.SASL_HANDSHAKE),
)
def handshake_exchange(c: Check, version: int) -> None:
    """Sends: SaslHandshake with the mechanism of the suite's own connections.

    Expects: no error; the mechanism is in the list, and none is there twice.

    Why: a client starts its authentication with this request.
    """
    mechanism = credentials_of(c).mechanism
    answer = c.connect(authenticated=False).call(SaslHandshakeRequest(mechanism=mechanism), version)
    c.error(answer.error_code, ErrorCode.NONE)
    c.true(mechanism in answer.mechanisms, "mechanisms", expected=f"{mechanism} in it", actual=answer.mechanisms)
    c.equal(len(set(answer.mechanisms)), len(answer.mechanisms), "mechanisms (number of different ones)")


@case(
    "security.sasl.handshake.unknown",
    "a mechanism that is not enabled is rejected, with a list of those that are",
    source="KIP-43",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.SASL_HANDSHAKE),
)
def handshake_unknown(c: Check, version: int) -> None:
    """Sends: SaslHandshake with a mechanism that does not exist.

    Expects: UNSUPPORTED_SASL_MECHANISM with the enabled mechanisms; then the connection is closed.

    Why: a client shows its user which mechanisms to configure.
    """
    mechanism = credentials_of(c).mechanism
    wire = c.connect(authenticated=False)
    answer = wire.call(SaslHandshakeRequest(mechanism="NO-SUCH-MECHANISM"), version)
    c.error(answer.error_code, ErrorCode.UNSUPPORTED_SASL_MECHANISM)
    c.true(mechanism in answer.mechanisms, "mechanisms", expected=f"{mechanism} in it", actual=answer.mechanisms)
    c.closed(wire)


@case(
    "security.sasl.authenticate.exchange",
    "SaslAuthenticate carries the tokens of the mechanism",
    source="KIP-152 and KIP-368",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.SASL_AUTHENTICATE),
    needs=SASL,
)
def authenticate_exchange(c: Check, version: int) -> None:
    """Sends: SaslHandshake version 1, SaslAuthenticate with each token of the mechanism, and Metadata.

    Expects: no errors and no messages; since version 1 a lifetime that is not negative; with SCRAM, the proof that the
    server knows the password. Metadata gets a response.

    Why: this is how all clients authenticate since Apache Kafka 1.0.
    """
    credentials = credentials_of(c)
    wire = c.connect(authenticated=False)
    handshake(c, wire, credentials.mechanism)
    authenticate(c, wire, credentials, version)
    is_served(c, wire)


@case(
    "security.sasl.authenticate.wrong-password",
    "a wrong password is rejected with an error, and the connection is closed",
    source="KIP-152",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.SASL_AUTHENTICATE),
    needs=SASL,
    variants={"known-user": (False,), "unknown-user": (True,)},
)
def wrong_password(c: Check, version: int, unknown_user: bool) -> None:
    """Sends: SaslHandshake, and the tokens of the mechanism with a wrong password, or of a user who does not exist.

    Expects: SASL_AUTHENTICATION_FAILED with a message and without bytes; then the connection is closed.

    Why: a client that only sees a closed connection retries forever, and its user does not learn the reason.
    """
    credentials = credentials_of(c)._replace(password="wrong")
    if unknown_user:
        credentials = credentials._replace(username=c.name("user"))
    wire = c.connect(authenticated=False)
    handshake(c, wire, credentials.mechanism)
    failed = False

    def exchange(token: bytes) -> bytes:
        nonlocal failed
        answer = wire.call(SaslAuthenticateRequest(auth_bytes=token), version)
        if answer.error_code != ErrorCode.NONE:
            failed = True
            c.error(answer.error_code, ErrorCode.SASL_AUTHENTICATION_FAILED)
            c.true(answer.error_message, "error_message", expected="a reason", actual=answer.error_message)
            c.equal(bytes(answer.auth_bytes), b"", "auth_bytes")
            raise AuthenticationError("the expected end")
        return bytes(answer.auth_bytes)

    try:
        exchange_tokens(credentials, exchange)
    except AuthenticationError:
        c.equal(failed, True, "whether SaslAuthenticate has the error")
    else:
        raise MismatchError("SaslAuthenticate error_code", "SASL_AUTHENTICATION_FAILED", "no error")
    c.closed(wire)


@case(
    "security.sasl.raw-tokens",
    "after SaslHandshake version 0, tokens are sent without requests",
    source="KIP-43",
    layer=Layer.WIRE,
    level=Level.SHOULD,
    needs=needs(ApiKey.SASL_HANDSHAKE, 0),
)
def raw_tokens(c: Check) -> None:
    """Sends: SaslHandshake version 0, and the tokens of the mechanism, each behind its length; then Metadata.

    Expects: the tokens of the server, each behind its length; Metadata gets a response.

    Why: clients from before Apache Kafka 1.0, and some others still, authenticate like this.
    """
    credentials = credentials_of(c)
    wire = c.connect(authenticated=False)
    handshake(c, wire, credentials.mechanism, 0)

    def exchange(token: bytes) -> bytes:
        wire.send_frame(token)
        return wire.receive_frame()

    with wire.unrecorded():
        exchange_tokens(credentials, exchange)
    is_served(c, wire)


@case(
    "security.sasl.api-versions-first",
    "ApiVersions is served before the authentication",
    source="KIP-35 and KIP-152",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.API_VERSIONS),
    needs=SASL,
)
def api_versions_first(c: Check, version: int) -> None:
    """Sends: ApiVersions on a new connection, and then the authentication.

    Expects: the response has all APIs that the server has after the authentication; the authentication succeeds.

    Why: clients find out with this request which versions of SaslHandshake and SaslAuthenticate they can use.
    """
    credentials = credentials_of(c)
    wire = c.connect(authenticated=False)
    request = ApiVersionsRequest()
    if version >= 3:
        request = ApiVersionsRequest(client_software_name="name", client_software_version="1")
    answer = wire.call(request, version)
    c.error(answer.error_code, ErrorCode.NONE, "ApiVersions error_code")
    found = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    c.equal(found, c.target.apis, "api_keys (with versions)")
    handshake(c, wire, credentials.mechanism)
    authenticate(c, wire, credentials)
    is_served(c, wire)


@case(
    "security.sasl.before-authentication",
    "a request before the authentication closes the connection",
    source="KIP-43",
    needs=SASL,
)
def before_authentication(c: Check) -> None:
    """Sends: Metadata of all topics on a new connection.

    Expects: the connection is closed without a response; other connections are served.

    Why: the names of topics must not be visible without a password.
    """
    credentials_of(c)
    wire = c.connect(authenticated=False)
    wire.send_frame(frames.frame(MetadataRequest(topics=None), c.version(ApiKey.METADATA)))
    c.closed(wire)
    is_served(c, c.wire)


@case(
    "security.sasl.during-authentication",
    "another request instead of SaslAuthenticate closes the connection",
    source="KIP-152",
    needs=SASL,
)
def during_authentication(c: Check) -> None:
    """Sends: SaslHandshake, and Metadata of all topics.

    Expects: the connection is closed, with or without a response; a response has no topics and no brokers.

    Why: the names of topics must not be visible without a password.
    """
    mechanism = credentials_of(c).mechanism
    c.topic()
    wire = c.connect(authenticated=False)
    handshake(c, wire, mechanism)
    try:
        answer = wire.call(MetadataRequest(topics=None), c.version(ApiKey.METADATA))
    except ConnectionError:
        return
    c.equal((answer.topics, answer.brokers), ([], []), "topics and brokers of the response")
    c.closed(wire)


@case(
    "security.sasl.authenticate-first",
    "SaslAuthenticate without SaslHandshake closes the connection",
    source="KIP-152",
    needs=SASL,
)
def authenticate_first(c: Check) -> None:
    """Sends: SaslAuthenticate on a new connection.

    Expects: the connection is closed; other connections are served.

    Why: without a mechanism, the bytes of the request mean nothing.
    """
    credentials_of(c)
    wire = c.connect(authenticated=False)
    wire.send_frame(frames.frame(SaslAuthenticateRequest(auth_bytes=b"\0user\0password"), 2))
    c.closed(wire)
    is_served(c, c.wire)


def authenticated(c: Check, credentials: Credentials) -> tuple[Connection, int]:
    """A connection, and the lifetime of its session in ms; 0 if it has no limit."""
    wire = c.connect(authenticated=False)
    handshake(c, wire, credentials.mechanism)
    return wire, authenticate(c, wire, credentials)


def limited(c: Check, credentials: Credentials) -> tuple[Connection, int]:
    """The same, if the server limits sessions."""
    wire, lifetime_ms = authenticated(c, credentials)
    if not lifetime_ms:
        c.not_applicable("the server does not limit sessions (connections.max.reauth.ms)")
    return wire, lifetime_ms


SESSIONS = needs(ApiKey.SASL_HANDSHAKE, 1, ApiKey.SASL_AUTHENTICATE, 1)


@case(
    "security.sasl.again.exchange",
    "a connection whose session is limited can authenticate again",
    source="KIP-368",
    needs=SESSIONS,
)
def again(c: Check) -> None:
    """Sends: the authentication, Metadata, the authentication again on the same connection, and Metadata.

    Expects: no errors, and a lifetime both times.

    Why: clients renew the session of a long connection before it ends; otherwise they would lose it.
    """
    credentials = credentials_of(c)
    wire, _ = limited(c, credentials)
    is_served(c, wire)
    handshake(c, wire, credentials.mechanism)
    lifetime_ms = authenticate(c, wire, credentials)
    c.true(lifetime_ms > 0, "session_lifetime_ms", expected="more than 0", actual=lifetime_ms)
    is_served(c, wire)


@case(
    "security.sasl.again.unlimited",
    "a connection whose session is not limited cannot authenticate again",
    source="KIP-368",
    level=Level.APACHE,
    needs=SESSIONS,
)
def again_unlimited(c: Check) -> None:
    """Sends: the authentication, whose response has the lifetime 0, and SaslHandshake again.

    Expects: ILLEGAL_SASL_STATE; Metadata on the same connection gets a response.

    Why: a client must not believe that it has renewed a session that the server does not renew.
    """
    credentials = credentials_of(c)
    wire, lifetime_ms = authenticated(c, credentials)
    if lifetime_ms:
        c.not_applicable("the server limits sessions")
    answer = wire.call(SaslHandshakeRequest(mechanism=credentials.mechanism), 1)
    c.error(answer.error_code, ErrorCode.ILLEGAL_SASL_STATE)
    is_served(c, wire)


@case(
    "security.sasl.again.wrong-password",
    "a wrong password of a second authentication closes the connection",
    source="KIP-368",
    needs=SESSIONS,
)
def again_wrong_password(c: Check) -> None:
    """Sends: the authentication; then, on the same connection, one with a wrong password.

    Expects: SASL_AUTHENTICATION_FAILED, and the connection is closed.

    Why: a user whose password was changed must not keep the connection.
    """
    credentials = credentials_of(c)
    wire, _ = limited(c, credentials)
    handshake(c, wire, credentials.mechanism)
    codes: list[int] = []

    def exchange(token: bytes) -> bytes:
        answer = wire.call(SaslAuthenticateRequest(auth_bytes=token), 2)
        codes.append(answer.error_code)
        if answer.error_code:
            raise AuthenticationError("the expected end")
        return bytes(answer.auth_bytes)

    with contextlib.suppress(AuthenticationError):
        exchange_tokens(credentials._replace(password="wrong"), exchange)
    c.error(codes[-1], ErrorCode.SASL_AUTHENTICATION_FAILED, "the last error_code of SaslAuthenticate")
    c.closed(wire)


@case(
    "security.sasl.session-ends",
    "a request after the end of the session closes the connection",
    source="KIP-368",
    needs=SESSIONS,
)
def session_ends(c: Check) -> None:
    """Sends: the authentication, and Metadata until the connection is closed, if the session is short.

    Expects: responses at first; the connection is closed, not before the end of the session.

    Why: a user who was removed loses access at this time at the latest.
    """
    wire, lifetime_ms = limited(c, credentials_of(c))
    began = time.monotonic()
    if lifetime_ms > _SHORT_SESSION_MS:
        c.not_applicable(f"a session takes {lifetime_ms / 1000:g} s; the case waits {_SHORT_SESSION_MS / 1000:g} s")
    is_served(c, wire)

    def is_closed() -> bool:
        try:
            c.call(MetadataRequest(topics=[]), to=wire)
        except ConnectionError:
            return True
        return False

    c.until(is_closed, "the end of the connection")
    lasted_ms = (time.monotonic() - began) * 1000
    c.true(
        lasted_ms > lifetime_ms * _EARLY, "the end of the connection", expected=f"after {lifetime_ms} ms",
        actual=f"after {lasted_ms:.0f} ms",
    )  # fmt: skip
