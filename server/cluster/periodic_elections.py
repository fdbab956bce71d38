"""Elections at intervals, by the active controller of several brokers: see `metadata.periodic_elections`.

Settings: `auto.leader.rebalance.enable`, `leader.imbalance.check.interval.seconds`,
`unclean.leader.election.interval.ms`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...metadata.periodic_elections import MAX_ELECTIONS, elect_preferred_leaders, elect_unclean_leaders
from ...protocol.errors import KafkaError

if TYPE_CHECKING:
    from ...config.broker_config import BrokerConfig
    from ...metadata.context import ControllerContext
    from ...metadata.image import MetadataImage
    from ...metadata.outcome import Outcome
    from ...protocol.steps import Steps
    from ..concurrency.slices import Sliced, Slices
    from ..concurrency.timers import Timer, TimerWheel
    from ..controller_client import LocalController

logger = logging.getLogger(__name__)

Elect = Callable[["MetadataImage", "ControllerContext"], "Steps[Outcome[int]]"]


class PeriodicElections:
    """See the module docstring."""

    def __init__(
        self,
        timers: TimerWheel,
        slices: Slices,
        controller: LocalController,
        context: ControllerContext,
        config: BrokerConfig,
    ) -> None:
        self._timers = timers
        self._slices = slices
        self._controller = controller
        self._context = context
        self._intervals: dict[Elect, int] = {}
        self._pending: dict[Elect, Timer] = {}
        self._closed = False
        if config.get("auto.leader.rebalance.enable"):
            self._intervals[elect_preferred_leaders] = config.int("leader.imbalance.check.interval.seconds") * 1000
        self._intervals[elect_unclean_leaders] = config.int("unclean.leader.election.interval.ms")

    def start(self) -> None:
        """Begin the intervals."""
        for elect, interval_ms in self._intervals.items():
            self._elect_after(interval_ms, elect)

    def close(self) -> None:
        """Elect nothing more."""
        self._closed = True
        for timer in self._pending.values():
            timer.cancel()
        self._pending.clear()

    def _elect_after(self, interval_ms: int, elect: Elect) -> None:
        if not self._closed:
            self._pending[elect] = self._timers.call_after(
                interval_ms, lambda: self._slices.begin_shielded(self._run(elect))
            )

    def _run(self, elect: Elect) -> Sliced[None]:
        count = 0
        try:
            count = yield from self._controller.decide(lambda image: elect(image, self._context))
            if count:
                logger.info("Elected %d %s leaders", count, _KINDS[elect])
        except KafkaError as error:
            logger.warning("Cannot elect %s leaders, retrying later: %s", _KINDS[elect], error.message)
        finally:
            self._elect_after(1 if count == MAX_ELECTIONS else self._intervals[elect], elect)


_KINDS: dict[Elect, str] = {elect_preferred_leaders: "preferred", elect_unclean_leaders: "unclean"}
