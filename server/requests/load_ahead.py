"""Imports modules after startup, before a request needs them.

To be short, startup imports only the modules that a server without clients needs. The others would be imported by the
first request that needs them. But an import needs a file descriptor, and the server may have none left by then. So soon
after startup, the server imports the remaining modules, one in each step, with a pause for requests between two steps.

The coordinators of groups and transactions are not included: they take 2 MB that many servers never need. Without a
descriptor, their topics could not be created either, and the response is the same (`Broker.groups`).

An import that fails because of the system (`OSError`, for example without a descriptor) is retried until it succeeds.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from ..apis import APIS

if TYPE_CHECKING:
    from ..concurrency.timers import Timer

logger = logging.getLogger(__name__)

FIRST_MS = 500
"""Clients that wait for startup are served first."""

PAUSE_MS = 5
RETRY_MS = 1000

_PACKAGE = __name__.partition(".")[0]

# The modules that the controller imports for its requests.
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

# `worker_pipe` sends jobs with it.
_LIBRARY = ("pickle",)


class Timers(Protocol):
    """The method of `timers.TimerWheel` that is needed here."""

    def call_after(self, delay_ms: float, callback: Callable[[], None], /) -> Timer:
        """Call ``callback`` after ``delay_ms`` milliseconds."""


def modules_of_requests() -> list[str]:
    """The full names of the modules that requests need, in the order of their import."""
    names = [
        *(f"protocol.messages.{api.key.module_name}" for api in APIS),
        *(f"server.handlers.{api.module}" for api in APIS),
        *_OTHERS,
    ]
    return [*(f"{_PACKAGE}.{name}" for name in dict.fromkeys(names)), *_LIBRARY]


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
        """Begin `FIRST_MS` after startup."""
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
                logger.warning("Cannot load %s yet; retrying every second: %s", names[0], error)
            self._failing = True
            self._timers.call_after(RETRY_MS, self._step)
            return
        self._failing = False
        names.popleft()
        self._timers.call_after(PAUSE_MS, self._step)
