"""The metrics of a broker, with their listener and their pusher."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from .listener import MetricsListener, parse_address
from .pace import monotonic
from .rates import Rates
from .source import BrokerMetrics

if TYPE_CHECKING:
    from ...config.broker_config import BrokerConfig
    from .families import Family
    from .otlp import Pusher

logger = logging.getLogger(__name__)

LAST_PUSH_S: Final = 3.0
"""How long a broker that stops waits for its last push."""
_POLL_S: Final = 0.01


class MetricsServer:
    """Serves and pushes metrics from its creation to `close`."""

    def __init__(self, config: BrokerConfig) -> None:
        """Raises `MetricsError`."""
        self.source = BrokerMetrics(config.int("moldau.metrics.max.partitions"))
        self._pusher = self._new_pusher(config)
        self._listener: MetricsListener | None = None
        address = config.optional_str("moldau.metrics.listener")
        if address:
            self._listener = MetricsListener(*parse_address(address), self.source)
            self._listener.start()
            logger.info("Metrics at http://%s/metrics", self.address)
        if self._pusher is not None:
            self._pusher.start()

    @property
    def address(self) -> str | None:
        """`HOST:PORT` of the listener, with the port that was selected for port 0; None without a listener."""
        return None if self._listener is None else self._listener.address

    async def push_last(self) -> None:
        """Push once more, for a limited time, and then no longer."""
        if self._pusher is None:
            return
        self._pusher.finish()
        until = monotonic() + LAST_PUSH_S
        while self._pusher.is_pushing() and monotonic() < until:  # noqa: ASYNC110  (a thread that may not end)
            await asyncio.sleep(_POLL_S)

    def close(self) -> None:
        """Serve and push no longer."""
        if self._pusher is not None:
            self._pusher.close()
        if self._listener is not None:
            self._listener.close()

    def _new_pusher(self, config: BrokerConfig) -> Pusher | None:
        url = config.optional_str("moldau.metrics.otlp.endpoint")
        if not url:
            return None
        from .otlp import Pusher, endpoint_of  # other servers do not need it

        headers = config.optional_str("moldau.metrics.otlp.headers") or ""
        interval_s = config.int("moldau.metrics.otlp.interval.ms") / 1000
        ca_file = config.optional_str("moldau.metrics.otlp.ca.file")
        return Pusher(endpoint_of(url, headers, interval_s, ca_file), _Pushed(self.source))


class _Pushed:
    """What is pushed: the same metrics, with the rates of the pushing thread."""

    def __init__(self, source: BrokerMetrics) -> None:
        self._source = source
        self._rates = Rates()

    def identity(self) -> Mapping[str, str] | None:
        return self._source.identity()

    def families(self) -> Iterator[Family | None]:
        return self._source.families(self._rates)
