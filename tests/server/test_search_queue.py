"""Waiting searches hold no batch: they get a permit and submit the search again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moldau.server.records.decode_jobs import Outcome
from moldau.server.records.search_queue import Permit, SearchQueue

SIZE = 100


class FakeSearch:
    def __init__(self, identity: str, size: int = SIZE) -> None:
        self.identity = identity
        self.batch = bytes(size)


class FakeDecoder:
    """Completes jobs when the test requests it."""

    def __init__(self) -> None:
        self.running: dict[str, Callable[[Outcome], None]] = {}

    def submit(self, job: Any, done: Callable[[Outcome], None]) -> Callable[[], None]:
        assert job.identity not in self.running
        self.running[job.identity] = done
        return lambda: self.running.pop(job.identity) and None  # type: ignore[truthy-function]

    def finish(self, identity: str) -> None:
        self.running.pop(identity)(Outcome(identity))


class Client:
    """Searches once, and again with its permit. ``next_search`` is the batch that it then finds in the log."""

    def __init__(self, queue: SearchQueue, identity: str) -> None:
        self.queue = queue
        self.next_search: str | None = identity
        self.outcome: object = None
        self.permits = 0
        self.cancel = self.submit(None)

    def submit(self, permit: Permit | None) -> Callable[[], None]:
        assert self.next_search is not None
        search: Any = FakeSearch(self.next_search)
        return self.queue.submit(search, self.done, permit)

    def done(self, outcome: Outcome | Permit) -> None:
        if not isinstance(outcome, Permit):
            self.outcome = outcome.value
            return
        self.permits += 1
        if self.next_search is None:
            outcome.release()
        else:
            self.cancel = self.submit(outcome)


def create_queue(searches: int) -> tuple[FakeDecoder, SearchQueue]:
    """A decoder and a queue with a limit of ``searches`` batches."""
    decoder: Any = FakeDecoder()
    return decoder, SearchQueue(decoder, searches * SIZE)


def test_batches_up_to_the_limit_are_held_and_other_searches_retry() -> None:
    decoder, queue = create_queue(2)
    clients = [Client(queue, name) for name in "abcd"]
    assert list(decoder.running) == ["a", "b"]
    assert (queue.held_bytes, len(queue)) == (2 * SIZE, 2)
    decoder.finish("b")
    assert list(decoder.running) == ["a", "c"]
    assert [client.permits for client in clients] == [0, 0, 1, 0]
    for name in "acd":
        decoder.finish(name)
    assert [client.outcome for client in clients] == list("abcd")
    assert (queue.held_bytes, len(queue)) == (0, 0)


def test_a_batch_above_the_limit_is_searched() -> None:
    decoder, queue = create_queue(2)
    large: Any = FakeSearch("large", 10 * SIZE)
    outcomes: list[object] = []
    queue.submit(large, outcomes.append)
    client = Client(queue, "a")
    assert list(decoder.running) == ["large"]
    decoder.finish("large")
    assert len(outcomes) == 1
    decoder.finish("a")
    assert client.outcome == "a"


def test_identical_searches_are_done_once_even_after_waiting() -> None:
    decoder, queue = create_queue(1)
    clients = [Client(queue, name) for name in "aabbb"]
    assert (list(decoder.running), len(queue)) == (["a"], 1)
    decoder.finish("a")
    assert list(decoder.running) == ["b"]
    assert [client.permits for client in clients] == [0, 0, 1, 0, 0]
    decoder.finish("b")
    assert [client.outcome for client in clients] == list("aabbb")
    assert queue.held_bytes == 0


def test_an_unused_turn_is_passed_to_the_next_search() -> None:
    decoder, queue = create_queue(1)
    clients = [Client(queue, name) for name in "abbc"]
    clients[1].next_search = None  # the log has changed
    decoder.finish("a")
    assert list(decoder.running) == ["b"]
    decoder.finish("b")
    decoder.finish("c")
    assert [client.outcome for client in clients] == ["a", None, "b", "c"]
    assert (queue.held_bytes, len(queue)) == (0, 0)


def test_a_client_may_search_another_batch_at_its_turn() -> None:
    decoder, queue = create_queue(1)
    clients = [Client(queue, name) for name in "abb"]
    clients[1].next_search = "x"
    decoder.finish("a")
    assert list(decoder.running) == ["x"]
    decoder.finish("x")
    assert list(decoder.running) == ["b"]
    decoder.finish("b")
    assert [client.outcome for client in clients] == ["a", "x", "b"]


def test_a_cancelled_search_frees_its_slot() -> None:
    decoder, queue = create_queue(1)
    running, waiting, last = (Client(queue, name) for name in "abc")
    waiting.cancel()
    assert len(queue) == 1
    running.cancel()
    assert list(decoder.running) == ["c"]
    last.cancel()
    last.cancel()
    assert (decoder.running, queue.held_bytes, len(queue)) == ({}, 0, 0)


def test_thousands_of_waiting_searches_get_their_permits() -> None:
    decoder, queue = create_queue(1)
    clients = [Client(queue, str(number)) for number in range(3000)]
    for client in clients[::2]:
        client.next_search = None
    while decoder.running:
        decoder.finish(next(iter(decoder.running)))
    assert all(client.outcome or client.next_search is None for client in clients)
    assert (queue.held_bytes, len(queue)) == (0, 0)
