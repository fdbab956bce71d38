"""What this package needs of a connection to another server: requests, and their responses later.

`network.links` implements it with sockets; tests implement it in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ...metadata.observer import Address
    from ...protocol.schema import Request, Versions

Done = Callable[[Any], None]
"""Receives the response, or an `Unanswered`."""


class Unanswered:
    """There is no response: no connection, a timeout, or no common version of the API."""

    __slots__ = ("is_final", "problem")

    def __init__(self, problem: str, *, is_final: bool = False) -> None:
        self.problem = problem
        self.is_final = is_final
        """Whether the same request to the same server would fail again."""


class Peer(Protocol):
    """One connection to one address, which is opened on demand. Requests are answered in order."""

    def request(self, request: Request, done: Done, *, timeout_ms: int, version: int | None = None) -> None:
        """Send a request; `done` is called once, never before this returns.

        `version`: None selects the highest version that both sides support.
        """

    def versions(self, api_key: int) -> Versions | None:
        """The versions of an API that the other side supports; an empty range if it does not support the API at all.

        None: they are unknown, because there was no connection yet.
        """

    def close(self) -> None:
        """Close the connection. Requests without a response are `Unanswered`."""


Connect = Callable[["Address", str], Peer]
"""A connection to an address, with this client id."""
