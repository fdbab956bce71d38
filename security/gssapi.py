"""SASL GSSAPI (RFC 4752): a client with a Kerberos ticket.

    client    a token of the security context, until the context is established
    server    its own token, or nothing
    client    nothing, if the last token was the server's
    server    wrapped: the security layers that it offers (1: none), and 0 as the size of its messages in three bytes
    client    wrapped: the layer that it chooses, a size, and an authorization id

As in Apache Kafka, there is no security layer (TLS encrypts), and the authorization id is ignored: the principal is
always that of the ticket. Why an exchange has failed is logged, and not sent to the client.

The security context is that of the system's library, which reads the keytab and its cache of tickets, so each step is a
job.
"""

from __future__ import annotations

from typing import Final, Protocol

from .kerberos_names import KerberosNames, NoNameError
from .sasl import Identity, Job, SaslFailure

MECHANISM: Final = "GSSAPI"
LAYER_NONE: Final = 1
NO_LAYER: Final = bytes([LAYER_NONE, 0, 0, 0])
"""What the server offers, and what the client chooses: no security layer, and no message of one."""
_FAILURE: Final = "Authentication failed during authentication due to invalid credentials with SASL mechanism GSSAPI"


class SecurityContextError(Exception):
    """A token is not valid. The message is for the log."""


class SecurityContext(Protocol):
    """One side of a security context of GSSAPI. Its methods raise `SecurityContextError`."""

    @property
    def established(self) -> bool:
        """No further tokens are expected."""

    @property
    def client(self) -> str:
        """The Kerberos principal of the client."""

    def step(self, token: bytes) -> bytes:
        """The next token for the peer; empty if it needs none. The client's first step has an empty token."""

    def wrap(self, message: bytes) -> bytes:
        """A message for the peer, with a signature."""

    def unwrap(self, message: bytes) -> bytes:
        """A message of the peer, whose signature is verified."""


class GssapiExchange:
    """See the module docstring."""

    def __init__(self, context: SecurityContext, names: KerberosNames) -> None:
        self._context = context
        self._names = names
        self._offered = False
        self.identity: Identity | None = None

    def evaluate(self, token: bytes) -> Job:
        """See `sasl.SaslExchange`."""
        return lambda: self._evaluate(token)

    def _evaluate(self, token: bytes) -> bytes:
        try:
            if self._offered:
                return self._end(token)
            if self._context.established:
                return self._offer(token)
            answer = self._context.step(token)
            # Without a token of its own, the server sends the next message immediately.
            return self._offer(b"") if self._context.established and not answer else answer
        except (SecurityContextError, NoNameError) as error:
            raise SaslFailure(_FAILURE, f"GSSAPI: {error}") from None

    def _offer(self, token: bytes) -> bytes:
        if token:
            raise SecurityContextError("it sent a token although the security context is established")
        self._offered = True
        return self._context.wrap(NO_LAYER)

    def _end(self, token: bytes) -> bytes:
        choice = self._context.unwrap(token)
        if len(choice) < len(NO_LAYER) or choice[0] != LAYER_NONE:
            raise SecurityContextError("it requires a security layer (integrity or confidentiality); use SASL_SSL")
        self.identity = Identity(self._names.name_of(self._context.client))
        return b""
