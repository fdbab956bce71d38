"""aiofiles runs file operations in an executor of the server, which has the guarantees of an asyncio executor."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator

import pytest

from moldau.server.concurrency.background import Background
from moldau.server.concurrency.file_jobs import FileJobs


def run(test: Callable[[FileJobs], Awaitable[None]]) -> None:
    async def main() -> None:
        background = Background(asyncio.get_running_loop())
        await test(FileJobs(background.executor(1)))
        await background.close()

    asyncio.run(main())


def test_results_come_from_a_thread_of_the_server() -> None:
    async def test(file_jobs: FileJobs) -> None:
        name = await file_jobs.run(lambda: threading.current_thread().name)
        assert name.startswith("moldau-background")

    run(test)


def test_errors_reach_the_caller() -> None:
    def fail() -> None:
        raise OSError(28, "No space left on device")

    async def test(file_jobs: FileJobs) -> None:
        with pytest.raises(OSError, match="No space left"):
            await file_jobs.run(fail)

    run(test)


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_a_job_that_is_cancelled_before_it_starts_is_never_run(gate: threading.Event) -> None:
    ran: list[str] = []

    async def test(file_jobs: FileJobs) -> None:
        first = asyncio.ensure_future(file_jobs.run(gate.wait))
        second = asyncio.ensure_future(file_jobs.run(lambda: ran.append("second")))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        gate.set()
        assert await first
        await file_jobs.run(lambda: ran.append("third"))

    run(test)
    assert ran == ["third"]


def test_a_job_that_is_cancelled_while_it_runs_completes_without_an_error(
    gate: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    began = threading.Event()

    def work() -> None:
        began.set()
        gate.wait()
        raise OSError("no longer wanted")

    async def test(file_jobs: FileJobs) -> None:
        job = asyncio.ensure_future(file_jobs.run(work))
        assert await asyncio.to_thread(began.wait, 10)
        job.cancel()
        with pytest.raises(asyncio.CancelledError):
            await job
        gate.set()
        await file_jobs.run(lambda: None)

    run(test)
    assert not caplog.records
