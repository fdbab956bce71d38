"""The limit on unread responses: which connections are closed above it."""

from __future__ import annotations

from collections.abc import Callable

from moldau.server.network.unread_responses import UnreadResponses


class Peer:
    def __init__(self, unread: UnreadResponses, name: str, closed: list[str]) -> None:
        self.unread = unread
        self.name = name
        self.closed = closed

    def close_unread(self) -> None:
        self.closed.append(self.name)
        self.unread.count(self, 0, progress=False)


class Fixture:
    def __init__(self, max_bytes: int) -> None:
        self.callbacks: list[Callable[[], None]] = []
        self.unread = UnreadResponses(self.callbacks.append, max_bytes)
        self.closed: list[str] = []
        self.peers = [Peer(self.unread, name, self.closed) for name in "abc"]

    def turn(self) -> None:
        callbacks, self.callbacks[:] = list(self.callbacks), []
        for callback in callbacks:
            callback()


def test_up_to_the_limit_no_connection_is_closed() -> None:
    fixture = Fixture(30)
    for peer in fixture.peers:
        fixture.unread.count(peer, 10, progress=True)
    assert not fixture.callbacks
    assert fixture.unread.used_bytes == 30


def test_the_connection_without_progress_for_the_longest_time_is_closed_later() -> None:
    fixture = Fixture(25)
    a, b, c = fixture.peers
    fixture.unread.count(a, 10, progress=True)
    fixture.unread.count(b, 10, progress=True)
    fixture.unread.count(a, 9, progress=True)  # the peer reads
    fixture.unread.count(b, 10, progress=False)
    fixture.unread.count(c, 10, progress=True)
    assert not fixture.closed  # not while c is being served
    fixture.turn()
    assert fixture.closed == ["b"]
    assert fixture.unread.used_bytes == 19


def test_connections_are_closed_until_the_remaining_ones_fit() -> None:
    fixture = Fixture(25)
    a, b, c = fixture.peers
    for peer, size in ((a, 10), (b, 10), (c, 20)):
        fixture.unread.count(peer, size, progress=True)
    fixture.turn()
    assert fixture.closed == ["a", "b"]
    assert fixture.unread.used_bytes == 20


def test_one_response_may_exceed_the_limit() -> None:
    fixture = Fixture(25)
    fixture.unread.count(fixture.peers[0], 100, progress=True)
    fixture.turn()
    assert not fixture.closed
    fixture.unread.count(fixture.peers[0], 0, progress=True)
    assert fixture.unread.used_bytes == 0
