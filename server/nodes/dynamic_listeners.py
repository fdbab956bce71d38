"""Listeners that are added and removed while the broker runs (KIP-226), by its dynamic settings ``listeners`` and
``listener.security.protocol.map``.

The names decide: a new name is a new listener, and a missing one is removed with its connections. The address and the
security protocol of a listener do not change. Listeners that are advertised since the startup cannot be removed, and
those of a controller do not change, because other nodes know their addresses.

A change is checked before it is forwarded to the controller: the security of a new listener is created and its address
is bound, both without an effect.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ...config.checks import check_broker_config
from ...config.definition import ConfigError
from .listener_reload import ListenerReload

if TYPE_CHECKING:
    import socket

    from ...config.broker_config import BrokerConfig, Listener
    from ..concurrency.background import JobExecutor
    from ..network.listeners import Network, Security

    NewSecurity = Callable[[BrokerConfig, Listener, ListenerReload], Security]
    """The security of a listener; the other settings that can change are registered. Raises ConfigError."""

T = TypeVar("T")

logger = logging.getLogger(__name__)

_GRACE_MS: Final = 1000
"""How long the connections of a removed listener may send their pending responses."""


class DynamicListeners:
    """The listeners of a broker; see the module docstring."""

    def __init__(
        self, started: BrokerConfig, network: Network, executor: JobExecutor, reload: ListenerReload, new: NewSecurity
    ) -> None:
        """``started``: the settings of the startup. ``executor`` runs one job at a time."""
        self._network = network
        self._executor = executor
        self._reload = reload
        self._new_security = new
        self._controllers = started.controller_listeners
        self._fixed = frozenset(started.advertised_listeners or (listener.name for listener in started.listeners))
        self._protocols = {listener.name: listener.security_protocol for listener in started.listeners}  # of the bound
        self._addresses = {listener.name: (listener.host, listener.port) for listener in started.listeners}
        self._applying = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()  # the event loop has only weak references

    def check(self, config: BrokerConfig) -> asyncio.Future[str | None]:
        """Why these settings cannot be used, or None."""
        return self._task(self._problem(config))

    def reload(self, config: BrokerConfig) -> asyncio.Future[None]:
        """Use these settings. If a listener cannot use them, it is logged."""
        return self._task(self._apply(config, start=True))

    async def load(self, config: BrokerConfig) -> None:
        """The same at startup: new listeners do not accept connections yet."""
        await self._apply(config, start=False)

    def close(self) -> None:
        """The server stops."""
        for task in self._tasks:
            task.cancel()

    def _task(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _apply(self, config: BrokerConfig, *, start: bool) -> None:
        async with self._applying:
            await (self._reload.reload(config) if start else self._reload.load(config))
            try:
                wanted = {listener.name: listener for listener in config.listeners}
            except ConfigError as error:
                logger.error("The listeners stay the same: %s", error.message)
                return
            for name in [name for name in self._protocols if name not in wanted and name not in self._fixed]:
                self._remove(name)
            for listener in wanted.values():
                if listener.name not in self._protocols:
                    await self._add(config, listener, start=start)
                elif (listener.host, listener.port) != self._addresses[listener.name]:
                    logger.warning("The listener %s has its new address after a restart: %s", listener.name, listener)

    async def _problem(self, config: BrokerConfig) -> str | None:
        try:
            check_broker_config(config)
            wanted = {listener.name: listener for listener in config.listeners}
            missing = sorted(name for name in self._fixed if name not in wanted)
            if missing:
                return f"Advertised listeners must be a subset of listeners, so {', '.join(missing)} cannot be removed"
            if config.controller_listeners != self._controllers:
                return "The listeners of the controller cannot be changed while it runs"
            for listener in wanted.values():
                old = self._protocols.get(listener.name)
                if old is None:
                    await self._executor.run(partial(self._try, config, listener))
                elif old != listener.security_protocol:
                    return f"Security protocol cannot be updated for existing listener {listener.name}"
        except ConfigError as error:
            return error.message
        except OSError as error:
            return f"Cannot listen on {listener}: {error.strerror or error}"
        return await self._reload.check(config)

    def _try(self, config: BrokerConfig, listener: Listener) -> None:
        """In a thread. Raises ConfigError and OSError."""
        self._new_security(config, listener, ListenerReload(self._executor))
        if not any(each.port == listener.port for each in self._network.listeners):  # such a one may be removed
            self._network.bound_socket(listener.host, listener.port).close()

    async def _add(self, config: BrokerConfig, listener: Listener, *, start: bool) -> None:
        def prepare() -> tuple[Security, socket.socket]:
            security = self._new_security(config, listener, self._reload)
            return security, self._network.bound_socket(listener.host, listener.port)

        try:
            security, sock = await self._executor.run(prepare)
            added = self._network.add(listener.name, sock, security)
            if start:
                added.start()
        except (ConfigError, OSError) as error:
            self._reload.remove(listener.name)
            logger.error("Cannot add the listener %s: %s", listener, error)
            return
        self._protocols[listener.name] = listener.security_protocol
        self._addresses[listener.name] = (listener.host, listener.port)
        logger.info("New listener %s on %s:%d", listener.name, added.host, added.port)

    def _remove(self, name: str) -> None:
        del self._protocols[name], self._addresses[name]
        self._reload.remove(name)
        self._network.remove(name, _GRACE_MS)
        logger.info("The listener %s was removed", name)
