"""The transport of a connection: four methods between `Connection` and a socket, one class per security protocol.

`Connection` and `Sending` do not use the socket. They move data only with `receive_into`, `send`, `send_file` and
`pending`, and wait for the descriptor through the event loop. `PlainTransport` is the plain socket.

`tls.TlsTransport` encrypts (`ssl.MemoryBIO` with `SSLContext.wrap_bio`). What the methods mean for TLS:

- **Handshake.** It runs inside `receive_into`, which raises `BlockingIOError` until there is data of the peer. A step
  takes up to some milliseconds, so it runs in the connection's turn: the error before it is `TurnFirst`.
  `Connection` sends nothing before it has received a request, so `send` never encounters an unfinished handshake. If
  the kernel does not accept a flight immediately, the error is `SendFirst`. Session tickets of TLS 1.3 must be off
  (`SSLContext.num_tickets`): a peer that disconnects without having read them resets the connection, and requests that
  it has sent (``acks=0``) are lost.
- **Want-read** (`ssl.SSLWantReadError`) is `BlockingIOError` from `receive_into`. `send` never wants to read:
  renegotiation is off (`OP_NO_RENEGOTIATION`). Responses to key updates are sent by the next `receive_into` or `send`;
  if the kernel does not accept them, the error of `receive_into` is `SendFirst`.
- **Want-write.** `send` encrypts one piece at a time, and encrypts the next one only when the kernel has accepted the
  last. It returns a number of plaintext bytes, which counts only bytes whose records the kernel has accepted
  completely. If a piece was sent in part, `send` remembers its length. The caller offers the same bytes again, and they
  are counted when the rest was sent. So the queue of `Sending` contains all data that the peer may still lack, and a
  transport holds at most one piece of encrypted data.
- **Pending bytes.** One `recv` returns many records, and the selector sees none of those that stay in the BIO or in the
  `SSLObject`. `pending` reports them. `Connection` then receives again in one of its next turns. One call decrypts a
  limited number of records; without data in these, it is `TurnFirst`.
- **File ranges** are read in pieces and sent (`send_by_reading`).
- **close_notify** is sent in `close`, as far as the kernel accepts it. A peer's close_notify is the end of its data, 0.
- `ssl.SSLError` is an `OSError`: all other errors close the connection with their text.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from ...log.descriptors import FileRange
    from ...protocol.records import Buffer

MORE: Final[int] = getattr(socket, "MSG_MORE", 0)
"""A flag of `Transport.send`: more data follows immediately, so the kernel need not send a partial packet."""
PIECE_BYTES: Final = 256 * 1024
"""The size of one read, if a file range must be read in order to be sent."""


class SendFirst(BlockingIOError):  # noqa: N818 - not an error: it names what to wait for
    """Receiving continues when the descriptor is writable. `pending` is not 0 until `receive_into` is called again."""


class TurnFirst(BlockingIOError):  # noqa: N818 - not an error: it names what to wait for
    """Receiving continues in a later turn of the connection, whether or not more data arrives."""


class HandshakeFailed(OSError):  # noqa: N818 - what happened, for a log line
    """The peer is not accepted. The text is the reason; the connection is closed and the reason logged."""


class Transport(Protocol):
    """The bytes of one connection; see the module docstring. Four methods move them, and `close` ends it; none blocks.

    `receive_into`, `send` and `send_file` raise BlockingIOError if nothing can be moved until the descriptor is ready,
    and OSError if the connection, or the file, is no longer usable.
    """

    def receive_into(self, buffer: memoryview, /) -> int:
        """Receive up to ``len(buffer)`` bytes. Returns their number; 0 is the end of the peer's data."""

    def send(self, data: Buffer, flags: int, /) -> int:
        """Send bytes. Returns how many of them, from the first on, the kernel has accepted. ``flags`` is `MORE` or 0.

        If it accepts fewer than all, it accepts no more now. The caller offers the remaining bytes again, possibly with
        other bytes behind them, or without some at their end.
        """

    def send_file(self, file_range: FileRange, start: int, length: int, /) -> int:
        """Send ``length`` bytes of a file range, from ``start`` within it, as `send` does.

        Raises:
            OSError: with EIO if the file is shorter than the range.
        """

    def pending(self) -> int:
        """How many bytes `receive_into` can return, or must process, although the selector does not see them.

        The number may be too large, but is 0 after `receive_into` raised BlockingIOError itself.
        """

    def close(self) -> None:
        """Release the socket."""


class PlainTransport:
    """A plain socket. Receiving and sending are the socket's own methods, without a call in between."""

    __slots__ = ("_fd", "_sock", "receive_into", "send")

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._fd = sock.fileno()
        self.receive_into: Callable[[memoryview], int] = sock.recv_into
        self.send: Callable[[Buffer, int], int] = sock.send

    def send_file(self, file_range: FileRange, start: int, length: int, /) -> int:
        if file_range.fd < 0:  # an in-memory file system has no descriptors
            return send_by_reading(self.send, file_range, start, length)
        sent = os.sendfile(self._fd, file_range.fd, file_range.position + start, length)
        if not sent:
            raise short_read_error()
        return sent

    def pending(self) -> int:
        return 0

    def close(self) -> None:
        self._sock.close()


TransportFactory = Callable[[socket.socket], Transport]

#: The transport of a listener's connections, by the listener's security protocol.
TRANSPORTS: Final[Mapping[str, TransportFactory]] = {"PLAINTEXT": PlainTransport}


def send_by_reading(send: Callable[[Buffer, int], int], file_range: FileRange, start: int, length: int) -> int:
    """`Transport.send_file` for a transport with which the kernel cannot copy from the file to the socket."""
    sent = 0
    while sent < length:
        piece = file_range.read(start + sent, min(PIECE_BYTES, length - sent))
        if not piece:
            raise short_read_error()
        try:
            taken = send(piece, 0)
        except (BlockingIOError, InterruptedError):
            if not sent:
                raise
            break
        sent += taken
        if taken < len(piece):
            break
    return sent


def short_read_error() -> OSError:
    """The error for a file that is shorter than its range, whose length was promised to the peer."""
    return OSError(errno.EIO, "short read of a file range: the segment changed while it was being sent")
