"""TLS between a connection and its socket: `ssl.MemoryBIO` behind the interface of `transport`.

Only listeners with TLS import this module, because `ssl` takes 4 MB of memory and several milliseconds.

- **Handshake.** It runs inside `receive_into`, one step per turn of the connection (`TurnFirst`). All steps of an
  iteration of the event loop together take about 2 ms (`turns`), so that a thousand clients that connect at once do not
  delay others. A step takes 0.2 ms with a P-256 key, 0.5 ms with RSA 2048 and 4 ms with RSA 4096.
- **Principal.** It is known when the handshake is complete, before the first request is received.
- **Failures** are logged with the address of the peer, at a limited rate (`peer_log`). The peer receives the alert.
- **Memory.** A peer that does not read holds at most one encrypted piece (`PIECE_BYTES`).
- **Small records.** A call of `receive_into` decrypts at most `MAX_RECORDS` records. A stranger could otherwise send
  records with one byte each, or with nothing but key updates, of which OpenSSL handles all in one call: 9,000 records
  in one buffer take 0.3 s. The other records wait, so a peer with such records receives little at once
  (`_SMALL_RECEIVE_BYTES`). The responses to key updates are sent before anything else is received.

Session tickets of TLS 1.3 are off: a peer that disconnects without having read them resets the connection, and requests
that it has sent (``acks=0``) would be lost. Renegotiation and compression are off.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ...security.der import DerError
from ...security.distinguished_names import subject_name
from .authentication import ANONYMOUS
from .transport import PIECE_BYTES, HandshakeFailed, SendFirst, TurnFirst, send_by_reading

if TYPE_CHECKING:
    from ...log.descriptors import FileRange
    from ...protocol.records import Buffer
    from ...security.key_stores import KeyStore
    from ...security.principal_mapping import PrincipalMapping
    from .frames import Gate

VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}

_RECEIVE_BYTES: Final = 256 * 1024
_FIRST_RECEIVE_BYTES: Final = 32 * 1024
_SMALL_RECEIVE_BYTES: Final = 8 * 1024
_HANDSHAKE_RECEIVE_BYTES: Final = 32 * 1024
_HANDSHAKE_RECORD: Final = 0x16
_SHOWN_BYTES: Final = 8

_RECORD_HEADER_BYTES: Final = 5
MAX_RECORDS: Final = 64
"""The maximum number of records that are decrypted per call. Records with 16 kB of data fill every buffer before. A
record takes up to 40 us (a key update)."""

_MAX_FLIGHTS: Final = 10
"""More than a handshake has."""

# One buffer for the ciphertext of all connections: it is in use only within `receive_into`.
_received = memoryview(bytearray(_RECEIVE_BYTES))
_NOTHING: Final = memoryview(b"")

# Reasons of OpenSSL that state too little about what is wrong.
_EXPLANATIONS: Final = {
    "KEY_VALUES_MISMATCH": "the private key does not belong to the first certificate of the chain",
    "EE_KEY_TOO_SMALL": "the key is too short: use RSA with 2048 bits or more, or P-256",
    "CA_MD_TOO_WEAK": "the certificate is signed with an algorithm that is not secure; use SHA-256",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client has no certificate, and ssl.client.auth is required",
    "NO_SHARED_CIPHER": "the client supports none of the cipher suites of this listener",
    "UNSUPPORTED_PROTOCOL": "the client supports no version of TLS that ssl.enabled.protocols allows",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust the certificate of this server",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client does not accept the certificate of this server",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client does not trust the certificate of this server",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "for the client, the certificate of this server has expired",
}


class TlsError(Exception):
    """TLS cannot be set up with these settings; the message states the reason, without secrets."""


def server_context(
    store: KeyStore,
    *,
    trusted: str | None,
    client_auth: str,
    versions: tuple[str, ...],
    ciphers: str | None,
) -> ssl.SSLContext:
    """The context of a listener. ``versions`` and ``client_auth`` are keys of the tables above. Raises `TlsError`.

    ``ciphers``: OpenSSL's names of the suites of TLS 1.2, or None for its default.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.num_tickets = 0
    _limit(context, versions, ciphers)
    _load_key(context, store)
    if trusted is not None:
        _trust(context, trusted)
    context.verify_mode = CLIENT_AUTH[client_auth]
    return context


def client_context(
    store: KeyStore | None,
    *,
    trusted: str | None,
    checks_host: bool,
    versions: tuple[str, ...] = tuple(VERSIONS),
    ciphers: str | None = None,
) -> ssl.SSLContext:
    """The context of a client. ``store``: its key, if it has one. ``trusted``: certificates in PEM, or None for the
    authorities of the system. ``checks_host``: the certificate of the server must be for its host. ``versions`` and
    ``ciphers``: see `server_context`. Raises `TlsError`.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _limit(context, versions, ciphers)
    context.check_hostname = checks_host
    if trusted is None:
        context.load_default_certs()
    else:
        _trust(context, trusted)
    if store is not None:
        _load_key(context, store)
    return context


def handshake_problem(server: ssl.SSLContext, client: ssl.SSLContext) -> str | None:
    """Why a client with one context cannot connect to a server with the other one; None if it can."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    peers = [
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(_MAX_FLIGHTS):
        for peer in list(peers):
            try:
                peer.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                return _text(error)
            peers.remove(peer)
        if not peers:
            return None
    return "the handshake does not end"


def _limit(context: ssl.SSLContext, versions: tuple[str, ...], ciphers: str | None) -> None:
    context.minimum_version = min(VERSIONS[version] for version in versions)
    context.maximum_version = max(VERSIONS[version] for version in versions)
    if ciphers is not None:
        try:
            context.set_ciphers(ciphers)
        except ssl.SSLError:
            raise TlsError(f"OpenSSL supports none of the cipher suites {ciphers}") from None


def _load_key(context: ssl.SSLContext, store: KeyStore) -> None:
    try:
        # A callback, because without a password OpenSSL would ask for one at the terminal.
        with _as_file(f"{store.key}\n{store.chain}\n") as path:
            context.load_cert_chain(path, password=lambda: store.password or "")
    except ssl.SSLError as error:
        problem = _text(error)
        if error.reason is None:  # OpenSSL states only where it has failed
            problem = "the PEM is damaged"
            if store.password is not None:
                problem = f"ssl.key.password does not decrypt the private key, or {problem}"
        raise TlsError(f"the private key or its certificate is not valid: {problem}") from None


def _trust(context: ssl.SSLContext, trusted: str) -> None:
    try:
        context.load_verify_locations(cadata=trusted)
    except ssl.SSLError as error:
        raise TlsError(f"a trusted certificate is not valid: {_text(error)}") from None
    # As in Java, every certificate of the trust store is an anchor, not only those that are self-signed.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


@contextlib.contextmanager
def _as_file(text: str) -> Iterator[str]:
    """A path from which OpenSSL can read a private key: in memory on Linux, elsewhere a file of this user alone."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("moldau", os.MFD_CLOEXEC)
        with open(fd, "wb") as file:
            file.write(text.encode("latin-1"))
            file.flush()
            yield f"/proc/self/fd/{fd}"
        return
    with tempfile.NamedTemporaryFile() as file:
        file.write(text.encode("latin-1"))
        file.flush()
        yield file.name


class TlsSecurity:
    """The security of a listener with TLS; see `listeners.Security`."""

    def __init__(self, context: ssl.SSLContext, mapping: PrincipalMapping | None) -> None:
        """Without ``mapping``, certificates do not determine the principal (SASL_SSL)."""
        self.context = context
        self._mapping = mapping

    def accept(self, sock: socket.socket) -> tuple[TlsTransport, TlsTransport]:
        """The transport, which is also the authentication state of the connection."""
        transport = TlsTransport(self.context, sock, self)
        return transport, transport

    def principal_of(self, certificate: bytes | None) -> str:
        """The principal of a peer with this certificate, in DER. Raises `HandshakeFailed`."""
        if certificate is None or self._mapping is None:
            return ANONYMOUS.principal
        try:
            name = subject_name(certificate)
        except DerError as error:
            raise HandshakeFailed(f"the subject of the client's certificate cannot be read: {error}") from None
        mapped = self._mapping.name_of(name)
        if mapped is None:
            raise HandshakeFailed(f"no rule of ssl.principal.mapping.rules matches the client's name '{name}'")
        return f"User:{mapped}"


class RecordEnds:
    """Finds the ends of records in received bytes. A record is ``type, version (2 bytes), length (2 bytes), contents``,
    and may arrive in several parts."""

    __slots__ = ("_header", "_missing")

    def __init__(self) -> None:
        self._header = b""  # the received part of a header
        self._missing = 0  # contents of the current record that have not arrived

    def find(self, data: memoryview, most: int) -> tuple[int, int]:
        """The end of the first ``most`` records in ``data``, or of ``data``, and how many records end before it."""
        size = len(data)
        position = min(self._missing, size)
        self._missing -= position
        found = int(position > 0 and not self._missing)
        while position < size and found < most:
            if not self._header and position + _RECORD_HEADER_BYTES <= size:
                length = data[position + 3] << 8 | data[position + 4]
                position += _RECORD_HEADER_BYTES
            else:
                header = self._header + bytes(data[position : position + _RECORD_HEADER_BYTES - len(self._header)])
                position += len(header) - len(self._header)
                if len(header) < _RECORD_HEADER_BYTES:
                    self._header = header
                    break
                self._header = b""
                length = int.from_bytes(header[3:], "big")
            if position + length > size:
                self._missing = position + length - size
                position = size
                break
            position += length
            found += 1
        return position, found


class TlsTransport:
    """See the module docstring."""

    __slots__ = (
        "_complete",
        "_drained",
        "_encrypted",
        "_incoming",
        "_later",
        "_may_decrypt",
        "_outgoing",
        "_received_any",
        "_records",
        "_security",
        "_shaking_hands",
        "_size",
        "_sock",
        "_tls",
        "_turn",
        "_unsent",
        "principal",
    )

    def __init__(
        self,
        context: ssl.SSLContext,
        sock: socket.socket,
        security: TlsSecurity | None,
        server_hostname: str | None = None,
    ) -> None:
        """Without ``security``, the peer is a server with this name (`tls_client`)."""
        self._sock = sock
        self._security = security
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=security is not None, server_hostname=server_hostname
        )
        self._shaking_hands = True  # until the last flight has been sent
        self._complete = False  # except for the last flight, which the kernel has not accepted yet
        self._turn = False  # a step of the handshake may run: this connection has its turn
        self._received_any = False
        self._drained = True  # the last receive has emptied the kernel's buffer
        self._records = RecordEnds()
        self._may_decrypt = 0  # how many records, in this call
        self._size = _FIRST_RECEIVE_BYTES  # how much is received at once; more while records are large
        self._later = _NOTHING  # received ciphertext: the records of the next calls
        self._unsent = memoryview(b"")  # encrypted
        self._encrypted = 0  # plaintext bytes in `_unsent` that are not counted as sent
        self.principal = ANONYMOUS.principal

    @property
    def pending_authentication(self) -> bool:
        """See `authentication.Authentication`."""
        return self._shaking_hands

    @property
    def max_request_bytes(self) -> int | None:
        """See `authentication.Authentication`: no frame is received before the handshake is complete."""
        return None

    @property
    def may_manage_tokens(self) -> bool:
        """See `authentication.Authentication`."""
        return self.principal != ANONYMOUS.principal

    @property
    def gate(self) -> Gate | None:
        """See `authentication.Authentication`."""
        return None

    def receive_into(self, buffer: memoryview, /) -> int:
        self._may_decrypt = MAX_RECORDS
        if self._shaking_hands and not self._continue_handshake():
            return 0
        if (self._outgoing.pending or self._unsent) and not self._send_encrypted(0) and self._security is not None:
            raise SendFirst  # responses to key updates, which the peer does not read
        filled = 0
        size = len(buffer)
        read = self._tls.read
        while filled < size:
            try:
                count = read(size - filled, buffer[filled:])
            except ssl.SSLWantReadError:
                if filled and self._drained:
                    break
                if not self._may_decrypt:
                    if filled:
                        break
                    raise TurnFirst from None
                try:
                    if not self._receive(self._size):
                        break  # if there was data before the end, the next call returns 0
                except BlockingIOError:
                    if filled:
                        break
                    if self._outgoing.pending:
                        self._send_encrypted(0)  # the peer may wait for a response to a control message
                    raise
            else:
                assert isinstance(count, int)
                if not count:  # close_notify
                    break
                filled += count
        return filled

    def send(self, data: Buffer, flags: int, /) -> int:
        view = memoryview(data)
        sent = 0
        while sent < len(view):
            if not self._encrypted:
                self._encrypted = self._tls.write(view[sent : sent + PIECE_BYTES])
            if not self._send_encrypted(flags):
                if not sent:
                    raise BlockingIOError
                break
            counted = min(self._encrypted, len(view) - sent)
            self._encrypted -= counted
            sent += counted
        return sent

    def send_file(self, file_range: FileRange, start: int, length: int, /) -> int:
        return send_by_reading(self.send, file_range, start, length)

    def pending(self) -> int:
        flight = len(self._unsent) if self._shaking_hands else 0
        return self._tls.pending() + self._incoming.pending + len(self._later) + flight

    def close(self) -> None:
        with contextlib.suppress(OSError):
            if not self._shaking_hands:
                self._tls.unwrap()
        with contextlib.suppress(OSError):
            self._send_encrypted(0)
        self._sock.close()

    def _continue_handshake(self) -> bool:
        """Return whether the handshake is complete; False if the peer has disconnected.

        Raises:
            BlockingIOError: it must wait for data, for the kernel to accept a flight, or for this connection's turn.
            HandshakeFailed: the reason.
        """
        self._send_flight()
        if self._complete:
            self._shaking_hands = False
            return True
        if not self._turn:
            if not self._receive(_HANDSHAKE_RECEIVE_BYTES):
                return False
            self._turn = True
            raise TurnFirst
        self._turn = False
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send_flight()
            raise BlockingIOError from None
        except ssl.SSLError as error:
            with contextlib.suppress(OSError):
                self._send_encrypted(0)  # the alert
            raise HandshakeFailed(f"the TLS handshake failed: {_text(error)}") from None
        assert self._security is not None
        self.principal = self._security.principal_of(self._tls.getpeercert(binary_form=True))
        self._complete = True
        self._send_flight()
        self._shaking_hands = False
        self._acknowledge()
        return True

    def _acknowledge(self) -> None:
        """Acknowledge the end of the client's handshake immediately. With TLS 1.3 there is no response to it, and a
        client with Nagle's algorithm (librdkafka) sends its first request after the acknowledgment, which the kernel
        would otherwise delay by 40 ms."""
        if hasattr(socket, "TCP_QUICKACK"):
            with contextlib.suppress(OSError):
                self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

    def _receive(self, size: int) -> bool:
        """Receive ciphertext, and pass on the records that may be decrypted in this call. Returns False at the end of
        the peer's data."""
        data = self._later
        if not data:
            received = self._sock.recv_into(_received[:size])
            self._drained = received < size
            if not received:
                return False
            data = _received[:received]
            if not self._received_any:
                self._received_any = True
                if _received[0] != _HANDSHAKE_RECORD:
                    shown = bytes(data[:_SHOWN_BYTES])
                    raise HandshakeFailed(
                        f"the peer does not speak TLS, which this listener requires; its first bytes are {shown!r}. "
                        "Set security.protocol to SSL or SASL_SSL in the client"
                    )
        end, records = self._records.find(data, self._may_decrypt)
        self._may_decrypt -= records
        self._incoming.write(data[:end])
        if end == len(data):
            self._later = _NOTHING
            if not self._drained:
                self._size = min(2 * self._size, _RECEIVE_BYTES)
        else:
            self._size = _SMALL_RECEIVE_BYTES
            self._later = data[end:] if data is self._later else memoryview(bytes(data[end:]))
        return True

    def _send_flight(self) -> None:
        if not self._send_encrypted(0):
            raise SendFirst

    def _send_encrypted(self, flags: int) -> bool:
        """Send encrypted data. Returns whether the kernel has accepted all of it."""
        if not self._unsent:
            self._unsent = memoryview(self._outgoing.read())
        elif self._outgoing.pending:
            self._unsent = memoryview(bytes(self._unsent) + self._outgoing.read())
        if self._unsent:
            try:
                sent = self._sock.send(self._unsent, flags)
            except BlockingIOError:
                return False
            self._unsent = self._unsent[sent:]
        return not self._unsent


def _text(error: ssl.SSLError) -> str:
    """What an error of OpenSSL states, without the position in its source."""
    reason = error.reason or ""
    if reason in _EXPLANATIONS:
        return f"{_EXPLANATIONS[reason]} ({reason})"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate of the peer is not accepted: {error.verify_message}"
    return reason or str(error)
