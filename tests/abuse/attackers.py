"""Common parts of attacks: connections that may end at any time, requests as bytes, malformed and expanding batches."""

from __future__ import annotations

import resource
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from crc32c import crc32c

from moldau.protocol.api import request_header_version
from moldau.protocol.codec import encode
from moldau.protocol.compression import Codec, compress
from moldau.protocol.messages.headers import RequestHeader
from moldau.protocol.schema import Request

# The response to a large request may take long on a slow machine. A server that hangs never responds.
ANSWER_S = 180.0
# Descriptors that this process needs for itself.
SPARE_DESCRIPTORS = 200

_BATCH_PREFIX = struct.Struct(">qiibI")
_BATCH_COVERED = struct.Struct(">hiqqqhii")
_BATCH_LENGTH_BEHIND = 49  # bytes of a batch's header that its length counts
MAGIC = 2


def connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=ANSWER_S)


def at_most_connections(wanted: int) -> int:
    """The requested number of connections, or the maximum of this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted + SPARE_DESCRIPTORS:
        soft = min(wanted + SPARE_DESCRIPTORS, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return min(wanted, soft - SPARE_DESCRIPTORS)


@contextmanager
def connections(address: str, count: int) -> Iterator[list[socket.socket]]:
    """Open connections, closed at the end of the block."""
    opened: list[socket.socket] = []
    try:
        opened.extend(connect(address) for _ in range(count))  # if one fails, the others remain open
        yield opened
    finally:
        for each in opened:
            each.close()


def reset(connection: socket.socket) -> None:
    """Close with a TCP reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def frame(request: Request, version: int, correlation_id: int = 0) -> bytes:
    """A request with its header and its length."""
    header = RequestHeader(
        request_api_key=request.API_KEY,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id="abuse",
    )
    payload = encode(header, request_header_version(request.API_KEY, version)) + encode(request, version)
    return struct.pack(">i", len(payload)) + payload


def send(connection: socket.socket, data: bytes) -> bool:
    """Send the bytes; False if the server closed the connection first."""
    try:
        connection.sendall(data)
    except OSError:
        return False
    return True


def receive_frame(connection: socket.socket) -> bytes | None:
    """The next response without its length, or None at the end of the connection. A hanging server fails the test."""
    size = _receive_exactly(connection, 4)
    return None if size is None else _receive_exactly(connection, int.from_bytes(size, "big"))


def _receive_exactly(connection: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        try:
            piece = connection.recv(min(size - len(data), 1 << 20))
        except ConnectionError:
            return None
        if not piece:
            return None
        data += piece
    return bytes(data)


def exchange(address: str, *frames: bytes) -> list[bytes | None]:
    """Send the frames over one connection, each after the response to the previous one; None after it is closed."""
    answers: list[bytes | None] = []
    with connect(address) as connection:
        for each in frames:
            if not send(connection, each):
                answers.append(None)
                break
            answers.append(receive_frame(connection))
            if answers[-1] is None:
                break
    return answers


def pipeline(address: str, frames: Sequence[bytes]) -> int:
    """Send all frames over one connection while reading responses; return the number of responses."""
    with connect(address) as connection:
        sender = threading.Thread(target=send, args=(connection, b"".join(frames)))
        sender.start()
        answers = 0
        while answers < len(frames) and receive_frame(connection) is not None:
            answers += 1
        connection.shutdown(socket.SHUT_RDWR)
        sender.join()
        return answers


def in_parallel(count: int, function: Callable[[int], object]) -> None:
    """Call the function with 0, 1, ... in this many threads; the first failure is raised."""
    failures: list[BaseException] = []

    def run(index: int) -> None:
        try:
            function(index)
        except BaseException as failure:  # noqa: BLE001 - raised again below
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def hold(seconds: float) -> None:
    """Wait this long, so that the server is measured under this load."""
    select.select([], [], [], seconds)


def batch_of(
    body: bytes,
    record_count: int,
    codec: Codec = Codec.NONE,
    *,
    timestamp_ms: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """A batch with a correct header and CRC around arbitrary bytes, which are its compressed records."""
    now_ms = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
    covered = _BATCH_COVERED.pack(
        codec, record_count - 1, now_ms, now_ms, producer_id, producer_epoch, base_sequence, record_count
    )
    crc = crc32c(body, crc32c(covered))
    return _BATCH_PREFIX.pack(0, _BATCH_LENGTH_BEHIND + len(body), -1, MAGIC, crc) + covered + body


# A record is length, attributes, timestamp delta, offset delta, key length, value length, header count: varints.
TINY_RECORD = bytes((6 * 2, 0, 0, 0, 0, 1, 0))
"""Seven bytes: an empty key, no value. Its offset delta is 0, so that it compresses best."""


def varint(value: int) -> bytes:
    """A signed number as records encode it."""
    value = value << 1 if value >= 0 else (-value << 1) - 1
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def tiny_records(count: int) -> bytes:
    """Valid records: each has its own offset delta."""
    parts: list[Any] = []
    for index in range(count):
        delta = varint(index)
        parts += (varint(5 + len(delta)), b"\0\0", delta, b"\0\1\0")
    return b"".join(parts)


def one_record(value_size: int) -> bytes:
    """One record with a value of zeros."""
    return record_of(bytes(value_size))


def record_of(value: bytes) -> bytes:
    """One record with an empty key."""
    body = b"\0\0\0\0" + varint(len(value)) + value + b"\0"
    return varint(len(body)) + body


def bomb(codec: Codec, record: bytes, count: int) -> bytes:
    """A batch that repeats one record."""
    return batch_of(compress(codec, record * count), count, codec)
