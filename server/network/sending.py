"""The send queue of a connection: buffers and file ranges, in order, and the position within the first of them.

- Small buffers, and small file ranges between them, are joined into one system call. Large file ranges are sent
  directly from the file. A short range is an error, because its length was promised to the peer.
- A file range that is not in the page cache is sent only after a thread has read it (`read_ahead`). Then it is sent
  without another check of the cache.
- A connection sends at most `TURN_BYTES` per turn.

`Sending` does not wait. It returns what must be waited for (`Wait`), and its connection calls `send` again.
"""

from __future__ import annotations

import enum
import sys
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...log.descriptors import FileRange
from .frames import Part
from .transport import MORE, Transport, short_read_error

if TYPE_CHECKING:
    from .read_ahead import Done, ReadAhead

# Buffers up to this size are joined into one send; copying them costs less than another system call.
JOIN_BYTES = 32 * 1024
# File ranges up to this size are read, and sent together with their neighbors. That takes one system call per range and
# one for all, instead of two per range. In addition, the read itself reports whether it would have to wait.
READ_BYTES = 64 * 1024
OUTGOING_BYTES = 128 * 1024
# Enough for a complete fetch of 1 MB, the size that most consumers request.
TURN_BYTES = 1024 * 1024
# The minimum cost of reading a file range, in bytes of a turn.
READ_COST_BYTES = 4 * 1024
# The part of a cold range that one wait covers.
WINDOW_BYTES = 1024 * 1024
# Meanwhile, and as long as its reader continues, this much of the file behind it is read ahead. It may extend beyond
# the range, because the reader will request the following data next.
AHEAD_BYTES = 4 * 1024 * 1024


class Wait(enum.Enum):
    """What must happen before more can be sent."""

    PEER = "the peer takes what was sent"
    TURN = "others are served"
    DISK = "a thread reads the file range at the head of the queue"


class Sending:
    """See the module docstring."""

    __slots__ = ("_file_sent", "_outgoing", "_read_ahead", "_transport", "_turn_left", "_warm_until", "queue")

    def __init__(self, transport: Transport, outgoing: memoryview, read_ahead: ReadAhead) -> None:
        """``outgoing``: a buffer of `OUTGOING_BYTES` in which small parts are joined. All connections may share it."""
        self._transport = transport
        self._outgoing = outgoing
        self._read_ahead = read_ahead
        self._file_sent = 0  # bytes already sent of the file range at the head of the queue
        self._warm_until = 0  # up to here, that range is sent without checking the page cache
        self._turn_left = 0  # bytes that may still be sent in this turn
        self.queue: deque[Part] = deque()
        """The unsent parts. The connection appends to them."""

    def send(self, limit: int = TURN_BYTES) -> Wait | None:
        """Send until the queue is empty (None), ``limit`` bytes were sent, or sending must wait for something else.

        Raises:
            OSError: the connection is broken; with EIO, a file cannot be read.
        """
        queue = self.queue
        self._turn_left = limit
        try:
            while queue:
                if self._turn_left <= 0:
                    return Wait.TURN
                wait = self._send_some()
                if wait is not None:
                    return wait
        except (BlockingIOError, InterruptedError):
            return Wait.PEER
        return None

    def send_last(self) -> None:
        """Send what can be sent now, without a limit. Nothing is sent after this."""
        self.send(sys.maxsize)

    def drop(self) -> None:
        """Discard the unsent parts."""
        for part in self.queue:
            if isinstance(part, FileRange):
                part.release()
        self.queue.clear()

    def bytes_in_memory(self) -> int:
        """The memory of the unsent parts, in bytes."""
        return bytes_in_memory(self.queue)

    def read_ahead(self, done: Done) -> None:
        """After `Wait.DISK`: have a thread read the range, then call ``done``."""
        head = self.queue[0]
        assert isinstance(head, FileRange)
        self._read_ahead.read(head.part(self._file_sent, WINDOW_BYTES), done)

    def was_read_ahead(self) -> None:
        """A thread has finished the job of `read_ahead`. To be called before `send`."""
        head = self.queue[0]
        assert isinstance(head, FileRange)
        self._warm_until = min(self._file_sent + WINDOW_BYTES, head.length)
        self._keep_ahead(head)

    def forget_warm(self) -> None:
        """Time has passed: data that was in memory may have been evicted."""
        self._warm_until = 0

    def _send_some(self) -> Wait | None:
        """Send as much of the head of the queue as one system call can. Returns None if sending can continue."""
        queue = self.queue
        first = queue[0]
        if isinstance(first, FileRange):
            if first.length > READ_BYTES:
                return self._send_file(first)
        elif len(queue) == 1 or len(first) > JOIN_BYTES:
            sent = self._transport.send(first, MORE if len(queue) > 1 else 0)
            self._turn_left -= sent
            if sent == len(first):
                queue.popleft()
                return None
            queue[0] = memoryview(first)[sent:]
            return Wait.PEER
        return self._send_joined()

    def _send_joined(self) -> Wait | None:
        """Send small buffers, and small file ranges between them, with one system call."""
        outgoing = self._outgoing
        queue = self.queue
        filled = 0
        parts = 0
        flags = 0
        start = self._file_sent  # of the first part, if that is a file range
        for part in queue:
            length = part.length - start if isinstance(part, FileRange) else len(part)
            end = filled + length
            if length > READ_BYTES or end > OUTGOING_BYTES or (filled and self._turn_left <= 0):
                flags = MORE
                break
            if not isinstance(part, FileRange):
                outgoing[filled:end] = part
            elif not self._read_small(part, start, outgoing[filled:end]):
                break  # it must wait for the disk; the parts before it are sent now
            else:
                if length < READ_COST_BYTES:
                    self._turn_left -= READ_COST_BYTES - length
            filled = end
            start = 0
            parts += 1
        if not filled and isinstance(queue[0], FileRange):
            return Wait.DISK
        sent = self._transport.send(outgoing[:filled], flags)
        self._turn_left -= sent
        if sent < filled:
            self._drop_sent(sent)
            return Wait.PEER
        for _ in range(parts):
            head = queue[0]
            if isinstance(head, FileRange):
                self._file_sent = head.length
                self._file_was_sent(head)
            else:
                queue.popleft()
        return None

    def _read_small(self, part: FileRange, start: int, buffer: memoryview) -> bool:
        """Fill ``buffer`` with bytes of the file range from ``start`` on; False if that would wait for the disk."""
        if start + len(buffer) <= self._warm_until and part is self.queue[0]:  # read ahead: it must be sent now
            data = part.read(start, len(buffer))
            if len(data) < len(buffer):
                raise short_read_error()
            buffer[:] = data
            return True
        return part.read_cached(buffer, start) == len(buffer)

    def _drop_sent(self, sent: int) -> None:
        """Remove the first ``sent`` bytes, and empty buffers behind them, from the queue."""
        queue = self.queue
        while queue:
            head = queue[0]
            left = len(head) - self._file_sent
            if sent < left:
                if not isinstance(head, FileRange):
                    queue[0] = memoryview(head)[sent:]
                elif sent:
                    self._file_sent += sent
                    self._file_was_sent(head)
                return
            sent -= left
            if isinstance(head, FileRange):
                self._file_sent += left
                self._file_was_sent(head)
            else:
                queue.popleft()

    def _send_file(self, head: FileRange) -> Wait | None:
        """Send the part of the large file range at the head of the queue that is in memory, up to `TURN_BYTES`."""
        start = self._file_sent
        length = self._warm_until - start
        if length <= 0:
            length = head.cached(start, TURN_BYTES)
            if not length:
                return Wait.DISK
            self._warm_until = start + length
        sent = self._transport.send_file(head, start, length)
        self._turn_left -= sent
        self._file_sent = start + sent
        self._file_was_sent(head)
        return None if sent == length else Wait.PEER

    def _file_was_sent(self, head: FileRange) -> None:
        """Bytes of the file range at the head of the queue were sent, up to `_file_sent`, which may be its end."""
        if self._read_ahead.jobs:  # otherwise nothing has waited for the disk yet
            self._keep_ahead(head)
        if self._file_sent == head.length:
            self._file_sent = self._warm_until = 0
            self.queue.popleft()
            head.release()

    def _keep_ahead(self, head: FileRange) -> None:
        """Have a thread read the data that this reader of a cold file will need next."""
        ahead = head.ahead(max(self._file_sent, self._warm_until), AHEAD_BYTES)
        if ahead is not None:
            self._read_ahead.read(ahead)


def bytes_in_memory(parts: Iterable[Part]) -> int:
    """How many bytes the parts hold in memory. File ranges hold none."""
    size = 0
    for part in parts:
        if not isinstance(part, FileRange):
            size += len(part)
    return size
