"""One line a minute for each peer and kind of problem, whatever the peers do."""

import errno
import logging

import pytest

from moldau.server.peer_log import INTERVAL_MS, PeerLog

logger = logging.getLogger("test_peer_log")


class FakeTimers:
    """The part of the timer wheel that is used, with a clock that tests move."""

    def __init__(self):
        self.now_ms = 0
        self.due = []

    def call_after(self, delay_ms, callback):
        self.due.append((self.now_ms + delay_ms, callback))

    def advance(self, delay_ms):
        self.now_ms += delay_ms
        due = [callback for at_ms, callback in self.due if at_ms <= self.now_ms]
        self.due = [(at_ms, callback) for at_ms, callback in self.due if at_ms > self.now_ms]
        for callback in due:
            callback()


@pytest.fixture
def timers():
    return FakeTimers()


@pytest.fixture
def lines(caplog):
    """The lines since the last call."""
    caplog.set_level(logging.INFO, logger.name)

    def take():
        messages = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return messages

    return take


def test_a_line_is_repeated_once_a_minute_with_the_number_of_those_left_out(timers, lines):
    log = PeerLog(logger, timers)
    for number in range(500):
        log.log(logging.WARNING, "10.0.0.1", "a request of 3 bytes is short", f"from port {number}")
    assert lines() == ["from port 0"]
    timers.advance(INTERVAL_MS)
    assert lines() == ["from port 499 (the last of 499 such lines about 10.0.0.1 in a minute)"]
    log.log(logging.WARNING, "10.0.0.1", "a request of 3 bytes is short", "from port 500")
    assert lines() == []
    timers.advance(INTERVAL_MS)
    assert lines() == ["from port 500 (the last of 1 such lines about 10.0.0.1 in a minute)"]


def test_nothing_is_kept_of_a_peer_that_was_quiet_for_a_minute(timers, lines):
    log = PeerLog(logger, timers)
    log.log(logging.WARNING, "10.0.0.1", "x", "first")
    timers.advance(INTERVAL_MS)
    assert timers.due == []
    assert log._entries == {}
    log.log(logging.WARNING, "10.0.0.1", "x", "second")
    assert lines() == ["first", "second"]


def test_other_peers_and_other_kinds_have_lines_of_their_own(timers, lines):
    log = PeerLog(logger, timers)
    log.log(logging.WARNING, "10.0.0.1", "FETCH v12 cannot be read: at 7", "one")
    log.log(logging.WARNING, "10.0.0.1", "FETCH v13 cannot be read: at 8", "the same kind")
    log.log(logging.WARNING, "10.0.0.1", "PRODUCE v13 cannot be read: at 8", "two")
    log.log(logging.WARNING, "10.0.0.2", "FETCH v12 cannot be read: at 7", "three")
    assert lines() == ["one", "two", "three"]


def test_summary_has_the_highest_level(timers, caplog):
    caplog.set_level(logging.INFO, logger.name)
    log = PeerLog(logger, timers)
    for level in (logging.INFO, logging.ERROR, logging.INFO):
        log.log(level, "10.0.0.1", "x", "line")
    timers.advance(INTERVAL_MS)
    assert [record.levelno for record in caplog.records] == [logging.INFO, logging.ERROR]


def test_lines_below_the_level_of_the_log_take_no_memory(timers, lines):
    log = PeerLog(logger, timers)
    log.log(logging.DEBUG, "10.0.0.1", "x", "line")
    assert (lines(), timers.due) == ([], [])


def test_memory_and_lines_are_bounded_with_many_peers(timers, lines):
    log = PeerLog(logger, timers, most_entries=10)
    for number in range(1000):
        log.log(logging.WARNING, f"10.0.0.{number}", "x", f"from {number}")
    assert lines() == [f"from {number}" for number in range(11)]
    assert len(log._entries) == len(timers.due) == 11
    timers.advance(INTERVAL_MS)
    assert lines() == ["from 999 (the last of 989 such lines about other peers in a minute)"]
    log.log(logging.WARNING, "10.0.1.1", "x", "there is room again")
    assert lines() == ["there is room again"]


def test_connections_that_cannot_be_accepted_are_one_line_a_minute(server, caplog):
    class NoDescriptors:
        """A listening socket of a process whose limit of open files is reached."""

        def __init__(self, sock):
            self.fileno = sock.fileno

        def accept(self):
            raise OSError(errno.EMFILE, "Too many open files")

    (listener,) = server.server._network.listeners
    real = listener._sock

    def refuse():
        listener._sock = NoDescriptors(real)
        for _ in range(5):
            listener._on_acceptable()
        listener._sock = real

    server.call(refuse)
    assert caplog.text.count("Cannot accept a connection") == 1
    server.create_topic("served-again")
