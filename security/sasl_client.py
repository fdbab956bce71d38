"""The client's side of SASL PLAIN (RFC 4616), SCRAM (RFC 5802, without channel binding) and OAUTHBEARER (RFC 7628),
without I/O. That of GSSAPI is `gssapi_client`."""

from __future__ import annotations

import binascii
import hmac
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from .jaas import JaasEntry, JaasError, entry_of
from .scram import MECHANISMS as SCRAM_MECHANISMS
from .scram import MIN_ITERATIONS, ScramMechanism, salted_password

PLAIN: Final = "PLAIN"
MECHANISMS: Final = (PLAIN, *SCRAM_MECHANISMS)

_MAX_ITERATIONS: Final = 1_000_000
"""A server could otherwise keep its clients busy."""


class SaslClientError(Exception):
    """The credentials cannot be used, or the server did not prove that it knows the password."""


class Credentials(NamedTuple):
    """What a client authenticates with."""

    mechanism: str
    user: str
    password: str
    by_token: bool = False
    """The user is the id of a delegation token, and the password its HMAC in Base64 (SCRAM)."""
    token: Callable[[], str] | None = None
    """OAUTHBEARER: returns a token, which contains the user. It may wait for a server, so it is called in a thread.
    Raises `SaslClientError`."""
    new_client: Callable[[str], SaslClient] | None = None
    """GSSAPI: begins an authentication at a host. The client may wait for a server, so it is called in a thread."""

    def __repr__(self) -> str:
        return f"Credentials({self.mechanism}, {self.user}, [hidden])"


class SaslClient(Protocol):
    """One authentication."""

    def first(self) -> bytes:
        """The first token. Raises `SaslClientError`."""

    def next(self, token: bytes) -> bytes | None:
        """The token after this one of the server; None: the exchange is complete. Raises `SaslClientError`."""


def credentials_of(mechanism: str, jaas: str) -> Credentials:
    """The credentials in ``sasl.jaas.config``. Raises `SaslClientError`, whose message has no secrets."""
    if mechanism not in MECHANISMS:
        raise SaslClientError(f"sasl.mechanism {mechanism} is not supported, only {', '.join(MECHANISMS)}")
    try:
        return credentials_in(mechanism, entry_of(mechanism, jaas))
    except (JaasError, SaslClientError) as error:
        raise SaslClientError(f"sasl.jaas.config: {error}") from None


def credentials_in(mechanism: str, entry: JaasEntry) -> Credentials:
    """The credentials in an entry of this mechanism. Raises `SaslClientError`, whose message has no secrets."""
    missing = [name for name in ("username", "password") if not entry.options.get(name)]
    if missing:
        raise SaslClientError(f"the option {missing[0]} is missing")
    by_token = mechanism != PLAIN and entry.options.get("tokenauth", "").lower() == "true"
    return Credentials(mechanism, entry.options["username"], entry.options["password"], by_token)


def new_client(credentials: Credentials, nonce: str, host: str = "") -> SaslClient:
    """Begin an authentication at a host. ``nonce``: random printable characters without commas."""
    if credentials.new_client is not None:
        return credentials.new_client(host)
    if credentials.mechanism == PLAIN:
        return _Plain(credentials)
    if credentials.token is not None:
        return _OAuthBearer(credentials.token)
    return _Scram(SCRAM_MECHANISMS[credentials.mechanism], credentials, nonce)


class _Plain:
    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def first(self) -> bytes:
        return f"\0{self._credentials.user}\0{self._credentials.password}".encode()

    def next(self, token: bytes) -> None:
        return None


class _OAuthBearer:
    def __init__(self, token: Callable[[], str]) -> None:
        self._token = token

    def first(self) -> bytes:
        return f"n,,\x01auth=Bearer {self._token()}\x01\x01".encode()

    def next(self, token: bytes) -> bytes | None:
        """After a description of what is wrong, the server expects this message, and responds with the failure."""
        return b"\x01" if token else None


class _Scram:
    def __init__(self, mechanism: ScramMechanism, credentials: Credentials, nonce: str) -> None:
        self._mechanism = mechanism
        self._password = credentials.password
        self._nonce = nonce
        name = credentials.user.replace("=", "=3D").replace(",", "=2C")
        self._first = f"n={name},r={nonce}{',tokenauth=true' if credentials.by_token else ''}"
        self._server_signature: bytes | None = None  # that of the server's last message

    def first(self) -> bytes:
        return f"n,,{self._first}".encode()

    def next(self, token: bytes) -> bytes | None:
        fields = _fields(token)
        if "e" in fields:
            raise SaslClientError(f"the server refused: {fields['e']}")
        if self._server_signature is None:
            return self._final(token, fields)
        if not hmac.compare_digest(_decoded(fields.get("v", "")), self._server_signature):
            raise SaslClientError("the server did not prove that it knows the password")
        return None

    def _final(self, token: bytes, fields: Mapping[str, str]) -> bytes:
        nonce, salt, count = fields.get("r", ""), _decoded(fields.get("s", "")), fields.get("i", "")
        iterations = int(count) if count.isascii() and count.isdecimal() else 0
        if not nonce.startswith(self._nonce) or nonce == self._nonce or "s" not in fields:
            raise SaslClientError("the server's first SCRAM message is not valid")
        if not MIN_ITERATIONS <= iterations <= _MAX_ITERATIONS:
            raise SaslClientError(f"the server requires {count} iterations of the password, which is not acceptable")
        mechanism = self._mechanism
        salted = salted_password(mechanism, self._password, salt, iterations)
        client_key = mechanism.hmac(salted, b"Client Key")
        without_proof = f"c=biws,r={nonce}"
        signed = b",".join((self._first.encode(), token, without_proof.encode()))
        signature = mechanism.hmac(mechanism.hash(client_key), signed)
        self._server_signature = mechanism.hmac(mechanism.hmac(salted, b"Server Key"), signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return f"{without_proof},p={b64encode(proof).decode()}".encode()


def _fields(token: bytes) -> dict[str, str]:
    text = token.decode(errors="replace")
    return {part[:1]: part[2:] for part in text.split(",") if part[1:2] == "="}


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise SaslClientError("a SCRAM message of the server is not valid") from None
