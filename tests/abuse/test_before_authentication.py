"""Peers that do not authenticate: handshakes of TLS and exchanges of SASL that are begun and not finished, and random
bytes at listeners of each security protocol."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from moldau.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from moldau.protocol.messages.sasl_handshake import SaslHandshakeRequest
from moldau.testing.authority import Authority
from moldau.testing.client_hello import client_hello
from moldau.testing.full_run import first_of

from . import attackers
from .conftest import MakeTarget, Target

PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
PROTOCOLS: Final = ("SASL_SSL", "SASL_PLAINTEXT", "SSL")
CONNECTIONS: Final = 2000
TIMEOUT_MS: Final = 5000
"""``moldau.authentication.timeout.ms``: all connections are opened within this time, on a machine that is not busy."""
MAX_LINES: Final = 60
"""About a single address, in a test that lasts minutes: a few per minute (`peer_log`)."""


@contextmanager
def secured(make_target: MakeTarget, folder: Path) -> Iterator[Target]:
    config = {
        "listeners": "PLAINTEXT://127.0.0.1:0," + ",".join(f"{name}://127.0.0.1:0" for name in PROTOCOLS),
        "ssl.keystore.location": str(Authority().server().write(folder / "server.pem")),
        "moldau.authentication.timeout.ms": str(TIMEOUT_MS),
    }
    for listener in ("sasl_plaintext", "sasl_ssl"):
        name = f"listener.name.{listener}"
        config |= {
            f"{name}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            f"{name}.plain.sasl.jaas.config": f"{PLAIN} required user_alice=secret;",
            f"{name}.scram-sha-512.sasl.jaas.config": f"{SCRAM} required;",
        }
    with make_target(config=config) as target:
        yield target
        lines = [line for line in target.broker.log().splitlines() if "127.0.0.1" in line]
        assert len(lines) <= MAX_LINES, lines[:10]


def unfinished(protocol: str, hello: bytes, dice: random.Random) -> bytes:
    """What a peer sends before it becomes silent. ``hello``: the first flight of a handshake."""
    if protocol.endswith("SSL"):
        return dice.choice((hello, hello[: dice.randrange(len(hello))], b""))
    shake = attackers.frame(SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 1)
    first = attackers.frame(SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=nonce"), 2)
    whole = shake + first
    huge = shake + struct.pack(">i", 500_000) + bytes(5_000)
    return dice.choice((whole, whole[: dice.randrange(len(whole))], huge))


@pytest.mark.parametrize("protocol", first_of(PROTOCOLS))
def test_thousands_of_peers_that_do_not_finish_are_closed_after_the_timeout(
    make_target: MakeTarget, tmp_path: Path, protocol: str, dice: random.Random, long: bool
) -> None:
    count = attackers.at_most_connections(4 * CONNECTIONS if long else CONNECTIONS)
    with secured(make_target, tmp_path) as target:
        address = target.broker.address_of(protocol)
        hello = client_hello()
        with (
            target.attack(f"{count} peers of {protocol} that do not finish"),
            attackers.connections(address, count) as opened,
        ):
            for connection in opened:
                attackers.send(connection, unfinished(protocol, hello, dice))
            for connection in opened:
                assert ends(connection), "it is closed by the timeout"


def ends(connection: socket.socket) -> bool:
    """Whether the server closes the connection; fails after `attackers.ANSWER_S`."""
    try:
        while connection.recv(65_536):
            pass
    except ConnectionError:
        pass
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize("protocol", first_of(PROTOCOLS))
def test_random_bytes_before_authentication(
    make_target: MakeTarget, tmp_path: Path, protocol: str, dice: random.Random, long: bool
) -> None:
    with secured(make_target, tmp_path) as target:
        address = target.broker.address_of(protocol)
        hello = client_hello()
        with target.attack(f"random bytes at {protocol}"):
            for _ in range(20_000 if long else 300):
                data = bytearray(unfinished(protocol, hello, dice) or b"\x16")
                for _ in range(dice.choice((0, 1, 3))):
                    at = dice.randrange(len(data))
                    data[at : at + dice.randrange(3)] = dice.randbytes(dice.randrange(9))
                    data = data or bytearray(1)
                with attackers.connect(address) as connection:
                    attackers.send(connection, bytes(data) + dice.randbytes(dice.choice((0, 10, 3000))))
                    if dice.random() < 0.5:
                        attackers.reset(connection)
