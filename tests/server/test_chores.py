"""aiofiles runs file operations in an executor of the server, which has the guarantees of an asyncio executor."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator

import pytest

from moldau.server.concurrency.background import Background
from moldau.server.concurrency.chores import Chores


def run(test: Callable[[Chores], Awaitable[None]]) -> None:
    async def main() -> None:
        background = Background(asyncio.get_running_loop())
        await test(Chores(background.lane(1)))
        await background.close()

    asyncio.run(main())


def test_results_come_from_a_thread_of_the_server() -> None:
    async def test(chores: Chores) -> None:
        name = await chores.run(lambda: threading.current_thread().name)
        assert name.startswith("moldau-background")

    run(test)


def test_errors_reach_the_caller() -> None:
    def fail() -> None:
        raise OSError(28, "No space left on device")

    async def test(chores: Chores) -> None:
        with pytest.raises(OSError, match="No space left"):
            await chores.run(fail)

    run(test)


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_a_job_that_is_cancelled_before_it_starts_is_never_run(gate: threading.Event) -> None:
    ran: list[str] = []

    async def test(chores: Chores) -> None:
        first = asyncio.ensure_future(chores.run(gate.wait))
        second = asyncio.ensure_future(chores.run(lambda: ran.append("second")))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        gate.set()
        assert await first
        await chores.run(lambda: ran.append("third"))

    run(test)
    assert ran == ["third"]


def test_a_job_that_is_cancelled_while_it_runs_completes_without_an_error(
    gate: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    began = threading.Event()

    def work() -> None:
        began.set()
        gate.wait()
        raise OSError("not wanted any more")

    async def test(chores: Chores) -> None:
        job = asyncio.ensure_future(chores.run(work))
        assert await asyncio.to_thread(began.wait, 10)
        job.cancel()
        with pytest.raises(asyncio.CancelledError):
            await job
        gate.set()
        await chores.run(lambda: None)

    run(test)
    assert not caplog.records
