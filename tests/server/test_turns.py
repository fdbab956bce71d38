"""Turns of connections in an iteration of the event loop, with the clock of a test; many busy connections and a light
one."""

from __future__ import annotations

import contextlib
import select
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from moldau.server.concurrency.event_loop import MAX_EVENTS, new_event_loop
from moldau.server.concurrency.turns import FEW, LONE_SLICE_MS, SLICE_MS, TURN_MS, Turns

from .test_network import Dispatcher, Fixture, frame, needs_epoll


class Clock:
    """A clock in seconds that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def pass_ms(self, ms: float) -> None:
        self.now += ms / 1000


class Loop:
    """Iterations of the event loop, and the connections served in each."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.cpu_clock = Clock()
        self.soon: list[Callable[[], None]] = []
        self.turns = Turns(self.soon.append, clock=self.clock, cpu_clock=self.cpu_clock)
        self.served: list[int] = []

    def pass_ms(self, ms: float) -> None:
        """The thread runs for ``ms`` milliseconds."""
        self.clock.pass_ms(ms)
        self.cpu_clock.pass_ms(ms)

    def record(self, fd: int, ms: float, *, waited_ms: float = 0.0) -> None:
        """A connection is served for ``ms`` milliseconds. During this time the thread waits ``waited_ms`` for a CPU."""
        began = self.turns.start()
        self.pass_ms(ms)
        self.clock.pass_ms(waited_ms)
        self.turns.record(fd, began, self.clock())

    def later(self, fd: int, ms: float, times: int = 1) -> None:
        """A connection waits for ``times`` slices and runs for ``ms`` milliseconds in each."""

        def serve() -> None:
            self.served.append(fd)
            self.pass_ms(ms)
            if times > 1:
                self.later(fd, ms, times - 1)

        self.turns.later(fd, serve)

    def turn(self) -> list[int]:
        callbacks, self.soon[:] = list(self.soon), []
        for callback in callbacks:
            callback()
        served, self.served = self.served, []
        return served


def test_waiting_connections_are_served_in_order_over_several_iterations() -> None:
    loop = Loop()
    for fd in range(10):
        loop.later(fd, TURN_MS / 4)
    assert len(loop.soon) == 1
    assert loop.turn() == [0, 1, 2, 3]
    assert loop.turn() == [4, 5, 6, 7]
    assert len(loop.turns) == 2
    assert loop.turn() == [8, 9]
    assert not loop.turns
    assert not loop.soon


def test_a_connection_that_waits_again_is_last_and_has_one_slice_per_iteration() -> None:
    loop = Loop()
    loop.later(0, SLICE_MS / 2, times=3)
    loop.later(1, SLICE_MS / 2)
    assert loop.turn() == [0, 1]
    assert loop.turn() == [0]
    assert loop.turn() == [0]
    assert loop.turn() == []


def test_a_slow_connection_does_not_delay_others_and_is_served_periodically() -> None:
    loop = Loop()
    for fd in range(100):
        loop.record(fd, 3 * SLICE_MS)
        loop.record(fd, 3 * SLICE_MS)
        loop.later(fd, TURN_MS)
    assert loop.turn() == [0]
    loop.record(1000, 3 * SLICE_MS)  # once
    for fd in range(1000, 1006):
        loop.later(fd, TURN_MS)
    served = [fd for _ in range(8) for fd in loop.turn()]
    assert served == [1000, 1001, 1002, 1, 1003, 1004, 1005, 2]


def test_fast_service_removes_strikes() -> None:
    loop = Loop()
    for _ in range(3):
        loop.record(5, 3 * SLICE_MS)
    for left in (2, 1):
        loop.record(5, 0.0)
        assert loop.turns.penalties == {5: left}
    loop.record(5, 0.0)
    loop.record(5, 0.0)
    assert not loop.turns.penalties


def test_time_in_which_the_process_was_stopped_causes_no_strike() -> None:
    loop = Loop()
    loop.record(5, SLICE_MS / 4, waited_ms=10 * SLICE_MS)
    assert not loop.turns.penalties
    loop.record(5, 3 * SLICE_MS, waited_ms=10 * SLICE_MS)
    assert loop.turns.penalties == {5: 1}
    # In one iteration: the wait of one connection does not reduce the measured time of the next.
    began = loop.turns.start()
    for fd, ran_ms, waited_ms in ((6, SLICE_MS / 4, 0.0), (7, SLICE_MS / 4, SLICE_MS), (8, 3 * SLICE_MS, 0.0)):
        loop.pass_ms(ran_ms)
        loop.clock.pass_ms(waited_ms)
        loop.turns.record(fd, began, began := loop.clock())
    assert loop.turns.penalties == {5: 1, 8: 1}


def test_a_connection_without_more_work_may_exceed_a_slice() -> None:
    loop = Loop()
    loop.record(5, 1.5 * SLICE_MS)
    assert not loop.turns.penalties
    began = loop.turns.start()
    loop.pass_ms(1.5 * SLICE_MS)
    loop.turns.later(5, lambda: None)
    loop.turns.record(5, began, loop.clock())
    assert loop.turns.penalties == {5: 1}
    loop.record(5, 1.5 * SLICE_MS)  # its earlier requests do not matter
    assert loop.turns.penalties == {5: 1}


def test_interruptions_do_not_count_as_service_time() -> None:
    """With the real clocks: a sleep does not count as work."""
    turns = Turns([].append)  # type: ignore[arg-type]
    began = turns.start()
    select.select([], [], [], SLICE_MS / 1000 * 20)
    turns.record(5, began, turns.clock())
    assert not turns.penalties


def test_a_slice_is_shorter_if_many_connections_are_ready_or_one_waits() -> None:
    loop = Loop()
    assert not loop.turns.begin(FEW)
    assert loop.turns.slice_s == LONE_SLICE_MS / 1000
    assert loop.turns.begin(FEW + 1)
    assert loop.turns.slice_s == SLICE_MS / 1000
    loop.later(0, 1)
    assert loop.turns.begin(1)
    assert loop.turns.slice_s == SLICE_MS / 1000
    loop.turn()
    assert not loop.turns.begin(1)


def test_an_error_in_one_connection_is_logged_and_does_not_stop_others(caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop()
    loop.turns.later(0, lambda: print(1 // 0))
    loop.later(1, 1)
    assert loop.turn() == [1]
    assert "ZeroDivisionError" in caplog.text


# -- connections -------------------------------------------------------------------------------------------------------

BUSY = 2 * MAX_EVENTS
COST_MS = 0.05


class Busy(Dispatcher):
    """Serves requests that take time by the test's clock. A light client sends requests at the counts ``asks_at``."""

    def __init__(self, clock: Clock, cost_ms: float, asks_at: tuple[int, ...]) -> None:
        super().__init__()
        self._clock = clock
        self._cost_ms = cost_ms
        self._asks_at = asks_at
        self.ask: Callable[[], None] = lambda: None
        self.proceed = threading.Event()
        self.served: Counter[int] = Counter()
        self.after_work: Callable[[int], None] = lambda fd: None
        self.waited: list[int] = []
        """The number of requests of others that were served before each request of the light client."""

    def handle(self, connection: Any, data: Any) -> Any:
        data = bytes(data)
        if data == b"hold":
            assert self.proceed.wait(60)
        elif data == b"light":
            self.waited[-1] += self.served.total()
        elif data.startswith(b"work"):
            self._clock.pass_ms(self._cost_ms)
            self.served[connection.fd] += 1
            if self.served.total() in self._asks_at:
                self.waited.append(-self.served.total())
                self.ask()
            self.after_work(connection.fd)
        return None


@contextlib.contextmanager
def busy(cost_ms: float, asks_at: tuple[int, ...]) -> Iterator[tuple[Fixture, Busy, dict[int, Any]]]:
    """A network, its dispatcher, and the clients of `BUSY` connections by the file descriptor of the server's end.

    The event loop is blocked until `Busy.proceed`.
    """
    clock = Clock()
    fixture = Fixture(loop_factory=partial(new_event_loop, clock, clock))
    dispatcher = fixture.dispatcher = Busy(clock, cost_ms, asks_at)
    with fixture, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(fixture.connect()) for _ in range(BUSY)]
        light = stack.enter_context(fixture.connect())
        fixture.wait_until(lambda: len(fixture.network.connections) == BUSY + 1)
        ours = {connection.peer: connection.fd for connection in fixture.network.connections}
        by_fd = {ours["{}:{}".format(*client.getsockname())]: client for client in clients}
        light_fd = ours["{}:{}".format(*light.getsockname())]

        def ask() -> None:
            light.sendall(frame(b"light"))
            arrival = select.poll()  # not `select`: the descriptor may be above 1023
            arrival.register(light_fd, select.POLLIN)
            assert arrival.poll(30_000), "it has arrived"

        dispatcher.ask = ask
        # The connection is known to be fast.
        penalties = fixture.network.turns.penalties
        for left in (1, 0):
            light.sendall(frame(b"quick"))
            fixture.wait_until(lambda left=left: penalties.get(light_fd, 0) == left)
        light.sendall(frame(b"hold"))
        yield fixture, dispatcher, by_fd


@needs_epoll
def test_a_request_waits_for_few_of_the_pending_requests_of_many_others() -> None:
    frames = 40
    half = BUSY * frames // 2
    with busy(COST_MS, (half, half + 1000, half + 2000)) as (fixture, dispatcher, clients):
        middle: list[Counter[int]] = []

        def after_work(_: int) -> None:
            if dispatcher.served.total() == half:
                middle.append(dispatcher.served.copy())

        dispatcher.after_work = after_work
        for client in clients.values():
            client.sendall(frame(b"work") * frames)
        dispatcher.proceed.set()
        fixture.wait_until(lambda: dispatcher.served.total() == BUSY * frames)
    assert len(dispatcher.waited) == 3
    in_a_turn = (TURN_MS + SLICE_MS) / COST_MS + 2
    assert max(dispatcher.waited) <= in_a_turn
    assert len(middle[0]) == BUSY, "all busy connections are served"
    assert min(middle[0].values()) >= frames // 4, "and none is far behind the others"


@needs_epoll
def test_a_request_waits_for_few_slow_connections() -> None:
    """Each slow connection sends one long request, and the next one after it."""
    rounds = 6
    asks_at = tuple(BUSY * number for number in range(3, rounds))
    with busy(TURN_MS, asks_at) as (fixture, dispatcher, clients):

        def after_work(fd: int) -> None:
            if dispatcher.served[fd] < rounds:
                clients[fd].sendall(frame(b"work"))

        dispatcher.after_work = after_work
        for client in clients.values():
            client.sendall(frame(b"work"))
        dispatcher.proceed.set()
        fixture.wait_until(lambda: dispatcher.served.total() == BUSY * rounds)
    assert len(dispatcher.waited) == len(asks_at)
    assert max(dispatcher.waited) <= 2


@needs_epoll
def test_a_due_deadline_waits_for_requests_that_have_arrived() -> None:
    frames = 20
    with busy(LONE_SLICE_MS, ()) as (fixture, dispatcher, clients):
        timers = fixture.network.timers
        served: list[int] = []

        def after_work(_: int) -> None:
            if dispatcher.served.total() == 1:
                timers.call_at(0, lambda: served.append(dispatcher.served.total()))

        dispatcher.after_work = after_work
        next(iter(clients.values())).sendall(frame(b"work") * frames)
        dispatcher.proceed.set()
        fixture.wait_until(lambda: served)
    assert served == [frames]
