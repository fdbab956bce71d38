"""Rate limit for log lines that peers cause: a few per peer and minute, and one line that counts the rest.

A misconfigured or malicious client reconnects many times a second. The first lines show the problem; further ones would
only fill the disk. So a line of one kind about one peer is logged at most once a minute. At most `LINES_OF_A_PEER`
lines of different kinds are logged per minute, even if a scan of all APIs causes many kinds. When the minute is over,
one line sums up the suppressed lines, so that nothing goes unmentioned. A kind that this summary names counts as
logged.

A peer is a host, because each connection has another port. Memory is bounded: for each peer, `KINDS_OF_A_PEER` kinds
are distinguished, and all further kinds share an entry. Above a number of entries, all further peers share theirs.
"""

import logging
import math
import re
from collections.abc import Callable
from typing import Final

from ..concurrency.timers import TimerWheel

INTERVAL_MS: Final = 60_000
LINES_OF_A_PEER: Final = 5
KINDS_OF_A_PEER: Final = 12
MAX_ENTRIES: Final = 1000
_OTHER_PEERS: Final = "other peers"
_OTHER_KINDS: Final = "other kinds"
_KIND_CHARACTERS: Final = 80
_NUMBERS: Final = re.compile(r"\d+")


class _Kind:
    """The lines of one kind about one peer."""

    __slots__ = ("last", "level", "logged_at_ms", "suppressed")

    def __init__(self) -> None:
        self.logged_at_ms = -math.inf
        # Lines suppressed since then.
        self.suppressed = 0
        self.level = logging.NOTSET
        self.last = ""


class PeerLog:
    """See the module docstring."""

    def __init__(
        self,
        logger: logging.Logger,
        timers: TimerWheel,
        clock: Callable[[], float],
        *,
        max_entries: int = MAX_ENTRIES,
    ) -> None:
        """``clock``: the clock of the timers, in seconds."""
        self._logger = logger
        self._timers = timers
        self._clock = clock
        self._max_entries = max_entries
        self._entries = 0
        self._peers: dict[str, dict[str, _Kind]] = {}

    def log(self, level: int, host: str, reason: str, message: str) -> None:
        """Log ``message``, or count it as suppressed; see the module docstring.

        The kind is the part of ``reason`` before its first colon; numbers in it are ignored.
        """
        if not self._logger.isEnabledFor(level):
            return
        name = _NUMBERS.sub("#", reason.partition(":")[0])[:_KIND_CHARACTERS]
        now_ms = self._clock() * 1000
        kinds = self._peers.get(host, {})
        if name not in kinds and self._entries >= self._max_entries:
            host = _OTHER_PEERS
            kinds = self._peers.get(host, {})
        if not kinds:
            self._peers[host] = kinds
            self._begin_minute(host)
        if name not in kinds and len(kinds) >= KINDS_OF_A_PEER:
            name = _OTHER_KINDS
        kind = kinds.get(name)
        if kind is None:
            kind = kinds[name] = _Kind()
            self._entries += 1
        if not kind.suppressed and _is_over(kind, now_ms) and _lines(kinds, now_ms) < LINES_OF_A_PEER:
            kind.logged_at_ms = now_ms
            self._logger.log(level, "%s", message)
        else:
            kind.suppressed += 1
            kind.level = max(kind.level, level)
            kind.last = message

    def _begin_minute(self, host: str) -> None:
        self._timers.call_after(INTERVAL_MS, lambda: self._end_minute(host))

    def _end_minute(self, host: str) -> None:
        now_ms = self._clock() * 1000
        kinds = self._peers[host]
        due = {name: kind for name, kind in kinds.items() if _is_over(kind, now_ms)}
        suppressed = {name: kind for name, kind in due.items() if kind.suppressed}
        if suppressed:
            self._sum_up(host, suppressed)
        for name, kind in due.items():
            if name in suppressed:
                kind.logged_at_ms = now_ms
                kind.suppressed = 0
                kind.level = logging.NOTSET
                kind.last = ""
            else:
                del kinds[name]
                self._entries -= 1
        if kinds:
            self._begin_minute(host)
        else:
            del self._peers[host]

    def _sum_up(self, host: str, suppressed: dict[str, _Kind]) -> None:
        by_count = sorted(suppressed.items(), key=lambda item: -item[1].suppressed)
        count = sum(kind.suppressed for _, kind in by_count)
        level = max(kind.level for _, kind in by_count)
        example = by_count[0][1].last
        if len(by_count) == 1:
            self._logger.log(level, "%s (the last of %d similar lines about %s within a minute)", example, count, host)
        else:
            self._logger.log(
                level,
                "%d lines about %s were suppressed within a minute: %s. Example: %s",
                count, host, ", ".join(f"{kind.suppressed} x {name}" for name, kind in by_count), example,
            )  # fmt: skip


def _is_over(kind: _Kind, now_ms: float) -> bool:
    """Whether a minute has passed since a line of this kind was logged."""
    return now_ms - kind.logged_at_ms >= INTERVAL_MS


def _lines(kinds: dict[str, _Kind], now_ms: float) -> int:
    """How many kinds were logged in the last minute."""
    return sum(not _is_over(kind, now_ms) for kind in kinds.values())
