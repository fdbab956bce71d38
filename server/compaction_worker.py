"""The process that compacts: reads jobs from standard input, writes what comes of them to standard output.

Started by `compaction_process` as ``python -m moldau.server.compaction_worker``, one for each of
``log.cleaner.threads``. A process, because compaction computes, and a thread that computes would stall the event loop.
It is niced, so that requests go first. Nothing of the running logs is shared with it: it reads sealed segments, and
writes files that nobody but the server puts in place.

    job         (CompactionJob, durable)
    ready       `READY`                                         once, before the first job
    answers     ("replacement", Replacement)*, then one of
                ("result", CompactionResult)
                ("corrupt", path, position, offset, problem)    a segment that must be looked at by people
                ("os error", errno, text, path)
                ("failed", traceback)                           our own mistake

How messages are sent, and how this process ends with the server, is in `worker_pipe`.
"""

from __future__ import annotations

import threading
import traceback
from queue import SimpleQueue
from typing import BinaryIO

from ..log.compaction.compact import compact
from ..log.compaction.job import CompactionJob, CorruptSegmentError, Replacement
from ..log.files import RealFileSystem
from .worker_pipe import READY, begin, read_messages, send


def main() -> None:
    """Serve until standard input ends."""
    answers = begin()
    jobs: SimpleQueue[tuple[CompactionJob, bool]] = SimpleQueue()
    # If the thread cannot be started the process ends. It was not ready then: the server tries again later.
    threading.Thread(target=read_messages, args=(jobs.put,), daemon=True).start()
    send(answers, READY)
    while True:
        job, durable = jobs.get()
        send(answers, _perform(job, durable, answers))


def _perform(job: CompactionJob, durable: bool, answers: BinaryIO) -> tuple[object, ...]:
    def hand_over(replacement: Replacement) -> None:
        send(answers, ("replacement", replacement))

    try:
        return "result", compact(job, RealFileSystem(durable=durable), on_replacement=hand_over)
    except CorruptSegmentError as error:
        return "corrupt", error.path, error.position, error.offset, error.problem
    except OSError as error:
        return "os error", error.errno or 0, error.strerror or str(error), str(error.filename or job.directory)
    except Exception:  # noqa: BLE001 - the server tells it
        return "failed", traceback.format_exc()


if __name__ == "__main__":
    main()
