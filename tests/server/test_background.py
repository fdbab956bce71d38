"""Work outside the event loop continues after the system has refused to start threads."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import weakref
from typing import Any

import pytest

from moldau.server.concurrency import background as background_module
from moldau.server.concurrency.background import Background, map_with_threads


class Limit:
    """The system's limit on threads: at most ``allowed`` more threads can be started."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.allowed = 1_000
        self.refused = 0
        start = threading.Thread.start

        def limited(thread: Any) -> None:
            if thread.name.startswith("moldau-"):
                if self.allowed < 1:
                    self.refused += 1
                    raise RuntimeError("can't start new thread")
                self.allowed -= 1
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", limited)


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Limit:
    monkeypatch.setattr(background_module, "_RETRY_SECONDS", 0.001)
    monkeypatch.setattr(background_module, "_LONGEST_RETRY_SECONDS", 0.002)
    return Limit(monkeypatch)


def run(test: Any) -> None:
    async def main() -> None:
        background = Background(asyncio.get_running_loop())
        try:
            async with asyncio.timeout(120):
                await test(background)
        finally:
            await background.close()

    asyncio.run(main())


def test_a_job_runs_in_a_thread_and_its_future_has_the_result() -> None:
    async def test(background: Background) -> None:
        assert await background.executor(1).run(threading.current_thread) is not threading.current_thread()

    run(test)


def test_a_job_that_raises_fails_its_future() -> None:
    def refuse() -> None:
        raise ValueError("made up by the test")

    async def test(background: Background) -> None:
        with pytest.raises(ValueError, match="made up"):
            await background.executor(1).run(refuse)
        assert await background.executor(1).run(lambda: 7) == 7

    run(test)


def test_a_job_waits_until_a_thread_can_be_started_and_runs_once(
    limit: Limit, caplog: pytest.LogCaptureFixture
) -> None:
    runs = []

    async def test(background: Background) -> None:
        limit.allowed = 0
        future = background.executor(1).run(lambda: runs.append(threading.current_thread().name))
        while limit.refused < 5:  # noqa: ASYNC110 - the test waits for retries
            await asyncio.sleep(0.001)
        assert not future.done()
        limit.allowed = 1
        await future

    with caplog.at_level(logging.INFO):
        run(test)
    assert runs == ["moldau-background-1"]
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]  # once, not for each attempt
    assert "No thread is running yet. Blocked until then: loading of groups and transactions" in caplog.text
    assert caplog.records[1].getMessage() == "Starting threads works again"


def test_the_log_has_the_number_of_threads_when_another_one_cannot_be_started(
    limit: Limit, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(background: Background) -> None:
        await background.executor(1).run(lambda: None)
        limit.allowed = 0
        executor = background.executor(3)
        await asyncio.gather(*(executor.run(lambda: None) for _ in range(3)))

    run(test)
    (record,) = caplog.records
    assert "Unfinished jobs: 2, threads: 1." in record.getMessage()


def test_one_thread_serves_all_executors_when_no_other_can_be_started(limit: Limit) -> None:
    async def test(background: Background) -> None:
        background.start()
        limit.allowed = 0
        futures = [background.executor(4).run(lambda number=number: number) for number in range(20)]  # type: ignore[misc]
        assert await asyncio.gather(*futures) == list(range(20))

    run(test)


def test_a_shutdown_needs_no_thread(limit: Limit) -> None:
    runs = []

    async def test(background: Background) -> None:
        limit.allowed = 0
        executor = background.executor(2)
        waiting = [executor.run(lambda number=number: runs.append(number)) for number in range(5)]  # type: ignore[misc]
        background.prepare_stop()
        await asyncio.gather(*waiting)
        await executor.run(lambda: runs.append(threading.current_thread()))  # work that the shutdown itself submits

    run(test)
    assert runs == [0, 1, 2, 3, 4, threading.current_thread()]


def test_an_executor_runs_at_most_its_limit_of_jobs() -> None:
    under_way, most, lock = 0, 0, threading.Lock()

    def work() -> None:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        barrier.wait(60)
        with lock:
            under_way -= 1

    barrier = threading.Barrier(3)

    async def test(background: Background) -> None:
        executor = background.executor(3)
        await asyncio.gather(*(executor.run(work) for _ in range(12)))

    run(test)
    assert most == 3


def test_a_full_executor_does_not_block_another() -> None:
    async def test(background: Background) -> None:
        release = threading.Event()
        running = background.executor(1).run(lambda: release.wait(60))
        assert await background.executor(1).run(lambda: "done") == "done"
        assert not running.done()
        release.set()
        await running

    run(test)


def test_a_pending_job_that_is_cancelled_is_not_run() -> None:
    runs = []

    async def test(background: Background) -> None:
        release = threading.Event()
        executor = background.executor(1)
        running = executor.run(lambda: release.wait(60))
        second = executor.run(lambda: runs.append("second"))
        third = executor.run(lambda: runs.append("third"))
        second.cancel()
        release.set()
        await asyncio.gather(running, third)

    run(test)
    assert runs == ["third"]


def test_a_closed_executor_cancels_pending_and_later_jobs() -> None:
    async def test(background: Background) -> None:
        release = threading.Event()
        executor = background.executor(1)
        running = executor.run(lambda: release.wait(60))
        waiting = executor.run(lambda: None)
        executor.close()
        assert waiting.cancelled()
        assert executor.run(lambda: None).cancelled()
        release.set()
        assert await running

    run(test)


def test_a_failed_job_is_freed() -> None:
    class Data:
        pass

    async def test(background: Background) -> None:
        data = Data()
        reference = weakref.ref(data)

        def fail(kept: Any = data) -> None:
            raise ValueError(str(kept))

        future = background.executor(1).run(fail)
        del data, fail
        await asyncio.wait([future])
        assert isinstance(future.exception(), ValueError)
        del future
        await background.executor(1).run(lambda: None)
        assert reference() is None

    gc.disable()
    try:
        run(test)
    finally:
        gc.enable()


def test_closing_waits_for_running_jobs() -> None:
    ended = []

    async def test(background: Background) -> None:
        background.executor(1).run(lambda: ended.append(release.wait(60)))
        asyncio.get_running_loop().call_later(0.01, release.set)
        await background.close()
        assert ended == [True]

    release = threading.Event()
    run(test)


@pytest.mark.parametrize("allowed", [0, 1, 1_000])
def test_mapping_with_threads_keeps_the_order_with_any_number_of_threads(limit: Limit, allowed: int) -> None:
    limit.allowed = allowed
    assert list(map_with_threads(lambda number: number * 2, range(100), threads=4)) == list(range(0, 200, 2))
    assert list(map_with_threads(str, [], threads=4)) == []


def test_mapping_with_threads_raises_the_error_of_an_item() -> None:
    def fail(number: int) -> None:
        raise ValueError(str(number))

    with pytest.raises(ValueError, match="0"):
        map_with_threads(fail, [0], threads=4)
