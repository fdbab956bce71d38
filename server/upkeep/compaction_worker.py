"""The process that compacts logs: reads jobs from standard input, writes their results to standard output.

`compaction_process` starts it as ``python -m moldau.server.upkeep.compaction_worker``, once for each of
``log.cleaner.threads``. It is a process because compaction is CPU-bound, and a CPU-bound thread would stall the event
loop. It has a lower priority (nice) than requests. It shares no state with the running logs: it reads sealed segments,
and writes new files that only the server moves into place.

    job         (CompactionJob, durable)
    ready       `READY`                                         once, before the first job
    results     ("replacement", Replacement)*, then one of
                ("result", CompactionResult)
                ("corrupt", path, position, offset, problem)    a segment that an operator must inspect
                ("os error", errno, text, path)
                ("failed", traceback)                           an unexpected error

`worker_pipe` defines how messages are sent, and how this process exits with the server.
"""

from __future__ import annotations

import threading
import traceback
from queue import SimpleQueue
from typing import BinaryIO

from ...log.compaction.compact import compact
from ...log.compaction.job import CompactionJob, CorruptSegmentError, Replacement
from ...log.files import RealFileSystem
from ..concurrency.worker_pipe import READY, begin, read_messages, send


def main() -> None:
    """Serve until standard input ends."""
    answers = begin()
    jobs: SimpleQueue[tuple[CompactionJob, bool]] = SimpleQueue()
    # If the thread cannot be started, the process exits before it has reported ready: the server retries later.
    threading.Thread(target=read_messages, args=(jobs.put,), daemon=True).start()
    send(answers, READY)
    while True:
        job, durable = jobs.get()
        send(answers, _perform(job, durable, answers))


def _perform(job: CompactionJob, durable: bool, answers: BinaryIO) -> tuple[object, ...]:
    def on_replacement(replacement: Replacement) -> None:
        send(answers, ("replacement", replacement))

    try:
        return "result", compact(job, RealFileSystem(durable=durable), on_replacement=on_replacement)
    except CorruptSegmentError as error:
        return "corrupt", error.path, error.position, error.offset, error.problem
    except OSError as error:
        return "os error", error.errno or 0, error.strerror or str(error), str(error.filename or job.directory)
    except Exception:  # noqa: BLE001 - the server logs it
        return "failed", traceback.format_exc()


if __name__ == "__main__":
    main()
