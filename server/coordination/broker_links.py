"""Links to the other brokers of the cluster, for the requests of coordinators: one link for each broker and purpose.

A link is created when it is first needed, and follows the broker's registration in the metadata: to another address
after a restart, and closed if the broker was unregistered. Each purpose has its own links, because a transaction
verification must not wait behind markers, whose response waits for the high watermark.

The listener is ``inter.broker.listener.name`` or, if that is not set, the first one with
``security.inter.broker.protocol``. Links use TLS and SASL if it does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ..network.link_security import PLAINTEXT, LinkSecurity
from ..network.links import Address, Link, LinkSettings

if TYPE_CHECKING:
    from ...config.sources import BrokerConfig
    from ...metadata.image import MetadataImage
    from ...metadata.registrations import BrokerRegistration, Endpoint
    from ..network.links import Links

_PROTOCOLS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


class BrokerLinks:
    """See the module docstring."""

    def __init__(
        self,
        links: Links,
        node_id: int,
        image: Callable[[], MetadataImage],
        config: BrokerConfig,
        security: LinkSecurity = PLAINTEXT,
    ) -> None:
        self._links = links
        self._node_id = node_id
        self._image = image
        self._security = security
        name = config.optional_str("inter.broker.listener.name")
        self._listener_name = None if name is None else name.upper()
        self._protocol = _PROTOCOLS.get(config.optional_str("security.inter.broker.protocol") or "PLAINTEXT", 0)
        self.request_timeout_ms = config.int("request.timeout.ms")
        self._settings = LinkSettings()
        self._open: dict[tuple[int, str], Link] = {}  # by node id and purpose

    def link(self, node_id: int, purpose: str) -> Link | None:
        """The link to a broker. None if the broker is not registered, or lacks the listener.

        ``purpose`` is the end of the client id, which the peer's logs and metrics show.
        """
        registration = self._image().brokers.get(node_id)
        endpoint = None if registration is None else self._endpoint(registration)
        link = self._open.get((node_id, purpose))
        if endpoint is None:
            if link is not None:
                del self._open[node_id, purpose]
                link.close()
            return None
        address = Address(endpoint.host, endpoint.port)
        if link is None:
            client_id = f"broker-{self._node_id}-{purpose}"
            link = self._open[node_id, purpose] = self._links.open(address, client_id, self._settings, self._security)
        else:
            link.move(address)
        return link

    def _endpoint(self, registration: BrokerRegistration) -> Endpoint | None:
        if self._listener_name is not None:
            return registration.listeners.get(self._listener_name)
        for endpoint in registration.listeners.values():
            if endpoint.security_protocol == self._protocol:
                return endpoint
        return None

    def close(self) -> None:
        """Close all links: requests that wait for a response fail."""
        for link in self._open.values():
            link.close()
        self._open.clear()
