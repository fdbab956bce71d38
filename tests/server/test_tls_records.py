"""Records of TLS that cost the server much and the peer little: with one byte each, and key updates (RFC 8446, section
4.6.3)."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from moldau.security.key_stores import pem_key_store
from moldau.server.network.tls import MAX_RECORDS, RecordEnds, TlsSecurity, TlsTransport, server_context
from moldau.server.network.transport import SendFirst, TurnFirst
from moldau.testing.authority import Authority

AUTHORITY = Authority()
SERVER = AUTHORITY.server()
BUFFER = memoryview(bytearray(256 * 1024))
KEY_UPDATE_WITH_RESPONSE = b"\x18\0\0\1\1"
RESPONSE_BYTES = 27


class Attacker:
    """A client with TLS 1.3 that can send key updates, which `ssl` cannot: it encrypts with the logged secret."""

    def __init__(self, sock: socket.socket, folder: Path) -> None:
        self.sock = sock
        context = ssl.create_default_context(cadata=AUTHORITY.certificate)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.keylog_filename = str(folder / "secrets")
        self._incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self.outgoing, server_hostname="127.0.0.1")
        self._log = folder / "secrets"

    def shake_hands(self) -> bool:
        """One step. Returns whether the handshake is complete for this side."""
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            self.sock.sendall(self.outgoing.read())
            self._incoming.write(self.sock.recv(65_536))
            return False
        self.sock.sendall(self.outgoing.read())
        return True

    def key_updates(self, count: int) -> bytes:
        """Encrypted key updates, each of which requests one in response."""
        cipher = self.tls.cipher()
        assert cipher is not None
        digest, key_bytes = ("sha384", 32) if cipher[0] == "TLS_AES_256_GCM_SHA384" else ("sha256", 16)
        (line,) = (line for line in self._log.read_text().splitlines() if line.startswith("CLIENT_TRAFFIC_SECRET_0"))
        secret = bytes.fromhex(line.split()[2])

        def expand(label: str, size: int) -> bytes:
            info = size.to_bytes(2, "big") + bytes([len(label) + 6]) + b"tls13 " + label.encode() + b"\0\1"
            return hmac.digest(secret, info, digest)[:size]

        records = []
        for _ in range(count):
            # The first record under each secret: its sequence number is 0, so the nonce is the IV.
            encrypted_bytes = len(KEY_UPDATE_WITH_RESPONSE) + 1 + 16
            header = b"\x17\3\3" + encrypted_bytes.to_bytes(2, "big")
            key = AESGCM(expand("key", key_bytes))
            records.append(header + key.encrypt(expand("iv", 12), KEY_UPDATE_WITH_RESPONSE + b"\x16", header))
            secret = expand("traffic upd", hashlib.new(digest).digest_size)
        return b"".join(records)


@pytest.fixture
def peers(tmp_path: Path) -> Iterator[tuple[TlsTransport, Attacker]]:
    """The server's side and the client's side after the handshake."""
    server, client = socket.socketpair()
    with server, client:
        store = pem_key_store(SERVER.key, SERVER.certificate, None)
        versions = ("TLSv1.2", "TLSv1.3")
        context = server_context(store, trusted=None, client_auth="none", versions=versions, ciphers=None)
        server.setblocking(False)
        transport, _ = TlsSecurity(context, None).accept(server)
        attacker = Attacker(client, tmp_path)
        attacker.sock.settimeout(0.02)
        is_complete = False
        while transport.pending_authentication:
            if not is_complete:
                with contextlib.suppress(TimeoutError):
                    is_complete = attacker.shake_hands()
            with contextlib.suppress(BlockingIOError):
                transport.receive_into(BUFFER)
        attacker.sock.settimeout(10)
        yield transport, attacker


def test_a_call_decrypts_a_limited_number_of_records(peers: tuple[TlsTransport, Attacker]) -> None:
    transport, attacker = peers
    data = bytes(range(250)) * 4
    for byte in data:
        attacker.tls.write(bytes([byte]))
    attacker.sock.sendall(attacker.outgoing.read())
    received = b""
    while len(received) < len(data):
        count = transport.receive_into(BUFFER)
        assert 0 < count <= MAX_RECORDS
        received += bytes(BUFFER[:count])
        assert transport.pending() or len(received) == len(data)
    assert received == data
    with pytest.raises(BlockingIOError):
        transport.receive_into(BUFFER)
    assert not transport.pending()


def test_little_of_a_peer_with_small_records_is_kept_and_much_of_others_is_received(
    peers: tuple[TlsTransport, Attacker],
) -> None:
    transport, attacker = peers
    sizes = []
    for size, count in ((1, 2000), (16_000, 40)):
        for _ in range(count):
            attacker.tls.write(b"x" * size)
        sent = threading.Thread(target=attacker.sock.sendall, args=(attacker.outgoing.read(),))
        sent.start()
        received = kept = most = 0
        while received < size * count:
            with contextlib.suppress(BlockingIOError):
                received_now = transport.receive_into(BUFFER)
                received += received_now
                most = max(most, received_now)
                kept = max(kept, transport.pending())
        sent.join()
        sizes.append((kept, most))
    (kept_small, most_small), (_, most_large) = sizes
    assert kept_small <= 32 * 1024
    assert most_small <= MAX_RECORDS
    assert most_large > 100_000


def test_key_updates_are_handled_in_several_turns(peers: tuple[TlsTransport, Attacker]) -> None:
    transport, attacker = peers
    attacker.sock.sendall(attacker.key_updates(10 * MAX_RECORDS))
    turns = answered = 0
    while True:
        try:
            transport.receive_into(BUFFER)
        except TurnFirst:
            turns += 1
        except BlockingIOError:
            break
    # OpenSSL responds to the last one when data is sent.
    while answered < (10 * MAX_RECORDS - 1) * RESPONSE_BYTES:
        answered += len(attacker.sock.recv(65_536))
    assert turns >= 10


def test_responses_to_key_updates_take_no_memory_if_the_peer_does_not_read(
    peers: tuple[TlsTransport, Attacker],
) -> None:
    transport, attacker = peers
    server_side = transport._sock
    server_side.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # the minimum of the system
    updates = memoryview(attacker.key_updates(4000))
    sent = 0
    attacker.sock.setblocking(False)
    waits = 0
    for _ in range(10_000):
        with contextlib.suppress(BlockingIOError):
            sent += attacker.sock.send(updates[sent:])
        try:
            transport.receive_into(BUFFER)
        except SendFirst:
            waits += 1
            if waits > 10:
                break
        except BlockingIOError:
            pass
    assert waits > 10
    assert len(transport._unsent) + transport._outgoing.pending <= 2 * MAX_RECORDS * RESPONSE_BYTES


@given(st.lists(st.binary(max_size=300), max_size=30), st.data())
def test_the_ends_of_records_are_found_in_any_parts(contents: list[bytes], data: st.DataObject) -> None:
    records = [b"\x17\3\3" + len(each).to_bytes(2, "big") + each for each in contents]
    rest = memoryview(b"".join(records))
    ends = RecordEnds()
    found = position = 0
    while rest:
        part = rest[: data.draw(st.integers(1, len(rest)))]
        most = data.draw(st.integers(1, 5))
        end, count = ends.find(part, most)
        assert 0 < end <= len(part)
        assert count <= most
        position, found, rest = position + end, found + count, rest[end:]
        complete = sum(len(b"".join(records[: index + 1])) <= position for index in range(len(records)))
        assert found == complete
        if end < len(part):
            assert count == most
    assert found == len(records)
