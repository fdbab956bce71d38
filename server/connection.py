"""One client's TCP connection: bytes in, frames out to dispatch, answers back in order.

A frame is ``length: int32`` and then ``length`` bytes (https://kafka.apache.org/protocol#protocol_common). What this
module knows is only that; it does not know what a frame says.

- Small frames are received into one buffer that all connections share and copied out; a frame above `LARGE_FRAME_BYTES`
  gets a buffer of its own which grows with the bytes that have arrived, never with the length that was declared.
- Answers leave in the order of the requests. A request that cannot be answered yet (`RequestContext`) holds its place
  in the queue; later requests of the connection are served meanwhile, up to `MAX_IN_FLIGHT` of them and to
  `MAX_HELD_BYTES` of waiting requests and answers.
- While the peer does not read its answers nothing more is read from it: memory per connection is bounded by one frame,
  `ROUND_BYTES` and one answer to be sent, and what is held in the queue.
- A peer that leaves is noticed also while nothing is read from it (`HangUps`): its requests that wait are abandoned, as
  they are when its end is read, and what it has sent behind them is served.
- File ranges go out by ``sendfile``; small ones are read and go out with the buffers around them. One that comes up
  short closes the connection: its length was promised.
- A file range that is not in the page cache is read ahead by a thread (`read_ahead`), and this connection alone waits,
  like one whose peer does not read. Nobody gets more than `TURN_BYTES` per turn of the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import logging
import os
import socket
import struct
import termios
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from ..log.descriptors import FileRange
from ..protocol.api import ApiKey

if TYPE_CHECKING:
    from .event_loop import HangUps, Readiness
    from .express import Express
    from .memory import MemoryBudget
    from .peer_log import PeerLog
    from .read_ahead import ReadAhead
    from .request import RequestContext
    from .slices import Sliced
    from .spare_frames import SpareFrames
    from .timers import Timer, TimerWheel

logger = logging.getLogger(__name__)

Buffer = bytes | bytearray | memoryview
Part = Buffer | FileRange

SCRATCH_BYTES = 256 * 1024
LARGE_FRAME_BYTES = 64 * 1024
# A large frame is read in at most so many system calls per turn of the loop: one fast sender must not starve others.
MAX_READS_PER_EVENT = 16
MAX_IN_FLIGHT = 100
MAX_HELD_BYTES = 1024 * 1024
# So many bytes of answers are made before they are sent: small requests may have large answers.
ROUND_BYTES = 256 * 1024
# Buffers up to this size are joined into one send; copying them costs less than another system call.
JOIN_BYTES = 32 * 1024
# File ranges up to this size are read, and sent with what is around them: one system call for each and one for all, not
# two for each; and the read tells by itself whether it would have to wait.
READ_BYTES = 64 * 1024
OUTGOING_BYTES = 128 * 1024
# Enough for the whole of a fetch of 1 MB, which is what most consumers ask for.
TURN_BYTES = 1024 * 1024
# Of a cold range so much is waited for at once.
WINDOW_BYTES = 1024 * 1024
# Meanwhile, and as long as its reader goes on, so much of the file behind it is read ahead: also beyond the range,
# because the reader will come back for what follows.
AHEAD_BYTES = 4 * 1024 * 1024

# What was found in memory is believed to be there for so long.
WARM_SECONDS = 1.0

_FRAME_LENGTH = struct.Struct(">i")
_UNREAD = struct.Struct("i")
_METADATA = struct.pack(">h", ApiKey.METADATA)
_MSG_MORE = getattr(socket, "MSG_MORE", 0)


class FrameHandler(Protocol):
    """What a connection hands its frames to (`server.dispatch.Dispatcher`)."""

    def handle(self, connection: Connection, frame: bytes | bytearray) -> RequestContext | list[Part] | None:
        """Serve one request.

        Returns the parts of the answer, None where there is none (``acks=0``), or the context of a request that will
        be answered later. May close the connection.
        """

    def finish(self, context: RequestContext, steps: Sliced[Any]) -> None:
        """Answer a request that was parked with what these steps return, in slices."""


class InFlight(Protocol):
    """A request's place in the order of answers."""

    parts: list[Part] | None
    held_bytes: int  # of the request or the answer, while it waits
    keeps_request: bool  # the bytes of the request stay in use until it is answered
    kept_bytes: int  # of these, what `MemoryBudget.keep` counts

    def abandon(self) -> None:
        """The connection is gone: nobody waits for this answer any more."""

    def hurry(self) -> None:
        """Answer now with what there is, if that makes sense: the server stops, or a later answer is ready."""


class Host(Protocol):
    """What connections of one server share."""

    loop: asyncio.AbstractEventLoop
    readiness: Readiness
    hang_ups: HangUps | None
    timers: TimerWheel
    budget: MemoryBudget
    spare_frames: SpareFrames
    scratch: memoryview
    outgoing: memoryview  # of OUTGOING_BYTES
    read_ahead: ReadAhead
    dispatcher: FrameHandler
    peer_log: PeerLog
    max_request_bytes: int
    max_idle_ms: int

    def connection_closed(self, connection: Connection) -> None:
        """Forget this connection."""


class Connection:
    """A non-blocking socket and the state of what it is receiving and sending."""

    __slots__ = (
        "__weakref__",
        "_file_sent",
        "_frame",
        "_frame_filled",
        "_frame_size",
        "_held_bytes",
        "_host",
        "_idle_timer",
        "_in_event",
        "_in_flight",
        "_last_active",
        "_out",
        "_parked",
        "_reading",
        "_rest",
        "_sock",
        "_turn_left",
        "_warm_until",
        "_watching",
        "_working",
        "_writing",
        "client_host",
        "client_software",
        "closed",
        "closing",
        "express",
        "fd",
        "listener_name",
        "local_address",
        "peer",
        "peer_host",
        "principal",
    )

    def __init__(self, host: Host, sock: socket.socket, listener_name: str) -> None:
        self._host = host
        self._sock = sock
        self.fd = sock.fileno()
        self.listener_name = listener_name
        address = sock.getpeername()
        self.peer_host = str(address[0])
        self.client_host = f"/{self.peer_host}"  # as Kafka writes it
        self.peer = f"{address[0]}:{address[1]}"
        local = sock.getsockname()
        # A socket for both families shows IPv4 addresses as ::ffff:192.0.2.1, which clients cannot all use.
        self.local_address: tuple[str, int] = (str(local[0]).removeprefix("::ffff:"), int(local[1]))
        self.principal = "User:ANONYMOUS"
        self.client_software: tuple[str, str] | None = None  # name and version, from ApiVersions
        self.express: Express | None = None  # the dispatcher makes it for clients that repeat themselves
        self.closed = False
        self.closing = False  # no more reading; close when the answers are out
        self._rest = bytearray()  # the beginning of a small frame, or frames that must wait for back-pressure
        self._frame: bytearray | None = None  # a large frame being received
        self._frame_size = 0
        self._frame_filled = 0
        self._in_flight: deque[InFlight] = deque()
        self._held_bytes = 0  # of all of them
        self._out: deque[Part] = deque()
        self._file_sent = 0  # bytes of the file range at the head of _out that are sent
        self._warm_until = 0  # up to here that range may be sent without asking whether it is in memory
        self._reading = False
        self._watching = False  # for the end of the peer, while it is not read from
        self._working = False  # a request is served in slices: the next ones wait
        self._writing = False  # the peer's window is full
        self._parked = False  # sending waits for a thread that reads ahead, or for the next turn of the loop
        self._turn_left = 0  # bytes that may still be sent in this turn
        self._in_event = False
        self._last_active = host.loop.time()
        self._idle_timer: Timer | None = None
        if host.max_idle_ms > 0:
            self._idle_timer = host.timers.call_after(host.max_idle_ms, self._check_idle)
        self._resume()

    # -- receiving -----------------------------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        self._last_active = self._host.loop.time()
        if self._frame is not None:
            self._receive_large()
            return
        scratch = self._host.scratch
        try:
            received = self._sock.recv_into(scratch)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(f"receiving failed: {error}", level=logging.DEBUG)
            return
        if received == 0:
            self.close(None)
            return
        if self._rest:
            self._rest += scratch[:received]
            data = bytes(self._rest)
            self._rest.clear()
            self._consume(memoryview(data))
        else:
            self._consume(scratch[:received])

    def _consume(self, view: memoryview) -> None:
        """Serve the complete frames in ``view``; keep what is left."""
        self._in_event = True
        position = 0
        end = len(view)
        unsent = 0
        while end - position >= 4:
            if self._must_wait():
                break
            (size,) = _FRAME_LENGTH.unpack_from(view, position)
            if size < 0 or size > self._host.max_request_bytes:
                if self.express is not None and self.express.taken:
                    self._serve_taken(self.express, view)
                self.close(
                    f"a request of {size} bytes was declared; 'socket.request.max.bytes' is "
                    f"{self._host.max_request_bytes}. Is the peer speaking another protocol (TLS, HTTP)?"
                )
                return
            start = position + 4
            if end - start < size:
                break
            position = start + size
            express = self.express
            if express is not None and not self._in_flight:
                if express.offer(view, start, position):
                    continue
                if express.taken:
                    unsent += self._serve_taken(express, view)
            unsent += self._serve(bytes(view[start:position]))
            if unsent > ROUND_BYTES:
                self._flush()
                unsent = 0
            if self.closed or self.closing:
                position = end
                break
        express = self.express
        if express is not None and express.taken:
            self._serve_taken(express, view)
        self._in_event = False
        if self.closed:
            return
        if position < end:
            self._keep(view[position:end])
        if self._must_wait():
            self._pause()
        self._flush_unless_waiting()

    def _keep(self, view: memoryview) -> None:
        if len(view) >= 4 and not self._must_wait():
            (size,) = _FRAME_LENGTH.unpack_from(view, 0)
            if size > LARGE_FRAME_BYTES:
                self._start_large(size, view[4:])
                return
        self._rest += view

    def _start_large(self, size: int, arrived: memoryview) -> None:
        frame = self._host.spare_frames.take(size)
        capacity = size if frame is not None else min(size, max(LARGE_FRAME_BYTES, 4 * len(arrived)))
        if not self._host.budget.grow(self, capacity, size):
            if frame is not None:
                self._host.spare_frames.keep(frame)
            # The beginning stays in _rest; resume_reading() comes back here by way of _consume().
            self._rest += _FRAME_LENGTH.pack(size)
            self._rest += arrived
            self._pause()
            return
        if frame is None:
            frame = bytearray(capacity)
        frame[: len(arrived)] = arrived
        self._frame = frame
        self._frame_size = size
        self._frame_filled = len(arrived)

    def _receive_large(self) -> None:
        frame = self._frame
        assert frame is not None
        for _ in range(MAX_READS_PER_EVENT):
            if self._frame_filled == len(frame) and not self._grow_large(frame):
                return
            try:
                with memoryview(frame) as view:
                    received = self._sock.recv_into(view[self._frame_filled :])
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                self.close(f"receiving failed: {error}", level=logging.DEBUG)
                return
            if received == 0:
                self.close(None)
                return
            self._frame_filled += received
            if self._frame_filled == self._frame_size:
                self._frame = None
                self._in_event = True
                self._serve_large(frame)
                self._in_event = False
                self._host.budget.release(self)
                if not self._in_flight:  # a request that waits may use its bytes
                    self._host.spare_frames.keep(frame)
                if not self.closed:
                    if self._must_wait():
                        self._pause()
                    self._flush_unless_waiting()
                return
            if self._frame_filled < len(frame):
                break  # there was no more: another call would only say so
        self._host.budget.progress(self, self._frame_size - self._frame_filled)

    def _grow_large(self, frame: bytearray) -> bool:
        more = min(self._frame_size - len(frame), len(frame))
        if not self._host.budget.grow(self, more, self._frame_size):
            self._pause()
            return False
        frame.extend(bytes(more))
        return True

    def resume_reading(self) -> None:
        """Go on reading: memory came back, the peer read its answers, or a parked request was answered."""
        if self.closed or self.closing or self._reading:
            return
        if self._must_wait():
            self._watch_for_end()
            return
        self._resume()
        if self._rest and self._frame is None and not self._in_event:
            data = bytes(self._rest)
            self._rest.clear()
            self._consume(memoryview(data))

    def _must_wait(self) -> bool:
        return self._writing or self._parked or self._working or self._is_full()

    def _is_full(self) -> bool:
        return len(self._in_flight) >= MAX_IN_FLIGHT or self._held_bytes > MAX_HELD_BYTES

    # -- answering -----------------------------------------------------------------------------------------------------

    def _serve(self, frame: bytes | bytearray) -> int:
        """Serve one request; returns how many bytes of its answer can be sent at once."""
        try:
            answer = self._host.dispatcher.handle(self, frame)
        except Exception:
            logger.exception("A request of %s could not be served", self.peer)
            self.close("its request could not be served", level=logging.ERROR)
            return 0
        if answer is None:
            return 0
        if isinstance(answer, list):
            size = _size_of(answer)
            if not self._in_flight:
                self._out.extend(answer)
                return size
            waiting: InFlight = _Done(answer, size)  # an earlier request is not answered yet
        else:
            waiting = answer
            waiting.held_bytes = len(frame)
            if waiting.keeps_request:
                waiting.kept_bytes = self._host.budget.keep(self)
        if self.closed:
            waiting.abandon()
            return 0
        self._held_bytes += waiting.held_bytes
        self._in_flight.append(waiting)
        if waiting.parts is not None and frame[:2] != _METADATA:
            self._hurry_before(waiting)
        return 0

    def _serve_taken(self, express: Express, view: memoryview) -> int:
        """Serve what the express has taken from ``view``; returns how many bytes can be sent at once."""
        size = 0
        while express.taken and not self.closed:
            if not self._in_flight:
                try:
                    answers = express.serve()
                except Exception:
                    logger.exception("Requests of %s could not be served", self.peer)
                    self.close("its requests could not be served", level=logging.ERROR)
                    break
                if answers:
                    self._out.append(answers)
                    size += len(answers)
            if express.taken:
                start, end = express.hand_back()
                size += self._serve(bytes(view[start:end]))
        express.taken.clear()
        return size

    def _serve_large(self, frame: bytearray) -> None:
        express = self.express
        if express is not None and not self._in_flight:
            view = memoryview(frame)
            if express.offer(view, 0, len(view)):
                self._serve_taken(express, view)
                return
        self._serve(frame)

    def go_on(self, context: RequestContext, steps: Sliced[Any]) -> None:
        """Answer a request that was parked, in slices."""
        self._host.dispatcher.finish(context, steps)

    def begin_work(self) -> None:
        """A request is served in slices: read no other before `end_work`, so that their order is kept."""
        self._working = True

    def end_work(self) -> None:
        """The request that was served in slices is answered, or waits for something else now."""
        if self._working:
            self._working = False
            self.resume_reading()

    def give_back(self, size: int) -> None:
        """The bytes of a request that waited are not in use any more."""
        self._host.budget.give_back(size)

    def answered(self, context: RequestContext) -> None:
        """A parked request has its answer; send what the order allows."""
        if self.closed:
            return
        in_flight = self._in_flight
        if not in_flight:
            return
        if in_flight[0] is not context:
            if context.hurries_others:
                self._hurry_before(context)
            return
        while in_flight and in_flight[0].parts is not None:
            first = in_flight.popleft()
            assert first.parts is not None
            self._held_bytes -= first.held_bytes
            self._out.extend(first.parts)
        if not self._in_event:
            self._flush_unless_waiting()
            self.resume_reading()

    def _hurry_before(self, answered: InFlight) -> None:
        """An answer is ready: who is in front of it and waits for more than it needs should not hold it up.

        Java consumers ask where partitions end on the connection on which their fetch waits for records. Without this
        they would learn it when that has waited long enough, as they do from Apache Kafka. Metadata is not worth it:
        clients refresh it in passing, and a fetch should not come back empty for that.
        """
        for waiting in list(self._in_flight):
            if waiting is answered:
                return
            if waiting.parts is None:
                waiting.hurry()
                if waiting.parts is None:
                    return  # for what has to happen first

    def _flush_unless_waiting(self) -> None:
        if not self._writing and not self._parked:
            self._flush()

    def _flush(self) -> None:
        """Send until everything is out, or something has to be waited for: the peer, the disk, or others' turn."""
        out = self._out
        self._turn_left = TURN_BYTES
        try:
            while out:
                if self._turn_left <= 0:
                    self._park()
                    self._host.loop.call_soon(self._go_on)
                    return
                if not self._send_some():
                    if not self._parked:
                        self._wait_for_peer()
                    return
        except (BlockingIOError, InterruptedError):
            self._wait_for_peer()
            return
        except OSError as error:
            self._sending_failed(error)
            return
        if self._writing:
            self._writing = False
            self._host.readiness.remove_writer(self.fd)
            self.resume_reading()
        if self.closing and not self._in_flight:
            self.close(None)

    def _wait_for_peer(self) -> None:
        if not self._writing:
            self._writing = True
            self._host.readiness.add_writer(self.fd, self._on_writable)
            self._pause()

    def _park(self) -> None:
        """Send nothing, and read nothing, before `_go_on`."""
        self._parked = True
        self._pause()
        if self._writing:
            self._writing = False
            self._host.readiness.remove_writer(self.fd)

    def _go_on(self) -> None:
        if self.closed:
            return
        self._parked = False
        self._last_active = self._host.loop.time()
        self._flush()
        self.resume_reading()

    def _sending_failed(self, error: OSError) -> None:
        # EIO is the disk's: the file could not be read.
        self.close(f"sending failed: {error}", level=logging.ERROR if error.errno == errno.EIO else logging.DEBUG)

    def _send_last_answers(self) -> None:
        """The requests before the one that closes the connection were good: answer them, as far as the window goes."""
        with contextlib.suppress(OSError):
            while self._out and self._send_some():
                pass

    def _on_writable(self) -> None:
        now = self._host.loop.time()
        if now - self._last_active > WARM_SECONDS:
            self._warm_until = 0  # the peer took its time: what was in memory then may not be any more
        self._last_active = now
        self._flush()

    def _send_some(self) -> bool:
        """Send what one system call can of the head of the queue. False: no more can be sent now."""
        out = self._out
        first = out[0]
        if isinstance(first, FileRange):
            if first.length > READ_BYTES:
                return self._send_file(first)
        elif len(out) == 1 or len(first) > JOIN_BYTES:
            sent = self._sock.send(first, _MSG_MORE if len(out) > 1 else 0)
            self._turn_left -= sent
            if sent == len(first):
                out.popleft()
                return True
            out[0] = memoryview(first)[sent:]
            return False
        return self._send_joined()

    def _send_joined(self) -> bool:
        """Send small buffers, and small file ranges between them, with one call."""
        outgoing = self._host.outgoing
        filled = 0
        flags = 0
        start = self._file_sent  # of the first part, if that is a file range
        for part in self._out:
            length = len(part) - start
            end = filled + length
            if length > READ_BYTES or end > OUTGOING_BYTES:
                flags = _MSG_MORE
                break
            if not isinstance(part, FileRange):
                outgoing[filled:end] = part
            elif not self._read_small(part, start, outgoing[filled:end]):
                break  # it comes after a wait for the disk: what is before it goes out now
            filled = end
            start = 0
        if not filled and isinstance(self._out[0], FileRange):
            self._read_ahead(self._out[0])
            return False
        sent = self._sock.send(outgoing[:filled], flags)
        self._turn_left -= sent
        self._drop_sent(sent)
        return sent == filled

    def _read_small(self, part: FileRange, start: int, buffer: memoryview) -> bool:
        """Fill the buffer from ``start`` in the file range on; False if that would wait for the disk."""
        if start + len(buffer) <= self._warm_until and part is self._out[0]:  # read ahead: now it has to go out
            data = part.read(start, len(buffer))
            if len(data) < len(buffer):
                raise _came_up_short()
            buffer[:] = data
            return True
        return part.read_cached(buffer, start) == len(buffer)

    def _drop_sent(self, sent: int) -> None:
        """Take the first ``sent`` bytes, and empty buffers behind them, out of the queue."""
        out = self._out
        while out:
            head = out[0]
            left = len(head) - self._file_sent
            if sent < left:
                if not isinstance(head, FileRange):
                    out[0] = memoryview(head)[sent:]
                elif sent:
                    self._file_sent += sent
                    self._file_was_sent(head)
                return
            sent -= left
            if isinstance(head, FileRange):
                self._file_sent += left
                self._file_was_sent(head)
            else:
                out.popleft()

    def _send_file(self, head: FileRange) -> bool:
        """Send from the large file range at the head of the queue what is in memory, up to `TURN_BYTES` of it."""
        start = self._file_sent
        length = self._warm_until - start
        if length <= 0:
            length = head.cached(start, TURN_BYTES)
            if not length:
                self._read_ahead(head)
                return False
            self._warm_until = start + length
        if head.fd >= 0:
            sent = os.sendfile(self.fd, head.fd, head.position + start, length)
            if not sent:
                raise _came_up_short()
        else:  # a file system in memory has no descriptors
            length = min(length, ROUND_BYTES)
            sent = self._sock.send(head.read(start, length))
        self._turn_left -= sent
        self._file_sent = start + sent
        self._file_was_sent(head)
        return sent == length

    def _file_was_sent(self, head: FileRange) -> None:
        """Some of the file range at the head of the queue is out, up to `_file_sent`; perhaps all."""
        if self._host.read_ahead.jobs:  # otherwise nobody ever waited for the disk
            self._keep_ahead(head)
        if self._file_sent == head.length:
            self._file_sent = self._warm_until = 0
            self._out.popleft()
            head.release()

    def _read_ahead(self, head: FileRange) -> None:
        """The file range at the head of the queue is not in memory: wait until a thread has read some of it."""
        if self.closed:
            return
        self._park()
        self._host.read_ahead.read(head.part(self._file_sent, WINDOW_BYTES), self._was_read_ahead)

    def _was_read_ahead(self, error: OSError | None) -> None:
        if self.closed:
            return
        if error is not None:
            self._sending_failed(error)
            return
        head = self._out[0]
        assert isinstance(head, FileRange)
        self._warm_until = min(self._file_sent + WINDOW_BYTES, head.length)
        self._keep_ahead(head)
        self._go_on()

    def _keep_ahead(self, head: FileRange) -> None:
        """Let a thread read what this reader of a cold file will want next."""
        ahead = head.ahead(max(self._file_sent, self._warm_until), AHEAD_BYTES)
        if ahead is not None:
            self._host.read_ahead.read(ahead)

    # -- state ---------------------------------------------------------------------------------------------------------

    def _pause(self) -> None:
        if self._reading:
            self._reading = False
            self._host.readiness.remove_reader(self.fd)
            self._watch_for_end()

    def _watch_for_end(self) -> None:
        """The peer's end could come long before anything is read again.

        Work in slices goes on to its end in any case, and writing notices it by itself.
        """
        if self._watching or self._working or self._writing or self._parked or self.closed or self.closing:
            return
        hang_ups = self._host.hang_ups
        if hang_ups is not None:
            self._watching = True
            hang_ups.add_hang_up(self.fd, self._on_hang_up)

    def _watch_no_more(self) -> None:
        if self._watching:
            self._watching = False
            assert self._host.hang_ups is not None
            self._host.hang_ups.remove_hang_up(self.fd)

    def _on_hang_up(self) -> None:
        """The peer sends no more; there may be requests that were not read. They are served: acks may be 0."""
        self._watching = False
        if self._is_full():
            self._abandon_in_flight()
            self.resume_reading()
        elif self._is_cut_off():
            self.close(None)

    def _is_cut_off(self) -> bool:
        """Whether the rest of the request that waits for memory was not sent."""
        if self._frame is not None:
            missing = self._frame_size - self._frame_filled
        elif len(self._rest) >= _FRAME_LENGTH.size:
            missing = _FRAME_LENGTH.unpack_from(self._rest)[0] + _FRAME_LENGTH.size - len(self._rest)
        else:
            return False
        (unread,) = _UNREAD.unpack(fcntl.ioctl(self.fd, termios.FIONREAD, bytes(_UNREAD.size)))
        return bool(unread < missing)

    def _abandon_in_flight(self) -> None:
        for context in self._in_flight:
            context.abandon()
        self._in_flight.clear()
        self._held_bytes = 0

    def _resume(self) -> None:
        if not self._reading and not self.closed:
            self._watch_no_more()
            self._reading = True
            self._host.readiness.add_reader(self.fd, self._on_readable)

    def _check_idle(self) -> None:
        self._idle_timer = None
        if self.closed:
            return
        idle_ms = (self._host.loop.time() - self._last_active) * 1000
        # A parked request is answered by its own deadline, and keeps the connection alive until then.
        remaining = self._host.max_idle_ms - idle_ms
        if remaining <= 0 and not self._in_flight:
            self.close("nothing was sent or received for 'connections.max.idle.ms'", level=logging.INFO)
            return
        self._idle_timer = self._host.timers.call_after(max(remaining, 1000), self._check_idle)

    def close_stalled(self) -> None:
        """Close a peer that sends too little of a request while others wait for its memory."""
        self.close(
            f"only {self._frame_filled} of the {self._frame_size} bytes of a request arrived, too slowly, "
            "and its memory is needed ('queued.max.request.bytes')"
        )

    def close_after_answers(self) -> None:
        """Take no more requests; close when the answers of those that were taken are out."""
        self.closing = True
        self._pause()
        for waiting in list(self._in_flight):
            waiting.hurry()
        if not self._in_event and not self._in_flight and not self._out:
            self.close(None)

    def close(self, reason: str | None, *, level: int = logging.WARNING) -> None:
        """Close now. ``reason`` (None: the peer went away by itself) is logged with the peer's address (`PeerLog`)."""
        if self.closed:
            return
        self.closed = True
        if self._in_event and not self._writing:
            self._send_last_answers()
        if reason is not None:
            message = f"Closing the connection from {self.peer} ({self.listener_name}): {reason}"
            self._host.peer_log.log(level, self.peer_host, reason, message)
        self._pause()
        self._watch_no_more()
        if self._writing:
            self._host.readiness.remove_writer(self.fd)
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._sock.close()
        for part in self._out:
            if isinstance(part, FileRange):
                part.release()
        self._out.clear()
        self._abandon_in_flight()
        self._frame = None
        self._rest.clear()
        self._host.budget.release(self)
        self._host.connection_closed(self)


def _came_up_short() -> OSError:
    return OSError(errno.EIO, "a file range came up short: the segment was changed underneath it")


class _Done:
    """An answer that waits for its turn, in the queue of requests in flight."""

    __slots__ = ("held_bytes", "keeps_request", "kept_bytes", "parts")

    def __init__(self, parts: list[Part], size: int) -> None:
        self.parts: list[Part] | None = parts
        self.held_bytes = size
        self.keeps_request = False
        self.kept_bytes = 0

    def abandon(self) -> None:
        for part in self.parts or ():
            if isinstance(part, FileRange):
                part.release()

    def hurry(self) -> None:
        """It is answered; it waits for its turn only."""


def _size_of(parts: list[Part]) -> int:
    """Bytes in memory: file ranges take none."""
    if len(parts) == 1:
        return 0 if isinstance(parts[0], FileRange) else len(parts[0])
    return sum(len(part) for part in parts if not isinstance(part, FileRange))
