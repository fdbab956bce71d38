"""The authentication state of a connection.

Each connection has one such state, which the security protocol of its listener determines. It is read only where the
principal matters, so it costs nothing per request. With PLAINTEXT it is a constant. With TLS the transport knows it.
With SASL the state serves the frames of the connection until the peer is authenticated (`requests.sasl`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from ...protocol.named_tuples import NamedTuple

if TYPE_CHECKING:
    from .frames import Gate


class Authentication(Protocol):
    """The authentication state of a connection."""

    @property
    def principal(self) -> str:
        """The peer as ``User:name``."""

    @property
    def pending_authentication(self) -> bool:
        """Whether the peer must still authenticate, so that no request is served yet."""

    @property
    def max_request_bytes(self) -> int | None:
        """The maximum size of a frame until the peer is authenticated; None: that of all requests."""

    @property
    def may_manage_tokens(self) -> bool:
        """Whether the peer may send requests about delegation tokens: it is identified, and not by such a token."""

    @property
    def gate(self) -> Gate | None:
        """What serves the frames of the connection at first, before the dispatcher (`Connection.gate`)."""


class Authenticated(NamedTuple):
    """The peer is known, and stays the same for the duration of the connection."""

    principal: str

    @property
    def pending_authentication(self) -> bool:
        return False

    @property
    def max_request_bytes(self) -> int | None:
        return None

    @property
    def may_manage_tokens(self) -> bool:
        return False

    @property
    def gate(self) -> Gate | None:
        return None


#: With PLAINTEXT, peers are not authenticated.
ANONYMOUS: Final = Authenticated("User:ANONYMOUS")
