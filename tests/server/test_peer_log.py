"""A peer causes one log line per second, a few per minute, and one that sums up the others, whatever it does."""

from __future__ import annotations

import errno
import itertools
import logging
import random
import re
from typing import Any

import pytest

from moldau.server.network.peer_log import (
    INTERVAL_MS,
    KINDS_OF_A_PEER,
    LINES_OF_A_PEER,
    MAX_ENTRIES,
    PACE_MS,
    Pace,
    PeerLog,
)

from .conftest import RunningServer

logger = logging.getLogger("test_peer_log")


class FakeTimers:
    """The part of the timer wheel that the log uses, with a clock that tests move."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.due: list[Any] = []

    def clock(self) -> Any:
        return self.now_ms / 1000

    def call_after(self, delay_ms: float, callback: Any) -> None:
        self.due.append((self.now_ms + delay_ms, callback))

    def advance(self, delay_ms: float) -> None:
        """Fire what is due meanwhile, in its order and at its time."""
        until_ms = self.now_ms + delay_ms
        while due := [entry for entry in self.due if entry[0] <= until_ms]:
            first = min(due, key=lambda entry: entry[0])
            self.due.remove(first)
            self.now_ms, callback = first
            callback()
        self.now_ms = until_ms


@pytest.fixture
def timers() -> FakeTimers:
    return FakeTimers()


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Any:
    """The lines since the last call."""
    caplog.set_level(logging.INFO, logger.name)

    def take() -> Any:
        messages = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return messages

    return take


def test_a_line_is_repeated_once_a_minute_with_the_number_of_suppressed_lines(timers: Any, lines: Any) -> None:
    log = PeerLog(logger, timers, timers.clock)
    for number in range(500):
        log.log(logging.WARNING, "10.0.0.1", "a request of 3 bytes is short", f"from port {number}")
    assert lines() == ["from port 0"]
    timers.advance(INTERVAL_MS)
    assert lines() == ["from port 499 (the last of 499 similar lines about 10.0.0.1 within a minute)"]
    log.log(logging.WARNING, "10.0.0.1", "a request of 3 bytes is short", "from port 500")
    assert lines() == []
    timers.advance(INTERVAL_MS)
    assert lines() == ["from port 500 (the last of 1 similar lines about 10.0.0.1 within a minute)"]


def test_the_state_of_a_peer_is_removed_after_a_minute_without_lines(timers: Any, lines: Any) -> None:
    log = PeerLog(logger, timers, timers.clock)
    log.log(logging.WARNING, "10.0.0.1", "x", "first")
    timers.advance(INTERVAL_MS)
    assert timers.due == []
    assert log._peers == {}
    log.log(logging.WARNING, "10.0.0.1", "x", "second")
    assert lines() == ["first", "second"]


def test_text_of_a_peer_adds_no_lines_and_does_not_control_a_terminal(timers: Any, lines: Any) -> None:
    log = PeerLog(logger, timers, timers.clock)
    for name in ("CN=a\nINFO forged\x1b[2J", "CN=\u010capek\r\u2028"):
        log.log(logging.WARNING, "10.0.0.1", "x", f"no rule for {name}")
    timers.advance(INTERVAL_MS)
    assert lines() == [
        r"no rule for CN=a\nINFO forged\x1b[2J",
        r"no rule for CN=\u010capek\r\u2028 (the last of 1 similar lines about 10.0.0.1 within a minute)".replace(
            r"\u010c", "\u010c"
        ),
    ]


def test_each_peer_and_each_kind_has_separate_lines(timers: Any, lines: Any) -> None:
    log = PeerLog(logger, timers, timers.clock)
    log.log(logging.WARNING, "10.0.0.1", "FETCH v12 cannot be read: at 7", "one")
    log.log(logging.WARNING, "10.0.0.1", "FETCH v13 cannot be read: at 8", "the same kind")
    log.log(logging.WARNING, "10.0.0.1", "PRODUCE v13 cannot be read: at 8", "two")
    log.log(logging.WARNING, "10.0.0.2", "FETCH v12 cannot be read: at 7", "three")
    assert lines() == ["one", "three"]
    timers.advance(PACE_MS)
    assert lines() == ["two"]


def test_a_scan_of_all_apis_causes_a_few_lines_and_then_one_a_minute(timers: Any, lines: Any) -> None:
    log = PeerLog(logger, timers, timers.clock)

    def scan() -> None:
        for number in range(90):
            for _ in range(2 if number == 60 else 1):
                log.log(logging.WARNING, "10.0.0.1", f"{chr(0x4E00 + number)} cannot be read: at 7", f"api {number}")

    scan()
    for number in range(LINES_OF_A_PEER):
        assert lines() == [f"api {number}"]
        timers.advance(PACE_MS)
    assert lines() == []
    timers.advance(INTERVAL_MS)
    named = ", ".join(f"1 x {chr(0x4E00 + number)} cannot be read" for number in range(5, KINDS_OF_A_PEER))
    assert lines() == [
        f"86 lines about 10.0.0.1 were suppressed within a minute: 79 x other kinds, {named}. Example: api 89"
    ]
    scan()
    assert lines() == [], "what was left out was said a moment ago"
    timers.advance(INTERVAL_MS)
    assert len(lines()) == 1
    assert log._entries == sum(map(len, log._peers.values())) <= KINDS_OF_A_PEER + 1
    timers.advance(INTERVAL_MS)
    assert (lines(), timers.due, log._entries) == ([], [], 0)


def test_there_is_a_second_between_two_lines_about_a_peer_in_all_logs(timers: Any, lines: Any) -> None:
    """Whatever happens when: kinds, summaries, and another log of the same node. Each line is logged or counted."""
    times: dict[str, list[float]] = {"10.0.0.1": [], "10.0.0.2": []}

    class Recorder(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            (host,) = (host for host in times if host in record.getMessage())
            times[host].append(timers.now_ms)

    pace = Pace(timers.clock)
    logs = [PeerLog(logger, timers, timers.clock, pace=pace) for _ in range(2)]
    dice = random.Random(1)
    recorder = Recorder()
    logger.addHandler(recorder)
    try:
        for number in range(5000):
            host = dice.choice(list(times))
            kind = chr(0x4E00 + dice.randrange(20))
            dice.choice(logs).log(logging.WARNING, host, kind, f"{host} line {number}")
            timers.advance(dice.choice((0, 0, 1, 100, 400)))
        timers.advance(3 * INTERVAL_MS)
    finally:
        logger.removeHandler(recorder)
    for moments in times.values():
        assert len(moments) > LINES_OF_A_PEER
        assert all(later - earlier >= PACE_MS for earlier, later in itertools.pairwise(moments))
    counted = [re.search(r"the (?:first|last) of (\d+) similar|^(\d+) lines about", line) for line in lines()]
    assert sum(1 if found is None else int(found[1] or found[2]) for found in counted) == 5000
    assert (logs[0]._peers, logs[1]._peers, timers.due) == ({}, {}, [])
    assert len(pace._last_ms) <= len(times)


def test_the_first_line_of_each_kind_is_held_and_the_most_severe_is_first(timers: Any, lines: Any) -> None:
    log = PeerLog(logger, timers, timers.clock)
    log.log(logging.INFO, "10.0.0.1", "a", "a")
    log.log(logging.INFO, "10.0.0.1", "b", "b")
    log.log(logging.WARNING, "10.0.0.1", "c", "c")
    for number in range(3):
        log.log(logging.ERROR, "10.0.0.1", "d", f"d {number}")
    log.log(logging.WARNING, "10.0.0.1", "e", "e")
    timers.advance(PACE_MS - 1)
    assert lines() == ["a"]
    for expected in ("d 0 (the first of 3 similar lines about 10.0.0.1 within a second)", "c", "e", "b"):
        timers.advance(1)
        assert lines() == [expected]
        timers.advance(PACE_MS - 1)
        assert lines() == []
    timers.advance(2 * INTERVAL_MS)
    assert (lines(), log._peers) == ([], {}), "there is nothing that is not logged yet"


def test_held_and_suppressed_lines_are_logged_when_the_node_stops(timers: Any, lines: Any) -> None:
    pace = Pace(timers.clock)
    log, other = (PeerLog(logger, timers, timers.clock, pace=pace) for _ in range(2))
    log.log(logging.WARNING, "10.0.0.1", "a", "a")
    other.log(logging.WARNING, "10.0.0.1", "b", "b")
    log.log(logging.WARNING, "10.0.0.2", "a", "a of another peer")
    for _ in range(4):
        log.log(logging.WARNING, "10.0.0.2", "a", "the same")
    assert lines() == ["a", "a of another peer"]
    pace.close()
    assert lines() == [
        "the same (the last of 4 similar lines about 10.0.0.2 within a minute)",
        "b (the last of 1 similar lines about 10.0.0.1 within a minute)",
    ]
    pace.close()
    assert lines() == []


def test_the_pace_keeps_only_the_last_second(timers: Any, lines: Any) -> None:
    pace = Pace(timers.clock)
    for number in range(1000):
        pace.logged(f"10.0.0.{number}")
        timers.advance(100)
    assert len(pace._last_ms) <= PACE_MS / 100
    assert pace.wait_ms("10.0.0.999") == PACE_MS - 100


def test_each_kind_of_line_has_its_own_minute(timers: Any, lines: Any) -> None:
    log = PeerLog(logger, timers, timers.clock)
    log.log(logging.WARNING, "10.0.0.1", "one", "one")
    timers.advance(INTERVAL_MS - 1000)
    log.log(logging.WARNING, "10.0.0.1", "two", "two at 59 s")
    log.log(logging.WARNING, "10.0.0.1", "two", "two again")
    assert lines() == ["one", "two at 59 s"]
    timers.advance(1000)
    log.log(logging.WARNING, "10.0.0.1", "two", "two at 60 s")
    timers.advance(INTERVAL_MS - 500)
    log.log(logging.WARNING, "10.0.0.1", "two", "two at 119.5 s")
    assert lines() == []
    timers.advance(500)
    assert lines() == ["two at 119.5 s (the last of 3 similar lines about 10.0.0.1 within a minute)"]


def test_the_summary_has_the_highest_level(timers: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger.name)
    log = PeerLog(logger, timers, timers.clock)
    for level in (logging.INFO, logging.ERROR, logging.INFO):
        log.log(level, "10.0.0.1", "x", "line")
    timers.advance(INTERVAL_MS)
    assert [record.levelno for record in caplog.records] == [logging.INFO, logging.ERROR]


def test_lines_below_the_log_level_use_no_memory(timers: Any, lines: Any) -> None:
    log = PeerLog(logger, timers, timers.clock)
    log.log(logging.DEBUG, "10.0.0.1", "x", "line")
    assert (lines(), timers.due) == ([], [])


def test_memory_and_lines_are_limited_with_many_peers(timers: Any, lines: Any) -> None:
    log = PeerLog(logger, timers, timers.clock, max_entries=10)
    for number in range(1000):
        log.log(logging.WARNING, f"10.0.0.{number}", "x", f"from {number}")
    assert lines() == [f"from {number}" for number in range(11)]
    assert len(log._peers) == len(timers.due) == log._entries == 11
    timers.advance(INTERVAL_MS)
    assert lines() == ["from 999 (the last of 989 similar lines about other peers within a minute)"]
    log.log(logging.WARNING, "10.0.1.1", "x", "there is room again")
    assert lines() == ["there is room again"]


def test_entries_are_limited_with_many_peers_and_kinds(timers: Any, lines: Any) -> None:
    log = PeerLog(logger, timers, timers.clock)
    for number in range(100_000):
        log.log(logging.WARNING, f"10.0.0.{number % 700}", f"{chr(0x4E00 + number % 90)} cannot be read", "line")
    assert log._entries == sum(map(len, log._peers.values())) <= MAX_ENTRIES + KINDS_OF_A_PEER + 1
    assert len(lines()) <= len(log._peers)
    timers.advance(PACE_MS * LINES_OF_A_PEER)
    assert len(lines()) <= MAX_ENTRIES + LINES_OF_A_PEER
    for _ in range(2):
        timers.advance(INTERVAL_MS)
        assert len(lines()) <= 701
    assert (log._peers, log._entries, timers.due) == ({}, 0, [])


def test_connections_that_cannot_be_accepted_cause_one_line_a_minute(
    server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    class NoDescriptors:
        """A listening socket of a process whose limit of open files is reached."""

        def __init__(self, sock: Any) -> None:
            self.fileno = sock.fileno

        def accept(self) -> None:
            raise OSError(errno.EMFILE, "Too many open files")

    (listener,) = server.network.listeners
    real = listener._sock

    def refuse() -> None:
        listener._sock = NoDescriptors(real)  # type: ignore[assignment]
        for _ in range(5):
            listener._on_acceptable()
        listener._sock = real

    server.call(refuse)
    assert caplog.text.count("Cannot accept a connection") == 1
    server.create_topic("served-again")
