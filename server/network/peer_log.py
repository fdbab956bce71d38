"""Rate limit for log lines that peers cause: one per second, a few per minute, and one line that counts the rest.

A misconfigured or malicious client reconnects many times a second. The first lines show the problem; further ones would
only fill the disk. So a line of one kind about one peer is logged at most once a minute. At most `LINES_OF_A_PEER`
lines of different kinds are logged per minute, even if a scan of all APIs causes many kinds. When the minute is over,
one line sums up the suppressed lines, so that nothing goes unmentioned. A kind that this summary names counts as
logged.

Between two lines about a peer there is at least a second (`Pace`), in all logs of a node that share the pace. The first
line of a kind that comes too soon is held until then, and counts the lines of its kind that followed it meanwhile. Of
several held lines, the one with the highest level is logged first, and then the oldest one.

A peer is a host, because each connection has another port. Memory is bounded: for each peer, `KINDS_OF_A_PEER` kinds
are distinguished, and all further kinds share an entry. Above a number of entries, all further peers share theirs.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable
from typing import Final

from ..concurrency.timers import TimerWheel

INTERVAL_MS: Final = 60_000
PACE_MS: Final = 1000
LINES_OF_A_PEER: Final = 5
KINDS_OF_A_PEER: Final = 12
MAX_ENTRIES: Final = 1000
_OTHER_PEERS: Final = "other peers"
_OTHER_KINDS: Final = "other kinds"
_KIND_CHARACTERS: Final = 80
_NUMBERS: Final = re.compile(r"\d+")


class Pace:
    """When the last line about each peer was logged, in the logs of one node. Only the last second is kept."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """``clock``: the clock of the timers, in seconds."""
        self.logs: list[PeerLog] = []
        """Those with this pace."""
        self._clock = clock
        self._last_ms: dict[str, float] = {}  # in the order of the times

    def wait_ms(self, host: str) -> float:
        """How long no line about the peer may be logged; 0 if one may be logged now."""
        return max(self._last_ms.get(host, -math.inf) + PACE_MS - self._clock() * 1000, 0)

    def logged(self, host: str) -> None:
        """A line about the peer has been logged."""
        now_ms = self._clock() * 1000
        self._last_ms.pop(host, None)
        self._last_ms[host] = now_ms
        while (oldest := next(iter(self._last_ms))) != host and self._last_ms[oldest] + PACE_MS <= now_ms:
            del self._last_ms[oldest]

    def close(self) -> None:
        """The node stops, so no timer will log what the logs hold."""
        for log in self.logs:
            log.close()


class _Kind:
    """The lines of one kind about one peer."""

    __slots__ = ("held", "last", "level", "logged_at_ms", "suppressed")

    def __init__(self) -> None:
        self.logged_at_ms = -math.inf
        # The level and the text of a line that will be logged as soon as the pace permits it.
        self.held: tuple[int, str] | None = None
        # Lines suppressed since the last line, or since the held one.
        self.suppressed = 0
        self.level = logging.NOTSET
        self.last = ""

    def forget_suppressed(self) -> None:
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
        pace: Pace | None = None,
        max_entries: int = MAX_ENTRIES,
    ) -> None:
        """``clock``: the clock of the timers, in seconds. ``pace``: that of the other logs of the node."""
        self._logger = logger
        self._timers = timers
        self._clock = clock
        self._pace = pace or Pace(clock)
        self._pace.logs.append(self)
        self._max_entries = max_entries
        self._entries = 0
        self._peers: dict[str, dict[str, _Kind]] = {}

    def log(self, level: int, host: str, reason: str, message: str) -> None:
        """Log ``message``, hold it, or count it as suppressed; see the module docstring.

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
            wait_ms = self._pace.wait_ms(host)
            if wait_ms > 0:
                if not _held(kinds):
                    self._timers.call_after(wait_ms, lambda: self._log_held(host))
                kind.held = level, message
            else:
                self._log(level, host, message)
        else:
            kind.suppressed += 1
            kind.level = max(kind.level, level)
            kind.last = message

    def close(self) -> None:
        """Log the held and the suppressed lines: one last line per peer, whatever the pace."""
        for host, kinds in self._peers.items():
            for kind in kinds.values():
                if kind.held is not None:
                    kind.suppressed += 1
                    level, kind.last = kind.held
                    kind.level = max(kind.level, level)
                    kind.held = None
            suppressed = {name: kind for name, kind in kinds.items() if kind.suppressed}
            if suppressed:
                self._sum_up(host, suppressed)
                for kind in suppressed.values():
                    kind.forget_suppressed()

    def _log(self, level: int, host: str, message: str) -> None:
        self._logger.log(level, "%s", _in_one_line(message))
        self._pace.logged(host)

    def _log_held(self, host: str) -> None:
        """The pace may permit a line again. Another log with the same pace may have been first."""
        kinds = self._peers.get(host, {})
        held = _held(kinds)
        wait_ms = self._pace.wait_ms(host)
        if held and wait_ms <= 0:
            kind = max(held, key=lambda each: each.held[0] if each.held else 0)
            assert kind.held is not None
            level, message = kind.held
            if kind.suppressed:
                level = max(level, kind.level)
                message += f" (the first of {kind.suppressed + 1} similar lines about {host} within a second)"
                kind.forget_suppressed()
            kind.held = None
            kind.logged_at_ms = self._clock() * 1000
            self._log(level, host, message)
            held.remove(kind)
            wait_ms = PACE_MS
        if held:
            self._timers.call_after(wait_ms, lambda: self._log_held(host))

    def _begin_minute(self, host: str) -> None:
        self._timers.call_after(INTERVAL_MS, lambda: self._end_minute(host))

    def _end_minute(self, host: str) -> None:
        now_ms = self._clock() * 1000
        kinds = self._peers[host]
        due = {name: kind for name, kind in kinds.items() if _is_over(kind, now_ms) and kind.held is None}
        suppressed = {name: kind for name, kind in due.items() if kind.suppressed}
        if suppressed:
            wait_ms = self._pace.wait_ms(host)
            if wait_ms > 0:
                self._timers.call_after(wait_ms, lambda: self._end_minute(host))
                return
            self._sum_up(host, suppressed)
            self._pace.logged(host)
        for name, kind in due.items():
            if name in suppressed:
                kind.logged_at_ms = now_ms
                kind.forget_suppressed()
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
        example = _in_one_line(next(kind.last for _, kind in by_count if kind.level == level))
        if len(by_count) == 1:
            self._logger.log(level, "%s (the last of %d similar lines about %s within a minute)", example, count, host)
        else:
            self._logger.log(
                level,
                "%d lines about %s were suppressed within a minute: %s. Example: %s",
                count, host, ", ".join(f"{kind.suppressed} x {name}" for name, kind in by_count), example,
            )  # fmt: skip


def _in_one_line(message: str) -> str:
    """Peers determine parts of the messages, for example with the name in a certificate, and must not add lines to the
    log, or control a terminal."""
    if message.isprintable():
        return message
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in message)


def _is_over(kind: _Kind, now_ms: float) -> bool:
    """Whether a minute has passed since a line of this kind was logged."""
    return now_ms - kind.logged_at_ms >= INTERVAL_MS


def _lines(kinds: dict[str, _Kind], now_ms: float) -> int:
    """How many kinds were logged in the last minute."""
    return sum(not _is_over(kind, now_ms) for kind in kinds.values())


def _held(kinds: dict[str, _Kind]) -> list[_Kind]:
    """The kinds with a held line, the oldest first."""
    return sorted((kind for kind in kinds.values() if kind.held is not None), key=lambda kind: kind.logged_at_ms)
