"""Modules that are imported after the start, before a request needs them.

A start imports only what a server without clients needs, so that it is short. The rest would be imported by the first
request that needs it. But an import needs a file descriptor, and a server may have none left by then: so once it has
served for a moment, it imports what is left, one module in each step, with a pause between two steps for requests.

The coordinators of groups and transactions are not among them: 2 MB that many servers never need. Without a descriptor
their topics could not be made either, and the answer is the same (`Broker.groups`).

An import that fails because of the system (`OSError`: no descriptor, say) is tried again, until it succeeds.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from .dispatch import APIS

if TYPE_CHECKING:
    from .timers import Timer

logger = logging.getLogger(__name__)

FIRST_MS = 500
"""Clients that wait for the start come first."""

PAUSE_MS = 5
RETRY_MS = 1000

_PACKAGE = __name__.partition(".")[0]

# What the controller imports for its requests.
_OTHERS = (
    "metadata.alter_configs",
    "metadata.brokers",
    "metadata.create_partitions",
    "metadata.create_topics",
    "metadata.delete_topics",
    "metadata.describe_quorum",
    "metadata.elect_leaders",
    "metadata.image_records",
    "metadata.producer_ids",
    "metadata.reassignments",
    "metadata.update_features",
)


class Timers(Protocol):
    """Of `timers.TimerWheel`, what this needs."""

    def call_after(self, delay_ms: float, callback: Callable[[], None], /) -> Timer:
        """Call back later."""


def modules_of_requests() -> list[str]:
    """Their full names, in the order in which they are imported."""
    names = [
        *(f"protocol.messages.{api.key.module_name}" for api in APIS),
        *(f"server.handlers.{api.module}" for api in APIS),
        *_OTHERS,
    ]
    return [f"{_PACKAGE}.{name}" for name in dict.fromkeys(names)]


class LoadAhead:
    """Imports modules, one after the other."""

    def __init__(
        self,
        timers: Timers,
        names: Iterable[str],
        *,
        load: Callable[[str], object] = importlib.import_module,
    ) -> None:
        self._timers = timers
        self._names = deque(names)
        self._load = load
        self._failing = False

    def start(self) -> None:
        """Begin when the server has served for a moment."""
        self._timers.call_after(FIRST_MS, self._step)

    def _step(self) -> None:
        names = self._names
        while names and names[0] in sys.modules:
            names.popleft()
        if not names:
            return
        try:
            self._load(names[0])
        except OSError as error:
            if not self._failing:
                logger.warning("%s cannot be loaded yet, and is tried again every second: %s", names[0], error)
            self._failing = True
            self._timers.call_after(RETRY_MS, self._step)
            return
        self._failing = False
        names.popleft()
        self._timers.call_after(PAUSE_MS, self._step)
