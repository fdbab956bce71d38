"""The process that compacts: reads jobs from standard input, writes what comes of them to standard output.

Started by `compaction_process` as ``python -m moldau.server.compaction_worker``, one for each of
``log.cleaner.threads``. A process, because compaction computes, and a thread that computes would stall the event loop.
It is niced, so that requests go first. Nothing of the running logs is shared with it: it reads sealed segments, and
writes files that nobody but the server puts in place.

    message     length int32 | a pickled tuple
    job         (CompactionJob, durable)
    ready       ("ready",)                                      once, before the first job
    answers     ("replacement", Replacement)*, then one of
                ("result", CompactionResult)
                ("corrupt", path, position, offset, problem)    a segment that must be looked at by people
                ("os error", errno, text, path)
                ("failed", traceback)                           our own mistake

The end of standard input is the end of the server, however it ended, and of this process with it, at once.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
import threading
import traceback
from queue import SimpleQueue
from typing import BinaryIO

from ..log.compaction.compact import compact
from ..log.compaction.job import CompactionJob, CorruptSegmentError, Replacement
from ..log.files import RealFileSystem

NICENESS = 10
LENGTH_BYTES = 4

# <linux/prctl.h>
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serve until standard input ends."""
    # A Ctrl-C at the terminal is meant for the server, which ends this process when it has stopped.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _die_with_the_server()
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what anybody prints must not come between the answers
    jobs: SimpleQueue[tuple[CompactionJob, bool]] = SimpleQueue()
    # If the thread cannot be started the process ends. It was not ready then: the server tries again later.
    threading.Thread(target=_read_jobs, args=(sys.stdin.buffer, jobs), daemon=True).start()
    _send(answers, ("ready",))
    while True:
        job, durable = jobs.get()
        _send(answers, _perform(job, durable, answers))


def _die_with_the_server() -> None:
    """Also when this process is stopped (SIGSTOP), or held up in a system call, and so does not see the end of its
    input. Only Linux has that."""
    if sys.platform != "linux":
        return
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _read_jobs(stream: BinaryIO, jobs: SimpleQueue[tuple[CompactionJob, bool]]) -> None:
    """In a thread of its own, which only waits: it must see the end of the server in the middle of a job."""
    while True:
        length = stream.read(LENGTH_BYTES)
        data = stream.read(int.from_bytes(length, "big")) if len(length) == LENGTH_BYTES else b""
        if not data:
            os._exit(0)
        jobs.put(pickle.loads(data))


def _perform(job: CompactionJob, durable: bool, answers: BinaryIO) -> tuple[object, ...]:
    def hand_over(replacement: Replacement) -> None:
        _send(answers, ("replacement", replacement))

    try:
        return "result", compact(job, RealFileSystem(durable=durable), on_replacement=hand_over)
    except CorruptSegmentError as error:
        return "corrupt", error.path, error.position, error.offset, error.problem
    except OSError as error:
        return "os error", error.errno or 0, error.strerror or str(error), str(error.filename or job.directory)
    except Exception:  # noqa: BLE001 - the server tells it
        return "failed", traceback.format_exc()


def _send(stream: BinaryIO, message: tuple[object, ...]) -> None:
    data = pickle.dumps(message)
    try:
        stream.write(len(data).to_bytes(LENGTH_BYTES, "big") + data)
        stream.flush()
    except BrokenPipeError:
        os._exit(0)  # the server was killed, and this shows before the end of the input does


if __name__ == "__main__":
    main()
