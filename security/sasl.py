"""What the SASL mechanisms of a server share: an exchange takes tokens of the client and returns its own."""

from __future__ import annotations

from typing import Protocol


class SaslFailure(Exception):  # noqa: N818 - an outcome of an exchange
    """The client is not authenticated. The message is for the client."""


class SaslExchange(Protocol):
    """One authentication of one client."""

    user: str | None
    """The name of the authenticated user; None until the exchange is complete."""

    def evaluate(self, token: bytes) -> bytes:
        """The response to a token of the client. Raises `SaslFailure`."""
