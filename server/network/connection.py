"""The TCP connection of one client: received bytes become frames, and responses are sent in order.

A frame is ``length: int32`` followed by ``length`` bytes (https://kafka.apache.org/protocol#protocol_common). This
module does not interpret the contents of a frame.

- Small frames are received into one buffer that all connections share, and are copied out of it. A frame above
  `LARGE_FRAME_BYTES` gets its own buffer, which grows with the bytes that have arrived, never with the declared length.
  When more than `HUGE_FRAME_BYTES` have arrived, the frame gets a mapping of its full size (`huge_frames`). The mapping
  reserves only addresses. The system allocates memory for the pages that are written, so the buffer grows without
  copies.
- Responses are sent in the order of the requests. A request that cannot be answered yet (`ServedRequest`) keeps its
  place in the queue. Later requests of the connection are served meanwhile, up to `MAX_IN_FLIGHT` requests and
  `MAX_HELD_BYTES` of waiting requests and responses.
- Requests that arrived together are served for one slice of time. The remaining ones wait for the connection's next
  turn (`turns`), and reading is paused until then.
- While the peer does not read its responses, nothing more is read from it. So the memory of a connection is bounded by
  one frame, `ROUND_BYTES`, one response to send, and the contents of the queue. `unread_responses` and `unserved` bound
  the memory of all connections together.
- A peer that disconnects is noticed even while nothing is read from it (`HangUps`). Its pending requests are canceled,
  as they are when the end of its data is read. The requests that it sent behind them are served.
- Responses consist of buffers and file ranges, and are sent by `Sending`. A file range that is not in the page cache is
  read ahead by a thread. Only this connection waits for it, as it waits for a peer that does not read.
- The reasons why reading is paused are one set of bits (`_waits_for`): the peer, the disk, memory, and others. Reading
  resumes when the set is empty.
- A `Transport` moves the bytes from and to the peer. An `Authentication` identifies the peer.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import logging
import socket
import struct
import sys
import termios
import weakref
from collections import deque
from functools import partial
from mmap import mmap
from typing import TYPE_CHECKING, Any, Final, Protocol

from ...log.descriptors import FileRange
from .frames import (
    AnsweredRequest,
    FetchFastPathPort,
    Frame,
    FrameHandler,
    InFlight,
    Part,
    PendingRequest,
    ProduceFastPathPort,
)
from .huge_frames import HUGE_FRAME_BYTES, HUGE_FRAME_GROWTH_BYTES, huge_frame
from .sending import Sending, Wait, bytes_in_memory
from .transport import HandshakeFailed, SendFirst, TurnFirst

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...protocol.errors import KafkaError
    from ..concurrency.event_loop import HangUps, Readiness
    from ..concurrency.timers import Timer, TimerWheel
    from ..concurrency.turns import Turns
    from .authentication import Authentication
    from .memory import MemoryBudget
    from .peer_log import PeerLog
    from .read_ahead import ReadAhead
    from .spare_frames import SpareFrames
    from .transport import Transport
    from .unread_responses import UnreadResponses
    from .unserved import Unserved

logger = logging.getLogger(__name__)

LARGE_FRAME_BYTES = 64 * 1024
# Of peers that are not authenticated: there may be thousands, and each one may stop within a frame.
LARGE_TOKEN_BYTES = 8 * 1024
# The maximum number of system calls that read a large frame in one iteration of the event loop: a fast sender must not
# starve other connections.
MAX_READS_PER_EVENT = 16
# The maximum number of bytes that are read into the new memory of a huge frame (`huge_frames`) in one iteration. They
# take about 0.5 ms.
MAX_READ_PER_EVENT = 512 * 1024
MAX_IN_FLIGHT = 100
MAX_HELD_BYTES = 1024 * 1024
# If a closed connection has more pending requests, they are canceled in a later turn.
FEW_IN_FLIGHT = 8
# Waiting requests and responses of a connection count toward the limit of all connections only above this size.
UNCOUNTED_BYTES = 64 * 1024
# Responses are sent as soon as they exceed this size, file ranges included. Small requests may have large responses,
# and a peer that does not read must not cause more of them.
ROUND_BYTES = 256 * 1024
# Data that was found in the page cache is assumed to stay there for this time.
WARM_SECONDS = 1.0

_FRAME_LENGTH = struct.Struct(">i")
_TLS_RECORD = 0x1603
"""The first two bytes of a ClientHello: a handshake record, and the major version of TLS."""
_UNREAD = struct.Struct("i")

# Reasons why reading from a connection is paused: bits of `Connection._waits_for`.
PEER: Final = 1  # the peer does not read its responses: its receive window is full
SEND: Final = 2  # sending waits for a thread that reads ahead, or for the next turn
TURN: Final = 4  # received requests wait for the connection's turn
WORK: Final = 8  # a request is served in slices, and the next ones wait
FULL: Final = 16  # the number or the size of the pending requests has reached its limit
MEMORY: Final = 32  # the request that is being received waits for memory
MUTED: Final = 64  # the client has exceeded a quota
# These reasons may last long, and the peer could disconnect meanwhile. The other reasons need no watch: work in slices
# runs to its end in any case, a turn comes soon, and a write notices that the peer has disconnected.
_LONG: Final = FULL | MEMORY | MUTED


class Host(Protocol):
    """What the connections of one server share."""

    loop: asyncio.AbstractEventLoop
    readiness: Readiness
    hang_ups: HangUps | None
    turns: Turns
    timers: TimerWheel
    budget: MemoryBudget
    unread: UnreadResponses
    spare_frames: SpareFrames
    unserved: Unserved
    outgoing: memoryview  # of `sending.OUTGOING_BYTES`
    read_ahead: ReadAhead
    dispatcher: FrameHandler
    peer_log: PeerLog
    max_request_bytes: int
    max_idle_ms: int

    def connection_closed(self, connection: Connection) -> None:
        """Remove a closed connection."""


class Connection:
    """One connection: the data being received, the pending requests, and the data to send."""

    __slots__ = (
        "__weakref__",
        "_frame",
        "_frame_capacity",
        "_frame_filled",
        "_frame_size",
        "_held_bytes",
        "_host",
        "_idle_timer",
        "_in_event",
        "_in_flight",
        "_kept",
        "_last_active",
        "_max_request_bytes",
        "_muted_until",
        "_reading",
        "_receives_later",
        "_rest",
        "_sending",
        "_transport",
        "_unread",
        "_waits_for",
        "_watching",
        "authentication",
        "client_software",
        "closed",
        "closing",
        "fd",
        "fetch_fast_path",
        "gate",
        "listener_name",
        "local_address",
        "on_sent",
        "peer",
        "peer_host",
        "produce_fast_path",
    )

    def __init__(
        self,
        host: Host,
        sock: socket.socket,
        transport: Transport,
        authentication: Authentication,
        listener_name: str,
    ) -> None:
        """``transport`` owns ``sock``. Only the addresses and the descriptor of the socket are used here.

        Raises:
            OSError: the peer has already disconnected.
        """
        self._host = host
        self._transport = transport
        self.fd = sock.fileno()
        self.listener_name = listener_name
        address = sock.getpeername()
        self.peer_host = str(address[0])
        self.peer = f"{address[0]}:{address[1]}"
        local = sock.getsockname()
        # A dual-stack socket reports IPv4 addresses as ::ffff:192.0.2.1, which some clients cannot use.
        self.local_address: tuple[str, int] = (sys.intern(str(local[0]).removeprefix("::ffff:")), int(local[1]))
        self.authentication = authentication
        self.gate = authentication.gate  # serves the frames instead of the dispatcher
        limit = authentication.max_request_bytes
        self._max_request_bytes = host.max_request_bytes if limit is None else min(limit, host.max_request_bytes)
        self.client_software = ""  # name and version, from ApiVersions
        # The dispatcher creates them for clients that repeat their requests.
        self.produce_fast_path: ProduceFastPathPort | None = None
        self.fetch_fast_path: FetchFastPathPort | None = None
        self.on_sent: Callable[[], None] | None = None  # called once, when all responses have been sent
        self.closed = False
        self.closing = False  # reading has ended; close when the responses have been sent
        self._rest = bytearray()  # the beginning of a small frame, or frames that wait because of back-pressure
        self._frame: bytearray | mmap | None = None  # a large frame being received
        self._frame_size = 0
        self._frame_capacity = 0  # bytes of it that are reserved in the budget
        self._frame_filled = 0
        self._in_flight: deque[InFlight] = deque()
        self._held_bytes = 0  # the sum of their `held_bytes`
        self._sending = Sending(transport, host.outgoing, host.read_ahead)
        self._waits_for = 0  # why reading is paused: `PEER` and the bits after it
        self._reading = False  # the loop calls `_on_readable` when data arrives
        self._receives_later = False  # pending bytes of the transport are received in a later turn
        self._muted_until = 0.0  # by the loop's clock
        self._watching = False  # for a hang-up of the peer, while reading is paused
        self._kept = 0  # bytes of _rest that are counted in `unserved`
        self._unread = 0  # bytes of responses that are counted in `unread_responses`
        self._in_event = False
        self._last_active = host.loop.time()
        self._idle_timer: Timer | None = None
        if host.max_idle_ms > 0:
            self._idle_timer = host.timers.call_after(host.max_idle_ms, self._check_idle)
        host.turns.opened(self.fd)
        self._resume()

    @property
    def client_host(self) -> str:
        """The peer's host as Kafka writes it: ``/127.0.0.1``."""
        return f"/{self.peer_host}"

    # -- receiving -----------------------------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        host = self._host
        self._last_active = host.loop.time()
        if self._frame is not None:
            self._receive_large()
        else:
            scratch = host.unserved.buffer
            try:
                received = self._transport.receive_into(scratch)
            except OSError as error:
                self._received_nothing(error)
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
        if self._reading and self._transport.pending():
            self._receive_later()

    def _received_nothing(self, error: OSError) -> None:
        if isinstance(error, SendFirst):
            self._wait_for_peer()
        elif isinstance(error, TurnFirst):
            self._receive_later()
        elif isinstance(error, HandshakeFailed):
            self.close(str(error))
        elif not isinstance(error, (BlockingIOError, InterruptedError)):
            self.close(f"receiving failed: {error}", level=logging.DEBUG)

    def _receive_later(self) -> None:
        """Schedule the reception of bytes that the transport already has. The loop does not report them."""
        if not self._receives_later:
            self._receives_later = True
            self._host.turns.later(self.fd, self._receive_pending)

    def _receive_pending(self) -> None:
        self._receives_later = False
        if self._reading:
            self._on_readable()

    def _consume(self, view: memoryview) -> None:
        """Serve the complete frames in ``view`` while there is time, and keep the remaining bytes."""
        self._in_event = True
        position = 0
        end = len(view)
        unsent = 0
        turns = self._host.turns
        until = 0.0  # the first frame is always served without reading the clock, as are fast-path frames
        while end - position >= 4:
            if self._waits_for:
                break
            (size,) = _FRAME_LENGTH.unpack_from(view, position)
            if size < 0 or size > self._max_request_bytes:
                if self.produce_fast_path is not None and self.produce_fast_path.taken:
                    self._serve_taken(self.produce_fast_path, view)
                self._close_oversized(size)
                return
            start = position + 4
            if end - start < size:
                break
            fast_path = self.produce_fast_path
            if fast_path is not None:
                if fast_path.offer(view, start, start + size):
                    position = start + size
                    continue
                if fast_path.taken:
                    unsent += self._serve_taken(fast_path, view)
                    if self._waits_for:
                        break
            if not until:
                if position:
                    until = turns.clock() + turns.slice_s
            elif turns.clock() >= until:
                self._waits_for |= TURN
                turns.later(self.fd, self._take_turn)
                break
            position = start + size
            unsent += self._serve(bytes(view[start:position]))
            if unsent > ROUND_BYTES:
                self._flush()
                unsent = 0
            if self.closed or self.closing:
                position = end
                break
        fast_path = self.produce_fast_path
        if fast_path is not None and fast_path.taken:
            self._serve_taken(fast_path, view)
            if fast_path.taken:  # one is served in slices: the others wait
                position = fast_path.taken[0][3] - _FRAME_LENGTH.size
                fast_path.taken.clear()
        self._in_event = False
        if self.closed:
            return
        if position < end:
            self._keep(view[position:end])
            if self.closed:
                return
        if self._waits_for:
            self._pause()
        if self._kept or not self._reading:
            self._count_kept(0 if self._reading else len(self._rest))
        self._flush_unless_waiting()

    def _close_oversized(self, size: int) -> None:
        if size >> 16 == _TLS_RECORD:
            self.close(
                "the peer speaks TLS, which this listener does not. Set security.protocol to PLAINTEXT or "
                "SASL_PLAINTEXT in the client, or use the address of a listener with TLS"
            )
            return
        setting = "socket.request.max.bytes"
        if self._max_request_bytes < self._host.max_request_bytes:
            setting = "sasl.server.max.receive.size"
        self.close(
            f"a request of {size} bytes was declared; '{setting}' is {self._max_request_bytes}. "
            "Is the peer speaking another protocol (HTTP)?"
        )

    def _count_kept(self, size: int) -> None:
        if size != self._kept:
            self._host.unserved.count(size - self._kept)
            self._kept = size

    def _keep(self, view: memoryview) -> None:
        if len(view) >= 4 and not self._waits_for:
            (size,) = _FRAME_LENGTH.unpack_from(view, 0)
            if size > LARGE_FRAME_BYTES or (size > LARGE_TOKEN_BYTES and self.authentication.pending_authentication):
                self._start_large(size, view[4:])
                return
        self._rest += view

    def _start_large(self, size: int, arrived: memoryview) -> None:
        frame = self._host.spare_frames.take(size)
        capacity = size if frame is not None else min(size, max(LARGE_FRAME_BYTES, 4 * len(arrived)))
        if not self._reserve(capacity, size):
            if frame is not None:
                self._host.spare_frames.keep(frame)
            if not self.closed:
                # The beginning stays in _rest. _read_on() gets here again through _consume().
                self._rest += _FRAME_LENGTH.pack(size)
                self._rest += arrived
            return
        if frame is None:
            frame = bytearray(capacity)
        frame[: len(arrived)] = arrived
        self._frame = frame
        self._frame_size = size
        self._frame_capacity = capacity
        self._frame_filled = len(arrived)

    def _reserve(self, more: int, frame_size: int) -> bool:
        """Reserve memory for a large frame. If there is none, the connection waits, or it is closed."""
        budget = self._host.budget
        if not self.authentication.pending_authentication:
            if budget.grow(self, more, frame_size):
                return True
            self._wait_for(MEMORY)
        elif budget.grow_unauthenticated(self, more):
            return True
        else:
            self.close(
                "large requests of peers that are not authenticated take too much memory, so this one is refused"
            )
        return False

    def _receive_large(self) -> None:
        assert self._frame is not None
        last = self._frame_filled + (MAX_READ_PER_EVENT if isinstance(self._frame, mmap) else HUGE_FRAME_BYTES)
        for _ in range(MAX_READS_PER_EVENT):
            if self._frame_filled == self._frame_capacity and not self._grow_large(self._frame):
                return
            frame = self._frame
            try:
                with memoryview(frame) as view:
                    received = self._transport.receive_into(view[self._frame_filled : min(self._frame_capacity, last)])
            except OSError as error:
                self._received_nothing(error)
                if self.closed:
                    return
                break
            if received == 0:
                self.close(None)
                return
            self._frame_filled += received
            if self._frame_filled == self._frame_size:
                self._frame = None
                self._in_event = True
                is_unused = self._serve_large(frame)
                self._in_event = False
                self._host.budget.release(self)
                # A pending request may still use the bytes of the frame.
                if (is_unused or not self._in_flight) and not isinstance(frame, mmap):
                    self._host.spare_frames.keep(frame)
                if not self.closed:
                    if self._waits_for:
                        self._pause()
                    self._flush_unless_waiting()
                return
            if self._frame_filled < self._frame_capacity or self._frame_filled >= last:
                break  # no more data has arrived, or it is the turn of other connections
        self._host.budget.progress(self, self._frame_size - self._frame_filled)

    def _grow_large(self, frame: bytearray | mmap) -> bool:
        more = min(self._frame_size - self._frame_capacity, self._frame_capacity, HUGE_FRAME_GROWTH_BYTES)
        if not self._reserve(more, self._frame_size):
            return False
        self._frame_capacity += more
        if not isinstance(frame, mmap):
            if self._frame_capacity > HUGE_FRAME_BYTES:
                huge = huge_frame(self._frame_size)
                if huge is not None:
                    huge[: len(frame)] = frame
                    self._frame = huge
                    return True
            frame.extend(bytes(more))
        return True

    def resume_reading(self) -> None:
        """Memory is available again: retry the reservation."""
        self._wait_no_more_for(MEMORY)

    def _take_turn(self) -> None:
        self._wait_no_more_for(TURN)

    def _wait_for(self, reason: int) -> None:
        """Pause reading until `_wait_no_more_for`, and for as long as another reason remains."""
        self._waits_for |= reason
        self._pause()

    def _wait_no_more_for(self, reason: int) -> None:
        self._waits_for &= ~reason
        self._read_on()

    def _read_on(self) -> None:
        """Serve the received data and resume reading, if there is no reason to wait."""
        if self.closed or self.closing or self._reading:
            return
        if self._waits_for:
            self._watch_for_end()
            return
        self._resume()
        if self._rest and self._frame is None and not self._in_event:
            data = bytes(self._rest)
            self._rest.clear()
            self._consume(memoryview(data))

    def _is_full(self) -> bool:
        return len(self._in_flight) >= MAX_IN_FLIGHT or self._held_bytes > MAX_HELD_BYTES

    def sends_next(self, waiting: InFlight | None) -> bool:
        """Whether the response of this pending request, or of a request without a place in the queue (None), is sent as
        soon as it is complete."""
        return self._in_flight[0] is waiting if self._in_flight else waiting is None

    # -- responding ----------------------------------------------------------------------------------------------------

    def _serve(self, frame: Frame) -> int:
        """Serve one request. Returns how many bytes of its response can be sent immediately, file ranges included."""
        gate, dispatcher = self.gate, self._host.dispatcher
        try:
            answer = dispatcher.handle(self, frame) if gate is None else gate.handle(self, frame)
        except Exception:
            logger.exception("A request from %s failed with an unexpected error", self.peer)
            self.close("its request could not be served", level=logging.ERROR)
            return 0
        if answer is None:
            return 0
        if isinstance(answer, list):
            if not self._in_flight:
                self._sending.queue.extend(answer)
                return _size_to_send(answer)
            waiting: InFlight = AnsweredRequest(answer, bytes_in_memory(answer))  # an earlier request is still pending
        else:
            waiting = answer
            waiting.held_bytes = len(frame)
            if waiting.keeps_request:
                waiting.kept_bytes = self._host.budget.keep(self)
        if self.closed:
            waiting.cancel()
            return 0
        self._add_in_flight(waiting)
        if waiting.parts is not None and (gate is None or gate.passed) and dispatcher.completes_earlier(frame):
            self._complete_earlier(waiting)
        return 0

    def _add_in_flight(self, waiting: InFlight) -> None:
        self._held_bytes += waiting.held_bytes
        self._in_flight.append(waiting)
        if self._is_full():
            self._waits_for |= FULL
        if self._held_bytes > UNCOUNTED_BYTES:
            self._count_unread()

    def _serve_taken(self, fast_path: ProduceFastPathPort, view: memoryview) -> int:
        """Serve the requests that the fast path has taken from ``view``. Returns how many bytes can be sent now."""
        size = 0
        while fast_path.taken and not self.closed and not self._waits_for & WORK:
            try:
                answers = fast_path.serve(self)
            except Exception:
                logger.exception("Requests from %s failed with an unexpected error", self.peer)
                self.close("its requests could not be served", level=logging.ERROR)
                break
            if answers and not self._in_flight:
                self._sending.queue.append(answers)
                size += len(answers)
            elif answers:
                self._add_in_flight(AnsweredRequest([answers], len(answers)))
            if fast_path.waiting:
                for waiting in fast_path.waiting:
                    self._add_in_flight(waiting)
                fast_path.waiting.clear()
            if fast_path.taken:
                start, end = fast_path.pop_unserved()
                size += self._serve(bytes(view[start:end]))
        if self.closed:
            fast_path.taken.clear()
        return size

    def _serve_large(self, frame: bytearray | mmap) -> bool:
        """Serve the request in a large frame. Returns whether its bytes are certainly not in use any longer."""
        fast_path = self.produce_fast_path
        if fast_path is not None and not isinstance(frame, mmap):
            view = memoryview(frame)
            if fast_path.offer(view, 0, len(view)):
                self._serve_taken(fast_path, view)
                return True
        self._serve(frame)
        return False

    def reply_in_slices(self, context: PendingRequest, answer: Any) -> None:
        """Complete a pending request in slices; see `RequestContext.reply_in_slices`."""
        self._host.dispatcher.finish(context, answer)

    def begin_work(self) -> None:
        """A request is served in slices. Pause reading until `end_work`, so that the order of requests is kept."""
        self._waits_for |= WORK

    def end_work(self) -> None:
        """The request that was served in slices has its response, or waits for something else now."""
        if self._waits_for & WORK:
            self._wait_no_more_for(WORK)

    def serve_delayed(self, frame: Frame) -> None:
        """Serve a request that was delayed since `begin_work`, and then the later ones."""
        if self.closed:
            return
        self._waits_for &= ~WORK
        self._serve(frame)
        if not self.closed:
            self._flush_unless_waiting()
            self._read_on()

    def release_memory(self, size: int) -> None:
        """Return ``size`` bytes of a pending request to the budget: they are no longer in use."""
        self._host.budget.release_kept(size)

    def response_ready(self, context: PendingRequest) -> None:
        """A pending request has its response. Send the responses that the order allows."""
        if self.closed:
            return
        in_flight = self._in_flight
        if not in_flight:
            return
        if in_flight[0] is not context:
            if context.held_bytes:  # otherwise it is still being served and not in the queue yet
                assert context.parts is not None
                size = bytes_in_memory(context.parts)
                context.held_bytes += size
                self._held_bytes += size
                if self._is_full():
                    self._waits_for |= FULL
                if self._held_bytes > UNCOUNTED_BYTES:
                    self._count_unread()
            if context.completes_earlier:
                self._complete_earlier(context)
            return
        while in_flight and in_flight[0].parts is not None:
            first = in_flight.popleft()
            assert first.parts is not None
            self._held_bytes -= first.held_bytes
            self._sending.queue.extend(first.parts)
        if self._waits_for & FULL and not self._is_full():
            self._waits_for &= ~FULL
        if not self._in_event:
            self._flush_unless_waiting()
            self._read_on()
        if self._unread and not self.closed:
            self._count_unread()

    def _complete_earlier(self, answered: InFlight) -> None:
        """A response is ready. Complete the earlier requests that delay it and wait for more than they need.

        Java consumers request end offsets on the connection on which their fetch waits for records. Without this
        method, they would get them only when the fetch has reached its deadline, as they do from Apache Kafka.
        Responses to Metadata do not have this effect: clients refresh metadata in the background, and a fetch should
        not return empty for that.
        """
        for waiting in list(self._in_flight):
            if waiting is answered:
                return
            if waiting.parts is None:
                waiting.complete_early()
                if waiting.parts is None:
                    return  # it waits for something that must happen first

    def _flush_unless_waiting(self) -> None:
        if not self._waits_for & (PEER | SEND):
            self._flush()

    def _flush(self) -> None:
        """Send until the queue is empty, or until sending must wait."""
        try:
            wait = self._sending.send()
        except OSError as error:
            self._sending_failed(error)
            return
        if wait is not None:
            if wait is Wait.PEER:
                self._wait_for_peer()
                return
            self._wait_to_send()
            if wait is Wait.TURN:
                self._host.turns.later(self.fd, self._send_on)
            else:
                self._sending.read_ahead(self._was_read_ahead)
            return
        if self.on_sent is not None:
            on_sent, self.on_sent = self.on_sent, None
            on_sent()
        if self._waits_for & PEER:
            self._host.readiness.remove_writer(self.fd)
            self._wait_no_more_for(PEER)
        if self._unread:
            self._count_unread(progress=True)
        if self.closing and not self._in_flight:
            self.close(None)

    def _wait_for_peer(self) -> None:
        if not self._waits_for & PEER:
            self._waits_for |= PEER
            self._host.readiness.add_writer(self.fd, self._on_writable)
            self._pause()
            if not self.closed:
                self._count_unread(progress=True)

    def _wait_to_send(self) -> None:
        """Pause sending and reading until `_send_on`."""
        self._wait_for(SEND)
        if self._waits_for & PEER:
            self._waits_for &= ~PEER
            self._host.readiness.remove_writer(self.fd)

    def _send_on(self) -> None:
        if self.closed:
            return
        self._waits_for &= ~SEND
        self._last_active = self._host.loop.time()
        self._flush()
        self._read_on()

    def _was_read_ahead(self, error: OSError | None) -> None:
        if self.closed:
            return
        if error is not None:
            self._sending_failed(error)
            return
        self._sending.was_read_ahead()
        self._send_on()

    def _sending_failed(self, error: OSError) -> None:
        # EIO comes from the disk: the file could not be read.
        self.close(f"sending failed: {error}", level=logging.ERROR if error.errno == errno.EIO else logging.DEBUG)

    def _on_writable(self) -> None:
        now = self._host.loop.time()
        if now - self._last_active > WARM_SECONDS:
            self._sending.forget_warm()
        self._last_active = now
        self._flush()
        if self._unread and not self.closed:
            self._count_unread(progress=True)

    def _count_unread(self, *, progress: bool = False) -> None:
        """Report the response bytes that cannot be sent yet. ``progress``: some of them have just been sent.

        Requests that are being served do not count: they wait for the server, not for the peer.
        """
        held = 0
        if self._held_bytes > UNCOUNTED_BYTES:
            held = sum(
                waiting.held_bytes
                for waiting in self._in_flight
                if not waiting.keeps_request or waiting.parts is not None
            )
            if held <= UNCOUNTED_BYTES:
                held = 0
        self._unread = held + self._sending.bytes_in_memory()
        self._host.unread.count(self, self._unread, progress=progress)

    # -- state ---------------------------------------------------------------------------------------------------------

    def _pause(self) -> None:
        if self._reading:
            self._reading = False
            self._host.readiness.remove_reader(self.fd)
            self._watch_for_end()

    def _watch_for_end(self) -> None:
        """Watch for a hang-up of the peer, which may come long before reading resumes."""
        if self._watching or self.closed or self.closing or self._waits_for & ~_LONG:
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
        """The peer sends no more data. Requests that were not read yet are still served: their acks may be 0."""
        self._watching = False
        if self._waits_for & FULL:
            self._cancel_in_flight()
            self._read_on()
        elif self._is_cut_off():
            self.close(None)

    def _is_cut_off(self) -> bool:
        """Whether the peer has disconnected without sending the rest of the request that waits for memory.

        A transport that decrypts may deliver fewer bytes than the socket has. Then the end is noticed when memory is
        available.
        """
        if self._frame is not None:
            missing = self._frame_size - self._frame_filled
        elif len(self._rest) >= _FRAME_LENGTH.size:
            missing = _FRAME_LENGTH.unpack_from(self._rest)[0] + _FRAME_LENGTH.size - len(self._rest)
        else:
            return False
        (unread,) = _UNREAD.unpack(fcntl.ioctl(self.fd, termios.FIONREAD, bytes(_UNREAD.size)))
        return bool(unread + self._transport.pending() < missing)

    def _cancel_in_flight(self) -> None:
        for context in self._in_flight:
            context.cancel()
        self._in_flight.clear()
        self._held_bytes = 0
        self._waits_for &= ~FULL

    def _resume(self) -> None:
        if not self._reading and not self.closed:
            self._watch_no_more()
            self._reading = True
            self._host.readiness.add_reader(self.fd, self._on_readable)
            if self._transport.pending():
                self._receive_later()

    def _check_idle(self) -> None:
        self._idle_timer = None
        if self.closed:
            return
        idle_ms = (self._host.loop.time() - self._last_active) * 1000
        # A pending request has its own deadline, and keeps the connection open until then.
        remaining = self._host.max_idle_ms - idle_ms
        if remaining <= 0 and not self._in_flight:
            self.close("nothing was sent or received for 'connections.max.idle.ms'", level=logging.INFO)
            return
        self._idle_timer = self._host.timers.call_after(max(remaining, 1000), self._check_idle)

    def dispatch(self, frame: Frame) -> InFlight | list[Part] | None:
        """Serve a frame that has passed the gate; see `frames.FrameHandler.handle`."""
        return self._host.dispatcher.handle(self, frame)

    def refuse(self, frame: Frame, error: KafkaError, respond: Callable[[list[Part] | None], None]) -> None:
        """Build the response to a frame that the gate refuses; see `frames.FrameHandler.refuse`."""
        self._host.dispatcher.refuse(frame, error, respond)

    def authenticated(self, *, keep_gate: bool) -> None:
        """The peer is authenticated: from now on its requests may be as large as those of all connections.

        ``keep_gate``: the gate continues to see each request that takes the slow path.
        """
        self._max_request_bytes = self._host.max_request_bytes
        if not keep_gate:
            self.gate = None

    def forget_fast_paths(self) -> None:
        """The next request takes the slow path, where its peer's authentication is checked."""
        self.produce_fast_path = None
        self.fetch_fast_path = None

    def mute(self, milliseconds: int) -> None:
        """Serve no more requests for this time: the client has exceeded a quota."""
        if milliseconds <= 0 or self.closed or self.closing:
            return
        self._wait_for(MUTED)
        until = self._host.loop.time() + milliseconds / 1000
        self._muted_until = max(self._muted_until, until)
        # The timer must not keep a closed connection in memory.
        self._host.timers.call_after(milliseconds, partial(_unmute, weakref.ref(self)))

    def unmute(self) -> None:
        """The time of `mute` may be over."""
        if self._waits_for & MUTED and not self.closed:
            missing_s = self._muted_until - self._host.loop.time()
            if missing_s > 0:  # it was muted again meanwhile, or the timer was early
                self._host.timers.call_after(missing_s * 1000, partial(_unmute, weakref.ref(self)))
                return
            self._last_active = self._host.loop.time()
            self._wait_no_more_for(MUTED)

    def stop_reading(self) -> None:
        """Accept no more requests, and close when the responses of the accepted ones have been sent."""
        self.closing = True
        self._pause()

    def log(self, reason: str, *, level: int) -> None:
        """Log a reason with the peer's address (`PeerLog`)."""
        self._log(f"About the connection from {self.peer}", reason, level)

    def close_stalled(self) -> None:
        """Close: the peer sends a request too slowly while other connections wait for its memory."""
        self.close(
            f"only {self._frame_filled} of the {self._frame_size} bytes of a request arrived, too slowly, "
            "and its memory is needed ('queued.max.request.bytes')"
        )

    def close_unread(self) -> None:
        """Close: the peer does not read its responses, and there are too many of them."""
        self.close(
            f"it does not read its responses ({self._unread} bytes), and the limit for all connections is exceeded"
        )

    def close_after_responses(self) -> None:
        """Accept no more requests, complete pending ones early, and close when all responses have been sent."""
        self.stop_reading()
        for waiting in list(self._in_flight):
            waiting.complete_early()
        if not self._in_event and not self._in_flight and not self._sending.queue:
            self.close(None)

    def close(self, reason: str | None, *, level: int = logging.WARNING) -> None:
        """Close now. ``reason`` is logged with the peer's address (`PeerLog`); None: the peer has disconnected."""
        if self.closed:
            return
        self.closed = True
        if self._in_event and not self._waits_for & PEER:
            with contextlib.suppress(OSError):  # requests before the one that closes the connection were valid
                self._sending.send_last()
        if reason is not None:
            self._log(f"Closing the connection from {self.peer}", reason, level)
        self._pause()
        self._watch_no_more()
        if self._waits_for & PEER:
            self._host.readiness.remove_writer(self.fd)
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._transport.close()
        self._sending.drop()
        self._host.turns.closed(self.fd)
        if len(self._in_flight) > FEW_IN_FLIGHT:
            self._host.turns.later(self.fd, self._cancel_in_flight, disconnected=True)
        else:
            self._cancel_in_flight()
        self._frame = None
        self._rest.clear()
        self._count_kept(0)
        self._host.budget.release(self)
        if self._unread:
            self._unread = 0
            self._host.unread.count(self, 0, progress=False)
        self._host.connection_closed(self)

    def _log(self, what: str, reason: str, level: int) -> None:
        origin = self.listener_name
        if self.client_software:
            origin += f", {self.client_software}"
        self._host.peer_log.log(level, self.peer_host, reason, f"{what} ({origin}): {reason}")


def _unmute(reference: weakref.ref[Connection]) -> None:
    connection = reference()
    if connection is not None:
        connection.unmute()


def _size_to_send(parts: list[Part]) -> int:
    """The number of bytes in all parts, file ranges included."""
    size = 0
    for part in parts:
        size += part.length if isinstance(part, FileRange) else len(part)
    return size
