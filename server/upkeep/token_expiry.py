"""The removal of delegation tokens that have expired, by the active controller.

Setting: `delegation.token.expiry.check.interval.ms`. An expired token is not accepted even before it is removed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ...metadata.delegation_tokens import expire_tokens
from ...protocol.errors import KafkaError

if TYPE_CHECKING:
    from ..concurrency.clock import Clock
    from ..concurrency.slices import Sliced, Slices
    from ..concurrency.timers import Timer, TimerWheel
    from ..controller_client import LocalController

logger = logging.getLogger(__name__)


class TokenExpiry:
    """See the module docstring."""

    def __init__(
        self, timers: TimerWheel, slices: Slices, controller: LocalController, now_ms: Clock, interval_ms: int
    ) -> None:
        """The first check is after the first interval."""
        self._timers = timers
        self._slices = slices
        self._controller = controller
        self._now_ms = now_ms
        self._interval_ms = interval_ms
        self._timer: Timer | None = None
        self._closed = False
        self._check_later()

    def close(self) -> None:
        """Check no more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _check_later(self) -> None:
        if not self._closed:
            self._timer = self._timers.call_after(self._interval_ms, lambda: self._slices.begin_shielded(self._check()))

    def _check(self) -> Sliced[None]:
        try:
            removed = yield from self._controller.decide(lambda image: expire_tokens(image, self._now_ms()))
            if removed:
                logger.info("Removed %d expired delegation tokens", removed)
        except KafkaError as error:
            logger.warning("Cannot remove expired delegation tokens, retrying later: %s", error.message)
        finally:
            self._check_later()
