"""Sockets of TLS cases: without TLS, with another version of TLS, and with other certificates."""

from __future__ import annotations

import contextlib
import socket
import ssl
import tempfile
from typing import Final

from .check import Check
from .exchange import open_socket

ALERT: Final = 0x15
"""The first byte of an alert of TLS, which a server may send before it closes a connection."""

_RECEIVE_BYTES: Final = 1 << 16

# A key and a self-signed certificate that no server trusts.
_UNKNOWN: Final = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgQ7L7vti1HWJp4kP8
x7+RJ33S/LBCx7WBWClKpAqqVI+hRANCAASmoaVEHYNdXWVX4MFXf80fSPJGqmFo
f/M1vn8dfndol0867X9FotdP9wSPGXtSuO40KLOZ96qTm0tU2bFj1EJP
-----END PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIIBmjCCAUGgAwIBAgIUNUv0BxyCkl5dqG6oVXcZlECpTSswCgYIKoZIzj0EAwIw
IjEgMB4GA1UEAwwXb2YgYW4gdW5rbm93biBhdXRob3JpdHkwIBcNMjYxMTI3MDgz
MTIxWhgPMjEyNjExMDMwODMxMjFaMCIxIDAeBgNVBAMMF29mIGFuIHVua25vd24g
YXV0aG9yaXR5MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEpqGlRB2DXV1lV+DB
V3/NH0jyRqphaH/zNb5/HX53aJdPOu1/RaLXT/cEjxl7UrjuNCizmfeqk5tLVNmx
Y9RCT6NTMFEwHQYDVR0OBBYEFKZr03NaAhkNjuZ4lU6kZUEIFRrTMB8GA1UdIwQY
MBaAFKZr03NaAhkNjuZ4lU6kZUEIFRrTMA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZI
zj0EAwIDRwAwRAIgKzztRpY1InDPco+QfOStEM2S4JhoKHBq7cZCF+Iuc2kCIG7m
fXTlHGC4R2Fz46wjtEkQSVA6HRS+uViPMBKxdX29
-----END CERTIFICATE-----
"""


class RawSocket:
    """A socket that the end of the case closes; see `check.Attachment`."""

    def __init__(self, c: Check, context: ssl.SSLContext | None = None) -> None:
        """With ``context``, the handshake is done. Raises OSError, also if it fails."""
        self._c = c
        self._socket = open_socket(c.target.address, c.remaining())
        c.attach(self)
        if context is not None:
            host = c.target.address.rpartition(":")[0].strip("[]")
            self._socket = context.wrap_socket(self._socket, server_hostname=host)

    def send(self, data: bytes) -> None:
        """Send all of it. Raises OSError."""
        self._socket.settimeout(self._c.remaining())
        self._socket.sendall(data)

    def receive(self) -> bytes:
        """The next bytes; empty at the end of the connection, also if it was reset. Raises TimeoutError."""
        self._socket.settimeout(self._c.remaining())
        try:
            return self._socket.recv(_RECEIVE_BYTES)
        except TimeoutError:
            raise
        except OSError:
            return b""

    def receive_all(self) -> bytes:
        """All bytes until the end of the connection. Raises TimeoutError."""
        return b"".join(iter(self.receive, b""))

    def end_of_stream(self) -> None:
        """Close the sending half."""
        self._socket.shutdown(socket.SHUT_WR)

    def interrupt(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()


def unverified() -> ssl.SSLContext:
    """A context without a certificate, which accepts any certificate of the server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def with_unknown_certificate() -> ssl.SSLContext:
    """The same with a certificate that the server cannot trust."""
    context = unverified()
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(_UNKNOWN)
        file.flush()
        context.load_cert_chain(file.name)
    return context
