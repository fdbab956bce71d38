"""The client's side of SASL GSSAPI (RFC 4752), with which a node authenticates at others. `gssapi` has the messages."""

from __future__ import annotations

from collections.abc import Callable

from .gssapi import LAYER_NONE, NO_LAYER, SecurityContext, SecurityContextError
from .sasl_client import SaslClientError


class GssapiClient:
    """One authentication; see `sasl_client.SaslClient`. Its methods wait for the Kerberos server (KDC)."""

    def __init__(self, new_context: Callable[[], SecurityContext]) -> None:
        """``new_context`` raises `SecurityContextError`."""
        self._new_context = new_context
        self._context: SecurityContext | None = None
        self._has_chosen = False

    def first(self) -> bytes:
        """See the protocol."""
        try:
            self._context = self._new_context()
            return self._context.step(b"")
        except SecurityContextError as error:
            raise SaslClientError(f"Kerberos: {error}") from None

    def next(self, token: bytes) -> bytes | None:
        """See the protocol. Without a token of its own after the server's last one, the client sends nothing."""
        context = self._context
        assert context is not None
        if self._has_chosen:
            return None
        try:
            return self._choice(context, token) if context.established else context.step(token)
        except SecurityContextError as error:
            raise SaslClientError(f"Kerberos: {error}") from None

    def _choice(self, context: SecurityContext, token: bytes) -> bytes:
        """The response to the layers that the server offers. The authorization id is the principal itself."""
        offer = context.unwrap(token)
        if len(offer) != len(NO_LAYER) or not offer[0] & LAYER_NONE:
            raise SecurityContextError("the server requires a security layer (integrity or confidentiality)")
        self._has_chosen = True
        return context.wrap(NO_LAYER + context.client.encode())
