"""SASL OAUTHBEARER (RFC 7628, KIP-255): a client presents a token, a JWT, which is verified.

    client    n,[a=authorization id],\\x01auth=Bearer TOKEN\\x01[extension=value\\x01]\\x01
    server    empty, or {"status":"invalid_token"} for an invalid token
    client    after an invalid token: \\x01, which ends the exchange, or a message with another token

A malformed message fails immediately. Extensions are accepted and ignored. Why a token is invalid is for the log
(`sasl.Rejection`), and not sent to the client.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final, NamedTuple

from .sasl import Identity, Job, Rejection, SaslFailure, without_escapes

MECHANISM: Final = "OAUTHBEARER"

_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_VALUE: Final = r"[\x21-\x7e \t\r\n]+"
_MESSAGE: Final = re.compile(rf"n,(?:a=(?P<authzid>{_NAME}))?,\x01(?P<pairs>(?:[A-Za-z]+={_VALUE}\x01)*)\x01".encode())
_CREDENTIAL: Final = re.compile(r"(\w+) +([-_~+/.a-zA-Z0-9]+=*)", re.ASCII)
_END: Final = b"\x01"


class OAuthToken(NamedTuple):
    """A valid token."""

    subject: str
    expires_ms: int


class InvalidTokenError(Exception):
    """The token is not accepted. The message is for the log."""

    def __init__(self, message: str, missing_scope: str | None = None) -> None:
        """``missing_scope``: what the token does not have, although it is otherwise valid."""
        super().__init__(message)
        self.missing_scope = missing_scope


class OAuthBearerExchange:
    """See the module docstring."""

    def __init__(self, validate: Callable[[str], OAuthToken], *, in_thread: bool = True) -> None:
        """``validate`` raises `InvalidTokenError`. ``in_thread``: it takes milliseconds, or reads files."""
        self._validate = validate
        self._in_thread = in_thread
        self._error = ""  # the response to an invalid token
        self.identity: Identity | None = None

    def evaluate(self, token: bytes) -> bytes | Job:
        """See `sasl.SaslExchange`."""
        if self._error and token == _END:
            raise SaslFailure(self._error)
        self._error = ""
        match = _MESSAGE.fullmatch(token)
        if match is None:
            raise SaslFailure("Invalid OAUTHBEARER client first message")
        pairs = match["pairs"].decode().split("\x01")
        properties = dict(pair.split("=", 1) for pair in pairs if pair)
        credential = _CREDENTIAL.fullmatch(properties.get("auth", "").strip())
        if credential is None or credential[1].lower() != "bearer":
            raise SaslFailure("Invalid OAUTHBEARER client first message: 'auth' must be 'Bearer' and a token")
        authorization_id = without_escapes((match["authzid"] or b"").decode())
        if self._in_thread:
            return lambda: self._respond(credential[2], authorization_id)
        return self._respond(credential[2], authorization_id)

    def _respond(self, token: str, authorization_id: str) -> bytes:
        try:
            valid = self._validate(token)
        except InvalidTokenError as error:
            answer = {"status": "invalid_token" if error.missing_scope is None else "insufficient_scope"}
            if error.missing_scope is not None:
                answer["scope"] = error.missing_scope
            self._error = json.dumps(answer, separators=(",", ":"))
            return Rejection(self._error.encode(), str(error))
        if authorization_id not in ("", valid.subject):
            raise SaslFailure(
                "Authentication failed: Client requested an authorization id that is different from the token's "
                "principal name"
            )
        self.identity = Identity(valid.subject, valid.expires_ms)
        return b""
