"""The listener of an active controller: brokers register with it, fetch the metadata log, and forward requests to it.

A node that is only a controller has nothing else (`controller_server`). A combined node has it in addition to the
listeners for clients, if `listeners` has an address for the controller. Its connections have their own limits of
memory: requests of clients cannot delay the heartbeats of brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from ...metadata.registrations import Endpoint
from ..controller_apis import CONTROLLER_APIS
from ..controller_node import ControllerNode
from ..requests.dispatch import Dispatcher, decode_client_id
from ..storage.opening import SECURITY_PROTOCOLS
from .node_server import advertised_address, bind

if TYPE_CHECKING:
    from ...config.broker_config import BrokerConfig, Listener
    from ...log.files import FileSystem
    from ...metadata.quorum import Metadata
    from ..authorizer import Authorizer
    from ..concurrency.background import Background
    from ..concurrency.clock import Clock
    from ..concurrency.slices import Slices
    from ..controller_client import LocalController
    from ..network.frames import FrameHandler
    from ..network.listeners import Network, Security

_THREADS = 4
"""Maximum number of concurrent reads of snapshots."""


class ControllerListener:
    """See the module docstring."""

    def __init__(
        self,
        config: BrokerConfig,
        new_network: Callable[[FrameHandler], Network],
        security_of: Callable[[Listener], Security],
    ) -> None:
        """Bind the addresses; nothing is accepted before `serve`. Raises StartError."""
        self._config = config
        self._dispatcher = Dispatcher(CONTROLLER_APIS)
        self.network = new_network(self._dispatcher)
        self.node: ControllerNode | None = None
        try:
            for listener in config.controller_listeners:
                bind(self.network, listener, security_of(listener))
        except BaseException:
            self.network.disconnect()
            raise

    @property
    def endpoint(self) -> Endpoint:
        """The first listener, as brokers connect to it."""
        configured = self._config.controller_listeners[0]
        host, port = advertised_address(self._config, configured, self.network.listeners[0])
        return Endpoint(configured.name, host, port, SECURITY_PROTOCOLS[configured.security_protocol])

    def serve(
        self,
        metadata: Metadata,
        controller: LocalController,
        slices: Slices,
        now_ms: Clock,
        background: Background,
        file_system: FileSystem,
        authorizer: Authorizer | None,
    ) -> None:
        """Begin the sessions of the brokers, and accept connections."""
        self.node = ControllerNode(
            self._config,
            self.network.timers,
            self.network.turns,
            slices,
            controller,
            metadata,
            now_ms,
            background.executor(_THREADS),
            file_system,
            self._dispatcher,
            decode_client_id,
            endpoint=self.endpoint,
            authorizer=authorizer,
        )
        self.node.start()
        self._dispatcher.serve_node(self.node)
        for accepting in self.network.listeners:
            accepting.start()

    async def close(self, grace_seconds: float, finish: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """Complete the pending requests, and close the connections. See `Network.close`."""
        if self.node is not None:
            self.node.close()
        await self.network.close(grace_seconds, finish)
