"""How a link is secured: TLS, and the SASL exchange with which this node authenticates at another one.

`SaslLogin` decides which request comes next. The link sends them before all others, and again before the session ends
(KIP-368). A step of SCRAM computes for milliseconds, and a token of OAUTHBEARER or a ticket of Kerberos may come from a
server, so these run in a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...protocol.errors import ErrorCode, error_name
from ...protocol.messages.sasl_handshake import SaslHandshakeRequest
from ...security.sasl_client import new_client

if TYPE_CHECKING:
    from ...security.sasl_client import Credentials
    from .dialing import Secure

HANDSHAKE_VERSION: Final = 1
"""The version after which tokens are in requests."""


class LinkSecurity(NamedTuple):
    """The security of the links to one listener of other nodes."""

    secure: Secure | None = None
    """TLS; None: there is none."""
    credentials: Credentials | None = None
    """How this node authenticates; None: without SASL."""
    login_setting: str = ""
    """The setting that has the credentials."""
    mechanism_setting: str = ""
    """The setting that has the mechanism."""


PLAINTEXT: Final = LinkSecurity()


class LoginError(Exception):
    """The peer has not authenticated this node; the message states what to change."""


class SaslLogin:
    """One authentication."""

    def __init__(self, security: LinkSecurity, nonce: str, host: str) -> None:
        """``nonce``: random printable characters without commas. ``host``: that of the peer."""
        assert security.credentials is not None
        self._security = security
        self._credentials = security.credentials
        self._client = new_client(security.credentials, nonce, host)
        self.lifetime_ms = 0
        """When the exchange is complete: how long the session lasts; 0 is unlimited."""

    def first(self) -> SaslHandshakeRequest:
        """The first request, of version `HANDSHAKE_VERSION`."""
        return SaslHandshakeRequest(mechanism=self._credentials.mechanism)

    def after_handshake(self, response: Any) -> Callable[[], bytes]:
        """Computes the first token. It may raise SaslClientError. Raises LoginError."""
        code, mechanism, setting = response.error_code, self._credentials.mechanism, self._security.mechanism_setting
        if code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            enabled = ", ".join(response.mechanisms) or "none"
            raise LoginError(
                f"the peer does not enable the SASL mechanism {mechanism}, only {enabled}. Change {setting} of this "
                "node, or sasl.enabled.mechanisms of the peer"
            )
        if code == ErrorCode.ILLEGAL_SASL_STATE:
            raise LoginError(
                "the listener of the peer has no SASL, or this node authenticates too often. Check "
                "listener.security.protocol.map of both nodes, and connections.max.reauth.ms of the peer"
            )
        if code:
            raise LoginError(f"the peer rejects SaslHandshake with {error_name(code)}")
        return self._client.first

    @property
    def waits_for_token(self) -> bool:
        """Whether the first token must be computed in a thread."""
        return self._credentials.token is not None or self._credentials.new_client is not None

    def after_token(self, response: Any) -> Callable[[], bytes | None]:
        """Computes the next token; None: the exchange is complete. It may raise SaslClientError. Raises LoginError."""
        if response.error_code:
            name = self._credentials.user
            reason = response.error_message or error_name(response.error_code)
            raise LoginError(
                f"the peer has not authenticated this node as {name}: {reason}. Check {self._security.login_setting}, "
                "and the users of the peer"
            )
        self.lifetime_ms = response.session_lifetime_ms
        client, token = self._client, bytes(response.auth_bytes)
        return lambda: client.next(token)
