"""Frames that are cut into pieces, put together, or not valid: only their own connection is closed."""

from __future__ import annotations

import random
import struct

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.api_versions import ApiVersionsRequest
from ...protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from .. import frames
from .. import partitions as p
from ..case import Layer, Level, case, needs
from ..check import Check
from ..record_batches import batch

SOURCE = "Protocol: Network"
NONE_TOPICS = MetadataRequest(topics=[])
METADATA = needs(ApiKey.METADATA, 9)
OLD_METADATA = needs(ApiKey.METADATA, 8)


# Valid frames


@case(
    "protocol.frame.single-bytes", "a frame may arrive in single bytes", source=SOURCE, layer=Layer.WIRE, needs=METADATA
)
def single_bytes(c: Check) -> None:
    """Sends: Metadata version 9, one byte per packet.

    Expects: the response.

    Why: TCP does not preserve the boundaries of what was sent.
    """
    for byte in frames.with_length(frames.frame(NONE_TOPICS, 9, correlation_id=8)):
        c.wire.send_bytes(bytes([byte]))
    found = frames.receive(c.wire, ApiKey.METADATA, 9, correlation_id=8)
    c.equal(found.topics, [], "topics")


@case(
    "protocol.frame.split",
    "a frame may be split at any position",
    source=SOURCE,
    layer=Layer.WIRE,
    needs=METADATA,
    variants={"in-length": (2,), "after-length": (4,), "in-api-key": (5,), "after-header": (14,), "before-end": (-1,)},
)
def split(c: Check, position: int) -> None:
    """Sends: the first part of a frame; then, after a response on another connection, the rest of it and half of the
    next frame; then the rest of that one.

    Expects: two responses in order.

    Why: a server that loses bytes between two reads breaks the connection of every client on a slow network.
    """
    first = frames.with_length(frames.frame(NONE_TOPICS, 9, correlation_id=1))
    second = frames.with_length(frames.frame(ApiVersionsRequest(), 0, correlation_id=2))
    position %= len(first)
    other = c.connect()
    c.wire.send_bytes(first[:position])
    c.call(ApiVersionsRequest(), 0, to=other)
    c.wire.send_bytes(first[position:] + second[:position])
    found = frames.receive(c.wire, ApiKey.METADATA, 9, correlation_id=1)
    c.true(found.brokers, "brokers of Metadata", expected="at least one", actual=found.brokers)
    c.wire.send_bytes(second[position:])
    found = frames.receive(c.wire, ApiKey.API_VERSIONS, 0, correlation_id=2)
    c.error(found.error_code, ErrorCode.NONE, "error_code of ApiVersions")


@case(
    "protocol.frame.joined",
    "a packet may contain several frames",
    source=SOURCE,
    layer=Layer.WIRE,
    needs=METADATA,
    variants={"2": (2,), "100": (100,)},
)
def joined(c: Check, count: int) -> None:
    """Sends: several frames in one write, ApiVersions and Metadata alternately, and the beginning of another one; later
    its rest.

    Expects: all responses in order.

    Why: clients batch requests, and TCP joins small packets.
    """
    requests = [(ApiVersionsRequest(), 0) if number % 2 else (NONE_TOPICS, 9) for number in range(count)]
    data = b"".join(
        frames.with_length(frames.frame(request, version, correlation_id=number))
        for number, (request, version) in enumerate(requests)
    )
    last = frames.with_length(frames.frame(ApiVersionsRequest(), 0, correlation_id=count))
    c.wire.send_bytes(data + last[:7])
    for number, (request, version) in enumerate(requests):
        frames.receive(c.wire, request.API_KEY, version, correlation_id=number)
    c.wire.send_bytes(last[7:])
    frames.receive(c.wire, ApiKey.API_VERSIONS, 0, correlation_id=count)


@case(
    "protocol.frame.large",
    "a large frame may arrive in many pieces",
    source=SOURCE,
    needs=needs(ApiKey.PRODUCE, 9),
)
def large(c: Check) -> None:
    """Sends: Produce with a batch of 900,000 bytes in pieces of 40,000 bytes, and ApiVersions behind it.

    Expects: no error and base offset 0; then the response to ApiVersions; the value is stored completely.

    Why: a batch of the usual maximum size is larger than the buffers of a socket.
    """
    topic = c.topic()
    value = random.Random(16).randbytes(900_000)
    version = c.version(ApiKey.PRODUCE)
    request = p.produce_request(topic, {0: batch(value)}, version=version)
    data = frames.with_length(frames.frame(request, version, correlation_id=1))
    data += frames.with_length(frames.frame(ApiVersionsRequest(), 0, correlation_id=2))
    for at in range(0, len(data), 40_000):
        c.wire.send_bytes(data[at : at + 40_000])
    answer = frames.receive(c.wire, ApiKey.PRODUCE, version, correlation_id=1).responses[0].partition_responses[0]
    c.error(answer.error_code, ErrorCode.NONE)
    c.equal(answer.base_offset, 0, "base_offset")
    frames.receive(c.wire, ApiKey.API_VERSIONS, 0, correlation_id=2)
    c.true(
        p.values(c, topic) == [value], "the stored value", expected="the 900,000 bytes that were sent", actual="others"
    )


@case(
    "protocol.frame.large-rejected",
    "a batch of 20 MB is rejected, and its connection remains",
    source=SOURCE,
    needs=needs(ApiKey.PRODUCE, 9),
)
def large_rejected(c: Check) -> None:
    """Sends: Produce with a batch of 20,000,000 bytes, for a topic with max.message.bytes 1,000,000; then ApiVersions
    on the same connection.

    Expects: MESSAGE_TOO_LARGE; then the response to ApiVersions.

    Why: the limit of a topic concerns the batch; a producer whose connection is closed repeats the same batch.
    """
    topic = c.topic(1, {"max.message.bytes": "1000000"})
    answer = p.produce(c, topic, batch(bytes(20_000_000)))
    c.error(answer.error_code, ErrorCode.MESSAGE_TOO_LARGE)
    c.error(c.call(ApiVersionsRequest(), 0).error_code, ErrorCode.NONE, "error_code of ApiVersions")


@case(
    "protocol.frame.trailing-bytes",
    "bytes after the body of a request are ignored",
    source="Apache Kafka's behavior",
    layer=Layer.WIRE,
    level=Level.APACHE,
    needs=METADATA,
)
def trailing_bytes(c: Check) -> None:
    """Sends: Metadata version 9 with four more bytes in its frame, and ApiVersions.

    Expects: both responses.

    Why: Apache Kafka reads the fields that it knows; some clients have sent too much without being noticed.
    """
    c.wire.send_frame(frames.frame(NONE_TOPICS, 9, correlation_id=3) + b"more")
    c.wire.send_frame(frames.frame(ApiVersionsRequest(), 0, correlation_id=4))
    metadata = frames.receive(c.wire, ApiKey.METADATA, 9, correlation_id=3)
    c.true(metadata.brokers, "brokers of Metadata", expected="at least one", actual=metadata.brokers)
    frames.receive(c.wire, ApiKey.API_VERSIONS, 0, correlation_id=4)


# Invalid frames


@case(
    "protocol.malformed.length",
    "an impossible length closes the connection",
    source=SOURCE,
    layer=Layer.WIRE,
    variants={
        "largest": (2**31 - 1,),
        "over-100-mib": (1_100_000_000,),
        "minus-1": (-1,),
        "smallest": (-(2**31),),
    },
)
def impossible_length(c: Check, length: int) -> None:
    """Sends: the length of a frame that is negative or far above the largest allowed request.

    Expects: the connection is closed, without waiting for more bytes; other connections are served.

    Why: a server that waits for such a frame, or allocates memory for it, can be stopped by four bytes.
    """
    with frames.others_served(c) as wire:
        wire.send_bytes(struct.pack(">i", length))
        c.closed(wire)


@case(
    "protocol.malformed.length-over-default",
    "a frame of more than 100 MiB closes the connection",
    source="Broker configuration: socket.request.max.bytes",
    layer=Layer.WIRE,
    level=Level.APACHE,
)
def length_over_default(c: Check) -> None:
    """Sends: the length of a frame that is one byte above the default of socket.request.max.bytes.

    Expects: the connection is closed, without waiting for more bytes; other connections are served.

    Why: the limit protects the server's memory.
    """
    with frames.others_served(c) as wire:
        wire.send_bytes(struct.pack(">i", 104_857_601))
        c.closed(wire)


@case(
    "protocol.malformed.frame",
    "a frame that is not a request closes the connection",
    source=SOURCE,
    layer=Layer.WIRE,
    variants={
        "empty": (b"",),
        "one-byte": (b"\x00",),
        "zeros": (bytes(7),),
        "ones": (b"\xff" * 20,),
        "client-id-too-long": (struct.pack(">hhih", 18, 0, 1, 200) + b"short",),
    },
)
def malformed_frame(c: Check, payload: bytes) -> None:
    """Sends: a frame of a valid length without a valid header.

    Expects: the connection is closed without a response; other connections are served.

    Why: after bytes that cannot be parsed, client and server no longer agree on anything.
    """
    with frames.others_served(c) as wire:
        wire.send_frame(payload)
        c.closed(wire)


@case(
    "protocol.malformed.truncated",
    "a request that ends too early closes the connection",
    source=SOURCE,
    layer=Layer.WIRE,
    needs=METADATA,
)
def truncated(c: Check) -> None:
    """Sends: each prefix of Metadata version 9 about a topic, in a frame as long as the prefix, each on a new
    connection.

    Expects: each connection is closed without a response.

    Why: missing fields must not be read from behind the frame, or be taken as zero.
    """
    whole = frames.frame(MetadataRequest(topics=[MetadataRequestTopic(name="topic")]), 9, client_id="c")
    with frames.others_served(c):
        for length in range(len(whole)):
            wire = c.connect()
            wire.send_frame(whole[:length])
            c.closed(wire, f"the connection after {length} of {len(whole)} bytes")
            wire.close()


@case("protocol.malformed.random", "random bytes close the connection", source=SOURCE, layer=Layer.WIRE)
def random_bytes(c: Check) -> None:
    """Sends: 40 frames of up to 200 random bytes, each on a new connection.

    Expects: each connection is closed; other connections are served.

    Why: port scanners and broken clients send anything.
    """
    chance = random.Random(20_260_917)
    with frames.others_served(c):
        for number in range(40):
            wire = c.connect()
            wire.send_frame(chance.randbytes(chance.randrange(1, 200)))
            c.closed(wire, f"connection {number}")
            wire.close()


@case(
    "protocol.malformed.array-length",
    "an array that claims more elements than the frame can contain closes the connection",
    source="Protocol: Types",
    layer=Layer.WIRE,
    needs=OLD_METADATA,
    variants={"largest": (2**31 - 1,), "1000000": (1_000_000,), "1000": (1_000,), "2": (2,)},
)
def array_too_long(c: Check, count: int) -> None:
    """Sends: Metadata version 8 with this number of topics, of which the frame contains one.

    Expects: the connection is closed; other connections are served.

    Why: a server that allocates memory by such a number can be stopped by a few bytes.
    """
    with frames.others_served(c) as wire:
        wire.send_frame(frames.header(ApiKey.METADATA, 8) + struct.pack(">i", count) + b"\x00\x01t")
        c.closed(wire)


@case(
    "protocol.malformed.negative-array",
    "a negative length of an array that may not be null closes the connection",
    source="Protocol: Types",
    layer=Layer.WIRE,
    needs=needs(ApiKey.LIST_OFFSETS, 5),
    variants={"minus-1": (-1,), "minus-2": (-2,), "smallest": (-(2**31),)},
)
def negative_array(c: Check, count: int) -> None:
    """Sends: ListOffsets version 5 whose number of topics is negative.

    Expects: the connection is closed; other connections are served.

    Why: null and negative lengths are not valid in this field.
    """
    with frames.others_served(c) as wire:
        wire.send_frame(frames.header(ApiKey.LIST_OFFSETS, 5) + struct.pack(">ib", -1, 0) + struct.pack(">i", count))
        c.closed(wire)


@case(
    "protocol.malformed.negative-nullable-array",
    "any negative length of an array that may be null means null",
    source="Apache Kafka's behavior",
    layer=Layer.WIRE,
    level=Level.APACHE,
    needs=OLD_METADATA,
    variants={"minus-1": (-1,), "minus-2": (-2,), "smallest": (-(2**31),)},
)
def negative_nullable_array(c: Check, count: int) -> None:
    """Sends: Metadata version 8 with a negative number of topics.

    Expects: all topics, among them one that was just created.

    Why: -1 is null, which requests all topics; Apache Kafka reads other negative numbers in the same way.
    """
    topic = c.topic()
    c.wire.send_frame(frames.header(ApiKey.METADATA, 8, correlation_id=4) + struct.pack(">i", count) + b"\x00\x00\x00")
    found = frames.receive(c.wire, ApiKey.METADATA, 8, correlation_id=4)
    names = [each.name for each in found.topics]
    c.true(topic.name in names, "topics", expected=f"{topic.name} among them", actual=names)


@case(
    "protocol.malformed.compact-string",
    "a compact string with a wrong length closes the connection",
    source="Protocol: Types",
    layer=Layer.WIRE,
    needs=METADATA,
    variants={
        "huge": (b"\xff\xff\xff\xff\x0f",),
        "endless-varint": (b"\xff\xff\xff\xff\xff\xff",),
        "cut-varint": (b"\x80",),
        "beyond-frame": (b"\x7f",),
    },
)
def compact_string(c: Check, length: bytes) -> None:
    """Sends: Metadata version 9 with one topic, whose name claims to be longer than the frame, or whose length is not
    a valid varint.

    Expects: the connection is closed; other connections are served.

    Why: the lengths of flexible versions are varints, with their own ways to be wrong.
    """
    with frames.others_served(c) as wire:
        wire.send_frame(frames.header(ApiKey.METADATA, 9) + b"\x02" + length)
        c.closed(wire)


@case(
    "protocol.malformed.null-string",
    "null in a field that may not be null closes the connection",
    source="Protocol: Types",
    layer=Layer.WIRE,
    needs=METADATA,
    variants={
        "old": (8, b"\x00\x00\x00\x01" + b"\xff\xff" + b"\x00\x00\x00"),
        "flexible": (9, b"\x02" + b"\x00\x00" + b"\x00\x00\x00\x00"),
    },
)
def null_string(c: Check, version: int, body: bytes) -> None:
    """Sends: Metadata version 8 or 9 with a topic whose name is null, which is allowed since version 10.

    Expects: the connection is closed; other connections are served.

    Why: null that is read as an empty or missing name would return the wrong topics.
    """
    with frames.others_served(c) as wire:
        wire.send_frame(frames.header(ApiKey.METADATA, version) + body)
        c.closed(wire)


@case(
    "protocol.malformed.other-protocol",
    "the first bytes of another protocol close the connection",
    source=SOURCE,
    layer=Layer.WIRE,
    variants={
        "http": (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",),
        "tls": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(600),),
    },
)
def other_protocol(c: Check, data: bytes) -> None:
    """Sends: a request of HTTP, or the first message of TLS.

    Expects: the connection is closed; other connections are served.

    Why: read as a length, these bytes are several hundred megabytes, for which the server would wait forever.
    """
    if c.target.security.tls is not None:
        c.not_applicable("the connection uses TLS")
    with frames.others_served(c) as wire:
        wire.send_bytes(data)
        c.closed(wire)


@case(
    "protocol.malformed.behind-valid",
    "requests before a malformed one get responses",
    source=SOURCE,
    layer=Layer.WIRE,
    level=Level.SHOULD,
    needs=METADATA,
)
def behind_valid(c: Check) -> None:
    """Sends: Metadata, ApiVersions and 20 bytes of 0xff as a frame, without waiting.

    Expects: two responses; then the connection is closed.

    Why: what was received before the error is valid, and may have changed something.
    """
    with frames.others_served(c) as wire:
        wire.send(NONE_TOPICS, 9)
        wire.send(ApiVersionsRequest(), 0)
        wire.send_frame(b"\xff" * 20)
        metadata = wire.receive()
        c.true(metadata.brokers, "brokers of Metadata", expected="at least one", actual=metadata.brokers)
        c.error(wire.receive().error_code, ErrorCode.NONE, "error_code of ApiVersions")
        c.closed(wire)


@case(
    "protocol.malformed.unfinished",
    "a connection that ends inside a frame does not disturb others",
    source=SOURCE,
    layer=Layer.WIRE,
    variants={
        "length": (b"\x00",),
        "only-length": (b"\x00\x00\x00\x20",),
        "header": (b"\x00\x00\x00\x20\x00\x03\x00\x09",),
    },
)
def unfinished(c: Check, data: bytes) -> None:
    """Sends: the beginning of a frame; then the client closes the connection.

    Expects: other connections are served.

    Why: clients die at any moment.
    """
    with frames.others_served(c) as wire:
        wire.send_bytes(data)
        wire.close()


@case(
    "protocol.connections.silent",
    "connections that send nothing, or half a frame, do not delay others",
    source=SOURCE,
    layer=Layer.WIRE,
)
def silent_connections(c: Check) -> None:
    """Sends: nothing on 25 connections, and half a frame on 25 others, which stay open; ApiVersions on one more.

    Expects: responses on that one, and on all of the others when their frames are complete.

    Why: idle and stuck clients are normal.
    """
    whole = frames.with_length(frames.frame(ApiVersionsRequest(), 0, correlation_id=6))
    waiting = [c.connect() for _ in range(50)]
    for connection in waiting[::2]:
        connection.send_bytes(whole[:9])
    c.error(c.call(ApiVersionsRequest(), 0).error_code, ErrorCode.NONE)
    for number, connection in enumerate(waiting):
        connection.send_bytes(whole if number % 2 else whole[9:])
    for connection in waiting:
        found = frames.receive(connection, ApiKey.API_VERSIONS, 0, correlation_id=6)
        c.error(found.error_code, ErrorCode.NONE)


@case(
    "protocol.connections.half-closed",
    "a connection whose client sends nothing more is closed",
    source=SOURCE,
    layer=Layer.WIRE,
    level=Level.SHOULD,
)
def half_closed(c: Check) -> None:
    """Sends: ApiVersions, and the end of the stream; the client continues to read.

    Expects: the connection is closed, with or without the response before; other connections are served.

    Why: a server that waits for more keeps the connections of dead clients for a long time.
    """
    if c.target.security.tls is not None:
        c.not_applicable("the connection uses TLS, which ends a stream in its own way")
    with frames.others_served(c) as wire:
        wire.send(ApiVersionsRequest(), 0)
        wire.end_of_stream()
        try:
            wire.receive()
        except ConnectionError:
            return
        c.closed(wire)
