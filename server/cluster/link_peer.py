"""`peers.Peer` over the links of this node (`network.links`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...protocol.errors import KafkaError
from ...protocol.schema import Versions
from ..network.link_security import PLAINTEXT
from ..network.links import Address as LinkAddress
from ..network.links import LinkSettings
from .peers import Unanswered

if TYPE_CHECKING:
    from ...metadata.observer import Address
    from ...protocol.schema import Request
    from ..network.link_security import LinkSecurity
    from ..network.links import Link, Links
    from .peers import Connect, Done

_SETTINGS: Final = LinkSettings(setup_timeout_ms=2000, backoff_ms=20, max_backoff_ms=200)
"""A controller that restarts or was elected must be found soon: a session lasts 9 seconds, and an election takes 2."""


class LinkPeer:
    """See the module docstring."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def request(self, request: Request, done: Done, *, timeout_ms: int, version: int | None = None) -> None:
        """See `Peer`."""
        versions = request.STABLE_VERSIONS if version is None else version
        self._link.send(
            request,
            versions,
            lambda response, error: done(response if error is None else _unanswered(error)),
            timeout_ms=timeout_ms,
        )

    def versions(self, api_key: int) -> Versions | None:
        """See `Peer`."""
        peer = self._link.peer
        return None if peer is None else Versions(*peer.versions.get(api_key, (0, -1)))

    def close(self) -> None:
        """See `Peer`."""
        self._link.close()


def _unanswered(error: Exception) -> Unanswered:
    if isinstance(error, KafkaError):  # there is no common version
        return Unanswered(error.message or str(error), is_final=True)
    return Unanswered(str(error))


def connect_by(links: Links, security: LinkSecurity = PLAINTEXT) -> Connect:
    """Connections that use these links."""

    def connect(address: Address, client_id: str) -> LinkPeer:
        return LinkPeer(links.open(LinkAddress(*address), client_id, _SETTINGS, security))

    return connect
