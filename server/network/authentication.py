"""The authentication state of a connection.

Each connection has one such state, which the security protocol of its listener determines. It is read only where the
principal matters, so it costs nothing per request. With PLAINTEXT it is a constant. SASL needs a state that changes.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol


class Authentication(Protocol):
    """The authentication state of a connection."""

    @property
    def principal(self) -> str:
        """The peer as ``User:name``."""

    @property
    def pending_authentication(self) -> bool:
        """Whether the peer must still authenticate, so that no request is served yet."""


class Authenticated(NamedTuple):
    """The peer is known, and stays the same for the duration of the connection."""

    principal: str

    @property
    def pending_authentication(self) -> bool:
        return False


#: With PLAINTEXT, peers are not authenticated.
ANONYMOUS: Final = Authenticated("User:ANONYMOUS")
