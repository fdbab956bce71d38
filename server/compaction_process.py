"""The server's end of a process that compacts (`compaction_worker`): started when there is a job, ended when idle."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio.subprocess import Process
from collections.abc import Callable
from typing import Protocol

from ..log.compaction.job import CompactionJob, CompactionResult, CorruptSegmentError, Replacement
from ..log.files import FileSystem
from .background import ProcessNotStartedError

# A process that has closed its pipes and does not end is killed after so long.
_DEATH_SECONDS = 10


class WorkerError(Exception):
    """The process died, or failed by our own mistake; the text says which."""


class WorkerNotStartedError(WorkerError):
    """There is no process, which has nothing to do with what is to be compacted."""


class Worker(Protocol):
    """Who compacts: one job at a time."""

    async def compact(self, job: CompactionJob, on_replacement: Callable[[Replacement], None], /) -> CompactionResult:
        """Raises `CorruptSegmentError`, `OSError`, `WorkerError`, and what `on_replacement` raises, which ends the job.

        When it has raised, or was cancelled, nobody writes any more.
        """

    def kill(self) -> None:
        """End the job that is under way: it raises `WorkerError`."""

    async def close(self) -> None:
        """Nothing is left to do for now."""


class WorkerProcess:
    """A `Worker` in a process of its own."""

    def __init__(self, *, durable: bool) -> None:
        """`durable`: see `RealFileSystem`."""
        self._durable = durable
        self._process: Process | None = None
        self._killed = False

    @property
    def pid(self) -> int | None:
        """Of the process, while there is one."""
        return self._process.pid if self._process is not None else None

    async def compact(self, job: CompactionJob, on_replacement: Callable[[Replacement], None], /) -> CompactionResult:
        from .worker_pipe import message, receive  # a server's start would pay for it, and many never compact

        self._killed = False
        try:
            process = await self._started()
            if self._killed:
                raise WorkerError("the process was ended")
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
                        raise AssertionError(f"the worker says {unknown!r}")
        except (CorruptSegmentError, WorkerError):
            raise
        except (asyncio.IncompleteReadError, ConnectionError):
            raise WorkerError(f"the process ended with {await self._end(died=True)}") from None
        except BaseException:
            # It may still be writing: whoever goes on must find nobody there.
            await self._end()
            raise

    def kill(self) -> None:
        from .worker_pipe import kill

        self._killed = True
        if self._process is not None:
            kill(self._process)

    async def close(self) -> None:
        await self._end()

    async def _started(self) -> Process:
        if self._process is None or self._process.returncode is not None:
            from .worker_pipe import start_worker

            await self._end()
            try:
                self._process = await start_worker("moldau.server.compaction_worker")
            except ProcessNotStartedError as error:  # no `OSError` of the job's: those are the log directory's
                raise WorkerNotStartedError(str(error)) from error
        return self._process

    async def _end(self, *, died: bool = False) -> int | None:
        """`died`: it has closed its pipes, so it will be gone in a moment by itself."""
        from .worker_pipe import end, ended

        process, self._process = self._process, None
        if process is None:
            return None
        if died:
            # Killing looks whether the process is there, and takes its exit code from who waits for that.
            with contextlib.suppress(TimeoutError):
                return await asyncio.wait_for(ended(process), _DEATH_SECONDS)
        return await end(process)


class InlineWorker:
    """A `Worker` that holds up the loop while it works: for files in memory, which no other process has."""

    def __init__(self, file_system: FileSystem) -> None:
        self._file_system = file_system

    async def compact(self, job: CompactionJob, on_replacement: Callable[[Replacement], None], /) -> CompactionResult:
        from ..log.compaction.compact import compact

        return compact(job, self._file_system, on_replacement=on_replacement)

    def kill(self) -> None:
        """There is never a job under way when somebody else is asked."""

    async def close(self) -> None:
        """There is nothing to close."""
