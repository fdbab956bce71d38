"""What the SASL mechanisms of a server share: an exchange takes tokens of the client and returns its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

MAX_REASON: Final = 300
"""The client determines parts of the reason, and its token may have 64 kB."""


class SaslFailure(Exception):  # noqa: N818 - an outcome of an exchange
    """The client is not authenticated. The message is for the client."""

    def __init__(self, message: str, reason: str | None = None) -> None:
        """``reason``: for the log, if it is not for the client."""
        super().__init__(message)
        self.reason = _bounded(message if reason is None else reason)


class SaslInterruption(Exception):  # noqa: N818 - an outcome of an exchange
    """The exchange failed, and the client may try again. It gets no response. The message is for the log."""


def without_escapes(name: str) -> str:
    """A valid saslname (RFC 5801, RFC 5802) as the name of a user."""
    return name.replace("=2C", ",").replace("=3D", "=")


class Identity(NamedTuple):
    """The authenticated client."""

    user: str
    """The name of its principal, whose type is User."""
    expires_ms: int | None = None
    """When the credential expires, in milliseconds since the epoch; None: never."""
    by_token: bool = False
    """It has authenticated with a delegation token."""


Job = Callable[[], bytes]
"""Computes the response to a token. It takes milliseconds, so it runs in a thread. Raises `SaslFailure` or
`SaslInterruption`."""


class Rejection(bytes):
    """A response to a token that is not valid. The exchange continues: the client may send another token."""

    reason: str
    """For the log, at most `MAX_REASON` characters."""

    def __new__(cls, response: bytes, reason: str) -> Rejection:
        made = super().__new__(cls, response)
        made.reason = _bounded(reason)
        return made


class SaslExchange(Protocol):
    """One authentication of one client."""

    identity: Identity | None
    """None until the exchange is complete."""

    def evaluate(self, token: bytes) -> bytes | Job:
        """The response to a token of the client. No other token is evaluated before a job has ended.

        Raises `SaslFailure`.
        """


def _bounded(reason: str) -> str:
    return reason if len(reason) <= MAX_REASON else f"{reason[:MAX_REASON]}..."
