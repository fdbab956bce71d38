"""Joins a cluster with remote controllers: from the log directories of a broker to its metadata and its logs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ...protocol.uuid import random_uuid
from ..concurrency.event_loop import EndOfIteration, readiness_of, turns_of
from ..concurrency.slices import Slices
from ..network.links import Links
from ..storage.joining import open_joining_storage
from ..storage.opening import endpoints, load_logs
from .link_peer import connect_by
from .membership import Membership

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

    from ...config.broker_config import BrokerConfig, Listener
    from ...log.files import FileSystem
    from ..concurrency.background import Background
    from ..concurrency.clock import Clock
    from ..concurrency.timers import TimerWheel
    from ..network.link_security import LinkSecurity
    from ..storage.opening import Storage


class Joining:
    """A broker that joins; `storage` is loaded when `run` has returned."""

    def __init__(
        self,
        config: BrokerConfig,
        log_dirs: list[str],
        listeners: Iterable[Listener],
        *,
        file_system: FileSystem,
        background: Background,
        timers: TimerWheel,
        clock: Clock,
        rng: Random,
        security: LinkSecurity,
    ) -> None:
        """Lock and open the directories. ``security``: of the controllers' listener. Raises StorageError."""
        loop = asyncio.get_running_loop()
        turns = turns_of(loop)
        self._clock = clock
        opened = open_joining_storage(config, log_dirs, now_ms=clock(), file_system=file_system, rng=rng)
        self.storage: Storage = opened.storage
        later = EndOfIteration(loop.call_soon)
        self.links = Links.over_tcp(loop, readiness_of(loop), turns, timers, background, later, rng)
        self.membership = Membership(
            config,
            opened,
            endpoints(listeners),
            connect_by(self.links, security),
            timers,
            Slices(loop.call_soon, clock=turns.clock),
            clock,
            background.executor(1).run,
            incarnation_id=random_uuid(rng.randbytes),
        )

    async def run(self) -> None:
        """Register with the controllers, catch up, and load the logs. Raises MembershipError, StorageError."""
        await self.membership.catch_up()
        load_logs(self.storage, self._clock())
