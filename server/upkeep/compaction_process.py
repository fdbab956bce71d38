"""The server's side of a compaction process (`compaction_worker`): started for a job, stopped when idle."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio.subprocess import Process
from collections.abc import Callable
from typing import Protocol

from ...log.compaction.job import CompactionJob, CompactionResult, CorruptSegmentError, Replacement
from ...log.files import FileSystem
from ..concurrency.background import ProcessNotStartedError
from ..concurrency.worker_pipe import end, ended, kill, message, receive, start_worker

# A process that has closed its pipes and does not exit is killed after this time.
_DEATH_SECONDS = 10


class WorkerError(Exception):
    """The process crashed or failed with an unexpected error; the message states which."""


class WorkerNotStartedError(WorkerError):
    """The process could not be started. The log to compact is not the cause."""


class Worker(Protocol):
    """Compacts logs, one job at a time."""

    async def compact(self, job: CompactionJob, on_replacement: Callable[[Replacement], None], /) -> CompactionResult:
        """Raises `CorruptSegmentError`, `OSError`, `WorkerError`, and exceptions of `on_replacement` (which end it).

        After an exception or a cancellation, no more data is written.
        """

    def kill(self) -> None:
        """End the current job: it raises `WorkerError`."""

    async def close(self) -> None:
        """Called when there is nothing to do for now."""


class WorkerProcess:
    """A `Worker` in a separate process."""

    def __init__(self, *, durable: bool) -> None:
        """`durable`: see `RealFileSystem`."""
        self._durable = durable
        self._process: Process | None = None
        self._killed = False

    @property
    def pid(self) -> int | None:
        """The process id, while the process runs."""
        return self._process.pid if self._process is not None else None

    async def compact(self, job: CompactionJob, on_replacement: Callable[[Replacement], None], /) -> CompactionResult:
        self._killed = False
        try:
            process = await self._started()
            if self._killed:
                raise WorkerError("the process was stopped")
            assert process.stdin is not None
            process.stdin.write(message((job, self._durable)))
            while True:
                match await receive(process):
                    case ("replacement", Replacement() as replacement):
                        on_replacement(replacement)
                    case ("result", CompactionResult() as result):
                        return result
                    case ("corrupt", str(path), int(position), int(offset), str(problem)):
                        raise CorruptSegmentError(path, position, offset, problem)
                    case ("os error", int(number), str(text), str(path)):
                        raise OSError(number, text, path)
                    case ("failed", str(trace)):
                        raise WorkerError(trace)
                    case unknown:
                        raise AssertionError(f"unexpected message from the worker: {unknown!r}")
        except (CorruptSegmentError, WorkerError):
            raise
        except (asyncio.IncompleteReadError, ConnectionError):
            raise WorkerError(f"the process ended with {await self._end(died=True)}") from None
        except BaseException:
            # The process may still be writing. It must have ended before anything else uses the files.
            await self._end()
            raise

    def kill(self) -> None:
        self._killed = True
        if self._process is not None:
            kill(self._process)

    async def close(self) -> None:
        await self._end()

    async def _started(self) -> Process:
        if self._process is None or self._process.returncode is not None:
            await self._end()
            try:
                self._process = await start_worker("moldau.server.upkeep.compaction_worker")
            except ProcessNotStartedError as error:  # an `OSError` would be an error of the log directory
                raise WorkerNotStartedError(str(error)) from error
        return self._process

    async def _end(self, *, died: bool = False) -> int | None:
        """`died`: the process has closed its pipes, so it exits without further action."""
        process, self._process = self._process, None
        if process is None:
            return None

        if died:
            # Killing would check whether the process exists, and take its exit code from the code that waits for it.
            with contextlib.suppress(TimeoutError):
                return await asyncio.wait_for(ended(process), _DEATH_SECONDS)
        return await end(process)


class InlineWorker:
    """A `Worker` that blocks the event loop while it works: for in-memory files, which no other process can read."""

    def __init__(self, file_system: FileSystem) -> None:
        self._file_system = file_system

    async def compact(self, job: CompactionJob, on_replacement: Callable[[Replacement], None], /) -> CompactionResult:
        from ...log.compaction.compact import compact

        return compact(job, self._file_system, on_replacement=on_replacement)

    def kill(self) -> None:
        """Nothing to do: there is never a job in progress when this is called."""

    async def close(self) -> None:
        """Nothing to close."""
