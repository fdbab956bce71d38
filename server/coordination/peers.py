"""What a broker sends to other brokers, created when it is first needed: a single broker does not import links."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .broker_links import BrokerLinks
from .remote_markers import RemoteMarkers
from .remote_verification import RemoteVerification

if TYPE_CHECKING:
    from ...config.sources import BrokerConfig
    from ...metadata.image import MetadataImage
    from ..network.link_security import LinkSecurity
    from ..network.links import Links


class Peers:
    """The other brokers, as the coordinators of this one see them."""

    def __init__(
        self,
        links: Links,
        run_soon: Callable[[Callable[[], None]], None],
        node_id: int,
        image: Callable[[], MetadataImage],
        config: BrokerConfig,
        security: LinkSecurity,
    ) -> None:
        """``links``: all connections of this process to other nodes."""
        self._links = links
        self.brokers = BrokerLinks(links, node_id, image, config, security)
        self.markers = RemoteMarkers(self.brokers, run_soon)
        self.verification = RemoteVerification(self.brokers, run_soon)

    def close(self) -> None:
        """Close the connections: requests that wait for a response fail."""
        self._links.close()
