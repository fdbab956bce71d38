"""The loop with a short way: the same as asyncio's `add_reader` and `add_writer`, and asyncio goes on working in it."""

import asyncio
import select
import socket

import pytest

from moldau.server.event_loop import DirectSelector, new_event_loop, readiness_of

pytestmark = pytest.mark.skipif(not hasattr(select, "epoll"), reason="epoll is Linux's")


def run(scenario):
    """Run it with the short way, our ends of twenty connections, and the other ends."""

    async def main():
        short_way = readiness_of(asyncio.get_running_loop())
        assert isinstance(short_way, DirectSelector)
        pairs = [socket.socketpair() for _ in range(20)]
        for pair in pairs:
            for each in pair:
                each.setblocking(False)
        try:
            await asyncio.wait_for(
                scenario(short_way, [ours for ours, _ in pairs], [theirs for _, theirs in pairs]), 20
            )
        finally:
            for ours, theirs in pairs:
                short_way.remove_reader(ours.fileno())
                short_way.remove_writer(ours.fileno())
                ours.close()
                theirs.close()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())


async def until(condition):
    """Give the loop turns until the condition holds; fails after a bounded number of them."""
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came")


def test_sockets_that_are_ready_together_are_served_without_the_loop():
    async def scenario(short_way, ours, theirs):
        got = []
        done = asyncio.Event()
        turns = []
        asked = short_way.select
        short_way.select = lambda timeout=None: (turns.append(1), asked(timeout))[1]

        def reader(sock):
            def read():
                got.append(sock.recv(10))
                if len(got) == len(ours):
                    done.set()

            return read

        for sock in ours:
            short_way.add_reader(sock.fileno(), reader(sock))
        for number, sock in enumerate(theirs):
            sock.send(b"%d" % number)
        await done.wait()
        assert sorted(got) == sorted(b"%d" % number for number in range(len(ours)))
        assert len(turns) == 1

    run(scenario)


def test_readers_and_writers_of_one_socket_come_and_go():
    async def scenario(short_way, ours, theirs):
        sock, fd = ours[0], ours[0].fileno()
        seen = []

        def write():
            seen.append("write")
            short_way.remove_writer(fd)

        short_way.add_reader(fd, lambda: seen.append(("read", sock.recv(10))))
        short_way.add_writer(fd, write)
        theirs[0].send(b"a")
        await until(lambda: len(seen) == 2)
        assert seen == [("read", b"a"), "write"]
        short_way.remove_reader(fd)
        theirs[0].send(b"b")
        short_way.add_writer(fd, write)
        await until(lambda: len(seen) == 3)
        assert seen[2:] == ["write"]
        short_way.add_reader(fd, lambda: seen.append(("read", sock.recv(10))))
        await until(lambda: len(seen) == 4)
        assert seen[3:] == [("read", b"b")]
        short_way.remove_writer(fd)  # nothing is written: no error

    run(scenario)


def test_a_hang_up_is_reported_to_the_reader_and_not_while_nobody_reads():
    async def scenario(short_way, ours, theirs):
        sock, fd = ours[0], ours[0].fileno()
        seen = []
        short_way.add_reader(fd, lambda: seen.append("early"))
        short_way.remove_reader(fd)
        theirs[0].close()
        for _ in range(20):
            await asyncio.sleep(0)
        assert seen == []

        def read():
            seen.append(sock.recv(10))
            short_way.remove_reader(fd)

        short_way.add_reader(fd, read)
        await until(lambda: seen)
        assert seen == [b""]

    run(scenario)


def test_a_callback_may_remove_another_socket():
    async def scenario(short_way, ours, theirs):
        called = []

        def take_all():
            called.append(1)
            for sock in ours:
                short_way.remove_reader(sock.fileno())

        for sock in ours:
            short_way.add_reader(sock.fileno(), take_all)
        for sock in theirs:
            sock.send(b"x")
        await until(lambda: called)
        for _ in range(20):
            await asyncio.sleep(0)
        assert called == [1]

    run(scenario)


def test_a_callback_that_fails_is_logged_and_does_not_stop_the_others(caplog):
    async def scenario(short_way, ours, theirs):
        good = []

        def bad():
            ours[0].recv(10)
            raise RuntimeError("made up by the test")

        short_way.add_reader(ours[0].fileno(), bad)
        short_way.add_reader(ours[1].fileno(), lambda: good.append(ours[1].recv(10)))
        theirs[0].send(b"x")
        theirs[1].send(b"y")
        await until(lambda: good and caplog.records)

    run(scenario)
    assert [str(record.exc_info[1]) for record in caplog.records] == ["made up by the test"]


def test_asyncio_works_beside_it():
    async def scenario(short_way, ours, theirs):
        loop = asyncio.get_running_loop()
        # What a callback gives the loop is done, timers come, threads are heard, streams and add_reader work.
        from_callback = loop.create_future()

        def read():
            ours[0].recv(10)
            loop.call_soon(from_callback.set_result, "soon")

        short_way.add_reader(ours[0].fileno(), read)
        theirs[0].send(b"x")
        assert await from_callback == "soon"
        await asyncio.sleep(0.01)
        assert await loop.run_in_executor(None, lambda: 7) == 7
        reader, writer = await asyncio.open_connection(sock=ours[1])
        theirs[1].send(b"line\n")
        assert await reader.readline() == b"line\n"
        heard = asyncio.Event()
        loop.add_reader(ours[2].fileno(), heard.set)
        theirs[2].send(b"x")
        await heard.wait()
        loop.remove_reader(ours[2].fileno())
        writer.close()
        await writer.wait_closed()

    run(scenario)


def test_in_somebody_elses_loop_the_loop_does_it():
    async def main():
        loop = asyncio.get_running_loop()
        assert readiness_of(loop) is loop

    asyncio.run(main())


def test_without_epoll_the_loop_is_the_usual_one(monkeypatch):
    monkeypatch.delattr(select, "epoll")
    loop = new_event_loop()
    try:
        assert readiness_of(loop) is loop
    finally:
        loop.close()
