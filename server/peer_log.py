"""Log lines that peers cause: one a minute for each peer and kind, with the number of those that were left out.

A client that is misconfigured, or that means harm, reconnects many times a second and gets the same answer each time.
The first line says what is wrong; the others would only fill the disk. What was left out is summed up in one line when
the minute is over, so that nothing goes unmentioned.

A peer is a host, because its port is another one with each connection. Memory is bounded: beyond a number of peers and
kinds, all further peers share one line for each kind.
"""

import logging
import re
from typing import Final

from .timers import TimerWheel

INTERVAL_MS: Final = 60_000
MOST_ENTRIES: Final = 1000
_OTHERS: Final = "other peers"
_NUMBERS: Final = re.compile(r"\d+")


class _Entry:
    """What was left out since the last line."""

    __slots__ = ("last", "level", "suppressed")

    def __init__(self) -> None:
        self.suppressed = 0
        self.level = logging.NOTSET
        self.last = ""


class PeerLog:
    """See the module."""

    def __init__(self, logger: logging.Logger, timers: TimerWheel, *, most_entries: int = MOST_ENTRIES) -> None:
        self._logger = logger
        self._timers = timers
        self._most_entries = most_entries
        self._entries: dict[tuple[str, str], _Entry] = {}

    def log(self, level: int, host: str, reason: str, message: str) -> None:
        """Log ``message`` unless a line of the same kind about this host was logged less than a minute ago.

        ``reason`` gives the kind: what comes before its first colon, whatever the numbers in it are.
        """
        if not self._logger.isEnabledFor(level):
            return
        kind = _NUMBERS.sub("#", reason.partition(":")[0])
        if (host, kind) not in self._entries and len(self._entries) >= self._most_entries:
            host = _OTHERS
        entry = self._entries.get((host, kind))
        if entry is None:
            self._logger.log(level, "%s", message)
            self._begin_minute(host, kind)
        else:
            entry.suppressed += 1
            entry.level = max(entry.level, level)
            entry.last = message

    def _begin_minute(self, host: str, kind: str) -> None:
        self._entries[host, kind] = _Entry()
        self._timers.call_after(INTERVAL_MS, lambda: self._end_minute(host, kind))

    def _end_minute(self, host: str, kind: str) -> None:
        entry = self._entries.pop((host, kind))
        if entry.suppressed:
            self._logger.log(
                entry.level,
                "%s (the last of %d such lines about %s in a minute)", entry.last, entry.suppressed, host,
            )  # fmt: skip
            self._begin_minute(host, kind)
