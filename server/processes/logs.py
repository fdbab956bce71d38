"""The log of a server process on standard error: as lines of text, or one JSON object per line.

The level applies to all loggers. ``moldau.log.format=json`` is for collectors of logs: an event with a traceback stays
one line.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...config.broker_config import BrokerConfig


class JsonFormatter(logging.Formatter):
    """``time`` (UTC, ISO 8601), ``level``, ``logger``, ``broker`` (in a cluster of processes), ``message``, and
    ``exception`` with the traceback."""

    def __init__(self, broker_id: int | None) -> None:
        super().__init__()
        self._broker = {} if broker_id is None else {"broker": broker_id}

    def format(self, record: logging.LogRecord) -> str:
        import json  # a server with lines of text starts without both
        from datetime import UTC, datetime

        event = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            **self._broker,
            "message": record.getMessage(),
        }
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        return json.dumps(event)


def log_to_stderr(config: BrokerConfig, *, source: str, broker_id: int | None = None) -> None:
    """Write the log of this process to standard error, as ``moldau.log.level`` and ``moldau.log.format`` say.

    ``source`` begins the message of a line of text, in the style of `logging`.
    """
    handler = logging.StreamHandler(sys.stderr)
    if config.str("moldau.log.format") == "json":
        handler.setFormatter(JsonFormatter(broker_id))
    else:
        handler.setFormatter(logging.Formatter(f"%(asctime)s %(levelname)-7s {source}%(message)s"))
    logging.basicConfig(level=config.str("moldau.log.level"), handlers=[handler])
