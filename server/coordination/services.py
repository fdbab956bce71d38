"""The services that a broker provides to its coordinators."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

    from ...metadata.image import MetadataImage
    from ...protocol.errors import ErrorCode
    from ...replication.replicas import Replicas
    from ..concurrency.clock import Clock
    from ..concurrency.file_jobs import FileJobs
    from ..concurrency.slices import Sliced
    from ..concurrency.timers import TimerWheel


@dataclass(frozen=True, slots=True)
class Services:
    """Event loop, clocks, threads, metadata and partitions, for `coordinators.Coordinators`."""

    loop: asyncio.AbstractEventLoop
    timers: TimerWheel
    now_ms: Clock
    rng: Random
    file_jobs: FileJobs
    node_id: int
    replicas: Replicas
    image: Callable[[], MetadataImage]
    """The current metadata."""
    run_soon: Callable[[Callable[[], None]], None]
    """Run the callback at the end of this iteration of the event loop."""
    create_topic: Callable[[str], Sliced[ErrorCode | None]]
    """Create a coordinator's topic if it does not exist. Returns the error if it still does not exist."""
