"""A peer causes a few log lines per minute, and one line that summarizes the suppressed lines, whatever it does."""

from __future__ import annotations

import errno
import logging
from typing import Any

import pytest

from moldau.server.network.peer_log import INTERVAL_MS, KINDS_OF_A_PEER, LINES_OF_A_PEER, MAX_ENTRIES, PeerLog

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
        self.now_ms += delay_ms
        due = [callback for at_ms, callback in self.due if at_ms <= self.now_ms]
        self.due = [(at_ms, callback) for at_ms, callback in self.due if at_ms > self.now_ms]
        for callback in due:
            callback()


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


def test_each_peer_and_each_kind_has_separate_lines(timers: Any, lines: Any) -> None:
    log = PeerLog(logger, timers, timers.clock)
    log.log(logging.WARNING, "10.0.0.1", "FETCH v12 cannot be read: at 7", "one")
    log.log(logging.WARNING, "10.0.0.1", "FETCH v13 cannot be read: at 8", "the same kind")
    log.log(logging.WARNING, "10.0.0.1", "PRODUCE v13 cannot be read: at 8", "two")
    log.log(logging.WARNING, "10.0.0.2", "FETCH v12 cannot be read: at 7", "three")
    assert lines() == ["one", "two", "three"]


def test_a_scan_of_all_apis_causes_a_few_lines_and_then_one_a_minute(timers: Any, lines: Any) -> None:
    log = PeerLog(logger, timers, timers.clock)

    def scan() -> None:
        for number in range(90):
            for _ in range(2 if number == 60 else 1):
                log.log(logging.WARNING, "10.0.0.1", f"{chr(0x4E00 + number)} cannot be read: at 7", f"api {number}")

    scan()
    assert lines() == [f"api {number}" for number in range(LINES_OF_A_PEER)]
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
    assert len(lines()) <= MAX_ENTRIES + LINES_OF_A_PEER
    for _ in range(2):
        timers.advance(INTERVAL_MS)
        assert len(lines()) <= len(log._peers)
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
