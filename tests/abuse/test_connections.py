"""Connections that are opened and not used, used slowly, or not read from; and bytes that are not requests."""

from __future__ import annotations

import random
import socket
import struct

import pytest

from moldau.protocol.api import request_class, request_header_version
from moldau.protocol.codec import encode
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.headers import RequestHeader
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.samples import Samples
from moldau.server.apis import APIS
from moldau.server.network.memory import INTERVALS, STALL_MS
from moldau.testing.builders import batch, fetch_request, produce, produce_request
from moldau.testing.wire import WireClient

from . import attackers
from .conftest import Target
from .watch import MEGABYTE

# The default limit of the memory for incomplete requests (queued.max.request.bytes), and some more.
BUDGET_BYTES = 256 * MEGABYTE + 100 * MEGABYTE
# Longer than a server waits for a peer whose incomplete request occupies memory that other requests need. What the
# socket buffers still hold counts as progress, so it takes several intervals until the first peer falls behind.
BEYOND_STALL_S = 1.25 * STALL_MS * INTERVALS / 1000
HUGE_FRAME = 100 * MEGABYTE


def test_connections_that_are_half_open(target: Target, dice: random.Random, long: bool) -> None:
    count = attackers.at_most_connections(8000 if long else 300)
    whole = attackers.frame(ApiVersionsRequest(), 0)
    with target.attack(f"{count} half-open connections"), attackers.connections(target.address, count) as opened:
        for index, connection in enumerate(opened):
            attackers.send(connection, whole[: dice.randrange(len(whole))])
            match index % 4:
                case 0:
                    attackers.reset(connection)
                case 1:
                    connection.shutdown(socket.SHUT_WR)
                case 2:
                    connection.shutdown(socket.SHUT_RD)
        attackers.hold(10 if long else 1)


def test_connections_that_open_and_close(target: Target, dice: random.Random, long: bool) -> None:
    """The server frees the timer, the descriptor and the memory of each."""
    with target.attack("connections that come and go"):
        for _ in range(20_000 if long else 1000):
            connection = attackers.connect(target.address)
            if dice.random() < 0.5:
                attackers.send(connection, attackers.frame(ApiVersionsRequest(), 0))
            if dice.random() < 0.5:
                attackers.reset(connection)
            connection.close()


def test_frames_that_arrive_byte_by_byte(target: Target, dice: random.Random, long: bool) -> None:
    frames = [
        attackers.frame(MetadataRequest(topics=None), 9),
        attackers.frame(produce_request("bystander", batch(dice.randbytes(300))), 9),
        attackers.frame(fetch_request("bystander"), 12),
    ]
    count = 200 if long else 30
    with (
        target.attack(f"{count} connections that send single bytes"),
        attackers.connections(target.address, count) as opened,
    ):
        sent = [(connection, iter(dice.choice(frames))) for connection in opened]
        for connection in opened:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while sent:
            going_on = []
            for connection, data in sent:
                byte = next(data, None)
                if byte is not None and attackers.send(connection, bytes((byte,))):
                    going_on.append((connection, data))
            sent = going_on
        for connection in opened:
            assert attackers.receive_frame(connection) is not None, "a slow client is a client"


def test_huge_frames_that_stop_half_way(target: Target, dice: random.Random, long: bool) -> None:
    count = 50 if long else 8
    piece = bytes(MEGABYTE)
    with (
        target.attack(f"{count} frames of 100 MB that stop half way", memory_bytes_allowed=BUDGET_BYTES),
        attackers.connections(target.address, count) as opened,
    ):
        for connection in opened:
            connection.settimeout(0.2)  # the server stops reading when its budget is used up
            attackers.send(connection, struct.pack(">i", HUGE_FRAME))
            for _ in range(dice.randrange(60 if long else 20)):
                if not attackers.send(connection, piece):
                    break
        attackers.hold(15 if long else 1)


@pytest.mark.long
def test_drips_into_huge_frames_do_not_starve_a_large_producer(target: Target, dice: random.Random) -> None:
    """The drips occupy all memory for large frames, and send a byte periodically so as not to be stalled.

    The large producer waits until the server gives up on one of them.
    """
    target.create_topic("large", configs={"max.message.bytes": str(20 * MEGABYTE)})
    large = batch(dice.randbytes(8 * MEGABYTE))
    with (
        target.attack("drips into huge frames", memory_bytes_allowed=BUDGET_BYTES),
        attackers.connections(target.address, 20) as opened,
    ):
        dripping = []
        for connection in opened:
            connection.settimeout(0.2)
            attackers.send(connection, struct.pack(">i", HUGE_FRAME))
            for _ in range(60):
                if not attackers.send(connection, bytes(MEGABYTE)):
                    break
            dripping.append(connection)
        served: list[int] = []

        def produce_large(_: int) -> None:
            with WireClient(target.address, timeout_s=BEYOND_STALL_S) as wire:
                served.append(produce(wire, "large", large).error_code)

        def drip(_: int) -> None:
            while not served and dripping:
                for connection in list(dripping):
                    try:
                        connection.send(b"\0")
                    except TimeoutError:
                        continue
                    except OSError:
                        dripping.remove(connection)
                attackers.hold(0.1)

        def run(index: int) -> None:
            if index:
                drip(index)
                return
            try:
                produce_large(index)
            finally:
                served.append(-1)  # the drips end in any case

        try:
            attackers.in_parallel(2, run)
        except TimeoutError:
            target.faults.append(f"drips: a large producer was not served within {BEYOND_STALL_S:.0f} s")
        else:
            assert served[0] == 0


def test_responses_that_are_not_read(target: Target, dice: random.Random, long: bool) -> None:
    """Many large responses are requested, and none is read."""
    for index in range(20):
        target.create_topic(f"topic-{index}", partitions=50)
    target.create_topic("filled")
    with target.wire() as wire:
        for _ in range(20):
            assert produce(wire, "filled", batch(dice.randbytes(900_000))).error_code == 0
    requests = [
        attackers.frame(MetadataRequest(topics=None), 9),
        attackers.frame(fetch_request("filled", max_bytes=50 * MEGABYTE, partition_max_bytes=50 * MEGABYTE), 12),
        attackers.frame(fetch_request("filled", dice.randrange(20)), 12),
    ]
    count = attackers.at_most_connections(1000 if long else 50)
    with (
        target.attack(f"{count} connections that read no answers"),
        attackers.connections(target.address, count) as opened,
    ):
        for connection in opened:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(0.05)
            for _ in range(200):
                if not attackers.send(connection, dice.choice(requests) * 20):
                    break
        attackers.hold(10 if long else 1)


def test_bytes_that_are_no_requests(target: Target, dice: random.Random, long: bool) -> None:
    with target.attack("random bytes"):
        for _ in range(20_000 if long else 500):
            data = dice.randbytes(dice.choice((1, 3, 4, 5, 14, 100, 5000)))
            if dice.random() < 0.7:
                data = struct.pack(">i", dice.choice((len(data), len(data) // 2, 0, -1, 2**31 - 1))) + data
            with attackers.connect(target.address) as connection:
                attackers.send(connection, data)


def test_valid_requests_with_changed_bytes(target: Target, seed: int, dice: random.Random, long: bool) -> None:
    """Requests of every API and version with random contents, in which some bytes are changed, cut or repeated."""
    samples = Samples(seed)
    rounds = 20 if long else 1
    with target.attack("requests with changed bytes"):
        for _ in range(rounds):
            for api in APIS:
                cls = request_class(api.key)
                for version in range(max(api.min_version, api.lowest_served), api.max_version + 1):
                    header = RequestHeader(
                        request_api_key=int(api.key), request_api_version=version, correlation_id=7, client_id="abuse"
                    )
                    body = encode(header, request_header_version(api.key, version))
                    body += encode(samples.message(cls, version), version)
                    with attackers.connect(target.address) as connection:
                        data = changed(body, dice)
                        attackers.send(connection, struct.pack(">i", len(data)) + data)


def changed(data: bytes, dice: random.Random) -> bytes:
    """The bytes with up to a few changes behind API key and version."""
    made = bytearray(data)
    for _ in range(dice.choice((0, 1, 1, 2, 5))):
        at = dice.randrange(8, len(made)) if len(made) > 8 else 0
        match dice.randrange(4):
            case 0:
                made[at] = dice.choice((0, 1, 127, 128, 255, dice.randrange(256)))
            case 1:
                del made[at : at + dice.randrange(1, 9)]
            case 2:
                made[at:at] = dice.randbytes(dice.randrange(1, 9))
            case 3:
                made[at : at + 4] = struct.pack(">i", dice.choice((-1, -2, 2**31 - 1, -(2**31), 1_000_000)))
    return bytes(made)
