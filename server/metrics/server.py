"""The metrics of a broker, with their listener."""

from __future__ import annotations

from .listener import MetricsListener, parse_address
from .source import BrokerMetrics


class MetricsServer:
    """Serves metrics from its creation to `close`."""

    def __init__(self, address: str, max_partitions: int) -> None:
        """``address``: `HOST:PORT`. Raises `MetricsError`."""
        self.source = BrokerMetrics(max_partitions)
        self._listener = MetricsListener(*parse_address(address), self.source)
        self._listener.start()

    @property
    def address(self) -> str:
        """`HOST:PORT`, with the port that was selected for port 0."""
        return self._listener.address

    def close(self) -> None:
        """Serve no longer."""
        self._listener.close()
