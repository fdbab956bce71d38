"""The process that looks at large batches: reads jobs from standard input, writes their results to standard output.

Started by `decode_process` as ``python -m moldau.server.decode_worker``, one for a server. Jobs take turns of
`_TURN_SECONDS`, so that a batch of 15 million records does not hold up one of 15 thousand. Those that need a large
buffer do not run beside each other, which bounds the memory; a limit of the system's holds if that fails.

    to it       ("job", number, Job) | ("cancel", number)
    from it     `READY`                                 once, before the first job
                ("done", number, value)
                ("refused", number, code, message, record errors)   the batch is at fault
                ("failed", number, traceback)           an unexpected error
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Generator
from pickle import PickleBuffer
from queue import Empty, SimpleQueue
from typing import Any, BinaryIO, cast

from ..log.validation import InvalidRecordBatchError, Prepared
from ..protocol.compression import CompressionError, buffer_bytes
from ..protocol.errors import KafkaError
from ..protocol.records import ATTRIBUTES_POSITION, BATCH_OVERHEAD, CODEC_MASK
from .decode_jobs import Job
from .worker_pipe import READY, begin, read_messages, send

_TURN_SECONDS = 0.02
_LARGE_BUFFER_BYTES = 8 << 20
_MEMORY_LIMIT_BYTES = 1 << 30


def main() -> None:
    """Serve until standard input ends."""
    output = begin()
    _limit_memory()
    messages: SimpleQueue[Any] = SimpleQueue()
    # If the thread cannot be started the process ends, before it was ready.
    threading.Thread(target=read_messages, args=(messages.put,), daemon=True).start()
    send(output, READY)
    turns = Turns(output)
    while True:
        try:
            while True:
                turns.take(messages.get(block=turns.idle))
        except Empty:
            turns.next()


def _limit_memory() -> None:
    if sys.platform == "linux":
        import resource

        with contextlib.suppress(OSError, ValueError):
            _soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
            limit = _MEMORY_LIMIT_BYTES if hard == resource.RLIM_INFINITY else min(_MEMORY_LIMIT_BYTES, hard)
            resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


class Turns:
    """The jobs, one of which has its turn."""

    def __init__(self, output: BinaryIO) -> None:
        self._output = output
        self._ready: deque[tuple[int, bool, Generator[None, None, object]]] = deque()
        self._large: deque[tuple[int, bool, Generator[None, None, object]]] = deque()  # wait for the one that runs
        self._a_large_one_runs = False

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self._ready

    def take(self, message: tuple[Any, ...]) -> None:
        """A message from the server."""
        match message:
            case ("job", int(number), job):
                large = _is_large(job)
                entry = (number, large, job.steps(None))
                if large and self._a_large_one_runs:
                    self._large.append(entry)
                else:
                    self._a_large_one_runs |= large
                    self._ready.append(entry)
            case ("cancel", int(number)):
                self._large = deque(entry for entry in self._large if entry[0] != number)
                for entry in [entry for entry in self._ready if entry[0] == number]:
                    self._ready.remove(entry)
                    self._ended(entry)
            case unknown:
                raise AssertionError(f"the server says {unknown!r}")

    def next(self) -> None:
        """Give the next job its turn."""
        entry = self._ready.popleft()
        number, _large, steps = entry
        end = time.monotonic() + _TURN_SECONDS
        answer: tuple[object, ...]
        try:
            while time.monotonic() < end:
                next(steps)
            self._ready.append(entry)
            return
        except StopIteration as done:
            answer = "done", number, _to_send(done.value)
        except KafkaError as error:
            record_errors = error.record_errors if isinstance(error, InvalidRecordBatchError) else None
            answer = "refused", number, int(error.code), error.message, record_errors
        except Exception:  # noqa: BLE001 - the server logs it
            answer = "failed", number, traceback.format_exc()
        self._ended(entry)
        del entry, steps
        send(self._output, answer)

    def _ended(self, entry: tuple[int, bool, Generator[None, None, object]]) -> None:
        _number, large, steps = entry
        steps.close()
        if large:
            self._a_large_one_runs = bool(self._large)
            if self._large:
                self._ready.append(self._large.popleft())


def _to_send(value: object) -> object:
    """The same, a large batch in it to be sent without a copy; the server gets bytes."""
    if isinstance(value, Prepared) and value.recompressed is not None:
        return Prepared(value.max_timestamp, cast(bytes, PickleBuffer(value.recompressed)))
    return value


def _is_large(job: Job) -> bool:
    batch = memoryview(job.batch)
    if len(batch) < BATCH_OVERHEAD:
        return False
    try:
        return buffer_bytes(batch[ATTRIBUTES_POSITION + 1] & CODEC_MASK, batch[BATCH_OVERHEAD:]) > _LARGE_BUFFER_BYTES
    except CompressionError:
        return False


if __name__ == "__main__":
    main()
