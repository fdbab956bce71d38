"""SASL for the suite's own connections: PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512 (KIP-43, KIP-84).

SaslHandshake version 1 chooses the mechanism, and SaslAuthenticate carries the tokens (KIP-152). If the server limits
the session (KIP-368), the connection authenticates again before its end. Nothing of this is recorded: a report shows no
password.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from ..protocol.api import ApiKey
from ..protocol.errors import ErrorCode
from ..protocol.messages.api_versions import ApiVersionsRequest
from ..protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ..protocol.messages.sasl_handshake import SaslHandshakeRequest
from .exchange import Connection

PLAIN: Final = "PLAIN"
_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS: Final = (PLAIN, *_HASHES)

_HANDSHAKE_VERSION: Final = 1
_LEAST_ITERATIONS: Final = 4_096
_MOST_ITERATIONS: Final = 1_000_000
# The part of a session after which the connection authenticates again.
_REAUTHENTICATE_AFTER: Final = 0.5


class AuthenticationError(ConnectionError):
    """The server refused the credentials or the mechanism, or did not prove that it knows the password."""


class Credentials(NamedTuple):
    """What a connection authenticates with."""

    mechanism: str
    username: str
    password: str
    with_token: bool = False
    """For SCRAM: they are the ID and the HMAC of a delegation token (KIP-48)."""


def authenticator(credentials: Credentials) -> Callable[[Connection], None]:
    """A function that authenticates a new connection. It raises `AuthenticationError`, and OSError."""
    if credentials.mechanism not in MECHANISMS:
        raise ValueError(f"{credentials.mechanism} is not one of {', '.join(MECHANISMS)}")

    def authenticate(connection: Connection) -> None:
        with connection.unrecorded():
            lifetime_ms = _authenticate(connection, credentials)
        if lifetime_ms > 0:
            ends_at = time.monotonic() + _REAUTHENTICATE_AFTER * lifetime_ms / 1000
            connection.renew(ends_at, lambda: authenticate(connection))

    return authenticate


def _authenticate(connection: Connection, credentials: Credentials) -> int:
    """The lifetime of the session in milliseconds; 0 if it has no limit."""
    ranges = {api.api_key: api for api in connection.call(ApiVersionsRequest(), 0).api_keys}
    if ApiKey.SASL_HANDSHAKE not in ranges or ApiKey.SASL_AUTHENTICATE not in ranges:
        raise AuthenticationError("the listener does not use SASL; omit --sasl-mechanism")
    version = min(ranges[ApiKey.SASL_AUTHENTICATE].max_version, 2)
    answer = connection.call(SaslHandshakeRequest(mechanism=credentials.mechanism), _HANDSHAKE_VERSION)
    if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        enabled = ", ".join(answer.mechanisms) or "none"
        raise AuthenticationError(f"the listener does not have {credentials.mechanism}; its mechanisms: {enabled}")
    if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise AuthenticationError("the listener does not use SASL; omit --sasl-mechanism")
    if answer.error_code:
        raise AuthenticationError(f"SaslHandshake has the error {_name(answer.error_code)}")
    lifetime_ms = 0

    def exchange(token: bytes) -> bytes:
        nonlocal lifetime_ms
        answer = connection.call(SaslAuthenticateRequest(auth_bytes=token), version)
        if answer.error_code:
            message = answer.error_message or _name(answer.error_code)
            raise AuthenticationError(f"the user {credentials.username!r} was not authenticated: {message}")
        lifetime_ms = answer.session_lifetime_ms
        return bytes(answer.auth_bytes)

    exchange_tokens(credentials, exchange)
    return lifetime_ms


def exchange_tokens(credentials: Credentials, exchange: Callable[[bytes], bytes]) -> None:
    """Send the tokens of the mechanism with `exchange`, which returns the server's token for each.

    Raises `AuthenticationError` if the server does not prove that it knows the password.
    """
    if credentials.mechanism == PLAIN:
        exchange(b"\0" + credentials.username.encode() + b"\0" + credentials.password.encode())
    else:
        client = ScramClient(credentials, secrets.token_urlsafe(18))
        client.verify(exchange(client.final(exchange(client.first()))))


class ScramClient:
    """The client's side of SCRAM (RFC 5802) without channel binding."""

    def __init__(self, credentials: Credentials, nonce: str) -> None:
        self._hash = _HASHES[credentials.mechanism]
        self._password = credentials.password.encode()
        self._nonce = nonce
        name = credentials.username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={nonce}{',tokenauth=true' if credentials.with_token else ''}"
        self._server_signature = b""

    def first(self) -> bytes:
        return f"n,,{self._first_bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        """The second message, for the server's first one."""
        fields = _fields(server_first)
        try:
            nonce, salt, iterations = fields["r"], base64.b64decode(fields["s"], validate=True), int(fields["i"])
        except (KeyError, ValueError) as error:
            raise AuthenticationError(f"the server's first SCRAM message lacks a field: {error}") from error
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise AuthenticationError("the server's SCRAM nonce does not begin with that of the client")
        if not _LEAST_ITERATIONS <= iterations <= _MOST_ITERATIONS:
            raise AuthenticationError(f"{iterations} SCRAM iterations are too few or too many")
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
        client_key = self._hmac(salted, b"Client Key")
        without_proof = f"c=biws,r={nonce}"
        message = b",".join((self._first_bare.encode(), server_first, without_proof.encode()))
        signature = self._hmac(hashlib.new(self._hash, client_key).digest(), message)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), message)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, server_final: bytes) -> None:
        """The server's second message proves that it knows the password."""
        fields = _fields(server_final)
        if "e" in fields:
            raise AuthenticationError(f"SCRAM failed: {fields['e']}")
        expected = base64.b64encode(self._server_signature).decode()
        if not hmac.compare_digest(fields.get("v", "").encode(), expected.encode()):
            raise AuthenticationError("the server's SCRAM signature is wrong: it does not know the password")

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)


def _fields(message: bytes) -> dict[str, str]:
    text = message.decode(errors="replace")
    return {part[:1]: part[2:] for part in text.split(",") if part[1:2] == "="}


def _name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)
