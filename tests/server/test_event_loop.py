"""The event loop with a fast path. It behaves like `add_reader` and `add_writer` of asyncio, and asyncio works with
it."""

from __future__ import annotations

import asyncio
import select
import socket
from functools import partial
from typing import Any

import pytest

from moldau.server.concurrency.event_loop import DirectSelector, new_event_loop, readiness_of
from moldau.testing.waiting import WAIT_SECONDS, wait_until_async

pytestmark = pytest.mark.skipif(not hasattr(select, "epoll"), reason="epoll is Linux's")


def run(scenario: Any) -> None:
    """Run ``scenario`` with the fast path, our ends of twenty connections, and the ends of the peers."""

    async def main() -> None:
        fast_path = readiness_of(asyncio.get_running_loop())
        assert isinstance(fast_path, DirectSelector)
        pairs = [socket.socketpair() for _ in range(20)]
        for pair in pairs:
            for each in pair:
                each.setblocking(False)
        try:
            async with asyncio.timeout(2 * WAIT_SECONDS):
                await scenario(fast_path, [ours for ours, _ in pairs], [theirs for _, theirs in pairs])
        finally:
            for ours, theirs in pairs:
                fast_path.remove_reader(ours.fileno())
                fast_path.remove_writer(ours.fileno())
                ours.close()
                theirs.close()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())


async def until(condition: Any) -> None:
    """Run iterations of the event loop until the condition holds."""
    await wait_until_async(condition, pause=0)


def test_sockets_that_are_ready_together_are_served_in_one_iteration() -> None:
    async def scenario(fast_path: Any, ours: Any, theirs: Any) -> None:
        got: list[Any] = []
        done = asyncio.Event()
        turns = []
        select_before = fast_path.select
        fast_path.select = lambda timeout=None: (turns.append(1), select_before(timeout))[1]  # type: ignore[func-returns-value]

        def reader(sock: Any) -> Any:
            def read() -> None:
                got.append(sock.recv(10))
                if len(got) == len(ours):
                    done.set()

            return read

        for sock in ours:
            fast_path.add_reader(sock.fileno(), reader(sock))
        for number, sock in enumerate(theirs):
            sock.send(b"%d" % number)
        await done.wait()
        assert sorted(got) == sorted(b"%d" % number for number in range(len(ours)))
        assert len(turns) == 1

    run(scenario)


def test_readers_and_writers_of_one_socket_can_be_added_and_removed() -> None:
    async def scenario(fast_path: Any, ours: Any, theirs: Any) -> None:
        sock, fd = ours[0], ours[0].fileno()
        seen: list[Any] = []

        def write() -> None:
            seen.append("write")
            fast_path.remove_writer(fd)

        fast_path.add_reader(fd, lambda: seen.append(("read", sock.recv(10))))
        fast_path.add_writer(fd, write)
        theirs[0].send(b"a")
        await until(lambda: len(seen) == 2)
        assert seen == [("read", b"a"), "write"]
        fast_path.remove_reader(fd)
        theirs[0].send(b"b")
        fast_path.add_writer(fd, write)
        await until(lambda: len(seen) == 3)
        assert seen[2:] == ["write"]
        fast_path.add_reader(fd, lambda: seen.append(("read", sock.recv(10))))
        await until(lambda: len(seen) == 4)
        assert seen[3:] == [("read", b"b")]
        fast_path.remove_writer(fd)  # no writer: no error

    run(scenario)


def test_a_hang_up_is_reported_only_while_there_is_a_reader() -> None:
    async def scenario(fast_path: Any, ours: Any, theirs: Any) -> None:
        sock, fd = ours[0], ours[0].fileno()
        seen: list[Any] = []
        fast_path.add_reader(fd, lambda: seen.append("early"))
        fast_path.remove_reader(fd)
        theirs[0].close()
        for _ in range(20):
            await asyncio.sleep(0)
        assert seen == []

        def read() -> None:
            seen.append(sock.recv(10))
            fast_path.remove_reader(fd)

        fast_path.add_reader(fd, read)
        await until(lambda: seen)
        assert seen == [b""]

    run(scenario)


def test_a_deferred_socket_is_served_later_for_the_events_registered_then() -> None:
    async def scenario(fast_path: Any, ours: Any, theirs: Any) -> None:
        slow, reused, gone, *others = ours
        called: list[Any] = []
        for sock in (slow, reused, gone):
            fast_path.turns.penalties[sock.fileno()] = 1

        def read(sock: Any) -> None:
            called.append(sock)
            sock.recv(10)
            if sock is others[-1]:
                for changed in (reused, gone):
                    fast_path.remove_reader(changed.fileno())
                fast_path.add_hang_up(reused.fileno(), lambda: called.append("hang-up"))

        for sock in ours:
            fast_path.add_reader(sock.fileno(), partial(read, sock))
        for sock in theirs:
            sock.send(b"x")
        await until(lambda: slow in called)
        assert called == [*others, slow]
        for _ in range(20):
            await asyncio.sleep(0)
        assert called == [*others, slow]
        theirs[1].close()
        await until(lambda: "hang-up" in called)
        fast_path.remove_hang_up(reused.fileno())

    run(scenario)


def test_disconnected_peers_are_served_after_connected_ones() -> None:
    async def scenario(fast_path: Any, ours: Any, theirs: Any) -> None:
        called: list[Any] = []

        def read(sock: Any) -> None:
            called.append((sock, sock.recv(10)))
            fast_path.remove_reader(sock.fileno())

        for sock in ours:
            fast_path.add_reader(sock.fileno(), partial(read, sock))
        for sock in theirs[:5]:
            sock.close()
        for sock in theirs[5:]:
            sock.send(b"x")
        await until(lambda: len(called) == len(ours))
        assert called == [*((sock, b"x") for sock in ours[5:]), *((sock, b"") for sock in ours[:5])]

    run(scenario)


def test_a_callback_may_remove_another_socket() -> None:
    async def scenario(fast_path: Any, ours: Any, theirs: Any) -> None:
        called: list[Any] = []

        def take_all() -> None:
            called.append(1)
            for sock in ours:
                fast_path.remove_reader(sock.fileno())

        for sock in ours:
            fast_path.add_reader(sock.fileno(), take_all)
        for sock in theirs:
            sock.send(b"x")
        await until(lambda: called)
        for _ in range(20):
            await asyncio.sleep(0)
        assert called == [1]

    run(scenario)


def test_a_callback_that_raises_is_logged_and_does_not_stop_other_callbacks(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(fast_path: Any, ours: Any, theirs: Any) -> None:
        good: list[Any] = []

        def bad() -> None:
            ours[0].recv(10)
            raise RuntimeError("made up by the test")

        fast_path.add_reader(ours[0].fileno(), bad)
        fast_path.add_reader(ours[1].fileno(), lambda: good.append(ours[1].recv(10)))
        theirs[0].send(b"x")
        theirs[1].send(b"y")
        await until(lambda: good and caplog.records)

    run(scenario)
    assert [str(record.exc_info and record.exc_info[1]) for record in caplog.records] == ["made up by the test"]


def test_asyncio_works_in_the_same_loop() -> None:
    async def scenario(fast_path: Any, ours: Any, theirs: Any) -> None:
        loop = asyncio.get_running_loop()
        # The loop runs the work that a callback schedules, timers, calls from threads, streams, and add_reader.
        from_callback = loop.create_future()

        def read() -> None:
            ours[0].recv(10)
            loop.call_soon(from_callback.set_result, "soon")

        fast_path.add_reader(ours[0].fileno(), read)
        theirs[0].send(b"x")
        assert await from_callback == "soon"
        timer = loop.create_future()
        loop.call_later(0.001, timer.set_result, "later")
        assert await timer == "later"
        assert await loop.run_in_executor(None, lambda: 7) == 7
        reader, writer = await asyncio.open_connection(sock=ours[1])
        theirs[1].send(b"line\n")
        assert await reader.readline() == b"line\n"
        readable = asyncio.Event()
        loop.add_reader(ours[2].fileno(), readable.set)
        theirs[2].send(b"x")
        await readable.wait()
        loop.remove_reader(ours[2].fileno())
        writer.close()
        await writer.wait_closed()

    run(scenario)


def test_in_another_event_loop_the_loop_itself_is_used() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert readiness_of(loop) is loop

    asyncio.run(main())


def test_without_epoll_the_event_loop_of_asyncio_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(select, "epoll")
    loop = new_event_loop()
    try:
        assert readiness_of(loop) is loop
    finally:
        loop.close()
