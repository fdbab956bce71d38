"""The process that checks large batches: reads jobs from standard input, writes their results to standard output.

`decode_process` starts it as ``python -m moldau.server.records.decode_worker``, once per server. Jobs alternate in time
slices of `_TURN_SECONDS`, so that a batch of 15 million records does not block one of 15 thousand. Jobs that need a
large buffer run one at a time, which bounds the memory. If that fails, a memory limit of the operating system applies.

    to it       ("job", number, Job) | ("cancel", number)
                ("large", number, Job without records, their size)
                ("bytes", number, start, bytes)         the response to "read"
    from it     `READY`                                 once, before the first job
                ("read", number, start, end)            requests these bytes of the records of a large batch
                ("done", number, value)
                ("result", number, largest timestamp, size), then ("part", number, bytes) until the size is reached:
                                                        a large batch, recompressed
                ("refused", number, code, message, record errors)   the batch is invalid
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

from ...log.validation import InvalidRecordBatchError, Prepared
from ...protocol.compression import WHOLE_BYTES, Codec, CompressionError, buffer_bytes
from ...protocol.errors import KafkaError
from ...protocol.paged_bytes import WINDOW_BYTES, PagedBytes
from ...protocol.records import ATTRIBUTES_POSITION, BATCH_OVERHEAD, CODEC_MASK
from ..concurrency.worker_pipe import READY, begin, read_messages, send
from .decode_jobs import Job
from .spool import PART_BYTES, Spool

_TURN_SECONDS = 0.02
_MEMORY_LIMIT_BYTES = 1 << 30
_WITH_WINDOW = (Codec.SNAPPY, Codec.ZSTD)
"""Codecs that may need a large window for decompression."""


def main() -> None:
    """Serve until standard input ends."""
    output = begin()
    _limit_memory()
    inbox = Inbox()
    # If the thread cannot be started, the process exits before it has reported ready.
    threading.Thread(target=read_messages, args=(inbox.put,), daemon=True).start()
    send(output, READY)
    jobs = RoundRobin(output, inbox)
    while True:
        while (message := inbox.next(wait=jobs.idle)) is not None:
            jobs.take(message)
        jobs.next()


def _limit_memory() -> None:
    if sys.platform == "linux":
        import resource

        with contextlib.suppress(OSError, ValueError):
            _soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
            limit = _MEMORY_LIMIT_BYTES if hard == resource.RLIM_INFINITY else min(_MEMORY_LIMIT_BYTES, hard)
            resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


class Inbox:
    """The messages from the server. Responses to "read" can be received before earlier messages."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[tuple[Any, ...]] = SimpleQueue()
        self.put = self._queue.put
        self._deferred: deque[tuple[Any, ...]] = deque()
        self._arrived: dict[int, tuple[int, bytes] | None] = {}  # by number of a job that reads: (start, bytes)

    def next(self, *, wait: bool) -> tuple[Any, ...] | None:
        """The next message that is no response to "read"; None if there is none and ``wait`` is false."""
        if self._deferred:
            return self._deferred.popleft()
        while True:
            try:
                message = self._queue.get(block=wait)
            except Empty:
                return None
            if message[0] != "bytes":
                return message
            self._keep(message)

    def begin(self, number: int) -> None:
        """The job is going to read records."""
        self._arrived[number] = None

    def end(self, number: int) -> None:
        """The job has stopped reading, if it did read."""
        self._arrived.pop(number, None)

    def answer(self, number: int, start: int, size: int) -> bytes:
        """The bytes that this job has requested.

        Raises:
            CancelledError: the job was cancelled.
        """
        cancelled = ("cancel", number)
        if cancelled in self._deferred:
            raise CancelledError
        while True:
            arrived = self._arrived[number]
            if arrived is not None and arrived[0] == start and len(arrived[1]) == size:
                self._arrived[number] = None
                return arrived[1]
            message = self._queue.get()
            if message[0] == "bytes":
                self._keep(message)
                continue
            self._deferred.append(message)
            if message == cancelled:
                raise CancelledError

    def _keep(self, message: tuple[Any, ...]) -> None:
        _, number, start, data = message
        if number in self._arrived:  # otherwise the job has ended before its read-ahead arrived
            self._arrived[number] = start, data


class CancelledError(Exception):
    """The server has cancelled the job."""


class Records:
    """The records of a large batch, read from the server in windows, one of which is read ahead."""

    def __init__(self, number: int, size: int, output: BinaryIO, inbox: Inbox) -> None:
        self._number = number
        self._size = size
        self._output = output
        self._inbox = inbox
        self._ahead: tuple[int, int] | None = None

    def read(self, start: int, end: int) -> bytes:
        """See `paged_bytes.Read`."""
        if self._ahead != (start, end):
            self._ask(start, end)
        following = min(end + WINDOW_BYTES, self._size)
        self._ahead = None
        if following > end:
            self._ahead = (end, following)
            self._ask(end, following)
        return self._inbox.answer(self._number, start, end - start)

    def _ask(self, start: int, end: int) -> None:
        send(self._output, ("read", self._number, start, end))


class RoundRobin:
    """The jobs, which alternate in time slices."""

    def __init__(self, output: BinaryIO, inbox: Inbox) -> None:
        self._output = output
        self._inbox = inbox
        self._ready: deque[tuple[int, bool, Generator[None, None, object]]] = deque()
        self._large: deque[tuple[int, bool, Generator[None, None, object]]] = deque()  # waiting for the one that runs
        self._large_job_runs = False

    @property
    def idle(self) -> bool:
        """Whether no job is ready to run."""
        return not self._ready

    def take(self, message: tuple[Any, ...]) -> None:
        """Handle a message from the server."""
        match message:
            case ("job", int(number), job):
                self._add(number, _is_large(job), job.steps(None))
            case ("large", int(number), job, int(size)):
                self._inbox.begin(number)
                records = PagedBytes(Records(number, size, self._output, self._inbox).read, 0, size)
                codec = job.batch[ATTRIBUTES_POSITION + 1] & CODEC_MASK
                self._add(number, codec in _WITH_WINDOW, job.steps_with(records))
            case ("cancel", int(number)):
                for entry in [entry for entry in self._large if entry[0] == number]:
                    self._large.remove(entry)
                    self._inbox.end(number)
                for entry in [entry for entry in self._ready if entry[0] == number]:
                    self._ready.remove(entry)
                    self._ended(entry)
            case unknown:
                raise AssertionError(f"unexpected message from the server: {unknown!r}")

    def _add(self, number: int, large: bool, steps: Generator[None, None, object]) -> None:
        if large and self._large_job_runs:
            self._large.append((number, large, steps))
        else:
            self._large_job_runs |= large
            self._ready.append((number, large, steps))

    def next(self) -> None:
        """Run the next job for one time slice."""
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
            if self._send_in_parts(number, done.value):
                self._ended(entry)
                return
            answer = "done", number, _to_send(done.value)
        except CancelledError:
            self._ended(entry)
            return
        except KafkaError as error:
            record_errors = error.record_errors if isinstance(error, InvalidRecordBatchError) else None
            answer = "refused", number, int(error.code), error.message, record_errors
        except Exception:  # noqa: BLE001 - the server logs it
            answer = "failed", number, traceback.format_exc()
        self._ended(entry)
        del entry, steps
        send(self._output, answer)

    def _send_in_parts(self, number: int, value: object) -> bool:
        """Send a large result in parts. Returns false if the result is not large."""
        if not isinstance(value, Prepared) or not isinstance(value.pieces, Spool):
            return False
        send(self._output, ("result", number, value.max_timestamp, value.pieces.size))
        for piece in value.pieces:
            for start in range(0, len(piece), PART_BYTES):
                send(self._output, ("part", number, PickleBuffer(piece[start : start + PART_BYTES])))
        value.pieces.clear()
        return True

    def _ended(self, entry: tuple[int, bool, Generator[None, None, object]]) -> None:
        number, large, steps = entry
        self._inbox.end(number)
        steps.close()
        if large:
            self._large_job_runs = bool(self._large)
            if self._large:
                self._ready.append(self._large.popleft())


def _to_send(value: object) -> object:
    """The value in a form that is pickled without a copy of a large batch; the server receives bytes."""
    if isinstance(value, Prepared) and value.pieces is not None:
        (whole,) = value.pieces
        return Prepared(value.max_timestamp, (cast(bytes, PickleBuffer(whole)),))
    return value


def _is_large(job: Job) -> bool:
    batch = memoryview(job.batch)
    if len(batch) < BATCH_OVERHEAD:
        return False
    try:
        return buffer_bytes(batch[ATTRIBUTES_POSITION + 1] & CODEC_MASK, batch[BATCH_OVERHEAD:]) > WHOLE_BYTES
    except CompressionError:
        return False


if __name__ == "__main__":
    main()
