"""What a broker sends to other brokers, created when it is first needed: a single broker does not import links."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..concurrency.event_loop import readiness_of, turns_of
from ..network.links import Links
from .broker_links import BrokerLinks
from .remote_markers import RemoteMarkers
from .remote_verification import RemoteVerification

if TYPE_CHECKING:
    import asyncio
    from random import Random

    from ...config.sources import BrokerConfig
    from ...metadata.image import MetadataImage
    from ..concurrency.background import Background
    from ..concurrency.timers import TimerWheel


class Peers:
    """The other brokers, as the coordinators of this one see them."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        timers: TimerWheel,
        background: Background,
        run_soon: Callable[[Callable[[], None]], None],
        rng: Random,
        node_id: int,
        image: Callable[[], MetadataImage],
        config: BrokerConfig,
    ) -> None:
        self._links = Links.over_tcp(loop, readiness_of(loop), turns_of(loop), timers, background, run_soon, rng)
        brokers = BrokerLinks(self._links, node_id, image, config)
        self.markers = RemoteMarkers(brokers, run_soon)
        self.verification = RemoteVerification(brokers, run_soon)

    def close(self) -> None:
        """Close the connections: requests that wait for a response fail."""
        self._links.close()
